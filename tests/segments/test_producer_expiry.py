"""How long a partition knows a producer: by what it does, not by how old its records are."""

from types import TracebackType

import pytest

from segbroker.protocol.markers import Outcome, encode_marker
from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.age_clock import HOLD_MS
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.log.producers import AFTER_START_MS, KnownBatch, Producer, ProducerTable
from segbroker.segments.partition.handler import PRODUCER_EXPIRATION_MS, DiskHandler

from .test_retention import manager_on, partition_on
from .tools import append, batch_of

NOW = 1_700_000_000_000
DAY = PRODUCER_EXPIRATION_MS
OLD = NOW - 2 * DAY


def send(handler: DiskHandler, now_ms: int, sequence: int, *, who: int = 7, at: int = OLD) -> bool:
    """One record with a time `at`, sent at `now_ms`; whether it was taken for a repetition."""
    sent = batch_of(b"%d" % sequence, now_ms=at, producer=(who, 0, sequence))
    return append(handler, sent, now_ms).duplicate


def known(handler: DiskHandler) -> list[int]:
    return [producer_id for producer_id, _ in handler.producers()]


def test_a_producer_that_copies_old_records_is_known_while_it_does() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=-1)
    for sequence in range(3):
        at_ms = NOW + sequence * DAY // 2
        assert not send(handler, at_ms, sequence)
        manager.keep_house_now(at_ms)
        manager.keep_house_now(at_ms + 1_000)
    assert send(handler, NOW + DAY + 2_000, 2)
    assert known(handler) == [7]


def test_after_a_start_it_is_known_for_as_long_again() -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    send(handler, NOW, 0)
    manager.close()
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    manager.keep_house_now(NOW + 1_000)
    assert send(handler, NOW + 2_000, 0)


def test_who_does_not_come_back_after_a_start_is_forgotten_however_often_it_starts() -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    send(handler, NOW, 0)
    manager.close()
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    manager.keep_house_now(NOW + 1_000)
    manager.keep_house_now(NOW + 999 + AFTER_START_MS)
    assert known(handler) == [7]
    manager.keep_house_now(NOW + 1_000 + AFTER_START_MS)
    assert known(handler) == []


def test_it_is_forgotten_when_it_did_nothing_for_long_though_others_did() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=-1)
    send(handler, NOW, 0)
    manager.keep_house_now(NOW + 1_000)
    send(handler, NOW + DAY // 2, 0, who=8, at=NOW + DAY // 2)
    manager.keep_house_now(NOW + DAY)
    assert known(handler) == [7, 8]
    manager.keep_house_now(NOW + DAY + 1_000)
    assert known(handler) == [8]


def test_an_idle_partition_forgets_all_at_once() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=-1)
    send(handler, NOW, 0, at=NOW)
    send(handler, NOW, 0, who=8)
    manager.keep_house_now(NOW + DAY - 1)
    assert known(handler) == [7, 8]
    manager.keep_house_now(NOW + DAY + 1)
    assert known(handler) == []


def test_of_thousands_one_is_looked_at_for_each_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Housekeeping asks each second: a hundred thousand would cost it a tenth of a processor."""
    count, minute = 3_000, 60_000
    looked: list[int] = []
    last_ms = vars(Producer)["last_ms"]

    def counted(self: Producer) -> int:
        looked.append(self.epoch)
        found: int = last_ms.__get__(self)
        return found

    monkeypatch.setattr(Producer, "last_ms", property(counted))
    batch = KnownBatch(0, 0, 0, NOW)
    table = ProducerTable({number: Producer(0, (batch,)) for number in range(count)})
    for at_ms in range(NOW, NOW + minute, 1_000):
        assert table.stale(at_ms, DAY, is_idle=False) == []
    assert len(looked) == minute
    old = table.stale(NOW + DAY + 1, DAY, is_idle=True)
    assert len(old) == count
    table.forget(old)
    assert len(table) == 0


def test_a_clock_that_is_set_back_does_not_keep_producers_from_being_looked_at() -> None:
    batch = KnownBatch(0, 0, 0, OLD)
    table = ProducerTable({number: Producer(0, (batch,)) for number in range(3_000)})
    table.stale(NOW + 10 * DAY, 20 * DAY, is_idle=True)
    assert len(table.stale(NOW, DAY, is_idle=True)) == 3_000


class HeldLock:
    """The append lock while somebody holds it over a disk that fails: who takes it waits."""

    def __enter__(self) -> None:
        raise AssertionError("it would wait")

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        raise AssertionError("never taken")


def test_appends_do_not_wait_for_who_looks_at_producers_nor_the_other_way_round() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=-1)
    send(handler, NOW, 0)
    send(handler, NOW, 0, who=8)
    opened = handler._log
    free = opened.append_lock
    opened.append_lock = HeldLock()  # type: ignore[assignment]  # asked for nothing else
    assert handler.producer(7) is not None
    assert handler.producer(9) is None
    manager.keep_house_now(NOW + 1_000)  # finds nobody to forget
    opened.append_lock = free

    class BusyLock(HeldLock):
        """Somebody appends right before it is had."""

        def __enter__(self) -> None:
            opened.append_lock = free
            send(handler, NOW + DAY + 1_000, 1)

        def __exit__(self, *raised: object) -> None:
            """Nothing was taken."""

    opened.append_lock = BusyLock()  # type: ignore[assignment]  # asked for nothing else
    manager.keep_house_now(NOW + DAY + 1_000)
    assert known(handler) == [7], "of it something came meanwhile"


def test_a_clock_that_jumps_ahead_makes_nobody_forgotten_at_once() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=-1)
    manager.housekeeping(NOW, 0)
    send(handler, NOW, 0, at=NOW)
    for seconds in range(1, 5):  # the machine was suspended, or its clock is set wrong
        manager.housekeeping(NOW + 3 * DAY + 1_000 * seconds, 1_000 * seconds)
    assert send(handler, NOW + 3 * DAY + 5_000, 0, at=NOW), "its answer was lost: a repetition"
    for _ in range(2):
        manager.housekeeping(NOW + 3 * DAY + HOLD_MS + 1_000, HOLD_MS + 1_000)
    assert known(handler) == [], "believed by now"


def test_aborted_transactions_that_are_gone_are_forgotten_whatever_the_clock_says() -> None:
    """With a clock that jumps again and again they would fill the memory."""
    manager, handler = partition_on(MemoryStorage(), retention_ms=-1)
    manager.housekeeping(NOW, 0)
    begun = encode_batch(
        [b"v"],
        timestamps_ms=NOW,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    append(handler, memoryview(bytearray(begun)), NOW)
    marker = memoryview(encode_marker(Outcome.ABORT, 7, 0, NOW))
    handler.append(marker, check_batch(marker, stored=True), NOW)
    assert len(handler.transactions.aborted) == 1
    handler.delete_records_before(2)
    manager.housekeeping(NOW + 3 * DAY, 1_000)
    assert handler.transactions.aborted == []
    assert known(handler) == [7], "the clock is not believed"

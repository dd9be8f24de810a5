"""A partition that an operator is to look at first (on.corruption), and whose disk fails as well.

damage -> appends are refused | a sync of what was acknowledged before fails | -> written to new
                                                                                   files, or told
"""

import errno
from collections import deque
from collections.abc import Callable

import pytest

from segbroker.protocol.markers import Outcome, encode_marker
from segbroker.protocol.record_batch import encode_batch, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import (
    CorruptSegment,
    DiskFull,
    InvalidProducerEpoch,
    PartitionDamaged,
    PartitionReadOnly,
    StorageError,
)
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.log.transaction_index import Aborted
from segbroker.segments.metadata.ceilings import IDLE_MS
from segbroker.segments.metadata.transactions import BOOT_TORN, TRANSACTION, State, Transaction
from segbroker.segments.partition.handler import AppendResult, DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from ..faults.failing_disk import FailingDisk
from .test_doubted_ends import UNSYNCED
from .test_failures import TreacherousStorage, partition_on, readable, write
from .test_looked_at_meanwhile import hear
from .test_torn_marks import boot_of
from .tools import SMALL, append, as_after_a_checkpoint, batch_of, flip, manager_on, values_of

POLICIES = pytest.mark.parametrize("policy", ["readonly", "refuse"])
GAP = {"on.corruption": "gap"}


class Damaged:
    """Nine records are synced, an old segment is damaged, and one more is acknowledged."""

    def __init__(self, durability: str, policy: str, *, forgets: bool = True) -> None:
        self.disk = TreacherousStorage(forgets=forgets)
        self.told: deque[Callable[[], object]] = deque()
        self.config = {**SMALL.overrides, "durability": durability, "on.corruption": policy}
        self.manager = DiskManager(
            "/data", storage=self.disk, flushers=0, now_ms=1_000, call_soon=self.told.append
        )
        self.manager.open()
        self.manager.create_topic("t", 1, TopicConfig(self.config))
        self.handler: DiskHandler = self.manager.get_handler("t", 0)
        as_after_a_checkpoint(self.manager)
        for number in range(9):
            write(self.handler, number)
            hear(self.told)
        self.handler.sync()
        hear(self.told)
        self.now_ms = 1_000

    def is_damaged(self) -> None:
        path = self.handler._log.paths.log(0)
        flip(self.disk, path, 100)
        self.handler.check_segment(CorruptSegment(path, 0, "what the scrub found"))

    def wait(self, duration_ms: int = 10_000) -> None:
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms += 1_000
            self.manager.housekeeping(self.now_ms)
            hear(self.told)

    def sync_fails(self) -> None:
        self.disk.fails = ("_segment_",)
        with pytest.raises(PartitionReadOnly):
            self.handler.sync()
        self.disk.fails = ()


@UNSYNCED
@POLICIES
def test_what_a_failed_sync_has_lost_behind_damage_is_known_to_the_next_process(
    durability: str, policy: str
) -> None:
    """And no transaction that has records there is committed without them."""
    one = Damaged(durability, policy)
    write(one.handler, 9)
    assert one.handler.high_watermark == 10
    row = Transaction("tx", 7, 0, state=State.ONGOING, started_ms=1, partitions={"t": (0,)})
    row = row._replace(boot=one.manager.boot_number)
    one.manager.record_now(TRANSACTION, id="tx", row=row.pack())
    one.is_damaged()
    hear(one.told)
    one.sync_fails()
    one.wait()
    again = manager_on(one.disk.after_kill())
    assert boot_of(again) == BOOT_TORN
    again.alter_topic("t", {**one.config, **GAP})
    handler = again.get_handler("t", 0)
    write(handler, 10)
    assert readable(handler)[-1] > 9, "acknowledged for another record"


@UNSYNCED
def test_what_was_acknowledged_before_the_damage_is_durable_behind_a_failed_sync(
    durability: str,
) -> None:
    """The bytes are there: they are written to new files, and who may write is as before."""
    one = Damaged(durability, "readonly", forgets=False)
    write(one.handler, 9)
    one.is_damaged()
    hear(one.told)
    one.sync_fails()
    one.wait()
    assert isinstance(one.handler.read_only, PartitionDamaged)
    with pytest.raises(PartitionDamaged):
        write(one.handler, 10)
    assert not one.handler.has_unsynced
    again = manager_on(one.disk.after_power_cut())
    assert readable(again.get_handler("t", 0))[-1] == 9


@UNSYNCED
def test_who_has_looked_while_the_log_was_opened_again_may_write(durability: str) -> None:
    """It was read with the setting of before; the loop hears of it behind the change."""
    one = Damaged(durability, "readonly", forgets=False)
    write(one.handler, 9)
    one.is_damaged()
    hear(one.told)
    one.sync_fails()
    one.manager.housekeeping(5_000)
    one.manager.alter_topic("t", {**one.config, **GAP})
    hear(one.told)
    assert one.handler.read_only is None
    write(one.handler, 10)
    assert readable(one.handler)[-1] == 10


@UNSYNCED
def test_what_could_not_be_reserved_behind_damage_is_when_it_can_be(durability: str) -> None:
    """A marker may wait for it, and the producer for that: nobody else may ever append."""
    one = Damaged(durability, "readonly")
    one.wait(2 * IDLE_MS)
    assert one.handler.ceiling is not None
    assert one.handler.ceiling.is_settled
    one.disk.fails = ("/wal-",)
    write(one.handler, 9)
    one.is_damaged()
    one.told.reverse()  # damage is heard of first
    hear(one.told)
    assert one.handler.high_watermark == 9
    one.disk.fails = ()
    one.wait()
    assert isinstance(one.handler.read_only, PartitionDamaged)
    one.manager.alter_topic("t", {**one.config, **GAP})
    one.wait()
    assert one.handler.read_only is None
    assert one.handler.high_watermark == 10


@UNSYNCED
def test_what_could_not_be_reserved_is_not_writable_before_it_can_be(durability: str) -> None:
    """Opened again as often as it likes: nothing that was appended could be acknowledged."""
    one = Damaged(durability, "gap")
    one.wait(2 * IDLE_MS)
    one.disk.fails = ("/wal-",)
    write(one.handler, 9)
    hear(one.told)
    for _ in range(20):
        one.now_ms += 1_000
        one.manager.housekeeping(one.now_ms)
        while one.told:
            one.told.popleft()()
            assert one.handler.read_only is not None
    assert one.handler.high_watermark == 9
    one.disk.fails = ()
    one.wait(60_000)
    assert one.handler.read_only is None
    assert one.handler.high_watermark == 10


@UNSYNCED
def test_what_could_not_be_reserved_and_is_gone_leaves_the_next_record_none_to_wait_for(
    durability: str,
) -> None:
    """Nobody else may ever append, and who sends it again is answered that it is there."""
    one = Damaged(durability, "gap")
    one.wait(2 * IDLE_MS)
    one.disk.fails, one.disk.error = ("/wal-",), errno.ENOSPC
    write(one.handler, 9)
    hear(one.told)
    one.disk.fails = ("_segment_",)
    one.wait()
    one.disk.fails = ()
    one.wait(60_000)
    assert one.handler.read_only is None
    assert one.handler.log_end_offset == 9, "memory has lost what was acknowledged to nobody"
    write(one.handler, 10)
    hear(one.told)
    assert one.handler.high_watermark == 10


@UNSYNCED
def test_what_has_room_below_its_ceiling_is_writable_again_without_the_wal(durability: str) -> None:
    one = Damaged(durability, "gap", forgets=False)
    write(one.handler, 9)
    hear(one.told)
    one.disk.fails = ("/wal-", "_segment_")
    with pytest.raises(PartitionReadOnly):
        one.handler.sync()
    with pytest.raises(StorageError):
        one.manager.record_now(TRANSACTION, id="tx", row=Transaction("tx", 7, 0).pack())
    one.disk.fails = ("/wal-",)
    one.wait()
    assert one.handler.read_only is None
    write(one.handler, 10)
    assert one.handler.high_watermark == 11


@UNSYNCED
@POLICIES
def test_an_orderly_stop_syncs_what_was_acknowledged_before_the_damage(
    durability: str, policy: str
) -> None:
    one = Damaged(durability, policy)
    write(one.handler, 9)
    row = Transaction("tx", 7, 0, state=State.ONGOING, started_ms=1, partitions={"t": (0,)})
    row = row._replace(boot=one.manager.boot_number)
    one.manager.record_now(TRANSACTION, id="tx", row=row.pack())
    one.is_damaged()
    hear(one.told)
    one.manager.close()
    again = manager_on(one.disk.after_power_cut())
    assert boot_of(again) == again.boot_number, "it has lost nothing"
    again.alter_topic("t", {**one.config, **GAP})
    handler = again.get_handler("t", 0)
    assert (readable(handler)[-1], handler.log_end_offset) == (9, 10)


def test_the_close_of_a_log_of_the_library_syncs_what_was_appended_before_the_damage() -> None:
    disk = MemoryStorage()
    settings = {"on.corruption": "readonly", "durability": "memory"}
    config = TopicConfig({**SMALL.overrides, **settings})
    log = SegmentedLog.open(disk, "/log", config=config, now_ms=1_000)
    for number in range(9):
        log.append([b"%03d" % number + bytes(90)], now_ms=1_000)
    log.sync()
    log.append([b"last"], now_ms=1_000)
    flip(disk, "/log/log_segment_0.log", 100)
    assert len(values_of(log)) == 9, "a gap in the place of one"
    depths = []
    for _ in range(2):
        with pytest.raises(PartitionDamaged) as refused:
            log.append([b"more"], now_ms=1_000)
        depths.append(len(refused.traceback))
    assert depths[0] == depths[1], "it keeps no frames of the time before"
    log.close()
    again = SegmentedLog.open(disk.after_power_cut(), "/log", config=config, now_ms=1_000)
    assert values_of(again)[-1] == b"last"


def end(handler: DiskHandler, producer: int, outcome: Outcome, epoch: int = 0) -> None:
    marker = memoryview(encode_marker(outcome, producer, epoch, 1_000))
    handler.append(marker, read_header(marker), 1_000)


def send(handler: DiskHandler, producer: int, sequence: int, epoch: int = 0) -> AppendResult:
    batch = encode_batch(
        [b"x" * 10],
        timestamps_ms=1_000,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return append(handler, memoryview(bytearray(batch)))


def lose_what_is_unsynced(
    disk: TreacherousStorage, manager: DiskManager, handler: DiskHandler
) -> None:
    """A sync forgets what it was to write, and the log is opened again."""
    disk.fails = ("segment_",)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    disk.fails = ()
    manager.housekeeping(5_000)
    assert handler.read_only is None


@pytest.mark.parametrize("tail", [None, "a record", "begun", Outcome.ABORT, Outcome.COMMIT])
def test_what_is_known_of_producers_outlives_an_opening_that_cannot_read_it(
    tail: Outcome | str | None,
) -> None:
    """tail: what is lost behind it, of which nobody was told; None: nothing is."""
    disk = FailingDisk()
    disk.forgets = True
    manager, handler = partition_on(disk)
    for producer in (7, 8, 9, 10):
        send(handler, producer, 0)
    end(handler, 7, Outcome.ABORT)
    end(handler, 10, Outcome.COMMIT, 1)
    for number in range(3):
        write(handler, number)
    assert handler.sealed_numbers() == [0], "all of that is in it"
    end(handler, 9, Outcome.ABORT)
    disk.failing.append(handler._log.paths.log(0))
    if tail is None:
        disk.full = True
        with pytest.raises(DiskFull):
            write(handler, 3)
        disk.full = False
    else:
        handler.sync()
        handler.flushes_on_append = False
        match tail:
            case Outcome():
                end(handler, 8, tail)
            case "begun":  # the next transaction of a producer, and of one with another epoch
                send(handler, 9, 1)
                send(handler, 10, 0, 1)
            case _:
                write(handler, 3)
        lose_what_is_unsynced(disk, manager, handler)
    manager.housekeeping(5_000)
    assert handler.read_only is None
    assert handler.log_end_offset == 10
    disk.failing.clear()  # what a disk does not give for a moment
    assert readable(handler) == [*range(10)]
    assert handler.transactions.aborted == [Aborted(7, 0, 4), Aborted(9, 2, 9)]
    assert handler.transactions.open == {8: 1}
    assert handler.last_stable_offset == 1, "of an open transaction"
    assert send(handler, 8, 0)[:1] == (1,), "it is no second record"
    with pytest.raises(InvalidProducerEpoch):
        send(handler, 10, 0)


def test_what_was_committed_stays_so_where_its_marker_cannot_be_read_behind_a_failure() -> None:
    """In another segment than its records: it is neither open again nor aborted."""
    disk = FailingDisk()
    disk.forgets = True
    manager, handler = partition_on(disk)
    send(handler, 7, 0)
    for number in range(3):
        write(handler, number)
    end(handler, 7, Outcome.COMMIT)
    for number in range(3, 6):
        write(handler, number)
    assert handler.sealed_numbers() == [0, 1]
    disk.failing.append(handler._log.paths.log(1))
    handler.sync()
    handler.flushes_on_append = False
    write(handler, 6)
    lose_what_is_unsynced(disk, manager, handler)
    assert (handler.transactions.open, handler.last_stable_offset) == ({}, 8)


def test_what_was_lost_before_it_was_acknowledged_is_appended_when_it_is_sent_again() -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk)

    def send(sequence: int) -> AppendResult:
        return append(handler, batch_of(b"x" * 30, producer=(7, 0, sequence)))

    send(0)
    handler.flushes_on_append = False
    for sequence in (1, 2):
        send(sequence)
    disk.full = True
    with pytest.raises(DiskFull):
        send(3)
    disk.full = False
    active = handler._log.active
    flip(disk, active.path, active.positions[1] + 80)
    manager.housekeeping(5_000)
    assert (readable(handler), handler.log_end_offset) == ([0, 2], 3)
    assert send(1)[:1] == (3,), "it is not in the log"
    assert send(2).duplicate

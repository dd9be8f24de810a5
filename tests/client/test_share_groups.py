"""Members of a share group against a real broker: sharing, acknowledging, giving back, ending.

The same tests run against another make: SHARE_PEER=host:port names it.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import pytest

from segbroker.client import (
    AcknowledgeFailed,
    Admin,
    AsyncShareConsumer,
    BusyError,
    ClosedError,
    Consumer,
    FailedAcknowledgement,
    InvalidRecordState,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from segbroker.client.engine import Ask, Call
from segbroker.client.errors import GroupIdNotFound
from segbroker.protocol.messages_admin import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)

from ..support.daemon import Daemon, running, start
from ..support.waiting import until, within_one_of

Run = Callable[..., Any]
GROUP_RESOURCE = 32
PATIENT_MS = 20_000
# Of a machine with much else to do: who is cancelled has a moment, which may be over too soon.
TRIES = 30


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest) -> str:
    peer = os.environ.get("SHARE_PEER")
    if peer:
        return peer
    daemon: Daemon = request.getfixturevalue("daemon")
    return daemon.address


@pytest.fixture
def name() -> str:
    """Of a topic and its group, that no other test has, on any broker."""
    return f"share-{time.time_ns()}"


@pytest.fixture
def filled(address: str, name: str) -> str:
    """One partition with ten records; its group begins at the start."""
    make(address, name, 10)
    return name


def make(
    address: str, name: str, count: int, partitions: int = 1, lock_ms: int | None = None
) -> None:
    with Admin(address) as admin:
        admin.create_topic(name, partitions=partitions)
    settings = {"share.auto.offset.reset": "earliest"}
    if lock_ms is not None:
        settings["share.record.lock.duration.ms"] = str(lock_ms)
    set_group(address, name, settings)
    fill(address, name, 0, count, partitions)


def fill(address: str, name: str, first: int, stop: int, partitions: int = 1) -> None:
    with Producer(address) as producer:
        for n in range(first, stop):
            producer.send(name, b"%d" % n, partition=n % partitions)


def set_group(address: str, group: str, settings: dict[str, str]) -> None:
    def alter() -> Call[None]:
        rows = [
            IncrementalAlterConfigsRequestConfig(name=key, config_operation=0, value=value)
            for key, value in settings.items()
        ]
        resource = IncrementalAlterConfigsRequestResource(
            resource_type=GROUP_RESOURCE, resource_name=group, configs=rows
        )
        reply = yield Ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert isinstance(reply, IncrementalAlterConfigsResponse)
        assert not reply.responses[0].error_code, reply

    with Admin(address) as admin:
        admin._driver.call(alter())


def member(address: str, name: str, **options: Any) -> ShareConsumer:  # noqa: ANN401
    return ShareConsumer(address, name, group=name, **options)


def take(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Polls until there are so many."""
    records: list[ShareRecord] = []
    ends = time.monotonic() + 30
    while len(records) < count:
        assert time.monotonic() < ends, f"{len(records)} of {count} records came"
        records += consumer.poll(timeout_ms=1_000)
    return records


def values(records: list[ShareRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]


def test_a_loop_accepts_what_it_has_gone_past(address: str, filled: str) -> None:
    with member(address, filled) as consumer:
        seen = list(islice(consumer, 4))
        assert values(seen) == [0, 1, 2, 3]
        assert {record.delivery_count for record in seen} == {1}
        assert (seen[2].topic, seen[2].partition, seen[2].offset) == (filled, 0, 2)
    with member(address, filled) as consumer:
        rest = take(consumer, 7)
        assert values(rest) == [3, 4, 5, 6, 7, 8, 9], "the fourth was in hand, not gone past"
        assert rest[0].delivery_count == 2
        consumer.commit()
    fill(address, filled, 10, 11)
    with member(address, filled) as consumer:
        assert values(take(consumer, 1)) == [10]


def test_what_an_exception_leaves_in_hand_comes_again(address: str, filled: str) -> None:
    with pytest.raises(RuntimeError), member(address, filled) as consumer:  # noqa: PT012
        for record in consumer:
            if record.value == b"5":
                raise RuntimeError("this one cannot be worked at")
    with member(address, filled) as consumer:
        assert values(take(consumer, 5)) == [5, 6, 7, 8, 9]


def test_a_released_record_comes_again_and_a_rejected_one_does_not(
    address: str, filled: str
) -> None:
    with member(address, filled) as consumer:
        records = take(consumer, 10)
        consumer.release(records[3], records[4])
        consumer.reject(records[7])
        again = take(consumer, 2)
        assert values(again) == [3, 4]
        assert {record.delivery_count for record in again} == {2}
        consumer.commit()
        assert consumer.poll(timeout_ms=300) == []
    with member(address, filled) as consumer:
        assert consumer.poll(timeout_ms=1_500) == []


def test_explicit_accepts_nothing_by_itself(address: str, filled: str) -> None:
    with member(address, filled, explicit=True) as consumer:
        records = take(consumer, 10)
        assert consumer.poll(timeout_ms=300) == []
        consumer.accept(*records[:6])
        consumer.commit()
    with member(address, filled, explicit=True) as consumer:
        rest = take(consumer, 4)
        assert values(rest) == [6, 7, 8, 9]
        consumer.accept(*rest)
    # What was said is said at the end, too.
    fill(address, filled, 10, 11)
    with member(address, filled) as consumer:
        assert values(take(consumer, 1)) == [10]


def test_what_is_not_locked_cannot_be_acknowledged(address: str, filled: str) -> None:
    with member(address, filled) as consumer:
        records = take(consumer, 10)
        consumer.commit()
        with pytest.raises(AcknowledgeFailed, match="1 acknowledgement failed: release") as caught:
            consumer.release(records[2])
        assert [each.offsets for each in caught.value.failed] == [(2,)]
        assert isinstance(caught.value.failed[0].error, InvalidRecordState)
        fill(address, filled, 10, 11)
        assert values(take(consumer, 1)) == [10], "it goes on"


def test_members_share_one_partition(address: str, name: str) -> None:
    make(address, name, 0)
    seen: list[list[int]] = [[], []]
    stop = threading.Event()

    def work(index: int) -> None:
        with member(address, name, acquire="records", acquire_count=1) as consumer:
            while not stop.is_set():
                seen[index] += values(consumer.poll(timeout_ms=100))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    sent = 0

    def both_have_some() -> bool:
        nonlocal sent
        fill(address, name, sent, sent + 5)
        sent += 5
        return all(seen)

    try:
        until(both_have_some)
        until(lambda: len(seen[0]) + len(seen[1]) >= sent)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert Counter(seen[0] + seen[1]) == Counter(range(sent)), "each once"


def test_no_more_records_are_locked_than_were_asked_for(address: str, filled: str) -> None:
    with (
        member(address, filled, acquire="records", acquire_count=3) as one,
        member(address, filled, acquire="records", acquire_count=3) as two,
    ):
        mine = next(iter(one))
        others = take(two, 3)
        assert mine.offset == 0
        assert values(others) == [3, 4, 5]


# Of who stands still for as long as a lock lasts it ends; then a longer one is tried.
LOCKS_MS = 3_000, 15_000


def test_a_lock_is_renewed_while_its_record_is_worked_at(address: str, name: str) -> None:
    def is_renewed(lock_ms: int) -> None:
        group = f"{name}-{lock_ms}"
        make(address, group, 2, lock_ms=lock_ms)
        with member(address, group) as one, member(address, group) as two:
            records = one.poll(timeout_ms=PATIENT_MS)
            assert values(records) == [0, 1]
            assert two.poll(timeout_ms=lock_ms + 2_000) == [], "longer than a lock lasts"
            one.accept(*records)
            one.commit()
            assert two.poll(timeout_ms=500) == []

    within_one_of(LOCKS_MS, is_renewed)


def test_a_lock_that_is_not_renewed_ends(address: str, name: str) -> None:
    make(address, name, 2, lock_ms=1_000)
    told: list[FailedAcknowledgement] = []
    with (
        member(address, name, max_hold_ms=0, on_failed=told.extend) as one,
        member(address, name) as two,
    ):
        records = one.poll(timeout_ms=PATIENT_MS)
        set_group(address, name, {"share.record.lock.duration.ms": "60000"})
        again = take(two, 2)
        assert values(again) == values(records) == [0, 1]
        assert {record.delivery_count for record in again} == {2}

        def all_told() -> bool:
            assert one.poll(timeout_ms=100) == []
            return {offset for each in told for offset in each.offsets} == {0, 1}

        until(all_told)
        assert {each.kind for each in told} == {"accept"}
        assert all(isinstance(each.error, InvalidRecordState) for each in told)


def test_who_does_not_come_back_holds_for_so_long(address: str, name: str) -> None:
    def is_held_and_let_go(lock_ms: int) -> None:
        group, hold_ms = f"{name}-{lock_ms}", 5 * lock_ms // 2
        make(address, group, 1, lock_ms=lock_ms)
        with member(address, group, max_hold_ms=hold_ms) as one, member(address, group) as two:
            assert len(one.poll(timeout_ms=PATIENT_MS)) == 1
            began = time.monotonic()
            assert len(two.poll(timeout_ms=PATIENT_MS + hold_ms)) == 1
            assert time.monotonic() - began > 1.5 * lock_ms / 1000
            two.commit()
            with pytest.raises(AcknowledgeFailed):
                one.commit()
            assert one.poll(timeout_ms=100) == []

    within_one_of((1_000, 10_000), is_held_and_let_go)


def test_who_waits_for_more_holds_what_it_has(address: str, name: str) -> None:
    def is_held(lock_ms: int) -> None:
        group, hold_ms = f"{name}-{lock_ms}", 3 * lock_ms // 2
        make(address, group, 1, lock_ms=lock_ms)
        with member(address, group, max_hold_ms=hold_ms, explicit=True) as consumer:
            (record,) = consumer.poll(timeout_ms=PATIENT_MS)
            held = consumer.poll(timeout_ms=2 * hold_ms + 2_000)
            assert held == [], "longer than a caller may be away"
            consumer.accept(record)
            consumer.commit()

    within_one_of((1_000, 15_000), is_held)


def test_renew_makes_a_lock_longer(address: str, name: str) -> None:
    def is_made_longer(lock_ms: int) -> None:
        group = f"{name}-{lock_ms}"
        make(address, group, 1, lock_ms=lock_ms)
        with (
            member(address, group, max_hold_ms=0, explicit=True) as one,
            member(address, group) as two,
        ):
            (record,) = one.poll(timeout_ms=PATIENT_MS)
            ends = time.monotonic() + lock_ms / 1000 + 2
            while time.monotonic() < ends:
                one.renew(record)
                one.commit()
                assert two.poll(timeout_ms=300) == []
            one.accept(record)
            one.commit()

    within_one_of(LOCKS_MS, is_made_longer)


def test_too_many_records_of_which_nothing_was_said(address: str, filled: str) -> None:
    with member(address, filled, explicit=True, held_count=10) as consumer:
        records = take(consumer, 10)
        with pytest.raises(BusyError, match="10 records were handed out and not acknowledged"):
            consumer.poll(timeout_ms=100)
        consumer.accept(*records)
        assert consumer.poll(timeout_ms=100) == []


def test_several_partitions(address: str, name: str) -> None:
    make(address, name, 90, partitions=3)
    with member(address, name) as consumer:
        assert sorted(values(take(consumer, 90))) == list(range(90))
        assert [tp.partition for tp in consumer.assignment] == [0, 1, 2]


def test_a_member_that_subscribes_anew(address: str, filled: str) -> None:
    other = f"{filled}-other"
    with Admin(address) as admin:
        admin.create_topic(other, partitions=1)
    with member(address, filled) as consumer:
        assert len(take(consumer, 10)) == 10
        consumer.subscribe([other])
        fill(address, other, 50, 51)
        assert values(take(consumer, 1)) == [50]
        consumer.subscribe([filled, other])
        fill(address, filled, 10, 11)
        assert values(take(consumer, 1)) == [10]


def make_anew(address: str, topic: str, consumer: ShareConsumer) -> None:
    """Delete the topic, of which the consumer hears, and make another with the value 50."""
    with Admin(address) as admin:
        admin.delete_topic(topic)
    with pytest.raises(UnknownTopicOrPartition, match=topic):
        take(consumer, 1)

    def is_made_anew() -> bool:
        with Admin(address) as admin, suppress(TopicAlreadyExists):  # Kafka takes its time
            admin.create_topic(topic, partitions=1)
            return True
        return False

    until(is_made_anew)
    fill(address, topic, 50, 51)


def test_a_topic_that_is_deleted_is_told_and_made_anew_is_worked_at(
    address: str, filled: str
) -> None:
    with member(address, filled) as consumer:
        assert len(take(consumer, 10)) == 10
        consumer.commit()
        make_anew(address, filled, consumer)
        assert values(take(consumer, 1)) == [50]


def test_a_record_of_a_deleted_topic_says_nothing_of_one_of_its_successor(
    address: str, filled: str
) -> None:
    """Both have the same offset in a topic of the same name."""
    with member(address, filled, explicit=True) as consumer:
        old = take(consumer, 10)[0]
        make_anew(address, filled, consumer)
        new = take(consumer, 1)[0]
        assert (new.topic, new.partition, new.offset) == old[:3]
        with pytest.raises(AcknowledgeFailed):
            consumer.accept(old)
    with member(address, filled) as consumer:
        assert values(take(consumer, 1)) == [50], "nobody has accepted it"


def test_a_name_is_that_of_one_kind_of_group(address: str, filled: str) -> None:
    with Consumer(address, filled, group=filled) as other:
        assert len(other.poll(timeout_ms=PATIENT_MS)) == 10
        with (
            member(address, filled) as consumer,
            pytest.raises(GroupIdNotFound, match="is not a share group"),
        ):
            consumer.poll(timeout_ms=PATIENT_MS)


def test_closed_is_closed(address: str, filled: str) -> None:
    consumer = member(address, filled).open()
    (first,) = islice(consumer, 1)
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll()
    with pytest.raises(ClosedError):
        consumer.accept(first)


def test_a_member_goes_on_when_its_broker_was_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    daemon = start(data)
    make(daemon.address, "t", 6)
    told: list[FailedAcknowledgement] = []
    with member(daemon.address, "t", explicit=True, on_failed=told.extend) as consumer:
        records = take(consumer, 6)
        consumer.accept(records[0])
        consumer.reject(records[1])
        consumer.commit()
        daemon.stop(signal.SIGKILL)
        with running(data):
            again = take(consumer, 4)
            assert values(again) == [2, 3, 4, 5], "what was taken is taken"
            consumer.accept(*again)
            consumer.commit()
            fill(daemon.address, "t", 6, 7)
            assert values(take(consumer, 1)) == [6]
    assert told == []


def test_two_members_work_through_a_kill_and_a_restart_and_leave_nothing_out(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    daemon = start(data)
    make(daemon.address, "t", 300, partitions=3)
    seen: list[int] = []
    errors: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        failed: list[FailedAcknowledgement] = []
        try:
            with member(
                daemon.address,
                "t",
                acquire="records",
                acquire_count=7,
                on_failed=failed.extend,
            ) as consumer:
                while not stop.is_set():
                    seen.extend(values(consumer.poll(timeout_ms=50)))
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: bool(errors) or len(seen) > 50)
        daemon.stop(signal.SIGKILL)
        daemon = start(data)
        until(lambda: bool(errors) or set(seen) == set(range(300)))
        daemon.stop()
        daemon = start(data)
        fill(daemon.address, "t", 300, 330, partitions=3)
        until(lambda: bool(errors) or set(seen) == set(range(330)))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        daemon.stop()
    assert errors == []


def test_other_threads_say_what_became_of_records(address: str, name: str) -> None:
    make(address, name, 200)
    done: list[int] = []

    def work(consumer: ShareConsumer, record: ShareRecord) -> None:
        consumer.accept(record)
        done.append(int(record.value or b""))

    with member(address, name, explicit=True, acquire_count=20) as consumer:
        for record in islice(consumer, 200):
            threading.Thread(target=work, args=(consumer, record)).start()
        until(lambda: len(done) == 200)
        consumer.commit()
    assert sorted(done) == list(range(200))
    with member(address, name) as consumer:
        assert consumer.poll(timeout_ms=1_000) == []


def test_async_loop_and_poll(address: str, filled: str, run: Run) -> None:
    async def go() -> None:
        async with AsyncShareConsumer(address, filled, group=filled) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record)
                if len(seen) == 3:
                    break
            assert values(seen) == [0, 1, 2]
            consumer.release(seen[2])
            rest = await consumer.poll(timeout_ms=PATIENT_MS)
            consumer.reject(rest[0])
            await consumer.commit()
            while len(rest) < 8:
                rest += await consumer.poll(timeout_ms=PATIENT_MS)
            assert sorted(values(rest)) == [2, 3, 4, 5, 6, 7, 8, 9]
            await consumer.commit()
            assert await consumer.poll(timeout_ms=200) == []

    run(go)


@pytest.mark.parametrize("where", ["before", "while it leaves"])
def test_an_async_member_whose_end_is_cancelled_says_what_was_said(
    address: str, name: str, run: Run, where: str
) -> None:
    """As in `finally: await consumer.aclose()`: in a cancelled scope each wait is cancelled."""

    async def main(group: str) -> None:
        with anyio.CancelScope() as scope:
            consumer = AsyncShareConsumer(
                address, group, group=group, explicit=True, acknowledge_interval_ms=60_000
            )
            await consumer.__aenter__()
            records: list[ShareRecord] = []
            while len(records) < 10:
                records += await consumer.poll(timeout_ms=60_000)
            # Its question is still open at the broker.
            assert await consumer.poll(timeout_ms=20) == []
            consumer.accept(*records)
            if where == "before":
                scope.cancel()
            else:
                scope.deadline = anyio.current_time()
            await consumer.aclose()
        assert scope.cancelled_caught

    def is_said(group: str) -> bool:
        make(address, group, 10)
        run(main, group)
        fill(address, group, 10, 11)
        with member(address, group) as consumer:
            return values(take(consumer, 1)) == [10]

    assert any(is_said(f"{name}-{number}") for number in range(TRIES))


def test_a_cancelled_async_poll_hands_out_nothing(address: str, name: str, run: Run) -> None:
    make(address, name, 0)

    async def go() -> None:
        async with AsyncShareConsumer(address, name, group=name) as consumer:
            with anyio.move_on_after(0.2):
                await consumer.poll(timeout_ms=PATIENT_MS)
            fill(address, name, 0, 5)
            records = await consumer.poll(timeout_ms=PATIENT_MS)
            while len(records) < 5:
                records += await consumer.poll(timeout_ms=PATIENT_MS)
            assert values(records) == list(range(5))

    run(go)


def test_what_ctrl_c_takes_away_is_handed_out_again(
    address: str, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from segbroker.client.share_reading import ShareReading

    original = ShareReading.take
    left = 3

    def take_once(self: ShareReading) -> Any:  # noqa: ANN401
        nonlocal left
        got = original(self)
        if got is not None:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return got

    monkeypatch.setattr(ShareReading, "take", take_once)
    with member(address, filled) as consumer:
        seen: list[ShareRecord] = []
        with pytest.raises(KeyboardInterrupt):
            seen.extend(consumer)
        assert values(seen) == [0, 1]
        rest = take(consumer, 8)
        assert values(rest) == [2, 3, 4, 5, 6, 7, 8, 9]
        assert {record.delivery_count for record in rest} == {1}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    until(lambda: threading.active_count() <= before)

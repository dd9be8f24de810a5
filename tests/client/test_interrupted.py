"""Ctrl-C at the worst moments: nothing is committed that nobody saw, and reading on finds it all.

It is raised inside the calls that make a batch and a part of its records, where a position has
moved or is about to: a signal hits those a few times in a hundred, which is no test.
"""

import atexit
import re
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any
from uuid import UUID

import pytest

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeliveryFailed,
    Outgoing,
    Producer,
    Record,
    ShareConsumer,
    TopicPartition,
    async_transform,
    transform,
    transforming,
)
from segbroker.client.acknowledging import Acquired, Kind
from segbroker.client.assigned import PartitionState
from segbroker.client.consumed import ConsumedBatch
from segbroker.client.fetching import Fetching
from segbroker.client.forgotten import Forgotten
from segbroker.client.group_events import Event, Events, News
from segbroker.client.group_reading import GroupReading
from segbroker.client.prefetched import Prefetched
from segbroker.client.progress import Progress
from segbroker.client.reading import Reading
from segbroker.client.share_lanes import ShareLanes
from segbroker.client.thread_driver import ThreadDriver
from segbroker.client.transactions import Transactions
from segbroker.client.transport import Transport

from ..support.daemon import Daemon
from ..support.waiting import DEADLINE_S, until
from .conftest import Run
from .test_async import numbers
from .test_own_tasks import living

COUNT = 3_000
NEVER: Any = {"commit_interval_ms": 600_000}
IN_TRANSACTIONS: Any = {
    "group": "transforming",
    "auto_commit": False,
    "stop_at_end": True,
    "api_timeout_ms": 15_000,
}

# Where it comes: (of which class, in which method, how many calls later, at its end).
PLACES = [
    pytest.param(ConsumedBatch, "part", 0, False, id="before a part"),
    pytest.param(ConsumedBatch, "part", 0, True, id="behind a part"),
    pytest.param(ConsumedBatch, "part", 2, True, id="behind a later part"),
    pytest.param(Fetching, "open", 0, False, id="before opening"),
    pytest.param(Fetching, "open", 0, True, id="behind opening"),
    pytest.param(Fetching, "open", 1, True, id="behind opening a later one"),
    pytest.param(Prefetched, "take", 1, True, id="behind taking"),
    pytest.param(Prefetched, "_release", 1, False, id="within taking"),
    pytest.param(Reading, "hand_out", 0, False, id="before handing out"),
    pytest.param(Reading, "hand_out", 1, False, id="before handing out a later one"),
]


@pytest.fixture
def filled(daemon: Daemon, topic: str) -> str:
    """One partition, in several batches of more than one part."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(daemon.address) as producer:
        for first in range(0, COUNT, 1_500):
            producer.send_many(topic, numbers(COUNT)[first : first + 1_500], partition=0)
            producer.flush()
    return topic


class Interrupting:
    """Has a signal come in a method, once, where it gave something to the main thread."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        of: object,
        name: str,
        skip: int,
        late: bool,
        *,
        by_signal: bool = True,
    ) -> None:
        """by_signal: not of an event loop, which takes it otherwise."""
        self.has_come = False
        left = skip
        original: Callable[..., Any] = getattr(of, name)

        def interrupted(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            nonlocal left
            if self.has_come or threading.current_thread() is not threading.main_thread():
                return original(*args, **options)
            if late:
                got = original(*args, **options)
                if got is None:
                    return got
            left -= 1
            if left < 0:
                self.has_come = True
                if by_signal:
                    signal.raise_signal(signal.SIGINT)
                raise KeyboardInterrupt
            return got if late else original(*args, **options)

        patch.setattr(of, name, interrupted)


def committed(address: str, group: str, topic: str) -> int:
    with Admin(address) as admin:
        stands = admin.committed(group).get(TopicPartition(topic, 0))
    return 0 if stands is None else stands.offset


@pytest.mark.parametrize(("of", "name", "skip", "late"), PLACES)
def test_nothing_is_committed_that_nobody_saw(
    daemon: Daemon,
    filled: str,
    monkeypatch: pytest.MonkeyPatch,
    of: type,
    name: str,
    skip: int,
    late: bool,
) -> None:
    seen = -1
    with (  # noqa: PT012
        pytest.raises(KeyboardInterrupt),
        Consumer(daemon.address, filled, group=filled, **NEVER) as consumer,
    ):
        Interrupting(monkeypatch, of, name, skip, late)
        for record in consumer:
            seen = record.offset
    assert committed(daemon.address, filled, filled) <= seen + 1


@pytest.mark.parametrize(("of", "name", "skip", "late"), PLACES)
def test_nothing_is_committed_that_no_async_loop_saw(
    daemon: Daemon,
    filled: str,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
    of: type,
    name: str,
    skip: int,
    late: bool,
) -> None:
    seen = -1

    async def main() -> None:
        nonlocal seen
        async with AsyncConsumer(daemon.address, filled, group=filled, **NEVER) as consumer:
            Interrupting(monkeypatch, of, name, skip, late, by_signal=False)
            async for record in consumer:
                seen = record.offset

    # trio hands it out in groups.
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        run(main)
    assert re.search("KeyboardInterrupt", repr(caught.value))
    assert committed(daemon.address, filled, filled) <= seen + 1


@pytest.mark.parametrize(("of", "name", "skip", "late"), PLACES)
def test_who_catches_it_reads_on_without_a_hole(
    daemon: Daemon,
    filled: str,
    monkeypatch: pytest.MonkeyPatch,
    of: type,
    name: str,
    skip: int,
    late: bool,
) -> None:
    seen: list[int] = []
    with Consumer(daemon.address, filled, stop_at_end=True) as consumer:
        interrupting = Interrupting(monkeypatch, of, name, skip, late)
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                for record in consumer:
                    seen.append(record.offset)  # noqa: PERF401 - those before it count, too
        assert interrupting.has_come
    assert seen == list(range(COUNT))


def polled(consumer: Consumer) -> Iterator[list[int]]:
    while records := consumer.poll(max_records=COUNT, timeout_ms=60_000):
        yield [record.offset for record in records]


def by_batches(consumer: Consumer) -> Iterator[list[int]]:
    return (batch.offsets() for batch in consumer.batches())


# Where it comes when something is on its way to the caller: how that reads, and as PLACES.
ON_THE_WAY = [
    pytest.param(polled, Consumer, "_next_records", 2, False, id="a poll, between two parts"),
    pytest.param(polled, Prefetched, "take", 1, True, id="a poll, behind taking a batch"),
    pytest.param(polled, Reading, "take_records", 2, True, id="a poll, behind taking a part"),
    pytest.param(by_batches, Reading, "hand_out_batch", 1, True, id="a batch, within the call"),
    pytest.param(by_batches, Consumer, "_next_batch", 1, True, id="a batch, behind the call"),
]
Way = Callable[[Consumer], Iterator[list[int]]]


@pytest.mark.parametrize(("way", "of", "name", "skip", "late"), ON_THE_WAY)
def test_what_was_on_its_way_to_who_catches_it_comes_again(
    daemon: Daemon,
    filled: str,
    monkeypatch: pytest.MonkeyPatch,
    way: Way,
    of: type,
    name: str,
    skip: int,
    late: bool,
) -> None:
    seen: list[int] = []
    with Consumer(daemon.address, filled, stop_at_end=True) as consumer:
        interrupting = Interrupting(monkeypatch, of, name, skip, late)
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                for offsets in way(consumer):
                    seen += offsets
        assert interrupting.has_come
    assert seen == list(range(COUNT))


@pytest.mark.parametrize(("way", "of", "name", "skip", "late"), ON_THE_WAY)
def test_what_was_on_its_way_is_committed_by_nobody(
    daemon: Daemon,
    filled: str,
    monkeypatch: pytest.MonkeyPatch,
    way: Way,
    of: type,
    name: str,
    skip: int,
    late: bool,
) -> None:
    """Not even by a commit of all that was handed out."""
    seen = -1
    with Consumer(daemon.address, filled, group=filled, **NEVER) as consumer:
        interrupting = Interrupting(monkeypatch, of, name, skip, late)
        with suppress(KeyboardInterrupt):
            for offsets in way(consumer):
                seen = offsets[-1]
        assert interrupting.has_come
        assert consumer.position(filled, 0) == seen + 1
        assert consumer.lag() == {(filled, 0): COUNT - 1 - seen}
        consumer.commit()
        assert committed(daemon.address, filled, filled) == seen + 1
        assert next(iter(consumer)).offset == seen + 1


@pytest.mark.parametrize("late", [False, True])
def test_who_catches_it_gets_the_rest_of_what_a_loop_has_begun(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    with Consumer(daemon.address, filled, stop_at_end=True) as consumer:
        seen = [record.offset for record in islice(consumer, 300)]
        interrupting = Interrupting(monkeypatch, ConsumedBatch, "since", 0, late)
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                for batch in consumer.batches():
                    seen += batch.offsets()
        assert interrupting.has_come
    assert seen == list(range(COUNT))


@pytest.mark.parametrize("late", [False, True])
def test_who_catches_it_gets_the_rest_of_what_an_async_loop_has_begun(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch, run: Run, late: bool
) -> None:
    async def main() -> None:
        seen: list[int] = []
        async with AsyncConsumer(daemon.address, filled, stop_at_end=True) as consumer:
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 300:
                    break
            interrupting = Interrupting(
                monkeypatch, ConsumedBatch, "since", 0, late, by_signal=False
            )
            for _ in range(2):
                with suppress(KeyboardInterrupt):
                    async for batch in consumer.batches():
                        seen += batch.offsets()
            assert interrupting.has_come
        assert seen == list(range(COUNT))

    run(main)


def interrupt_discard(patch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """In the middle of the next seek, once."""
    original = Prefetched.discard
    left = [number]

    def discard(self: Prefetched, state: PartitionState) -> None:
        if left and threading.current_thread() is threading.main_thread():
            signal.raise_signal(left.pop())
        original(self, state)

    patch.setattr(Prefetched, "discard", discard)


def test_a_seek_is_made_or_is_not_wherever_it_is_interrupted(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one forgets what was fetched ahead, and goes on behind that."""
    with Consumer(daemon.address, filled, stop_at_end=True) as consumer:
        seen = [record.offset for record in consumer.poll(300, 60_000)]
        interrupt_discard(monkeypatch, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            consumer.seek(filled, 0, 300)
        seen += [record.offset for record in consumer]
    assert seen == list(range(COUNT))


def test_an_async_seek_is_made_or_is_not_wherever_it_is_interrupted(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    async def main() -> None:
        async with AsyncConsumer(daemon.address, filled, stop_at_end=True) as consumer:
            seen = [record.offset for record in await consumer.poll(300, 60_000)]
            interrupt_discard(monkeypatch, signal.SIGUSR1)
            with pytest.raises(KeyboardInterrupt):
                consumer.seek(filled, 0, 300)
            seen += [record.offset async for record in consumer]
        assert seen == list(range(COUNT))

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        run(main)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("late", [False, True])
def test_a_callback_that_ctrl_c_kept_from_being_called_is_called_by_the_next_poll(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Its partitions are held until then."""
    told: list[Any] = []
    with Consumer(daemon.address, filled, group=filled, on_assigned=told.append) as consumer:
        Interrupting(monkeypatch, Events, "next", 0, late)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout_ms=60_000)
        assert told == []
        assert consumer.poll(timeout_ms=DEADLINE_S * 1_000)[0].offset == 0
        assert told == [[(filled, 0)]]


@pytest.mark.parametrize("late", [False, True])
def test_an_assignment_that_ctrl_c_kept_from_being_told_is_not_told_to_end_either(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    told: list[Any] = []
    with Consumer(
        daemon.address,
        filled,
        group=filled,
        on_assigned=lambda _: told.append("assigned"),
        on_revoked=lambda _: told.append("revoked"),
    ) as consumer:
        Interrupting(monkeypatch, Events, "next", 0, late)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout_ms=60_000)
    assert told == []


@pytest.mark.parametrize("late", [False, True])
def test_what_ctrl_c_kept_from_being_told_as_given_up_is_told_by_the_end(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    told: list[Any] = []
    with Consumer(
        daemon.address, filled, group=filled, on_revoked=told.append, heartbeat_interval_ms=50
    ) as consumer:
        assert consumer.poll(timeout_ms=DEADLINE_S * 1_000)
        consumer._reading.group._give_up({TopicPartition(filled, 0)})
        Interrupting(monkeypatch, Events, "next", 0, late)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout_ms=60_000)
        assert told == []
    assert told == [[(filled, 0)]]


def test_who_waits_while_another_thread_closes_waits_for_nothing_that_will_not_be_told() -> None:
    """It would ask again and again."""
    events = Events(Progress(), lambda: None)
    events.last([])
    events.tell(Event(News.LOST, lambda _: None, [TopicPartition("t", 0)]))
    assert events.next() is None
    assert not events.is_waiting


def test_who_is_interrupted_at_the_beginning_of_its_end_has_committed(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the broker answers in the time that there is for it."""
    monkeypatch.setattr("segbroker.client.thread_driver.HURRIED_MS", DEADLINE_S * 1_000)
    with (  # noqa: PT012
        pytest.raises(KeyboardInterrupt),
        Consumer(daemon.address, filled, group=filled, **NEVER) as consumer,
    ):
        for _ in range(2):
            assert len(consumer.poll(10, DEADLINE_S * 1_000)) == 10
        Interrupting(monkeypatch, GroupReading, "closing", 0, True)
    assert committed(daemon.address, filled, filled) == 10


def test_what_was_on_its_way_is_forgotten_with_its_partition(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes to it again begins where it says."""
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        consumer.assign([(filled, 0)], start="start")
        Interrupting(monkeypatch, Reading, "hand_out_batch", 0, True)
        with pytest.raises(KeyboardInterrupt):
            next(consumer.batches())
        consumer.assign([])
        consumer.assign([(filled, 0)], start=COUNT - 1)
        assert [record.offset for record in consumer] == [COUNT - 1]


async def polled_async(consumer: AsyncConsumer, seen: list[int]) -> None:
    while records := await consumer.poll(max_records=COUNT, timeout_ms=60_000):
        seen += [record.offset for record in records]


async def by_async_batches(consumer: AsyncConsumer, seen: list[int]) -> None:
    async for batch in consumer.batches():
        seen += batch.offsets()


@pytest.mark.parametrize(
    ("way", "of", "name", "skip"),
    [
        pytest.param(polled_async, Reading, "take_records", 2, id="a poll"),
        pytest.param(by_async_batches, Reading, "hand_out_batch", 1, id="a batch"),
    ],
)
def test_what_was_on_its_way_to_an_async_caller_comes_again(
    daemon: Daemon,
    filled: str,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
    way: Callable[[AsyncConsumer, list[int]], Awaitable[None]],
    of: type,
    name: str,
    skip: int,
) -> None:
    async def main() -> None:
        seen: list[int] = []
        async with AsyncConsumer(daemon.address, filled, stop_at_end=True) as consumer:
            interrupting = Interrupting(monkeypatch, of, name, skip, True, by_signal=False)
            for _ in range(2):
                with suppress(KeyboardInterrupt):
                    await way(consumer, seen)
            assert interrupting.has_come
        assert seen == list(range(COUNT))

    run(main)


# Where it comes in a transform, the third time: as PLACES.
IN_TRANSFORMS = [
    pytest.param(transforming, "_records", False, id="behind the poll"),
    pytest.param(Transactions, "commit", True, id="within the commit"),
]


Transformed = tuple[Callable[[Record], list[Outgoing]], Callable[[], list[int]]]


@pytest.fixture
def transformed(daemon: Daemon, filled: str) -> Transformed:
    """What a transform does, and the offsets of the records that came out of it."""
    out = f"{filled}-out"
    with Admin(daemon.address) as admin:
        admin.create_topic(out, partitions=1)

    def came() -> list[int]:
        with Consumer(daemon.address, out, stop_at_end=True, isolation="read_committed") as reader:
            return [int(record.value or b"") for record in reader]

    return lambda record: [Outgoing(out, b"%d" % record.offset)], came


@pytest.mark.parametrize(("of", "name", "late"), IN_TRANSFORMS)
def test_a_transform_goes_on_where_ctrl_c_has_ended_it(
    daemon: Daemon,
    filled: str,
    transformed: Transformed,
    monkeypatch: pytest.MonkeyPatch,
    of: object,
    name: str,
    late: bool,
) -> None:
    """It is not at the next records already.  Nor does it wait for the end of the transaction that
    nobody has ended: that was cut short."""
    function, came = transformed
    monkeypatch.setattr("segbroker.client.producer.HURRIED_MS", 0)
    with (
        Consumer(daemon.address, filled, **IN_TRANSACTIONS) as consumer,
        Producer(daemon.address, transactional_id=filled) as producer,
    ):
        interrupting = Interrupting(monkeypatch, of, name, 2, late)
        with pytest.raises(KeyboardInterrupt):
            transform(consumer, producer, function)
        assert interrupting.has_come
        transform(consumer, producer, function)
    assert came() == list(range(COUNT))


@pytest.mark.parametrize(("of", "name", "late"), IN_TRANSFORMS)
def test_an_async_transform_goes_on_where_ctrl_c_has_ended_it(
    daemon: Daemon,
    filled: str,
    transformed: Transformed,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
    of: object,
    name: str,
    late: bool,
) -> None:
    function, came = transformed
    monkeypatch.setattr("segbroker.client.async_producer.HURRIED_MS", 0)

    async def main() -> None:
        async with (
            AsyncConsumer(daemon.address, filled, **IN_TRANSACTIONS) as consumer,
            AsyncProducer(daemon.address, transactional_id=filled) as producer,
        ):
            interrupting = Interrupting(monkeypatch, of, name, 2, late, by_signal=False)
            with pytest.raises(KeyboardInterrupt):
                await async_transform(consumer, producer, function)
            assert interrupting.has_come
            await async_transform(consumer, producer, function)

    run(main)
    assert came() == list(range(COUNT))


@pytest.mark.parametrize("late", [False, True])
def test_a_transform_goes_on_where_it_was_though_the_group_stands_elsewhere(
    daemon: Daemon,
    filled: str,
    transformed: Transformed,
    monkeypatch: pytest.MonkeyPatch,
    late: bool,
) -> None:
    """The caller has sought: of a transaction that was not committed the group says nothing."""
    function, came = transformed
    with (
        Consumer(daemon.address, filled, **IN_TRANSACTIONS) as consumer,
        Producer(daemon.address, transactional_id=filled) as producer,
    ):
        assert len(consumer.poll(COUNT, 60_000)) == COUNT
        consumer.commit()
        consumer.seek(filled, 0, 0)
        Interrupting(monkeypatch, Transactions, "commit", 2, late)
        with pytest.raises(KeyboardInterrupt):
            transform(consumer, producer, function)
        transform(consumer, producer, function)
    assert came() == list(range(COUNT))


def test_a_transform_whose_records_were_refused_goes_on_where_it_was(
    daemon: Daemon, filled: str, transformed: Transformed
) -> None:
    """It was aborted, though the group stands where it would, had it not been."""
    function, came = transformed

    def failing(record: Record) -> list[Outgoing]:
        return [out._replace(value=bytes(2 << 20)) for out in function(record)]

    with (
        Consumer(daemon.address, filled, **IN_TRANSACTIONS) as consumer,
        Producer(daemon.address, transactional_id=filled) as producer,
    ):
        assert consumer.poll(1, 60_000)
        consumer.commit({(filled, 0): 1})
        consumer.seek(filled, 0, 0)
        with pytest.raises(DeliveryFailed):
            transform(consumer, producer, failing, max_records=1)
        transform(consumer, producer, function)
    assert came() == list(range(COUNT))


def test_who_seeks_behind_a_transform_that_was_interrupted_goes_on_there(
    daemon: Daemon, filled: str, transformed: Transformed, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, came = transformed
    with (
        Consumer(daemon.address, filled, **IN_TRANSACTIONS) as consumer,
        Producer(daemon.address, transactional_id=filled) as producer,
    ):
        Interrupting(monkeypatch, Transactions, "commit", 0, True)
        with pytest.raises(KeyboardInterrupt):
            transform(consumer, producer, function)
        consumer.seek(filled, 0, COUNT - 10)
        transform(consumer, producer, function)
    assert came()[-10:] == list(range(COUNT - 10, COUNT))
    assert len(came()) <= 510


def test_a_transform_that_has_failed_goes_back_wherever_that_is_interrupted(
    daemon: Daemon, filled: str, transformed: Transformed, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, came = transformed

    def failing(record: Record) -> list[Outgoing]:
        if record.offset == 700:
            interrupt_discard(monkeypatch, signal.SIGINT)
            raise ZeroDivisionError
        return function(record)

    with (
        Consumer(daemon.address, filled, **IN_TRANSACTIONS) as consumer,
        Producer(daemon.address, transactional_id=filled) as producer,
    ):
        with pytest.raises(KeyboardInterrupt):
            transform(consumer, producer, failing)
        transform(consumer, producer, function)
    assert came() == list(range(COUNT))


def test_an_async_transform_that_has_failed_goes_back_wherever_that_is_interrupted(
    daemon: Daemon, filled: str, transformed: Transformed, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    function, came = transformed

    def failing(record: Record) -> list[Outgoing]:
        if record.offset == 700:
            interrupt_discard(monkeypatch, signal.SIGUSR1)
            raise ZeroDivisionError
        return function(record)

    async def main() -> None:
        async with (
            AsyncConsumer(daemon.address, filled, **IN_TRANSACTIONS) as consumer,
            AsyncProducer(daemon.address, transactional_id=filled) as producer,
        ):
            with pytest.raises(KeyboardInterrupt):
                await async_transform(consumer, producer, failing)
            await async_transform(consumer, producer, function)

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        run(main)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came() == list(range(COUNT))


class Left(dict[int, int]):
    """Ctrl-C comes when something was taken out of it."""

    def pop(self, *key: Any) -> Any:  # noqa: ANN401
        super().pop(*key)
        raise KeyboardInterrupt

    def __delitem__(self, key: int) -> None:
        super().__delitem__(key)
        raise KeyboardInterrupt


def test_a_record_of_a_share_group_is_held_or_something_is_said_of_it() -> None:
    """In between it would come again when its lock has ended, though it was accepted."""
    acquired = Acquired(TopicPartition("t", 0), UUID(int=1))
    acquired.take_in([7], 30_000, 0)
    acquired.held = Left(acquired.held)
    with pytest.raises(KeyboardInterrupt):
        acquired.mark(7, Kind.ACCEPT, 0)
    assert acquired.mark(7, Kind.ACCEPT, 1)
    assert acquired.take_marked(renewals=False) == {7: Kind.ACCEPT}


def test_a_record_that_was_being_accepted_is_not_accepted_twice(
    daemon: Daemon, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(daemon.address) as admin:
        admin.alter_share_offsets(filled, {(filled, 0): 0})
    with ShareConsumer(daemon.address, filled, group=filled, acknowledge_interval_ms=0) as consumer:
        assert next(iter(consumer)).offset == 0
        Interrupting(monkeypatch, ShareLanes, "mark", 0, True)
        with pytest.raises(KeyboardInterrupt):
            next(iter(consumer))
        consumer._driver.wake_by(0)
        until(lambda: consumer._reading.lanes.is_settled)
        assert next(iter(consumer)).offset == 1


def test_a_record_that_ctrl_c_hits_while_it_is_sent_holds_nothing_up(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are with the kernel, and nobody has noted that: the connection is given up."""
    with Producer(daemon.address, linger_ms=0) as producer:
        producer.send(topic, b"first", partition=0).result(60)
        interrupting = Interrupting(monkeypatch, Transport, "send_some", 0, True)
        # It is the I/O thread that sends where that is awake still.
        hits = 0
        while not interrupting.has_come:
            hits += 1
            assert hits < 1_000
            with suppress(KeyboardInterrupt):
                producer.send(topic, b"hit").result(60)
        # Much sooner than an unanswered request ends its connection.
        producer.send(topic, b"last").result(20)
        producer.flush(20)
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        values = sorted(record.value or b"" for record in consumer)
        assert values == [b"first", *[b"hit"] * hits, b"last"]


@pytest.mark.parametrize(
    ("kind", "of", "name"),
    [
        (Admin, ThreadDriver, "_start_thread"),
        (Admin, Forgotten, "opened"),
        (Consumer, atexit, "register"),
        (Producer, atexit, "register"),
    ],
)
def test_who_is_interrupted_as_he_opens_a_client_has_opened_none(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, kind: type[Admin], of: object, name: str
) -> None:
    """Nobody could close it."""
    done: Callable[..., object] = getattr(of, name)

    def interrupted(*args: object) -> object:
        done(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(of, name, interrupted)
    before = {*threading.enumerate()}
    client = kind(daemon.address)
    with pytest.raises(KeyboardInterrupt):
        client.open()
    assert not {*threading.enumerate()} - before
    assert "closed" in repr(client)


@pytest.mark.parametrize("kind", [AsyncAdmin, AsyncConsumer])
def test_who_is_interrupted_as_he_opens_an_async_client_has_opened_none(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch, kind: type[AsyncAdmin]
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Forgotten, "opened", interrupted)

    async def main() -> None:
        before = living()
        client = kind(daemon.address)
        with pytest.raises(KeyboardInterrupt):
            await client.__aenter__()
        assert living() == before
        assert "closed" in repr(client)

    run(main)

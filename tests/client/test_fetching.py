"""The consumer's core among simulated brokers: every record once, in order, or a said error."""

import re
from collections.abc import Callable
from typing import Any, TypeGuard

import pytest

from segbroker.client import fetch_session
from segbroker.client.consumed import ConsumedBatch
from segbroker.client.errors import (
    BrokerError,
    BrokerUnreachable,
    CorruptBatch,
    LeaderNotAvailable,
    OffsetOutOfRange,
    PeerError,
    PolicyViolation,
    StorageFailed,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from segbroker.client.fetch_lanes import SHORT_WAIT_MS
from segbroker.client.fetching import Fetching
from segbroker.client.records import Record, TopicPartition
from segbroker.client.settings import ConsumerSettings
from segbroker.client.starting import Start
from segbroker.protocol import limits
from segbroker.protocol.checksums import crc32c
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchRequest, FetchResponse
from segbroker.protocol.record_batch import (
    Codec,
    GapReason,
    encode_batch,
    gap_batches,
    read_header,
)
from segbroker.protocol.schema import Message

from ..support.steps import lines_of
from ..support.thinned import filter_batch
from .simulated import NOBODY, Partition, World


@pytest.fixture(autouse=True, params=[fetch_session.PARTITIONS_MIN, 1], ids=["full", "session"])
def least(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """From how many partitions on a consumer has a fetch session."""
    monkeypatch.setattr(fetch_session, "PARTITIONS_MIN", request.param)
    return request.param  # type: ignore[no-any-return]


class Reader:
    """A consumer in a world: what a shell would do, without waiting."""

    def __init__(self, world: World, *, stop_at_end: bool = False, **settings: Any) -> None:  # noqa: ANN401
        self.world = world
        self.fetching = Fetching(
            world.engine,
            ConsumerSettings(**settings),
            wake_by=lambda at_ms: None,
            stop_at_end=stop_at_end,
        )

    def has_news(self) -> bool:
        fetching = self.fetching
        is_ready = any(not state.paused for state in fetching.prefetched.states())
        return is_ready or bool(fetching.prefetched.errors) or fetching.is_ended

    def next_batch(self) -> ConsumedBatch | None:
        """The next batch with records; None at the end of a bounded reading."""
        fetching = self.fetching
        while True:
            self.world.run(lambda: self.has_news())
            fetched = fetching.prefetched.take()
            if fetched is None:
                if fetching.is_ended:
                    return None
                continue
            batch = fetching.open(fetched)
            if len(batch):
                return batch

    def read(self, count: int) -> list[Record]:
        records: list[Record] = []
        while len(records) < count:
            batch = self.next_batch()
            if batch is None:
                break
            records += batch.records()
        return records

    def read_all(self) -> list[Record]:
        return self.read(1 << 40)


def store(partition: Partition, values: list[bytes | None], codec: Codec = Codec.NONE) -> None:
    data = encode_batch(values, timestamps_ms=7, codec=codec)
    partition.store(data, read_header(data))


def filled(world: World, partitions: int = 1, batches: int = 10, size: int = 10) -> None:
    for index, partition in enumerate(world.cluster.create("a", partitions)):
        for batch in range(batches):
            store(partition, [b"%d:%d" % (index, batch * size + i) for i in range(size)])


def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


@pytest.mark.parametrize("codec", list(Codec))
def test_what_was_stored_is_read_in_order(codec: Codec) -> None:
    world = World(create_topics=False)
    (partition,) = world.cluster.create("a")
    store(partition, [b"1", None, b""], codec)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.subscribe(["a"], "start")
    assert reader.read_all() == [
        Record("a", 0, 0, 7, None, b"1", ()),
        Record("a", 0, 1, 7, None, None, ()),
        Record("a", 0, 2, 7, None, b"", ()),
    ]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("start", 0),
        (0, 0),
        (1, 1),
        (9, 9),
        (10, 10),
        (55, 55),
        (99, 99),
        (-1, 99),
        (-100, 0),
        (-500, 0),
    ],
)
def test_reading_begins_exactly_at_the_offset_asked_for(start: Start, first: int) -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.assign([TopicPartition("a", 0)], start)
    assert offsets(reader.read_all()) == list(range(first, 100))


def test_the_end_begins_behind_the_last_record() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world)
    reader.fetching.assign([TopicPartition("a", 0)], "end")
    state = reader.fetching.state(TopicPartition("a", 0))
    world.run(lambda: state.position is not None)
    store(world.cluster.topics["a"][0], [b"new"])
    assert offsets(reader.read(1)) == [100]


def test_a_bounded_reading_ends_at_the_end_that_it_saw() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.assign([TopicPartition("a", 0)], 0)
    state = reader.fetching.state(TopicPartition("a", 0))
    world.run(lambda: state.stop_offset is not None)
    store(world.cluster.topics["a"][0], [b"too late"])
    assert offsets(reader.read_all()) == list(range(100))


def test_a_bounded_reading_ends_inside_a_batch_if_need_be() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.assign([TopicPartition("a", 0)], 0)
    reader.fetching.state(TopicPartition("a", 0)).stop_offset = 55
    assert offsets(reader.read_all()) == list(range(55))


def test_a_bounded_reading_of_an_empty_topic_ends_at_once() -> None:
    world = World(create_topics=False)
    world.cluster.create("a", 3)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.subscribe(["a"], "start")
    assert reader.read_all() == []


def test_a_bounded_reading_hands_out_all_that_is_served_however_long_that_takes() -> None:
    """And then says why the rest is not."""
    world = World(create_topics=False)
    filled(world, partitions=2, batches=100)
    world.cluster.move("a", 1, NOBODY)
    reader = Reader(world, stop_at_end=True, prefetch_bytes=2_000)
    reader.fetching.subscribe(["a"], "start")
    records = reader.read(10)
    long_ms = world.now_ms + 2 * world.engine.settings.api_timeout_ms
    world.run(lambda: world.now_ms > long_ms)
    records += reader.read(990)
    assert [(one.partition, one.offset) for one in records] == [(0, n) for n in range(1000)]
    with pytest.raises(LeaderNotAvailable, match="a-1: no broker serves the partition for now"):
        reader.read(1)
    world.cluster.move("a", 1, 1)
    assert offsets(reader.read_all()) == list(range(1000))


def test_a_bounded_reading_hands_out_all_beside_a_partition_that_its_leader_refuses() -> None:
    """It was damaged while it was open; and then says so."""
    world = World(create_topics=False)
    filled(world, partitions=2, batches=100)
    world.cluster.topics["a"][0].is_damaged = True
    reader = Reader(world, stop_at_end=True, prefetch_bytes=2_000)
    reader.fetching.subscribe(["a"], "start")
    assert offsets(reader.read(1000)) == list(range(1000))
    with pytest.raises(PolicyViolation, match="fetch of a-0"):
        reader.read(1)
    world.cluster.topics["a"][0].is_damaged = False
    assert offsets(reader.read_all()) == list(range(1000))


@pytest.mark.parametrize("is_led", [False, True])
def test_a_partition_that_is_not_served_ends_no_reading_of_others(is_led: bool) -> None:
    """The log says it, once; and once when it is back."""
    world = World(create_topics=False)
    filled(world, partitions=2)
    lost = world.cluster.topics["a"][1]
    lost.is_damaged = is_led
    if not is_led:
        world.cluster.move("a", 1, NOBODY)
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "start")
    assert {one.partition for one in reader.read(100)} == {0}
    for minute in range(3):
        world.run(lambda minute=minute: world.now_ms > (minute + 1) * 60_000)  # type: ignore[misc]
        store(world.cluster.topics["a"][0], [b"more"])
        assert offsets(reader.read(1)) == [100 + minute]
    # Nor are the others asked for any oftener than it is.
    asks = [one for one in world.broker.requests if isinstance(one, FetchRequest)]
    assert len(asks) < 180 * 5
    (notice,) = world.engine.network.absences.take()
    why = "A policy of the server" if is_led else "no broker serves the partition for now"
    assert notice.text.startswith("a-1 cannot be read, still trying: ")
    assert why in notice.text
    lost.is_damaged = False
    world.cluster.move("a", 1, 1)
    assert offsets(reader.read(100)) == list(range(100))
    world.run(lambda: not reader.fetching._holding.unserved)
    (notice,) = world.engine.network.absences.take()
    assert re.fullmatch(r"a-1 can be read again after 1[78]\d s", notice.text)


def test_where_no_partition_is_served_the_caller_hears_it() -> None:
    world = World(create_topics=False)
    filled(world, partitions=2)
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "end")
    states = reader.fetching.states
    world.run(lambda: len(states) == 2 and all(s.position is not None for s in states.values()))
    for partition in range(2):
        world.cluster.move("a", partition, NOBODY)
    world.engine.cluster.invalidate()
    began_ms = world.now_ms
    with pytest.raises(LeaderNotAvailable, match=r"a-\d: no broker serves the partition for now"):
        reader.read(1)
    assert 60_000 <= world.now_ms - began_ms <= 70_000
    reader.fetching.drop([TopicPartition("a", 1)])  # it is another member's
    world.cluster.move("a", 0, 1)
    store(world.cluster.topics["a"][0], [b"more"])
    assert offsets(reader.read(1)) == [100]
    texts = [notice.text for notice in world.engine.network.absences.take()]
    assert texts[0].startswith("a-0, a-1 cannot be read")
    assert all("a-1 can be read" not in text for text in texts)


@pytest.mark.parametrize("is_led", [False, True])
def test_the_last_that_is_served_may_be_away_for_a_moment(is_led: bool) -> None:
    """As when its broker is started again, however long another one has not been served."""
    world = World(create_topics=False)
    filled(world, partitions=2)
    world.cluster.topics["a"][1].is_damaged = is_led
    if not is_led:
        world.cluster.move("a", 1, NOBODY)
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "start")
    assert {one.partition for one in reader.read(100)} == {0}
    world.run(lambda: world.now_ms > 150_000)
    world.cluster.move("a", 0, NOBODY)
    world.engine.cluster.invalidate()
    world.run(lambda: world.now_ms > 165_000)
    world.cluster.move("a", 0, 1)
    store(world.cluster.topics["a"][0], [b"more"])
    assert offsets(reader.read(1)) == [100]
    # ... and away for long it is an error, as ever.
    world.cluster.move("a", 0, NOBODY)
    world.engine.cluster.invalidate()
    began_ms = world.now_ms
    with pytest.raises(BrokerError, match=r"a-\d"):
        reader.read(1)
    assert 60_000 <= world.now_ms - began_ms <= 70_000


def subscribed(world: World) -> Reader:
    """To a topic whose partitions are not known yet."""
    reader = Reader(world)
    world.run(lambda: world.engine.cluster.replies_count > 0)
    reader.fetching.subscribe(["a"], "start")
    assert not reader.fetching.states
    return reader


def test_what_is_sought_before_it_is_known_is_read_from_there() -> None:
    world = World(create_topics=False)
    filled(world, partitions=2)
    reader = subscribed(world)
    reader.fetching.seek(TopicPartition("a", 0), 40)
    reader.fetching.seek(TopicPartition("a", 0), 95)
    reader.fetching.seek(TopicPartition("a", 1), -2)
    got = sorted((one.partition, one.offset) for one in reader.read(7))
    assert got == [*((0, n) for n in range(95, 100)), (1, 98), (1, 99)]


def test_what_is_paused_before_it_is_known_is_not_read_before_it_is_resumed() -> None:
    world = World(create_topics=False)
    filled(world, partitions=3)
    reader = subscribed(world)
    reader.fetching.pause(None)
    reader.fetching.resume([TopicPartition("a", 1)])
    reader.fetching.resume([TopicPartition("a", 2)])
    reader.fetching.pause([TopicPartition("a", 2)])
    assert {one.partition for one in reader.read(100)} == {1}
    paused = {tp.partition: state.paused for tp, state in reader.fetching.states.items()}
    assert paused == {0: True, 1: False, 2: True}
    reader.fetching.resume(None)
    assert {one.partition for one in reader.read(200)} == {0, 2}


def test_where_a_paused_partition_begins_is_looked_up_all_the_same() -> None:
    """Who assigns, pauses, seeks to the end and asks for the position means to learn that."""
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world)
    reader.fetching.assign([TopicPartition("a", 0)], "start")
    reader.fetching.pause(None)
    (state,) = reader.fetching.states.values()
    world.run(lambda: state.position == 0)
    reader.fetching.seek(state.tp, "end")
    world.run(lambda: state.position == 100)
    assert not any(isinstance(request, FetchRequest) for request in world.broker.requests)


def test_what_was_said_of_a_topic_that_is_not_subscribed_any_more_is_forgotten() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = subscribed(world)
    reader.fetching.pause(None)
    reader.fetching.subscribe(["b"], "start")
    reader.fetching.subscribe(["a"], "start")
    assert offsets(reader.read(100)) == list(range(100))


def test_a_partition_that_is_sought_and_turns_out_not_to_be_there_is_an_error() -> None:
    world = World(create_topics=False)
    filled(world, partitions=2)
    reader = subscribed(world)
    with pytest.raises(ValueError, match="a--1 is not assigned"):
        reader.fetching.seek(TopicPartition("a", -1), 0)
    with pytest.raises(ValueError, match="b-0 is not assigned"):
        reader.fetching.pause([TopicPartition("b", 0)])
    reader.fetching.seek(TopicPartition("a", 2), 40)
    with pytest.raises(UnknownTopicOrPartition, match=r"a-2.*has 2 partitions"):
        reader.read(1)
    assert len(reader.read(200)) == 200
    with pytest.raises(ValueError, match="a-2 is not assigned"):
        reader.fetching.seek(TopicPartition("a", 2), 40)


def test_all_partitions_on_all_brokers_are_read() -> None:
    world = World(brokers=3, create_topics=False)
    filled(world, partitions=7)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.subscribe(["a"], "start")
    records = reader.read_all()
    for partition in range(7):
        assert offsets([r for r in records if r.partition == partition]) == list(range(100))


@pytest.mark.parametrize("index", [-1, -(2**31), 2**31 - 1, 1 << 20])
def test_a_partition_that_no_topic_can_have_is_not_believed_and_the_broker_asked_again(
    index: int,
) -> None:
    world = World(create_topics=False)
    filled(world, batches=1)
    world.cluster.false_indexes = [index] * 3
    reader = Reader(world, stop_at_end=True)
    reader.fetching.subscribe(["a"], "start")
    assert offsets(reader.read_all()) == list(range(10))


def test_a_leader_that_moved_is_followed_without_a_gap() -> None:
    world = World(brokers=2, create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True, fetch_partition_bytes=300)
    reader.fetching.subscribe(["a"], "start")
    first = reader.read(30)
    world.cluster.move("a", 0, 2)
    assert offsets(first + reader.read_all()) == list(range(100))


def test_a_broker_that_comes_back_is_read_on() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True, fetch_partition_bytes=300)
    reader.fetching.subscribe(["a"], "start")
    first = reader.read(20)
    world.broker.is_up = False
    began_ms = world.now_ms
    world.run(lambda: world.now_ms > began_ms + 5_000)
    world.broker.is_up = True
    assert offsets(first + reader.read_all()) == list(range(100))


def test_a_fetch_that_a_broker_refuses_as_a_whole_is_told_and_reading_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(create_topics=False)
    filled(world, partitions=2)
    reader = Reader(world, stop_at_end=True, fetch_partition_bytes=500)
    reader.fetching.subscribe(["a"], "start")
    fetch, codes = world.broker._fetch, [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]

    def refuse(request: FetchRequest) -> FetchResponse:
        code = codes.pop(0) if codes else ErrorCode.NONE
        return FetchResponse(error_code=code, responses=[]) if code else fetch(request)

    monkeypatch.setattr(world.broker, "_fetch", refuse)
    records: list[Record] = []

    def read_on() -> None:
        while (batch := reader.next_batch()) is not None:
            records.extend(batch.records())

    with pytest.raises(BrokerError, match=r"fetch"):
        read_on()
    assert not codes
    read_on()
    for partition in range(2):
        mine = [record for record in records if record.partition == partition]
        assert offsets(mine) == list(range(100))


@pytest.mark.parametrize("lasting", [False, True])
def test_a_fetch_that_a_broker_cannot_serve_as_a_whole_at_present_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True, fetch_partition_bytes=500)
    reader.fetching.subscribe(["a"], "start")
    fetch, left = world.broker._fetch, [3]
    code = ErrorCode.KAFKA_STORAGE_ERROR

    def away(request: FetchRequest) -> FetchResponse:
        left[0] -= 1
        return (
            FetchResponse(error_code=code, responses=[])
            if lasting or left[0] >= 0
            else fetch(request)
        )

    monkeypatch.setattr(world.broker, "_fetch", away)
    if not lasting:
        assert offsets(reader.read_all()) == list(range(100))
        return
    with pytest.raises(StorageFailed, match="fetch"):
        reader.read(1)
    assert 60_000 <= world.now_ms <= 65_000


def test_a_broker_that_stays_away_is_an_error_in_the_end() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, fetch_partition_bytes=300)
    reader.fetching.subscribe(["a"], "start")
    reader.read(100)
    world.broker.is_up = False
    began_ms = world.now_ms
    with pytest.raises(BrokerUnreachable, match=r"10\.0\.0\.1:9001.*refused"):
        reader.read(1)
    assert world.now_ms - began_ms <= 62_000


# One call has time for three or four questions.
RETRYING = {"api_timeout_ms": 800, "request_timeout_ms": 400, "retry_backoff_ms": 200}


def test_a_broker_that_tells_nothing_is_not_called_silent_for_its_back_off() -> None:
    # How long ago it last answered depends on how long the back-offs happen to be.
    for seed in range(200):
        world = World(create_topics=False, seed=seed, **RETRYING)
        world.cluster.unmentioned.add("a")
        reader = Reader(world)
        reader.fetching.subscribe(["a"], "start")
        with pytest.raises(PeerError, match="no broker says which partitions topic 'a' has"):
            reader.read(1)


@pytest.mark.parametrize("delay_ms", [0, 5, 100, 300])
def test_a_broker_that_goes_away_before_the_partitions_are_known_is_unreachable(
    delay_ms: int,
) -> None:
    world = World(create_topics=False, **RETRYING)
    world.cluster.unmentioned.add("a")
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "start")
    began_ms = world.now_ms
    world.run(lambda: world.now_ms > began_ms + delay_ms)
    world.broker.is_up = False
    with pytest.raises(BrokerUnreachable, match=r"10\.0\.0\.1:9001.*re(fused|set)"):
        reader.read(1)


def test_a_new_partition_is_found_and_read_from_its_start() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "end")
    state_of = reader.fetching.states
    world.run(lambda: bool(state_of) and all(s.position is not None for s in state_of.values()))
    world.cluster.topics["a"].append(Partition(1))
    store(world.cluster.topics["a"][1], [b"before it was found"])
    (record,) = reader.read(1)
    assert (record.partition, record.offset) == (1, 0)


def test_an_offset_above_the_log_is_an_error_with_the_bounds() -> None:
    world = World(create_topics=False)
    filled(world)
    world.cluster.topics["a"][0].log_start = 50
    reader = Reader(world)
    reader.fetching.assign([TopicPartition("a", 0)], 700)
    with pytest.raises(OffsetOutOfRange, match=r"a-0: offset 700 is outside \[50, 100\]"):
        reader.read(1)
    reader.fetching.seek(TopicPartition("a", 0), 60)
    assert reader.read(1)[0].offset == 60


@pytest.mark.parametrize("offset", [101, 700])
def test_a_bounded_reading_that_begins_behind_the_end_does_not_end_silently(offset: int) -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.assign([TopicPartition("a", 0)], offset)
    with pytest.raises(OffsetOutOfRange, match=rf"offset {offset} is outside \[0, 100\]"):
        reader.read(1)


def test_a_bounded_reading_may_begin_at_the_end() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.assign([TopicPartition("a", 0)], 100)
    assert reader.read_all() == []


def test_seeking_behind_the_end_of_a_bounded_reading_does_not_end_it_silently() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.assign([TopicPartition("a", 0)], 0)
    reader.read(10)
    reader.fetching.seek(TopicPartition("a", 0), 700)
    with pytest.raises(OffsetOutOfRange, match="offset 700"):
        reader.read(1)


@pytest.mark.parametrize(("policy", "first"), [("start", 50), ("end", 100)])
@pytest.mark.parametrize("offset", [7, 700])
def test_an_offset_outside_the_log_can_be_reset_by_policy(
    policy: str, first: int, offset: int
) -> None:
    world = World(create_topics=False)
    filled(world)
    world.cluster.topics["a"][0].log_start = 50
    reader = Reader(world, on_reset=policy, on_gap="skip")
    reader.fetching.assign([TopicPartition("a", 0)], offset)
    state = reader.fetching.state(TopicPartition("a", 0))
    world.run(lambda: first <= state.fetch_offset <= 100)
    store(world.cluster.topics["a"][0], [b"new"])
    assert reader.read(1)[0].offset == first


def test_a_gap_that_is_skipped_moves_the_position_and_holds_no_records() -> None:
    world = World(create_topics=False)
    (partition,) = world.cluster.create("a")
    store(partition, [b"before"])
    for gap in gap_batches(1, 1_001, GapReason.LOST_TAIL, 5, 1):
        partition.batches.append(bytes(gap))
    partition.log_end = 1_001
    store(partition, [b"after"])
    for gap in gap_batches(1_002, 1_012, GapReason.LOST_TAIL, 5, 1):
        partition.batches.append(bytes(gap))
    partition.log_end = 1_012
    reader = Reader(world, stop_at_end=True, on_gap="skip")
    reader.fetching.subscribe(["a"], "start")
    assert offsets(reader.read_all()) == [0, 1_001]
    assert reader.fetching.state(TopicPartition("a", 0)).position == 1_012


def test_a_batch_with_holes_keeps_its_offsets() -> None:
    world = World(create_topics=False)
    (partition,) = world.cluster.create("a")
    data = encode_batch([b"%d" % i for i in range(10)], timestamps_ms=7)
    thinned = filter_batch(data, {1, 2, 4, 5, 7, 8}, 7)
    partition.store(thinned, read_header(thinned))
    for start, expected in [(0, [0, 3, 6, 9]), (4, [6, 9]), (6, [6, 9])]:
        reader = Reader(World(create_topics=False), stop_at_end=True)
        reader.world.cluster.topics["a"] = [partition]
        reader.fetching.assign([TopicPartition("a", 0)], start)
        assert offsets(reader.read_all()) == expected


def test_a_damaged_batch_is_an_error_and_nothing_of_it_is_handed_out() -> None:
    world = World(create_topics=False)
    filled(world, batches=3)
    partition = world.cluster.topics["a"][0]
    damaged = bytearray(partition.batches[1])
    damaged[-1] ^= 1
    partition.batches[1] = bytes(damaged)
    reader = Reader(world)
    reader.fetching.assign([TopicPartition("a", 0)], 0)
    assert offsets(reader.read(10)) == list(range(10))
    with pytest.raises(CorruptBatch, match="a-0, batch at offset 10"):
        reader.next_batch()


def test_a_batch_of_very_many_headers_is_an_error_and_not_made_into_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HEADERS_COUNT_MAX", 3)
    for count, is_refused in ((3, False), (4, True)):
        world = World(create_topics=False)
        (partition,) = world.cluster.create("a")
        headers = [[("h", None)] * (count - 1), [("h", None)]]
        data = encode_batch([b"a", b"b"], timestamps_ms=7, headers=headers, codec=Codec.ZSTD)
        partition.store(data, read_header(data))
        reader = Reader(world)
        reader.fetching.assign([TopicPartition("a", 0)], 0)
        if is_refused:
            with pytest.raises(CorruptBatch, match="4 headers, limit 3"):
                reader.next_batch()
        else:
            assert offsets(reader.read(2)) == [0, 1]


def test_seeking_drops_what_was_prefetched() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world)
    tp = TopicPartition("a", 0)
    reader.fetching.assign([tp], 0)
    reader.read(10)
    assert reader.fetching.prefetched.ready
    reader.fetching.seek(tp, 95)
    assert not reader.fetching.prefetched.ready
    assert reader.fetching.prefetched.buffered_bytes == 0
    assert offsets(reader.read(5)) == [95, 96, 97, 98, 99]
    reader.fetching.seek(tp, 3)
    assert offsets(reader.read(1))[0] == 3


def test_a_paused_partition_keeps_what_was_prefetched() -> None:
    world = World(create_topics=False)
    filled(world, partitions=2)
    reader = Reader(world, stop_at_end=True)
    reader.fetching.subscribe(["a"], "start")
    reader.read(10)
    reader.fetching.pause([TopicPartition("a", 0)])
    others = reader.read(90)
    assert {record.partition for record in others} == {1}
    reader.fetching.resume([TopicPartition("a", 0)])
    assert len(reader.read_all()) > 0


def test_taking_costs_no_more_for_what_is_paused() -> None:
    """Nor is a place lost by it: each partition comes in order, once."""
    costs = []
    for count in (20, 400):
        world = World(create_topics=False)
        for partition in world.cluster.create("a", 2):
            for n in range(count):
                store(partition, [b"%d" % n])
        reader = Reader(world, stop_at_end=True)
        fetching, prefetched = reader.fetching, reader.fetching.prefetched
        fetching.subscribe(["a"], "start")
        states = fetching.states.values()
        world.run(lambda: len(states) == 2 and all(one.at_stop for one in states))  # noqa: B023
        first, second = (state.tp for state in prefetched.states())
        fetching.pause([first])
        assert offsets(reader.read(1)) == [0]
        costs.append(lines_of(lambda: [prefetched.take() for _ in range(9)]))  # noqa: B023
        fetching.pause([second])
        fetching.resume([first])
        assert offsets(reader.read(7)) == list(range(7))
        fetching.pause([first])
        fetching.resume([second])
        assert offsets(reader.read(count - 10)) == list(range(10, count))
        fetching.resume([first])
        assert offsets(reader.read_all()) == list(range(7, count))
        assert not prefetched.buffered_bytes
    assert costs[0] == costs[1], costs


def test_prefetching_is_bounded() -> None:
    world = World(create_topics=False)
    filled(world, partitions=3, batches=50, size=50)
    reader = Reader(world, prefetch_bytes=5_000, fetch_partition_bytes=1_000, fetch_bytes=2_000)
    reader.fetching.subscribe(["a"], "start")
    for _ in range(200):
        world.turn()
        world.now_ms += 10
    # What one reply brings beyond the bound: a batch for each partition.
    assert 2_000 <= reader.fetching.prefetched.buffered_bytes <= 5_000 + 3 * 1_000
    assert len(reader.read(3 * 2_500)) == 3 * 2_500


def test_no_fetch_is_sent_while_the_buffer_is_full() -> None:
    world = World(create_topics=False)
    filled(world, batches=50, size=50)
    reader = Reader(world, prefetch_bytes=1_000, fetch_partition_bytes=1_000)
    reader.fetching.subscribe(["a"], "start")
    for _ in range(100):
        world.turn()
        world.now_ms += 10
    fetches = [r for r in world.broker.requests if isinstance(r, FetchRequest)]
    assert len(fetches) <= 2


def test_a_topic_that_does_not_exist_is_an_error() -> None:
    world = World(create_topics=False)
    reader = Reader(world)
    reader.fetching.subscribe(["nowhere"], "start")
    with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
        reader.next_batch()


def test_what_was_said_of_a_topic_that_is_not_wanted_any_more_is_not_raised() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world)
    reader.fetching.subscribe(["nowhere"], "start")
    world.run(lambda: bool(reader.fetching.prefetched.errors))
    reader.fetching.subscribe(["a"], "start")
    assert offsets(reader.read(100)) == list(range(100))
    # It is again where the topic is wanted again.
    reader.fetching.subscribe(["nowhere"], "start")
    with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
        reader.next_batch()


def test_a_lookup_of_before_that_failed_is_not_raised_for_what_is_read_now() -> None:
    world = World(create_topics=False)
    filled(world, partitions=2)
    reader = Reader(world)
    reader.fetching.assign([TopicPartition("a", 0)], "end")
    world.broker.is_up = False
    world.run(lambda: bool(reader.fetching.prefetched.errors))
    world.broker.is_up = True
    reader.fetching.assign([TopicPartition("a", 1)], "start")
    assert offsets(reader.read(100)) == list(range(100))


def test_of_a_topic_that_is_not_there_one_error_waits() -> None:
    world = World(create_topics=False)
    reader = Reader(world)
    reader.fetching.subscribe(["nowhere"], "start")
    looks = world.engine.cluster.replies_count
    world.run(lambda: world.engine.cluster.replies_count > looks + 20, within_ms=86_400_000)
    assert len(reader.fetching.prefetched.errors) == 1


def test_a_partition_that_does_not_exist_is_an_error_with_the_bounds() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world)
    reader.fetching.assign([TopicPartition("a", 3)], "start")
    with pytest.raises(UnknownTopicOrPartition, match=r"partitions \[0, 1\), not 3"):
        reader.next_batch()


@pytest.mark.parametrize("start", ["begin", 1.5, None, True])
def test_a_start_that_means_nothing_is_refused(start: object) -> None:
    reader = Reader(World())
    with pytest.raises((TypeError, ValueError), match="is not 'start', 'end', an offset or a time"):
        reader.fetching.assign([TopicPartition("a", 0)], start)  # type: ignore[arg-type]


def of_transaction(producer_id: int, value: bytes) -> bytes:
    return encode_batch(
        [value], timestamps_ms=0, producer_id=producer_id, producer_epoch=0, transactional=True
    )


def marker(producer_id: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction; key: version 0 and its type, both i16."""
    batch = bytearray(
        encode_batch(
            [b"\0\0\0\0\0\0"],
            keys=[b"\0\0\0\1" if commit else b"\0\0\0\0"],
            timestamps_ms=0,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
        )
    )
    batch[22] |= 0x20
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_records_of_aborted_transactions_are_not_seen_by_read_committed(isolation: str) -> None:
    #  0 a of 7 | 1 b of 8 | 2 plain | 3 abort 7 | 4 c of 7 | 5 commit 8 | 6 commit 7
    world = World()
    world.cluster.create("a", 1)
    partition = world.cluster.topics["a"][0]
    for batch in (
        of_transaction(7, b"aborted"),
        of_transaction(8, b"committed"),
        encode_batch([b"plain"], timestamps_ms=0),
        marker(7, commit=False),
        of_transaction(7, b"the next of the same producer"),
        marker(8, commit=True),
        marker(7, commit=True),
    ):
        partition.store(batch, read_header(batch))
    partition.aborted = [(7, 0)]
    reader = Reader(world, stop_at_end=True, isolation=isolation)
    reader.fetching.assign([TopicPartition("a", 0)], "start")
    records = [(record.offset, record.value) for record in reader.read_all()]
    kept = [(1, b"committed"), (2, b"plain"), (4, b"the next of the same producer")]
    assert records == (kept if isolation == "read_committed" else [(0, b"aborted"), *kept])
    assert reader.fetching.state(TopicPartition("a", 0)).position == 7


def test_a_fetch_that_finds_nothing_is_answered_before_its_connection_counts_as_dead() -> None:
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world, fetch_wait_ms=60_000)
    reader.fetching.assign([TopicPartition("a", 0)], "end")
    requests = world.broker.requests
    world.run(lambda: any(isinstance(request, FetchRequest) for request in requests))
    asked = [request for request in requests if isinstance(request, FetchRequest)]
    assert asked[0].max_wait_ms == world.settings.request_timeout_ms // 2


def evicted(reader: Reader, partition: Partition) -> None:
    store(partition, [b"lost"] * 10)
    partition.delete(20)


def cut_off(reader: Reader, partition: Partition) -> None:
    partition.truncate(0)
    refreshed = reader.world.engine.cluster.refreshed()
    reader.world.run(lambda: refreshed.done)


def assigned_anew(reader: Reader, partition: Partition) -> None:
    both = list(reader.fetching.states)
    reader.fetching.assign(both[:1], "start")
    reader.fetching.assign(both, "end")


@pytest.mark.parametrize("happens", [evicted, cut_off, assigned_anew])
def test_while_it_is_found_out_where_a_partition_goes_on_a_fetch_without_it_waits_briefly(
    happens: Callable[[Reader, Partition], None],
) -> None:
    world = World(create_topics=False)
    filled(world, partitions=2, batches=1)
    reader = Reader(world, fetch_wait_ms=10_000, on_gap="skip")
    reader.fetching.assign([TopicPartition("a", 0), TopicPartition("a", 1)], "start")
    assert len(reader.read(20)) == 20
    requests = world.broker.requests
    requests.clear()
    happens(reader, world.cluster.topics["a"][1])
    world.run(lambda: any(map(is_of_the_first_alone, requests)))
    waits = {request.max_wait_ms for request in requests if is_of_the_first_alone(request)}
    # Where the broker has refused it, until it may be asked for again.
    is_refused = happens is cut_off
    assert max(waits) <= (2 * world.settings.retry_backoff_ms if is_refused else SHORT_WAIT_MS)


def is_of_the_first_alone(request: Message) -> TypeGuard[FetchRequest]:
    if not isinstance(request, FetchRequest):
        return False
    if request.session_epoch > 0:
        return [gone.partitions for gone in request.forgotten_topics_data] == [[1]]
    return [row.partition for row in request.topics[0].partitions] == [0]


def test_what_went_wrong_again_and_again_is_told_once_of_each_partition() -> None:
    world = World(create_topics=False)
    filled(world, partitions=3, batches=1)
    world.cluster.forbidden = {("a", 0), ("a", 1)}
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "start")
    long_ms = world.now_ms + 10_000
    world.run(lambda: world.now_ms >= long_ms)
    for _ in range(2):
        with pytest.raises(TopicAuthorizationFailed):
            reader.fetching.prefetched.take()
    assert {r.partition for r in reader.read(10)} == {2}

"""Fetch sessions (KIP-227): partitions are named once, and then what changes."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
import trio

from segbroker.broker.fetching import fetch, fetch_reply
from segbroker.broker.loop.lanes import Lanes
from segbroker.broker.loop.pace import Pace
from segbroker.broker.peers import fetch_session
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

from ..support.wire_client import WireClient, connect, values
from .conftest import serving

VERSION = 12
At = tuple[str, int]
Rows = dict[At, FetchResponsePartition]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of few partitions, too."""
    monkeypatch.setattr(fetch_session, "PARTITIONS_MIN", 1)


async def test_few_partitions_have_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_MIN", 3)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", 3)
        session = Session(client)
        assert len(await session.fetch([("a", 0, 0), ("a", 1, 0)])) == 2
        assert (session.id, kept(broker)) == (0, 0)


class Session:
    """A client's side of one session."""

    def __init__(self, client: WireClient, version: int = VERSION) -> None:
        self.client = client
        self.version = version
        self.id = 0
        self.epoch = 0
        self.error: int = 0

    async def fetch(
        self,
        offsets: Iterable[tuple[str, int, int]] = (),
        *,
        forgotten: Iterable[At] = (),
        wait_ms: int = 0,
        max_bytes: int = 1 << 20,
    ) -> Rows:
        """(topic, partition, offset) to add or to move; the rows of the answer."""
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=[
                FetchRequestTopic(
                    topic=topic,
                    partitions=[
                        FetchRequestPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                    ],
                )
                for topic, partition, offset in offsets
            ],
            forgotten_topics_data=[
                FetchRequestForgottenTopic(topic=topic, partitions=[partition])
                for topic, partition in forgotten
            ],
        )
        reply = await self.client.ask(request, FetchResponse, self.version)
        self.error = reply.error_code
        if not self.error:
            self.id = reply.session_id
            self.epoch += 1
        rows = [
            ((topic.topic, row.partition_index), row)
            for topic in reply.responses
            for row in topic.partitions
        ]
        assert len(dict(rows)) == len(rows), "a partition is answered once"
        if reply.session_id:
            assert len({topic.topic for topic in reply.responses}) == len(reply.responses)
        return dict(rows)


def kept(broker: Broker) -> int:
    return broker.core.fetch_sessions.partitions_count


async def test_an_incremental_fetch_brings_what_changed() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", 2)
        await client.create("b")
        session = Session(client)
        rows = await session.fetch([("a", 0, 0), ("a", 1, 0), ("b", 0, 0)])
        assert session.id > 0
        assert set(rows) == {("a", 0), ("a", 1), ("b", 0)}
        assert await session.fetch() == {}
        await client.produce("b", b"x", b"y")
        rows = await session.fetch()
        assert {at: values(row) for at, row in rows.items()} == {("b", 0): [b"x", b"y"]}
        # Not moved on yet: the same again.
        assert values((await session.fetch())["b", 0]) == [b"x", b"y"]
        assert await session.fetch([("b", 0, 2)]) == {}
        assert kept(broker) == 3


async def test_a_high_watermark_and_a_log_start_are_told_once() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a")
        await client.produce("a", b"x", b"y")
        session = Session(client)
        assert (await session.fetch([("a", 0, 2)]))["a", 0].high_watermark == 2
        await client.produce("a", b"z")
        assert (await session.fetch([("a", 0, 3)]))["a", 0].high_watermark == 3
        assert await session.fetch() == {}
        delete = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequestTopic(
                    name="a",
                    partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=2)],
                )
            ],
            timeout_ms=10_000,
        )
        await client.ask(delete, DeleteRecordsResponse, 2)
        assert (await session.fetch())["a", 0].log_start_offset == 2
        assert await session.fetch() == {}


async def test_a_wait_ends_by_a_partition_that_the_request_does_not_name() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", 3)
        session = Session(client)
        await session.fetch([("a", index, 0) for index in range(3)])
        async with connect(broker.address) as other, trio.open_nursery() as nursery:
            nursery.start_soon(_produce_later, other)
            rows = await session.fetch(wait_ms=30_000)
        assert {at: values(row) for at, row in rows.items()} == {("a", 2): [b"v"]}


async def _produce_later(client: WireClient) -> None:
    await trio.sleep(0.05)
    await client.produce("a", b"v", partition=2)


async def test_forgotten_partitions_are_not_read_any_more() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", 2)
        session = Session(client)
        await session.fetch([("a", 0, 0), ("a", 1, 0)])
        await client.produce("a", b"x")
        await client.produce("a", b"y", partition=1)
        assert set(await session.fetch(forgotten=[("a", 0)])) == {("a", 1)}
        assert kept(broker) == 1
        # Without any partition there is no session.
        assert await session.fetch(forgotten=[("a", 1), ("nowhere", 0)]) == {}
        assert session.id == 0
        assert kept(broker) == 0


async def test_who_had_records_is_read_last_the_next_time() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", 3)
        for index in range(3):
            for _ in range(2):
                await client.produce("a", b"x" * 500, partition=index)
        session = Session(client)
        at = dict.fromkeys(range(3), 0)
        moved = [("a", index, 0) for index in range(3)]
        order = []
        for _ in range(6):
            rows = await session.fetch(moved, max_bytes=600)
            (index,) = [index for (_, index), row in rows.items() if row.records]
            order.append(index)
            at[index] += len(values(rows["a", index]))
            moved = [("a", index, at[index])]
        assert order == [0, 1, 2, 0, 1, 2]


async def test_a_session_that_is_not_there_is_said() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a")
        await client.produce("a", b"x")
        session = Session(client)
        session.id, session.epoch = 77, 1
        assert await session.fetch([("a", 0, 0)]) == {}
        assert session.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.id = session.epoch = 0
        assert values((await session.fetch([("a", 0, 0)]))["a", 0]) == [b"x"]
        session.epoch = 5
        await session.fetch()
        assert session.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch, session.version = 1, 13
        await session.fetch()
        assert session.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.version = VERSION
        assert set(await session.fetch()) == {("a", 0)}
        # Of another connection.
        async with connect(broker.address) as other:
            session.client = other
            await session.fetch()
            assert session.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_ends_by_a_fetch_without_one_and_with_its_connection() -> None:
    async with serving() as broker:
        async with connect(broker.address) as client:
            await client.create("a", 5)
            session = Session(client)
            await session.fetch([("a", index, 0) for index in range(5)])
            first = session.id
            session.epoch = -1
            assert set(await session.fetch([("a", 0, 0)])) == {("a", 0)}
            assert (session.id, kept(broker)) == (0, 0)
            session.id, session.epoch = first, 1
            await session.fetch()
            assert session.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            # A new one takes the place of the one before.
            for _ in range(2):
                session.epoch = 0
                await session.fetch([("a", 0, 0), ("a", 1, 0)])
                assert kept(broker) == 2
            assert session.id > first
        with trio.fail_after(10):
            while kept(broker):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)


async def test_what_has_no_room_is_fetched_without_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_session, "SESSIONS_PARTITIONS_MAX", 3)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", 4)
        session = Session(client)
        assert len(await session.fetch([("a", index, 0) for index in range(4)])) == 4
        assert (session.id, kept(broker)) == (0, 0)
        session.epoch = 0
        await session.fetch([("a", index, 0) for index in range(3)])
        assert session.id
        await session.fetch([("a", 3, 0)])
        assert session.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert kept(broker) == 0


async def test_a_topic_that_is_deleted_is_said_until_it_is_forgotten() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a")
        await client.create("b")
        session = Session(client)
        await session.fetch([("a", 0, 0), ("b", 0, 0)])
        request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000)
        await client.ask(request, DeleteTopicsResponse, 5)
        for _ in range(2):
            rows = await session.fetch()
            assert {at: row.error_code for at, row in rows.items()} == {
                ("a", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
        assert await session.fetch(forgotten=[("a", 0)]) == {}


async def test_sessions_by_topic_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", 2)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
        topic_id = (await client.ask(asked, MetadataResponse, 12)).topics[0].topic_id

        def request(session_id: int, epoch: int, *offsets: int) -> FetchRequest:
            partitions = [
                FetchRequestPartition(partition=n, fetch_offset=at, partition_max_bytes=1 << 20)
                for n, at in enumerate(offsets)
            ]
            topics = [FetchRequestTopic(topic_id=topic_id, partitions=partitions)]
            return FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                session_id=session_id,
                session_epoch=epoch,
                topics=topics if partitions else [],
            )

        first = await client.ask(request(0, 0, 0, 0), FetchResponse, 17)
        await client.produce("a", b"x", partition=1)
        reply = await client.ask(request(first.session_id, 1), FetchResponse, 17)
        (topic,) = reply.responses
        assert topic.topic_id == topic_id
        assert [values(row) for row in topic.partitions] == [[b"x"]]


async def test_a_session_of_thousands_of_partitions() -> None:
    async with serving(partitions_max=5_000) as broker, connect(broker.address) as client:
        await client.create("a", 1_500)
        session = Session(client)
        asked = [("a", index, 0) for index in range(1_500)]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_epoch=0,
            topics=[
                FetchRequestTopic(
                    topic="a",
                    partitions=[
                        FetchRequestPartition(
                            partition=index, fetch_offset=at, partition_max_bytes=1 << 20
                        )
                        for _, index, at in asked
                    ],
                )
            ],
        )
        reply = await client.ask(request, FetchResponse, VERSION)
        assert len(reply.responses[0].partitions) == 1_500
        session.id, session.epoch = reply.session_id, 1
        assert await session.fetch() == {}
        await client.produce("a", b"x", partition=1_234)
        rows = await session.fetch(wait_ms=10_000)
        assert {at: values(row) for at, row in rows.items()} == {("a", 1_234): [b"x"]}


@pytest.mark.parametrize("seed", range(5))
async def test_every_record_is_brought_once_whatever_the_session_does(seed: int) -> None:
    """A client that believes the answers has what a plain reader has."""
    random = Random(seed)
    async with serving() as broker, connect(broker.address) as client:
        topics = ["a", "b", "c"]
        for topic in topics:
            await client.create(topic, 3)
        every = [(topic, index) for topic in topics for index in range(3)]
        produced: dict[At, list[bytes | None]] = {at: [] for at in every}
        got: dict[At, list[bytes | None]] = {at: [] for at in every}
        marks: dict[At, int] = {}
        session = Session(client)
        subscribed: set[At] = set()
        pending: dict[At, int] = {}
        for number in range(150):
            for _ in range(random.randrange(3)):
                topic, index = random.choice(every)
                value = b"%d" % number
                await client.produce(topic, value, partition=index)
                produced[topic, index].append(value)
            forgotten = []
            if random.random() < 0.1:
                session.id = session.epoch = 0
                pending = {at: len(got[at]) for at in subscribed}
            elif subscribed and random.random() < 0.1:
                forgotten = [random.choice(sorted(subscribed))]
                subscribed.discard(forgotten[0])
                pending.pop(forgotten[0], None)
            at = random.choice(every)
            if at not in forgotten:
                subscribed.add(at)
                pending[at] = len(got[at])
            rows = await session.fetch(
                [(*at, offset) for at, offset in pending.items()],
                forgotten=forgotten,
                max_bytes=random.choice([64, 200, 1 << 20]),
            )
            assert not session.error
            pending = {}
            for at, row in rows.items():
                assert at in subscribed
                marks[at] = row.high_watermark
                fresh = values(row) if row.records else []
                if fresh:
                    got[at] += fresh
                    pending[at] = len(got[at])
            for at in subscribed:
                assert marks[at] == len(produced[at])
        session.id = session.epoch = 0
        pending = {at: len(got[at]) for at in every}
        for _ in range(100):
            rows = await session.fetch([(*at, offset) for at, offset in pending.items()])
            pending = {}
            for at, row in rows.items():
                if row.records:
                    got[at] += values(row)
                    pending[at] = len(got[at])
            if not pending:
                break
        assert got == produced


@pytest.mark.parametrize("what", ["a record", "a deletion"])
async def test_what_happens_while_a_large_fetch_begins_to_wait_is_told(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (fetch, fetch_reply):
        monkeypatch.setattr(module, "TARGETS_ON_LOOP_MAX", 4)
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("a", 6)
        await client.create("b")
        session = Session(client)
        await session.fetch([("b", 0, 0), *(("a", n, 0) for n in range(6))])
        happened = False

        async def step(_: Pace) -> None:
            """Others have their turn where it stands in the lists of the first four."""
            nonlocal happened
            entered = sum(1 for one in broker.core.topics.served.values() if one.fetches)
            if happened or entered != 4:
                return
            happened = True
            if what == "a record":
                await other.produce("b", b"v")
            else:
                request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000)
                await other.ask(request, DeleteTopicsResponse, 4)

        monkeypatch.setattr(Pace, "step", step)
        with trio.fail_after(60):
            rows = await session.fetch(wait_ms=600_000)
        if what == "a record":
            assert values(rows["b", 0]) == [b"v"]
        else:
            codes = {row.error_code for row in rows.values()}
            assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not any(one.fetches for one in broker.core.topics.served.values())


async def test_a_large_fetch_of_what_is_in_the_page_cache_asks_no_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read by another thread costs more than the read, and there is one for each partition."""
    for module in (fetch, fetch_reply):
        monkeypatch.setattr(module, "TARGETS_ON_LOOP_MAX", 4)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", 20)
        for partition in range(20):
            await client.produce("a", b"v%d" % partition, partition=partition)
        ran: list[object] = []
        run = Lanes.run

        core = broker.core
        chores = (core.topics.manager.housekeeping, core.scrubber.step, core.cleaner.step)

        async def counted(lanes: Lanes, function: Callable[..., Any], *args: object) -> object:
            if function not in chores:
                ran.append(function)
            return await run(lanes, function, *args)

        monkeypatch.setattr(Lanes, "run", counted)
        rows = await Session(client).fetch([("a", n, 0) for n in range(20)])
        assert {at: values(row) for at, row in rows.items()} == {
            ("a", n): [b"v%d" % n] for n in range(20)
        }
        assert len(ran) == 1, "the one that encodes the answer"

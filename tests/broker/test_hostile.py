"""A hostile client: whatever one sends, the others are served, and nothing is left behind."""

import struct
from collections.abc import Awaitable, Callable

import pytest
import trio

from segbroker.broker.apis import config_admin
from segbroker.broker.connections import connection
from segbroker.broker.loop import pace
from segbroker.broker.producing import express, intake
from segbroker.broker.requests import LARGE_PRODUCE_BYTES, PLAIN_BYTES_MAX
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from segbroker.protocol.schema import Message

from ..support.gated_storage import GatedStorage
from ..support.steps import calls_of_a_step
from ..support.wire_client import batch, connect, fetch_request, produce_request, values
from ..support.wire_transactions import until
from .conftest import Events, serving

ITEMS = 3_000


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler has had its time after every item, however fast the machine."""
    monkeypatch.setattr(pace, "STEP_S", -1.0)


async def turns_meanwhile(work: Callable[[], Awaitable[None]]) -> int:
    """How often another task ran while `work` did."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await work()
        nursery.cancel_scope.cancel()
    return turns


async def turns_of_others(request: Message, version: int, topic: str | None = None) -> int:
    """How often another task ran while `request` was answered."""
    async with serving() as broker, connect(broker.address) as client:
        if topic is not None:
            await client.create(topic)

        async def ask() -> None:
            await client.send(request, version)
            with trio.fail_after(60):
                assert await client.receive_frame()

        return await turns_meanwhile(ask)


async def test_a_large_produce_is_answered_when_all_is_in_also_if_its_first_rows_are_durable_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:

        async def is_durable() -> bool:
            return not any(p.appends_waiting for p in broker.core.topics.served.values())

        async def step(_: pace.Pace) -> None:
            await until(is_durable)

        monkeypatch.setattr(pace.Pace, "step", step)
        await client.create("t", partitions=3)
        rows = [
            ProduceRequestPartition(index=n, records=batch(bytes(LARGE_PRODUCE_BYTES)))
            for n in range(3)
        ]
        topics = [ProduceRequestTopic(name="t", partition_data=rows)]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
        reply = await client.ask(request, ProduceResponse, 9)
        (topic,) = reply.responses
        assert [
            (row.index, row.error_code, row.base_offset) for row in topic.partition_responses
        ] == [(n, ErrorCode.NONE, 0) for n in range(3)]


NAMES = [f"topic-{n}" for n in range(ITEMS)]
LARGE_REQUESTS: list[tuple[Message, int]] = [
    (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in NAMES],
            allow_auto_topic_creation=False,
        ),
        9,
    ),
    (
        FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[
                FetchRequestTopic(
                    topic="t",
                    partitions=[
                        FetchRequestPartition(partition=n, fetch_offset=0, partition_max_bytes=1)
                        for n in range(ITEMS)
                    ],
                )
            ],
        ),
        12,
    ),
    (
        ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequestTopic(
                    name="t",
                    partition_data=[
                        ProduceRequestPartition(index=n, records=bytes(100)) for n in range(ITEMS)
                    ],
                )
            ],
        ),
        9,
    ),
    (  # in few bytes
        ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequestTopic(
                    name="t",
                    partition_data=[
                        ProduceRequestPartition(index=n, records=b"") for n in range(ITEMS)
                    ],
                )
            ],
        ),
        9,
    ),
    (DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1000), 4),
    (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequestTopic(
                    name="t",
                    partitions=[
                        ListOffsetsRequestPartition(partition_index=n, timestamp=-1)
                        for n in range(ITEMS)
                    ],
                )
            ],
        ),
        5,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version"),
    LARGE_REQUESTS,
    ids=[type(message).__name__ for message, _ in LARGE_REQUESTS],
)
@pytest.mark.usefixtures("no_patience")
async def test_a_request_of_thousands_of_items_gives_way_after_each(
    request_: Message, version: int
) -> None:
    assert await turns_of_others(request_, version, topic="t") >= ITEMS


WHOLE_TOPICS: list[tuple[Message, int]] = [
    (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9),
    (MetadataRequest(topics=None), 9),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8),
    (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[
                        OffsetFetchRequestGroupTopic(name="t", partition_indexes=[*range(ITEMS)])
                    ],
                )
            ]
        ),
        8,
    ),
    (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequestTopic(
                    name="t",
                    partitions=[
                        DeleteRecordsRequestPartition(partition_index=n, offset=1)
                        for n in range(ITEMS)
                    ],
                )
            ],
            timeout_ms=1000,
        ),
        2,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version"),
    WHOLE_TOPICS,
    ids=[
        "Metadata of one",
        "Metadata of all",
        "OffsetFetch of all",
        "OffsetFetch",
        "DeleteRecords",
    ],
)
async def test_an_answer_about_a_topic_of_thousands_of_partitions_gives_way_after_each(
    request_: Message, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=ITEMS)
        rows = [
            OffsetCommitRequestPartition(
                partition_index=n, committed_offset=1, committed_metadata=""
            )
            for n in range(ITEMS)
        ]
        topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
        commit = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
        await client.ask(commit, OffsetCommitResponse, 8)
        monkeypatch.setattr(pace, "STEP_S", -1.0)

        async def ask() -> None:
            await client.send(request_, version)
            with trio.fail_after(60):
                assert await client.receive_frame()

        assert await calls_of_a_step(ask) < ITEMS / 2


@pytest.mark.usefixtures("no_patience")
async def test_partitions_that_their_sender_may_not_open_do_not_hold_the_loop() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=ITEMS)

        async def pass_over() -> None:
            await broker.core.topics.open_all((("t", n) for n in range(ITEMS)), lambda _: False)

        assert await turns_meanwhile(pass_over) > ITEMS // 2, (
            "who is refused gives way as often as others"
        )
        assert not broker.core.topics.served


async def test_resources_are_listed_with_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many as topics."""
    count = 300
    async with serving() as broker, connect(broker.address) as client:
        await broker.core.topics.auto_create([f"t{n}" for n in range(count)])
        monkeypatch.setattr(pace, "STEP_S", -1.0)

        async def ask() -> None:
            request = ListConfigResourcesRequest(resource_types=[])
            reply = await client.ask(request, ListConfigResourcesResponse, 1)
            assert len(reply.config_resources) == count + 2

        assert await turns_meanwhile(ask) >= count


@pytest.mark.usefixtures("no_patience")
async def test_all_topics_are_described_however_many() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for n in range(20):
            await client.create(f"t{n}", partitions=150)
        reply = await client.ask(MetadataRequest(topics=None), MetadataResponse, 9)
        assert sum(len(topic.partitions) for topic in reply.topics) == 3_000


async def test_the_rows_of_a_large_request_are_those_of_small_ones() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=3)
        await client.produce("t", b"v", partition=2)
        asked = [
            FetchRequestPartition(partition=n, fetch_offset=0, partition_max_bytes=1)
            for n in range(2_000)
        ]
        fetched = await client.ask(
            FetchRequest(
                max_wait_ms=0, min_bytes=1, topics=[FetchRequestTopic(topic="t", partitions=asked)]
            ),
            FetchResponse,
            12,
        )
        rows = fetched.responses[0].partitions
        assert [row.partition_index for row in rows] == list(range(2_000))
        assert values(rows[2]) == [b"v"]
        assert rows[3].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        names = [MetadataRequestTopic(name=f"unknown-{n}") for n in range(2_000)]
        described = await client.ask(
            MetadataRequest(
                topics=[*names, MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
            ),
            MetadataResponse,
            9,
        )
        assert len(described.topics) == 2_001
        assert len(described.topics[-1].partitions) == 3
        rows_asked = [ProduceRequestPartition(index=0, records=batch(b"x" * 300_000))]
        rows_asked += [ProduceRequestPartition(index=9, records=batch(b"x"))]
        produced = await client.ask(
            ProduceRequest(
                acks=1,
                timeout_ms=9000,
                topic_data=[ProduceRequestTopic(name="t", partition_data=rows_asked)],
            ),
            ProduceResponse,
            9,
        )
        codes = [row.error_code for row in produced.responses[0].partition_responses]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_only_a_produce_may_be_large(events: Events) -> None:
    async with serving() as broker, connect(broker.address) as client:
        size = PLAIN_BYTES_MAX + 1
        header = struct.pack(">ihhih", size, ApiKey.METADATA, 1, 7, -1)
        with trio.fail_after(60):
            await client.send_bytes(header + bytes(size - 10))
            assert await client.is_closed()
    (line,) = events.named("unserved_request")
    assert str(PLAIN_BYTES_MAX) in line["error"]


async def test_a_fetch_of_more_partitions_than_a_reply_holds_is_closed(events: Events) -> None:
    asked = [
        FetchRequestPartition(partition=n, fetch_offset=0, partition_max_bytes=1)
        for n in range(20_001)
    ]
    async with serving() as broker, connect(broker.address) as client:
        await client.send(
            FetchRequest(
                max_wait_ms=0, min_bytes=1, topics=[FetchRequestTopic(topic="t", partitions=asked)]
            ),
            12,
        )
        with trio.fail_after(60):
            assert await client.is_closed()
    assert len(events.named("unserved_request")) == 1


async def test_topics_made_by_asking_for_them_are_bounded() -> None:
    names = [MetadataRequestTopic(name=f"t{n}") for n in range(10)]
    async with serving(auto_create_topics_max=3) as broker, connect(broker.address) as client:
        reply = await client.ask(MetadataRequest(topics=names), MetadataResponse, 9)
        made = [topic.name for topic in reply.topics if not topic.error_code]
        assert made == ["t0", "t1", "t2"]
        assert {topic.error_code for topic in reply.topics[3:]} == {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        await client.create("wanted")  # creating by request is not limited


async def test_a_long_pipeline_gives_way_to_the_other_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "TURN_S", -1.0)  # after every frame
    async with (
        serving(express=False) as broker,
        connect(broker.address) as busy,
        connect(broker.address) as other,
    ):
        await busy.create("t", durability="disk")
        await busy.produce("t", b"v")
        partition = broker.core.topics.served["t", 0]
        _, frame = busy.encode(produce_request("t", batch(b"v")), 9)
        await busy.send_bytes(frame * 400)  # one receive of the broker
        with trio.fail_after(60):
            await other.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert partition.handler.log_end_offset < 400, "answered while the pipeline was served"


async def test_a_long_pipeline_on_the_express_way_gives_way_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "SPACE_BYTES", 1 << 10)
    monkeypatch.setattr(express, "TURN_S", -1.0)  # after every pass
    async with (
        serving() as broker,
        connect(broker.address) as busy,
        connect(broker.address) as other,
    ):
        await busy.create("t", durability="disk")
        await busy.produce("t", b"v")
        partition = broker.core.topics.served["t", 0]
        _, frame = busy.encode(produce_request("t", batch(b"v")), 9)
        await busy.send_bytes(frame * 400)
        with trio.fail_after(60):
            await other.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
            assert partition.handler.log_end_offset < 400, "answered while the pipeline was served"
            while partition.handler.log_end_offset < 401:
                await trio.lowlevel.checkpoint()
        assert broker.express is not None
        assert broker.express.requests > 300


@pytest.mark.parametrize("count", [-2, -(2**31), 2**31 - 1])
async def test_absurd_counts_close_the_connection_and_no_other(count: int, events: Events) -> None:
    async with serving() as broker, connect(broker.address) as other:
        for key, version in ((ApiKey.METADATA, 1), (ApiKey.FETCH, 4), (ApiKey.PRODUCE, 3)):
            async with connect(broker.address) as client:
                prefix = {
                    ApiKey.METADATA: b"",
                    ApiKey.FETCH: bytes(17),
                    ApiKey.PRODUCE: struct.pack(">hhi", -1, 1, 1000),
                }[key]
                body = struct.pack(">hhih", key, version, 1, -1) + prefix
                body += struct.pack(">i", count)
                await client.send_bytes(struct.pack(">i", len(body)) + body)
                with trio.fail_after(60):
                    assert await client.is_closed()
        assert len(events.named("malformed_request")) == 3
        await other.ask(MetadataRequest(topics=[]), MetadataResponse, 1)


async def test_garbage_behind_a_good_request_does_not_take_its_answer_back() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", durability="disk")
        await client.produce("t", b"first")  # reserves offsets; the next answer waits for nothing
        _, good = client.encode(produce_request("t", batch(b"kept")), 9)
        await client.send_bytes(good + struct.pack(">i", -5) + b"garbage")
        with trio.fail_after(60):
            assert await client.receive_frame()
            assert await client.is_closed()
        async with connect(broker.address) as reader:
            assert values(await reader.fetch("t", 0)) == [b"first", b"kept"]


async def test_negative_offsets_and_sizes_are_answered() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"v")
        for offset in (-1, -(2**63), 2**63 - 1):
            row = await client.fetch("t", offset)
            assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        for size in (-1, 0, -(2**31)):
            request = fetch_request("t", 0, max_bytes=size, partition_max_bytes=size)
            reply = await client.ask(request, FetchResponse, 12)
            assert values(reply.responses[0].partitions[0]) == [b"v"]
        for wait in (-1, -(2**31)):
            reply = await client.ask(fetch_request("t", 1, wait_ms=wait), FetchResponse, 12)
            assert reply.responses[0].partitions[0].error_code == 0
        for index in (-1, 2**31 - 1):
            row = await client.fetch("t", 0, partition=index)
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_clients_that_go_while_they_wait_leave_nothing_behind() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.fetch("t", 0)
        partition = broker.core.topics.served["t", 0]
        for _ in range(50):
            async with connect(broker.address) as waiting:
                for _ in range(3):
                    await waiting.send(fetch_request("t", 0, wait_ms=600_000), 12)
                with trio.fail_after(60):
                    while not partition.fetches:
                        await trio.lowlevel.checkpoint()
        with trio.fail_after(60):
            while broker.connections > 1:
                await trio.lowlevel.checkpoint()
        assert not partition.fetches
        assert len(broker.core.deadlines) == 0
        assert broker.core.pool.lent_bytes == 0


async def test_producers_that_go_before_their_sync_leave_nothing_behind() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.fetch("t", 0)
        partition = broker.core.topics.served["t", 0]
        disk.syncs.clear()
        async with connect(broker.address) as producer:
            for _ in range(20):
                await producer.send(produce_request("t", batch(b"v")), 9)
            with trio.fail_after(60):
                while broker.core.ingest.unsynced_bytes < 20 * len(batch(b"v")):
                    await trio.lowlevel.checkpoint()
        with trio.fail_after(60):
            while broker.connections > 1:
                await trio.lowlevel.checkpoint()
        assert len(broker.core.deadlines) == 0
        disk.syncs.set()
        with trio.fail_after(60):
            while partition.appends_waiting:
                await trio.lowlevel.checkpoint()
        assert broker.core.ingest.unsynced_bytes == 0


async def test_a_flood_without_replies_is_all_appended_and_holds_nothing() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        _, frame = client.encode(produce_request("t", batch(b"v"), acks=0), 9)
        await client.send_bytes(frame * 2_000)
        row = await client.produce("t", b"last")
        assert row.base_offset == 2_000
        assert broker.core.ingest.unsynced_bytes == 0


async def test_produce_and_fetch_during_deletions_are_always_answered() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as admin,
        connect(broker.address) as producer,
        connect(broker.address) as consumer,
    ):
        allowed = {
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,  # it was made since it was looked for
        }
        done = trio.Event()

        async def produce() -> None:
            while not done.is_set():
                row = await producer.produce("t", b"v")
                assert row.error_code in allowed, row

        async def fetch() -> None:
            while not done.is_set():
                row = await consumer.fetch("t", 0, wait_ms=5)
                assert row.error_code in allowed, row

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                nursery.start_soon(fetch)
                for _ in range(20):
                    await admin.create("t")
                    with trio.fail_after(60):
                        while ("t", 0) not in broker.core.topics.served:
                            await trio.lowlevel.checkpoint()
                    reply = await admin.ask(
                        DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000),
                        DeleteTopicsResponse,
                        4,
                    )
                    assert reply.responses[0].error_code == 0
                done.set()
        assert broker.core.ingest.unsynced_bytes == 0
        assert len(broker.core.deadlines) == 0


async def test_a_topic_that_was_made_since_it_was_looked_for_is_asked_for_again() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topics = broker.core.topics
        code, _ = topics.why_unopened("t", 0)  # nobody has opened it yet
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.produce("t", b"v")).error_code == 0


async def test_settings_asked_for_again_and_again_in_one_request_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(kind: int, name: str, *keys: str) -> DescribeConfigsRequestResource:
        return DescribeConfigsRequestResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )

    async def described(*resources: DescribeConfigsRequestResource) -> list[tuple[int, int]]:
        """The code and how many rows, of each."""
        request = DescribeConfigsRequest(resources=list(resources))
        reply = await client.ask(request, DescribeConfigsResponse, 2)
        return [(row.error_code, len(row.configs)) for row in reply.results]

    once = [asked(2, "t"), asked(2, "t", "segment.ms")]
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        (_, everything), single = await described(*once * 2_000)
        assert single == (0, 1)
        ((_, of_group),) = await described(asked(32, "g"))
        # What is not told is looked at, too; of what is not there, nothing is.
        monkeypatch.setattr(config_admin, "ROWS_MAX", 2 * everything + 2 * of_group)
        groups = [asked(32, f"g{n}", "share.session.timeout.ms") for n in range(4)]
        nowhere = [asked(2, name) for name in NAMES]
        unknown, refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.POLICY_VIOLATION
        assert await described(*once, *nowhere, *groups) == [
            (0, everything),
            (0, 1),
            *[(unknown, 0)] * ITEMS,
            *[(0, 1)] * 2,
            *[(refused, 0)] * 2,
        ]

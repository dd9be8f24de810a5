"""What long answers take in memory is bounded, however small their requests are."""

import gc
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from segbroker.broker.apis.answer_sizes import ROW_BYTES
from segbroker.broker.loop import large_requests
from segbroker.broker.peers import long_answers
from segbroker.broker.server import Broker
from segbroker.protocol.messages_admin import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from segbroker.protocol.messages_groups import (
    ListGroupsRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from segbroker.protocol.messages_placement import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from segbroker.protocol.messages_streams_groups import StreamsGroupDescribeRequest
from segbroker.protocol.messages_transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
)
from segbroker.protocol.schema import Message

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect, fetch_request
from ..support.wire_groups import GROUP, commit_of
from ..support.wire_streams import beat as streams_beat
from ..support.wire_streams import internal, subtopology
from ..support.wire_streams import joining as streams_joining
from .conftest import Events, serving

WIDE = 4_000
"""Partitions: above what takes no room."""
WIDEST = 20_000
"""Partitions: more than small buffers take an answer about."""
OTHER_ADDRESS = "127.0.0.2"


def is_answered(client: WireClient) -> bool:
    """Whether something has come that was not received yet."""
    return bool(select.select([client.stream.socket.fileno()], [], [], 0)[0])


async def ask_small(client: WireClient) -> None:
    """Requests that somebody else is answered meanwhile."""
    for _ in range(200):
        await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)


@asynccontextmanager
async def room_taken(disk: GatedStorage, broker: Broker, client: WireClient) -> AsyncIterator[None]:
    """A long answer is being made: to a CreateTopics that waits for the disk."""
    topics = [
        CreateTopicsRequestTopic(
            name=f"t-{n}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for n in range(200)
    ]
    disk.syncs.clear()
    await client.send(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
    try:
        await becomes(lambda: broker.core.long_answers.held_bytes > 0)
        yield
    finally:
        disk.syncs.set()
    with trio.fail_after(60):
        await client.receive(CreateTopicsResponse, 5)


ALL_OFFSETS = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])


@pytest.mark.parametrize(
    ("request_", "response", "version"),
    [
        (MetadataRequest(topics=None), MetadataResponse, 9),
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), MetadataResponse, 9),
        (DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 1),
        (ALL_OFFSETS, OffsetFetchResponse, 8),
    ],
    ids=["all metadata", "metadata", "sizes", "offsets"],
)
async def test_a_long_answer_to_a_small_request_is_not_made_before_there_is_room(
    request_: Message, response: type[Message], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_answers, "BYTES_MAX", 1)  # one at a time
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
        connect(broker.address) as small,
    ):
        await small.create("t", partitions=WIDE)
        await small.send(commit_of(*range(WIDE)), 8)
        await small.receive_frame()
        async with room_taken(disk, broker, first):
            await second.send(request_, version)
            await ask_small(small)
            is_early = is_answered(second)
        assert not is_early, "there is no room while the first is not answered"
        with trio.fail_after(60):
            await second.receive(response, version)
        await becomes(lambda: broker.core.long_answers.held_bytes == 0)


async def test_who_waits_for_room_for_its_answer_takes_none_from_large_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_answers, "BYTES_MAX", 1)
    monkeypatch.setattr(large_requests, "BYTES_MAX", 1)
    disk = GatedStorage()
    nothing = [MetadataRequestTopic(name=f"none-{n}") for n in range(2_000)]
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
        connect(broker.address) as other,
    ):
        await other.create("wide", partitions=WIDE)
        async with room_taken(disk, broker, first):
            wide = [MetadataRequestTopic(name="wide"), *nothing]
            await second.send(MetadataRequest(topics=wide, allow_auto_topic_creation=False), 9)
            await becomes(lambda: len(broker.core.long_answers) == 1)
            request = MetadataRequest(topics=nothing, allow_auto_topic_creation=False)
            with trio.fail_after(60):
                reply = await other.ask(request, MetadataResponse, 9)
            assert len(reply.topics) == len(nothing)
            assert not is_answered(second)
        with trio.fail_after(60):
            _, reply = await second.receive(MetadataResponse, 9)
        assert [len(topic.partitions) for topic in reply.topics[:2]] == [WIDE, 0]


async def test_a_long_answer_is_not_made_behind_one_that_waits() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        await client.create("wide", partitions=WIDE)
        await client.send(fetch_request("t", 0, wait_ms=600_000), 12)
        await client.send(MetadataRequest(topics=None), 9)
        await becomes(lambda: len(broker.core.deadlines) > 0)
        await ask_small(other)
        (waiting,) = (one for one in broker._connections if len(one.outbox))
        assert len(waiting.outbox) == 1, "the fetch alone"
        await other.produce("t", b"v")
        with trio.fail_after(60):
            await client.receive_frame()
            _, reply = await client.receive(MetadataResponse, 9)
        assert sorted(len(topic.partitions) for topic in reply.topics) == [1, WIDE]


@asynccontextmanager
async def taking_nothing(broker: Broker, source: str) -> AsyncIterator[None]:
    """A client that asks for more than its socket holds, and takes none of it."""
    async with connect(broker.address, source=source) as client:
        await ask_small(client)
        with_small_buffers(broker)
        client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await client.send(MetadataRequest(topics=None), 9)
        await becomes(lambda: any(one.outbox.unsent for one in broker._connections))
        yield


async def test_who_takes_nothing_of_its_answer_keeps_others_waiting_for_a_while_only(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_answers, "HOST_BYTES_MAX", 1)
    monkeypatch.setattr(long_answers, "TAKEN_S", 0.1)
    async with serving(partitions_max=WIDEST) as broker, connect(broker.address) as client:
        await client.create("wide", partitions=WIDEST)
        one = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
        async with taking_nothing(broker, "127.0.0.1"):
            held = broker.core.long_answers.held_bytes
            assert held > 0, "what was encoded takes its bytes until it is taken"
            async with connect(broker.address, source=OTHER_ADDRESS) as neighbour:
                with trio.fail_after(60):
                    await neighbour.ask(one, MetadataResponse, 9)
            assert not events.named("unserved_request"), "another address has its own share"
            with trio.fail_after(60):
                await client.ask(one, MetadataResponse, 9)
            (line,) = events.named("unserved_request")
            assert "was not taken" in line["error"]


async def test_who_waits_for_room_for_too_long_is_closed(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_answers, "BYTES_MAX", 1)
    monkeypatch.setattr(long_answers, "WAIT_S", 0.1)
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
        connect(broker.address) as small,
    ):
        await small.create("wide", partitions=WIDE)
        async with room_taken(disk, broker, first):
            await second.send(MetadataRequest(topics=None), 9)
            with trio.fail_after(60):
                assert await second.is_closed()
            assert not len(broker.core.long_answers)
        (line,) = events.named("unserved_request")
        assert "no room for an answer" in line["error"]
        assert len((await small.ask(MetadataRequest(topics=None), MetadataResponse, 9)).topics)


ROWS = 20_000
"""Rows of which more is encoded than small buffers take, and more than takes no room."""


def of_nothing() -> tuple[Message, int]:
    """A request for very many partitions that there are not."""
    rows = [DescribeQuorumRequestPartition(partition_index=n) for n in range(ROWS)]
    topic = DescribeQuorumRequestTopic(topic_name="none", partitions=rows)
    return DescribeQuorumRequest(topics=[topic]), 2


def to_nothing() -> tuple[Message, int]:
    rows = [ProduceRequestPartition(index=n, records=None) for n in range(ROWS)]
    topic = ProduceRequestTopic(name="none", partition_data=rows)
    return ProduceRequest(acks=-1, timeout_ms=0, topic_data=[topic]), 9


def rows_held() -> int:
    """Rows of replies to Produces that anybody in this process has, other tests as well."""
    return sum(isinstance(one, ProduceResponsePartition) for one in gc.get_objects())


@pytest.mark.parametrize("asked", [of_nothing, to_nothing], ids=["rows", "produce"])
async def test_what_large_requests_are_answered_takes_bounded_memory_until_it_is_taken(
    asked: Callable[[], tuple[Message, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is some bytes of the request, many more of the answer, and an object."""
    count, most, before = 4, ROWS * ROW_BYTES + 250_000, rows_held()
    monkeypatch.setattr(long_answers, "HOST_BYTES_MAX", most)
    monkeypatch.setattr(long_answers, "TAKEN_S", 600)
    async with serving() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        frame = clients[0].encode(*asked())[1]
        for client in clients:
            await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
            client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        with_small_buffers(broker)
        for client in clients:
            await client.send_bytes(frame)
        await becomes(lambda: stuck(broker) + len(broker.core.long_answers) == count)
        assert stuck(broker) == 1
        await becomes(lambda: rows_held() <= before)  # a thread that has encoded may have some
        assert stuck(broker) + len(broker.core.long_answers) == count
        answers = []

        async def take(client: WireClient) -> None:
            answers.append(await client.receive_frame())

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for client in clients:
                    nursery.start_soon(take, client)
        assert [len(answer) > 2 * len(frame) for answer in answers] == [True] * count
        await becomes(lambda: broker.core.long_answers.held_bytes == 0)


async def test_who_takes_nothing_of_a_reply_to_few_rows_of_many_topics_makes_room(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic counts beside its row: such a reply takes room, too."""
    monkeypatch.setattr(long_answers, "HOST_BYTES_MAX", 1)
    monkeypatch.setattr(long_answers, "TAKEN_S", 0.1)
    topics = [
        ProduceRequestTopic(
            name=f"{n:0200}", partition_data=[ProduceRequestPartition(index=0, records=None)]
        )
        for n in range(1_900)
    ]
    asked = ProduceRequest(acks=-1, timeout_ms=0, topic_data=topics)
    async with (
        serving() as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
    ):
        await ask_small(first)
        with_small_buffers(broker)
        first.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await first.send(asked, 9)
        await becomes(lambda: stuck(broker) == 1)
        assert broker.core.long_answers.held_bytes > 0
        with trio.fail_after(20):
            await second.ask(asked, ProduceResponse, 9)
        (line,) = events.named("unserved_request")
        assert "was not taken" in line["error"]
        await becomes(lambda: broker.core.long_answers.held_bytes == 0)


def with_small_buffers(broker: Broker) -> None:
    """What the broker's sockets take of an answer is little, for whoever has asked already."""
    for one in broker._connections:
        if one.greeted:
            assert isinstance(one._sock, socket.socket)
            one._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 << 10)


def stuck(broker: Broker) -> int:
    """Connections that are owed more than their clients take."""
    return sum(one.outbox.unsent for one in broker._connections)


async def with_offsets(client: WireClient) -> None:
    """400 offsets, each with as much metadata as may be."""
    await client.create("t", partitions=TEXTS)
    await client.ask(commit_of(*range(TEXTS), metadata="x" * 4_096), OffsetCommitResponse, 8)


async def with_transactions(client: WireClient) -> None:
    for n in range(TEXTS):
        name = f"{n:020000}"
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
        assert not (await client.ask(request, InitProducerIdResponse, 2)).error_code


async def with_groups(client: WireClient) -> None:
    await client.create("t")
    for n in range(TEXTS):
        request = commit_of(0)
        request.group_id = f"{n:020000}"
        await client.ask(request, OffsetCommitResponse, 8)


async def with_topologies(client: WireClient) -> None:
    for n in range(TEXTS // 10):
        kept = internal("kept", setting="x" * 30_000, other="x" * 30_000)
        said = streams_joining("m", subtopology("0", "t", keeps=[kept]), group_id=f"g{n}")
        assert not (await streams_beat(client, said)).error_code


TEXTS = 400
NAMED = OffsetFetchRequestGroup(
    group_id=GROUP,
    topics=[OffsetFetchRequestGroupTopic(name="t", partition_indexes=[*range(TEXTS)])],
)
NAMED_ALONE = OffsetFetchRequest(
    group_id=GROUP,
    topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[*range(TEXTS)])],
)


@pytest.mark.parametrize(
    ("prepare", "request_", "version"),
    [
        (with_offsets, ALL_OFFSETS, 8),
        (with_offsets, OffsetFetchRequest(groups=[NAMED]), 8),
        (with_offsets, NAMED_ALONE, 7),
        (with_transactions, ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0),
        (with_groups, ListGroupsRequest(), 4),
        (
            with_topologies,
            StreamsGroupDescribeRequest(
                group_ids=[f"g{n}" for n in range(TEXTS // 10)],
                include_authorized_operations=False,
            ),
            0,
        ),
    ],
    ids=["all offsets", "offsets", "of one group", "transactions", "groups", "topologies"],
)
async def test_texts_in_an_answer_count_before_it_is_made(
    prepare: Callable[[WireClient], Awaitable[None]], request_: Message, version: int
) -> None:
    """A MiB of them in hundreds of rows; who asks often at once has all of it often."""
    async with serving() as broker, connect(broker.address) as client:
        await prepare(client)
        reckoned: list[int] = []
        may_begin = long_answers.LongAnswer.may_begin

        def asked(self: long_answers.LongAnswer, size: int) -> bool:
            reckoned.append(size)
            return may_begin(self, size)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(long_answers.LongAnswer, "may_begin", asked)
            await client.send(request_, version)
            size = len(await client.receive_frame())
        assert size > long_answers.LONG_BYTES
        assert size <= reckoned[0] <= 2 * size

"""What requests are decoded to, and what they hold until they are answered, is bounded."""

import gc
import select
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from uuid import UUID

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.loop import large_requests
from segbroker.broker.loop.large_requests import LargeRequests
from segbroker.protocol import limits
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import ConsumerGroupHeartbeatRequest
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import OffsetCommitResponse, SyncGroupRequestAssignment
from segbroker.protocol.messages_share_groups import (
    ShareFetchRequest,
    ShareFetchRequestForgottenTopic,
)
from segbroker.protocol.messages_transactions import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
)
from segbroker.protocol.primitives import uvarint
from segbroker.protocol.schema import Message
from segbroker.protocol.vendor import VendorKey, pack, unpack

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import (
    WireClient,
    batch,
    connect,
    fetch_request,
    produce_request,
    values,
)
from ..support.wire_groups import GROUP, WireMember, commit_of
from ..support.wire_shares import Sharing, topic_id
from .conftest import Events, serving
from .traced_memory import comes_below

ITEMS_MAX = limits.REQUEST_ITEMS_COUNT_MAX
ROWS = 2_000
PATIENCE_S = 240
"""For requests of as many items as there may be: many seconds of work where others work, too."""


def topics_without_a_name(count: int) -> bytes:
    """OffsetFetch 7: three bytes each."""
    head = struct.pack(">hhih", ApiKey.OFFSET_FETCH, 7, 1, -1)
    return head + b"\0\1" + uvarint(count + 1) + b"\1\1\0" * count + b"\0\0"


def partitions_of_a_topic(count: int) -> bytes:
    """DescribeProducers: four bytes each, no objects but numbers; the topic is an item, too."""
    head = struct.pack(">hhih", ApiKey.DESCRIBE_PRODUCERS, 0, 1, -1)
    topic = DescribeProducersRequestTopic(name="t", partition_indexes=[0] * (count - 1))
    return head + b"\0" + b"".join(DescribeProducersRequest(topics=[topic]).encode(0))


def batches_that_are_none(count: int) -> bytes:
    """Produce 9 to as many partitions of no topic: six bytes each."""
    head = struct.pack(">hhih", ApiKey.PRODUCE, 9, 1, -1) + b"\0\0" + struct.pack(">hi", -1, 0)
    rows = b"".join(n.to_bytes(4, "big") + b"\0\0" for n in range(count))
    return head + b"\2\5none" + uvarint(count + 1) + rows + b"\0\0"


@pytest.mark.parametrize("frame", [topics_without_a_name, partitions_of_a_topic])
async def test_a_request_of_more_items_than_anybody_needs_closes_its_connection(
    frame: Callable[[int], bytes], events: Events
) -> None:
    async with serving() as broker:
        for count, is_refused in ((ITEMS_MAX, False), (ITEMS_MAX + 1, True)):
            data = frame(count)
            async with connect(broker.address) as client:
                await client.send_bytes(struct.pack(">i", len(data)) + data)
                with trio.fail_after(PATIENCE_S):
                    assert await client.is_closed() is is_refused
    (line,) = events.named("malformed_request")
    assert "1 above the limit" in line["error"]


async def test_a_request_of_our_own_with_more_lists_than_anybody_needs_closes_its_connection(
    events: Events,
) -> None:
    head = struct.pack(">hhih", VendorKey.FLOORS, 0, 1, -1)
    asked = [{"topic": "none", "partition": n} for n in range(20_000)]
    async with serving() as broker:
        for count, is_refused in (
            (limits.VENDOR_CONTAINERS_COUNT_MAX - 20_003, False),
            (500_000, True),
        ):
            data = head + pack({"partitions": asked, "ignored": [[]] * count})
            async with connect(broker.address) as client:
                await client.send_bytes(struct.pack(">i", len(data)) + data)
                with trio.fail_after(PATIENCE_S):
                    assert await client.is_closed() is is_refused
    (line,) = events.named("malformed_request")
    assert "arrays and maps" in line["error"]
    assert line["request"] == "Floors 0"


def is_answered(client: WireClient) -> bool:
    """Whether something has come that was not received yet."""
    return bool(select.select([client.stream.socket.fileno()], [], [], 0)[0])


async def test_large_requests_are_bounded_in_sum_by_what_they_are_decoded_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_requests, "BYTES_MAX", 1 << 20)
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
        connect(broker.address) as small,
    ):
        await small.create("t", partitions=ROWS)
        disk.syncs.clear()
        await first.send(commit_of(*range(ROWS)), 8)
        with trio.fail_after(60):
            while not broker.core.groups.committing(GROUP):
                await trio.lowlevel.checkpoint()
        names = [MetadataRequestTopic(name=f"none-{n}") for n in range(ROWS)]
        await second.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
        for _ in range(200):
            await small.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert not is_answered(second), "there is no room while the first waits for the disk"
        disk.syncs.set()
        with trio.fail_after(60):
            await first.receive(OffsetCommitResponse, 8)
            _, reply = await second.receive(MetadataResponse, 9)
        assert len(reply.topics) == ROWS


@pytest.mark.parametrize("what", ["floors", "produce", "large produce"])
async def test_requests_of_our_own_and_of_many_batches_wait_in_the_same_line(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of empty lists becomes 64 of them in memory, of batches that are none 60."""
    monkeypatch.setattr(large_requests, "BYTES_MAX", 1 << 20)
    rows = 50_000 if what == "large produce" else 2 * ROWS
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
        connect(broker.address) as small,
    ):
        await small.create("t", partitions=ROWS)
        disk.syncs.clear()
        await first.send(commit_of(*range(ROWS)), 8)
        with trio.fail_after(60):
            while not broker.core.groups.committing(GROUP):
                await trio.lowlevel.checkpoint()
        if what == "floors":
            asked = [{"topic": "none", "partition": n} for n in range(rows)]
            head = struct.pack(">hhih", VendorKey.FLOORS, 0, 1, -1)
            frame = head + pack({"partitions": asked})
        else:
            frame = batches_that_are_none(rows)
        await second.send_bytes(struct.pack(">i", len(frame)) + frame)
        for _ in range(200):
            await small.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        is_early = is_answered(second)
        disk.syncs.set()
        assert not is_early, "there is no room while the first waits for the disk"
        with trio.fail_after(60):
            await first.receive(OffsetCommitResponse, 8)
            answer = await second.receive_frame()
        if what == "floors":
            assert len(unpack(answer[4:])["partitions"]) == rows
        else:
            reply, _ = ProduceResponse.decode(answer, 9, 5)
            codes = [row.error_code for row in reply.responses[0].partition_responses]
            assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * rows


async def test_large_requests_of_one_address_leave_room_for_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work on a large request takes as long as the disk does."""
    monkeypatch.setattr(large_requests, "BYTES_MAX", 16 << 20)
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        AsyncExitStack() as stack,
        connect(broker.address, source="127.0.0.2") as other,
    ):
        await other.create("t", partitions=ROWS)
        disk.syncs.clear()
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(8)]
        for client in clients:
            await client.send(commit_of(*range(ROWS)), 8)
        await becomes(lambda: len(broker.core.large_requests) > 0)
        names = [MetadataRequestTopic(name=f"none-{n}") for n in range(ROWS)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        try:
            with trio.fail_after(20):
                reply = await other.ask(request, MetadataResponse, 9)
        finally:
            disk.syncs.set()
        assert len(reply.topics) == ROWS
        for client in clients:
            with trio.fail_after(60):
                await client.receive(OffsetCommitResponse, 8)


async def test_who_gives_up_in_the_line_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_requests, "BYTES_MAX", 1)
    line = LargeRequests()
    worked = []
    async with trio.open_nursery() as nursery:

        async def work(name: str) -> None:
            async with line.room("host", 1 << 20):
                worked.append(name)

        async with line.room("host", 1 << 20):
            with trio.CancelScope() as patience:
                patience.cancel()
                await work("gave up")
            nursery.start_soon(work, "waited")
            await wait_all_tasks_blocked()
            assert worked == []
    assert worked == ["waited"]


async def test_addresses_take_turns_in_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "BYTES_MAX", 1)
    line = LargeRequests()
    worked = []
    async with trio.open_nursery() as nursery:

        async def work(host: str) -> None:
            async with line.room(host, 1 << 20):
                worked.append(host)

        async with line.room("a", 1 << 20):
            for host in ("a", "a", "a", "b"):
                nursery.start_soon(work, host)
                await wait_all_tasks_blocked()
    assert worked == ["a", "b", "a", "a"]


def count_of(*kinds: type[Message]) -> int:
    """How many messages of some kinds there are."""
    gc.collect()
    return sum(type(one) in kinds for one in gc.get_objects())


async def test_what_a_request_has_said_is_not_kept_while_it_waits_for_others() -> None:
    """A member that asks for its assignment waits for its leader, half an hour if need be."""
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as one,
        connect(broker.address) as other,
    ):
        leader, member = WireMember(one), WireMember(other)
        await leader.join()
        await leader.deal()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.join)
            with trio.fail_after(60):
                while not await leader.is_to_join():
                    pass
            await leader.join()
        nobody = {f"nobody-{n}": b"x" for n in range(ROWS)}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(member.sync, **nobody))
            group = broker.core.groups.get(GROUP)
            assert group is not None
            await becomes(lambda: group.members[member.member_id].on_synced is not None)
            # The test has made ROWS itself; the thread that decoded it may have them for a moment.
            await becomes(lambda: count_of(SyncGroupRequestAssignment) <= ROWS)
            assert group.members[member.member_id].on_synced is not None
            await leader.sync(**{member.member_id: b"a", leader.member_id: b"b"})


async def test_what_a_fetch_has_said_is_not_kept_while_it_waits_for_records() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = fetch_request("t", 0, wait_ms=600_000)
        nothing = [FetchRequestTopic(topic="none", partitions=[]) for _ in range(ROWS)]
        request.topics += nothing
        request.forgotten_topics_data = [FetchRequestForgottenTopic(topic="none", partitions=[])]
        request.forgotten_topics_data *= ROWS
        await client.send(request, 12)
        del request, nothing
        await becomes(lambda: len(broker.core.deadlines) > 0)
        await becomes(lambda: count_of(FetchRequestTopic, FetchRequestForgottenTopic) < 10)
        assert len(broker.core.deadlines) > 0


async def test_what_a_share_fetch_has_said_is_not_kept_while_it_waits_for_records() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        sharing = Sharing(client, "g", await topic_id(client, "t"))
        await sharing.fetch(0)
        gone = [
            ShareFetchRequestForgottenTopic(topic_id=UUID(int=n), partitions=[0])
            for n in range(1, ROWS)
        ]
        request = ShareFetchRequest(
            group_id="g",
            member_id=sharing.member,
            share_session_epoch=1,
            max_wait_ms=600_000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[],
            forgotten_topics_data=gone,
        )
        await client.send(request, 2)
        del request, gone
        session = broker.core.shares.sessions._sessions["g", sharing.member]
        await becomes(lambda: bool(session.waiters))
        await becomes(lambda: count_of(ShareFetchRequestForgottenTopic) == 0)
        assert session.waiters


async def test_the_beginning_of_a_request_holds_no_buffer() -> None:
    count, request = 300, MetadataRequest(topics=[])
    async with serving() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        for client in clients:
            await client.ask(request, MetadataResponse, 1)
        frames = [client.encode(request, 1)[1] for client in clients]
        reads = {one: one.reads for one in broker._connections}
        tracemalloc.start()
        try:
            for client, frame in zip(clients, frames, strict=True):
                await client.send_bytes(frame[:7])
            with trio.fail_after(60):
                while any(one.reads == before for one, before in reads.items()):
                    await trio.lowlevel.checkpoint()
                await wait_all_tasks_blocked()
            await comes_below(count * 8 << 10)
        finally:
            tracemalloc.stop()
        for client, frame in zip(clients, frames, strict=True):
            await client.send_bytes(frame[7:])
            with trio.fail_after(60):
                await client.receive(MetadataResponse, 1)


async def test_a_request_that_comes_byte_by_byte_is_answered() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        _, frame = client.encode(produce_request("t", batch(b"v")), 9)
        (connection,) = broker._connections
        for n in range(len(frame)):
            before = connection.reads
            await client.send_bytes(frame[n : n + 1])
            with trio.fail_after(60):
                while connection.reads == before:
                    await trio.lowlevel.checkpoint()
        await client.receive(ProduceResponse, 9)
        assert values(await client.fetch("t", 0)) == [b"v"]


@pytest.mark.parametrize("what", ["on the loop", "in a lane", "produce", "heartbeat", "our own"])
async def test_large_replies_behind_one_that_waits_count_as_several_requests(what: str) -> None:
    """A request of 25 bytes has the settings of the broker, 40 KB, as its answer."""
    async with (
        serving(slots_max=4, auto_create_topics=False) as broker,
        connect(broker.address) as a,
        connect(broker.address) as b,
    ):
        await a.create("other")
        await a.create("t", partitions=5_000)
        await b.produce("other", b"first")
        await a.send(fetch_request("other", 1, wait_ms=600_000), 12)
        if what == "produce":
            frame = batches_that_are_none(ROWS // 2)
            await a.send_bytes(struct.pack(">i", len(frame)) + frame)
        elif what == "our own":
            frame = struct.pack(">hhih", VendorKey.PARTITION_STATISTICS, 0, 1, -1) + pack({})
            await a.send_bytes(struct.pack(">i", len(frame)) + frame)
        elif what == "heartbeat":
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            await a.send(beat, 0)
        else:
            count = 3_000 if what == "in a lane" else 1_000
            names = [MetadataRequestTopic(name=f"none-{n}") for n in range(count)]
            await a.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
        (answered,) = (one for one in broker._connections if len(one.outbox))
        await becomes(lambda: len(answered.outbox) >= 4)
        # One more may be read behind an answer that has come later.
        await a.send(MetadataRequest(topics=[]), 9)
        await a.send(produce_request("t", batch(b"late")), 9)
        assert values(await b.fetch("t", 0, wait_ms=100)) == [], "it is not even read"
        await b.produce("other", b"second")
        for _ in range(4):
            await a.receive_frame()
        assert not len(answered.outbox)
        assert values(await b.fetch("t", 0)) == [b"late"]


async def test_a_fetch_of_many_partitions_counts_as_several_requests() -> None:
    async with (
        serving(slots_max=4) as broker,
        connect(broker.address) as a,
        connect(broker.address) as b,
    ):
        await a.create("t", partitions=40)
        await a.create("other")
        rows = [
            FetchRequestPartition(partition=n, fetch_offset=0, partition_max_bytes=1)
            for n in range(40)
        ]
        topics = [FetchRequestTopic(topic="t", partitions=rows)]
        await a.send(FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics), 12)
        await a.send(produce_request("other", batch(b"late")), 9)
        with trio.fail_after(60):
            while not len(broker.core.deadlines):
                await trio.lowlevel.checkpoint()
        assert values(await b.fetch("other", 0, wait_ms=100)) == [], "it is not even read"
        await b.produce("t", b"v")
        with trio.fail_after(60):
            await a.receive(FetchResponse, 12)
            await a.receive(ProduceResponse, 9)
        assert values(await b.fetch("other", 0)) == [b"late"]

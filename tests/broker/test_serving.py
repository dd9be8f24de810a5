"""The common path, byte frames over loopback: create, produce, fetch, and the rules of each."""

import pytest
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    FetchResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    ProduceResponse,
)

from ..support.wire_client import (
    batch,
    connect,
    fetch_request,
    produce_request,
    values,
)
from .conftest import serving


async def test_what_was_produced_is_fetched() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        first = await client.produce("t", b"a", b"b")
        second = await client.produce("t", b"c")
        assert (first.error_code, first.base_offset) == (0, 0)
        assert (second.error_code, second.base_offset) == (0, 2)
        row = await client.fetch("t", 0)
        assert values(row) == [b"a", b"b", b"c"]
        assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (3, 3, 0)


@pytest.mark.parametrize("version", range(3, 13))
async def test_produce_is_served_in_every_version(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await client.ask(produce_request("t", batch(b"v")), ProduceResponse, version)
        row = reply.responses[0].partition_responses[0]
        assert (row.index, row.error_code, row.base_offset) == (0, 0, 0)


@pytest.mark.parametrize("version", range(4, 13))
async def test_fetch_is_served_in_every_version(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"v")
        reply = await client.ask(fetch_request("t", 0), FetchResponse, version)
        assert reply.session_id == 0
        assert values(reply.responses[0].partitions[0]) == [b"v"]


@pytest.mark.parametrize("acks", [1, -1])
async def test_both_acks_are_answered(acks: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        row = await client.produce("t", b"v", acks=acks)
        assert (row.error_code, row.base_offset) == (0, 0)


async def test_acks_0_has_no_reply_and_shifts_none() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.send(produce_request("t", batch(b"silent"), acks=0), 9)
        row = await client.produce("t", b"loud")  # asserts the correlation id
        assert row.base_offset == 1
        assert values(await client.fetch("t", 0)) == [b"silent", b"loud"]


async def test_acks_of_2_is_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        row = await client.produce("t", b"v", acks=2)
        assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert (await client.fetch("t", 0)).high_watermark == 0
        row = await client.produce("nowhere", b"v", acks=2)
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_replies_come_in_the_order_of_the_requests() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        slow = await client.send(fetch_request("t", 0, wait_ms=300), 12)
        names = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        quick = await client.send(names, 9)
        assert (await client.receive(FetchResponse, 12))[0] == slow
        assert (await client.receive(MetadataResponse, 9))[0] == quick


async def test_a_produce_behind_a_slow_reply_is_appended_at_once() -> None:
    async with serving() as broker, connect(broker.address) as a, connect(broker.address) as b:
        await a.create("t")
        await a.create("quiet")
        # The fetch waits for another topic, for longer than this test may take.
        waiting = await a.send(fetch_request("quiet", 0, wait_ms=600_000), 12)
        produced = await a.send(produce_request("t", batch(b"v")), 9)
        with trio.fail_after(60):
            assert values(await b.fetch("t", 0, wait_ms=60_000)) == [b"v"]
            await b.produce("quiet", b"end of the wait")
            assert (await a.receive(FetchResponse, 12))[0] == waiting
            assert (await a.receive(ProduceResponse, 9))[0] == produced


async def test_pipelined_produces_keep_their_order() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        frames = [client.encode(produce_request("t", batch(b"%d" % n)), 9) for n in range(200)]
        await client.send_bytes(b"".join(frame for _, frame in frames))
        for offset, (correlation_id, _) in enumerate(frames):
            received, reply = await client.receive(ProduceResponse, 9)
            assert received == correlation_id
            assert reply.responses[0].partition_responses[0].base_offset == offset
        assert values(await client.fetch("t", 0)) == [b"%d" % n for n in range(200)]


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_frames_may_be_cut_anywhere(size: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        correlation_id, frame = client.encode(produce_request("t", batch(b"v" * 300)), 9)
        for start in range(0, len(frame), size):
            await client.send_bytes(frame[start : start + size])
            await trio.lowlevel.checkpoint()
        assert (await client.receive(ProduceResponse, 9))[0] == correlation_id

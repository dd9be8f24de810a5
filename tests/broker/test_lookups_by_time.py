"""Who looks for records by time, which may take seconds, leaves lanes to everybody else."""

import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest
import trio

from segbroker.broker.server import Broker
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from segbroker.segments.partition.handler import DiskHandler

from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect
from ..support.wire_shares import Sharing, set_on_group, topic_id
from .conftest import serving

LANES = 4
OTHER_ADDRESS = "127.0.0.2"


def by_time(topic: str = "t") -> ListOffsetsRequest:
    row = ListOffsetsRequestPartition(partition_index=0, timestamp=1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequestTopic(name=topic, partitions=[row])]
    )


@contextmanager
def held_lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Look-ups in a topic "t" take as long as the block, but for those that are let go."""
    let_go = threading.Semaphore(0)

    def look_up(self: DiskHandler, timestamp_ms: int) -> tuple[int, int] | None:
        if self.topic == "t":
            let_go.acquire()
        return None

    monkeypatch.setattr(DiskHandler, "offset_for_timestamp", look_up)
    try:
        yield let_go
    finally:
        let_go.release(1000)


def asked(broker: Broker, key: ApiKey) -> int:
    return broker.core.counters.tally.requests[key]


async def opens(client: WireClient) -> None:
    """Something that takes lanes."""
    with trio.fail_after(60):
        await client.create("new")
        assert (await client.produce("new", b"v")).error_code == 0


async def test_lookups_that_take_long_keep_no_others_from_the_lanes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serving(lanes=LANES) as broker,
        AsyncExitStack() as stack,
        connect(broker.address) as client,
    ):
        for topic in ("t", "u"):
            await client.create(topic)
            await client.produce(topic, b"v")
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(8)]
        other = await stack.enter_async_context(connect(broker.address, source=OTHER_ADDRESS))
        with held_lookups(monkeypatch) as let_go:
            for one in clients:
                await one.send(by_time(), 6)
            await becomes(lambda: asked(broker, ApiKey.LIST_OFFSETS) == len(clients))
            await opens(client)
            await other.send(by_time("u"), 6)
            await becomes(lambda: len(broker.core.lanes._searching) == len(clients) - 1)
            # Addresses take turns: the first one's is over when as many have gone as were in work.
            let_go.release(LANES // 2)
            with trio.fail_after(60):
                await other.receive(ListOffsetsResponse, 6)
        with trio.fail_after(60):
            for one in clients:
                await one.receive(ListOffsetsResponse, 6)


async def test_groups_that_begin_at_a_time_keep_no_others_from_the_lanes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serving(lanes=LANES) as broker,
        AsyncExitStack() as stack,
        connect(broker.address) as client,
    ):
        await client.create("t", partitions=2)
        await client.produce("t", b"v")
        members = []
        for n in range(2 * LANES):
            one = await stack.enter_async_context(connect(broker.address))
            await set_on_group(one, f"g{n}", share_auto_offset_reset="by_duration:PT1H")
            members.append(Sharing(one, f"g{n}", await topic_id(one, "t")))
        with held_lookups(monkeypatch):
            for member in members:
                await member.begin(0, 1)
            await becomes(lambda: asked(broker, ApiKey.SHARE_FETCH) == len(members))
            await opens(client)
        with trio.fail_after(60):
            for member in members:
                await member.end()
                assert member.rows[0].error_code == 0

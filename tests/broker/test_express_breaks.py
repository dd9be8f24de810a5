"""What breaks in the middle of a pass of the express way reaches no further than it must."""

import os
import socket
import struct
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from segbroker.broker.partitions.partition import Partition
from segbroker.broker.peers.replies import Buffer, Outbox
from segbroker.protocol.messages_core import MetadataRequest, ProduceResponse

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, batch, connect, produce_request, values
from .conftest import Events, serving
from .test_express_bounds import Answered, parked

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what closes says so at once, and takes nothing more."""


def send_at_once(client: WireClient, *frames: bytes) -> None:
    """Without a turn of the loop; all of it fits into the socket."""
    data = b"".join(frames)
    assert os.write(client.stream.socket.fileno(), data) == len(data)


def reset(client: WireClient) -> None:
    """Close it: what it has sent is there, and whoever answers is refused.  Without a turn."""
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.stream.socket.close()


async def test_who_resets_between_its_requests_closes_nobody_else() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as other,
        connect(broker.address) as client,
    ):
        await other.create("t", durability="disk")  # a run is answered within the pass
        for one in (other, client):
            await one.produce("t", b"first")
        await trio.testing.wait_all_tasks_blocked()
        _, plain = other.encode(produce_request("t", batch(b"v")), 9)
        _, tracked = client.encode(produce_request("t", batch(b"w", producer=(7, 0, 0))), 9)
        _, unusual = client.encode(MetadataRequest(topics=[]), 1)
        # One pass: both are in a run, which is appended and answered before `tracked`; the answer
        # finds the connection broken, and what is behind would be for its task.
        send_at_once(other, plain)
        send_at_once(client, plain, tracked, unusual)
        reset(client)
        with trio.fail_after(60):
            _, reply = await other.receive(ProduceResponse, 9)
            assert not reply.responses[0].partition_responses[0].error_code
            row = await other.produce("t", b"goes on")
        assert row.base_offset == 5
        assert broker.express is not None
        assert broker.express.requests >= 3, "they went another way"
        assert broker.core.counters.connections_failed == 0


async def test_who_is_alone_and_resets_between_its_requests_leaves_once(events: Events) -> None:
    async with serving() as broker, connect(broker.address) as other:
        await other.create("t", durability="disk")  # who is alone is answered in one go
        async with connect(broker.address) as client:
            for _ in range(3):
                await client.produce("t", b"first")
            await trio.testing.wait_all_tasks_blocked()
            _, plain = client.encode(produce_request("t", batch(b"v")), 9)
            _, unusual = client.encode(MetadataRequest(topics=[]), 1)
            send_at_once(client, plain, unusual)
            reset(client)
            with trio.fail_after(60):
                while broker.connections > 1:
                    await trio.lowlevel.checkpoint()
            assert broker.express is not None
            assert broker.express.requests == 3, "they went another way"
        with trio.fail_after(60):
            assert (await other.produce("t", b"goes on")).base_offset == 4
    assert not events.named("express_failed")


async def test_what_was_taken_up_in_a_pass_that_fails_is_not_appended_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serving() as broker,
        connect(broker.address) as first,
        connect(broker.address) as second,
        connect(broker.address) as later,
    ):
        await first.create("t")
        await first.create("u")
        for one in (first, second, later):
            await one.produce("t", b"first")
            await one.produce("u", b"first")
        await trio.testing.wait_all_tasks_blocked()
        topics = broker.core.topics
        real = topics.served_partition

        def fails(name: str, index: int) -> Partition | None:
            if name == "u":
                raise ZeroDivisionError
            return real(name, index)

        with monkeypatch.context() as patch:
            patch.setattr(topics, "served_partition", fails)
            send_at_once(first, first.encode(produce_request("t", batch(b"lost")), 9)[1])
            send_at_once(second, second.encode(produce_request("u", batch(b"lost")), 9)[1])
            with trio.fail_after(60):
                assert await first.is_closed()
                assert await second.is_closed()
        with trio.fail_after(60):
            assert (await later.produce("t", b"later")).base_offset == 3
            row = await later.fetch("t", 0)
        assert values(row) == [b"first", b"first", b"first", b"later"]
        assert broker.core.counters.connections_failed == 2


async def test_nobody_waits_for_a_run_whose_connections_are_gone() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(broker.address))
        clients = [client, *await parked(broker, client, stack, 1, "fsync")]
        disk.syncs.clear()
        for one in clients:
            send_at_once(one, one.encode(produce_request("t", batch(b"v")), 9)[1])
        await trio.testing.wait_all_tasks_blocked()
        assert len(broker.core.deadlines) == 1
        for left in (1, 0):
            await clients[left].stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert len(broker.core.deadlines) == left
        disk.syncs.set()
        async with connect(broker.address) as again:
            with trio.fail_after(60):
                assert (await again.produce("t", b"goes on")).base_offset == 4


class _Unmakeable(Answered):
    """Of which nothing can be made any more."""

    def render(self) -> list[Buffer] | None:
        raise ZeroDivisionError


class _Withheld(Answered):
    """Of which nothing is made, and nobody will say when."""

    def render(self) -> list[Buffer] | None:
        return None


@pytest.mark.parametrize("kind", [_Unmakeable, _Withheld])
def test_a_reply_that_cannot_be_made_again_breaks_its_connection_and_nothing_else(
    kind: type[Answered],
) -> None:
    one, other = socket.socketpair()
    broken = []
    with one, other:
        outbox = Outbox(one, spawn=lambda _: None, on_broken=lambda _: broken.append(True))
        slot = kind()
        outbox.push(slot)
        outbox.took(3, 9)  # the rest would have to be made
    assert broken == [True]
    assert slot.is_abandoned
    assert not outbox.unsent

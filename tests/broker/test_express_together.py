"""Connections that are received from and answered by one call: each gets its own answers, whole and
in order, whatever its socket takes of them."""

import errno
import os
import socket
from array import array
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from segbroker.broker.producing.exchange import Exchange
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ProduceResponse

from ..support.gated_storage import GatedStorage
from ..support.wire_client import (
    Closed,
    WireClient,
    batch,
    connect,
    fetch_request,
    produce_request,
    values,
)
from .conftest import serving

COUNT = 6


async def begun(broker: Broker, stack: AsyncExitStack) -> list[WireClient]:
    """Connections that are parked, of a topic with two partitions."""
    clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(COUNT)]
    await clients[0].create("t", partitions=2)
    for n, client in enumerate(clients):
        await client.produce("t", b"first", partition=n % 2)
    await trio.testing.wait_all_tasks_blocked()
    return clients


async def send_together(broker: Broker, disk: GatedStorage, clients: list[WireClient]) -> int:
    """One request of each, none of them durable yet; the bytes of a batch."""
    disk.syncs.clear()
    size = len(batch(b"0"))
    for n, client in enumerate(clients):  # without a turn of the loop: one pass receives all
        _, frame = client.encode(produce_request("t", batch(b"%d" % n), partition=n % 2), 9)
        assert os.write(client.stream.socket.fileno(), frame) == len(frame)
    with trio.fail_after(60):
        while broker.core.ingest.unsynced_bytes < COUNT * size:
            await trio.lowlevel.checkpoint()
    return size


async def answered(client: WireClient) -> tuple[int, int]:
    with trio.fail_after(60):
        _, reply = await client.receive(ProduceResponse, 9)
    row = reply.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


class Counting:
    """Exchange.reply, and what its calls were for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connections: list[int] = []
        real = Exchange.reply

        def reply(
            scan: Exchange, fds: "array[int]", *row: "array[int]", **more: bytes
        ) -> "array[int]":
            self.connections.append(len(fds))
            return real(scan, fds, *row, **more)  # type: ignore[arg-type]  # as they are

        monkeypatch.setattr(Exchange, "reply", reply)


async def test_many_are_answered_by_a_call_for_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = GatedStorage()
    calls = Counting(monkeypatch)
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        clients = await begun(broker, stack)
        calls.connections.clear()
        await send_together(broker, disk, clients)
        disk.syncs.set()
        offsets = [await answered(client) for client in clients]
        assert all(not code for code, _ in offsets)
        for index in (0, 1):
            mine = [offset for _, offset in offsets[index::2]]
            assert sorted(mine) == [COUNT // 2 + n for n in range(COUNT // 2)]
            found = values(await clients[0].fetch("t", 0, partition=index))
            assert [found[offset] for offset in mine] == [b"%d" % n for n in range(index, COUNT, 2)]
        assert max(calls.connections, default=0) > 1, "nobody was answered together"


@pytest.mark.parametrize("taken", [0, 1, 7, -errno.EAGAIN, -errno.EINTR])
async def test_what_a_socket_does_not_take_at_once_follows_in_order(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = 0

    def reply(
        scan: Exchange,
        fds: "array[int]",
        firsts: "array[int]",
        counts: "array[int]",
        *,
        frame: bytes,
        offset_at: int,
        correlations: "array[int]",
        offsets: Sequence[int],
    ) -> "array[int]":
        """As where every socket takes so much and no more."""
        nonlocal told
        for fd, first in zip(fds, firsts, strict=True):
            made = bytearray(frame)
            made[4:8] = correlations[first].to_bytes(4, "big")
            made[offset_at : offset_at + 8] = offsets[first].to_bytes(8, "big")
            with socket.socket(fileno=os.dup(fd)) as sock:
                assert sock.send(made[: max(taken, 0)]) == max(taken, 0)
            told += 1
        return array("q", [taken] * len(fds))

    disk = GatedStorage()
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        clients = await begun(broker, stack)
        monkeypatch.setattr(Exchange, "reply", reply)
        for turn in range(3):
            await send_together(broker, disk, clients)
            disk.syncs.set()
            offsets = [await answered(client) for client in clients]
            assert all(not code for code, _ in offsets)
            for index in (0, 1):
                mine = sorted(offset for _, offset in offsets[index::2])
                begin = COUNT // 2 * (turn + 1)
                assert mine == list(range(begin, begin + COUNT // 2))
            await trio.testing.wait_all_tasks_blocked()
        assert told, "nobody was answered together"


async def test_a_connection_that_breaks_meanwhile_is_closed_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Exchange.reply
    broken = 0

    def reply(scan: Exchange, fds: "array[int]", *row: "array[int]", **more: bytes) -> "array[int]":
        nonlocal broken
        sent = real(scan, fds, *row, **more)  # type: ignore[arg-type]  # as they are
        if not broken:
            broken, sent[0] = fds[0], -errno.ECONNRESET
        return sent

    disk = GatedStorage()
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        clients = await begun(broker, stack)
        monkeypatch.setattr(Exchange, "reply", reply)
        await send_together(broker, disk, clients)
        disk.syncs.set()
        for client in clients:
            assert not (await answered(client))[0]
        assert broken, "nobody was answered together"
        closed = 0
        with trio.fail_after(60):
            for client in clients:
                try:
                    await client.produce("t", b"goes on")
                except Closed:
                    closed += 1
        assert closed == 1
        assert broker.core.ingest.unsynced_bytes == 0


@pytest.mark.parametrize("is_sent", [False, True])
async def test_replies_for_which_there_is_no_memory_close_their_connections_and_no_other(
    monkeypatch: pytest.MonkeyPatch, *, is_sent: bool
) -> None:
    """Nobody knows what was sent of them; who waits behind them is answered."""
    real = Exchange.reply
    ran_out = 0

    def reply(scan: Exchange, fds: "array[int]", *row: "array[int]", **more: bytes) -> "array[int]":
        nonlocal ran_out
        if ran_out or not is_sent:
            ran_out += 1
        if ran_out == 1:
            raise MemoryError
        sent = real(scan, fds, *row, **more)  # type: ignore[arg-type]  # as they are
        if not ran_out:
            ran_out = 1
            raise MemoryError
        return sent

    disk = GatedStorage()
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        clients = await begun(broker, stack)
        behind = [await stack.enter_async_context(connect(broker.address)) for _ in range(2)]
        size = await send_together(broker, disk, clients)
        monkeypatch.setattr(Exchange, "reply", reply)
        for n, client in enumerate(behind, COUNT + 1):
            await client.send(produce_request("t", batch(b"0"), partition=0), 9)
            with trio.fail_after(60):
                while broker.core.ingest.unsynced_bytes < n * size:
                    await trio.lowlevel.checkpoint()
        disk.syncs.set()
        assert [await answered(client) for client in behind] == [(0, COUNT), (0, COUNT + 1)]
        gone = 0
        with trio.fail_after(60):
            for client in clients:
                try:
                    assert not (await answered(client))[0]
                    await client.produce("t", b"goes on")
                except Closed:
                    gone += 1
        assert ran_out
        assert gone == COUNT // 2, "of one partition"


async def test_who_closed_while_it_waited_costs_the_others_nothing() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        clients = await begun(broker, stack)
        await send_together(broker, disk, clients)
        for client in clients[:2]:
            await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        disk.syncs.set()
        for client in clients[2:]:
            assert not (await answered(client))[0]
        last = clients[2]
        for index in (0, 1):
            found = values(await last.fetch("t", 0, partition=index))
            assert len(found) == COUNT, "what was asked for was appended"


async def test_a_sync_that_fails_is_told_to_each() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        clients = await begun(broker, stack)
        await send_together(broker, disk, clients)
        disk.sync_error = OSError(errno.EIO, "the disk is gone")
        disk.syncs.set()
        for client in clients:
            assert (await answered(client))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error = None


async def test_who_says_the_name_of_another_one_goes_the_general_way() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        clients = await begun(broker, stack)
        assert broker.express is not None
        before = broker.express.requests
        other = await stack.enter_async_context(connect(broker.address, client_id="other"))
        await other.produce("t", b"first")
        await trio.testing.wait_all_tasks_blocked()
        disk.syncs.clear()
        for client in (clients[0], other):  # of the same bytes, but for who sends them
            _, frame = clients[0].encode(produce_request("t", batch(b"v")), 9)
            assert os.write(client.stream.socket.fileno(), frame) == len(frame)
        with trio.fail_after(60):
            while broker.core.ingest.unsynced_bytes < 2 * len(batch(b"v")):
                await trio.lowlevel.checkpoint()
        disk.syncs.set()
        for client in (clients[0], other):
            assert not (await answered(client))[0]
        assert broker.express.requests == before + 1


async def test_who_has_other_requests_unanswered_is_answered_in_order() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, AsyncExitStack() as stack:
        clients = await begun(broker, stack)
        first, *others = clients
        disk.syncs.clear()
        await first.send(fetch_request("t", COUNT // 2, wait_ms=600_000, min_bytes=1), 12)
        await trio.testing.wait_all_tasks_blocked()
        wanted = [
            await first.send(produce_request("t", batch(b"mine"), partition=1), 9) for _ in range(3)
        ]
        for client in others:
            await client.send(produce_request("t", batch(b"v"), partition=1), 9)
        with trio.fail_after(60):
            while broker.core.ingest.unsynced_bytes < 2 * len(batch(b"mine")):
                await trio.lowlevel.checkpoint()
            disk.syncs.set()
            for client in others:
                assert not (await answered(client))[0]
            await others[0].produce("t", b"ends the wait")
            await first.receive_frame()
            got = [(await first.receive(ProduceResponse, 9))[0] for _ in wanted]
        assert got == wanted

"""The end of a broker: what is in flight is answered, then everything is closed."""

import contextlib
import os
import signal
from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.apis import group_admin
from segbroker.broker.configuration.config import BrokerConfig
from segbroker.broker.connections import connection as connections
from segbroker.broker.core import wall_ms
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.limits import RECEIVE_SIZE
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from segbroker.protocol.messages_core import FetchResponse
from segbroker.protocol.messages_groups import DeleteGroupsRequest, DeleteGroupsResponse
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.committed import CommitRow

from ..support.gated_storage import GatedStorage
from ..support.wire_client import Closed, connect, fetch_request, values
from ..support.wire_consumers import joining
from ..support.wire_groups import WireMember
from .conftest import Events, manager, serving
from .group_names import group_names
from .obedient_members import Member, settled
from .restarts import broker_on
from .test_committed_offsets import stands
from .test_consumer_restarts import written_of


async def test_a_waiting_fetch_is_answered_and_then_the_connection_is_closed() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        sent = await client.send(fetch_request("t", 0, wait_ms=600_000), 12)
        while len(broker.core.deadlines) < 1:
            await trio.lowlevel.checkpoint()
        broker.drain()
        with trio.fail_after(60):
            received, reply = await client.receive(FetchResponse, 12)
            assert received == sent
            assert values(reply.responses[0].partitions[0]) == []
            assert await client.is_closed()


async def test_a_fetch_whose_partition_is_opened_meanwhile_does_not_begin_to_wait() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"v")
    gated = GatedStorage(disk)
    async with serving(storage=gated) as broker, connect(broker.address) as client:
        gated.reads.clear()
        await client.send(fetch_request("t", 1, wait_ms=600_000), 12)
        while not broker.core.counters.requests:
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        assert not broker.core.topics.served, "it is being opened"
        broker.drain()
        await wait_all_tasks_blocked()
        gated.reads.set()
        with trio.fail_after(60):
            _, reply = await client.receive(FetchResponse, 12)
            assert values(reply.responses[0].partitions[0]) == []
            assert await client.is_closed()


async def test_an_idle_connection_does_not_hold_up_the_end() -> None:
    with trio.fail_after(60):
        async with serving() as broker, connect(broker.address) as client:
            await client.create("t")
            broker.drain()
            assert await client.is_closed()


class Once(trio.abc.Instrument):
    """Does something behind the first step of the loop after which something is true."""

    def __init__(self, true: Callable[[], bool], do: Callable[[], object]) -> None:
        self._true = true
        self._do = do
        self.is_done = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self.is_done and self._true():
            self.is_done = True
            self._do()


async def test_a_connection_that_comes_with_the_end_does_not_hold_it_up() -> None:
    """Its task may run for the first time when it has been told to drain."""
    for _ in range(10):  # which of the two comes first is chance
        with trio.fail_after(60):
            async with serving() as broker:
                at_once = Once(lambda: broker.connections > 0, broker.drain)
                trio.lowlevel.add_instrument(at_once)
                async with connect(broker.address) as silent:
                    assert await silent.is_closed()
                trio.lowlevel.remove_instrument(at_once)


async def test_a_connection_whose_turn_ends_with_all_that_has_come_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A buffer is full, and others have their turn: nothing is awaited of the peer just then."""
    monkeypatch.setattr(connections, "TURN_BYTES", RECEIVE_SIZE)
    async with serving(express=False) as broker, connect(broker.address) as client:
        await client.create("t")
        for _ in range(20):  # until the system takes a whole buffer at once
            await client.produce("t", bytes(RECEIVE_SIZE // 2))
        (connection,) = broker._connections
        counters = broker.core.counters
        end = counters.received_bytes + RECEIVE_SIZE
        at_once = Once(lambda: counters.received_bytes == end, connection.drain)
        trio.lowlevel.add_instrument(at_once)
        half = (2 * RECEIVE_SIZE).to_bytes(4, "big") + bytes(RECEIVE_SIZE - 4)
        await client.send_bytes(half)
        with trio.fail_after(60):
            assert await client.is_closed()
        trio.lowlevel.remove_instrument(at_once)
        assert at_once.is_done


async def test_who_was_answered_nothing_is_told_that_it_broke_and_not_that_it_ended() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as silent,
        connect(broker.address) as greeted,
    ):
        await greeted.create("t")
        while broker.connections < 2:
            await trio.lowlevel.checkpoint()
        broker.drain()
        with trio.fail_after(60):
            assert await greeted.stream.receive_some() == b"", "an end, and all was answered"
            with pytest.raises(trio.BrokenResourceError):
                await silent.stream.receive_some()


async def test_nobody_is_accepted_any_more() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        broker.drain()
        with trio.fail_after(60):
            assert await client.is_closed()
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream(*broker.address)


async def test_who_does_not_take_its_replies_is_cut_off_at_the_deadline() -> None:
    async with serving(drain_timeout_ms=100) as broker, connect(broker.address) as stuck:
        await stuck.create("t")
        for _ in range(16):
            await stuck.produce("t", b"x" * 900_000)
        for _ in range(8):
            await stuck.send(
                fetch_request("t", 0, max_bytes=1 << 24, partition_max_bytes=1 << 24), 12
            )
        while broker.core.pool.lent_bytes == 0:
            await trio.lowlevel.checkpoint()
        broker.drain()
        with trio.fail_after(60):
            while broker.connections:
                await trio.lowlevel.checkpoint()
    assert broker.core.pool.lent_bytes == 0


async def test_what_was_acknowledged_is_there_after_a_restart() -> None:
    storage = MemoryStorage()
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"a", b"b")
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        assert values(await client.fetch("t", 0)) == [b"a", b"b"]
        assert (await client.produce("t", b"c")).base_offset == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_drains(number: signal.Signals, events: Events) -> None:
    broker = Broker(BrokerConfig(listen="127.0.0.1:0", drain_timeout_ms=600_000), manager=manager())
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(
                lambda task_status: broker.run(handle_signals=True, task_status=task_status)
            )
            os.kill(os.getpid(), number)
    assert [line["signal"] for line in events.named("signal_received")] == [number.name]
    assert len(events.named("broker_stopped")) == 1


async def test_the_second_signal_does_not_wait() -> None:
    broker = Broker(
        BrokerConfig(listen="127.0.0.1:0", drain_timeout_ms=3_600_000), manager=manager()
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(
                lambda task_status: broker.run(handle_signals=True, task_status=task_status)
            )
            async with connect(broker.address) as stuck:
                await stuck.create("t")
                for _ in range(16):
                    await stuck.produce("t", b"x" * 900_000)
                await stuck.send(
                    fetch_request("t", 0, max_bytes=1 << 24, partition_max_bytes=1 << 24), 12
                )
                while broker.core.pool.lent_bytes == 0:
                    await trio.lowlevel.checkpoint()
                os.kill(os.getpid(), signal.SIGTERM)
                while not broker.draining:
                    await trio.lowlevel.checkpoint()
                os.kill(os.getpid(), signal.SIGTERM)
                while broker.connections:
                    await trio.lowlevel.checkpoint()


async def test_what_comes_with_the_end_throws_no_member_out_of_its_group() -> None:
    for _ in range(8):  # whose turn is first is left to chance
        disk = MemoryStorage()
        async with broker_on(disk, 3) as (broker, clients):
            await clients[0].create("t", partitions=2)
            one, two = Member(clients[0], "one"), Member(clients[1], "two")
            await one.join()
            await two.join()
            await settled(one, two)
            asked = [
                ConsumerGroupHeartbeatRequest(
                    group_id="g", member_id=member.name, member_epoch=member.epoch
                )
                for member in (one, two)
            ]
            for client, request in zip(clients, [*asked, joining("new")], strict=True):
                _, frame = client.encode(request, 1)
                os.write(client.stream.socket.fileno(), frame)
            broker.drain()
            for client in clients:
                with contextlib.suppress(Closed), trio.fail_after(60):
                    while True:
                        _, reply = await client.receive(ConsumerGroupHeartbeatResponse, 1)
                        assert reply.error_code != ErrorCode.UNKNOWN_MEMBER_ID
        async with broker_on(disk, 2) as (broker, clients):
            assert {"one", "two"} <= written_of(broker)["g"]["says"].keys()
            one.client, two.client = clients
            assert [(await member.beat()).error_code for member in (one, two)] == [0, 0]


async def test_groups_that_are_deleted_when_the_broker_ends_keep_what_was_not_deleted_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody knows any more that somebody is in the second one."""
    monkeypatch.setattr(group_admin, "TOGETHER_MAX", 1)
    disk = GatedStorage()
    async with broker_on(disk, 2) as (broker, (client, admin)):
        await client.create("t")
        member = WireMember(client)
        await member.join()
        await member.deal()
        assert await member.commit("t", 3) == 0
        row = CommitRow("t", broker.core.topics.all["t"].topic_id, 0, 5, -1, "")
        failures: list[OSError | None] = []
        broker.core.groups.commit("alone", [row], wall_ms(), failures.append, None)
        await client.create("behind")
        assert failures == [None]
        request = DeleteGroupsRequest(groups_names=["alone", "g"])
        disk.syncs.clear()
        replies = []

        async def delete() -> None:
            replies.append(await admin.ask(request, DeleteGroupsResponse, 1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            await wait_all_tasks_blocked(0.05)  # until the first deletion waits for the disk
            broker.drain()
            disk.syncs.set()
        assert [one.error_code for one in replies[0].results] == [
            0,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ]
    async with broker_on(disk, 1) as (broker, (client,)):
        assert group_names(broker.core.groups) == {"g"}
        member.client = client
        assert await member.beat() == 0
        assert await stands(client, "t") == {("t", 0): 3}

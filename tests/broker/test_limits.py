"""Limits: each refusal is a closed connection or a bounded wait, one line, nothing leaked."""

import socket
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from copy import copy
from dataclasses import replace

import pytest
import trio
import trio.testing

from segbroker.broker.access import closing_lines
from segbroker.broker.call import Call
from segbroker.broker.configuration.config import BrokerConfig
from segbroker.broker.configuration.logs import NAME_TOLD_MAX
from segbroker.broker.connections import watchdog
from segbroker.broker.connections.connection import Connection
from segbroker.broker.core import Core
from segbroker.broker.fetching import fetch_reply
from segbroker.broker.groups.classic_members import METADATA_MAX
from segbroker.broker.loop.lanes import Lanes
from segbroker.broker.loop.pace import Pace
from segbroker.broker.loop.pool import Place
from segbroker.broker.requests import SLOW_ANSWERS
from segbroker.broker.server import Broker
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.messages_admin import DescribeLogDirsRequest, DescribeLogDirsResponse
from segbroker.protocol.messages_core import (
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import DescribeGroupsRequest, DescribeGroupsResponse
from segbroker.segments.disk.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.waiting import becomes
from ..support.wire_client import Closed, batch, connect, fetch_request, produce_request, values
from .classic_member import ClassicMember
from .conftest import NOT_BY_ITSELF_MS, Events, serving
from .guarded import connect_from
from .test_memory_of_waiting import held_opening


async def test_a_frame_above_the_limit_is_refused_before_it_arrives(events: Events) -> None:
    async with serving(frame_bytes_max=4096) as broker, connect(broker.address) as client:
        await client.send_bytes((4097).to_bytes(4, "big"))
        with trio.fail_after(60):
            assert await client.is_closed()
        (line,) = events.named("malformed_request")
        assert "4097" in line["error"]
        assert "4096" in line["error"]


async def test_a_long_name_of_a_client_is_told_in_part(events: Events) -> None:
    name = "n" * 20_000
    body = struct.pack(">hhih", 999, 0, 1, len(name)) + name.encode()
    async with serving() as broker, connect(broker.address) as client:
        await client.send_bytes(struct.pack(">i", len(body)) + body)
        with trio.fail_after(60):
            assert await client.is_closed()
    (line,) = events.named("unserved_request")
    assert line["client_id"] == "n" * NAME_TOLD_MAX + "…"


async def test_a_flood_of_what_is_closed_is_counted_and_not_written_line_by_line(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing_lines, "LINES_MAX", 3)
    requests = {  # a frame of no bytes; an api that there is not
        "malformed_request": bytes(4),
        "unserved_request": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    }
    async with serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker:
        for event, data in requests.items():
            for _ in range(8):
                async with connect(broker.address) as client:
                    await client.send_bytes(data)
                    with trio.fail_after(60):
                        assert await client.is_closed()
            assert len(events.named(event)) == 3, "one kind hides no other"
        broker.core.closing_lines.keep_house(trio.current_time())
        (sums,) = events.named("connections_omitted")
        assert [sums[f"{event}_count"] for event in requests] == [5, 5]
        async with connect(broker.address) as client:
            await client.send_bytes(bytes(4))
            assert await client.is_closed()
        assert len(events.named("malformed_request")) == 4, "a new window"
        for _ in range(4):
            async with connect(broker.address) as client:
                await client.send_bytes(bytes(4))
                assert await client.is_closed()
    (_, last) = events.named("connections_omitted")
    assert last["malformed_request_count"] == 2, "the end of the broker loses no count"


async def test_a_flood_from_many_addresses_is_not_written_address_by_address(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing_lines, "LINES_MAX", 3)
    async with (
        serving(connections_max=1, housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        for n in range(8):
            async with connect_from(f"127.0.1.{n + 1}", broker) as stranger:
                assert await stranger.is_closed()
        assert len(events.named("connection_refused")) == 3
    (sums,) = events.named("connections_omitted")
    assert sums["connection_refused_count"] == 5


async def test_a_connection_above_the_limit_is_closed_and_the_others_stay(events: Events) -> None:
    async with serving(connections_max=2) as broker:
        async with connect(broker.address) as first, connect(broker.address) as second:
            for client in (first, second):
                await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
            async with connect(broker.address) as third:
                with trio.fail_after(60):
                    assert await third.is_closed()
            assert len(events.named("connection_refused")) == 1
            await first.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        while broker.connections:
            await trio.lowlevel.checkpoint()
        async with connect(broker.address) as next_one:
            await next_one.ask(MetadataRequest(topics=[]), MetadataResponse, 1)


async def test_a_connection_that_never_asks_is_closed(events: Events) -> None:
    async with serving(handshake_timeout_ms=60) as broker, connect(broker.address) as client:
        await client.send_bytes(b"\x00\x00")  # half a size is no request
        with trio.fail_after(60):
            assert await client.is_closed()
        assert len(events.named("handshake_timed_out")) == 1


async def test_an_idle_connection_is_closed_but_not_one_that_waits(events: Events) -> None:
    async with (
        serving(idle_timeout_ms=60_000) as broker,
        connect(broker.address) as idle,
        connect(broker.address) as waiting,
    ):
        await waiting.create("t")
        await waiting.send(fetch_request("t", 0, wait_ms=100_000), 12)
        await idle.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        await passes(100)
        with trio.fail_after(60):
            assert await idle.is_closed()
            await waiting.receive(FetchResponse, 12)
        assert len(events.named("idle_timed_out")) == 1


async def test_a_connection_is_not_idle_while_its_request_is_handled(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    looks = trio.Event()
    seen = 0

    async def slow(core: Core, call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
        await looks.wait()
        return DescribeLogDirsResponse(results=[])

    def look(config: BrokerConfig, connection: Connection, now: float) -> None:
        nonlocal seen
        watchdog_look(config, connection, now)
        seen += connection.greeted
        if seen == 20:  # every 10 ms
            looks.set()

    watchdog_look = watchdog.look
    monkeypatch.setattr(watchdog, "look", look)
    monkeypatch.setitem(SLOW_ANSWERS, ApiKey.DESCRIBE_LOG_DIRS, slow)
    async with serving(idle_timeout_ms=40) as broker, connect(broker.address) as client:
        with trio.fail_after(60):
            request = DescribeLogDirsRequest(topics=None)
            assert (await client.ask(request, DescribeLogDirsResponse, 1)).results == []
            assert await client.is_closed()
        assert len(events.named("idle_timed_out")) == 1


async def test_no_connection_is_closed_for_being_idle_where_that_is_switched_off(
    events: Events,
) -> None:
    async with (
        serving(idle_timeout_ms=-1, send_timeout_ms=40) as broker,
        connect(broker.address) as idle,
        connect(broker.address) as other,
    ):
        await idle.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        await other.create("t")
        for _ in range(4):  # looks of the watchdog, every 10 ms
            await other.ask(fetch_request("t", 0, wait_ms=30), FetchResponse, 12)
        await idle.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert events.named("idle_timed_out") == []


async def test_the_watchdog_gives_way_and_leaves_alone_who_has_ended_meanwhile(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    async with serving(send_timeout_ms=40) as broker:
        core, ended = broker.core, trio.Event()
        streams = [await trio.open_tcp_stream(*broker.address) for _ in range(3)]
        with trio.fail_after(60):
            while core.open_connections() < len(streams):
                await trio.lowlevel.checkpoint()

        async def step(_: Pace) -> None:
            """One of them is closed: the others go."""
            if not ended.is_set() and events.named("handshake_timed_out"):
                for stream in streams:
                    await stream.aclose()
                while core.open_connections():
                    await trio.lowlevel.checkpoint()
                ended.set()

        monkeypatch.setattr(Pace, "step", step)
        core.config = replace(core.config, handshake_timeout_ms=1)
        with trio.fail_after(60):
            await ended.wait()
        await trio.testing.wait_all_tasks_blocked()  # the rest of the round
        assert core.counters.connections_refused == 1


async def test_a_reader_that_takes_nothing_is_closed_and_the_rest_is_served(
    events: Events,
) -> None:
    async with (
        serving(send_timeout_ms=100) as broker,
        connect(broker.address) as stuck,
        connect(broker.address) as client,
    ):
        stuck.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await client.create("t")
        for _ in range(16):
            await client.produce("t", b"x" * 900_000)
        for _ in range(20):
            await stuck.send(
                fetch_request("t", 0, max_bytes=1 << 24, partition_max_bytes=1 << 24), 12
            )
        with trio.fail_after(60):
            while not events.named("send_timed_out"):
                assert len(values(await client.fetch("t", 0))) >= 1
            while broker.connections > 1:
                await trio.lowlevel.checkpoint()
        assert broker.core.pool.lent_bytes == 0


async def test_a_slow_reader_gets_every_byte_in_order() -> None:
    async with serving() as broker, connect(broker.address) as client:
        client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        await client.create("t")
        for n in range(12):
            await client.produce("t", bytes([65 + n]) * 500_000)
        for n in range(12):
            await client.send(fetch_request("t", n, max_bytes=1), 12)
        await client.send(MetadataRequest(topics=[]), 1)
        for n in range(12):
            _, reply = await client.receive(FetchResponse, 12)
            row = reply.responses[0].partitions[0]
            assert values(row) == [bytes([65 + n]) * 500_000]
        await client.receive(MetadataResponse, 1)
        assert broker.core.pool.lent_bytes == 0


async def test_a_connection_with_too_many_open_requests_is_not_read() -> None:
    async with (
        serving(slots_max=4) as broker,
        connect(broker.address) as a,
        connect(broker.address) as b,
    ):
        await a.create("t")
        await a.create("other")
        for _ in range(4):
            await a.send(fetch_request("t", 0, wait_ms=600_000), 12)
        await a.send(produce_request("other", batch(b"late")), 9)
        while len(broker.core.deadlines) < 4:
            await trio.lowlevel.checkpoint()
        # The fifth request is not even read: nothing is appended.
        assert values(await b.fetch("other", 0, wait_ms=100)) == []
        await b.produce("t", b"v")
        with trio.fail_after(60):
            for _ in range(4):
                await a.receive(FetchResponse, 12)
            await a.receive(ProduceResponse, 9)
        assert values(await b.fetch("other", 0)) == [b"late"]


async def test_who_does_not_read_is_not_answered_into_memory() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as member,
        connect(broker.address) as stuck,
    ):
        loud = ClassicMember(member, metadata=bytes(METADATA_MAX), session_ms=600_000)
        await loud.join()
        await loud.sync({loud.member_id: []})
        before, count = broker.core.counters.requests, 100
        request = DescribeGroupsRequest(groups=["g"])
        _, frame = stuck.encode(request, 5)
        await stuck.send_bytes(frame * count)  # one receive of the broker; answers of a MiB each
        for _ in range(count):
            assert (await member.ask(request, DescribeGroupsResponse, 5)).groups[0].members
        assert broker.core.counters.requests - before < count * 3 // 2, "no more than sockets hold"
        with trio.fail_after(60):
            for _ in range(count):
                assert len(await stuck.receive_frame()) > METADATA_MAX


@pytest.mark.parametrize(
    ("of_all", "of_address"), [(1 << 16, 1 << 20), (1 << 20, 1 << 16)], ids=["all", "address"]
)
async def test_requests_that_are_larger_than_the_budget_come_through_one_by_one(
    of_all: int, of_address: int
) -> None:
    async with (
        serving(
            request_wait_ms=600_000, request_bytes_max=of_all, request_bytes_per_ip_max=of_address
        ) as broker,
        connect(broker.address) as one,
    ):
        await one.create("t", durability="disk")
        codes: list[int] = []

        async def send() -> None:
            async with connect(broker.address) as client:
                codes.append((await client.produce("t", bytes(900_000))).error_code)

        with trio.fail_after(60):
            assert (await one.produce("t", bytes(900_000))).error_code == 0
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(send)
        assert codes == [0] * 4


async def test_half_requests_are_bounded_in_sum(events: Events) -> None:
    async with serving(request_bytes_max=1 << 20, request_wait_ms=50) as broker:
        async with (
            connect(broker.address) as first,
            connect(broker.address) as second,
            connect(broker.address) as small,
        ):
            await small.create("t")
            await small.create("closed")
            await small.produce("t", b"v")
            may_open = held_opening(broker)
            await first.send(produce_request("closed", batch(bytes(900_000))), 9)
            await becomes(lambda: bool(broker.core.topics._opening))
            large = (8 << 20).to_bytes(4, "big") + bytes(8 << 20)
            with trio.fail_after(60), pytest.raises(trio.BrokenResourceError):
                await second.send_bytes(large)
            assert len(events.named("unserved_request")) == 1
            assert (await small.produce("t", b"small")).error_code == 0
            may_open.set()
        while broker.connections:
            await trio.lowlevel.checkpoint()
        assert broker.half_request_bytes == 0


def look_again(broker: Broker, after_s: float) -> None:
    """The watchdog looks now, and as if it were so much later."""
    for later_s in (0, after_s):  # at first it sees what has come
        for one in tuple(broker._connections):
            watchdog.look(broker.core.config, one, trio.current_time() + later_s)


HALF_OF_ONE = (8 << 20).to_bytes(4, "big") + bytes(1_200_000)


@pytest.mark.parametrize("is_first", [False, True])
async def test_who_stops_in_the_middle_of_a_large_request_does_not_stop_others(
    events: Events, is_first: bool
) -> None:
    """Nor does who stops in the middle of its first one."""
    async with (
        serving(request_bytes_max=1 << 20) as broker,
        connect(broker.address) as stopped,
        connect(broker.address) as other,
    ):
        await other.create("t")
        if not is_first:
            await stopped.produce("t", b"v")
        await stopped.send_bytes(HALF_OF_ONE)
        await becomes(lambda: broker.half_request_bytes >= len(HALF_OF_ONE))
        config, admission = broker.core.config, broker._admission
        assert admission is not None
        half_s = config.request_wait_ms / 2000
        look_again(broker, half_s + 1)
        assert not events.named("request_timed_out"), "nobody waits"
        codes: list[int] = []

        async def produce() -> None:
            codes.append((await other.produce("t", bytes(300_000))).error_code)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                await becomes(lambda: admission.half.is_waited_for("127.0.0.1"))
                look_again(broker, half_s - 100)
                assert not events.named("request_timed_out")
                look_again(broker, half_s + 1)
            assert codes == [0]
            assert await stopped.is_closed()
        (line,) = events.named("request_timed_out")
        assert line["limit_ms"] == config.request_wait_ms // 2


async def test_a_first_request_that_waits_for_room_is_not_late(events: Events) -> None:
    async with (
        serving(request_bytes_max=1 << 20) as broker,
        connect(broker.address) as first,
        connect(broker.address) as late,
    ):
        await first.create("t")
        await first.send_bytes(HALF_OF_ONE)
        await becomes(lambda: broker.half_request_bytes >= len(HALF_OF_ONE))
        config, admission = broker.core.config, broker._admission
        assert admission is not None
        codes: list[int] = []

        async def produce() -> None:
            codes.append((await late.produce("t", bytes(300_000))).error_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await becomes(lambda: admission.half.is_waited_for("127.0.0.1"))
            much_later = trio.current_time() + config.handshake_timeout_ms / 1000 + 1
            for one in broker._connections:
                if not one.is_settled:
                    watchdog.look(config, one, much_later)
            await first.stream.aclose()
        assert codes == [0]
    assert not events.named("handshake_timed_out")


async def test_who_waits_for_the_room_of_its_address_closes_nobody_of_another(
    events: Events,
) -> None:
    """What another address holds is no use to it: there is room for all."""
    async with (
        serving(request_bytes_per_ip_max=1 << 20) as broker,
        connect(broker.address) as stopped,
        connect(broker.address) as other,
        connect_from("127.0.0.2", broker) as slow,
    ):
        await other.create("t")
        for client in (stopped, slow):
            await client.produce("t", b"v")
            await client.send_bytes(HALF_OF_ONE)
        await becomes(lambda: broker.half_request_bytes >= 2 * len(HALF_OF_ONE))
        admission = broker._admission
        assert admission is not None
        codes: list[int] = []

        async def produce() -> None:
            codes.append((await other.produce("t", bytes(300_000))).error_code)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                await becomes(lambda: admission.half.is_waited_for("127.0.0.1"))
                look_again(broker, broker.core.config.request_wait_ms / 2000 + 1)
            assert codes == [0]
        (line,) = events.named("request_timed_out")
        assert line["peer"].startswith("127.0.0.1:")


class AtPark(trio.abc.Instrument):
    """Calls something once, when a connection begins to wait for its client."""

    def __init__(self, connection: Connection, then: Callable[[], None]) -> None:
        self._connection = connection
        self._then = then

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._connection.is_waiting:
            trio.lowlevel.remove_instrument(self)
            self._then()


async def test_who_was_not_read_while_the_disk_was_behind_is_not_one_who_sends_nothing(
    events: Events,
) -> None:
    """What it has sent meanwhile is there, and read next."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, ingest_bytes_max=1 << 16, request_bytes_max=1 << 18) as broker,
        connect(broker.address, "slow") as slow,
        connect(broker.address) as other,
        connect(broker.address) as waiting,
        AsyncExitStack() as stack,
    ):
        await other.create("t")
        assert (await slow.produce("t", b"v")).error_code == 0
        (one,) = (one for one in broker._connections if one.peer.client_id == "slow")
        _, frame = slow.encode(produce_request("t", batch(bytes(1_000_000))), 9)
        await slow.send_bytes(frame[:150_000])
        await becomes(lambda: broker.half_request_bytes > 1 << 18)
        disk.syncs.clear()
        stack.callback(disk.syncs.set)
        for _ in range(2):
            await other.send(produce_request("t", batch(bytes(40_000))), 9)
        await becomes(lambda: broker.core.ingest.full)
        await slow.send_bytes(frame[150_000:160_000])
        await becomes(lambda: not one.is_waiting)
        await slow.send_bytes(frame[160_000:170_000])
        config, admission = broker.core.config, broker._admission
        assert admission is not None
        await waiting.send_bytes(HALF_OF_ONE[:100_000])
        await becomes(lambda: admission.half.is_waited_for("127.0.0.1"))
        half_s, now = config.request_wait_ms / 2000, trio.current_time()
        for later_s in (0, half_s, 2 * half_s):
            watchdog.look(config, one, now + later_s)
        later = now + 2 * half_s + 1
        trio.lowlevel.add_instrument(AtPark(one, lambda: watchdog.look(config, one, later)))
        disk.syncs.set()
        with trio.fail_after(60):
            await slow.send_bytes(frame[170_000:])
            _, reply = await slow.receive(ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        assert not events.named("request_timed_out")


async def test_fetches_wait_in_line_for_a_buffer() -> None:
    async with serving(fetch_buffer_bytes_max=1 << 20) as broker:
        async with connect(broker.address) as slow, connect(broker.address) as client:
            slow.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            await client.create("t")
            for _ in range(8):
                await client.produce("t", b"x" * 1_000_000)
            for _ in range(8):
                await slow.send(fetch_request("t", 0), 12)
            while broker.core.pool.lent_bytes == 0:
                await trio.lowlevel.checkpoint()
            sent = await client.send(fetch_request("t", 7), 12)
            with trio.fail_after(60):
                for _ in range(8):
                    _, reply = await slow.receive(FetchResponse, 12)
                    assert values(reply.responses[0].partitions[0]) == [b"x" * 1_000_000]
                received, reply = await client.receive(FetchResponse, 12)
            assert received == sent
            assert values(reply.responses[0].partitions[0]) == [b"x" * 1_000_000]
        assert broker.core.pool.lent_bytes == 0


async def test_fetches_that_the_disk_answers_wait_in_line_and_each_has_its_turn() -> None:
    """Who was called looks into the page cache first, with a buffer that it gives back."""
    disk, count = GatedStorage(), 6
    async with (
        serving(storage=disk, fetch_buffer_bytes_max=1 << 20) as broker,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        await clients[0].create("t")
        await clients[0].produce("t", b"x" * 700_000)
        disk.cached = False
        disk.reads.clear()
        stack.callback(disk.reads.set)
        for client in clients:
            await client.send(fetch_request("t", 0), 12)
        await becomes(lambda: len(broker.core.pool._line) == count - 1)
        disk.reads.set()
        with trio.fail_after(60):
            for client in clients:
                _, reply = await client.receive(FetchResponse, 12)
                assert values(reply.responses[0].partitions[0]) == [b"x" * 700_000]


async def test_who_was_called_for_a_buffer_is_not_passed_before_it_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetch of very many partitions is planned with others in between, once it is called."""
    partitions = 8
    monkeypatch.setattr(fetch_reply, "TARGETS_ON_LOOP_MAX", partitions - 1)
    disk = GatedStorage()
    async with (
        serving(storage=disk, fetch_buffer_bytes_max=1 << 20) as broker,
        connect(broker.address) as many,
        connect(broker.address) as second,
        connect(broker.address) as third,
        AsyncExitStack() as stack,
    ):
        await many.create("t", partitions)
        await many.produce("t", bytes(700_000))
        disk.cached = False
        disk.reads.clear()
        stack.callback(disk.reads.set)
        of_many = fetch_request("t", 0)
        (topic,) = of_many.topics
        topic.partitions = [copy(topic.partitions[0]) for _ in range(partitions)]
        for index, one in enumerate(topic.partitions):
            one.partition = index
        pool = broker.core.pool
        lease = pool.lease(1 << 20)
        assert lease is not None
        places: list[Place] = []
        for client in (many, second, third):
            await client.send(of_many if client is many else fetch_request("t", 0), 12)
            await becomes(lambda: len(pool._line) > len(places))
            places.append(pool._line._by_host["127.0.0.1"][-1])
        lease.release()
        await becomes(lambda: broker.core.counters.lane_reads > 0)
        assert list(pool._line._by_host["127.0.0.1"]) == places[1:]
        disk.reads.set()
        with trio.fail_after(60):
            for client in (many, second, third):
                _, reply = await client.receive(FetchResponse, 12)
                assert values(reply.responses[0].partitions[0]) == [bytes(700_000)]


async def test_who_is_gone_keeps_nobody_waiting_in_the_line_for_a_buffer() -> None:
    """It wanted nearly all of the room; who is behind it wants little, which is there."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, fetch_buffer_bytes_max=1 << 20) as broker,
        connect(broker.address) as first,
        connect(broker.address) as last,
        AsyncExitStack() as stack,
    ):
        for topic, size in (("small", 100_000), ("large", 700_000)):
            await first.create(topic)
            await first.produce(topic, bytes(size))
        pool = broker.core.pool
        disk.cached = False
        disk.reads.clear()
        stack.callback(disk.reads.set)
        await first.send(fetch_request("small", 0), 12)
        await becomes(lambda: pool.lent_bytes > 0)
        one = pool.lent_bytes
        async with connect(broker.address) as gone:
            await gone.send(fetch_request("large", 0), 12)
            await becomes(lambda: len(pool._line) == 1)
            await last.send(fetch_request("small", 0), 12)
            await becomes(lambda: len(pool._line) == 2)
        await becomes(lambda: pool.lent_bytes == 2 * one)
        disk.reads.set()
        with trio.fail_after(60):
            for client in (first, last):
                _, reply = await client.receive(FetchResponse, 12)
                assert values(reply.responses[0].partitions[0]) == [bytes(100_000)]


def _big(n: int) -> bytes:
    return bytes([65 + n]) * 900_000


async def test_who_breaks_off_with_several_fetches_ready_keeps_no_buffer() -> None:
    """The second reply is not made any more when the first could not be sent."""
    async with serving() as broker, connect(broker.address) as other:
        await other.create("t")
        await other.produce("t", b"v")
        asked = [other.encode(fetch_request("t", 0), 12)[1] for _ in range(3)]
        with socket.create_connection(broker.address) as client:
            await becomes(lambda: broker.connections == 2)
            # All in one step of the loop: what was asked can be received, and not be answered.
            client.sendall(b"".join(asked))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await becomes(lambda: broker.connections == 1)
        assert broker.core.counters.fetch_requests > 0
        assert broker.core.pool.lent_bytes == 0


async def test_slow_readers_take_no_memory_from_the_others_and_lose_no_byte() -> None:
    async with (
        serving(fetch_buffer_bytes_max=4 << 20) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        await client.create("t")
        for n in range(8):
            await client.produce("t", _big(n))
        slow = [await stack.enter_async_context(connect(broker.address)) for _ in range(12)]
        for n, reader in enumerate(slow):
            reader.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            for m in range(6):
                offset = (n + m) % 8
                await reader.send(fetch_request("t", offset, partition_max_bytes=1 << 24), 12)
        pool = broker.core.pool
        with trio.fail_after(60):
            while pool.taken_back < 4:
                await trio.lowlevel.checkpoint()
            # All of the budget belongs to readers that do not read: the honest one is served.
            for n in range(8):
                assert values(await client.fetch("t", n))[0] == _big(n)
            # Meanwhile the segments they began to read roll and are sealed.
            for n in range(8, 16):
                await client.produce("t", _big(n))
        with trio.fail_after(60):
            for n, reader in enumerate(slow):
                for m in range(6):
                    _, reply = await reader.receive(FetchResponse, 12)
                    assert values(reply.responses[0].partitions[0])[0] == _big((n + m) % 8)
        for reader in (client, *slow):
            await reader.stream.aclose()
        while broker.connections:
            await trio.lowlevel.checkpoint()
        assert pool.lent_bytes == 0
        for partition in broker.core.topics.served.values():
            opened = partition.handler._log
            assert not any(segment.pins for segment in (*opened.rotating, opened.active))


async def test_who_takes_nothing_keeps_no_buffer_behind_other_answers() -> None:
    """What was sent with a fetch, in front of it, cannot be made again."""
    pairs, described = 16, 250_000
    async with (
        serving(fetch_buffer_bytes_max=1 << 20) as broker,
        connect(broker.address) as member,
        connect(broker.address) as client,
        connect(broker.address) as slow,
    ):
        slow.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        loud = ClassicMember(member, metadata=bytes(described), session_ms=600_000)
        await loud.join()
        await loud.sync({loud.member_id: []})
        await client.create("first")
        await client.create("t")
        await client.produce("t", b"x" * 900_000)
        # All of it is decided behind a fetch that waits, and leaves when that does.
        await slow.send(fetch_request("first", 0, wait_ms=600_000), 12)
        for _ in range(pairs):
            await slow.send(DescribeGroupsRequest(groups=["g"]), 5)
            await slow.send(fetch_request("t", 0), 12)
        await becomes(lambda: broker.core.counters.fetch_requests == 1 + pairs)
        (waiting,) = (one for one in broker._connections if len(one.outbox))
        await client.produce("first", b"v")
        await becomes(lambda: waiting.outbox.unsent)
        while waiting.outbox.unsent:
            # Wherever it stops to read, others have the buffer.
            with trio.fail_after(60):
                assert values(await client.fetch("t", 0)) == [b"x" * 900_000]
            await slow.stream.receive_some(64 << 10)


@pytest.mark.parametrize("why", ["damage", "no memory"])
async def test_a_reply_that_cannot_be_read_again_closes_its_connection(
    events: Events, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    async def without_memory(*_: object) -> None:
        raise MemoryError

    storage = MemoryStorage()
    async with (
        serving(storage=storage, fetch_buffer_bytes_max=1 << 20) as broker,
        connect(broker.address) as slow,
        connect(broker.address) as client,
    ):
        slow.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        await client.create("t")
        for n in range(8):
            await client.produce("t", _big(n))
        for _ in range(8):
            await slow.send(fetch_request("t", 0), 12)
        pool = broker.core.pool
        with trio.fail_after(60):
            while pool.lent_bytes == 0:
                await trio.lowlevel.checkpoint()
            while not pool.taken_back:
                await client.fetch("t", 1)
        damaged = storage.open("/data/topics/t/partition_0/t_partition_0_segment_0.log")
        damaged.pwrite(bytes(64), 600_000)
        if why == "no memory":
            monkeypatch.setattr(Lanes, "run", without_memory)
        with trio.fail_after(60), suppress(Closed):
            while True:  # what the sockets hold already is whole
                _, reply = await slow.receive(FetchResponse, 12)
                assert values(reply.responses[0].partitions[0]) == [_big(0)]
        with trio.fail_after(60):
            while broker.connections > 1:
                await trio.lowlevel.checkpoint()
        monkeypatch.undo()
        (line,) = events.named("reply_not_read_again")
        assert line["error"]
        assert line["topics"] == ["t"]
        assert line["peer"].startswith("127.0.0.1:")
        assert values(await client.fetch("t", 1))[0] == _big(1)


async def test_a_connection_that_is_closed_while_a_thread_is_at_its_request_is_told_once(
    events: Events,
) -> None:
    """Its task ends when the thread does; the watchdog sees it again and again until then."""
    async with serving(send_timeout_ms=40) as broker:
        async with connect(broker.address) as client, connect(broker.address) as writer:
            await writer.create("t")
            await writer.create("closed")
            client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            for _ in range(8):
                await client.send(fetch_request("t", 0, wait_ms=60_000), 12)
            await becomes(lambda: broker.core.counters.fetch_requests == 8)
            may_open = held_opening(broker)
            try:
                await client.send(produce_request("closed", batch(b"v")), 9)
                await becomes(lambda: bool(broker.core.topics._opening))
                await writer.produce("t", bytes(1_000_000))  # which the client does not take
                await becomes(lambda: bool(events.named("send_timed_out")))
                refused = broker.core.counters.connections_refused
                for _ in range(5):
                    await trio.sleep(watchdog.tick_seconds(broker.core.config))
            finally:
                may_open.set()
        await becomes(lambda: not broker.connections)
    assert len(events.named("send_timed_out")) == 1
    assert broker.core.counters.connections_refused == refused == 1

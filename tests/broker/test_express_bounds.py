"""The express way is fair, bounded, and gives up those and only those whom a failure met."""

import contextlib
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import NoReturn

import pytest
import trio
import trio.testing

from segbroker.broker.loop.callbacks import Callbacks
from segbroker.broker.peers import replies
from segbroker.broker.peers.replies import Buffer, Outbox
from segbroker.broker.producing import express, intake, produce_run, seat
from segbroker.broker.server import Broker
from segbroker.protocol.checksums import crc32c
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.limits import TOPIC_NAME_SIZE_MAX
from segbroker.protocol.messages_core import ProduceResponse
from segbroker.protocol.record_batch import Codec, encode_batch
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.partition.handler import DiskHandler

from ..support.gated_storage import GatedStorage
from ..support.wire_client import (
    Closed,
    WireClient,
    batch,
    connect,
    fetch_request,
    produce_request,
)
from .conftest import serving

both_ways = pytest.mark.parametrize("is_express", [True, False], ids=["express", "general"])


def send_at_once(client: WireClient, data: bytes) -> None:
    """Without a turn of the loop; all of it fits into the socket."""
    fileno = client.stream.socket.fileno()
    with socket.fromfd(fileno, socket.AF_INET, socket.SOCK_STREAM) as again:
        assert again.send(data) == len(data)


async def parked(
    broker: Broker,
    client: WireClient,
    stack: contextlib.AsyncExitStack,
    count: int,
    durability: str = "disk",
) -> list[WireClient]:
    """So many others, parked as the client is; a topic for them.

    durability: `disk` is answered at once, so nobody leaves for the sake of it.
    """
    await client.create("t", durability=durability)
    others = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
    for one in (client, *others):
        await one.produce("t", b"first")
    await trio.testing.wait_all_tasks_blocked()
    return others


async def answered_before(client: WireClient, others: list[WireClient], count: int) -> int:
    """How many of the `count` requests of each other one were appended before the client's; all of
    them are answered."""
    with trio.fail_after(60):
        _, reply = await client.receive(ProduceResponse, 9)
        for one in others:
            for _ in range(count):
                await one.receive_frame()
    return reply.responses[0].partition_responses[0].base_offset - 1 - len(others)


async def test_whoever_asks_behind_others_that_sent_much_waits_for_one_receive_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A pass is full after one receive, of whoever it is; the offset says who came before.
    monkeypatch.setattr(intake, "SPACE_BYTES", 4_096)
    monkeypatch.setattr(intake, "SPACE_BYTES_MIN", 4_096)
    monkeypatch.setattr(intake, "ARENA_BYTES", 4_096 + seat.CARRY_MAX)
    async with (
        serving() as broker,
        connect(broker.address) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        others = await parked(broker, client, stack, 8)
        _, frame = client.encode(produce_request("t", batch(bytes(400))), 9)
        count = 40_000 // len(frame)
        for one in others:  # without a pause: no pass comes in between
            send_at_once(one, frame * count)
        _, last = client.encode(produce_request("t", batch(b"late")), 9)
        send_at_once(client, last)
        before = await answered_before(client, others, count)
        each = 4_096 // len(frame) + 1
        assert before <= (len(others) + 1) * each < len(others) * count // 2
        assert broker.express is not None
        assert broker.express.requests == len(others) * count + 1


async def test_half_a_request_is_not_received_behind_all_who_never_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        others = await parked(broker, client, stack, 3)
        _, frame = client.encode(produce_request("t", batch(bytes(400))), 9)
        # A pass is full after one receive, which ends where a request ends: they carry nothing.
        each, count = 4, 100
        space = each * len(frame)
        monkeypatch.setattr(intake, "SPACE_BYTES", space)
        monkeypatch.setattr(intake, "SPACE_BYTES_MIN", space)
        monkeypatch.setattr(intake, "ARENA_BYTES", space + seat.CARRY_MAX)
        _, last = client.encode(produce_request("t", batch(b"in two halves")), 9)
        await client.send_bytes(last[:20])
        await trio.testing.wait_all_tasks_blocked()
        for one in others:  # without a pause: no pass comes in between
            send_at_once(one, frame * count)
        send_at_once(client, last[20:])
        before = await answered_before(client, others, count)
        assert before <= (len(others) + 1) * each
        assert broker.express is not None
        assert broker.express.requests == len(others) * count + 1


async def test_the_order_holds_until_the_kernel_has_listed_everybody_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "CONNECTIONS_MAX", 1)  # that one look lists
    monkeypatch.setattr(intake, "ARENA_BYTES", 0)  # no pass reaches anybody
    async with (
        serving() as broker,
        connect(broker.address) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        await parked(broker, client, stack, 1)
        assert broker.express is not None
        taken = broker.express._intake
        seats = list(taken._seats.values())
        assert len(seats) == 2
        for seat_, received_in in zip(seats, (9, 3), strict=True):
            seat_.received_in = received_in
        number = broker.express.passes + 1
        assert taken.take_up(list(seats), number, is_alone=False) == 0
        for later, order in ((2, [[3], [9]]), (3, [[3], [9]]), (4, [[9, 3]])):
            taken._number = number + later
            groups = [list(some) for some in taken._in_turns(list(seats))]
            assert [[seat_.received_in for seat_ in some] for some in groups] == order


async def test_who_was_away_does_not_come_before_those_who_wait() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        (other,) = await parked(broker, client, stack, 1)
        _, large = client.encode(produce_request("t", batch(bytes(100_000))), 9)
        await client.send_bytes(large[:70_000])  # it leaves with this, and its task reads the rest
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            await other.produce("t", b"here")
        await client.send_bytes(large[70_000:])
        await client.receive(ProduceResponse, 9)
        await trio.testing.wait_all_tasks_blocked()
        assert broker.express is not None
        seats = broker.express._seats.values()
        assert [one.received_in for one in seats] == [broker.express.passes] * 2


async def test_the_loop_waits_no_more_than_it_may_while_others_have_work_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(express, "PAUSE_S", 600.0)
    waits = 0

    def wait(*_: object) -> bool:
        """There is always something, and it is never the sync."""
        nonlocal waits
        waits += 1
        return True

    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        others = await parked(broker, client, stack, 1, durability="fsync")
        disk.syncs.clear()
        size, seen = len(batch(b"v")), []
        with monkeypatch.context() as patch:
            patch.setattr(Callbacks, "wait", wait)
            for n, one in enumerate((client, *others)):
                await one.send(produce_request("t", batch(b"v")), 9)
                with trio.fail_after(60):
                    while broker.core.ingest.unsynced_bytes < (n + 1) * size:
                        await trio.lowlevel.checkpoint()
                await trio.testing.wait_all_tasks_blocked()
                seen.append(waits)
        disk.syncs.set()
        for one in (client, *others):
            await one.receive(ProduceResponse, 9)
    assert seen[0] > 0
    assert seen[1] == seen[0], "it has waited for too long just now"


async def test_names_that_are_too_long_are_answered_and_not_remembered() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"first")
        await trio.testing.wait_all_tasks_blocked()
        for number in range(20):
            name = f"{number:03}" + "n" * (TOPIC_NAME_SIZE_MAX - 3 + number % 2 * 5_000)
            good = client.encode(produce_request("t", batch(b"v")), 7)[1]
            bad = client.encode(produce_request(name, batch(b"v")), 7)[1]
            await client.send_bytes(good + bad)
            codes = []
            for _ in range(2):
                _, reply = await client.receive(ProduceResponse, 7)
                codes.append(reply.responses[0].partition_responses[0].error_code)
            assert codes[0] == 0
            assert codes[1] != 0
            await trio.testing.wait_all_tasks_blocked()
        way = broker.express
        assert way is not None
        assert way.requests >= 20
        assert way._intake._names, "none is remembered at all"
        assert max(map(len, way._intake._names)) <= TOPIC_NAME_SIZE_MAX


@both_ways
async def test_a_large_request_is_refused_where_less_is_allowed(*, is_express: bool) -> None:
    async with serving(frame_bytes_max=2_048, express=is_express) as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            await client.produce("t", b"first")
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(60), pytest.raises(Closed):
                await client.produce("t", b"x" * 20_000)
        async with connect(broker.address) as client:
            assert (await client.fetch("t", 0)).high_watermark == 1


async def test_whoever_left_in_a_pass_that_fails_is_closed_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"first")
        await trio.testing.wait_all_tasks_blocked()
        appended = 0

        def fails(*_: object) -> None:
            nonlocal appended
            appended += 1
            raise ZeroDivisionError

        monkeypatch.setattr(produce_run.Run, "append", fails)
        plain = client.encode(produce_request("t", batch(b"v")), 9)[1]
        other = client.encode(fetch_request("t", 0), 12)[1]
        await client.send_bytes(plain + other)  # the second makes it leave
        with trio.fail_after(60):
            assert await client.is_closed()
        monkeypatch.undo()
        assert appended == 1
        async with connect(broker.address) as again:
            await again.produce("t", b"goes on")


class _Sink:
    """A socket that takes everything and remembers it."""

    def __init__(self) -> None:
        self.sent = b""

    def fileno(self) -> int:
        raise AssertionError("nothing is left to wait for")

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        data = b"".join(buffers)
        self.sent += data
        return len(data)


class Answered:
    """A slot whose reply is there."""

    restores = False
    done = True

    def __init__(self) -> None:
        self.is_abandoned = False

    def render(self) -> list[Buffer] | None:
        return [b"reply"]

    def sent(self) -> None:
        pass

    def stuck(self) -> None:
        pass

    def abandon(self) -> None:
        self.is_abandoned = True


def test_nothing_leaves_behind_what_was_given_up() -> None:
    broken = 0

    def on_broken(_: object) -> None:
        nonlocal broken
        broken += 1

    sink = _Sink()
    outbox = Outbox(sink, spawn=lambda _: None, on_broken=on_broken)
    outbox.push(Answered())
    outbox.flush()
    assert sink.sent == b"reply"
    outbox.break_off()
    late = Answered()
    outbox.push(late)
    outbox.flush()
    assert sink.sent == b"reply"
    assert not late.is_abandoned
    outbox.break_off()
    assert late.is_abandoned
    assert len(outbox) == 0
    assert broken == 1


class _RollingLock:
    """An append's lock, for which the roll by age waited: that goes on as soon as it is free."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._lock = log.append_lock
        self.rolls = 0

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.rolls and self._log.active.size:
            self.rolls = 1
            self._log.roll(1)
        self._lock.__exit__(kind, exc, trace)


@both_ways
async def test_a_roll_by_age_beside_an_append_leaves_the_write_ahead_log_alone(
    monkeypatch: pytest.MonkeyPatch, *, is_express: bool
) -> None:
    async with (
        serving(express=is_express) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        for name, producer in (("t", client), ("u", other)):
            await client.create(name)
            await producer.produce(name, b"first")
        await trio.testing.wait_all_tasks_blocked()
        served = broker.core.topics.served_partition("t", 0)
        assert served is not None
        assert isinstance(served.handler, DiskHandler)
        log = served.handler._log
        lock = _RollingLock(log)
        monkeypatch.setattr(log, "append_lock", lock)
        with trio.fail_after(60):
            for producer, name in ((client, "t"), (other, "u"), (client, "t")):
                row = await producer.produce(name, b"second")
                assert (row.error_code, row.error_message) == (0, None)
        assert lock.rolls == 1
        assert (await client.fetch("t", 0)).high_watermark == 3
        assert (await client.fetch("u", 0)).high_watermark == 2


def _unopenable() -> bytes:
    """A compressed batch that is whole, but cannot be opened."""
    data = bytearray(
        encode_batch([b"v" * 500], keys=[b"k"], timestamps_ms=1_700_000_000_000, codec=Codec.GZIP)
    )
    data[-12:] = bytes(12)
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("config", "codes"),
    [
        (
            {"cleanup_policy": "compact"},
            [0, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD, 0],
        ),
        ({"message_timestamp_type": "LogAppendTime"}, [0, 0, 0, 0]),
    ],
    ids=["compacted", "stamped"],
)
async def test_what_is_appended_one_by_one_has_the_same_reply(
    config: dict[str, str], codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, produced = [], []
    for is_express in (False, True):
        async with (
            serving(express=is_express, now_ms=lambda: 1_700_000_000_000) as broker,
            connect(broker.address) as client,
        ):
            await client.create("t", partitions=1, **config)
            first = produce_request("t", keyed := _keyed())
            await client.ask(first, ProduceResponse, 9)
            await trio.testing.wait_all_tasks_blocked()
            if is_express:  # as where the topic became so when the run was begun already
                monkeypatch.setattr(DiskHandler, "takes_runs", True)
                monkeypatch.setattr(DiskHandler, "append_run", lambda *_: None)
            frames = [
                client.encode(produce_request("t", records), 9)[1]
                for records in (keyed, _unopenable(), batch(b"without a key"), keyed)
            ]
            send_at_once(client, b"".join(frames))
            with trio.fail_after(60):
                for _ in frames:
                    _, reply = await client.receive(ProduceResponse, 9)
                    rows.append(reply.responses[0].partition_responses[0])
            assert broker.core.counters.connections_failed == 0
            assert broker.core.ingest.unsynced_bytes == 0
            produced.append(broker.core.counters.produced_bytes)
    assert [row.error_code for row in rows[:4]] == codes
    assert rows[4:] == rows[:4]
    assert produced[0] == produced[1] > 0


def _keyed() -> bytes:
    return encode_batch([b"v"], keys=[b"k"], timestamps_ms=1_700_000_000_000)


class _Restored(Answered):
    """As a fetch: what is not taken can be made again."""

    restores = True


class _FullSink(_Sink):
    """Takes nothing any more, when it is told."""

    is_full = False

    def sendmsg(self, buffers: "Sequence[Buffer]", /) -> int:
        if self.is_full:
            raise BlockingIOError
        return super().sendmsg(buffers)


def test_who_was_sent_a_fetch_and_reads_no_more_is_owed_what_it_produces_next() -> None:
    sink = _FullSink()
    drains: list[object] = []
    outbox = Outbox(sink, spawn=drains.append, on_broken=lambda _: None)
    outbox.push(_Restored())
    outbox.flush()
    assert sink.sent == b"reply"
    sink.is_full = True
    outbox.send(b"four")
    assert outbox.unsent
    assert len(drains) == 1


class _SmallSink(_Sink):
    """Takes the first bytes of what it is given."""

    def sendmsg(self, buffers: "Sequence[Buffer]", /) -> int:
        self.sent += b"".join(buffers)[:2]
        return 2


def test_what_can_be_made_again_is_not_sent_along_with_what_cannot() -> None:
    told: list[str] = []

    class Fetched(_Restored):
        def render(self) -> list[Buffer] | None:
            told.append("made")
            return super().render()

        def stuck(self) -> None:
            told.append("stuck")

    outbox = Outbox(_SmallSink(), spawn=lambda _: None, on_broken=lambda _: None)
    outbox.push(Answered())
    outbox.push(Fetched())
    outbox.flush()
    assert not told, "its peer has other answers to take first"
    outbox = Outbox(_SmallSink(), spawn=lambda _: None, on_broken=lambda _: None)
    outbox.push(Fetched())
    outbox.push(Answered())
    outbox.flush()
    assert told == ["made", "stuck"]


@pytest.mark.parametrize("is_told", [True, False])
def test_nothing_is_sent_behind_a_half_of_a_reply_whose_rest_there_is_no_memory_for(
    monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """A client would take it for the rest; there may be no memory to tell of it either."""

    def runs_out(*_: object) -> NoReturn:
        raise MemoryError

    if not is_told:
        monkeypatch.setattr(replies.log, "exception", runs_out)
    sink, broken = _SmallSink(), list[Exception | None]()
    outbox = Outbox(sink, spawn=runs_out, on_broken=broken.append)
    for _ in range(2):
        outbox.push(Answered())
        outbox.flush()
    assert outbox.broken
    assert broken == [None]
    assert len(sink.sent) == 2

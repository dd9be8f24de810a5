"""The HTTP of the metrics page: what is asked wrongly, slowly, too often; and the health pages."""

import errno
import gc
import os
import re
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

import pytest
import trio

from segbroker.broker.address import join_address
from segbroker.broker.configuration.config import BrokerConfig, InvalidConfig, merge
from segbroker.broker.loop import lanes
from segbroker.broker.metrics import http_connection
from segbroker.broker.metrics.exposition import OPEN, PLAIN, preferred
from segbroker.broker.metrics.http_server import CONNECTIONS_MAX
from segbroker.broker.metrics.numbers import Numbers
from segbroker.broker.server import Broker
from segbroker.cli.broker_status import concerns
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.disk.memory import MemoryFile, MemoryLock, MemoryStorage
from segbroker.segments.disk.storage import Space

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.waiting import becomes
from ..support.wire_client import connect, values
from .conftest import PATIENT, Events, manager, serving

PAGE: Final = "127.0.0.1:0"
HOST = b"Host: x\r\n"


def address_of(broker: Broker) -> tuple[str, int]:
    address = broker.metrics_address
    assert address is not None
    return address


@asynccontextmanager
async def stream_to(broker: Broker) -> AsyncIterator[trio.SocketStream]:
    async with await trio.open_tcp_stream(*address_of(broker)) as stream:
        yield stream


def held(released: threading.Event) -> None:
    assert released.wait(60), "the test never released it"


async def until_ready(broker: Broker) -> None:
    with trio.fail_after(60):
        while b" 200 " not in await exchange(broker, get(b"/health/ready", LAST)):
            await trio.lowlevel.checkpoint()


async def to_the_end(stream: trio.SocketStream) -> bytes:
    answer = b""
    with trio.fail_after(60):
        async for piece in stream:
            answer += piece
    return answer


async def exchange(broker: Broker, *pieces: bytes) -> bytes:
    """What comes back until the broker closes."""
    async with stream_to(broker) as stream:
        for piece in pieces:
            await stream.send_all(piece)
            await trio.lowlevel.checkpoint()
        return await to_the_end(stream)


async def one_answer(stream: trio.SocketStream) -> bytes:
    """A whole answer on a connection that is kept."""
    answer = b""
    with trio.fail_after(60):
        while True:
            head, found, body = answer.partition(b"\r\n\r\n")
            size = re.search(rb"Content-Length: (\d+)", head)
            if found and size is not None and len(body) >= int(size[1]):
                return answer
            answer += await stream.receive_some(1 << 20)


def get(path: bytes = b"/metrics", more: bytes = b"") -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + more + b"\r\n"


LAST = b"Connection: close\r\n"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (get(more=LAST), 200),
        (get(b"/metrics?x=1", LAST), 200),
        (get(b"http://x:9644/metrics", LAST), 200),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (get(b"/health/live", LAST), 200),
        (get(b"/health/ready", LAST), 200),
        (get(b"/", LAST), 404),
        (get(b"/metrics/", LAST), 404),
        (get(b"*", LAST), 404),
        (b"POST /metrics HTTP/1.1\r\n" + HOST + LAST + b"\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\n" + HOST + LAST + b"\r\n", 405),
        (b"CONNECT x:1 HTTP/1.1\r\n" + HOST + LAST + b"\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\n" + LAST + b"\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n" + HOST + b"Content-Length: x\r\n\r\n", 400),
        (b"\x00\x00\x00\x12\x00\x12\x00\x00 no request of Kafka's\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 nor TLS\r\n\r\n", 400),
        (get(more=b"X: " + b"x" * 10_000 + b"\r\n"), 431),
        (b"GET /" + b"x" * 10_000, 431),
        (get(more=b"Content-Length: 3\r\n") + b"abc", 413),
        (get(more=b"Transfer-Encoding: chunked\r\n") + b"3\r\nabc\r\n0\r\n\r\n", 413),
        (get(more=b"Transfer-Encoding: gzip\r\n"), 501),
        (get(more=b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n"), 413),
    ],
    ids=[
        "plain", "query", "absolute", "1.0", "live", "ready", "root", "slash", "star", "post",
        "options", "connect", "no-host", "two-hosts", "length", "kafka", "tls", "header", "line",
        "body", "chunked", "coded", "expected",
    ],
)  # fmt: skip
async def test_whatever_is_asked_is_answered_once_and_the_broker_goes_on(
    asked: bytes, status: int
) -> None:
    async with serving(metrics_listen=PAGE) as broker:
        answer = await exchange(broker, asked)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
        assert answer.count(b"HTTP/1.1") == 1
        assert (b"Allow: GET, HEAD" in answer) == (status == 405)
        again = await exchange(broker, get(b"/health/live", LAST))
        assert again.endswith(b"\r\n\r\nthe event loop runs\n")


async def test_head_has_the_headers_of_get_and_nothing_behind_them() -> None:
    async with serving(metrics_listen=PAGE) as broker:
        for path in (b"/health/ready", b"/nowhere"):
            asked = get(path, LAST)
            whole = await exchange(broker, asked)
            head = await exchange(broker, b"HEAD" + asked.removeprefix(b"GET"))
            without_date = whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
            assert head == without_date
        with_body = b"HEAD /metrics HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nx"
        assert (await exchange(broker, with_body)).endswith(b"\r\n\r\n")


async def test_a_request_is_read_the_same_however_the_network_cuts_it() -> None:
    asked = get(b"/health/live", LAST)
    async with serving(metrics_listen=PAGE) as broker:
        whole = await exchange(broker, asked)
        for cut in range(1, len(asked)):
            assert await exchange(broker, asked[:cut], asked[cut:]) == whole


async def test_a_connection_is_kept_and_requests_that_come_together_are_answered_in_order() -> None:
    async with serving(metrics_listen=PAGE) as broker, stream_to(broker) as stream:
        for _ in range(3):
            await stream.send_all(get(b"/health/live"))
            assert (await one_answer(stream)).endswith(b"the event loop runs\n")
        await stream.send_all(get(b"/health/ready") + get(b"/nowhere") + get(b"/health/live", LAST))
        answers = await to_the_end(stream)
        assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"404", b"200"]


async def test_who_does_not_end_the_request_is_told_and_who_says_nothing_is_not() -> None:
    async def answered(stream: trio.SocketStream, beginning: bytes) -> bytes:
        await stream.send_all(beginning)
        await passes(http_connection.HEAD_S if beginning else http_connection.IDLE_S)
        return await to_the_end(stream)

    async with serving(metrics_listen=PAGE) as broker:
        async with stream_to(broker) as stream:
            late = await answered(stream, b"GET /metrics HTTP/1.1\r\nHos")
            assert late.startswith(b"HTTP/1.1 408")
        async with stream_to(broker) as stream:
            assert await answered(stream, b"") == b""
        async with stream_to(broker) as stream:  # also behind a whole one
            await stream.send_all(get(b"/health/live"))
            await one_answer(stream)
            assert (await answered(stream, b"G")).startswith(b"HTTP/1.1 408")


async def test_a_connection_that_is_kept_ends_when_nothing_comes() -> None:
    async with serving(metrics_listen=PAGE) as broker, stream_to(broker) as stream:
        await stream.send_all(get(b"/health/live"))
        assert (await one_answer(stream)).endswith(b"the event loop runs\n")
        await passes(http_connection.IDLE_S)
        assert await to_the_end(stream) == b""


async def test_a_reader_that_does_not_read_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    monkeypatch.setattr(http_connection, "SEND_S", 0.2)
    async with serving(metrics_listen=PAGE) as broker, stream_to(broker) as stream:
        # Each of 40 bytes brings 12,000: what they bring fits no socket.
        with trio.fail_after(60), pytest.raises(trio.BrokenResourceError):
            await stream.send_all(get() * 1_000_000)
        assert events.named("metrics_reader_too_slow")


async def test_a_page_that_is_not_made_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "PAGE_S", 0.05)
    released = threading.Event()
    async with serving(lanes=1, metrics_listen=PAGE) as broker, trio.open_nursery() as nursery:
        nursery.start_soon(broker.core.lanes.run, held, released)
        answer = await exchange(broker, get(more=LAST))
        released.set()
        assert answer.startswith(b"HTTP/1.1 503")
        assert answer.endswith(b"\r\n\r\nthe page was not made within 0.05 s\n")


async def test_an_idle_connection_gives_way_and_a_busy_one_does_not() -> None:
    async with serving(metrics_listen=PAGE) as broker, trio.open_nursery() as nursery:
        held: list[trio.SocketStream] = []
        for _ in range(CONNECTIONS_MAX):
            stream = await trio.open_tcp_stream(*address_of(broker))
            await stream.send_all(get(b"/health/live"))
            await one_answer(stream)
            held.append(stream)
        assert (await exchange(broker, get(b"/health/live", LAST))).startswith(b"HTTP/1.1 200")
        assert await to_the_end(held[0]) == b"", "the one that was idle for longest"
        await held[0].aclose()
        held[0] = await trio.open_tcp_stream(*address_of(broker))
        for stream in held:
            await stream.send_all(b"GET /health/live HT")
        refused = b""
        with trio.fail_after(60):
            while b" 503 " not in refused:  # until all of these beginnings have been read
                refused = await exchange(broker, get(b"/health/live", LAST))
        with socket.create_connection(address_of(broker)) as newcomer:
            newcomer.sendall(get(b"/health/live", LAST))  # all of it, before the broker looks
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(newcomer))
            assert b" 503 " in await to_the_end(stream)
        for stream in held:
            await stream.send_all(b"TP/1.1\r\n" + HOST + LAST + b"\r\n")
            assert (await to_the_end(stream)).startswith(b"HTTP/1.1 200"), "each is served"
            nursery.start_soon(stream.aclose)


async def test_scrapes_at_the_same_time_share_a_page() -> None:
    released = threading.Event()
    answers: list[bytes] = []

    async def scrape(broker: Broker) -> None:
        answers.append(await exchange(broker, get(more=LAST)))

    async with serving(lanes=1, metrics_listen=PAGE) as broker:
        pages = broker.pages
        assert pages is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.core.lanes.run, held, released)
            for _ in range(6):
                nursery.start_soon(scrape, broker)
            await becomes(lambda: pages.waiting == 5)
            released.set()
        assert len(answers) == 6
        assert len(set(answers)) == 1, "uptime and all"
        assert await exchange(broker, get(more=LAST)) != answers[0], "a later one is another"


async def test_nothing_of_a_page_is_kept_when_it_has_been_told() -> None:
    async with serving(metrics_listen=PAGE) as broker:
        async with trio.open_nursery() as nursery:
            for form in (b"text/plain", b"application/openmetrics-text") * 2:
                nursery.start_soon(exchange, broker, get(more=b"Accept: " + form + b"\r\n" + LAST))

        def is_kept() -> bool:
            gc.collect()
            return any(type(one) is Numbers for one in gc.get_objects())

        await becomes(lambda: not is_kept())  # the thread that told it may have it for a moment


class HeldLock(MemoryStorage):
    """A disk whose directory is opened when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def lock(self, path: str, *, only_looks: bool = False) -> MemoryLock:
        assert self.released.wait(60), "the test never released it"
        return super().lock(path, only_looks=only_looks)


async def test_a_broker_that_starts_lives_and_is_not_ready() -> None:
    disk = HeldLock()
    config = merge({"listen": "127.0.0.1:0", "metrics_listen": PAGE, **PATIENT})
    broker = Broker(config, manager=manager(disk))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await becomes(lambda: broker.metrics_address is not None)
        assert b" 200 " in await exchange(broker, get(b"/health/live", LAST))
        for path in (b"/health/ready", b"/metrics"):
            answer = await exchange(broker, get(path, LAST))
            assert answer.startswith(b"HTTP/1.1 503")
            assert answer.endswith(b"\r\n\r\nthe broker is starting\n")
        disk.released.set()
        await until_ready(broker)
        broker.drain()


async def test_a_broker_that_ends_is_not_ready_and_says_why() -> None:
    disk = GatedStorage()
    async with serving(storage=disk, metrics_listen=PAGE) as broker:
        async with connect(broker.address) as client, trio.open_nursery() as nursery:
            await client.create("t")
            disk.syncs.clear()
            nursery.start_soon(client.produce, "t", b"v")
            await becomes(lambda: broker.core.ingest.unsynced_bytes > 0)
            broker.drain()
            await becomes(lambda: broker.core.is_draining)
            answer = await exchange(broker, get(b"/health/ready", LAST))
            metrics = await exchange(broker, get(b"/metrics", LAST))
            live = await exchange(broker, get(b"/health/live", LAST))
            disk.syncs.set()
        assert answer.startswith(b"HTTP/1.1 503")
        assert answer.endswith(b"\r\n\r\nthe broker is ending\n")
        assert b"\nsegbroker_ready 0.0\n" in metrics
        assert live.startswith(b"HTTP/1.1 200")


async def test_a_broker_whose_disk_fails_is_not_ready_until_it_can_be_written() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=20, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        disk.sync_error = OSError(5, "the test refuses it")
        row = await client.produce("t", b"v")
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        with trio.fail_after(60):
            # Housekeeping may come between: the log goes on in its other file until the next sync.
            while b" 503 " not in (answer := await exchange(broker, get(b"/health/ready", LAST))):
                code, _ = await client.try_create("other")
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert b"the write-ahead log cannot be written: [Errno 5] the test refuses it" in answer
        assert (await exchange(broker, get(b"/health/live", LAST))).startswith(b"HTTP/1.1 200")
        disk.sync_error = None
        await until_ready(broker)


async def test_a_broker_whose_disk_fails_is_not_ready_though_nobody_writes(events: Events) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=20, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        disk.sync_error = OSError(5, "the test refuses it")
        code, _ = await client.try_create("other")  # no partition fails, and tries again
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        await becomes(lambda: bool(events.named("wal_still_failed")))
        answer = await exchange(broker, get(b"/health/ready", LAST))
        assert b"the write-ahead log cannot be written: [Errno 5] the test refuses it" in answer
        assert not events.named("wal_writable_again")
        disk.sync_error = None
        await until_ready(broker)


async def test_a_broker_whose_disk_does_not_answer_is_not_ready_until_it_does(
    events: Events,
) -> None:
    disk, now = GatedStorage(), 0.0
    async with (
        serving(storage=disk, clock=lambda: now, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
        trio.open_nursery() as nursery,
    ):
        await client.create("t")
        disk.syncs.clear()
        nursery.start_soon(client.produce, "t", b"v")
        (shard,) = broker.core.topics.manager.wal._shards
        await becomes(lambda: shard._group_began is not None)
        assert (await exchange(broker, get(b"/health/ready", LAST))).startswith(b"HTTP/1.1 200")
        now = 11.0
        answer = await exchange(broker, get(b"/health/ready", LAST))
        assert answer.startswith(b"HTTP/1.1 503")
        why = b"\r\n\r\nthe write-ahead log is stuck: a write has not ended for 11 s\n"
        assert answer.endswith(why)
        metrics = await exchange(broker, get(b"/metrics", LAST))
        assert b"\nsegbroker_wal_stuck_seconds 11.0\n" in metrics
        await becomes(lambda: bool(events.named("wal_stuck")))
        assert not events.named("wal_goes_on")
        disk.syncs.set()
        await until_ready(broker)
        await becomes(lambda: bool(events.named("wal_goes_on")))


async def test_a_broker_whose_disk_answers_no_read_says_so(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, lanes=2, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
        connect(broker.address) as first,
        connect(broker.address) as second,
        trio.open_nursery() as nursery,
    ):
        await client.create("t")
        await client.produce("t", b"v")
        disk.cached = False
        disk.reads.clear()
        nursery.start_soon(first.fetch, "t", 0)
        nursery.start_soon(second.fetch, "t", 0)
        # Not one of them and a chore, which has its lane for a moment.
        await becomes(lambda: broker.core.counters.lane_reads == broker.core.lanes.busy == 2)
        monkeypatch.setattr(lanes, "STUCK_S", 1e-9)
        why = (
            r"the disk does not answer, or has too much to do:"
            r" none of the 2 threads for it has come free for \d+ s"
        )
        for page in (b"/health/ready", b"/metrics"):
            head, _, told = (await exchange(broker, get(page, LAST))).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503")
            assert re.fullmatch(f"{why}\n", told.decode())
        # At once, with what is known without a lane.
        info = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        (problem,) = concerns(info)
        assert re.fullmatch(why, problem)
        assert cast(dict[str, int], info["storage"])["topics_count"] == 1
        await becomes(lambda: bool(events.named("lanes_stuck")))
        monkeypatch.undo()
        disk.reads.set()
        await until_ready(broker)
        await becomes(lambda: bool(events.named("lanes_go_on")))


class SmallDisk(MemoryStorage):
    """A disk in memory with so much room, that becomes read-only, or hangs, at the test's word."""

    def __init__(self) -> None:
        super().__init__()
        self.free = 64 << 20
        self.files: int | None = None
        self.refuses = 0
        """The errno of every open for writing; 0: none is refused."""
        self.tells = threading.Event()
        self.tells.set()

    def space(self, path: str) -> Space:
        assert self.tells.wait(60), "the test never opened the gate"
        return Space(128 << 20, self.free, self.files)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.refuses and not read_only:
            raise OSError(self.refuses, os.strerror(self.refuses), path)
        return super().open(path, create=create, read_only=read_only)


async def test_a_broker_whose_volume_is_full_is_not_ready_until_there_is_room() -> None:
    disk = SmallDisk()
    async with serving(storage=disk, metrics_listen=PAGE) as broker:
        await until_ready(broker)
        disk.free = 4_096
        answer = await exchange(broker, get(b"/health/ready", LAST))
        assert answer.startswith(b"HTTP/1.1 503"), answer
        assert answer.endswith(b"\r\n\r\nthe volume is full: 4,096 bytes are free\n")
        assert b"\nsegbroker_ready 0.0\n" in await exchange(broker, get(b"/metrics", LAST))
        disk.free = 64 << 20
        await until_ready(broker)
        disk.files = 15
        answer = await exchange(broker, get(b"/health/ready", LAST))
        assert answer.startswith(b"HTTP/1.1 503"), answer
        told = b"\r\n\r\nthe volume is full: 15 more files can be made (inodes)\n"
        assert answer.endswith(told)
        assert b"\nsegbroker_volume_free_files 15.0\n" in await exchange(
            broker, get(b"/metrics", LAST)
        )
        disk.files = 16
        await until_ready(broker)


async def test_probes_of_a_broker_whose_volume_hangs_take_one_lane_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SmallDisk()
    answers: list[bytes] = []

    async def probe(broker: Broker) -> None:
        answers.append(await exchange(broker, get(b"/health/ready", LAST)))

    async with serving(storage=disk, lanes=4, metrics_listen=PAGE) as broker:
        disk.tells.clear()
        monkeypatch.setattr(http_connection, "PAGE_S", 0.05)
        async with trio.open_nursery() as nursery:
            try:
                for _ in range(6):
                    nursery.start_soon(probe, broker)
                await becomes(lambda: len(answers) == 5)
                late = b"\r\n\r\nthe page was not made within 0.05 s\n"
                assert all(answer.endswith(late) for answer in answers)
                live = await exchange(broker, get(b"/health/live", LAST))
                assert live.startswith(b"HTTP/1.1 200")
            finally:
                monkeypatch.undo()
                disk.tells.set()
        await until_ready(broker)


async def test_a_broker_whose_volume_became_read_only_is_not_ready_until_it_is_writable() -> None:
    disk = SmallDisk()
    async with (
        serving(storage=disk, housekeeping_interval_ms=20, metrics_listen=PAGE) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", segment_bytes="512", max_message_bytes="512")
        assert (await client.produce("t", bytes(300))).error_code == ErrorCode.NONE
        disk.refuses = errno.EROFS
        for _ in range(10):  # until a segment is to be made
            if (await client.produce("t", bytes(300))).error_code != ErrorCode.NONE:
                break
        answer = await exchange(broker, get(b"/health/ready", LAST))
        assert answer.startswith(b"HTTP/1.1 503"), answer
        assert b"the volume takes no writes: Read-only file system\n" in answer
        disk.refuses = 0
        await until_ready(broker)


class NoSnapshots(MemoryStorage):
    """At the test's word the metadata cannot be saved; everything else can."""

    refuses = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.refuses and path.startswith("/data/meta/"):
            raise OSError(errno.EIO, "no snapshot", path)
        return super().open(path, create=create, read_only=read_only)


async def test_a_log_that_is_full_for_want_of_a_snapshot_is_no_full_volume() -> None:
    disk = NoSnapshots()
    async with (
        serving(
            storage=disk,
            metrics_listen=PAGE,
            wal_file_bytes=65_536,
            wal_bytes_max=262_144,
            housekeeping_interval_ms=60_000,
        ) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        disk.refuses = True
        for _ in range(1_000):
            if (await client.produce("t", bytes(10_000))).error_code != ErrorCode.NONE:
                break
        answer = await exchange(broker, get(b"/health/ready", LAST))
        assert b"the write-ahead log cannot be written: [Errno 28] the WAL is full" in answer
        assert b"no snapshot" in answer
        assert b"the volume" not in answer
        disk.refuses = False


async def test_what_nobody_has_open_is_read_on_a_volume_that_became_read_only() -> None:
    disk = SmallDisk()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        assert (await client.produce("t", b"v")).error_code == ErrorCode.NONE
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        disk.refuses = errno.EROFS
        row = await client.fetch("t", 0)
        assert (row.error_code, values(row)) == (ErrorCode.NONE, [b"v"])
        disk.refuses = 0
        assert (await client.produce("t", b"w")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.ENOTCONN, errno.ENODEV])
async def test_a_broker_whose_volume_takes_no_writes_is_not_ready_though_nobody_writes(
    number: int,
) -> None:
    disk = SmallDisk()
    async with serving(storage=disk, metrics_listen=PAGE) as broker:
        await until_ready(broker)
        disk.refuses = number
        answer = await exchange(broker, get(b"/health/ready", LAST))
        assert answer.startswith(b"HTTP/1.1 503"), answer
        why = f"the volume takes no writes: {os.strerror(number)}\n"
        assert answer.endswith(b"\r\n\r\n" + why.encode())
        disk.refuses = 0
        await until_ready(broker)


async def test_a_broker_whose_lock_file_was_removed_is_ready() -> None:
    disk = SmallDisk()
    async with serving(storage=disk, metrics_listen=PAGE) as broker:
        disk.unlink("/data/LOCK")
        await until_ready(broker)


@pytest.mark.parametrize("listen", ["0.0.0.0:9644", "[::]:9644", "10.0.0.1:9644", "metrics:9644"])
def test_a_page_that_strangers_reach_is_asked_for_in_words(listen: str) -> None:
    with pytest.raises(InvalidConfig, match="allow_anonymous_network = true") as refused:
        BrokerConfig(metrics_listen=listen)
    assert f"metrics_listen on {listen}" in str(refused.value)
    allowed = BrokerConfig(metrics_listen=listen, allow_anonymous_network=True)
    assert allowed.metrics_listen == listen


def test_an_address_of_the_page_is_checked_at_the_start() -> None:
    with pytest.raises(InvalidConfig, match="metrics_listen = '9644' is not host:port"):
        BrokerConfig(metrics_listen="9644")
    with pytest.raises(InvalidConfig, match="metrics_rows_max = 100001"):
        BrokerConfig(metrics_rows_max=100_001)
    for listen in ("", "127.0.0.1:0", "[::1]:9644", "localhost:9644"):
        assert BrokerConfig(metrics_listen=listen).metrics_listen == listen


async def test_an_address_that_is_taken_ends_the_start_and_names_it() -> None:
    async with serving(metrics_listen=PAGE) as broker:
        taken = join_address(*address_of(broker))
        second = Broker(
            merge({"listen": "127.0.0.1:0", "metrics_listen": taken}), manager=manager()
        )
        with pytest.raises(OSError, match="in use") as refused:
            await second.run()
        assert refused.value.filename == taken


async def test_without_the_setting_nothing_listens() -> None:
    async with serving() as broker:
        assert broker.metrics_address is None


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain", PLAIN),
        ("application/openmetrics-text", OPEN),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", OPEN),
        ("Application/OpenMetrics-Text;q=0.6,text/plain;q=0.4", OPEN),
        ("application/openmetrics-text;q=0.4,text/plain;q=0.6", PLAIN),
        ("application/openmetrics-text;q=0", PLAIN),
        ("application/openmetrics-text;q=nonsense", PLAIN),
        (";;;,,,q=1;=;", PLAIN),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
            "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
            "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            OPEN,
        ),
    ],
)
def test_the_format_is_that_which_is_preferred(accept: str, form: str) -> None:
    assert preferred(accept) == form

"""Who produces alone to a quick disk has the loop sync for him; nobody sees a difference but the
time it takes, and a disk that was slow once never holds up the loop again."""

import errno

import pytest
import trio

from segbroker.broker.producing.produce_run import Run
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchResponse, ProduceResponse
from segbroker.segments.partition.handler import DiskHandler

from ..support.gated_storage import GatedStorage
from ..support.wire_client import batch, connect, fetch_request, produce_request, values
from .conftest import serving

both_ways = pytest.mark.parametrize("express", [True, False])


@both_ways
async def test_a_lone_producer_is_answered_by_syncs_of_the_loop(express: bool) -> None:
    async with (
        serving(clock=lambda: 0.0, express=express) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        with trio.fail_after(60):
            for n in range(60):
                row = await client.produce("t", b"%d" % n)
                assert (row.error_code, row.base_offset) == (0, n)
        statistics = broker.core.topics.manager.wal.statistics()
        assert statistics.syncs_here, "as soon as three have shown that the disk is quick"
        assert broker.core.ingest.unsynced_bytes == 0
        assert len(values(await client.fetch("t", 0))) == 60


async def test_who_is_alone_on_the_express_way_needs_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = 0
    append = Run.append

    def counted(run: Run, now_ms: int) -> None:
        nonlocal runs
        runs += 1
        append(run, now_ms)

    monkeypatch.setattr(Run, "append", counted)
    async with serving(clock=lambda: 0.0) as broker, connect(broker.address) as client:
        await client.create("t")
        with trio.fail_after(60):
            for n in range(60):
                assert (await client.produce("t", b"%d" % n)).base_offset == n
        assert broker.express is not None
        assert runs < broker.express.requests // 2


@both_ways
async def test_a_reader_who_waits_is_woken_by_a_sync_of_the_loop(express: bool) -> None:
    async with (
        serving(clock=lambda: 0.0, express=express) as broker,
        connect(broker.address) as writer,
        connect(broker.address) as reader,
    ):
        await writer.create("t")
        with trio.fail_after(60):
            for n in range(40):
                await reader.send(fetch_request("t", n, wait_ms=600_000), 12)
                await writer.produce("t", b"%d" % n)
                _, seen = await reader.receive(FetchResponse, 12)
                assert values(seen.responses[0].partitions[0]) == [b"%d" % n]
        assert broker.core.topics.manager.wal.statistics().syncs_here


@both_ways
async def test_a_disk_that_was_slow_does_not_hold_up_the_loop(express: bool) -> None:
    disk = GatedStorage()
    now = 0.0
    async with (
        serving(storage=disk, clock=lambda: now, express=express) as broker,
        connect(broker.address) as writer,
        connect(broker.address) as other,
    ):
        await writer.create("t")
        with trio.fail_after(60):
            for _ in range(20):
                await writer.produce("t", b"v")
        manager = broker.core.topics.manager
        before = manager.wal.statistics().syncs_here
        assert before
        now += 2.0  # what is known of the disk is old
        disk.syncs.clear()
        await writer.send(produce_request("t", batch(b"late")), 9)
        with trio.fail_after(60):
            while not broker.core.ingest.unsynced_bytes:
                await trio.lowlevel.checkpoint()
            assert len(values(await other.fetch("t", 0))) == 20, "the loop goes on"
            disk.syncs.set()
            _, reply = await writer.receive(ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].base_offset == 20
        assert manager.wal.statistics().syncs_here == before


@both_ways
async def test_a_sync_of_the_loop_that_fails_is_told_and_nothing_else_is(express: bool) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, clock=lambda: 0.0, express=express) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        with trio.fail_after(60):
            manager = broker.core.topics.manager
            end = before = 0
            while not before or manager.wal.statistics().syncs_here == before:
                before = manager.wal.statistics().syncs_here
                end = (await client.produce("t", b"v")).base_offset + 1
            before = manager.wal.statistics().syncs_here
            disk.sync_error = OSError(errno.EIO, "the disk is gone")
            row = await client.produce("t", b"lost")
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            row = await client.produce("t", b"after")
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(values(await client.fetch("t", 0))) == end
        assert manager.wal.statistics().syncs_here == before + 1
        assert broker.core.ingest.unsynced_bytes == 0
        disk.sync_error = None


async def test_who_was_answered_is_not_answered_again_when_the_watermark_was_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(clock=lambda: 0.0) as broker, connect(broker.address) as client:
        await client.create("t")
        statistics = broker.core.topics.manager.wal.statistics
        told = DiskHandler.wal_synced
        failed: list[int] = []

        def fails_once(handler: DiskHandler, end_offset: int) -> None:
            if not failed and statistics().syncs_here:
                failed.append(end_offset)
                raise RuntimeError("a mistake")
            told(handler, end_offset)

        monkeypatch.setattr(DiskHandler, "wal_synced", fails_once)
        with trio.fail_after(60):
            for n in range(60):  # each is answered with its own correlation id
                row = await client.produce("t", b"%d" % n)
                assert (row.error_code, row.base_offset) == (0, n)
        assert failed
        assert len(values(await client.fetch("t", 0))) == 60

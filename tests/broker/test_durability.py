"""Acknowledged means durable: replies, readers and backpressure follow the high watermark."""

import errno
import heapq
import math
import socket
import traceback
from array import array
from collections.abc import Iterable
from contextlib import suppress
from queue import SimpleQueue
from types import ModuleType
from typing import NoReturn, cast
from unittest.mock import ANY

import pytest
import trio

from segbroker.broker.apis import later_reply
from segbroker.broker.chores import tell_sums
from segbroker.broker.limited_lines import OF_ONE_MAX
from segbroker.broker.loop import deadlines, turn
from segbroker.broker.loop.deadlines import Deadlines
from segbroker.broker.loop.turn import Turn
from segbroker.broker.tally import Tally
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from segbroker.protocol.messages_core import (
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from segbroker.protocol.record_batch import GapReason, gap_reason, iter_batches, read_header
from segbroker.protocol.vendor import VendorKey
from segbroker.segments import background
from segbroker.segments.log.producers import ProducerTable
from segbroker.segments.log.segment import ActiveSegment
from segbroker.segments.metadata import metadata_log
from segbroker.segments.metadata.control import Event, apply_all
from segbroker.segments.metadata.metadata import Metadata
from segbroker.segments.partition import failing
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.wal import shard
from segbroker.segments.wal.group import CallSoon, Group, Request
from segbroker.segments.wal.pending import Pending

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import (
    Closed,
    WireClient,
    batch,
    connect,
    fetch_request,
    produce_request,
    values,
)
from ..support.wire_transactions import Tx, stable_end, stands, until
from .conftest import NOT_BY_ITSELF_MS, Events, serving

NOW_MS = 1_700_000_000_000


class OutOfMemory(list[int]):
    """One that cannot grow any more: where its `append` was replaced."""


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_append_is_neither_answered_nor_seen_before_its_sync(acks: int) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as a,
        connect(broker.address) as b,
    ):
        await a.create("t")
        await a.fetch("t", 0)  # opening syncs too
        disk.syncs.clear()
        await a.send(produce_request("t", batch(b"v"), acks=acks), 9)
        early = await b.fetch("t", 0, wait_ms=100)
        assert (values(early), early.high_watermark) == ([], 0)
        await b.send(fetch_request("t", 0, wait_ms=600_000), 12)
        disk.syncs.set()
        with trio.fail_after(60):
            _, reply = await a.receive(ProduceResponse, 9)
            _, seen = await b.receive(FetchResponse, 12)
        assert reply.responses[0].partition_responses[0].base_offset == 0
        assert values(seen.responses[0].partitions[0]) == [b"v"]


async def test_a_disk_topic_is_answered_without_a_sync() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability="disk")
        await client.produce("t", b"first")  # reserves offsets, durably
        disk.syncs.clear()
        with trio.fail_after(60):
            assert (await client.produce("t", b"v")).error_code == 0
            assert values(await client.fetch("t", 1)) == [b"v"]
        disk.syncs.set()


async def test_a_produce_that_is_not_durable_in_time_is_told_so_and_still_happens() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.fetch("t", 0)  # opening syncs too
        disk.syncs.clear()
        request = produce_request("t", batch(b"v"), timeout_ms=50)
        with trio.fail_after(60):
            reply = await client.ask(request, ProduceResponse, 9)
        row = reply.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        disk.syncs.set()
        with trio.fail_after(60):
            assert values(await client.fetch("t", 0, wait_ms=60_000)) == [b"v"]
        assert broker.core.ingest.unsynced_bytes == 0


async def test_a_failed_sync_fails_every_waiter_and_nothing_is_written_any_more(
    events: Events,
) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as a,
        connect(broker.address) as b,
    ):
        await a.create("t")
        await a.produce("t", b"before")
        disk.syncs.clear()
        for client in (a, b, a):
            await client.send(produce_request("t", batch(b"lost")), 9)
        while broker.core.ingest.unsynced_bytes < 3 * len(batch(b"lost")):
            await trio.lowlevel.checkpoint()
        disk.sync_error = OSError(errno.EIO, "the disk is gone")
        disk.syncs.set()
        with trio.fail_after(60):
            for client in (a, b, a):
                _, reply = await client.receive(ProduceResponse, 9)
                row = reply.responses[0].partition_responses[0]
                assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert row.base_offset == -1
        assert (await b.produce("t", b"after")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values(await b.fetch("t", 0)) == [b"before"]
        assert len(events.named("partition_failed")) == 1
        assert broker.core.ingest.unsynced_bytes == 0
        disk.sync_error = None


async def test_pipelined_produces_are_answered_in_order_by_one_sync() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.fetch("t", 0)  # opening syncs too
        disk.syncs.clear()
        sent = [await client.send(produce_request("t", batch(b"v")), 9) for _ in range(50)]
        while broker.core.ingest.unsynced_bytes < 50 * len(batch(b"v")):
            await trio.lowlevel.checkpoint()
        disk.syncs.set()
        with trio.fail_after(60):
            received = [(await client.receive(ProduceResponse, 9)) for _ in range(50)]
        assert [correlation_id for correlation_id, _ in received] == sent
        offsets = [reply.responses[0].partition_responses[0].base_offset for _, reply in received]
        assert offsets == list(range(50))


async def test_producers_wait_while_the_disk_is_behind_and_readers_do_not() -> None:
    disk = GatedStorage()
    limit = 1 << 16
    async with (
        serving(storage=disk, ingest_bytes_max=limit) as broker,
        connect(broker.address) as producer,
        connect(broker.address) as reader,
        trio.open_nursery() as nursery,
    ):
        await producer.create("t")
        await producer.create("other")
        await producer.fetch("t", 0)  # opening syncs too
        await producer.produce("other", b"seen")
        disk.syncs.clear()
        record = batch(b"x" * 10_000)

        async def produce_all() -> None:
            for _ in range(100):
                await producer.send(produce_request("t", record), 9)

        nursery.start_soon(produce_all)
        with trio.fail_after(60):
            while not broker.core.ingest.stalls:
                await trio.lowlevel.checkpoint()
            # What one receive brought is still taken; nothing after it is read.
            held = broker.core.ingest.unsynced_bytes
            assert limit < held <= limit + 4 * len(record) + (256 << 10)
            assert values(await reader.fetch("other", 0)) == [b"seen"]
            assert (await reader.fetch("t", 0, wait_ms=50)).high_watermark == 0
            assert broker.core.ingest.unsynced_bytes == held
            disk.syncs.set()
            for offset in range(100):
                _, reply = await producer.receive(ProduceResponse, 9)
                assert reply.responses[0].partition_responses[0].base_offset == offset
        assert broker.core.ingest.unsynced_bytes == 0


async def test_a_disk_too_far_behind_refuses_with_a_time_to_come_again() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, ingest_bytes_max=1 << 16) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await client.fetch("t", 0)  # opening syncs too
        ingest = broker.core.ingest
        ingest.add(ingest.bound + 1)  # as if many connections had brought it at once
        for copies in (1, 2):  # the hand-made way and the general one
            request = produce_request("t", batch(b"refused"))
            request.topic_data[0].partition_data *= copies
            async with connect(broker.address) as producer:
                await producer.send(request, 9)
                with trio.fail_after(60):
                    _, reply = await producer.receive(ProduceResponse, 9)
            rows = reply.responses[0].partition_responses
            assert [row.error_code for row in rows] == [ErrorCode.NOT_ENOUGH_REPLICAS] * copies
            assert "try again in 100 ms" in str(rows[0].error_message)
            assert reply.throttle_time_ms == 100
        ingest.settle(ingest.bound + 1)
        assert (await client.produce("t", b"accepted")).base_offset == 0


async def test_nothing_overtakes_a_batch_that_was_refused_for_a_passing_reason() -> None:
    # Five in flight of a producer that the partition does not know: its first batch is refused,
    # its second comes when there is room again.
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.fetch("t", 0)
        first = batch(b"0", b"1", producer=(7, 0, 0))
        second = batch(b"2", producer=(7, 0, 2))

        async def produce(data: bytes) -> int:
            reply = await client.ask(produce_request("t", data), ProduceResponse, 9)
            return reply.responses[0].partition_responses[0].error_code

        ingest = broker.core.ingest
        ingest.add(ingest.bound + 1)
        assert await produce(first) == ErrorCode.NOT_ENOUGH_REPLICAS
        ingest.settle(ingest.bound + 1)
        assert await produce(second) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert [await produce(first), await produce(second)] == [0, 0]
        assert values(await client.fetch("t", 0)) == [b"0", b"1", b"2"]
        assert not broker.core.refusals.lowest


async def test_nothing_overtakes_a_batch_that_a_log_opened_again_has_not_any_more() -> None:
    """Its sync failed, and the kernel has dropped its pages: the partition is without its producer,
    and writable before the second batch comes."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=3_600_000) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await client.produce("t", b"before")
        handler = broker.core.topics.served["t", 0].handler
        size = handler.size_bytes

        async def produce(sequence: int) -> tuple[int, int]:
            data = batch(b"%d" % sequence, producer=(7, 0, sequence))
            reply = await client.ask(produce_request("t", data), ProduceResponse, 9)
            row = reply.responses[0].partition_responses[0]
            return row.error_code, row.base_offset

        disk.sync_error = OSError(errno.EIO, "the disk is gone")
        assert await produce(0) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert handler.read_only is not None
        for _ in range(2):  # nothing is said of an order where nothing is taken
            assert await produce(1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        file = disk.open("/data/topics/t/partition_0/t_partition_0_segment_0.log")
        file.pwrite(bytes(len(batch(b"0"))), size)
        disk.sync_error = None
        assert await trio.to_thread.run_sync(handler.try_recover, NOW_MS)

        async def is_writable() -> bool:
            return handler.read_only is None

        await until(is_writable)
        assert handler.log_end_offset == 1, "it is gone"
        assert await produce(1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert [await produce(0), await produce(1)] == [(0, 1), (0, 2)]
        assert not broker.core.refusals.lowest


@pytest.mark.parametrize(
    ("where", "what", "producer"),
    [
        (Pending, "add", (7, 0, 0)),
        (ProducerTable, "apply", (7, 0, 0)),
        (ActiveSegment, "add", (-1, -1, -1)),
        (OutOfMemory, "append", (7, 0, 0)),
    ],
)
async def test_what_an_append_has_left_half_done_is_vouched_for_by_nothing(
    where: type,
    what: str,
    producer: tuple[int, int, int],
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory runs out between its write and the write-ahead log."""

    async def produce(client: WireClient, value: bytes, by: tuple[int, int, int]) -> int:
        request = produce_request("t", batch(value, producer=by))
        reply = await client.ask(request, ProduceResponse, 9)
        return reply.responses[0].partition_responses[0].error_code

    def runs_out(*_: object, **__: object) -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    disk = GatedStorage()
    async with serving(storage=disk, housekeeping_interval_ms=3_600_000) as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            await client.produce("t", b"before")
            handler = broker.core.topics.served["t", 0].handler
            active = handler._log.active
            active.offsets = cast("array[int]", OutOfMemory(active.offsets))
            monkeypatch.setattr(where, what, runs_out)
            nobody = (-1, -1, -1)
            assert await produce(client, b"half done", producer) == ErrorCode.KAFKA_STORAGE_ERROR
            assert await produce(client, b"behind", nobody) == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(events.named("append_failed")) == 1
            monkeypatch.setattr(failing, "salvage", runs_out)
            assert not await trio.to_thread.run_sync(handler.try_recover, NOW_MS)
            assert await trio.to_thread.run_sync(handler.try_recover, NOW_MS + 3_600_000)

            async def is_writable() -> bool:
                return handler.read_only is None

            await until(is_writable)
            assert await produce(client, b"half done", producer) == 0
            assert await produce(client, b"behind", nobody) == 0
            kept = values(await client.fetch("t", 0))
        image = disk.after_power_cut()
    assert {b"before", b"half done", b"behind"} == set(kept)
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert values(await client.fetch("t", 0)) == kept
        assert not broker.core.topics.manager.report.summary()["offsets_lost"]


async def test_what_an_append_leaves_undone_behind_the_write_ahead_log_is_done_for_who_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory runs out as soon as it is written."""

    def runs_out(*_: object, **__: object) -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    request = produce_request("t", batch(b"0", producer=(7, 0, 0)))
    async with serving() as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            monkeypatch.setattr(DiskHandler, "_appended", runs_out)
            await client.send(request, 9)
            assert await client.is_closed()
        async with connect(broker.address) as client:
            reply = await client.ask(request, ProduceResponse, 9)
            assert reply.responses[0].partition_responses[0].error_code == 0
            assert values(await client.fetch("t", 0)) == [b"0"]


@pytest.mark.parametrize("where", [Turn, shard, background])
async def test_what_could_not_be_asked_for_is_asked_for_with_the_next_batch(
    where: type | ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync, where memory runs out as it is put into its queue."""
    ran_out: list[object] = []

    def runs_out(item: object) -> None:
        if not ran_out and (hasattr(item, "sync") or hasattr(item, "take_frames")):
            ran_out.append(item)
            raise MemoryError

    class Queue(SimpleQueue[object]):
        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            if waits:
                runs_out(item)
            super().put(item, block, timeout)

    waits = False
    if where is not Turn:
        monkeypatch.setattr(where, "SimpleQueue", Queue)
    content = bytes(
        ((1 << 20) - 100) if where is background else 1
    )  # too large for a file of the WAL
    async with serving() as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            await client.produce("t", b"before")
            waits = True
            if where is Turn:
                monkeypatch.setattr(Turn, "sync", lambda _, partition: runs_out(partition))
            await client.send(produce_request("t", batch(content)), 9)
            await becomes(lambda: bool(ran_out))
        if where is Turn:
            monkeypatch.undo()
        async with connect(broker.address) as client:
            assert (await client.produce("t", content)).error_code == 0
            assert (await client.produce("t", b"behind")).error_code == 0


class RunsOut:
    """Memory, for the next few calls."""

    times = 0

    def __call__(self) -> None:
        if self.times:
            self.times -= 1
            raise MemoryError


@pytest.mark.parametrize("what", ["take", "tell"])
async def test_the_writer_of_the_write_ahead_log_goes_on_when_there_is_memory(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs out as the writer takes what waits, or for who is to hear of it, of a failure too."""
    runs_out = RunsOut()

    class Queue(SimpleQueue[object]):
        def empty(self) -> bool:
            if what == "take":
                runs_out()
            return super().empty()

    def settle(self: Group, error: OSError | None, call_soon: CallSoon) -> None:
        runs_out()
        settles(self, error, call_soon)

    settles = Group.settle
    monkeypatch.setattr(shard, "SimpleQueue", Queue)
    if what == "tell":
        monkeypatch.setattr(Group, "settle", settle)
    disk = GatedStorage()
    async with serving(storage=disk, housekeeping_interval_ms=10) as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            runs_out.times = 2
            codes = [(await client.produce("t", b"0")).error_code]

            async def is_written() -> bool:
                codes.append((await client.produce("t", b"1")).error_code)
                return codes[-1] == 0

            await until(is_written)
            assert not runs_out.times
            assert {*codes} <= {0, ErrorCode.KAFKA_STORAGE_ERROR}
            kept = values(await client.fetch("t", 0))
        image = disk.after_power_cut()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert values(await client.fetch("t", 0)) == kept
        assert not broker.core.topics.manager.report.summary()["offsets_lost"]


@pytest.mark.parametrize("what", ["queue", "state"])
async def test_an_event_that_there_is_no_memory_for_is_refused_and_happens_when_it_is_repeated(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the creation of a topic a thread waits for it, of a commit the loop is told."""
    runs_out = RunsOut()

    class Queue(SimpleQueue[object]):
        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            if what == "queue" and isinstance(item, Request) and item.has_events:
                runs_out()
            super().put(item, block, timeout)

    def applied(state: Metadata, events: Iterable[Event]) -> Metadata:
        if what == "state":
            runs_out()
        return apply_all(state, events)

    async def commit(offset: int) -> int:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
        reply = await client.ask(request, OffsetCommitResponse, 7)
        return reply.topics[0].partitions[0].error_code

    monkeypatch.setattr(shard, "SimpleQueue", Queue)
    monkeypatch.setattr(metadata_log, "apply_all", applied)
    disk = GatedStorage()
    async with serving(storage=disk, housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker:
        async with connect(broker.address) as client:
            runs_out.times = 1
            assert (await client.try_create("t"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
            await client.create("t")
            assert await commit(1) == 0
            runs_out.times = 1
            assert await commit(2) != 0
            assert await stands(client, "g", "t", stable=True) == (0, 1)
            assert await commit(3) == 0
        image = disk.after_power_cut()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, "g", "t", stable=True) == (0, 3)
        # What the topic that was refused has left is removed by the way.
        assert {row.what for row in broker.core.topics.manager.report.rows} <= {"orphan_removed"}


async def test_what_the_house_keepers_could_not_be_asked_for_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next files of the write-ahead log and of a partition, a checkpoint, a sealing, retention:
    each once finds no memory in its queue."""
    refused = {
        "Supply._make": -1,
        "Wal.checkpoint": -1,
        "Rolling._make_ready": -1,
        "Rolling._seal": -1,
        "Evicting._evict": -1,
    }
    """How often each was asked for since it was refused; -1: it was not."""

    class Queue(SimpleQueue[object]):
        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            name = getattr(item, "__qualname__", "")
            if is_written and name in refused:
                refused[name] += 1
                if not refused[name]:
                    raise MemoryError
            super().put(item, block, timeout)

    is_written = False
    monkeypatch.setattr(background, "SimpleQueue", Queue)
    async with serving(housekeeping_interval_ms=10) as broker:
        async with connect(broker.address) as client:
            await client.create("t", segment_bytes="100000", retention_bytes="1000000")
            await client.produce("t", b"0")
        is_written = True
        with trio.fail_after(60):
            while min(refused.values()) < 1:
                async with connect(broker.address) as client:
                    with suppress(Closed, trio.BrokenResourceError):
                        await client.produce("t", bytes(90_000))
        is_written = False
        async with connect(broker.address) as client:

            async def goes_on() -> bool:
                return (await client.produce("t", b"1")).error_code == 0

            await until(goes_on)


async def test_a_transaction_ends_when_there_is_memory_for_its_marker(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs_out(*_: object, **__: object) -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    async with serving(housekeeping_interval_ms=10) as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "x")
        await tx.init()
        assert await tx.send("t", b"0") == 0
        monkeypatch.setattr(Pending, "add", runs_out)
        assert await tx.end(commit=True) == 0

        async def has_ended() -> bool:
            return await tx.init() == 0

        await until(has_ended)
        (line, *_) = events.named("marker_not_written")
        assert (line["producer_id"], line["outcome"]) == (tx.producer_id, "COMMIT")
        assert await stable_end(client, "t") == 2, "the record and one marker"


async def test_a_turn_ends_when_there_is_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs_out() -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        monkeypatch.setattr(turn, "Pace", runs_out)
        assert (await client.produce("t", b"0")).error_code == 0


async def test_a_connection_ends_that_has_an_answer_for_which_there_is_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To a commit, behind its sync; who waited for it asks again."""

    def runs_out(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
    async with serving() as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            monkeypatch.setattr(later_reply, "encode_response", runs_out)
            await client.send(request, 7)
            assert await client.is_closed()
        async with connect(broker.address) as client:
            assert await stands(client, "g", "t", stable=True) == (0, 1)


async def test_a_produce_of_several_partitions_is_answered_though_it_could_not_be_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory runs out behind its sync: who is settled does not even time out."""

    def runs_out(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    async with serving() as broker, connect(broker.address) as client:
        for name in ("t", "u"):
            await client.create(name)
        request = produce_request("t", batch(b"0"))
        request.topic_data += produce_request("u", batch(b"0")).topic_data
        monkeypatch.setattr(Tally, "answered", runs_out)
        await client.send(request, 9)
        with trio.fail_after(60):
            _, reply = await client.receive(ProduceResponse, 9)
        assert [one.partition_responses[0].error_code for one in reply.responses] == [0, 0]


async def test_where_no_timeout_can_be_noted_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out behind the append of many, on the express way."""

    def runs_out(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"0")
        assert broker.express is not None
        before = broker.express.requests
        monkeypatch.setattr(Deadlines, "add", runs_out)
        assert (await client.produce("t", b"1")).error_code == 0
        assert (await client.produce("t", b"2")).error_code == 0
        assert broker.express.requests == before + 2


@pytest.mark.parametrize("acks", [1, -1])
async def test_who_was_answered_is_sent_it_though_its_deadline_cannot_be_forgotten(
    acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory runs out as the heap of deadlines is made anew without those that are over."""

    def runs_out(*_: object) -> NoReturn:
        ran_out.append(None)
        raise MemoryError

    ran_out: list[None] = []
    monkeypatch.setattr(deadlines, "_REBUILD_LEAST", 0)
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.fetch("t", 0)
        monkeypatch.setattr(heapq, "heapify", runs_out)
        disk.syncs.clear()
        await client.send(produce_request("t", batch(b"v"), acks=acks), 9)
        await becomes(lambda: broker.core.ingest.unsynced_bytes > 0)
        disk.syncs.set()
        with trio.fail_after(60):
            _, reply = await client.receive(ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        assert ran_out


async def test_a_drain_waits_for_the_sync_of_what_is_in_flight() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.fetch("t", 0)  # opening syncs too
        disk.syncs.clear()
        await client.send(produce_request("t", batch(b"v")), 9)
        while not broker.core.ingest.unsynced_bytes:
            await trio.lowlevel.checkpoint()
        broker.drain()
        disk.syncs.set()
        with trio.fail_after(60):
            _, reply = await client.receive(ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0


async def test_a_cold_read_holds_up_neither_writes_nor_other_readers() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as cold,
        connect(broker.address) as warm,
    ):
        await warm.create("t")
        await warm.create("u")
        await warm.produce("t", b"cold")
        await warm.produce("u", b"warm")
        assert values(await warm.fetch("u", 0)) == [b"warm"]  # its file is open from now on
        before = broker.core.counters.lane_reads
        disk.cached = False
        disk.reads.clear()
        await cold.send(fetch_request("t", 0), 12)
        await cold.send(produce_request("u", batch(b"behind the read")), 9)
        while broker.core.counters.lane_reads == before:
            await trio.lowlevel.checkpoint()
        disk.cached = True
        with trio.fail_after(60):
            await warm.produce("t", b"more")
            assert values(await warm.fetch("u", 1, wait_ms=60_000)) == [b"behind the read"]
        disk.reads.set()
        with trio.fail_after(60):
            _, reply = await cold.receive(FetchResponse, 12)
            await cold.receive(ProduceResponse, 9)
        assert values(reply.responses[0].partitions[0])[0] == b"cold"
        assert broker.core.pool.lent_bytes == 0


@pytest.mark.parametrize("asks_further", [False, True], ids=["only that", "more behind it"])
async def test_a_slow_reader_of_cold_data_gives_way_to_who_waits_for_its_buffer(
    asks_further: bool,
) -> None:
    disk = GatedStorage()
    value = b"x" * 1_000_000
    async with serving(storage=disk, fetch_buffer_bytes_max=1 << 20) as broker:
        # What a reader does not take is not taken by its socket either.
        broker.listeners[0].sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        async with connect(broker.address) as slow, connect(broker.address) as client:
            slow.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            await client.create("t")
            await client.produce("t", value)
            disk.cached = False
            disk.reads.clear()
            await slow.send(fetch_request("t", 0), 12)
            behind = await slow.send(MetadataRequest(topics=[]), 12) if asks_further else None
            while not broker.core.counters.lane_reads:
                await trio.lowlevel.checkpoint()
            await client.send(fetch_request("t", 0), 12)
            while not broker.core.pool._line:
                await trio.lowlevel.checkpoint()
            disk.reads.set()
            with trio.fail_after(60):
                for reader in (client, slow):
                    _, reply = await reader.receive(FetchResponse, 12)
                    assert values(reply.responses[0].partitions[0]) == [value]
                if behind is not None:  # it is answered, and waits for its turn
                    assert (await slow.receive(MetadataResponse, 12))[0] == behind
        assert broker.core.pool.lent_bytes == 0


async def test_a_reader_that_leaves_during_a_cold_read_leaves_no_buffer_behind() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"v")
        disk.cached = False
        disk.reads.clear()
        async with connect(broker.address) as reader:
            await reader.send(fetch_request("t", 0), 12)
            while not broker.core.counters.lane_reads:
                await trio.lowlevel.checkpoint()
        while broker.connections > 1:
            await trio.lowlevel.checkpoint()
        disk.reads.set()
        with trio.fail_after(60):
            while broker.core.pool.lent_bytes:
                await trio.lowlevel.checkpoint()


async def test_a_read_that_fails_is_told_with_its_partition(events: Events) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await client.produce("t", b"v")
        disk.cached, disk.read_error = False, OSError(errno.EIO, "a bad block")
        for _ in range(OF_ONE_MAX + 2):
            await client.send(fetch_request("t", 0), 12)
            _, reply = await client.receive(FetchResponse, 12)
            (row,) = reply.responses[0].partitions
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        lines = events.named("read_failed")
        assert len(lines) == OF_ONE_MAX, "a client in a loop does not fill the log"
        assert (lines[0]["topic"], lines[0]["partition"]) == ("t", 0)
        assert "a bad block" in lines[0]["error"]
        disk.read_error = None
        info = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        newest = {"topic": "t", "partition": 0, "why": lines[0]["error"], "at_ms": ANY}
        assert info["failed_reads"] == {"count": OF_ONE_MAX + 2, "newest": newest}
        tell_sums(broker.core, math.inf)
        assert events.named("read_lines_omitted")[0]["read_failed_count"] == 2


async def test_wrong_bytes_are_reported_and_never_sent(events: Events) -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability="disk")  # else the write-ahead log has it, too
        await client.produce("t", b"value" * 100)
        folder = "/data/topics/t/partition_0"
        (name,) = [one for one in disk.listdir(folder) if one.endswith("_segment_0.log")]
        file = disk.open(f"{folder}/{name}")
        file.pwrite(b"X", 200)
        file.close()
        row = await client.fetch("t", 0)  # repaired under this one: nothing, and no error
        assert (row.error_code, values(row)) == (ErrorCode.NONE, [])
        row = await client.fetch("t", 0)
        (notice,) = iter_batches(cast(bytes, row.records))
        assert gap_reason(read_header(notice)) is GapReason.CORRUPTION
        (event,) = events.named("recovery_gap")
        assert (event["from"], event["to"], event["partition"]) == (0, 1, 0)


async def test_a_partition_that_refuses_damage_answers_with_an_error_from_then_on() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability="disk", on_corruption="refuse")
        await client.produce("t", b"value" * 100)
        file = disk.open("/data/topics/t/partition_0/t_partition_0_segment_0.log")
        file.pwrite(b"X", 200)
        file.close()
        row = await client.fetch("t", 0)
        assert (row.error_code, values(row)) == (ErrorCode.CORRUPT_MESSAGE, [])
        row = await client.fetch("t", 0)
        assert row.error_code == ErrorCode.POLICY_VIOLATION
        assert (await client.produce("t", b"more")).error_code == ErrorCode.POLICY_VIOLATION


async def test_what_a_partition_refuses_again_and_again_is_not_remembered_each_time() -> None:
    """Producers try for days where nobody looks: a reason that is raised keeps the frames that it
    went through, and the requests in them."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=3_600_000) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", durability="disk", on_corruption="refuse")
        await client.produce("t", b"value" * 100)
        file = disk.open("/data/topics/t/partition_0/t_partition_0_segment_0.log")
        file.pwrite(b"X", 200)
        file.close()
        assert (await client.fetch("t", 0)).error_code == ErrorCode.CORRUPT_MESSAGE
        handler = broker.core.topics.served["t", 0].handler
        deletion = DeleteRecordsRequestTopic(
            name="t", partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=0)]
        )
        idempotent = produce_request("t", batch(b"more", producer=(7, 0, 0)))
        for ask in (
            lambda: client.produce("t", b"more"),
            lambda: client.ask(idempotent, ProduceResponse, 9),
            lambda: client.fetch("t", 0),
            lambda: client.ask(
                DeleteRecordsRequest(topics=[deletion], timeout_ms=0), DeleteRecordsResponse, 2
            ),
        ):
            depths = []
            for _ in range(2):
                await ask()
                assert handler.read_only is not None
                depths.append(len([*traceback.walk_tb(handler.read_only.__traceback__)]))
            assert depths[0] == depths[1]


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_what_could_not_be_reserved_when_it_was_appended_is_when_the_log_is_open_again(
    durability: str,
) -> None:
    """Its producer sends it again, a duplicate then, and nobody else writes to the partition."""
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=20) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", durability=durability)
        producer = Tx(client, "a")
        assert await producer.init() == 0
        await client.fetch("t", 0)
        disk.sync_error = OSError(errno.EIO, "for a moment")
        code = await producer.send("t", b"v", version=8, transactional=False)
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error = None

        async def is_writable() -> bool:
            return broker.core.topics.served["t", 0].handler.read_only is None

        await until(is_writable)
        with trio.fail_after(20):
            assert await producer.send("t", b"v", version=8, transactional=False) == 0
        assert values(await client.fetch("t", 0)) == [b"v"]

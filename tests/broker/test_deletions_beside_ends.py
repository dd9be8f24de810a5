"""Transactions end in a topic while somebody deletes it, or tries to."""

import errno

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.partitions.partition import Partition
from segbroker.broker.partitions.topics import Topics
from segbroker.broker.server import Broker
from segbroker.broker.transactions.markers import APPENDED_AT_ONCE
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsResponse
from segbroker.segments.errors import PartitionReadOnly

from ..support.gated_storage import GatedStorage
from ..support.wire_client import connect, values
from ..support.wire_transactions import V2, Tx, aborted, read, until
from .conftest import serving


async def delete(broker: Broker, code: ErrorCode) -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
    async with connect(broker.address) as client:
        answer = await client.ask(request, DeleteTopicsResponse, 4)
    assert answer.responses[0].error_code == code


async def test_a_topic_that_was_to_be_deleted_and_was_not_has_the_end_of_what_was_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 0.1)
    opened = Topics.open
    is_missed = trio.Event()

    async def noted(self: Topics, name: str, index: int) -> Partition | None:
        found = await opened(self, name, index)
        if found is None:
            is_missed.set()
        return found

    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "a", V2)
        assert await tx.init() == 0
        assert await tx.send("t", b"committed") == 0
        handler = broker.core.topics.served["t", 0].handler
        handler.read_only = PartitionReadOnly("t", 0, "says the test")
        assert await tx.end(commit=True) == 0
        monkeypatch.setattr(Topics, "open", noted)
        is_held = disk.hold("/data/wal/")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete, broker, ErrorCode.KAFKA_STORAGE_ERROR)
            await trio.to_thread.run_sync(is_held.wait)
            await is_missed.wait()
            handler.read_only = None
            disk.sync_error = OSError(errno.EIO, "the disk is gone")
            disk.release()
        disk.sync_error = None

        async def is_over() -> bool:
            row = await read(client, "t")
            return not row.error_code and row.last_stable_offset == row.high_watermark == 2

        await until(is_over)
        row = await read(client, "t")
        assert (values(row)[:1], aborted(row)) == ([b"committed"], [])


async def test_a_marker_that_was_about_to_be_written_is_not_waited_for_when_the_topic_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where more end at once than are appended in one pass of the loop."""
    monkeypatch.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 0.1)
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "a", V2)
        assert await tx.init() == 0
        assert await tx.send("t", b"v") == 0
        appending = broker.core.transactions._ledger._markers._appending
        others = [object() for _ in range(APPENDED_AT_ONCE)]
        for one in others:
            appending.acquire_on_behalf_of_nowait(one)
        assert await tx.end(commit=True) == 0
        assert appending.statistics().tasks_waiting == 1
        is_held = disk.hold("/data/wal/")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete, broker, ErrorCode.NONE)
            await trio.to_thread.run_sync(is_held.wait)
            for one in others:
                appending.release_on_behalf_of(one)
            await wait_all_tasks_blocked()
            disk.release()

        async def goes_on() -> bool:
            return await tx.init() == 0

        await until(goes_on)


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_what_is_committed_beside_a_deletion_is_whole_if_the_power_goes_before_that(
    durability: str,
) -> None:
    """The deletion waits: the threads that would do it are busy."""
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", durability=durability)
        await client.create("sound")
        tx = Tx(client, "a", V2)
        assert await tx.init() == 0
        assert await tx.send("t", b"is not synced") == 0
        assert await tx.send("sound", b"s") == 0
        limiter = broker.core.lanes._limiter
        others = [object() for _ in range(int(limiter.total_tokens))]
        for one in others:
            await limiter.acquire_on_behalf_of(one)  # housekeeping may have some
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete, broker, ErrorCode.NONE)

            async def is_begun() -> bool:
                return broker.core.topics.get("t") is None

            await until(is_begun)
            code = await tx.end(commit=True)
            image = disk.after_power_cut()
            for one in others:
                limiter.release_on_behalf_of(one)
        if code:
            assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await tx.end(commit=True) == 0
        assert values(await read(client, "sound"))[:1] == [b"s"]
    async with serving(storage=image) as broker, connect(broker.address) as client:

        async def is_over() -> bool:
            row = await read(client, "sound")
            return row.last_stable_offset == row.high_watermark == 2

        await until(is_over)
        is_whole = values(await read(client, "t"))[:1] == [b"is not synced"]
        assert is_whole or aborted(await read(client, "sound")), "committed, and half of it is gone"

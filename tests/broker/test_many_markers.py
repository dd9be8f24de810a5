"""A transaction of many partitions ends, and everybody else goes on meanwhile."""

from collections.abc import Sequence
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.partitions.partition import Partition
from segbroker.broker.partitions.topics import Topics
from segbroker.broker.transactions.markers import APPENDED_AT_ONCE
from segbroker.protocol.record_batch import BatchHeader
from segbroker.segments.partition.handler import AppendResult

from ..support.gated_storage import GatedStorage
from ..support.wire_client import connect
from ..support.wire_transactions import V1, Tx
from .conftest import serving


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c", "d"]], ids=["one", "several-at-once"])
async def test_so_many_markers_are_appended_before_others_have_their_turn(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, appended = 0, dict[int, int]()
    append = Partition.append

    def counted(
        self: Partition, batch: memoryview, header: BatchHeader, now_ms: int
    ) -> AppendResult:
        if header.is_control:
            appended[passes] = appended.get(passes, 0) + 1
        return append(self, batch, header, now_ms)

    monkeypatch.setattr(Partition, "append", counted)
    monkeypatch.setattr("segbroker.broker.transactions.ledger.MARKERS_WAIT_SECONDS", 600)
    count = 5 * APPENDED_AT_ONCE
    each = count // len(names)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", count)
        for n, name in enumerate(names):
            tx = Tx(client, name, V1)
            assert await tx.init(timeout_ms=900_000) == 0
            for partition in range(n * each, (n + 1) * each):
                assert await tx.send("t", b"v", partition=partition) == 0
        async with trio.open_nursery() as nursery:

            async def go_round() -> None:
                nonlocal passes
                while True:
                    await trio.lowlevel.checkpoint()
                    passes += 1

            nursery.start_soon(go_round)
            code, gone = await broker.core.query_batches.forget(names, None)
            assert (code, gone) == (0, len(names))
            nursery.cancel_scope.cancel()
    assert sum(appended.values()) == count
    # The last of one pass may come behind the first of the next: trio shuffles them.
    assert max(appended.values()) <= 2 * APPENDED_AT_ONCE


async def test_lanes_are_left_for_others_while_partitions_are_synced() -> None:
    """Of class `disk`: each is synced before the decision, and again with its marker."""
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
    ):
        count = 3 * broker.core.config.lanes
        await client.create("t", count, durability="disk")
        tx = Tx(client, "a", V1)
        assert await tx.init() == 0
        for partition in range(count):
            assert await tx.send("t", b"v", partition=partition) == 0
        disk.syncs.clear()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(tx.end, commit=True))
                await wait_all_tasks_blocked(0.05)
                assert broker.core.lanes.busy > 1, "they are being synced"
                with trio.fail_after(60):
                    assert await broker.core.lanes.run(int) == 0
                disk.syncs.set()
        finally:
            disk.syncs.set()


@pytest.mark.parametrize("durability", ["fsync", "disk"])
async def test_lanes_are_left_for_others_while_partitions_are_opened(
    durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand stood in line for a lane, and whoever came after them waited for all: a request
    that is decoded in one, too."""
    opening = most = opened = 0

    async def counted(self: Topics, keys: Sequence[tuple[str, int]]) -> object:
        nonlocal opening, most, opened
        opening, opened = opening + 1, opened + len(keys)
        most = max(most, opening)
        try:
            return await open_some(self, keys)
        finally:
            opening -= 1

    open_some = Topics._open_some
    monkeypatch.setattr(Topics, "_open_some", counted)
    async with serving() as broker, connect(broker.address) as client:
        count = 5 * broker.core.config.lanes
        await client.create("t", count, durability=durability)
        tx = Tx(client, "a", V1)
        assert await tx.init() == 0
        assert set(await tx.add("t", *range(count))) == {0}
        assert await tx.end(commit=True) == 0
    assert opened == count
    assert most < broker.core.config.lanes

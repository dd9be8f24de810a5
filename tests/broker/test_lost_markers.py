"""The marker of an aborted transaction is lost to damage, and its producer goes on: what it commits
later is not hidden by a reader who waits for that marker, and what was aborted is not shown."""

import pytest
import trio

from segbroker.broker.partitions.isolation import committed_part
from segbroker.client.reply_walk import walk
from segbroker.protocol.markers import Outcome
from segbroker.protocol.record_batch import (
    GapReason,
    gap_batches,
    iter_batches,
    patch_batch,
    read_header,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.log.transaction_index import TransactionIndex

from ..segments.tools import batch_of, flip, lose_wal
from ..support.waiting import DEADLINE_S
from ..support.wire_client import WireClient, connect
from ..support.wire_transactions import VERSIONS, Tx, read, stable_end
from .conftest import Events, serving

LOG = "/data/topics/t/partition_0/t_partition_0_segment_0.log"


def place_of(disk: MemoryStorage, offset: int) -> int:
    """The byte at which a batch begins."""
    at = 0
    for batch in iter_batches(memoryview(read_file(disk, LOG))):
        if read_header(batch).base_offset == offset:
            return at
        at += len(batch)
    raise AssertionError(offset)


def numbered(offset: int) -> bytes:
    """A batch of one record there."""
    batch = batch_of(b"v")
    patch_batch(batch, offset, 0)
    return bytes(batch)


async def seen(client: WireClient, offset: int) -> list[int]:
    """Offsets of the records that a client shows which reads committed records from there."""
    found = []
    while (row := await read(client, "t", offset)).records:
        for header, batch, _ in walk(row, offset):
            offset = header.next_offset
            if batch is not None:
                found.append(header.base_offset)
    return found


def test_a_reply_ends_with_the_first_gap_that_a_range_ends_in() -> None:
    """| 0 | 1 gap, of nobody's marker | 2 | 3 gap, of a marker | 4 |   aborted: [(7, 2, 3)]"""
    index = TransactionIndex()
    index.began(7, 2)
    index.ended(7, Outcome.ABORT, 3)
    batches = [
        numbered(0),
        *gap_batches(1, 2, GapReason.CORRUPTION, 1, 0),
        numbered(2),
        *gap_batches(3, 4, GapReason.CORRUPTION, 1, 0),
        numbered(4),
    ]
    for fetch_offset, end in ((0, 4), (2, 4), (3, 4), (4, 5)):
        records = memoryview(b"".join(batches[fetch_offset:]))
        sent, rows = committed_part(index.ranges(), fetch_offset, records)
        assert sent == b"".join(batches[fetch_offset:end])
        assert [row.first_offset for row in rows] == ([2] if fetch_offset < 4 else [])


@VERSIONS
@pytest.mark.parametrize("lost", [(1,), (0, 1), (0,), (3,), (5,), (1, 5)])
async def test_what_a_producer_commits_behind_a_lost_marker_is_seen(
    version: int, lost: tuple[int, ...]
) -> None:
    # | 0 | 1 abort | 2 | 3 commit | 4 | 5 abort | 6 | 7 commit |
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "a", version)
        assert await tx.init() == 0
        for commits in (False, True, False, True):
            assert await tx.send("t", b"of a transaction") == 0
            assert await tx.end(commit=commits) == 0
        assert await seen(client, 0) == [2, 6]
    lose_wal(disk)
    for offset in lost:
        flip(disk, LOG, place_of(disk, offset) + 70)
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        for offset in range(9):
            assert await seen(client, offset) == [one for one in (2, 6) if one >= offset]


@VERSIONS
async def test_a_commit_of_which_nothing_but_the_lost_marker_spoke_is_hidden_and_that_is_told(
    version: int, events: Events
) -> None:
    """| 0 | 1 commit | 2 | 3 commit | 4 |   rather hidden than shown half; the log goes on"""
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "a", version)
        assert await tx.init() == 0
        for _ in range(2):
            assert await tx.send("t", b"of a transaction") == 0
            assert await tx.end(commit=True) == 0
        await client.produce("t", b"behind it")
        await client.create("another")  # a sync of what says that the markers are there
        killed = disk.after_kill()
    lose_wal(killed)
    flip(killed, LOG, place_of(killed, 3) + 70)
    async with serving(storage=killed) as broker, connect(broker.address) as client:
        with trio.fail_after(DEADLINE_S):  # it holds up nobody
            while await stable_end(client, "t") < 6:
                await trio.lowlevel.checkpoint()
        assert await seen(client, 0) == [0, 4]
        (hangs,) = events.named("transaction_hangs")
        assert hangs["first_offset"] == 2
        (gap,) = events.named("recovery_gap")
        assert (gap["from"], gap["to"], gap["reason"]) == (3, 4, "corruption")
        plain = await client.fetch("t", 0)
        offsets = [header.base_offset for header, _, _ in walk(plain, 0)]
        assert offsets == [0, 1, 2, 3, 4, 5], "who reads all of it has it"

r"""One cleaning of one compacted log, in steps: learn the dirty part's keys, write segments anew.

    dirt      what can be cleaned now (dirtiness.py)
    learn     the dirty part, batch by batch -> where each key was written last, as far as it fits
    filter    every segment up to there -> what is left, together with that of the next -> swap_in
    note      CLEANED row: everything below was cleaned, since when; none if nobody knows the time

    sealed 0 | sealed 1 | sealed 2 | sealed 3 |   learnt: [2, 3]
    \________ new 1 ___/ \___ as it was ______/   read: all; written: what changes

Segments go together into one as long as what is left, and all of the next, fits into one
(segment.bytes, .records, .index.bytes), and their leader epoch is the same.  One of which nothing
goes, alone, is not touched.

A generator, so that who drives it says how fast: it yields the bytes that it has read, at most
about READ_SIZE at a time, and holds no lock in between.  Memory: the offset map, a read, and what
NewSegment collects.

Damage (CorruptSegment) ends the cleaning: nothing of the segment was used, its repair is the
caller's.  What was swapped in before stays; the clean point is only moved at the end.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from segbroker.protocol.record_batch import InvalidBatch, iter_batches, read_header

from ..errors import CorruptSegment
from ..files.manifest import Row
from ..log.partition_log import PartitionLog
from ..log.producer_snapshot import save_producers
from ..log.sealed import SealedFiles
from .dirtiness import Dirt, dirt_of
from .offset_map import OffsetMap
from .survivors import Counts, Survivors
from .swapping import NewSegment, swap_in

READ_SIZE: Final = 256 << 10


class Limits(NamedTuple):
    """What a cleaning may do.

    offset: nothing at or past it is cleaned, the last stable one.  buffer_bytes: for the keys.
    age_ms: the time to measure ages by; None: the clock is not to be trusted.
    """

    offset: int
    buffer_bytes: int
    now_ms: int
    age_ms: int | None


class Cleaned(NamedTuple):
    """What came of a cleaning."""

    end_offset: int
    """Below it the log is clean; the clean point of before where nothing could be done."""
    counts: Counts
    segments_before: int
    segments_after: int
    segments_written: int
    keys: int
    is_whole: bool
    """Whether all of the dirty part was learnt: its keys fitted into the buffer."""


class Interrupted(Exception):
    """The log was closed, or changed by others: its next cleaning begins anew."""


def dirt(log: PartitionLog, limits: Limits) -> Dirt:
    """What could be cleaned now."""
    lag_ms = log.config.min_compaction_lag_ms
    too_young_ms = None
    if lag_ms:
        too_young_ms = -1 if limits.age_ms is None else limits.age_ms - lag_ms + 1
    with log.state_lock:
        return dirt_of(log.sealed, log.cleaned.end_offset, limits.offset, too_young_ms)


def clean(log: PartitionLog, limits: Limits) -> Generator[int, None, Cleaned]:
    """Clean the log; yields the bytes of each read.

    Raises CorruptSegment, Interrupted, StorageError, OSError.
    """
    with log.seal_lock:  # not the lock that appends and reads wait for: there may be very many
        found = dirt(log, limits)
        rows = [row for row in log.sealed.rows() if row.base_offset < found.end]
    dirty = [row for row in rows if row.end_offset > found.begin]
    survivors = _survivors(log, limits, sum(row.records for row in dirty), found.end)
    survivors.until = found.begin
    yield from _learn(log, survivors, dirty, found)
    until = survivors.until
    todo = deque(row for row in rows if row.base_offset < until)
    before, after, written = len(todo), 0, 0
    while todo:
        if _is_evicted(log, todo[0]):
            todo.popleft()
            continue
        new = NewSegment(log)
        survivors.changed = False
        try:
            while todo and new.has_room(todo[0]):
                new.begin(todo[0])
                yield from _filter(log, survivors, todo.popleft(), new)
            for left in survivors.flush():
                new.add(left)
        except Interrupted:
            new.abandon()
            if not _is_evicted(log, new.rows[0]):
                raise
            for _ in survivors.flush():
                pass  # of what is read again
            todo.extendleft(reversed(new.rows))  # retention took the beginning of it
            continue
        except BaseException:
            new.abandon()
            raise
        after += 1
        survivors.counts.bytes_before += sum(row.size for row in new.rows)
        survivors.counts.bytes_after += new.size
        if not survivors.changed and len(new.rows) == 1:
            new.abandon()
            continue
        if survivors.dropped:
            try:
                _forget(log, survivors)
            except BaseException:
                new.abandon()
                raise
        if not swap_in(log, new):
            if log.config.compacts and _is_evicted(log, new.rows[0]):
                todo.extendleft(reversed(new.rows))
                continue
            raise Interrupted
        written += 1
    _note(log, survivors, limits)
    return Cleaned(
        until,
        survivors.counts,
        before,
        after,
        written,
        survivors.keys_count,
        until >= found.end,
    )


def _survivors(log: PartitionLog, limits: Limits, keys: int, end: int) -> Survivors:
    with log.append_lock:
        producers = log.producers.copy()
    first = log.first_base_offset
    return Survivors(
        OffsetMap(limits.buffer_bytes, keys, log.storage.random_bytes(16)),
        log.cleaned,
        producers.rows(),
        producers.transactions.ranges().between(first, end),
        age_ms=limits.age_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        now_ms=limits.now_ms,
    )


def _learn(
    log: PartitionLog, survivors: Survivors, dirty: Sequence[Row], found: Dirt
) -> Generator[int, None, None]:
    for row in dirty:
        if _is_evicted(log, row):
            survivors.until = row.end_offset  # there is nothing to be learnt any more
            continue
        for run in _runs(log, row):
            for batch in iter_batches(run):
                if read_header(batch).next_offset <= found.begin:
                    continue  # a round before came so far
                try:
                    if not survivors.learn(batch):
                        return
                except InvalidBatch as exc:
                    raise CorruptSegment(log.paths.log(row.number), 0, str(exc)) from exc
            yield len(run)


def _is_evicted(log: PartitionLog, row: Row) -> bool:
    """Whether retention, or somebody's request, took a segment meanwhile."""
    with log.state_lock:
        return row.end_offset <= log.sealed.first_base_offset


def _is_same(log: PartitionLog, row: Row) -> bool:
    """Whether the log still has the segment, as it was."""
    with log.state_lock:
        return log.sealed.row(row.number) == row


def _filter(
    log: PartitionLog, survivors: Survivors, row: Row, new: NewSegment
) -> Generator[int, None, None]:
    """Read a segment, and give `new` what is left."""
    for run in _runs(log, row):
        try:
            for batch in iter_batches(run):
                for left in survivors.filter(batch):
                    new.add(left)
        except InvalidBatch as exc:
            raise CorruptSegment(log.paths.log(row.number), 0, str(exc)) from exc
        yield len(run)


def _runs(log: PartitionLog, row: Row) -> Iterator[memoryview]:
    """The blocks of a sealed segment, verified, in runs of about READ_SIZE.

    Raises CorruptSegment, Interrupted, StorageError.
    """
    if log.is_over or not _is_same(log, row):
        raise Interrupted
    if not log.config.compacts:
        raise Interrupted  # its policy was changed meanwhile: nothing more goes
    is_current = log.files.is_current()
    try:
        yield from _verified(log.files, row)
    except CorruptSegment:
        if not _is_same(log, row) or not is_current():
            raise Interrupted from None  # repaired, put back or deleted under this read
        raise


def _verified(files: SealedFiles, row: Row) -> Iterator[memoryview]:
    """The same of a segment that has to be there."""
    index = files.index(row)
    file = files.pin(row.number)
    try:
        first = 0
        while first < len(index.blocks):
            begin, last = index.blocks[first].position, first + 1
            while last < len(index.blocks) and index.ends[last] - begin <= READ_SIZE:
                last += 1
            run = memoryview(bytearray(index.ends[last - 1] - begin))
            if file.pread(run, begin) != len(run) or (
                index.first_wrong(first, last, run) is not None
            ):
                raise CorruptSegment(file.path, begin, "XXH3-64 of a block does not match")
            yield run
            first = last
    finally:
        files.unpin(row.number, file)


def _forget(log: PartitionLog, survivors: Survivors) -> None:
    """No range outlives its marker: to readers it would reach on to the producer's next one."""
    with log.append_lock:
        log.producers.transactions.forget_at(survivors.dropped)
    with log.seal_lock:
        if log.is_over:
            raise Interrupted
        save_producers(log)
    survivors.dropped = set()


def _note(log: PartitionLog, survivors: Survivors, limits: Limits) -> None:
    """Write down how far the log is clean; forget aborted ranges whose marker is gone."""
    until = survivors.until
    with log.append_lock:
        forgotten = log.producers.transactions.forget_marked(until, survivors.markers)
    with log.seal_lock:
        if log.is_over:
            raise Interrupted
        points = log.cleaned.reached(until, limits.age_ms, log.config.delete_retention_ms)
        if points is not log.cleaned and limits.age_ms is not None:
            log.note(points.rows()[-1:])
            log.checkpointed = -1
        log.cleaned = points
        if forgotten:
            save_producers(log)

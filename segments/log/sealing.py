"""From rotating to sealed, and what a log writes down about itself.

    sync        the log files of all rotating segments
    .index      one write each, unsynced: an index is never trusted, a lost one is made again
    .manifest   the rows of all in one write, unsynced: a lost row costs a scan
    .producers  every SNAPSHOT_SEGMENTS, synced: bounds what opening replays

Segments are sealed in groups, so the cost per segment falls as the rate rises.  Only the order
matters: a row is written after its log file was synced, and a snapshot after all batches in it were
synced.

A checkpoint is the whole state, synced.  It is written when a log is closed in order, so that the
next opening has to scan nothing.  A log that was only read, or that never held anything, writes
none.
"""

from typing import Final

from ..disk.storage import write_temporary
from ..files.manifest import Row, RowKind
from .deleting import unlink_doomed
from .partition_log import PartitionLog
from .producer_snapshot import save_producers
from .segment import ActiveSegment

SNAPSHOT_SEGMENTS: Final = 16


def seal(log: PartitionLog) -> int:
    """Seal every rotating segment; how many.  Raises OSError, as `sync`."""
    with log.seal_lock:
        segments = log.rotating
        if not segments or log.is_closed:
            return 0
        log.sync(rotating_only=True)
        rows = [_write_index(log, segment) for segment in segments]
        log.note(rows)
        log.became_sealed(segments, rows)
        log.segments_since_snapshot += len(segments)
        if log.segments_since_snapshot >= SNAPSHOT_SEGMENTS:
            save_producers(log)
    return len(segments)


def _write_index(log: PartitionLog, segment: ActiveSegment) -> Row:
    index = segment.builder.finish(segment.created_ms, segment.tag)
    assert index.log_size == segment.size, "the blocks cover the segment"
    write_temporary(log.storage, log.paths.index(segment.number), index.encode(), synced=False)
    log.files.indexes.put((log.paths.folder, segment.number), index)
    return segment.row(max((block.length for block in index.blocks), default=0))


def checkpoint(log: PartitionLog) -> None:
    """Sync, save the producers and note how far everything is durable.  Raises OSError."""
    with log.seal_lock:
        taken = save_producers(log)
        row = Row(
            RowKind.CHECKPOINT, number=taken.number, end_offset=taken.end_offset, size=taken.size
        )
        log.note([row], sync=True)
        log.checkpointed = taken.end_offset


def close_log(log: PartitionLog, *, clean: bool = True, syncs: bool = False) -> None:
    """Seal, checkpoint and close; `clean` False when nothing may be written any more; `syncs`: what
    was written is made durable all the same.

    Everything is closed also when it raises.  Raises OSError; with neither nothing.
    """
    if log.is_closed:
        return
    try:
        if clean:
            if not log.is_new and (log.checkpointed != log.log_end_offset or log.rotating):
                seal(log)
                unlink_doomed(log)
                checkpoint(log)
            log.ready.close(unlink_behind=log.active.number)
        elif syncs:
            log.sync()
    finally:
        log.release()

"""A log that begins later: by request (delete records), by age, or to make room.

    START row, synced  ->  nobody reads below it any more  ->  unlink, when there is time
    ^ one row: log start, first segment, evict floor and reason

There are two phases.  Everything below a durable START row is gone for good; its files are then
`doomed` and are unlinked a few at a time (a reader that has pinned one can still read it).  A crash
in between leaves files in front of the start, which the next opening removes.

| who | log start | evict floor |
|---|---|---|
| `delete_records_before`: somebody's will | moves to the offset | stays |
| `evict`, `evict_due`: retention | moves to the end of what goes | moves along, with the reason |
| `evict` of what was deleted before | stays | stays |

Only the START row tells of a log start inside a segment, so `delete_records_before` writes the row
a second time, to `.start`; recovery goes by that where the manifest is lost, or says of an earlier
start: a row of it is missing then, and perhaps others.  A log start at the begin of a segment needs
no copy: without a manifest it is that of the first file.

A full disk must not prevent making room.  If there is no space for the row, the indexes of the
segments to be deleted go first; an index can be made again.  If there is no space for the copy of
the row, the segments themselves go at once: their row is durable already.

Invariants: evict floor <= log start <= log end; the log start, and the floor, never go back.
"""

from contextlib import suppress

import structlog

from segbroker.protocol.record_batch import GapReason

from ..errors import NO_SPACE, LogClosed, OffsetOutOfRange
from ..files.manifest import Floor, Row, encode_manifest, start_row
from .partition_log import PartitionLog
from .producer_snapshot import covers, save_producers
from .retention import Eviction, due

logger = structlog.get_logger()


def delete_records_before(log: PartitionLog, offset: int) -> int:
    """Let the log begin at `offset`; durable when this returns.  Blocking.

    Raises OffsetOutOfRange, LogClosed, OSError: then it may begin there after the next opening.
    """
    if offset > log.log_end_offset or offset < 0:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
    with log.seal_lock:
        _check_current(log)
        if offset > log.log_start_offset:
            row = _begin_at(log, offset, log.sealed.count_below(offset), log.floor)
            created_ms = log.active.created_ms
            encoded = encode_manifest(created_ms, [row], log.paths.owner)
            _save_start(log, encoded)
    return log.log_start_offset


def _save_start(log: PartitionLog, encoded: bytes) -> None:
    """The copy of the START row; where it finds no space the doomed files go first, by its row."""
    try:
        log.storage.replace_file(log.paths.start, encoded)
    except OSError as exc:
        if exc.errno not in NO_SPACE or not log.doomed:
            raise
        numbers, log.doomed = log.doomed, []
        _unlink(log, numbers)
        log.storage.replace_file(log.paths.start, encoded)


def evict(log: PartitionLog, count: int, reason: GapReason) -> int:
    """Take the first `count` sealed segments out of the log; its start.  Their files are doomed.

    Raises LogClosed, OSError: then they may be gone after the next opening.
    """
    with log.seal_lock:
        _check_current(log)
        _evict(log, min(count, len(log.sealed)), reason)
    return log.log_start_offset


def evict_due(log: PartitionLog, age_ms: int | None, high_watermark: int) -> Eviction | None:
    """Take out of the log what retention has decided on; what that was.  Blocking.

    Raises LogClosed, OSError: then it may be gone after the next opening.
    """
    with log.seal_lock:
        _check_current(log)
        eviction = due(log, age_ms, high_watermark)
        if eviction is not None:
            _evict(log, eviction.segments, eviction.reason)
    return eviction


def unlink_doomed(log: PartitionLog, limit: int | None = None) -> int:
    """Unlink the files of at most `limit` doomed segments; how many are left.

    What cannot be unlinked is tried again with the next ones, and by the close.  Raises nothing.
    """
    with log.seal_lock:
        if log.is_closed:
            return 0  # its topic may be gone, and another of that name have files called so
        if log.is_superseded or not (log.doomed or log.stuck):
            return 0
        numbers, log.doomed = log.doomed[:limit], log.doomed[len(log.doomed[:limit]) :]
        again, log.stuck = log.stuck, []
        try:
            _unlink(log, [*again, *numbers])
        except OSError as exc:
            logger.warning("evicted_segments_not_removed", path=log.paths.folder, error=str(exc))
        return len(log.doomed)


def compact_manifest(log: PartitionLog, now_ms: int) -> None:
    """Replace a manifest that is mostly history; its cost is spread over the rows that made it so.
    Not in a log that has failed: recovery goes by what its manifest says of the last swap.

    Raises OSError, which harms nothing.
    """
    with log.seal_lock:
        rows_count = len(log.sealed) + len(log.epochs) + 1
        is_over = log.is_over or log.failed is not None
        if not is_over and log.manifest.is_long(rows_count):
            log.manifest.replace(now_ms, log.manifest_rows())
            log.checkpointed = -1


def _check_current(log: PartitionLog) -> None:
    if log.is_over:
        raise LogClosed(log.paths.folder)


def _evict(log: PartitionLog, count: int, reason: GapReason | None) -> None:
    if not count:
        return
    end_offset = log.sealed.end_of(count - 1)
    floor = log.floor
    if end_offset > log.log_start_offset:
        assert reason is not None, "records go, so somebody is told why"
        floor = Floor(end_offset, reason)
    _begin_at(log, max(end_offset, log.log_start_offset), count, floor)


def _begin_at(log: PartitionLog, offset: int, count: int, floor: Floor) -> Row:
    """The START row, durably; then what readers see.  The caller holds seal_lock."""
    sealed = log.sealed
    following = sealed.numbers[count] if count < len(sealed) else sealed.next_number
    numbers = range(sealed.first_number, following)
    going = sealed.numbers[:count].tolist()
    base_offset = sealed.end_of(count - 1) if count else log.first_base_offset
    row = start_row(offset, numbers.stop, base_offset, floor)
    if count and log.failed is None and not covers(log, base_offset):
        _save_producers(log)
    try:
        log.note([row], sync=True)
    except OSError as exc:
        if exc.errno not in NO_SPACE:
            raise
        for number in going:
            if log.storage.exists(log.paths.index(number)):
                log.storage.unlink(log.paths.index(number))
        log.note([row], sync=True)
    with log.state_lock:
        sealed.drop_front(count)
        log.log_start_offset, log.floor = offset, floor
    log.files.drop(numbers)
    log.doomed += going
    log.checkpointed = -1  # the row stands behind it
    return row


def _save_producers(log: PartitionLog) -> None:
    """Raises OSError, unless the disk is full: then what is to go may go."""
    try:
        save_producers(log)
    except OSError as exc:
        if exc.errno not in NO_SPACE:
            raise
        logger.warning("producers_not_saved", path=log.paths.folder, error=str(exc))


def _unlink(log: PartitionLog, numbers: list[int]) -> None:
    """Raises OSError: some are left, in `stuck`, or may come back; the others are gone."""
    failure: OSError | None = None
    for number in numbers:
        try:
            for path in (log.paths.log(number), log.paths.index(number)):
                with suppress(FileNotFoundError):  # not for a directory that is away
                    log.storage.unlink(path)
        except OSError as exc:
            failure = failure or exc
            log.stuck.append(number)
        # A read that was planned before may have opened it since: an open file keeps its space.
        log.files.drop(range(number, number + 1))
    log.storage.fsync_dir(log.paths.folder)
    if failure is not None:
        raise failure

"""A damaged segment repaired while its log is in use: what a read or the scrub found.

    read or scrub -> CorruptSegment -> mend, in that thread, never on the loop
        the segment is active    roll: nothing is appended behind damage
        it is rotating           seal: synced, its row written
        it is sealed             read all of it:
            whole after all      the index was wrong: made again
            the WAL has of it    put back, and looked at again
            damaged, missing     copy to quarantine, then replace: whole batches, gaps between

Order: copy synced -> repaired log under the segment's name -> index -> columns and caches -> the
manifest.  A crash after the second leaves a log whose size is not that of its row; the next read
comes here, finds it whole, and corrects the row.  Its offsets are the same throughout.  So it is
where the index or the manifest cannot be written: the repair is done all the same.

Readers who pinned the old file go on reading it: the name is replaced, never the bytes.  Who had
planned a read of it, and finds another file, plans again (SegmentReplaced).

Under the log's seal_lock: one at a time, not while segments are sealed or deleted.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import structlog

from segbroker.protocol.record_batch import GapReason

from ..decisions import Loss, Scan, rebuild, scan
from ..disk.storage import NO_DESCRIPTORS, Storage, close_all, put_file, read_file
from ..errors import CorruptSegment
from ..files.index import BlockIndex, WrongIndex, decode_index
from ..files.manifest import Row
from ..log.log_storage import NamesNotSynced
from ..log.partition_log import PartitionLog
from ..log.sealed import index_of
from ..log.sealing import seal
from ..names import LogPaths
from ..report import LogReport
from ..settings.topic_config import OnCorruption
from .corruption import write_mark
from .identity import Inspection, inspect
from .repairing import quarantine

logger = structlog.get_logger()


class Recalled(NamedTuple):
    """A damaged segment with what somebody else still had of it."""

    content: memoryview
    begin: int
    end: int
    """The offsets [begin, end) were there, perhaps not all of them missing."""
    size: int
    """Bytes of them."""


Recall: TypeAlias = Callable[[Row, Inspection], Recalled | None]
"""What somebody else has of a damaged segment; None: nothing better than it is."""


class Mended(NamedTuple):
    """What was done."""

    is_whole: bool = True
    is_changed: bool = True
    is_index: bool = False
    """Only the index had to be made again."""
    damage: str = ""
    """Why nothing may be written from now on; empty when it may."""


def segment_of(log: PartitionLog, error: CorruptSegment) -> int | None:
    """The number of the segment that an error speaks of, by its log or its index."""
    name = error.path.rpartition("/")[2]
    number = log.paths.segment_number(name)
    return log.paths.index_number(name) if number is None else number


def mend(
    log: PartitionLog,
    number: int,
    now_ms: int,
    report: LogReport,
    recall: Recall = lambda row, inspected: None,
) -> Mended | None:
    """Make segment `number` whole, as on.corruption allows; None: there is none (any more).

    recall: asked before anything is given up.  Blocking; for lanes.  Raises OSError, after which
    the segment is as damaged as before.
    """
    policy = log.config.on_corruption
    _make_sealed(log, number, now_ms)
    storage, paths = log.storage, log.paths
    with log.seal_lock:
        row = log.sealed.row(number)
        if row is None or log.is_over:
            return None
        if log.failed is not None:  # since the caller has looked: recovery comes first
            raise OSError(log.failed.errno, log.failed.strerror, paths.folder)
        inspected, is_put_back = put_back(log, row, recall, report)
        if inspected.is_whole:
            mended = Mended(is_index=not is_put_back)
            data, found = inspected.data, inspected.scan
        else:
            damage = "" if policy is OnCorruption.GAP else _mark(log, row, inspected)
            if policy is OnCorruption.REFUSE:
                path, reason = paths.log(number), inspected.reason
                report.add("refused", path, row.base_offset, row.end_offset, reason=reason)
                return Mended(is_whole=False, damage=damage)
            data, found = _repair(log, row, inspected, now_ms, report)
            mended = Mended(damage=damage)
        index = index_of(data, row.base_offset, found, log.files.interval)
        if inspected.is_whole:  # of another size than its row says, no index fits
            if not _has_index(storage, paths, row, index):
                report.add("index_rebuilt", paths.index(number))
            elif not is_put_back:
                # Who met damage has an earlier file open, which somebody has replaced since.
                with log.state_lock:
                    closing = log.files.take_out(range(number, number + 1))
                close_all(closing)
                return Mended(is_changed=False)
        _take_up(log, row, data, found, index, now_ms)
        if mended.damage:
            report.add("readonly", paths.folder, reason=mended.damage)
        return mended


def put_back(
    log: PartitionLog, row: Row, recall: Recall, report: LogReport
) -> tuple[Inspection, bool]:
    """Give a damaged sealed segment what somebody else still has of it, and repair nothing; what
    stands there now, and whether it was given anything.  Durable when this returns.  The caller
    holds seal_lock.  Raises OSError."""
    inspected = inspect(log.storage, log.paths, row, log.epochs)
    recalled = None if inspected.is_whole else recall(row, inspected)
    if recalled is None:
        return inspected, False
    path = log.paths.log(row.number)
    content, reason = recalled.content, inspected.reason
    _keep_aside(log, row, inspected, report, room=len(content))
    _replace(log, row.number, inspected, content, comes_again=False)
    reason = f"a sealed segment: {reason}"
    logger.error("sealed_segment_damaged", path=path, reason=reason, advice="check the disk")
    report.add("replayed", path, recalled.begin, recalled.end, size=recalled.size, reason=reason)
    return inspect(log.storage, log.paths, row, log.epochs), True


def _mark(log: PartitionLog, row: Row, inspected: Inspection) -> str:
    """Have nothing written to the log from now on, also not by the next process; why not.  Raises
    OSError."""
    damage = f"{log.paths.log(row.number)} is damaged: {inspected.reason}"
    write_mark(log.storage, log.paths, damage, log.storage.replace_file)
    return damage


def _repair(
    log: PartitionLog, row: Row, inspected: Inspection, now_ms: int, report: LogReport
) -> tuple[memoryview, Scan]:
    """Put what is whole of a damaged segment in its place, with gaps between, durably; what stands
    there now.  Raises OSError."""
    loss = Loss(now_ms, log.epochs, row.leader_epoch, row.end_offset, GapReason.CORRUPTION)
    rebuilt = rebuild(inspected.ours, row.base_offset, row.end_offset, loss, is_followed=True)
    data = memoryview(b"".join(rebuilt.parts))
    found = scan(data, row.base_offset, epochs=log.epochs)
    assert found.next_offset == row.end_offset, "a repair keeps every offset accounted for"
    path, reason = log.paths.log(row.number), inspected.reason
    _keep_aside(log, row, inspected, report, room=len(data))
    _replace(log, row.number, inspected, data, comes_again=True)
    report.add("repaired", path, size=len(data), reason=reason)
    for gap in rebuilt.gaps:
        report.add("gap", path, gap.begin, gap.end, reason=gap.reason.name.lower())
    return data, found


def _take_up(
    log: PartitionLog, row: Row, data: memoryview, found: Scan, index: BlockIndex, now_ms: int
) -> None:
    """Go by what stands there now: the index file, the columns and caches, the manifest.  What of
    it cannot be written comes again later."""
    storage, paths, number = log.storage, log.paths, row.number
    try:
        put_file(storage, paths.index(number), index.encode())
    except OSError as exc:  # it is made again by who reads it next
        logger.warning("index_not_written", path=paths.index(number), error=str(exc))
    renewed = row._replace(
        size=len(data),
        records=sum(batch.header.records_count for batch in found.batches),
        block_size_max=max((block.length for block in index.blocks), default=0),
        tag=index.tag,
    )
    with log.state_lock:
        log.sealed.replace(renewed)
        closing = log.files.take_out(range(number, number + 1))
        log.files.indexes.put((paths.folder, number), index)
    close_all(closing)  # not under the lock: its space is given back
    if renewed != row:
        log.checkpointed = -1
        try:
            log.manifest.replace(now_ms, log.manifest_rows())
        except OSError as exc:  # written anew with its next row, or at the close
            logger.warning("manifest_not_written", path=paths.manifest, error=str(exc))


def _keep_aside(
    log: PartitionLog, row: Row, inspected: Inspection, report: LogReport, *, room: int
) -> None:
    """Copy what is damaged to quarantine, unless nothing is there.  Raises OSError."""
    data, reason = inspected.data, inspected.reason
    if len(data):
        quarantine(log.storage, log.paths, row.number, data, report, reason, room=room)


def _replace(
    log: PartitionLog,
    number: int,
    inspected: Inspection,
    content: memoryview,
    *,
    comes_again: bool,
) -> None:
    """Put a repaired segment in the place of the damaged one, durably.

    Raises OSError.  Where its name could not be synced the damage stands there again: whoever reads
    it next comes back with a new file, and is not told by what may be gone behind a power cut.
    comes_again: the damage alone is enough to repair it: if there was no descriptor to sync the
    name with, nothing is in doubt, and a power cut brings back what is repaired once more.
    """
    path, failures = log.paths.log(number), log.storage.failures
    put_file(log.storage, path, content)
    try:
        log.storage.sync_names(failures)
    except NamesNotSynced:
        with suppress(OSError):
            if len(inspected.data):
                put_file(log.storage, path, inspected.data)
            else:
                log.storage.unlink(path)
        log.files.drop(range(number, number + 1))  # somebody may have opened it in between
        raise
    except OSError as exc:
        if not comes_again or exc.errno not in NO_DESCRIPTORS:
            raise
        logger.warning("name_not_synced", path=path, error=str(exc))


def _has_index(storage: Storage, paths: LogPaths, row: Row, index: BlockIndex) -> bool:
    try:
        stored = decode_index(
            read_file(storage, paths.index(row.number)), row.base_offset, row.size, row.tag
        )
    except WrongIndex:
        return False
    except OSError as exc:
        if exc.errno in NO_DESCRIPTORS:
            raise
        return False  # missing, or the disk has lost it
    return stored.blocks == index.blocks


def _make_sealed(log: PartitionLog, number: int, now_ms: int) -> None:
    """Let nothing be appended to the segment any more, and give it a row.  Raises OSError."""
    if number == log.active.number:
        with log.append_lock:
            if number == log.active.number and log.active.size and not log.is_closed:
                log.roll(now_ms)
    if any(segment.number == number for segment in log.rotating):
        seal(log)

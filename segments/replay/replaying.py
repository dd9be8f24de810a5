"""Frames of the write-ahead log put back into the segments they came from.

    frame: segment 7, position 4096, | batch | batch |
    file:  ... | batch | 00 00 00 00 00 | batch |         what the power cut left
                       ^ 4096: written here, then synced

Before every decision of recovery: what the WAL holds was acknowledged, so a hole that it fills is
none.  Done twice, or after an interruption, it changes nothing more:

| the batch | then |
|---|---|
| stands at its position | written again with the whole file, so that the sync covers it |
| stands elsewhere: an earlier recovery wrote the segment anew | the same |
| stands nowhere | written at its position; a gap in front of it is recovery's to judge |
| ... and whole batches do there: another log's | the same, and a copy of the file to quarantine |
| ... of the first segment, without its front, and no manifest says why | at its beginning: no gap |
| ... and nothing else is left of the log | the same; what is in front is told |
| ... but others of this segment stand elsewhere | it has no position any more: reported |
| lies in a segment that was deleted | nothing |
| lies in a sealed one: then it was synced | nothing, unless the disk lost it (restoring.py) |
| lies in a file that has its offsets, without a loss, and no manifest: cleaned | nothing |
| ... or a manifest from before that, and the file has its index | nothing |
| ... and that has another number: made one of several | nothing |

What lies below the log start is put back as well: it says where the log ends.

Invariant: when this returns, every batch of the frames is durable in its segment; the WAL is not
needed for this log any more.  It says which segments are synced whole: who opens the log next need
not do it again (opening.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import structlog

from segbroker.protocol.record_batch import (
    GapReason,
    InvalidBatch,
    gap_reason,
    iter_batches,
    read_header,
)

from ..decisions import Tail, scan
from ..disk.storage import Storage, make_own_dirs, read_file, size_of, write_all
from ..errors import PartitionForeign
from ..files.copies import keep_copies
from ..files.unsynced import (
    mark_unsynced,
    read_unsynced,
    replace_or_mark,
    sync_names_or_mark,
)
from ..names import LogPaths
from ..recovery.identity import has_index
from ..recovery.known import Known, read_known
from ..recovery.ownership import disagrees, is_of_another
from ..recovery.renewing import renew
from ..recovery.repairing import quarantine
from ..recovery.unfinished import head_of
from ..report import LogReport
from ..wal.frames import Frame, FrameType
from .restoring import lasting_row, restore

log = structlog.get_logger()


class Placed(NamedTuple):
    """A batch and where it belongs in its segment file."""

    position: int
    base_offset: int
    next_offset: int
    content: memoryview


class PutBack(NamedTuple):
    """What is known of a log when its frames are put back."""

    end_offset: int
    """They vouch for what is below it; -1: for nothing."""
    synced: frozenset[int]
    """Segments of which everything is durable, as are then all names of the directory."""


def put_back(
    storage: Storage,
    paths: LogPaths,
    frames: Sequence[Frame],
    report: LogReport,
    first_epoch: int = 0,
) -> PutBack:
    """Make the batches of these frames durable in the log's files.

    first_epoch: the first leader epoch that the topic was in.  Raises PartitionForeign, OSError.
    """
    by_segment, durable_end = _by_segment(frames)
    if not by_segment:
        return PutBack(durable_end, frozenset())
    make_own_dirs(storage, paths.folder)
    keep_copies(storage, paths)
    known = _known(storage, paths, first_epoch)
    first = 0 if known is None else known.sealed.next_number
    is_known = known is not None and known.size > 0
    for number in [*by_segment]:
        if is_known and number < first:
            continue  # sealed: nothing of it is looked at here
        if stands_in_another(storage, paths, number, by_segment[number], is_known=is_known):
            del by_segment[number]
    if by_segment and known is None:
        _put_front_back(storage, paths, *min(by_segment.items()), report)
    is_marked = read_unsynced(storage, paths) is not None
    for number, found in sorted(by_segment.items()):
        if number < first and known is not None and (row := lasting_row(known, number)) is not None:
            restore(storage, paths, row, known.epochs, found, report, anew=is_marked)
    if is_marked:
        renew(storage, paths)  # the mark goes: behind what is sealed, which that leaves alone
    synced: set[int] = set()
    for number, found in sorted(by_segment.items()):
        batches = list(_batches(found))
        durable_end = max((durable_end, *(batch.next_offset for batch in batches)))
        if number >= first and batches:
            _put_back(storage, paths, number, found, batches, report, is_known=is_known)
            synced.add(number)
    sync_names_or_mark(storage, paths)
    return PutBack(durable_end, frozenset(synced))


def _by_segment(frames: Sequence[Frame]) -> tuple[dict[int, list[Frame]], int]:
    """(those with batches, by segment; where the log ends, as the others say; -1: none does)."""
    by_segment: dict[int, list[Frame]] = {}
    durable_end = -1
    for frame in frames:
        if frame.type is FrameType.END:
            durable_end = max(durable_end, frame.base_offset)
        else:
            by_segment.setdefault(frame.segment, []).append(frame)
    return by_segment, durable_end


def _known(storage: Storage, paths: LogPaths, first_epoch: int) -> Known | None:
    """What the manifest says; None: there is none, or not of this log.

    Raises PartitionForeign: the files are another partition's; OSError.
    """
    known = read_known(storage, paths)
    if known is None and is_of_another(storage, paths, first_epoch):
        raise PartitionForeign(paths.folder)
    if known is not None and disagrees(storage, paths, known.sealed, known.pending):
        return None
    return known


def stands_in_another(
    storage: Storage, paths: LogPaths, number: int, frames: Sequence[Frame], *, is_known: bool
) -> bool:
    """Whether a segment without a file has its offsets in a file behind it: a cleaning made one
    of several, and what it took does not come back.

    Not if that begins in front of the file before it: an older one was put back there.  is_known:
    as in `_is_cleaned`.
    """
    path = paths.log(number)
    if storage.exists(path) and size_of(storage, path):
        return False
    batches = list(_batches(frames))
    present = map(paths.segment_number, storage.listdir(paths.folder))
    numbers = sorted(one for one in present if one is not None)
    in_front = max((one for one in numbers if one < number), default=-1)
    for following in numbers:
        if following <= number:
            continue
        _, base_offset = head_of(storage, paths.log(following))
        if 0 <= base_offset <= batches[0].base_offset:
            _, before = head_of(storage, paths.log(in_front))
            return before < base_offset and _is_cleaned(
                storage, paths, following, batches, is_known=is_known
            )
    return False


def _present(storage: Storage, paths: LogPaths) -> set[int]:
    """The segments of which there is anything."""
    numbers = map(paths.segment_number, storage.listdir(paths.folder))
    return {one for one in numbers if one is not None and size_of(storage, paths.log(one))}


def _put_front_back(
    storage: Storage, paths: LogPaths, number: int, frames: Sequence[Frame], report: LogReport
) -> None:
    """Of a segment in front of all that have a file, the end, and no manifest that says why.

    What stood before these frames was synced under its name, so the file was deleted, or is lost:
    the log begins with what there is of it, and what is below is told as nobody knows why.  If
    nothing has a file, and they begin with a segment, the log begins there, which only this says.
    """
    present = _present(storage, paths)
    first = frames[0]
    if not present and first.base_offset and not first.position:
        report.add("gap", paths.folder, 0, first.base_offset, reason="corruption")
    end = begin = frames[0].position
    for frame in frames:
        if frame.position != end:
            return
        end += len(frame.payload)
    path = paths.log(number)
    if not begin or storage.exists(path) or not present or number > min(present):
        return
    replace_or_mark(storage, paths, path, b"".join(frame.payload for frame in frames))
    last = [read_header(batch) for batch in iter_batches(frames[-1].payload)][-1]
    report.add("replayed", path, frames[0].base_offset, last.next_offset, size=end - begin)


def _batches(frames: Sequence[Frame]) -> Iterator[Placed]:
    for frame in frames:
        position = frame.position
        for batch in iter_batches(memoryview(frame.payload)):
            header = read_header(batch)
            yield Placed(position, header.base_offset, header.next_offset, batch)
            position += len(batch)


def _put_back(
    storage: Storage,
    paths: LogPaths,
    number: int,
    frames: Sequence[Frame],
    batches: Sequence[Placed],
    report: LogReport,
    *,
    is_known: bool,
) -> None:
    path = paths.log(number)
    content = read_file(storage, path) if storage.exists(path) else bytearray()
    with closing(storage.open(path, create=True)) as file:
        # Also what stands there already: where a sync of the process before failed, the page cache
        # may have what the disk has not, and a sync of pages that count as clean proves nothing.
        if len(content):
            write_all(file, content, 0)
        if not all(_stands_at(content, frame.position, frame.payload) for frame in frames):
            is_cleaned = _is_cleaned(storage, paths, number, batches, is_known=is_known)
            missing = [] if is_cleaned else _missing(path, content, batches, report)
            if missing and _ends_behind(content, missing[0].position):
                reason = "whole batches where the write-ahead log has others: of another log?"
                quarantine(storage, paths, number, content, report, reason)
            for batch in missing:
                write_all(file, batch.content, batch.position)
        try:
            file.fdatasync()
        except OSError:
            mark_unsynced(storage, paths, scan(memoryview(content), None).next_offset)
            raise


def _ends_behind(content: bytearray, position: int) -> bool:
    """Whether whole batches reach over this position: of no write that a crash has torn."""
    return position < len(content) and scan(memoryview(content), None).valid_size > position


def _stands_at(content: bytearray, position: int, data: bytes | bytearray | memoryview) -> bool:
    return content[position : position + len(data)] == data


def _walk(content: bytearray) -> Iterator[tuple[int, int]]:
    """(base offset, position) from batch to batch, as far as their lengths lead."""
    position = 0
    try:
        for batch in iter_batches(content):
            yield read_header(batch).base_offset, position
            position += len(batch)
    except InvalidBatch:
        return


def _is_cleaned(
    storage: Storage, paths: LogPaths, number: int, batches: Sequence[Placed], *, is_known: bool
) -> bool:
    """Whether a file is a segment that a cleaning wrote: it accounts for the offsets of these
    batches, and nothing in it was lost.

    is_known: a manifest says that it is not sealed.  If that is from before the cleaning, the
    segment has its index all the same, and what another has copied here has none.
    """
    content = memoryview(read_file(storage, paths.log(number)))
    found = scan(content, None)
    return (
        found.tail is Tail.WHOLE
        and found.first_offset is not None
        and found.first_offset <= batches[0].base_offset
        and found.next_offset >= batches[-1].next_offset
        and all(gap_reason(header) in (None, GapReason.DELETED) for _, header in found.batches)
        and (not is_known or has_index(storage, paths, number, found.first_offset, content))
    )


def _missing(
    path: str, content: bytearray, batches: Sequence[Placed], report: LogReport
) -> list[Placed]:
    """The batches that are to be written; those that have no place any more are reported."""
    missing: list[Placed] = []
    moved = False
    # A repaired segment is whole, so walking from batch to batch finds everything in it.
    places = dict(_walk(content))
    for batch in batches:
        if _stands_at(content, batch.position, batch.content):
            continue
        if _stands_at(content, places.get(batch.base_offset, len(content)), batch.content):
            moved = True
        else:
            missing.append(batch)
    if not missing:
        return []
    begin, end = missing[0].base_offset, missing[-1].next_offset
    size = sum(len(batch.content) for batch in missing)
    if moved:
        log.error("wal_batches_without_a_place", path=path, count=len(missing))
        report.add("not_replayed", path, begin, end, size=size, reason="the segment was repaired")
        return []
    report.add("replayed", path, begin, end, size=size)
    return missing

"""A sealed segment that is damaged or gone, and what the write-ahead log still has of it.

    frames    | batch | batch |          | batch |      of the WAL: where they stood in the segment
    file      | batch | b?t?h | ?? batch | batch |      what bit rot, a cut or an unlink has left
    result    | batch | batch | ?? batch | batch |      the first read repairs the rest

A segment is synced before it is sealed, so no crash takes anything of it, and its frames are not
needed any more.  But a file of the WAL is used again only when nothing in it is needed: until then
it may have what a disk lost of a segment.

| the segment of a row | then |
|---|---|
| has the frames where they say | nothing: no more of it is looked at |
| the same, behind a failed sync | it is written anew: its name may be in doubt |
| has not, and is whole by its row: a repair or a cleaning wrote it anew | nothing |
| began or ended elsewhere when the frames were written: the same, and damaged since | nothing |
| loses fewer offsets with the frames in their places than without | they are put there |
| loses as many | nothing: the first read repairs it |
| cannot be read (EIO) | nothing; told |

Costs a read of as many bytes as the frames have, and of the whole segment where they are not there.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import structlog

from segbroker.protocol.record_batch import GapReason, iter_batches, read_header

from ..decisions import Epochs, Gap, Loss, rebuild
from ..disk.storage import Storage
from ..files.manifest import Row
from ..files.unsynced import replace_or_mark
from ..names import LogPaths
from ..recovery.identity import Inspection, inspect, is_segment
from ..recovery.known import Known
from ..recovery.mending import Recalled
from ..recovery.repairing import quarantine
from ..report import LogReport
from ..wal.frames import Frame

log = structlog.get_logger()


class Restored(NamedTuple):
    """A segment with the frames in it, and what is missing all the same."""

    content: memoryview
    gaps: list[Gap]


def lasting_row(known: Known, number: int) -> Row | None:
    """The row of a sealed segment that has to have what frames say of it; None where there is none,
    or where some of it may be gone on purpose: a cleaning went over it."""
    row = known.sealed.row(number)
    if row is None or number == known.pending or row.end_offset <= known.cleaned.end_offset:
        return None
    return row


def gaps_of(data: memoryview, row: Row, epochs: Epochs) -> list[Gap]:
    """What is missing in the bytes of a sealed segment."""
    loss = Loss(0, epochs, row.leader_epoch, row.end_offset, GapReason.CORRUPTION)
    return rebuild(data, row.base_offset, row.end_offset, loss, is_followed=True).gaps


def restored(
    inspected: Inspection, row: Row, epochs: Epochs, frames: Sequence[Frame]
) -> Restored | None:
    """What frames make of the segment that they speak of; None: nothing better than it is."""
    if inspected.is_whole or not frames or is_another(row, frames):
        return None
    content = bytearray(inspected.ours[: row.size])
    for frame in frames:
        end = frame.position + len(frame.payload)
        if end <= row.size:
            content.extend(bytes(max(0, frame.position - len(content))))
            content[frame.position : end] = frame.payload
    gaps = gaps_of(memoryview(content), row, epochs)
    if _offsets_in(gaps) >= _offsets_in(gaps_of(inspected.ours, row, epochs)):
        return None
    return Restored(memoryview(content), gaps)


def is_another(row: Row, frames: Sequence[Frame]) -> bool:
    """Whether a segment was written anew since its frames were: it began or ended elsewhere.

    By a cleaning, that may not have got as far as to say so: what it took does not come back.
    """
    first, last = frames[0], frames[-1]
    *_, header = map(read_header, iter_batches(last.payload))
    return (not first.position and first.base_offset != row.base_offset) or (
        header.next_offset == row.end_offset and last.position + len(last.payload) != row.size
    )


def recalled(
    inspected: Inspection, row: Row, epochs: Epochs, frames: Sequence[Frame], *, whole_only: bool
) -> Recalled | None:
    """The same of a segment whose log is in use; None: nothing better than it is.

    whole_only: nothing but the segment as it was sealed: some of it may be gone on purpose.
    """
    found = restored(inspected, row, epochs, frames)
    if found is None or (whole_only and not is_segment(found.content, row, epochs)):
        return None
    missing = [
        frame
        for frame in frames
        if inspected.data[frame.position : frame.position + len(frame.payload)] != frame.payload
    ]
    return Recalled(found.content, *_extent(missing))


def _extent(frames: Sequence[Frame]) -> tuple[int, int, int]:
    """(first offset, offset behind the last, bytes) of the batches of frames."""
    headers = [read_header(batch) for frame in frames for batch in iter_batches(frame.payload)]
    size = sum(header.size for header in headers)
    return headers[0].base_offset, headers[-1].next_offset, size


def restore(
    storage: Storage,
    paths: LogPaths,
    row: Row,
    epochs: Epochs,
    frames: Sequence[Frame],
    report: LogReport,
    *,
    anew: bool,
) -> None:
    """Put frames back into a sealed segment that has lost them; durable when this returns.

    anew: a sync has failed since, perhaps that of the name of what was put back before: then
    another proves nothing of it.  Raises OSError: it could not be written.
    """
    path = paths.log(row.number)
    try:
        missing = _missing(storage, path, frames)
        if not missing and not anew:
            return
        inspected = inspect(storage, paths, row, epochs)
    except OSError as exc:
        log.error("sealed_segment_not_read", path=path, error=str(exc))
        return
    if not missing:
        replace_or_mark(storage, paths, path, inspected.data)
        return
    found = restored(inspected, row, epochs, frames)
    if found is None:
        return
    reason = f"a sealed segment: {inspected.reason}"
    log.error("sealed_segment_damaged", path=path, reason=reason, advice="check the disk")
    if len(inspected.data):
        room = len(found.content)
        quarantine(storage, paths, row.number, inspected.data, report, reason, room=room)
    replace_or_mark(storage, paths, path, found.content)
    begin, end, size = _extent(missing)
    report.add("replayed", path, begin, end, size=size, reason=reason)


def _missing(storage: Storage, path: str, frames: Sequence[Frame]) -> list[Frame]:
    """The frames that a file has not where they say.  Raises OSError."""
    try:
        file = storage.open(path, read_only=True)
    except FileNotFoundError:
        return list(frames)
    with closing(file):
        missing: list[Frame] = []
        for frame in frames:
            found = bytearray(len(frame.payload))
            count = file.pread(memoryview(found), frame.position)
            if count != len(found) or found != frame.payload:
                missing.append(frame)
        return missing


def _offsets_in(gaps: Sequence[Gap]) -> int:
    return sum(gap.end - gap.begin for gap in gaps)

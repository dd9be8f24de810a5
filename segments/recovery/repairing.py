"""Carrying out what the survey decided: cut, repair, clear; the damaged originals kept aside.

    unlink       what is left of replacements and removals that a crash interrupted: nobody reads it
    manifest     copied, synced, where a cleaning has decided something since the last checkpoint
    rename       a segment written anew that a decision speaks of gets its name, directory sync;
                 once more where it has it: the sync of that may have failed
    move         a file that is no segment of this log to quarantine/, durably
    quarantine   a synced copy of the damaged file, under a name of its own
    replace      the repaired content: temp, sync, rename, directory sync
    cut          truncate, sync

Whenever the power goes, either the damaged original or the repaired file stands under the
segment's name, so recovery may be interrupted anywhere and started again; a copy of the same bytes
is not kept twice.

Afterwards every file up to the last is whole and continues the one before.
"""

from contextlib import closing, suppress

from ..decisions import Decision, Tail, scan
from ..disk.storage import (
    TEMPORARY,
    Advice,
    Storage,
    check_room,
    read_file,
    replace_file,
    set_aside,
)
from ..files.copies import name_of_copy
from ..files.unsynced import make_dir_or_mark, replace_or_mark, sync_names_or_mark, sync_or_mark
from ..names import LogPaths
from ..report import LogReport
from .survey import Step, Survey
from .unfinished import is_segment


def carry_out(storage: Storage, paths: LogPaths, found: Survey, report: LogReport) -> list[Step]:
    """Do it; the steps as they are now, whole.  Raises OSError."""
    pending = found.known.pending
    for name in filter(paths.is_temporary, found.names):
        # First, before one of them is used again: on.corruption may have replaced its mark already.
        with suppress(FileNotFoundError):
            storage.unlink(f"{paths.folder}/{name}")
    for number in found.strays.leftovers:  # in front of what takes one of these names
        storage.unlink(paths.cleaned(number))
        report.add("orphan_removed", paths.cleaned(number), reason="a cleaning without a decision")
    swapped = found.known.swapped
    if swapped is not None and found.known.size:
        # The sync of its last row may have failed before the start: then nothing but a new file
        # proves that it will be there when what it replaced is gone.
        rows = read_file(storage, paths.manifest)[: found.known.size]
        replace_or_mark(storage, paths, paths.manifest, rows)
    if swapped is not None and is_segment(storage, paths.log(swapped.number), swapped):
        # Nor of its name anything but giving it once more.
        storage.rename(paths.log(swapped.number), paths.cleaned(swapped.number))
        _finish(storage, paths, swapped.number)
    if pending is not None:
        _finish(storage, paths, pending)
        report.add("cleaning_finished", paths.log(pending))
    for number in found.strays.deleted:
        storage.unlink(paths.log(number))
        is_below = number < found.known.sealed.first_number
        reason = "below the log start" if is_below else "cleaned: another segment stands for it"
        report.add("orphan_removed", paths.log(number), reason=reason)
    sealed = found.known.sealed
    for name in found.names:
        index = paths.index_number(name)
        if index is not None and index < sealed.next_number and sealed.place_of(index) is None:
            storage.unlink(f"{paths.folder}/{name}")  # the segment is gone
    for number in found.strays.strangers:
        _move_aside(storage, paths, number, report)
    return [_do(storage, paths, step, report) for step in found.steps]


def _finish(storage: Storage, paths: LogPaths, number: int) -> None:
    """A segment written anew gets its name, durably: before what it stands for goes."""
    storage.rename(paths.cleaned(number), paths.log(number))
    sync_names_or_mark(storage, paths)


def _move_aside(storage: Storage, paths: LogPaths, number: int, report: LogReport) -> None:
    """A file that is no segment of this log goes to quarantine/; it takes no room for that."""
    path = paths.log(number)
    content = read_file(storage, path)
    make_dir_or_mark(storage, paths, paths.quarantine)
    target = name_of_copy(storage, paths, number, content)
    set_aside(storage, path, target)
    report.add("quarantined", target, size=len(content), reason="no segment of this log")


def _do(storage: Storage, paths: LogPaths, step: Step, report: LogReport) -> Step:
    path = paths.log(step.number)
    match step.decision:
        case Decision.KEEP:
            if not len(step.data) and not storage.exists(path):
                # In front of a file that says nothing about this log: no offset is missing here.
                storage.open(path, create=True).close()
            return step
        case Decision.CUT:
            size = step.scan.valid_size
            report.add(
                "cut",
                path,
                size=len(step.data) - size,
                reason=f"{step.scan.tail.value} tail at byte {size}",
            )
            _cut(storage, paths, step, size)
            return step._replace(data=step.data[:size])
        case Decision.CLEAR:
            if len(step.data):
                if step.has_content:
                    reason = "no valid batch, behind the end of the log"
                    quarantine(storage, paths, step.number, step.data, report, reason)
                _cut(storage, paths, step, 0)
            return step
        case Decision.REPAIR:
            return _repair(storage, paths, step, report)


def _repair(storage: Storage, paths: LogPaths, step: Step, report: LogReport) -> Step:
    path, rebuilt = paths.log(step.number), step.rebuilt
    assert rebuilt is not None, "the survey says what to put in its place"
    if len(step.data):
        reason = f"{step.scan.tail.value} at byte {step.scan.valid_size}"
        room = sum(map(len, rebuilt.parts))
        quarantine(storage, paths, step.number, step.data, report, reason, room=room)
    content = b"".join(rebuilt.parts)
    replace_or_mark(storage, paths, path, content)
    report.add("repaired", path, size=len(content))
    for gap in rebuilt.gaps:
        report.add("gap", path, gap.begin, gap.end, reason=gap.reason.name.lower())
    view = memoryview(content)
    offset = min((gap.begin for gap in rebuilt.gaps), default=step.starts_at)
    starts_at = min(offset, step.starts_at) if content else rebuilt.next_offset
    result = scan(view, starts_at)
    assert result.tail is Tail.WHOLE, "a repaired segment is whole"
    return step._replace(data=view, starts_at=starts_at, scan=result)


def _cut(storage: Storage, paths: LogPaths, step: Step, size: int) -> None:
    with closing(storage.open(paths.log(step.number))) as file:
        file.truncate(size)
        sync_or_mark(storage, paths, file, step.scan.next_offset if size else 0)


def quarantine(
    storage: Storage,
    paths: LogPaths,
    number: int,
    content: bytes | bytearray | memoryview,
    report: LogReport,
    reason: str,
    *,
    room: int = 0,
) -> None:
    """Keep a durable copy of a damaged segment file under a name of its own.

    room: bytes that the caller writes behind it.  Raises OSError; also where there is not as much
    room as both take: each try would take from others what there is, and give it back; and where
    there are too many copies (copies.py).
    """
    make_dir_or_mark(storage, paths, paths.quarantine)
    target = name_of_copy(storage, paths, number, content)
    is_there = storage.exists(target)
    size = room if is_there else len(content) + room
    check_room(storage, paths.quarantine, size, "a repair")
    if is_there:
        # Recovery was interrupted behind the copy: it is synced, but its name may be on no disk.
        storage.rename(target, target + TEMPORARY)
        storage.rename(target + TEMPORARY, target)
        storage.fsync_dir(paths.quarantine)
    else:
        replace_file(storage, target, content)
        copy = storage.open(target, read_only=True)
        copy.advise(Advice.DONT_NEED)  # for people, not for readers
        copy.close()
    report.add("quarantined", target, size=len(content), reason=reason)

"""One log checked, file by file, without changing a byte.

    manifest      header, rows, whether it speaks of this log
    sealed        every batch by CRC, offset and epoch; every block of the index by its XXH3-64
    unsealed      the survey that a start makes, told instead of carried out
    producers     its checksum
    other files   what they are, and what becomes of them

What the write-ahead log holds is put back before a start judges anything: a loss that it covers is
a note.  In a sealed segment it is damage all the same, which no crash explains, but what a start
puts back is not lost (restoring.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from segbroker.protocol.record_batch import GapReason

from ..decisions import Decision, Gap, Tail
from ..disk.storage import Storage, read_file
from ..files.index import BlockIndex, WrongIndex, decode_index, is_torn
from ..files.manifest import Row, decode_manifest, is_torn_row
from ..files.unsynced import read_unsynced
from ..log.producers import decode_producers
from ..names import LogPaths
from ..recovery.corruption import read_mark
from ..recovery.identity import inspect
from ..recovery.known import Known, read_start_copy
from ..recovery.survey import Circumstances, Step, Survey, survey
from ..replay.replaying import stands_in_another
from ..replay.restoring import Restored, gaps_of, lasting_row, restored
from ..wal.frames import Frame
from .findings import Finding, Level, Progress, damage, no_files, note, unreadable

_REPAIRED = "the next read or scrub puts a gap in their place; quarantine/ keeps damaged bytes"
_PUT_BACK = "the write-ahead log holds records that it lost, and a start puts them back"
_INDEX = "it is made again from the log when it is needed"
_NOT_REMOVED = "an opening behind a crash fails until somebody removes the directory"
NOT_OPENED = "the partition is not opened as long as that is so"
_NOT_READ = (
    "its records are refused as long as that is so; a copy of what can be read of it, in its place,"
    " is repaired like any other"
)


class Covered(NamedTuple):
    """Offsets [begin, end) that the write-ahead log holds."""

    begin: int
    end: int


def merged(pieces: Iterable[Covered]) -> list[Covered]:
    """The same offsets in as few pieces as there are holes between them."""
    found: list[Covered] = []
    for piece in sorted(pieces):
        if found and piece.begin <= found[-1].end:
            found[-1] = Covered(found[-1].begin, max(found[-1].end, piece.end))
        else:
            found.append(piece)
    return found


def _without(begin: int, end: int, covered: Iterable[Covered]) -> Iterator[Covered]:
    """What of the offsets [begin, end) is in none of these pieces, which are in order."""
    for piece in covered:
        if begin < piece.begin and begin < end:
            yield Covered(begin, min(end, piece.begin))
        begin = max(begin, piece.end)
    if begin < end:
        yield Covered(begin, end)


class LogChecker:
    """The check of one log."""

    def __init__(
        self,
        storage: Storage,
        paths: LogPaths,
        around: Circumstances,
        *,
        name: tuple[str, int],
        covered: Iterable[Covered] = (),
        frames: Mapping[int, Sequence[Frame]] = MappingProxyType({}),
        progress: Progress = lambda count: None,
    ) -> None:
        """name: topic and partition.  covered: by the write-ahead log, whose frames of batches are
        `frames`, by segment."""
        self._storage = storage
        self.paths = self._paths = paths
        self._around = around
        self._name = name
        self._covered = merged(covered)
        self._frames = frames
        self._progress = progress

    def check(self) -> Iterator[Finding]:
        """Everything that is to be said.  Raises OSError: a file may not be opened."""
        for finding in self._readable(self._check(), NOT_OPENED):
            yield finding._replace(topic=self._name[0], partition=self._name[1])

    def _readable(self, some: Iterator[Finding], action: str) -> Iterator[Finding]:
        """These, and where they end because the disk does not give a file, that."""
        try:
            yield from some
        except OSError as exc:
            yield unreadable(exc, self._paths.folder, action)

    def _check(self) -> Iterator[Finding]:
        storage, paths = self._storage, self._paths
        told = [*self._manifest()]
        yield from told
        found = survey(storage, paths, self._around)
        if found.known.is_cut and not told:
            yield damage(
                paths.manifest,
                "rows that were synced are missing at its end",
                "the segments behind it are read, and the file is written anew; the log begins at"
                f" {found.log_start_offset}",
            )
        front = self._in_front(found) if found.manifest_lost else []
        if found.manifest_lost and not self._was_synced():
            text = "the manifest of a log that was never synced is missing"
            yield note(paths.manifest, text, "it is made again from the segments")
        elif found.manifest_lost:
            action = "all segments are read and it is made again"
            if read_start_copy(storage, paths) is None:
                action += "; a log start set by a request inside a segment is forgotten"
            if found.floor.reason is GapReason.CORRUPTION:
                start = min([found.log_start_offset, *(begin for _, begin, _ in front)])
                action += f"; what was below offset {start} counts as lost by damage"
            text = "the manifest is missing, unreadable or of another log"
            yield damage(paths.manifest, text, action)
        start_row = found.known.start
        if start_row is not None and found.log_start_offset > start_row.base_offset:
            yield damage(
                paths.manifest,
                f"no segment in front of offset {found.log_start_offset} is there, and the row that"
                " may have said so is damaged",
                "the log begins there; what was below counts as lost by damage",
            )
        for number, begin, end in front:
            yield note(
                paths.log(number),
                f"the segment is not there, the write-ahead log has offsets {begin} to {end} of it,"
                " and without a manifest nobody knows whether they were deleted",
                "they are put back; retention deletes them again",
            )
        yield from self._unsealed(found)
        for row in found.known.sealed.rows():
            if row.number == found.known.pending:
                text = "a cleaning was interrupted after it was decided"
                yield note(paths.cleaned(row.number), text, "it gets its name")
            else:
                yield from self._readable(self._sealed(row, found.known), _NOT_READ)
        yield from self._producers()
        yield from self._others(found)

    def _in_front(self, found: Survey) -> list[tuple[int, int, int]]:
        """(segment, offsets from, to) of what the write-ahead log has in front of every segment
        that has a file: where no manifest says that they were deleted a start puts them back."""
        first = next((step.number for step in found.steps if len(step.data)), 0)
        return [
            (number, frames[0].base_offset, frames[-1].end_offset)
            for number, frames in sorted(self._frames.items())
            if number < first
            and not self._storage.exists(self._paths.log(number))
            and not stands_in_another(self._storage, self._paths, number, frames, is_known=False)
        ]

    def _manifest(self) -> Iterator[Finding]:
        path = self._paths.manifest
        if not self._storage.exists(path):
            return
        content = read_file(self._storage, path)
        self._progress(len(content))
        manifest = decode_manifest(content)
        if manifest is None:
            if any(content) or self._was_synced():
                yield damage(path, "the header is damaged", "all segments are read instead")
            return
        rest = content[manifest.size :]
        if not rest:
            return
        action = "the segments behind it are read, and the file is written anew"
        if is_torn_row(rest):
            yield note(path, f"{len(rest)} bytes of a row that was not written whole", action)
        else:
            yield damage(path, f"the row at byte {manifest.size} is damaged", action)

    def _was_synced(self) -> bool:
        """Whether there are files that come after the first sync of a log, which makes the manifest
        durable: without them the power may have taken it, and nothing else with it."""
        names = self._storage.listdir(self._paths.folder)
        return any(name.endswith((".index", ".producers", ".start", ".cleaned")) for name in names)

    # Sealed

    def _sealed(self, row: Row, known: Known) -> Iterator[Finding]:
        path = self._paths.log(row.number)
        inspected = inspect(self._storage, self._paths, row, known.epochs)
        data = inspected.data
        is_there = len(data) > 0 or self._storage.exists(path)
        if is_there:
            self._progress(len(data))
        if not inspected.is_whole:
            found = inspected.scan
            text = f"it is damaged at byte {found.valid_size} ({_WORDS[found.tail]})"
            if inspected.is_stranger:
                text = "it is a segment of another log, or of another place in this one"
            if not is_there:
                text = "the file is missing"
            gaps = gaps_of(inspected.ours, row, known.epochs)
            better: Restored | None = None
            if lasting_row(known, row.number) is not None:
                frames = self._frames.get(row.number, ())
                better = restored(inspected, row, known.epochs, frames)
                if better is not None:
                    gaps = better.gaps
                    yield damage(path, text, _PUT_BACK)
            for gap in gaps:
                yield _damaged(path, text, gap.begin, gap.end)
            if not gaps and better is None:
                yield damage(path, f"{text}; no record is lost", _REPAIRED)
            return
        if len(data) != row.size:
            yield note(
                path,
                f"it is whole, {len(data)} bytes, and the manifest says {row.size}: "
                "a repair was interrupted",
                "the next read or scrub corrects the manifest",
            )
        yield from self._readable(self._index(row, data), _INDEX)

    def _index(self, row: Row, data: memoryview) -> Iterator[Finding]:
        path = self._paths.index(row.number)
        try:
            content = read_file(self._storage, path)
        except FileNotFoundError:
            yield note(path, "the index is missing", _INDEX)
            return
        self._progress(len(content))
        try:
            tag = row.tag if len(data) == row.size else 0
            index = decode_index(content, row.base_offset, len(data), tag)
        except WrongIndex as exc:
            tell = note if is_torn(content, len(data)) else damage
            yield tell(path, f"the index is wrong: {exc}", _INDEX)
            return
        wrong = _first_wrong(index, data)
        if wrong is not None:
            yield damage(
                path,
                f"the index is wrong: block {wrong} has another checksum, and the log is whole",
                _INDEX,
            )

    # Not sealed

    def _unsealed(self, found: Survey) -> Iterator[Finding]:
        for number in found.strays.deleted:
            text = "the segment was deleted, or another stands for it"
            yield note(self._paths.log(number), text, "it is removed")
        for number in found.strays.leftovers:
            text = "a cleaning was interrupted before it was decided"
            yield note(self._paths.cleaned(number), text, "it is removed")
        for number in found.strays.strangers:
            yield damage(
                self._paths.log(number),
                "it is no segment of this log",
                "it is moved to quarantine/",
            )
        for step in found.steps:
            self._progress(len(step.data))
            yield from self._step(step)

    def _step(self, step: Step) -> Iterator[Finding]:
        path = self._paths.log(step.number)
        where = f"at byte {step.scan.valid_size} ({_WORDS[step.scan.tail]})"
        match step.decision:
            case Decision.CUT:
                count = len(step.data) - step.scan.valid_size
                yield note(
                    path,
                    f"{count} bytes of a write that was not finished {where}",
                    f"they are cut off; offset {step.scan.next_offset} is given next",
                )
            case Decision.CLEAR if step.has_content:
                yield note(
                    path,
                    f"{len(step.data)} bytes without a valid batch, behind the end of the log",
                    "they are moved to quarantine/",
                )
            case Decision.REPAIR if step.rebuilt is not None:
                gaps = step.rebuilt.gaps
                for gap in gaps:
                    yield from self._lost(path, f"it is damaged {where}", gap)
                if not gaps:
                    yield damage(
                        path,
                        f"there is something that does not belong here {where}",
                        "the file is kept in quarantine/; no record is lost",
                    )

    def _lost(self, path: str, text: str, gap: Gap) -> Iterator[Finding]:
        lost = list(_without(gap.begin, gap.end, self._covered))
        if lost != [Covered(gap.begin, gap.end)]:
            yield note(path, text, "the write-ahead log holds these records and puts them back")
        for begin, end in lost:
            if gap.reason is GapReason.LOST_TAIL:
                told = f"{text}: never synced, and lost with the power"
                action = "a gap with the reason lost_tail is put in its place"
                yield Finding(Level.NOTE, path, told, action, from_offset=begin, to_offset=end)
            else:
                yield _damaged(path, text, begin, end)

    # The rest

    def _producers(self) -> Iterator[Finding]:
        path = self._paths.producers
        try:
            content = read_file(self._storage, path)
        except FileNotFoundError:
            return
        self._progress(len(content))
        if decode_producers(content, self._paths.owner) is None:
            action = "it is made again from the batches"
            what = "the producers' state is damaged, or another partition's"
            yield damage(path, what, action)

    def _others(self, found: Survey) -> Iterator[Finding]:
        storage, paths = self._storage, self._paths
        reason = read_mark(storage, paths)
        if reason:
            yield damage(
                paths.damaged,
                f"nobody has looked at damage that was found earlier: {reason}",
                "the topic's on.corruption says; verify --repair lifts it",
            )
        strays = found.strays
        logs = {*(step.number for step in found.steps), *strays.strangers, *strays.deleted}
        sealed = frozenset(found.known.sealed.numbers)
        for name in storage.listdir(paths.folder):
            path = f"{paths.folder}/{name}"
            is_temporary = paths.is_temporary(name)
            is_cleaned = paths.cleaned_number(name) is not None
            if is_temporary or is_cleaned:
                yield from no_files(storage, [path], _NOT_REMOVED)
            if path in paths.replaced:
                continue
            if path == paths.unsynced:
                text = "a sync of this log has failed"
                action = "the next opening writes what is not sealed to new files"
                ended = read_unsynced(storage, paths) or 0
                if found.end_offset < ended:
                    text += f" when it ended at offset {ended}, and it ends at {found.end_offset}"
                    action += "; what was acknowledged before its sync is told as lost"
                yield note(path, text, action)
                continue
            if path == paths.quarantine:
                copies = [one for one in storage.listdir(path) if not one.endswith(".tmp")]
                if copies:
                    yield note(
                        path,
                        f"files as they were before a repair, kept here: {len(copies)}; after a"
                        " write that did not end (a kill, a full disk), or damage",
                        "they are left; nothing reads them, and they may be deleted",
                    )
                continue
            if is_cleaned or paths.segment_number(name) is not None:
                continue
            index = paths.index_number(name)
            if index is not None:
                if index not in sealed and index not in logs:
                    action = "it is left as it is; verify --repair removes it"
                    yield note(path, "an index without a log", action)
                continue
            if is_temporary:
                text = "left over from a replacement that was interrupted"
                yield note(path, text, "it is left as it is; verify --repair removes it")
            else:
                yield note(path, "not a file of a log", "it is left as it is")


_WORDS = {
    Tail.WHOLE: "records are missing behind it",
    Tail.ZEROS: "zeros follow",
    Tail.TORN: "no valid batch follows",
    Tail.HOLE: "valid batches follow",
    Tail.FOREIGN: "a batch with an offset that is not due here",
}


def _damaged(path: str, text: str, begin: int, end: int) -> Finding:
    return Finding(Level.DAMAGE, path, text, _REPAIRED, from_offset=begin, to_offset=end)


def _first_wrong(index: BlockIndex, data: memoryview) -> int | None:
    if not index.blocks:
        return None
    return index.first_wrong(0, len(index.blocks), data)

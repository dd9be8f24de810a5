"""A log as it lies on the disk: read and judged, not changed by a byte.

    manifest        -> what is sealed; not touched at start
    k+1, k+2 ...    -> every file behind the manifest's end: read, scanned, decided on
    listing         -> files of numbers that cannot be, of segments that were deleted or that
                       another stands for, and what a cleaning left behind (unfinished.py)

What comes out is a list of steps, each with its decision (decisions.py has the table) and, for a
repair, the new content; `repairing` carries them out, `verify` tells them to a person.

A log that was closed in order costs the manifest, a list of its directory (known.py) and the last
segment: what else is in it is looked at only when the manifest does not end with a checkpoint that
fits, and that reaches as far as others know (docs/decisions/0357).

A hole in the numbers is believed when the file behind it begins so many offsets higher (each
missing segment had one at least), or is as near as the files that are made ahead; a file further
away was copied in.  No hole is where the file behind goes on with the very next offset: a cleaning
made one segment of several.  Behind the end of a log that was closed in order a hole is believed
in that case alone, and only where the file has its index: the manifest is from before the cleaning.

What is whole behind a hole in a file is that file's, as far as no file behind it has it: so each
damage costs its own batches, also where the next file is damaged at its front, or missing.

Without a manifest a file that is whole, begins where an earlier one begins and ends behind it
stands for that one and those between: the same cleaning, interrupted before they were unlinked.
"""

from typing import Final, NamedTuple

from segbroker.protocol.record_batch import GapReason

from ..decisions import (
    Decision,
    Gap,
    Loss,
    Rebuilt,
    Scan,
    Tail,
    any_offset_of,
    base_offset_of,
    begin_of,
    decide,
    end_behind,
    first_offset_of,
    rebuild,
    scan,
)
from ..disk.storage import Storage, read_file
from ..files.manifest import Floor, floor_of
from ..log.columns import SealedSegments
from ..log.ready import AHEAD_MAX
from ..names import LogPaths
from .epochs import epochs_of
from .identity import has_index, is_behind_checkpoint, is_other_format
from .known import Known, read_known, read_start_copy
from .ownership import disagrees

HOLE_MAX: Final = 10_000
"""Missing segments in a row that are taken for lost ones."""


class Step(NamedTuple):
    """A segment file behind the manifest, and what is to be done with it."""

    number: int
    data: memoryview
    starts_at: int
    scan: Scan
    decision: Decision = Decision.KEEP
    rebuilt: Rebuilt | None = None
    is_stranger: bool = False
    """It is not the segment that the last checkpoint speaks of."""

    @property
    def has_content(self) -> bool:
        """Whether there is anything but zeros in the file."""
        return any(self.data)


class Strays(NamedTuple):
    """Files that are no part of the log."""

    deleted: list[int]
    """Segments below the log start, or that another stands for, whose unlink was lost."""
    strangers: list[int]
    """Files of numbers that cannot be, or copied behind the end of a log that was closed."""
    leftovers: list[int]
    """Segments written anew that no decision speaks of."""


class Survey(NamedTuple):
    """What was found, and what opening the log does about it."""

    known: Known
    log_start_offset: int
    floor: Floor
    steps: list[Step]
    last: int
    """Place of the last segment with a valid batch among the steps."""
    is_clean: bool
    """Whether the log is what its last checkpoint says, and no cleaning came since."""
    manifest_lost: bool
    """Whether there were segments and no manifest that speaks of them."""
    strays: Strays
    names: list[str]
    """Of the directory; none where it was not listed."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written to the log, nor told of it but where it begins: at 0."""
        known = self.known
        return (
            not any(len(step.data) or step.rebuilt for step in self.steps)
            and not self.log_start_offset
            and not len(known.sealed)
            and known.checkpoint is None
            and known.pending is None
            and len(known.epochs) <= 1
            and not any(self.strays)
        )

    @property
    def keeps_names(self) -> bool:
        """Whether carrying it out makes no file, and gives or takes no name."""
        known = self.known
        return (
            not any(self.strays)
            and known.pending is None
            and all(
                step.decision in (Decision.CUT, Decision.CLEAR)
                or (step.decision is Decision.KEEP and len(step.data))
                for step in self.steps
            )
        )

    @property
    def end_offset(self) -> int:
        """Where the log ends, once it is opened."""
        if not self.steps:
            return self.known.sealed.end_offset
        step = self.steps[self.last]
        return step.scan.next_offset if step.rebuilt is None else step.rebuilt.next_offset

    @property
    def gaps(self) -> list[Gap]:
        """What opening the log reports as lost."""
        return [gap for step in self.steps if step.rebuilt for gap in step.rebuilt.gaps]

    @property
    def damaged(self) -> Step | None:
        """The first file with damage that no power cut explains; None without."""
        for step in self.steps:
            if step.rebuilt is not None:
                lost_tail = all(gap.reason is GapReason.LOST_TAIL for gap in step.rebuilt.gaps)
                if step.scan.tail is Tail.FOREIGN or not lost_tail:
                    return step
        return None


class Circumstances(NamedTuple):
    """What the log's own directory does not say.

    leader_epoch: the least that the log begins with.  durable_end: END frames vouch for the
    offsets below it; -1: none does.  above: the reason of a loss at or past what anybody
    vouches for.  settled_end: as durable_end, but by the metadata: who opens the log tells what is
    missing (resuming.py), so it says only where to look for files.
    """

    now_ms: int
    leader_epoch: int = 0
    durable_end: int = -1
    above: GapReason = GapReason.CORRUPTION
    settled_end: int = -1


class _Unsealed(NamedTuple):
    """What the directory has beside the sealed segments."""

    contents: list[tuple[int, memoryview]]
    """The segments to scan, by number; missing ones in between are empty."""
    strays: Strays
    names: list[str]
    """As of `Survey`."""


def survey(storage: Storage, paths: LogPaths, around: Circumstances) -> Survey:
    """Read and judge.  Raises OSError; FileNotFoundError without a directory."""
    known = read_known(storage, paths)
    end = max(around.durable_end, around.settled_end)
    unsealed = _read_unsealed(storage, paths, known, end)
    if (
        known is not None
        and not _fits(known, unsealed.contents)
        and disagrees(storage, paths, known.sealed, known.pending)
    ):
        known = None
        unsealed = _read_unsealed(storage, paths, known, end)
    contents, manifest_lost = unsealed.contents, False
    if known is None:
        known, manifest_lost = _without_manifest(storage, paths, contents)
    elif contents and not known.knows_base:
        # Nothing but its first batch says where the first segment begins: a log start that was set
        # by a request may lie anywhere inside it.
        base_offset = base_offset_of(contents[0][1])
        if base_offset is not None and base_offset < known.log_start_offset:
            known.sealed.end_offset = base_offset
    known = _with_epochs(known, contents, around)
    told = max(_vouched(known, around), known.log_start_offset)
    if not contents and told > known.sealed.end_offset:
        contents = [(known.sealed.next_number, memoryview(b""))]  # the file is gone altogether
    found = _scan_all(known, contents)
    if known.log_start_offset < 0:
        known.sealed.end_offset = found[0].starts_at if found else 0
    log_start_offset, floor = _start_and_floor(storage, paths, known)
    last = _last_used(found)
    is_clean = _is_clean(known, found, last, unsealed, around)
    if not is_clean:
        found = _judge(known, found, last, around, log_start_offset)
    return Survey(
        known,
        log_start_offset,
        floor,
        found,
        last,
        is_clean,
        manifest_lost,
        unsealed.strays,
        unsealed.names,
    )


def _without_manifest(
    storage: Storage, paths: LogPaths, contents: list[tuple[int, memoryview]]
) -> tuple[Known, bool]:
    """(what is known: at most where the log begins; whether there was a manifest)."""
    first = contents[0][0] if contents else 0
    manifest_lost = any(len(data) for _, data in contents)
    copy = None if manifest_lost else read_start_copy(storage, paths)
    if copy is None:
        return Known(SealedSegments(first, 0), -1, [], None, 0), manifest_lost
    # No batch says where the first segment begins: all in front of it was deleted.
    start = copy.base_offset
    return Known(SealedSegments(first, start), start, [], None, 0), True


def _with_epochs(
    known: Known, contents: list[tuple[int, memoryview]], around: Circumstances
) -> Known:
    """What is known, with the epochs that the files have where the manifest may lack some."""
    lags = bool(known.epochs) and known.epochs[-1][0] < around.leader_epoch
    if known.size and not lags:
        return known
    epochs = epochs_of(known.epochs, [data for _, data in contents], known.sealed.end_offset)
    if not known.size:
        # A row that is damaged may be that of an epoch, and so may any behind it.
        return known._replace(epochs=epochs)
    # It may be an older copy, put back by hand: those behind it are in the metadata.
    if len(epochs) > len(known.epochs) and epochs[-1][0] <= around.leader_epoch:
        return known._replace(epochs=epochs, size=0)
    return known


def _start_and_floor(storage: Storage, paths: LogPaths, known: Known) -> tuple[int, Floor]:
    """The log start, and below which offset records were lost."""
    start, floor = known.log_start_offset, known.floor
    if start < 0:
        start = known.sealed.end_offset
        if start:
            floor = Floor(start, GapReason.CORRUPTION)  # unless the copy knows better
    if not known.size:
        copy = read_start_copy(storage, paths)
        if copy is not None and start <= copy.base_offset:
            # What lies below it was deleted, or is told by its floor; of what went since then
            # nobody knows why.
            return copy.base_offset, floor_of(copy)
    return start, floor


def _last_used(found: list[Step]) -> int:
    """The place of the last file with records, or where there were some; 0 without one."""
    places = (
        place
        for place, step in enumerate(found)
        if step.scan.batches or step.scan.tail in (Tail.HOLE, Tail.FOREIGN)
    )
    return max(places, default=0)


def _fits(known: Known, contents: list[tuple[int, memoryview]]) -> bool:
    """Whether the checkpoint is that of the one file behind the manifest."""
    checkpoint = known.checkpoint
    return (
        checkpoint is not None
        and len(contents) == 1
        and checkpoint.number == contents[0][0]
        and checkpoint.size == len(contents[0][1])
    )


def _is_clean(
    known: Known, found: list[Step], last: int, unsealed: _Unsealed, around: Circumstances
) -> bool:
    """Whether the log is what its last checkpoint says: whole, and synced then; and nothing is to
    be removed, or to get its name."""
    checkpoint = known.checkpoint
    if checkpoint is None or not known.size or last or not found:
        return False
    if any(unsealed.strays):
        return False
    if known.pending is not None or known.swapped is not None:
        return False
    step = found[0]
    return (
        checkpoint.number == step.number
        and checkpoint.size == len(step.data)
        and checkpoint.end_offset == step.scan.next_offset
        and around.durable_end <= step.scan.next_offset
        and step.starts_at == known.sealed.end_offset
        and step.scan.tail is Tail.WHOLE
        and not any(len(behind.data) for behind in found[1:])
    )


def _read_unsealed(
    storage: Storage, paths: LogPaths, known: Known | None, end_offset: int
) -> _Unsealed:
    """end_offset: how far the log reaches, as others know."""
    ends_here = False
    if known is not None and known.checkpoint is not None and not known.deletes:
        first = known.sealed.next_number
        checkpoint = known.checkpoint
        if checkpoint.number == first and checkpoint.end_offset >= end_offset:
            content = _read(storage, paths.log(first))
            ends_here = len(content) == checkpoint.size
            if ends_here and known.last_file == first:
                return _Unsealed([(first, content)], Strays([], [], []), [])
    names = storage.listdir(paths.folder)
    present = sorted(number for name in names if (number := paths.segment_number(name)) is not None)
    pending = None if known is None else known.pending
    leftovers = [
        number
        for name in names
        if (number := paths.cleaned_number(name)) is not None and number != pending
    ]
    first = known.sealed.next_number if known is not None else (present[0] if present else 0)
    deleted: list[int] = []
    if known is not None:
        sealed = frozenset(known.sealed.numbers)
        deleted = [number for number in present if number < first and number not in sealed]
    least = known.sealed.end_offset if known is not None else 0
    contents: list[tuple[int, memoryview]] = []
    strangers: list[int] = []
    following = first
    for number in present:
        if number < first:
            continue
        data = _read(storage, paths.log(number))
        hole = number - following
        base_offset = base_offset_of(data) if hole else None
        if (
            base_offset is not None
            and base_offset == _end_of(contents, known)
            and (not ends_here or has_index(storage, paths, number, base_offset, data))
        ):
            following = number  # a cleaning made one segment of several
        elif (hole and ends_here and len(data)) or (
            hole > AHEAD_MAX and not _may_be_behind(data, least + hole, hole)
        ):
            strangers.append(number)
            continue
        contents += [(missing, memoryview(b"")) for missing in range(following, number)]
        contents.append((number, data))
        following = number + 1
        ends_here = ends_here and (number == first or not len(data))
    if known is None or not known.size:
        superseded = _superseded(contents, None if known is None else known.sealed.end_offset)
        contents = [(number, data) for number, data in contents if number not in superseded]
        deleted = sorted({*deleted, *superseded}.intersection(present))
    return _Unsealed(contents, Strays(deleted, strangers, leftovers), names)


def _may_be_behind(data: memoryview, least: int, hole: int) -> bool:
    """Whether a segment may stand behind so many that are missing, at offset `least` or higher.
    Its front may be missing as well: what the write-ahead log had of it was put back."""
    if hole > HOLE_MAX:
        return False
    base_offset = any_offset_of(data)
    return base_offset is not None and base_offset >= least


def _end_of(contents: list[tuple[int, memoryview]], known: Known | None) -> int | None:
    """Where what was read so far ends; None when nothing says."""
    if contents:
        data = contents[-1][1]
        base_offset = base_offset_of(data)
        return None if base_offset is None else end_behind(data, scan(data, base_offset))
    return None if known is None else known.sealed.end_offset


def _superseded(contents: list[tuple[int, memoryview]], begin: int | None) -> set[int]:
    """Segments for which a later one stands: whole, from where the first of them begins, or the
    one before them ends, to behind the last of them, and to where the segment behind it begins.

    begin: where the first of all has to begin; None: nobody knows."""
    gone: set[int] = set()
    bases = [base_offset_of(data) for _, data in contents]
    for place in range(len(contents) - 1, 0, -1):
        number, data = contents[place]
        base_offset = bases[place]
        earlier = place - 1
        if number in gone or base_offset is None:
            continue
        while earlier >= 0 and _begins_behind(bases[earlier], base_offset):
            earlier -= 1
        first = next((one for one in range(earlier + 1, place) if bases[one] is not None), place)
        if first == place:
            continue
        if bases[first] != base_offset:
            # The first of them may be gone already.
            before = (
                scan(contents[earlier][1], bases[earlier]).next_offset if earlier >= 0 else begin
            )
            if before != base_offset:
                continue
        whole = scan(data, base_offset)
        ends = [
            scan(contents[one][1], bases[one]).next_offset
            for one in range(first, place)
            if bases[one] is not None
        ]
        following = next((base for base in bases[place + 1 :] if base is not None), None)
        if (
            whole.tail is Tail.WHOLE
            and whole.next_offset > max(ends)
            and following in (None, whole.next_offset)
        ):
            gone.update(one for one, _ in contents[first:place])
    return gone


def _begins_behind(base_offset: int | None, other: int) -> bool:
    return base_offset is None or base_offset >= other


def _read(storage: Storage, path: str) -> memoryview:
    try:
        return memoryview(read_file(storage, path))
    except FileNotFoundError:
        return memoryview(b"")


def _scan_all(known: Known, contents: list[tuple[int, memoryview]]) -> list[Step]:
    found: list[Step] = []
    offset: int | None = known.sealed.end_offset if known.log_start_offset >= 0 else None
    whole = True
    for place, (number, data) in enumerate(contents):
        if len(data) and offset is None:
            offset = begin_of([each for _, each in contents if len(each)])
        elif len(data) and offset is not None:
            offset = first_offset_of(data, offset, is_confirmed=not whole)
        result = scan(data, offset or 0, epochs=known.epochs)
        found.append(Step(number, data, offset or 0, result))
        whole = result.tail is Tail.WHOLE and len(data) > 0
        if len(data) or offset is not None:
            offset = result.next_offset
        if result.tail is Tail.HOLE:
            # What is whole behind the hole is this file's, unless one behind it has it.
            behind = [_least_in(each) for _, each in contents[place + 1 :]]
            end_offset = end_behind(data, result, known.epochs)
            end_offset = min([end_offset, *(least for least in behind if least is not None)])
            offset = max(result.next_offset, end_offset)
    return found


def _least_in(data: memoryview) -> int | None:
    """Where a file begins at most, as its batches say; None without one."""
    if base_offset_of(data) is not None:
        return begin_of([data])
    base_offset = any_offset_of(data)
    return None if base_offset is None else base_offset - 1  # what is damaged has one at least


def _vouched(known: Known, around: Circumstances) -> int:
    """The offset below which somebody says that everything was synced; -1: nobody."""
    checkpoint = -1 if known.checkpoint is None else known.checkpoint.end_offset
    return max(checkpoint, around.durable_end)


def _judge(
    known: Known, found: list[Step], last: int, around: Circumstances, log_start_offset: int
) -> list[Step]:
    """Decide on every file, in order: where one ends after its repair the next has to begin."""
    offset = known.sealed.end_offset
    vouched = _vouched(known, around)
    judged: list[Step] = []
    checkpoint = known.checkpoint
    for place, step in enumerate(found):
        if is_other_format(step.data) or (
            checkpoint is not None
            and checkpoint.number == step.number
            and not is_behind_checkpoint(step.data, checkpoint.size, checkpoint.end_offset)
        ):
            # Nothing of it is ours; what was synced here is gone.
            empty = Scan([], 0, offset, Tail.FOREIGN, -1)
            step = step._replace(starts_at=offset, scan=empty, is_stranger=True)
        if place > last:
            judged.append(step._replace(decision=Decision.CLEAR))
            continue
        # No log ends before it begins: what is missing up to there was told to somebody.
        least = max(vouched, log_start_offset)
        end_offset = found[place + 1].starts_at if place < last else least
        is_short = step.scan.next_offset < end_offset or step.starts_at > offset
        decision = decide(step.scan.tail, is_last=place == last, is_short=is_short)
        rebuilt = None
        if decision is Decision.REPAIR:
            epoch = max(
                (found.header.leader_epoch for found in step.scan.batches),
                default=around.leader_epoch,
            )
            loss = Loss(
                around.now_ms,
                known.epochs,
                epoch,
                max(vouched, known.sealed.end_offset),
                around.above,
            )
            ours = step.data[:0] if step.is_stranger else step.data
            rebuilt = rebuild(
                ours,
                offset,
                end_offset,
                loss,
                is_followed=place < last,
                starts_at=step.starts_at,
            )
            offset = rebuilt.next_offset
        else:
            offset = step.scan.next_offset
        judged.append(step._replace(decision=decision, rebuilt=rebuilt))
    return judged

"""What a crash left behind, and what is to be done about it: the decisions, no action.

`scan` reads the bytes of one segment file and says how far they are whole batches with the offsets
that belong there, and what comes behind:

    WHOLE    | batch | batch |                        nothing
    ZEROS    | batch | batch | 00 00 00 ... |         the size grew, the data did not
    TORN     | batch | bat                            nothing valid follows
    HOLE     | batch | ??????? | batch | batch |      a valid batch with a higher offset follows
    FOREIGN  | batch | bitch |                        a valid batch with an offset that is not due

`decide` is this table (the last segment is the last that holds a valid batch; who vouches is a
CHECKPOINT row of the manifest or an END frame of the write-ahead log):

| tail | last segment, nobody vouches for more | last, somebody vouched for more | not last |
|---|---|---|---|
| WHOLE | KEEP | REPAIR | KEEP, or REPAIR when the next begins at a higher offset |
| ZEROS, TORN | CUT | REPAIR | REPAIR |
| HOLE, FOREIGN | REPAIR | REPAIR | REPAIR |
| behind the last | CLEAR | | |

CUT: a write that nobody was told about; the file is cut at the last whole batch and synced.
REPAIR: bytes are missing that somebody may have been promised.  The original goes to quarantine/,
what is whole is kept, and an empty control batch with a reason stands for the rest: never a
silent cut.  Truncating at the first bad byte would throw away half of the segment.
CLEAR: a file made ahead that holds no valid batch; what is in it is kept aside, it is emptied.

The reason is `corruption` below the recovery point and in class fsync, where nothing acknowledged
can be lost otherwise; above it in the other classes `lost_tail`: a power cut may have written the
later of two batches and not the earlier.

FOREIGN is never a torn write: no crash leaves a batch with a right checksum and a wrong offset.
Where one bit makes the difference (or the leader epoch is wrong) the batch that was due stood here
and is lost; otherwise the file was copied in and says nothing about this log.

What counts as valid: magic 2, CRC-32C, and the offset: batches follow each other without a hole,
so base offset and length, of which the first lies outside the CRC, are checked by their
neighbours.  The leader epoch, outside the CRC too, is what the manifest says for that offset.
Where batches go on behind damage: behind_damage.py.  Behind whole batches of lower offsets the one
that is due is accepted.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice, pairwise
from typing import NamedTuple, TypeAlias

from segbroker.protocol.batch_layout import HEADER_SIZE
from segbroker.protocol.record_batch import BatchHeader, GapReason, gap_batches, read_header

from .behind_damage import batch_at, checked_at, find_resume, is_resume
from .files.index import OFFSET_SPAN_MAX


class Tail(Enum):
    """What lies behind the whole batches of a file."""

    WHOLE = "whole"
    ZEROS = "zeros"
    TORN = "torn"
    HOLE = "hole"
    FOREIGN = "foreign"


class Decision(Enum):
    """What is to be done with a segment file."""

    KEEP = "keep"
    CUT = "cut"
    REPAIR = "repair"
    CLEAR = "clear"


class Found(NamedTuple):
    """A valid batch and where it lies."""

    position: int
    header: BatchHeader


class Scan(NamedTuple):
    """What the bytes of one segment file say."""

    batches: list[Found]
    valid_size: int
    next_offset: int
    tail: Tail
    resume: int
    """Where valid batches go on behind a HOLE; -1 otherwise."""
    misplaced: int = 0
    """Offsets of a FOREIGN batch that stood where it was due, but for a flipped bit."""

    @property
    def first_offset(self) -> int | None:
        """Base offset of the first valid batch, wherever it lies in the file."""
        return self.batches[0].header.base_offset if self.batches else None


def decide(tail: Tail, *, is_last: bool, is_short: bool) -> Decision:
    """The table of the head.  `is_short`: fewer offsets than somebody, or the base of the next
    segment, vouches for."""
    if tail in (Tail.HOLE, Tail.FOREIGN) or is_short:
        return Decision.REPAIR
    if tail is Tail.WHOLE:
        return Decision.KEEP
    return Decision.CUT if is_last else Decision.REPAIR


Epochs: TypeAlias = Sequence[tuple[int, int]]
"""(leader epoch, offset where it begins), rising; empty when nobody knows."""


def epoch_at(epochs: Epochs, offset: int) -> int:
    """The leader epoch that a batch at `offset` carries."""
    found = 0
    for epoch, start in epochs:
        if start > offset:
            break
        found = epoch
    return found


def scan(data: memoryview, offset: int | None, position: int = 0, *, epochs: Epochs = ()) -> Scan:
    """Walk the batches of a segment from `position`, where `offset` is due.

    offset None: the first batch says (a log without a manifest).  epochs: what the batches' leader
    epochs, which lie outside the CRC, have to be.
    """
    batches: list[Found] = []
    size = len(data)
    while position < size:
        header = batch_at(data, position)
        if header is None or (offset is not None and header.base_offset != offset):
            break
        if epochs and header.leader_epoch != epoch_at(epochs, header.base_offset):
            break
        batches.append(Found(position, header))
        offset = header.next_offset
        position += header.size
    next_offset = offset if offset is not None else 0
    if position == size:
        return Scan(batches, position, next_offset, Tail.WHOLE, -1)
    resume = _find_due(data, position, offset)
    if resume < 0:
        resume = find_resume(data, position, next_offset, offset)
    if resume >= 0:
        return Scan(batches, position, next_offset, Tail.HOLE, resume)
    foreign = checked_at(data, position)
    if foreign is not None:
        misplaced = foreign.last_offset_delta + 1 if _is_misread(foreign, offset) else 0
        return Scan(batches, position, next_offset, Tail.FOREIGN, -1, misplaced)
    tail = Tail.TORN if any(data[position:]) else Tail.ZEROS
    return Scan(batches, position, next_offset, tail, -1)


def end_behind(data: memoryview, found: Scan, epochs: Epochs = ()) -> int:
    """Where a file ends of which `found` is the scan, with what lies behind its holes."""
    while found.tail is Tail.HOLE:
        resumed = max(found.next_offset, read_header(data, found.resume).base_offset)
        found = scan(data, resumed, found.resume, epochs=epochs)
    return found.next_offset


def _find_due(data: memoryview, position: int, offset: int | None) -> int:
    """Where `offset` begins behind whole batches that lead up to it; -1: there are none.

    A cleaning made one segment of several, and older ones were put back in front of it.
    """
    begin = position
    while offset is not None and (header := batch_at(data, position)) is not None:
        if header.base_offset >= offset:
            return position if header.base_offset == offset and position > begin else -1
        position += header.size
    return -1


def _is_misread(header: BatchHeader, offset: int | None) -> bool:
    """Whether a batch with a right checksum differs by one bit from the one that was due."""
    if offset is None:
        return False
    wrong = (header.base_offset ^ offset) & 0xFFFF_FFFF_FFFF_FFFF
    if not wrong:
        return True  # then it is the epoch
    return not wrong & (wrong - 1)


class Gap(NamedTuple):
    """Offsets [begin, end) that are gone."""

    begin: int
    end: int
    reason: GapReason


class Rebuilt(NamedTuple):
    """The content of a repaired segment."""

    parts: list[bytes | memoryview]
    next_offset: int
    gaps: list[Gap]


class Loss(NamedTuple):
    """How a loss in this log is to be told.

    now_ms: when it was noticed.  recovery_point: below it everything was synced.  above: the
    reason at or past it.
    """

    now_ms: int
    epochs: Epochs
    leader_epoch: int
    recovery_point: int = 0
    above: GapReason = GapReason.CORRUPTION

    def gap(self, begin: int, end: int) -> Gap:
        """The notice for [begin, end)."""
        below = begin < self.recovery_point
        return Gap(begin, end, GapReason.CORRUPTION if below else self.above)

    def batches(self, gap: Gap) -> list[bytes]:
        """A gap as it is stored: no batch of it goes past the end of its leader epoch."""
        inside = (start for _, start in self.epochs if gap.begin < start < gap.end)
        borders = [gap.begin, *dict.fromkeys(inside), gap.end]
        return [
            batch
            for begin, end in pairwise(borders)
            for batch in gap_batches(begin, end, gap.reason, self.now_ms, self._epoch_at(begin))
        ]

    def _epoch_at(self, offset: int) -> int:
        return epoch_at(self.epochs, offset) if self.epochs else self.leader_epoch


def rebuild(
    data: memoryview,
    offset: int,
    end_offset: int,
    loss: Loss,
    *,
    is_followed: bool,
    starts_at: int = -1,
) -> Rebuilt:
    """What is whole in a damaged segment, with gaps for the rest.

    offset: due at the beginning.  end_offset: what the segment has to reach; -1: nobody says.
    is_followed: the next segment begins at end_offset, so nothing here may pass it.  starts_at:
    where its first batch begins, by `first_offset_of`, when that is higher than `offset`.
    """
    parts: list[bytes | memoryview] = []
    gaps: list[Gap] = []
    position = 0

    def gap(until: int) -> None:
        gaps.append(loss.gap(offset, until))
        parts.extend(loss.batches(gaps[-1]))

    if starts_at > offset:
        gap(starts_at)
        offset = starts_at
    while True:
        found = scan(data, offset, position, epochs=loss.epochs)
        kept = found.batches
        if is_followed:  # what lies past the end is not of this segment
            kept = [batch for batch in kept if batch.header.next_offset <= end_offset]
        if kept:
            parts.append(data[position : kept[-1].position + kept[-1].header.size])
            offset = kept[-1].header.next_offset
        if len(kept) < len(found.batches):
            break
        if found.tail is not Tail.HOLE:
            break
        position = found.resume
        resumed = read_header(data, position).base_offset
        if is_followed and resumed >= end_offset:
            break
        if resumed > offset:  # else nothing is missing, but there is something in front of it
            gap(resumed)
            offset = resumed
    if not is_followed:
        end_offset = max(end_offset, offset + found.misplaced)
    if offset < end_offset:
        gap(end_offset)
        offset = end_offset
    return Rebuilt(parts, offset, gaps)


def stamp_of(header: BatchHeader) -> int:
    """The timestamp that a batch counts with in an index: none for a gap, which holds no record."""
    return -1 if header.is_control and not header.records_count else header.max_timestamp


def base_offset_of(data: memoryview) -> int | None:
    """What the first batch of a segment says of itself; None when it is not valid."""
    header = base_header(data)
    return None if header is None else header.base_offset


def base_header(data: memoryview) -> BatchHeader | None:
    """The header of the first batch of a segment; None when it is not valid."""
    return batch_at(data, 0)


def first_offset_of(data: memoryview, offset: int, *, is_confirmed: bool) -> int:
    """The offset that a segment file begins at: `offset`, where the one before it ends, or more.

    A higher one is believed when the first batch is valid and the next one continues it, or when
    it is `is_confirmed` that the segment before is damaged, or missing.
    """
    header = batch_at(data, 0)
    if header is None:
        return offset
    assumed_room = -HEADER_SIZE if is_confirmed else 0
    return header.base_offset if is_resume(data, assumed_room, 0, offset) else offset


def begin_of(files: Sequence[memoryview]) -> int:
    """Where a log begins of which only its batches say so.  files: those with anything in them.

    By the first one, whose offset lies outside of its checksum: so not where that does not fit the
    two behind it, which fit each other.
    """
    heads = list(islice(_heads(files), 3))
    if not heads:
        found = next((base for data in files if (base := any_offset_of(data)) is not None), 0)
        return found - 1 if found > OFFSET_SPAN_MAX else 0  # what is in front of it is a gap
    first = heads[0][1]
    if len(heads) == 3:
        (position, second), (_, third) = heads[1:]
        distance = second.base_offset - first.next_offset
        is_wrong = distance if position else distance < 0  # a file may be missing in between
        if is_wrong and third.base_offset == second.next_offset:
            return max(0, second.base_offset - first.last_offset_delta - 1)
    return first.base_offset


def any_offset_of(data: memoryview) -> int | None:
    """The base offset of the first valid batch of a file, wherever it lies; None without one."""
    header = batch_at(data, 0)
    if header is None:
        resume = find_resume(data, 0, None, None)
        header = None if resume < 0 else read_header(data, resume)
    return None if header is None else header.base_offset


def _heads(files: Iterable[memoryview]) -> Iterator[tuple[int, BatchHeader]]:
    """The valid batches that lie directly behind each other, from the first on, each with its
    position in its file."""
    for data in files:
        position = 0
        while position < len(data):
            header = batch_at(data, position)
            if header is None:
                return
            yield position, header
            position += header.size

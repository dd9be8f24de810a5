"""Which frames of a shard were there and are not: judged by what the others say.

| found | means |
|---|---|
| the lsns jump, and a later group is there | the frames between were synced: damage |
| the lsns jump, and none is there | a group that was being written, or damage to it |
| the first frame of all is not at the beginning | those before it are missing: see below |
| a GIVEN_UP frame | those that it speaks of never were, whatever is left of them |

A frame vouches for all before its group (`durable_below`): the writer begins no group before the
one in front is synced.

Before the first frame of all no lsn says how many are missing.  They are damage if anything of a
later group is there; else that frame's own group may have begun there, torn.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..disk.storage import Buffer
from .frames import (
    AFTER_FAILURE,
    FRAME,
    FRAME_MAGIC,
    FRAME_SIZE,
    FRAMES_BEGIN,
    SEQUENCE_MASK,
    SUM_SIZE,
    Frame,
    FrameType,
)
from .scanning import First, Hole, Scanned, Suspect


class Missing(NamedTuple):
    """Frames that were there and are not."""

    path: str
    """The file whose frames stand behind them."""
    lsn: int
    """Of the first of them; where their number is not known, of the first behind them, -1 for a
    file whose header is gone."""
    frames: int
    """0: nobody knows how many."""
    durable: bool
    """They had been synced: damage.  False: a group that was being written, or damage to it."""
    is_torn: bool = False
    """Nobody was told of them: their group awaits a MARK that is not there."""
    is_gone: bool = False
    """The whole file is, of which its marker speaks."""
    position: int = -1
    """Of bytes that are no frame, in a `kept-` file, or where frames were known to be."""
    size: int = 0

    @property
    def is_in_doubt(self) -> bool:
        """Torn by a power cut and told to nobody, or damaged: nothing says which."""
        return not (self.durable or self.is_torn)

    @property
    def what(self) -> str:
        """Which frames, in words."""
        if self.is_gone:
            return "the file is missing: all frames in it"
        if self.size:
            return f"all frames in bytes {self.position} to {self.position + self.size}"
        if self.frames:
            return f"{self.frames} frames from lsn {self.lsn} on"
        return (
            "all frames, by a damaged header," if self.lsn < 0 else f"frames below lsn {self.lsn}"
        )


def damage(path: str, hole: Hole | None = None, *, is_gone: bool = False) -> Missing:
    """What was durable and is not there, of which nobody knows how many frames it was."""
    position, size = (-1, 0) if hole is None else (hole.position, hole.size)
    return Missing(path, -1, 0, durable=True, is_gone=is_gone, position=position, size=size)


def is_in(missing: Sequence[Missing], one: Suspect) -> bool:
    """Whether a frame is one of those that were durable and are not there."""
    return any(m.durable and m.lsn <= one.lsn < m.lsn + m.frames for m in missing)


def without_given_up(files: Sequence[tuple[str, Scanned]]) -> list[tuple[str, Scanned]]:
    """The files of one shard without what GIVEN_UP frames speak of, damaged or not: whatever a
    write or a sync that failed has left of it was never told to anybody."""
    given_up = [
        range(frame.base_offset, frame.lsn)
        for _, one in files
        for frame in one.frames
        if frame.type is FrameType.GIVEN_UP
    ]
    return [(path, _without(one, given_up)) for path, one in files] if given_up else list(files)


def _without(one: Scanned, given_up: Sequence[range]) -> Scanned:
    def counts(lsn: int) -> bool:
        return not any(lsn in lsns for lsns in given_up)

    kept = [
        (position, frame)
        for position, frame in zip(one.positions, one.frames, strict=True)
        if counts(frame.lsn)
    ]
    first = one.first
    if first is not None and not counts(first.lsn):
        # Nothing that counts follows in this file, unless it is whole.
        first = next((First.of(position, frame) for position, frame in kept), None)
    return one._replace(
        frames=[frame for _, frame in kept],
        positions=[position for position, _ in kept],
        suspects=[suspect for suspect in one.suspects if counts(suspect.lsn)],
        first=first,
    )


def frames_missing(frames: list[tuple[str, Frame]]) -> Iterator[Missing]:
    """The jumps in the lsns of one shard."""
    if not frames:
        return
    # What any later frame vouches for counts, so from the end.
    durable_below = 0
    holes: list[Missing] = []
    following: Frame | None = None
    path = ""
    for where, frame in reversed(frames):
        lsn = frame.lsn + 1
        if following is not None and not following.flags & AFTER_FAILURE:
            until = _counts_below(following)
            if lsn < until:
                holes.append(Missing(path, lsn, until - lsn, lsn < durable_below))
        durable_below = max(durable_below, frame.durable_below)
        following, path = frame, where
    yield from reversed(holes)


def _counts_below(frame: Frame) -> int:
    """Every frame with a smaller lsn than this has to be there, if this one is."""
    return frame.base_offset if frame.type is FrameType.GIVEN_UP else frame.lsn


def frames_max_in(size: int) -> int:
    """Frames that so many bytes had, at most."""
    return size // (FRAME_SIZE + SUM_SIZE)


def missing_in_front(files: Sequence[tuple[str, Scanned]]) -> tuple[Missing, int] | None:
    """What stood in front of the first frame of one shard, whose files these are, and how many
    frames that are at most; None where nothing is missing."""
    room = 0
    for place, (path, scanned) in enumerate(files):
        first = scanned.first
        if first is None:
            room += scanned.size - FRAMES_BEGIN  # nothing is left of what a file had
            continue
        room += first.position - FRAMES_BEGIN
        lsn = first.lsn
        if first.frame is not None and first.frame.type is FrameType.GIVEN_UP:
            lsn = first.frame.base_offset
            room = min(room, _room_below(files[: place + 1], first.frame))
        frames_max = min(lsn, frames_max_in(room))
        if frames_max <= 0 or first.flags & AFTER_FAILURE:
            return None
        later = (frame.durable_below for _, one in files for frame in one.frames)
        durable = max(later, default=0) >= lsn or first.durable_below == first.lsn
        return Missing(path, lsn, 0, durable), frames_max
    return None


def _room_below(files: Sequence[tuple[str, Scanned]], given_up: Frame) -> int:
    """Bytes that had frames in these files before the first one that was given up."""
    room = 0
    for _, scanned in files:
        if given_up.position and scanned.header.sequence & SEQUENCE_MASK == given_up.segment:
            return room + given_up.position - FRAMES_BEGIN
        room += scanned.size - FRAMES_BEGIN
    # Its file is gone, freed with all that it had; or it does not say which one it was.
    return 0 if given_up.position else room


def events_in(content: Buffer, after: int) -> int:
    """Control events that a file without a header may have, at most, if the rest of it is whole:
    no checksum can be checked, but an lsn of an earlier use is lower than those of older files."""
    data = bytes(content)
    events = 0
    place = data.find(FRAME_MAGIC, FRAMES_BEGIN)
    while 0 <= place <= len(data) - FRAME_SIZE:
        _, _, kind, _, _, _, lsn, *_ = FRAME.unpack_from(data, place)
        events += kind == FrameType.CONTROL and lsn > after
        place = data.find(FRAME_MAGIC, place + 1)
    return events

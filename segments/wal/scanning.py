"""What the bytes of one WAL file say: its frames, and what is left of damaged ones.

    | frame 7 | ?????????????| trailer 8 | frame 9 | ????? |
                ^ skipped: 8 is a suspect, named by its trailer, or by the batches that it had

A bad frame is skipped, so damage costs one frame: the search continues at the next place where a
valid frame begins.  Nothing is judged here.  Missing frames show as missing lsns; replay.py
decides, over all files, whether they had been acknowledged.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from segbroker.protocol.record_batch import InvalidBatch, iter_batches, read_header

from .frames import (
    FRAME,
    FRAME_MAGIC,
    FRAME_SIZE,
    FRAMES_BEGIN,
    HEADER_AT_END,
    SUM_SIZE,
    TYPES,
    Frame,
    FrameType,
    Header,
    frame_at,
)
from .trailers import TRAILER_SIZE, Trailer, trailer_at, trailers_in

SUMMED_IN_VAIN_MAX: Final = 8
"""Times the bytes of a file."""


class Suspect(NamedTuple):
    """What a frame that is not valid says of itself: by its trailer, or what is left of it."""

    lsn: int
    key: tuple[bytes, int]
    end_offset: int
    type: FrameType = FrameType.BATCHES
    is_named: bool = False
    """By its trailer: it was written, and this is what it was."""
    flags: int = 0


class First(NamedTuple):
    """The first frame of a file that is known of, if only by its trailer."""

    position: int
    lsn: int
    durable_below: int
    """Every frame with a smaller lsn was durable before this one was written."""
    flags: int
    frame: Frame | None = None
    """It, if it is whole."""

    @classmethod
    def of(cls, position: int, frame: Frame) -> "First":
        """That of a whole frame."""
        return cls(position, frame.lsn, frame.durable_below, frame.flags, frame)


class Hole(NamedTuple):
    """Bytes that are no frame, and none that was made again from its trailer."""

    position: int
    size: int
    is_named: bool
    """Trailers say of all of it which frames it was."""


class Scanned(NamedTuple):
    """What the bytes of one file say."""

    frames: list[Frame]
    positions: list[int]
    """Where each begins."""
    end: int
    """Behind the last valid frame."""
    suspects: list[Suspect]
    """BATCHES and CONTROL frames that are not valid; those of the last bytes only by a trailer."""
    first: First | None
    size: int
    """Bytes up to where there is no room for frames."""
    header: Header
    holes: list[Hole]
    """Between the frames, and behind the last: there the file may just not be full."""

    @property
    def cut(self) -> Hole | None:
        """What is missing at the end of a file that is shorter than it says."""
        missing = self.header.frames_end - self.size
        return Hole(self.size, missing, is_named=False) if missing > 0 else None


def scan_file(data: memoryview, header: Header) -> Scanned:
    """All valid frames of a file, in order.

    What stands behind the room for frames is not looked at.  A frame whose lsn does not rise is
    none.  END, BARRIER, MARK and GIVEN_UP have nothing that is needed and their trailers have not:
    these are made again from them.
    """
    salt, trailer_size = header.salt, header.trailer_size
    if header.version >= HEADER_AT_END:
        data = data[: header.frames_end]
    frames: list[Frame] = []
    positions: list[int] = []
    suspects: list[Suspect] = []
    holes: list[Hole] = []
    first: First | None = None
    position = FRAMES_BEGIN
    end = position
    while True:
        after = frames[-1].lsn if frames else -1
        frame = frame_at(data, position, salt, trailer_size)
        if frame is None or frame.lsn <= after:
            damaged = position
            position, frame = _resume(data, position, header, after)
            until = position if frame is not None else len(data)
            named: list[Trailer] = []
            if trailer_size:
                named += trailers_in(data, damaged, until, salt, after)
            suspected = len(suspects)
            for trailer in named:
                first = first or _first_of(trailer, header)
                _name(trailer, frames, positions, suspects)
            is_named = sum(trailer.size for trailer in named) == until - damaged
            if len(suspects) > suspected or not is_named:
                holes.append(Hole(damaged, until - damaged, is_named))
            if frame is None:
                break
            if not named:
                suspects += _suspects(data[damaged:position], after + 1, trailer_size)
        first = first or First.of(position, frame)
        frames.append(frame)
        positions.append(position)
        position += frame.size - TRAILER_SIZE + trailer_size
        end = position
    return Scanned(frames, positions, end, suspects, first, len(data), header, holes)


def _first_of(trailer: Trailer, header: Header) -> First:
    # Trailers of version 2 do not say the ordinal.
    durable_below = trailer.lsn - trailer.ordinal if header.version > 2 else 0
    return First(trailer.position, trailer.lsn, durable_below, trailer.flags)


def _name(
    trailer: Trailer, frames: list[Frame], positions: list[int], suspects: list[Suspect]
) -> None:
    """What is left of a damaged frame that has its trailer."""
    kind = TYPES.get(trailer.type)
    if kind in (FrameType.BATCHES, FrameType.CONTROL):
        suspects.append(
            Suspect(
                trailer.lsn,
                trailer.key,
                trailer.end_offset,
                kind,
                is_named=True,
                flags=trailer.flags,
            )
        )
    elif kind is not None:
        again = Frame(
            kind,
            *trailer.key,
            base_offset=max(trailer.end_offset, 0),  # END and GIVEN_UP say it twice
            lsn=trailer.lsn,
            ordinal=trailer.ordinal,
            flags=trailer.flags,
            end_offset=trailer.end_offset,
        )
        frames.append(again)
        positions.append(trailer.position)


def _suspects(data: memoryview, lsn: int, trailer_size: int) -> Iterator[Suspect]:
    """What damaged frames say, as far as it hangs together: one flipped bit may stand anywhere."""
    position = 0
    overhead = FRAME_SIZE + SUM_SIZE + trailer_size
    while len(data) - position >= overhead:
        _, length, kind, _, _, partition, _, topic_id, _, _, base_offset, _ = FRAME.unpack_from(
            data, position
        )
        length = min(length, len(data) - position)
        end_offset = -1
        if kind == FrameType.BATCHES and length > overhead:
            payload = data[position + FRAME_SIZE : position + length + FRAME_SIZE - overhead]
            end_offset = _end_of(payload, base_offset)
        if end_offset >= 0:
            yield Suspect(lsn, (topic_id, partition), end_offset)
        lsn += 1
        position += max(length, overhead)


def _end_of(payload: memoryview, base_offset: int) -> int:
    """Where the batches of a damaged payload end; -1 where they contradict its frame at once."""
    end_offset = -1
    try:
        for batch in iter_batches(payload):
            header = read_header(batch)
            if header.base_offset != (base_offset if end_offset < 0 else end_offset):
                break
            if not 0 <= header.last_offset_delta <= len(batch):
                break
            end_offset = header.next_offset
    except InvalidBatch:
        pass
    return end_offset


def _resume(
    data: memoryview, position: int, header: Header, after: int
) -> tuple[int, Frame | None]:
    """The first valid frame behind `position` with an lsn above `after`, wherever it begins.

    Records that somebody sent may look like frames, each as long as the file: so few that are none
    are summed, and behind those only what has its trailer, for which one has to know the salt.
    """
    content = data.obj if isinstance(data.obj, bytes | bytearray) else bytes(data)
    found = content.find(FRAME_MAGIC, position + 1, len(data))
    room = SUMMED_IN_VAIN_MAX * len(data)
    while found >= 0:
        if int.from_bytes(data[found + 16 : found + 24], "big") > after:
            size = int.from_bytes(data[found + 4 : found + 8], "big")
            if room > 0 or _has_trailer(data, found, size, header.salt):
                frame = frame_at(data, found, header.salt, header.trailer_size)
                if frame is not None:
                    return found, frame
                room -= min(size, len(data) - found)
        found = content.find(FRAME_MAGIC, found + 1, len(data))
    return position, None


def _has_trailer(data: memoryview, position: int, size: int, salt: int) -> bool:
    trailer = trailer_at(data, position + size - TRAILER_SIZE, salt)
    return trailer is not None and trailer.position == position

"""Where valid batches go on behind damage in a segment file: the search of decisions.py.

    | batch | batch | ???????????????? | batch | batch |
                      ^ damaged          ^ find_resume
                      a batch is due here, and none is valid

Nothing says where the next batch begins but what is left of the damaged one; and the value of a
record is any bytes, also those of a whole batch.  So it is looked for in this order, and the first
that is believed ends the search (docs/decisions/0356):

1. Where the damaged batch says that it ends.  Its header is believed if it has the offset that is
   due, or all of the batch its checksum.  Its length lies outside of that: where no batch seems to
   begin there, the lengths that differ in one byte are tried, and the checksum says which is right.
   What begins at its end counts if it has the very next offset, or is confirmed; at the end of
   one whose header is not believed, if it is confirmed.
2. If that is damaged as well, and has the next offset: the same again, as often as it takes.
3. Wherever there is a magic byte behind the beginning of the last of these, if the batch there is
   confirmed.  What lies within the last of them is the value of a record, but where it has the next
   offset, and batches lead from it to where that one says that it ends, or the file does.
4. What was found so may be in the value of a batch whose header is lost: it is, if as many whole
   batches behind it have offsets that contradict it; the first of those counts in its place.

Confirmed: its checksum is right, its offset is higher than that of what is whole in front of the
damage, by OFFSET_SPAN_MAX at most, and behind it are the next offset, more damage, or the end of
the file.  Where any offset will do, nobody knows which is due: the first such batch counts that
another one, or the end of the file, follows.

Bytes in, positions out: no state, no I/O, nothing is raised.
"""

from collections.abc import Iterator
from typing import Final

from segbroker.protocol.batch_layout import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_POSITION,
)
from segbroker.protocol.checksums import crc32c
from segbroker.protocol.record_batch import BatchHeader, InvalidBatch, check_batch, read_header

from .files.index import OFFSET_SPAN_MAX

_MAGIC: Final = bytes([MAGIC])
WITHIN_MAX: Final = 16 << 20
"""Bytes that a batch may have behind those that its value holds, for these to be doubted."""


def batch_at(data: memoryview, position: int) -> BatchHeader | None:
    """The header of the valid batch at `position`; None when there is none."""
    header = checked_at(data, position)
    if header is None:
        return None
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.leader_epoch < 0:
        return None
    return header


def checked_at(data: memoryview, position: int) -> BatchHeader | None:
    """The same by its checksum alone, whatever its offset and epoch."""
    if len(data) - position < HEADER_SIZE or data[position + MAGIC_POSITION] != MAGIC:
        return None
    size = LENGTH_END + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    if not HEADER_SIZE <= size <= len(data) - position:
        return None
    try:
        header = check_batch(data[position : position + size], stored=True)
    except InvalidBatch:
        return None
    return header


def find_resume(data: memoryview, damaged: int, offset: int | None, due: int | None) -> int:
    """Where valid batches go on behind the damage that begins at `damaged`; -1: nowhere.

    First where the damaged batch says that it ends, then wherever a magic byte could be one that is
    not within that batch, nor within the next ones, where those are damaged as well.  offset: they
    have higher ones; None: any.  due: what is due at the damage; None: nobody knows.
    """
    begin, own = damaged, _Own(data, damaged, due)
    if own.end == begin and len(data) - begin >= LENGTH_END:
        size = LENGTH_END + int.from_bytes(data[begin + 8 : begin + 12], "big", signed=True)
        if size >= HEADER_SIZE and is_resume(data, damaged, begin + size, offset):
            return begin + size
    while own.end > begin:
        following_offset = read_header(data, begin).next_offset
        if is_resume(data, damaged, own.end, offset) or (
            _is_in_reach(data, own.end, offset)
            and (following := batch_at(data, own.end)) is not None
            and following.base_offset == following_offset
        ):
            return own.end
        behind = _Own(data, own.end, following_offset)
        if behind.end == own.end:
            break
        begin, own = own.end, behind
    content = bytes(data)
    following_offset = read_header(data, begin).next_offset if own.end > begin else -1
    found = content.find(_MAGIC, begin + 1 + MAGIC_POSITION)
    while found >= 0:
        position = found - MAGIC_POSITION
        if (
            _is_in_reach(data, position, offset)
            and (
                not own.reaches(position) or _leads_past(data, position, following_offset, own.end)
            )
            and is_resume(data, damaged, position, offset)
        ):
            return position if offset is None else _firmest(content, damaged, position, offset)
        found = content.find(_MAGIC, found + 1)
    return -1


def is_resume(data: memoryview, damaged: int, position: int, offset: int | None) -> bool:
    """Whether a batch at `position` is confirmed, behind damage that begins at `damaged` and whole
    batches up to `offset`; None: any offset will do."""
    if len(data) - position < HEADER_SIZE or not _is_in_reach(data, position, offset):
        return False
    if offset is None and not _seems_followed(data, position):
        return False
    header = batch_at(data, position)
    if header is None:
        return False
    end = position + header.size
    if end == len(data):
        # The last batch has no neighbour that confirms its offset; the damage in front of it
        # must at least have room for the batch that is missing.
        return position - damaged >= HEADER_SIZE
    if len(data) - end < 8:
        return True
    following = int.from_bytes(data[end : end + 8], "big", signed=True)
    return following == header.next_offset or batch_at(data, end) is None


def _is_in_reach(data: memoryview, position: int, offset: int | None) -> bool:
    """Whether what lies there could be the base offset of a batch behind `offset`; None: any is."""
    base_offset = int.from_bytes(data[position : position + 8], "big", signed=True)
    return base_offset >= 0 if offset is None else 0 < base_offset - offset <= OFFSET_SPAN_MAX


def _seems_followed(data: memoryview, position: int) -> bool:
    """Whether another batch goes on, or the file ends, where this one says that it ends.

    Asked before its checksum where any offset will do: every fourth place in random bytes with the
    magic would be summed up, each over a part of the file.
    """
    header = read_header(data, position)
    end = position + header.size
    if header.size < HEADER_SIZE or end > len(data):
        return False
    if len(data) - end < 8:
        return True
    return int.from_bytes(data[end : end + 8], "big", signed=True) == header.next_offset


class _Own:
    """The bytes of the batch that is due where damage begins, as far as its header says.

    They may hold whole batches: a value is any bytes.  The header is believed if it has the offset
    that is due, or all of the batch its checksum.
    """

    __slots__ = ("_checksum", "_data", "_sum", "_summed_to", "end")

    def __init__(self, data: memoryview, begin: int, due: int | None) -> None:
        """due: None: nobody knows."""
        self._data = data
        self._checksum = self._sum = 0
        self._summed_to = begin + ATTRIBUTES_POSITION
        self.end = begin
        """Where it ends, also behind the end of the file; `begin` where nothing is believed."""
        if len(data) - begin < HEADER_SIZE or data[begin + MAGIC_POSITION] != MAGIC:
            return
        header = read_header(data, begin)
        if due not in (None, header.base_offset) and not checked_at(data, begin):
            return
        self._checksum = header.crc
        if header.size >= HEADER_SIZE:
            self.end = begin + header.size
            if self.end <= len(data) and self._may_end(self.end, header.base_offset):
                return
        for length in _but_for_a_byte(header.batch_length):
            end = begin + LENGTH_END + length
            if (
                begin + HEADER_SIZE <= end <= len(data)
                and self._may_end(end, header.base_offset)
                and crc32c(data[self._summed_to : end]) == self._checksum
            ):
                self.end = end  # its length, which lies outside of the checksum, is damaged
                break

    def _may_end(self, end: int, offset: int) -> bool:
        """Whether another batch begins there, or nothing does."""
        data = self._data
        return end == len(data) or (
            len(data) - end > MAGIC_POSITION
            and data[end + MAGIC_POSITION] == MAGIC
            and _is_in_reach(data, end, offset)
        )

    def reaches(self, position: int) -> bool:
        """Whether it goes on at `position`; not if its checksum says that it ends there, and its
        length, which lies outside of that, is what is damaged.  Asked with rising positions."""
        if position >= self.end:
            return False
        if position <= self._summed_to:
            return True
        self._sum = crc32c(self._data[self._summed_to : position], self._sum)
        self._summed_to = position
        if self._sum != self._checksum:
            return True
        self.end = position  # what lies behind it is not within, whatever its length says
        return False


def _but_for_a_byte(length: int) -> Iterator[int]:
    """What a length may have been of which one byte is damaged."""
    for shift in (0, 8, 16, 24):
        for wrong in range(1, 256):
            changed = (length ^ (wrong << shift)) & 0xFFFF_FFFF
            if changed < 1 << 31:
                yield changed


def _leads_past(data: memoryview, position: int, offset: int, end: int) -> bool:
    """Whether batches from this offset on lead up to `end`, or the end of the file.  Then they are
    in no value of a damaged batch that claims to end there, as no value ends where its batch does:
    its length is damaged as well."""
    base_offset = int.from_bytes(data[position : position + 8], "big")
    return base_offset == offset and _run(data, position)[1] >= min(end, len(data))


def _firmest(content: bytes, damaged: int, position: int, offset: int) -> int:
    """Where valid batches go on behind the damage: at `position`, or behind that, if as many whole
    batches there have offsets that are not behind those of it.

    What is in front is in the value of a damaged batch then, whose header is lost.  An end of the
    file that they lead up to counts as one more: no value ends where its batch does.
    """
    data = memoryview(content)
    batches, end, following = _run(data, position)
    until = end + WITHIN_MAX
    found = content.find(_MAGIC, end + MAGIC_POSITION, until)
    while found >= 0:
        other = found - MAGIC_POSITION
        base_offset = int.from_bytes(content[other : other + 8], "big")
        if offset < base_offset < following and is_resume(data, damaged, other, offset):
            others, end, other_following = _run(data, other)
            others += end == len(data)
            if others >= batches:
                position, batches, following = other, others, other_following
            found = end + MAGIC_POSITION - 1
        found = content.find(_MAGIC, found + 1, until)
    return position


def _run(data: memoryview, position: int) -> tuple[int, int, int]:
    """How many whole batches follow each other from the one at `position` on, where they end, and
    the offset that is due there."""
    batches, offset = 0, -1
    while (header := batch_at(data, position)) is not None and offset in (-1, header.base_offset):
        batches, offset = batches + 1, header.next_offset
        position += header.size
    return batches, position, offset

"""Sealed segments read from a shared file system, past the broker; every block is verified.

    <folder>/topics/<topic>/partition_<N>/
        <topic>_partition_<N>.manifest             which segments are sealed
        <topic>_partition_<N>_segment_<k>.index    their blocks
        <topic>_partition_<N>_segment_<k>.log      batches

The formats are those of docs/formats.md: a manifest row and an index header carry an XXH3-64 of
their own, and each index entry the XXH3-64 of its block and of itself.  Nothing that does not
match is handed out; what cannot be read here (not sealed yet, evicted, another format, damaged) is
left to the broker, which knows why.

A reader of its own on protocol/, and not the storage engine: executors only ever read (docs/
decisions/0137).

The folder is found by the topic's name, and belongs to the topic whose id the manifest's header
tells: one that was made again has another, and a manifest that does not say (of an earlier version,
until the broker opens the log) proves nothing.  All files are opened inside the folder that was
open first, which a deletion renames: they are of one topic, whatever happens to its name.

Invariant: what is yielded is verified, whole and in order; PINNED_COUNT_MAX segments ahead of the
reading are open, so that retention, which unlinks them, takes them from nobody who reads.
"""

import os
import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from segbroker.protocol.checksums import xxh3_64

from .offsets import OffsetRange

MANIFEST_MAGIC = b"SBMF"
INDEX_MAGIC = b"SBIX"
VERSION = 1
HEADER_SIZE = 32
_MANIFEST_HEAD = struct.Struct(">4sHHqQQ")
_ROW = struct.Struct(">BBHIQqqQIIqQ")
_INDEX_HEAD = struct.Struct(">4sHHqqQ")
_ENTRY = struct.Struct(">IIIIqQ")
_SUMMED_SIZE = 24
_SEGMENT_ROW = 1
_HOT = 0

PINNED_COUNT_MAX = 64
# Blocks are read in runs of about this size.
RUN_BYTES = 4 << 20


class Unreadable(Exception):
    """The files do not have it, or not as it was written; says why."""


class Sealed(NamedTuple):
    """What the manifest says of a segment."""

    number: int
    base_offset: int
    end_offset: int
    size: int
    tag: int


@dataclass(frozen=True, slots=True)
class Block:
    """One entry of an index: where a run of batches lies, and what proves it."""

    offset: int
    position: int
    length: int
    summed: bytes
    checksum: int


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A segment that is open; its index is in memory."""

    segment: Sealed
    descriptor: int
    blocks: list[Block]


class SegmentFiles:
    """The sealed segments of one partition under a broker's data directory.

    topic_id: whose segments they have to be; None: the broker knows no ids, and none is asked for.
    """

    def __init__(
        self, folder: str, topic: str, partition: int, topic_id: UUID | None = None
    ) -> None:
        self._folder = os.path.join(folder, "topics", topic, f"partition_{partition}")
        self._name = f"{_file_stem(topic)}_partition_{partition}"
        self._owner: int | None = None
        if topic_id is not None:
            self._owner = xxh3_64(topic_id.bytes + partition.to_bytes(4, "big")) or 1

    def runs(self, wanted: OffsetRange) -> Generator[memoryview]:
        """Whole batches from the one that holds wanted.start on, as far as sealed segments go.

        Raises Unreadable at the first place where the files cannot be believed or are not there;
        everything before it has been yielded.
        """
        pinned: deque[_Pinned] = deque()
        folder = self._open_folder()
        try:
            todo = deque(self._sealed(folder, wanted))
            while todo or pinned:
                failed: Unreadable | None = None
                while todo and len(pinned) < PINNED_COUNT_MAX and failed is None:
                    try:
                        pinned.append(self._pin(folder, todo[0]))
                        todo.popleft()
                    except Unreadable as exc:
                        # What is pinned before it can still be read.
                        failed = exc
                if failed is not None and not pinned:
                    raise failed
                yield from _read(pinned[0], wanted)
                os.close(pinned.popleft().descriptor)
        finally:
            os.close(folder)
            for each in pinned:
                os.close(each.descriptor)

    def sealed(self, wanted: OffsetRange) -> list[Sealed]:
        """The segments that hold offsets of the range, in order and without a hole.

        Raises Unreadable where there is no manifest, or it is not that of the topic.
        """
        folder = self._open_folder()
        try:
            return self._sealed(folder, wanted)
        finally:
            os.close(folder)

    def _open_folder(self) -> int:
        try:
            return os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            raise Unreadable(str(exc)) from exc

    def _sealed(self, folder: int, wanted: OffsetRange) -> list[Sealed]:
        path = self._name + ".manifest"
        data = _file(path, folder)
        if len(data) < HEADER_SIZE or not _is_head(data, _MANIFEST_HEAD, MANIFEST_MAGIC):
            raise Unreadable(f"{path} is not a manifest")
        owner = _MANIFEST_HEAD.unpack_from(data)[4]
        if self._owner not in (None, owner):
            whose = "of another topic" if owner else "of an earlier version, which told no topic"
            raise Unreadable(f"{path} in {self._folder} is {whose}")
        rows: dict[int, Sealed] = {}
        for position in range(HEADER_SIZE, len(data) - _ROW.size + 1, _ROW.size):
            row = data[position : position + _ROW.size]
            kind, tier, tag, _, number, base, end, size, *_, checksum = _ROW.unpack(row)
            if xxh3_64(row[:-8]) != checksum:
                break  # the file ends here: what is behind was being written
            if kind == _SEGMENT_ROW and tier == _HOT:
                rows[number] = Sealed(number, base, end, size, tag)
        found: list[Sealed] = []
        at = wanted.start
        for segment in _standing(rows):
            if segment.end_offset <= at or segment.base_offset >= wanted.end:
                continue
            if segment.base_offset > at:
                break
            found.append(segment)
            at = segment.end_offset
        return found

    def _pin(self, folder: int, segment: Sealed) -> _Pinned:
        path = f"{self._name}_segment_{segment.number}"
        blocks = _blocks(_file(path + ".index", folder), segment, path)
        return _Pinned(segment, _opened(path + ".log", folder), blocks)


def _file_stem(topic: str) -> str:
    """What the names of the files begin with (docs/formats.md): a short form of a long name."""
    if len(topic) <= 200:
        return topic
    return f"{topic[:183]}~{xxh3_64(topic.encode()):016x}"


def _standing(rows: Mapping[int, Sealed]) -> list[Sealed]:
    """The segments in order, without those of which a cleaning made one.

    That one has the number of the last of them, and begins where the first of them did.
    """
    found: list[Sealed] = []
    for number in sorted(rows, reverse=True):
        if not found or rows[number].base_offset < found[-1].base_offset:
            found.append(rows[number])
    return found[::-1]


def _read(pinned: _Pinned, wanted: OffsetRange) -> Iterator[memoryview]:
    """The blocks of a segment that hold offsets of the range, in verified runs."""
    blocks, base = pinned.blocks, pinned.segment.base_offset
    offsets = [block.offset for block in blocks]
    first = max(0, bisect_right(offsets, wanted.start - base) - 1)
    last = bisect_right(offsets, wanted.end - 1 - base)
    while first < last:
        begin = blocks[first].position
        until = first + 1
        while until < last and blocks[until].position + blocks[until].length - begin <= RUN_BYTES:
            until += 1
        size = blocks[until - 1].position + blocks[until - 1].length - begin
        try:
            data = memoryview(os.pread(pinned.descriptor, size, begin))
        except OSError as exc:
            raise Unreadable(str(exc)) from exc
        for block in blocks[first:until]:
            at = block.position - begin
            part = data[at : at + block.length]
            if (
                len(part) < block.length
                or xxh3_64(b"".join((part, block.summed))) != block.checksum
            ):
                if at:
                    yield data[:at]
                raise Unreadable(
                    f"segment {pinned.segment.number}: the block at position {block.position}"
                    " is not what its index was written for"
                )
        yield data
        first = until


def _blocks(data: bytes, segment: Sealed, path: str) -> list[Block]:
    if len(data) < HEADER_SIZE or not _is_head(data, _INDEX_HEAD, INDEX_MAGIC):
        raise Unreadable(f"{path}.index is not an index")
    _, _, tag, base_offset, _, _ = _INDEX_HEAD.unpack_from(data)
    if base_offset != segment.base_offset or (tag and segment.tag and tag != segment.tag):
        raise Unreadable(f"{path}.index is of another segment")
    blocks = []
    position = 0
    for at in range(HEADER_SIZE, len(data) - _ENTRY.size + 1, _ENTRY.size):
        offset, start, length, _, _, checksum = _ENTRY.unpack_from(data, at)
        if start != position:
            raise Unreadable(f"{path}.index has a hole at position {position}")
        blocks.append(Block(offset, start, length, data[at : at + _SUMMED_SIZE], checksum))
        position = start + length
    if position != segment.size:
        raise Unreadable(f"{path}.index ends at {position}, the segment at {segment.size}")
    return blocks


def _is_head(data: bytes, head: struct.Struct, magic: bytes) -> bool:
    found, version, *_, checksum = head.unpack_from(data)
    return bool(
        found == magic and version == VERSION and xxh3_64(data[: head.size - 8]) == checksum
    )


def _opened(name: str, folder: int) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError as exc:
        raise Unreadable(str(exc)) from exc


def _file(name: str, folder: int) -> bytes:
    try:
        with open(_opened(name, folder), "rb") as file:
            return file.read()
    except OSError as exc:
        raise Unreadable(str(exc)) from exc

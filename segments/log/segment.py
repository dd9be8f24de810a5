"""Segments: the file pairs of a log, and what may be done with one in each state.

| state | the .log file | the .index file | known as |
|---|---|---|---|
| creating | made empty, under its final name, ahead of need | - | one of `ReadySegments` |
| active | appended, synced, read | - | an `ActiveSegment`, the last |
| rotating | synced, read | written | an `ActiveSegment` that no longer grows |
| sealed | read, immutable | read, rebuilt | a place in the columns of `SealedSegments` |
| deleted | unlinked; readers keep what they pinned | unlinked | - |

Active and rotating segments are known batch by batch, in arrays: a read of the newest records
needs neither an index file nor a search, and each batch has its XXH3-64 in memory, so even these
reads are verified.

The descriptor of a segment is opened by its first use (`opened`) and may be taken away while
nobody uses it (`PartitionLog.park`): an idle partition holds none.

A file is never recycled: a Kafka CRC has no salt, so old batches in it would be valid again.
"""

import errno
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from typing import Final

from ..disk.storage import Buffer, Storage, StorageFile, size_now
from ..errors import CorruptSegment
from ..files.index import BlockBuilder, segment_tag
from ..files.manifest import Row, RowKind

MAY_NOT_BE_WRITTEN: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""What an opening to write says of a file that can be read all the same: its file system became
read-only, above all."""

_opening = threading.Lock()


class ActiveSegment:
    """A segment that is not sealed yet.

    One thread appends (under the log's append lock); others read the arrays, which only grow.
    `synced_size`, `pins`, `file` and `retired` belong to the log's locks.
    """

    __slots__ = (
        "base_offset",
        "builder",
        "created_ms",
        "file",
        "first_ms",
        "is_half_written",
        "leader_epoch",
        "max_timestamp",
        "name_is_durable",
        "next_offset",
        "number",
        "offsets",
        "opened_before",
        "path",
        "pins",
        "positions",
        "records",
        "retired",
        "size",
        "storage",
        "sums",
        "synced_size",
    )

    def __init__(
        self,
        number: int,
        base_offset: int,
        storage: Storage,
        path: str,
        *,
        file: StorageFile | None = None,
        interval: int,
        created_ms: int,
        leader_epoch: int,
        name_is_durable: bool,
    ) -> None:
        self.number = number
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.storage = storage
        self.path = path
        self.file = file
        self.created_ms = created_ms
        self.leader_epoch = leader_epoch
        self.name_is_durable = name_is_durable
        self.first_ms = -1
        self.size = 0
        self.synced_size = 0
        self.records = 0
        self.max_timestamp = -1
        self.offsets = array("q")
        self.positions = array("I")
        self.sums = array("Q")
        self.builder = BlockBuilder(base_offset, interval)
        self.pins = 0
        self.retired = False
        self.opened_before: dict[int, int] = {}
        """By producer, the first offset of the transactions that were open when it was begun, or
        when its log was opened."""
        self.is_half_written = False
        """Whether a write failed on its way: its file may be longer then, and nothing is written
        into it any more."""

    def opened(self) -> StorageFile:
        """The file, opened if it is not.  For who may not be parked meanwhile.

        Raises OSError, CorruptSegment: it was cut off, or is another, and nothing may be written
        into that.
        """
        file = self.file
        if file is None:
            with _opening:
                file = self.file
                if file is None:
                    file = self.storage.open(self.path)
                    try:
                        size = file.size()
                        if size < self.size or (size > self.size and not self.is_half_written):
                            raise CorruptSegment(self.path, size, "not as long as it was written")
                    except BaseException:
                        file.close()
                        raise
                    self.file = file
        return file

    def read_nowait(self, buffer: memoryview, position: int) -> int | None:
        """Bytes from memory; None: use `read`.  Raises OSError."""
        try:
            file = self.opened()
        except OSError as exc:
            if exc.errno in MAY_NOT_BE_WRITTEN:
                return None
            raise
        return file.pread_nowait(buffer, position)

    def read(self, buffer: memoryview, position: int) -> int:
        """Bytes of the file, also where it may not be written, or is another one: then it is opened
        for this read alone, so that nobody finds it who wants to write.  Blocking.  Raises OSError.
        """
        try:
            file = self.opened()
        except OSError as exc:
            if exc.errno not in MAY_NOT_BE_WRITTEN:
                raise
        except CorruptSegment:
            pass  # which of its batches are what was written, the reader sees
        else:
            return file.pread(buffer, position)
        with closing(self.storage.open(self.path, read_only=True)) as alone:
            return alone.pread(buffer, position)

    def is_in_place(self) -> bool:
        """Whether its file is at its path, and as long as it was.  Blocking."""
        size, file = self.size, self.file
        if file is not None:
            return file.is_in_place(size)
        if not size:
            return True  # an empty one is opened by its path, or not at all
        found = size_now(self.storage, self.path, size)
        if found <= size:
            return found == size
        # Somebody may have opened it meanwhile, and written; and closed it again.
        return self.is_half_written or self.file is not None or self.size > size

    @property
    def is_longer(self) -> bool:
        """Whether its file, which is open, has more than was written to it.  True beside an append
        as well, for who does not hold append_lock.  Blocking."""
        size, file = self.size, self.file
        if file is None or self.is_half_written:
            return False
        try:
            return file.size() > size
        except OSError:
            return False  # parked meanwhile, or the disk does not say

    def unused(self) -> list[StorageFile]:
        """Its file, for who closes or keeps it; none where nobody opened it, or somebody reads."""
        if self.pins or self.file is None:
            return []
        file, self.file = self.file, None
        return [file]

    def add(
        self, batch: Buffer, base_offset: int, next_offset: int, records: int, max_timestamp: int
    ) -> None:
        """Account for a batch that was written at `size`."""
        self.sums.append(self.builder.add(batch, base_offset, records, max_timestamp))
        self.positions.append(self.size)
        self.offsets.append(base_offset)
        self.records += records
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
        # Size before offset: who reads the offset first and the size then never sees an offset
        # whose bytes are not in the size.  `sync` rests on this.
        self.size += len(batch)
        self.next_offset = next_offset

    def add_run(
        self,
        run: memoryview,
        sizes: Sequence[int],
        counts: Sequence[int],
        max_timestamps: Sequence[int],
        offsets: Sequence[int],
    ) -> None:
        """Account for batches that were written at `size`, one behind the other.

        offsets: where each begins, and where the last ends.
        """
        self.sums.extend(self.builder.add_run(run, sizes, counts, max_timestamps, offsets[0]))
        position = self.size
        positions = list(accumulate(sizes, initial=position))
        positions.pop()
        self.positions.extend(positions)
        self.offsets.extend(offsets[:-1])
        self.records += sum(counts)
        self.max_timestamp = max(self.max_timestamp, max(max_timestamps))
        self.size += len(run)  # before the offset: see `add`
        self.next_offset = offsets[-1]

    def find(self, offset: int) -> int:
        """Ordinal of the batch that holds `offset`."""
        return max(0, bisect_right(self.offsets, offset) - 1)

    def ordinal_before(self, up_to: int) -> int:
        """How many batches lie below the offset `up_to`, a boundary of batches."""
        return bisect_left(self.offsets, min(up_to, self.next_offset))

    def position_of(self, ordinal: int) -> int:
        """Where batch `ordinal` begins; one past the last is the end."""
        return self.positions[ordinal] if ordinal < len(self.positions) else self.size

    @property
    def tag(self) -> int:
        """What stands for its batches, once it is full."""
        return segment_tag(self.sums)

    def row(self, block_size_max: int) -> Row:
        """The manifest row of this segment, sealed."""
        return Row(
            RowKind.SEGMENT,
            self.number,
            self.base_offset,
            self.next_offset,
            self.size,
            self.records,
            self.max_timestamp,
            block_size_max,
            self.leader_epoch,
            tag=self.tag,
        )

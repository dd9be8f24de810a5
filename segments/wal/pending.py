"""What a partition has appended and not given to its WAL shard yet.

    append -> | bytes of segment 7 from position 4,096 on ... | -> take: one BATCHES frame

The bytes are copied once, here, because the buffer that they came in is used again by the next
receive.  Batches that lie one behind the other in a segment become one frame, so a group under
load has a frame per partition, not per record.

Thread-safe: one thread appends, the shard's takes; the lock is held for the copy of one
batch, never for a write or a sync.
"""

import threading
from typing import Final

from ..disk.storage import Buffer
from .frames import OVERHEAD, Frame, FrameType

_BATCHES: Final = FrameType.BATCHES
FRAME_BYTES_MAX: Final = 1 << 20
"""A frame has no more, unless one batch alone has: damage costs a frame."""


class Pending:
    """The batches of one partition that wait for their shard.  `size` is their bytes."""

    __slots__ = (
        "_base_offset",
        "_end_offset",
        "_frames",
        "_limit",
        "_lock",
        "_next_position",
        "_partition",
        "_payload",
        "_position",
        "_segment",
        "_timestamp",
        "_topic_id",
        "size",
    )

    def __init__(
        self, topic_id: bytes, partition: int, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        """frame_bytes_max: what fits a WAL file; a larger batch is not for the WAL."""
        self._topic_id = topic_id
        self._partition = partition
        self._limit = min(frame_bytes_max, FRAME_BYTES_MAX)
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._payload = bytearray()
        self._segment = self._position = self._next_position = -1
        self._base_offset = self._end_offset = self._timestamp = -1
        self.size = 0

    def add(
        self,
        batch: Buffer,
        segment: int,
        position: int,
        base_offset: int,
        end_offset: int,
        timestamp: int,
    ) -> None:
        """A batch was written to `segment` at `position`."""
        size = len(batch)
        with self._lock:
            if (
                position != self._next_position
                or segment != self._segment
                or len(self._payload) + size > self._limit
            ):
                if self._payload:
                    self._cut()
                self._segment = segment
                self._position = position
                self._base_offset = base_offset
                self._timestamp = timestamp
            self._payload += batch
            self._next_position = position + size
            self._end_offset = end_offset
            self.size += size

    @property
    def frames_size(self) -> int:
        """What `take` would give, as bytes of a WAL file; for who appends."""
        return self.size + (len(self._frames) + 1) * OVERHEAD

    def take(self) -> tuple[list[Frame], int]:
        """(everything since the last call, as frames; its end offset)."""
        with self._lock:
            self._cut()
            frames, self._frames = self._frames, []
            self.size = 0
            self._next_position = -1
            return frames, self._end_offset

    def _cut(self) -> None:
        if self._payload:
            frame = Frame(
                _BATCHES,
                self._topic_id,
                self._partition,
                self._segment,
                self._position,
                self._base_offset,
                self._timestamp,
                self._payload,
                end_offset=self._end_offset,
            )
            self._frames.append(frame)
            self._payload = bytearray()

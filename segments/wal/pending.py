"""What a partition has appended and not given to its WAL shard yet.

    append -> | bytes of segment 7 from position 4,096 on ... | -> take: one BATCHES frame

The bytes are copied once, here: the buffer they came in is used again by the next receive.
Batches that lie behind each other in one segment become one frame, so a group under load has a
frame per partition, not per record.

Thread-safe: one thread appends, the shard's takes; the lock is held for a copy of one batch.
"""

import threading
from typing import Final

from ..storage import Buffer
from .frames import Frame, FrameType

FRAME_BYTES_MAX: Final = 1 << 20
"""A frame has no more, unless one batch alone has: damage costs a frame."""


class Pending:
    """The batches of one partition that wait for their shard.  `size` is their bytes."""

    __slots__ = ("_end", "_frames", "_head", "_limit", "_lock", "_next", "_payload", "size")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        """frame_bytes_max: what fits a WAL file; a larger batch is not for the WAL."""
        self._limit = min(frame_bytes_max, FRAME_BYTES_MAX)
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._payload = bytearray()
        self._head = (0, 0, 0, 0)
        self._next = (-1, -1)
        self._end = -1
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
            if self._next != (segment, position) or len(self._payload) + size > self._limit:
                self._cut()
                self._head = (segment, position, base_offset, timestamp)
            self._payload += batch
            self._next = (segment, position + size)
            self._end = end_offset
            self.size += size

    def take(self, topic_id: bytes, partition: int) -> tuple[list[Frame], int]:
        """(everything since the last call as frames of this partition, its end offset)."""
        with self._lock:
            self._cut()
            frames, self._frames = self._frames, []
            self.size = 0
            self._next = (-1, -1)
            end = self._end
        return [frame._replace(topic_id=topic_id, partition=partition) for frame in frames], end

    def drop(self) -> None:
        """Forget everything: it is durable elsewhere, or never will be."""
        self.take(b"", 0)

    def _cut(self) -> None:
        if self._payload:
            segment, position, base_offset, timestamp = self._head
            self._frames.append(
                Frame(
                    FrameType.BATCHES,
                    segment=segment,
                    position=position,
                    base_offset=base_offset,
                    timestamp=timestamp,
                    payload=self._payload,
                )
            )
            self._payload = bytearray()

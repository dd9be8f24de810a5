"""Frames: the unit that travels on a connection.

    byte 0          4          6             8                12
         +----------+----------+-------------+----------------+-------------
         | size     | api_key  | api_version | correlation_id | client_id, tagged fields, body ...
         | i32      | i16      | i16         | i32            |                      (a request)
         +----------+----------+-------------+----------------+-------------
         | size     | correlation_id | tagged fields, body ...                         (a reply)
         | i32      | i32            |
         +----------+----------------+-------------

Integers are big-endian.  `size` counts the bytes after itself.  `correlation_id` is chosen by the
client and comes back unchanged; replies leave in the order of the requests.

FrameReader cuts the byte stream into frames.  One flat buffer with two positions:

    0          read                 write                  capacity
    +----------+--------------------+----------------------+
    | consumed | not yet read       | free, to receive into|
    +----------+--------------------+----------------------+

A frame is a view into the buffer: nothing is copied for it.  Bytes move only when the free space
runs out, and then only the unread tail: to the front if no more than what was consumed moves,
otherwise into a larger buffer.  So a byte moves less than twice, whatever the sizes.

Invariants: the frames are the same however the network cuts the stream.  A size outside
[size_min, size_max] is refused before its payload arrives.  The buffer grows to twice what has
arrived or RECEIVE_GROWTH_MAX more, whatever size a peer claims.  After large frames it shrinks:
at once above `keep_max`, else when SHRINK_AFTER refills used less than a quarter of it.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from . import limits
from .errors import NotKafka, RemoteProtocolError
from .foreign import looks_like
from .primitives import Buffer

__all__ = ["FrameReader"]

SHRINK_AFTER: Final = 64
_SIZE_SIZE: Final = 4
_unpack_size: Final = Struct(">i").unpack_from


class FrameReader:
    """Bytes in, frames out.

    Either `receive_data(data)`, or without a copy: `recv_into(reader.get_buffer())`, then
    `buffer_updated(n)`.  Then `next_frame()` until it answers None.
    """

    __slots__ = (
        "_keep_max",
        "_peak",
        "_read",
        "_refills",
        "_size_max",
        "_size_min",
        "_view",
        "_write",
    )

    def __init__(
        self,
        size_max: int = limits.FRAME_SIZE_MAX,
        *,
        size_min: int = limits.RESPONSE_HEADER_SIZE_MIN,
        keep_max: int = limits.RECEIVE_KEEP_MAX,
    ) -> None:
        """Refuses frames outside [`size_min`, `size_max`] bytes, the size field not counted.

        keep_max: a larger buffer is given up when its frames are read; where such frames come one
        after the other, to grow it again costs more than to receive them.
        """
        self._keep_max = keep_max
        self._size_max = size_max
        self._size_min = size_min
        self._view = memoryview(bytearray(limits.RECEIVE_SIZE))
        self._read = 0
        self._write = 0
        self._refills = 0
        self._peak = 0

    @property
    def buffered(self) -> int:
        """Bytes received that no frame has been made of yet."""
        return self._write - self._read

    @property
    def missing_bytes(self) -> int:
        """Bytes that the frame lacks which has begun to come; 0 while its size is not known.

        What it says holds when `next_frame` has just answered None.
        """
        begin = self._read + _SIZE_SIZE
        if begin > self._write:
            return 0
        (size,) = _unpack_size(self._view, self._read)
        return max(0, begin + int(size) - self._write)

    @property
    def size_max(self) -> int:
        """Largest frame that is taken, in bytes."""
        return self._size_max

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self._view)

    def get_buffer(self) -> memoryview:
        """Free space to receive into, at least RECEIVE_SIZE_MIN bytes.

        Frames handed out before become invalid.
        """
        if self._read == self._write:
            self._refill()
        if len(self._view) - self._write < limits.RECEIVE_SIZE_MIN:
            self._make_room()
        return self._view[self._write :]

    def buffer_updated(self, size: int) -> None:
        """`size` bytes were received into the space of the last get_buffer."""
        self._write += size
        assert self._write <= len(self._view), "more bytes than there was space for"

    def take_rest(self) -> bytes:
        """What is unread, taken out: nothing is buffered afterwards."""
        rest = bytes(self._view[self._read : self._write])
        self._read = self._write = 0
        return rest

    def fit(self) -> None:
        """Have no larger buffer than at the beginning, if what is unread fits into that, or than
        twice of it.  Frames handed out before keep the old one."""
        unread = self.buffered
        fitting = limits.RECEIVE_SIZE if unread <= limits.RECEIVE_SIZE else 2 * unread
        if len(self._view) > fitting:
            self._replace(fitting)

    def receive_data(self, data: Buffer) -> None:
        """Take a copy of `data`.  Frames handed out before become invalid."""
        rest = memoryview(data)
        while rest:
            space = self.get_buffer()
            size = min(len(space), len(rest))
            space[:size] = rest[:size]
            self.buffer_updated(size)
            rest = rest[size:]

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size field, or None until more data is received.

        Valid (and writable) until the next get_buffer or receive_data.  Raises
        RemoteProtocolError for a size outside the limits; the stream is then lost.
        """
        begin = self._read + _SIZE_SIZE
        if begin > self._write:
            return None
        (size,) = _unpack_size(self._view, self._read)
        if not self._size_min <= size <= self._size_max:
            if what := looks_like(bytes(self._view[self._read : begin])):
                raise NotKafka(what)
            raise RemoteProtocolError(
                f"frame of {size} bytes, allowed are {self._size_min} to {self._size_max}"
            )
        end = begin + size
        if end > self._write:
            return None
        self._read = end
        return self._view[begin:end]

    def waiting_frames(self) -> Iterator[memoryview]:
        """The whole frames that `next_frame` will return, which stay where they are; up to the
        first that it will refuse.  Valid as long as those."""
        position = self._read
        while position + _SIZE_SIZE <= self._write:
            (size,) = _unpack_size(self._view, position)
            begin, position = position + _SIZE_SIZE, position + _SIZE_SIZE + size
            if not self._size_min <= size <= self._size_max or position > self._write:
                return
            yield self._view[begin:position]

    def _refill(self) -> None:
        """Nothing is unread: begin at the front again, in a smaller buffer if that will do."""
        self._peak = max(self._peak, self._write)
        self._refills += 1
        self._read = self._write = 0
        capacity = len(self._view)
        if capacity == limits.RECEIVE_SIZE:
            return
        if capacity > self._keep_max:
            self._replace(limits.RECEIVE_SIZE)
        elif self._refills >= SHRINK_AFTER:
            if self._peak * 4 <= capacity:
                self._replace(max(limits.RECEIVE_SIZE, self._peak * 2))
            self._refills = self._peak = 0

    def _make_room(self) -> None:
        """Move the unread tail to the front, or to a larger buffer."""
        unread = self._write - self._read
        capacity = len(self._view)
        if unread <= self._read and capacity - unread >= limits.RECEIVE_SIZE_MIN:
            self._view[:unread] = self._view[self._read : self._write]
            self._read, self._write = 0, unread
            return
        wanted = limits.RECEIVE_SIZE
        if unread >= _SIZE_SIZE:
            (size,) = _unpack_size(self._view, self._read)
            wanted += min(size, self._size_max)
        granted = max(unread * 2, unread + limits.RECEIVE_GROWTH_MAX)
        self._replace(max(unread + limits.RECEIVE_SIZE, min(wanted, granted)))

    def _replace(self, capacity: int) -> None:
        """A new buffer; views of the old one keep it alive as long as they live."""
        unread = self._write - self._read
        view = memoryview(bytearray(capacity))
        view[:unread] = self._view[self._read : self._write]
        self._view = view
        self._read, self._write = 0, unread

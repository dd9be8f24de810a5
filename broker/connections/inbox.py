"""Inbox: what a connection has received and not handled yet, and the buffer that it is in.

    receive -> a reader of the shelf -> frames -> nothing is left: back on the shelf
                      |
                      +-- its rest is waited for, and it is little: put aside, the reader goes back
                      +-- it is much: it stays where it is, and counts (loop/half_requests.py)
                      +-- something else is waited for: in no larger a buffer than it takes

An idle connection holds no buffer: readers come from a shelf that all share.  Nor does one that
waits for the rest of a small request, or whose small request waits.

What counts is the buffer: it grows ahead of what comes, or was that of a larger request.  Where
more than half of what there is for all is taken, and above RECEIVE_KEEP_MAX anyway, it is made no
larger than twice what is in it, before its rest is waited for.  Where all is taken, nothing more of
a large request is received: it would have grown before it is known how much has come.

Limits: what is not counted is SMALL_BYTES at most, in a buffer of twice as much.  The shelf has
SHELF_MAX readers, and SHELF_BYTES_MAX bytes.  Who has not logged in has a reader of its own, that
takes nothing larger than a login.
"""

import socket
from collections.abc import Iterable
from typing import Final

from segbroker.protocol.frames import FrameReader
from segbroker.protocol.limits import (
    RECEIVE_KEEP_MAX,
    RECEIVE_SIZE,
    REQUEST_HEADER_SIZE_MIN,
)

from ..loop.half_requests import HalfRequests
from ..peers.sasl import LOGIN_FRAME_BYTES_MAX
from ..peers.tls import TlsSocket

# Idle readers kept for the next connection that has something to say, and bytes of all of them.
SHELF_MAX: Final = 64
SHELF_BYTES_MAX: Final = 64 << 20
# Half a frame up to this size never waits for the budget: it fits the reader's first buffer.
SMALL_BYTES: Final = 64 << 10
# The beginning of a frame up to this size is put aside while its rest is waited for; so is a whole
# one, while its answer is.
ASIDE_BYTES_MAX: Final = 4 << 10
NOTHING: Final = -1
"""As a size that was received: nothing is there."""


class Shelf:
    """Readers with empty buffers, shared by all connections."""

    __slots__ = ("_frame_bytes_max", "_held_bytes", "_readers")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._readers: list[FrameReader] = []
        self._held_bytes = 0

    def take(self) -> FrameReader:
        """A reader that holds nothing."""
        if self._readers:
            reader = self._readers.pop()
            self._held_bytes -= reader.capacity
            return reader
        return FrameReader(self._frame_bytes_max, size_min=REQUEST_HEADER_SIZE_MIN)

    def put_back(self, reader: FrameReader) -> None:
        """Give back a reader that holds nothing; one with another limit, or that would be made
        smaller before it receives again, goes nowhere."""
        assert not reader.buffered, "bytes of one peer must not reach another"
        size = reader.capacity
        if (
            len(self._readers) < SHELF_MAX
            and reader.size_max == self._frame_bytes_max
            and size <= RECEIVE_KEEP_MAX
            and self._held_bytes + size <= SHELF_BYTES_MAX
        ):
            self._readers.append(reader)
            self._held_bytes += size


class Inbox:
    """Of one connection."""

    __slots__ = ("_aside", "_half", "_held", "_host", "_is_stranger", "_reader", "_shelf")

    def __init__(self, shelf: Shelf, half: HalfRequests, host: str, *, is_stranger: bool) -> None:
        """host: its address.  is_stranger: it has to log in first."""
        self._shelf = shelf
        self._half = half
        self._host = host
        self._is_stranger = is_stranger
        self._reader: FrameReader | None = None
        self._aside = b""  # what the next reader begins with
        self._held = 0  # bytes that are counted

    @property
    def is_empty(self) -> bool:
        """Whether everything that was received is handled."""
        return self._reader is None and not self._aside

    @property
    def unread(self) -> int:
        """Bytes of which no frame was made yet."""
        return len(self._aside) if self._reader is None else self._reader.buffered

    def has_room(self) -> bool:
        """Whether more may be received: not of a large request, where there is no room."""
        if self._reader is None and not self._aside:
            return True
        reader = self._reader or self._begin()
        if reader.buffered + reader.missing_bytes <= SMALL_BYTES:
            return True
        if not self._half.is_full(self._host, self):
            return True
        self._fit()
        return not self._half.is_full(self._host, self)

    @property
    def held_by_all(self) -> int:
        """Bytes that are counted, of all connections."""
        return self._half.held_bytes

    async def wait_room(self) -> None:
        """Until more of it may be received."""
        await self._half.wait_room(self._host, self)

    @property
    def keeps_room(self) -> bool:
        """Whether somebody waits for room that it takes part of."""
        return self._held > 0 and self._half.is_waited_for(self._host)

    def receive(self, sock: socket.socket | TlsSocket) -> tuple[int, bool]:
        """How many bytes have come, 0 at the end, NOTHING: none are there; and whether there may be
        more.  A view of the buffer is of this call alone: it would keep the memory."""
        reader = self._reader or self._begin()
        space = reader.get_buffer()
        try:
            size = sock.recv_into(space)
        except (BlockingIOError, InterruptedError):
            return NOTHING, False
        reader.buffer_updated(size)
        return size, size == len(space)

    def bring(self, data: bytes) -> None:
        """Somebody else has received it; the inbox is empty."""
        self._begin().receive_data(data)

    def next_frame(self) -> memoryview | None:
        """The next whole frame, as `FrameReader.next_frame`.  A small one behind which nothing has
        come is a copy: see `keep`."""
        reader = self._reader
        if reader is None or (frame := reader.next_frame()) is None:
            return None
        if len(frame) <= ASIDE_BYTES_MAX and not reader.buffered:
            return memoryview(bytearray(frame))
        return frame

    def waiting_frames(self) -> Iterable[memoryview]:
        """The whole frames that come next, which stay where they are."""
        return () if self._reader is None else self._reader.waiting_frames()

    def keep(self, frame: memoryview) -> None:
        """The frame that came last is still needed, while its handler waits."""
        if len(frame) <= ASIDE_BYTES_MAX:
            self._release()
        # It is in the buffer, which cannot be made smaller now.
        self._count(self._reader is not None and self._reader.capacity > 2 * SMALL_BYTES)

    def settle(self, *, waits: bool) -> None:
        """What came is handled, as far as it is whole, and nobody has a frame any more.

        waits: something is waited for now, other than the rest.
        """
        self._release()
        if waits:
            self._fit()
        else:
            self._count(self.unread > SMALL_BYTES)

    def put_aside(self) -> None:
        """Its rest is waited for: what is little for its buffer keeps none, so what is not counted
        keeps none that a large request was received into."""
        reader = self._reader
        if reader is None:
            return
        has_grown = reader.capacity > RECEIVE_SIZE
        if reader.buffered > (SMALL_BYTES if has_grown else ASIDE_BYTES_MAX):
            if reader.capacity > RECEIVE_KEEP_MAX or self._half.is_tight(self._host):
                reader.fit()
            self._count(reader.buffered > SMALL_BYTES)  # it may have grown for nothing
            return
        if reader.buffered:
            self._aside = reader.take_rest()
        self._release()

    def admit(self) -> None:
        """It has logged in: what has come behind that is a client's, and may be large."""
        self._is_stranger = False
        reader, self._reader = self._reader, None
        if reader is not None:
            self.bring(reader.take_rest())

    def close(self) -> None:
        """Nothing more is received.  The buffer goes with whoever may still have a frame in it, and
        not with the connection: ten thousand that end at once are known a while longer."""
        self._count(False)
        self._reader = None

    def _begin(self) -> FrameReader:
        if self._is_stranger:  # gets no room for more than a login
            reader = FrameReader(LOGIN_FRAME_BYTES_MAX, size_min=0)
        else:
            reader = self._shelf.take()
        self._reader = reader
        if self._aside:
            reader.receive_data(self._aside)
            self._aside = b""
        return reader

    def _release(self) -> None:
        """A reader that holds nothing goes back."""
        if self._reader is not None and not self._reader.buffered:
            self._shelf.put_back(self._reader)
            self._reader = None

    def _fit(self) -> None:
        """Hold no more than it must, before a wait."""
        if self._reader is not None:
            self._reader.fit()
        self._count(self.unread > SMALL_BYTES)

    def _count(self, is_much: bool) -> None:
        """Whether what it holds counts."""
        held = self._reader.capacity if is_much and self._reader is not None else 0
        if held != self._held:
            self._half.change(self._host, self, held - self._held)
            self._held = held

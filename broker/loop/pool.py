"""Reused buffers for fetch replies, and the bound on their sum.

Fresh memory is the expensive part of a read (a page fault per 4 KiB costs more than the copy), so
a reply that the socket took at once gives its buffer to the next reply, still warm.

    free     idle buffers by size class (powers of two), last in first out, IDLE_BYTES_MAX at most
    lent     bytes of buffers being read into or sent; never above the budget
    stuck    of these, the ones whose peer does not read: taken back when somebody needs them
    line     who waits for a buffer; addresses take turns, each in order; with a release whoever
             is next, and now fits, is given one; who is gone has left its place behind, which is
             passed over

At the limit stuck buffers are taken back, longest stuck first.  Their replies are read again when
their peers read on, so a slow reader costs itself, not the others.  When none is stuck, a fetch
waits in line until a buffer comes back or gets stuck, and so does whoever comes then.  Before that,
above half of the budget, replies should shrink to what `allowance` says.  If no buffer is lent, one
of any size is: otherwise a batch above the budget could never be read.
"""

from collections.abc import Callable
from typing import Final

from .address_line import AddressLine

SIZE_LEAST: Final = 16 << 10
IDLE_BYTES_MAX: Final = 16 << 20
ALLOWANCE_UNDER_PRESSURE: Final = 1 << 20


class Lease:
    """A buffer on loan. Whoever holds it gives it back exactly once."""

    __slots__ = ("_pool", "_raw", "buffer")

    def __init__(self, pool: "BufferPool", raw: bytearray) -> None:
        self._pool = pool
        self._raw = raw
        self.buffer = memoryview(raw)

    def stuck(self, give_back: Callable[[], None]) -> None:
        """The peer does not read. `give_back()` is called once if the memory is needed: it has to
        release the lease before it returns."""
        self._pool._stuck.setdefault(self, give_back)
        self._pool._serve_line()  # who came before it was stuck has taken none back

    def release(self) -> None:
        """Give the buffer back; views of it must not be used any more. Twice is once."""
        raw, self._raw = self._raw, bytearray()
        if raw:
            self.buffer = memoryview(b"")
            self._pool._stuck.pop(self, None)
            self._pool._take_back(raw)


class Place:
    """In the line."""

    __slots__ = ("ready", "size")

    def __init__(self, size: int, ready: "Callable[[Lease], None]") -> None:
        self.size = size
        self.ready: Callable[[Lease], None] | None = ready


class BufferPool:
    """Buffers of fetch replies, bounded in sum."""

    __slots__ = (
        "_budget",
        "_free",
        "_idle_bytes",
        "_line",
        "_serving",
        "_stuck",
        "lent_bytes",
        "taken_back",
    )

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._free: dict[int, list[bytearray]] = {}
        self._idle_bytes = 0
        self._line: AddressLine[Place] = AddressLine()
        self._serving = False
        self._stuck: dict[Lease, Callable[[], None]] = {}
        self.lent_bytes = 0
        self.taken_back = 0

    def reconfigure(self, budget: int) -> None:
        """Another budget from now on; what is lent above it comes back in its own time."""
        self._budget = budget
        self._serve_line()

    @property
    def allowance(self) -> int:
        """Most bytes one reply should take at present."""
        if self.lent_bytes * 2 > self._budget:
            return ALLOWANCE_UNDER_PRESSURE
        return self._budget

    def lease(self, size: int) -> Lease | None:
        """A buffer of at least `size` bytes, or None at the limit: then `wait` for one.

        Nobody goes before those in the line: who waits for much would see all that comes back go to
        those who want little.
        """
        return None if self._line or not self._has_room(size) else self._lend(size)

    def _lend(self, size: int) -> Lease:
        size_class = _size_class(size)
        self.lent_bytes += size_class
        if free := self._free.get(size_class):
            self._idle_bytes -= size_class
            return Lease(self, free.pop())
        return Lease(self, bytearray(size_class))

    def wait(self, size: int, ready: Callable[[Lease], None], *, host: str) -> Place:
        """Have `ready(lease)` called once, with a buffer of at least `size` bytes; for an address.

        It need not be used at once: it is lent, so nobody else takes it.
        """
        place = Place(size, ready)
        self._line.put(host, place)
        return place

    def leave(self, place: Place) -> None:
        """Nobody is to be called there any more."""
        place.ready = None
        self._serve_line()  # who is behind it may want less

    def _has_room(self, size: int) -> bool:
        """Whether a buffer of this size may be lent, once stuck ones were taken back for it."""
        while self._stuck and not self._fits(size):
            self._reclaim()
        return self._fits(size)

    def _reclaim(self) -> None:
        """Take back what has been stuck for the longest time."""
        lease = next(iter(self._stuck))
        self.taken_back += 1
        self._stuck.pop(lease)()

    def _take_back(self, raw: bytearray) -> None:
        size_class = len(raw)
        self.lent_bytes -= size_class
        assert self.lent_bytes >= 0, "a buffer came back twice"
        if self._idle_bytes + size_class <= IDLE_BYTES_MAX:
            self._idle_bytes += size_class
            self._free.setdefault(size_class, []).append(raw)
        self._serve_line()

    def _serve_line(self) -> None:
        # What `ready` starts may give its buffer back at once and come here again: only the
        # outermost call goes on, so a long line is no deep recursion.
        if self._serving:
            return
        self._serving = True
        try:
            while self._line and self._may_go_on(self._line.first()):
                place = self._line.take()
                if place.ready is not None:
                    place.ready(self._lend(place.size))
        finally:
            self._serving = False

    def _may_go_on(self, place: Place) -> bool:
        return place.ready is None or self._has_room(place.size)

    def _fits(self, size: int) -> bool:
        return not self.lent_bytes or self.lent_bytes + _size_class(size) <= self._budget


def _size_class(size: int) -> int:
    return max(SIZE_LEAST, 1 << (size - 1).bit_length())

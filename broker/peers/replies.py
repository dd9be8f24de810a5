"""Replies of one connection: they leave in the order of the requests, however they become ready.

    slots   [ produce 7 ][ fetch 8 ][ produce 9 ]     one per request that takes an answer
               done       waiting      done           -> 7 is sent, 9 waits behind 8
    unsent  what the socket would not take; while there is any, nothing is rendered
    owed    as many bytes of the head's reply, given up to save memory: rendered again to go on

A slot is *done* when its answer is decided; its bytes are made (*rendered*) only when it is the
head and everything before it is in the socket.  So a connection holds the bytes of at most one
fetch reply, however many it pipelines and however slowly it reads; and a reply that stands in the
log (`restores`) need not be held at all while its peer does not read (`forget`).

Invariants: the FIFO holds at most `slots_max` slots (the connection stops reading then); one drain
task at most, and only while something is unsent or owed; a write is never cut in half, except by
closing; a slot that restores has a write of its own: whatever is unsent of that can be made again,
so its peer keeps nobody waiting for the memory.  What is idle holds no queue.
"""

import errno
import select
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import structlog
import trio

log = structlog.get_logger()

Buffer = bytes | bytearray | memoryview

# writev takes 1,024 pieces at a time; further ones go with the next call.
_PIECES_MAX: Final = 1_000
# Replies are gathered up to about this size before they are handed to the socket.
_GATHER_BYTES: Final = 256 << 10
# So many bytes of a reply that is not sent count as a request of their own: behind one that waits,
# for records or for a group, hundreds of others may be answered already.
BYTES_PER_SLOT: Final = 4 << 10
# What a send says that has not taken anything yet, below 0 as an errno.
_NOT_NOW: Final = (0, -errno.EAGAIN, -errno.EWOULDBLOCK, -errno.EINTR)
# Linux says so of a peer that may still read, too; others say POLLHUP.
_ENDED: Final[int] = getattr(select, "POLLRDHUP", 0)
_HUNG_UP: Final = _ENDED | select.POLLHUP | select.POLLERR
# Stand for "none", in every outbox: an empty deque takes 600 bytes, and most connections are idle.
# They hold nothing, whatever is put into them.
_NO_SLOTS: "Final[deque[Slot]]" = deque(maxlen=0)
_NO_BYTES: Final[deque[memoryview]] = deque(maxlen=0)


class Sink(Protocol):
    """Where replies go: a non-blocking socket, or TLS around one."""

    def fileno(self) -> int: ...

    def sendmsg(self, buffers: "Sequence[Buffer]", /) -> int: ...


class Slot(Protocol):
    """The place of one reply in the order of its connection."""

    done: bool

    @property
    def restores(self) -> bool:
        """Whether `render` can make the same bytes again after `Outbox.forget`."""
        ...

    def render(self) -> list[Buffer] | None:
        """The bytes of the reply, or None when they are on their way (then flush is called)."""

    def sent(self) -> None:
        """Every byte is in the socket: whatever backs the buffers may be used again."""

    def stuck(self) -> None:
        """The peer did not take all of the reply; only told to a slot that restores."""

    def abandon(self) -> None:
        """The connection is gone: leave every queue, give everything back. May come at any time."""


def further_of(size: int) -> int:
    """As how many further requests a reply counts that has `size` bytes and may have to wait."""
    return size // BYTES_PER_SLOT


def _nobody(_: Exception | None) -> None:
    """Is told."""


class Outbox:
    """The slots and the unsent bytes of one connection."""

    __slots__ = (
        "_draining",
        "_further",
        "_head",
        "_owed",
        "_restorable",
        "_restored",
        "_room",
        "_slots",
        "_sock",
        "_spawn",
        "_unsent",
        "broken",
        "on_broken",
        "progress",
        "sent_bytes",
    )

    def __init__(
        self,
        sock: Sink,
        *,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        on_broken: Callable[[Exception | None], None],
    ) -> None:
        """`spawn` starts the drain task; `on_broken` is called once: when the peer is gone, with
        None, or when it is not answered any more, with the reason, which is to be told."""
        self._sock = sock
        self._spawn = spawn
        self._slots = _NO_SLOTS
        # Rendered slots whose bytes are not all in the socket yet.
        self._head: list[Slot] = []
        self._unsent = _NO_BYTES
        self._further = 0  # requests that slots of several answer, beyond one each
        self._owed = 0
        self._restorable = False  # the reply of the head can be rendered again
        self._restored: trio.Event | None = None
        self._room: trio.Event | None = None
        self._draining = False
        self.on_broken = on_broken
        self.broken = False
        self.progress = 0  # counts writes that moved something; the idle sweep compares it
        self.sent_bytes = 0

    @property
    def has_hung_up(self) -> bool:
        """Whether the peer has ended the connection, though what it sent before is not all read."""
        poll = select.poll()
        poll.register(self._sock, _ENDED)
        return any(found & _HUNG_UP for _, found in poll.poll(0))

    def __len__(self) -> int:
        """Requests that are not answered yet."""
        return len(self._slots) + len(self._head) + self._further

    @property
    def unsent(self) -> bool:
        """Whether the peer is behind with reading."""
        return bool(self._unsent or self._owed)

    def is_behind(self, slots_max: int) -> bool:
        """Whether the peer has still to read what it was sent, or has `slots_max` slots: until
        then nothing more of it is answered."""
        return bool(self._unsent or self._owed) or len(self) >= slots_max

    def push(self, slot: Slot) -> None:
        """Give a request its place. Its reply leaves after those of all earlier slots."""
        if self._slots is _NO_SLOTS:
            self._slots = deque()
        self._slots.append(slot)

    def weigh(self, further: int) -> None:
        """The slot that was just pushed answers so many more requests than one, or holds as much as
        they would (`further_of`); the negative number when it was sent."""
        self._further += further

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the peer: what is sent now is in order."""
        return not (
            self._slots or self._head or self._further or self._unsent or self._owed or self.broken
        )

    def send(self, reply: Buffer) -> None:
        """Send a reply that needs no place in the order: the outbox is idle. Never raises."""
        self._restorable = False
        self._send([reply], len(reply))

    def holds_only(self, slot: Slot) -> bool:
        """Whether this slot is all that is owed to the peer: its reply may be sent, see `took`."""
        slots = self._slots
        return (
            len(slots) == 1
            and slots[0] is slot
            and not (self._head or self._unsent or self._owed or self.broken)
        )

    def took(self, count: int, size: int) -> None:
        """Of the reply of the only slot, which is done, the socket was given `size` bytes by
        somebody else, and took so many; below 0: the errno.  Never raises."""
        if count <= 0:
            if count in _NOT_NOW:
                self.flush()
            else:
                self.break_off()
            return
        (slot,) = self._slots
        self._slots = _NO_SLOTS
        self._head.append(slot)
        pieces = self._made(slot) if count < size else []
        if pieces is None:  # it failed; or is made no more, and nothing would ever go on with it
            self.break_off()
            return
        self._restorable = False
        self._took(pieces, size, count)
        if self._room is not None and not self._unsent:
            self._room.set()
            self._room = None

    def flush(self) -> None:
        """Send what is ready at the head of the line. Never raises, never waits."""
        try:
            self._flush()
        except Exception:  # for want of memory: what is sent behind half a reply would be garbage
            self.break_off()
            with suppress(MemoryError):
                log.exception("reply_failed")

    def _flush(self) -> None:
        slots = self._slots
        if self.broken:
            return  # nothing may leave behind what was given up
        if self._owed:
            if self._restored is not None:
                self._restored.set()  # the head may have what it waited for
            return
        # What is owed, too: the buffer of the reply that was just sent may have been taken back.
        while not self.unsent and slots and slots[0].done:
            pieces: list[Buffer] = []
            size, self._restorable = 0, False
            while slots and slots[0].done and size < _GATHER_BYTES and len(pieces) < _PIECES_MAX:
                if pieces and slots[0].restores:
                    break
                rendered = self._made(slots[0])
                if self.broken:
                    return
                if rendered is None:
                    break
                slot = slots.popleft()
                self._head.append(slot)
                pieces += rendered
                size += sum(map(len, rendered))
                if slot.restores:
                    self._restorable = True
                    break
            if not pieces:
                break
            self._send(pieces, size)
            if self.broken:
                return  # what is rendered now would never be given back
        if not self._slots:
            self._slots = _NO_SLOTS
        if self._room is not None and not self._unsent:
            self._room.set()
            self._room = None

    async def wait_room(self, slots_max: int) -> None:
        """Wait until the peer has read what it was sent and has fewer than `slots_max` slots."""
        while not self.broken and self.is_behind(slots_max):
            self._room = trio.Event()
            await self._room.wait()

    async def wait_empty(self) -> None:
        """Wait until every request is answered and every reply is in the socket."""
        while not self.broken and (self.unsent or len(self)):
            self._room = trio.Event()
            await self._room.wait()

    async def drain(self) -> None:
        """Send the unsent bytes as the peer takes them; ends when there are none."""
        try:
            while self.unsent:
                await trio.lowlevel.wait_writable(self._sock)
                if self._owed and not self._restore():
                    if self.broken:
                        return
                    self._restored = trio.Event()
                    await self._restored.wait()
                    self._restored = None
                    continue
                self._resume()
        except (OSError, MemoryError, trio.ClosedResourceError):
            self.break_off()
        finally:
            self._draining = False

    def break_off(self, why: Exception | None = None) -> None:
        """Give every slot up: the connection is gone, or ends for this reason. May be called again:
        gives up what has been pushed since by a task that did not know yet."""
        was_broken, self.broken = self.broken, True
        self._unsent = _NO_BYTES
        self._owed = 0
        if self._restored is not None:
            self._restored.set()
        slots = [*self._head, *self._slots]
        self._further = 0
        self._head.clear()
        self._slots = _NO_SLOTS
        for slot in slots:
            try:
                slot.abandon()
            except Exception:  # a bug: the others give back what they hold all the same
                log.exception("slot_not_abandoned", slot=type(slot).__name__)
        if self._room is not None:
            self._room.set()
            self._room = None
        if not was_broken:
            on_broken, self.on_broken = self.on_broken, _nobody  # who knows this: a cycle
            on_broken(why)

    def forget(self) -> None:
        """Give up what is unsent of the head's reply; it is rendered again when the peer reads."""
        self._owed = sum(map(len, self._unsent))
        self._unsent = _NO_BYTES

    def _made(self, slot: Slot) -> list[Buffer] | None:
        """What a slot renders; None: not yet, or it failed and all is given up."""
        try:
            return slot.render()
        except Exception:
            self.break_off()
            with suppress(MemoryError):
                log.exception("reply_failed", slot=type(slot).__name__)
            return None

    def _restore(self) -> bool:
        """Render the head again, up to what is owed; False when its bytes are on their way."""
        pieces = self._made(self._head[-1])
        if pieces is None or self.broken:
            return False
        owed, self._owed = self._owed, 0
        self._unsent = deque(memoryview(piece).cast("B") for piece in pieces if len(piece))
        self._drop(sum(map(len, self._unsent)) - owed)
        return True

    def _send(self, pieces: list[Buffer], size: int) -> None:
        try:
            count = self._sock.sendmsg(pieces[:_PIECES_MAX])
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError:
            self.break_off()
            return
        self._took(pieces, size, count)

    def _took(self, pieces: list[Buffer], size: int, count: int) -> None:
        self.sent_bytes += count
        self.progress += 1
        if count == size:
            self._release()
            return
        self._unsent = deque(memoryview(piece).cast("B") for piece in pieces if len(piece))
        self._drop(count)
        self._is_stuck()
        if not self._draining:
            self._draining = True
            self._spawn(self.drain)

    def _resume(self) -> None:
        pieces = [self._unsent[n] for n in range(min(len(self._unsent), _PIECES_MAX))]
        try:
            count = self._sock.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            return
        self.sent_bytes += count
        self.progress += 1
        self._drop(count)
        if not self._unsent:
            self._release()
            self.flush()
        else:
            self._is_stuck()

    def _is_stuck(self) -> None:
        """Tell a head that can be rendered again."""
        if self._restorable:
            self._head[-1].stuck()

    def _drop(self, count: int) -> None:
        """Forget the first `count` unsent bytes."""
        unsent = self._unsent
        while unsent and count >= len(unsent[0]):
            count -= len(unsent.popleft())
        if count:
            unsent[0] = unsent[0][count:]

    def _release(self) -> None:
        self._unsent = _NO_BYTES
        for slot in self._head:
            try:
                slot.sent()
            except Exception:  # a bug, or a file that could not be closed: its reply has left
                log.exception("slot_not_released", slot=type(slot).__name__)
        self._head.clear()

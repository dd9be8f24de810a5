"""Sockets without a kernel: latency, short sends and receives, small windows, cuts.

    SimSocket A  -- Pipe: in flight (at, bytes) ... arrived -->  SimSocket B
                 <-- Pipe ------------------------------------

A pipe holds at most `window` bytes that the reader has not taken; a full one is EAGAIN.  Bytes of
a pipe arrive in order, some time after they were sent.  One task delivers what is due.

How a connection ends:

    close()          what is in flight arrives, then the end; with unread bytes it is a reset
    cut()            both sides are reset; of what was in flight a part arrives, or nothing
    vanish(host)     the power is gone: nothing arrives, nothing is said; who sends after the
                     machine is back is reset, who does not has to look at a clock

`wait_readable`, `wait_writable` and `notify_closing` do for these sockets what trio.lowlevel does
for descriptors, with the same errors.
"""

import errno
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import trio

from .world import World

Buffer = bytes | bytearray | memoryview
Address = tuple[str, int]

BROKER: Final[Address] = ("10.0.0.1", 9092)


class Pipe:
    """One direction of a connection."""

    __slots__ = ("arrived", "flight", "last_at", "over", "reader", "reset", "window", "writer")

    def __init__(self, window: int) -> None:
        self.window = window
        self.flight: deque[tuple[float, bytes]] = deque()
        self.arrived = bytearray()
        self.last_at = 0.0
        self.over = False  # the sender has closed; after what is in flight
        self.reset = False
        self.reader: SimSocket | None = None
        self.writer: SimSocket | None = None

    @property
    def free(self) -> int:
        return self.window - len(self.arrived) - sum(len(data) for _, data in self.flight)

    @property
    def is_readable(self) -> bool:
        return bool(self.arrived or self.reset or (self.over and not self.flight))


class Network:
    """Everything between the sockets."""

    def __init__(
        self, world: World, *, latency_s: float, window: tuple[int, int], short: float
    ) -> None:
        """window: least and most bytes of a pipe; short: how often a call moves only a part."""
        self.world = world
        self.random = world.stream("network")
        self.latency_s = latency_s
        self.window = window
        self.short = short
        self.listeners: dict[Address, Listener] = {}
        self.sockets: dict[SimSocket, None] = {}  # those of brokers, for the nemesis and the tap
        self.on_accepted: Callable[[SimSocket], None] = lambda _: None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._ordinal = count()
        self._scope: trio.CancelScope | None = None
        self._ports = count(40_000)
        self.numbered: dict[int, Any] = {}  # what was asked for its descriptor
        self._numbers = count(100)

    def at(self, when: float, job: Callable[[], None]) -> None:
        """Have `job` called at a time."""
        heapq.heappush(self._due, (when, next(self._ordinal), job))
        if self._scope is not None and when < self._scope.deadline:
            self._scope.deadline = when

    def arrival(self, pipe: Pipe) -> float:
        """When what is sent now arrives: never before what was sent earlier."""
        delay = 0.0 if self.random.random() < 0.3 else self.random.random() * self.latency_s
        pipe.last_at = max(pipe.last_at, self.world.now() + delay)
        return pipe.last_at

    async def run(self) -> None:
        """Deliver what is due, for ever."""
        while True:
            with trio.CancelScope(deadline=self._due[0][0] if self._due else math.inf) as scope:
                self._scope = scope
                await trio.sleep_forever()
            self._scope = None
            now = self.world.now()
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()

    # Connections

    def connect(self, client: "SimSocket", address: Address) -> None:
        """Begin to connect; the socket becomes writable when it is decided."""
        when = self.world.now() + self.random.random() * self.latency_s
        self.at(when, lambda: self._connected(client, address))

    def _connected(self, client: "SimSocket", address: Address) -> None:
        listener = self.listeners.get(address)
        if client.closed:
            return
        if listener is None:
            client.error = errno.ECONNREFUSED
        else:
            there, back = self._pipe(), self._pipe()
            server = SimSocket(self, local=address, remote=client.local)
            for pipe, writer, reader in ((there, client, server), (back, server, client)):
                pipe.writer, pipe.reader = writer, reader
                writer.tx, reader.rx = pipe, pipe
            server.connected = True
            listener.waiting.append(server)
            listener.wake()
            self.sockets[server] = None
            self.on_accepted(server)
        client.connected = True
        client.wake_writer()

    def _pipe(self) -> Pipe:
        return Pipe(self.random.randint(*self.window))

    def new_number(self, thing: object) -> int:
        """A descriptor: a number that stands for `thing` from now on."""
        number = next(self._numbers)
        self.numbered[number] = thing
        return number

    def new_local(self) -> Address:
        return ("10.0.0.2", next(self._ports))

    def arrive(self, pipe: Pipe) -> None:
        """The next piece of a pipe arrives."""
        if pipe.reset or not pipe.flight:
            return
        pipe.arrived += pipe.flight.popleft()[1]
        if pipe.reader is not None:
            pipe.reader.wake_reader()

    # Faults

    def cut(self, server: "SimSocket") -> None:
        """Reset a connection in both directions; some of what is in flight may arrive first."""
        self.world.trace("cut", server.remote[1])
        for pipe in (server.tx, server.rx):
            if pipe is None:
                continue
            while pipe.flight and self.random.random() < 0.5:
                pipe.arrived += pipe.flight.popleft()[1]
            pipe.flight.clear()
            reset(pipe)

    def vanish(self) -> None:
        """The broker's machine has lost its power: silence on all its connections."""
        for server in list(self.sockets):
            server.closed = True
            for pipe in (server.tx, server.rx):
                if pipe is not None:
                    pipe.flight.clear()
            if server.rx is not None and server.rx.writer is not None:
                server.rx.writer.orphaned = True
        self.sockets.clear()
        self.listeners.clear()

    def die(self) -> None:
        """The broker's process is dead: its kernel closes all its connections."""
        for server in list(self.sockets):
            server.close()
        for listener in list(self.listeners.values()):
            listener.close()


def reset(pipe: Pipe) -> None:
    pipe.reset = True
    if pipe.reader is not None:
        pipe.reader.wake_reader()
    if pipe.writer is not None:
        pipe.writer.wake_writer()


class Waits:
    """At most one task that waits for something of a socket."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        if self.task is not None:
            raise trio.BusyResourceError("another task waits for this socket")
        self.task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self) -> None:
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)


class SimSocket:
    """A non-blocking stream socket, as far as broker and client use one."""

    __slots__ = (
        "_number",
        "_reading",
        "_writing",
        "closed",
        "connected",
        "error",
        "local",
        "network",
        "on_readable",
        "on_received",
        "on_sent",
        "orphaned",
        "remote",
        "rx",
        "tx",
    )

    def __init__(
        self, network: Network, *, local: Address | None = None, remote: Address | None = None
    ) -> None:
        self.network = network
        self.local = local or network.new_local()
        self.remote = remote or ("", 0)
        self.rx: Pipe | None = None
        self.tx: Pipe | None = None
        self.closed = False
        self.connected = False
        self.orphaned = False  # the other side's machine has lost its power
        self.error = 0
        self._reading = Waits()
        self._writing = Waits()
        self._number = -1
        self.on_readable: Callable[[], None] | None = None
        self.on_received: Callable[[bytes], None] | None = None
        self.on_sent: Callable[[bytes], None] | None = None

    # The socket's own calls

    def setblocking(self, flag: bool) -> None:
        assert not flag, "nothing here may block"

    def setsockopt(self, *_: object) -> None:
        pass

    def getsockopt(self, *_: object) -> int:
        return self.error

    def getsockname(self) -> Address:
        return self.local

    def fileno(self) -> int:
        if self._number < 0:
            self._number = self.network.new_number(self)
        return self._number

    def connect(self, address: Address) -> None:
        self.remote = address
        self.network.connect(self, address)
        raise BlockingIOError(errno.EINPROGRESS, "in progress")

    def recv_into(self, buffer: memoryview) -> int:
        pipe = self._pipe(self.rx)
        if pipe.arrived:
            size = min(len(buffer), len(pipe.arrived))
            random = self.network.random
            if size > 1 and random.random() < self.network.short:
                size = random.randint(1, size)
            data = bytes(pipe.arrived[:size])
            buffer[:size] = data
            del pipe.arrived[:size]
            if pipe.writer is not None:
                pipe.writer.wake_writer()
            if self.on_received is not None:
                self.on_received(data)
            return size
        if pipe.reset:
            raise ConnectionResetError(errno.ECONNRESET, "reset by the peer")
        if pipe.over and not pipe.flight:
            return 0
        raise BlockingIOError(errno.EAGAIN, "nothing there")

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        pipe = self._pipe(self.tx)
        if pipe.reset:
            raise ConnectionResetError(errno.EPIPE, "reset by the peer")
        free = pipe.free
        if free <= 0:
            raise BlockingIOError(errno.EAGAIN, "no room")
        random = self.network.random
        data = b"".join(map(bytes, buffers))[:free]
        if len(data) > 1 and random.random() < self.network.short:
            data = data[: random.randint(1, len(data))]
        if self.orphaned:
            if self.network.listeners:  # the machine is back and knows nothing of us
                self.network.at(self.network.arrival(pipe), lambda: self._refused())
            pipe.flight.append((math.inf, data))
            return len(data)
        when = self.network.arrival(pipe)
        pipe.flight.append((when, data))
        self.network.at(when, lambda: self.network.arrive(pipe))
        if self.on_sent is not None:
            self.on_sent(data)
        return len(data)

    def _refused(self) -> None:
        for pipe in (self.tx, self.rx):
            if pipe is not None:
                pipe.flight.clear()
                reset(pipe)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.network.sockets.pop(self, None)
        self.network.numbered.pop(self._number, None)
        self.wake_reader()
        self.wake_writer()
        for pipe in (self.rx, self.tx):
            if pipe is None:
                return
        assert self.rx is not None
        assert self.tx is not None
        if self.orphaned:
            return
        if self.rx.arrived or self.rx.flight:
            reset(self.tx)
            return
        self.rx.reset = True  # who still sends is told so
        if self.rx.writer is not None:
            self.rx.writer.wake_writer()
        tx, network = self.tx, self.network

        def end() -> None:
            tx.over = True
            if tx.reader is not None:
                tx.reader.wake_reader()

        network.at(network.arrival(tx), end)

    def _pipe(self, pipe: Pipe | None) -> Pipe:
        if self.closed:
            raise OSError(errno.EBADF, "closed")
        if pipe is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return pipe

    # Waiting for it

    @property
    def is_readable(self) -> bool:
        return not self.closed and self.rx is not None and self.rx.is_readable

    def wake_reader(self) -> None:
        self._reading.wake()
        if self.on_readable is not None:
            self.on_readable()

    def wake_writer(self) -> None:
        self._writing.wake()

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.closed and not self.is_readable:
            await self._reading.wait()
        if self.closed:
            raise trio.ClosedResourceError("closed meanwhile")

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.closed and not self.error and not self._is_writable():
            await self._writing.wait()
        if self.closed:
            raise trio.ClosedResourceError("closed meanwhile")

    def _is_writable(self) -> bool:
        return self.connected and self.tx is not None and (self.tx.free > 0 or self.tx.reset)


class Listener:
    """A listening socket."""

    def __init__(self, network: Network, address: Address) -> None:
        if address in network.listeners:
            raise OSError(errno.EADDRINUSE, "address in use")
        self.network = network
        self.address = address
        self.waiting: deque[SimSocket] = deque()
        self.closed = False
        self._accepting = Waits()

    def listen(self, backlog: int) -> None:
        self.network.listeners[self.address] = self

    def accept(self) -> tuple[SimSocket, Address]:
        if self.closed:
            raise OSError(errno.EBADF, "closed")
        if not self.waiting:
            raise BlockingIOError(errno.EAGAIN, "nobody there")
        sock = self.waiting.popleft()
        return sock, sock.remote

    def getsockname(self) -> Address:
        return self.address

    def wake(self) -> None:
        self._accepting.wake()

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.closed and not self.waiting:
            await self._accepting.wait()
        if self.closed:
            raise trio.ClosedResourceError("closed meanwhile")

    async def wait_writable(self) -> None:
        raise AssertionError("nobody writes to a listener")

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self.network.listeners.get(self.address) is self:
            del self.network.listeners[self.address]
        while self.waiting:
            self.waiting.popleft().close()
        self.wake()

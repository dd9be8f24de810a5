"""The async shell: tasks of its own run the core, on trio and on asyncio alike (anyio).

    the timer task       sleeps until the core's next deadline, or until kicked
    one task/connection  connects, then receives
    a task per full pipe waits until the socket takes more, then goes on sending

All run between `start` and `stop`, which cancels them and waits for their end; each may be called
in any task and scope (own_tasks.py).  A failure of one is a bug: it ends the client, and whoever
waits for it, uses it or closes it hears of it.

Sockets are plain non-blocking sockets with anyio.wait_readable: a receive that finds data costs no
turn of the event loop (measured: SocketStream costs 1.6 to 4 times as much).

State changes only in `pump` and in what sockets bring, never across an await; so no lock.
"""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from ssl import SSLContext
from threading import get_ident
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakSet

import anyio
import anyio.lowlevel

from .async_tokens import get_token
from .beside import beside
from .clock import now_ms
from .completion import Completion, Waitable
from .connection import Connection, State
from .core_lock import Undisturbed
from .driver import FORKED, GOODBYE_MS, HURRIED_MS, Client, Driver
from .engine import Call, Engine, OnTimeout
from .errors import (
    OPENED_ONCE,
    WAS_CLOSED,
    BrokerUnreachable,
    BusyError,
    ClosedError,
    SegbrokerError,
    bug,
)
from .event_loop import loop_here
from .forgotten import Forgotten
from .own_tasks import OwnTasks
from .reaching import Reaching
from .settings import tls_context
from .silence import LATE_MS
from .tokens import Tokens
from .transport import SocketAddress, Transport, Wait, resolve

T = TypeVar("T")

# Bytes that one connection may receive before the others get a turn.
RECEIVE_BUDGET = 1 << 20


class AsyncDriver(Driver):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._context: SSLContext | None = None
        # Since it was opened.
        self._own: OwnTasks
        self._forgotten = Forgotten()
        # What has ended it by itself, until that is raised by its end.
        self._failure: SegbrokerError | None = None
        # Where the event loop was last seen to run: no other thread may touch what has no lock.  In
        # the child of a fork it runs nowhere, and the sockets are the parent's.
        self.thread_id = 0
        _all.add(self)
        self._kick = anyio.Event()
        self._asleep_until_ms: float = -inf
        self._transports: dict[Connection, Transport] = {}
        self._is_pumping = False
        self._pumped_ms = 0
        self._waiting_count = 0
        self.is_awaited: Callable[[], bool] = lambda: False
        """Whether tasks wait for what the core does, otherwise than by `wait`."""
        self.undisturbed = Undisturbed()
        """By signals: trio raises Ctrl-C in whichever task runs."""

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise ClosedError("not open: use it inside its `async with` block")
        if self._engine.closed:
            raise (self._failure or ClosedError(WAS_CLOSED)).with_traceback(None)
        self.check_loop()
        return self._engine

    def check_loop(self) -> None:
        """Raises ClosedError where its event loop has ended, or is that of another thread."""
        if self.is_open and self._own.is_gone:
            raise ClosedError("the event loop that it was opened in has ended: open one in each")
        self.check_thread()

    def check_thread(self) -> None:
        """Raises ClosedError in another thread than that of its event loop, or in another loop.
        Nothing is changed before: there are no locks.

        Of asyncio's loop: one may go on in another thread, and of one that has ended any may
        clear away what is left.
        """
        thread_id = get_ident()
        if not self.is_open or self._own.is_gone:
            return
        loop = self._own.loop
        here = None if loop is None else loop_here()
        if here is not None and here is loop:
            self.thread_id = thread_id
        elif not self.thread_id:
            raise ClosedError(FORKED)
        elif thread_id != self.thread_id:
            raise ClosedError(
                "its event loop runs in another thread: call it there, or open one in each"
            )
        elif here is not None:
            raise ClosedError("it was opened in another event loop: open one in each")

    @property
    def is_open(self) -> bool:
        return self._engine is not None and not self._engine.closed

    async def start(
        self,
        client: object,
        engine: Engine,
        last: Callable[[], Call[None]] | None,
        last_ms: int,
    ) -> None:
        """Start the tasks and wait until one broker was reached.

        Where nobody refers to `client` any more it ends by itself, behind `last`, which may take
        `last_ms`; neither refers to it.

        Raises BrokerUnreachable when the times of reaching.py are over, TlsFailed and
        AuthenticationFailed as soon as it is clear; no task is left then.
        """
        if self.is_open:
            raise BusyError("it is open already: use one `async with` block")
        if engine.closed:
            raise ClosedError(OPENED_ONCE)
        self._context = tls_context(engine.settings)
        self._token_lock = anyio.Lock()
        reaching = Reaching(engine)
        self.thread_id = get_ident()
        self._own = OwnTasks(self._failed, self._is_waiting)
        self._engine = engine
        try:
            self._own.start(self._run_timer, name="segbroker timer")
            await self.call(
                reaching.connect(), timeout_ms=reaching.timeout_ms, on_timeout=reaching.give_up
            )
            self._forgotten.opened(client, self, last, last_ms)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End everything under way (ClosedError) and all tasks.  Again: nothing.

        Raises what has ended it before by itself.
        """
        if self._engine is None:
            return
        self.check_thread()
        self._forgotten.closed()
        try:
            with self.undisturbed:
                if self.is_open:
                    self._end()
        finally:
            await self._own.wait_ended()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def end_by_itself(
        self, said: str, last: Callable[[], Call[None]] | None, timeout_ms: int
    ) -> None:
        """As ThreadDriver.end_by_itself; not where its event loop has ended: nothing goes on."""
        self._own.soon(partial(self._begin_end, said, last, timeout_ms))

    def _begin_end(self, *args: object) -> None:
        if self.is_open and not self._own.is_gone:
            self._own.start(self._run_end, *args, name="segbroker end")

    async def _run_end(
        self, said: str, last: Callable[[], Call[None]] | None, timeout_ms: int
    ) -> None:
        try:
            if last is not None and not self._own.is_cut:
                with suppress(SegbrokerError):
                    await self.call(last(), timeout_ms=timeout_ms)
        finally:
            if self.is_open:
                self._end()
            warnings.warn(said, ResourceWarning, stacklevel=1)

    def _failed(self, exc: Exception) -> None:
        """A bug in one of its tasks.  Whoever waits must hear of it."""
        if self.is_open:
            self._failure = bug(exc)
            self._end(self._failure)

    def _end(self, error: SegbrokerError | None = None) -> None:
        """End everything under way, and have all tasks end."""
        assert self._engine is not None
        if self._own.is_gone:
            self._asleep_until_ms = -inf  # nobody is to be woken for what ends now
        self._engine.close(now_ms(), error)
        for transport in self._transports.values():
            self._close(transport)
        self._transports.clear()
        self._own.cancel()

    def wake_by(self, at_ms: int) -> None:
        """Have the timer task look at `at_ms` at the latest.  Raises as `check_loop`."""
        if at_ms >= self._asleep_until_ms:
            if get_ident() != self.thread_id:  # asked for each record: the loop is not looked for
                self.check_thread()
        else:
            self.check_loop()
            self._asleep_until_ms = -inf
            self._kick.set()
            self._go_on_if_cut()

    def _go_on_if_cut(self) -> None:
        """It is used behind the end of its tasks: by a task that asyncio.run has cancelled with
        them, or an async generator, which it ends behind them."""
        if self.is_open and self._own.is_cut:
            self._own.go_on()

    def _is_waiting(self) -> bool:
        return bool(self._waiting_count) or self._kick.is_set() or self.is_awaited()

    async def wait(self, what: Waitable) -> None:
        """As `wait_done`; its tasks go on meanwhile, whatever has cut them."""
        self._waiting_count += 1
        try:
            self._go_on_if_cut()
            await wait_done(what)
        finally:
            self._waiting_count -= 1

    async def call(
        self,
        generator: Call[T],
        *,
        timeout_ms: int | None = None,
        on_timeout: OnTimeout | None = None,
    ) -> T:
        """Run a call to its end.  Raises what it raises."""
        completion = self._begin(generator, timeout_ms, on_timeout)
        await self.wait(completion)
        return completion.result()

    def _begin(
        self, generator: Call[T], timeout_ms: int | None, on_timeout: OnTimeout | None = None
    ) -> Completion[T]:
        with self.undisturbed:
            completion = self.engine.call(
                generator, now_ms(), timeout_ms=timeout_ms, on_timeout=on_timeout
            )
            self.pump()
        return completion

    async def say_goodbye(
        self,
        goodbye: Callable[..., Call[None]],
        *,
        hurried: bool,
        hurry: Callable[[], object] = lambda: None,
    ) -> None:
        """What a client says at last, as far as it gets; another task may have ended it meanwhile.
        Where its task is cancelled it has HURRIED_MS more, and is told so by `hurry`."""
        with suppress(SegbrokerError):
            if hurried:
                await self.call_last(goodbye(patient=False), HURRIED_MS)
                return
            completion = self._begin(goodbye(patient=True), GOODBYE_MS)
            try:
                await self.wait(completion)
            except BaseException:
                hurry()
                await self._hurry(completion, HURRIED_MS)
                raise
            completion.result()

    async def call_last(self, generator: Call[T], timeout_ms: int) -> None:
        """Run a call in a task that is being cancelled, as far as it gets within `timeout_ms`."""
        await self._hurry(self.engine.call(generator, now_ms(), timeout_ms=timeout_ms), timeout_ms)

    async def _hurry(self, completion: Completion[T], timeout_ms: int) -> None:
        """The driver's own tasks may have been cancelled with it, by asyncio.run: so this one moves
        the bytes."""
        ends_ms = now_ms() + timeout_ms
        with anyio.CancelScope(shield=True):
            self.pump()
            while not completion.done and now_ms() < ends_ms:
                await anyio.sleep(0.001)
                self._receive_all()
                self.pump()

    def _receive_all(self) -> None:
        """Some of each connection."""
        for transport in list(self._transports.values()):
            if transport.connection.is_ready:
                self._receive_some(transport)

    def _receive_some(self, transport: Transport) -> None:
        try:
            size = transport.receive_some()
        except SegbrokerError as exc:
            transport.connection.lost(exc, now_ms())
        else:
            if size is not None:
                transport.connection.received(size, now_ms())
                transport.await_rest()

    def pump(self) -> None:
        """Do what is due, and send what is to be sent."""
        engine = self._engine
        if engine is None or engine.closed or self._is_pumping:
            return
        self._is_pumping = True
        try:
            if now_ms() - self._pumped_ms > LATE_MS:
                # Behind a job that kept the loop to itself: what has come is read before anything
                # is given up.
                self._receive_all()
            # A failed send has consequences (retries elsewhere): once more, at most a few times.
            for _ in range(4):
                engine.step(now_ms())
                for connection in engine.network.take_opening():
                    self._transports[connection] = Transport(connection, (), self._context)
                    self._own.start(self._run_connection, connection, name="segbroker connection")
                if (wanted := engine.network.take_wanted()) is not None:
                    self._own.start(self._renew_token, wanted, name="segbroker token")
                self._apply_closed(engine)
                for transport in list(self._transports.values()):
                    if transport.connection.outgoing and not transport.waits_to_send:
                        self._send(transport)
                if not any(c.state is State.CLOSED for c in self._transports):
                    break
        finally:
            self._is_pumping = False
            self._pumped_ms = now_ms()
        for notice in engine.network.absences.take():
            notice.write()
        wake_ms = engine.next_wake_ms()
        if wake_ms is not None:
            self.wake_by(wake_ms)

    async def _run_timer(self) -> None:
        try:
            await self._keep_time()
        finally:
            self._asleep_until_ms = inf

    async def _keep_time(self) -> None:
        while True:
            self._kick = anyio.Event()
            self._asleep_until_ms = inf
            self.pump()
            assert self._engine is not None
            wake_ms = self._engine.next_wake_ms()
            if self._kick.is_set() and wake_ms is not None and wake_ms <= now_ms():
                # pump() asked for it itself; do not turn without letting others run.
                await anyio.lowlevel.checkpoint()
                continue
            self._kick = anyio.Event()
            self._asleep_until_ms = inf if wake_ms is None else wake_ms
            delay = inf if wake_ms is None else max(0.0, (wake_ms - now_ms()) / 1000)
            with anyio.move_on_after(delay):
                await self._kick.wait()

    async def _run_connection(self, connection: Connection) -> None:
        transport = self._transports.get(connection)
        if transport is None:
            return
        try:
            if connection.state is State.CONNECTING:
                await self._connect(transport)
            await self._receive(transport)
        except SegbrokerError as exc:
            connection.lost(exc, now_ms())
        except (anyio.ClosedResourceError, anyio.BusyResourceError, OSError):
            pass  # our own side closed the socket: the core knows
        self.pump()

    async def _connect(self, transport: Transport) -> None:
        connection = transport.connection
        tokens = self.engine.network.tokens
        if tokens is not None and not tokens.is_fresh:
            connection.awaits_token = True
            await get_token(tokens, self._token_lock)
            connection.awaits_token = False
            if connection.state is State.CLOSED:
                return
        addresses: list[SocketAddress] = resolve(
            connection.host, connection.port, numeric_only=True
        )
        if not addresses:
            try:
                addresses = await beside(
                    lambda: resolve(connection.host, connection.port, numeric_only=False),
                    "segbroker-resolve",
                )
            except RuntimeError as exc:  # the system has no thread to give now
                raise BrokerUnreachable(f"{connection.host}: {exc}") from exc
            if connection.state is State.CLOSED:
                return  # given up meanwhile: nobody would close a socket made now
        transport.found(addresses)
        transport.connect_next()
        wait: Wait | None = Wait.WRITABLE
        while wait is not None:
            assert transport.socket is not None
            if wait is Wait.WRITABLE:
                await anyio.wait_writable(transport.socket)
            else:
                await anyio.wait_readable(transport.socket)
            if transport.socket is None:
                return  # closed in the same turn of the loop in which it was connected
            wait = transport.establish()
        if connection.state is State.CONNECTING:
            connection.connected()
            self.pump()

    async def _renew_token(self, tokens: Tokens) -> None:
        """Get one for sessions that end soon; they go on meanwhile, and look for it."""
        with suppress(SegbrokerError):  # who has to open a connection without it says so
            await get_token(tokens, self._token_lock)

    async def _receive(self, transport: Transport) -> None:
        connection = transport.connection
        budget = RECEIVE_BUDGET
        while connection.state is not State.CLOSED:
            assert transport.socket is not None
            size = transport.receive_some()
            if size is None:
                await anyio.wait_readable(transport.socket)
                budget = RECEIVE_BUDGET
                continue
            connection.received(size, now_ms())
            transport.await_rest()
            self.pump()
            budget -= size
            if budget < 0:
                budget = RECEIVE_BUDGET
                await anyio.lowlevel.checkpoint()

    def _send(self, transport: Transport) -> None:
        connection = transport.connection
        if transport.socket is None or connection.state in (State.CONNECTING, State.CLOSED):
            return
        while connection.outgoing:
            buffers = transport.buffers()
            try:
                sent = transport.send_some(buffers)
            except SegbrokerError as exc:
                connection.lost(exc, now_ms())
                return
            connection.sent(sent)
            if sent < sum(map(len, buffers)):
                transport.waits_to_send = True
                self._own.start(self._run_sender, transport, name="segbroker sender")
                return

    async def _run_sender(self, transport: Transport) -> None:
        """The kernel is full: wait until it is not, then go on."""
        try:
            if transport.socket is None:
                return  # closed before this task had its first turn
            await anyio.wait_writable(transport.socket)
        except (anyio.ClosedResourceError, anyio.BusyResourceError, OSError):
            return  # closed meanwhile: the core knows
        finally:
            transport.waits_to_send = False
        self.pump()

    def _apply_closed(self, engine: Engine) -> None:
        for connection in engine.network.take_closed():
            transport = self._transports.pop(connection, None)
            if transport is not None:
                self._close(transport)

    def _close(self, transport: Transport) -> None:
        if transport.socket is not None:
            # Whoever waits for the socket is woken with ClosedResourceError first.
            anyio.notify_closing(transport.socket)
            transport.close()


class Async(Client):
    """A client that is open in an `async with` block."""

    _driver: AsyncDriver

    async def __aenter__(self) -> Self:
        """Start, and wait until one broker was reached (BrokerUnreachable if none is)."""
        await self._driver.start(self, self._engine, self._last, self._last_ms)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(exc)

    async def aclose(self) -> None:
        """End.  Again: nothing."""
        await self._close(None)

    async def _close(self, exc: BaseException | None) -> None:
        """The end, because of `exc` or of nothing."""
        await self._driver.stop()


async def wait_done(what: Waitable) -> None:
    """Wait until done; always a checkpoint."""
    if what.done:
        await anyio.lowlevel.checkpoint()
        return
    event = anyio.Event()
    wake = event.set
    what.on_done(wake)
    try:
        await event.wait()
    finally:
        if not what.done:
            what.forget(wake)


_all: "WeakSet[AsyncDriver]" = WeakSet()


def _after_fork() -> None:
    for driver in list(_all):
        driver.thread_id = 0


os.register_at_fork(after_in_child=_after_fork)

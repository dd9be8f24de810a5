"""The blocking shell: one I/O thread per client runs the core; callers wait for Completions.

    caller's thread                        I/O thread
      with lock: append, seek, call ...      with lock: step, replies
      push: step, send                       (one of both sends at a time)
      wake_by(t) ------ one byte ----------> select(until the next deadline)
      wait(completion) <---- its waker ----- resolve, fail

One lock guards the core; it is held for computing only, never around a wait, nor a system call but
those that end a socket, or say what of it is waited for: a caller's thread may be at it.  A socket
that is being sent to is closed by who does.  A signal in the main thread is handled behind the lock
(core_lock.py).

Waking costs a system call, so it is done only when the I/O thread would sleep longer than `t`;
`_asleep_until_ms` tells.  From its step on, until it has computed its next deadline, that is "for
ever": a wake_by in between may wake it once too often, but never too rarely (0398).

Callers wait as waiting.py does: a signal interrupts it, so Ctrl-C works at once.

The thread lives from `start` to `stop`, which joins it.  A short-lived helper thread looks up host
names, because the system's resolver cannot be interrupted; another gets the token of a login.  Only
such a helper may outlive `stop`, for as long as its work takes.

In the child of a fork the I/O thread does not exist: clients that were open raise ClosedError
there, and the parent keeps its sockets and records.
"""

import os
import selectors
import socket
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from ssl import SSLContext
from time import sleep
from types import TracebackType
from typing import Final, Self, TypeVar
from weakref import WeakSet

from .clock import now_ms
from .completion import Waitable
from .connection import Connection, State
from .core_lock import CoreLock
from .driver import FORKED, GOODBYE_MS, HURRIED_MS, Client, Driver
from .engine import Call, Engine, OnTimeout
from .errors import (
    OPEN_ALREADY,
    OPENED_ONCE,
    WAS_CLOSED,
    BrokerUnreachable,
    BusyError,
    ClosedError,
    ConnectionLost,
    SegbrokerError,
    bug,
)
from .forgotten import Closable, Forgotten
from .plain_lock import WITHIN
from .reaching import Reaching
from .settings import tls_context
from .silence import LATE_MS
from .tokens import ASYNC, Tokens
from .transport import SocketAddress, Transport, Wait, resolve
from .waiting import wait_done

T = TypeVar("T")

OWN_THREAD: Final = (
    "this is the client's own thread, in which the handlers of its log run: a call that waits here"
    " would wait for itself"
)


class ThreadDriver(Driver):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = CoreLock()
        self._context: SSLContext | None = None
        self._thread: threading.Thread | None = None
        self._forgotten = Forgotten()
        self._stopping = False
        # What the thread is to say, to do at last, and how long: nobody is left who could stop it.
        self._last: tuple[str, Callable[[], Call[None]] | None, int] | None = None
        self.is_forked = False
        self._is_pushing = False
        self._asleep_until_ms: float = -inf
        # When the thread last began to look at its sockets.
        self._looked_ms = 0
        self._transports: dict[Connection, Transport] = {}
        self._resolved: list[tuple[Transport, list[SocketAddress] | SegbrokerError]] = []

    @property
    def engine(self) -> Engine:
        if self.is_forked:
            raise ClosedError(FORKED)
        if self._engine is None:
            raise ClosedError("not open: use it inside its `with` block, or open() it")
        if self._thread is None:
            raise ClosedError(WAS_CLOSED)
        return self._engine

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    # The caller's side.

    def start(self, engine: Engine, reached: Callable[[], object]) -> None:
        """Start the thread, wait until one broker was reached, and call `reached`: whoever is
        interrupted before its end has opened nothing.

        Raises BrokerUnreachable when the times of reaching.py are over, or where the system has no
        thread or descriptors to give, TlsFailed and AuthenticationFailed as soon as it is clear;
        the thread is gone then.
        """
        if self._thread is not None:
            raise BusyError(OPEN_ALREADY)
        if engine.closed:
            raise ClosedError(OPENED_ONCE)
        self._context = tls_context(engine.settings)
        tokens = engine.network.tokens
        if tokens is not None and tokens.is_async:
            raise TypeError(ASYNC)
        reaching = Reaching(engine)
        self._engine = engine
        self._stopping = False
        try:
            self._start_thread()
            self.call(
                reaching.connect(), timeout_ms=reaching.timeout_ms, on_timeout=reaching.give_up
            )
            reached()
        except BaseException:
            self.stop()
            raise

    def _start_thread(self) -> None:
        try:
            with ExitStack() as undoing:
                self._wake_reader, self._wake_writer = socket.socketpair()
                undoing.enter_context(self._wake_reader)
                undoing.enter_context(self._wake_writer)
                self._wake_reader.setblocking(False)
                self._wake_writer.setblocking(False)
                self._selector = undoing.enter_context(selectors.DefaultSelector())
                self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
                thread = threading.Thread(target=self._run, name="segbroker-io", daemon=True)
                self._thread = thread
                undoing.callback(self._is_no_more)
                _open.add(self)  # before the thread: a fork finds it whenever it comes
                thread.start()
                undoing.pop_all()
        except (OSError, RuntimeError) as exc:  # no descriptors, or no thread
            why = (isinstance(exc, OSError) and exc.strerror) or exc
            raise BrokerUnreachable(f"the system has no room for a client: {why}") from exc

    def watch(self, client: Closable, last: Callable[[], Call[None]] | None, last_ms: int) -> None:
        """Where nobody refers to `client` any more it ends by itself, behind `last`, which may take
        `last_ms`; neither refers to it.  At a regular end of the interpreter it is closed."""
        assert self._thread is not None, "it is open"
        self._forgotten.opened(client, self, last, last_ms)
        self._forgotten.close_at_exit(client, self._thread, last_ms)

    def _is_no_more(self) -> None:
        _open.discard(self)
        self._thread = None

    def stop(self) -> None:
        """End everything under way (ClosedError) and join the thread.  Again: nothing.

        Raises BusyError where it would wait for itself, see `wait`; it goes on then.
        """
        thread = self._thread
        if thread is not None:
            self._check_may_wait()
            with self.lock:
                self._stopping = True
            self._wake()
            thread.join()
            self._is_no_more()
            self._close_wakers()
        self._forgotten.closed()

    def _close_wakers(self) -> None:
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def end_by_itself(
        self, said: str, last: Callable[[], Call[None]] | None, timeout_ms: int
    ) -> None:
        """Have the I/O thread run `last`, for `timeout_ms` at most, warn and end: nobody refers to
        the client any more (forgotten.py).  Returns at once and takes no lock."""
        if self._thread is not None:
            self._last = said, last, timeout_ms
            self._wake()

    def forked(self) -> None:
        """This is the child of a fork: give everything up, and leave what is the parent's to it."""
        self.is_forked = True  # before anything that may raise
        self._thread = None
        assert self._engine is not None, "it is open"
        self.lock.forked()
        # Closed, not unregistered: the selector's list of them is the parent's too.
        for transport in self._transports.values():
            transport.close()
        self._transports.clear()
        self._close_wakers()
        # A call that another thread was just running cannot be ended: nobody here waits for it.
        with suppress(ValueError):
            self._engine.close(now_ms(), ClosedError(FORKED))

    def wake_by(self, at_ms: int) -> None:
        """Have the I/O thread look at `at_ms` at the latest."""
        if at_ms < self._asleep_until_ms and not self._is_pushing:
            self._asleep_until_ms = -inf
            self._wake()

    def call(
        self,
        generator: Call[T],
        *,
        timeout_ms: int | None = None,
        on_timeout: OnTimeout | None = None,
    ) -> T:
        """Run a call to its end.  Raises what it raises, and as `wait`: it is not begun then."""
        engine = self.engine
        self._check_may_wait()
        self.lock.wait_free()
        with self.lock.undisturbed:
            with self.lock:
                completion = engine.call(
                    generator, now_ms(), timeout_ms=timeout_ms, on_timeout=on_timeout
                )
            self.wake_by(0)
        self.wait(completion)
        return completion.result()

    def say_goodbye(self, goodbye: Callable[..., Call[None]], *, hurried: bool) -> None:
        """What a client says at last, as far as it gets."""
        with suppress(SegbrokerError):
            self.call(
                goodbye(patient=not hurried), timeout_ms=HURRIED_MS if hurried else GOODBYE_MS
            )

    def push(self) -> None:
        """Do what is due and send it from this thread: a record that must not linger.

        It saves the way over the I/O thread, which only hears of it when it sleeps too long to
        see to the deadlines; it receives the answer.
        """
        self.lock.wait_free()
        with self.lock.undisturbed:
            self._push(self.engine)

    def _push(self, engine: Engine) -> None:
        with self.lock:
            # What the step would wake the I/O thread for is done or looked at below.
            self._is_pushing = True
            try:
                engine.step(now_ms())
            finally:
                self._is_pushing = False
            transports = [t for t in self._transports.values() if t.connection.outgoing]
        for transport in transports:
            self._send(transport)
        with self.lock:
            wake_ms = engine.next_wake_ms()
            if engine.network.is_opening:
                wake_ms = 0
        if wake_ms is not None:
            self.wake_by(wake_ms)

    def wait(self, what: Waitable, timeout_ms: float | None = None) -> bool:
        """Wait until done; False when `timeout_ms` passed first.

        Raises BusyError where it would wait for itself: in the I/O thread, in which a log's
        handlers run, and in a thread that is within the client's work already.
        """
        if not what.done:
            self._check_may_wait()
        return wait_done(what, timeout_ms)

    def wake_for_wait(self, at_ms: int) -> None:
        """As `wake_by`, of somebody who then waits; raises as `wait`."""
        self._check_may_wait()
        self.wake_by(at_ms)

    @property
    def may_wait(self) -> bool:
        """Whether it would not wait for itself; see `wait`."""
        return threading.current_thread() is not self._thread and not self.lock.is_mine

    def check_may_stop(self) -> None:
        """Raises BusyError as `stop`: for who has something to do before that."""
        if self._thread is not None:
            self._check_may_wait()

    def _check_may_wait(self) -> None:
        if threading.current_thread() is self._thread:
            raise BusyError(OWN_THREAD)
        if self.lock.is_mine:
            raise BusyError(WITHIN)

    # The I/O thread.

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"\0")
        except BlockingIOError:
            pass  # so many wakes are unread that it will wake anyway
        except OSError:
            pass  # stopped meanwhile

    def _run(self) -> None:
        assert self._engine is not None
        engine = self._engine
        error: SegbrokerError | None = None
        try:
            while not self._stopping and self._last is None:
                self._turn(engine)
            if self._last is not None:
                _, last, timeout_ms = self._last
                self._run_last(engine, last, timeout_ms)
        except BaseException as exc:
            # A bug.  Whoever waits must hear of it; the thread has nobody to tell.
            error = bug(exc)
        with self.lock:
            engine.close(now_ms(), error)
            self._apply_closed(engine)
        for transport in self._transports.values():
            transport.close()
        self._transports.clear()
        if self._last is not None:
            self._close_wakers()
            said, *_ = self._last
            self._last = None
            warnings.warn(said, ResourceWarning, stacklevel=1)

    def _run_last(
        self, engine: Engine, last: Callable[[], Call[None]] | None, timeout_ms: int
    ) -> None:
        if last is None:
            return
        with self.lock:
            done = engine.call(last(), now_ms(), timeout_ms=timeout_ms)
        done.on_done(self._wake)  # it may be done in the step of a turn, which then sleeps
        while not done.done:
            self._turn(engine)

    def _turn(self, engine: Engine) -> None:
        """One round: what is due, what is to be sent, then sleep until something happens."""
        at_ms = now_ms()
        if at_ms - self._looked_ms > LATE_MS:
            # Behind a sleep, or this process was stopped: what has come is read before anything
            # is given up.
            self._look(0)
        with self.lock:
            engine.step(at_ms)
            opening = engine.network.take_opening()
            notices = engine.network.absences.take()
            tokens = engine.network.take_wanted()
            self._apply_closed(engine)
            # What another thread asks for from now on is in no step, nor sent, nor in a deadline.
            self._asleep_until_ms = inf
        for notice in notices:
            notice.write()
        if tokens is not None:
            self._renew_token(tokens)
        for connection in opening:
            self._open(connection)
        for transport in list(self._transports.values()):
            if transport.connection.outgoing:
                self._send(transport)
        with self.lock:
            # Sending may have failed, and failures have consequences: then there is more to do.
            wake_ms = engine.next_wake_ms()
            # Not longer than a request may take: the deadlines of what `push` sends lie behind it.
            latest_ms = now_ms() + engine.settings.request_timeout_ms // 2
            wake_ms = latest_ms if wake_ms is None else min(wake_ms, latest_ms)
            if any(c.state is State.CLOSED for c in self._transports):
                wake_ms = 0
            self._asleep_until_ms = wake_ms
        self._look(wake_ms)

    def _look(self, until_ms: float) -> None:
        """Wait for sockets, and do what is to be done there."""
        self._looked_ms = now_ms()
        events = self._selector.select(max(0, until_ms - self._looked_ms) / 1000)
        self._asleep_until_ms = -inf
        for key, mask in events:
            if key.data is None:
                self._wake_reader.recv(4096)
                self._take_resolved()
            else:
                self._handle(key.data, mask)

    def _handle(self, transport: Transport, mask: int) -> None:
        connection = transport.connection
        if connection.state is State.CLOSED:
            return
        if connection.state is State.CONNECTING:
            self._finish_connect(transport)
            return
        if mask & selectors.EVENT_READ:
            self._receive(transport)
        # Writable: the next turn sends.

    def _receive(self, transport: Transport) -> None:
        connection = transport.connection
        while connection.state is not State.CLOSED:
            try:
                size = transport.receive_some()
            except SegbrokerError as exc:
                self._lost(transport, exc)
                return
            if size is None:
                return
            with self.lock:
                connection.received(size, now_ms())
            if not transport.await_rest():
                # Whoever waited for this goes first; without this it would wait for the
                # interpreter's lock until our next system call.
                sleep(0)
            if not transport.has_received:
                return  # if there is more, the selector will say so

    def _open(self, connection: Connection) -> None:
        addresses = resolve(connection.host, connection.port, numeric_only=True)
        transport = Transport(connection, addresses, self._context)
        with self.lock:  # `push` looks through them
            self._transports[connection] = transport
        assert self._engine is not None
        tokens = self._engine.network.tokens
        connection.awaits_token = tokens is not None and not tokens.is_fresh
        if addresses and not connection.awaits_token:
            self._connect(transport)
            return

        def look_up() -> None:
            found: list[SocketAddress] | SegbrokerError
            try:
                if connection.awaits_token and tokens is not None:
                    tokens.get()
                    connection.awaits_token = False
                found = addresses
                if not found:
                    found = resolve(connection.host, connection.port, numeric_only=False)
            except SegbrokerError as exc:
                found = exc
            self._resolved.append((transport, found))
            self._wake()

        try:
            _beside(look_up, "segbroker-resolve")
        except SegbrokerError as exc:
            self._lost(transport, exc)

    def _renew_token(self, tokens: Tokens) -> None:
        """Get one for sessions that end soon; they go on meanwhile, and look for it."""

        def get() -> None:
            with suppress(SegbrokerError):  # who has to open a connection without it says so
                tokens.get()

        try:
            _beside(get, "segbroker-token")
        except SegbrokerError:
            tokens.is_getting = False

    def _take_resolved(self) -> None:
        while self._resolved:
            transport, found = self._resolved.pop()
            if transport.connection.state is not State.CONNECTING:
                continue
            if isinstance(found, SegbrokerError):
                self._lost(transport, found)
            else:
                transport.found(found)
                self._connect(transport)

    def _connect(self, transport: Transport) -> None:
        try:
            transport.connect_next()
        except SegbrokerError as exc:
            self._lost(transport, exc)
            return
        assert transport.socket is not None
        self._selector.register(transport.socket, selectors.EVENT_WRITE, transport)

    def _finish_connect(self, transport: Transport) -> None:
        assert transport.socket is not None
        self._selector.unregister(transport.socket)
        try:
            wait = transport.establish()
        except SegbrokerError as exc:
            self._lost(transport, exc)
            return
        mask = selectors.EVENT_WRITE if wait is Wait.WRITABLE else selectors.EVENT_READ
        self._selector.register(transport.socket, mask, transport)
        if wait is None:
            with self.lock:
                transport.connection.connected()

    def _send(self, transport: Transport) -> None:
        """Send until all is sent or the kernel is full; then wait for it to be writable too."""
        connection = transport.connection
        if transport.socket is None or connection.state in (State.CONNECTING, State.CLOSED):
            return
        with self.lock:
            if transport.is_sending:
                return  # the other thread goes on until nothing is left
            transport.is_sending = True
        try:
            self._send_all(transport)
        except BaseException as exc:
            # Whatever ends a caller's thread here: nobody knows how much of it was sent.
            known = exc if isinstance(exc, SegbrokerError) else None
            self._lost(transport, known or ConnectionLost("interrupted while it was sending"))
            with self.lock:
                self._has_sent(transport, is_full=False)
            self.wake_by(0)
            if known is None:
                raise

    def _send_all(self, transport: Transport) -> None:
        """Until nothing is left, or the kernel is full: then the I/O thread waits until it is not.

        Raises SegbrokerError.
        """
        is_full = False
        while True:
            with self.lock:
                buffers = transport.buffers()
                if is_full or not buffers:
                    self._has_sent(transport, is_full=is_full)
                    return
            size = sum(map(len, buffers))
            sent = transport.send_some(buffers)
            is_full = sent < size
            with self.lock:
                transport.connection.sent(sent)

    def _has_sent(self, transport: Transport, *, is_full: bool) -> None:
        """Under the lock: the other thread may send from now on, or has given the connection up."""
        transport.is_sending = False
        if transport.connection not in self._transports:
            transport.close()
        elif is_full is not transport.waits_to_send:
            assert transport.socket is not None, "it is closed when it is given up"
            transport.waits_to_send = is_full
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_full else 0)
            self._selector.modify(transport.socket, mask, transport)

    def _lost(self, transport: Transport, error: SegbrokerError) -> None:
        with self.lock:
            transport.connection.lost(error, now_ms())

    def _apply_closed(self, engine: Engine) -> None:
        """Under the lock: close the sockets of connections that are over, but for those that the
        other thread is just sending to."""
        for connection in engine.network.take_closed():
            transport = self._transports.pop(connection, None)
            if transport is not None and transport.socket is not None:
                # A socket whose connecting failed was not registered again.
                with suppress(KeyError):
                    self._selector.unregister(transport.socket)
                if not transport.is_sending:
                    transport.close()


class Blocking(Client):
    """A client that is open in a `with` block, or from `open` to `close`."""

    _driver: ThreadDriver

    def __enter__(self) -> Self:
        """Start, and wait until one broker was reached (BrokerUnreachable if none is)."""
        watch = partial(self._driver.watch, self, self._last, self._last_ms)
        self._driver.start(self._engine, watch)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(exc)

    def close(self) -> None:
        """End.  Again: nothing."""
        self._close(None)

    def _close(self, exc: BaseException | None) -> None:
        """The end, because of `exc` or of nothing."""
        self._driver.stop()

    def open(self) -> Self:
        """Start without a `with` block, at a prompt or in a notebook; `close` ends it.

        Whoever forgets to is closed at a regular end of the interpreter; not after a signal, nor in
        a forked worker.  Raises as entering the block.
        """
        return self.__enter__()


def _beside(work: Callable[[], None], name: str) -> None:
    """Do it in a thread of its own.  Raises BrokerUnreachable: the system has none to give now.

    Behind the end of the main thread Python 3.12 gives none at all, while clients that are closed
    at the end of the interpreter still deliver: then it is done here.
    """
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as exc:
        if threading.main_thread().is_alive():
            raise BrokerUnreachable(str(exc)) from exc
        work()


_open: "WeakSet[ThreadDriver]" = WeakSet()


def _after_fork() -> None:
    drivers = list(_open)
    _open.clear()
    with ExitStack() as stack:  # each of them, though one raises
        for driver in drivers:
            stack.callback(driver.forked)


os.register_at_fork(after_in_child=_after_fork)

"""One connection with a blocking socket under the client's connection core.

The core (segbroker.client.connection) turns requests into bytes and bytes into replies; here a
socket is connected, written and read, with a deadline on each.  Requests may be sent ahead: replies
come in the order of the requests.

A reply that carries records points into the receive buffer: it is valid until the next `receive`.
The time-out of a reply counts from when it is waited for: between two fetches the caller may stand
still for minutes because Spark is busy, and the reply that came meanwhile is as good as new.

Invariant: after any exception the link is closed and of no further use.
"""

import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar

from segbroker.client.connection import Connection, State
from segbroker.client.errors import ConnectionLost, SegbrokerError, TimedOut, TlsFailed
from segbroker.client.login import Login, Salted
from segbroker.client.security import Security
from segbroker.client.settings import Address
from segbroker.client.spoken import Reply, Request, VendorReply, VendorRequest
from segbroker.client.transport import why_lost
from segbroker.protocol.schema import Message

from .connecting import ClientOptions

# What the core calls a deadline that this shell keeps itself.
_NEVER_MS = 1 << 62

# Connecting and negotiating: a broker that cannot do it in this time is taken to be away.
SETUP_TIMEOUT_MS = 10_000

# Of this process: reading certificates and salting passwords take milliseconds.  A context goes
# with the state of the files that it was read from: those that were replaced are read again.
CONTEXTS: dict[Security, tuple[list[tuple[int, int, int]], ssl.SSLContext]] = {}
SALTED: dict[Security, Salted] = {}

M = TypeVar("M", bound=Message | VendorReply)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Link:
    """See the module."""

    def __init__(self, address: Address, options: ClientOptions) -> None:
        """Connect, negotiate versions and log in, within request.timeout.ms or SETUP_TIMEOUT_MS.

        Raises ConnectionLost, TimedOut and what else the client's errors have.
        """
        self.address = address
        self._replies: deque[Reply] = deque()
        self._socket: socket.socket | None = None
        self._options = options
        self._security = options.security
        try:
            try:
                self._negotiate(ask_version=3)
            except ConnectionLost:
                if not self._core.was_connected:
                    raise
                # A very old broker hangs up on ApiVersions 3; it answers version 0.
                self._negotiate(ask_version=0)
        except BaseException:
            self.close()  # nobody has it who could
            raise

    def _negotiate(self, *, ask_version: int) -> None:
        host, port = self.address
        timeout_ms = min(self._options.request_timeout_ms, SETUP_TIMEOUT_MS)
        deadline_ms = now_ms() + timeout_ms
        has_login = self._security is not None and self._security.mechanism is not None
        self._core = Connection(
            host,
            port,
            client_id=self._options.client_id,
            deadline_ms=_NEVER_MS,
            ask_version=ask_version,
            new_login=self._new_login if has_login else None,
        )
        try:
            self._socket = socket.create_connection(self.address, timeout_ms / 1000)
        except OSError as exc:
            error = ConnectionLost(f"{host}:{port} cannot be reached: {exc}")
            self._core.lost(error, now_ms())
            raise error from exc
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._security is not None and self._security.tls:
            self._socket = self._wrapped(self._socket, self._security)
        self._core.connected()
        self._flush(deadline_ms)
        while self._core.state is not State.READY:
            self._read_some(deadline_ms)

    def _new_login(self) -> Login:
        assert self._security is not None
        return Login(self._security, SALTED.setdefault(self._security, {}))

    def _wrapped(self, plain: socket.socket, security: Security) -> socket.socket:
        """The socket with TLS on it; its handshake has the time that connecting has."""
        host, port = self.address
        try:
            return _context(security).wrap_socket(plain, server_hostname=host)
        except OSError as exc:
            plain.close()
            error: SegbrokerError
            if isinstance(exc, TimeoutError):
                error = TimedOut(f"{host}:{port}: no TLS handshake in time")
            elif isinstance(exc, ConnectionError | ssl.SSLError):
                error = why_lost(f"{host}:{port}", exc)
            else:  # a file
                error = TlsFailed(f"{host}:{port}: {exc}")
            self._core.lost(error, now_ms())
            raise error from exc

    @property
    def is_open(self) -> bool:
        return self._core.state is State.READY

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on the way and the broker has not hung up: others may use the link."""
        return (
            self.is_open
            and not self._core.in_flight
            and not self._replies
            and not self._is_hung_up()
        )

    def _is_hung_up(self) -> bool:
        """Whether an end of the connection is there to be read; nothing else comes unasked."""
        assert self._socket is not None, "the link is closed"
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return bool(readable.poll(0))

    def send(self, message: Request) -> None:
        """Send a request; its reply is had by `receive`, after those of earlier requests.

        Raises UnsupportedByBroker, ConnectionLost, TimedOut.
        """
        try:
            self._core.request(message, self._on_reply, deadline_ms=_NEVER_MS)
        except SegbrokerError:
            self.close()
            raise
        self._flush(now_ms() + self._options.request_timeout_ms)

    def receive(self, expected: type[M], wait_ms: int = 0) -> M:
        """The oldest reply.  Ends the validity of the last.

        wait_ms: what the broker may wait by itself, beside request.timeout.ms.
        """
        deadline_ms = now_ms() + self._options.request_timeout_ms + wait_ms
        while not self._replies:
            self._read_some(deadline_ms)
        reply = self._replies.popleft()
        if isinstance(reply, SegbrokerError):
            raise reply
        assert isinstance(reply, expected), f"a {type(reply).__name__} for a {expected.__name__}"
        return reply

    def ask(self, message: Request, expected: type[M]) -> M:
        """Send a request and wait for its reply."""
        self.send(message)
        return self.receive(expected)

    def ask_vendor(self, request: VendorRequest) -> Mapping[str, Any]:
        """One of segbroker's own requests.  Raises UnsupportedByBroker at another broker."""
        return self.ask(request, VendorReply).body

    def close(self) -> None:
        self._core.lost(ConnectionLost("closed here"), now_ms())
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # Inside.

    def _on_reply(self, reply: Reply, at_ms: int) -> None:
        self._replies.append(reply)

    def _flush(self, deadline_ms: int) -> None:
        assert self._socket is not None, "the link is closed"
        while self._core.outgoing:
            part = self._core.outgoing[0]
            self._socket.settimeout(_seconds_until(deadline_ms))
            try:
                size = self._socket.send(part)
            except OSError as exc:
                raise self._broken(exc) from exc
            self._core.sent(size)

    def _read_some(self, deadline_ms: int) -> None:
        if self._core.error is not None:
            raise self._core.error
        assert self._socket is not None, "the link is closed"
        self._socket.settimeout(_seconds_until(deadline_ms))
        try:
            size = self._socket.recv_into(self._core.get_buffer())
        except OSError as exc:
            raise self._broken(exc) from exc
        self._core.received(size, now_ms())
        if self._core.outgoing:  # the core asked again with an older version
            self._flush(deadline_ms)
        if self._core.error is not None:
            self.close()
            if not self._replies:
                raise self._core.error

    def _broken(self, exc: OSError) -> SegbrokerError:
        host, port = self.address
        error: SegbrokerError
        if isinstance(exc, TimeoutError):
            error = TimedOut(f"{host}:{port} did not answer in time")
        else:
            error = ConnectionLost(f"{host}:{port}: {exc}")
        self._replies.clear()
        self._core.lost(error, now_ms())
        self.close()
        return error


def _context(security: Security) -> ssl.SSLContext:
    """A context by the files as they are now.  Raises OSError."""
    stamps = []
    for name in filter(None, (security.ca_file, security.cert_file, security.key_file)):
        found = os.stat(name)
        stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
    read, context = CONTEXTS.get(security, (None, None))
    if context is None or read != stamps:
        context = security.context()
        CONTEXTS[security] = stamps, context
    return context


def _seconds_until(deadline_ms: int) -> float:
    # 0 would make the socket non-blocking; a passed deadline waits one last millisecond.
    return max(1, deadline_ms - now_ms()) / 1000

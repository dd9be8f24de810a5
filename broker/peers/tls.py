"""TLS on the broker's side: a connection that reads and writes like a socket, and its certificate.

    Connection ---- recv_into, sendmsg, close ----> socket         PLAINTEXT: nothing in between
                                              \\---> TlsSocket ---> ssl in memory
                                                             \\---> socket

`TlsSocket` keeps the promises that the connection and its outbox build on:

* a receive that does not fill the buffer has emptied the TLS layer: what was received and can be
  decrypted is never left waiting for a byte that does not come, nor is the end.  It has emptied the
  socket, too, or has had its time, and the socket is readable still;
* what `sendmsg` counts is in the socket; of records that the socket did not take whole the rest is
  kept, and they are counted when that has left;
* nothing waits but the handshake, whose steps are made in a thread (loop/strangers.py).

OpenSSL has no socket: it would read from it for as long as changes of keys come, which are no data
(docs/decisions/0288).  So it gets what a turn has time for.

`Certificate` makes the context of new connections.  It is made anew when the files change or
somebody asks (SIGHUP); connections that exist keep theirs.  Files that do not go together, as in
the middle of being replaced, leave the old ones in force.  One that has expired, or will soon, is
served and told in the log once a day: clients refuse it, and would not say why here.

Not offered: versions before 1.2, compression, renegotiation, tickets.  A session of TLS 1.2 can be
resumed by its id, since Python cannot switch that off: with the context that it began with, so not
by a client whose authority was removed; OpenSSL keeps 20,480 for a context, of 1 KiB each.
"""

import os
import ssl
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from socket import SHUT_RD, socket
from typing import Final, TypeAlias, cast

import structlog
import trio

from segbroker.protocol.certificate_dates import validity_ms
from segbroker.protocol.certificate_names import subject_of
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.tls_records import cut_records

from ..configuration.tls_settings import TlsSettings

log = structlog.get_logger()

Buffer: TypeAlias = bytes | bytearray | memoryview

_ENCRYPTED: Final = b"ENCRYPTED"
"""In the PEM of a key that needs a password, whatever its form."""
RAW_LEAST: Final = 2 << 10
RAW_OF_STRANGERS: Final = 512
"""The same, and all of it, before a login: however quick the last bytes were, the next may all be
changes of keys."""
RAW_MOST: Final = 17 << 10
"""Bytes that are taken from the socket at a time, the largest record among them: a change of keys
has 27 and costs 40 us, a record with a single byte of data 23 and 4 us."""
SLOW_S: Final = 0.001
"""Whose bytes took longer has had its turn, and begins with RAW_LEAST again."""
RECORDS_AT_ONCE: Final = 2
"""Records that are given to the socket together: one by one would cost a tenth of what a consumer
of large batches does."""
HELD_MAX: Final = 64 << 10
"""Bytes of answers to changes of keys that a peer asks for and does not take."""
FILE_SIZE_MAX: Final = 1 << 20
REMINDED_BEFORE_MS: Final = 14 * 24 * 60 * 60 * 1000
"""How long before a certificate ends it is said to expire soon, at most; and one that is replaced
often has always less left than that, so no sooner than in the last quarter of its time."""
REMINDED_SHARE: Final = 4
REMINDER_MS: Final = 24 * 60 * 60 * 1000

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class HandshakeFailed(Exception):
    """The peer does not speak TLS, or not so that we can agree; the text says which."""


class CertificateUnusable(OSError):
    """The files of the certificate are not there, or do not go together; the cause is what the
    system or OpenSSL said."""


class Standing(StrEnum):
    """How long a certificate lasts yet."""

    VALID = "valid"
    EXPIRES_SOON = "expires_soon"
    EXPIRED = "expired"


class TlsSocket:
    """A TLS connection with the methods of a non-blocking socket that are used; see the module."""

    __slots__ = (
        "_counted",
        "_encrypted",
        "_incoming",
        "_outgoing",
        "_raw_size",
        "_sock",
        "_tls",
        "raw_most",
    )

    def __init__(self, sock: socket, context: ssl.SSLContext) -> None:
        """Takes `sock` over."""
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw_size = RAW_LEAST
        self.raw_most = RAW_MOST
        """Bytes that are taken from the socket at a time, at most."""
        # What the socket did not take, and of how many bytes it is that are counted when it has.
        self._encrypted = b""
        self._counted = 0

    def fileno(self) -> int:
        """Of the socket: for waiting."""
        return self._sock.fileno()

    async def handshake(self, make: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Agree with the peer.  make: makes a step of that, in a thread; its exceptions come out.

        Raises HandshakeFailed, OSError.
        """
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            self._hear()
            try:
                await make(self._tls.do_handshake)
            except ssl.SSLWantReadError:
                await self._send_all()
            except ssl.SSLError as exc:
                with suppress(OSError):
                    self._flush()  # what the peer is told
                raise HandshakeFailed(_reason(exc)) from exc
            else:
                await self._send_all()
                return

    def subject(self) -> str | None:
        """The subject of the peer's certificate, which was verified; None: it has shown none.

        Raises HandshakeFailed: the subject is none.
        """
        if self._tls.context.verify_mode is ssl.CERT_NONE:
            return None
        certificate = self._tls.getpeercert(binary_form=True)
        try:
            return None if certificate is None else subject_of(certificate)
        except ValueError as exc:
            raise HandshakeFailed(f"its certificate cannot be read: {exc}") from exc

    def recv_into(self, space: memoryview) -> int:
        """Receive until `space` is full, nothing is there, or it takes long. 0: the end.

        Raises BlockingIOError, OSError; RemoteProtocolError: the peer has many answers to take.
        """
        received, is_over = self._open(space)
        until = time.perf_counter() + SLOW_S
        while not is_over and received < len(space):
            size = min(self._raw_size, self.raw_most)
            try:
                raw = self._sock.recv(size)
            except (BlockingIOError, InterruptedError):
                break
            if not raw:
                return received
            self._incoming.write(raw)
            count, is_over = self._open(space[received:])
            received += count
            if len(raw) < size:
                break
            if time.perf_counter() > until:
                self._raw_size = RAW_LEAST
                break
            self._raw_size = min(2 * size, RAW_MOST)
        if is_over and received:  # the end is told by the next call: the socket has to be readable
            with suppress(OSError):
                self._sock.shutdown(SHUT_RD)
        if not (received or is_over):
            raise BlockingIOError
        return received

    def sendmsg(self, pieces: Sequence[Buffer]) -> int:
        """How many bytes of `pieces` are in the socket. Raises BlockingIOError: none."""
        if not self._flush():
            raise BlockingIOError
        sent, self._counted = self._counted, 0
        records = cut_records(pieces, sent)
        for begin in range(0, len(records), RECORDS_AT_ONCE):
            for record in records[begin : begin + RECORDS_AT_ONCE]:
                self._counted += self._tls.write(record)
                self._encrypted += self._outgoing.read()  # which would grow and never shrink
            if not self._flush():
                break
            sent += self._counted
            self._counted = 0
        if not sent:
            raise BlockingIOError
        return sent

    def setsockopt(self, level: int, name: int, value: bytes) -> None:
        """As of the socket below.  Raises OSError."""
        self._sock.setsockopt(level, name, value)

    def close(self) -> None:
        """Say goodbye if that needs no waiting, and close."""
        with suppress(OSError):
            self._tls.unwrap()
        with suppress(OSError):
            self._flush()
        self._sock.close()

    def _hear(self) -> None:
        """Something of a handshake, or the end.  Raises OSError."""
        with suppress(BlockingIOError, InterruptedError):
            if raw := self._sock.recv(RAW_LEAST):
                self._incoming.write(raw)
            else:
                self._incoming.write_eof()

    def _open(self, space: memoryview) -> tuple[int, bool]:
        """Decrypt what was received, until `space` is full: how many bytes, and whether the peer
        has said goodbye.

        Raises as `recv_into`.
        """
        received, is_over = 0, False
        try:
            while received < len(space) and not is_over:
                # How many, where it is given room: typeshed has it that these are the bytes.
                count = cast("int", self._tls.read(len(space), space[received:]))
                received += count
                is_over = not count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._flush()  # what the peer is told
            raise
        if self._outgoing.pending and not self._flush() and len(self._encrypted) > HELD_MAX:
            raise RemoteProtocolError(f"{len(self._encrypted)} bytes of TLS that it does not take")
        return received, is_over

    def _flush(self) -> bool:
        """Give the socket what is encrypted; whether it took all.  Raises OSError."""
        if self._outgoing.pending:
            self._encrypted += self._outgoing.read()
        while self._encrypted:
            try:
                count = self._sock.send(self._encrypted)
            except (BlockingIOError, InterruptedError):
                return False
            self._encrypted = self._encrypted[count:]
        return True

    async def _send_all(self) -> None:
        while not self._flush():
            await trio.lowlevel.wait_writable(self._sock)


class Certificate:
    """The context of new connections, from the files that the configuration names."""

    def __init__(
        self,
        settings: TlsSettings,
        listeners: Sequence[str],
        now_ms: Callable[[], int],
    ) -> None:
        """listeners: names of those that show it.  now_ms: the wall clock.

        Raises CertificateUnusable.
        """
        self._settings = settings
        self.listeners = listeners
        self._now_ms = now_ms
        self._valid_ms = (0, 0)
        self.why_not_reloaded: str | None = None
        """Why the files, as they were last read, cannot be used: older ones are in force."""
        self._told_ms = -REMINDER_MS
        self._files = [path for path in (settings.certificate, settings.key, settings.ca) if path]
        self._seen = self._look()
        self.context = self._load()
        self.remind()

    @property
    def valid_until_ms(self) -> int:
        """Wall clock: when the certificate in use expires, or one of its chain."""
        return self._valid_ms[1]

    @property
    def standing(self) -> Standing:
        """Whether the certificate in use has expired, or will soon."""
        from_ms, until_ms = self._valid_ms
        left_ms = until_ms - self._now_ms()
        if left_ms <= 0:
            return Standing.EXPIRED
        soon_ms = min(REMINDED_BEFORE_MS, (until_ms - from_ms) // REMINDED_SHARE)
        return Standing.EXPIRES_SOON if left_ms <= soon_ms else Standing.VALID

    def remind(self) -> None:
        """Say that it has expired, or will soon: once a day. May be called at any time."""
        now_ms, standing = self._now_ms(), self.standing
        if standing is Standing.VALID or 0 <= now_ms - self._told_ms < REMINDER_MS:
            return
        self._told_ms = now_ms
        has_expired = standing is Standing.EXPIRED
        log.warning(
            "certificate_expired" if has_expired else "certificate_expires_soon",
            valid_until=datetime.fromtimestamp(self.valid_until_ms / 1000, UTC).isoformat(),
            **self._facts(),
        )

    def look(self) -> None:
        """Read files again that have changed, and those that could not be used: the machine may
        have been short of something then.  Of these the same reason is not told again.

        May block: for a lane.
        """
        has_changed = self._look() != self._seen
        if has_changed or self.why_not_reloaded is not None:
            self._read_again(tells_same=has_changed)

    def reload(self) -> bool:
        """Read the files again; False, with a line, when they are unusable: the old ones stay.

        May block: for a lane.
        """
        return self._read_again(tells_same=True)

    def _read_again(self, *, tells_same: bool) -> bool:
        self._seen = self._look()
        try:
            for path in self._files:
                if _is_pipe(path):  # it may be waited for, for ever: a lane for each listener
                    raise CertificateUnusable(f"{path} is a pipe, which cannot be read again")
            self.context = self._load()
        except CertificateUnusable as exc:
            before, self.why_not_reloaded = self.why_not_reloaded, str(exc)
            if tells_same or self.why_not_reloaded != before:
                log.error("certificate_not_reloaded", error=str(exc), **self._facts())
            return False
        self.why_not_reloaded = None
        log.info("certificate_reloaded", **self._facts())
        self._told_ms = -REMINDER_MS
        self.remind()
        return True

    def _facts(self) -> dict[str, object]:
        return {"listeners": self.listeners, "files": self._files}

    def _look(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []  # not mtime: chmod makes files readable, too
        for path in self._files:
            try:
                facts = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((facts.st_ctime_ns, facts.st_ino, facts.st_size))
        return found

    def _load(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[settings.version_min]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_mode = _CLIENT_AUTH[settings.client_auth]
        with self._said("ssl_certificate", settings.certificate, settings.key):
            # Always a function: without one OpenSSL would ask at the terminal.
            password = settings.key_password
            key = settings.key or None
            context.load_cert_chain(settings.certificate, key, password=lambda: password)
            valid_ms = validity_ms(_content(settings.certificate))
        if settings.ca:
            with self._said("ssl_ca", settings.ca):
                context.load_verify_locations(settings.ca)
        self._valid_ms = valid_ms
        return context

    @contextmanager
    def _said(self, setting: str, *files: str) -> Iterator[None]:
        """Raises CertificateUnusable for what goes wrong with the files of a setting."""
        try:
            yield
        except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
            given = [file for file in files if file]
            unread = _unread(given)
            named, cause = ", ".join(given), exc
            if unread is not None:  # OpenSSL does not say which of them
                named, cause = unread
            why = (isinstance(cause, OSError) and cause.strerror) or cause
            if isinstance(cause, ssl.SSLError) and not cause.reason:  # "PEM lib", no more
                why = "not PEM, or without the certificate or its private key"
                if setting == "ssl_ca":
                    why = "not PEM, or without a certificate"
                elif any(_ENCRYPTED in _content(file) for file in given):
                    why = "the private key is encrypted, and not by ssl_key_password"
            elif isinstance(cause, ssl.SSLError) and cause.reason == "KEY_VALUES_MISMATCH":
                why = (
                    "the private key is not that of the first certificate"
                    " (the broker's own has to come before its chain)"
                )
            listeners = ", ".join(self.listeners)
            raise CertificateUnusable(
                f"{setting} of listener {listeners} cannot be used ({named}): {why}"
            ) from cause


def _unread(paths: Sequence[str]) -> tuple[str, OSError] | None:
    """The first that the system does not let us read, and why; None: all can be read."""
    for path in paths:
        try:
            _content(path)
        except OSError as exc:
            return path, exc
    return None


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


def _content(path: str) -> bytes:
    """The first FILE_SIZE_MAX bytes of a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, FILE_SIZE_MAX)
    finally:
        os.close(descriptor)


def _reason(exc: ssl.SSLError) -> str:
    if exc.reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL"):
        return f"the peer does not speak TLS ({exc.reason})"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"{exc.reason}: {exc.verify_message}"
    return exc.reason or str(exc)

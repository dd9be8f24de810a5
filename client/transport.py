"""A non-blocking socket under a Connection: what both shells do between two waits.

Nothing here waits.  `connect_next` begins, `establish` goes on until the connection stands (with
TLS: until the handshake is over), `send_some` and `receive_some` move bytes; each says when the
shell has to wait for the socket.  Failures become ConnectionLost, those of TLS that will not go
away by themselves TlsFailed.

With TLS a lock guards the connection's state, as the blocking shell sends from two threads; it is
held for encrypting or decrypting what is there, never for a wait.

A host name may have several addresses (localhost: ::1 and 127.0.0.1).  They are tried one after
another as long as each is refused; one that says nothing takes all the time of its connection, and
the next connection begins with the next address.
"""

import os
import platform
import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from threading import Lock

from segbroker.protocol.tls_records import cut_records

from .connection import Connection
from .errors import BrokerUnreachable, ConnectionLost, SegbrokerError, TlsFailed
from .spoken import Buffer

# Buffers per sendmsg; the kernel takes up to 1024.
GATHER_COUNT_MAX = 64

# Of a large reply the shell hears when so much more of it is here: each time costs a turn of the
# core, and of a thread that takes the interpreter from the one that reads the records.
LOW_WATER_BYTES_MAX = 256 << 10
LOW_WATER_BYTES_MIN = 64 << 10
LOW_WATER_SINCE = [4, 18]


def heeds_low_water(system: str, release: str) -> bool:
    """Whether who waits for a socket hears no sooner than at its mark: on Linux; elsewhere the
    mark is for who waits in recv.

    Not before 4.18: there the receive buffer may stay smaller than the mark, and what is waited for
    never be there.
    """
    found = re.match(r"(\d+)\.(\d+)", release)
    return (
        system == "Linux" and found is not None and [*map(int, found.groups())] >= LOW_WATER_SINCE
    )


LOW_WATER_IS_HEEDED = heeds_low_water(platform.system(), platform.release())

# OpenSSL's words for bytes that are no TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})

# OpenSSL's names for the alerts by which a broker refuses the client's certificate.
_REFUSED = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants a certificate of the client",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust who signed the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired",
}

# What getaddrinfo gives of an address: family and socket address.
SocketAddress = tuple[int, tuple[str, int] | tuple[str, int, int, int]]


def why_lost(where: str, exc: OSError, *, has_tls: bool = False) -> SegbrokerError:
    """What a failure of a socket, or of the TLS on it, means to who connects to `where`.

    has_tls: the handshake is over; what is sent on a connection that has ended fails as one does
        that ends within it.
    """
    if isinstance(exc, ssl.SSLCertVerificationError):
        return TlsFailed(f"{where}: its certificate is not trusted: {exc.verify_message}")
    if isinstance(exc, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        if has_tls:
            return ConnectionLost(f"{where} closed the connection")
        return ConnectionLost(
            f"{where}: closed during the TLS handshake; is TLS spoken on this port?"
        )
    if isinstance(exc, ssl.SSLError):
        if exc.reason in _NOT_TLS:
            return TlsFailed(f"{where} does not speak TLS on this port ({exc.reason})")
        if exc.reason in _REFUSED:
            return TlsFailed(f"{where}: {_REFUSED[exc.reason]} ({exc.reason})")
        return TlsFailed(f"{where}: TLS failed: {exc.reason or exc}")
    return ConnectionLost(f"{where}: {exc.strerror or exc}")


def resolve(host: str, port: int, *, numeric_only: bool) -> list[SocketAddress]:
    """The socket addresses of a host, IPv4 first.

    With `numeric_only` it never asks a name server, so it does not wait, and an empty list means
    that one has to be asked.  Raises BrokerUnreachable for a name that does not exist.
    """
    flags = socket.AI_NUMERICHOST if numeric_only else 0
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, ValueError) as exc:  # a ValueError: no name at all, as "a..b"
        if numeric_only:
            return []
        why = exc.strerror if isinstance(exc, OSError) else None
        raise BrokerUnreachable(f"{host}: {why or exc}") from exc
    # A family without a Python name gives an address of another shape: a stream has none such.
    addresses: list[SocketAddress] = [(row[0], row[4]) for row in found]  # type: ignore[misc]
    return sorted(addresses, key=lambda address: address[0] != socket.AF_INET)


class Wait(Enum):
    """What the socket has to become before the shell goes on."""

    READABLE = "readable"
    WRITABLE = "writable"


class Transport:
    """See the module.  Owns the socket: `close` is due exactly once."""

    def __init__(
        self,
        connection: Connection,
        addresses: Sequence[SocketAddress],
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`context`: TLS."""
        self.connection = connection
        self.socket: socket.socket | None = None
        # The same socket, once it is connected.
        self._tls: ssl.SSLSocket | None = None
        self._context = context
        self._lock = Lock()
        # A record that the socket did not take whole: TLS demands the same bytes again.
        self._again: Buffer = b""
        self.addresses: list[SocketAddress] = []
        self.found(addresses)
        # The shell waits for the socket to take more.
        self.waits_to_send = False
        # A thread is sending (the blocking shell has two).
        self.is_sending = False
        self._low_water = 1

    def found(self, addresses: Sequence[SocketAddress]) -> None:
        """These are the addresses of the host."""
        first = self.connection.address_turn % len(addresses) if addresses else 0
        self.addresses = [*addresses[first:], *addresses[:first]]

    def connect_next(self) -> None:
        """Begin to connect to the next address; raises ConnectionLost when none is left."""
        self.close()
        where = self.connection.where
        problem = f"{where}: no address"
        while self.addresses:
            family, address = self.addresses.pop(0)
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as exc:  # no descriptor is left, or the system has no IPv6
                problem = f"{where}: {exc.strerror or exc}"
                continue
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                sock.connect(address)
            except BlockingIOError:
                pass
            except (OSError, OverflowError) as exc:  # the latter: a port that is none
                sock.close()
                why = exc.strerror if isinstance(exc, OSError) else None
                problem = f"{where}: {why or exc}"
                continue
            self.socket = sock
            return
        raise ConnectionLost(problem)

    def establish(self) -> Wait | None:
        """The socket became what was waited for (writable at first); None: the connection stands.

        `socket` may be another one than before.  Raises ConnectionLost, TlsFailed.
        """
        if self._tls is None:
            if not self._finish_connect():
                return Wait.WRITABLE
            self.connection.accepted()
            if self._context is None:
                return None
            self._wrap(self._context)
        return self._handshake()

    def _wrap(self, context: ssl.SSLContext) -> None:
        assert self.socket is not None
        try:
            self.socket = self._tls = context.wrap_socket(
                self.socket,
                do_handshake_on_connect=False,
                server_hostname=self.connection.host,
            )
        except OSError as exc:
            raise why_lost(self.connection.where, exc) from exc

    def _handshake(self) -> Wait | None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return Wait.READABLE
        except ssl.SSLWantWriteError:
            return Wait.WRITABLE
        except OSError as exc:
            raise why_lost(self.connection.where, exc) from exc
        return None

    def _finish_connect(self) -> bool:
        assert self.socket is not None
        error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not error:
            return True
        if not self.addresses:
            raise ConnectionLost(f"{self.connection.where}: {os.strerror(error)}")
        self.connect_next()
        return False

    def buffers(self) -> list[Buffer]:
        """What to give to `send_some` next."""
        return list(islice(self.connection.outgoing, GATHER_COUNT_MAX))

    def send_some(self, buffers: Sequence[Buffer]) -> int:
        """How many bytes the kernel took; 0 when it takes none now.  Raises ConnectionLost."""
        if self.socket is None:
            raise ConnectionLost(f"{self.connection.where}: closed meanwhile")
        try:
            if self._tls is not None:
                with self._lock:
                    return self._send_tls(self._tls, buffers)
            return self.socket.sendmsg(buffers)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise why_lost(self.connection.where, exc, has_tls=self._tls is not None) from exc

    def receive_some(self) -> int | None:
        """How many bytes came (0: the end); None when there are none now.  ConnectionLost."""
        assert self.socket is not None
        try:
            if self._tls is not None:
                return self._receive_tls(self._tls)
            return self.socket.recv_into(self.connection.get_buffer())
        except BlockingIOError:
            return None
        except OSError as exc:
            raise why_lost(self.connection.where, exc, has_tls=self._tls is not None) from exc

    def await_rest(self) -> bool:
        """What was received is dealt with: have the socket readable when more is worth a turn.

        Only of a frame whose size is known, and never more than is missing of it, so what is
        waited for comes; the end of the stream is heard of at once all the same.  Whether a large
        rest is awaited: then nothing has come yet that somebody waits for.
        """
        missing = self.connection.missing_bytes
        if not LOW_WATER_IS_HEEDED or self._tls is not None or self.socket is None:
            return missing >= LOW_WATER_BYTES_MIN
        low_water = 1 if missing < LOW_WATER_BYTES_MIN else min(missing, LOW_WATER_BYTES_MAX)
        if low_water != self._low_water:
            # A system that does not know the mark only costs more turns.
            with suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
                self._low_water = low_water
        return missing >= LOW_WATER_BYTES_MIN

    @property
    def has_received(self) -> bool:
        """Whether bytes may be here of which the socket, once emptied, says nothing."""
        return self._tls is not None

    def _receive_tls(self, tls: ssl.SSLSocket) -> int | None:
        """Until the buffer is full or nothing is there."""
        space = self.connection.get_buffer()
        received = 0
        with self._lock:
            while received < len(space):
                try:
                    count = tls.recv_into(space[received:])
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    return received or None
                if not count:
                    break
                received += count
        return received

    def _send_tls(self, tls: ssl.SSLSocket, buffers: Sequence[Buffer]) -> int:
        sent = 0
        try:
            if self._again:
                sent = tls.send(self._again)
                self._again = b""
            for record in cut_records(buffers, sent):
                self._again = record
                count = tls.send(record)
                self._again = b""
                sent += count
                if count < len(record):
                    break
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            # The caller may drop what it offered: a copy, of the one record.
            self._again = bytes(self._again)
        return sent

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = self._tls = None
            self._again = b""

"""The listening sockets: bind, accept, and what happens at the limit of connections.

A connection above `connections_max` is accepted and closed at once, with one line in the log: left
in the backlog it would make the broker look like one that hangs.  A connection above a limit of its
listener is left in the backlog until it is its turn (access/listener_limits.py).  When the process
is out of descriptors, accepting pauses for a moment and other work goes on.  After ACCEPTS_AT_ONCE
connections other tasks have a turn, however many more connections wait: a refused client may come
back as fast as it is refused.

A peer whose machine is gone says no goodbye: the kernel asks after it when nothing has moved for as
long as the machine is set to (keepalive; two hours), also where idle connections may stay.
"""

import errno
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

import structlog
import trio

from ..address import is_address, plain_host
from ..configuration.config import BrokerConfig, join_address
from ..configuration.listener_spec import ListenerSpec, SecurityProtocol
from .tls import Certificate

log = structlog.get_logger()

BACKLOG: Final = 1024
_PAUSE_S: Final = 0.1
ACCEPTS_AT_ONCE: Final = 32
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class CannotListen(OSError):
    """An address cannot be listened on; `filename` is the address."""

    setting = "listen"
    """Which one says where else; `listeners` where that is set, as `listen` is ignored then."""


Accepted = Callable[[socket.socket, tuple[str, int]], None]


class Gate(Protocol):
    """Whether one more may be accepted now."""

    def is_closed(self) -> bool:
        """Whether it may not."""

    async def wait(self) -> None:
        """Until it may; somebody has come."""


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """A socket that is listened on, and what protects it."""

    spec: ListenerSpec
    sock: socket.socket
    bound: tuple[str, int]
    # Listeners with the same settings have the same; None: this one is without TLS.
    certificate: Certificate | None

    @property
    def protocol(self) -> SecurityProtocol:
        """What protects it."""
        return self.spec.protocol

    def advertised(self, reached: str) -> tuple[str, int]:
        """host and port that a client is told which reached us at the host `reached`.

        A name stays a name: certificates are issued to names.
        """
        bound, port = self.bound
        host = bound if is_address(self.spec.host) else self.spec.host
        if self.spec.advertised is not None:
            host, port = self.spec.advertised
        if host in ("0.0.0.0", "::"):
            host = reached
        return host, port or self.bound[1]

    @property
    def address(self) -> str:
        """`host:port` that is listened on."""
        return join_address(*self.bound)

    def __str__(self) -> str:
        return f"{self.spec.name}://{self.address}"


async def bind_all(config: BrokerConfig, certificates: Mapping[str, Certificate]) -> list[Listener]:
    """All that the configuration names, with their certificates; they do not listen yet.

    Raises CannotListen; nothing is left open then.
    """
    listeners: list[Listener] = []
    try:
        for spec in config.listener_specs:
            with _cannot_listen(config, spec):
                sock = await bind(spec.host, spec.port)
            host, port = sock.getsockname()[:2]
            listeners.append(Listener(spec, sock, (host, port), certificates.get(spec.name)))
    except BaseException:
        for listener in listeners:
            listener.sock.close()
        raise
    return listeners


def listen_all(config: BrokerConfig, listeners: Iterable[Listener]) -> None:
    """Let clients connect.  Raises CannotListen: somebody has begun to listen there since."""
    for listener in listeners:
        with _cannot_listen(config, listener.spec):
            listener.sock.listen(BACKLOG)


@contextmanager
def _cannot_listen(config: BrokerConfig, spec: ListenerSpec) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        cannot = CannotListen(exc.errno, exc.strerror, join_address(spec.host, spec.port))
        cannot.setting = "listeners" if config.listeners else "listen"
        raise cannot from exc


def certificates_of(config: BrokerConfig, now_ms: Callable[[], int]) -> dict[str, Certificate]:
    """By listener, of those with TLS.  now_ms: the wall clock.

    Raises CertificateUnusable.
    """
    settings = {
        spec.name: config.tls_of(spec) for spec in config.listener_specs if spec.protocol.is_tls
    }
    made = {
        one: Certificate(one, [name for name, other in settings.items() if other == one], now_ms)
        for one in dict.fromkeys(settings.values())
    }
    return {name: made[one] for name, one in settings.items()}


async def bind(host: str, port: int) -> socket.socket:
    """A non-blocking socket that does not listen yet; it fails where another one listens.

    Raises OSError.
    """
    found = await trio.socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # IPv4 first: "localhost" is 127.0.0.1 for most clients, and only one is bound.
    family, kind, protocol, _, where = min(found, key=lambda one: one[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # [::] is every address, as in Java, whatever a sysctl says
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(where)
    except BaseException:
        listener.close()
        raise
    return listener


async def accept_all(listener: socket.socket, accepted: Accepted, gate: Gate) -> None:
    """Hand every new connection to `accepted` for ever: non-blocking, kept alive, without Nagle."""
    for number in count(1):
        if gate.is_closed():
            await trio.lowlevel.wait_readable(listener)  # a limit that keeps nobody is not told
            await gate.wait()
        if number % ACCEPTS_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        try:
            sock, address = listener.accept()
        except (BlockingIOError, InterruptedError):
            await trio.lowlevel.wait_readable(listener)
            continue
        except OSError as exc:
            if exc.errno in _EXHAUSTED:
                log.error("accept_failed", error=str(exc), pause_s=_PAUSE_S)
                await trio.sleep(_PAUSE_S)
            else:  # the peer went away between its SYN and here
                await trio.lowlevel.checkpoint()
            continue
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            accepted(sock, (plain_host(address[0]), address[1]))
        except OSError:  # gone already
            sock.close()

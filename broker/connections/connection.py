"""One connection: bytes in, requests handled in order, replies out in order.

    wait_readable -> receive into the inbox (inbox.py) -> each whole frame: handle -> end of turn
          ^                                                                          |
          +---- its buffer was not filled: the socket is empty --------------------- +
                                 filled: receive again, checkpoint per 256 KiB or 5 ms

A receive that does not fill its buffer ends the turn: the next one waits its turn among all
connections, so a peer that answers within microseconds cannot keep the loop to itself.  The clock
is looked at after every frame, since a buffer holds thousands of the smallest ones.

For a produce or a fetch the task makes no other task, event, cancel scope or thread hop.
Administration is awaited in place: requests pipelined behind it wait.

To bound memory, a connection is not read while it has `slots_max` unanswered requests; while its
peer does not take replies, also between two requests that came together (a few bytes may ask for a
megabyte); for producers, while the disk is behind (ingest); in the middle of a large request, while
all half requests together are over their budget.

It ends when the peer closes or breaks; when the peer sends something that is not the protocol, or
that is not served or cannot be answered (a line in the log, with its name and software); when the
TLS handshake or the login fails, or the session of a login is over; when it is silent or stuck for
too long; when a handler has a bug (logged with its traceback); when the broker drains.  None of
that affects another connection.
"""

import socket
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

import structlog
import trio

from segbroker.protocol.api_keys import api_name
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.headers import parse_request_header

from ..address import plain_host
from ..configuration.config import join_address
from ..configuration.listener_spec import SecurityProtocol
from ..configuration.logs import told
from ..configuration.subject_rules import RULES, user_of
from ..core import Core
from ..fetching.fetch import TooManyPartitions
from ..loop.half_requests import HalfRequests
from ..loop.loop_time import timed
from ..peers.listener import Listener
from ..peers.long_answers import NoRoom
from ..peers.peer import Peer
from ..peers.replies import Outbox
from ..peers.sasl import LoginRefused, SaslSession
from ..peers.tls import RAW_MOST, RAW_OF_STRANGERS, HandshakeFailed, TlsSocket
from ..principal import USER, Principal
from ..producing.express import Express
from ..producing.produce import AcksZeroRefused
from ..producing.seat import Seat
from ..refused import Refused
from ..requests import Unserved, handle
from .inbox import NOTHING, Inbox, Shelf
from .login import SessionExpired, handle_login

log = structlog.get_logger()

# After this many bytes the other connections get their turn (measured: calls are a worse unit).
TURN_BYTES: Final = 256 << 10
# And after this time, whatever the bytes cost.
TURN_S: Final = 0.005
# For SO_LINGER: closing sends a reset instead of an end.
_AT_ONCE: Final = (1).to_bytes(4, sys.byteorder) + bytes(4)
# Who has said nothing for so long, in the middle of a handshake or a login, makes room for others
# that come: handshakes.py.
PATIENCE_S: Final = 1.0
# How long a connection that is refused waits for its last answer to leave.
REFUSAL_S: Final = 1.0


def reset_on_close(sock: socket.socket | TlsSocket) -> None:
    """Have a connection closed as broken: nothing was answered on it, and the broker drains.

    Clients guess from an end before the first answer that TLS or a login is missing, and some do
    not try again then.
    """
    with suppress(OSError):  # gone already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


def request_in(frame: memoryview) -> str | None:
    """Which request this is, for a log line; None where that cannot be said."""
    with suppress(RemoteProtocolError):
        header = parse_request_header(frame)
        return f"{api_name(header.api_key)} {header.api_version}"
    return None


class _HandlerFailed(Exception):
    """The OSError of a handler, its cause: a bug of ours, and nothing that the peer did."""


class Connection:
    """The task of one connection and what the watchdog needs to know of it."""

    __slots__ = (
        "_draining",
        "_ended",
        "_express",
        "_failing",
        "_handle",
        "_has_spoken",
        "_inbox",
        "_is_stranger",
        "_kept_s",
        "_kept_since",
        "_parked",
        "_reads",
        "_scope",
        "_seat",
        "_sock",
        "_work_began",
        "core",
        "greeted",
        "outbox",
        "peer",
        "seen",
        "seen_at",
    )

    def __init__(
        self,
        core: Core,
        sock: socket.socket,
        address: tuple[str, int],
        *,
        listener: Listener,
        shelf: Shelf,
        half: HalfRequests,
        express: Express | None,
    ) -> None:
        """Takes `sock` over. Raises OSError: the peer is gone already.

        express: where connections wait that produce; None: there is no such way here.
        """
        self.core = core
        self._express = express
        host, port = sock.getsockname()[:2]
        certificate = listener.certificate
        self._sock = sock if certificate is None else TlsSocket(sock, certificate.context)
        self._draining = False
        # Of the reading, and of the answers behind it once that has ended: one scope in another
        # would be a twelfth of what an idle connection takes.
        self._scope = trio.CancelScope()
        self._ended = False  # nothing is answered any more
        self._parked = False
        self._work_began = 0.0  # when the loop began with its request, or charged it last
        self._seat: Seat | None = None
        self._failing: str | None = None  # the request that it ends with
        self.outbox = Outbox(self._sock, spawn=core.spawn, on_broken=self._broken)
        self.peer = Peer(self.outbox, address, (plain_host(host), port), listener)
        if express is not None and listener.protocol is SecurityProtocol.PLAINTEXT:
            self._seat = Seat(sock, self.peer)
        # What a frame is given to: nobody pays for logins on a listener without.
        self._handle = handle
        # Whether it has still to log in, where that is asked for.
        self._is_stranger = listener.protocol.is_sasl
        self._inbox = Inbox(shelf, half, address[0], is_stranger=self._is_stranger)
        self.peer.waiting = self._inbox.waiting_frames
        if self._is_stranger:
            if isinstance(self._sock, TlsSocket):
                self._sock.raw_most = RAW_OF_STRANGERS
            self.peer.sasl = SaslSession(self.peer.origin)
            self._handle = handle_login
        # Before it is settled: how long it has kept the broker waiting, and since when it does so
        # now; None: it waits for the broker.
        self._kept_s = 0.0
        self._kept_since: float | None = trio.current_time()
        self._has_spoken = False  # something has come
        self.greeted = False  # a whole request has come
        # What the watchdog saw last, and when that changed: see watchdog.py.
        self._reads = 0
        self.seen: tuple[int, int] = (0, 0)
        self.seen_at = self._kept_since

    async def run(self) -> None:
        """Serve until either side ends it. Never raises but for cancellation."""
        try:
            with self._scope:
                if isinstance(self._sock, TlsSocket):
                    await self._establish(self._sock)
                await self._read()
            if self._draining and not self._ended:
                with trio.CancelScope() as self._scope:
                    await self.outbox.wait_empty()
        except (ConnectionError, TimeoutError, trio.ClosedResourceError):
            pass  # the peer is gone; its slots are given up below
        except OSError as exc:
            self.refused("connection_broken", error=str(exc))
        except _HandlerFailed as exc:
            self._failed(exc.__cause__)
        except RemoteProtocolError as exc:
            self.refused("malformed_request", error=str(exc), request=self._failing)
        except (Unserved, TooManyPartitions, NoRoom) as exc:
            self.refused("unserved_request", error=str(exc), request=self._failing)
        except HandshakeFailed as exc:
            self.refused("tls_handshake_failed", error=str(exc))
        except LoginRefused as exc:
            await self._send_refusal()
            self.refused("authentication_failed", **exc.facts)
        except SessionExpired:
            self.refused("session_expired", **self._session_facts())
        except AcksZeroRefused as exc:
            self.refused("produce_without_reply_refused", error=str(exc))
        except Refused as exc:  # of groups nothing can be said any more: the broker ends
            self.refused("request_not_answered", error=str(exc))
        except Exception as exc:
            self._failed(exc)
        finally:
            if self.peer.sasl is not None and self.peer.sasl.rejected is not None:
                # A client that was told why ends the connection, or says nothing more.
                self.refused("authentication_failed", **self.peer.sasl.rejected.facts)
            self._close()

    def _session_facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"limit_ms": self.core.config.connections_max_reauth_ms}
        if self.peer.sasl is not None and self.peer.sasl.lifetime_ms is not None:
            facts["token_ms"] = self.peer.sasl.lifetime_ms
        return facts

    def _failed(self, exc: BaseException | None) -> None:
        """A bug in a handler."""
        self.core.counters.connections_failed += 1
        log.error("request_failed", request=self._failing, exc_info=exc, **self.name())

    def drain(self) -> None:
        """Read nothing further, answer what is in flight, then close."""
        if self._draining:
            return
        self._draining = True
        if self._parked:  # else it sees the flag when it parks, or is through with a request
            self._scope.cancel()

    def close_because(self, event: str, **facts: object) -> None:
        """Close at once, with one line that says why; once: its task may have a thread to wait for
        before it ends."""
        if not self._ended:
            self.refused(event, **facts)
            self._end()

    def _broken(self, why: Exception | None) -> None:
        """Nothing can be answered any more; why: what is to be told of that."""
        if why is not None:
            self.close_because("unserved_request", error=str(why))
        self._end()

    def _end(self) -> None:
        """Neither read nor answer any more."""
        self._ended = True
        self._scope.cancel()

    def refused(self, event: str, **facts: object) -> None:
        """The line about a connection that is closed for a reason."""
        self.core.counters.connections_refused += 1
        self.core.closing_lines.tell(event, **self.name(), **facts)

    def name(self) -> dict[str, object]:
        """Who the peer is, for a log line."""
        peer = self.peer
        return {
            "peer": join_address(*peer.address),
            "listener": peer.listener.spec.name,
            "client_id": None if peer.client_id is None else told(peer.client_id),
            "software": told(f"{peer.software_name} {peer.software_version}".strip()),
        }

    @property
    def reads(self) -> int:
        """How often something has come; the watchdog compares it."""
        return self._reads if self._seat is None else self._reads + self._seat.reads

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for something to come: no request of it is being handled."""
        return self._parked

    @property
    def is_in_the_way(self) -> bool:
        """Whether it waits for its client in the middle of a large request, and keeps room from
        others by that."""
        return (self._parked or self.outbox.unsent) and self._inbox.keeps_room

    @property
    def is_settled(self) -> bool:
        """Whether it is through with handshake and login, and has made a request."""
        return self.greeted and self.peer.is_admitted

    def kept_s(self, now: float) -> float:
        """Before it is settled: for how many seconds it has kept the broker waiting until `now`
        (trio's clock), all in all."""
        return self._kept_s + (0.0 if self._kept_since is None else now - self._kept_since)

    def keeps_waiting(self, now: float) -> bool:
        """Whether the broker waits for it, before it is settled, since it has come, or for long."""
        if self._kept_since is None or not self._parked:
            return False
        return not self._has_spoken or now - self._kept_since >= PATIENCE_S

    async def _served(self, work: Awaitable[None]) -> None:
        """What the broker does for it, before it is settled: it does not keep it waiting."""
        self._has_spoken = True
        self._kept_s, self._kept_since = self.kept_s(trio.current_time()), None
        try:
            await work
        finally:
            self._kept_since = trio.current_time()

    def _park(self) -> None:
        """From here on it waits for its peer, or for time to pass: not while the broker drains."""
        self._parked = True
        if self._draining:
            self._scope.cancel()

    async def _establish(self, sock: TlsSocket) -> None:
        """The TLS handshake, and who the peer is if it has shown a certificate."""
        self._park()
        strangers, host = self.core.strangers, self.peer.origin
        await sock.handshake(
            lambda step: self._served(strangers.shake_hands(host, step, has_begun=self._has_spoken))
        )
        self._parked = False
        if not self.peer.listener.protocol.is_sasl and (subject := sock.subject()) is not None:
            rules = self.core.config.of_listener(self.peer.listener.spec.name, RULES)
            if (user := user_of(subject, rules)) is None:
                raise HandshakeFailed(f"no rule of {RULES} is about {told(subject)!r}")
            self.peer.principal = Principal(USER, user)
            self.peer.authenticated = True

    async def _send_refusal(self) -> None:
        """The answer that says why, if the peer takes it soon."""
        with trio.move_on_after(REFUSAL_S) as self._scope:
            await self.outbox.wait_empty()

    def _admit(self) -> None:
        """It has just logged in."""
        self._is_stranger = False
        if isinstance(self._sock, TlsSocket):
            self._sock.raw_most = RAW_MOST
        self._inbox.admit()

    async def _read(self) -> None:
        """Receive, handle, answer, until the peer has no more to say or the broker drains.

        A turn lasts until `budget` bytes are received, or until `over`; it is a new one wherever
        others had theirs.  `brought`: bytes that came by the express way meanwhile.
        """
        core, peer, sock = self.core, self.peer, self._sock
        handle = self._handle
        inbox, outbox, clock = self._inbox, self.outbox, time.perf_counter
        frame: memoryview | None
        brought = 0
        budget = TURN_BYTES
        over = clock() + TURN_S
        try:
            while True:
                if peer.muted_until:
                    await self._wait_unmuted()
                if brought:  # the express way has received it already
                    size, is_full = brought, False
                else:
                    if not inbox.has_room():
                        await self._wait_half()
                        if self._draining:
                            return
                    size, is_full = inbox.receive(sock)
                    if size == NOTHING:
                        brought = await self._wait_readable()
                        budget, over = TURN_BYTES, clock() + TURN_S
                        continue
                    if not size:
                        if inbox.unread:
                            raise RemoteProtocolError(
                                f"closed by the peer {inbox.unread} bytes into a frame"
                            )
                        return
                    core.counters.received_bytes += size
                    self._reads += 1
                while (frame := inbox.next_frame()) is not None:
                    if self._draining:  # also what came with it: the groups are closed
                        return
                    self.greeted = True
                    if is_counted := core.quotas is not None:
                        self._begin_work()
                    try:
                        if (pending := handle(core, peer, frame)) is not None:
                            inbox.keep(frame)
                            core.turn.end()
                            if is_counted:
                                self._end_work()
                                pending = timed(pending, self._begin_work, self._end_work)
                            await (self._served(pending) if self._is_stranger else pending)
                    except Exception as exc:
                        self._failing = request_in(frame)
                        if isinstance(exc, OSError):
                            raise _HandlerFailed from exc
                        raise
                    if pending is not None:
                        if peer.sasl is not None and peer.sasl.refusal is not None:
                            raise peer.sasl.refusal
                        if self._is_stranger and peer.authenticated:
                            self._admit()
                        core.turn.end()
                    elif is_counted:
                        self._end_work()
                    if peer.muted_until:
                        frame = None
                        inbox.settle(waits=True)
                        await self._wait_unmuted()
                    if clock() >= over:
                        core.turn.end()
                        await trio.lowlevel.checkpoint()
                        budget, over = TURN_BYTES, clock() + TURN_S
                    if outbox.is_behind(core.config.slots_max):
                        core.turn.end()  # what came with it would be answered into memory
                        frame = None
                        inbox.settle(waits=True)
                        await outbox.wait_room(core.config.slots_max)
                if self._draining:
                    return
                core.turn.end()
                inbox.settle(waits=outbox.unsent or (peer.produces and core.ingest.full))
                await self._wait_room()
                if self._draining:
                    return
                budget -= size
                brought = 0
                if not is_full:
                    brought = await self._wait_readable()
                    budget, over = TURN_BYTES, clock() + TURN_S
                elif budget <= 0:
                    await trio.lowlevel.checkpoint()
                    budget, over = TURN_BYTES, clock() + TURN_S
        finally:
            core.turn.end()
            inbox.close()

    def _begin_work(self) -> None:
        self._work_began = time.perf_counter()
        self.peer.charge = self._charge_work

    def _charge_work(self) -> None:
        now = time.perf_counter()
        seconds, self._work_began = now - self._work_began, now
        if (quotas := self.core.quotas) is not None:  # gone meanwhile, maybe by this very request
            quotas.worked(self.peer, seconds)

    def _end_work(self) -> None:
        self._charge_work()
        self.peer.charge = None

    async def _wait_readable(self) -> int:
        """Wait for more bytes; how many of them are in the inbox already, by the express way."""
        self._park()
        self._inbox.put_aside()
        seat, express = self._seat, self._express
        brought = b""
        if (
            not self._inbox.is_empty
            or seat is None
            or express is None
            or not seat.is_welcome
            or self.core.quotas is not None
        ):
            await trio.lowlevel.wait_readable(self._sock)
        elif brought := await express.park(seat):
            self._inbox.bring(brought)
        if self._is_stranger:
            await self._wait_turn()
        self._parked = False
        return len(brought)

    async def _wait_turn(self) -> None:
        """Until it is the turn of this stranger: to be received from, and to be answered once."""
        session = self.peer.sasl
        assert session is not None, "nobody else is a stranger"
        strangers, host = self.core.strangers, self.peer.origin
        await self._served(strangers.turn(host, has_begun=self._has_spoken))
        session.has_turn = True

    async def _wait_unmuted(self) -> None:
        """Read nothing until what its client owes is paid; replies leave meanwhile."""
        self.core.turn.end()
        peer = self.peer
        self.core.counters.quota_pauses += 1
        while (left := peer.muted_until - trio.current_time()) > 0 and not self._draining:
            self._park()
            await trio.sleep(left)
            self._parked = False
        peer.muted_until = 0.0

    async def _wait_half(self) -> None:
        """Until more of a large request may be received."""
        with trio.move_on_after(self.core.config.request_wait_ms / 1000) as patience:
            await self._served(self._inbox.wait_room())
        if patience.cancelled_caught:
            raise Unserved(
                f"no room for a large request: {self._inbox.held_by_all} bytes of half "
                f"requests, limit {self.core.config.request_bytes_max}"
            )

    async def _wait_room(self) -> None:
        """Until its client has taken what it was sent, and the disk has what it sent."""
        if self.outbox.unsent:
            await self.outbox.wait_room(self.core.config.slots_max)
        if self.peer.produces and self.core.ingest.full:
            await self.core.ingest.wait_room()

    def _close(self) -> None:
        self.outbox.break_off()
        self.core.counters.sent_bytes += self.outbox.sent_bytes
        self.peer.gone()
        if self._draining and not self.greeted:
            reset_on_close(self._sock)
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()
        self.core.turn.end()

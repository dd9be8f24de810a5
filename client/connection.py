"""One connection to one broker, without a socket: bytes in, replies out, bytes to send.

    CONNECTING --connected()--> NEGOTIATING --ApiVersions reply--> (LOGGING_IN) --> READY
         |                           |                                   |             |
         +------------ lost() -------+------------ lost() ---------------+-------------+--> CLOSED

TLS, if there is any, is the transport's: it says `connected` when the handshake is over.  A login
goes SaslHandshake, then SaslAuthenticate until the mechanism has said all.  When the broker bounds
a session, it is renewed in its last part: no request is taken (`is_ready`), those in flight are
answered, then the login runs again on the same connection.  A login by a token first waits for a
fresh token (`may_renew`); requests go on meanwhile.

The shell owns the socket.  It calls `connected`, puts received bytes into `get_buffer()` and calls
`received(n)`, sends what `outgoing` holds and calls `sent(n)`, and calls `lost(error)` when the
socket has ended.  Requests are encoded at once, in the highest version that both sides know.

Replies come in request order (Kafka guarantees it), so the requests in flight are a FIFO.  If a
reply does not have the correlation id of the oldest one, the peer or this client has lost count,
and the connection is given up.  An acks=0 produce has no reply and takes no place in the FIFO: it
is done when the kernel has its last byte.

The first request is ApiVersions, in version 4 and with our name.  A broker that does not know
version 4 answers error 35 in the version 0 layout, with the version that it does know (KIP-511;
otherwise 0); the client asks again in that version, on the same connection.  If the broker closes
instead, the client asks in version 0 on the next connection (see `Node`).

Invariant: for each request `on_reply` is called exactly once, with the reply or the error; for one
without a reply, either `on_sent` or `on_lost`.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import NamedTuple

from segbroker.protocol.api_keys import ApiKey, ApiVersionRange, is_vendor
from segbroker.protocol.errors import ErrorCode, NotKafka, ProtocolError, RemoteProtocolError
from segbroker.protocol.fields import Part
from segbroker.protocol.foreign import TLS_ALERT
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import (
    decode_response,
    encode_request,
    encode_vendor_request,
    parse_correlation_id,
)
from segbroker.protocol.limits import FRAME_SIZE_MAX, REPLY_KEEP_MAX
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.protocol.schema import Message
from segbroker.protocol.vendor import unpack

from .errors import (
    AuthenticationFailed,
    ConnectionLost,
    NoBroker,
    PeerError,
    SegbrokerError,
    TimedOut,
    TlsFailed,
    TokenUnavailable,
    UnsupportedByBroker,
)
from .login import Login
from .settings import joined
from .spoken import (
    BY_ID,
    NEWEST,
    SPOKEN,
    AtNewest,
    Buffer,
    ById,
    OnReply,
    Reply,
    Request,
    VendorReply,
    VendorRequest,
    key_of,
)

SOFTWARE_NAME = "segbroker-python"
SOFTWARE_VERSION = "0.5.12"

# A session is renewed when so much of it is over: early enough for a broker that is slow.
RENEW_PERCENT = 80
RENEWAL_TIMEOUT_MS = 30_000
IN_THE_LOGIN = "in the login, without an answer to it"
NO_TOKEN = "the token provider gave no token in time"
# So often, of what is left of a session, it is looked whether there is a fresh token.
LOOKS_COUNT = 50


class State(Enum):
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    LOGGING_IN = "logging in"
    READY = "ready"
    CLOSED = "closed"


_SETUP_WORDS = {
    State.CONNECTING: "connect",
    State.NEGOTIATING: "answer ApiVersions",
    State.LOGGING_IN: "answer the login",
}


class InFlight(NamedTuple):
    """A request whose reply has not come."""

    correlation_id: int
    api_key: int
    api_version: int
    deadline_ms: int
    on_reply: OnReply


class Unanswered(NamedTuple):
    """A request that gets no reply, and is not sent whole yet; `end`: of all bytes, its last."""

    end: int
    deadline_ms: int
    on_sent: Callable[[], object]
    on_lost: OnReply


class Connection:
    """See the module.  Times are milliseconds of one monotonic clock."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        deadline_ms: int,
        ask_version: int = 4,
        address_turn: int = 0,
        new_login: Callable[[], Login] | None = None,
        may_renew: Callable[[], bool] | None = None,
        tls: bool = False,
    ) -> None:
        """`deadline_ms` bounds connecting, negotiating and the login; `ask_version` is
        ApiVersions' own; `address_turn`: with which address of its host it begins, counted round;
        `new_login` makes a login, None: none is asked for; `may_renew`: whether there is what a
        renewal needs, None: there always is; `tls`: whether it is spoken, for the reasons that
        errors give.
        """
        self.host = host
        self.port = port
        self.state = State.CONNECTING
        self.error: SegbrokerError | None = None
        # Somebody took the connection, who may still have all to say.
        self.is_accepted = False
        self.was_connected = False
        self.was_ready = False
        # What the shell has to send, in order.  It may take several at once, then says `sent`.
        self.outgoing: deque[Buffer] = deque()
        self.in_flight: deque[InFlight] = deque()
        self._unanswered: deque[Unanswered] = deque()
        self._sent_bytes = 0
        self.setup_deadline_ms = deadline_ms
        self.ask_version = ask_version
        self._ask_version_max = SPOKEN[ApiKey.API_VERSIONS].max
        self.address_turn = address_turn
        self.on_ready: Callable[[int], None] | None = None
        self._client_id = client_id
        self._new_login = new_login
        self._may_renew = may_renew
        # The shell gets a token before it connects.
        self.awaits_token = False
        self._tls = tls
        self._login: Login | None = None
        # When the session has to be renewed, if ever.
        self.renew_at_ms: int | None = None
        self._look_after_ms = 0
        self._is_renewing = False
        # Something was asked of a connection that stood, and was answered.
        self._was_answered = False
        self._correlation_ids = count(1)
        self._reader = FrameReader(FRAME_SIZE_MAX, keep_max=REPLY_KEEP_MAX)
        self._versions: dict[int, ApiVersionRange] = {}
        # Feature of the broker -> its level; empty before ApiVersions 4.
        self.features: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Connection {self.where} {self.state.value}>"

    @property
    def where(self) -> str:
        """Its address, for messages."""
        return joined([(self.host, self.port)])

    @property
    def is_ready(self) -> bool:
        return self.state is State.READY and not self._is_renewing

    # What the shell says.

    def accepted(self) -> None:
        """The other end took the connection; a TLS handshake may be before `connected`."""
        self.is_accepted = True

    def connected(self) -> None:
        """The socket is connected: negotiation begins."""
        assert self.state is State.CONNECTING, self.state
        self.is_accepted = True
        self.state = State.NEGOTIATING
        self.was_connected = True
        self._ask_versions()

    def get_buffer(self) -> memoryview:
        """Where the shell's recv_into may write."""
        return self._reader.get_buffer()

    @property
    def missing_bytes(self) -> int:
        """How much of a reply that has begun to come is still to come; 0 when nobody knows."""
        return self._reader.missing_bytes

    def received(self, size: int, now_ms: int) -> None:
        """`size` bytes were written into the buffer.  0 is the end of the stream.

        Raises nothing for the peer's faults: the connection then is CLOSED with `error` set.
        """
        if size == 0:
            self.lost(ConnectionLost(f"{self.where} closed the connection"), now_ms)
            return
        try:
            self._reader.buffer_updated(size)
            while self.state is not State.CLOSED:
                frame = self._reader.next_frame()
                if frame is None:
                    break
                self._handle_reply(frame, now_ms)
        except NotKafka as exc:
            self.lost(self._other_protocol(exc), now_ms)
        except ProtocolError as exc:
            error = PeerError(f"{self.where}: {exc}")
            error.__cause__ = exc
            self.lost(error, now_ms)

    def _other_protocol(self, exc: NotKafka) -> SegbrokerError:
        error: SegbrokerError
        if exc.what == TLS_ALERT:  # under TLS its alerts do not get here
            error = TlsFailed(f"{self.where} speaks TLS, but the client does not")
        else:
            error = NoBroker(f"{self.where} is no Kafka broker: its answer begins like {exc.what}")
        error.__cause__ = exc
        return error

    def sent(self, size: int) -> None:
        """The first `size` bytes of `outgoing` are with the kernel."""
        outgoing = self.outgoing
        self._sent_bytes += size
        # Nothing is there any more when the connection was lost meanwhile.
        while size and outgoing:
            first = outgoing[0]
            length = len(first)
            if size < length:
                outgoing[0] = memoryview(first)[size:]
                break
            size -= length
            outgoing.popleft()
        while self._unanswered and self._unanswered[0].end <= self._sent_bytes:
            self._unanswered.popleft().on_sent()

    def lost(self, error: SegbrokerError, now_ms: int) -> None:
        """The connection ended; everything in flight fails with `error`.  Again: nothing."""
        if self.state is State.CLOSED:
            return
        if type(error) is ConnectionLost and self.state is State.LOGGING_IN:
            ended = ConnectionLost(f"{error} {IN_THE_LOGIN}")
            ended.__cause__ = error.__cause__
            error = ended
        wants = self._wants if type(error) is ConnectionLost else ""
        if wants:
            cause = error
            error = ConnectionLost(f"{cause} without an answer", wants=wants)
            error.__cause__ = cause.__cause__
        self.state = State.CLOSED
        self.error = error
        self.outgoing.clear()
        waiting, self.in_flight = self.in_flight, deque()
        for request in waiting:
            request.on_reply(error, now_ms)
        unsent, self._unanswered = self._unanswered, deque()
        for one in unsent:
            one.on_lost(error, now_ms)

    @property
    def _wants(self) -> str:
        """What the listener may want that ends it so; "" when it does not look like it.

        Whoever answered ApiVersions speaks without TLS: then it can only be the login.
        """
        if self._was_answered:
            return ""
        lacks_login = self._new_login is None
        if self.state is State.NEGOTIATING and not self._tls:
            return "TLS or a login" if lacks_login else "TLS"
        if self.state in (State.NEGOTIATING, State.READY) and self.in_flight and lacks_login:
            return "a login"
        return ""

    # What the core asks.

    def version_for(self, api_key: int) -> int | None:
        """The version that both sides know, the highest; None when there is none."""
        ours = SPOKEN.get(key_of(api_key))
        theirs = self._versions.get(api_key)
        if ours is None or theirs is None:
            return None
        version = min(ours.max, theirs.max)
        return version if version >= max(ours.min, theirs.min) else None

    def request(self, message: Request, on_reply: OnReply, *, deadline_ms: int) -> None:
        """Queue a request; `on_reply(reply or error, now_ms)` is called once.

        Raises UnsupportedByBroker when there is no version in common; nothing is queued then.
        """
        assert self.state is State.READY, self.state
        version = self._version_of(message)
        while isinstance(message, AtNewest | ById):
            message = message.message
        if version is None:
            raise self._no_version(message.message_key)
        self._send(message, version, on_reply, deadline_ms)

    def send_unanswered(
        self,
        message: Message,
        on_sent: Callable[[], object],
        on_lost: OnReply,
        *,
        deadline_ms: int,
    ) -> None:
        """Queue a request that the broker will not answer (produce with acks=0).

        One of both is called, once: `on_sent` when the kernel has all of it, or `on_lost` with why
        it has not; then the broker has not either.
        """
        assert self.state is State.READY, self.state
        version = self.version_for(message.message_key)
        if version is None:
            raise self._no_version(message.message_key)
        parts = encode_request(message, version, next(self._correlation_ids), self._client_id)
        self.outgoing.extend(parts)
        end = self._sent_bytes + sum(map(len, self.outgoing))
        self._unanswered.append(Unanswered(end, deadline_ms, on_sent, on_lost))

    def expire(self, now_ms: int) -> None:
        """Give the connection up when a deadline has passed: of setting it up, or of a reply."""
        if self.state is State.CLOSED:
            return
        if self.renew_at_ms is not None and now_ms >= self.renew_at_ms:
            if self._may_renew is None or self._may_renew():
                self._begin_renewal(now_ms)
            else:
                self.renew_at_ms = now_ms + self._look_after_ms
        if self.state is not State.READY and now_ms >= self.setup_deadline_ms:
            what = _SETUP_WORDS[self.state]
            if self.state is State.CONNECTING and self.is_accepted:
                what = "answer the TLS handshake"
            if self.awaits_token:
                self.lost(TokenUnavailable(NO_TOKEN), now_ms)
                return
            self.lost(TimedOut(f"{self.where} did not {what} in time"), now_ms)
        elif any(request.deadline_ms <= now_ms for request in self.in_flight):
            self.lost(TimedOut(f"{self.where} did not reply in time"), now_ms)
        elif self._unanswered and self._unanswered[0].deadline_ms <= now_ms:
            self.lost(TimedOut(f"{self.where} did not take a request in time"), now_ms)

    def next_deadline_ms(self) -> int | None:
        if self.state is State.CLOSED:
            return None
        deadline = self.renew_at_ms if self.state is State.READY else self.setup_deadline_ms
        for request in self.in_flight:
            if deadline is None or request.deadline_ms < deadline:
                deadline = request.deadline_ms
        for one in self._unanswered:
            if deadline is None or one.deadline_ms < deadline:
                deadline = one.deadline_ms
        return deadline

    # Inside.

    def _no_version(self, key: int) -> UnsupportedByBroker:
        name = key_of(key).name
        return UnsupportedByBroker(f"{self.where} has no version of {name} that this client speaks")

    def _version_of(self, request: Request) -> int | None:
        """As `version_for`, for a request that may mean more."""
        key = request.message_key
        version, theirs = self.version_for(key), self._versions.get(key)
        if version is None or theirs is None:
            return None
        if isinstance(request, ById):
            if theirs.min <= BY_ID[key] <= theirs.max:
                return BY_ID[key]
            request = request.message
        if isinstance(request, AtNewest):
            return max(version, min(NEWEST.get(key, 0), theirs.max))
        return version

    def _send(
        self, message: Message | VendorRequest, version: int, on_reply: OnReply, deadline_ms: int
    ) -> None:
        correlation_id = next(self._correlation_ids)
        parts: list[Part]
        if isinstance(message, VendorRequest):
            parts = encode_vendor_request(
                message.message_key, version, correlation_id, self._client_id, message.body
            )
        else:
            parts = encode_request(message, version, correlation_id, self._client_id)
        self.outgoing.extend(parts)
        self.in_flight.append(
            InFlight(correlation_id, message.message_key, version, deadline_ms, on_reply)
        )

    def _handle_reply(self, frame: memoryview, now_ms: int) -> None:
        if not self.in_flight:
            raise RemoteProtocolError("a reply that was not asked for")
        request = self.in_flight[0]
        correlation_id = parse_correlation_id(frame)
        if correlation_id != request.correlation_id:
            raise RemoteProtocolError(
                f"a reply to request {correlation_id}, expected {request.correlation_id}"
            )
        if self.state is State.NEGOTIATING:
            self.in_flight.popleft()
            self._handle_versions(frame, request.api_version, now_ms)
            return
        if self.state is State.LOGGING_IN:
            self.in_flight.popleft()
            self._handle_login(frame, request, now_ms)
            return
        message: Message | VendorReply
        if is_vendor(request.api_key):
            message = VendorReply(unpack(frame[4:]))
        else:
            _, message = decode_response(frame, request.api_key, request.api_version)
        self.in_flight.popleft()
        self._was_answered = True
        request.on_reply(message, now_ms)
        if self._is_renewing and not self.in_flight and self.state is State.READY:
            # From now on: what was in flight may have taken longer than a login may.
            self.setup_deadline_ms = now_ms + RENEWAL_TIMEOUT_MS
            self._begin_login()

    def _ask_versions(self) -> None:
        message = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        self._send(message, self.ask_version, _ignore, self.setup_deadline_ms)

    def _handle_versions(self, frame: memoryview, asked: int, now_ms: int) -> None:
        error_code = int.from_bytes(frame[4:6], "big", signed=True)
        if error_code == ErrorCode.UNSUPPORTED_VERSION and asked > 0:
            self._ask_version_max = asked - 1
            self.ask_version = _known_version(frame, asked)
            self._ask_versions()
            return
        _, reply = decode_response(frame, ApiKey.API_VERSIONS, asked)
        assert isinstance(reply, ApiVersionsResponse)
        if reply.error_code != ErrorCode.NONE:
            raise RemoteProtocolError(f"ApiVersions answered error code {reply.error_code}")
        self._versions = {
            row.api_key: ApiVersionRange(row.min_version, row.max_version) for row in reply.api_keys
        }
        known = self._versions.get(ApiKey.API_VERSIONS, ApiVersionRange(0, 0))
        if asked < (best := min(known.max, self._ask_version_max)):
            # Who hung up was going away, no broker that knows no better: only the newest versions
            # tell features, and our name, by which a segbroker tells more.
            self.ask_version = best
            self._ask_versions()
            return
        self.features = {row.name: row.max_version_level for row in reply.finalized_features}
        if self._new_login is None:
            self._become_ready(now_ms)
        else:
            self._begin_login()

    def _become_ready(self, now_ms: int) -> None:
        self.state = State.READY
        self.was_ready = True
        self._is_renewing = False
        if self.on_ready is not None:
            self.on_ready(now_ms)

    def _begin_renewal(self, now_ms: int) -> None:
        self.renew_at_ms = None
        self._is_renewing = True
        self.setup_deadline_ms = now_ms + RENEWAL_TIMEOUT_MS
        if not self.in_flight:
            self._begin_login()

    def _begin_login(self) -> None:
        assert self._new_login is not None, "asked by whoever wants a login"
        self.state = State.LOGGING_IN
        self._login = self._new_login()
        self._ask_login(self._login.first())

    def _ask_login(self, message: Message) -> None:
        version = self.version_for(message.message_key)
        if version is None:
            raise RemoteProtocolError("the broker knows no logins")
        self._send(message, version, _ignore, self.setup_deadline_ms)

    def _handle_login(self, frame: memoryview, request: InFlight, now_ms: int) -> None:
        assert self._login is not None, "begun"
        _, reply = decode_response(frame, request.api_key, request.api_version)
        try:
            message = self._login.after(reply)
        except AuthenticationFailed as exc:
            self.lost(AuthenticationFailed(f"{self.where}: {exc}"), now_ms)
            return
        if message is not None:
            self._ask_login(message)
            return
        if self._login.session_lifetime_ms > 0:
            lifetime_ms = self._login.session_lifetime_ms
            self.renew_at_ms = now_ms + lifetime_ms * RENEW_PERCENT // 100
            rest_ms = lifetime_ms - lifetime_ms * RENEW_PERCENT // 100
            self._look_after_ms = max(10, min(1_000, rest_ms // LOOKS_COUNT))
        self._login = None
        self._become_ready(now_ms)


def _known_version(frame: memoryview, asked: int) -> int:
    """Of ApiVersions, what a broker that refuses `asked` says that it knows; 0 if it does not."""
    _, refusal = decode_response(frame, ApiKey.API_VERSIONS, 0)
    assert isinstance(refusal, ApiVersionsResponse)
    for row in refusal.api_keys:
        if row.api_key == ApiKey.API_VERSIONS:
            return max(0, min(row.max_version, asked - 1))
    return 0


def _ignore(reply: Reply, now_ms: int) -> None:
    """ApiVersions is read by the connection itself."""

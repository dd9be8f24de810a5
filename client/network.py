"""The connections of one client: which exist, when to try again, where a request can go.

    Node      one lane to one broker: an address, at most one connection, a back-off
    Network   all nodes of a client, and what the shell has to do for them

A broker has several lanes, because replies come in request order: a fetch that waits 500 ms for
data must not hold up an offset lookup.  A node is named (broker id, lane); the addresses of the
bootstrap list are brokers -1, -2, ...

A connection is opened when something wants to be sent, and again, after the back-off, when it
still does; an idle client whose broker is away opens nothing.  Requests wait in the node until the
connection is ready, at most until their deadline; when connecting fails, all that wait fail with it
(ConnectionLost, retryable) and whoever asked decides whether to try again and where.

Effects for the shell, taken with `take_opening()`, `take_closed()`, `take_wanted()` and
`absences.take()`: connections to open, connections that are over and whose sockets may go, a token
to get for sessions that end soon, lines for the log.

Invariant: a request's `on_reply` is called exactly once.  Nothing here waits or asks the clock.
"""

from collections import deque
from collections.abc import Callable, Container, Iterator
from functools import partial
from random import Random
from typing import NamedTuple

from segbroker.protocol.errors import LocalProtocolError

from .absence import Absences
from .backoff import Backoff
from .connection import NO_TOKEN, Connection, State
from .errors import (
    WAS_CLOSED,
    AuthenticationFailed,
    BrokerUnreachable,
    ClosedError,
    ConnectionLost,
    NoBroker,
    SegbrokerError,
    TimedOut,
    TlsFailed,
    TokenUnavailable,
)
from .login import Login, Salted
from .settings import Address, ClientSettings, joined
from .spoken import OnReply, Request
from .tokens import Tokens

NodeKey = tuple[int, str]

CONTROL = "control"
FETCH = "fetch"
# Joining a group waits at the broker until the others have joined too.
GROUP = "group"

# Requests that may wait in one node for its connection; beyond, the caller is refused.
WAITING_COUNT_MAX = 10_000
# Connecting and negotiating, one attempt.
SETUP_TIMEOUT_MS = 5_000
# Getting a token for it, where there is no fresh one.
TOKEN_TIMEOUT_MS = 15_000


class Waiting(NamedTuple):
    """A request whose connection is not ready yet."""

    message: Request
    on_reply: OnReply
    deadline_ms: int
    timeout_ms: int


class Node:
    """See the module."""

    def __init__(self, key: NodeKey, address: Address, backoff: Backoff) -> None:
        self.key = key
        self.address = address
        self.backoff = backoff
        self.connection: Connection | None = None
        self.retry_at_ms = 0
        self.tried_at_ms = 0
        self.waiting: deque[Waiting] = deque()
        # A broker that hangs up on ApiVersions 4 is asked with 0 the next time.
        self.ask_version = 4
        # Of the addresses that its host may have: with which the next try begins.
        self.address_turn = 0
        self.last_error: SegbrokerError | None = None

    @property
    def is_ready(self) -> bool:
        return self.connection is not None and self.connection.is_ready


class Network:
    """See the module.  Not thread-safe: one thread owns it."""

    def __init__(self, settings: ClientSettings, random: Random) -> None:
        self.settings = settings
        self.nodes: dict[NodeKey, Node] = {}
        self.closed = False
        self.absences = Absences()
        self._random = random
        self._opening: list[Connection] = []
        self._over: list[Connection] = []
        self._last_used = 0
        self._salted: Salted = {}
        security = settings.security
        self._new_login: Callable[[], Login] | None = None
        # None: no login is by a token.
        self.tokens: Tokens | None = None
        if security is not None and security.token_provider is not None:
            self.tokens = Tokens(security.token_provider)
        if security is not None and security.mechanism is not None:
            self._new_login = partial(Login, security, self._salted, self.tokens)
        for index, address in enumerate(settings.bootstrap):
            self.node((-1 - index, CONTROL), address)

    # Nodes.

    def node(self, key: NodeKey, address: Address) -> Node:
        """The node of that name; made, or moved to a new address, as need be."""
        node = self.nodes.get(key)
        if node is None:
            backoff = Backoff(
                self._random,
                self.settings.reconnect_backoff_ms,
                self.settings.reconnect_backoff_max_ms,
            )
            node = self.nodes[key] = Node(key, address, backoff)
        elif node.address != address:
            node.address = address
            node.retry_at_ms = 0
        return node

    def adopt(self, broker_id: int, address: Address) -> None:
        """A bootstrap connection turned out to lead to this broker: keep it under its id."""
        key = (broker_id, CONTROL)
        if key in self.nodes:
            return
        for bootstrap_key, node in self.nodes.items():
            if bootstrap_key[0] < 0 and node.address == address and node.is_ready:
                adopted = self.node(key, address)
                adopted.connection, node.connection = node.connection, None
                adopted.waiting, node.waiting = node.waiting, adopted.waiting
                adopted.ask_version = node.ask_version
                adopted.address_turn = node.address_turn
                return

    def keep(self, broker_ids: Container[int], now_ms: int) -> None:
        """The cluster has these brokers: of others forget what nobody uses any more.

        Who has a request under way there goes with the next view.
        """
        for key, node in list(self.nodes.items()):
            connection = node.connection
            is_used = node.waiting or (connection is not None and not _is_idle(connection))
            if key[0] < 0 or key[0] in broker_ids or is_used:
                continue
            if connection is not None:
                connection.lost(ConnectionLost(f"{_name(node)} left the cluster"), now_ms)
                self._over.append(connection)
            del self.nodes[key]
            self.absences.forget(key[0])

    def any_node(self, now_ms: int) -> Node:
        """A node for a request that any broker can answer.

        A ready one if there is; else one whose back-off is over, taking turns; else the one
        whose back-off ends first.
        """
        control = [node for key, node in self.nodes.items() if key[1] == CONTROL]
        ready = [node for node in control if node.is_ready]
        if ready:
            return ready[0]
        self._last_used += 1
        usable = [n for n in control if n.connection is not None or n.retry_at_ms <= now_ms]
        if usable:
            return usable[self._last_used % len(usable)]
        return min(control, key=lambda node: node.retry_at_ms)

    # Requests.

    def request(
        self,
        node: Node,
        message: Request,
        on_reply: OnReply,
        *,
        now_ms: int,
        deadline_ms: int,
        timeout_ms: int | None = None,
    ) -> None:
        """Send, now or when the node's connection is ready.

        `on_reply` gets the reply or the error; it may be called before this returns.
        `timeout_ms`: how long the broker may take, where that is not request_timeout_ms.
        """
        timeout_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        if self.closed:
            on_reply(ClosedError(WAS_CLOSED), now_ms)
        elif node.connection is not None and node.connection.is_ready:
            self._send(
                node.connection, message, on_reply, now_ms, min(deadline_ms, now_ms + timeout_ms)
            )
        elif len(node.waiting) >= WAITING_COUNT_MAX:
            many = f"{WAITING_COUNT_MAX} requests wait for {_name(node)} already"
            on_reply(BrokerUnreachable(f"not sent: {many}"), now_ms)
        else:
            node.waiting.append(Waiting(message, on_reply, deadline_ms, timeout_ms))
            self._maybe_open(node, now_ms)

    def _send(
        self,
        connection: Connection,
        message: Request,
        on_reply: OnReply,
        now_ms: int,
        deadline_ms: int,
    ) -> None:
        try:
            connection.request(message, on_reply, deadline_ms=deadline_ms)
        except SegbrokerError as exc:
            on_reply(exc, now_ms)
        except LocalProtocolError as exc:
            # A number too large, half a surrogate pair: who asks hears of it, and nobody else.
            error = SegbrokerError(f"no request for {connection.where}: {exc}")
            error.__cause__ = exc
            on_reply(error, now_ms)

    def want(self, node: Node, now_ms: int) -> bool:
        """Whether the node is ready to send; opens a connection if it has none and may."""
        if node.is_ready:
            return True
        self._maybe_open(node, now_ms)
        return False

    # Time.

    def step(self, now_ms: int) -> None:
        """Do what is due: deadlines, and connections for those who wait."""
        for node in list(self.nodes.values()):
            if node.connection is not None:
                node.connection.expire(now_ms)
                self.collect(node, now_ms)
            if node.waiting:
                self._expire_waiting(node, now_ms)
                if node.waiting:
                    self._maybe_open(node, now_ms)

    def next_wake_ms(self) -> int | None:
        """When `step` has something to do next, if nothing happens before."""
        wakes: list[int] = []
        for node in self.nodes.values():
            if node.connection is not None:
                deadline = node.connection.next_deadline_ms()
                if deadline is not None:
                    wakes.append(deadline)
            if node.waiting:
                wakes.append(min(waiting.deadline_ms for waiting in node.waiting))
                if node.connection is None:
                    wakes.append(node.retry_at_ms)
        return min(wakes, default=None)

    def collect(self, node: Node, now_ms: int) -> None:
        """Notice that a node's connection is over: back off, and fail who waits for it."""
        connection = node.connection
        if connection is None or connection.state is not State.CLOSED:
            return
        node.connection = None
        self._over.append(connection)
        error = connection.error
        assert error is not None, "a closed connection knows why"
        node.last_error = error
        if connection.was_ready:
            # It worked until now: the first attempt to come back is quick.
            node.backoff.reset()
        else:
            if connection.was_connected and isinstance(error, ConnectionLost):
                node.ask_version = 0
            if not connection.was_connected:
                # The first address may be one that swallows all: a try is over before the second.
                node.address_turn += 1
            if not self.closed:
                self.absences.failed(node.key[0], error, node.tried_at_ms, now_ms)
        node.retry_at_ms = now_ms + node.backoff.next_delay_ms()
        if isinstance(error, ConnectionLost | TimedOut):
            error = type(error)(error.message, wants=error.wants, may_be_done=False)
        waiting, node.waiting = node.waiting, deque()
        for request in waiting:
            request.on_reply(error, now_ms)

    def _expire_waiting(self, node: Node, now_ms: int) -> None:
        late = [waiting for waiting in node.waiting if waiting.deadline_ms <= now_ms]
        if not late:
            return
        node.waiting = deque(w for w in node.waiting if w.deadline_ms > now_ms)
        why = f": {node.last_error}" if node.last_error else ""
        error = TimedOut(f"{_name(node)} could not be reached in time{why}", may_be_done=False)
        for waiting in late:
            waiting.on_reply(error, now_ms)

    def _maybe_open(self, node: Node, now_ms: int) -> None:
        if self.closed or node.connection is not None or now_ms < node.retry_at_ms:
            return
        host, port = node.address
        node.tried_at_ms = now_ms
        tokens, deadline_ms = self.tokens, now_ms + SETUP_TIMEOUT_MS
        if tokens is not None and not tokens.is_fresh:
            deadline_ms += TOKEN_TIMEOUT_MS
        connection = node.connection = Connection(
            host,
            port,
            client_id=self.settings.client_id,
            deadline_ms=deadline_ms,
            ask_version=node.ask_version,
            address_turn=node.address_turn,
            new_login=self._new_login,
            may_renew=None if tokens is None else tokens.may_renew,
            tls=self.settings.security is not None and self.settings.security.tls,
        )
        connection.on_ready = partial(self._on_ready, connection)
        self._opening.append(connection)

    def _on_ready(self, connection: Connection, now_ms: int) -> None:
        """Negotiation is over, or a session was renewed: send what has waited for it."""
        # Not reset() here: a broker that accepts and then hangs up must be backed off from.
        for node in list(self.nodes.values()):  # an answer may make who got it ask another one
            if node.connection is connection:  # it may have been adopted meanwhile
                self.absences.reached(node.key[0], _name(node), now_ms)
                waiting, node.waiting = node.waiting, deque()
                for request in waiting:
                    deadline_ms = min(request.deadline_ms, now_ms + request.timeout_ms)
                    self._send(connection, request.message, request.on_reply, now_ms, deadline_ms)

    # Effects for the shell.

    @property
    def is_opening(self) -> bool:
        """Whether there is something to take for `take_opening`."""
        return bool(self._opening)

    def take_opening(self) -> list[Connection]:
        """Connections that the shell must connect now."""
        opening, self._opening = self._opening, []
        return opening

    def take_wanted(self) -> Tokens | None:
        """Where the shell has to get a token, beside what it does; None: it has not."""
        return self.tokens if self.tokens is not None and self.tokens.take_wanted() else None

    def take_closed(self) -> list[Connection]:
        """Connections that are over: the shell closes their sockets."""
        over, self._over = self._over, []
        return over

    def connections(self) -> Iterator[Connection]:
        return (node.connection for node in self.nodes.values() if node.connection is not None)

    def close(self, now_ms: int) -> None:
        """End everything; what is in flight or waits fails with ClosedError."""
        self.closed = True
        error = ClosedError(WAS_CLOSED)
        for node in self.nodes.values():
            if node.connection is not None:
                node.connection.lost(error, now_ms)
                self.collect(node, now_ms)
            waiting, node.waiting = node.waiting, deque()
            for request in waiting:
                request.on_reply(error, now_ms)

    def refusal(self) -> SegbrokerError | None:
        """Why asking again is of no use: every address refuses login or TLS, or is no broker."""
        errors = [node.last_error for key, node in self.nodes.items() if key[1] == CONTROL]
        if all(isinstance(error, AuthenticationFailed | TlsFailed | NoBroker) for error in errors):
            return errors[-1]
        return None

    @property
    def is_accepted(self) -> bool:
        """Whether somebody took a connection and has not ended it."""
        return any(c.is_accepted and c.state is not State.CLOSED for c in self.connections())

    def unreachable(self) -> BrokerUnreachable | TokenUnavailable:
        """The error of having reached nobody, with the last reason of each address; that there is
        no token, where it never came to reaching anybody.
        """
        reasons, wants = set(), ""
        errors = [node.last_error for node in self.nodes.values() if node.last_error]
        tokens = [error for error in errors if isinstance(error, TokenUnavailable)]
        if errors and len(tokens) == len(errors):
            return tokens[-1]
        if not errors and any(connection.awaits_token for connection in self.connections()):
            return TokenUnavailable(NO_TOKEN)
        for error in errors:
            if isinstance(error, ConnectionLost | BrokerUnreachable):
                reasons.add(error.message)
                wants = wants or error.wants
            else:
                reasons.add(str(error))
        return BrokerUnreachable(
            f"no broker of {joined(self.settings.bootstrap)} could be reached: "
            + ("; ".join(sorted(reasons)) or "no answer"),
            wants=wants,
        )


def _name(node: Node) -> str:
    return joined([node.address])


def _is_idle(connection: Connection) -> bool:
    """Whether nobody waits for anything on it."""
    return connection.is_ready and not (connection.in_flight or connection.outgoing)

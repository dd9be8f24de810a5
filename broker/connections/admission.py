"""From an accepted socket to the task of a connection: who comes in, and who is turned away.

    accept -> the broker has begun to end                       closed as broken
           -> its address has too many, or comes too fast       closed, with a line
           -> connections_max, or no descriptor is left for it  closed, with a line
           -> no room for its handshake or login (handshakes.py) closed as broken, with a line
           -> it is one of `connections` until its task ends

Counts of addresses (access/address_limits.py), of listeners (access/listener_limits.py) and of
logins that are under way (handshakes.py) go up and down here and nowhere else.
"""

import socket
from collections.abc import Iterable
from functools import partial

import structlog
import trio

from ..access.address_limits import AddressLimits
from ..access.listener_limits import Gate
from ..address import join_address, origin
from ..configuration.connection_overrides import parse_overrides
from ..core import Core
from ..loop.half_requests import HalfRequests
from ..peers.listener import Listener, accept_all
from ..producing.express import Express
from .connection import Connection, reset_on_close
from .handshakes import Handshakes
from .inbox import Shelf

log = structlog.get_logger()


class Admission:
    """The connections of one broker, from their accept to their end."""

    def __init__(
        self,
        core: Core,
        connections: set[Connection],
        express: Express | None,
        draining: trio.Event,
    ) -> None:
        """connections: where they are while they are open.  express: the way of those that only
        produce.  draining: set when the broker begins to end."""
        config = core.config
        self._core = core
        self._connections = connections
        self._express = express
        self._draining = draining
        self._shelf = Shelf(config.frame_bytes_max)
        self._handshakes = Handshakes()
        self.half = HalfRequests(config.request_bytes_max, config.request_bytes_per_ip_max)
        """What they hold of requests that are not whole yet."""
        self.limits = AddressLimits(
            most=config.connections_per_ip_max,
            overrides=parse_overrides(config.connections_per_ip_overrides),
            rate=config.connections_per_ip_per_second,
            quotas=core.all_quotas,
        )

    async def accept_until(
        self, ended: trio.CancelScope, listeners: Iterable[Listener], serving: trio.Nursery
    ) -> None:
        """Accept until `ended` is cancelled, and close the listeners; connections are tasks of
        `serving`."""
        with ended:
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    gate = self._core.listener_limits.gates[listener.spec.name]
                    accepted = partial(self._accept, serving, listener, gate)
                    accepting.start_soon(accept_all, listener.sock, accepted, gate)
        for listener in listeners:
            trio.lowlevel.notify_closing(listener.sock)
            listener.sock.close()

    def _accept(
        self,
        serving: trio.Nursery,
        listener: Listener,
        gate: Gate,
        sock: socket.socket,
        address: tuple[str, int],
    ) -> None:
        core, limits, now = self._core, self.limits, trio.current_time()
        gate.arrived(now)
        if self._draining.is_set():
            reset_on_close(sock)
            sock.close()
            return
        why = limits.why_refused(address[0], now)
        if len(self._connections) >= (most := core.descriptors.connections):
            few = most < core.config.connections_max
            reason = "too few file descriptors (LimitNOFILE)" if few else "too many connections"
            why = {"limit": most, "reason": reason}
        if why is not None:
            core.counters.connections_refused += 1
            facts = {**why, "listener": listener.spec.name}
            limits.refused(address[0], now, facts, core.closing_lines)
            sock.close()
            return
        is_stranger = listener.protocol.is_tls or listener.protocol.is_sasl
        if is_stranger and not self._handshakes.admits(
            origin(address[0]), core.config.handshakes_max
        ):
            core.counters.connections_refused += 1
            core.closing_lines.tell(
                "handshake_crowded_out",
                peer=join_address(*address),
                listener=listener.spec.name,
                limit=core.config.handshakes_max,
            )
            reset_on_close(sock)
            sock.close()
            return
        connection = Connection(
            core,
            sock,
            address,
            listener=listener,
            shelf=self._shelf,
            half=self.half,
            express=self._express,
        )
        core.counters.connections += 1
        self._connections.add(connection)
        limits.opened(address[0])
        gate.opened()
        if is_stranger:
            self._handshakes.begin(connection)
        serving.start_soon(self._run, connection, gate)

    async def _run(self, connection: Connection, gate: Gate) -> None:
        log.debug("connection_opened", **connection.name())
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self.limits.closed(connection.peer.address[0])
            gate.closed()
            self._handshakes.closed(connection)
            log.debug("connection_closed", **connection.name())

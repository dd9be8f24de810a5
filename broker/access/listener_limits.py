"""What one listener may take: how many connections at once, and how fast new ones come.

    a listener is full                                nobody is accepted on it until one of its
                                                      connections has ended
    new ones come faster than its pace, or than       nobody is accepted on it until it is time
    that of all listeners together

Who is not accepted waits in the backlog of the socket, as in Kafka (KIP-402, KIP-612): nobody is
refused for it, and the other listeners go on.  So what is full inside locks nobody out outside.
What one address may take (address_limits.py), and all together (connections_max), is another
matter: who is beyond that is closed at once.

One line per listener and window says that it is full, or held back, and that somebody waits.
"""

import math
from collections.abc import Iterable
from typing import Final

import structlog
import trio

from ..configuration.config import BrokerConfig
from ..configuration.listener_spec import ListenerSpec
from .quotas import Bucket

log = structlog.get_logger()

WINDOW_S: Final = 60.0


class Allowance:
    """New connections per second, of one listener or of all."""

    __slots__ = ("_bucket",)

    def __init__(self) -> None:
        self._bucket: Bucket | None = None

    def set(self, rate: int, now: float) -> None:
        """0: any number.  Another rate than before begins with a second's worth."""
        if not rate:
            self._bucket = None
        elif self._bucket is None or self._bucket.rate != rate:
            self._bucket = Bucket(rate, now)

    def charge(self, count: int, now: float) -> float:
        """So many have come; seconds until the next one may."""
        return self._bucket.charge(count, now) if self._bucket is not None else 0.0


class Gate:
    """Where the connections of one listener come in."""

    __slots__ = ("_all", "_changed", "_most", "_own", "_told_at", "connections", "name")

    def __init__(self, name: str, everybody: Allowance) -> None:
        self.name = name
        self.connections = 0
        self._most = 0
        self._own = Allowance()
        self._all = everybody
        self._changed = trio.Event()
        self._told_at = {"listener_full": -math.inf, "listener_held_back": -math.inf}

    @property
    def connections_max(self) -> int:
        """Most connections at once."""
        return self._most

    def reconfigure(self, most: int, rate: int, now: float) -> None:
        """Other limits for connections from now on; those that are open stay."""
        self._most = most
        self._own.set(rate, now)
        self._changed.set()

    def is_closed(self) -> bool:
        """Whether nobody may be accepted now."""
        return self._wait_s(trio.current_time()) > 0

    async def wait(self) -> None:
        """Until one more may be accepted; somebody has come who would be."""
        while wait_s := self._wait_s(now := trio.current_time()):
            self._tell(now, wait_s)
            self._changed = trio.Event()
            with trio.move_on_after(wait_s):
                await self._changed.wait()

    def arrived(self, now: float) -> None:
        """One was accepted, whatever becomes of it."""
        self._own.charge(1, now)
        self._all.charge(1, now)

    def opened(self) -> None:
        """One of them is served."""
        self.connections += 1

    def closed(self) -> None:
        """It has ended."""
        self.connections -= 1
        self._changed.set()

    def _wait_s(self, now: float) -> float:
        """How long; infinite: until one has ended."""
        if self.connections >= self._most:
            return math.inf
        return max(self._own.charge(0, now), self._all.charge(0, now))

    def _tell(self, now: float, wait_s: float) -> None:
        event, facts = "listener_held_back", {"wait_s": round(wait_s, 3)}
        if wait_s == math.inf:
            event, facts = "listener_full", {"limit": self._most}
        if now - self._told_at[event] >= WINDOW_S:
            self._told_at[event] = now
            log.warning(event, listener=self.name, connections=self.connections, **facts)


class ListenerLimits:
    """The gates of all listeners."""

    __slots__ = ("_all", "gates")

    def __init__(self, specs: Iterable[ListenerSpec], config: BrokerConfig) -> None:
        self._all = Allowance()
        self.gates = {spec.name: Gate(spec.name, self._all) for spec in specs}
        self.reconfigure(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go by other limits from now on."""
        now = trio.current_time()
        self._all.set(config.connections_per_second, now)
        for name, gate in self.gates.items():
            most = config.of_listener(name, "connections_max")
            gate.reconfigure(most, config.of_listener(name, "connections_per_second"), now)

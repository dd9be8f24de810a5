"""Connections in the middle of a TLS handshake or a login: a limited number of them.

A handshake costs memory and processor time before the client is known.  At the limit one is closed
for each that comes, of the addresses that have most of them (IPv6: networks, address.py), the one
that comes counted:

    the oldest that keeps the broker waiting       has said nothing yet, or nothing for PATIENCE_S
    there is none: the youngest                    mostly the one that comes, before anything is
                                                   made for it: it may come a thousand times

So a flood of slow ones crowds out only itself, and who is far away has no more of them than others.
And whoever waits for the broker keeps its place: when a fleet comes back that is larger than the
limit, as many are served as the broker can, and the others come again.  If the oldest were closed
then, its place would go to one that is not served either, as long as they come faster than they are
served.

Who is through, and who keeps the broker waiting, is looked for when the limit is reached: SWEEP_S
after the last time, or after a sixteenth of the limit.  A flood comes with thousands of connections
in a second, and none of them is to cost a look at all others.  What has changed since is seen when
one is to be closed.
"""

import math
from typing import Final

import trio

from .connection import Connection

SWEEP_S: Final = 0.25
SWEEP_PART: Final = 16


class Handshakes:
    """Those that were in the middle of it when last looked at, by address, the oldest first."""

    __slots__ = ("_begun", "_came", "_count", "_slow", "_swept_at")

    def __init__(self) -> None:
        self._begun: dict[str, dict[Connection, None]] = {}
        self._count = 0
        # Those that kept the broker waiting, by address, the oldest first.
        self._slow: dict[str, dict[Connection, None]] = {}
        self._swept_at = -math.inf
        self._came = 0  # so many since then, at the limit

    def admits(self, host: str, limit: int) -> bool:
        """Whether one more of an address may begin; another may be closed for it."""
        if self._count >= limit:
            self._came += 1
            self._sweep(limit)
        while self._count >= limit:
            if (closed := self._next_closed(host)) is None:
                return False
            self.closed(closed)
            if not closed.is_settled:
                closed.close_because("handshake_crowded_out", limit=limit)
        return True

    def begin(self, connection: Connection) -> None:
        """It was admitted."""
        self._begun.setdefault(connection.peer.origin, {})[connection] = None
        self._count += 1

    def _next_closed(self, host: str) -> Connection | None:
        """See the module; None: the one that comes."""
        own = len(self._begun.get(host, ())) + 1
        most = max(own, *map(len, self._begun.values()))
        now = trio.current_time()
        for name, slow in list(self._slow.items()):
            while slow and len(self._begun[name]) + (name == host) == most:
                one = next(iter(slow))
                del slow[one]
                if one.keeps_waiting(now):
                    return one
            if not slow:
                del self._slow[name]
        if own == most:
            return None
        return next(reversed(next(some for some in self._begun.values() if len(some) == most)))

    def _sweep(self, limit: int) -> None:
        """Take out who is through with it, and see who keeps the broker waiting."""
        now = trio.current_time()
        if now - self._swept_at < SWEEP_S and self._came <= limit // SWEEP_PART:
            return
        self._swept_at = now
        self._came = 0
        self._slow = {}
        for host, some in list(self._begun.items()):
            for one in list(some):
                if one.is_settled:
                    self.closed(one)
                elif one.keeps_waiting(now):
                    self._slow.setdefault(host, {})[one] = None

    def closed(self, connection: Connection) -> None:
        """It has ended, in the middle of it or long after."""
        host = connection.peer.origin
        some = self._begun.get(host)
        if some is None or connection not in some:
            return
        del some[connection]
        self._slow.get(host, {}).pop(connection, None)
        self._count -= 1
        if not some:
            del self._begun[host]

"""Connections in the middle of a TLS handshake or a login: a limited number of them.

A handshake costs memory and processor time before the client is known.  At the limit one is closed:
of the address that has most of them the one that began longest ago.  A quick client is never the
oldest for long, and one that is far away has no more of them than others; so a flood of slow ones
crowds out only itself.

Who is through with it is taken out when the limit is reached, SWEEP_S after the last time: a flood
comes with thousands of connections in a second, and none of them is to cost a look at all others.
One that is through since then is never closed.
"""

import math
from typing import Final

import trio

from .connection import Connection

SWEEP_S: Final = 0.25


class Handshakes:
    """Those that were in the middle of it when last looked at, by address, the oldest first."""

    __slots__ = ("_begun", "_count", "_swept_at")

    def __init__(self) -> None:
        self._begun: dict[str, dict[Connection, None]] = {}
        self._count = 0
        self._swept_at = -math.inf

    def begin(self, connection: Connection, limit: int) -> None:
        """One more; at the limit another is closed for it."""
        if self._count >= limit:
            self._sweep()
        while self._count >= limit:
            most = max(self._begun.values(), key=len)
            oldest = next(iter(most))
            self.closed(oldest)
            if not oldest.is_settled:
                oldest.close_because("handshake_crowded_out", limit=limit)
                break
        self._begun.setdefault(connection.peer.address[0], {})[connection] = None
        self._count += 1

    def _sweep(self) -> None:
        """Take out who is through with it."""
        now = trio.current_time()
        if now - self._swept_at < SWEEP_S:
            return
        self._swept_at = now
        for one in [one for some in self._begun.values() for one in some]:
            if one.is_settled:
                self.closed(one)

    def closed(self, connection: Connection) -> None:
        """It has ended, in the middle of it or long after."""
        host = connection.peer.address[0]
        some = self._begun.get(host)
        if some is None or connection not in some:
            return
        del some[connection]
        self._count -= 1
        if not some:
            del self._begun[host]

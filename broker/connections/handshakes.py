"""Connections in the middle of a TLS handshake or a login: a limited number of them.

A handshake costs memory and processor time before the client is known.  At the limit one is closed:
of the address that has most of them the one that began longest ago.  A quick client is never the
oldest for long, and one that is far away has no more of them than others; so a flood of slow ones
crowds out only itself.
"""

from .connection import Connection


class Handshakes:
    """Those that were in the middle of it when last looked at, by address, the oldest first."""

    __slots__ = ("_begun", "_count")

    def __init__(self) -> None:
        self._begun: dict[str, dict[Connection, None]] = {}
        self._count = 0

    def begin(self, connection: Connection, limit: int) -> None:
        """One more; at the limit another is closed for it."""
        if self._count >= limit:
            begun = [one for some in self._begun.values() for one in some]
            for one in begun:
                if one.is_settled:
                    self.closed(one)
        if self._count >= limit:
            most = max(self._begun.values(), key=len)
            oldest = next(iter(most))
            self.closed(oldest)
            oldest.close_because("handshake_crowded_out", limit=limit)
        self._begun.setdefault(connection.peer.address[0], {})[connection] = None
        self._count += 1

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

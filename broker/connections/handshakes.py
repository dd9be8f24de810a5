"""Connections in the middle of a TLS handshake or a login: a limited number, the oldest goes first.

A handshake costs memory and processor time before the client is known.  At the limit the one that
began longest ago is closed: a quick client is never the oldest for long, so a flood of slow ones
crowds out only itself.
"""

from .connection import Connection


class Handshakes:
    """Those that were in the middle of it when last looked at, the oldest first."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: dict[Connection, None] = {}

    def begin(self, connection: Connection, limit: int) -> None:
        """One more; at the limit the oldest is closed for it."""
        if len(self._begun) >= limit:
            for one in [one for one in self._begun if one.is_settled]:
                del self._begun[one]
        if len(self._begun) >= limit:
            oldest = next(iter(self._begun))
            del self._begun[oldest]
            oldest.close_because("handshake_crowded_out", limit=limit)
        self._begun[connection] = None

    def closed(self, connection: Connection) -> None:
        """It has ended, in the middle of it or long after."""
        self._begun.pop(connection, None)

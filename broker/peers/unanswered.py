"""The partitions of fetches that are not answered: how many of them all connections have.

What is known of each takes 330 to 660 bytes until the answer is in the socket, whether it waits
for records or behind an answer that its client does not take.  What one connection has is limited
(`slots_max`), and connections are many.  So the sum is limited, too: above PARTITIONS_ALL_MAX the
heaviest gives way.  Of the address that has most, the connection that has most is closed; it would
have to ask again in any case, and one that takes no answer could not be helped by an early one.
"""

from collections import Counter
from typing import Final

from .peer import Peer

PARTITIONS_ALL_MAX: Final = 1_000_000


class TooManyUnanswered(Exception):
    """All fetches together have too many partitions; the connection is closed."""


class Unanswered:
    """Those of one broker."""

    __slots__ = ("_by_peer", "count")

    def __init__(self) -> None:
        self._by_peer: dict[Peer, int] = {}
        self.count = 0

    def add(self, peer: Peer, partitions: int) -> None:
        """A fetch of so many has its place.  Connections may be closed for it, also its own."""
        self._change(peer, partitions)
        while self.count > PARTITIONS_ALL_MAX:
            heaviest = self._heaviest()
            most = self._by_peer[heaviest]
            heaviest.outbox.break_off(
                TooManyUnanswered(
                    f"fetches of {self.count} partitions are not answered, limit "
                    f"{PARTITIONS_ALL_MAX}; {most} of this connection"
                )
            )
            assert heaviest not in self._by_peer, "it has given up all of its slots"

    def take(self, peer: Peer, partitions: int) -> None:
        """It is answered, or given up."""
        self._change(peer, -partitions)

    def _change(self, peer: Peer, delta: int) -> None:
        self.count += delta
        if left := self._by_peer.get(peer, 0) + delta:
            self._by_peer[peer] = left
        else:
            self._by_peer.pop(peer, None)

    def _heaviest(self) -> Peer:
        by_host: Counter[str] = Counter()
        for peer, count in self._by_peer.items():
            by_host[peer.address[0]] += count
        return max(self._by_peer, key=lambda one: (by_host[one.address[0]], self._by_peer[one]))

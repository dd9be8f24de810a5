"""What one address may do before it has said anything: how many connections, and how fast.

    accept -> too many from there?  -> closed at once
           -> too fast from there?  -> closed at once (connection_creation_rate, or the settings)

One line per address and window says how many were refused, and so many a minute altogether
(closing_lines.py): a flood of connections cannot fill a disk with lines about itself, not even from
a network of addresses.

Limits: an address is remembered while it has connections, owes something, or was refused a moment
ago; above HOSTS_MAX of the latter two the oldest are forgotten.
"""

from collections.abc import Mapping
from typing import Final

from .closing_lines import ClosingLines
from .quota_rules import CONNECTIONS, find_for_address
from .quotas import Bucket, Quotas

HOSTS_MAX: Final = 10_000
WINDOW_S: Final = 10.0


class AddressLimits:
    """Connections by address."""

    __slots__ = ("_buckets", "_counts", "_most", "_overrides", "_quotas", "_rate", "_refused")

    def __init__(
        self, *, most: int, overrides: Mapping[str, int], rate: float, quotas: Quotas
    ) -> None:
        """most: connections of one address. rate: new ones per second; 0 for any number."""
        self._quotas = quotas
        self.reconfigure(most=most, overrides=overrides, rate=rate)
        self._counts: dict[str, int] = {}
        self._buckets: dict[str, Bucket] = {}
        self._refused: dict[str, tuple[float, int]] = {}

    def reconfigure(self, *, most: int, overrides: Mapping[str, int], rate: float) -> None:
        """Other limits for connections from now on; those that are open stay."""
        self._most = most
        self._overrides = dict(overrides)
        self._rate = rate

    def count(self, host: str) -> int:
        """Connections that are open from there."""
        return self._counts.get(host, 0)

    def why_refused(self, host: str, now: float) -> dict[str, object] | None:
        """Why a new connection from there is refused, in facts for a line; None: it is not."""
        most = self._overrides.get(host, self._most)
        if self._counts.get(host, 0) >= most:
            return {"limit": most, "reason": "too many connections from this address"}
        rate = self._rate_of(host)
        if rate <= 0:
            return None
        bucket = self._buckets.get(host)
        if bucket is None or bucket.rate != rate:
            _bound(self._buckets)
            bucket = self._buckets[host] = Bucket(rate, now)
        if bucket.charge(0, now):
            return {"limit": rate, "reason": "too many new connections per second"}
        bucket.charge(1, now)
        return None

    def opened(self, host: str) -> None:
        """A connection from there was accepted."""
        self._counts[host] = self._counts.get(host, 0) + 1

    def closed(self, host: str) -> None:
        """One of them has ended."""
        left = self._counts[host] - 1
        if left:
            self._counts[host] = left
        else:
            del self._counts[host]

    def refused(
        self, host: str, now: float, facts: Mapping[str, object], lines: ClosingLines
    ) -> None:
        """Say that a connection was refused: at most once per window and address."""
        since, count = self._refused.get(host, (now - WINDOW_S, 0))
        if now - since < WINDOW_S:
            self._refused[host] = since, count + 1
            return
        self._refused.pop(host, None)
        _bound(self._refused)
        self._refused[host] = now, 0
        lines.tell("connection_refused", peer=host, refused_before=count, **facts)

    def _rate_of(self, host: str) -> float:
        found = (
            find_for_address(self._quotas.rows, CONNECTIONS, host) if self._quotas.rows else None
        )
        return self._rate if found is None else found.rate


def _bound(table: dict[str, Bucket] | dict[str, tuple[float, int]]) -> None:
    if len(table) >= HOSTS_MAX:
        del table[next(iter(table))]

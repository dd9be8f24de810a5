"""Who may still read what in groups of KIP-848, as far as the wire tells.

| a member | has |
|---|---|
| was told of a partition | it, from then on |
| says in a heartbeat what it reads, the partition is not in it | let go of it |
| joins anew, leaves, is refused | nothing |
| was not heard of for a session | been dropped, perhaps |
| was told to let go, and is silent about it for a rebalance timeout | the same |
| asked, and the answer got lost, which may have told it to let go | the same |

All times begin anew with the broker.  A member that is at the epoch that it was told, and within
its times, is not to be told that it is none.

A request counts from when it came, an answer from when it left: whoever is taken to have a
partition has it.  Who is dropped may not have heard of it yet, so others may have what it reads:
that is no violation, but its commits must be refused (ledger.py).
"""

from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

CLOCK_S: Final = 0.002
"""The broker counts in whole ms: it may drop somebody so much earlier."""

Member: TypeAlias = tuple[str, str]
"""Group and member id."""
Place: TypeAlias = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(slots=True)
class _Has:
    """One member."""

    places: set[Place] = field(default_factory=set)
    told: set[Place] = field(default_factory=set)
    came_s: float = -inf
    """When its last request came: answers to earlier ones may leave late."""
    heard_s: float = -inf
    """When the last request came that was answered without an error."""
    shrunk_s: float = inf
    """When the request came whose answer told it to let go of something; inf: it has let go."""
    rebalance_s: float = inf
    epoch: int = 0
    """The one that it was told last."""
    open: int = 0
    """How many requests came since the last one that was answered without an error."""
    open_s: float = inf
    """When the first of them came."""


@dataclass(slots=True)
class Holders:
    """All members of all groups.  Times in s of virtual time."""

    session_s: float = inf
    """How long a member may be silent."""
    _members: dict[Member, _Has] = field(default_factory=dict)

    def restarted(self, now_s: float) -> None:
        """The broker begins anew, with the members that it had."""
        for has in self._members.values():
            if self._lives(has, now_s):
                has.heard_s = now_s
                has.shrunk_s = has.shrunk_s if has.shrunk_s == inf else now_s
                has.open_s = has.open_s if has.open_s == inf else now_s

    def says(
        self, member: Member, reads: set[Place] | None, rebalance_s: float | None, came_s: float
    ) -> None:
        """A heartbeat came.  reads: what it says that it reads; None: it does not say."""
        has = self._members.setdefault(member, _Has())
        has.came_s = came_s
        has.open += 1
        has.open_s = min(has.open_s, came_s)
        if rebalance_s is not None:
            has.rebalance_s = rebalance_s
        if reads is not None:
            has.places &= reads
            if has.places <= has.told:
                has.shrunk_s = inf

    def heard(self, member: Member, epoch: int, came_s: float) -> None:
        """Its heartbeat was answered without an error: it is at this epoch."""
        has = self._members.setdefault(member, _Has())
        if came_s >= has.came_s:
            has.heard_s, has.epoch, has.open, has.open_s = came_s, epoch, 0, inf

    def is_member(self, member: Member, epoch: int, came_s: float, now_s: float) -> bool:
        """Whether who asks at this epoch must be a member: nothing else can have happened."""
        has = self._members.setdefault(member, _Has())
        is_sure = has.open == 1 and came_s >= has.came_s
        return is_sure and 0 < epoch == has.epoch and self._lives(has, now_s)

    def gone(self, member: Member, came_s: float) -> None:
        """It left, or was told that it is out: answers to what it asked before may still leave."""
        has = self._members.setdefault(member, _Has())
        if came_s >= has.came_s:
            self._members[member] = _Has(came_s=came_s)

    def told(
        self, member: Member, places: set[Place], came_s: float, now_s: float
    ) -> list[tuple[Place, str]] | None:
        """It was told that it has these; which of them somebody else may still read, and who.

        None: the answer left so late that it may have been dropped, or asked again, since."""
        has = self._members.setdefault(member, _Has())
        if came_s < has.came_s or now_s >= came_s + self.session_s - CLOCK_S:
            return None
        conflicts = [
            (place, other[1])
            for other, others in self._members.items()
            if other != member and self._lives(others, now_s)
            for place in sorted(others.places & places - has.places)
        ]
        if has.places - places:
            has.shrunk_s = min(has.shrunk_s, came_s)
        has.told = set(places)
        has.places |= places
        return conflicts

    def _lives(self, has: _Has, now_s: float) -> bool:
        silent_s = min(has.shrunk_s, has.open_s)
        ends_s = min(has.heard_s + self.session_s, silent_s + has.rebalance_s)
        return now_s < ends_s - CLOCK_S

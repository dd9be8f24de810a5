"""What members were told and what the broker accepted of them: the rules of groups over a history.

one owner      broken when a member is told that it has a partition of which another believes, with
               reason, that it has it; or when two of one classic generation have it
fenced         when a commit is accepted that was sent after somebody else was told to have the
               partition
no way back    when a commit is accepted, or a position fetched, below what was acknowledged before
               it was sent; only an explicit seek moves a group back

A belief is with reason while the member was answered within its session, which begins anew with the
broker: members of both protocols outlive it.  Times are monotonic seconds.

librdkafka hands its application an assignment of the consumer protocol that it has given back
already: asked before the application has heard of it, it says that it reads nothing.  What such a
member commits is taken, at its present epoch, here as in Kafka, until it is told again.  A ledger
that is `told_late` knows of a claim only, which counts when it is SETTLED_S old and not let go of:
then its holder is bound by the rules for commits, and everybody else by it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SETTLED_S: Final = 1.0
"""How long it may take until a member is told that it has given an assignment back."""


class Broken(AssertionError):
    """A rule is broken."""


@dataclass
class Believer:
    """A member as the ledger knows it."""

    name: str
    session_s: float
    has: set[int] = field(default_factory=set)
    answered_s: float = 0.0

    def has_reason(self, now_s: float) -> bool:
        """Whether what it believes binds the broker."""
        return now_s - self.answered_s < self.session_s


@dataclass
class Sent:
    """A commit on its way: what held when it was sent.

    is_judged: whether its sender had what it commits for by then, as far as is known.
    """

    partition: int
    offset: int
    least: int
    owner: str | None
    is_judged: bool
    sent_s: float


class Ledger:
    """The history of one group.  May be used by several threads."""

    def __init__(
        self, group: str, *, told_late: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """told_late: its members are librdkafka's, of the consumer protocol, or some are."""
        self.group = group
        self._clock = clock
        self._settled_s = SETTLED_S if told_late else 0.0
        self.counts = {"told": 0, "commits": 0, "refused": 0, "fetched": 0, "seeks": 0}
        if told_late:
            self.counts["unsettled"] = 0
        self._believers: dict[str, Believer] = {}
        self._claims: dict[int, list[tuple[float, str]]] = {}
        """Of each partition who was told that it has it, and when; the last of them counts."""
        self._generations: dict[tuple[int, int], str] = {}
        self._stands: dict[int, int] = {}
        self._moved_s: dict[int, float] = {}
        """When a commit that nobody judges was accepted last: it may have moved a group back."""
        self._lock = threading.Lock()

    def answered(self, name: str, session_s: float, asked_s: float | None = None) -> None:
        """The broker answered a member that it is one; asked_s: when it was asked, or now.

        Its session began between the two: what binds the broker ends a session after the first.
        """
        with self._lock:
            believer = self._believers.setdefault(name, Believer(name, session_s))
            believer.answered_s = self._clock() if asked_s is None else asked_s

    def told(self, name: str, partitions: set[int], generation: int | None = None) -> None:
        """A member was told what it has from now on; generation: of the classic protocol."""
        now_s = self._clock()
        with self._lock:
            self.counts["told"] += 1
            for partition in partitions:
                if not self._settled_s:
                    self._check_free(name, partition, now_s)
                self._claim(name, partition, now_s)
                if generation is not None:
                    key = (generation, partition)
                    other = self._generations.setdefault(key, name)
                    if other != name:
                        raise Broken(f"{self.group}: {key} has {other} and {name}")
            self._believers[name].has = set(partitions)

    def _check_free(self, name: str, partition: int, now_s: float) -> None:
        for other in self._believers.values():
            if other.name == name or partition not in other.has:
                continue
            if other.has_reason(now_s):
                raise Broken(
                    f"{self.group}: {name} is told that it has {partition}, which {other.name} has"
                )

    def _claim(self, name: str, partition: int, now_s: float) -> None:
        """Add a claim, and forget those that none can count before any more."""
        claims = self._claims.setdefault(partition, [])
        if partition in self._believers[name].has and claims and claims[-1][1] == name:
            return  # it goes on with it
        claims.append((now_s, name))
        while len(claims) > 1 and now_s - claims[1][0] >= self._settled_s:
            del claims[0]

    def _owner(self, partition: int, now_s: float) -> str | None:
        """Whose claim counts: the last one that is settled."""
        settled = [
            name
            for since_s, name in self._claims.get(partition, ())
            if now_s - since_s >= self._settled_s
        ]
        return settled[-1] if settled else None

    def let_go(self, name: str, partitions: set[int] | None = None) -> None:
        """A member reads these no more (all), and is about to say so."""
        now_s = self._clock()
        with self._lock:
            if believer := self._believers.get(name):
                gone = believer.has if partitions is None else partitions
                believer.has = believer.has - gone
                for partition in gone:
                    self._withdraw(name, partition, now_s)

    def _withdraw(self, name: str, partition: int, now_s: float) -> None:
        """Forget a claim that is let go of before it counted."""
        claims = self._claims.get(partition, [])
        claims[:] = [
            (since_s, who)
            for since_s, who in claims
            if who != name or now_s - since_s >= self._settled_s
        ]

    def fetched(self, partition: int, offset: int, least: int) -> None:
        """Where the group stands, asked when `least` was acknowledged."""
        with self._lock:
            self.counts["fetched"] += 1
            if offset < least:
                raise Broken(f"{self.group}: {partition} stands at {offset}, was at {least}")

    def stands(self, partition: int) -> int:
        """What was acknowledged last; 0: nothing."""
        with self._lock:
            return self._stands.get(partition, 0)

    def sending(
        self, name: str, partition: int, offset: int, *, taken_s: float | None = None
    ) -> Sent:
        """A commit is about to be sent.

        taken_s: when the call began that returned the record of it, which counts where members are
        told late; None: just now.
        """
        now_s = self._clock()
        taken_s = now_s if taken_s is None or not self._settled_s else taken_s
        with self._lock:
            claims = self._claims.get(partition, ())
            is_judged = not any(
                who == name and taken_s - since_s < self._settled_s for since_s, who in claims
            )
            least, owner = self._stands.get(partition, 0), self._owner(partition, now_s)
            return Sent(partition, offset, least, owner, is_judged, now_s)

    def accepted(self, name: str, sent: Sent) -> None:
        """The broker said that this commit is stored."""
        with self._lock:
            self.counts["commits"] += 1
            if not sent.is_judged:
                self.counts["unsettled"] += 1
                self._moved_s[sent.partition] = self._clock()
                self._stands[sent.partition] = sent.offset
                return
            if sent.owner not in (None, name):
                raise Broken(
                    f"{self.group}: {name} committed {sent.partition}, which {sent.owner} has"
                )
            if sent.sent_s <= self._moved_s.get(sent.partition, -1.0):
                return  # which of the two the broker took last is not known
            if sent.offset < sent.least:
                raise Broken(
                    f"{self.group}: {name} moved {sent.partition} back to {sent.offset} "
                    f"from {sent.least}"
                )
            self._stands[sent.partition] = max(self._stands.get(sent.partition, 0), sent.offset)

    def refused(self) -> None:
        """The broker refused a commit."""
        with self._lock:
            self.counts["refused"] += 1

    def sought(self, partition: int, offset: int) -> None:
        """An operator put the group here."""
        with self._lock:
            self.counts["seeks"] += 1
            self._stands[partition] = offset

"""What members were told and what the broker accepted of them: the rules of groups over a history.

one owner      broken when a member is told that it has a partition of which another believes, with
               reason, that it has it; or when two of one classic generation have it
fenced         when a commit is accepted that was sent after somebody else was told to have the
               partition
no way back    when a commit is accepted, or a position fetched, below what was acknowledged before
               it was sent; only an explicit seek moves a group back

A belief is with reason while the member was answered within its session, which begins anew with the
broker: members of both protocols outlive it.  Times are monotonic seconds.

A member of the consumer protocol may commit what it does not have, at its present epoch, and is
taken at its word, here as in Kafka.  Who knows that of a commit says so (`is_judged`): then the
rules say nothing of it, and where the group stands is known as a lower bound.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


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

    is_judged: its sender has the partition, and was told from where to read.
    may_rewind: its sender may read again what it has read; then a step back is as good as a seek.
    """

    partition: int
    offset: int
    least: int
    owner: str | None
    sent_s: float
    is_judged: bool
    may_rewind: bool


class Ledger:
    """The history of one group.  May be used by several threads."""

    def __init__(self, group: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.group = group
        self._clock = clock
        self.counts = dict.fromkeys(
            ("told", "commits", "refused", "fetched", "seeks", "unjudged"), 0
        )
        self._believers: dict[str, Believer] = {}
        self._owners: dict[int, str] = {}
        """Of each partition who was told last that it has it."""
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
            believer.session_s = session_s
            believer.answered_s = self._clock() if asked_s is None else asked_s

    def told(self, name: str, partitions: set[int], generation: int | None = None) -> None:
        """A member was told what it has from now on; generation: of the classic protocol."""
        now_s = self._clock()
        with self._lock:
            self.counts["told"] += 1
            for partition in partitions:
                self._check_free(name, partition, now_s)
                self._owners[partition] = name
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

    def let_go(self, name: str, partitions: set[int] | None = None) -> None:
        """A member reads these no more (all), and is about to say so."""
        with self._lock:
            if believer := self._believers.get(name):
                believer.has = set() if partitions is None else believer.has - partitions

    def fetched(self, partition: int, offset: int, least: int) -> None:
        """Where the group stands, asked when `least` was acknowledged."""
        with self._lock:
            self.counts["fetched"] += 1
            if offset < least and offset < self._stands.get(partition, 0):
                raise Broken(f"{self.group}: {partition} stands at {offset}, was at {least}")

    def stands(self, partition: int) -> int:
        """What was acknowledged last, or certainly reached; 0: nothing."""
        with self._lock:
            return self._stands.get(partition, 0)

    def all_stands(self) -> dict[int, int]:
        """The same of every partition of which something is known."""
        with self._lock:
            return dict(self._stands)

    def sending(
        self,
        name: str,
        partition: int,
        offset: int,
        *,
        is_judged: bool = True,
        may_rewind: bool = False,
    ) -> Sent:
        """A commit is about to be sent."""
        with self._lock:
            least, owner = self._stands.get(partition, 0), self._owners.get(partition)
            if not is_judged:
                self._may_move(partition, offset)
            return Sent(partition, offset, least, owner, self._clock(), is_judged, may_rewind)

    def accepted(self, name: str, sent: Sent) -> None:
        """The broker said that this commit is stored."""
        partition, offset = sent.partition, sent.offset
        with self._lock:
            self.counts["commits"] += 1
            if not sent.is_judged:
                self.counts["unjudged"] += 1
                self._may_move(partition, offset)
                return
            if sent.owner not in (None, name):
                raise Broken(f"{self.group}: {name} committed {partition}, which {sent.owner} has")
            if sent.sent_s <= self._moved_s.get(partition, -1.0):
                return  # which of the two the broker took last is not known
            if sent.may_rewind:
                self._stands[partition] = offset
                return
            if offset < sent.least:
                raise Broken(
                    f"{self.group}: {name} moved {partition} back to {offset} from {sent.least}"
                )
            self._stands[partition] = max(self._stands.get(partition, 0), offset)

    def _may_move(self, partition: int, offset: int) -> None:
        """A commit that nobody judges may be stored any time now, or is."""
        self._moved_s[partition] = self._clock()
        self._stands[partition] = min(self._stands.get(partition, 0), offset)

    def refused(self) -> None:
        """The broker refused a commit."""
        with self._lock:
            self.counts["refused"] += 1

    def sought(self, partition: int, offset: int) -> None:
        """An operator put the group here."""
        with self._lock:
            self.counts["seeks"] += 1
            self._stands[partition] = offset

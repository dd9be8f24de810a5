"""What each transaction may have come to, as its producer knows it; and whether it did.

| asked of it, and answered | it may be |
|---|---|
| nothing; or an abort, whatever the answer | aborted |
| a commit, with 0 | committed |
| a commit, with a refusal, and no other commit before | aborted |
| a commit, and nothing, or "ask again" | either, until an abort is answered with 0 |

Of one that may be either all is seen, or nothing, in every partition; and its offsets stand or not
with it.  What was acknowledged counts: a batch without an answer may be part of it, or not.
Partitions that were deleted count no more, nor what lies where somebody has deleted records.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from segbroker.protocol.markers import Outcome

Key: TypeAlias = tuple[str, int]
"""A partition."""
Found: TypeAlias = Mapping[Key, Mapping[bytes, int]]
"""Offsets by value of what readers of committed records see in the end."""

EITHER = frozenset(Outcome)
NOWHERE = -1
"""Where a group stands that has no offset."""


@dataclass(eq=False)
class Sent:
    """A record of a transaction; `offset`: that was acknowledged, -1: none was."""

    key: Key
    value: bytes
    offset: int = -1


@dataclass(eq=False)
class Attempt:
    """One transaction."""

    name: str
    number: int
    producer: tuple[int, int]
    """Id and epoch."""
    sent: list[Sent] = field(default_factory=list)
    staged: list[tuple[int, bool]] = field(default_factory=list)
    """Offsets of the group of its transactional id, and whether each was acknowledged."""
    may: frozenset[Outcome] = frozenset({Outcome.ABORT})

    def __str__(self) -> str:
        may = "/".join(sorted(one.name for one in self.may))
        return f"transaction {self.number} of {self.name} ({may})"

    def asks_commit(self) -> frozenset[Outcome]:
        """A commit is asked for; what it may have been before."""
        before, self.may = self.may, EITHER
        return before

    def ended(self, outcome: Outcome) -> None:
        """It was answered so."""
        self.may = frozenset({outcome})


class Ledger:
    """All of them, in the order in which they began."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.newest: dict[str, tuple[int, int]] = {}
        """By transactional id, the last producer id and epoch that somebody was told of."""
        self.given: set[tuple[int, int]] = set()
        self.trimmed: dict[Key, int] = {}
        """Records below it may be deleted."""
        self.deleted: set[str] = set()
        """Topics."""
        self.group_deletions: Counter[str] = Counter()
        """By transactional id: begun, and ended."""

    def begin(self, name: str, producer: tuple[int, int]) -> Attempt:
        """Another one."""
        attempt = Attempt(name, len(self.attempts), producer)
        self.attempts.append(attempt)
        return attempt

    def told(self, name: str, producer: tuple[int, int]) -> None:
        """Somebody has this producer id and epoch."""
        self.newest[name] = max(producer, self.newest.get(name, (-1, -1)))

    def delete_group(self, name: str) -> list[tuple[Attempt, int]]:
        """Somebody asks for it: what was staged need not stand any more.  What was acknowledged
        before, of all transactions of this id: it must not, once that is answered."""
        found = []
        self.group_deletions[name] += 1
        for attempt in self.attempts:
            if attempt.name == name:
                rows = attempt.staged
                found += [(attempt, place) for place, (_, is_acked) in enumerate(rows) if is_acked]
                attempt.staged = [(offset, False) for offset, _ in rows]
        return found

    def group_is_deleted(self, gone: Iterable[tuple[Attempt, int]]) -> None:
        """It was answered."""
        for attempt, place in gone:
            attempt.staged[place] = (NOWHERE, False)

    def judge(self, found: Found) -> Iterator[str]:
        """What is wrong in the end; what a transaction came to is what it is from then on."""
        for attempt in self.attempts:
            yield from self._judge(attempt, found)

    def _judge(self, attempt: Attempt, found: Found) -> Iterator[str]:
        due = [one for one in attempt.sent if self._counts(one, found)]
        seen = [one for one in due if one.value in found[one.key]]
        for one in seen:
            if one.offset >= 0 and found[one.key][one.value] != one.offset:
                at = found[one.key][one.value]
                yield f"{attempt}: {one.value!r} is at {at}, acknowledged at {one.offset}"
        acked = [one for one in due if one.offset >= 0]
        if seen:
            if Outcome.COMMIT not in attempt.may:
                yield f"{attempt} is seen: {[one.value for one in seen]}"
            attempt.may &= {Outcome.COMMIT}
        elif acked:
            if Outcome.ABORT not in attempt.may:
                yield f"{attempt} is not seen: {[one.value for one in acked]}"
            attempt.may &= {Outcome.ABORT}
        missing = [one.value for one in acked if one not in seen]
        if seen and missing:
            yield f"{attempt} is torn: {missing} are not seen"

    def _counts(self, one: Sent, found: Found) -> bool:
        if one.key[0] in self.deleted or one.key not in found:
            return False
        if one.offset < 0:
            return one.value in found[one.key]
        return one.offset >= self.trimmed.get(one.key, 0)

    def may_stand(self, name: str) -> set[int]:
        """Where the group of a transactional id may stand, after `judge`; -1: nowhere."""
        allowed: set[int] = set()
        for attempt in reversed(self._in_order(name)):
            for offset, is_acked in reversed(attempt.staged):
                if Outcome.COMMIT in attempt.may:
                    allowed.add(offset)
                if is_acked and Outcome.ABORT not in attempt.may:
                    return allowed
                if is_acked:
                    break
        return allowed | {NOWHERE}

    def _in_order(self, name: str) -> list[Attempt]:
        """Who has a later epoch ends later."""
        found = [one for one in self.attempts if one.name == name]
        return sorted(found, key=lambda one: (one.producer, one.number))

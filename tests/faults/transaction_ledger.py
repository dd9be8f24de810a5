"""What producers of transactions and their coordinator know of one partition, and who judges it.

| a record | is seen by readers of committed records |
|---|---|
| of a transaction that is open, or was aborted | never, unless its marker is lost to damage |
| acknowledged, of one that was committed and is marked | from then on |
| acknowledged, of none | in class `fsync`; in the others until something unsynced may be gone |

From then on: unless its offset is deleted, in a gap, or cannot be read just now.  No record is seen
twice, nor under another offset than was acknowledged.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from segbroker.protocol.markers import Outcome

from .committed_view import Seen

Ranges = list[tuple[int, int]]


@dataclass(eq=False)
class Transaction:
    """One of a producer; `outcome`, as soon as it is decided: None, it is open."""

    number: int
    outcome: Outcome | None = None
    is_marked: bool = False
    """Whether its marker is durable."""
    markers: list[int] = field(default_factory=list)
    """Where it was appended."""
    is_new_epoch: bool = False
    """Whether the marker has another epoch than the records."""


@dataclass(eq=False)
class Batch:
    """As its producer sends it until it has the answer."""

    values: list[bytes]
    data: bytes
    epoch: int
    transaction: Transaction | None
    offset: int = -1
    """That was acknowledged; -1: none was."""


@dataclass(eq=False)
class Producer:
    """One, with what it remembers."""

    number: int
    epoch: int = 0
    known_epoch: int = 0
    """Of the last of it that the partition has for certain."""
    sequence: int = 0
    unanswered: Batch | None = None
    transaction: Transaction | None = None
    """That is open, or not marked yet."""
    sent: list[Batch] = field(default_factory=list)
    """Those that were acknowledged."""

    def again(self, window: int) -> list[Batch]:
        """What it may send again now: of this epoch, and no transaction but the present one."""
        now = [one for one in self.sent if one.epoch == self.epoch]
        return [one for one in now[-window:] if one.transaction is self.transaction]


@dataclass
class Ledger:
    """Everything that was sent."""

    sent: dict[bytes, Batch] = field(default_factory=dict)
    keys: dict[bytes, bytes] = field(default_factory=dict)
    """By value."""
    replaced: set[bytes] = field(default_factory=set)
    """Values behind which a compaction may have left a later one of their key."""
    transactions: list[Transaction] = field(default_factory=list)
    gaps: Ranges = field(default_factory=list)
    """All that was told, of all lives."""
    is_lossy: bool = False
    """Whether what was acknowledged without a sync may be gone."""

    def begin(self) -> Transaction:
        """Another one."""
        self.transactions.append(Transaction(len(self.transactions)))
        return self.transactions[-1]

    def compacted(self, seen: Seen) -> None:
        """Take note of what a later one stands for: that is seen, or may be in what is not."""
        last = {self.keys[value]: at for at, value in seen.rows if value in self.keys}
        behind = max([end for _, end in (*self.gaps, *seen.gaps)], default=-1)
        for value, batch in self.sent.items():
            if batch.offset >= 0 and (
                last.get(self.keys[value], -1) > batch.offset
                or batch.offset < behind
                or seen.refused_from < 1 << 62
            ):
                self.replaced.add(value)

    def judge(
        self, seen: Seen, start: int, stable: int, end: int, is_lost: Callable[[Transaction], bool]
    ) -> Iterator[str]:
        """What is wrong in what was seen of a log with these offsets.

        is_lost: whether a marker cannot be read; asked where that would excuse something.
        """
        if seen.problem:
            yield seen.problem
        gone = [*self.gaps, *seen.gaps]
        lost = {one for one in self.transactions if any(_within(at, gone) for at in one.markers)}
        offsets: dict[bytes, int] = {}
        for at, value in seen.rows:
            if value in offsets:
                yield f"there twice: {value[:6]!r} at {offsets[value]} and {at}"
            offsets[value] = at
            if (batch := self.sent.get(value)) is None:
                yield f"never sent: {value[:6]!r} at {at}"
                continue
            if batch.offset >= 0 and at != batch.offset + batch.values.index(value):
                yield f"{value[:6]!r} is at {at}, and was acknowledged at {batch.offset}"
            one = batch.transaction
            if one is None or one in lost or one.outcome is Outcome.COMMIT or is_lost(one):
                continue
            state = "open" if one.outcome is None else "aborted"
            yield f"{state}, and shown: {value[:6]!r} at {at}"
        shown = offsets.keys() | self.replaced
        for value, batch in self.sent.items():
            if batch.offset < 0:
                continue
            at, one = batch.offset + batch.values.index(value), batch.transaction
            is_due = one is None or (one.outcome is Outcome.COMMIT and one.is_marked)
            if self.is_lossy and (one is None or not is_due):
                continue
            if at >= end:
                yield f"acknowledged at {at}, and the log ends at {end}: {value[:6]!r}"
            elif is_due and one not in lost and value not in shown:
                is_there = start <= at < min(stable, seen.refused_from)
                if is_there and not _within(at, gone) and (one is None or not is_lost(one)):
                    yield f"committed, and hidden: {value[:6]!r} at {at}"


def _within(offset: int, ranges: Ranges) -> bool:
    return any(begin <= offset < end for begin, end in ranges)

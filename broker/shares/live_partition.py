"""One group in one partition, in memory: who works on it, who waits, what is yet to be stored.

    share_partition.py   what became of each record: pure, and the larger part
    here                 which sessions fetch, which of them reads, what no event has said yet
    shares.py            when there is one: from the first fetch until nobody fetches from it and
                         nothing is acquired; it alone makes and drops them, and writes their events

One session at a time reads records (`is_read`), as what it reads it also acquires.  Others that
come meanwhile are `skipped`, and look again when it is done.  It stands among those who wait at the
partition (`fetches`), so that it hears of each record that becomes visible.

What could not be written down stays in `unwritten`, and goes with the next event; a restart before
that finds what was written last.  Of one that `is_gone` nothing is written: who still has it looks
for another.
"""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from segbroker.segments.metadata.share_groups import Span

from ..partitions.partition import Partition
from .share_partition import SharePartition
from .share_session import Place, ShareSession


class Key(NamedTuple):
    group_id: str
    topic_id: UUID
    partition: int


@dataclass(slots=True, eq=False)
class LivePartition:
    """One group in one partition, in memory.  It hears of the records of the partition."""

    key: Key
    topic: str
    partition: Partition
    part: SharePartition
    sessions: dict[ShareSession, None] = field(default_factory=dict)
    """Those whose members may have records of it; also of one that ended, until what its member
    has is taken back."""
    is_read: bool = False
    """Whether somebody reads what is to be handed out next."""
    skipped: dict[ShareSession, None] = field(default_factory=dict)
    """Who would have, too: looks again when that is over."""
    unwritten: list[Span] = field(default_factory=list)
    """What could not be written down; it goes with the next that is."""
    is_start_unwritten: bool = False
    """Whether the start could not be, perhaps: what lies below it is in no span any more."""
    writing: int = 0
    """Events under way."""
    is_gone: bool = False
    """Whether it was dropped: nothing is to be written of it any more."""
    counted: int = 0
    """Offsets from its start to its end, as the sum of all has them."""
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        self.place = Place(self.key.topic_id, self.key.partition)
        self.partition.fetches[self] = None

    def served_by(self, partition: Partition) -> None:
        """From now on; mostly it was before."""
        if partition is not self.partition:
            self.partition.fetches.pop(self, None)
            self.partition = partition
            partition.fetches[self] = None

    def drop(self) -> None:
        """It hears of no records any more; who fetches from it looks for another."""
        self.is_gone = True
        self.partition.fetches.pop(self, None)
        self.look_again()

    # As one of those who wait at the partition

    @property
    def waiting(self) -> int:
        """How many fetches wait for what may be in it."""
        return sum(len(one.waiters) for one in self.sessions if self.place in one.places)

    def wake(self, partition: Partition) -> int:
        """There may be more records."""
        self.look_again()
        return self.waiting

    def complete(self) -> None:
        """The topic goes, or the broker."""
        self.look_again()

    # Who fetches from it

    def look_again(self) -> None:
        """There may be more to acquire, or something to tell."""
        for session in self.sessions:
            session.look_again(self.place)

    def was_read(self) -> None:
        """Somebody else may read."""
        self.is_read = False
        skipped, self.skipped = self.skipped, {}
        for session in skipped:
            session.look_again(self.place)

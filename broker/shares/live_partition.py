"""One group in one partition, in memory: who works on it, who waits, and what is to be written."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from segbroker.segments.metadata.share_groups import Span

from ..partitions.partition import Partition
from .share_partition import SharePartition
from .share_session import Place, ShareSession


class ShareWaiter(Protocol):
    """Who waits for records of a share group."""

    def wake_share(self, live: "LivePartition") -> None:
        """There may be more to acquire in this partition than before."""


class Key(NamedTuple):
    group_id: str
    topic_id: UUID
    partition: int


@dataclass(slots=True, eq=False)
class LivePartition:
    """One group in one partition, in memory."""

    key: Key
    topic: str
    partition: Partition
    part: SharePartition
    sessions: set[ShareSession] = field(default_factory=set)
    """Those whose members may have records of it."""
    waiters: dict[ShareWaiter, None] = field(default_factory=dict)
    is_read: bool = False
    """Whether somebody reads what is to be handed out next."""
    skipped: dict[ShareWaiter, None] = field(default_factory=dict)
    """Who would have, too: looks again when that is over."""
    unwritten: list[Span] = field(default_factory=list)
    """What could not be written down; it goes with the next that is."""
    writing: int = 0
    """Events under way."""
    is_gone: bool = False
    """Whether it was dropped: nothing is to be written of it any more."""
    counted: int = 0
    """Offsets from its start to its end, as the sum of all has them."""
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        self.place = Place(self.key.topic_id, self.key.partition)

    def wake(self) -> None:
        """Let those who wait look again."""
        for waiter in tuple(self.waiters):
            waiter.wake_share(self)

    def was_read(self) -> None:
        """Somebody else may read."""
        self.is_read = False
        skipped, self.skipped = self.skipped, {}
        for waiter in skipped:
            waiter.wake_share(self)

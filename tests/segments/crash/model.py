"""What was promised so far, kept by the driver step by step: what every image is judged by.

    offsets    start          durable         acked           sent
               |--------------|---------------|---------------|
               in every image | in an image   | perhaps there,
                              | of a kill     | whole

A step that is under way allows both its outcomes (`start` is a range, a name is absent or there,
settings are old or new); when it has returned only one is left.  `version` rises with every
change, so that an image is judged once per promise.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from segbroker.segments.settings.topic_config import Durability


class Sent(NamedTuple):
    """A batch that was handed over; `batch` is patched in place when it gets its offset."""

    base_offset: int
    next_offset: int
    batch: memoryview
    producer: tuple[int, int, int]


@dataclass
class PartitionModel:
    """One partition of one life of a topic."""

    durability: Durability
    sent: list[Sent] = field(default_factory=list)
    acked: int = 0
    durable: int = 0
    """Below it nothing may be lost to a power cut: acked in class fsync, synced in class disk."""
    start_min: int = 0
    start_max: int = 0
    epoch_min: int = 0
    reserves_offsets: bool = True
    """Whether an acked offset is never given to another record, also after a power cut."""
    may_be_refused: bool = False
    """It was damaged while on.corruption=refuse: then it may be closed to everybody."""
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Offsets that a scenario destroyed: there, or in a gap of reason corruption."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Offsets that a crash the scenario went through has taken: nothing may be there but a gap."""
    is_unmarked: bool = False
    """The disk takes no mark of a failed sync: more may be told as lost behind a kill than is."""

    settled_at: int = -1
    """So many batches were sent when it was closed in order; if no more were, none is lost."""
    may_go: set[int] = field(default_factory=set)
    """Offsets that a cleaning may have taken: there, or not."""

    @property
    def is_settled(self) -> bool:
        return self.settled_at == len(self.sent)

    @property
    def end(self) -> int:
        return self.sent[-1].next_offset if self.sent else max(self.start_max, self.lost_end)

    @property
    def lost_end(self) -> int:
        return max((end for _, end in self.lost), default=0)


@dataclass
class Life:
    """A topic from its creation to its deletion."""

    partitions: list[PartitionModel]
    partitions_min: int
    configs: list[dict[str, str]]
    topic_id: bytes = b""


class Model:
    """Everything that was promised."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Life | None]] = {}
        """The lives that a name may have after a crash right now, the newest first; None: it may
        be absent."""
        self.identity = ""
        self.producer_ids = 0
        self.sections = {"{}"}
        """What may be known of groups and transactions right now (observing.text_of)."""
        self.version = 0

    def changed(self) -> None:
        self.version += 1

    def partition(self, topic: str, number: int) -> PartitionModel:
        """Of the newest life."""
        life = self.topics[topic][0]
        assert life is not None, f"{topic} is not there"
        return life.partitions[number]

"""Records of a share group's partition with one fate, and what is asked and told of them: values.

Limits            what holds for a group
Batch             what was read
Acquired          what was handed out
Acknowledgement   what a member says
Piece             neighbours with one fate; Block: what they were first handed out with
Change            what acknowledgements change, once that is durable
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from segbroker.segments.metadata.share_groups import RecordState, Span

from ..loop.loop_clock import NEVER_MS

AVAILABLE: Final = RecordState.AVAILABLE
ACQUIRED: Final = RecordState.ACQUIRED
ACKNOWLEDGED: Final = RecordState.ACKNOWLEDGED
ARCHIVED: Final = RecordState.ARCHIVED

# How a member acknowledges.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
# What becomes of a record by it; RENEW changes none.
FATES: Final = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}

_APART_LEAST: Final = 2


class Limits(NamedTuple):
    """What holds for a group."""

    locks: int
    """Offsets from the start to the end."""
    deliveries: int
    """Of a record; then it is archived."""
    lock_ms: int
    """How long an acquired record is one member's."""

    @property
    def apart(self) -> int:
        """The number of deliveries from which on a record comes with fewer others."""
        return max(_APART_LEAST, -(-self.deliveries // 2))


class Batch(NamedTuple):
    """Offsets of what was read, both ends included; whether they hold records for a reader, or
    records that were there are lost."""

    first: int
    last: int
    has_records: bool
    is_gap: bool = False


class Acquired(NamedTuple):
    """Records that are a member's now: both ends included."""

    first: int
    last: int
    deliveries: int


class Acknowledgement(NamedTuple):
    """What a member says of some offsets, both ends included: one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Block:
    """Records that were told of together when they were first handed out."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


class Piece:
    """Neighbours with one fate."""

    __slots__ = ("becomes", "block", "deliveries", "first", "last", "member", "state", "until_ms")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        deliveries: int,
        member: str = "",
        until_ms: int = NEVER_MS,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.member = member
        self.until_ms = until_ms
        self.block = Block(last - first + 1)
        # What it is to be as soon as that is durable.
        self.becomes: RecordState | None = None

    @property
    def is_free(self) -> bool:
        return self.state is AVAILABLE

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def same_fate(self, other: "Piece") -> bool:
        """Whether this one and its neighbour may be one piece."""
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.member == other.member
            and self.until_ms == other.until_ms
            and (self.block is other.block or self.state in (ACKNOWLEDGED, ARCHIVED))
            and self.becomes is None
            and other.becomes is None
        )

    def __repr__(self) -> str:
        return f"{self.first}-{self.last} {self.state.name.lower()} {self.deliveries}"


class Change(NamedTuple):
    """What acknowledgements change, once that is durable."""

    pieces: list[Piece]
    start: int
    """The first offset that is not done with, after it."""

    @property
    def spans(self) -> list[Span]:
        """What is to be written down."""
        return [
            Span(one.first, one.last, int(one.becomes), one.deliveries)
            for one in self.pieces
            if one.becomes is not None
        ]

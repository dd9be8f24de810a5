"""One assigned partition: where the caller stands, what is asked next, what is known of its log.

    position <= offset of what is ready <= fetch_offset
    caller      handed out by take          asked of the broker next

`generation` changes with every seek, and when the partition is given up: what was prefetched before
is stale.  A pause leaves it: what was prefetched waits for `resume`.
`round` changes also when the log itself says to go on elsewhere: what was prefetched is still
handed out, but a reply on its way is not taken in.

Whoever changes a field by which it is decided what is asked of whom has the partition looked at
anew: it is `touched`.  A consumer may have ten thousand, of which an answer changes a few.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from uuid import UUID

from segbroker.protocol.fields import ZERO_UUID

from .errors import SegbrokerError
from .records import Gap, TopicPartition
from .starting import Start

T = TypeVar("T")

_UNSET: Final = object()

EPOCHS_COUNT_MAX = 16


class _Deciding(property, Generic[T]):
    """A field, kept in a slot: who sets it to something else touches the partition."""

    def __init__(self, slot: str) -> None:
        def put(state: "PartitionState", value: T) -> None:
            if getattr(state, slot, _UNSET) is not value:
                state.touched[state] = None  # before: Ctrl-C may come in between
                setattr(state, slot, value)

        super().__init__(attrgetter(slot), put)

    if TYPE_CHECKING:  # a property's, and of what type

        def __get__(self, state: object, owner: type | None = None) -> T: ...  # type: ignore[override]
        def __set__(self, state: object, value: T) -> None: ...


class PartitionState:
    """See the module."""

    __slots__ = (
        "_backoff_until_ms",
        "_buffered_bytes",
        "_checked_epoch",
        "_epoch",
        "_fetch_offset",
        "_generation",
        "_high_watermark",
        "_is_stuck",
        "_paused",
        "_resolving",
        "_round",
        "_stop_offset",
        "_unserved",
        "end_offset",
        "epoch_below",
        "epochs",
        "failing_since_ms",
        "failures",
        "held",
        "is_confirmed",
        "opening",
        "position",
        "position_epoch",
        "start",
        "told_offset",
        "topic_id",
        "topics_ahead_count",
        "touched",
        "tp",
        "unknown_count",
    )

    backoff_until_ms = _Deciding[int]("_backoff_until_ms")
    buffered_bytes = _Deciding[int]("_buffered_bytes")
    checked_epoch = _Deciding[int]("_checked_epoch")
    epoch = _Deciding[int]("_epoch")
    fetch_offset = _Deciding[int]("_fetch_offset")
    generation = _Deciding[int]("_generation")
    high_watermark = _Deciding[int]("_high_watermark")
    is_stuck = _Deciding[bool]("_is_stuck")
    paused = _Deciding[bool]("_paused")
    resolving = _Deciding[bool]("_resolving")
    round = _Deciding[int]("_round")
    stop_offset = _Deciding[int | None]("_stop_offset")
    unserved = _Deciding[SegbrokerError | None]("_unserved")

    def __init__(
        self, tp: TopicPartition, start: Start, touched: "dict[PartitionState, None]"
    ) -> None:
        """touched: those that are to be looked at anew; this is one of them."""
        self.touched = touched
        self.tp = tp
        self.start = start
        self.position: int | None = None
        # Where the batch begins that was taken and not handed out yet: the position is behind it.
        self.opening: int | None = None
        self.fetch_offset = -1
        self.stop_offset = None
        self.high_watermark = -1
        self.buffered_bytes = 0
        self.generation = 0
        self.round = 0
        # A call is under way that decides where to go on.
        self.resolving = False
        self.paused = False
        # As paused, but not by the caller: it changes hands.
        self.held = False
        # The end for this reader, as the last fetch said: the last stable offset where it minds
        # transactions; and the leader epoch of the last batch below `position`.
        self.end_offset = -1
        self.position_epoch = -1
        # Out of range, and said so: nothing is fetched before the caller seeks.
        self.is_stuck = False
        # In a row, and since when.
        self.failures = 0
        self.failing_since_ms = 0
        self.unknown_count = 0
        # Why nobody serves it, as was said last.
        self.unserved = None
        self.backoff_until_ms = 0
        # The topic that is read; another id under the same name is another topic.
        self.topic_id: UUID = ZERO_UUID
        # How many topics of the name came since that which `position` is of.
        self.topics_ahead_count = 0
        # The broker has answered a fetch here: all below fetch_offset was in the log.
        self.is_confirmed = False
        # Leader epoch of the last batch before fetch_offset (-1: not known), and the leader epoch
        # under which it was last known to be there still.
        self.epoch = -1
        self.checked_epoch = -1
        # Of what was read without a break and is not lost: each leader epoch, and where its records
        # begin; and that of the last batch below all of these (-1: not known).
        self.epochs: list[tuple[int, int]] = []
        self.epoch_below = -1
        # A lost tail was reported up to here.
        self.told_offset = 0

    @property
    def version(self) -> tuple[int, int]:
        """What an answer has to be asked in that is about where to go on."""
        return self.generation, self.round

    @property
    def at_stop(self) -> bool:
        """Everything of a bounded reading has been fetched."""
        return self.stop_offset is not None and self.fetch_offset >= self.stop_offset

    def forget_log(self) -> None:
        """Nothing is known any more of what lies below fetch_offset."""
        self.is_confirmed = False
        self.epoch = -1
        self.checked_epoch = -1
        self.epochs = []
        self.epoch_below = -1
        self.told_offset = 0

    def was_read_in(self, epoch: int) -> None:
        """All below the position was in the log, the last of it in this leader epoch (-1: not
        known)."""
        self.is_confirmed = True
        self.epoch = self.epoch_below = self.position_epoch = epoch

    def forget_from(self, offset: int) -> None:
        """Of what lies at an offset and behind it nothing is known any more: it is read again."""
        if self.epochs:
            self.epochs = [(epoch, start) for epoch, start in self.epochs if start < offset]
            self.epoch = self.epochs[-1][0] if self.epochs else self.epoch_below

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """What is read from `offset` on is of another leader epoch."""
        self.epoch = epoch
        self.epochs.append((epoch, offset))
        if len(self.epochs) > EPOCHS_COUNT_MAX:
            self.epoch_below, _ = self.epochs.pop(0)

    def is_ahead_of(self, leader_epoch: int) -> bool:
        """Whether the last record is of an epoch that the leader, in `leader_epoch`, has not come
        to, though it had: `checked_epoch` vouches for an epoch, as no checksum does."""
        return (
            0 <= leader_epoch < self.epoch <= self.checked_epoch
            and bool(self.epochs)
            and self.epochs[-1][0] == self.epoch
        )


@dataclass(slots=True)
class Fetched:
    """What waits for the caller: a batch, or a gap; neither: only the position moves."""

    state: PartitionState
    generation: int
    from_offset: int
    next_offset: int
    size: int = 0
    data: bytes | None = None
    gap: Gap | None = None
    leader_epoch: int = -1
    stop_offset: int | None = None
    """Of a bounded reading, in the log that the batch is of: the next log has another."""
    is_stored: bool = False
    """It is in the log, a batch or a gap: who asks again at `from_offset` gets it again."""

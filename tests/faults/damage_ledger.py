"""What those who write to a partition know of it, and what a reader finds there.

Of each acknowledged record: it is there as it was written, once, or its offset is in a gap, or what
is asked says that it is not served.  A transaction whose marker is there ended as the marker says.
"""

from dataclasses import dataclass, field
from typing import Final

from segbroker.protocol.markers import Outcome, marker_outcome
from segbroker.protocol.record_batch import decode_batch, gap_reason, iter_batches, read_header
from segbroker.segments.errors import SegmentReplaced, StorageError
from segbroker.segments.partition.handler import DiskHandler

from ..segments.tools import read_once

REPAIRS_MAX: Final = 16
MARKER: Final = b"marker"


@dataclass
class Transaction:
    """One, of the producer of its partition."""

    producer: int
    rows: dict[int, bytes] = field(default_factory=dict)
    """Its acknowledged records."""
    outcome: Outcome | None = None
    """That was asked for; None: it is open."""
    marker: int = -1
    """The offset of the acknowledged marker."""

    @property
    def marked(self) -> bytes:
        """What stands for its marker among the values."""
        assert self.outcome is not None, "asked for"
        return b"%s %d of %d" % (MARKER, self.outcome, self.producer)


@dataclass(frozen=True)
class Request:
    """A batch, as its producer sends it until it has the answer."""

    batch: bytes
    values: list[bytes]
    producer: int = -1
    transaction: Transaction | None = None

    @property
    def is_marker(self) -> bool:
        """Whether it ends its transaction."""
        return self.values[0].startswith(MARKER)


@dataclass
class Ledger:
    """One partition, as those know it who have written to it."""

    sent: dict[bytes, bytes] = field(default_factory=dict)
    """Value -> key."""
    times_ms: dict[bytes, int] = field(default_factory=dict)
    """Value -> timestamp."""
    acked: dict[int, bytes] = field(default_factory=dict)
    floor: int = 0
    """Records below it were deleted, or that was asked for."""
    written: set[int] = field(default_factory=set)
    """In this life."""
    kept: set[int] = field(default_factory=set)
    """What the write-ahead log has of this life; what it had at the end of the last one."""
    due: set[int] = field(default_factory=set)
    recalled: set[int] = field(default_factory=set)
    """What it had when a file was removed or cut, and what was read from a file that was open."""
    open: set[int] = field(default_factory=set)
    """What is in a file that is open and not at its path; nobody has looked yet."""
    is_hideable: bool = False
    """Whether an append hides from every look what was done to the file that is written."""
    said: set[int] = field(default_factory=set)
    """What was found to be lost already."""
    producer: int = -1
    sequence: int = 0
    is_intact: bool = True
    """Whether everything of the present producer was acknowledged, and nothing of it was missed."""
    unanswered: Request | None = None
    last: Request | None = None
    """The last that was acknowledged of the producer, who may send it again."""
    transactions: list[Transaction] = field(default_factory=list)

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that has not ended."""
        last = self.transactions[-1] if self.transactions else None
        return last if last is not None and last.outcome is None else None

    def begin_producer(self, producer: int) -> None:
        """Another one writes from here on."""
        self.producer, self.sequence, self.is_intact = producer, 0, True
        self.unanswered = self.last = None


@dataclass
class Found:
    """A partition, as a reader sees it."""

    rows: list[tuple[int, bytes]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    excused: list[tuple[int, int]] = field(default_factory=list)
    """Offsets in gaps, and those that are refused."""
    refused: int = 0
    """Reads that were."""


def read_out(handler: DiskHandler, ledger: Ledger) -> Found:
    """Everything from the log start on; over a refusal to the next record that was acknowledged."""
    found = Found()
    offset, end = handler.log_start_offset, handler.high_watermark
    repairs = 0
    while offset < end:
        try:
            data = read_once(handler, offset)
        except SegmentReplaced:
            repairs += 1
            if repairs > REPAIRS_MAX:
                raise AssertionError(f"repaired again and again at {offset}") from None
            continue
        except (StorageError, OSError):
            following = min((one for one in ledger.acked if one > offset), default=end)
            found.excused.append((offset, following))
            found.refused += 1
            offset = following
            continue
        before = offset
        offset = take(found, data, before)
        if offset == before:
            break
    return found


def take(found: Found, data: bytes, offset: int) -> int:
    """What a read from `offset` on has given; where the next one begins."""
    begin = offset
    for batch in iter_batches(data):
        header = read_header(batch)
        outcome = marker_outcome(header, batch)
        if outcome is not None:
            marked = Transaction(header.producer_id, outcome=outcome).marked
            found.rows.append((header.base_offset, marked))
        elif header.is_control:
            assert gap_reason(header) is not None, "a control batch that is no gap"
            found.excused.append((header.base_offset, header.next_offset))
            found.gaps.append((header.base_offset, header.next_offset))
        else:
            decoded = decode_batch(batch)
            rows = zip(decoded.offsets(), decoded.values(), strict=True)
            found.rows += [(at, value or b"") for at, value in rows if at >= begin]
        offset = header.next_offset
    return offset


def wrong_look_up(handler: DiskHandler, ledger: Ledger, found: Found, time_ms: int) -> str:
    """What a search by time tells wrongly; empty: nothing.  Of a partition without markers."""
    times = [(at, ledger.times_ms[value]) for at, value in found.rows if value in ledger.times_ms]
    expected = next((one for one in times if one[1] >= time_ms), None)
    try:
        looked_up = handler.offset_for_timestamp(time_ms)
    except (StorageError, OSError):
        return ""
    if looked_up is not None and looked_up[0] >= handler.high_watermark:
        looked_up = None  # nobody is told of that yet
    if found.rows and looked_up != expected:
        return f"first record from {time_ms} on: {looked_up}, not {expected}"
    return ""


def stored_twice(found: Found) -> list[bytes]:
    """Values that are there under two offsets."""
    seen: set[bytes] = set()
    twice = []
    for _, value in found.rows:
        if value in seen and not value.startswith(MARKER):
            twice.append(value)
        seen.add(value)
    return twice


def wrong_transactions(handler: DiskHandler, ledger: Ledger, there: dict[int, bytes]) -> str:
    """What readers of committed records see wrongly; empty: nothing.

    Where a marker is lost, what is left of the transactions may be taken for another's.
    """
    stable, aborted = handler.last_stable_offset, list(handler.transactions.aborted)
    ended = [one for one in ledger.transactions if one.outcome is not None]
    start = handler.log_start_offset
    if any(one.marker >= start and there.get(one.marker) != one.marked for one in ended):
        return ""
    for one in ledger.transactions:
        if one.outcome is not None and one.marker < start:
            continue  # or nobody has heard of its marker
        for offset, value in one.rows.items():
            if there.get(offset) != value:
                continue
            is_aborted = any(
                row.producer_id == one.producer and row.first_offset <= offset < row.last_offset
                for row in aborted
            )
            if one.outcome is Outcome.ABORT and not is_aborted and offset < stable:
                return f"{offset} was aborted, and is shown"
            if one.outcome is not Outcome.ABORT and is_aborted:
                return f"{offset} was not aborted, and is hidden"
            if one.outcome is None and offset < stable:
                return f"{offset} is of an open transaction, and is shown"
    return ""

"""Which transactions in segment files were committed: the next marker of their producer says so.

    batches      T1  T1  T2  .   T1  C1  T2  A2          C commits, A aborts
    decided      C   C   A       C       A

No sealed file lists the aborted transactions, but each of their markers stands in the log, behind
the batches.  So the headers of the range are read once before its records, and on behind its end
until every transaction that the range has a batch of has met its marker.

Invariant: nothing is decided across a place where batches are missing (a gap, a cleaned segment,
the end of the sealed segments): a marker may be missing with them.  What stays open there, and all
behind its first batch, is left to the broker.
"""

from contextlib import closing, suppress
from dataclasses import dataclass

from segbroker.protocol.markers import Outcome, marker_outcome
from segbroker.protocol.record_batch import gap_reason, iter_batches, read_header

from .offsets import OffsetRange
from .segment_files import SegmentFiles, Unreadable

# Markers may stand behind the range, as far as there are segments.
_ANY_END = 1 << 62


@dataclass(frozen=True, slots=True)
class Decided:
    """What is known of the offsets from the beginning of a range to `until`.

    aborted: (first offset, producer id), in order; each ends with the producer's next marker.
    """

    aborted: list[tuple[int, int]]
    until: int

    def cut(self, run: memoryview) -> memoryview:
        """The whole batches of a run that begin before `until`."""
        size = 0
        for view in iter_batches(run):
            if read_header(view).base_offset >= self.until:
                break
            size += len(view)
        return run[:size]


def has_transactions(run: memoryview) -> bool:
    return any(read_header(view).is_transactional for view in iter_batches(run))


def decide(files: SegmentFiles, wanted: OffsetRange) -> Decided:
    """What the sealed segments say of the transactions in the range."""
    undecided: dict[int, int] = {}  # first offset by producer id
    aborted: list[tuple[int, int]] = []
    position: int | None = None
    whole = OffsetRange(wanted.topic, wanted.partition, wanted.start, _ANY_END)
    # What is unreadable whoever reads the records meets again, and says it.
    with suppress(Unreadable), closing(files.runs(whole)) as runs:
        for run in runs:
            for view in iter_batches(run):
                header = read_header(view)
                if header.next_offset <= wanted.start:
                    continue
                missing = position is not None and header.base_offset != position
                if missing or gap_reason(header) is not None:
                    return _as_far(undecided, aborted, wanted, position)
                position = header.next_offset
                outcome = marker_outcome(header, view)
                if outcome is not None:
                    first = undecided.pop(header.producer_id, None)
                    if first is not None and outcome is Outcome.ABORT:
                        aborted.append((first, header.producer_id))
                elif header.is_transactional and header.base_offset < wanted.end:
                    undecided.setdefault(header.producer_id, header.base_offset)
                if position >= wanted.end and not undecided:
                    return Decided(sorted(aborted), wanted.end)
    return _as_far(undecided, aborted, wanted, position)


def _as_far(
    undecided: dict[int, int],
    aborted: list[tuple[int, int]],
    wanted: OffsetRange,
    position: int | None,
) -> Decided:
    until = min([wanted.end, wanted.start if position is None else position, *undecided.values()])
    return Decided(sorted(aborted), until)

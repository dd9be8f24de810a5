"""The rows of a manifest, in the order in which they were written, by what they say of the log.

A row of a segment that does not follow the one before it stands for those of a cleaning, in whose
place it comes.  One that fits nowhere ends what is believed: from there on files are scanned.
"""

from bisect import bisect_left
from typing import NamedTuple

from ..files.clean_points import Point
from ..files.manifest import Manifest, Row, RowKind
from .unfinished import Swap


class ManifestRows(NamedTuple):
    """The rows of a manifest by what they say."""

    segments: list[Row]
    start: Row | None
    epochs: list[tuple[int, int]]
    checkpoint: Row | None
    points: list[Point]
    swap: Swap | None
    """The last row that stands for others."""
    swaps_behind: bool
    """Whether it came behind the last checkpoint."""
    is_settled: bool
    """Whether a checkpoint is behind all that a crash may have left unfinished: what a log start
    has made superfluous is gone, and the last swap is done."""
    is_whole: bool
    """Whether all rows were used."""


def sort_rows(manifest: Manifest) -> ManifestRows:
    """What the rows say together; nothing on the disk is looked at."""
    segments: list[Row] = []
    start: Row | None = None
    checkpoint: Row | None = None
    epochs: list[tuple[int, int]] = []
    points: list[Point] = []
    swap: Swap | None = None
    swaps_behind = is_settled = False
    is_whole = True
    for row in manifest.rows:
        match row.kind:
            case RowKind.SEGMENT if not segments or (
                row.number > segments[-1].number and row.base_offset == segments[-1].end_offset
            ):
                segments.append(row)
            case RowKind.SEGMENT:
                found = _replaced(segments, row)
                if found is None:
                    is_whole = False  # scan from here
                    break
                swap, swaps_behind = Swap(row, segments[found]), True
                segments[found], is_settled = [row], False
            case RowKind.START:
                start, is_settled = row, False
            case RowKind.CHECKPOINT:
                checkpoint, swaps_behind, is_settled = row, False, True
            case RowKind.EPOCH:
                epochs.append((row.leader_epoch, row.base_offset))
            case RowKind.CLEANED:
                points.append(Point(row.end_offset, row.max_timestamp))
    return ManifestRows(
        segments, start, epochs, checkpoint, points, swap, swaps_behind, is_settled, is_whole
    )


def _replaced(rows: list[Row], row: Row) -> slice | None:
    """The rows that a cleaned segment stands for; None when it is no such segment."""
    first = bisect_left(rows, row.base_offset, key=lambda each: each.base_offset)
    last = bisect_left(rows, row.number, key=lambda each: each.number)
    if first > last or last >= len(rows) or rows[first].base_offset != row.base_offset:
        return None
    if (rows[last].number, rows[last].end_offset) != (row.number, row.end_offset):
        return None
    return slice(first, last + 1)

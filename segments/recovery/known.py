"""What a log's manifest says of it, as recovery needs it: read, checked, written anew.

    manifest whole          its segments are not touched at start
    a row torn              those in front of it are used, the rest is scanned
    rows damaged            the same; where the first files are gone, a later row has said so
                            so it is where a file has the offsets of several: a cleaning merged
                            them, and all from the first of them on is scanned
    missing, empty          None: everything is scanned
    wrong header            None as well, and told
    of another owner        the same: swapped, or copied in; see `is_of_another`
    of another log          None as well, see `disagrees`
    without the START row   that its copy has, so perhaps without others: as damaged
    without a SEGMENT row   of a cleaning, whose file has the offsets of several, gone: the same
    a cleaning interrupted  its last decision is followed, or taken back (unfinished.py)

A manifest of an earlier version has no owner in it.  So one that was swapped or copied in is found
by what it says, too: the last segment of its rows is compared with the file of that number, and
where that is a whole segment of other offsets, a few more.  Only when most of them are is the
manifest the wrong one: a single such file was copied in itself, and a damaged one says nothing
about the manifest.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

import structlog

from segbroker.protocol.record_batch import GapReason

from ..decisions import Tail, base_header, scan
from ..disk.relieving import NoDescriptor
from ..disk.storage import Storage, put_file, read_file, write_temporary
from ..files.clean_points import NEVER_CLEANED, CleanPoints, Point
from ..files.manifest import (
    NO_FLOOR,
    Floor,
    Manifest,
    Row,
    RowKind,
    decode_manifest,
    encode_manifest,
    floor_of,
    is_torn_row,
)
from ..log.columns import SealedSegments
from ..log.producers import decode_producers
from ..names import LogPaths
from .unfinished import Swap, SwapState, head_of, state_of

log = structlog.get_logger()

NO_SEGMENT: Final = -1
UNREADABLE: Final = (-1, -1)
SAMPLES: Final = 4
"""Segment files of which most have to be others before a manifest is not believed."""


class Known(NamedTuple):
    """What the manifest says."""

    sealed: SealedSegments
    log_start_offset: int
    """-1: nobody knows; where the first segment begins."""
    epochs: list[tuple[int, int]]
    checkpoint: Row | None
    size: int
    """Valid bytes of the file; 0: it has to be written anew."""
    start: Row | None = None
    deletes: bool = False
    """Whether segments in front of the first may still be there: no checkpoint came since."""
    floor: Floor = NO_FLOOR
    cleaned: CleanPoints = NEVER_CLEANED
    pending: int | None = None
    """The segment whose new file has not its name yet: the one in .cleaned is the segment."""
    swapped: Row | None = None
    """The last segment that came to stand for others since the last checkpoint."""
    owner: int = 0
    """Whose it is (names.owner_of); 0: it is of an earlier version."""
    is_cut: bool = False
    """Whether rows that were synced are missing behind those that are there: `start` is the copy of
    one, or a file says that a cleaning made one segment of several."""
    last_file: int = NO_SEGMENT
    """The highest number of a segment that has a file."""

    @property
    def knows_base(self) -> bool:
        """Whether the base offset of the first segment is known, sealed or not."""
        return len(self.sealed) > 0 or (self.start is not None and self.start.max_timestamp >= 0)


def read_known(storage: Storage, paths: LogPaths) -> Known | None:
    """What the manifest says; None when there is none or its header is wrong.  Raises OSError."""
    try:
        data = read_file(storage, paths.manifest)
    except FileNotFoundError:
        return None
    if not data:
        # Of a new log: made, and not written yet by who opens it beside us, or before a crash.
        # Where there are records all the same, recovery says that it is rebuilt (survey.py).
        return None
    manifest = decode_manifest(data)
    if manifest is None:
        log.warning("manifest_unreadable", path=paths.manifest, bytes=len(data))
        return None
    if not _is_of(paths, manifest):
        log.warning("manifest_of_another_log", path=paths.manifest)
        return None
    sorted_rows = _sort_rows(manifest)
    rows, start, epochs, checkpoint = sorted_rows[:4]
    kinds = [row.kind for row in manifest.rows if row.kind in (RowKind.START, RowKind.CHECKPOINT)]
    is_settled = kinds[-1:] == [RowKind.CHECKPOINT] and not sorted_rows.swaps_behind
    is_whole, pending = sorted_rows.is_whole, None
    lost = _lost_start(storage, paths, 0 if start is None else start.base_offset)
    if lost is not None:
        start, is_settled, is_whole = lost, False, False
    first = start.number if start is not None else (rows[0].number if rows else 0)
    swap = sorted_rows.swap
    if swap is not None and swap.row.number < first:
        swap = None  # it is out of the log, whatever it stood for
    if swap is not None and not is_settled:
        match state_of(storage, paths, swap):
            case SwapState.WAITING:
                pending = swap.row.number
            case SwapState.UNDONE:
                place = rows.index(swap.row)
                rows[place : place + 1] = swap.replaced
                is_whole = False  # the row goes with the file that it is in
    log_start_offset = start.base_offset if start is not None else 0
    rows = [row for row in rows if row.number >= first]
    if lost is not None and rows and lost.max_timestamp not in (-1, rows[0].base_offset):
        rows = []  # the first was made of several since then
    # Rows behind a damaged one would be unreachable for ever: the file is written anew.
    size = manifest.size if is_whole and manifest.size == len(data) else 0
    is_torn = is_whole and is_torn_row(data[manifest.size :])
    present = _present(storage, paths)
    merged, valid = _before_merged(storage, paths, rows, present, is_torn=is_torn)
    is_merged = merged < len(rows)
    if is_merged:
        front = SealedSegments(first, rows[0].base_offset)
        front.fill(rows[:merged])
        if _disagrees(storage, paths, front, pending):
            return None  # of another log, whose offsets are those of ours by chance
        rows, size = rows[:valid], 0
        if checkpoint is not None:  # it vouches for its end; a cleaning may have gone over the rest
            checkpoint = checkpoint._replace(number=NO_SEGMENT)
    base_offset = log_start_offset
    if rows:
        base_offset = rows[0].base_offset
    elif start is not None and start.max_timestamp >= 0:
        base_offset = start.max_timestamp
    sealed = SealedSegments(first, base_offset)
    sealed.fill(rows)
    floor = floor_of(start)
    if not size:
        gone = 0
        if not is_torn:
            places = (place for place, row in enumerate(rows) if row.number in present)
            gone = next(places, len(rows))
        if start is None or (not is_merged and present and min(present) > sealed.next_number):
            return None  # too little of it is left to say where the log begins
        if gone:
            sealed.drop_front(gone)
            if sealed.first_base_offset > log_start_offset:
                log_start_offset = sealed.first_base_offset
                floor = Floor(log_start_offset, GapReason.CORRUPTION)
    cleaned = CleanPoints(sorted_rows.points)
    return Known(
        sealed,
        log_start_offset,
        epochs,
        checkpoint,
        size,
        start,
        not is_settled,
        floor,
        cleaned,
        pending,
        swap.row if swap is not None and sorted_rows.swaps_behind else None,
        manifest.owner,
        lost is not None or is_merged,
        max(present, default=NO_SEGMENT),
    )


def _before_merged(
    storage: Storage, paths: LogPaths, rows: list[Row], present: set[int], *, is_torn: bool
) -> tuple[int, int]:
    """How many of the rows, in front of a damaged one or of those that were cut off, were made part
    of no other segment; and how many say what is there.

    The row of a cleaning that made one segment of several may be among those that are lost: then
    the offsets of some of these are in a file behind them, whether they are still there or not.
    The same cleaning may have written others anew, each by itself: from the first of them on
    nothing is believed, either.
    Costs nothing where every row has its file, and nothing is damaged but what a crash tore: behind
    a row that was not durable no file has got its name.
    """
    if is_torn and all(row.number in present for row in rows):
        return len(rows), len(rows)
    places = {row.base_offset: place for place, row in enumerate(rows)}
    heads = {number: _head_of(storage, paths.log(number)) for number in present}
    merged = min(
        (
            places[base]
            for number, (_, base) in heads.items()
            if base in places and rows[places[base]].number < number
        ),
        default=len(rows),
    )
    differing = (
        place
        for place, row in enumerate(rows[:merged])
        if heads.get(row.number, UNREADABLE) not in (UNREADABLE, (row.size, row.base_offset))
    )
    return merged, next(differing, merged)


def _head_of(storage: Storage, path: str) -> tuple[int, int]:
    """As `head_of`, but UNREADABLE where the disk does not give it.  Raises NoDescriptor."""
    try:
        return head_of(storage, path)
    except NoDescriptor:
        raise
    except OSError:
        return UNREADABLE  # no reason to do without the rest


def _lost_start(storage: Storage, paths: LogPaths, log_start_offset: int) -> Row | None:
    """The copy of a START row that the manifest, which says that the log begins at
    `log_start_offset`, has lost: it was synced before the copy was made.  None: it has lost none,
    as far as anybody knows.  Raises NoDescriptor."""
    if not storage.exists(paths.start):
        return None  # so it is in nearly every log
    try:
        copy = read_start_copy(storage, paths)
    except NoDescriptor:
        raise
    except OSError:
        return None  # no reason to do without the manifest
    return copy if copy is not None and copy.base_offset > log_start_offset else None


def read_start_copy(storage: Storage, paths: LogPaths) -> Row | None:
    """The second copy of the last log start that a request has set; None without one.

    Raises OSError.
    """
    try:
        manifest = decode_manifest(read_file(storage, paths.start))
    except FileNotFoundError:
        return None
    rows = manifest.rows if manifest is not None and _is_of(paths, manifest) else []
    return rows[0] if len(rows) == 1 and rows[0].kind == RowKind.START else None


def _is_of(paths: LogPaths, manifest: Manifest) -> bool:
    """Whether it is this log's, as far as anybody says."""
    return not paths.owner or manifest.owner in (0, paths.owner)


def is_of_another(storage: Storage, paths: LogPaths, first_epoch: int) -> bool:
    """Whether the whole directory is another's, put here by hand.  Raises OSError.

    The manifest has another owner, and no snapshot of the producers says that the rest is ours: it
    is of another data directory.  Or the segments are of a leader epoch before `first_epoch`, the
    first one of this topic: it is that of an earlier topic of the same name.
    """
    try:
        manifest = decode_manifest(read_file(storage, paths.manifest))
    except FileNotFoundError:
        return False
    if manifest is None or _is_of(paths, manifest):
        return False
    try:
        producers = read_file(storage, paths.producers)
    except FileNotFoundError:
        return True
    if decode_producers(producers, paths.owner) is None:
        return True
    for number in sorted(_present(storage, paths)):
        header = base_header(memoryview(read_file(storage, paths.log(number))))
        if header is not None:
            return header.leader_epoch < first_epoch
    return False


def disagrees(storage: Storage, paths: LogPaths, known: Known) -> bool:
    """Whether the manifest speaks of another log: its last segments are whole, and others.

    Costs one open of a file while they agree.
    """
    return _disagrees(storage, paths, known.sealed, known.pending)


def _disagrees(
    storage: Storage, paths: LogPaths, sealed: SealedSegments, pending: int | None
) -> bool:
    numbers = _sample(storage, paths, sealed, pending)
    others = sum(
        number != pending and _is_another(storage, paths, sealed, number) for number in numbers
    )
    return 2 * others > len(numbers)


def _is_another(storage: Storage, paths: LogPaths, sealed: SealedSegments, number: int) -> bool:
    """Whether a segment file is whole, and not the one that the manifest speaks of."""
    place = sealed.place_of(number)
    assert place is not None, "one of its own"
    base_offset, size = sealed.base_offsets[place], sealed.sizes[place]
    path = paths.log(number)
    try:
        if head_of(storage, path) == (size, base_offset):
            return False
        found = scan(memoryview(read_file(storage, path)), None)
    except NoDescriptor:
        raise
    except OSError:
        return False  # it cannot be read: who reads its records is told
    if found.tail is not Tail.WHOLE or not found.batches:
        return False
    return (found.first_offset, found.next_offset) != (base_offset, sealed.end_of(place))


def _sample(
    storage: Storage, paths: LogPaths, sealed: SealedSegments, pending: int | None
) -> list[int]:
    """Segments of the manifest that have a file: the last when it agrees, or a few."""
    if not len(sealed):
        return []
    last = sealed.next_number - 1
    if storage.exists(paths.log(last)) and (
        last == pending or not _is_another(storage, paths, sealed, last)
    ):
        return [last]
    return sorted(_present(storage, paths).intersection(sealed.numbers))[-SAMPLES:]


def _present(storage: Storage, paths: LogPaths) -> set[int]:
    """The numbers of the segments that have a file."""
    numbers = map(paths.segment_number, storage.listdir(paths.folder))
    return {number for number in numbers if number is not None}


def write_known(
    storage: Storage,
    paths: LogPaths,
    sealed: SealedSegments,
    epochs: list[tuple[int, int]],
    start: Row,
    now_ms: int,
    cleaned: CleanPoints,
    checkpoint: Row | None,
    *,
    is_new: bool,
) -> int:
    """Put a manifest without history in the place of the old one; its size.  Its name is not
    synced yet.  checkpoint: one that goes on vouching for the log as it is.  is_new: there is
    none that could be lost, so this one is not synced, either."""
    rows = [
        *(Row(RowKind.EPOCH, leader_epoch=epoch, base_offset=begin) for epoch, begin in epochs),
        start,
        *cleaned.rows(),
        *sealed.rows(),
        *([] if checkpoint is None else [checkpoint]),
    ]
    encoded = encode_manifest(now_ms, rows, paths.owner)
    if is_new:
        write_temporary(storage, paths.manifest, encoded, synced=False)
    else:
        put_file(storage, paths.manifest, encoded)
    return len(encoded)


class _Sorted(NamedTuple):
    """The rows of a manifest by what they say."""

    rows: list[Row]
    start: Row | None
    epochs: list[tuple[int, int]]
    checkpoint: Row | None
    points: list[Point]
    swap: Swap | None
    """The last row that stands for others."""
    swaps_behind: bool
    """Whether it came behind the last checkpoint."""
    is_whole: bool
    """Whether all rows were used."""


def _sort_rows(manifest: Manifest) -> _Sorted:
    rows: list[Row] = []
    start: Row | None = None
    checkpoint: Row | None = None
    epochs: list[tuple[int, int]] = []
    points: list[Point] = []
    swap: Swap | None = None
    swaps_behind = False
    is_whole = True
    for row in manifest.rows:
        match row.kind:
            case RowKind.SEGMENT if not rows or (
                row.number > rows[-1].number and row.base_offset == rows[-1].end_offset
            ):
                rows.append(row)
            case RowKind.SEGMENT:
                found = _replaced(rows, row)
                if found is None:
                    is_whole = False  # scan from here
                    break
                swap, swaps_behind = Swap(row, rows[found]), True
                rows[found] = [row]
            case RowKind.START:
                start = row
            case RowKind.CHECKPOINT:
                checkpoint, swaps_behind = row, False
            case RowKind.EPOCH:
                epochs.append((row.leader_epoch, row.base_offset))
            case RowKind.CLEANED:
                points.append(Point(row.end_offset, row.max_timestamp))
    return _Sorted(rows, start, epochs, checkpoint, points, swap, swaps_behind, is_whole)


def _replaced(rows: list[Row], row: Row) -> slice | None:
    """The rows that a cleaned segment stands for; None when it is no such segment."""
    first = bisect_left(rows, row.base_offset, key=lambda each: each.base_offset)
    last = bisect_left(rows, row.number, key=lambda each: each.number)
    if first > last or last >= len(rows) or rows[first].base_offset != row.base_offset:
        return None
    if (rows[last].number, rows[last].end_offset) != (row.number, row.end_offset):
        return None
    return slice(first, last + 1)

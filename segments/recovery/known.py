"""What a log's manifest says of it, as recovery needs it: read, checked, written anew.

    manifest whole          its segments are not touched at start
    a row torn              those in front of it are used, the rest is scanned
    rows damaged            the same; where the first files are gone, a later row has said so
                            so it is where a file has the offsets of several: a cleaning merged
                            them, and all from the first of them on is scanned
    missing, empty          None: everything is scanned
    wrong header            None as well, and told by who opens the log
    of another owner        the same: swapped, or copied in (ownership.py)
    of another log          None as well, see `ownership.disagrees`
    without the START row   that its copy has, so perhaps without others: as damaged
    without a SEGMENT row   of a cleaning, whose file has the offsets of several, gone: the same
    a cleaning interrupted  its last decision is followed, or taken back (unfinished.py)

What the rows say is put together first (manifest_rows.py).  Then one step after the other takes
back what the disk belies (`_Reading`).
"""

from typing import Final, NamedTuple

from segbroker.protocol.record_batch import GapReason

from ..disk.relieving import NoDescriptor
from ..disk.storage import Storage, put_file, read_file, write_temporary
from ..files.clean_points import NEVER_CLEANED, CleanPoints
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
from ..names import LogPaths
from .manifest_rows import ManifestRows, sort_rows
from .ownership import disagrees, is_of, segment_files
from .unfinished import SwapState, head_of, state_of

NO_SEGMENT: Final = -1
UNREADABLE: Final = (-1, -1)


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
    """What the manifest says; None when there is none, or nothing of it can be believed.

    Raises OSError.
    """
    try:
        data = read_file(storage, paths.manifest)
    except FileNotFoundError:
        return None
    manifest = _decoded(paths, data)
    if manifest is None:
        return None
    found = sort_rows(manifest)
    reading = _Reading(storage, paths, found)
    reading.take_lost_start()
    reading.follow_swap()
    reading.begin_at_start()
    is_torn = reading.is_whole and is_torn_row(data[manifest.size :])
    present = segment_files(storage, paths)
    if not reading.leave_merged(present, is_torn=is_torn):
        return None
    start, sealed = reading.start, reading.sealed()
    # Rows behind a damaged one would be unreachable for ever: the file is written anew.
    size = manifest.size if reading.is_whole and manifest.size == len(data) else 0
    if not size and not reading.says_where_it_begins(sealed, present):
        return None
    log_start_offset, floor = 0 if start is None else start.base_offset, floor_of(start)
    gone = 0 if size or is_torn else reading.missing_in_front(present)
    if gone:
        sealed.drop_front(gone)
        if sealed.first_base_offset > log_start_offset:
            log_start_offset = sealed.first_base_offset
            floor = Floor(log_start_offset, GapReason.CORRUPTION)
    return Known(
        sealed,
        log_start_offset,
        found.epochs,
        reading.checkpoint,
        size,
        start,
        not reading.is_settled,
        floor,
        CleanPoints(found.points),
        reading.pending,
        reading.swap.row if reading.swap is not None and found.swaps_behind else None,
        manifest.owner,
        reading.is_cut,
        max(present, default=NO_SEGMENT),
    )


def has_other_bytes(storage: Storage, paths: LogPaths) -> bool:
    """Whether there is a manifest that is none.  An empty one is that of a new log: made, and not
    written yet before a crash.  Raises OSError."""
    try:
        data = read_file(storage, paths.manifest)
    except FileNotFoundError:
        return False
    return bool(data) and decode_manifest(data) is None


def _decoded(paths: LogPaths, data: bytearray) -> Manifest | None:
    """The manifest in a file, if it is one, and this log's.  What becomes of another who opens the
    log tells: it is looked at again and again where it cannot be opened."""
    manifest = decode_manifest(data)
    return manifest if manifest is not None and is_of(paths, manifest) else None


class _Reading:
    """A manifest while it is read: what is believed of it so far.  Its steps raise OSError."""

    def __init__(self, storage: Storage, paths: LogPaths, found: ManifestRows) -> None:
        """found: what its rows say, of which each step takes back some."""
        self._storage = storage
        self._paths = paths
        self.rows = found.segments
        self.start = found.start
        self.checkpoint = found.checkpoint
        self.swap = found.swap
        self.is_settled = found.is_settled
        self.is_whole = found.is_whole
        """Whether all of it holds, so that it may be written on."""
        self.is_cut = False
        self.pending: int | None = None
        self._is_merged = False

    @property
    def first(self) -> int:
        """The number of the first segment."""
        if self.start is not None:
            return self.start.number
        return self.rows[0].number if self.rows else 0

    @property
    def _base_offset(self) -> int | None:
        """Where that begins; None if no START row says so: one of an earlier version does not."""
        if self.start is None or self.start.max_timestamp < 0:
            return None
        return self.start.max_timestamp

    def take_lost_start(self) -> None:
        """Where the manifest has lost a START row that was synced: its copy stands for it."""
        begin = 0 if self.start is None else self.start.base_offset
        lost = _lost_start(self._storage, self._paths, begin)
        if lost is not None:
            self.start, self.is_cut = lost, True
            self.is_settled = self.is_whole = False

    def follow_swap(self) -> None:
        """The last cleaning, unless it is known to be done, is as far as its files say."""
        if self.swap is not None and self.swap.row.number < self.first:
            self.swap = None  # it is out of the log, whatever it stood for
        if self.swap is None or self.is_settled:
            return
        match state_of(self._storage, self._paths, self.swap):
            case SwapState.WAITING:
                self.pending = self.swap.row.number
            case SwapState.UNDONE:
                place = self.rows.index(self.swap.row)
                self.rows[place : place + 1] = self.swap.replaced
                self.is_whole = False  # the row goes with the file that it is in

    def begin_at_start(self) -> None:
        """What is in front of the first segment is out of the log."""
        first = self.first
        self.rows = [row for row in self.rows if row.number >= first]
        if self.is_cut and self.rows and self._base_offset not in (None, self.rows[0].base_offset):
            self.rows = []  # the first was made of several since then

    def leave_merged(self, present: set[int], *, is_torn: bool) -> bool:
        """The rows end in front of those whose cleaning is told by its files alone.

        present: the segments that have a file.  Returns False where what is left is of another
        log, whose offsets are those of ours by chance.
        """
        storage, paths = self._storage, self._paths
        merged, valid = _before_merged(storage, paths, self.rows, present, is_torn=is_torn)
        self._is_merged = merged < len(self.rows)
        if not self._is_merged:
            return True
        front = SealedSegments(self.first, self.rows[0].base_offset)
        front.fill(self.rows[:merged])
        if disagrees(storage, paths, front, self.pending):
            return False
        self.rows = self.rows[:valid]
        self.is_whole, self.is_cut = False, True
        if self.checkpoint is not None:
            # It vouches for its end; a cleaning may have gone over the rest.
            self.checkpoint = self.checkpoint._replace(number=NO_SEGMENT)
        return True

    def sealed(self) -> SealedSegments:
        """The segments of the rows that are left."""
        base_offset = self.rows[0].base_offset if self.rows else self._base_offset
        if base_offset is None:
            base_offset = 0 if self.start is None else self.start.base_offset
        sealed = SealedSegments(self.first, base_offset)
        sealed.fill(self.rows)
        return sealed

    def says_where_it_begins(self, sealed: SealedSegments, present: set[int]) -> bool:
        """Whether enough of a manifest that is not whole is left for that."""
        if self.start is None:
            return False
        return self._is_merged or not present or min(present) <= sealed.next_number

    def missing_in_front(self, present: set[int]) -> int:
        """How many of the first segments have no file; that of a swap may have its old name yet."""
        there = (n for n, row in enumerate(self.rows) if row.number in {*present, self.pending})
        return next(there, len(self.rows))


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
    rows = manifest.rows if manifest is not None and is_of(paths, manifest) else []
    return rows[0] if len(rows) == 1 and rows[0].kind == RowKind.START else None


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

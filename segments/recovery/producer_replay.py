"""The producers' state as of the end of a log: the snapshot, then the batches behind it.

A snapshot that is missing or damaged costs reading every segment.  One that says another owner, or
covers more than the log has, is of another log and is not used.

What is not sealed was checked a moment ago; a sealed segment is compared with its index, and where
that does not match every batch is checked: a header that lost a bit speaks of another producer, or
of a sequence that nobody has sent.  Damage is passed over, whether it is in a header or not.  Whose
batches stood there nobody knows: as behind a lost tail every producer is taken at its word with its
next batch, unless a batch of it follows in the log.  A bad sector is damage as well, and no more
than that: readers are given what lies beside it, by the transactions that are known here.

Offsets of gaps are counted: an epoch that begins behind what was lost may be sent from its
beginning again (producers.py).  Not where batches were there that nobody knows any more: without
a snapshot of a log that does not begin with 0, and behind a segment that cannot be read or a gap of
what went on purpose.

Segments behind the snapshot may be gone: retention goes on where a full disk has no room for a
newer one.  Then the next batch of every producer is taken at its word, too, and of one of whom
there is nothing but a marker.
"""

import errno
from collections.abc import Iterator
from operator import itemgetter
from typing import TypeAlias

import structlog

from segbroker.protocol.batch_layout import HEADER_SIZE
from segbroker.protocol.record_batch import BatchHeader, GapReason, gap_reason, read_header

from ..decisions import Epochs, Tail, scan
from ..disk.storage import Storage, read_file, read_file_given
from ..errors import CorruptSegment
from ..files.manifest import Row
from ..log.partition_log import PartitionLog
from ..log.producers import ProducerTable, decode_producers
from ..log.segment import ActiveSegment
from ..log.transaction_index import TransactionIndex
from ..names import LogPaths
from .identity import own_index

log = structlog.get_logger()

_Found: TypeAlias = tuple[BatchHeader, memoryview]


def replay_producers(opened: PartitionLog) -> None:
    """Set `opened.producers`.  Raises CorruptSegment, OSError."""
    end = -1
    table = ProducerTable()
    try:
        decoded = decode_producers(
            read_file(opened.storage, opened.paths.producers), opened.paths.owner
        )
    except FileNotFoundError:
        decoded = None
    # A snapshot of more than the log has is of another log.
    if decoded is not None and decoded[1] <= opened.log_end_offset:
        table, end = decoded
        opened.producers_saved = end
    opened.producers = table
    table.transactions.forget_before(opened.log_start_offset)
    if end == opened.log_end_offset:
        return
    lost = 0
    is_front_gone = opened.first_base_offset > max(end, 0)
    is_all_known = end >= 0 or opened.log_start_offset == 0
    if is_front_gone:
        table.lose_tail()
        is_all_known = False
    for found in _batches(opened, end):
        if found is None:
            table.lose_tail()
            is_all_known = False
            continue
        header, batch = found
        if header.base_offset < end:
            continue
        if header.producer_id >= 0:
            table.apply(header, header.base_offset, batch, lost if is_all_known else 0)
            continue
        reason = gap_reason(header)
        if reason is GapReason.LOST_TAIL:
            table.lose_tail()
        if reason in (GapReason.LOST_TAIL, GapReason.CORRUPTION):
            lost += header.next_offset - header.base_offset
        elif reason is not None:
            is_all_known = False
    if is_front_gone:
        table.lose_front()


def replay_behind(opened: PartitionLog, old: PartitionLog) -> None:
    """What a log knows of producers that was `old` before it was opened again: of what was sealed
    by then as it was known, of damage in it as well, and from there on as the log says.

    Raises CorruptSegment, OSError.
    """
    first = (*old.rotating, old.active)[0]
    begin, before, found = first.base_offset, old.producers, opened.producers
    transactions = _open_below(first, before.transactions)
    below = before.below(begin, found)
    known = ProducerTable(below.copy(), transactions)
    for one in _batches(opened, begin):
        if one is not None and one[0].producer_id >= 0 and one[0].base_offset >= begin:
            header, batch = one
            known.apply(header, header.base_offset, batch)
    transactions.forget_before(opened.log_start_offset)
    recalled = {one: row for one, row in known.rows() if one in below}
    producers = dict(found.rows()) | recalled | before.fenced(begin, found)
    opened.know(ProducerTable(producers, transactions))


def _open_below(first: ActiveSegment, before: TransactionIndex) -> TransactionIndex:
    """The transactions as of the beginning of the first segment that was not sealed.

    What has ended since was open then.  Whatever was committed between that and the opening of the
    log is not known any more; its marker was durable by then, and says nothing new.
    """
    begin = first.base_offset
    aborted = [one for one in before.aborted if one.last_offset < begin]
    since = [(one.producer_id, one.first_offset) for one in before.aborted[len(aborted) :]]
    rows = (*since, *first.opened_before.items())
    still = {one: first_offset for one, first_offset in rows if first_offset < begin}
    return TransactionIndex(dict(sorted(still.items(), key=itemgetter(1))), aborted)


def _batches(opened: PartitionLog, end: int) -> Iterator[_Found | None]:
    """The batches of the segments that reach behind `end`, in order; None where some are lost.

    Raises CorruptSegment, OSError.
    """
    sealed = opened.sealed
    for place in range(sealed.count_below(end), len(sealed)):
        yield from _checked(opened.storage, opened.paths, sealed.row_at(place), opened.epochs)
    for segment in (*opened.rotating, opened.active):
        if segment.size:
            content = memoryview(read_file(opened.storage, segment.path))
            yield from _unchecked(segment.path, content)


def _checked(
    storage: Storage, paths: LogPaths, row: Row, epochs: Epochs
) -> Iterator[_Found | None]:
    """Those of a sealed segment.  Raises CorruptSegment, OSError."""
    path = paths.log(row.number)
    try:
        data = memoryview(read_file_given(storage, path))
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.EIO):
            raise
        log.warning("producers_not_replayed", path=path, error=str(exc))
        yield None
        return
    index = own_index(storage, paths, row) if len(data) == row.size else None
    blocks_count = 0 if index is None else len(index.blocks)
    if index is not None and blocks_count and index.first_wrong(0, blocks_count, data) is None:
        yield from _unchecked(path, data)
        return
    offset, position = row.base_offset, 0
    while True:
        found = scan(data, offset, position, epochs=epochs)
        for place, header in found.batches:
            yield header, data[place : place + header.size]
        if found.tail is Tail.WHOLE and found.next_offset == row.end_offset:
            return
        log.warning("producers_not_replayed", path=path, position=found.valid_size)
        yield None
        if found.tail is not Tail.HOLE:
            return
        position, offset = found.resume, read_header(data, found.resume).base_offset


def _unchecked(path: str, data: memoryview) -> Iterator[_Found]:
    """Those of bytes that are whole.  Raises CorruptSegment."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if header.size < HEADER_SIZE:
            raise CorruptSegment(path, position, f"a batch of {header.size} bytes")
        yield header, data[position : position + header.size]
        position += header.size

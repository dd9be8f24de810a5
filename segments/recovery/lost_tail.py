"""What a power cut took from the end of a log, written into it: a gap, first in a new leader epoch.

    before   | 40 .. 44 |                              recovered end 45, ceiling 1,048,621
    after    | 40 .. 44 | gap [45, 1048621) |          the next record has offset 1,048,621
             epoch 3    | epoch 4

    epochs event   durable   a topic of the same name, after a deletion, starts above it
    EPOCH row      synced    no batch carries an epoch that nobody knows
    gap            synced    before anybody is served

A crash in between leaves an epoch without a batch; the next opening takes the one after it.  A
producer that goes on behind its lost batches is taken at its word (producers.py); replaying a log
that holds such a gap comes to the same at the same place, so the snapshot of the producers may stay
as it is: two syncs per partition are enough.  Transactions stay open.
"""

from segbroker.protocol.record_batch import GapReason, gap_batches, read_header

from ..disk.storage import Storage, make_own_dirs, replace_file
from ..files.manifest import NO_FLOOR, Floor, Row, RowKind, encode_manifest, start_row
from ..log.partition_log import PartitionLog
from ..log.sealing import checkpoint, seal
from ..names import LogPaths


def write_lost_tail(
    opened: PartitionLog, ceiling: int, epoch: int, reason: GapReason, now_ms: int
) -> None:
    """Let `opened` go on at `ceiling`, in leader `epoch`; durable when this returns.

    Nobody else uses the log yet.  Raises OSError.
    """
    lost_from = opened.log_end_offset
    assert lost_from < ceiling, "nothing is missing"
    assert epoch > opened.leader_epoch, "a new epoch"
    row = Row(RowKind.EPOCH, leader_epoch=epoch, base_offset=lost_from)
    with opened.seal_lock:
        opened.note([row], sync=True)
    opened.epochs.append((epoch, lost_from))
    with opened.append_lock:
        for gap in gap_batches(lost_from, ceiling, reason, now_ms, epoch):
            header = read_header(gap)._replace(max_timestamp=-1)  # no record, no time to find
            opened.write(memoryview(bytearray(gap)), header, now_ms)
        opened.producers.lose_tail()
    if opened.rotating:
        seal(opened)
    if reason is GapReason.LOST_TAIL:
        opened.sync()
    else:
        checkpoint(opened)  # replay makes nothing of a gap with this reason


def begin_at(storage: Storage, paths: LogPaths, ceiling: int, epoch: int, now_ms: int) -> None:
    """Make the files of an empty log that begins at `ceiling`: what there was is gone.

    Its evict floor is the ceiling, too: nothing below it was deleted on purpose.  Raises OSError.
    """
    make_own_dirs(storage, paths.folder)
    floor = Floor(ceiling, GapReason.LOST_TAIL) if ceiling else NO_FLOOR
    start = start_row(ceiling, 0, ceiling, floor)
    rows = [Row(RowKind.EPOCH, leader_epoch=epoch, base_offset=ceiling), start]
    replace_file(storage, paths.manifest, encode_manifest(now_ms, rows, paths.owner))

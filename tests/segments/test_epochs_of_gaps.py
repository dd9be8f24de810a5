"""No batch goes past the end of its leader epoch: a reader who stands behind one, and asks where
that epoch ended, would be told that what it has read was never there.

| epoch 0 | epoch 1 |   the log was opened again in another epoch, in the middle of a segment
|  gap    |  gap    |   whatever goes: two, not one of epoch 0 over both
"""

import pytest

from segbroker.protocol.record_batch import GapReason, gap_reason, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import CorruptSegment
from segbroker.segments.log.sealing import seal
from segbroker.segments.partition.handler import DiskHandler

from .compacted import Compacted
from .tools import SMALL, append, as_after_a_checkpoint, batch_of, lose_wal, manager_on, read_from

FOLDER = "/data/topics/t/partition_0"
LOG = f"{FOLDER}/t_partition_0_segment_0.log"


def begin_epoch(manager: DiskManager, disk: MemoryStorage) -> DiskManager:
    """Another start, in another leader epoch, as behind a torn write-ahead log."""
    manager._resuming.begin_epoch(manager.topics["t"], 0)
    manager.close()
    return manager_on(disk)


def gaps_of(handler: DiskHandler) -> list[tuple[int, int, int]]:
    """(begin, end, leader epoch) of the gaps; none goes past the end of its epoch."""
    found: list[tuple[int, int, int]] = []
    offset = handler.log_start_offset
    while offset < handler.high_watermark:
        for batch in iter_batches(read_from(handler, offset)):
            header = read_header(batch)
            offset = header.next_offset
            known, end = handler.end_offset_for_epoch(header.leader_epoch)
            assert (known, offset <= end) == (header.leader_epoch, True)
            if gap_reason(header) is not None:
                found.append((header.base_offset, offset, header.leader_epoch))
    return found


@pytest.mark.parametrize("when", ["in use", "at a start"])
def test_a_repair_over_two_epochs_leaves_a_gap_in_each(when: str) -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    for _ in range(2):
        for _ in range(2):
            append(manager.get_handler("t", 0), batch_of(b"x" * 20))
        manager = begin_epoch(manager, disk)
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"x" * 20))
    as_after_a_checkpoint(manager)
    if when == "at a start":
        handler.save_state()
        disk = disk.after_kill()
        lose_wal(disk)
        disk.unlink(LOG)
        handler = manager_on(disk).get_handler("t", 0)
    else:
        with handler._log.append_lock:
            handler._log.roll(1_000)
        seal(handler._log)
        disk.unlink(LOG)
        handler._log.files.indexes.drop(FOLDER)
        handler._log.files.files.drop(FOLDER)
        assert handler.check_segment(CorruptSegment(LOG, 0, "what the scrub found"))
    assert gaps_of(handler) == [(0, 2, 0), (2, 4, 1), (4, 5, 2)]
    missing = handler.account(0, 5).missing
    assert [(one.begin, one.end, one.reason) for one in missing] == [(0, 5, GapReason.CORRUPTION)]


def test_what_a_cleaning_takes_over_two_epochs_is_a_gap_in_each() -> None:
    log = Compacted(MemoryStorage())
    log.send((b"a", b"1"))
    log.send((b"a", b"2"))
    begin_epoch(log.manager, log.disk).close()
    log.open()
    log.send((b"a", b"3"))
    log.send((b"a", b"4"), (b"b", b"5"))
    log.send((b"a", b"6"))
    log.clean()
    assert gaps_of(log.handler) == [(0, 2, 0), (2, 3, 1)]
    log.check()
    log.send((b"b", b"7"))
    log.clean()
    assert gaps_of(log.handler) == [(0, 2, 0), (2, 5, 1)]
    log.check()

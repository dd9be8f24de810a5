"""A write or a sync fails where nobody is told of it: it counts from the next look on, and no
acknowledgement waits in vain until then."""

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import PartitionDamaged, StorageError
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .crashing import CrashingStorage
from .test_damage import LOG_1, gaps_in, partition_with
from .tools import SMALL, append, batch_of, flip, read_from

READONLY = {**SMALL.overrides, "on.corruption": "readonly"}


def tick(manager: DiskManager, first: int) -> None:
    """Some rounds of housekeeping from second `first` on."""
    for second in range(first, first + 100, 5):
        manager.housekeeping(second * 1_000)


def damaged_with_something_unsynced(disk: CrashingStorage) -> tuple[DiskManager, DiskHandler]:
    """Read-only until an operator has looked, and its last batch is on its way to the WAL."""
    manager, handler = partition_with(disk, 15, TopicConfig(READONLY))
    handler.flushes_on_append = False
    append(handler, batch_of(b"on its way"))
    handler.flushes_on_append = True
    flip(disk, LOG_1, 200)
    assert gaps_in(handler) == [(4, 5)]
    assert isinstance(handler.read_only, PartitionDamaged)
    return manager, handler


def test_a_wal_that_failed_while_an_operator_had_to_look_does_not_hold_up_what_comes_after() -> (
    None
):
    disk = CrashingStorage()
    manager, handler = damaged_with_something_unsynced(disk)
    disk.sync_fails = True
    handler.flush_soon()
    disk.sync_fails = False
    tick(manager, 5)
    manager.alter_topic("t", {**SMALL.overrides, "on.corruption": "gap"})
    tick(manager, 200)
    result = append(handler, batch_of(b"more"))
    assert handler.high_watermark == result.last_offset + 1, "acknowledged"
    image = disk.after_power_cut()
    again = DiskManager("/data", storage=image, flushers=0)
    again.open()
    assert again.get_handler("t", 0).log_end_offset == handler.high_watermark


def test_a_sync_that_fails_under_a_request_to_delete_records_is_a_failure_of_the_partition() -> (
    None
):
    disk = CrashingStorage()
    manager, handler = partition_with(disk, 6)
    append(handler, batch_of(b"of a producer", producer=(7, 0, 0)))
    disk.sync_fails = True
    with pytest.raises(StorageError, match="cannot delete records"):
        handler.delete_records_before(4)
    disk.sync_fails = False
    assert handler._log.failed is not None
    tick(manager, 5)
    assert handler.read_only is None
    assert handler._log.failed is None, "it was opened again: a sync of it can be believed"
    handler.sync()


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_acknowledged_in_front_of_damage_is_synced_on_the_tick(fails: bool) -> None:
    disk = CrashingStorage()
    config = TopicConfig({**READONLY, "durability": "disk", "retention.ms": "-1"})
    manager, handler = partition_with(disk, 15, config)
    tick(manager, 5)
    last = append(handler, batch_of(b"acknowledged")).last_offset
    assert handler.high_watermark == last + 1
    flip(disk, LOG_1, 200)
    assert gaps_in(handler) == [(4, 5)]
    assert isinstance(handler.read_only, PartitionDamaged)
    disk.sync_fails = fails
    tick(manager, 200)
    assert isinstance(handler.read_only, PartitionDamaged) is not fails
    disk.sync_fails = False
    tick(manager, 400)
    assert isinstance(handler.read_only, PartitionDamaged)
    assert not handler.wants_attention
    assert not handler.has_unsynced
    again = DiskManager("/data", storage=disk.after_power_cut(), flushers=0)
    again.open()
    assert b"acknowledged" in read_from(again.get_handler("t", 0), last)

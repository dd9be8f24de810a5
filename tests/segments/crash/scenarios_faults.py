"""Failures: a sync, a write, a rename that fails; a full disk; and then a crash."""

import contextlib
import errno

from segbroker.segments.errors import StorageError

from .driver import Driver
from .recording import Fault
from .registry import scenario

LOG_0 = "_segment_0.log"


def fault(driver: Driver, fault: Fault) -> None:
    driver.disk.counts[len(driver.disk.faults)] = 0
    driver.disk.faults.append(fault)


def without_marks(driver: Driver) -> None:
    """The disk takes no mark of a failed sync: the next process knows nothing of it, but that the
    reserved offsets are in doubt."""
    fault(driver, Fault("create", ".unsynced", 0, lasts=True))
    for lives in driver.model.topics.values():
        for life in filter(None, lives):
            for partition in life.partitions:
                partition.is_unmarked = True
    driver.model.changed()


@scenario(durability="fsync")
def the_first_sync_fails(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("fdatasync", ".log", 0))
    driver.append("t", count=2)
    driver.close()


@scenario(durability="fsync")
def a_sync_fails_and_the_process_starts_again(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("fdatasync", ".log", 0))
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.append("t", count=2)


@scenario(durability="disk")
def the_sync_of_a_tick_fails(driver: Driver) -> None:
    driver.append("t", count=3)
    fault(driver, Fault("fdatasync", ".log", 0))
    driver.tick()
    driver.append("t")
    driver.close()


@scenario(durability="disk")
def the_sync_of_a_full_segment_fails(driver: Driver) -> None:
    fault(driver, Fault("fdatasync", LOG_0, 0))
    driver.append("t", count=8)
    driver.close()


@scenario(durability="fsync")
def every_sync_of_a_directory_fails(driver: Driver) -> None:
    driver.handler("t")._rolling._making.is_asked = True
    driver.append("t", count=3)
    fault(driver, Fault("fsync_dir", "partition_0", 0, lasts=True))
    driver.append("t", count=4)
    driver.close()


@scenario(durability="fsync")
def a_sync_of_names_made_ahead_fails(driver: Driver) -> None:
    fault(driver, Fault("fsync_dir", "partition_0", 0))
    for _ in range(4):
        driver.append("t", count=3)
        driver.tick()
    driver.close()


@scenario(durability="disk")
def a_sync_of_names_made_ahead_fails_in_class_disk(driver: Driver) -> None:
    fault(driver, Fault("fsync_dir", "partition_0", 0))
    for _ in range(4):
        driver.append("t", count=3)
        driver.tick()
    driver.close()


@scenario(durability="disk")
def a_sync_of_names_made_ahead_fails_behind_synced_ones(driver: Driver) -> None:
    # Nothing that is in use waits for a name then: only who has made the segments knows of it.
    driver.append("t")
    driver.tick()
    fault(driver, Fault("fsync_dir", "partition_0", 0))
    for _ in range(4):
        driver.append("t", count=3)
        driver.tick()
    driver.close()


@scenario(durability="disk", segment_ms="5000")
def a_sync_of_names_fails_and_the_last_segment_is_empty(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("fsync_dir", "partition_0", 0))
    driver.tick(by_ms=6_000)
    driver.tick()
    driver.append("t", count=2)
    driver.tick()
    driver.append("t")


def with_unsynced_names(driver: Driver) -> None:
    """From here on no segment is made ahead: the name of each waits for the next sync."""
    driver.handler("t")._rolling._making.is_asked = True


@scenario(durability="disk")
def a_sync_of_a_deletion_fails_beside_names_that_wait(driver: Driver) -> None:
    with_unsynced_names(driver)
    driver.append("t", count=5)
    driver.tick()
    driver.append("t", count=4)
    fault(driver, Fault("fsync_dir", "partition_0", 0))
    with contextlib.suppress(StorageError):
        driver.delete_records("t", 0, 4)
    driver.tick()
    driver.tick()
    driver.append("t")
    driver.tick()


@scenario(durability="fsync")
def the_names_of_further_partitions_are_not_synced_at_first(driver: Driver) -> None:
    fault(driver, Fault("fsync_dir", "/topics/t", 0))
    with contextlib.suppress(StorageError):
        driver.grow("t", 2)
    driver.grow("t", 2)
    driver.append("t", 1, 2)
    driver.close()


@scenario(durability="fsync")
def a_write_takes_a_part(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("pwrite", LOG_0, 0, errno.ENOSPC, room=30))
    driver.append("t", count=2)
    driver.close()


@scenario(durability="fsync")
def the_disk_is_full_and_has_space_again(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("pwrite", ".log", 0, errno.ENOSPC, room=50))
    driver.append("t")
    driver.tick()
    driver.forget_unsent("t")
    driver.append("t", count=3)


@scenario(durability="disk")
def the_disk_is_full_in_class_disk(driver: Driver) -> None:
    driver.append("t", count=5)
    fault(driver, Fault("pwrite", ".log", 0, errno.ENOSPC, room=70))
    driver.append("t")
    driver.tick()
    driver.forget_unsent("t")
    driver.append("t", count=2)
    driver.tick()


@scenario(durability="fsync")
def segments_go_and_what_is_known_of_a_producer_has_no_room(driver: Driver) -> None:
    driver.append("t", count=2, producer=(7, 0, 0))
    driver.close()
    driver.open()
    driver.append("t", count=8, producer=(7, 0, 2))
    driver.append("t", count=6)
    driver.tick()
    fault(driver, Fault("create", ".producers.tmp", 0, errno.ENOSPC))
    driver.delete_records("t", 0, 12)
    driver.kill()
    driver.open()
    assert driver.handler("t")._log.first_base_offset == 12, "behind what the snapshot covers"
    driver.append("t", producer=(7, 0, 10))
    assert driver.handler("t").log_end_offset == 17, "what it sends next is not refused"


@scenario(durability="fsync")
def no_topic_on_a_full_disk(driver: Driver) -> None:
    driver.append("t")
    fault(driver, Fault("pwrite", "wal-0.log", 0, errno.ENOSPC, room=20))
    driver.create("u")
    driver.append("t")


@scenario(durability="fsync")
def a_topic_whose_deletion_fails(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("fdatasync", "wal-0.log", 0))
    with contextlib.suppress(StorageError):
        driver.delete("t")
    driver.append("t")


@scenario(durability="disk")
def an_index_that_cannot_be_written(driver: Driver) -> None:
    fault(driver, Fault("pwrite", ".index", 0, errno.ENOSPC))
    driver.append("t", count=9)
    driver.close()


@scenario(durability="fsync")
def a_short_write_goes_on(driver: Driver) -> None:
    driver.append("t")
    fault(driver, Fault("pwrite", LOG_0, 0, 0, room=50))
    driver.append("t", count=2)
    fault(driver, Fault("pwrite", "wal-0.log", 0, 0, room=50))
    driver.append("t", count=2)


@scenario(durability="disk")
def the_sync_of_a_tick_fails_and_another_process(driver: Driver) -> None:
    without_marks(driver)
    driver.append("t", count=3)
    fault(driver, Fault("fdatasync", ".log", 0))
    driver.tick()
    driver.kill()
    driver.open()
    doubted = (3, driver.handler("t").log_end_offset)
    driver.model.partition("t", 0).lost.append(doubted)
    driver.append("t")
    driver.tick()
    driver.append("t")


@scenario(durability="fsync")
def the_name_of_a_snapshot_cannot_be_synced_and_another_process(driver: Driver) -> None:
    fault(driver, Fault("fsync_dir", "/meta", 0))
    driver.close()
    driver.open()
    driver.append("t")


@scenario(durability="fsync")
def the_names_of_what_is_put_back_cannot_be_synced_at_first(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.kill()
    fault(driver, Fault("fsync_dir", "partition_0", 0))
    driver.open()
    driver.append("t")
    driver.close()


@scenario(durability="disk")
def the_names_of_a_log_that_is_opened_cannot_be_synced_at_first(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.kill()
    fault(driver, Fault("fsync_dir", "partition_0", 0))
    driver.open()
    with contextlib.suppress(StorageError):
        driver.handler("t")
    driver.append("t")
    driver.tick()

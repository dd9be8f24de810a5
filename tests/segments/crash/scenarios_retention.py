"""Retention: segments that go by age and by records, while others come."""

import contextlib
import errno

from segbroker.segments.errors import StorageError

from .driver import Driver
from .recording import Fault
from .registry import scenario
from .scenarios_faults import fault, without_marks

FSYNC, DISK = "fsync", "disk"
HOUR = 3_600_000


def retain(driver: Driver, *, by_ms: int) -> None:
    """A round of retention, `by_ms` later; where it lets the log begin is where it begins."""
    model, handler = driver.model.partition("t", 0), driver.handler("t")
    model.start_max = model.end
    driver.model.changed()
    driver.now_ms += by_ms
    driver.running.keep_house_now(driver.now_ms)
    model.start_min = model.start_max = handler.log_start_offset
    driver.model.changed()
    driver.explorer.step_done()


@scenario(durability=FSYNC, retention_ms=str(HOUR))
def segments_go_by_age(driver: Driver) -> None:
    driver.append("t", count=4)
    driver.now_ms += HOUR
    driver.append("t", count=2)
    retain(driver, by_ms=1_000)
    assert 0 < driver.handler("t").log_start_offset < 6
    driver.append("t")


@scenario(durability=FSYNC, retention_ms=str(HOUR))
def everything_goes_by_age(driver: Driver) -> None:
    driver.append("t", count=3)
    retain(driver, by_ms=2 * HOUR)
    assert driver.handler("t").log_start_offset == 3
    driver.append("t")
    driver.close()
    driver.open()
    retain(driver, by_ms=2 * HOUR)


@scenario(durability=DISK, retention_ms="-1")
def segments_go_by_records_after_a_request_to_delete(driver: Driver) -> None:
    driver.append("t", count=7)
    driver.tick()
    driver.delete_records("t", 0, 1)
    driver.alter("t", durability=DISK, retention_records="2")
    retain(driver, by_ms=1_000)
    assert driver.handler("t").log_start_offset > 1
    driver.alter("t", durability=DISK, retention_records="-1")  # appends evict nothing more
    driver.append("t", count=2)
    driver.tick()


@scenario(durability=FSYNC, retention_ms=str(HOUR))
def segments_go_by_age_from_a_full_disk(driver: Driver) -> None:
    # The row finds no room until the indexes of what goes are gone, and then a new manifest does.
    driver.append("t", count=7)
    driver.tick()
    fault(driver, Fault("pwrite", "_segment_2.log", 0, errno.ENOSPC, room=50))
    with contextlib.suppress(StorageError):
        driver.append("t", count=2)
    fault(driver, Fault("create", ".producers.tmp", 0, errno.ENOSPC))
    fault(driver, Fault("pwrite", ".manifest", 0, errno.ENOSPC, room=10))
    retain(driver, by_ms=2 * HOUR)
    retain(driver, by_ms=5_000)
    assert driver.handler("t").log_start_offset == 8
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.append("t", count=2)


@scenario(durability=DISK, retention_ms="-1")
def segments_that_went_by_records_cannot_be_removed(driver: Driver) -> None:
    driver.append("t", count=7)
    driver.tick()
    driver.alter("t", durability=DISK, retention_records="2")
    fault(driver, Fault("unlink", "_segment_0.log", 0))
    fault(driver, Fault("fdatasync", ".manifest", 0, errno.ENOSPC))
    retain(driver, by_ms=1_000)
    driver.kill()
    driver.open()
    retain(driver, by_ms=5_000)
    assert driver.handler("t").log_start_offset == 4


def a_deletion_fails_and_another_process_shows_it(driver: Driver, offset: int) -> None:
    """What the row says that could neither be synced nor cut off is shown: then it does not go
    back."""
    fault(driver, Fault("fdatasync", ".manifest", 0))
    fault(driver, Fault("truncate", ".manifest", 0))
    with contextlib.suppress(StorageError):
        driver.delete_records("t", 0, offset)
    driver.kill()
    driver.open()
    model = driver.model.partition("t", 0)
    model.start_min = driver.handler("t").log_start_offset
    assert model.start_min == offset, "the row is there, synced or not"
    driver.model.changed()
    driver.append("t")


@scenario(durability=FSYNC)
def the_sync_of_a_deletion_in_a_closed_log_fails_and_another_process(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.close()
    driver.open()
    a_deletion_fails_and_another_process_shows_it(driver, 2)


@scenario(durability=FSYNC)
def the_sync_of_a_deletion_of_segments_fails_and_another_process(driver: Driver) -> None:
    driver.append("t", count=6)
    a_deletion_fails_and_another_process_shows_it(driver, 5)


@scenario(durability=FSYNC)
def the_sync_of_a_deletion_fails_without_a_mark_and_another_process(driver: Driver) -> None:
    # Nothing but its bytes written once more makes the row durable then.
    without_marks(driver)
    driver.append("t", count=3)
    driver.close()
    driver.open()
    a_deletion_fails_and_another_process_shows_it(driver, 2)

"""Retention: segments that go by age and by records, while others come."""

from .driver import Driver
from .registry import scenario

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

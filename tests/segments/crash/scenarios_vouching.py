"""What vouches for logs, kept and settled, where it meets everything else that happens to a log."""

import errno

from segbroker.segments.wal.journal import WalConfig

from .driver import Driver
from .recording import Fault
from .registry import scenario
from .scenarios_faults import fault
from .scenarios_retention import retain

LARGE = {"durability": "fsync", "segment_bytes": "4096"}
HOUR = 3_600_000
MINUTE = 60_000


def checkpointed(driver: Driver, topic: str = "t", partition: int = 0) -> None:
    """A file is full, its END in a kept file, and it is freed."""
    for size in (1_500, 1_500, 1_500):
        driver.append(topic, partition, size=size)
    driver.running.wal.checkpoint()
    driver.explorer.step_done()


@scenario(**LARGE)
def deleted_and_made_again_while_its_end_is_kept(driver: Driver) -> None:
    checkpointed(driver)
    driver.delete("t")
    driver.create("t", 1, **LARGE)
    driver.append("t", size=200)
    driver.kill()
    driver.open()
    checkpointed(driver)
    driver.delete("t")
    driver.create("t", 2, **LARGE)
    driver.append("t", 1)


@scenario(**LARGE)
def how_far_a_file_reaches_is_said(driver: Driver) -> None:
    driver.append("t", count=2, size=200)
    driver.tick(by_ms=MINUTE)
    driver.append("t", count=2, size=1_500)
    driver.tick(by_ms=MINUTE)
    driver.kill()
    driver.open()
    driver.append("t", size=200)
    driver.tick(by_ms=MINUTE)
    driver.close()
    driver.open()
    driver.append("t", size=100)


@scenario(durability="fsync")
def how_far_a_file_reaches_is_said_and_its_sync_fails(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.tick(by_ms=MINUTE)
    fault(driver, Fault("fdatasync", "wal-0.log", 0))
    driver.append("t", count=2)
    driver.tick()
    driver.append("t")
    driver.tick(by_ms=MINUTE)
    driver.append("t")
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(durability="fsync")
def classes_change_after_an_orderly_stop(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.close()
    driver.open()
    driver.append("t", count=2)
    driver.alter("t", durability="disk")
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.append("t")
    driver.alter("t", durability="fsync")
    driver.append("t")
    driver.kill()
    driver.open()
    driver.alter("t", durability="memory")
    driver.append("t")
    driver.close()
    driver.open()
    driver.append("t")


@scenario(durability="memory")
def memory_after_an_orderly_stop(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.close()
    driver.open()
    driver.append("t", count=2)
    driver.close()
    driver.open()
    driver.append("t")
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(durability="fsync", retention_ms=str(HOUR))
def everything_goes_by_age_behind_an_orderly_stop(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.close()
    driver.open()
    retain(driver, by_ms=2 * HOUR)
    assert driver.handler("t").log_start_offset == 3
    driver.kill()
    driver.open()
    driver.close()
    driver.open()
    driver.append("t")
    retain(driver, by_ms=2 * HOUR)
    driver.running.wal.checkpoint()
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(**LARGE)
def everything_is_deleted_while_its_end_is_kept(driver: Driver) -> None:
    checkpointed(driver)
    driver.delete_records("t", 0, 3)
    driver.kill()
    driver.open()
    driver.kill()
    driver.open()
    driver.append("t")
    driver.close()
    driver.open()
    driver.delete_records("t", 0, 4)


@scenario(durability="fsync", cleanup_policy="compact", segment_bytes="512")
def cleaned_behind_an_orderly_stop(driver: Driver) -> None:
    for value in (b"a" * 200, b"b" * 200, b"c" * 200):
        driver.put("t", (b"k", value))
    driver.close()
    driver.open()
    driver.put("t", (b"k", b"d" * 200))
    driver.put("t", (b"k", b"e" * 200))
    driver.clean("t", may_go=range(4))
    driver.kill()
    driver.open()
    driver.put("t", (b"k", b"f"))


@scenario(**LARGE)
def other_shards_with_kept_files(driver: Driver) -> None:
    driver.grow("t", 3)
    driver.kill()
    driver.wal = WalConfig(shards=3, file_bytes=8_192, shard_bytes=4 * 8_192)
    driver.open()
    for partition in range(3):
        checkpointed(driver, partition=partition)
    driver.kill()
    driver.wal = WalConfig(file_bytes=8_192, shard_bytes=4 * 8_192)
    driver.open()
    driver.append("t", 1)
    driver.close()
    driver.wal = WalConfig(shards=2, file_bytes=8_192, shard_bytes=4 * 8_192)
    driver.open()
    driver.append("t", 2)


@scenario(**LARGE)
def an_end_cannot_be_kept(driver: Driver) -> None:
    driver.append("t", count=2, size=1_500)
    fault(driver, Fault("create", "kept-2.log.tmp", 0, errno.ENOSPC))
    fault(driver, Fault("create", "witness/shard-00.kept-3", 0))
    for _ in range(3):
        checkpointed(driver)
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(**LARGE)
def a_start_cannot_keep_an_end(driver: Driver) -> None:
    checkpointed(driver)
    driver.kill()
    fault(driver, Fault("create", ".log.tmp", 0, errno.EIO, lasts=True))
    driver.open()
    driver.disk.faults.clear()
    driver.append("t")
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(**LARGE)
def opened_again_after_its_end_was_kept(driver: Driver) -> None:
    checkpointed(driver)
    fault(driver, Fault("pwrite", "_segment_1.log", 0, room=60))
    driver.append("t", count=2)
    driver.tick()
    driver.forget_unsent("t")
    checkpointed(driver)
    driver.tick()
    driver.append("t")
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(durability="fsync")
def an_orderly_stop_cannot_settle(driver: Driver) -> None:
    driver.append("t", count=3)
    fault(driver, Fault("create", ".msgpack.tmp", 0, errno.ENOSPC, lasts=True))
    driver.close()
    driver.disk.faults.clear()
    driver.open()
    driver.append("t")
    driver.close()
    driver.open()
    driver.append("t")


@scenario(durability="fsync", on_corruption="refuse")
def refused_where_it_is_lost_and_nothing_is(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.close()
    driver.open()
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.append("t")
    driver.close()


@scenario(durability="fsync")
def starts_that_are_killed_behind_an_orderly_stop(driver: Driver) -> None:
    driver.grow("t", 2)
    driver.append("t", 0, count=2)
    driver.close()
    driver.open()
    driver.kill()
    driver.open()
    driver.append("t", 1)
    driver.kill()
    driver.open()
    driver.close()
    driver.open()
    driver.append("t", 0)

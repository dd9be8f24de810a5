"""Records: one partition and several, rolls, seals, producers, restarts."""

from segbroker.protocol.compression import Codec
from segbroker.segments.log import sealing

from .driver import Driver
from .registry import scenario

FSYNC, DISK = "fsync", "disk"


@scenario(durability=FSYNC)
def the_first_records(driver: Driver) -> None:
    driver.append("t", count=3)


@scenario(durability=DISK)
def the_first_records_of_class_disk(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.tick()
    driver.append("t")


@scenario(durability=FSYNC)
def rolls(driver: Driver) -> None:
    driver.append("t", count=9)


@scenario(durability=DISK)
def rolls_behind_a_first_sync(driver: Driver) -> None:
    driver.append("t")
    driver.tick()
    driver.append("t", count=9)
    driver.tick()
    driver.append("t", count=3)


@scenario(durability=DISK)
def rolls_of_class_disk(driver: Driver) -> None:
    driver.append("t", count=5)
    driver.tick()
    driver.append("t", count=4)


@scenario(durability=FSYNC)
def batches_of_several_records(driver: Driver) -> None:
    driver.append("t", count=4, records=3, size=20)


@scenario(durability=FSYNC)
def batches_as_large_as_a_segment(driver: Driver) -> None:
    driver.append("t", count=3, size=430)
    driver.append("t", size=10)


@scenario(durability=FSYNC, segment_bytes="16384")
def batches_over_several_sectors(driver: Driver) -> None:
    driver.append("t", size=5_000)
    driver.append("t", size=700)
    driver.append("t", size=4_200)


@scenario(durability=FSYNC)
def compressed_batches(driver: Driver) -> None:
    driver.append("t", count=5, records=4, size=60, codec=Codec.ZSTD)


@scenario(durability=FSYNC, message_timestamp_type="LogAppendTime")
def stamped_on_arrival(driver: Driver) -> None:
    driver.append("t", count=4)


@scenario(durability=FSYNC, segment_records="2")
def rolls_by_count(driver: Driver) -> None:
    driver.append("t", count=5)


@scenario(durability=FSYNC, segment_ms="5000")
def rolls_by_age(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.tick(by_ms=6_000)
    driver.append("t")
    driver.tick(by_ms=6_000)


@scenario(durability=DISK, segment_ms="5000")
def rolls_by_age_of_class_disk(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.tick(by_ms=6_000)
    driver.append("t", count=2)
    driver.tick(by_ms=6_000)
    driver.append("t")


@scenario(durability=FSYNC)
def closed_and_opened_again(driver: Driver) -> None:
    driver.append("t", count=6)
    driver.close()
    driver.open()
    driver.append("t", count=3)


@scenario(durability=DISK)
def closed_and_opened_again_of_class_disk(driver: Driver) -> None:
    driver.append("t", count=6)
    driver.close()
    driver.open()
    driver.append("t", count=3)
    driver.tick()


@scenario(durability=FSYNC)
def closed_while_empty(driver: Driver) -> None:
    driver.handler("t")
    driver.close()
    driver.open()
    driver.handler("t")
    driver.close()
    driver.open()
    driver.append("t")


@scenario(durability=FSYNC)
def only_read_in_between(driver: Driver) -> None:
    driver.append("t", count=2)
    for _ in range(2):
        driver.close()
        driver.open()
        driver.handler("t")
    driver.append("t")


@scenario(durability=FSYNC)
def killed_and_started_again(driver: Driver) -> None:
    driver.append("t", count=4)
    driver.kill()
    driver.open()
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(durability=DISK)
def killed_and_started_again_of_class_disk(driver: Driver) -> None:
    driver.append("t", count=4)
    driver.kill()
    driver.open()
    driver.append("t", count=2)
    driver.tick()
    driver.append("t")


@scenario(durability="disk")
def killed_and_only_ticked(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.kill()
    driver.open()
    driver.handler("t")
    driver.tick()
    driver.tick()


@scenario(durability="disk")
def killed_behind_two_batches_and_only_ticked(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.handler("t")
    driver.tick()
    driver.tick()


@scenario()
def partitions_side_by_side(driver: Driver) -> None:
    driver.create("t", 2)
    for _ in range(3):
        driver.append("t", 0)
        driver.append("t", 1)


@scenario()
def partitions_side_by_side_of_class_disk(driver: Driver) -> None:
    driver.create("t", 2, durability=DISK)
    for _ in range(3):
        driver.append("t", 0)
        driver.append("t", 1)
    driver.tick()
    driver.append("t", 0, 2)


@scenario()
def classes_side_by_side(driver: Driver) -> None:
    driver.create("safe", durability=FSYNC)
    driver.create("fast", durability=DISK)
    for _ in range(3):
        driver.append("safe")
        driver.append("fast")
    driver.tick()
    driver.append("fast")
    driver.append("safe")


@scenario(durability=DISK)
def sealed_in_a_group(driver: Driver) -> None:
    handler = driver.handler("t")
    handler._rolling._sealing.is_asked = True  # as if the thread that seals were busy
    driver.append("t", count=11)
    handler._rolling._sealing.is_asked = False
    driver.tick()
    driver.append("t")


@scenario(durability=FSYNC)
def rolls_that_find_no_segment_ready(driver: Driver) -> None:
    driver.handler(
        "t"
    )._rolling._making.is_asked = True  # as if the thread that makes them were busy
    driver.append("t", count=9)


@scenario(durability=DISK)
def descriptors_taken_away(driver: Driver) -> None:
    driver.append("t", count=4)
    driver.tick()
    driver.park()
    driver.append("t", count=3)
    driver.tick()
    driver.park()
    driver.append("t")


@scenario(durability=FSYNC)
def an_idempotent_producer(driver: Driver) -> None:
    (pid,) = driver.allocate(1)
    driver.append("t", count=6, producer=(pid, 0, 0))
    driver.repeat_last("t")
    driver.close()
    driver.open()
    driver.repeat_last("t")
    driver.append("t", count=2, producer=(pid, 0, 6))


@scenario(durability=FSYNC)
def producers_that_begin_again(driver: Driver) -> None:
    driver.append("t", count=3, producer=(7, 0, 0))
    driver.append("t", count=2, producer=(7, 1, 0))
    driver.append("t", count=2, producer=(8, 0, 0))
    driver.kill()
    driver.open()
    driver.append("t", producer=(7, 1, 2))
    driver.repeat_last("t")


@scenario(durability=DISK)
def snapshots_of_producers(driver: Driver) -> None:
    every, sealing.SNAPSHOT_SEGMENTS = sealing.SNAPSHOT_SEGMENTS, 2  # type: ignore[misc]
    try:
        driver.append("t", count=10, producer=(3, 0, 0))
        driver.append("t", count=4, producer=(4, 0, 0))
    finally:
        sealing.SNAPSHOT_SEGMENTS = every  # type: ignore[misc]


@scenario(durability=FSYNC)
def records_deleted_inside_a_segment(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.delete_records("t", 0, 2)
    driver.append("t")
    driver.delete_records("t", 0, 4)
    driver.append("t")


@scenario(durability=FSYNC)
def records_deleted_over_segments(driver: Driver) -> None:
    driver.append("t", count=8)
    driver.delete_records("t", 0, 5)
    driver.append("t", count=2)
    driver.close()
    driver.open()
    driver.delete_records("t", 0, 9)
    driver.append("t", count=2)


@scenario(durability=DISK)
def all_records_deleted(driver: Driver) -> None:
    driver.append("t", count=6)
    driver.tick()
    driver.delete_records("t", 0, 6)
    driver.append("t", count=2)
    driver.tick()

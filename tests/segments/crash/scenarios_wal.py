"""The write-ahead log: files that fill and are recycled, checkpoints, other shard counts."""

import errno

from segbroker.segments.disk.storage import read_file, write_temporary
from segbroker.segments.wal.files import list_files
from segbroker.segments.wal.frames import FrameType
from segbroker.segments.wal.journal import WalConfig
from segbroker.segments.wal.kept import kept_path
from segbroker.segments.wal.replay import scan_wal_file

from .driver import Driver
from .recording import Fault
from .registry import scenario
from .scenarios_faults import fault, without_marks

LARGE = {"durability": "fsync", "segment_bytes": "4096"}


@scenario(**LARGE)
def wal_files_fill(driver: Driver) -> None:
    driver.append("t", count=6, size=1_500)


@scenario(**LARGE)
def wal_files_are_recycled(driver: Driver) -> None:
    driver.append("t", count=5, size=3_000)
    driver.running.wal.checkpoint()
    driver.append("t", count=4, size=3_000)
    driver.running.wal.checkpoint()
    driver.append("t", size=100)


@scenario(**LARGE)
def wal_files_fill_and_are_freed(driver: Driver) -> None:
    driver.append("t", count=3, size=1_250)
    driver.running.wal.checkpoint()
    driver.append("t", size=100)


@scenario(**LARGE)
def wal_files_with_two_partitions(driver: Driver) -> None:
    driver.grow("t", 2)
    for _ in range(4):
        driver.append("t", 0, size=1_200)
        driver.append("t", 1, size=900)
    driver.running.wal.checkpoint()
    driver.append("t", 1, size=50)


@scenario(**LARGE)
def the_wal_of_a_killed_process(driver: Driver) -> None:
    driver.append("t", count=3, size=300)
    driver.kill()
    driver.open()
    driver.append("t", count=2, size=300)
    driver.kill()
    driver.open()


@scenario(**LARGE)
def batches_too_large_for_the_wal(driver: Driver) -> None:
    driver.alter("t", segment_bytes="16384")
    driver.append("t", count=2, size=200)
    driver.append("t", size=6_000)
    driver.append("t", count=2, size=200)


@scenario(durability="fsync")
def more_shards_after_a_restart(driver: Driver) -> None:
    driver.grow("t", 3)
    for partition in range(3):
        driver.append("t", partition, 2)
    driver.kill()
    driver.wal = WalConfig(shards=3, file_bytes=8_192, shard_bytes=4 * 8_192)
    driver.open()
    for partition in range(3):
        driver.append("t", partition)


@scenario(durability="fsync")
def fewer_shards_after_a_restart(driver: Driver) -> None:
    driver.grow("t", 3)
    driver.close()
    driver.wal = WalConfig(shards=3, file_bytes=8_192, shard_bytes=4 * 8_192)
    driver.open()
    for partition in range(3):
        driver.append("t", partition, 2)
    driver.kill()
    driver.wal = WalConfig(file_bytes=8_192, shard_bytes=4 * 8_192)
    driver.open()
    driver.append("t", 1)


@scenario(durability="fsync")
def a_lone_writer_syncs_for_itself(driver: Driver) -> None:
    driver.append("t", count=2, here=True)
    driver.append("t")
    driver.append("t", count=2, here=True)
    assert driver.running.wal.statistics().syncs_here == 4
    driver.kill()
    driver.open()
    driver.append("t", count=2, here=True)


@scenario(**LARGE)
def a_lone_writer_fills_files(driver: Driver) -> None:
    driver.append("t", count=5, size=1_250, here=True)
    driver.running.wal.checkpoint()
    driver.append("t", count=2, size=100, here=True)


@scenario(durability="fsync")
def a_sync_of_a_lone_writer_fails(driver: Driver) -> None:
    driver.append("t", count=2, here=True)
    fault(driver, Fault("fdatasync", "wal-0.log", 0))
    driver.append("t", count=2, here=True)
    driver.tick()
    driver.append("t", here=True)
    driver.kill()
    driver.open()
    driver.append("t", here=True)


@scenario(durability="disk")
def control_events_of_several_pages(driver: Driver) -> None:
    driver.append("t", count=2)
    driver.close()
    driver.wal = WalConfig(file_bytes=16_384, shard_bytes=4 * 16_384)
    driver.open()
    driver.commit("g", "t", 1, metadata="m" * 3_200)
    driver.create_all("a" * 200, "b" * 249, "c" * 200)
    driver.generation("g", 1, a=b"", b=bytes(9_000))
    driver.commit("g", "t", 2)


@scenario(durability="fsync")
def a_sync_of_the_wal_fails(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("fdatasync", "wal-0.log", 0))
    driver.append("t", count=2)
    driver.close()
    driver.open()
    driver.append("t")


@scenario(durability="fsync")
def a_sync_of_the_wal_fails_under_two_partitions(driver: Driver) -> None:
    driver.grow("t", 2)
    driver.append("t", 0)
    driver.append("t", 1)
    fault(driver, Fault("fdatasync", "wal-0.log", 0))
    driver.append("t", 0)
    driver.append("t", 1)
    driver.close()


@scenario(durability="disk")
def an_event_finds_no_room_and_a_smaller_one_does(driver: Driver) -> None:
    driver.append("t")
    fault(driver, Fault("create", ".log", 0, errno.ENOSPC, lasts=True))
    for offset in range(3):
        driver.commit("g", "t", offset, metadata="m" * 3_000)  # the third needs another file
    driver.commit("g", "t", 3)
    driver.append("t")


@scenario(durability="fsync", segment_bytes="16384")
def groups_of_several_partitions(driver: Driver) -> None:
    roomy(driver)
    driver.append_together("t", 40, 4_500, 40)
    driver.append_together("t", 4_500, 40)


@scenario(durability="fsync", segment_bytes="16384")
def the_log_goes_on_behind_a_group_that_was_given_up(driver: Driver) -> None:
    # | a | given up: a, b, c |   | says so | a, b, c |    c is there, in a page behind that of a
    roomy(driver)
    driver.append_together("t", 40)
    fault(driver, Fault("fdatasync", in_use(driver), 0))
    driver.append_together("t", 40, 4_500, 40)
    driver.tick()
    driver.append_together("t", 40, 4_500, 40)


@scenario(durability="fsync", segment_bytes="16384")
def the_log_goes_on_behind_an_event_that_was_given_up(driver: Driver) -> None:
    roomy(driver)
    driver.append_together("t", 40)
    fault(driver, Fault("fdatasync", in_use(driver), 0))
    driver.commit("g", "t", 1)
    driver.running.wal.revive()
    driver.append_together("t", 40, 4_500, 40)
    driver.commit("h", "t", 1)


def in_use(driver: Driver) -> str:
    """The oldest file of the WAL."""
    folder = f"{driver.running.root}/wal/shard-00"
    return f"/wal-{list_files(driver.disk, folder)['wal'][0]}.log"


def roomy(driver: Driver) -> None:
    """Three partitions, and files of the WAL that have room for groups of several pages."""
    driver.grow("t", 3)
    driver.close()
    driver.wal = WalConfig(file_bytes=16_384, shard_bytes=4 * 16_384)
    driver.open()


@scenario(durability="fsync")
def a_sync_of_the_wal_fails_and_the_process_starts_again(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("fdatasync", "wal-0.log", 0))
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(durability="fsync")
def the_wal_has_no_space(driver: Driver) -> None:
    driver.append("t", count=2)
    fault(driver, Fault("pwrite", "wal-0.log", 0, errno.ENOSPC, room=60))
    driver.append("t")
    driver.tick()
    driver.tick()
    driver.forget_unsent("t")
    driver.append("t", count=2)


@scenario(**LARGE)
def a_segment_cannot_be_synced_for_a_checkpoint(driver: Driver) -> None:
    driver.append("t", count=2, size=1_500)
    fault(driver, Fault("fdatasync", "_segment_0.log", 0))
    driver.append("t", count=2, size=2_000)
    driver.running.wal.checkpoint()
    driver.append("t", size=100)
    driver.close()


@scenario(**LARGE)
def what_a_checkpoint_kept_is_put_back(driver: Driver) -> None:
    driver.append("t", count=2, size=1_500)
    fault(driver, Fault("fdatasync", "_segment_0.log", 0))
    driver.append("t", count=2, size=2_000)
    driver.running.wal.checkpoint()
    assert kept_files(driver) == 1
    driver.kill()
    driver.open()
    assert kept_files(driver) == 0
    driver.append("t")


@scenario(durability="fsync")
def what_a_start_cannot_put_back_is_kept_by_each(driver: Driver) -> None:
    driver.append("t", count=2)
    for _ in range(2):
        driver.kill()
        fault(driver, Fault("fdatasync", "t_partition_0_segment_0.log", 0, lasts=True))
        driver.open()
        assert kept_files(driver) == 1
    driver.kill()
    driver.disk.faults.clear()
    driver.open()
    driver.append("t")


@scenario(**LARGE)
def what_crashes_of_earlier_versions_left_is_removed(driver: Driver) -> None:
    driver.append("t", count=2, size=300)
    root = driver.running.root
    driver.kill()
    frames = read_file(driver.disk, f"{root}/wal/shard-00/wal-0.log")
    left = [
        f"{root}/wal/shard-00/spent-7.log",
        f"{root}/wal/shard-00/kept-8.log.tmp",
        f"{root}/topics/t/partition_0/t_partition_0_segment_0.log.tmp",
        f"{root}/topics/t/partition_0/t_partition_0.manifest.tmp",
        f"{root}/meta/snapshot-9.msgpack.tmp",
    ]
    for path in left:
        write_temporary(driver.disk, path, frames)
        driver.disk.fsync_dir(path.rpartition("/")[0])
    driver.open()
    driver.append("t")
    assert not [path for path in left if driver.disk.exists(path)]
    driver.kill()
    driver.open()


def kept_files(driver: Driver) -> int:
    """Those that have records; others say how far logs are synced."""
    folder = f"{driver.running.root}/wal/shard-00"
    numbers = list_files(driver.disk, folder)["kept"]
    found = [scan_wal_file(driver.disk, kept_path(folder, number)) for number in numbers]
    return sum(
        one is not None and any(frame.type is FrameType.BATCHES for frame in one.frames)
        for one in found
    )


@scenario(**LARGE)
def a_failed_checkpoint_and_another_process(driver: Driver) -> None:
    without_marks(driver)
    driver.append("t", count=3, size=600)
    fault(driver, Fault("fdatasync", "_segment_0.log", 0))
    driver.handler("t").wal_checkpoint()
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(durability="fsync")
def deleted_and_made_again_while_the_wal_remembers(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.delete("t")
    driver.create("t")
    driver.append("t", count=2)
    driver.kill()
    driver.open()
    driver.append("t")


@scenario(durability="fsync")
def records_deleted_while_the_wal_remembers(driver: Driver) -> None:
    driver.append("t", count=8)
    driver.delete_records("t", 0, 6)
    driver.tick()
    driver.kill()
    driver.open()
    driver.append("t", count=2)


@scenario(durability="disk")
def made_safer_while_records_are_unsynced(driver: Driver) -> None:
    driver.append("t", count=3)
    driver.alter("t", durability="fsync")
    driver.append("t", count=2)
    driver.alter("t", durability="disk")
    driver.append("t", count=2)
    driver.tick()

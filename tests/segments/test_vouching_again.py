"""What was once said of a log is not taken back: the END frames of a checkpoint, of the ones before
it, and of a group that is being written, are one.  Nor does a failure leave kept files behind."""

import errno

import pytest

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.wal.files import list_files
from segbroker.segments.wal.journal import Wal

from .crashing import CrashingStorage, Killed
from .wal_writing import ROOT, TOPIC, Writer, begun, replayed

FOLDER = f"{ROOT}/shard-00"


def end_offset(disk: MemoryStorage) -> int:
    """What is vouched for after a power cut."""
    found = replayed(disk.after_power_cut())
    assert not found.missing
    return max(frame.base_offset for frame in found.partitions[TOPIC, 5])


def test_an_older_end_in_a_file_that_goes_does_not_replace_a_later_one() -> None:
    """wal-17 | END 70 |   then END 90 rides, and a checkpoint keeps it; then wal-17 goes."""
    disk = MemoryStorage()
    wal, _ = begun(disk)
    wal.end_soon(TOPIC, 5, 3, 4096, 70)
    wal.say_ends()
    shard = wal.shard_of(TOPIC, 5)
    wal.end_soon(TOPIC, 5, 3, 8192, 90)
    shard.keep_ends()
    shard._retire(trusted=True)
    wal.checkpoint()
    assert end_offset(disk) == 90


def test_of_two_syncs_that_end_in_the_other_order_the_later_one_is_said() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 5)
    wal.end_soon(TOPIC, 5, 3, 8192, 90)
    wal.end_soon(TOPIC, 5, 3, 4096, 70)
    wal.say_ends()
    assert end_offset(disk) == 90
    wal.end_soon(TOPIC, 5, 3, 4096, 80)
    wal.say_ends()
    shard._retire(trusted=True)
    wal.checkpoint()
    assert end_offset(disk) == 90


class CheckpointedStorage(MemoryStorage):
    """Runs a checkpoint while the log is being synced; `image`: a power cut just behind it."""

    wal: Wal | None = None
    image: MemoryStorage | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = CheckpointedFile(path, super().open(path, create=create)._inode, self)
        file.owner = self
        return file


class CheckpointedFile(MemoryFile):
    owner: CheckpointedStorage

    def fdatasync(self) -> None:
        wal, self.owner.wal = self.owner.wal, None
        if wal is not None:
            wal.checkpoint()
            self.owner.image = self.owner.after_power_cut()
        super().fdatasync()


def test_an_end_that_is_being_written_is_kept_by_the_checkpoint_of_that_moment() -> None:
    """wal-17 | records |   synced since, so END rides; it is in wal-18, and not durable yet."""
    disk = CheckpointedStorage()
    wal, _ = begun(disk)
    Writer(wal, 5).append(b"records")
    shard = wal.shard_of(TOPIC, 5)
    shard._retire(trusted=True)
    Writer(wal, 6).append(b"so that there is another file")
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    disk.wal = wal
    wal.say_ends()
    assert disk.image is not None
    assert not shard.full
    assert end_offset(disk.image) == 77


@pytest.mark.parametrize("what", ["sync", "marker"])
def test_a_kept_file_that_could_not_be_replaced_is_not_left_behind(what: str) -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 5)
    fsync_dir, unlink, create = disk.fsync_dir, disk.unlink, disk.open
    unlinked: list[str] = []
    failures = 0

    def unlink_one(path: str) -> None:
        unlink(path)
        unlinked.append(path)

    def sync(path: str) -> None:
        nonlocal failures
        last = unlinked[-1] if unlinked else ""
        if what == "sync" and failures == 0 and path == FOLDER and last.startswith(FOLDER):
            failures += 1
            raise OSError(errno.EIO, "planted", path)
        fsync_dir(path)

    def open_one(path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        nonlocal failures
        if what == "marker" and "/witness/shard-00.kept" in path and 0 < failures_left[0]:
            failures_left[0] -= 1
            failures += 1
            raise OSError(errno.EIO, "planted", path)
        return opened(path, create=create, read_only=read_only)

    opened, failures_left = create, [3]
    vars(disk).update(fsync_dir=sync, unlink=unlink_one, open=open_one)
    for number in range(8):
        wal.end_soon(TOPIC, 5, 3, 4096, 70 + number)
        shard.keep_ends()
    assert failures
    assert len(list_files(disk, FOLDER)["kept"]) == 1
    assert end_offset(disk) == 77


def test_the_removal_of_a_kept_file_is_tried_again_and_may_be_interrupted_anywhere() -> None:
    for dies_at in range(1_000):
        disk = CrashingStorage()
        wal, _ = begun(disk)
        shard = wal.shard_of(TOPIC, 5)
        fsync_dir = disk.fsync_dir
        fails = True

        def sync(path: str, fsync_dir: object = fsync_dir) -> None:
            assert callable(fsync_dir)
            if fails and path == FOLDER and list_files(disk, FOLDER)["kept"] == [1]:
                raise OSError(errno.EIO, "planted", path)
            fsync_dir(path)

        vars(disk)["fsync_dir"] = sync
        for number in range(2):
            wal.end_soon(TOPIC, 5, 3, 4096, 70 + number)
            shard.keep_ends()
        fails = False
        wal.end_soon(TOPIC, 5, 3, 4096, 77)
        disk.dies_at = len(disk.operations) + dies_at
        try:
            shard.keep_ends()
        except Killed:
            for image in (disk.after_kill(), disk.after_power_cut()):
                found = replayed(image)
                assert not found.missing, dies_at
                assert (TOPIC, 5) in found.partitions
        else:
            break
    assert dies_at > 8
    assert len(list_files(disk, FOLDER)["kept"]) == 1

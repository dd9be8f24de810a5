"""What was once said of a log is not taken back: the END frames of a checkpoint, of the ones before
it, and of a group that is being written, are one.  Nor does a failure leave kept files behind."""

import errno
from collections.abc import Callable

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.files import list_files
from segbroker.segments.wal.journal import Wal

from .crashing import CrashingFile, CrashingStorage, Killed
from .test_vouched_at_start import lose_the_last, started
from .tools import append, batch_of
from .wal_writing import ROOT, TOPIC, Writer, begun, replayed

FOLDER = f"{ROOT}/shard-00"
OTHER = bytes(reversed(TOPIC))


def end_offset(disk: MemoryStorage) -> int:
    """What is vouched for after a power cut."""
    found = replayed(disk.after_power_cut())
    assert not found.missing
    frames = found.partitions.get((TOPIC, 5), [])
    return max((frame.base_offset for frame in frames), default=-1)


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


def test_what_a_checkpoint_has_said_of_a_log_is_not_unsaid_by_the_next() -> None:
    """wal-0 | 0 1 |   wal-1 | END 2 | 2 |   The first goes, and END 3 is kept; then the second."""
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, TopicConfig({}))
    handler = manager.get_handler("t", 0)
    shard = manager.wal.shard_of(manager.topics["t"].topic_id.bytes, 0)
    for value in (b"0", b"1"):
        append(handler, batch_of(value))
    shard._retire(trusted=True)
    handler.sync()
    manager.wal.say_ends()
    append(handler, batch_of(b"2"))
    assert handler.high_watermark == 3
    for _ in range(2):
        manager.wal.checkpoint()
        shard._retire(trusted=True)
    manager.wal.checkpoint()
    disk = disk.after_kill()
    lose_the_last(disk)
    manager = started(disk)
    assert manager.get_handler("t", 0).log_end_offset == 3, "no offset is given again"
    assert [row.from_offset for row in manager.report.rows if row.what == "gap"] == [2]


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


def test_what_a_kept_file_says_does_not_ride_as_well() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 5)
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    shard.keep_ends()
    wal.say_ends()
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    wal.say_ends()
    assert wal.statistics().frames_written == 0
    wal.end_soon(TOPIC, 5, 3, 4096, 78)
    wal.say_ends()
    assert wal.statistics().frames_written == 1


def test_nothing_is_kept_of_a_topic_that_is_gone() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 5)
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    shard.keep_ends()
    wal.end_soon(TOPIC, 5, 3, 4096, 78)
    wal.forget(TOPIC, 6)
    wal.end_soon(OTHER, 5, 3, 4096, 88)
    shard.keep_ends()
    wal.say_ends()
    assert list(replayed(disk.after_power_cut()).partitions) == [(OTHER, 5)]


class MeanwhileStorage(MemoryStorage):
    """Calls `meanwhile` once, when a kept file gets its name."""

    meanwhile: Callable[[], None] | None = None

    def rename(self, source: str, target: str) -> None:
        call = self.meanwhile
        if call is not None and "/kept-" in target:
            self.meanwhile = None
            call()
        super().rename(source, target)


def test_an_end_that_comes_while_a_kept_file_is_written_rides() -> None:
    disk = MeanwhileStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 5)
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    disk.meanwhile = lambda: wal.end_soon(TOPIC, 5, 3, 8192, 80)
    shard.keep_ends()
    assert disk.meanwhile is None
    assert end_offset(disk) == 77
    wal.say_ends()
    assert end_offset(disk) == 80


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


class SomeFail(CrashingStorage):
    """Fails what it is told to, with EIO."""

    markers_fail = 0
    """So many times."""
    removal_fails = False
    """The sync of the directory behind the removal of kept-0."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashingFile:
        if create and self.markers_fail and "/witness/shard-00.kept" in path:
            self.markers_fail -= 1
            raise OSError(errno.EIO, "planted", path)
        return super().open(path, create=create, read_only=read_only)

    def fsync_dir(self, path: str) -> None:
        if self.removal_fails and path == FOLDER and kept(self) == [1]:
            raise OSError(errno.EIO, "planted", path)
        super().fsync_dir(path)


def kept(disk: MemoryStorage) -> list[int]:
    return list_files(disk, FOLDER)["kept"]


def test_a_kept_file_without_a_marker_is_not_left_behind() -> None:
    disk = SomeFail()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 5)
    for number in range(6):
        disk.markers_fail = 1 if number in (1, 2, 4) else 0
        wal.end_soon(TOPIC, 5, 3, 4096, 70 + number)
        shard.keep_ends()
        assert len(kept(disk)) == 1
    assert end_offset(disk) == 75


def test_the_removal_of_a_kept_file_is_tried_again_and_may_be_interrupted_anywhere() -> None:
    for dies_at in range(1_000):
        disk = SomeFail()
        wal, _ = begun(disk)
        shard = wal.shard_of(TOPIC, 5)
        disk.removal_fails = True
        for number in range(2):
            wal.end_soon(TOPIC, 5, 3, 4096, 70 + number)
            shard.keep_ends()
        assert kept(disk) == [1]
        disk.removal_fails = False
        wal.end_soon(TOPIC, 5, 3, 4096, 77)
        disk.dies_at = len(disk.operations) + dies_at
        try:
            shard.keep_ends()
        except Killed:
            for image in (disk.after_kill(), disk.after_power_cut()):
                assert end_offset(image) in (71, 77), dies_at
        else:
            break
    assert dies_at > 8
    assert kept(disk) == [2]
    assert end_offset(disk) == 77

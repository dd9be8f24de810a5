"""A start on a disk without any room: it gives back what is free, or says what it lacks."""

import errno
import os
import re

import pytest
from structlog.testing import capture_logs

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import SMALL_WAL, DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import (
    Buffer,
    Space,
    make_dirs,
    read_file,
    remove_tree,
    write_temporary,
)
from segbroker.segments.errors import StorageError
from segbroker.segments.files.unsynced import mark_unsynced
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal import files as wal_files
from segbroker.segments.wal.files import SMALL_FILE_BYTES, ShardFiles, is_short
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.replay import Replay

from .crash.observing import see_handler
from .wal_writing import ROOT, SMALL, Writer, begun, content, replayed

DATA = "/data"
WAL = f"{DATA}/wal/shard-00"
RESERVE_BYTES = 1_000


class SmallDisk(MemoryStorage):
    """Has `capacity` bytes, once that is not None."""

    capacity: int | None = None
    error = errno.ENOSPC

    @classmethod
    def over(cls, disk: MemoryStorage, room: int) -> "SmallDisk":
        """What `disk` holds, and this much room."""
        small = cls()
        small._root, small._boot = disk._root, disk._boot
        small.capacity = small.used() + room
        return small

    def used(self, path: str = "/data") -> int:
        if not self.exists(path):
            return 0
        try:
            names = self.listdir(path)
        except NotADirectoryError:
            return super().open(path).size()
        return sum(self.used(f"{path}/{name}") for name in names)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        return SmallFile(path, plain._inode, self)

    def space(self, path: str) -> Space | None:
        if self.capacity is None:
            return None
        return Space(self.capacity, max(self.capacity - self.used(), 0))


class SmallFile(MemoryFile):
    def pwrite(self, data: Buffer, position: int) -> int:
        assert isinstance(self._disk, SmallDisk)
        space = self._disk.space(self.path)
        if space is not None and position + len(data) - self.size() > space.usable:
            raise OSError(self._disk.error, "No space left on device")
        return super().pwrite(data, position)


def manager_on(disk: MemoryStorage) -> DiskManager:
    return DiskManager(DATA, storage=disk, flushers=0, now_ms=1_000, reserve_bytes=RESERVE_BYTES)


def append(manager: DiskManager, value: bytes) -> None:
    batch = memoryview(bytearray(encode_batch([value], timestamps_ms=1_000)))
    manager.get_handler("t", 0).append(batch, check_batch(batch), 1_000)


def killed(*lacking: str) -> SmallDisk:
    """Full to the last byte, without the files of whose names one of these is a part."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    for number in range(3):
        append(manager, b"%d" % number)
    image = disk.after_kill()
    for folder in (DATA, WAL):
        for name in image.listdir(folder):
            if any(part in name for part in lacking):
                image.unlink(f"{folder}/{name}")
    return SmallDisk.over(image, 0)


def check_serves(disk: MemoryStorage) -> None:
    manager = manager_on(disk)
    manager.open()
    assert see_handler(manager.get_handler("t", 0)).end == 3
    append(manager, b"there is room again")
    manager.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT], ids=["disk", "quota"])
@pytest.mark.parametrize("lacking", [("reserve",), ("wal-1", "free-")], ids=["ready", "reserve"])
def test_a_start_on_a_full_disk_gives_back_what_is_free(
    lacking: tuple[str, ...], error: int
) -> None:
    disk = killed(*lacking)
    disk.error = error
    check_serves(disk)
    assert disk.exists(f"{DATA}/reserve") == ("reserve" in lacking), (
        "made again where there is room"
    )


def test_a_start_that_lacks_room_removes_what_deleted_topics_left() -> None:
    disk = MemoryStorage()
    wal = WalConfig(file_bytes=1 << 14, shard_bytes=1 << 18)
    manager = DiskManager(DATA, storage=disk, flushers=0, now_ms=1_000, wal=wal)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    for number in range(7):
        append(manager, b"%d" % number * 12_000)
    cut = disk.after_power_cut()  # the records are in the write-ahead log alone
    grave = f"{DATA}/topics/~{7:032x}"
    make_dirs(cut, grave)
    cut.open(f"{grave}/gone", create=True).pwrite(bytes(100_000), 0)
    small = SmallDisk.over(cut, 40_000)
    assert not is_short(small, DATA, SMALL_WAL.file_bytes), "it could be left for later"
    manager = manager_on(small)
    manager.open()
    assert see_handler(manager.get_handler("t", 0)).end == 7
    assert not small.exists(grave)
    manager.close()


def test_a_start_that_finds_two_snapshots_needs_no_room_for_a_third() -> None:
    # Killed behind the name of the second; nothing came since.
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.open()
    first = f"{DATA}/meta/snapshot-1.msgpack"
    before = read_file(disk, first)
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    for number in range(3):
        append(manager, b"%d" % number)
    manager._metadata.save()
    image = disk.after_kill()
    write_temporary(image, first, before)
    image.unlink(f"{DATA}/reserve")
    marked = [f"{DATA}/{folder}/shard-00.wal-1" for folder in ("wal", "witness")]
    for path in (f"{WAL}/wal-1.log", *marked):  # nor is another file ready, or free
        image.unlink(path)
    assert image.listdir(WAL) == ["wal-0.log"]
    manager = manager_on(SmallDisk.over(image, 0))
    manager.open()
    assert see_handler(manager.get_handler("t", 0)).end == 3


def test_a_start_that_lacks_room_says_how_much_and_loses_nothing() -> None:
    disk = killed("reserve", "wal-1", "free-")
    before = disk.listdir(WAL)
    with pytest.raises(StorageError, match=r"No space left.* needs about \d+ KiB more .*grow it"):
        manager_on(disk).open()
    assert disk.listdir(WAL) == before
    texts = [one.text for one in DirectoryChecker(disk, DATA, 1_000).check()]
    assert any("a start needs about" in text for text in texts)
    check_serves(SmallDisk.over(disk, 100_000))


def test_the_room_that_a_start_says_it_needs_is_enough_behind_a_failed_sync() -> None:
    """What is not sealed is written to new files beside the old ones."""
    disk = MemoryStorage()
    wal = WalConfig(file_bytes=1 << 14, shard_bytes=1 << 20)
    manager = DiskManager(DATA, storage=disk, flushers=0, now_ms=1_000, wal=wal)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    for number in range(20):
        append(manager, b"%02d" % number * 6_000)
    mark_unsynced(disk, manager.get_handler("t", 0)._log.paths)
    full = SmallDisk.over(disk.after_kill(), 0)
    with pytest.raises(StorageError) as failure:
        manager_on(full).open()
    needed = re.search(r"needs about (\d+) KiB", str(failure.value))
    assert needed is not None
    assert full.capacity is not None
    full.capacity += int(needed[1]) * 1_024
    manager = manager_on(full)
    manager.open()
    assert see_handler(manager.get_handler("t", 0)).end == 20


def test_where_a_start_has_room_nothing_is_said_of_it() -> None:
    disk = SmallDisk.over(killed(), 100_000)
    assert not [one for one in DirectoryChecker(disk, DATA, 1_000).check() if "room" in one.text]


def test_the_reserve_is_not_made_of_the_last_room() -> None:
    disk = killed("reserve")
    disk.capacity = disk.used() + 100_000
    manager = manager_on(disk)
    manager.open()
    assert manager.reserve.give_back()
    disk.capacity = disk.used() + 2 * RESERVE_BYTES - 1
    manager.reserve.keep()
    assert not disk.exists(f"{DATA}/reserve")
    disk.capacity += 1
    manager.reserve.keep()
    assert disk.open(f"{DATA}/reserve").size() == RESERVE_BYTES
    manager.close()


class NoMoreFiles(MemoryStorage):
    """A volume with room, on which no file `reserve` can be made."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if create and path.endswith("/reserve"):
            raise OSError(errno.ENOSPC, "no inode is left", path)
        return super().open(path, create=create, read_only=read_only)


def test_why_the_reserve_is_not_made_is_told_where_there_is_nothing_of_it() -> None:
    with capture_logs() as told, manager_on(NoMoreFiles()):
        pass
    (why,) = [line["error"] for line in told if line["event"] == "reserve_not_made"]
    assert "no inode is left" in why


class Silent(MemoryStorage):
    """Its room cannot be asked for."""

    def space(self, path: str) -> Space | None:
        raise OSError(errno.ENOSYS, "Function not implemented", path)


def test_a_volume_whose_room_cannot_be_asked_for_is_used_and_checked() -> None:
    disk = Silent()
    manager = manager_on(disk)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    for number in range(150):
        append(manager, b"%d" % number * 500)
    numbers = manager.wal.statistics()
    assert numbers.checkpoints > 2
    assert numbers.files_full < 2, "what is full is freed"
    killed = Silent()
    killed._root = disk.after_kill()._root
    assert not [one for one in DirectoryChecker(killed, DATA, 1_000).check() if one.is_damage]
    manager = manager_on(killed)
    manager.open()
    assert see_handler(manager.get_handler("t", 0)).end == 150


@pytest.mark.parametrize("is_mounted", [True, False])
def test_a_write_ahead_log_that_is_not_there_is_told_and_no_offset_is_given_again_unseen(
    *, is_mounted: bool
) -> None:
    # It is on a disk of its own that is not mounted, and the power took what the segments had.
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    manager.close()
    manager = manager_on(disk)
    manager.open()
    append(manager, b"acknowledged")
    epoch = manager.get_handler("t", 0).leader_epoch
    cut = disk.after_power_cut()
    remove_tree(cut, f"{DATA}/wal")
    if is_mounted:
        cut.mkdir(f"{DATA}/wal")
    texts = [one.text for one in DirectoryChecker(cut, DATA, 1_000).check() if one.is_damage]
    assert any("the write-ahead log is missing" in text for text in texts)
    manager = manager_on(cut)
    manager.open()
    assert manager.report.counts["wal_damaged"] == 1
    assert manager.get_handler("t", 0).leader_epoch > epoch
    manager.close()
    assert not [one for one in DirectoryChecker(cut, DATA, 1_000).check() if one.is_damage]
    manager = manager_on(cut)
    manager.open()
    assert not manager.report.counts["wal_damaged"], "told once"


def test_a_ready_file_that_was_given_back_is_not_missed_by_the_next_start() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    names = disk.listdir(f"{ROOT}/shard-00")
    assert names == ["wal-0.log", "wal-1.log"], "one in use, one made ready"
    image = disk.after_kill()
    again, _ = wal_of(image)
    assert again.give_space_back()
    found = replayed(image.after_power_cut())
    assert (content(found), found.missing) == (b"one", [])
    assert image.listdir(f"{ROOT}/shard-00") == ["wal-0.log"]


def wal_of(disk: MemoryStorage) -> tuple[Wal, Replay]:
    wal = Wal(disk, ROOT, SMALL, threaded=False, call_soon=lambda task: task())
    return wal, wal.open()


def test_on_a_short_volume_full_files_are_freed_early_and_spare_ones_go() -> None:
    disk = SmallDisk()
    wal, _ = begun(disk)
    writer = Writer(wal)
    while not wal.statistics().files_full:
        writer.append(bytes(1_000))
    wal.relieve()
    assert wal.statistics().files_full == 1, "there is room"
    while writer.checkpoints < 1:
        writer.append(bytes(1_000))
    disk.capacity = disk.used()
    before = wal.statistics().files
    wal.relieve()
    assert wal.statistics().files_full == 0
    assert wal.statistics().files == 3 < before
    assert len(disk.listdir(f"{ROOT}/shard-00")) == 3, "one is written, one ready, one free"
    disk.capacity = None
    for _ in range(40):
        writer.append(bytes(1_000))
    assert writer.durable == writer.end


def test_a_start_on_a_short_volume_keeps_two_files_of_its_wal() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    while len(disk.listdir(f"{ROOT}/shard-00")) < 4:
        writer.can_checkpoint = False
        writer.append(bytes(1_000))
    small = SmallDisk.over(disk.after_kill(), 0)
    begun(small)
    assert len(small.listdir(f"{ROOT}/shard-00")) == 2


LARGE_WAL = WalConfig(file_bytes=2 << 20, shard_bytes=8 << 20)


def stopped(wal: WalConfig) -> MemoryStorage:
    """Two topics with a record each, and an orderly stop."""
    disk = MemoryStorage()
    manager = DiskManager(
        DATA, storage=disk, flushers=0, now_ms=1_000, wal=wal, reserve_bytes=1 << 20
    )
    manager.open()
    for name in ("t", "other"):
        manager.create_topic(name, 1, TopicConfig({"durability": "fsync"}))
    append(manager, b"a record")
    manager.close()
    return disk


def sizes(disk: MemoryStorage) -> set[int]:
    """Those of the files of the write-ahead log that are written, or will be."""
    names = [name for name in disk.listdir(WAL) if not name.startswith("kept-")]
    return {disk.open(f"{WAL}/{name}").size() for name in names}


def test_larger_files_that_a_full_volume_has_no_room_for_leave_those_that_there_are() -> None:
    disk = SmallDisk.over(stopped(SMALL_WAL), 0)
    manager = DiskManager(DATA, storage=disk, flushers=0, now_ms=1_000, wal=LARGE_WAL)
    manager.open()
    manager.delete_topic("other")
    assert sizes(disk) == {SMALL_WAL.file_bytes}
    with pytest.raises(StorageError, match="No space left"):
        append(manager, bytes(2 * SMALL_WAL.file_bytes))
    disk.capacity = None
    manager.housekeeping(100_000)
    for number in range(8):  # through the small ones
        append(manager, b"%d" % number * 10_000)
    assert sizes(disk) == {LARGE_WAL.file_bytes}, "where there is room they go"
    manager.close()


class Watched(SmallDisk):
    """Notes how little room it had left."""

    least = 1 << 40

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        return WatchedFile(path, plain._inode, self)


class WatchedFile(SmallFile):
    def pwrite(self, data: Buffer, position: int) -> int:
        count = super().pwrite(data, position)
        assert isinstance(self._disk, Watched)
        if (space := self._disk.space(self.path)) is not None:
            self._disk.least = min(self._disk.least, space.usable)
        return count


def test_a_file_of_the_wal_that_the_volume_has_no_room_for_takes_none_of_it_meanwhile() -> None:
    room = (3 << 20) // 2  # the first MiB of zeros would fit
    disk = Watched.over(MemoryStorage(), 0)
    assert isinstance(disk, Watched)
    files = ShardFiles(disk, WAL, 0, LARGE_WAL.file_bytes)
    files.open()
    disk.capacity = room
    for _ in range(2):
        assert files.prepare().size == SMALL_FILE_BYTES
    for _ in range(3):  # as it is tried again and again
        with pytest.raises(OSError, match="takes 2097152 bytes of") as raised:
            files.prepare()
        assert raised.value.errno == errno.ENOSPC
    assert disk.least > room - 3 * SMALL_FILE_BYTES, "others need it meanwhile"
    disk.capacity = None
    assert files.prepare().size == LARGE_WAL.file_bytes


def test_a_small_file_of_the_wal_is_made_also_where_the_large_one_cannot_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SmallDisk.over(MemoryStorage(), 0)
    files = ShardFiles(disk, WAL, 0, LARGE_WAL.file_bytes)
    files.open()
    disk.capacity = (3 << 20) // 2  # the first MiB of zeros fits
    monkeypatch.setattr(wal_files, "check_room", lambda *_: None)  # a volume that does not say

    def kept(_disk: SmallDisk, path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(SmallDisk, "unlink", kept)
    assert files.prepare().size == SMALL_FILE_BYTES


def test_a_start_without_a_file_of_the_wal_on_a_full_volume_makes_a_small_one() -> None:
    before = stopped(LARGE_WAL)
    for name in before.listdir(WAL):
        before.unlink(f"{WAL}/{name}")
    disk = SmallDisk.over(before, 0)
    manager = DiskManager(
        DATA, storage=disk, flushers=0, now_ms=1_000, wal=LARGE_WAL, reserve_bytes=1 << 20
    )
    manager.open()
    manager.delete_topic("other")
    assert sizes(disk) == {SMALL_FILE_BYTES}
    assert not disk.exists(f"{DATA}/reserve")
    manager.close()

"""The contract of the disk port, over both implementations."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.disk.storage import (
    Advice,
    Storage,
    make_dirs,
    make_root,
    read_file,
    remove_tree,
    replace_file,
    write_all,
)
from segbroker.segments.library.log import SegmentedLog

from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .crash.second_life import left_by
from .tools import SMALL, flip, values_of

# What a platform may lack, one by one and all together.
LACKING = {
    "posix": [],
    "posix without RWF_NOWAIT": ["RWF_NOWAIT"],
    "posix without preadv": ["preadv"],
    "posix without fdatasync": ["fdatasync"],
    "posix without posix_fadvise": ["posix_fadvise", "POSIX_FADV_WILLNEED", "POSIX_FADV_DONTNEED"],
    "plain posix": ["RWF_NOWAIT", "preadv", "fdatasync", "posix_fadvise"],
}


@pytest.fixture(params=[*LACKING, "memory"])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Storage, str]:
    if request.param == "memory":
        storage = MemoryStorage()
        storage.mkdir("/disk")
        return storage, "/disk"
    for name in LACKING[request.param]:
        monkeypatch.delattr(os, name, raising=False)
    return PosixStorage(), str(tmp_path)


def test_a_boot_has_one_id_as_long_as_it_lasts(disk: tuple[Storage, str]) -> None:
    storage, path = disk
    assert storage.boot_id(path) == storage.boot_id(path) != ""


def test_a_kill_keeps_the_boot_and_a_power_cut_ends_it() -> None:
    storage = MemoryStorage()
    assert storage.after_kill().boot_id("/") == storage.boot_id("/")
    after = storage.after_power_cut()
    assert after.boot_id("/") != storage.boot_id("/")
    assert after.after_power_cut().boot_id("/") not in {after.boot_id("/"), storage.boot_id("/")}


def test_a_platform_without_a_boot_id_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segbroker.segments.disk.posix.BOOT_ID", "/nonexistent/boot_id")
    assert PosixStorage().boot_id("/") == ""


@pytest.mark.parametrize("is_partition", [False, True])
def test_a_disk_that_is_given_back_counts_as_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_partition: bool
) -> None:
    """As sysfs has it: a partition lies within its disk."""
    device = tmp_path.stat().st_dev
    monkeypatch.setattr("segbroker.segments.disk.posix.DISKS", str(tmp_path))
    machine = PosixStorage().boot_id(str(tmp_path))
    assert " " not in machine
    at = "one/part" if is_partition else "one"
    (tmp_path / at).mkdir(parents=True)
    (tmp_path / f"{os.major(device)}:{os.minor(device)}").symlink_to(at)
    (tmp_path / "one" / "diskseq").write_text("7\n")
    first = PosixStorage().boot_id(str(tmp_path))
    assert first == PosixStorage().boot_id(str(tmp_path)) != machine
    assert first.startswith(f"{machine} ")
    (tmp_path / "one" / "diskseq").write_text("8\n")
    assert PosixStorage().boot_id(str(tmp_path)) not in {first, machine}


def test_a_disk_that_only_the_mount_names_counts_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of btrfs, whose files are on no device that has a number of its own."""
    if not Path("/dev/shm").is_dir() or os.major(os.stat("/dev/shm").st_dev):
        pytest.skip("there is no file system in memory")
    machine = PosixStorage().boot_id("/dev/shm")
    assert " " not in machine, "nobody has a disk there"
    held = os.open("/dev/shm", os.O_RDONLY)
    told = Path(f"/proc/self/fdinfo/{held}").read_text().split()
    os.close(held)
    mount = told[told.index("mnt_id:") + 1]
    lines = ["1 0 0:1 / / rw - proc proc rw", f"{mount} 1 0:2 / /m rw - btrfs /dev/x rw"]
    (tmp_path / "mountinfo").write_text("\n".join(lines))
    (tmp_path / "8:3").mkdir()
    (tmp_path / "8:3" / "diskseq").write_text("7\n")
    disk = {b"/dev/x": os.makedev(8, 3)}
    monkeypatch.setattr("segbroker.segments.disk.posix.MOUNTS", str(tmp_path / "mountinfo"))
    monkeypatch.setattr("segbroker.segments.disk.posix.DISKS", str(tmp_path))
    monkeypatch.setattr("segbroker.segments.disk.posix._disk_at", disk.__getitem__)
    assert PosixStorage().boot_id("/dev/shm") == f"{machine} 8:3#7"


def test_a_volume_has_room_and_memory_says_nothing_of_it(tmp_path: Path) -> None:
    space = PosixStorage().space(str(tmp_path))
    assert space is not None
    assert 0 <= space.usable <= space.total > 0
    with pytest.raises(FileNotFoundError):
        PosixStorage().space(str(tmp_path / "nowhere"))
    assert MemoryStorage().space("/disk") is None


@pytest.mark.parametrize(("most", "left", "said"), [(1_000, 7, 7), (0, 0, None)])
def test_a_volume_may_have_room_for_few_files(
    most: int, left: int, said: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)
    fields = list(real)
    fields[5], fields[7] = most, left  # f_files, f_favail
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    space = PosixStorage().space(str(tmp_path))
    assert space is not None
    assert space == (real.f_blocks * real.f_frsize, real.f_bavail * real.f_frsize, said)


def test_a_file_system_that_says_nothing_of_its_room_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = os.statvfs_result([512, 0, 0, 0, 0, 0, 0, 0, 0, 255])  # FUSE without statfs
    monkeypatch.setattr(os, "statvfs", lambda path: nothing)
    assert PosixStorage().space(str(tmp_path)) is None


def test_what_was_written_is_read(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    file = storage.open(f"{root}/a", create=True)
    write_all(file, b"hello", 0)
    write_all(file, b"J", 0)
    buffer = memoryview(bytearray(3))
    assert file.pread(buffer, 1) == 3
    assert bytes(buffer) == b"ell"
    assert file.pread(buffer, 4) == 1
    assert file.size() == 5
    file.close()
    file.close()
    assert read_file(storage, f"{root}/a") == b"Jello"


def test_a_write_behind_the_end_leaves_zeros_in_between(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    file = storage.open(f"{root}/a", create=True)
    write_all(file, b"x", 3)
    assert read_file(storage, f"{root}/a") == b"\0\0\0x"


def test_create_never_empties_a_file(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    replace_file(storage, f"{root}/a", b"old")
    storage.open(f"{root}/a", create=True).close()
    assert read_file(storage, f"{root}/a") == b"old"


def test_truncate_cuts_and_extends_with_zeros(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    replace_file(storage, f"{root}/a", b"abcdef")
    file = storage.open(f"{root}/a")
    file.truncate(2)
    file.truncate(4)
    assert read_file(storage, f"{root}/a") == b"ab\0\0"


def test_a_nowait_read_is_whole_or_none(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    replace_file(storage, f"{root}/a", b"abcdef")
    file = storage.open(f"{root}/a", read_only=True)
    buffer = memoryview(bytearray(4))
    assert file.pread_nowait(buffer, 0) in (4, None)
    assert file.pread_nowait(buffer, 4) is None


def test_an_open_file_outlives_its_name(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    replace_file(storage, f"{root}/a", b"abc")
    file = storage.open(f"{root}/a", read_only=True)
    storage.unlink(f"{root}/a")
    buffer = memoryview(bytearray(3))
    assert file.pread(buffer, 0) == 3
    assert not storage.exists(f"{root}/a")


def test_an_open_file_knows_whether_its_path_leads_to_it(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    file = storage.open(f"{root}/a", create=True)
    assert file.is_in_place()
    file.pwrite(b"abc", 0)
    assert file.is_in_place(3)
    file.truncate(2)
    assert not file.is_in_place(3), "cut off"
    assert file.is_in_place(2)
    storage.open(f"{root}/b", create=True).close()
    storage.rename(f"{root}/b", f"{root}/a")
    assert not file.is_in_place(), "replaced"
    storage.unlink(f"{root}/a")
    assert not file.is_in_place(), "removed"
    file.close()
    assert file.is_in_place(1), "nobody knows"


def test_a_held_lock_is_looked_for_by_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is with each path of a data directory: seven times for a partition that is opened."""
    lock = PosixStorage().lock(f"{tmp_path}/LOCK")
    looked: list[object] = []
    real = os.stat

    def stat(path: str) -> os.stat_result:
        looked.append(path)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat)
        patch.setattr(os, "fstat", looked.append)
        assert lock.is_in_place()
    assert looked == [f"{tmp_path}/LOCK"]
    lock.release()


def test_rename_replaces(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    replace_file(storage, f"{root}/a", b"new")
    replace_file(storage, f"{root}/b", b"old")
    storage.rename(f"{root}/a", f"{root}/b")
    assert storage.listdir(root) == ["b"]
    assert read_file(storage, f"{root}/b") == b"new"


def test_missing_things_raise(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    with pytest.raises(FileNotFoundError):
        storage.open(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        storage.listdir(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        storage.unlink(f"{root}/none")


def test_a_tree_is_made_and_removed(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    make_dirs(storage, f"{root}/a/b/c")
    replace_file(storage, f"{root}/a/b/file", b"")
    remove_tree(storage, f"{root}/a")
    assert storage.listdir(root) == []


def test_what_may_not_be_removed_says_so(
    disk: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, path: str) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    storage, root = disk
    make_dirs(storage, f"{root}/a")
    replace_file(storage, f"{root}/a/file", b"")
    monkeypatch.setattr(type(storage), "unlink", refuse)
    with pytest.raises(PermissionError, match="Operation not permitted"):
        remove_tree(storage, f"{root}/a")


def test_what_is_made_is_nothing_for_others(tmp_path: Path) -> None:
    storage, folder = PosixStorage(), tmp_path / "made"
    before = os.umask(0)
    try:
        storage.mkdir(str(folder))
        storage.open(str(folder / "file"), create=True).close()
        storage.lock(str(folder / "lock")).release()
    finally:
        os.umask(before)
    modes = {one.name: one.stat().st_mode & 0o777 for one in (folder, *folder.iterdir())}
    assert modes == {"made": 0o750, "file": 0o640, "lock": 0o640}


def test_a_lock_is_held_once(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    held = storage.lock(f"{root}/LOCK")
    with pytest.raises(BlockingIOError):
        storage.lock(f"{root}/LOCK")
    held.release()
    storage.lock(f"{root}/LOCK").release()


def test_what_was_synced_is_still_there(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    file = storage.open(f"{root}/a", create=True)
    write_all(file, b"abc", 0)
    file.fdatasync()
    storage.fsync_dir(root)
    assert read_file(storage, f"{root}/a") == b"abc"
    file.close()


@pytest.mark.parametrize("advice", Advice)
def test_advice_changes_nothing(disk: tuple[Storage, str], advice: Advice) -> None:
    storage, root = disk
    replace_file(storage, f"{root}/a", b"abc")
    file = storage.open(f"{root}/a", read_only=True)
    file.advise(advice)
    assert read_file(storage, f"{root}/a") == b"abc"
    file.close()


def test_a_log_is_written_and_recovered_whatever_the_platform_lacks(
    disk: tuple[Storage, str],
) -> None:
    storage, root = disk
    values: list[bytes | None] = [b"value %d" % i for i in range(60)]
    with SegmentedLog.open(storage, f"{root}/log", "t", SMALL, now_ms=1) as log:
        for value in values:
            log.append([value], now_ms=1)
    with SegmentedLog.open(storage, f"{root}/log", "t", SMALL, now_ms=1) as log:
        assert values_of(log) == values
        assert log.segments_count > 5


def test_without_a_way_to_ask_the_page_cache_every_read_goes_to_a_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    storage = PosixStorage()
    replace_file(storage, f"{tmp_path}/a", b"abc")
    assert storage.open(f"{tmp_path}/a").pread_nowait(memoryview(bytearray(3)), 0) is None


@pytest.mark.parametrize("refusal", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EAGAIN])
def test_a_kernel_that_refuses_nowait_has_the_read_go_to_a_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def refuse(fd: int, buffers: object, position: int, flags: int = 0) -> int:
        raise OSError(refusal if flags else errno.EBADF, "refused")

    monkeypatch.setattr(os, "preadv", refuse)
    monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
    storage = PosixStorage()
    file = storage.open(f"{tmp_path}/a", create=True)
    assert file.pread_nowait(memoryview(bytearray(3)), 0) is None


def test_reads_go_another_way_where_a_filter_of_system_calls_refuses_preadv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, "refused")

    monkeypatch.setattr(os, "preadv", refuse)
    storage = PosixStorage()
    replace_file(storage, f"{tmp_path}/a", b"abc")
    assert read_file(storage, f"{tmp_path}/a") == b"abc"


def test_a_file_system_that_takes_no_advice_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "refused")

    if not hasattr(os, "posix_fadvise"):
        pytest.skip("this platform has no posix_fadvise")
    monkeypatch.setattr(os, "posix_fadvise", refuse)
    file = PosixStorage().open(f"{tmp_path}/a", create=True)
    file.advise(Advice.WILL_NEED)
    file.close()


def test_without_fdatasync_the_drive_is_told_to_flush_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, command: asked.append(command))
    PosixStorage().open(f"{tmp_path}/a", create=True).fdatasync()
    assert asked == [51]


class AdvisedFile(MemoryFile):
    asked: list[tuple[str, Advice]]
    is_cached = True

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        return super().pread_nowait(buffer, position) if self.is_cached else None

    def advise(self, advice: Advice) -> None:
        self.asked.append((self.path, advice))


class AdvisedStorage(MemoryStorage):
    """Remembers what it was advised."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Advice]] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> AdvisedFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = AdvisedFile(path, plain._inode, self)
        file.asked = self.asked
        return file


def test_a_read_in_a_lane_that_ends_a_segment_has_the_disk_read_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AdvisedFile, "is_cached", False)
    storage = AdvisedStorage()
    with SegmentedLog.open(storage, "/log", "t", SMALL, now_ms=1) as log:
        for i in range(60):
            log.append([b"value %d" % i], now_ms=1)
    with SegmentedLog.open(storage, "/log", "t", SMALL, now_ms=1) as log:
        assert storage.asked == []
        log.read(0, 512)
    assert storage.asked == [("/log/t_segment_1.log", Advice.WILL_NEED)]


def test_a_quarantined_copy_does_not_stay_in_the_page_cache() -> None:
    storage = AdvisedStorage()
    with SegmentedLog.open(storage, "/log", "t", SMALL, now_ms=1) as log:
        for i in range(3):
            log.append([b"value %d" % i], now_ms=1)
    flip(storage, "/log/t_segment_0.log", 100)
    with SegmentedLog.open(storage, "/log", "t", SMALL, now_ms=1) as log:
        list(log.stream())
    assert ("/log/quarantine/t_segment_0.log.0", Advice.DONT_NEED) in storage.asked


def test_memory_that_keeps_no_promises_remembers_no_names_twice() -> None:
    """Each sync copied all names of the directory: of an `ephemeral` log, all segments per roll."""
    disk = MemoryStorage(keeps_promises=False)
    disk.mkdir("/d")
    disk.open("/d/f", create=True).close()
    disk.fsync_dir("/")
    disk.fsync_dir("/d")
    assert disk.listdir("/d") == ["f"]
    assert not disk.after_power_cut().exists("/d")


def test_after_a_power_cut_only_what_was_synced_is_there() -> None:
    disk = MemoryStorage()
    disk.mkdir("/d")
    disk.fsync_dir("/")
    file = disk.open("/d/a", create=True)
    write_all(file, b"synced", 0)
    file.fdatasync()
    assert disk.after_power_cut().listdir("/d") == []
    disk.fsync_dir("/d")
    write_all(file, b" not", 6)
    assert read_file(disk.after_power_cut(), "/d/a") == b"synced"
    assert read_file(disk.after_kill(), "/d/a") == b"synced not"


def test_a_directory_whose_name_could_not_be_synced_is_made_anew() -> None:
    # What a failed sync was asked for is in doubt for ever: the second is for a new name.
    for parent in ("/", "/data"):
        disk = RecordingStorage()
        disk.faults.append(Fault("fsync_dir", parent, 0))
        with pytest.raises(OSError, match="planned"):
            make_dirs(disk, "/data/wal")
        make_dirs(disk, "/data/wal")
        images = [image.build() for image in Images(disk).now()]
        assert images
        assert all(image.exists("/data/wal") for image in images)


@pytest.mark.parametrize("killed_at", ["/new", "/new/data"])
def test_a_data_directory_is_durable_though_who_made_it_was_killed_before_its_sync(
    killed_at: str,
) -> None:
    disk = RecordingStorage()
    left: list[RecordingStorage] = []

    def kill(call: str, path: str) -> None:
        if (call, path) == ("mkdir", killed_at):
            left.append(left_by(disk))

    disk.on_change = kill
    make_root(disk, "/new/data")
    (found,) = left
    make_root(found, "/new/data")
    found.open("/new/data/file", create=True).close()
    found.fsync_dir("/new/data")
    assert found.after_power_cut().exists("/new/data/file")


def test_an_empty_data_directory_in_one_that_is_not_ours_is_used() -> None:
    disk = RecordingStorage()
    disk.mkdir("/data")
    for refusal in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.EOPNOTSUPP):
        disk.faults.append(Fault("fsync_dir", "/", 0, refusal))
        make_root(disk, "/data")
    disk.faults.append(Fault("fsync_dir", "/", 0, errno.EIO))
    with pytest.raises(OSError, match="planned"):
        make_root(disk, "/data")

"""The contract of the disk port, over both implementations."""

from pathlib import Path

import pytest

from segbroker.segments.memory import MemoryStorage
from segbroker.segments.posix import PosixStorage
from segbroker.segments.storage import (
    Storage,
    make_dirs,
    read_file,
    remove_tree,
    replace_file,
    write_all,
)


@pytest.fixture(params=["posix", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    if request.param == "posix":
        return PosixStorage(), str(tmp_path)
    storage = MemoryStorage()
    storage.mkdir("/disk")
    return storage, "/disk"


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


def test_a_lock_is_held_once(disk: tuple[Storage, str]) -> None:
    storage, root = disk
    held = storage.lock(f"{root}/LOCK")
    with pytest.raises(BlockingIOError):
        storage.lock(f"{root}/LOCK")
    held.release()
    storage.lock(f"{root}/LOCK").release()


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

"""A file of the write-ahead log is removed or replaced under the running broker: it is left, and
what it has is made durable elsewhere.  Whoever looks for files waits for nobody."""

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from segbroker.segments.disk.in_place import InPlaceStorage
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage, _Inode
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.metadata.metadata import Metadata
from segbroker.segments.metadata.metadata_log import MetadataLog
from segbroker.segments.wal.frames import FRAMES_BEGIN, FrameType, Header, header_blocks
from segbroker.segments.wal.journal import Wal

from ..support.gated_storage import GatedStorage
from .crash.recording import Fault, RecordingStorage
from .wal_writing import ROOT, SMALL, TOPIC, Writer, at_once, begun, content, replayed, until

FOLDER = f"{ROOT}/shard-00"
FIRST = f"{FOLDER}/wal-0.log"


def remove(disk: MemoryStorage) -> None:
    disk.unlink(FIRST)


def replace(disk: MemoryStorage) -> None:
    disk.open(f"{FOLDER}/copy", create=True).pwrite(bytes(SMALL.file_bytes), 0)
    disk.rename(f"{FOLDER}/copy", FIRST)


def cut(disk: MemoryStorage) -> None:
    disk.open(FIRST).truncate(FRAMES_BEGIN)


def overwrite(disk: MemoryStorage) -> None:
    """As `cp` does, which leaves the name where it is."""
    other = Header(0, SMALL.file_bytes, sequence=7, salt=7)
    for position, block in header_blocks(other):
        disk.open(FIRST).pwrite(block, position)


@pytest.mark.parametrize("change", [cut, overwrite])
def test_a_file_that_is_written_over_is_left_as_well(
    change: Callable[[MemoryStorage], None],
) -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer, failed = Writer(wal, 1), Writer(wal, 2)
    writer.append(b"durable elsewhere")
    change(disk)
    with capture_logs() as logs:
        wal.look()
        wal.look()
    assert [one["path"] for one in logs if one["event"] == "wal_file_removed"] == [FIRST]
    failed.can_checkpoint = False
    failed.append(b"behind it")
    found = replayed(disk.after_power_cut())
    assert content(found, 2) == b"behind it"
    assert not found.missing


@pytest.mark.parametrize("change", [remove, replace, cut, overwrite])
def test_so_is_one_that_is_ready_and_has_nothing_yet(
    change: Callable[[MemoryStorage], None],
) -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.shard.supply.prepare_soon()
    assert disk.exists(FIRST)
    change(disk)
    wal.look()
    assert not replayed(disk.after_power_cut()).missing, "nothing was lost with it"
    writer.append(b"in another file")
    assert content(replayed(disk.after_power_cut())) == b"in another file"


@pytest.mark.parametrize("size", [0, 100, FRAMES_BEGIN])
def test_a_free_file_of_another_size_is_not_taken(size: int) -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    while wal.checkpoints < 2:  # which have freed some
        writer.append(bytes(1_000))
    free = [name for name in disk.listdir(FOLDER) if name.startswith("free-")]
    assert free
    for name in free:
        disk.open(f"{FOLDER}/{name}").truncate(size)
    for _ in range(100):
        writer.append(bytes(1_000))
    assert not writer.failures
    writer.can_checkpoint = False
    writer.append(b"behind it")
    assert content(replayed(disk.after_power_cut())).endswith(b"behind it")


def test_a_free_file_that_is_replaced_while_it_is_named_is_not_written() -> None:
    class Replacing(MemoryStorage):
        is_replacing = True

        def rename(self, source: str, target: str) -> None:
            if target == FIRST and self.is_replacing:
                self.unlink(source)
                self.open(source, create=True).pwrite(bytes(SMALL.file_bytes), 0)
            super().rename(source, target)

    disk = Replacing()
    wal = Wal(disk, ROOT, SMALL, threaded=False, call_soon=at_once)
    wal.open()
    wal.absorbed()
    writer = Writer(wal, 1)
    writer.append(b"refused")
    assert len(writer.failures) == 1
    disk.is_replacing = False
    writer.append(b"durable")
    found = replayed(disk.after_power_cut())
    assert content(found, 1) == b"durable"
    assert not found.missing


@pytest.mark.parametrize("go_away", [remove, replace])
def test_what_only_a_file_that_is_away_has_is_kept_for_the_next_start(
    go_away: Callable[[MemoryStorage], None],
) -> None:
    # Of a partition that cannot be synced.  The others of its shard are not held up by that.
    disk = MemoryStorage()
    wal, _ = begun(disk)
    failed, other = Writer(wal, 1), Writer(wal, 2)
    failed.can_checkpoint = False
    failed.append(b"precious")
    go_away(disk)
    wal.look()
    for number in range(100):
        other.append(bytes([number]) * 1000)
    assert not other.failures
    found = replayed(disk.after_power_cut())
    assert content(found, 1) == b"precious"
    assert not found.missing


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_so_it_is_where_the_first_try_to_free_it_fails(call: str) -> None:
    disk = RecordingStorage()
    wal, _ = begun(disk)
    failed, other = Writer(wal, 1), Writer(wal, 2)
    failed.can_checkpoint = False
    failed.append(b"precious")
    replace(disk)
    disk.faults.append(Fault(call, "/free-3.log", 0))
    wal.look()
    assert disk.counts == {0: 1}, "it failed"
    wal.look()  # a second later: nothing else may ask for a checkpoint on a broker that is idle
    assert not wal.statistics().files_full
    for number in range(100):
        other.append(bytes([number]) * 1000)
    assert not other.failures
    assert content(replayed(disk.after_power_cut()), 1) == b"precious"


class Interrupted(MemoryStorage):
    """Something happens while it is looked where the path of the first file leads."""

    meanwhile: Callable[[], None] | None = None

    def leads_to(self, path: str, inode: _Inode) -> bool:
        if path == FIRST and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().leads_to(path, inode)


def test_a_file_that_is_freed_while_it_is_looked_for_was_not_removed() -> None:
    disk = Interrupted()
    wal, _ = begun(disk)
    writer = Writer(wal)
    while not wal.statistics().files_full:
        writer.append(bytes(1_000))
    frees = threading.Thread(target=wal.checkpoint)

    def free() -> None:
        frees.start()
        frees.join(0.2)  # or it waits until this one has looked

    disk.meanwhile = free
    with capture_logs() as logs:
        wal.look()
        frees.join()
    assert not wal.statistics().files_full
    assert not [one for one in logs if one["event"] == "wal_file_removed"]


def test_whoever_looks_for_files_does_not_wait_for_a_write_that_does_not_end() -> None:
    # Else a disk that does not answer would hold up groups and transactions as well.
    disk = GatedStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    writer = Writer(wal)
    disk.held = b"held up"
    writer.append(b"held up")
    until(lambda: not disk.syncs.is_set())
    wal.look()
    assert not writer.durable
    disk.release()
    until(lambda: writer.durable == len(b"held up"))
    wal.stop()
    wal.close(empty=False)


def test_nor_for_a_snapshot_that_is_being_written() -> None:
    disk = GatedStorage()
    disk.mkdir("/data")
    disk.mkdir("/data/meta")
    metadata = MetadataLog(disk, "/data/meta")
    metadata.begin(Metadata("cluster"))
    is_held = disk.hold("/data/meta")
    saves = threading.Thread(target=metadata.save)
    saves.start()
    until(is_held.is_set)
    metadata.look()
    assert saves.is_alive()
    disk.release()
    saves.join()
    assert metadata.is_settled


@pytest.mark.parametrize("is_replaced", [False, True])
def test_free_files_of_a_directory_that_is_away_are_not_forgotten(
    tmp_path: Path, is_replaced: bool
) -> None:
    # Else they would take room, beyond the bound of the log, until the next start.
    data = tmp_path / "data"
    data.mkdir()
    disk = InPlaceStorage(PosixStorage(), str(data))
    disk.held = disk.lock(f"{data}/LOCK")
    wal, _ = begun(disk, root=f"{data}/wal")
    writer = Writer(wal)
    while wal.checkpoints < 2:  # which have freed some
        writer.append(bytes(1_000))
    away = data.rename(tmp_path / "away")
    if is_replaced:
        shutil.copytree(away, data)
    while not writer.failures:
        writer.append(bytes(1_000))
    if is_replaced:
        data.rename(tmp_path / "was-in-its-place")
    away.rename(data)
    wal.revive()
    del writer.failures[:]
    writer.append(bytes(1_000))
    assert not writer.failures
    assert len(list((data / "wal" / "shard-00").iterdir())) == wal.statistics().files
    wal.close(empty=False)
    disk.held.release()


def empty(disk: MemoryStorage, path: str) -> None:
    disk.open(path).truncate(0)


@pytest.mark.parametrize("take", [MemoryStorage.unlink, empty])
def test_what_a_start_has_kept_of_what_vouches_for_logs_is_written_anew(
    take: Callable[[MemoryStorage, str], None],
) -> None:
    disk = MemoryStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=False, call_soon=at_once)
    wal.open()
    wal.keep({}, {(TOPIC, 1): 5})
    wal.absorbed()
    (kept,) = [name for name in disk.listdir(FOLDER) if name.startswith("kept-")]
    take(disk, f"{FOLDER}/{kept}")
    wal.look()
    found = replayed(disk.after_kill())
    assert not found.missing
    (end,) = found.partitions[TOPIC, 1]
    assert (end.type, end.base_offset) == (FrameType.END, 5)


@pytest.mark.parametrize(
    ("take", "is_looked_for"),
    [(MemoryStorage.unlink, True), (MemoryStorage.unlink, False), (empty, True)],
)
def test_a_file_of_what_vouches_for_logs_is_written_anew(
    take: Callable[[MemoryStorage, str], None], is_looked_for: bool
) -> None:
    # It is not missed by a later start: what it said is said by another.
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    wal.end_soon(TOPIC, 1, 0, 0, 5)
    while not wal.checkpoints:
        writer.append(bytes(1_000))
    (kept,) = [name for name in disk.listdir(FOLDER) if name.startswith("kept-")]
    take(disk, f"{FOLDER}/{kept}")
    if is_looked_for:
        wal.look()
    else:
        wal.end_soon(TOPIC, 2, 0, 0, 5)
        while wal.checkpoints < 2:
            writer.append(bytes(1_000))
    found = replayed(disk.after_kill())
    assert not found.missing
    (end,) = found.partitions[TOPIC, 1]
    assert (end.type, end.base_offset) == (FrameType.END, 5)


class FullForKept(MemoryStorage):
    """Has no room for a kept file as long as it is full; what is in the log already has its own."""

    is_full = False
    number = errno.ENOSPC

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.is_full and create and "/kept-" in path:
            raise OSError(self.number, "no room for it", path)
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize("is_of_start", [False, True])
def test_a_file_of_what_vouches_is_told_once_however_long_there_is_no_room_for_another(
    *, is_of_start: bool
) -> None:
    disk = FullForKept()
    wal = Wal(disk, ROOT, SMALL, threaded=False, call_soon=at_once)
    wal.open()
    if is_of_start:
        wal.keep({}, {(TOPIC, 1): 5})
    wal.absorbed()
    writer = Writer(wal)
    if not is_of_start:
        wal.end_soon(TOPIC, 1, 0, 0, 5)
        while not wal.checkpoints:
            writer.append(bytes(1_000))
    (kept,) = [name for name in disk.listdir(FOLDER) if name.startswith("kept-")]
    disk.is_full = True
    with capture_logs() as logs:
        for _ in range(2):  # put back once, and it goes again
            disk.rename(f"{FOLDER}/{kept}", f"{ROOT}/aside")
            for _ in range(3):
                wal.look()
            disk.rename(f"{ROOT}/aside", f"{FOLDER}/{kept}")
            wal.look()
        disk.unlink(f"{FOLDER}/{kept}")
        disk.number = errno.EIO
        wal.look()
        wal.say_ends()  # in the log, meanwhile
        assert {one.base_offset for one in replayed(disk.after_kill()).partitions[TOPIC, 1]} == {5}
        disk.is_full = False
        for _ in range(2):
            wal.look()
    told = [(one["event"], one.get("path")) for one in logs]
    assert told.count(("wal_file_removed", f"{FOLDER}/{kept}")) == 3
    assert [event for event, _ in told].count("wal_ends_not_kept") == 2, "for each reason"
    found = replayed(disk.after_kill())
    assert not found.missing
    assert {one.base_offset for one in found.partitions[TOPIC, 1]} == {5}


def test_a_cut_file_that_cannot_be_unlinked_takes_no_room_from_the_log() -> None:
    # With as many of them as the log may have files every write would wait for a checkpoint.
    disk = RecordingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    while wal.checkpoints < 2:  # which have freed some
        writer.append(bytes(1_000))
    free = [name for name in disk.listdir(FOLDER) if name.startswith("free-")]
    for name in free:
        disk.open(f"{FOLDER}/{name}").truncate(0)
        disk.faults.append(Fault("unlink", f"/{name}", 0))
    for _ in range(100):
        writer.append(bytes(1_000))
    there = disk.listdir(FOLDER)
    assert wal.statistics().files == len([name for name in there if name not in free])

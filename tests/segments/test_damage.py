"""Damage and failures while a log is in use: the rest of it goes on."""

import errno
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from segbroker.protocol.record_batch import GapReason, gap_reason, iter_batches, read_header
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.disk.storage import Space, read_file, write_all
from segbroker.segments.errors import (
    CorruptSegment,
    DiskFull,
    PartitionDamaged,
    PartitionRefused,
    SegmentReplaced,
    StorageError,
)
from segbroker.segments.files.copies import COPIES_MAX
from segbroker.segments.names import partition_paths
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .crash.images import Image, Images
from .crash.recording import Fault, RecordingStorage
from .crashing import CrashingFile, CrashingStorage, Killed
from .tools import (
    SMALL,
    append,
    as_after_a_checkpoint,
    batch_of,
    flip,
    lose_wal,
    offsets_in,
    read_from,
    read_once,
)

FOLDER = "/data/topics/t/partition_0"
LOG_1 = f"{FOLDER}/t_partition_0_segment_1.log"


class CountingStorage(CrashingStorage):
    """Knows which files are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[MemoryFile] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashingFile:
        file = super().open(path, create=create, read_only=read_only)
        self.opened.append(file)
        return file

    @property
    def open_count(self) -> int:
        return sum(not file._closed for file in self.opened)


def manager_on(disk: MemoryStorage) -> DiskManager:
    """One whose write-ahead log has nothing that a repair could put back (test_recalled.py)."""
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    as_after_a_checkpoint(manager)
    return manager


def partition_with(
    disk: MemoryStorage, batches: int, config: TopicConfig = SMALL
) -> tuple[DiskManager, DiskHandler]:
    manager = manager_on(disk)
    manager.create_topic("t", 1, config)
    handler = manager.get_handler("t", 0)
    for number in range(batches):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    return manager, handler


def readable(handler: DiskHandler) -> list[int]:
    """Base offsets that can be read one by one."""
    found = []
    for offset in range(handler.log_start_offset, handler.high_watermark):
        try:
            found.append(offsets_in(read_from(handler, offset, 1))[0])
        except CorruptSegment:
            continue
    return found


def gaps_in(handler: DiskHandler) -> list[tuple[int, int]]:
    """The gaps of a partition."""
    found = []
    offset = handler.log_start_offset
    while offset < handler.high_watermark:
        for batch in iter_batches(read_from(handler, offset)):
            header = read_header(batch)
            if gap_reason(header) is not None:
                assert gap_reason(header) is GapReason.CORRUPTION
                found.append((header.base_offset, header.next_offset))
            offset = header.next_offset
    return found


def damage_row(manager: DiskManager, what: str) -> list[tuple[int, int]]:
    rows = [row for row in manager.report.rows if row.what == what]
    return [(row.from_offset, row.to_offset) for row in rows]


def test_a_damaged_sealed_segment_costs_one_batch_and_the_reader_gets_a_gap() -> None:
    # | 0 1 2 | 3 ? 5 | 6 7 8 | ...   found by a read, repaired, and the read goes on
    disk = MemoryStorage()
    manager, handler = partition_with(disk, 15)
    damaged = flipped(disk, LOG_1, 200)
    handler._log.files.indexes.drop(FOLDER)
    assert readable(handler) == list(range(15))
    assert gaps_in(handler) == [(4, 5)]
    assert damage_row(manager, "gap") == [(4, 5)]
    assert append(handler, batch_of(b"more")).base_offset == 15
    (copy,) = disk.listdir(f"{FOLDER}/quarantine")
    assert bytes(read_file(disk, f"{FOLDER}/quarantine/{copy}")) == damaged
    for image in (disk.after_kill(), disk.after_power_cut()):
        again = manager_on(image)
        assert gaps_in(again.get_handler("t", 0)) == [(4, 5)]
        assert damage_row(again, "gap") == []


@pytest.mark.parametrize("topic", ["a.index", "a.log", ".index"])
def test_a_topic_may_be_called_like_a_kind_of_file_and_its_damage_is_repaired(topic: str) -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic(topic, 1, SMALL)
    handler = manager.get_handler(topic, 0)
    for number in range(15):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    folder = f"/data/topics/{topic}/partition_0"
    flip(disk, f"{folder}/{topic}_partition_0_segment_1.log", 200)
    handler._log.files.indexes.drop(folder)
    assert readable(handler) == list(range(15))
    assert gaps_in(handler) == [(4, 5)]


def content_of(disk: MemoryStorage) -> dict[str, bytes]:
    """The files of the partition, which has no folder in it."""
    return {name: bytes(read_file(disk, f"{FOLDER}/{name}")) for name in disk.listdir(FOLDER)}


def flipped(disk: MemoryStorage, path: str, position: int) -> bytes:
    flip(disk, path, position)
    return bytes(read_file(disk, path))


def test_blocks_in_front_of_a_damaged_one_are_read_before_it_is_repaired() -> None:
    # index.interval.bytes 4096, batches of 4 KB: each is a block of its own
    disk = MemoryStorage()
    manager = manager_on(disk)
    config = {"segment.bytes": "40000", "index.interval.bytes": "4096"}
    manager.create_topic("t", 1, TopicConfig(config))
    handler = manager.get_handler("t", 0)
    for _ in range(12):
        append(handler, batch_of(b"x" * 4_200))
    flip(disk, f"{FOLDER}/t_partition_0_segment_0.log", 5 * 4_280)
    assert offsets_in(read_from(handler, 0)) == [0, 1, 2, 3, 4]
    with pytest.raises(SegmentReplaced):
        read_once(handler, 5)
    assert offsets_in(read_from(handler, 5))[0] == 5
    assert gaps_in(handler) == [(5, 6)]


def test_a_missing_sealed_segment_is_a_gap() -> None:
    disk = MemoryStorage()
    manager, _ = partition_with(disk, 15)
    manager.close()
    disk.unlink(LOG_1)
    disk.unlink(LOG_1.replace(".log", ".index"))
    handler = manager_on(disk).get_handler("t", 0)
    assert offsets_in(read_from(handler, 4))[0] == 3
    assert gaps_in(handler) == [(3, 6)]
    assert readable(handler) == [0, 1, 2, 3, 3, 3, *range(6, 15)]


@pytest.mark.parametrize("kinds", [(".log",), (".log", ".index")])
def test_a_segment_of_another_partition_that_fits_is_never_delivered(kinds: tuple[str]) -> None:
    # Both partitions hold records 0 1 2 | 3 4 5 | ... of the same sizes, with other values.
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2, SMALL)
    for partition in (0, 1):
        handler = manager.get_handler("t", partition)
        for number in range(15):
            append(handler, batch_of(b"%d %03d" % (partition, number) + b"x" * 55))
    manager.close()
    for kind in kinds:
        path = LOG_1.replace(".log", kind)
        theirs = read_file(disk, path.replace("partition_0", "partition_1"))
        write_all(disk.open(path), theirs, 0)
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert gaps_in(handler) == [(3, 6)]
    assert damage_row(manager, "gap") == [(3, 6)]
    assert readable(handler) == [0, 1, 2, 3, 3, 3, *range(6, 15)]
    assert readable(manager.get_handler("t", 1)) == list(range(15))


def test_damage_in_the_segment_that_is_written_is_a_gap_too_and_writing_goes_on() -> None:
    # the page cache no longer holds what was written: | 0 | ? |
    disk = MemoryStorage()
    _, handler = partition_with(disk, 2)
    flip(disk, LOG_1.replace("_1.log", "_0.log"), 200)
    assert gaps_in(handler) == [(1, 2)]
    assert append(handler, batch_of(b"more")).base_offset == 2
    assert offsets_in(read_from(handler, 2)) == [2]
    again = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert gaps_in(again) == [(1, 2)]
    assert again.log_end_offset == 3


def test_a_reader_that_planned_before_a_repair_never_gets_wrong_bytes() -> None:
    disk = MemoryStorage()
    _, handler = partition_with(disk, 15)
    early = handler.plan_read(3, 1 << 20)
    assert early is not None
    flip(disk, LOG_1, 200)
    assert gaps_in(handler) == [(4, 5)]
    buffer = memoryview(bytearray(early.size_max))
    assert early.read_nowait(buffer) is None
    with pytest.raises(SegmentReplaced):
        early.read(buffer)
    early.release()


def test_a_repair_may_be_interrupted_anywhere() -> None:
    whole = MemoryStorage()
    manager, _ = partition_with(whole, 15)
    manager.close()
    flip(whole, LOG_1, 200)
    dies_at = 0
    while True:
        disk = CrashingStorage()
        disk._root = whole.after_kill()._root
        handler = manager_on(disk).get_handler("t", 0)
        disk.dies_at = len(disk.operations) + dies_at
        try:
            assert gaps_in(handler) == [(4, 5)]
        except Killed:
            for image in (disk.after_kill(), disk.after_power_cut()):
                again = manager_on(image).get_handler("t", 0)
                assert gaps_in(again) == [(4, 5)]
                assert readable(again) == list(range(15))
                assert len(image.listdir(f"{FOLDER}/quarantine")) == 1
            dies_at += 1
        else:
            break
    assert dies_at > 10


def test_the_damaged_original_is_kept_durably_by_who_goes_on_behind_a_kill() -> None:
    whole = MemoryStorage()
    manager, _ = partition_with(whole, 15)
    manager.close()
    damaged = flipped(whole, LOG_1, 200)
    for steps in count():
        disk = CrashingStorage()
        disk._root = whole.after_kill()._root
        handler = manager_on(disk).get_handler("t", 0)
        disk.dies_at = len(disk.operations) + steps
        try:
            readable(handler)
        except Killed:
            disk.dies_at = -1
            disk._locks.clear()
        else:
            break
        readable(manager_on(disk).get_handler("t", 0))  # in the same boot
        image = disk.after_power_cut()
        copies = [f"{FOLDER}/quarantine/{name}" for name in image.listdir(f"{FOLDER}/quarantine")]
        assert [bytes(read_file(image, copy)) for copy in copies] == [damaged]
    assert steps > 10


def test_the_damaged_original_is_kept_durably_by_who_tries_again_behind_a_failed_sync() -> None:
    """A later sync says nothing of a name whose own has failed."""
    whole = MemoryStorage()
    manager, _ = partition_with(whole, 15)
    manager.close()
    damaged = flipped(whole, LOG_1, 200)
    disk = RecordingStorage.over(whole)
    disk.faults.append(Fault("fsync_dir", "/quarantine", 0))
    handler = manager_on(disk).get_handler("t", 0)
    readable(handler)  # finds it; no copy can be kept at first
    assert gaps_in(handler) == [(4, 5)]
    for image in map(Image.files, Images(disk).now()):
        kept = [data for path, data in image.items() if path.startswith(f"{FOLDER}/quarantine/")]
        assert damaged in (*kept, image[LOG_1])


def test_readonly_serves_what_is_whole_and_takes_no_write_until_an_operator_has_looked() -> None:
    disk = MemoryStorage()
    config = TopicConfig({**SMALL.overrides, "on.corruption": "readonly"})
    manager, handler = partition_with(disk, 15, config)
    flip(disk, LOG_1, 200)
    assert gaps_in(handler) == [(4, 5)]
    with pytest.raises(PartitionDamaged, match=r"read-only: .*segment_1.log is damaged.*verify"):
        append(handler, batch_of(b"more"))
    manager.close()
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert gaps_in(handler) == [(4, 5)]
    with pytest.raises(PartitionDamaged):
        append(handler, batch_of(b"more"))
    manager.alter_topic("t", {**SMALL.overrides, "on.corruption": "gap"})
    assert append(handler, batch_of(b"more")).base_offset == 15
    assert not disk.exists(f"{FOLDER}/t_partition_0.damaged")


@pytest.mark.parametrize("name", ["segment_1.index.tmp", ".manifest.tmp"])
@pytest.mark.parametrize("fault", [("pwrite", errno.ENOSPC), ("fdatasync", errno.EIO)])
@pytest.mark.parametrize("policy", ["gap", "readonly"])
def test_a_repair_counts_when_only_what_it_says_of_itself_could_not_be_written(
    name: str, fault: tuple[str, int], policy: str
) -> None:
    config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
    disk = RecordingStorage()
    manager, handler = partition_with(disk, 15, config)
    flip(disk, LOG_1, 200)
    disk.faults.append(Fault(fault[0], name, 0, fault[1]))
    disk.counts[0] = 0
    assert gaps_in(handler) == [(4, 5)]
    assert disk.counts[0] > 0, "the failure was met"
    assert handler.repairs_count == 1
    if policy == "readonly":
        with pytest.raises(PartitionDamaged):
            append(handler, batch_of(b"more"))
    else:
        assert append(handler, batch_of(b"more")).base_offset == 15
    for image in (disk.after_kill(), disk.after_power_cut()):
        again = manager_on(image)
        assert gaps_in(again.get_handler("t", 0)) == [(4, 5)]
        assert damage_row(again, "gap") == []
    manager.close()
    again = manager_on(disk.after_power_cut())
    assert gaps_in(again.get_handler("t", 0)) == [(4, 5)]
    if policy == "gap":
        assert again.report.rows == [], "the close has written the manifest anew"


@pytest.mark.parametrize("policy", ["readonly", "refuse"])
def test_damage_found_while_opening_follows_the_policy(policy: str) -> None:
    disk = MemoryStorage()
    config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
    partition_with(disk, 2, config)
    image = disk.after_kill()
    lose_wal(image)
    flip(image, f"{FOLDER}/t_partition_0_segment_0.log", 100)
    manager = manager_on(image)
    before = content_of(image)
    if policy == "refuse":
        for _ in range(2):
            with pytest.raises(PartitionRefused, match=r"not served: .*offsets lost: \[0, 1\)"):
                manager.get_handler("t", 0)
        assert content_of(image) == before
        manager.alter_topic("t", {**SMALL.overrides, "on.corruption": "gap"})
        assert gaps_in(manager.get_handler("t", 0)) == [(0, 1)]
        return
    handler = manager.get_handler("t", 0)
    assert gaps_in(handler) == [(0, 1)]
    with pytest.raises(PartitionDamaged):
        append(handler, batch_of(b"more"))


def test_refuse_serves_nothing_once_damage_was_found_and_changes_no_log() -> None:
    disk = MemoryStorage()
    config = TopicConfig({**SMALL.overrides, "on.corruption": "refuse"})
    _, handler = partition_with(disk, 15, config)
    damaged = flipped(disk, LOG_1, 200)
    with pytest.raises(CorruptSegment):
        read_from(handler, 3)
    for call in (lambda: read_from(handler, 0), lambda: append(handler, batch_of(b"more"))):
        with pytest.raises(PartitionRefused):
            call()
    assert bytes(read_file(disk, LOG_1)) == damaged
    with pytest.raises(PartitionRefused):
        manager_on(disk.after_power_cut()).get_handler("t", 0)


def test_a_limit_of_one_byte_gives_one_batch_everywhere() -> None:
    _, handler = partition_with(MemoryStorage(), 15)
    for offset in range(15):
        assert offsets_in(read_from(handler, offset, 1)) == [offset]


def test_a_reopening_that_fails_half_way_leaves_nothing_open_and_is_tried_again() -> None:
    disk = CountingStorage()
    manager, handler = partition_with(disk, 8)
    disk.room = 30
    with pytest.raises(DiskFull):
        append(handler, batch_of(b"z" * 60))
    # A manifest that has to be written anew cannot be: the disk is still full.
    disk.room = None
    flip(disk, f"{FOLDER}/t_partition_0.manifest", 40)
    disk.room = 0
    manager.housekeeping(5_000)
    before = disk.open_count
    for second in range(6, 20):
        manager.housekeeping(1_000 * second)
        assert handler.read_only is not None
    assert disk.open_count == before
    assert readable(handler) == list(range(8))
    disk.room = None
    manager.housekeeping(30_000)
    assert handler.read_only is None
    assert append(handler, batch_of(b"z")).base_offset == 8
    assert readable(handler) == list(range(9))
    manager.close()
    assert disk.open_count == 0


def test_what_a_full_disk_left_of_a_batch_is_no_record_whatever_its_value_was() -> None:
    """A value is any bytes: those of another log's batch, for who archives batches."""
    disk = CrashingStorage()
    manager, handler = partition_with(disk, 2, TopicConfig({}))
    inner = bytearray(batch_of(b"never a record of this log"))
    inner[:8] = (5_000).to_bytes(8, "big")
    inner[12:16] = bytes(4)
    archived = batch_of(b"before" + inner + bytes(200))
    disk.room = len(archived) - 100
    with pytest.raises(DiskFull):
        append(handler, archived)
    killed = disk.after_kill()
    disk.room = None
    manager.housekeeping(5_000)
    for again in (manager, manager_on(killed)):
        handler = again.get_handler("t", 0)
        assert readable(handler) == [0, 1]
        assert append(handler, batch_of(b"more")).base_offset == 2
        assert damage_row(again, "gap") == []
    assert damage_row(manager, "cut") == [(-1, -1)]


class RoomyStorage(CrashingStorage):
    """It says how much room there is, and gets back what is unlinked."""

    least = 1 << 30
    """The least room that there was."""

    def step(self, name: str) -> None:
        super().step(name)
        if self.room is not None:
            self.least = min(self.least, self.room)

    def unlink(self, path: str) -> None:
        size = super().open(path).size()
        super().unlink(path)
        if self.room is not None:
            self.room += size

    def space(self, path: str) -> Space | None:
        return None if self.room is None else Space(1 << 30, self.room)


def test_a_repair_that_has_no_room_takes_none_from_others() -> None:
    # A reader tries again ten times a second, and each try would fill the volume for a moment.
    disk = RoomyStorage()
    config = TopicConfig({"segment.bytes": "20000"})
    _, handler = partition_with(disk, 0, config)
    for _ in range(30):
        append(handler, batch_of(b"x" * 3_000))
    flip(disk, LOG_1, 5_000)
    handler._log.files.indexes.drop(FOLDER)
    for room in (15_000, 30_000):  # not for the copy; for that and not for what is written anew
        disk.room = room
        for _ in range(3):
            with pytest.raises(CorruptSegment):
                read_once(handler, 8)
        disk.step("")
        assert (disk.room, disk.least) == (room, min(room, disk.least))
        assert disk.least == 15_000
        assert append(handler, batch_of(b"x" * 20)).base_offset >= 30
        disk.least = 15_000
    disk.room = 60_000
    assert gaps_in(handler) == [(7, 8)]


def test_a_start_that_has_no_room_for_a_repair_takes_none_from_others() -> None:
    disk = RoomyStorage()
    manager, handler = partition_with(disk, 0, TopicConfig({}))
    for _ in range(5):
        append(handler, batch_of(b"x" * 3_000))
    manager.close()
    flip(disk, LOG_1.replace("_1.log", "_0.log"), 5_000)
    manager = manager_on(disk)
    disk.room = disk.least = 20_000
    with pytest.raises(StorageError, match=r"a repair takes .* bytes of 20000"):
        manager.get_handler("t", 0)
    assert disk.least == 20_000
    disk.room = 80_000  # it counts what is written over as well
    assert gaps_in(manager.get_handler("t", 0)) == [(1, 2)]


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_written_anew_behind_a_failed_sync_takes_no_room_that_it_cannot_keep(
    *, is_killed: bool
) -> None:
    # It is tried again and again, and each try would fill the volume for a moment.
    disk = RoomyStorage()
    manager, handler = partition_with(disk, 0, TopicConfig({"durability": "disk"}))
    for _ in range(5):
        append(handler, batch_of(b"x" * 3_000))
    disk.sync_fails = True
    with pytest.raises(StorageError, match="sync failed"):
        handler.sync()
    disk.sync_fails = False
    if is_killed:
        left, disk = disk.after_kill(), RoomyStorage()
        disk._root, disk._boot = left._root, left._boot
    disk.room = disk.least = 14_000
    if is_killed:
        manager = manager_on(disk)
    for number in range(1, 4):
        if is_killed:
            with pytest.raises(StorageError, match=r"takes \d+ bytes of"):
                manager.get_handler("t", 0)
        else:
            assert not handler.try_recover(3_600_000 * number)
    assert disk.least > 13_000
    disk.room = 80_000
    if is_killed:
        handler = manager.get_handler("t", 0)
    else:
        assert handler.try_recover(36_000_000)
    assert readable(handler) == list(range(5))


def test_a_repair_is_done_where_the_file_system_does_not_say_how_much_room_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = os.statvfs_result([512, 0, 0, 0, 0, 0, 0, 0, 0, 255])
    monkeypatch.setattr(os, "statvfs", lambda path: nothing)
    root = str(tmp_path / "data")
    with DiskManager(root, flushers=0) as manager:
        manager.create_topic("t", 1, TopicConfig({"segment.bytes": "20000"}))
        handler = manager.get_handler("t", 0)
        for _ in range(15):
            append(handler, batch_of(b"x" * 3_000))
        path = partition_paths(root, "t", 0).log(1)
        with open(path, "r+b") as file:
            file.seek(5_000)
            file.write(b"!")
        handler._log.files.indexes.drop(partition_paths(root, "t", 0).folder)
        assert readable(handler) == list(range(15))
        assert len(os.listdir(partition_paths(root, "t", 0).quarantine)) == 1


class _NothingNew(RoomyStorage):
    """No file can be made under `path`: others have taken the room."""

    path = ""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashingFile:
        if create and self.path and path.startswith(self.path):
            raise OSError(errno.ENOSPC, "cannot be made", path)
        return super().open(path, create=create, read_only=read_only)


def test_a_copy_that_is_there_already_takes_no_room_once_more() -> None:
    disk = _NothingNew()
    manager, handler = partition_with(disk, 0, TopicConfig({}))
    for _ in range(5):
        append(handler, batch_of(b"x" * 3_000))
    manager.close()
    path = LOG_1.replace("_1.log", "_0.log")
    flip(disk, path, 5_000)
    size = len(read_file(disk, path))
    manager = manager_on(disk)
    disk.room, disk.path = 2 * size, path
    for _ in range(3):
        with pytest.raises(StorageError, match="cannot be made"):
            manager.get_handler("t", 0)
        disk.step("")
        assert disk.least == size, "copied once"
    disk.path = ""
    disk.room += size  # it counts what is written over as well
    assert gaps_in(manager.get_handler("t", 0)) == [(1, 2)]
    assert len(disk.listdir(f"{FOLDER}/quarantine")) == 1


class _NoDescriptor(MemoryStorage):
    """There is none to sync the directory with, behind a segment that gets its name."""

    path = ""
    is_met = False

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.is_met = self.is_met or target == self.path

    def fsync_dir(self, path: str) -> None:
        if self.is_met and self.path:
            raise OSError(errno.EMFILE, "too many open files", path)
        super().fsync_dir(path)


@pytest.mark.parametrize("policy", ["gap", "readonly"])
def test_a_repair_is_told_also_where_no_descriptor_was_left_to_sync_its_name(policy: str) -> None:
    disk = _NoDescriptor()
    config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
    manager, handler = partition_with(disk, 15, config)
    flip(disk, LOG_1, 200)
    handler._log.files.indexes.drop(FOLDER)
    disk.path = LOG_1
    assert readable(handler) == list(range(15))
    assert disk.is_met
    disk.path = ""
    assert gaps_in(handler) == [(4, 5)]
    assert damage_row(manager, "gap") == [(4, 5)]
    assert handler.repairs_count == 1
    if policy == "readonly":
        with pytest.raises(PartitionDamaged):
            append(handler, batch_of(b"more"))
    for image in (disk.after_kill(), disk.after_power_cut()):
        lose_wal(image)  # or what it has is put back into the damaged one, which is there again
        assert gaps_in(manager_on(image).get_handler("t", 0)) == [(4, 5)]


class WaitingStorage(MemoryStorage):
    """Its next sync of a log file waits for `go`, then fails; how many syncs there were."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.waiting = threading.Event()
        self.go = threading.Event()
        self.syncs: list[str] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = WaitingFile(path, plain._inode, self)
        file.waiting = self
        return file


class WaitingFile(MemoryFile):
    waiting: WaitingStorage

    def fdatasync(self) -> None:
        disk = self.waiting
        if disk.fails and self.path.endswith(".log"):
            disk.syncs.append(self.path)
            if len(disk.syncs) == 1:
                disk.waiting.set()
                disk.go.wait(10)
                raise OSError(errno.EIO, "sync failed")
        super().fdatasync()


def test_who_waited_for_a_sync_that_failed_does_not_sync_again() -> None:
    # A flusher and the house keeper want to sync the same file; the kernel reports an error once.
    disk = WaitingStorage()
    _, handler = partition_with(
        disk, 4, TopicConfig({"segment.bytes": "4096", "durability": "disk"})
    )
    before = handler.recovery_point
    assert append(handler, batch_of(b"x")).base_offset == 4
    disk.fails = True
    opened = handler._log
    failures: list[OSError] = []

    def sync() -> None:
        try:
            opened.sync()
        except OSError as exc:
            failures.append(exc)

    threads = [threading.Thread(target=sync) for _ in range(3)]
    threads[0].start()
    assert disk.waiting.wait(10)
    for thread in threads[1:]:
        thread.start()
    disk.go.set()
    for thread in threads:
        thread.join(10)
    assert [exc.errno for exc in failures] == [errno.EIO] * 3
    assert len(disk.syncs) == 1
    assert handler.recovery_point == before


def test_a_full_disk_while_sealing_passes() -> None:
    disk = CountingStorage()
    manager, handler = partition_with(disk, 3)
    while handler.read_only is None:
        batch = batch_of(b"y" * 20)
        disk.room = len(batch) + 10  # the batch that rolls fits, the index of the full one does not
        append(handler, batch)
    assert isinstance(handler.read_only, DiskFull)
    disk.room = None
    manager.housekeeping(5_000)
    assert handler.read_only is None
    count = handler.high_watermark
    assert append(handler, batch_of(b"z")).base_offset == count
    assert readable(handler) == list(range(count + 1))


def test_a_log_that_cannot_be_opened_leaves_no_descriptor() -> None:
    disk = CountingStorage()
    partition_with(disk, 8)
    image = CountingStorage()
    image._root = disk.after_kill()._root
    image.sync_fails = True
    for _ in range(3):
        with pytest.raises(StorageError, match="sync failed"):
            manager_on(image)
        assert image.open_count == 0
    # What it would have put back is still there.
    image.sync_fails = False
    assert readable(manager_on(image).get_handler("t", 0)) == list(range(8))


def test_a_roll_takes_a_segment_made_ahead_and_neither_makes_nor_syncs() -> None:
    disk = CrashingStorage()
    config = TopicConfig({**SMALL.overrides, "durability": "disk"})
    _, handler = partition_with(disk, 2, config)
    number = handler._log.active.number
    assert len(handler._log.ready) == 1
    handler._rolling._making.is_asked = handler._rolling._sealing.is_asked = (
        True  # as while their threads are busy
    )
    before = len(disk.operations)
    while handler._log.active.number == number:
        append(handler, batch_of(b"x" * 60))
    assert set(disk.operations[before:]) == {"pwrite"}
    assert handler.rolls_unprepared == 0


def test_more_segments_are_made_ahead_when_rolls_follow_quickly() -> None:
    _, handler = partition_with(MemoryStorage(), 60)
    assert handler._log.ready.target > 1
    missed = handler.rolls_unprepared
    for _ in range(60):
        append(handler, batch_of(b"x" * 60))
    assert handler.rolls_unprepared == missed


def test_segments_made_ahead_are_gone_after_closing_and_accepted_after_a_crash() -> None:
    disk = MemoryStorage()
    manager, handler = partition_with(disk, 60)
    active = handler._log.active.number
    crashed = disk.after_kill()
    assert crashed.exists(f"{FOLDER}/t_partition_0_segment_{active + 1}.log")
    assert readable(manager_on(crashed).get_handler("t", 0)) == list(range(60))
    manager.close()
    assert not disk.exists(f"{FOLDER}/t_partition_0_segment_{active + 1}.log")


def test_idle_partitions_hold_no_descriptor(tmp_path: Path) -> None:
    descriptors: Callable[[], int] = lambda: len(list(Path("/proc/self/fd").iterdir()))  # noqa: E731
    with DiskManager(str(tmp_path), flushers=0, open_logs_max=8, storage=PosixStorage()) as manager:
        manager.create_topic("t", 100, SMALL)
        before = descriptors()
        for partition in range(100):
            append(manager.get_handler("t", partition), batch_of(b"a" * 300))
            manager.housekeeping(1_000 + partition)
        assert descriptors() - before <= 3 * 8
        for partition in range(100):
            handler = manager.get_handler("t", partition)
            assert append(handler, batch_of(b"b")).base_offset == 1
            assert offsets_in(read_from(handler, 0)) == [0, 1]


def test_the_first_read_of_a_segment_just_sealed_needs_no_lane(tmp_path: Path) -> None:
    with DiskManager(str(tmp_path), flushers=0) as manager:
        manager.create_topic("t", 1, SMALL)
        handler = manager.get_handler("t", 0)
        for _ in range(10):
            append(handler, batch_of(b"x" * 100))
        plan = handler.plan_read(0, 400)
        assert plan is not None
        buffer = memoryview(bytearray(plan.size_max))
        assert offsets_in(buffer[: plan.read_nowait(buffer) or 0]) == [0, 1]
        plan.release()


def test_a_partition_that_was_only_read_is_closed_without_a_write() -> None:
    disk = CrashingStorage()
    manager, _ = partition_with(disk, 8)
    manager.close()
    manager = manager_on(disk)
    before = len(disk.operations)
    assert readable(manager.get_handler("t", 0)) == list(range(8))
    manager.close()
    assert disk.operations[before:] == []


def test_what_is_said_of_a_lost_manifest_is_what_a_start_does() -> None:
    disk = MemoryStorage()
    manager, handler = partition_with(disk, 8)
    handler.delete_records_before(4)
    manager.close()
    disk.unlink("/data/topics/t/partition_0/t_partition_0.manifest")
    (found,) = [one for one in DirectoryChecker(disk, "/data", 1_000).check() if one.is_damage]
    assert found.action == "all segments are read and it is made again"
    manager = manager_on(disk)
    assert manager.get_handler("t", 0).log_start_offset == 4
    manager.close()
    disk.unlink("/data/topics/t/partition_0/t_partition_0.manifest")
    disk.unlink("/data/topics/t/partition_0/t_partition_0.start")
    (found,) = [one for one in DirectoryChecker(disk, "/data", 1_000).check() if one.is_damage]
    forgotten = "; a log start set by a request inside a segment is forgotten"
    assert found.action.endswith(f"{forgotten}; what was below offset 3 counts as lost by damage")
    assert manager_on(disk).get_handler("t", 0).log_start_offset < 4


def test_without_a_name_for_its_copy_a_damaged_segment_stays_as_it_is() -> None:
    disk = MemoryStorage()
    _, handler = partition_with(disk, 15)
    flip(disk, LOG_1, 200)
    damaged = bytes(read_file(disk, LOG_1))
    handler._log.files.drop()
    disk.mkdir(f"{FOLDER}/quarantine")
    name = LOG_1.rpartition("/")[2]
    copies = [f"{FOLDER}/quarantine/{name}.{number}" for number in range(COPIES_MAX)]
    for copy in copies:
        disk.open(copy, create=True).close()
    with pytest.raises(CorruptSegment):
        read_from(handler, 4)
    assert bytes(read_file(disk, LOG_1)) == damaged
    disk.unlink(copies[7])
    assert gaps_in(handler) == [(4, 5)]
    assert bytes(read_file(disk, copies[7])) == damaged

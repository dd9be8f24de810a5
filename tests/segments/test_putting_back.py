"""What the write-ahead log holds and cannot be put back, or has no place, is kept and told."""

import threading
from collections.abc import Callable
from itertools import count
from unittest.mock import patch

import pytest

from segbroker.protocol.record_batch import check_batch, decode_batch, encode_batch, iter_batches
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, remove_tree, replace_file
from segbroker.segments.errors import StorageError
from segbroker.segments.names import partition_paths
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.frames import FRAMES_BEGIN, FrameType, header_of
from segbroker.segments.wal.scanning import scan_file

from .crash.images import Images
from .crash.observing import see_handler
from .crash.recording import Fault, RecordingStorage
from .crashing import Killed
from .tools import flip, read_from

ROOT = "/data"
WAL = f"{ROOT}/wal/shard-00/wal-0.log"
FIRST = "/partition_0/t_partition_0_segment_0.log"


def manager_on(disk: MemoryStorage) -> DiskManager:
    manager = DiskManager(ROOT, storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    return manager


def append(manager: DiskManager, topic: str, partition: int, value: bytes) -> None:
    batch = memoryview(bytearray(encode_batch([value], timestamps_ms=1_000)))
    manager.get_handler(topic, partition).append(batch, check_batch(batch), 1_000)


def cut_off() -> MemoryStorage:
    """A disk after a power cut: two partitions whose records are in the WAL alone."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2, TopicConfig({"durability": "fsync"}))
    for number in range(3):
        append(manager, "t", 0, b"in the first %d" % number)
        append(manager, "t", 1, b"in the second %d" % number)
    return disk.after_power_cut()


def refuse(disk: RecordingStorage, call: str) -> None:
    """Nothing is written to the first partition, nor to another file in its place."""
    disk.faults += [Fault(call, path, 0, lasts=True) for path in (FIRST, FIRST + ".tmp")]


def ends(manager: DiskManager) -> list[tuple[int, int]]:
    """(records, log end) of both partitions."""
    seen = [see_handler(manager.get_handler("t", number)) for number in range(2)]
    return [(sum(not item.is_gap for item in one.items), one.end) for one in seen]


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_partition_whose_disk_refuses_is_not_served_and_the_others_are(call: str) -> None:
    disk = RecordingStorage.over(cut_off())
    refuse(disk, call)
    manager = manager_on(disk)
    assert see_handler(manager.get_handler("t", 1)).end == 3
    append(manager, "t", 1, b"the broker goes on")
    with pytest.raises(StorageError, match="could not be put back"):
        manager.get_handler("t", 0)
    (row,) = [row for row in manager.report.rows if row.what == "not_served"]
    assert (row.topic, row.partition) == ("t", 0)
    manager.close()
    # What could not be put back is there for the next start, after a clean close as well.
    assert ends(manager_on(disk.after_power_cut())) == [(3, 3), (4, 4)]


def test_what_could_not_be_put_back_is_known_not_to_be_served_before_anybody_asks() -> None:
    disk = RecordingStorage.over(cut_off())
    refuse(disk, "fdatasync")
    manager = manager_on(disk)
    ((place, failure),) = manager.partitions.failed_at_start.items()
    assert place == ("t", 0)
    with pytest.raises(StorageError, match="could not be put back"):
        manager.get_handler("t", 0)
    assert "could not be put back" in str(failure)


def test_a_partition_whose_disk_works_again_is_served_without_a_restart() -> None:
    disk = RecordingStorage.over(cut_off())
    refuse(disk, "fdatasync")
    manager = manager_on(disk)
    with pytest.raises(StorageError):
        manager.get_handler("t", 0)
    disk.faults.clear()
    assert ends(manager) == [(3, 3), (3, 3)]
    append(manager, "t", 0, b"written now")
    assert ends(manager_on(disk.after_power_cut())) == [(4, 4), (3, 3)]


def test_what_was_kept_for_a_partition_does_not_come_back_over_newer_records() -> None:
    disk = RecordingStorage.over(cut_off())
    disk.faults.append(Fault("fdatasync", FIRST, 0, lasts=True))
    manager = manager_on(disk)
    disk.faults.clear()
    disk.failed.clear()
    for number in range(4):
        append(manager, "t", 0, b"written now %d" % number)
    left = disk.after_power_cut()
    again = manager_on(left)
    assert ends(again) == [(7, 7), (3, 3)]
    again.close()
    assert not [name for name in left.listdir(f"{ROOT}/wal/shard-00") if name.startswith("kept")]


def test_what_is_kept_takes_no_number_of_which_an_earlier_version_says_that_it_was_put_back() -> (
    None
):
    shard = f"{ROOT}/wal/shard-00"
    for spent in (None, 2):
        disk = RecordingStorage.over(cut_off())
        if spent is not None:
            disk.open(f"{shard}/spent-{spent}.log", create=True)
        disk.faults.append(Fault("fdatasync", FIRST, 0, lasts=True))
        manager_on(disk)
        kept = [name for name in disk.listdir(shard) if name.startswith("kept")]
        assert kept == (["kept-2.log"] if spent is None else ["kept-3.log"])


def damage_event(disk: MemoryStorage, kind: bytes) -> None:
    """The frame of the first event of this kind is not what it was."""
    data = read_file(disk, WAL)
    header = header_of(data)
    assert header is not None
    found = scan_file(memoryview(data), header)
    (position, *_) = [
        position
        for position, frame in zip(found.positions, found.frames, strict=True)
        if frame.type is FrameType.CONTROL and kind in bytes(frame.payload)
    ]
    file = disk.open(WAL)
    file.pwrite(bytes(10), position + 70)
    file.fdatasync()


def test_records_of_a_topic_whose_creation_is_lost_are_told_and_kept() -> None:
    disk = cut_off()
    damage_event(disk, b"topic_created")
    manager = manager_on(disk)
    assert not manager.topics
    rows = [row for row in manager.report.rows if row.what == "unknown_topic"]
    assert [(row.partition, row.from_offset, row.to_offset) for row in rows] == [
        (0, 0, 3),
        (1, 0, 3),
    ]
    assert "wal_damaged" in manager.report.counts
    kept = read_file(disk, rows[0].path)
    assert [check_batch(batch, stored=True).base_offset for batch in iter_batches(kept)] == [
        0,
        1,
        2,
    ]
    assert b"in the first 2" in kept


def test_records_that_a_start_could_not_keep_by_their_name_are_kept_by_the_next() -> None:
    image = cut_off()
    damage_event(image, b"topic_created")
    disk = RecordingStorage.over(image.after_power_cut())
    disk.faults.append(Fault("fsync_dir", "/quarantine", 0))
    with pytest.raises(StorageError, match="planned"):
        manager_on(disk)
    disk.restart()
    manager = manager_on(disk)
    kept = {row.path for row in manager.report.rows if row.what == "unknown_topic"}
    assert len(kept) == 2
    assert all(kept <= set(left.files()) for left in Images(disk).now())


def test_records_are_kept_behind_a_start_that_was_killed_behind_making_quarantine() -> None:
    image = cut_off()
    damage_event(image, b"topic_created")
    disk = RecordingStorage.over(image.after_power_cut())
    with patch.object(disk, "on_change", dies_behind(0)), pytest.raises(Killed):
        manager_on(disk)
    disk.restart()
    manager = manager_on(disk)
    kept = {row.path for row in manager.report.rows if row.what == "unknown_topic"}
    assert len(kept) == 2
    assert all(kept <= set(left.files()) for left in Images(disk).now())


def test_records_of_a_partition_whose_making_is_lost_are_told_and_kept() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    manager.create_partitions("t", 2)
    append(manager, "t", 0, b"in the first")
    append(manager, "t", 1, b"in the second")
    disk = disk.after_power_cut()
    damage_event(disk, b"partitions_grown")
    manager = manager_on(disk)
    assert manager.topics["t"].partitions == 1
    assert see_handler(manager.get_handler("t", 0)).end == 1
    (row,) = [row for row in manager.report.rows if row.what == "unknown_topic"]
    assert (row.partition, row.from_offset, row.to_offset) == (1, 0, 1)
    assert b"in the second" in read_file(disk, row.path)


def test_a_partition_whose_directory_is_gone_is_refused_and_not_begun_anew() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2, TopicConfig({"durability": "fsync"}))
    for number in range(2):
        append(manager, "t", number, b"acknowledged")
    manager.close()
    folder = f"{ROOT}/topics/t/partition_0"
    disk.rename(folder, f"{ROOT}/somewhere")
    manager = manager_on(disk)
    with pytest.raises(StorageError, match="directory is missing"):
        manager.get_handler("t", 0)
    assert see_handler(manager.get_handler("t", 1)).end == 1
    manager.close()
    assert not disk.exists(folder)
    disk.rename(f"{ROOT}/somewhere", folder)
    assert ends(manager_on(disk)) == [(1, 1), (1, 1)]


def dies_behind_mkdir(call: str, path: str) -> None:
    if call == "mkdir":
        raise Killed(path)


def test_the_directory_of_a_partition_that_a_killed_start_has_made_outlives_a_power_cut() -> None:
    before = RecordingStorage.over(cut_off())
    remove_tree(before, f"{ROOT}/topics/t/partition_0")
    before.fsync_dir(f"{ROOT}/topics/t")
    disk = RecordingStorage.over(before.after_kill())
    with patch.object(disk, "on_change", dies_behind_mkdir), pytest.raises(Killed):
        manager_on(disk)
    disk.restart()
    manager_on(disk)
    for image in Images(disk).now():
        assert read_from(manager_on(image.build()).get_handler("t", 0), 0)


def test_of_a_partition_whose_directory_is_gone_the_log_ahead_keeps_the_end() -> None:
    # | 0 | 1 |   0 is in the segment that is gone, 1 in the write-ahead log, too
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2, TopicConfig({"durability": "fsync"}))
    append(manager, "t", 0, b"in the segment")
    append(manager, "t", 1, b"beside it")
    manager.close()
    manager = manager_on(disk)
    append(manager, "t", 0, b"in both")
    disk = disk.after_kill()
    disk.rename(f"{ROOT}/topics/t/partition_0", f"{ROOT}/somewhere")
    manager = manager_on(disk)
    lost, kept = see_handler(manager.get_handler("t", 0)).items
    assert (lost.base_offset, lost.next_offset, lost.reason) == (0, 1, "corruption")
    assert (kept.base_offset, kept.next_offset, kept.is_gap) == (1, 2, False)
    assert ends(manager)[1] == (1, 1)


@pytest.mark.parametrize("then", ["killed", "cut", "closed"])
def test_a_loss_that_only_a_trailer_tells_of_is_in_the_log_before_anybody_asks(then: str) -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    append(manager, "t", 0, b"acknowledged")
    disk = disk.after_power_cut()
    data = read_file(disk, WAL)
    header = header_of(data)
    assert header is not None
    found = scan_file(memoryview(data), header)
    place = [frame.type for frame in found.frames].index(FrameType.BATCHES)
    flip(disk, WAL, found.positions[place] + 80)
    manager = manager_on(disk)  # the frames of the WAL are gone now; nobody opens the partition
    if then == "closed":
        manager.close()
    disk = disk.after_power_cut() if then == "cut" else disk.after_kill()
    manager = manager_on(disk)
    (lost,) = see_handler(manager.get_handler("t", 0)).items
    assert (lost.base_offset, lost.next_offset, lost.reason) == (0, 1, "corruption")
    append(manager, "t", 0, b"next")
    assert see_handler(manager.get_handler("t", 0)).end == 2


def test_records_of_a_deleted_topic_are_no_loss() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    append(manager, "t", 0, b"wanted no more")
    manager.delete_topic("t")
    again = manager_on(disk.after_power_cut())
    assert "unknown_topic" not in again.report.counts
    assert not disk.exists(f"{ROOT}/quarantine")


def test_partitions_begin_an_epoch_when_nobody_knows_whose_frames_are_lost() -> None:
    disk = cut_off()
    data = read_file(disk, WAL)
    header = header_of(data)
    assert header is not None
    found = scan_file(memoryview(data), header)
    last = [n for n, f in enumerate(found.frames) if f.key[1] == 0 and f.base_offset == 2][-1]
    begin, until = found.positions[last], found.positions[last + 1]
    assert begin > FRAMES_BEGIN
    file = disk.open(WAL)
    file.pwrite(bytes(until - begin), begin)
    file.fdatasync()
    epochs = [see_handler(manager_on(cut_off()).get_handler("t", n)).epoch for n in range(2)]
    manager = manager_on(disk)
    after = [manager.get_handler("t", number).leader_epoch for number in range(2)]
    assert after == [epoch + 1 for epoch in epochs]
    assert "wal_damaged" in manager.report.counts
    # What is written in the new epoch is known to be of it after the next kill.
    before = ends(manager)
    append(manager, "t", 0, b"in the new epoch")
    append(manager, "t", 1, b"in the new epoch")
    again = manager_on(disk.after_kill())
    assert ends(again) == [(records + 1, end + 1) for records, end in before]
    assert [again.get_handler("t", number).leader_epoch for number in range(2)] == after


@pytest.mark.parametrize("is_swapped", [True, False], ids=["swapped", "copied"])
def test_a_segment_of_another_partition_is_none_of_which_a_cleaning_left_something(
    is_swapped: bool,
) -> None:
    # Of the same number and offsets, whole, and with other records: the frames say what was here.
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2, TopicConfig({}))
    values = [[b"%d of %d" % (number, partition) for number in range(5)] for partition in (0, 1)]
    for partition in (0, 1):
        for value in values[partition]:
            append(manager, "t", partition, value)
    disk = disk.after_kill()
    first, second = (partition_paths("/data", "t", partition).log(0) for partition in (0, 1))
    before = bytes(read_file(disk, first))
    replace_file(disk, first, bytes(read_file(disk, second)))
    if is_swapped:
        replace_file(disk, second, before)
    manager = manager_on(disk)
    for partition in (0, 1):
        data = read_from(manager.get_handler("t", partition), 0)
        records = [record for batch in iter_batches(data) for record in decode_batch(batch)]
        assert [record.value for record in records] == values[partition]
    assert not [row for row in manager.report.rows if row.what == "gap"]
    copies = partition_paths("/data", "t", 0).quarantine
    (copy,) = disk.listdir(copies)
    kept = [
        one
        for batch in iter_batches(read_file(disk, f"{copies}/{copy}"))
        for one in decode_batch(batch)
    ]
    assert [record.value for record in kept] == values[1], "nothing else may have it"


def dies_behind(nth: int) -> Callable[[str, str], None]:
    """A process that is killed behind the n-th directory that it makes."""
    numbers = count()

    def happens(call: str, path: str) -> None:
        if call == "mkdir" and next(numbers) == nth:
            raise Killed(path)

    return happens


@pytest.mark.parametrize("gone", ["topics", "topics/t", "topics/t/partition_0"])
def test_directories_that_a_killed_start_has_made_outlive_a_power_cut(gone: str) -> None:
    made = 3 - gone.count("/")
    for nth in range(made):
        before = RecordingStorage.over(cut_off())
        remove_tree(before, f"{ROOT}/{gone}")
        before.fsync_dir(f"{ROOT}/{gone}".rpartition("/")[0])
        disk = RecordingStorage.over(before.after_kill())
        with patch.object(disk, "on_change", dies_behind(nth)), pytest.raises(Killed):
            manager_on(disk)
        disk.restart()
        manager_on(disk)
        for image in Images(disk).now():
            assert read_from(manager_on(image.build()).get_handler("t", 0), 0)


def test_a_directory_whose_name_could_not_be_synced_is_made_anew() -> None:
    before = RecordingStorage.over(cut_off())
    remove_tree(before, f"{ROOT}/topics/t/partition_0")
    before.fsync_dir(f"{ROOT}/topics/t")
    disk = RecordingStorage.over(before.after_kill())
    with patch.object(disk, "on_change", dies_behind(0)), pytest.raises(Killed):
        manager_on(disk)
    disk.restart()
    disk.faults.append(Fault("fsync_dir", "/topics/t", 0))
    manager = manager_on(disk)
    assert manager.get_handler("t", 0).log_end_offset == 3
    manager.close()  # the write-ahead log lets go of them
    for image in Images(disk).now():
        assert read_from(manager_on(image.build()).get_handler("t", 0), 0)


def test_the_first_start_may_be_killed_behind_any_directory_that_it_makes() -> None:
    for nth in count():
        disk = RecordingStorage()
        disk.mkdir(ROOT)
        disk.fsync_dir("/")
        try:
            with patch.object(disk, "on_change", dies_behind(nth)):
                manager_on(disk)
        except Killed:
            disk.restart()
        else:
            break
        manager = manager_on(disk)
        manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
        append(manager, "t", 0, b"acknowledged")
        for image in Images(disk).now():
            assert read_from(manager_on(image.build()).get_handler("t", 0), 0)
    assert nth >= 3


class _FailsBesideAnother(RecordingStorage):
    """The first sync of topics/ fails; who asked does nothing till the other partition is there."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.other_is_there = threading.Event()

    def rmdir(self, path: str) -> None:
        self.other_is_there.wait(1)  # it may wait for us in its turn
        super().rmdir(path)

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        if "/partition_" in path:
            self.other_is_there.set()


def test_the_directory_of_a_topic_whose_name_was_not_synced_holds_nothing_of_another_thread() -> (
    None
):
    before = RecordingStorage.over(cut_off())
    remove_tree(before, f"{ROOT}/topics/t")
    before.fsync_dir(f"{ROOT}/topics")
    disk = _FailsBesideAnother.over(before.after_kill())
    disk.faults.append(Fault("fsync_dir", "/topics", 0))
    manager = DiskManager(ROOT, storage=disk, flushers=1, now_ms=1_000)
    manager.open()
    served = {number for number in range(2) if ("t", number) in manager.handlers}
    assert len(served) == 1
    assert all(manager.get_handler("t", number) for number in range(2)), "put back now"
    manager.close()
    for image in Images(disk).now():
        assert ends(manager_on(image.build())) == [(3, 3), (3, 3)]

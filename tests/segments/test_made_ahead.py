"""Which names of segments made ahead a start may take for durable; and a file that somebody has
copied to where a segment is to begin: before a start, and while the log is served."""

import errno
import threading
from collections.abc import Callable, Sequence

import pytest

from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.errors import PartitionReadOnly
from segbroker.segments.files.copies import COPIES_MAX
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .classes import gaps_in, manager_on
from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .crash.second_life import left_by
from .test_full_start import SmallDisk
from .tools import SMALL, append, batch_of, flip, lose_wal, offsets_in, read_from

FOLDER = "/data/topics/t/partition_0"


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_what_is_synced_survives_also_where_one_of_the_segments_made_ahead_came_back(
    durability: str,
) -> None:
    # A close unlinks those made ahead, unsynced: of | 1 2 ... 9 | a power cut may leave 9 alone.
    config = TopicConfig({**SMALL.overrides, "durability": durability})
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, config)
    append(manager.get_handler("t", 0), batch_of(b"%0300d" % 0))
    manager.close()
    disk.open(f"{FOLDER}/t_partition_0_segment_9.log", create=True).close()
    disk.fsync_dir(FOLDER)
    disk = disk.after_power_cut()
    append(manager_on(disk).get_handler("t", 0), batch_of(b"%0300d" % 1))
    disk = disk.after_kill()
    handler = manager_on(disk).get_handler("t", 0)
    handler._rolling._making.is_asked = True  # none is made by the next roll
    for number in range(2, 6):
        append(handler, batch_of(b"%0300d" % number))
    handler.sync()
    handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert [gap[0] for gap in gaps_in(handler)] == [6], "all that was synced is there"


def filled(disk: MemoryStorage, count: int) -> None:
    """Three records to a segment, and closed in order."""
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    for number in range(count):
        append(manager.get_handler("t", 0), batch_of(b"%060d" % number))
    manager.close()


@pytest.mark.parametrize("has_wal", [True, False])
@pytest.mark.parametrize("of", [0, 5, 6, 20])
@pytest.mark.parametrize("made_ahead", [True, False])
def test_a_log_does_not_go_on_in_a_file_that_somebody_has_copied_behind_its_end(
    made_ahead: bool, of: int, has_wal: bool
) -> None:
    another, disk = MemoryStorage(), MemoryStorage()
    filled(another, 80)
    filled(disk, 15)
    log = f"{FOLDER}/t_partition_0_segment_%d.log"
    content = bytes(read_file(another, log % of))
    copied = log % 7  # it was closed with 4 as its last
    replace_file(disk, copied, content)
    (told,) = DirectoryChecker(disk, "/data", 0).check()
    assert (told.path, told.is_damage) == (copied, True)
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    (row,) = [row for row in manager.report.rows if row.what == "quarantined"]
    assert row.bytes == len(content)
    assert handler.log_end_offset == 15
    handler._rolling._making.is_asked = not made_ahead
    while handler._log.active.number < 7:
        append(handler, batch_of(b"own" + bytes(60)))
    end = handler.log_end_offset
    disk = disk.after_kill()
    assert bytes(read_file(disk, f"{FOLDER}/quarantine/t_partition_0_segment_7.log.0")) == content
    if not has_wal:
        lose_wal(disk)
    handler = manager_on(disk).get_handler("t", 0)
    assert handler.log_end_offset == end
    found: list[int] = []
    while not found or found[-1] < end - 1:
        found += offsets_in(read_from(handler, found[-1] + 1 if found else 0))
    assert found == list(range(end))


CONTENT = b"all that somebody has"
COPIED = f"{FOLDER}/t_partition_0_segment_6.log"


def closed() -> MemoryStorage:
    """A log that was closed in order, two in front of the number of the copy."""
    disk = MemoryStorage()
    filled(disk, 15)
    return disk


def opened(disk: MemoryStorage) -> tuple[DiskManager, DiskHandler]:
    """It, open; then somebody copies a file that is no batch."""
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    replace_file(disk, COPIED, CONTENT)
    return manager, handler


def is_kept(disk: MemoryStorage) -> bool:
    places = [COPIED, f"{FOLDER}/quarantine/{COPIED.rpartition('/')[2]}.0"]
    return any(disk.exists(one) and bytes(read_file(disk, one)) == CONTENT for one in places)


def test_a_copy_behind_the_end_takes_no_room_of_a_volume_that_has_none() -> None:
    disk = SmallDisk()
    filled(disk, 15)
    manager = manager_on(disk)
    copy = bytes(100_000)
    replace_file(disk, COPIED, copy)
    disk.capacity = disk.used() + len(copy) // 2
    assert manager.get_handler("t", 0).log_end_offset == 15
    (row,) = [row for row in manager.report.rows if row.what == "quarantined"]
    assert read_file(disk, row.path) == copy


def goes_on(handler: DiskHandler) -> None:
    """With files made ahead, the one that was copied among them."""
    handler._rolling._making.is_asked = True
    while handler._log.active.number < 5:
        append(handler, batch_of(b"own" + bytes(60)))
    handler._log.ready.target = 4
    handler._log.ready.make(handler._log.active.number)


def test_a_file_in_the_way_outlives_a_power_cut() -> None:
    disk = closed()
    _, handler = opened(disk)
    goes_on(handler)
    while handler._log.active.number < 7:
        append(handler, batch_of(b"own" + bytes(60)))
    handler.sync()
    assert is_kept(disk.after_power_cut())


def test_a_file_in_the_way_outlives_a_close_in_order() -> None:
    disk = closed()
    manager, handler = opened(disk)
    goes_on(handler)
    manager.close()
    assert is_kept(disk)
    assert is_kept(disk.after_power_cut())


def test_a_file_in_the_way_outlives_a_failed_sync() -> None:
    disk = closed()
    _, handler = opened(disk)
    goes_on(handler)
    handler._log.failed = OSError(errno.EIO, "a sync failed")
    handler._log.sync_failed = True
    handler._notice_failure()
    assert handler.try_recover(3_600_000)
    assert handler.read_only is None
    assert is_kept(disk)


def test_a_file_in_the_way_outlives_a_failed_sync_of_quarantine() -> None:
    disk = RecordingStorage.over(closed())
    disk.faults.append(Fault("fsync_dir", "/quarantine", 0))
    _, handler = opened(disk)
    with pytest.raises(PartitionReadOnly, match="planned"):
        _fill(handler, 40)
    assert handler.try_recover(3_600_000)
    _fill(handler, 40)
    handler.sync()
    for image in Images(disk).now():
        assert is_kept(image.build())


def test_a_file_in_the_way_outlives_a_kill_in_front_of_the_sync_of_quarantine() -> None:
    disk = RecordingStorage.over(closed())
    _, handler = opened(disk)
    left: list[RecordingStorage] = []

    def kill(call: str, at: str) -> None:
        if (call, at) == ("rename", COPIED):
            left.append(left_by(disk))

    disk.on_change = kill
    _fill(handler, 40)
    (found,) = left
    handler = manager_on(found).get_handler("t", 0)
    _fill(handler, 40)
    handler.sync()
    for image in Images(found).now():
        assert is_kept(image.build())


def _fill(handler: DiskHandler, count: int) -> None:
    for _ in range(count):
        append(handler, batch_of(b"own" + bytes(60)))


def test_a_file_in_the_way_stays_where_there_is_no_name_for_another_copy() -> None:
    disk = closed()
    _, handler = opened(disk)
    disk.mkdir(f"{FOLDER}/quarantine")
    name = COPIED.rpartition("/")[2]
    for copy in range(COPIES_MAX):
        disk.open(f"{FOLDER}/quarantine/{name}.{copy}", create=True).close()
    with pytest.raises(PartitionReadOnly, match="copies of"):
        _fill(handler, 40)
    assert bytes(read_file(disk, COPIED)) == CONTENT
    disk.unlink(f"{FOLDER}/quarantine/{name}.7")
    assert handler.try_recover(3_600_000)
    append(handler, batch_of(b"own" + bytes(60)))
    assert bytes(read_file(disk, f"{FOLDER}/quarantine/{name}.7")) == CONTENT


class _ReadMeanwhile(RecordingStorage):
    """While the first directory quarantine/ is being made, a read comes to damage."""

    read: Callable[[], object] | None = None
    behind: Sequence[Fault] = ()

    def mkdir(self, path: str) -> None:
        if path.endswith("/quarantine") and (read := self.read) is not None:
            self.read = None
            self.reader = threading.Thread(target=read)
            self.reader.start()
            self.reader.join(1)  # it may wait for us in its turn
            self.faults += self.behind
        super().mkdir(path)


@pytest.mark.parametrize("fails", [False, True])
def test_a_roll_and_a_repair_make_one_quarantine(*, fails: bool) -> None:
    before = closed()
    flip(before, f"{FOLDER}/t_partition_0_segment_1.log", 100)
    lose_wal(before)
    damaged = bytes(read_file(before, f"{FOLDER}/t_partition_0_segment_1.log"))
    disk = _ReadMeanwhile.over(before.after_kill())
    assert isinstance(disk, _ReadMeanwhile), "as it was asked for"
    _, handler = opened(disk)
    disk.read = lambda: read_from(handler, 3)
    if fails:
        disk.behind = [Fault("fsync_dir", "/partition_0", 0)]
        with pytest.raises(PartitionReadOnly, match="planned"):
            _fill(handler, 40)
        disk.reader.join()
        assert handler.try_recover(3_600_000)
        read_from(handler, 3)
    _fill(handler, 40)
    disk.reader.join()
    handler.sync()
    copy = f"{FOLDER}/quarantine/t_partition_0_segment_1.log.0"
    for image in Images(disk).now():
        left = image.build()
        assert is_kept(left)
        assert bytes(read_file(left, copy)) == damaged

"""What a start has put back or found is vouched for from then on, before anything is written.

kill -> start: the records of the WAL are in the segment, synced; the WAL begins anew
kill -> the segment loses them: not torn by the kill, for a start has synced them
"""

import pytest

from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.opened_partitions import OpenedPartitions
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Storage
from segbroker.segments.names import partition_paths
from segbroker.segments.settings.topic_config import TopicConfig

from .crashing import CrashingStorage, Killed
from .tools import SMALL, append, batch_of

PATHS = partition_paths("/data", "t", 0)


def started(disk: Storage) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    return manager


def killed_after_a_start(durability: str) -> MemoryStorage:
    """Three records, a kill, a start that finds them, another kill: nothing was written since."""
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": durability}))
    for value in (b"one", b"two", b"three"):
        append(manager.get_handler("t", 0), batch_of(value))
    disk = disk.after_kill()
    manager = started(disk)
    assert manager.get_handler("t", 0).log_end_offset == 3
    return disk.after_kill()


def lose_all(disk: MemoryStorage) -> None:
    disk.unlink(PATHS.log(0))


def lose_the_last(disk: MemoryStorage) -> None:
    file = disk.open(PATHS.log(0))
    file.truncate(file.size() - 1)


@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize(("lose", "first"), [(lose_all, 0), (lose_the_last, 2)])
def test_what_is_lost_after_a_start_that_had_it_is_a_gap(
    durability: str, lose: object, first: int
) -> None:
    disk = killed_after_a_start(durability)
    assert callable(lose)
    lose(disk)
    told = [one for one in DirectoryChecker(disk.after_kill(), "/data", 0).check() if one.is_damage]
    assert [(one.from_offset, one.to_offset) for one in told] == [(first, 3)]
    manager = started(disk)
    handler = manager.get_handler("t", 0)
    assert handler.log_end_offset == 3, "no offset is given again"
    gaps = [row for row in manager.report.rows if row.what == "gap"]
    assert [(row.from_offset, row.to_offset, row.reason) for row in gaps] == [
        (first, 3, "corruption")
    ]


def test_what_a_repeated_batch_is_answered_by_is_vouched_for() -> None:
    # The process was killed behind the write to the segment: the WAL does not have it.
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, TopicConfig({}))
    batch = batch_of(b"one", producer=(1, 0, 0))
    handler = manager.get_handler("t", 0)
    handler.flushes_on_append = False
    append(handler, memoryview(bytearray(batch)))
    disk = disk.after_kill()
    handler = started(disk).get_handler("t", 0)
    again = append(handler, batch)
    assert again.duplicate
    assert again.last_offset < handler.high_watermark, "it is acknowledged"
    disk = disk.after_kill()
    lose_all(disk)
    manager = started(disk)
    assert manager.get_handler("t", 0).log_end_offset == 1, "no offset is given again"
    assert [row.to_offset for row in manager.report.rows if row.what == "gap"] == [1]


def test_a_start_that_is_killed_before_it_opens_a_log_goes_on_vouching(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = killed_after_a_start("fsync")
    lose_all(disk)

    def die(*_: object) -> None:
        raise Killed("before any log is opened")

    with monkeypatch.context() as patched:
        patched.setattr(OpenedPartitions, "open_replayed", die)
        with pytest.raises(Killed):
            started(disk)
    manager = started(disk.after_kill())
    assert manager.get_handler("t", 0).log_end_offset == 3
    gaps = [row for row in manager.report.rows if row.what == "gap"]
    assert [(row.from_offset, row.to_offset) for row in gaps] == [(0, 3)]


def test_a_log_that_was_opened_again_after_a_failure_is_vouched_for() -> None:
    disk = CrashingStorage()
    manager = started(disk)
    manager.create_topic("t", 1, TopicConfig({}))
    manager.create_topic("other", 1, TopicConfig({}))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"one"))
    disk.sync_fails = True
    append(handler, batch_of(b"two"))
    assert handler.read_only is not None
    disk.sync_fails = False
    manager.keep_house_now(60_000)
    assert handler.read_only is None, "its log was opened again, and the earlier frames are void"
    end = handler.high_watermark
    assert end >= 1
    append(manager.get_handler("other", 0), batch_of(b"a group"))
    image = disk.after_kill()
    numbers = [number for number in range(4) if image.exists(PATHS.log(number))]
    image.unlink(PATHS.log(numbers[-1]))
    assert started(image).get_handler("t", 0).log_end_offset == end


def test_verify_tells_as_lost_only_what_a_start_loses() -> None:
    # | 0 1 | 2 3 |  segment 0: 0 and 1 before a start, 2 and 3 in the WAL;  | 4 |  segment 1
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, SMALL)
    append(manager.get_handler("t", 0), batch_of(b"zero", b"one"))
    disk = disk.after_kill()
    handler = started(disk).get_handler("t", 0)
    append(handler, batch_of(b"two", b"three"))
    append(handler, batch_of(b"four" * 100))
    disk = disk.after_power_cut()  # with the row of segment 0, which was not synced
    assert disk.exists(PATHS.log(1))
    disk.unlink(PATHS.log(0))
    told = list(DirectoryChecker(disk.after_kill(), "/data", 0).check())
    lost = [(one.from_offset, one.to_offset) for one in told if one.is_damage]
    manager = started(disk)
    gaps = [row for row in manager.report.rows if row.what == "gap"]
    assert [(row.from_offset, row.to_offset) for row in gaps] == lost == [(0, 2)]
    assert any("puts them back" in one.action for one in told), "the rest is a note"


def test_verify_knows_what_was_settled() -> None:
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": "disk"}))
    append(manager.get_handler("t", 0), batch_of(b"zero"))
    manager.close()
    for name in disk.listdir(PATHS.folder):
        disk.unlink(f"{PATHS.folder}/{name}")
    told = [one for one in DirectoryChecker(disk.after_kill(), "/data", 0).check() if one.is_damage]
    handler = started(disk).get_handler("t", 0)
    assert handler.log_end_offset == 1
    assert [(one.from_offset, one.to_offset) for one in told] == [(0, 1)]

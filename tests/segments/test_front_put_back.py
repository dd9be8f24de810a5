"""A lost manifest, and frames of segments that retention has deleted a moment before.

    segment 4           | 12 13 | 14 |        12 and 13 from before a start: only 14 is in the WAL
    segment 5, 6        | 15 16 17 | 18 ...

Nobody knows any more that 4 was deleted, so 14 comes back, which retention deletes again.
"""

import pytest

from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.names import partition_paths
from segbroker.segments.settings.topic_config import TopicConfig

from .crashing import CrashingStorage, Killed
from .test_restoring import FOLDER, manager_on, rows, seen
from .tools import SMALL, append, batch_of

PATHS = partition_paths("/data", "t", 0)
KEEPS_SIX = TopicConfig({**SMALL.overrides, "retention.bytes": str(129 * 5)})


def without_a_manifest() -> MemoryStorage:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    for number in range(14):
        append(manager.get_handler("t", 0), batch_of(b"%03d" % number + b"x" * 57))
    disk = disk.after_kill()
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    for number in range(14, 21):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    manager.alter_topic("t", KEEPS_SIX.overrides)
    manager.keep_house_now(60_000)
    assert (handler.log_start_offset, handler.sealed_numbers()) == (15, [5])
    disk = disk.after_kill()
    disk.unlink(PATHS.manifest)
    disk.fsync_dir(FOLDER)
    return disk


def test_what_retention_has_deleted_is_no_gap() -> None:
    manager = manager_on(without_a_manifest())
    handler = manager.get_handler("t", 0)
    assert handler.log_start_offset == 14
    assert seen(handler) == (list(range(14, 21)), [])
    assert rows(manager, "gap") == []
    assert rows(manager, "replayed") == [(14, 15)]
    assert len(rows(manager, "manifest_rebuilt")) == 1


def test_verify_says_what_a_start_makes_of_it() -> None:
    disk = without_a_manifest()
    told = list(DirectoryChecker(disk, "/data", 0).check())
    (front,) = [one for one in told if one.path == PATHS.log(4)]
    assert not front.is_damage
    assert "the write-ahead log has offsets 14 to 15 of it" in front.text
    assert front.action == "they are put back; retention deletes them again"
    (lost,) = [one for one in told if one.is_damage]
    assert lost.path == PATHS.manifest
    assert lost.action.endswith("; what was below offset 14 counts as lost by damage")
    manager = manager_on(disk)
    assert manager.get_handler("t", 0).log_start_offset == 14


def test_where_all_files_are_gone_it_is_a_loss() -> None:
    disk = without_a_manifest()
    for name in disk.listdir(FOLDER):
        disk.unlink(f"{FOLDER}/{name}")
    manager = manager_on(disk)
    assert seen(manager.get_handler("t", 0)) == (list(range(14, 21)), [(0, 14)])
    assert rows(manager, "gap") == [(0, 14)]


def test_a_file_that_is_there_and_lost_its_content_is_a_loss() -> None:
    disk = without_a_manifest()
    disk.open(PATHS.log(4), create=True).close()
    manager = manager_on(disk)
    assert seen(manager.get_handler("t", 0)) == (list(range(14, 21)), [(0, 14)])


@pytest.mark.parametrize("power", [False, True])
def test_an_interruption_anywhere_loses_nothing(power: bool) -> None:
    for dies_at in range(1_000):
        disk = CrashingStorage()
        disk.__dict__.update(vars(without_a_manifest()))
        disk.dies_at = dies_at
        try:
            handler = manager_on(disk).get_handler("t", 0)
        except Killed:
            image = disk.after_power_cut() if power else disk.after_kill()
            handler = manager_on(image).get_handler("t", 0)
            assert seen(handler) == (list(range(14, 21)), []), dies_at
            continue
        assert seen(handler) == (list(range(14, 21)), [])
        assert dies_at > 10
        return

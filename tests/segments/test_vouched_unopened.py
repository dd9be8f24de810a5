"""Logs that a start does not open: it has nothing to put back in them, and goes on vouching.

kill -> start: the records of the WAL are in the segment, synced; END
kill -> start: nothing but END, and nobody asks for the log -> it stays shut, and is vouched for
"""

import pytest

from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Storage
from segbroker.segments.metadata.metadata import SETTLED, Ceiling
from segbroker.segments.settings.topic_config import TopicConfig

from .test_vouched_at_start import PATHS, killed_after_a_start, lose_all, lose_the_last, started
from .tools import append, batch_of


def lost(manager: DiskManager) -> list[tuple[int, int, str]]:
    """What is told as lost once the log was asked for."""
    assert manager.get_handler("t", 0).log_end_offset == 3, "no offset is given again"
    gaps = [row for row in manager.report.rows if row.what == "gap"]
    return [(row.from_offset, row.to_offset, row.reason) for row in gaps]


def told(disk: MemoryStorage) -> list[tuple[int, int]]:
    """What verify tells as lost."""
    findings = DirectoryChecker(disk.after_kill(), "/data", 0).check()
    return [(one.from_offset, one.to_offset) for one in findings if one.is_damage]


def test_a_log_that_nothing_was_written_to_since_the_last_start_is_not_opened_by_the_next() -> None:
    disk = killed_after_a_start("fsync")
    for _ in range(3):
        manager = started(disk)
        assert not manager.handlers
        disk = disk.after_kill()
    assert started(disk).get_handler("t", 0).log_end_offset == 3


@pytest.mark.parametrize("ends", ["killed", "closed", "closed twice"])
@pytest.mark.parametrize(("lose", "first"), [(lose_all, 0), (lose_the_last, 2)])
def test_a_log_that_was_not_opened_is_vouched_for_all_the_same(
    ends: str, lose: object, first: int
) -> None:
    disk = killed_after_a_start("fsync")
    manager = started(disk)
    if ends == "killed":
        disk = disk.after_kill()
    else:
        manager.close()
    if ends == "closed twice":
        started(disk).close()
    assert callable(lose)
    lose(disk)
    assert told(disk) == [(first, 3)]
    manager = started(disk)
    assert lost(manager) == [(first, 3, "corruption")]
    manager.close()
    manager = started(disk)
    assert (manager.get_handler("t", 0).log_end_offset, manager.report.rows) == (3, [])


def test_a_log_of_another_class_is_opened() -> None:
    assert started(killed_after_a_start("disk")).handlers, "its reserved offsets are settled"


def test_what_was_reserved_and_is_not_settled_stays_reserved_over_an_orderly_stop() -> None:
    # It was of class `disk`: what was acknowledged before its sync may be missing.
    disk = killed_after_a_start("fsync")
    manager = started(disk)
    key = manager.topics["t"].topic_id, 0
    reserved = Ceiling(1_000, manager._metadata.state.boot)
    manager._resuming.record_ceilings([(key, reserved)])
    manager.close()
    assert manager._metadata.state.ceiling(key) == reserved
    again = started(disk)
    assert again.handlers, "what nobody has synced is, and what is not used given back"
    assert again._metadata.state.ceiling(key) == Ceiling(3, SETTLED)


def remove(disk: Storage, folder: str) -> None:
    for name in disk.listdir(folder):
        disk.unlink(f"{folder}/{name}")
    disk.rmdir(folder)


def test_a_new_topic_has_nothing_of_the_deleted_one_of_its_name() -> None:
    disk = killed_after_a_start("fsync")
    remove(disk, PATHS.folder)
    manager = started(disk)
    manager.delete_topics(["t"])
    manager.create_topic("t", 1, TopicConfig({}))
    handler = manager.get_handler("t", 0)
    assert handler.log_end_offset == 0, "nothing vouches for records of it"
    assert append(handler, batch_of(b"the first")).base_offset == 0
    assert not [row for row in manager.report.rows if row.what == "gap"]
    assert started(disk.after_kill()).get_handler("t", 0).log_end_offset == 1

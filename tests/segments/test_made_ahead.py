"""Which names of segments made ahead a start may take for durable; and a file that somebody has
copied to where a segment is to begin."""

import pytest

from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.settings.topic_config import TopicConfig

from .classes import gaps_in, manager_on
from .tools import SMALL, append, batch_of, lose_wal, offsets_in, read_from

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
    handler._rolling._making = True  # none is made by the next roll
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
@pytest.mark.parametrize("of", [0, 6, 20])
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
    handler._rolling._making = not made_ahead
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

"""Which names of segments made ahead a start may take for durable."""

import pytest

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.settings.topic_config import TopicConfig

from .classes import gaps_in, manager_on
from .tools import SMALL, append, batch_of

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

"""What is chosen for all topics: over restarts, over a topic's own, while one is opened."""

import threading
from collections.abc import Mapping

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import InvalidConfig
from segbroker.segments.settings.topic_config import Durability, TopicConfig


def opened(storage: MemoryStorage) -> DiskManager:
    made = DiskManager("/d", storage=storage, flushers=0)
    made.open()
    return made


def test_topics_that_exist_and_new_ones_have_what_is_chosen_over_stops_and_kills() -> None:
    disk = MemoryStorage()
    manager = opened(disk)
    manager.create_topic("old", 1, TopicConfig())
    manager.create_topic("own", 1, TopicConfig({"retention.ms": "7"}))
    served = manager.partitions.get_handler("old", 0)
    manager.set_topic_defaults({"retention.ms": "5", "segment.bytes": "4096"})
    assert (served.config.retention_ms, served.config.segment_bytes) == (5, 4096)
    manager.create_topic("new", 1, TopicConfig())

    def told() -> dict[str, tuple[int, int]]:
        return {
            name: (meta.config.retention_ms, meta.config.segment_bytes)
            for name, meta in manager.topics.items()
        }

    expected = {"old": (5, 4096), "own": (7, 4096), "new": (5, 4096)}
    assert told() == expected
    manager.alter_topic("old", {"segment.bytes": "8192"})
    expected["old"] = (5, 8192)
    assert told() == expected
    killed = disk.after_kill()
    manager.close()
    for again in (disk, killed):
        manager = opened(again)
        assert told() == expected
        assert manager.topic_defaults == {"retention.ms": "5", "segment.bytes": "4096"}
        manager.set_topic_defaults({})
        assert told() == {
            "old": (604_800_000, 8192),
            "own": (7, 1 << 20),
            "new": (604_800_000, 1 << 20),
        }
        manager.close()


def test_nothing_is_written_where_nothing_changes() -> None:
    disk = MemoryStorage()
    manager = opened(disk)
    manager.set_topic_defaults({"retention.ms": "5"})
    before = manager.wal.statistics().frames_written
    manager.set_topic_defaults({"retention.ms": "5"})
    assert manager.wal.statistics().frames_written == before
    manager.close()


@pytest.mark.parametrize(
    ("own", "chosen", "left"),
    [
        ({"segment.bytes": "4096"}, {"max.message.bytes": "8192"}, {}),
        ({"max.message.bytes": "8192"}, {"segment.bytes": "4096"}, {}),
        (
            {"segment.bytes": "4096"},
            {"max.message.bytes": "8192", "segment.ms": "5"},
            {"segment.ms": "5"},
        ),
        ({"durability": "ephemeral"}, {"cleanup.policy": "compact"}, {}),
        ({"durability": "ephemeral"}, {"retention.bytes": "-1"}, {}),
        (
            {"max.compaction.lag.ms": "5"},
            {"min.compaction.lag.ms": "6", "retention.ms": "1"},
            {"retention.ms": "1"},
        ),
        ({}, {"of.a.later.version": "1"}, {"of.a.later.version": "1"}),
    ],
)
def test_a_default_that_contradicts_a_topic_is_left_out_for_it(
    own: Mapping[str, str], chosen: Mapping[str, str], left: Mapping[str, str]
) -> None:
    config = TopicConfig.parse(own, chosen)
    assert config.overrides == own
    assert config.inherited == left
    described = {one.name: one for one in config.describe()}
    for name in chosen.keys() & described.keys():
        assert described[name].is_inherited == (name in left)


def test_defaults_follow_each_other_as_settings_of_one_topic_do() -> None:
    assert TopicConfig.parse({}, {"segment.bytes": "4096"}).max_message_bytes == 4096
    assert TopicConfig.parse({}, {"max.message.bytes": str(2 << 20)}).segment_bytes == 2 << 20
    config = TopicConfig.parse({}, {"cleanup.policy": "compact", "max.compaction.lag.ms": "9"})
    assert (config.compacts, config.deletes, config.roll_ms) == (True, False, 9)
    assert TopicConfig.parse({}, {}).max_compaction_lag_ms == 2**63 - 1


def test_defaults_that_contradict_each_other_are_refused() -> None:
    manager = opened(MemoryStorage())
    with pytest.raises(InvalidConfig, match=r"exceeds segment\.bytes"):
        manager.set_topic_defaults({"segment.bytes": "4096", "max.message.bytes": "8192"})
    assert manager.topic_defaults == {}
    manager.close()


class SlowToOpen(MemoryStorage):
    """Whoever lists the directory of a partition waits, once it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: str | None = None
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def listdir(self, path: str) -> list[str]:
        found = super().listdir(path)
        if self.waits is not None and path.endswith(self.waits):
            self.waits = None
            self.reached.set()
            assert self.goes_on.wait(60)
        return found


def test_a_partition_that_is_opened_while_its_topic_is_altered_is_served_as_it_is_now() -> None:
    disk = SlowToOpen()
    manager = opened(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": "disk"}))
    disk.waits = "/t/partition_0"
    opener = threading.Thread(target=manager.partitions.get_handler, args=("t", 0))
    opener.start()
    assert disk.reached.wait(60), "the directory of a partition has another name"
    manager.alter_topic("t", {"durability": "fsync"})
    manager.set_topic_defaults({"retention.ms": "5"})
    disk.goes_on.set()
    opener.join(60)
    handler = manager.partitions.get_handler("t", 0)
    assert handler.config.durability is Durability.FSYNC
    assert handler.config.retention_ms == 5
    manager.close()

"""An operator has looked at damage while its partition was not open, because nobody asked for it or
because it was refused: that counts as well, and the same damage is not found again."""

import errno

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import PartitionRefused
from segbroker.segments.settings.topic_config import TopicConfig

from .test_damage import LOG_1, gaps_in, partition_with
from .tools import SMALL, append, batch_of, flip

MARK = LOG_1.replace("_segment_1.log", ".damaged")


class KeepingStorage(MemoryStorage):
    """Does not let go of the mark, while it `keeps`."""

    keeps = False

    def unlink(self, path: str) -> None:
        if self.keeps and path == MARK:
            raise OSError(errno.EACCES, "denied", path)
        super().unlink(path)


def settings(on_corruption: str) -> dict[str, str]:
    return {**SMALL.overrides, "on.corruption": on_corruption}


def started(disk: MemoryStorage) -> DiskManager:
    """One to which the write-ahead log says nothing, so that it opens nothing by itself."""
    for _ in range(2):
        manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
        manager.open()
        manager.close()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    return manager


@pytest.mark.parametrize("opens_between", [True, False])
@pytest.mark.parametrize("policy", ["readonly", "refuse"])
def test_damage_that_an_operator_has_looked_at_is_not_found_again(
    policy: str, opens_between: bool
) -> None:
    disk = MemoryStorage()
    manager, handler = partition_with(disk, 15, TopicConfig(settings("readonly")))
    flip(disk, LOG_1, 200)
    assert gaps_in(handler) == [(4, 5)]
    assert disk.exists(MARK)
    manager.alter_topic("t", settings(policy))
    manager.close()
    manager = started(disk)
    if policy == "refuse":
        with pytest.raises(PartitionRefused):
            manager.get_handler("t", 0)
    assert not manager.handlers
    manager.alter_topic("t", settings("gap"))
    if opens_between:
        append(manager.get_handler("t", 0), batch_of(b"it is served"))
    manager.alter_topic("t", settings(policy))
    assert not disk.exists(MARK)
    manager.close()
    handler = started(disk).get_handler("t", 0)
    assert handler.read_only is None
    assert gaps_in(handler) == [(4, 5)]


def test_a_default_of_all_topics_counts_as_well() -> None:
    disk = MemoryStorage()
    manager, handler = partition_with(disk, 15)
    manager.set_topic_defaults({"on.corruption": "readonly"})
    flip(disk, LOG_1, 200)
    assert gaps_in(handler) == [(4, 5)]
    assert disk.exists(MARK)
    manager.close()
    manager = started(disk)
    assert not manager.handlers
    manager.set_topic_defaults({})
    manager.set_topic_defaults({"on.corruption": "readonly"})
    assert manager.get_handler("t", 0).read_only is None


def test_a_mark_that_cannot_be_removed_keeps_nobody_out() -> None:
    disk = KeepingStorage()
    manager, handler = partition_with(disk, 15, TopicConfig(settings("readonly")))
    flip(disk, LOG_1, 200)
    assert gaps_in(handler) == [(4, 5)]
    manager.close()
    manager = started(disk)
    disk.keeps = True
    manager.alter_topic("t", settings("gap"))
    append(manager.get_handler("t", 0), batch_of(b"it is served"))
    manager.close()
    assert disk.exists(MARK)
    disk.keeps = False
    append(started(disk).get_handler("t", 0), batch_of(b"more"))
    assert not disk.exists(MARK)

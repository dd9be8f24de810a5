"""A creation, or a growth, that failed and is asked for again: its event may be on the disk, and
comes true at a kill.

event -> sync fails, a snapshot without it as well | asked again | killed -> it has its directories
"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import StorageError
from segbroker.segments.names import partition_paths
from segbroker.segments.settings.topic_config import TopicConfig

from .crashing import CrashingStorage, Killed
from .test_failures import readable, write
from .tools import manager_on

Change = Callable[[DiskManager], object]


class Fragile(CrashingStorage):
    """The process ends where the first directory is made or removed, once it `is_armed`."""

    is_armed = False

    def mkdir(self, path: str) -> None:
        if self.is_armed:
            raise Killed
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        if self.is_armed:
            raise Killed


def made(manager: DiskManager) -> object:
    return manager.create_topic("made", 2, TopicConfig())


def grown(manager: DiskManager) -> object:
    return manager.create_partitions("t", 2)


@pytest.mark.parametrize("change", [made, grown])
def test_what_comes_true_at_a_kill_has_its_directories(change: Change) -> None:
    disk = Fragile()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig())
    disk.sync_fails = True
    with pytest.raises(StorageError, match="sync failed"):
        change(manager)
    disk.is_armed = True
    with suppress(Killed, StorageError):
        change(manager)
    left = disk.after_kill()
    again = manager_on(left)
    assert sum(meta.partitions for meta in again.topics.values()) > 1, "it has not come true"
    for meta in again.topics.values():
        for partition in range(meta.partitions):
            assert left.exists(partition_paths("/data", meta.name, partition).folder)
            handler = again.get_handler(meta.name, partition)
            write(handler, 0)
            assert readable(handler) == [0]


@pytest.mark.parametrize("change", [made, grown])
def test_it_is_done_when_the_disk_works_again(change: Change) -> None:
    disk = CrashingStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig())
    disk.sync_fails = True
    for _ in range(2):
        with pytest.raises(StorageError, match="sync failed"):
            change(manager)
    disk.sync_fails = False
    manager.housekeeping(10_000)
    change(manager)
    again = manager_on(disk.after_power_cut())
    assert again.topics == manager.topics
    for name in again.topics:
        write(again.get_handler(name, 0), 0)

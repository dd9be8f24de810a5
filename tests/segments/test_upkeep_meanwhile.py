"""Housekeeping goes on while partitions come and go."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage

from .test_retention import DAY, NOW, partition_on
from .tools import SMALL, append, batch_of


class EventfulStorage(MemoryStorage):
    """`on_sync` runs once, in the first fdatasync after it was set."""

    def __init__(self) -> None:
        super().__init__()
        self.on_sync: Callable[[], object] | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _File(path, plain._inode, self)
        file.owner = self
        return file


class _File(MemoryFile):
    owner: EventfulStorage

    def fdatasync(self) -> None:
        on_sync, self.owner.on_sync = self.owner.on_sync, None
        if on_sync is not None:
            on_sync()
        super().fdatasync()


def test_a_partition_may_be_opened_while_others_are_synced_to_be_parked() -> None:
    disk = EventfulStorage()
    manager = DiskManager("/data", storage=disk, flushers=0, open_logs_max=1, now_ms=1_000)
    manager.open()
    manager.create_topic("t", 4, SMALL)
    for partition in range(3):
        append(manager.get_handler("t", partition), batch_of(b"x"))
    disk.on_sync = lambda: manager.get_handler("t", 3)
    manager.keep_house_now(2_000)
    assert ("t", 3) in manager.handlers
    assert not any(handler.has_unsynced for handler in manager.handlers.values())


@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_is_deleted_under_a_round_of_upkeep_rolls_no_more(made_again: bool) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, 1, segment_ms=DAY)
    manager.delete_topic("t")
    if made_again:
        manager.create_topic("t", 1, handler.config)
    with capture_logs() as told:
        handler.keep_house(NOW + 2 * DAY, NOW + 2 * DAY)  # whose turn it was just then
    assert handler.read_only is None
    assert not told, "it is no failure"
    assert not made_again or not disk.listdir("/data/topics/t/partition_0")

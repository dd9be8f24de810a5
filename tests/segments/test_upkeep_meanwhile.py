"""Housekeeping goes on while partitions come and go."""

from collections.abc import Callable

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage

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

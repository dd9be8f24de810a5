"""A wall clock that is set back, by an hour say: what is due every second goes on."""

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import append, batch_of

NOON = 1_700_000_000_000
HOUR = 3_600_000
DISK = TopicConfig({"durability": "disk"})


def opened_at(now_ms: int, disk: MemoryStorage) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=now_ms)
    manager.open()
    manager.create_topic("t", 1, DISK)
    return manager


def test_class_disk_is_synced_every_second_after_the_clock_was_set_back() -> None:
    manager = opened_at(NOON, MemoryStorage())
    handler = manager.get_handler("t", 0)
    monotonic_ms = 0
    for now_ms in (NOON, NOON - HOUR, NOON - HOUR + 1_000):
        append(handler, batch_of(b"x"), now_ms)
        monotonic_ms += 1_000
        manager.housekeeping(now_ms, monotonic_ms)
        assert not handler.has_unsynced, now_ms - NOON


def test_the_metadata_is_saved_every_minute_after_the_clock_was_set_back() -> None:
    disk = MemoryStorage()
    manager = opened_at(NOON, disk)

    def saved() -> list[str]:
        return sorted(disk.listdir("/data/meta"))

    for now_ms in (NOON + 60_000, NOON - HOUR, NOON - HOUR + 60_000):
        manager.create_topic(f"at-{now_ms}", 1, DISK)
        before = saved()
        manager.housekeeping(now_ms, now_ms)
        assert saved() != before, now_ms - NOON

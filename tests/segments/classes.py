"""What the tests of the durability classes share: a broker's disk with one topic, and its gaps."""

from segbroker.protocol.record_batch import GapReason, gap_reason, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import append, batch_of, read_from


def manager_on(storage: MemoryStorage, now_ms: int = 5_000) -> DiskManager:
    manager = DiskManager("/data", storage=storage, flushers=0, now_ms=now_ms)
    manager.open()
    return manager


def topic_with(storage: MemoryStorage, durability: str, count: int = 3) -> DiskManager:
    """A manager with topic `t` of one partition and `count` records in it, one per batch."""
    manager = manager_on(storage)
    manager.create_topic("t", 1, TopicConfig({"durability": durability}))
    for number in range(count):
        append(manager.get_handler("t", 0), batch_of(b"%d" % number))
    return manager


def gaps_in(handler: DiskHandler) -> list[tuple[int, int, GapReason | None, int]]:
    """(from, to, reason, leader epoch) of each gap."""
    found = []
    for batch in iter_batches(memoryview(read_from(handler, handler.log_start_offset))):
        header = read_header(batch)
        if header.is_control:
            reason = gap_reason(header)
            found.append((header.base_offset, header.next_offset, reason, header.leader_epoch))
    return found

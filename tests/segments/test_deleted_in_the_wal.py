"""What a partition that is deleted leaves in memory while files of the write-ahead log have its
frames: nothing, and nobody asks for it at a checkpoint."""

import gc

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.journal import WalConfig

from .tools import append, batch_of

STAYS, IN_FULL, IN_ACTIVE = TOPICS = "stays", "in-the-full-file", "in-the-active-file"
WAL = WalConfig(file_bytes=1 << 16, shard_bytes=8 << 16, shards=1)


def handlers_in_memory() -> set[str]:
    """The topics of this test, a partition of which somebody still refers to."""
    gc.collect()
    handlers = (one for one in gc.get_objects() if isinstance(one, DiskHandler))
    return {one.topic for one in handlers} & set(TOPICS)


def test_a_deleted_partition_is_not_kept_for_frames_that_nobody_needs() -> None:
    manager = DiskManager("/data", storage=MemoryStorage(), flushers=0, now_ms=1_000, wal=WAL)
    manager.open()
    for topic in TOPICS:
        manager.create_topic(topic, 1, TopicConfig())
    append(manager.get_handler(IN_FULL, 0), batch_of(b"x"))
    stays = manager.get_handler(STAYS, 0)
    while not manager.wal.statistics().files_full:
        append(stays, batch_of(b"y" * 5_000))
    append(manager.get_handler(IN_ACTIVE, 0), batch_of(b"x"))
    assert handlers_in_memory() == set(TOPICS)
    manager.delete_topics([IN_FULL, IN_ACTIVE])
    manager.housekeeping(10_000)  # which was asked to look after them
    assert handlers_in_memory() == {STAYS}
    manager.wal.checkpoint()
    assert manager.wal.statistics().files_full == 0
    manager.close()

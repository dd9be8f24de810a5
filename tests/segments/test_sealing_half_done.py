"""A sealing that ends half way is not done once more over what it has left."""

from unittest.mock import patch

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import StorageFile
from segbroker.segments.errors import CorruptSegment, StorageError
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.log.segment import ActiveSegment
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import SMALL, append, batch_of, flip, offsets_in, read_from
from .wal_writing import until

NOW_MS = 1_700_000_000_000
COUNT = 12


def test_a_partition_whose_sealing_had_no_memory_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = 1
    unused = ActiveSegment.unused

    def runs_out(segment: ActiveSegment) -> list[StorageFile]:
        nonlocal left
        if left:
            left -= 1
            raise MemoryError
        return unused(segment)

    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=1, now_ms=NOW_MS)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({**SMALL.overrides, "retention.ms": "-1"}))
    handler = manager.get_handler("t", 0)
    monkeypatch.setattr(ActiveSegment, "unused", runs_out)
    now_ms = NOW_MS

    def is_written() -> bool:
        nonlocal now_ms
        try:
            append(handler, batch_of(bytes(300)), NOW_MS)
            handler.flush_soon()
        except StorageError:
            now_ms += 2_000
            manager.keep_house_now(now_ms)
        return handler.log_end_offset >= COUNT and not left and handler.read_only is None

    until(is_written)
    count = handler.log_end_offset
    manager.close()
    again = DiskManager("/data", storage=disk, flushers=0, now_ms=NOW_MS)
    again.open()
    got: list[int] = []
    while len(got) < count:
        got += offsets_in(read_from(again.get_handler("t", 0), len(got)))
    assert got == list(range(count))
    assert not again.report.summary()["offsets_lost"]
    again.close()


def test_so_is_one_that_a_repair_had_begun() -> None:
    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=NOW_MS)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({**SMALL.overrides, "retention.ms": "-1"}))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"0"), NOW_MS)
    handler.flush_soon()
    flip(disk, handler._log.active.path, 65)
    runs_out = patch.object(PartitionLog, "became_sealed", side_effect=MemoryError)
    with runs_out, pytest.raises(CorruptSegment):
        read_from(handler, 0)
    assert handler.read_only is not None
    manager.keep_house_now(NOW_MS + 2_000)
    manager.close()
    with DiskManager("/data", storage=disk, flushers=0, now_ms=NOW_MS) as again:
        assert offsets_in(read_from(again.get_handler("t", 0), 0)) == [0]

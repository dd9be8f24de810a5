"""What does not grow with the log: loaded indexes, the work of opening; a platform without help."""

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage

from .tools import SMALL, append, batch_of, offsets_in, read_from


class WatchedStorage(MemoryStorage):
    """Knows the names of the files that were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        self.names.add(path.rpartition("/")[2])
        return super().open(path, create=create, read_only=read_only)


def test_loaded_indexes_are_bounded_and_every_record_is_found_all_the_same() -> None:
    manager = DiskManager("/data", storage=MemoryStorage(), flushers=0, index_bytes_max=1_000)
    with manager:
        manager.create_topic("t", 1, SMALL)
        handler = manager.get_handler("t", 0)
        for _ in range(300):
            append(handler, batch_of(b"x" * 300))
        for offset in range(300):
            assert offsets_in(read_from(handler, offset, 1)) == [offset]
        statistics = manager.statistics()
        assert statistics.segments_count == 300
        assert 0 < statistics.index_bytes <= 1_000


def test_opening_a_log_reads_its_manifest_and_no_sealed_segment() -> None:
    disk = WatchedStorage()
    with DiskManager("/data", storage=disk, flushers=0) as manager:
        manager.create_topic("t", 1, SMALL)
        for _ in range(20):
            append(manager.get_handler("t", 0), batch_of(b"x" * 300))
    disk.names.clear()
    with DiskManager("/data", storage=disk, flushers=0) as manager:
        assert manager.get_handler("t", 0).log_end_offset == 20
        logs = {n for n in disk.names if n.startswith("t_") and n.endswith((".log", ".index"))}
        assert logs == {"t_partition_0_segment_19.log"}


@pytest.mark.parametrize(("open_files_max", "lanes_max"), [(1024, 13), (1, 80)])
def test_what_a_reader_comes_to_next_is_ready_unless_that_is_closed_again(
    open_files_max: int, lanes_max: int
) -> None:
    disk = MemoryStorage()
    with DiskManager("/data", storage=disk, flushers=0) as manager:
        manager.create_topic("t", 1, SMALL)
        for _ in range(81):
            append(manager.get_handler("t", 0), batch_of(b"x" * 300))
    lanes = offset = 0
    with DiskManager("/data", storage=disk, flushers=0, open_files_max=open_files_max) as manager:
        handler = manager.get_handler("t", 0)
        while (plan := handler.plan_read(offset, 1)) is not None:
            buffer = memoryview(bytearray(plan.size_max))
            if (size := plan.read_nowait(buffer)) is None:
                lanes += 1
                size = plan.read(buffer)
            assert offsets_in(buffer[:size]) == [offset]
            plan.release()
            offset += 1
        assert manager.statistics().open_files <= open_files_max
    assert (offset, lanes <= lanes_max) == (81, True), lanes


def test_a_file_that_is_new_is_not_truncated() -> None:
    # ext4 takes it for one that is replaced then, and writes it out when it is closed.
    with (
        patch.object(MemoryFile, "truncate") as truncate,
        DiskManager("/data", storage=MemoryStorage(), flushers=0) as manager,
    ):
        manager.create_topic("t", 1, SMALL)
        for _ in range(20):
            append(manager.get_handler("t", 0), batch_of(b"x" * 300))
        assert manager.statistics().segments_count == 20
    truncate.assert_not_called()


def test_where_the_platform_cannot_read_without_waiting_every_read_goes_to_a_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    with DiskManager(str(tmp_path), flushers=0) as manager:
        manager.create_topic("t", 1, SMALL)
        handler = manager.get_handler("t", 0)
        for _ in range(4):
            append(handler, batch_of(b"x" * 300))
        plan = handler.plan_read(0, 1)
        assert plan is not None
        buffer = memoryview(bytearray(plan.size_max))
        assert plan.read_nowait(buffer) is None
        assert offsets_in(buffer[: plan.read(buffer)]) == [0]
        plan.release()

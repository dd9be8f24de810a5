"""A manifest that is cut, or damaged, anywhere: what was deleted by request stays so, and every
record that the log has is there.

A cut between two rows leaves a manifest that is whole by itself.  The copy of the log start tells
that a row is missing.
"""

from collections.abc import Callable, Iterator

import pytest

from segbroker.protocol.record_batch import GapReason, iter_batches, read_header
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.files.manifest import ROW_SIZE
from segbroker.segments.log.deleting import evict, unlink_doomed
from segbroker.segments.log.sealing import seal
from segbroker.segments.names import partition_paths
from segbroker.segments.partition.handler import DiskHandler

from .classes import manager_on
from .tools import SMALL, append, batch_of, lose_wal, read_from

PATHS = partition_paths("/data", "t", 0)
COUNT = 14
"""Records; three in each segment."""


def deleted(handler: DiskHandler) -> None:
    handler.delete_records_before(5)


def deleted_and_unlinked(handler: DiskHandler) -> None:
    handler.delete_records_before(5)
    assert not unlink_doomed(handler._log)


def deleted_and_evicted(handler: DiskHandler) -> None:
    deleted_and_unlinked(handler)
    evict(handler._log, 1, GapReason.TTL)
    assert not unlink_doomed(handler._log)


def deleted_behind_all(handler: DiskHandler) -> None:
    handler.delete_records_before(13)
    assert not unlink_doomed(handler._log)


def all_deleted(handler: DiskHandler) -> None:
    handler.delete_records_before(COUNT)
    assert not unlink_doomed(handler._log)


def log_in_which(done: Callable[[DiskHandler], None], end: str) -> tuple[MemoryStorage, int]:
    """A disk, and where the log on it begins."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in range(COUNT):
        append(handler, batch_of(b"%060d" % number))
        seal(handler._log)
    if end == "closed before it":
        manager.close()
        manager = manager_on(disk)
        handler = manager.get_handler("t", 0)
    done(handler)
    start = handler.log_start_offset
    if end == "closed":
        manager.close()
    else:
        disk = disk.after_kill()
    if end == "killed, without the write-ahead log":
        lose_wal(disk)
    return disk, start


def cuts(content: bytes) -> Iterator[bytes]:
    for size in range(0, len(content), ROW_SIZE // 2):
        yield content[:size]


def flips(content: bytes) -> Iterator[bytes]:
    for place in range(5, len(content), ROW_SIZE // 2):
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def readable(handler: DiskHandler) -> set[int]:
    """The records, one by one; gaps are passed over."""
    found: set[int] = set()
    offset = handler.log_start_offset
    while offset < handler.log_end_offset:
        for batch in iter_batches(read_from(handler, offset)):
            header = read_header(batch)
            if not header.is_control:
                found.add(header.base_offset)
            offset = header.next_offset
    return found


@pytest.mark.parametrize("damages", [cuts, flips])
@pytest.mark.parametrize(
    "done", [deleted, deleted_and_unlinked, deleted_and_evicted, deleted_behind_all]
)
@pytest.mark.parametrize(
    "end", ["killed", "killed, without the write-ahead log", "closed", "closed before it"]
)
def test_what_was_deleted_stays_so_whatever_is_left_of_a_manifest(
    done: Callable[[DiskHandler], None], end: str, damages: Callable[[bytes], Iterator[bytes]]
) -> None:
    disk, start = log_in_which(done, end)
    requested = 13 if done is deleted_behind_all else 5
    whole = bytes(read_file(disk, PATHS.manifest))
    for number, content in enumerate(damages(whole)):
        damaged = disk.after_kill()
        replace_file(damaged, PATHS.manifest, content)
        for _ in range(2):
            handler = manager_on(damaged).get_handler("t", 0)
            where = f"damage {number}: begins at {handler.log_start_offset}"
            assert handler.log_start_offset >= requested, where
            assert handler.log_end_offset == COUNT, where
            assert readable(handler) >= set(range(start, COUNT)), where
            damaged = damaged.after_kill()


@pytest.mark.parametrize("left", [0, 1, 200], ids=["nothing", "a byte", "a batch and a half"])
@pytest.mark.parametrize(
    "end", ["killed", "killed, without the write-ahead log", "closed", "closed before it"]
)
def test_what_was_deleted_stays_so_where_the_last_segment_has_no_end_and_no_manifest(
    end: str, left: int
) -> None:
    disk, _ = log_in_which(all_deleted, end)
    last = PATHS.log(4)
    content = bytes(read_file(disk, last))
    assert len(content) > 200
    replace_file(disk, last, content[:left])
    disk.unlink(PATHS.manifest)
    for _ in range(2):
        handler = manager_on(disk).get_handler("t", 0)
        assert (handler.log_start_offset, handler.log_end_offset) == (COUNT, COUNT)
        disk = disk.after_kill()

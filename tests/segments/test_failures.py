"""A disk that fails: exactly what must stops, reads go on, writing comes back without a restart.

The disk here is as treacherous as a real one.  A sync that fails is told once; its pages count as
clean from then on and never reach the disk, whoever syncs the file again.
"""

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from segbroker.protocol.record_batch import BatchHeader, check_batch, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.upkeep import RECOVERIES_FAILED_MAX
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage, _Inode
from segbroker.segments.disk.storage import Buffer, read_file, remove_tree
from segbroker.segments.errors import (
    CorruptSegment,
    DiskFull,
    LogClosed,
    PartitionReadOnly,
    StorageError,
)
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.metadata.metadata import Metadata
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.report import RecoveryReport, ReportRow
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.journal import WalConfig
from segbroker.segments.wal.replay import shard_number

from .tools import SMALL, append, batch_of, lose_wal, manager_on, offsets_in, read_from, read_once

DISK = TopicConfig({**SMALL.overrides, "durability": "disk"})


class TreacherousStorage(MemoryStorage):
    """`fails`: the ends of the paths whose next sync fails.  `full`: no byte more is written.

    forgets: whether what was not synced is gone from memory as well after a failed sync: zeros are
        in its place.
    """

    def __init__(self, seed: int = 0, *, forgets: bool = False) -> None:
        super().__init__(seed)
        self.forgets = forgets
        self.fails: tuple[str, ...] = ()
        self.error = errno.EIO
        self.full = False
        self.lost: set[_Inode] = set()
        self.synced_again: list[str] = []
        self.opened: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """Called inside a sync that fails, when what it was to write is gone already."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.full and create and not self.exists(path):
            raise OSError(errno.ENOSPC, "no space", path)
        self.opened.append(path)
        plain = super().open(path, create=create, read_only=read_only)
        file = _TreacherousFile(path, plain._inode, self)
        file.disk = self
        return file


class _TreacherousFile(MemoryFile):
    disk: TreacherousStorage

    def pwrite(self, data: Buffer, position: int) -> int:
        if self.disk.full:
            raise OSError(errno.ENOSPC, "no space", self.path)
        return super().pwrite(data, position)

    def fdatasync(self) -> None:
        disk, inode = self.disk, self._inode
        if inode in disk.lost:
            disk.synced_again.append(self.path)  # told that all is well; nothing is
            return
        if any(end in self.path for end in disk.fails):
            disk.lost.add(inode)
            if disk.forgets:
                size = len(inode.content)  # that stays
                inode.content[:] = bytes(inode.synced).ljust(size, bytes(1))[:size]
            disk.meanwhile()
            raise OSError(disk.error, "planted", self.path)
        super().fdatasync()


def partition_on(
    disk: MemoryStorage, config: TopicConfig = SMALL
) -> tuple[DiskManager, DiskHandler]:
    manager = manager_on(disk)
    manager.create_topic("t", 1, config)
    return manager, manager.get_handler("t", 0)


def write(handler: DiskHandler, number: int) -> None:
    append(handler, batch_of(b"%03d" % number + bytes(90)))


def readable(handler: DiskHandler) -> list[int]:
    """Offsets of the records, without gaps."""
    offset = handler.log_start_offset
    offsets: list[int] = []
    while data := read_from(handler, offset):
        headers = [read_header(batch) for batch in iter_batches(data)]
        offsets += [header.base_offset for header in headers if header.records_count]
        offset = headers[-1].next_offset
    return offsets


def segment_that_forgets(
    *, in_memory: bool = True
) -> tuple[TreacherousStorage, DiskManager, DiskHandler]:
    """Three records are acknowledged; the next sync of their segment fails, and forgets them.

    in_memory: also there; else the disk alone will never have them, whatever is synced.
    """
    disk = TreacherousStorage(forgets=in_memory)
    manager, handler = partition_on(disk)
    for number in range(3):
        write(handler, number)
    assert handler.high_watermark == 3
    disk.fails = ("segment_",)
    return disk, manager, handler


def check_acknowledged(disk: TreacherousStorage, handler: DiskHandler) -> None:
    """Only the WAL has what was acknowledged: nothing may void its frames, but what writes it anew
    of memory, where that has it."""
    assert (handler.read_only is not None) == disk.forgets
    for image in (disk.after_kill(), disk.after_power_cut()):
        assert readable(manager_on(image).get_handler("t", 0)) == [0, 1, 2]


def test_after_a_failed_sync_the_log_goes_on_in_new_files() -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk, DISK)
    for n in range(4):
        write(handler, n)
    handler.sync()
    write(handler, 4)
    write(handler, 5)
    assert handler.high_watermark == 6  # acknowledged: class disk
    disk.fails = (".log",)
    with pytest.raises(PartitionReadOnly, match="planted"):
        handler.sync()
    with pytest.raises(PartitionReadOnly):
        write(handler, 6)
    assert readable(handler) == list(range(6))
    disk.fails = ()
    manager.housekeeping(5_000)
    assert handler.read_only is None
    write(handler, 6)
    handler.sync()
    assert disk.synced_again == []
    image = disk.after_power_cut()
    again = manager_on(image).get_handler("t", 0)
    assert readable(again) == list(range(7))


@pytest.mark.parametrize("config", [SMALL, DISK])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_log_whose_files_are_away_is_made_anew_from_those_that_are_open(
    config: TopicConfig, is_replaced: bool
) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, config)
    for n in range(10):
        write(handler, n)
    for segment in (*handler._log.rotating, handler._log.active):
        disk.unlink(segment.path)
        if is_replaced:
            disk.open(segment.path, create=True).pwrite(b"another", 0)
    for second in range(5, 8):
        manager.housekeeping(second * 1_000)
        handler.wal_checkpoint()
    assert handler.read_only is None
    write(handler, 10)
    handler.sync()
    assert readable(manager_on(disk.after_power_cut()).get_handler("t", 0)) == list(range(11))


@pytest.mark.parametrize("config", [SMALL, DISK])
@pytest.mark.parametrize("how", ["removed", "replaced by its beginning"])
@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_that_the_file_of_an_idle_log_is_away_is_noticed_though_nothing_is_to_be_synced(
    config: TopicConfig, how: str, ends: str
) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, config)
    for n in range(2):
        write(handler, n)
    handler.sync()
    manager.housekeeping(5_000)
    handler.wal_checkpoint()
    path = handler._log.active.path
    content = read_file(disk, path)
    disk.unlink(path)
    if how != "removed":
        disk.open(path, create=True).pwrite(content[: handler._log.active.positions[1]], 0)
    if ends == "killed":
        for second in range(6, 9):
            manager.housekeeping(second * 1_000)
        assert handler.read_only is None
        disk = disk.after_kill()
    else:
        with pytest.raises(ExceptionGroup, match="could not be closed"):
            manager.close()
    assert readable(manager_on(disk).get_handler("t", 0)) == [0, 1]


@pytest.mark.parametrize("is_parked", [False, True])
def test_the_file_of_an_idle_log_that_is_cut_where_it_is_leaves_a_gap(*, is_parked: bool) -> None:
    """What lies in front of the cut is read meanwhile."""
    disk = MemoryStorage()
    manager, handler = partition_on(disk, DISK)
    for n in range(3):
        write(handler, n)
    handler.sync()
    assert not is_parked or handler._log.park()
    disk.open(handler._log.active.path).truncate(handler._log.active.positions[1] + 5)
    for second in range(6, 9):
        manager.housekeeping(second * 1_000)
    assert handler.read_only is not None
    assert offsets_in(read_once(handler, 0)) == [0]
    with pytest.raises(CorruptSegment):
        read_once(handler, 1)
    again = manager_on(disk.after_kill()).get_handler("t", 0)
    assert again.log_end_offset >= 3, "no offset is used again"
    assert [found for found in readable(again) if found < 3] == [0]


def test_what_lies_in_front_of_a_cut_is_read_also_where_nothing_is_repaired_for_now() -> None:
    disk = TreacherousStorage()
    config = TopicConfig({"segment.records": "5", "index.interval.bytes": "4096"})
    _, handler = partition_on(disk, config)
    for _ in range(6):
        append(handler, batch_of(bytes(4_200)))
    handler.sync()
    (row,) = (handler.sealed_row(number) for number in handler.sealed_numbers())
    assert row is not None
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 6)
    disk.open(handler._log.paths.log(row.number)).truncate(row.size // 2)
    assert offsets_in(read_once(handler, 0)) == [0, 1]
    with pytest.raises(CorruptSegment):
        read_once(handler, 2)


@pytest.mark.parametrize("config", [SMALL, DISK])
@pytest.mark.parametrize("how", ["removed", "replaced by its beginning", "cut"])
@pytest.mark.parametrize("written", ["by nobody", "with one record", "into the next segment"])
@pytest.mark.parametrize("ends", ["killed", "stopped", "stopped at once"])
def test_behind_a_file_that_was_away_while_it_was_closed_no_offset_is_given_again(
    config: TopicConfig, how: str, written: str, ends: str
) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, config)
    count = 3 if written == "into the next segment" else 2
    for n in range(count):
        write(handler, n)
    handler.sync()
    assert handler._log.park(), "it gives its descriptor back"
    active = handler._log.active
    content = read_file(disk, active.path)[: active.positions[1]]
    if how == "cut":
        disk.open(active.path).truncate(len(content))
    else:
        disk.unlink(active.path)
    if how == "replaced by its beginning":
        disk.open(active.path, create=True).pwrite(content, 0)
    if written != "by nobody":
        with suppress(PartitionReadOnly):
            write(handler, count)
    if ends != "stopped at once":
        for second in range(6, 9):
            manager.housekeeping(second * 1_000)
    acknowledged = list(range(handler.high_watermark))
    if ends != "killed":
        with suppress(ExceptionGroup):
            manager.close()
    again = manager_on(disk.after_kill()).get_handler("t", 0)
    found = readable(again)
    assert again.log_end_offset >= len(acknowledged)
    assert found == (acknowledged if config is SMALL else [n for n in found if n in acknowledged])
    assert written != "into the next segment" or found[-1] == count, "what is whole is kept"


@pytest.mark.parametrize("config", [SMALL, DISK])
def test_a_file_that_was_synced_and_is_away_is_not_sealed_but_written_anew(
    config: TopicConfig,
) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, config)
    for n in range(3):
        write(handler, n)
    handler.sync()
    disk.unlink(handler._log.active.path)
    with suppress(PartitionReadOnly):
        write(handler, 3)  # into the next segment
    for second in range(6, 9):
        manager.housekeeping(second * 1_000)
    assert handler.read_only is None
    assert readable(handler)[:3] == [0, 1, 2]
    assert readable(manager_on(disk.after_kill()).get_handler("t", 0))[:3] == [0, 1, 2]


@pytest.mark.parametrize("config", [SMALL, DISK])
@pytest.mark.parametrize(
    "met",
    [
        "by an append",
        "by an append that found no descriptor before",
        "by an append, then a stop",
        "by a look",
        "by a look, and is open",
    ],
)
def test_nothing_is_written_into_a_file_that_somebody_else_has_made_longer(
    config: TopicConfig, met: str
) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, config)
    for n in range(2):
        write(handler, n)
    handler.sync()
    assert met.endswith("open") or handler._log.park(), "it gives its descriptor back"
    if "descriptor" in met:
        with (
            patch.object(disk, "open", side_effect=OSError(errno.EMFILE, "planted")),
            pytest.raises(DiskFull),
        ):
            write(handler, 2)
    active = handler._log.active
    disk.open(active.path).pwrite(bytes(active.size + 100), 0)
    if not met.startswith("by a look"):
        with pytest.raises(PartitionReadOnly):
            write(handler, 2)
    if met.endswith("stop"):
        with suppress(ExceptionGroup):
            manager.close()
    else:
        for second in range(6, 9):
            manager.housekeeping(second * 1_000)
    again = manager_on(disk.after_kill()).get_handler("t", 0)
    assert again.log_end_offset >= 2
    assert readable(again) == ([0, 1] if config is SMALL else [])


def test_a_stop_keeps_the_frames_of_a_file_that_it_cannot_look_at() -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk)
    for n in range(2):
        write(handler, n)
    handler.sync()
    assert handler._log.park()
    active = handler._log.active
    disk.open(active.path).truncate(active.positions[1])
    plain = disk.open

    def opened(path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if path == active.path:
            raise OSError(errno.EIO, "planted", path)
        return plain(path, create=create, read_only=read_only)

    with patch.object(disk, "open", opened):
        with pytest.raises(PartitionReadOnly):
            write(handler, 2)
        with suppress(ExceptionGroup):
            manager.close()
    assert readable(manager_on(disk.after_kill()).get_handler("t", 0)) == [0, 1]


def test_a_file_of_which_the_disk_does_not_say_how_long_it_is_is_closed_again() -> None:
    disk = TreacherousStorage()
    _, handler = partition_on(disk)
    write(handler, 0)
    handler.sync()
    assert handler._log.park()
    failing = patch.object(_TreacherousFile, "size", side_effect=OSError(errno.EIO, "planted"))
    with failing, patch.object(_TreacherousFile, "close") as close:
        with pytest.raises(PartitionReadOnly):
            write(handler, 1)
        assert disk.opened[-1] == handler._log.active.path
        close.assert_called_once_with()


def test_behind_a_write_that_ended_half_way_what_is_whole_is_read_though_its_file_was_closed() -> (
    None
):
    disk = TreacherousStorage()
    manager, handler = partition_on(disk)
    for n in range(2):
        write(handler, n)
    handler.sync()

    def half(self: MemoryFile, data: Buffer, position: int) -> int:
        MemoryFile.pwrite(self, memoryview(data)[:10], position)
        raise OSError(errno.ENOSPC, "no space", self.path)

    with patch.object(_TreacherousFile, "pwrite", half), pytest.raises(DiskFull):
        write(handler, 2)
    assert handler._log.park()
    assert readable(handler) == [0, 1]
    manager.housekeeping(6_000)
    write(handler, 2)
    assert readable(handler) == [0, 1, 2]


def test_so_it_is_behind_a_full_disk_where_no_sync_has_failed() -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk)
    for n in range(4):
        write(handler, n)
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 4)
    for segment in (*handler._log.rotating, handler._log.active):
        disk.unlink(segment.path)
    disk.full = False
    manager.housekeeping(5_000)
    write(handler, 4)
    handler.sync()
    assert readable(handler) == list(range(5))
    assert readable(manager_on(disk.after_power_cut()).get_handler("t", 0)) == list(range(5))


@pytest.mark.parametrize("config", [SMALL, DISK])
@pytest.mark.parametrize("cut", ["before it", "behind it"])
def test_a_stop_behind_a_full_disk_says_where_the_log_ends(config: TopicConfig, cut: str) -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk, config)
    for n in range(2):
        write(handler, n)
    handler.sync()
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 2)
    disk.full = False
    path, positions = handler._log.active.path, handler._log.active.positions
    if cut == "before it":
        disk.open(path).truncate(positions[1])
    manager.close()
    disk.open(path).truncate(positions[1])
    lose_wal(disk)  # there is none where nothing waits for a sync
    again = manager_on(disk)
    handler = again.get_handler("t", 0)
    assert readable(handler) == [0]
    assert [row.what for row in again.report.rows if row.what == "gap"] == ["gap"]
    assert handler.log_end_offset >= 2, "no offset is given again"


def test_a_stop_behind_a_full_disk_vouches_for_nothing_that_another_class_left_unsynced() -> None:
    disk = TreacherousStorage()
    memory = {"durability": "memory", "on.corruption": "refuse"}
    manager, handler = partition_on(disk, TopicConfig(memory))
    write(handler, 0)
    handler.sync()
    write(handler, 1)
    lacks = DiskFull("t", 0, OSError(errno.EMFILE, "planted"))
    with patch.object(DiskHandler, "sync", side_effect=lacks), pytest.raises(StorageError):
        manager.alter_topic("t", {**memory, "durability": "fsync"})
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 2)
    disk.full = False
    manager.close()
    again = manager_on(disk.after_power_cut())
    assert readable(again.get_handler("t", 0)) == [0]
    assert [row.reason for row in again.report.rows if row.what == "gap"] == ["lost_tail"]


@pytest.mark.parametrize("before", [3, 4])
def test_what_the_wal_has_not_of_a_directory_that_was_removed_is_told(before: int) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk)
    for n in range(before):
        write(handler, n)
    manager.close()  # the write-ahead log has nothing of it any more
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    write(handler, before)
    assert handler._log.active.base_offset == 3, "before=3: it begins the segment"
    remove_tree(disk, handler._log.paths.folder)
    again = manager_on(disk.after_kill())
    assert readable(again.get_handler("t", 0)) == [before]
    told = [row for row in again.report.rows if row.what == "gap"]
    assert [(row.from_offset, row.to_offset, row.reason) for row in told] == [
        (0, before, "corruption")
    ]


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_was_overwritten_behind_a_full_disk_is_not_taken_for_a_torn_write(
    durability: str, is_stopped: bool
) -> None:
    disk = TreacherousStorage()
    config = TopicConfig({**SMALL.overrides, "durability": durability})
    manager, handler = partition_on(disk, config)
    for n in range(4):
        write(handler, n)
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 4)
    disk.full = False
    active = handler._log.active
    disk.open(active.path).pwrite(bytes(active.size), 0)
    for second in (6, 12, 60):
        manager.housekeeping(second * 1_000)
    assert handler.read_only is not None
    assert "the broker has to restart" in handler.why_still
    assert handler.log_end_offset == 4
    if is_stopped:
        manager.close()
    again = manager_on(disk.after_kill()).get_handler("t", 0)
    write(again, 4)
    found = readable(again)
    assert found[:4] == [0, 1, 2, 3] if durability == "fsync" else found[-1] >= 4


def test_bytes_that_memory_lost_with_the_sync_leave_the_partition_as_it_is() -> None:
    disk = TreacherousStorage(forgets=True)
    manager, handler = partition_on(disk, DISK)
    for n in range(3):
        write(handler, n)
    handler.sync()
    write(handler, 3)
    disk.fails = (".log",)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    disk.fails = ()
    for second in range(5, 100):
        manager.housekeeping(second * 1_000)
    assert isinstance(handler.read_only, PartitionReadOnly)
    assert handler.high_watermark == 4
    assert offsets_in(read_from(handler, 0))[:2] == [0, 1]
    assert disk.synced_again == []


def roll_over_a_failed_sync(disk: TreacherousStorage, config: TopicConfig) -> DiskHandler:
    """| 0 1 acknowledged, 2 ... forgotten | ...   nobody was told of 2, or of what follows it."""
    manager, handler = partition_on(disk, config)
    write(handler, 0)
    write(handler, 1)
    handler.sync()
    handler.flushes_on_append = False
    disk.fails = ("segment_0",)
    for n in range(2, 10):
        try:
            write(handler, n)
        except PartitionReadOnly:
            break
    assert handler.high_watermark == 2 < handler.log_end_offset
    disk.fails = ()
    manager.housekeeping(5_000)
    return handler


def test_behind_what_memory_lost_with_the_sync_nothing_is_kept_that_nobody_was_told_of() -> None:
    for policy in ("gap", "readonly", "refuse"):
        disk = TreacherousStorage(forgets=True)
        config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
        handler = roll_over_a_failed_sync(disk, config)
        assert handler.read_only is None, policy
        assert (handler.high_watermark, handler.log_end_offset) == (2, 2), "no gap, and no damage"
        handler.flushes_on_append = True
        for n in range(2, 10):
            write(handler, n)
        assert readable(handler) == list(range(10))
        for image in (disk.after_kill(), disk.after_power_cut()):
            again = manager_on(image)
            assert readable(again.get_handler("t", 0)) == list(range(10))
            assert not {"gap", "repaired", "readonly"} & {row.what for row in again.report.rows}


def test_what_a_segment_lost_the_write_ahead_log_brings_back_at_the_next_start() -> None:
    disk, manager, handler = segment_that_forgets()
    assert not handler.wal_checkpoint()
    disk.fails = ()
    for second in range(5, 100):
        manager.housekeeping(second * 1_000)
    check_acknowledged(disk, handler)


def test_after_a_failed_sync_of_the_write_ahead_log_it_goes_on_in_another_file() -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk)
    write(handler, 0)
    disk.fails = ("/wal-",)
    write(handler, 1)
    assert handler.high_watermark == 1
    assert handler.read_only is not None
    disk.fails = ()
    manager.housekeeping(5_000)
    assert handler.read_only is None
    write(handler, 2)
    assert handler.high_watermark == 3
    assert disk.synced_again == []
    for image in (disk.after_kill(), disk.after_power_cut()):
        assert readable(manager_on(image).get_handler("t", 0)) == [0, 1, 2]


def test_a_disk_that_goes_on_failing_is_tried_less_and_less_often() -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk, DISK)
    write(handler, 0)
    disk.fails = (".log", ".tmp")
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    for second in range(600):
        manager.housekeeping(5_000 + second * 1_000)
    assert 10 < handler.recoveries_failed < 20
    disk.fails = ()
    for second in range(600, 661):
        manager.housekeeping(5_000 + second * 1_000)
    assert handler.read_only is None
    assert disk.synced_again == []
    assert readable(handler) == [0]


def test_partitions_that_fail_leave_the_others_alone() -> None:
    disk = TreacherousStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2, DISK)
    one, two = manager.get_handler("t", 0), manager.get_handler("t", 1)
    write(one, 0)
    write(two, 0)
    disk.fails = ("partition_0_segment",)
    with pytest.raises(PartitionReadOnly):
        one.sync()
    write(two, 1)
    two.sync()
    assert (two.recovery_point, two.read_only) == (2, None)


def test_on_a_full_disk_only_a_few_logs_are_tried_per_tick() -> None:
    disk = TreacherousStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 40, DISK)
    handlers = [manager.get_handler("t", n) for n in range(40)]
    for handler in handlers:
        write(handler, 0)
    disk.full = True
    for handler in handlers:
        with pytest.raises(DiskFull):
            write(handler, 1)
        assert readable(handler) == [0]
    for handler in handlers:
        handler._reopen = _no_space  # it would find torn bytes and have no room to repair them
    manager.housekeeping(5_000)
    assert sum(handler.recoveries_failed for handler in handlers) == RECOVERIES_FAILED_MAX


def _no_space(now_ms: int) -> PartitionLog:
    raise OSError(errno.ENOSPC, "no space")


def test_a_full_disk_that_only_control_events_met_passes_too() -> None:
    disk = TreacherousStorage()
    manager, _ = partition_on(disk, DISK)
    disk.full = True
    with pytest.raises(Exception, match="no space"):
        manager.create_topic("u", 1, DISK)
    disk.full = False
    for second in range(5, 10):
        manager.housekeeping(second * 1_000)
    manager.create_topic("u", 1, DISK)
    manager.close()
    assert sorted(manager_on(disk).topics) == ["t", "u"]


def test_a_stop_that_can_neither_sync_nor_write_anew_leaves_the_write_ahead_log() -> None:
    disk = TreacherousStorage(forgets=True)
    manager, handler = partition_on(disk)
    for number in range(3):
        write(handler, number)
    assert handler.high_watermark == 3
    disk.fails = ("segment_",)
    with pytest.raises(ExceptionGroup):
        manager.close()
    assert readable(manager_on(disk.after_power_cut()).get_handler("t", 0)) == [0, 1, 2]


class MeetingStorage(TreacherousStorage):
    """How many segments are written anew at a time: each waits a moment for another."""

    def __init__(self) -> None:
        super().__init__()
        self.mine = threading.Lock()
        self.inside = self.most = self.renamed = 0
        self.met = threading.Event()

    def rename(self, source: str, target: str) -> None:
        if not target.endswith("segment_0.log"):
            super().rename(source, target)
            return
        with self.mine:
            self.renamed += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside > 1:
                self.met.set()
        self.met.wait(0.1)
        super().rename(source, target)
        with self.mine:
            self.inside -= 1


def test_a_stop_writes_one_segment_anew_at_a_time_as_each_takes_its_size_of_memory() -> None:
    disk = MeetingStorage()
    manager = DiskManager("/data", storage=disk, flushers=2, now_ms=1_000)
    manager.open()
    manager.create_topic("t", 4, DISK)
    handlers = [manager.get_handler("t", number) for number in range(4)]
    disk.fails = ("_segment_0.log",)
    for handler in handlers:
        write(handler, 0)
        with pytest.raises(PartitionReadOnly):
            handler.sync()
    disk.fails = ()
    manager.close()
    assert (disk.renamed, disk.most) == (4, 1)
    again = manager_on(disk.after_power_cut())
    assert [readable(again.get_handler("t", number)) for number in range(4)] == [[0]] * 4


def test_behind_a_failure_events_wait_for_a_snapshot_and_records_do_not() -> None:
    disk = TreacherousStorage()
    wal = WalConfig(shards=2, file_bytes=1 << 14, shard_bytes=1 << 16)
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000, wal=wal)
    manager.open()
    topic_id = manager.create_topic("t", 32, SMALL).topic_id.bytes
    places = [next(n for n in range(32) if shard_number(topic_id, n, 2) == k) for k in range(2)]
    handlers = [manager.get_handler("t", place) for place in places]
    for handler in handlers:
        write(handler, 0)
    disk.fails = ("/wal/", ".msgpack.tmp")
    with pytest.raises(StorageError, match="planted"):
        manager.create_topic("u", 1, SMALL)
    for handler in handlers:
        write(handler, 1)
        assert handler.read_only is not None
    disk.fails = (".msgpack.tmp",)
    for tick in range(5, 70):
        manager.housekeeping(tick * 1_000)
    assert manager.wal.statistics().shards_failed == 0
    for handler in handlers:
        write(handler, 2)
    with pytest.raises(StorageError, match="planted"):
        manager.create_topic("u", 1, SMALL)
    disk.fails = ()
    manager.create_topic("v", 1, SMALL)
    for handler in handlers:
        write(handler, 3)
    again = manager_on(disk.after_power_cut())
    assert sorted(again.topics) == ["t", "v"]
    for place in places:
        assert readable(again.get_handler("t", place)) == [0, 1, 2, 3]
    assert not {"wal_damaged", "wal_torn", "gap"} & again.report.counts.keys()
    assert not again._starting._events_lost


def test_a_snapshot_that_keeps_failing_fills_the_wal_up_to_its_bound_and_no_further() -> None:
    # Its oldest file has the topic's creation, which nothing but a snapshot makes superfluous.
    disk = TreacherousStorage()
    manager, handler = partition_on(disk)
    bound = manager.wal.config.shard_bytes
    disk.fails = (".msgpack.tmp",)

    def fill() -> None:
        for number in range(1_000):
            write(handler, number)

    with pytest.raises(StorageError, match=r"the WAL is full, its oldest file .*planted"):
        fill()
    acked = handler.high_watermark
    assert acked > 100
    folder = "/data/wal/shard-00"
    files = disk.listdir(folder)
    assert sum(disk.open(f"{folder}/{name}").size() for name in files) <= bound
    assert handler.read_only is not None
    assert readable(handler) == list(range(acked)), "reads go on"
    with pytest.raises(StorageError, match="the WAL is full"):
        manager.create_topic("u", 1, SMALL)
    # The disk lets snapshots be written again: so does the broker, without a restart.
    disk.fails = ()
    for second in range(5, 60):
        manager.housekeeping(second * 1_000)
    assert handler.read_only is None
    write(handler, 7)
    manager.create_topic("u", 1, SMALL)
    again = manager_on(disk.after_power_cut())
    found = readable(again.get_handler("t", 0))
    assert found == list(range(len(found)))
    assert acked < len(found) <= acked + 2, "one was written, and nobody was told"
    assert set(again.topics) == {"t", "u"}


def test_what_every_try_finds_again_does_not_push_other_facts_out_of_the_report() -> None:
    report = RecoveryReport()
    gap = ReportRow("gap", "t_partition_1_segment_0.log", "t", 1, 5, 9, reason="corruption")
    torn = ReportRow("cut", "t_partition_0_segment_3.log", "t", 0, bytes=17, reason="torn tail")
    for row in (gap, *[torn] * 1_000, gap, torn._replace(bytes=18)):
        report.add(row)
    assert report.rows == [gap, torn, torn._replace(bytes=18)]
    assert report.summary() == {"gap": 1, "cut": 2, "offsets_lost": 4, "offsets_lost_at_most": 0}


class MeddlingStorage(TreacherousStorage):
    """Somebody is at work while the manifest is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.meddle: Callable[[], None] | None = None
        self.files: list[MemoryFile] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if path.endswith(".manifest") and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()
        self.files.append(super().open(path, create=create, read_only=read_only))
        return self.files[-1]


def meddled(disk: MeddlingStorage, manager: DiskManager, call: Callable[[], object]) -> None:
    """Open the log of a full disk again; `call` is known to all when that has begun, and waits for
    it."""
    registry = manager._registry
    published = threading.Event()

    def work() -> None:
        publish = registry._publish

        def tell(known: Metadata) -> None:
            publish(known)
            published.set()

        with patch.object(registry, "_publish", tell):
            call()

    working = threading.Thread(target=work)

    def meddle() -> None:
        working.start()
        published.wait()

    disk.full = False
    disk.meddle = meddle
    manager.housekeeping(5_000)
    working.join()


def test_settings_that_change_while_a_log_is_opened_again_hold() -> None:
    disk = MeddlingStorage()
    manager, handler = partition_on(disk)
    write(handler, 0)
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 1)
    wanted = {**SMALL.overrides, "retention.ms": "12345"}
    meddled(disk, manager, lambda: manager.alter_topic("t", wanted))
    assert handler.read_only is None
    assert handler.config.retention_ms == manager.topics["t"].config.retention_ms == 12_345


def test_a_topic_that_is_deleted_while_its_log_is_opened_again_leaves_no_file_open() -> None:
    disk = MeddlingStorage()
    manager, handler = partition_on(disk)
    write(handler, 0)
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 1)
    meddled(disk, manager, lambda: manager.delete_topic("t"))
    assert manager.statistics().open_logs == manager.statistics().partitions_open == 0
    assert [file.path for file in disk.files if "/t/" in file.path and not file._closed] == []


def overtaken(disk: TreacherousStorage, manager: DiskManager, handler: DiskHandler) -> None:
    """It fails, and is opened again."""
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 9)
    disk.full = False
    manager.housekeeping(5_000)
    assert handler.read_only is None


@pytest.mark.parametrize("call", [DiskHandler.wal_checkpoint, DiskHandler.flush])
def test_who_synced_a_log_that_was_opened_again_meanwhile_does_not_stop_the_new_one(
    call: Callable[[DiskHandler], object],
) -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk)
    write(handler, 0)
    first, sync = handler._log, PartitionLog.sync
    begun: list[PartitionLog] = []

    def late(log: PartitionLog, *, rotating_only: bool = False) -> int:
        if log is first and not begun:
            begun.append(log)
            overtaken(disk, manager, handler)
        return sync(log, rotating_only=rotating_only)

    with patch.object(PartitionLog, "sync", late):
        assert call(handler) in (True, None)
    assert begun
    assert handler.read_only is None
    write(handler, 1)
    assert readable(handler) == [0, 1]


class Late(BatchHeader):
    """Something happens between the first look at it and the next step."""

    meanwhile: Callable[[], object]

    @property
    def is_control(self) -> bool:
        self.meanwhile()
        return super().is_control


def append_late(handler: DiskHandler, meanwhile: Callable[[], object]) -> None:
    batch = batch_of(b"late")
    header = Late(*check_batch(batch))
    header.meanwhile = meanwhile
    handler.append(batch, header, 1_000)


def test_nothing_is_appended_to_a_log_that_was_opened_again_meanwhile() -> None:
    disk = TreacherousStorage()
    manager, handler = partition_on(disk, DISK)
    write(handler, 0)
    with pytest.raises(PartitionReadOnly, match="opened again meanwhile"):
        append_late(handler, lambda: overtaken(disk, manager, handler))
    write(handler, 1)
    assert (readable(handler), handler.high_watermark) == ([0, 1], 2)


def test_nothing_is_appended_to_a_log_whose_topic_was_made_again_meanwhile() -> None:
    manager, handler = partition_on(MemoryStorage())

    def meanwhile() -> None:
        manager.delete_topic("t")
        manager.create_topic("t", 1, SMALL)
        write(manager.get_handler("t", 0), 0)

    with pytest.raises(LogClosed):
        append_late(handler, meanwhile)
    handler = manager.get_handler("t", 0)
    write(handler, 1)
    assert readable(handler) == [0, 1]


def test_a_topic_that_becomes_fsync_while_a_partition_is_read_only_is_fsync_in_all() -> None:
    disk = TreacherousStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2, DISK)
    handlers = [manager.get_handler("t", partition) for partition in range(2)]
    for handler in handlers:
        write(handler, 0)
    disk.fails = ("partition_0_segment_0.log",)
    wanted = {**SMALL.overrides, "durability": "fsync"}
    with pytest.raises(StorageError, match="could follow"):
        manager.alter_topic("t", wanted)
    assert isinstance(handlers[0].read_only, PartitionReadOnly)
    write(handlers[1], 1)
    disk.fails = ()
    manager.housekeeping(5_000)
    assert handlers[0].read_only is None
    write(handlers[0], 1)
    after = manager_on(disk.after_power_cut())
    for partition in range(2):
        assert readable(after.get_handler("t", partition)) == [0, 1]
    manager.alter_topic("t", wanted)
    after = manager_on(disk.after_power_cut())
    for partition in range(2):
        assert after.get_handler("t", partition).high_watermark == 2, "nothing is reserved any more"


def test_who_asks_for_the_producers_does_not_wait_for_a_log_that_is_opened_again() -> None:
    # The loop asks, and opening a log waits for a disk that has just failed.
    disk = MeddlingStorage()
    manager, handler = partition_on(disk)
    append(handler, batch_of(b"x", producer=(7, 0, 0)))
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 1)
    disk.full = False
    found: list[int] = []

    def ask() -> None:
        found.extend(producer_id for producer_id, _ in handler.producers())

    def meddle() -> None:
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(timeout=60)
        assert found == [7], "it waits"

    disk.meddle = meddle
    manager.housekeeping(5_000)
    assert handler.read_only is None


def test_a_segment_that_cannot_be_made_ahead_is_told_once_until_the_next_roll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where there is no inode left, say: the half of a large segment has room for many appends."""
    open_ = MemoryStorage.open
    manager = manager_on(MemoryStorage())
    manager.create_topic("t", 1, TopicConfig({"segment.bytes": "4096"}))
    handler = manager.get_handler("t", 0)

    def has_no_inode(
        disk: MemoryStorage, path: str, *, create: bool = False, read_only: bool = False
    ) -> MemoryFile:
        if create and not disk.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return open_(disk, path, create=create, read_only=read_only)

    with monkeypatch.context() as full, capture_logs() as told:
        full.setattr(MemoryStorage, "open", has_no_inode)
        while handler.size_bytes < 4_000:
            append(handler, batch_of(b"value"))
    assert [line["event"] for line in told] == ["segment_not_prepared"]
    append(handler, batch_of(bytes(500)))
    assert handler.segments_count == 2, "the roll has made it itself"


def test_retention_that_cannot_be_written_is_told_once_and_again_when_it_fails_anew() -> None:
    """It is tried in each round, of each partition that is over its cap."""
    disk = TreacherousStorage()
    manager, handler = partition_on(disk)
    for number in range(20):
        write(handler, number)
    manager.keep_house_now(1_000)

    def tried(*lines: str) -> None:
        with capture_logs() as events:
            for _ in range(3):
                manager.keep_house_now(2_000)
        told = [event for event in events if event["event"].startswith("segments_")]
        assert [event["event"] for event in told] == list(lines)

    for size in ("1000", "500"):
        manager.alter_topic("t", {**SMALL.overrides, "retention.bytes": size})
        disk.full = True
        tried("segments_not_evicted")
        disk.full = False
        tried("segments_evicted")

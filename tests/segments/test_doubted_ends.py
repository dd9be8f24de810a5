"""What a failed sync has cost a class that acknowledges before it: known to the next process.

acknowledged [0, 4) | sync fails, the kernel drops offset 3 | restart in the same boot
                                                              -> 3 is a gap, nobody else's
"""

import errno
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from unittest.mock import patch

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.errors import DiskFull, PartitionReadOnly, StorageError
from segbroker.segments.files.unsynced import mark_unsynced
from segbroker.segments.metadata import ceilings
from segbroker.segments.metadata.transactions import (
    SECTION,
    TRANSACTION,
    State,
    Transaction,
    transactions_of,
)
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .crash.recording import RecordingStorage
from .test_failures import TreacherousStorage, partition_on, readable, write
from .test_looked_at_meanwhile import hear
from .tools import SMALL, manager_on

UNSYNCED = pytest.mark.parametrize("durability", ["disk", "memory"])
SMALL_BLOCKS = patch.object(ceilings, "BLOCK", 8)


def one_segment(durability: str) -> TopicConfig:
    return TopicConfig({"durability": durability})


def acknowledged(durability: str) -> tuple[TreacherousStorage, DiskManager, DiskHandler]:
    """Offsets [0, 4), the last of which is not synced, and whose sync will fail."""
    disk = TreacherousStorage(forgets=True)
    config = TopicConfig({**SMALL.overrides, "durability": durability})
    manager, handler = partition_on(disk, config)
    for n in range(3):
        write(handler, n)
    handler.sync()
    write(handler, 3)
    assert handler.high_watermark == 4
    disk.fails = ("_segment_",)
    return disk, manager, handler


def without_mark(disk: TreacherousStorage, handler: DiskHandler) -> None:
    """As where the disk takes none: then the metadata alone tell the next process."""
    disk.unlink(handler._log.paths.unsynced)


def gone(durability: str) -> tuple[TreacherousStorage, DiskManager, DiskHandler]:
    """It has failed, and the partition has looked what is left."""
    disk, manager, handler = acknowledged(durability)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    disk.fails = ()
    manager.housekeeping(5_000)
    assert handler.recoveries_failed == 1
    without_mark(disk, handler)
    return disk, manager, handler


def not_looked_at(durability: str) -> tuple[TreacherousStorage, DiskManager, DiskHandler]:
    """It has failed, and the process is killed before it could look."""
    disk, manager, handler = acknowledged(durability)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    disk.fails = ()
    return disk, manager, handler


LOOKED_OR_NOT = pytest.mark.parametrize(
    "lost", [gone, not_looked_at], ids=lambda lost: str(lost.__name__)
)
Lost = Callable[[str], tuple[TreacherousStorage, DiskManager, DiskHandler]]


def offsets_behind(image: MemoryStorage) -> list[int]:
    """Where the records are when one more is written behind a start."""
    handler = manager_on(image).get_handler("t", 0)
    write(handler, 4)
    return readable(handler)


def check_that_it_is_a_gap(lost: Lost, durability: str) -> None:
    disk, manager, _ = lost(durability)
    killed = disk.after_kill()
    manager.close()
    for image in (killed, disk.after_kill()):
        again = manager_on(image)
        handler = again.get_handler("t", 0)
        assert readable(handler) == [0, 1, 2]
        assert [row.what for row in again.report.rows if row.what == "gap"] == ["gap"]
        write(handler, 4)
        assert readable(handler)[3] > 3, "it is nobody else's"


@UNSYNCED
def test_an_offset_that_was_acknowledged_and_lost_with_the_sync_is_a_gap_behind_a_restart(
    durability: str,
) -> None:
    """In the same boot, in which otherwise nothing of these classes goes."""
    check_that_it_is_a_gap(gone, durability)


@UNSYNCED
def test_so_it_is_where_the_process_was_killed_before_it_could_look(durability: str) -> None:
    check_that_it_is_a_gap(not_looked_at, durability)


@UNSYNCED
def test_a_lost_event_hides_no_doubt(durability: str) -> None:
    """It may have reserved more; what was known to be lost stays lost."""
    disk, _, _ = gone(durability)
    image = disk.after_kill()
    again = DiskManager("/data", storage=image, flushers=0, now_ms=1_000)
    replay = again._metadata.replay
    again._metadata.replay = lambda payloads: replay(payloads) + 1  # type: ignore[method-assign]
    again.open()
    handler = again.get_handler("t", 0)
    write(handler, 4)
    assert readable(handler)[:3] == [0, 1, 2]
    assert readable(handler)[3] > 3, "acknowledged for another record"


@UNSYNCED
def test_the_sync_that_a_change_of_class_needs_may_lose_what_the_old_class_acknowledged(
    durability: str,
) -> None:
    """The write-ahead log has nothing of it, though the class is `fsync` by now."""
    disk, manager, handler = acknowledged(durability)
    with pytest.raises(StorageError, match="planted"):
        manager.alter_topic("t", {**SMALL.overrides, "durability": "fsync"})
    disk.fails = ()
    manager.housekeeping(5_000)
    assert handler.recoveries_failed == 1
    without_mark(disk, handler)
    found = offsets_behind(disk.after_kill())
    assert found[:3] == [0, 1, 2]
    assert found[3] > 3, "acknowledged for another record"


@UNSYNCED
def test_a_doubt_stays_when_the_class_is_changed_there_and_back(durability: str) -> None:
    disk, manager, _ = gone(durability)
    with pytest.raises(StorageError, match="could follow"):
        manager.alter_topic("t", {**SMALL.overrides, "durability": "fsync"})
    manager.alter_topic("t", {**SMALL.overrides, "durability": durability})
    found = offsets_behind(disk.after_kill())
    assert found[:3] == [0, 1, 2]
    assert found[3] > 3, "acknowledged for another record"


@UNSYNCED
@SMALL_BLOCKS
def test_a_doubt_stays_when_more_is_reserved(durability: str) -> None:
    """As long as the next block could not be reserved the present one is used up."""
    disk = TreacherousStorage(forgets=True)
    manager, handler = partition_on(disk, one_segment(durability))
    write(handler, 0)
    handler.sync()
    disk.fails = ("/wal-",)
    for n in range(1, 8):
        write(handler, n)
    assert handler.high_watermark == 8
    disk.fails = ("_segment_",)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    disk.fails = ()
    manager.housekeeping(5_000)  # the write-ahead log goes on
    with pytest.raises(StorageError, match="could follow"):
        manager.alter_topic("t", {**handler.config.overrides, "durability": "fsync"})
    manager.alter_topic("t", {**handler.config.overrides, "durability": durability})
    assert offsets_behind(disk.after_kill())[1] > 7, "acknowledged for another record"


def while_more_is_being_reserved(
    durability: str, end: int, *, forgets: bool
) -> tuple[TreacherousStorage, DiskManager, DiskHandler, deque[Callable[[], object]]]:
    """[1, end) are written, and their sync has failed; that [9, 14) are reserved as well the loop
    has yet to hear."""
    disk = TreacherousStorage(forgets=forgets)
    told: deque[Callable[[], object]] = deque()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000, call_soon=told.append)
    manager.open()
    manager.create_topic("t", 1, one_segment(durability))
    handler = manager.get_handler("t", 0)
    write(handler, 0)
    hear(told)
    handler.sync()
    hear(told)
    for n in range(1, end):
        write(handler, n)
    assert handler.high_watermark == 9
    disk.fails = ("_segment_",)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    disk.fails = ()
    return disk, manager, handler, told


@UNSYNCED
@SMALL_BLOCKS
def test_what_is_on_its_way_to_be_reserved_is_in_doubt_as_well(durability: str) -> None:
    """It is visible from the moment on in which the loop hears of it."""
    disk, manager, handler, told = while_more_is_being_reserved(durability, 12, forgets=True)
    manager.housekeeping(5_000)
    assert handler.recoveries_failed == 1
    without_mark(disk, handler)
    told.popleft()()
    assert handler.high_watermark == 12
    assert offsets_behind(disk.after_kill())[1] > 11, "seen as another record"


@UNSYNCED
@SMALL_BLOCKS
def test_what_is_on_its_way_to_be_reserved_is_so_behind_a_doubt(durability: str) -> None:
    """All is there after all, and the power goes when more was acknowledged."""
    disk, manager, handler, told = while_more_is_being_reserved(durability, 9, forgets=False)
    file = disk.open(handler._log.active.path)
    before = bytearray(file.size())
    file.pread(memoryview(before), 0)
    file.pwrite(bytes(len(before)), 0)
    manager.housekeeping(5_000)
    assert handler.recoveries_failed == 1
    file.pwrite(before, 0)
    manager.housekeeping(10_000)
    hear(told)
    write(handler, 9)
    assert handler.high_watermark == 10
    assert offsets_behind(disk.after_power_cut())[-1] > 9, "acknowledged for another record"


@UNSYNCED
@SMALL_BLOCKS
def test_what_a_class_has_left_is_in_doubt_no_more_when_the_log_was_opened_again(
    durability: str,
) -> None:
    """It ends earlier by then: the end of it nobody was told of, and it was cut."""
    disk = TreacherousStorage(forgets=True)
    told: deque[Callable[[], object]] = deque()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000, call_soon=told.append)
    manager.open()
    manager.create_topic("t", 1, TopicConfig())
    handler = manager.get_handler("t", 0)
    write(handler, 0)
    hear(told)
    manager.alter_topic("t", {"durability": durability})
    write(handler, 1)
    hear(told)
    for n in range(2, 10):
        write(handler, n)
    handler.sync()
    for n in range(10, 14):
        write(handler, n)
    assert handler.high_watermark == 10
    disk.fails = ("_segment_",)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    with pytest.raises(StorageError, match="could follow"):
        manager.alter_topic("t", {"durability": "fsync"})
    disk.fails = ()
    manager.housekeeping(5_000)
    hear(told)
    assert (handler.read_only, handler.log_end_offset) == (None, 10)
    write(handler, 10)
    hear(told)
    assert handler.high_watermark == 11
    disk.fails = ("_segment_",)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    disk.fails = ()
    manager.housekeeping(10_000)
    assert handler.recoveries_failed == 1
    again = manager_on(disk.after_kill())
    assert again.get_handler("t", 0).log_end_offset == 11, "a gap, and the write-ahead log has all"


@UNSYNCED
@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("forgets", [False, True])
def test_an_orderly_stop_says_what_its_own_sync_has_lost(
    durability: str, looks: bool, forgets: bool
) -> None:
    """Class `memory` may be synced there for the first time.  looks: it had failed before."""
    disk, manager, handler = acknowledged(durability)
    disk.forgets = forgets
    if looks:
        with pytest.raises(PartitionReadOnly):
            handler.sync()
    if looks:
        manager.close()
    else:
        with pytest.raises(ExceptionGroup):
            manager.close()
    found = offsets_behind(disk.after_kill())
    assert found[:3] == [0, 1, 2]
    assert (found[3] > 3) is forgets


@UNSYNCED
@pytest.mark.parametrize("becomes", ["fsync", None])
def test_what_is_there_after_all_is_no_gap_behind_a_restart(
    durability: str, becomes: str | None
) -> None:
    """The disk gave other bytes when it was read first."""
    disk, manager, handler = acknowledged(durability)
    disk.forgets = False
    if becomes is None:
        with pytest.raises(PartitionReadOnly):
            handler.sync()
    else:
        with pytest.raises(StorageError, match="planted"):
            manager.alter_topic("t", {**SMALL.overrides, "durability": becomes})
    disk.fails = ()
    file = disk.open(handler._log.active.path)
    before = bytearray(file.size())
    file.pread(memoryview(before), 0)
    file.pwrite(bytes(len(before)), 0)
    manager.housekeeping(5_000)
    assert handler.recoveries_failed == 1
    file.pwrite(before, 0)
    manager.housekeeping(10_000)
    assert handler.read_only is None
    assert offsets_behind(disk.after_kill()) == [0, 1, 2, 3, 4]


def image_after(disk: MemoryStorage, then: str) -> MemoryStorage:
    return disk.after_kill() if then == "kill" else disk.after_power_cut()


@UNSYNCED
def test_what_is_there_behind_a_failed_sync_is_no_gap_for_a_process_that_finds_the_mark(
    durability: str,
) -> None:
    disk, _, handler = acknowledged(durability)
    disk.forgets = False
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    killed = disk.after_kill()
    assert offsets_behind(killed) == [0, 1, 2, 3, 4]
    assert not killed.exists(handler._log.paths.unsynced), "all is in new files"


@UNSYNCED
def test_a_hole_that_a_failed_sync_has_left_tears_what_has_records_there(durability: str) -> None:
    """The log ends where it did: pages in front of the last ones are gone."""
    disk, manager, handler = acknowledged(durability)
    disk.forgets = False
    known = Transaction("tx", 7, 0, state=State.ONGOING, started_ms=1, partitions={"t": (0,)})
    row = known._replace(boot=manager.boot_number).pack()
    manager.record_now(TRANSACTION, id="tx", row=row)
    write(handler, 4)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    segment = handler._log.active
    assert len(segment.offsets) > 1, "two batches in one segment"
    disk.open(segment.path).pwrite(b"x" * 8, segment.position_of(len(segment.offsets) - 1) - 8)
    again = manager_on(disk.after_kill())
    (known,) = transactions_of(again.section(SECTION))
    assert known.boot != again.boot_number, "it may be committed"
    opened = again.get_handler("t", 0)
    write(opened, 5)
    assert readable(opened)[-1] > 4, "acknowledged for another record"


@UNSYNCED
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_fails_while_a_start_opens_what_a_kill_has_left_gives_no_offset_away(
    error: int, durability: str
) -> None:
    """What was acknowledged is in memory alone, and the kernel drops it: whoever tries again in the
    same process finds less."""
    disk, _, handler = acknowledged(durability)
    disk.error = error
    size = handler._log.active.size
    disk._locks.clear()  # killed: what was not synced still is not
    again = manager_on(disk)
    for _ in range(3):
        with pytest.raises(StorageError):
            again.get_handler("t", 0)
    content = disk.open(handler._log.active.path)._content()
    assert content == bytes(size), "it is gone"
    disk.fails = ()
    with pytest.raises(StorageError, match="the broker has to restart"):
        again.get_handler("t", 0)
    for image in (disk.after_kill(), disk.after_power_cut()):
        found = offsets_behind(image)
        assert found[:3] == [0, 1, 2]
        assert found[3] > 3, "acknowledged for another record"


@UNSYNCED
@LOOKED_OR_NOT
@pytest.mark.parametrize("then", ["kill", "power cut"])
def test_wherever_the_start_behind_it_ends_the_next_one_knows_what_was_lost(
    lost: Lost, durability: str, then: str
) -> None:
    """And who has an open transaction there is told, though nobody is served by the first."""
    disk, manager, _ = lost(durability)
    known = Transaction("tx", 7, 0, state=State.ONGOING, started_ms=1, partitions={"t": (0,)})
    row = known._replace(boot=manager.boot_number).pack()
    outcomes: list[OSError | None] = []
    manager.record_soon(outcomes.append, TRANSACTION, id="tx", row=row)
    assert outcomes == [None]
    recorded = RecordingStorage.over(disk.after_kill())
    images: list[MemoryStorage] = []
    recorded.on_change = recorded.on_sync = lambda call, path: images.append(
        image_after(recorded, then)
    )
    handler = manager_on(recorded).get_handler("t", 0)
    write(handler, 4)
    handler.sync()
    assert len(images) > 10
    for image in images:
        again = manager_on(image)
        opened = again.get_handler("t", 0)
        write(opened, 5)
        found = readable(opened)
        assert found[:3] == [0, 1, 2]
        assert found[3] > 3, "acknowledged for another record"
        (known,) = transactions_of(again.section(SECTION))
        assert known.boot != again.boot_number, "it may be committed"


@UNSYNCED
@SMALL_BLOCKS
def test_an_end_that_nobody_was_told_of_is_cut_and_is_no_loss_wherever_that_is_interrupted(
    durability: str,
) -> None:
    """Offsets [9, 12) wait for their reservation when the sync fails, and the kernel drops them."""
    disk, manager, handler, _ = while_more_is_being_reserved(durability, 12, forgets=False)
    images: list[MemoryStorage] = []
    segment = handler._log.active
    begin = segment.position_of(list(segment.offsets).index(9))
    disk.open(segment.path).pwrite(bytes(segment.size - begin), begin)
    for name in ("rename", "unlink", "fsync_dir"):
        does = getattr(disk, name)

        def recorded(*paths: str, does: Callable[..., object] = does) -> None:
            does(*paths)
            images.append(disk.after_kill())

        setattr(disk, name, recorded)
    manager.housekeeping(5_000)
    assert (handler.recoveries_failed, handler.log_end_offset) == (0, 9)
    assert len(images) > 3
    for image in images:
        again = manager_on(image)
        assert again.get_handler("t", 0).log_end_offset == 9
        assert not [row for row in again.report.rows if row.what == "gap"]


@UNSYNCED
def test_a_mark_says_what_it_said_where_a_full_disk_takes_no_other(durability: str) -> None:
    disk, _, handler = acknowledged(durability)
    mark_unsynced(disk, handler._log.paths, handler.log_end_offset)
    write(handler, 4)
    assert handler.high_watermark == 5
    disk.full = True
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    found = offsets_behind(disk.after_kill())
    assert found[:3] == [0, 1, 2]
    assert found[3] > 3, "acknowledged for another record"


class Markless(TreacherousStorage):
    """It has no room for a mark."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if create and path.endswith(".unsynced"):
            raise OSError(errno.ENOSPC, "no space", path)
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize(
    ("ends", "forgets", "durability"),
    list(product(["killed", "writable again", "stopped"], [True, False], ["disk", "memory"])),
)
def test_where_the_disk_takes_no_mark_the_reservation_says_what_is_in_doubt(
    ends: str, forgets: bool, durability: str
) -> None:
    disk = Markless(forgets=forgets)
    manager, handler = partition_on(disk, one_segment(durability))
    for n in range(4):
        write(handler, n)
    disk.fails = ("_segment_",)
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    disk.fails = ()
    if ends == "writable again":
        manager.housekeeping(5_000)
        assert handler.is_poisoned == forgets
    elif ends == "stopped":
        with suppress(ExceptionGroup):
            manager.close()
    again = manager_on(disk.after_kill())
    opened = again.get_handler("t", 0)
    gaps = [row for row in again.report.rows if row.what == "gap"]
    if forgets or ends == "killed":
        assert len(gaps) == 1, "more may be told than was lost, never less"
        assert gaps[0].to_offset is not None
        assert gaps[0].to_offset >= 4
    else:
        assert not gaps
    assert opened.log_end_offset >= 4, "no offset is given again"
    assert readable(opened) == ([] if forgets else [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("forgets", "durability"), list(product([True, False], ["disk", "memory"]))
)
def test_an_opening_whose_sync_a_full_disk_fails_leaves_the_reservation_in_doubt(
    forgets: bool, durability: str
) -> None:
    """It is the log's own that is open yet: without a mark nobody knows but this process."""
    disk = Markless(forgets=forgets)
    manager, handler = partition_on(disk, one_segment(durability))
    for n in range(4):
        write(handler, n)
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 4)
    disk.full = False
    disk.fails, disk.error = ("_segment_",), errno.ENOSPC
    manager.housekeeping(5_000)
    disk.fails = ()
    assert handler.is_poisoned, "its log could not be opened again"
    again = manager_on(disk.after_kill())
    opened = again.get_handler("t", 0)
    assert opened.log_end_offset >= 4, "no offset is given again"
    assert len([row for row in again.report.rows if row.what == "gap"]) == 1
    assert readable(opened) == ([] if forgets else [0, 1, 2, 3])
    if not forgets:
        manager.housekeeping(15_000)
        assert handler.read_only is None
        again = manager_on(disk.after_kill())
        assert again.get_handler("t", 0).log_end_offset == 4, "nothing is in doubt any more"
        handler.sync()
        again = manager_on(disk.after_power_cut())
        assert readable(again.get_handler("t", 0)) == [0, 1, 2, 3], "another sync proves nothing"


@pytest.mark.parametrize("forgets", [True, False])
def test_behind_an_opening_whose_failed_sync_left_no_mark_class_fsync_keeps_its_frames(
    forgets: bool,
) -> None:
    """Until all of it is in new files: the next opening finds no mark, and its sync is answered."""
    disk = Markless(forgets=forgets)
    manager, handler = partition_on(disk, one_segment("fsync"))
    for n in range(4):
        write(handler, n)
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 4)
    disk.full = False
    disk.fails, disk.error = ("_segment_",), errno.ENOSPC
    manager.housekeeping(5_000)
    assert handler.is_poisoned, "its log could not be opened again"
    disk.fails = ()
    manager.housekeeping(15_000)
    assert (handler.read_only is None) == (not forgets)
    again = manager_on(disk.after_power_cut())
    assert readable(again.get_handler("t", 0)) == [0, 1, 2, 3]


class Roomless(TreacherousStorage):
    """When it is full it takes no other file."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.has_no_room and create and not self.exists(path):
            raise OSError(errno.ENOSPC, "no space", path)
        return super().open(path, create=create, read_only=read_only)

    has_no_room = False


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_what_the_last_sync_of_a_stop_has_cost_is_told_though_no_file_can_be_made(
    durability: str,
) -> None:
    """Neither a mark nor a snapshot: the write-ahead log has room for it."""
    disk = Roomless(forgets=True)
    manager, handler = partition_on(disk, one_segment(durability))
    for n in range(4):
        write(handler, n)
    disk.has_no_room, disk.fails = True, ("_segment_",)
    with pytest.raises(ExceptionGroup):
        manager.close()
    again = manager_on(disk.after_kill())
    opened = again.get_handler("t", 0)
    assert opened.log_end_offset >= 4, "no offset is given again"
    gaps = [row for row in again.report.rows if row.what == "gap"]
    assert [(gap.from_offset, gap.to_offset) for gap in gaps] == [(0, opened.log_end_offset)]


class Unread(MemoryStorage):
    """It cannot be asked for a mark, so many times."""

    error = errno.EMFILE
    refusals = 0
    of = ".unsynced"

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if path.endswith(self.of) and self.refusals:
            self.refusals -= 1
            raise OSError(self.error, "planted", path)
        return super().open(path, create=create, read_only=read_only)

    @classmethod
    def over(cls, image: MemoryStorage, error: int) -> "Unread":
        disk = cls()
        disk._root, disk._boot, disk.error, disk.refusals = image._root, image._boot, error, 1
        return disk


ERRORS = pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES, errno.EIO])


@UNSYNCED
@ERRORS
def test_a_mark_that_could_not_be_looked_for_is_no_loss(error: int, durability: str) -> None:
    """For want of a descriptor, or a right: at the start, and when the log is opened."""
    _, handler = partition_on(disk := MemoryStorage(), one_segment(durability))
    write(handler, 0)
    image = Unread.over(disk.after_kill(), error)
    again = manager_on(image)
    assert not image.refusals
    again.partitions.close_all(checkpoint=False)
    image.refusals = 1
    with pytest.raises(StorageError, match="planted"):
        again.get_handler("t", 0)
    opened = again.get_handler("t", 0)
    write(opened, 1)
    assert readable(opened) == [0, 1]


@UNSYNCED
def test_a_log_with_a_mark_that_is_not_read_for_want_of_a_descriptor_is_no_loss(
    durability: str,
) -> None:
    disk, _, handler = acknowledged(durability)
    disk.forgets = False
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    image = Unread.over(disk.after_kill(), errno.EMFILE)
    image.of = ".manifest"
    assert offsets_behind(image) == [0, 1, 2, 3, 4]
    assert not image.refusals


@UNSYNCED
@ERRORS
def test_what_was_lost_is_found_by_who_opens_a_log_that_the_start_could_not_ask_for_its_mark(
    error: int, durability: str
) -> None:
    disk, _, _ = not_looked_at(durability)
    image = Unread.over(disk.after_kill(), error)
    with pytest.raises(StorageError, match="the broker has to restart"):
        manager_on(image).get_handler("t", 0)
    assert not image.refusals
    found = offsets_behind(image.after_kill())
    assert found[:3] == [0, 1, 2]
    assert found[3] > 3, "acknowledged for another record"


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_an_opening_by_a_start_whose_failed_sync_left_no_mark_is_not_trusted_by_the_next(
    durability: str, forgets: bool
) -> None:
    disk = Markless(forgets=forgets)
    _, handler = partition_on(disk, one_segment(durability))
    for n in range(4):
        write(handler, n)
    disk._locks.clear()  # it was killed
    disk.fails, disk.error = ("_segment_",), errno.ENOSPC
    disk.meanwhile = lambda: setattr(disk, "fails", ())  # once
    manager = manager_on(disk)
    with suppress(StorageError):
        manager.get_handler("t", 0)
    assert disk.fails == (), "it was synced"
    with suppress(StorageError):  # of what is gone no restart in this boot would know
        manager.get_handler("t", 0)
    with suppress(ExceptionGroup):
        manager.close()
    again = manager_on(disk.after_power_cut())
    opened = again.get_handler("t", 0)
    assert opened.log_end_offset >= 4, "no offset is given again"
    gaps = [row for row in again.report.rows if row.what == "gap"]
    if durability == "fsync" or not forgets:
        assert readable(opened) == [0, 1, 2, 3]
        assert not gaps
    else:
        assert gaps, "what is gone is told"

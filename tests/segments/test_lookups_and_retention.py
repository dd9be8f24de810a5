"""A look-up goes on while retention, or a request to delete records, takes the front of the log:
it answers by the log as it is then, and nobody hears that an offset he never named is gone."""

import errno
import threading
from collections.abc import Callable
from typing import cast

import pytest

from segbroker.protocol.record_batch import GapReason
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.errors import OffsetOutOfRange
from segbroker.segments.log.deleting import evict
from segbroker.segments.log.partition_log import PartitionLog

from .test_retention import DAY, NOW, partition_on

FOLDER = "/data/topics/t/partition_0"
FIRST = f"{FOLDER}/t_partition_0_segment_0"


class MeanwhileStorage(MemoryStorage):
    """Calls `meanwhile` once, before or behind the opening of the file `at`."""

    meanwhile: Callable[[], object] | None = None
    at = ""
    is_before = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        call = self.meanwhile
        if call is None or path != self.at:
            return super().open(path, create=create, read_only=read_only)
        self.meanwhile = None
        if self.is_before:
            call()
            return super().open(path, create=create, read_only=read_only)
        file = super().open(path, create=create, read_only=read_only)
        call()
        return file


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("at", [f"{FIRST}.index", f"{FIRST}.log"])
@pytest.mark.parametrize("by", ["retention", "request"])
def test_an_offset_by_time_while_the_segment_that_has_it_goes(
    by: str, at: str, is_before: bool
) -> None:
    disk = MeanwhileStorage()
    manager, handler = partition_on(disk, 10, retention_ms=7 * DAY)
    handler._log.files.indexes.drop(FOLDER)
    handler._log.files.files.drop(FOLDER)
    disk.at, disk.is_before = at, is_before

    def go() -> None:
        if by == "request":
            handler.delete_records_before(5)
        else:
            manager.keep_house_now(NOW + 7 * DAY + 5 * 60_000)

    disk.meanwhile = go
    found = handler.offset_for_timestamp(NOW + 1)
    assert disk.meanwhile is None, "it went"
    assert found is not None
    assert handler.log_start_offset > 1
    assert found[0] in (1, handler.log_start_offset)


class LateLock:
    """A lock that somebody waits for, while something else happens first."""

    def __init__(self, log: PartitionLog, meanwhile: Callable[[], object]) -> None:
        self._log = log
        self._lock = log.state_lock
        self._meanwhile = meanwhile

    def __enter__(self) -> None:
        self._log.state_lock = self._lock
        self._meanwhile()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def test_a_read_at_an_offset_that_goes_meanwhile_is_told_so_and_gets_no_later_record() -> None:
    _, handler = partition_on(MemoryStorage(), 10, retention_ms=7 * DAY)
    opened = handler._log
    late = LateLock(opened, lambda: evict(opened, 3, GapReason.TTL))
    opened.state_lock = cast("threading.Lock", late)  # it is there for one `with`
    with pytest.raises(OffsetOutOfRange) as told:
        handler.plan_read(1, 1 << 20)
    assert handler.log_start_offset > 1
    assert told.value.start == handler.log_start_offset


def test_what_goes_while_it_is_accounted_for_was_not_deleted_on_purpose() -> None:
    _, handler = partition_on(MemoryStorage(), 10, retention_ms=7 * DAY)
    opened = handler._log

    class Watched(PartitionLog):
        """Evicts when somebody asks where it begins and does not hold the lock."""

        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            if name == "log_start_offset" and not opened.state_lock.locked():
                opened.__class__ = PartitionLog
                evict(opened, 3, GapReason.TTL)
            return object.__getattribute__(self, name)

    opened.__class__ = Watched
    reasons = {missing.reason for missing in handler.account(0, 10).missing}
    assert GapReason.DELETED not in reasons


class StuckStorage(MemoryStorage):
    """One file of it cannot be unlinked."""

    stuck = ""

    def unlink(self, path: str) -> None:
        if path == self.stuck:
            raise OSError(errno.EPERM, "Operation not permitted", path)
        super().unlink(path)


@pytest.mark.parametrize("then", ["closed", "the next ones go"])
def test_a_file_that_cannot_be_unlinked_keeps_no_other_one_and_is_tried_again(then: str) -> None:
    disk = StuckStorage()
    manager, handler = partition_on(disk, 10, retention_ms=7 * DAY)
    disk.stuck = f"{FIRST}.log"
    before = {name for name in disk.listdir(FOLDER) if name.endswith(".log")}
    handler.delete_records_before(6)
    left = {name for name in disk.listdir(FOLDER) if name.endswith(".log")}
    assert len(before - left) >= 2
    assert disk.stuck.rpartition("/")[2] in left
    assert manager.statistics().not_removed_count == 1
    disk.stuck = ""
    if then == "closed":
        manager.close()
    else:
        handler.delete_records_before(8)
        assert manager.statistics().not_removed_count == 0
    assert not disk.exists(f"{FIRST}.log")


def test_a_file_that_could_not_be_unlinked_by_the_close_either_is_no_damage() -> None:
    disk = StuckStorage()
    manager, handler = partition_on(disk, 10, retention_ms=7 * DAY)
    disk.stuck = f"{FIRST}.log"
    handler.delete_records_before(6)
    manager.close()
    assert disk.exists(disk.stuck)
    assert not [one for one in DirectoryChecker(disk, "/data", NOW).check() if one.is_damage]

"""The disk as an open log has it: which syncs of names count, and which failures are told."""

import errno

import pytest

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.log.log_storage import LogStorage, NamesNotSynced

FOLDER = "/data/log"


class _Disk(MemoryStorage):
    """Says what was synced; fails with `errno` where that is set."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.errno = 0

    def fsync_dir(self, path: str) -> None:
        if self.errno:
            raise OSError(self.errno, "not synced", path)
        self.synced.append(path)


class _Log:
    """The disk of a log, and what the log was told."""

    def __init__(self) -> None:
        self.disk = _Disk()
        self.told: list[tuple[int, OSError]] = []
        self.storage = LogStorage(self.disk, FOLDER, lambda *failure: self.told.append(failure))


def test_a_sync_of_the_logs_directory_is_counted() -> None:
    log = _Log()
    log.storage.fsync_dir(FOLDER)
    first = log.storage.synced
    log.storage.fsync_dir(FOLDER)
    assert log.disk.synced == [FOLDER, FOLDER]
    assert 0 < first < log.storage.synced


def test_a_sync_of_another_directory_is_done_and_counts_for_nothing() -> None:
    log = _Log()
    log.storage.fsync_dir(f"{FOLDER}/quarantine")
    assert log.disk.synced == [f"{FOLDER}/quarantine"]
    assert log.storage.synced == 0


def test_a_failure_is_told_before_who_asked_hears_of_it() -> None:
    log = _Log()
    log.storage.fsync_dir(FOLDER)
    log.disk.errno = errno.EIO
    with pytest.raises(NamesNotSynced) as raised:
        log.storage.fsync_dir(FOLDER)
    ((began, failure),) = log.told
    assert failure is raised.value
    assert (failure.errno, failure.filename) == (errno.EIO, FOLDER)
    assert began > log.storage.synced


def test_a_failure_in_another_directory_is_told_to_nobody() -> None:
    log = _Log()
    log.disk.errno = errno.EIO
    with pytest.raises(OSError, match="not synced"):
        log.storage.fsync_dir(f"{FOLDER}/quarantine")
    assert log.told == []


def test_without_a_descriptor_nothing_was_asked_so_nothing_is_in_doubt() -> None:
    log = _Log()
    log.disk.errno = errno.EMFILE
    with pytest.raises(OSError, match="not synced") as raised:
        log.storage.fsync_dir(FOLDER)
    assert not isinstance(raised.value, NamesNotSynced)
    assert log.told == []

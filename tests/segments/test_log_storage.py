"""The disk as an open log has it: which syncs of names count, and which failures are told."""

import errno
from threading import Event, Thread
from unittest.mock import patch

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
        self.told: list[OSError] = []
        self.storage = LogStorage(self.disk, FOLDER, self.told.append)


def test_a_sync_of_names_is_worth_something_to_who_gave_them_since_the_last_failure() -> None:
    log = _Log()
    log.storage.sync_names(0)
    log.disk.errno = errno.EIO
    with pytest.raises(NamesNotSynced):
        log.storage.fsync_dir(FOLDER)
    log.disk.errno = 0
    with pytest.raises(NamesNotSynced, match="in between"):
        log.storage.sync_names(0)
    log.storage.sync_names(1)
    assert log.disk.synced == 3 * [FOLDER]
    assert len(log.told) == 1


def test_a_sync_of_another_directory_is_done_and_told_to_nobody() -> None:
    log = _Log()
    log.storage.fsync_dir(f"{FOLDER}/quarantine")
    assert log.disk.synced == [f"{FOLDER}/quarantine"]


def test_a_sync_of_names_waits_for_the_news_of_the_one_before() -> None:
    log = _Log()
    order: list[str] = []
    begun = Event()

    def second() -> None:
        begun.set()
        log.storage.fsync_dir(FOLDER)
        order.append("synced")

    beside = Thread(target=second)

    def fail(path: str) -> None:
        beside.start()
        assert begun.wait(60)
        beside.join(0.1)  # it would be over by now
        order.append("failed")
        raise OSError(errno.EIO, "not synced", path)

    with patch.object(log.disk, "fsync_dir") as asked:
        asked.side_effect = lambda path: fail(path) if asked.call_count == 1 else None
        with pytest.raises(NamesNotSynced):
            log.storage.fsync_dir(FOLDER)
        beside.join(60)
    assert order == ["failed", "synced"]


def test_a_failure_is_told_before_who_asked_hears_of_it() -> None:
    log = _Log()
    log.storage.fsync_dir(FOLDER)
    log.disk.errno = errno.EIO
    with pytest.raises(NamesNotSynced) as raised:
        log.storage.fsync_dir(FOLDER)
    (failure,) = log.told
    assert failure is raised.value
    assert (failure.errno, failure.filename) == (errno.EIO, FOLDER)


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

"""A disk that fails twice at once: it is full while a sync goes on, and then that fails, too.

Space comes back by itself, and a log that only lacked space is what memory has of it; behind a
failed sync memory proves nothing.  Which of the two is noticed first must not count.
"""

import threading
from types import TracebackType

import pytest

from segbroker.segments.errors import DiskFull
from segbroker.segments.log import partition_log
from segbroker.segments.partition.handler import DiskHandler

from .test_failures import (
    TreacherousStorage,
    check_acknowledged,
    segment_that_forgets,
    write,
)


def fill(disk: TreacherousStorage, handler: DiskHandler) -> None:
    """An append finds the disk full; there is room again at once."""
    disk.full = True
    with pytest.raises(DiskFull):
        write(handler, 3)
    disk.full = False


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_sync_that_fails_after_the_disk_was_found_full_is_not_forgotten(
    in_memory: bool, is_marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_marked:  # a full disk may not take the mark either: this process knows all the same
        monkeypatch.setattr(partition_log, "mark_unsynced", lambda *_: False)
    disk, manager, handler = segment_that_forgets(in_memory=in_memory)
    disk.meanwhile = lambda: fill(disk, handler)
    assert not handler.wal_checkpoint()
    disk.fails = ()
    assert isinstance(handler.read_only, DiskFull), "as it was noticed first"
    for second in range(5, 100):
        manager.housekeeping(second * 1_000)
    check_acknowledged(disk, handler)


class ToldLock:
    """A lock that says when somebody else than its first owner wants it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._owner = threading.get_ident()
        self.wanted = threading.Event()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if threading.get_ident() != self._owner:
            self.wanted.set()
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_log_is_not_opened_again_before_the_sync_that_goes_on_has_ended(in_memory: bool) -> None:
    disk, manager, handler = segment_that_forgets(in_memory=in_memory)
    told = ToldLock(handler._log.sync_lock)
    handler._log.sync_lock = told  # type: ignore[assignment]  # a lock in all that is asked of it
    ticking = threading.Thread(target=lambda: manager.housekeeping(5_000))

    def meanwhile() -> None:
        disk.fails = ()
        fill(disk, handler)
        ticking.start()
        told.wanted.wait()

    disk.meanwhile = meanwhile
    assert not handler.wal_checkpoint()
    ticking.join()
    check_acknowledged(disk, handler)

"""A cleaned segment has its name, and the sync of that fails: until the log is opened again nothing
goes by what it was before."""

import errno
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread, current_thread, main_thread
from types import TracebackType
from typing import Any, cast

import pytest

from segbroker.segments.background import Housekeeper
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.errors import CorruptSegment, DiskFull
from segbroker.segments.log.reading import ReadPlan

from .compacted import Compacted
from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .tools import as_after_a_checkpoint, lose_wal


def nothing() -> None:
    pass


class FailingSwap(MemoryStorage):
    """The sync of the directory fails behind the n-th cleaned segment that gets its name."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.until = nth
        self.meanwhile: Callable[[], None] = nothing
        """Done while that sync is under way."""
        self._has_renamed = False

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if source.endswith(".cleaned"):
            self.until -= 1
            self._has_renamed = not self.until

    def fsync_dir(self, path: str) -> None:
        if self._has_renamed:
            self._has_renamed = False
            self.meanwhile()
            raise OSError(errno.EIO, "no sync", path)
        super().fsync_dir(path)


class KilledAtNames(MemoryStorage):
    """What a kill leaves in front of each change of a name, and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[MemoryStorage] = []

    def rename(self, source: str, target: str) -> None:
        self.left.append(self.after_kill())
        super().rename(source, target)
        self.left.append(self.after_kill())

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.left.append(self.after_kill())


class Busy(Housekeeper):
    """It has others to look after first."""

    def __init__(self) -> None:
        super().__init__(threaded=False)
        self.asked: list[Callable[[], None]] = []

    def submit(self, task: Callable[[], None]) -> None:
        self.asked.append(task)

    def work(self) -> None:
        while self.asked:
            self.asked.pop(0)()


class Told:
    """A lock that tells when somebody is about to wait for it."""

    def __init__(self) -> None:
        self.is_wanted = Event()
        self._lock = Lock()

    def __enter__(self) -> None:
        if self._lock.locked():
            self.is_wanted.set()
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


def fill(log: Compacted, count: int) -> None:
    """Two times some segments that become one, and between them one that stays."""
    for _ in range(count):
        log.send((b"a", b"x" * 380))
    log.send((b"b", b"y" * 400))
    log.send((b"a", b"x" * 380))
    log.send((b"a", b"x" * 380))
    log.send((b"c", b"z"), (b"a", b"the last of it"))
    log.seal()
    log.touched_offset = log.handler.log_end_offset


def check_recovered(log: Compacted) -> None:
    log.handler.try_recover(log.now_ms)
    assert log.handler.read_only is None
    log.check()
    log.disk = log.disk.after_kill()
    log.open()
    log.check()


def test_a_decision_behind_which_a_sync_failed_is_not_left_out_of_a_shorter_manifest() -> None:
    disk = FailingSwap(nth=2)
    log = Compacted(disk)
    fill(log, count=80)
    housekeeper = log.handler._evicting._housekeeper = Busy()
    log.clean_sealed()
    assert log.handler.is_poisoned, "the second swap has failed"
    housekeeper.work()
    check_recovered(log)


@pytest.mark.parametrize("is_planned", [False, True], ids=["planned-now", "planned-before"])
def test_a_read_beside_a_swap_that_fails_takes_the_new_segment_for_no_damage(
    is_planned: bool,
) -> None:
    disk = FailingSwap(nth=1)
    log = Compacted(disk)
    fill(log, count=3)
    as_after_a_checkpoint(log.manager)
    handler, opened, lock = log.handler, log.handler._log, Told()
    opened.seal_lock = lock  # type: ignore[assignment]
    before = handler.plan_read(3, 1 << 20)
    readers: list[Thread] = []

    def read() -> None:
        opened.files.files.take_out(opened.paths.folder, None)  # others needed the descriptors
        readers.append(Thread(target=read_planned, args=(before if is_planned else None,)))
        readers[0].start()
        for _ in range(600):
            if lock.is_wanted.wait(0.1) or not readers[0].is_alive():
                break

    def read_planned(plan: ReadPlan | None) -> None:
        plan = handler.plan_read(3, 1 << 20) if plan is None else plan
        assert plan is not None, "there is something"
        try:
            found.append(plan.read(memoryview(bytearray(plan.size_max))))
        except CorruptSegment:
            refused.append(True)

    found: list[int] = []
    refused: list[bool] = []
    disk.meanwhile = read
    log.clean_sealed()
    readers[0].join()
    assert handler.is_poisoned, "the swap has failed"
    if is_planned:
        assert lock.is_wanted.is_set(), "it met another file, and asked for a repair"
        assert refused
    else:
        assert found, "reads go on"
    log.check()
    check_recovered(log)


class _NoRoom(MemoryStorage):
    """No room for the name of a cleaned segment."""

    is_full = True

    def rename(self, source: str, target: str) -> None:
        if self.is_full and source.endswith(".cleaned"):
            raise OSError(errno.ENOSPC, "no space", target)
        super().rename(source, target)


def test_a_cleaned_segment_that_retention_has_taken_meanwhile_gets_no_name() -> None:
    disk = _NoRoom()
    log = Compacted(disk, cleanup_policy="compact,delete", retention_ms=1_000)
    for _ in range(6):
        log.send((b"a", b"x" * 300))
    log.seal()
    log.clean_sealed()
    handler, later = log.handler, log.now_ms + 10_000
    cleaned = handler._log.paths.cleaned(5)
    assert disk.exists(cleaned)
    handler.keep_house(later, later)
    assert handler.log_start_offset == 6
    log.disk = disk.after_kill()
    log.open()
    assert log.handler.log_start_offset == 6
    names = log.disk.listdir(handler._log.paths.folder)
    assert not [name for name in names if name.endswith(("_5.log", "_5.cleaned", "_5.index"))]


NOT_SYNCED = [Fault("fdatasync", ".manifest", 0)]
TORN = [Fault("pwrite", ".manifest", 0, room=30), Fault("truncate", ".manifest", 0)]


class _Doubted(RecordingStorage):
    """The sync behind the next cleaned segment that gets its name fails, and then `behind`."""

    number = 0
    behind: Sequence[Fault] = ()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.number and source.endswith(".cleaned"):
            number, self.number = self.number, 0
            self.faults = [Fault("fsync_dir", "/partition_0", 0, number), *self.behind]


@pytest.mark.parametrize("behind", [NOT_SYNCED, TORN], ids=["not-synced", "torn"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_manifest_that_fails_behind_a_swap_does_not_forget_whose_name_is_in_doubt(
    number: int, behind: Sequence[Fault]
) -> None:
    disk = _Doubted()
    disk.behind = behind
    log = Compacted(disk, cleanup_policy="compact,delete", retention_ms=5_000)
    housekeeper = log.handler._evicting._housekeeper = Busy()
    log.send((b"old", b"x" * 400))
    log.now_ms += 20_000
    for key in (b"b", b"c", b"d"):
        log.send((b"a", b"x" * 340), (key, b"y"))
    log.send((b"a", b"last"))
    log.seal()
    log.send((b"e", b"of another segment"))
    log.handler.sync()
    opened = log.handler._log
    log.handler.keep_house(log.now_ms, log.now_ms)
    assert housekeeper.asked, "retention, which comes behind"
    disk.number = number
    log.clean_sealed()
    assert isinstance(log.handler.read_only, DiskFull) == (number == errno.ENOSPC)
    housekeeper.work()
    assert opened.manifest.is_doubtful
    log.handler.keep_house(log.now_ms, log.now_ms)
    housekeeper.work()
    log.handler.try_recover(log.now_ms + 10_000)
    assert log.handler.read_only is None
    log.handler.sync()
    keys = {b"b", b"c", b"d", b"a", b"e"}
    for image in Images(disk).now():
        log.disk = image.build()
        lose_wal(log.disk)
        log.open()
        assert {record.key for record in log.records(log.handler.log_start_offset)} - {
            b"old"
        } == keys


class _NamesOnceInDoubt(RecordingStorage):
    """The sync behind the next cleaned segment that gets its name fails."""

    is_due = False

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.is_due and source.endswith(".cleaned"):
            self.is_due = False
            self.faults = [Fault("fsync_dir", "/partition_0", 0)]


@pytest.mark.parametrize("is_killed", [False, True], ids=["by-itself", "by-the-next-process"])
def test_a_segment_that_stands_for_itself_alone_gets_its_name_anew(is_killed: bool) -> None:
    disk = _NamesOnceInDoubt()
    log = Compacted(disk)
    log.send((b"a", b"x" * 200), (b"b", b"y" * 200))
    log.seal()
    log.send((b"a", b"z" * 200), (b"c", b"y" * 200))
    log.seal()
    log.send((b"e", b"not sealed"))
    log.manager.close()  # so all but the swap is as the last checkpoint says
    log.open()
    disk.is_due = True
    log.clean_sealed()
    assert log.handler.is_poisoned
    if is_killed:
        disk.restart()
        log.open()
    else:
        log.handler.try_recover(log.now_ms)
    assert log.handler.read_only is None
    log.send((b"f", b"later"))
    log.manager.close()
    for image in Images(disk).now():
        log.disk = image.build()
        log.open()
        assert {record.key for record in log.records()} == {b"a", b"b", b"c", b"e", b"f"}


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_a_decision_that_was_not_synced_leaves_no_row_in_doubt_in_front_of_later_ones(
    is_killed: bool,
) -> None:
    disk = RecordingStorage()
    log = Compacted(disk)
    for key in (b"b", b"c", b"d"):
        log.send((b"a", b"x" * 340), (key, b"y"))
        log.seal()
    log.send((b"e", b"y"), (b"a", b"last"))
    log.manager.close()
    log.open()
    log.seal()  # a row that nobody syncs, as a lost one costs a scan; a close has nothing to write
    disk.faults = [Fault("fdatasync", ".manifest", 0)]
    log.clean_sealed()
    assert disk.counts == {0: 1}, "the decision, in the same file"
    if is_killed:
        disk.restart()
    else:
        log.manager.close()
    log.open()
    log.clean()
    assert len(log.records()) < 8, "it was cleaned"
    log.handler.sync()
    for image in Images(disk).now():
        log.disk = image.build()
        lose_wal(log.disk)
        log.open()
        assert {record.key for record in log.records()} == {b"a", b"b", b"c", b"d", b"e"}
        assert not [row for row in log.manager.report.rows if row.what == "gap"]


def test_a_row_that_was_not_written_leaves_no_mark_of_a_failed_sync() -> None:
    """Nothing is in doubt: the next process need not write all of it anew."""
    disk = RecordingStorage()
    log = Compacted(disk)
    for key in (b"b", b"c", b"d"):
        log.send((b"a", b"x" * 340), (key, b"y"))
    log.seal()
    paths = log.handler._log.paths
    disk.faults = [Fault("pwrite", ".manifest", 0)]
    log.clean_sealed()
    assert disk.counts[0] == 1, "the decision"
    assert not disk.exists(paths.unsynced)
    log.clean_sealed()
    log.check()


class _Full(RecordingStorage):
    """No file with one of `full` in its path takes another byte."""

    full: Sequence[str] = ()

    def fault_at(self, call: str, path: str) -> Fault | None:
        if call == "pwrite" and any(part in path for part in self.full):
            return Fault(call, path, 0, errno.ENOSPC)
        return super().fault_at(call, path)


def test_a_decision_that_was_given_up_is_not_followed_by_an_opening_that_comes_to_nothing() -> None:
    disk = _Full()
    log = Compacted(disk, cleanup_policy="compact,delete", retention_ms=5_000)
    log.send((b"old", b"x" * 400))
    log.now_ms += 20_000
    for key in (b"b", b"c", b"d"):
        log.send((b"a", b"x" * 340), (key, b"y"))
    log.send((b"a", b"last"))
    log.seal()
    log.send((b"e", b"not sealed"))
    log.handler.sync()
    disk.faults = [Fault("fdatasync", ".manifest", 0), Fault("truncate", ".manifest", 0)]
    log.clean_sealed()
    assert disk.counts == {0: 1, 1: 1}, "the row of the decision is there"
    disk.full = ("_segment_", "/wal/")
    with pytest.raises(DiskFull):
        log.send((b"f", b"refused"))
    disk.full = ("/wal/",)
    assert not log.handler.try_recover(log.now_ms + 10_000), "the shard has no other file"
    keys = {b"a", b"b", b"c", b"d", b"e"}
    assert {record.key for record in log.records(1)} == keys, "of the log of before"
    log.handler.keep_house(log.now_ms, log.now_ms)
    assert log.handler.log_start_offset == 1, "retention goes on in it"
    log.disk = disk.after_kill()
    lose_wal(log.disk)
    log.open()
    assert {record.key for record in log.records(1)} == keys


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EIO])
def test_a_segment_that_does_not_get_its_name_is_given_up_and_all_is_read_on(cause: int) -> None:
    """Its decision is durable.  It was followed by the next opening, which then came to nothing:
    the log of before went on, and had not the files any more that it spoke of."""
    disk = _Full()
    log = Compacted(disk)
    fill(log, count=3)
    log.handler.sync()
    disk.faults = [Fault("rename", ".log", 0, cause)]
    log.clean_sealed()
    assert disk.counts == {0: 1}
    assert log.handler.read_only is None
    log.check()
    images = [image.build() for image in Images(disk).now()]
    disk.full = ("_segment_", "/wal/")
    with pytest.raises(DiskFull):
        log.send((b"f", b"refused"))
    log.written.pop(log.handler.log_end_offset, None)
    disk.full = ("/wal/",)
    assert not log.handler.try_recover(log.now_ms + 10_000), "the shard has no other file"
    log.check()
    for image in images:
        log.disk = image
        log.open()
        log.check()


def test_a_kill_within_a_swap_leaves_nothing_that_is_told_as_damage() -> None:
    disk = KilledAtNames()
    log = Compacted(disk)
    fill(log, 3)
    disk.left.clear()
    log.clean_sealed()
    assert len(disk.left) > 5
    for left in disk.left:
        for _ in ("as it was left", "when it was opened and closed"):
            found = list(DirectoryChecker(left, "/data", log.now_ms).check())
            assert not [one for one in found if one.is_damage]
            log.disk = left
            log.open()
            assert {record.key for record in log.records()} == {b"a", b"b", b"c"}
            log.manager.close()


class ReadMeanwhile(MemoryStorage):
    """Somebody reads where an index has just gone, and writes it when somebody else wants to."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[str], None] | None = None
        self.writes = Event()
        self.rebuilding = Told()

    def unlink(self, path: str) -> None:
        super().unlink(path)
        if path.endswith(".index") and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile(path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if create and current_thread() is not main_thread():
            self.writes.set()
            assert self.rebuilding.is_wanted.wait(30)
        return super().open(path, create=create, read_only=read_only)


def test_an_index_made_again_beside_a_swap_is_not_left_beside_what_it_is_not_of() -> None:
    disk = ReadMeanwhile()
    log = Compacted(disk)
    fill(log, 3)
    opened = log.handler._log
    cast(Any, opened.files)._rebuilding = disk.rebuilding
    readers: list[Thread] = []

    def read(path: str) -> None:
        row = next(row for row in opened.sealed.rows() if opened.paths.index(row.number) == path)
        opened.files.drop()
        readers.append(Thread(target=opened.files.index, args=(row,)))
        readers[0].start()
        assert disk.writes.wait(30)

    disk.meanwhile = read
    log.clean_sealed()
    disk.rebuilding.is_wanted.set()
    readers[0].join()
    found = list(DirectoryChecker(disk.after_kill(), "/data", log.now_ms).check())
    assert not [one for one in found if one.is_damage]
    log.check()

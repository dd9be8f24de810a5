"""EIO from the N-th sync of a directory of the write-ahead log, for every N; then the power goes.

    N-th fsync_dir fails -> the broker goes on, checkpoints, is killed, starts, closes, starts
                            every disk of a power cut, now and then from there on, and in the end

What was given a name, or lost one, before stays in doubt for ever, whatever a later sync says
(recording.py).  Nothing is missing then, and nothing is told as missing.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from itertools import count, product
from threading import Event, Thread, current_thread

import pytest

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import make_dirs
from segbroker.segments.errors import StorageError
from segbroker.segments.wal.files import ShardFiles
from segbroker.segments.witness import WAL_FROM, least, make_fact, say_least, unmake_fact

from ..support.extent import share
from .crash.driver import Driver
from .crash.explorer import Explorer, Plan, silence
from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .crash.scenarios_faults import fault
from .wal_writing import ROOT

FOLDER = f"{ROOT}/shard-00"
WITNESS = f"{ROOT.rpartition('/')[0]}/witness"
LOOKS_EVERY = 32
"""Operations.  A name that is in doubt stays so: not each has to be looked behind."""


def started(driver: Driver) -> None:
    """Again where a start fails: as a supervisor does."""
    for _ in range(3):
        try:
            driver.open()
        except StorageError:
            driver.kill()
        else:
            return
    raise AssertionError("it never starts")


def written(driver: Driver, size: int) -> None:
    with suppress(StorageError):  # refused: it is read-only until the next tick
        driver.append("t", count=3, size=size)
    driver.tick()


def files_are_recycled(driver: Driver) -> None:
    for _ in range(2):
        written(driver, 2_500)
        driver.running.wal.checkpoint()
    driver.running.wal.checkpoint()
    written(driver, 100)


def it_is_killed(driver: Driver) -> None:
    written(driver, 2_500)
    driver.kill()
    started(driver)
    written(driver, 100)


def it_is_closed(driver: Driver) -> None:
    written(driver, 2_500)
    driver.close()
    started(driver)
    written(driver, 100)


def lives_on(life: Callable[[Driver], None], directory: str, number: int) -> bool:
    """Whether a life has so many syncs of this directory, of which this one fails.  Raises
    Found."""

    def look(explorer: Explorer) -> None:
        is_over = explorer.disk.counts.get(0, 0) > number
        if is_over and explorer.disk.operations % LOOKS_EVERY == 0:
            explorer.look_at_images()

    name = f"{life.__name__}, {directory}, {number}"
    driver = Driver(Plan(instead=look, alike_every=0, settle_every=64), name)
    fault(driver, Fault("fsync_dir", directory, number))
    started(driver)
    driver.create("t", 1, durability="fsync", segment_bytes="4096")
    life(driver)
    driver.tick()
    driver.explorer.look_at_images()
    return driver.disk.counts[0] > number


LIVES = [
    (life, directory)
    for life in (files_are_recycled, it_is_killed, it_is_closed)
    for directory in ("/wal/shard-00", "/wal", "/witness")
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("life", "directory"),
    share(LIVES[3:7:3], LIVES),
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_sync_of_names_of_the_log_that_fails_costs_nothing_and_nothing_is_told_as_lost(
    life: Callable[[Driver], None], directory: str
) -> None:
    with silence():
        failed = next(number for number in count() if not lives_on(life, directory, number))
    assert failed >= 5, "a life with hardly a sync proves nothing"


class Beside(RecordingStorage):
    """Before the next sync of a directory somebody else does something in it, whose sync fails."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = directory
        self.other: Callable[[], object] | None = None
        self.thread = Thread()

    def fsync_dir(self, path: str) -> None:
        if path == self.directory and current_thread() is self.thread:
            self.faults = [Fault("fsync_dir", path, 0)]
        elif path == self.directory and self.other is not None:
            self.thread = Thread(target=self._refused, args=(self.other,))
            self.other = None
            self.thread.start()
            self.thread.join(0.5)  # if it waits for its turn it ends behind this one
        super().fsync_dir(path)

    def _refused(self, other: Callable[[], object]) -> None:
        with suppress(OSError):
            other()

    def left(self) -> list[set[str]]:
        """The files that a power cut may leave now."""
        self.thread.join()
        assert self.counts, "it was asked for, and has failed"
        return [set(image.files()) for image in Images(self).now()]


def test_a_file_that_gets_its_name_while_another_cannot_be_freed_outlives_a_power_cut() -> None:
    # The maker: rename to wal-1 ........................ sync, succeeds: acknowledged in it
    # A checkpoint:              wal-0 to free-2, sync, fails
    disk = Beside(FOLDER)
    files = ShardFiles(disk, FOLDER, 0, 8192)
    files.open()
    used = files.prepare()
    disk.other = lambda: files.recycle(used)
    path = files.prepare().path
    assert all(path in left for left in disk.left())


class Slow(MemoryStorage):
    """It begins with a kept file when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.may_go = Event(), Event()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if create and "kept-" in path:
            self.waits.set()
            self.may_go.wait(60)
        return super().open(path, create=create, read_only=read_only)


def test_a_file_is_made_while_a_checkpoint_writes_what_it_keeps() -> None:
    disk = Slow()
    files = ShardFiles(disk, FOLDER, 0, 8192)
    files.open()
    keeper = Thread(target=files.keep_ends, args=(files.claim(), []))
    maker = Thread(target=files.prepare)
    keeper.start()
    assert disk.waits.wait(60)
    maker.start()
    maker.join(10)  # less than a planted bug may stand still
    is_made = not maker.is_alive()
    disk.may_go.set()
    keeper.join()
    maker.join()
    assert is_made, "the writer may be waiting for it"
    assert disk.exists(f"{FOLDER}/kept-0.log")


@pytest.mark.parametrize(
    "change", [make_fact, unmake_fact, make_dirs], ids=["said", "taken back", "a directory"]
)
def test_what_is_said_beside_another_whose_sync_fails_is_true_behind_a_power_cut(
    change: Callable[[MemoryStorage, str], None],
) -> None:
    disk = Beside("/data")
    disk.mkdir("/data")
    disk.fsync_dir("/")
    path = "/data/snapshot-1"
    if change is unmake_fact:
        make_fact(disk, path)
    disk.other = lambda: make_fact(disk, "/data/snapshot-2")
    change(disk, path)
    assert {path in left for left in disk.left()} == {change is not unmake_fact}


class Silent(MemoryStorage):
    """A disk that does not answer, until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.may_go = Event(), Event()

    def fsync_dir(self, path: str) -> None:
        self.waits.set()
        self.may_go.wait(60)
        super().fsync_dir(path)


def test_a_disk_that_does_not_answer_keeps_nobody_from_saying_something_on_another() -> None:
    silent, disk = Silent(), MemoryStorage()
    silent.mkdir("/nfs")
    disk.mkdir("/ssd")
    waiting = Thread(target=make_fact, args=(silent, "/nfs/snapshot-1"))
    waiting.start()
    assert silent.waits.wait(60)
    other = Thread(target=make_fact, args=(disk, "/ssd/snapshot-1"))
    other.start()
    other.join(60)
    is_said = not other.is_alive()
    silent.may_go.set()
    waiting.join()
    other.join()
    assert is_said


def test_what_could_not_be_said_is_said_by_the_next_who_does() -> None:
    disk = RecordingStorage()
    say_least(disk, "/data/witness", WAL_FROM, 3)
    disk.faults = [Fault("fsync_dir", "/data/witness", 0)]
    with pytest.raises(OSError, match="planned"):
        say_least(disk, "/data/witness", WAL_FROM, 5)
    say_least(disk, "/data/witness", WAL_FROM, 5)
    for image in Images(disk).now():
        assert least(image.build(), "/data/witness", WAL_FROM) == 5


def test_a_file_that_could_not_be_freed_is_freed_whole_by_the_next_checkpoint() -> None:
    disk = RecordingStorage()
    files = ShardFiles(disk, FOLDER, 0, 8192)
    files.open()
    used, path = files.prepare(), f"{FOLDER}/wal-0.log"
    disk.faults = [Fault("fsync_dir", FOLDER, 0), Fault("rename", path, 1)]
    with pytest.raises(OSError, match="planned"):
        files.recycle(used)
    assert disk.exists(path), "who starts next begins with it"
    disk.faults.append(Fault("fsync_dir", FOLDER, 0))
    with pytest.raises(OSError, match="planned") as caught:
        files.recycle(used)  # nor does it get its name back
    assert (caught.value.errno, disk.exists(path)) == (errno.EIO, False)
    files.recycle(used)
    assert not any(path in image.files() for image in Images(disk).now())
    assert (files.count, files.free_count) == (1, 1)


def test_a_marker_that_a_start_could_not_take_for_good_is_taken_by_the_next() -> None:
    refused = 0
    for directory, number in product(("/wal", "/witness"), range(4)):  # of the syncs of a start
        with silence():
            driver = Driver(Plan(instead=lambda explorer: None))
            driver.open()
            driver.create("t", durability="fsync")
            driver.append("t")
            driver.kill()
            fault(driver, Fault("fsync_dir", directory, number))
            try:
                driver.open()
            except StorageError:
                refused += 1
                driver.kill()
                driver.open()
            driver.append("t")
            driver.explorer.look_at_images()
    assert refused > 1, "a start goes on only behind those that may be left out"

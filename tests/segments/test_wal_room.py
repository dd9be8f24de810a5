"""A writer of the WAL that waits for a file hears of one, or why there is none, whatever fails."""

import errno
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

import pytest
import structlog
from structlog.testing import capture_logs

from segbroker.segments import background
from segbroker.segments.background import Housekeeper
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Buffer, Storage
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.files import ShardFiles, WalFile
from segbroker.segments.wal.frames import Frame, FrameType, Header, header_blocks
from segbroker.segments.wal.inline_sync import InlineSyncBudget
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.shard import Shard
from segbroker.segments.wal.supply import Supply

from ..support.gated_storage import GatedStorage
from .crash.explorer import silence
from .tools import append, batch_of
from .wal_writing import (
    ROOT,
    SMALL,
    TOPIC,
    FailingStorage,
    Writer,
    at_once,
    begun,
    content,
    no_memory_for_lines,
    replayed,
    until,
)

FILES_MAX = 2


class Mistaken(MemoryStorage):
    """Has a mistake at `place` while it is named there: no OSError, a bug."""

    def __init__(self) -> None:
        super().__init__()
        self.place = ""
        self.mistake: type[Exception] = ValueError

    def meet(self, place: str) -> None:
        if place == self.place:
            raise self.mistake(f"a mistake in {place}")

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if "/shard-" in path and path.endswith(".log") and create:
            self.meet("create")
        plain = super().open(path, create=create, read_only=read_only)
        file = MistakenFile(path, plain._inode, self)
        file.owner = self
        return file

    def random_bytes(self, size: int) -> bytes:
        self.meet("name")
        return super().random_bytes(size)


class MistakenFile(MemoryFile):
    owner: Mistaken

    def pwrite(self, data: Buffer, position: int) -> int:
        if "/free-" in self.path:
            self.owner.meet("zeros")
        return super().pwrite(data, position)


@contextmanager
def threads(storage: Storage) -> Iterator[Wal]:
    config = WalConfig(file_bytes=8192, shard_bytes=FILES_MAX * 8192)
    wal = Wal(storage, ROOT, config, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    try:
        with silence():
            yield wal
    finally:
        wal.stop()
        wal.close(empty=False)


def control_works(wal: Wal) -> bool:
    try:
        wal.control(b"event")()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("place", ["create", "zeros", "name"])
def test_a_mistake_in_the_maker_fails_who_waits_and_costs_no_file(place: str) -> None:
    disk = Mistaken()
    disk.place = place
    with threads(disk) as wal:
        for _ in range(FILES_MAX + 1):
            with pytest.raises(OSError, match=f"a mistake in {place}"):
                wal.control(b"event")()
        disk.place = ""
        until(lambda: control_works(wal))  # one mistake more may have been under way
        assert wal.statistics().files <= 2, "one is written, one is ready"
        writer = Writer(wal)
        for number in range(40):  # through all files that there may be
            writer.append(bytes([number]) * 1_000)
        until(lambda: writer.durable == 40_000)
        assert not writer.failures
    got = content(replayed(disk.after_power_cut()))
    assert got == b"".join(bytes([n]) * 1_000 for n in range(40))[-len(got) :]


@pytest.mark.parametrize("place", ["create", "zeros", "name"])
def test_memory_that_runs_out_in_the_maker_and_for_what_it_tells_ends_no_thread(
    place: str,
) -> None:
    disk = Mistaken()
    disk.place, disk.mistake = place, MemoryError
    with threads(disk) as wal, no_memory_for_lines():
        until(lambda: not control_works(wal))
        disk.place = ""
        until(lambda: control_works(wal))


def test_a_maker_that_could_not_be_asked_costs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    left = 0

    class Queue(SimpleQueue[object]):
        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            nonlocal left
            if left and getattr(item, "__qualname__", "") == "Supply._make":
                left -= 1
                raise MemoryError
            super().put(item, block, timeout)

    monkeypatch.setattr(background, "SimpleQueue", Queue)
    with threads(MemoryStorage()) as wal:
        for _ in range(FILES_MAX):
            left = 1
            while left:
                control_works(wal)
            wal.revive()
        writer = Writer(wal)
        for number in range(40):  # through all files that there may be
            writer.append(bytes([number]) * 1_000)
        until(lambda: writer.durable == 40_000)
        assert not writer.failures


class Unsyncable(Writer):
    """A partition with a mistake in its checkpoint, as long as `can_checkpoint` is false."""

    def wal_checkpoint(self) -> bool:
        if not self.can_checkpoint:
            raise ValueError("a mistake in a log")
        return super().wal_checkpoint()


def test_a_checkpoint_that_fails_again_and_again_is_told_once() -> None:
    failure: OSError | None = None

    def snapshot() -> None:
        if failure is not None:
            raise failure

    with threads(MemoryStorage()) as wal, capture_logs() as logs:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
        wal.snapshot = snapshot
        for number in (errno.EIO, errno.ENOSPC):
            failure = OSError(number, "no snapshot")
            before = wal.checkpoints
            while wal.checkpoints < before + 5:
                with suppress(OSError):
                    wal.barrier(TOPIC, 0)
                    control_works(wal)
        failure = None
        until(lambda: control_works(wal))
    told = [row["error"] for row in logs if row["event"] == "wal_checkpoint_failed"]
    assert told == ["[Errno 5] no snapshot", "[Errno 28] no snapshot"]


def test_a_mistake_in_a_checkpoint_is_told_to_who_waits_for_room() -> None:
    disk = MemoryStorage()
    with threads(disk) as wal, no_memory_for_lines():
        writer = Unsyncable(wal)
        writer.can_checkpoint = False
        for _ in range(60):
            writer.append(bytes(1_000))
        until(lambda: bool(writer.failures))
        assert "a mistake in a log" in str(writer.failures[0])
        writer.can_checkpoint = True
        until(lambda: control_works(wal))


class Held(Writer):
    """A partition whose checkpoint lasts as long as the test wants."""

    released = threading.Event()

    def wal_checkpoint(self) -> bool:
        assert self.released.wait(60), "the test never released it"
        return super().wal_checkpoint()


def test_a_write_that_waits_for_a_checkpoint_is_seen_and_its_wait_is_counted() -> None:
    now = 0.0
    config = WalConfig(file_bytes=8192, shard_bytes=FILES_MAX * 8192)
    wal = Wal(MemoryStorage(), ROOT, config, threaded=True, call_soon=at_once, clock=lambda: now)
    wal.open()
    wal.absorbed()
    writer = Held(wal)
    writer.released.clear()
    for _ in range(20):  # more than both files take
        writer.append(bytes(1_000))
    until(lambda: wal.statistics().files_full == wal.statistics().files_max == 1)
    until(lambda: writer.shard.supply._starves)
    now = 9.5
    assert wal.statistics().stuck_s == 0
    now = 12.0
    until(lambda: wal.statistics().stuck_s == 12)
    assert wal.statistics().file_waits_s == 0, "it goes on"
    writer.released.set()
    until(lambda: writer.durable == 20_000)
    assert (wal.statistics().stuck_s, wal.statistics().file_waits_s) == (0, 12)
    wal.stop()
    wal.close(empty=False)


class Overtaken(ShardFiles):
    """The maker counts, `meanwhile` happens, and it goes by what it has counted."""

    meanwhile: Callable[[], None] | None = None

    @property
    def free_count(self) -> int:
        count = super().free_count
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return count


@pytest.mark.parametrize("is_early", [True, False], ids=["before-it-waits", "while-it-waits"])
def test_room_that_was_made_while_the_maker_looked_is_found(*, is_early: bool) -> None:
    # The maker sees two files, none free | a checkpoint frees one, the maker is at work: nobody is
    # asked | the maker asks for a checkpoint | that finds no full file.
    storage = MemoryStorage()
    files = Overtaken(storage, f"{ROOT}/shard-00", 0, SMALL.file_bytes)
    files.open()
    asked = threading.Event()

    def checkpoint_soon() -> None:
        if files.meanwhile is None and not shard.full and is_early:
            shard.supply.nothing_to_free()
        elif not shard.full:
            asked.set()

    shard = Shard(
        files,
        files_max=FILES_MAX,
        threaded=True,
        call_soon=at_once,
        maker=Housekeeper(threaded=False),
        checkpoint_soon=checkpoint_soon,
        inline_budget=InlineSyncBudget(None),
        next_lsn=0,
        name="wal-test",
    )
    frame = Frame(FrameType.CONTROL, payload=bytes(SMALL.batch_bytes_max))  # a file of its own
    for _ in range(2):
        shard.write([frame])
    assert (shard.full_count, files.free_count, files.count) == (1, 0, 2)
    files.meanwhile = shard.free_oldest
    asked.clear()
    told: SimpleQueue[OSError | None] = SimpleQueue()
    shard.put([frame], told.put)
    if not is_early:
        assert asked.wait(60)
        shard.supply.nothing_to_free()
    assert told.get(timeout=60) is None
    shard.close()
    shard.release()
    assert shard.syncs == 3


class Waiting:
    """Who waits for the next file of a shard that may have one, which is in use."""

    def __init__(self, *, refused_before: bool) -> None:
        self.files = ShardFiles(MemoryStorage(), f"{ROOT}/shard-00", 0, SMALL.file_bytes)
        self.files.open()
        self.supply = Supply(
            self.files,
            files_max=1,
            threaded=True,
            maker=Housekeeper(threaded=False),
            checkpoint_soon=lambda: None,
        )
        if refused_before:
            self.supply.nothing_freed()
        self.used = self.supply.next_file()
        self.told: list[WalFile | OSError] = []
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()
        until(lambda: bool(self.told) or self._is_waiting())

    def _wait(self) -> None:
        try:
            self.told.append(self.supply.next_file())
        except OSError as exc:
            self.told.append(exc)

    def _is_waiting(self) -> bool:
        ident = self._thread.ident
        frame = None if ident is None else sys._current_frames().get(ident)
        return frame is not None and frame.f_code is threading.Condition.wait.__code__


def test_who_waits_for_room_is_woken_by_a_checkpoint_that_made_none() -> None:
    waiting = Waiting(refused_before=False)
    waiting.supply.nothing_freed(OSError(errno.EIO, "a bad log"))
    until(lambda: bool(waiting.told))
    assert "a bad log" in str(waiting.told[0])


def asking(supply: Supply) -> tuple[threading.Thread, SimpleQueue[WalFile | OSError]]:
    """A thread that asks for the next file, and what it is told."""
    told: SimpleQueue[WalFile | OSError] = SimpleQueue()

    def ask() -> None:
        try:
            told.put(supply.next_file())
        except OSError as exc:
            told.put(exc)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, told


def test_a_checkpoint_that_frees_nothing_while_a_file_is_ready_refuses_nobody_later() -> None:
    files = ShardFiles(MemoryStorage(), f"{ROOT}/shard-00", 0, SMALL.file_bytes)
    files.open()
    supply = Supply(
        files,
        files_max=2,
        threaded=True,
        maker=Housekeeper(threaded=False),
        checkpoint_soon=lambda: None,
    )
    used = supply.next_file()
    supply.nothing_freed(OSError(errno.EIO, "a bad log"))
    supply.next_file()
    thread, told = asking(supply)
    thread.join(0.2)  # who is refused hears of it at once
    files.recycle(used)
    supply.prepare_soon()
    assert isinstance(told.get(timeout=60), WalFile)


def test_who_waits_for_a_file_that_is_being_made_is_not_refused_for_want_of_room() -> None:
    disk = GatedStorage()
    files = ShardFiles(disk, f"{ROOT}/shard-00", 0, SMALL.file_bytes)
    files.open()
    disk.syncs.clear()
    maker = Housekeeper(threaded=True)
    supply = Supply(
        files,
        files_max=2,
        threaded=True,
        maker=maker,
        checkpoint_soon=lambda: None,
    )
    thread, told = asking(supply)
    until(lambda: disk.exists(f"{ROOT}/shard-00/free-0.log"))
    supply.nothing_freed(OSError(errno.EIO, "a bad log"))
    thread.join(0.2)  # who is refused hears of it at once
    disk.syncs.set()
    assert isinstance(told.get(timeout=60), WalFile)
    maker.close()


def test_who_asks_for_a_file_is_not_refused_for_one_that_could_not_be_made_earlier() -> None:
    disk = GatedStorage()
    files = ShardFiles(disk, f"{ROOT}/shard-00", 0, SMALL.file_bytes)
    files.open()
    maker = Housekeeper(threaded=True)
    supply = Supply(
        files,
        files_max=2,
        threaded=True,
        maker=maker,
        checkpoint_soon=lambda: None,
    )
    disk.sync_error = OSError(errno.ENOSPC, "no space")
    supply.prepare_soon()
    maker.wait_idle()
    disk.sync_error = None
    disk.syncs.clear()  # the maker takes its time
    thread, told = asking(supply)
    thread.join(0.2)  # who is refused hears of it at once
    disk.syncs.set()
    assert isinstance(told.get(timeout=60), WalFile)
    maker.close()


def test_who_waits_for_room_is_not_refused_for_what_was_mended_before() -> None:
    # A checkpoint freed nothing | a file was made all the same, and taken | another is waited for
    waiting = Waiting(refused_before=True)
    waiting.files.recycle(waiting.used)
    waiting.supply.prepare_soon()
    until(lambda: bool(waiting.told))
    assert isinstance(waiting.told[0], WalFile)


class Unrenamed(MemoryStorage):
    """Cannot sync the directories of the WAL while `fails`."""

    fails = False

    def fsync_dir(self, path: str) -> None:
        if self.fails and "/shard-" in path:
            raise OSError(errno.EIO, "no", path)
        super().fsync_dir(path)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_file_whose_directory_could_not_be_synced_is_freed_by_the_next_checkpoint(
    trusted: bool,
) -> None:
    disk = Unrenamed()
    files = ShardFiles(disk, f"{ROOT}/shard-00", 0, 8192)
    files.open()
    used = files.prepare()
    disk.fails = True
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            files.recycle(used, trusted=trusted)
    disk.fails = False
    files.recycle(used, trusted=trusted)
    assert (files.count, files.free_count) == ((1, 1) if trusted else (0, 0))
    files.prepare()
    assert len(disk.listdir(files.folder)) == 1


class Forgetful(FailingStorage):
    """Cannot sync the directories of the WAL from the `fails_at`-th time on."""

    fails_at = 1 << 30
    synced = 0

    def fsync_dir(self, path: str) -> None:
        self.synced += "/shard-" in path
        if self.synced >= self.fails_at:
            raise OSError(errno.EIO, "no", path)
        super().fsync_dir(path)


def test_what_was_copied_out_of_a_file_that_is_gone_is_not_copied_again() -> None:
    disk = Forgetful()
    wal, _ = begun(disk)
    unsynced, other = Writer(wal, 1), Writer(wal, 2)
    unsynced.can_checkpoint = False
    unsynced.append(b"precious")
    disk.fail_write = errno.ENOSPC
    other.append(b"lost")
    disk.fail_write = 0
    other.shard.revive()
    disk.fails_at = disk.synced + 2  # the copy has its name; that the failed file is gone is lost
    wal.checkpoint()
    assert other.shard.full_count == 1
    disk.fails_at = 1 << 30
    wal.checkpoint()
    assert other.shard.full_count == 0
    assert content(replayed(disk.after_power_cut()), 1) == b"precious"


def test_spare_files_are_used_again_unless_they_have_another_size() -> None:
    disk = MemoryStorage()
    folder = f"{ROOT}/shard-00"
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    wal.close(empty=True)
    spare = disk.listdir(folder)
    assert len(spare) == 2
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    assert len(disk.listdir(folder)) == 2, "no other was made"
    wal.close(empty=True)
    assert len(disk.listdir(folder)) == 2
    larger = WalConfig(file_bytes=2 * SMALL.file_bytes, shard_bytes=8 * SMALL.file_bytes)
    wal, _ = begun(disk, larger)
    Writer(wal).append(b"one")
    sizes = {disk.open(f"{folder}/{name}").size() for name in disk.listdir(folder)}
    assert sizes == {larger.file_bytes}
    assert (len(disk.listdir(folder)), wal.statistics().files) == (2, 2)


def test_spare_files_count_against_the_bound_after_a_start() -> None:
    disk = MemoryStorage()
    files = ShardFiles(disk, f"{ROOT}/shard-00", 0, 8192)
    files.open()
    for used in [files.prepare(), files.prepare()]:
        files.recycle(used)
    again = ShardFiles(disk, f"{ROOT}/shard-00", 0, 8192)
    again.open()
    assert (again.count, again.free_count) == (2, 2)


def test_spare_files_are_not_made_again() -> None:
    disk = Mistaken()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    wal.close(empty=True)
    disk.place = "create"
    wal, _ = begun(disk)
    Writer(wal).append(b"two")
    assert content(replayed(disk.after_power_cut())) == b"two"


def test_of_many_files_two_are_spared_and_the_others_go() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    while not disk.exists(f"{ROOT}/shard-00/wal-2.log"):
        writer.append(bytes(1_000))
    wal.close(empty=True)
    assert [name[:4] for name in disk.listdir(f"{ROOT}/shard-00")] == ["free", "free"]


def test_space_is_given_back_before_a_start_writes_anything() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    wal.close(empty=True)
    wal = Wal(disk, ROOT, SMALL, threaded=False, call_soon=at_once)
    wal.open()
    assert [wal.give_space_back() for _ in range(2)] == [True, False]
    assert not disk.listdir(f"{ROOT}/shard-00")


def test_a_file_that_is_used_again_is_closed_first() -> None:
    files = ShardFiles(MemoryStorage(), f"{ROOT}/shard-00", 0, 8192)
    files.open()
    used = files.prepare()
    files.recycle(used)
    with pytest.raises(OSError, match="closed"):
        used.file.size()


def test_a_file_that_cannot_be_made_is_closed_and_goes() -> None:
    class Remembering(FailingStorage):
        def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
            opened.append(super().open(path, create=create, read_only=read_only))
            return opened[-1]

    opened: list[MemoryFile] = []
    disk = Remembering()
    files = ShardFiles(disk, f"{ROOT}/shard-00", 0, 8192)
    files.open()
    disk.fail_write = errno.ENOSPC
    with pytest.raises(OSError, match="planted"):
        files.prepare()
    assert [file._closed for file in opened] == [True]
    assert not disk.listdir(files.folder)


def test_a_full_disk_is_met_when_a_file_is_made_and_by_no_write_to_it() -> None:
    disk = FailingStorage()
    files = ShardFiles(disk, f"{ROOT}/shard-00", 0, 8192)
    files.open()
    disk.fail_write = errno.ENOSPC
    disk.writes_before_failure = len(header_blocks(Header(0, 8192, 0, 0)))
    with pytest.raises(OSError, match="planted"):
        files.prepare()  # its header would have had room


class _NoRoomForMarkers(MemoryStorage):
    is_full = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.is_full and create and not self.exists(path) and "/shard-00.wal-" in path:
            raise OSError(errno.ENOSPC, "no space", path)
        return super().open(path, create=create, read_only=read_only)


def test_a_file_whose_marker_could_not_be_made_takes_no_room() -> None:
    disk = _NoRoomForMarkers()
    folder = f"{ROOT}/shard-00"
    files = ShardFiles(disk, folder, 0, 8192)
    files.open()
    files.prepare()
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            files.prepare()
        assert (disk.listdir(folder), files.count) == (["wal-0.log"], 1)
    disk.is_full = False
    assert files.prepare().sequence == 1


class _GivesNoMore(MemoryStorage):
    """From the moment that a path with `behind` in it is there, no file whose path has `part` in it
    is opened."""

    part = behind = ""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.part and self.part in path and self.exists(self.behind):
            raise OSError(errno.EMFILE, "no descriptor", path)
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize(
    ("behind", "part"),
    [
        (f"{ROOT}/shard-00.wal-1", "/witness/shard-00.wal-1"),
        ("/data/witness/shard-00.wal-1", "/shard-00/wal-1.log"),
    ],
    ids=["one-of-two-markers", "both-markers"],
)
def test_a_file_that_could_not_be_made_is_missed_by_no_start(behind: str, part: str) -> None:
    disk = _GivesNoMore()
    wal, _ = begun(disk)
    writer = Writer(wal)
    disk.behind, disk.part = behind, part
    writer.append(b"acknowledged")
    assert writer.durable
    assert not disk.exists(f"{ROOT}/shard-00/wal-1.log"), "it could not be made"
    for left in (disk.after_kill(), disk.after_power_cut()):
        found = replayed(left)
        assert content(found) == b"acknowledged"
        assert not found.missing


class SlowStorage(MemoryStorage):
    """Each sync takes so many seconds of a clock that is a number."""

    now = takes = 0.0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _SlowFile(path, plain._inode, self)
        file.disk = self
        return file


class _SlowFile(MemoryFile):
    disk: SlowStorage

    def fdatasync(self) -> None:
        self.disk.now += self.disk.takes
        super().fdatasync()


def test_slow_syncs_are_told_once_a_minute_as_long_as_there_are_any() -> None:
    disk = SlowStorage()
    told: list[tuple[int, int]] = []
    with DiskManager("/data", storage=disk, flushers=0, clock=lambda: disk.now) as manager:
        manager.create_topic("t", 1, TopicConfig({}))
        handler = manager.get_handler("t", 0)
        with capture_logs() as lines:
            for minute, disk.takes in enumerate((5.0, 1.0, 0.0), 1):
                append(handler, batch_of(b"v"))
                handler.flush_soon()
                manager.housekeeping(minute * 60_000)
                count = sum(line["event"] == "wal_slow" for line in lines)
                told.append((manager.wal.statistics().syncs_slow, count))
    assert told == [(1, 1), (0, 1), (0, 1)]

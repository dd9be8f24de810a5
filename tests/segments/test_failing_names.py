"""EIO from the N-th sync of a partition's directory, for every N; then the power goes.

    N-th fsync_dir fails -> the broker goes on as it can, and recovers by itself -> closed in order
                            every disk of a power cut, now and then from there on, and in the end

What was given a name before stays in doubt for ever, whatever a later sync says (recording.py).
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from threading import Event, Thread, current_thread
from unittest.mock import patch

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.topic_registry import NewTopic
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import remove_tree
from segbroker.segments.errors import CorruptSegment, PartitionDamaged, StorageError
from segbroker.segments.files.manifest_file import ManifestFile
from segbroker.segments.log.deleting import compact_manifest
from segbroker.segments.log.log_storage import LogStorage, NamesNotSynced
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.log.ready import ReadySegments
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from ..support.extent import share
from .compacted import Compacted
from .crash.driver import Driver
from .crash.explorer import Explorer, Plan, silence
from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .crash.scenarios_cleaning import put, seal
from .crash.scenarios_faults import fault, with_unsynced_names
from .test_failing_wal_names import Beside
from .tools import SMALL, append, as_after_a_checkpoint, batch_of, flip

LOOKS_EVERY = 16
"""Operations.  A name that is in doubt stays so: not each has to be looked behind."""


def rolls(driver: Driver) -> None:
    for _ in range(3):
        driver.append("t", count=5)
        driver.tick()


def rolls_by_age(driver: Driver) -> None:
    for _ in range(3):
        driver.append("t", count=2)
        driver.tick(by_ms=60_000)


def rolls_that_find_nothing_ready(driver: Driver) -> None:
    with_unsynced_names(driver)
    rolls(driver)


def deletions(driver: Driver) -> None:
    with_unsynced_names(driver)
    for offset in (3, 7):
        driver.append("t", count=5)
        driver.tick()
        driver.append("t", count=2)
        with suppress(StorageError):
            driver.delete_records("t", 0, offset)
    driver.tick()


def cleanings(driver: Driver) -> None:
    with_unsynced_names(driver)
    for size in (100, 300, 50):
        driver.put("t", (b"a", bytes(size)), (b"of %d" % size, b"x"))
    seal(driver)
    driver.clean("t", may_go=[0, 2])
    put(driver, "b")
    driver.tick()
    driver.put("t", (b"c", bytes(360)))
    driver.tick()
    seal(driver)
    driver.clean("t", may_go=[0, 2, 4])


def lives_on(life: Callable[[Driver], None], config: dict[str, str], number: int) -> bool:
    """Whether a life has so many syncs of names, of which this one fails.  Raises Found."""

    def look(explorer: Explorer) -> None:
        is_over = explorer.disk.counts.get(0, 0) > number
        if is_over and explorer.disk.operations % LOOKS_EVERY == 0:
            explorer.look_at_images()

    driver = Driver(
        Plan(instead=look, alike_every=0, settle_every=64), f"{life.__name__}, {number}"
    )
    fault(driver, Fault("fsync_dir", "/partition_0", number))
    driver.open()
    driver.create("t", 1, **config)
    with suppress(StorageError):  # refused: it is read-only until the next tick
        life(driver)
    for _ in range(3):
        driver.tick()
    driver.append("t")
    driver.tick()
    driver.close()
    driver.explorer.look_at_images()
    return driver.disk.counts[0] > number


LIVES = [
    (life, durability)
    for life in (rolls, rolls_by_age, rolls_that_find_nothing_ready, deletions, cleanings)
    for durability in ("fsync", "disk")
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("life", "durability"),
    share(LIVES[3::4], LIVES),
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_sync_of_names_that_fails_costs_nothing_that_was_acknowledged(
    life: Callable[[Driver], None], durability: str
) -> None:
    config = {"durability": durability, "segment_ms": "50000"}
    if life is cleanings:
        config["cleanup_policy"] = "compact"
    with silence():
        failed = next(number for number in count() if not lives_on(life, config, number))
    assert failed >= 3, "a life with hardly a sync proves nothing"


class _InDoubt(MemoryStorage):
    """Knows which names are in doubt: of what was given before a sync failed, whatever came then.

    After the next file is made, or gets its name, that ends with `behind`, a sync fails that
    somebody else asks for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_doubt: set[str] = set()
        self._waiting: set[str] = set()
        self.behind = ""
        self.fails: Callable[[], object] = lambda: None
        self.is_failing = False

    def _given(self, path: str) -> None:
        self.in_doubt.discard(path)
        self._waiting.add(path)
        if self.behind and path.endswith(self.behind):
            self.behind, self.is_failing = "", True
            with suppress(OSError):
                self.fails()
            assert not self.is_failing, "it was asked for, and has failed"

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        is_new = create and not self.exists(path)
        file = super().open(path, create=create, read_only=read_only)
        if is_new:
            self._given(path)
        return file

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._given(target)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.in_doubt.discard(path)
        self._waiting.discard(path)

    def fsync_dir(self, path: str) -> None:
        if self.is_failing:
            self.is_failing = False
            self.in_doubt |= self._waiting
            raise OSError(errno.EIO, "the names are not synced", path)
        super().fsync_dir(path)
        self._waiting.clear()

    @property
    def doubted(self) -> list[str]:
        """Files of logs that a power cut may take."""
        ends = (".log", ".manifest")
        return [name for name in sorted(self.in_doubt) if name.endswith(ends)]


def _with_a_topic() -> tuple[_InDoubt, DiskManager, DiskHandler]:
    """A topic of small segments, of one partition."""
    disk = _InDoubt()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.create_topic("t", 1, TopicConfig(SMALL.overrides))
    return disk, manager, manager.get_handler("t", 0)


def recovered(manager: DiskManager) -> None:
    for second in range(1, 10):
        manager.keep_house_now(second * 1_000)
    assert manager.get_handler("t", 0).read_only is None


def test_a_sync_under_way_takes_nothing_for_durable_whose_name_another_could_not_sync() -> None:
    disk, manager, handler = _with_a_topic()
    opened = handler._log
    handler._rolling._making.is_asked = handler._rolling._sealing.is_asked = (
        True  # others are in front
    )
    for _ in range(4):
        append(handler, batch_of(b"v" * 300))
    # The sync has begun, and is about to sync the names: those who make segments are faster.
    disk.behind, disk.fails = "_4.log", partial(opened.storage.fsync_dir, opened.paths.folder)
    settle = opened.manifest.settle

    def settled() -> None:
        disk.open(opened.paths.log(4), create=True).close()
        settle()

    with patch.object(ManifestFile, "settle", lambda _: settled()):
        assert not handler.wal_checkpoint(), "the write-ahead log is all that has them for certain"
    assert disk.doubted
    recovered(manager)
    assert not disk.doubted
    assert handler.wal_checkpoint()


def test_a_sync_behind_another_of_the_names_that_failed_takes_none_for_durable() -> None:
    disk, manager, handler = _with_a_topic()
    append(handler, batch_of(b"v" * 100))
    handler.sync()  # also of the manifest
    opened = handler._log
    handler._rolling._making.is_asked = handler._rolling._sealing.is_asked = (
        True  # others are in front
    )
    for _ in range(4):
        append(handler, batch_of(b"v" * 300))
    sync = LogStorage.fsync_dir
    begun: list[str] = []
    disk.behind, disk.fails = "_5.log", partial(sync, opened.storage, opened.paths.folder)

    def others_first(storage: LogStorage, path: str) -> None:
        if not begun:
            begun.append(path)
            disk.open(opened.paths.log(5), create=True).close()
        sync(storage, path)

    with patch.object(LogStorage, "fsync_dir", others_first):
        assert not handler.wal_checkpoint(), "the write-ahead log is all that has them for certain"
    assert begun
    assert disk.doubted
    recovered(manager)
    assert not disk.doubted
    assert handler.wal_checkpoint()


@pytest.mark.parametrize("size", [150, 300], ids=["made-ahead", "made-by-the-roll"])
def test_a_segment_made_beside_a_sync_of_names_that_fails_is_named_anew(size: int) -> None:
    disk, manager, handler = _with_a_topic()
    append(handler, batch_of(b"v" * 100))
    handler.sync()
    opened = handler._log
    disk.behind, disk.fails = ".log", partial(opened.storage.fsync_dir, opened.paths.folder)
    for _ in range(4):
        with suppress(StorageError):
            append(handler, batch_of(b"v" * size))
    assert not disk.behind
    assert disk.doubted
    recovered(manager)
    handler.sync()
    assert not disk.doubted


def test_nothing_is_believed_of_segments_whose_maker_has_not_told_yet_that_it_failed() -> None:
    """Others roll into what it has made, and sync that, before it can say anything."""
    disk, manager, handler = _with_a_topic()
    handler._rolling._sealing.is_asked = True  # others are in front
    append(handler, batch_of(b"v" * 100))
    handler.sync()
    assert not disk.doubted
    make = ReadySegments.make
    freed: list[bool] = []

    def made(self: ReadySegments, active_number: int) -> None:
        if freed:
            return
        handler.sync()  # nothing in use waits for its name
        disk.is_failing = True
        with pytest.raises(NamesNotSynced) as failure:
            make(self, active_number)
        freed.append(False)
        with suppress(StorageError):
            for _ in range(3):
                append(handler, batch_of(b"v" * 300))
            handler.sync()
        freed.append(handler.wal_checkpoint())
        raise failure.value

    with patch.object(ReadySegments, "make", made):
        append(handler, batch_of(b"v" * 300))
    assert freed == [False, False], "the write-ahead log is all that has them for certain"
    recovered(manager)
    handler.sync()
    assert not disk.doubted


def test_nothing_is_believed_of_segments_that_a_maker_has_left_without_a_sync() -> None:
    """It had no room for the next one; then a sync failed that somebody else asked for."""
    disk, manager, handler = _with_a_topic()
    handler._rolling._making.is_asked = handler._rolling._sealing.is_asked = (
        True  # others are in front
    )
    append(handler, batch_of(b"v" * 100))
    handler.sync()
    opened = handler._log
    opened.ready.target = 2

    def opening(path: str, **_: bool) -> MemoryFile:
        if path.endswith("_2.log"):
            raise OSError(errno.ENOSPC, "no room", path)
        return MemoryStorage.open(disk, path, create=True)

    with patch.object(disk, "open", opening), pytest.raises(OSError, match="no room"):
        opened.ready.make(opened.active.number)
    disk._given(opened.paths.log(1))
    disk.is_failing = True
    with suppress(OSError):
        opened.storage.fsync_dir(opened.paths.folder)
    with suppress(StorageError):
        for _ in range(3):
            append(handler, batch_of(b"v" * 300))
        handler.sync()
    assert not (disk.doubted and handler.wal_checkpoint())
    recovered(manager)
    handler.sync()
    assert not disk.doubted


def test_what_a_cleaned_segment_stands_for_stays_if_another_sync_failed_behind_its_name() -> None:
    disk = _InDoubt()
    log = Compacted(disk)
    for _ in range(3):
        log.send((b"a", b"v" * 380))
    log.send((b"a", b"last"), (b"b", b"v"))
    log.seal()
    log.touched_offset = log.handler.log_end_offset
    opened = log.handler._log
    disk.behind, disk.fails = "_3.log", partial(opened.storage.fsync_dir, opened.paths.folder)
    log.clean_sealed()
    assert not disk.behind
    gone = [number for number in range(3) if not disk.exists(opened.paths.log(number))]
    assert not gone or not disk.doubted
    recovered(log.manager)
    assert not disk.exists(opened.paths.log(0))
    assert opened.paths.log(3) not in disk.doubted
    log.check()


class _InTurn(MemoryStorage):
    """The next sync of a directory fails; before who asked hears of it, `meanwhile` happens."""

    meanwhile: Callable[[], object] | None = None
    errno = errno.EIO

    def fail_next(self, number: int) -> None:
        self.meanwhile, self.errno = lambda: None, number

    def fsync_dir(self, path: str) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            raise OSError(self.errno, "the names are not synced", path)
        super().fsync_dir(path)


def test_a_sync_between_a_failure_and_its_news_proves_nothing_of_the_names_that_waited() -> None:
    disk = _InTurn()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({**SMALL.overrides, "durability": "disk"}))
    handler = manager.get_handler("t", 0)
    handler._rolling._making.is_asked = True  # the name of each segment waits for a sync
    for _ in range(5):
        append(handler, batch_of(b"v" * 300))
    opened = handler._log
    assert not opened.active.name_is_durable
    beside = Thread(target=sync_in_vain, args=(opened,))
    disk.meanwhile = beside.start
    with pytest.raises(StorageError, match="the names are not synced"):
        handler.delete_records_before(4)
    beside.join()
    assert disk.meanwhile is None
    assert not opened.active.name_is_durable
    assert opened.sync_failed
    for second in range(1, 10):
        manager.keep_house_now(second * 1_000)
    assert handler.read_only is None
    assert handler._log is not opened, "written anew"
    manager.close()


def sync_in_vain(opened: PartitionLog) -> None:
    with pytest.raises(OSError, match="the names are not synced"):
        opened.sync()


def test_names_in_doubt_are_given_anew_also_where_an_operator_is_to_look_at_damage() -> None:
    disk = _InTurn()
    manager, handler = with_a_name_that_waits(disk, "readonly")
    handler.read_only = PartitionDamaged("t", 0, "damage")
    disk.open(handler._log.paths.damaged, create=True).close()
    opened = handler._log
    disk.fail_next(errno.EIO)
    with suppress(OSError):
        opened.storage.fsync_dir(opened.paths.folder)
    assert opened.sync_failed
    for second in range(1, 10):
        manager.keep_house_now(second * 1_000)
    assert handler._log is not opened, "written anew"
    assert isinstance(handler.read_only, PartitionDamaged)


def with_a_name_that_waits(
    disk: MemoryStorage, on_corruption: str
) -> tuple[DiskManager, DiskHandler]:
    """A partition with sealed segments, and a last one whose name no sync has covered."""
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    settings = {"durability": "disk", "on.corruption": on_corruption}
    manager.create_topic("t", 1, TopicConfig({**SMALL.overrides, **settings}))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"v" * 300))
    handler.sync()  # what fails is not the first sync of a new log
    handler._rolling._making.is_asked = True  # the name of each segment waits for a sync
    for _ in range(4):
        append(handler, batch_of(b"v" * 300))
        handler._rolling._seal()
    opened = handler._log
    assert opened.manifest.is_durable
    assert len(opened.sealed)
    assert not opened.active.name_is_durable
    return manager, handler


def a_damaged_segment_is_kept_for_people(disk: _InTurn) -> DiskHandler:
    manager, handler = with_a_name_that_waits(disk, "gap")
    as_after_a_checkpoint(manager)
    path = handler._log.paths.log(0)
    flip(disk, path, 100)
    disk.fail_next(errno.EIO)
    assert not handler.mend(CorruptSegment(path, 0, "a read met it"))
    return handler


def the_copy_of_a_log_start_finds_no_space(disk: _InTurn) -> DiskHandler:
    _, handler = with_a_name_that_waits(disk, "gap")
    disk.fail_next(errno.ENOSPC)
    assert handler.delete_records_before(2) == 2, "with the space of what goes"
    return handler


@pytest.mark.parametrize(
    "happens",
    [
        a_damaged_segment_is_kept_for_people,
        the_copy_of_a_log_start_finds_no_space,
    ],
    ids=lambda happens: happens.__name__,
)
def test_a_name_that_waited_is_in_doubt_whoever_asked_for_the_sync_that_failed(
    happens: Callable[[_InTurn], DiskHandler],
) -> None:
    disk = _InTurn()
    handler = happens(disk)
    assert disk.meanwhile is None, "it has failed"
    assert handler._log.sync_failed


class _FailsBehindTheMark(MemoryStorage):
    """The next sync of the directory fails behind the mark of damage that an operator lifts."""

    is_failing = False

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.is_failing |= path.endswith(".damaged")

    def fsync_dir(self, path: str) -> None:
        if self.is_failing and path.endswith("/partition_0"):
            self.is_failing = False
            raise OSError(errno.EIO, "the names are not synced", path)
        super().fsync_dir(path)


GAP = TopicConfig({**SMALL.overrides, "durability": "disk", "on.corruption": "gap"})


def test_who_lifts_the_mark_of_an_open_log_hides_no_failed_sync_from_it() -> None:
    disk = _FailsBehindTheMark()
    manager, handler = with_a_name_that_waits(disk, "readonly")
    handler.read_only = PartitionDamaged("t", 0, "damage")
    disk.open(handler._log.paths.damaged, create=True).close()
    manager.alter_topic("t", GAP.overrides)
    assert handler.read_only is None
    with pytest.raises(StorageError, match="the names are not synced"):
        handler.sync()
    assert handler._log.sync_failed
    recovered(manager)
    handler.sync()


def test_an_opening_that_lifts_the_mark_hides_no_failed_sync_from_itself() -> None:
    disk = _FailsBehindTheMark()
    _, handler = with_a_name_that_waits(disk, "gap")
    disk.open(handler._log.paths.damaged, create=True).close()
    disk._locks.clear()  # it was killed
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    assert not disk.is_failing, "it has failed"
    assert list(manager.partitions.failed_at_start) == [("t", 0)]
    with patch.object(disk, "rename", side_effect=disk.rename) as rename:
        opened = manager.get_handler("t", 0)._log
    renamed = [call.args[1] for call in rename.call_args_list]
    assert opened.active.path in renamed, "its name is given anew"


class _FailsBehind(MemoryStorage):
    """The sync of the directory fails behind the next file that gets this name."""

    path = ""
    is_failing = False

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target == self.path:
            self.path, self.is_failing = "", True

    def fsync_dir(self, path: str) -> None:
        if self.is_failing:
            self.is_failing = False
            raise OSError(errno.EIO, "the names are not synced", path)
        super().fsync_dir(path)


@pytest.mark.parametrize("is_lost", [False, True], ids=["damaged", "missing"])
@pytest.mark.parametrize("is_recalled", [True, False], ids=["from-the-log-ahead", "with-a-gap"])
def test_a_repaired_segment_whose_name_could_not_be_synced_is_repaired_again(
    is_lost: bool, is_recalled: bool
) -> None:
    disk = _FailsBehind()
    log = Compacted(disk, cleanup_policy="delete")
    for key in (b"a", b"b", b"c"):
        log.send((key, b"v" * 300))
    log.seal()
    handler = log.handler
    path = handler._log.paths.log(0)
    if not is_recalled:
        as_after_a_checkpoint(log.manager)
    handler._log.files.drop()
    if is_lost:
        disk.unlink(path)
    else:
        flip(disk, path, 100)
    disk.path = path
    assert not handler.mend(CorruptSegment(path, 0, "a read met it"))
    assert not disk.path, "it had its name"
    assert handler.repairs_count == 0
    assert handler.read_only is None
    found = [record.offset for record in log.records()]
    assert handler.repairs_count == 1, "the read has met the damage again"
    assert found == ([0, 1, 2] if is_recalled else [1, 2])


def test_a_sync_before_the_log_is_told_that_names_made_ahead_have_failed_fails_as_well() -> None:
    disk = _InTurn()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({**SMALL.overrides, "durability": "disk"}))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"v" * 100))
    handler.sync()
    opened = handler._log
    disk.fail_next(errno.EIO)
    fail = DiskHandler.fail

    def told(one: DiskHandler, cause: OSError) -> None:
        sync_in_vain(opened)
        fail(one, cause)

    with patch.object(DiskHandler, "fail", told):
        append(handler, batch_of(b"v" * 200))  # half full: others are made ahead
    assert disk.meanwhile is None
    assert handler.read_only is not None
    recovered(manager)


class _Waiting(MemoryStorage):
    """Which names no sync has covered; what happens behind the next one that succeeds, and when a
    file of some name is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.behind: Callable[[], object] | None = None
        self.opens: tuple[str, Callable[[], object]] | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.opens is not None and path.endswith(self.opens[0]):
            (_, happens), self.opens = self.opens, None
            happens()
        if create and not self.exists(path):
            self.names.add(path)
        return super().open(path, create=create, read_only=read_only)

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self.names.clear()
        behind, self.behind = self.behind, None
        if behind is not None:
            behind()


def test_the_first_sync_of_a_log_syncs_the_names_though_another_has_made_its_manifest_durable() -> (
    None
):
    """The other began before the roll, so it has not synced the name that the roll gave."""
    disk = _Waiting()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.create_topic("t", 1, TopicConfig(SMALL.overrides))
    handler = manager.get_handler("t", 0)
    opened = handler._log
    handler._rolling._making.is_asked = handler._rolling._sealing.is_asked = (
        True  # others are in front
    )
    append(handler, batch_of(b"v" * 300))
    durable: list[bool] = []
    unsynced: set[str] = set()

    def first_sync() -> None:
        durable.append(handler.wal_checkpoint())
        unsynced.update(disk.names)

    beside = Thread(target=first_sync)
    is_begun, may_go_on = Event(), Event()
    fdatasync = MemoryFile.fdatasync

    def synced(file: MemoryFile) -> None:
        fdatasync(file)
        if current_thread() is beside and file.path == opened.paths.manifest:
            is_begun.set()
            assert may_go_on.wait(60)

    def rolled() -> None:
        append(handler, batch_of(b"v" * 300))
        beside.start()
        assert is_begun.wait(60)

    def went_on() -> None:
        may_go_on.set()
        beside.join(60)

    disk.behind, disk.opens = rolled, (".start.tmp", went_on)
    with patch.object(MemoryFile, "fdatasync", synced):
        handler.delete_records_before(1)
    assert durable == [True], "the write-ahead log lets go of what is in it"
    assert opened.paths.log(1) not in unsynced
    manager.close()


def a_manifest_is_shortened(handler: DiskHandler) -> str:
    opened = handler._log
    with patch.object(ManifestFile, "is_long", return_value=True):
        compact_manifest(opened, 1_000)
    return opened.paths.manifest


def the_producers_are_saved(handler: DiskHandler) -> str:
    handler.save_state()
    return handler._log.paths.producers


def a_log_start_is_copied(handler: DiskHandler) -> str:
    handler.delete_records_before(handler.log_start_offset + 1)
    return handler._log.paths.start


def a_segment_is_repaired(handler: DiskHandler) -> str:
    opened = handler._log
    path = opened.paths.log(0)
    if handler.repairs_count == 0:
        flip(opened.storage, path, 100)
    if not handler.mend(CorruptSegment(path, 0, "a read met it")):
        raise OSError(errno.EIO, "it was not")
    return path


def a_segment_in_doubt_is_copied(handler: DiskHandler) -> str:
    opened = handler._log
    opened.failed = opened.failed or OSError(errno.EIO, "a sync failed")
    opened.sync_failed = True
    handler._notice_failure()
    if not handler.try_recover(3_600_000 * (1 + handler.recoveries_failed)):
        raise OSError(errno.EIO, "it was not")
    return opened.active.path


@pytest.mark.parametrize(
    ("happens", "behind"),
    [
        (a_manifest_is_shortened, ".manifest"),
        (the_producers_are_saved, ".producers"),
        (a_log_start_is_copied, ".start"),
        (a_segment_is_repaired, ".log"),
        (a_segment_in_doubt_is_copied, ".log"),
    ],
)
def test_a_file_is_not_replaced_if_another_sync_of_names_failed_behind_its_name(
    happens: Callable[[DiskHandler], str], behind: str
) -> None:
    disk, manager, handler = _with_a_topic()
    for sequence in range(4):
        append(handler, batch_of(b"v" * 200, producer=(7, 0, sequence)))
    handler.sync()
    handler._rolling._seal()
    as_after_a_checkpoint(manager)
    opened = handler._log
    assert len(opened.sealed)
    assert opened.active.size
    assert opened.manifest.is_durable
    disk.fails = partial(opened.storage.fsync_dir, opened.paths.folder)
    disk.behind = behind
    with pytest.raises((OSError, StorageError)):
        happens(handler)
    assert not disk.behind, "it had its name"
    path = happens(handler)
    assert path not in disk.in_doubt
    manager.close()


class _BesideMaker(_InDoubt):
    """Who makes segments ahead syncs their names for long, and fails."""

    def __init__(self) -> None:
        super().__init__()
        self.maker: Thread | None = None
        self.begun, self.given, self.failed = Event(), Event(), Event()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = super().open(path, create=create, read_only=read_only)
        if self.begun.is_set() and create and path.endswith(".log"):
            self.given.set()
            assert self.failed.wait(60)
        return file

    def fsync_dir(self, path: str) -> None:
        if current_thread() is not self.maker:
            super().fsync_dir(path)
            return
        self.begun.set()
        self.given.wait(0.5)  # nobody gives a name meanwhile
        self.in_doubt |= self._waiting
        self.failed.set()
        raise OSError(errno.EIO, "the names are not synced", path)


def test_a_log_is_opened_again_when_nobody_makes_segments_of_it_any_more() -> None:
    disk = _BesideMaker()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.create_topic("t", 1, TopicConfig(SMALL.overrides))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"v" * 200))
    handler._rolling._making.is_asked = True
    opened = handler._log
    with opened.append_lock:
        opened.roll(1_000)
    handler._rolling._seal()
    handler.sync()
    assert not opened.active.size
    disk.maker = Thread(target=handler._rolling._make_ready)
    disk.maker.start()
    assert disk.begun.wait(60)
    opened.failed, opened.sync_failed = OSError(errno.EIO, "a sync failed"), True
    handler._notice_failure()
    for number in range(1, 10):
        if handler.try_recover(3_600_000 * number):
            break
    disk.maker.join()
    assert handler.read_only is None
    append(handler, batch_of(b"v" * 200))
    handler.sync()
    assert handler._log.active.path not in disk.in_doubt
    manager.close()


class _OnceFull(_InDoubt):
    """The sync of the partition's directory finds no space, the n-th time that it is asked for."""

    until = 0

    def fsync_dir(self, path: str) -> None:
        if path.endswith("/partition_0"):
            self.until -= 1
            if not self.until:
                self.in_doubt |= self._waiting
                raise OSError(errno.ENOSPC, "no space", path)
        super().fsync_dir(path)


@pytest.mark.parametrize("damaged", ["names", "sealed", "unsealed", "manifest", "checkpoint"])
def test_names_that_a_start_could_not_sync_for_want_of_space_are_given_anew(damaged: str) -> None:
    """It is tried again by the same process, and the write-ahead log is empty behind it."""
    whole = MemoryStorage()
    manager = DiskManager("/data", storage=whole, flushers=0)
    manager.open()
    manager.create_topic("t", 1, TopicConfig(SMALL.overrides))
    for number in range(8):
        append(manager.get_handler("t", 0), batch_of(b"%03d" % number + b"x" * 57))
    paths = manager.get_handler("t", 0)._log.paths
    if damaged == "checkpoint":
        manager.close()
    met = 0
    for until in range(1, 20):
        disk = _OnceFull()
        image = whole.after_kill()
        disk._root, disk._boot = image._root, image._boot
        match damaged:
            case "names":  # as a power cut leaves it
                for name in disk.listdir(paths.folder):
                    disk.unlink(f"{paths.folder}/{name}")
            case "sealed":
                flip(disk, paths.log(0), 100)
            case "unsealed":
                flip(disk, paths.log(2), 100)
            case "manifest":
                disk.unlink(paths.manifest)
            case _:
                disk.unlink(paths.log(2))
        disk._waiting.clear()
        disk.until = until
        manager = DiskManager("/data", storage=disk, flushers=0)
        with suppress(StorageError):
            manager.open()
        if manager._lock_file is None:
            manager.open()
        with suppress(StorageError):
            manager.get_handler("t", 0)
        handler = manager.get_handler("t", 0)
        recovered(manager)
        assert handler.log_end_offset == 8
        assert disk.doubted == [], until
        if disk.until > 0:
            break
        met += 1
    assert met, "it was met"


def test_a_manifest_that_could_not_be_synced_for_a_log_start_is_not_synced_for_the_log() -> None:
    # It is that of a new log: the first sync of its records would make it durable as well.
    driver = Driver(Plan(instead=lambda explorer: None))
    with silence():
        driver.open()
        driver.create("t", 1, durability="disk")
        driver.append("t", count=3)
        fault(driver, Fault("fdatasync", ".manifest", 0))
        with pytest.raises(StorageError, match="planned"):
            driver.delete_records("t", 0, 2)
        driver.append("t")
        for _ in range(3):
            driver.tick()
        assert driver.handler("t").read_only is None
        driver.append("t")
        driver.tick()
        driver.explorer.look_at_images()
        driver.explorer.finish()


@pytest.mark.parametrize("policy", ["readonly", "refuse"])
def test_a_mark_of_damage_whose_name_may_be_gone_is_written_again(policy: str) -> None:
    disk = _InDoubt()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
    manager.create_topic("t", 1, config)
    as_after_a_checkpoint(manager)
    handler = manager.get_handler("t", 0)
    for number in range(8):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    handler.sync()
    opened = handler._log
    path = opened.paths.log(0)
    opened.files.drop()
    flip(disk, path, 100)
    disk.behind = ".damaged"
    disk.fails = lambda: opened.storage.fsync_dir(opened.paths.folder)
    handler.mend(CorruptSegment(path, 0, "a read met it"))
    assert not disk.behind, "it was met"
    handler.mend(CorruptSegment(path, 0, "another read met it"))
    assert disk.exists(opened.paths.damaged)
    assert opened.paths.damaged not in disk.in_doubt


class _FailsBehindQuarantine(MemoryStorage):
    """The sync of the directory fails behind the first making of quarantine/ in it."""

    is_failing: bool | None = None

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        if self.is_failing is None and path.endswith("/partition_0/quarantine"):
            self.is_failing = True

    def fsync_dir(self, path: str) -> None:
        if self.is_failing and path.endswith("/partition_0"):
            self.is_failing = False
            raise OSError(errno.EIO, "the names are not synced", path)
        super().fsync_dir(path)


def test_names_that_waited_for_the_sync_behind_a_new_quarantine_are_given_anew() -> None:
    disk = _FailsBehindQuarantine()
    _, handler = with_a_name_that_waits(disk, "gap")
    active = handler._log.active
    file = disk.open(handler._log.paths.log(active.number + 1), create=True)
    file.pwrite(b"something that is no batch", 0)
    disk._locks.clear()  # it was killed
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    assert list(manager.partitions.failed_at_start) == [("t", 0)]
    with patch.object(disk, "rename", side_effect=disk.rename) as rename:
        manager.get_handler("t", 0)
    renamed = [call.args[1] for call in rename.call_args_list]
    assert active.path in renamed, "its name is given anew"
    assert disk.listdir(handler._log.paths.quarantine)


@pytest.mark.parametrize("what", ["a topic grows", "a topic is made"])
def test_what_is_made_beside_a_sync_of_names_that_fails_has_its_directories(what: str) -> None:
    # Growth:              mkdir partition_1 ............................ sync, succeeds: answered
    # What was put back:                     mkdir partition_0, sync, fails
    grows = what == "a topic grows"
    topics, topic = "/data/topics", "/data/topics/t"
    disk = Beside(topic if grows else topics)
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.create_topic("t", 1, TopicConfig())
    append(manager.get_handler("t", 0), batch_of(b"in the write-ahead log"))
    manager._give_up()
    gone = f"{topic}/partition_0" if grows else topic
    remove_tree(disk, gone)
    disk.fsync_dir(disk.directory)
    disk.faults = [Fault("mkdir", gone, 0)]
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    disk.faults = []
    disk.counts.clear()
    disk.other = lambda: manager.partitions.get_handlers([("t", 0)])
    if grows:
        manager.create_partitions("t", 2)
    else:
        manager.create_topic("u", 1, TopicConfig())
    made = f"{topic}/partition_1" if grows else f"{topics}/u/partition_0"
    for left in disk.left():
        assert any(path.startswith(made) for path in left)


def test_a_topic_made_with_one_whose_name_cannot_be_freed_outlives_a_power_cut() -> None:
    disk = RecordingStorage()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    disk.faults = [Fault("fsync_dir", "/topics/b", 0)]
    (failed,) = manager.create_topics([NewTopic("b", 1, TopicConfig())])
    assert isinstance(failed, StorageError)
    disk.faults = [Fault("fsync_dir", "/data/topics", 0)]
    disk.counts.clear()
    made = manager.create_topics([NewTopic(name, 1, TopicConfig()) for name in ("a", "b")])
    for image in Images(disk).now():
        folders = set(image.files())
        for topic in made:
            if not isinstance(topic, StorageError):
                assert f"/data/topics/{topic.name}/partition_0" in folders
    again = manager.create_topics([NewTopic(name, 1, TopicConfig()) for name in ("a", "b")])
    assert not any(isinstance(topic, StorageError) for topic in again)
    assert not any(name.startswith("~") for name in disk.listdir("/data/topics"))

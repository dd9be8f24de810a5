"""A file loses its name between the moment a reader opens it and the moment it is kept open: that
reader may finish with it, nobody else may get it."""

from collections.abc import Callable

from segbroker.protocol.record_batch import GapReason
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.errors import CorruptSegment
from segbroker.segments.log.caches import FileCache
from segbroker.segments.log.deleting import evict, unlink_doomed

from .compacted import Compacted
from .test_damage import FOLDER, manager_on, readable
from .tools import SMALL, append, batch_of, flip, offsets_in


class MeddlingStorage(MemoryStorage):
    """`meanwhile` runs once: behind the opening for reading of the file `path`, before its opener
    goes on, or in front of its renaming."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        self.meanwhile: Callable[[], object] = lambda: None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = super().open(path, create=create, read_only=read_only)
        if read_only:
            self._meddle(path)
        return file

    def rename(self, source: str, target: str) -> None:
        self._meddle(source)
        super().rename(source, target)

    def _meddle(self, path: str) -> None:
        if path == self.path:
            self.path = ""
            self.meanwhile()


def test_a_segment_that_is_cleaned_while_a_reader_opens_it_is_read_by_those_behind() -> None:
    disk = MeddlingStorage()
    log = Compacted(disk)
    for number in range(12):
        log.send((b"k%d" % (number % 5), b"%03d" % number + b"v" * 100))
    log.seal()
    rewritten = 3  # it stands for 0 to 3 afterwards
    row = log.handler.sealed_row(rewritten)
    assert row is not None
    plan = log.handler.plan_read(row.base_offset, 1)
    assert plan is not None
    log.manager.files.drop(FOLDER)
    disk.path = f"{FOLDER}/t_partition_0_segment_{rewritten}.log"
    disk.meanwhile = log.clean_sealed
    buffer = memoryview(bytearray(plan.size_max))
    assert offsets_in(buffer[: plan.read(buffer)]) == [row.base_offset], "what was planned"
    assert log.handler.sealed_numbers() == [rewritten, 4, 5]
    assert [record.offset for record in log.records()] == [7, 8, 9, 10, 11]


def test_a_topic_that_is_made_anew_is_not_read_from_a_file_of_the_deleted_one() -> None:
    disk = MeddlingStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in range(15):
        append(handler, batch_of(b"%03d old" % number + b"x" * 53))
    plan = handler.plan_read(0, 1)
    assert plan is not None
    buffer = memoryview(bytearray(plan.size_max))
    late: list[int] = []
    disk.path = "/data/topics/t"  # closed, and not yet moved out of the way
    disk.meanwhile = lambda: late.extend(offsets_in(buffer[: plan.read(buffer)]))
    manager.delete_topic("t")
    assert late == [0], "what was planned before"
    assert not len(manager.files), "nothing of it stays open"
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in range(15):
        append(handler, batch_of(b"%03d new" % number + b"x" * 53))
    assert readable(handler) == list(range(15))


def test_the_index_of_a_segment_that_is_cleaned_while_a_reader_loads_it_is_not_kept() -> None:
    disk = MeddlingStorage()
    log = Compacted(disk)
    for number in range(6):
        log.send((b"k", b"%d" % number * 100))
    log.seal()
    last = log.send((b"k", b"last"))
    log.seal()
    log.manager.indexes.drop(FOLDER)
    rewritten = log.handler.sealed_numbers()[-1]
    disk.path = f"{FOLDER}/t_partition_0_segment_{rewritten}.index"
    disk.meanwhile = log.clean_sealed
    assert [record.offset for record in log.records(last)] == [last]
    assert log.handler.sealed_numbers() == [rewritten]
    assert log.handler.repairs_count == 0


def test_a_segment_that_a_reader_opened_right_before_it_was_unlinked_does_not_stay_open() -> None:
    disk = MeddlingStorage()
    log = Compacted(disk, cleanup_policy="compact,delete")
    for number in range(12):
        log.send((b"k%d" % number, b"%03d" % number + b"v" * 100))
    log.seal()
    plan = log.handler.plan_read(0, 1)
    assert plan is not None
    evict(log.handler._log, 1, GapReason.TTL)
    log.manager.files.drop(FOLDER)
    buffer = memoryview(bytearray(plan.size_max))
    assert offsets_in(buffer[: plan.read(buffer)]) == [0], "what was planned before"
    unlink_doomed(log.handler._log)
    assert log.manager.files.pin_nowait((FOLDER, 0)) is None
    assert len(log.manager.files) == 1, "the one behind it, which was made ready"


def test_what_is_left_of_a_deleted_topic_takes_no_file_of_another_of_its_name() -> None:
    disk = MemoryStorage()
    log = Compacted(disk, cleanup_policy="delete", durability="disk")
    for number in range(12):
        log.send((b"k", b"%03d" % number + b"v" * 100))
    log.seal()
    deleted = log.handler._log
    evict(deleted, 2, GapReason.TTL)
    log.manager.delete_topic("t")
    log.manager.create_topic("t", 1, log.config)
    log.send((b"k", b"new"))
    unlink_doomed(deleted)  # as the house keeper does, behind `evict`
    log.manager = DiskManager("/data", storage=disk.after_kill(), flushers=0, now_ms=log.now_ms)
    log.manager.open()
    assert [record.value for record in log.records()] == [b"new"]


def test_what_is_open_of_a_log_is_found_when_it_is_closed_whatever_went_before() -> None:
    disk = MemoryStorage()
    cache = FileCache(3)
    kept = [disk.open(f"/{number}", create=True) for number in range(6)]
    for number, file in enumerate(kept[:4]):
        cache.adopt(("a" if number % 2 else "b", number), file)  # the limit takes b's first
    assert cache.pin(("b", 4), lambda: kept[4]) is kept[4]  # and a's first
    cache.adopt(("b", 4), kept[5])  # it is open already
    assert [file._closed for file in kept] == [True, True, False, False, False, True]
    cache.drop("a", range(3))
    cache.drop("b")
    assert [file._closed for file in kept[2:5]] == [True, False, False], "one is pinned"
    cache.unpin(("b", 4), kept[4])
    cache.drop("a")
    assert (len(cache), all(file._closed for file in kept)) == (0, True)


class SlowStorage(MemoryStorage):
    """To close a file may take long: its space is given back. `on_close` is told of each."""

    def __init__(self) -> None:
        super().__init__()
        self.on_close: Callable[[str], object] = lambda path: None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _SlowFile(path, plain._inode, self)
        file.owner = self
        return file


class _SlowFile(MemoryFile):
    owner: SlowStorage

    def close(self) -> None:
        self.owner.on_close(self.path)
        super().close()


def test_nobody_who_reads_waits_until_a_file_that_was_replaced_is_closed() -> None:
    disk = SlowStorage()
    log = Compacted(disk)
    for number in range(12):
        log.send((b"k%d" % (number % 5), b"%03d" % number + b"v" * 100))
    log.seal()
    path = f"{FOLDER}/t_partition_0_segment_3.log"
    waits: dict[str, list[bool]] = {"cleaned": [], "repaired": []}

    def note(what: str) -> Callable[[str], object]:
        lock = log.handler._log.state_lock
        return lambda closed: waits[what].append(lock.locked()) if closed == path else None

    log.records()  # every file is open from now on
    disk.on_close = note("cleaned")
    log.clean_sealed()
    log.records()
    disk.on_close = note("repaired")
    flip(disk, path, 70)
    assert log.handler.mend(CorruptSegment(path, 0, "so it was found"))
    assert all(waits.values()), "there were some to close"
    assert not any(waits["cleaned"] + waits["repaired"])

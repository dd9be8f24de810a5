"""A process that has few descriptors: what is unused gives its own back, what is not begun is not
broken, and what is written at once comes in turn."""

import errno
import threading
import time
from contextlib import suppress
from queue import SimpleQueue

import pytest

from segbroker.segments import background
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.relief import LOOKS_EVERY
from segbroker.segments.directory.unopened import PEEKS_MAX
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.relieving import NoDescriptor, RelievingStorage
from segbroker.segments.errors import (
    CorruptSegment,
    DiskFull,
    PartitionDamaged,
    PartitionReadOnly,
    StorageError,
)
from segbroker.segments.log.caches import GIVEN_AT_ONCE, LOOKS_MAX, OpenLogs
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .test_damage import flipped
from .tools import SMALL, append, batch_of, offsets_in, read_from
from .wal_writing import until

PARTITIONS = 40
NOW_MS = 1_700_000_000_000


class FewDescriptors(MemoryStorage):
    """No more than `limit` files are open at once."""

    @property
    def file_type(self) -> "type[_File]":
        return _File

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.open_count = 0
        self.greatest = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.open_count >= self.limit:
            raise OSError(errno.EMFILE, "Too many open files", path)
        plain = super().open(path, create=create, read_only=read_only)
        file = self.file_type(path, plain._inode, self)
        file.owner = self
        self.open_count += 1
        self.greatest = max(self.greatest, self.open_count)
        return file


class _File(MemoryFile):
    owner: FewDescriptors
    is_counted = True

    def close(self) -> None:
        if self.is_counted:
            self.is_counted = False
            self.owner.open_count -= 1
        super().close()


def managed(disk: FewDescriptors, config: TopicConfig = SMALL) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=NOW_MS)
    manager.open()
    if "t" not in manager.topics:
        manager.create_topic("t", PARTITIONS, config)
    return manager


@pytest.mark.parametrize("most", [None, 8])
def test_more_partitions_than_descriptors_are_written_one_after_the_other(most: int | None) -> None:
    disk = FewDescriptors(24)
    manager = managed(disk)
    manager.limit_open(files_max=4, logs_max=4096 if most is None else 4, logs_most=most)
    for n in range(PARTITIONS):
        append(manager.get_handler("t", n), batch_of(b"%d" % n))
        manager.get_handler("t", n).sync()
    for n in range(PARTITIONS):
        assert append(manager.get_handler("t", n), batch_of(b"again")).base_offset == 1
        manager.get_handler("t", n).sync()
        assert offsets_in(read_from(manager.get_handler("t", n), 0)) == [0, 1]
    if most is not None:
        assert len(manager.open_logs) <= most
        assert disk.greatest <= most + 6  # the write-ahead log's, and one that is read or written
    manager.close()
    assert not disk.open_count
    manager = managed(disk)
    assert [manager.get_handler("t", n).log_end_offset for n in range(PARTITIONS)] == [
        2
    ] * PARTITIONS
    manager.close()


def test_a_write_that_finds_no_descriptor_is_not_begun_and_the_next_one_is() -> None:
    disk = FewDescriptors(1000)
    manager = managed(disk, TopicConfig({**SMALL.overrides, "durability": "memory"}))
    handlers = [manager.get_handler("t", n) for n in range(PARTITIONS)]
    manager.limit_open(files_max=4, logs_max=4, logs_most=8)
    manager.keep_house_now(NOW_MS + 1_000)  # all are parked
    written, refused = [], []
    for handler in handlers:
        try:
            append(handler, batch_of(b"v", producer=(7, 0, 0)))
            written.append(handler)
        except DiskFull:
            refused.append(handler)
    assert (len(written), len(refused)) == (8, PARTITIONS - 8)
    assert not any(handler.read_only for handler in handlers)
    assert [handler.log_end_offset for handler in refused] == [0] * len(refused)
    for _ in range(PARTITIONS // 4):  # as their producers come again
        manager.keep_house_now(NOW_MS + 2_000)
        for handler in refused[:4]:
            assert append(handler, batch_of(b"v", producer=(7, 0, 0))).base_offset == 0
        del refused[:4]
    manager.close()


class _Log:
    """A log that can park whenever it is asked to."""

    recently_used = True

    def park(self) -> bool:
        return True


def test_where_every_log_was_used_just_now_somebody_gives_a_descriptor_all_the_same() -> None:
    open_logs = OpenLogs()
    for _ in range(3 * LOOKS_MAX):
        open_logs.add(_Log())
    assert open_logs.park_some() == GIVEN_AT_ONCE
    assert len(open_logs) == 3 * LOOKS_MAX - GIVEN_AT_ONCE


def test_a_roll_that_finds_no_descriptor_leaves_the_segment_as_it_is() -> None:
    disk = FewDescriptors(1000)
    manager = managed(disk)
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"a" * 200))
    handler._log.ready.park()
    disk.limit = disk.open_count
    with pytest.raises(DiskFull, match="Too many open files"):
        append(handler, batch_of(b"b" * 400))
    assert handler.read_only is None
    disk.limit = 1000
    assert append(handler, batch_of(b"b" * 400)).base_offset == 1
    assert offsets_in(read_from(handler, 0)) == [0, 1]
    manager.close()


def test_a_segment_that_is_made_ahead_late_can_be_closed_like_the_others() -> None:
    disk = FewDescriptors(1000)
    manager = managed(disk)
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"a" * 200))
    handler.sync()
    assert manager.relief.park()
    count = disk.open_count
    handler._rolling._make_ready()  # as the maker does that was asked before, and had others first
    assert disk.open_count == count + 1
    assert manager.relief.park()
    assert disk.open_count == count
    manager.close()


def test_what_nothing_can_be_closed_for_is_told_as_such() -> None:
    disk = FewDescriptors(1)
    given: list[MemoryFile] = [disk.open("/held", create=True)]

    def relief() -> bool:
        if given:
            given.pop().close()
            return True
        return False

    storage = RelievingStorage(disk, relief)
    storage.open("/x", create=True)
    with pytest.raises(NoDescriptor, match="Too many open files: '/y'") as told:
        storage.open("/y", create=True)
    assert told.value.errno == errno.EMFILE
    with pytest.raises(FileNotFoundError):
        storage.listdir("/none")


def test_a_sealed_file_that_is_closed_lets_no_more_partitions_be_written_than_there_may_be() -> (
    None
):
    disk = FewDescriptors(1000)
    settings = {**SMALL.overrides, "durability": "memory", "retention.ms": "-1"}
    manager = managed(disk, TopicConfig(settings))
    full = manager.get_handler("t", 0)
    for _ in range(4):
        append(full, batch_of(b"a" * 300))
    for n in range(1, PARTITIONS):
        manager.get_handler("t", n)
    manager.limit_open(files_max=4, logs_max=4, logs_most=8)
    manager.keep_house_now(NOW_MS + 1_000)  # all are parked
    for n in range(1, PARTITIONS):
        assert offsets_in(read_from(full, 0, 1)) == [0], "a sealed segment is open again"
        try:
            append(manager.get_handler("t", n), batch_of(b"v"))
        except DiskFull:
            assert len(manager.open_logs) == 8
    assert len(manager.open_logs) == 8
    manager.close()


def test_what_is_due_in_a_partition_that_nobody_opens_is_due_after_the_want_of_a_descriptor() -> (
    None
):
    disk = FewDescriptors(1000)
    manager = managed(disk, TopicConfig({**SMALL.overrides, "retention.ms": "3600000"}))
    for _ in range(4):
        append(manager.get_handler("t", 0), batch_of(b"v" * 300, now_ms=NOW_MS), NOW_MS)
    manager.close()
    manager = managed(disk)
    disk.limit = disk.open_count
    manager.keep_house_now(NOW_MS + 7_200_000)
    disk.limit = 1000
    assert manager.handler_if_open("t", 0) is None
    for _ in range(2 * PARTITIONS // PEEKS_MAX):
        manager.keep_house_now(NOW_MS + 7_200_000)
    assert manager.get_handler("t", 0).log_start_offset == 4
    manager.close()


class HeldDescriptors(FewDescriptors):
    """Its manifests are opened when `go` is set, and there is no descriptor for them."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.is_held = False
        self.began, self.go = threading.Event(), threading.Event()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.is_held and path.endswith(".manifest"):
            self.began.set()
            assert self.go.wait(60)
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, create=create, read_only=read_only)


def test_a_sync_without_a_descriptor_does_not_wait_for_itself_while_the_broker_stops() -> None:
    disk = HeldDescriptors()
    others = set(threading.enumerate())
    manager = DiskManager("/data", storage=disk, flushers=1, now_ms=NOW_MS)
    manager.open()
    (writer,) = (one for one in set(threading.enumerate()) - others if one.name == "wal-0")
    manager.create_topic("t", 1, TopicConfig({**SMALL.overrides, "durability": "disk"}))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"v"))
    disk.is_held = True
    handler._flushers.request(handler)
    assert disk.began.wait(60)
    stopping = threading.Thread(target=manager.close, daemon=True)
    stopping.start()
    writer.join(60)
    assert not writer.is_alive(), "nobody keeps house any more"
    disk.is_held = False  # the others find one
    disk.go.set()
    stopping.join(60)
    assert not stopping.is_alive()
    again = DiskManager("/data", storage=disk.after_kill(), flushers=0, now_ms=NOW_MS)
    again.open()
    assert again.get_handler("t", 0).log_end_offset == 1
    again.close()


class SlowDisk(FewDescriptors):
    """Segments are synced when `go` is set."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.go = threading.Event()
        self.go.set()

    @property
    def file_type(self) -> type[_File]:
        return _SlowFile


class _SlowFile(_File):
    def fdatasync(self) -> None:
        assert isinstance(self.owner, SlowDisk)
        if "_segment_" in self.path:
            assert self.owner.go.wait(60)
        super().fdatasync()


def test_a_burst_that_is_faster_than_the_disk_is_refused_for_a_moment_and_goes_on() -> None:
    disk = SlowDisk()
    manager = DiskManager("/data", storage=disk, flushers=1, now_ms=NOW_MS)
    manager.open()
    manager.limit_open(files_max=4, logs_max=12, logs_most=24)
    settings = {**SMALL.overrides, "durability": "disk", "retention.ms": "-1"}
    manager.create_topic("t", 1, TopicConfig(settings))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"v"))
    disk.limit = disk.open_count + 24 + 16
    disk.go.clear()
    count = 1
    refused = None
    while refused is None and count < 200:
        try:
            append(handler, batch_of(b"v" * 300))
            count += 1
        except DiskFull as exc:
            refused = exc
    assert "23 full segments wait to be synced" in str(refused)
    assert handler.read_only is None
    disk.go.set()
    deadline = time.monotonic() + 60
    while count < 200:  # as the producer does
        try:
            append(handler, batch_of(b"v" * 300))
            count += 1
        except DiskFull:
            assert handler.read_only is None
            assert time.monotonic() < deadline
            manager.keep_house_now(NOW_MS)
    while handler.high_watermark < 200 and time.monotonic() < deadline:
        manager.keep_house_now(NOW_MS)
    got: list[int] = []
    while len(got) < 200:
        got += offsets_in(read_from(handler, len(got)))
    assert got == list(range(200))
    manager.close()
    assert not manager.open_logs.full_count
    assert not disk.open_count


def all_parked(disk: FewDescriptors) -> tuple[DiskManager, list[DiskHandler]]:
    """PARTITIONS logs, of which eight may be open at once; none is."""
    manager = DiskManager("/data", storage=disk, flushers=1, now_ms=NOW_MS)
    manager.open()
    settings = {**SMALL.overrides, "durability": "memory"}
    manager.create_topic("t", PARTITIONS, TopicConfig(settings))
    handlers = [manager.get_handler("t", n) for n in range(PARTITIONS)]
    manager.limit_open(files_max=4, logs_max=4, logs_most=8)
    manager.keep_house_now(NOW_MS + 1_000)  # all are parked
    return manager, handlers


def test_what_is_synced_for_others_parks_at_once_and_they_look_for_it_seldom() -> None:
    disk = SlowDisk()
    manager, handlers = all_parked(disk)
    looks = 0
    park_some = manager.open_logs.park_some

    def counted() -> int:
        nonlocal looks
        looks += 1
        return park_some()

    manager.open_logs.park_some = counted  # type: ignore[method-assign]  # nobody else counts them
    disk.go.clear()
    for handler in handlers[:8]:
        append(handler, batch_of(b"v"))
    refused = 20 * LOOKS_EVERY
    for _ in range(refused // (PARTITIONS - 8)):
        for handler in handlers[8:]:
            with pytest.raises(DiskFull, match="8 partitions are being written"):
                append(handler, batch_of(b"v"))
    assert looks <= refused // LOOKS_EVERY + 1
    disk.go.set()
    waiting = handlers[8:]
    deadline = time.monotonic() + 60
    while waiting and time.monotonic() < deadline:  # as their producers come again
        with suppress(DiskFull):
            assert append(waiting[0], batch_of(b"v")).base_offset == 0
            del waiting[0]
    assert not waiting
    assert len(manager.open_logs) <= 8
    manager.close()


class OneIsSlow(SlowDisk):
    """Only what the first partition has written is synced when `go` is set."""

    @property
    def file_type(self) -> type[_File]:
        return _OneIsSlow


class _OneIsSlow(_SlowFile):
    def fdatasync(self) -> None:
        if "partition_0_" in self.path:
            super().fdatasync()
        else:
            _File.fdatasync(self)


def test_reads_are_served_while_one_of_the_syncs_that_make_room_does_not_end() -> None:
    disk = OneIsSlow()
    manager = DiskManager("/data", storage=disk, flushers=1, now_ms=NOW_MS)
    manager.open()
    settings = {**SMALL.overrides, "durability": "memory", "retention.ms": "-1"}
    manager.create_topic("t", PARTITIONS, TopicConfig(settings))
    handlers = [manager.get_handler("t", n) for n in range(PARTITIONS)]
    for handler in handlers:
        append(handler, batch_of(b"v"), NOW_MS)
        handler.sync()
    until(lambda: all(handler.high_watermark == 1 for handler in handlers))
    manager.limit_open(files_max=4, logs_max=4, logs_most=8)
    manager.keep_house_now(NOW_MS + 1_000)
    disk.go.clear()
    for handler in handlers[:8]:
        append(handler, batch_of(b"v"), NOW_MS)
    with pytest.raises(DiskFull, match="8 partitions are being written"):
        append(handlers[8], batch_of(b"v"), NOW_MS)
    until(lambda: all(handler._log.active.file is None for handler in handlers[1:8]))
    for handler in handlers[8:]:  # more than there are descriptors for
        assert offsets_in(read_from(handler, 0)) == [0]
    assert handlers[0].has_unsynced
    disk.go.set()
    manager.close()


def test_syncs_that_could_not_be_asked_for_to_make_room_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = 0

    class Queue(SimpleQueue[object]):
        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            nonlocal refused
            if getattr(item, "__qualname__", "") == "Relief._sync_soon" and not refused:
                refused += 1
                raise MemoryError
            super().put(item, block, timeout)

    monkeypatch.setattr(background, "SimpleQueue", Queue)
    disk = FewDescriptors(1000)
    manager, handlers = all_parked(disk)
    for handler in handlers[:8]:
        append(handler, batch_of(b"v"))
    with pytest.raises(PartitionReadOnly, match="MemoryError"):
        append(handlers[8], batch_of(b"v"))
    assert refused

    def finds_room() -> bool:
        with suppress(DiskFull):
            append(handlers[9], batch_of(b"v"))
        return handlers[9].log_end_offset == 1

    until(finds_room)
    manager.close()


def test_a_full_segment_that_finds_no_descriptor_for_its_index_is_sealed_later() -> None:
    disk = FewDescriptors(1000)
    manager = managed(disk, TopicConfig({**SMALL.overrides, "retention.ms": "-1"}))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"a" * 300))
    handler.sync()
    assert len(handler._log.ready), "the roll needs no descriptor"
    disk.limit = disk.open_count
    append(handler, batch_of(b"b" * 300))
    assert (handler.read_only, len(handler._log.rotating)) == (None, 1)
    disk.limit = 1000
    manager.keep_house_now(NOW_MS)
    assert not handler._log.rotating
    assert offsets_in(read_from(handler, 0)) == [0, 1]
    manager.close()


def test_a_sync_that_finds_no_descriptor_is_none_that_failed() -> None:
    disk = FewDescriptors(1000)
    manager = managed(disk, TopicConfig({**SMALL.overrides, "durability": "disk"}))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"v"))
    disk.limit = disk.open_count
    with pytest.raises(DiskFull, match="Too many open files"):
        handler.sync()
    assert not handler.wal_checkpoint(), "the WAL keeps what it has"
    handler.flush()
    assert handler.read_only is None
    disk.limit = 1000
    manager.keep_house_now(NOW_MS)
    assert not handler.has_unsynced, "the tick has synced it"
    manager.close()


class NoIndexes(FewDescriptors):
    """Indexes cannot be opened while there is an `error`."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.error = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.error and path.endswith(".index"):
            raise OSError(self.error, "no index can be opened", path)
        return super().open(path, create=create, read_only=read_only)


def test_full_segments_of_a_log_that_could_not_be_opened_do_not_count() -> None:
    disk = NoIndexes()
    config = TopicConfig({**SMALL.overrides, "durability": "memory", "retention.ms": "-1"})
    manager = managed(disk, config)
    disk.error = errno.EMFILE
    for _ in range(5):
        append(manager.get_handler("t", 0), batch_of(b"v" * 300))
    manager.get_handler("t", 0).sync()
    assert manager.open_logs.full_count == 4
    found = NoIndexes()
    found._root = disk.after_kill()._root
    again = managed(found)
    found.error = errno.ENOSPC
    for _ in range(3):
        with pytest.raises(StorageError, match="no index can be opened"):
            again.get_handler("t", 0)
        assert again.open_logs.full_count == 0
    found.error = 0
    assert again.get_handler("t", 0).log_end_offset == 5
    again.close()
    assert not again.open_logs.full_count
    assert not found.open_count


def test_what_a_checkpoint_synced_in_place_of_a_flusher_is_acknowledged_on_the_tick() -> None:
    disk = FewDescriptors(1000)
    manager = managed(disk, TopicConfig({"durability": "fsync", "retention.ms": "-1"}))
    handler = manager.get_handler("t", 0)
    disk.limit = disk.open_count
    large = batch_of(b"v" * manager.wal.config.batch_bytes_max, now_ms=NOW_MS)
    append(handler, large, NOW_MS)
    assert handler.high_watermark == 0, "the flusher found no descriptor"
    disk.limit = 1000
    assert handler.wal_checkpoint()
    manager.keep_house_now(NOW_MS)
    assert handler.high_watermark == 1
    manager.close()


def test_full_segments_of_a_partition_that_waits_for_its_operator_are_sealed_all_the_same() -> None:
    disk = NoIndexes()
    settings = {**SMALL.overrides, "durability": "disk", "retention.ms": "-1"}
    manager = managed(disk, TopicConfig({**settings, "on.corruption": "readonly"}))
    manager.limit_open(files_max=4, logs_max=12, logs_most=24)
    handler = manager.get_handler("t", 0)
    for _ in range(3):
        append(handler, batch_of(b"v" * 300))
    path = handler._log.paths.log(0)
    disk.error = errno.EMFILE
    for _ in range(23):
        append(handler, batch_of(b"v" * 300))
    with pytest.raises(DiskFull, match="23 full segments wait to be synced"):
        append(handler, batch_of(b"v" * 300))
    flipped(disk, path, 100)
    assert handler.mend(CorruptSegment(path, 0, "what a read has found"))
    assert isinstance(handler.read_only, PartitionDamaged)
    disk.error = 0
    manager.keep_house_now(NOW_MS)
    assert not manager.open_logs.full_count
    append(manager.get_handler("t", 1), batch_of(b"v"))
    manager.close()


class BrokenFolder(NoIndexes):
    """Nothing in the directory of partition 0 can be opened or synced while it `is_broken`."""

    is_broken = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        self._check(path)
        return super().open(path, create=create, read_only=read_only)

    def fsync_dir(self, path: str) -> None:
        self._check(path + "/")
        super().fsync_dir(path)

    def _check(self, path: str) -> None:
        if self.is_broken and "/partition_0/" in path:
            raise OSError(errno.EIO, "a broken disk", path)


def test_a_partition_that_cannot_be_opened_again_keeps_no_descriptors_from_others() -> None:
    disk = BrokenFolder()
    config = TopicConfig({**SMALL.overrides, "durability": "disk", "retention.ms": "-1"})
    manager = managed(disk, config)
    manager.limit_open(files_max=4, logs_max=12, logs_most=24)
    handler = manager.get_handler("t", 0)
    disk.error = errno.EMFILE
    for _ in range(24):
        append(handler, batch_of(b"v" * 300))
    assert manager.open_logs.full_count == 23
    before, disk.error, disk.is_broken = disk.open_count, 0, True
    for second in range(1, 10):
        manager.keep_house_now(NOW_MS + second * 1_000)
    assert handler.read_only is not None
    assert manager.open_logs.full_count == 0
    assert disk.open_count <= before - 23
    for n in range(3):
        assert append(manager.get_handler("t", 1), batch_of(b"v" * 300)).base_offset == n
    disk.is_broken = False
    for second in range(100, 300, 5):
        manager.keep_house_now(NOW_MS + second * 1_000)
    assert append(handler, batch_of(b"v" * 300)).base_offset == 24
    assert len(offsets_in(read_from(handler, 0))) == 25
    manager.close()
    assert not manager.open_logs.full_count
    assert not disk.open_count

"""The scrub: what it finds, what it leaves alone, and how fast it goes."""

import errno
from pathlib import Path

import pytest

from segbroker.segments.directory import scrubbing
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.scrubbing import LOOK_SIZE, Scrubber
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.posix import PosixFile, PosixStorage
from segbroker.segments.disk.storage import PAGE, Advice, Storage, read_file, write_all
from segbroker.segments.names import LogPaths
from segbroker.segments.recovery.known import Known, read_known
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import SMALL, append, batch_of, flip

DAY_MS = 86_400_000


def folder(partition: int) -> str:
    return f"/data/topics/t/partition_{partition}"


def log_path(partition: int, number: int) -> str:
    return f"{folder(partition)}/t_partition_{partition}_segment_{number}.log"


def closed_disk(partitions: int = 2, config: TopicConfig = SMALL) -> MemoryStorage:
    """A data directory of 15 records per partition, three to a segment."""
    disk = MemoryStorage()
    with DiskManager("/data", storage=disk, flushers=0, now_ms=1_000) as manager:
        manager.create_topic("t", partitions, config)
        for partition in range(partitions):
            handler = manager.get_handler("t", partition)
            for number in range(15):
                append(handler, batch_of(b"%03d" % number + b"x" * 57))
    return disk


def scrubbed(disk: MemoryStorage) -> tuple[DiskManager, Scrubber]:
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    scrubber = Scrubber(manager, 1 << 30, DAY_MS)
    scrubber.step(1_000)
    assert not scrubber.is_running
    return manager, scrubber


def test_a_whole_directory_is_read_and_nothing_is_opened_or_written() -> None:
    disk = closed_disk()
    manager, scrubber = scrubbed(disk)
    assert manager.handlers == {}
    found = scrubber.statistics
    assert (found.passes, found.segments, found.errors) == (1, 8, 0)
    assert found.bytes == sum(
        disk.open(log_path(partition, number)).size() for partition in (0, 1) for number in range(4)
    )
    assert found.last_pass_ended_ms == 1_000


def test_damage_is_repaired_before_anybody_reads_it() -> None:
    disk = closed_disk()
    flip(disk, log_path(1, 2), 100)
    disk.unlink(log_path(0, 3))
    manager, scrubber = scrubbed(disk)
    assert scrubber.statistics.errors == 2
    rows = [row for row in manager.report.rows if row.what == "gap"]
    assert [(row.topic, row.partition, row.from_offset, row.to_offset) for row in rows] == [
        ("t", 0, 9, 12),
        ("t", 1, 6, 7),
    ]
    manager.close()
    assert scrubbed(disk)[1].statistics.errors == 0


def test_what_is_damaged_and_cannot_be_opened_is_left_to_who_tells_of_it() -> None:
    disk = closed_disk(1, TopicConfig({**SMALL.overrides, "on.corruption": "refuse"}))
    flip(disk, log_path(0, 1), 100)
    flip(disk, log_path(0, 4), 100)  # found by whoever opens it
    manager, _ = scrubbed(disk)
    assert not manager.handlers
    assert list(manager.partitions.failed_since) == [("t", 0)]


class BadSectorStorage(MemoryStorage):
    """One file of it cannot be read."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.bad = path

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if path == self.bad and read_only:
            raise OSError(errno.EIO, "a bad sector", path)
        return super().open(path, create=create, read_only=read_only)


def test_behind_a_segment_that_cannot_be_read_damage_is_found_all_the_same() -> None:
    disk = BadSectorStorage(log_path(0, 1))
    disk._root = closed_disk(1).after_kill()._root
    flip(disk, log_path(0, 2), 100)
    manager, scrubber = scrubbed(disk)
    assert (scrubber.statistics.segments, scrubber.statistics.errors) == (4, 2)
    rows = [row for row in manager.report.rows if row.what == "gap"]
    assert [(row.from_offset, row.to_offset) for row in rows] == [(6, 7)]
    assert manager.get_handler("t", 0).scrubbed_ms == -1


@pytest.mark.parametrize("how", ["missing", "torn", "zeros", "damaged", "of another segment"])
def test_an_index_is_made_again(how: str) -> None:
    disk = closed_disk(1)
    path = log_path(0, 1).replace(".log", ".index")
    whole = bytes(read_file(disk, path))
    if how == "missing":
        disk.unlink(path)
    elif how == "torn":
        disk.open(path).truncate(0)
    elif how == "zeros":
        write_all(disk.open(path), bytes(len(whole)), 0)
    elif how == "damaged":
        flip(disk, path, 60)
    else:
        other = read_file(disk, log_path(0, 2).replace(".log", ".index"))
        write_all(disk.open(path), other, 0)
    manager, scrubber = scrubbed(disk)
    # An index is not synced: what a power cut may leave is no damage of the disk.
    assert scrubber.statistics.errors == (how in ("damaged", "of another segment"))
    assert manager.report.summary() == {
        "index_rebuilt": 1,
        "offsets_lost": 0,
        "offsets_lost_at_most": 0,
    }
    assert read_file(disk, path)[32:] == whole[32:]


@pytest.mark.parametrize("how", ["cut at a page", "zeros", "cut within a page", "whole pages"])
def test_an_index_of_several_pages_is_torn_by_the_page(how: str) -> None:
    disk = MemoryStorage()
    records = "255" if how == "whole pages" else "300"
    config = TopicConfig(
        {"segment.bytes": "2000000", "segment.records": records, "index.interval.bytes": "4096"}
    )
    with DiskManager("/data", storage=disk, flushers=0, now_ms=1_000) as manager:
        manager.create_topic("t", 1, config)
        for _ in range(301):
            append(manager.get_handler("t", 0), batch_of(b"x" * 4_200))
    path = log_path(0, 0).replace(".log", ".index")
    whole = bytes(read_file(disk, path))
    assert (len(whole) == 2 * PAGE) == (how == "whole pages")
    if how == "zeros":
        write_all(disk.open(path), bytes(PAGE), PAGE)
    elif how == "whole pages":
        flip(disk, path, 9)
    else:
        disk.open(path).truncate(2 * PAGE - 32 * (how == "cut within a page"))
    _, scrubber = scrubbed(disk)
    assert scrubber.statistics.errors == (how in ("cut within a page", "whole pages"))
    assert read_file(disk, path)[32:] == whole[32:]


def test_an_open_partition_is_scrubbed_as_it_is_now() -> None:
    disk = closed_disk(1)
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    handler = manager.get_handler("t", 0)
    for _ in range(6):
        append(handler, batch_of(b"more" + b"x" * 57))
    scrubber = Scrubber(manager, 1 << 30, DAY_MS)
    scrubber.step(1_000)
    assert scrubber.statistics.segments == len(handler.sealed_numbers()) > 4
    assert handler.scrubbed_ms == 1_000


def test_the_scrub_keeps_its_rate_and_rests_between_passes() -> None:
    disk = closed_disk()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    scrubber = Scrubber(manager, 500, DAY_MS)
    total = 0
    for second in range(1, 200):
        total += scrubber.step(1_000 * second)
        assert total <= 500 * second + 512  # a read is done whole
        if not scrubber.is_running:
            break
    assert scrubber.statistics.passes == 1
    assert total == scrubber.statistics.bytes > 2_000
    assert scrubber.step(1_000 * 200) == 0
    assert scrubber.step(DAY_MS) == 0
    assert not scrubber.is_running
    scrubber.step(DAY_MS + 2_000)
    assert scrubber.is_running


def test_after_a_pause_there_is_no_burst() -> None:
    manager = DiskManager("/data", storage=closed_disk(), flushers=0, now_ms=1_000)
    manager.open()
    scrubber = Scrubber(manager, LOOK_SIZE, DAY_MS)
    scrubber.step(1_000)
    assert scrubber.step(3_600_000) > 0
    assert scrubber.statistics.segments <= 2  # two seconds at that rate


def test_small_segments_are_read_no_faster_than_the_processor_is_to_be_used_for_them() -> None:
    disk = MemoryStorage()
    with DiskManager("/data", storage=disk, flushers=0, now_ms=1_000) as manager:
        manager.create_topic("t", 1, TopicConfig({"segment.records": "1"}))
        for _ in range(60):
            append(manager.get_handler("t", 0), batch_of(b"v"))
        for is_open in (True, False):
            scrubber = Scrubber(manager, 10 * LOOK_SIZE, DAY_MS)
            for second in range(1, 60):
                scrubber.step(1_000 * second)
                assert scrubber.statistics.segments <= 10 * second
                if not scrubber.is_running:
                    break
            assert scrubber.statistics.passes == 1
            assert scrubber.statistics.segments > 50
            if is_open:
                manager.close()
                manager.open()
                assert not manager.handlers


def test_partitions_without_a_sealed_segment_are_passed_over_at_its_rate_and_not_after_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryStorage()
    with DiskManager("/data", storage=disk, flushers=0, now_ms=1_000) as manager:
        manager.create_topic("t", 100, SMALL)
        for partition in range(100):
            append(manager.get_handler("t", partition), batch_of(b"v"))
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    scrubber = Scrubber(manager, 40_000, DAY_MS)
    looks: list[str] = []

    def read(storage: Storage, paths: LogPaths) -> Known | None:
        looks.append(paths.folder)
        if len(looks) == 50:
            scrubber.stop()
        return read_known(storage, paths)

    monkeypatch.setattr(scrubbing, "read_known", read)
    scrubber.step(1_000)
    assert 0 < len(looks) <= 12
    for second in range(2, 60):
        scrubber.step(1_000 * second)
    assert len(looks) == 50


def test_a_topic_deleted_in_the_middle_of_a_pass_is_passed_over() -> None:
    manager = DiskManager("/data", storage=closed_disk(), flushers=0, now_ms=1_000)
    manager.open()
    scrubber = Scrubber(manager, LOOK_SIZE, DAY_MS)
    scrubber.step(1_000)
    manager.delete_topic("t")
    for second in range(2, 20):
        scrubber.step(1_000 * second)
    assert scrubber.statistics.passes == 1
    assert manager.handlers == {}


class AdvisedFile(PosixFile):
    """Says that nothing is cached, and notes what it is advised."""

    cached = False
    advised: list[tuple[str, Advice]]

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        return super().pread(buffer, position) if self.cached else None

    def advise(self, advice: Advice) -> None:
        self.advised.append((self.path, advice))


class AdvisedStorage(PosixStorage):
    def __init__(self) -> None:
        super().__init__()
        self.advised: list[tuple[str, Advice]] = []
        self.cached = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> AdvisedFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = AdvisedFile(path, plain._fd, self._platform)
        file.advised, file.cached = self.advised, self.cached
        return file


@pytest.mark.parametrize("cached", [True, False])
def test_what_was_not_cached_before_is_not_cached_afterwards(tmp_path: Path, cached: bool) -> None:
    storage = AdvisedStorage()
    with DiskManager(str(tmp_path), storage=storage, flushers=0, now_ms=1_000) as manager:
        manager.create_topic("t", 1, SMALL)
        handler = manager.get_handler("t", 0)
        for _ in range(6):
            append(handler, batch_of(b"x" * 60))
        storage.advised.clear()
        storage.cached = cached
        scrubber = Scrubber(manager, 1 << 30, DAY_MS)
        scrubber.step(1_000)
        assert scrubber.statistics.segments == 1
        advised = [advice for _, advice in storage.advised]
        assert advised == ([] if cached else [Advice.DONT_NEED])


def test_a_file_handle_of_the_scrub_is_closed_in_every_case() -> None:
    opened: list[MemoryFile] = []

    class Watching(MemoryStorage):
        def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
            file = super().open(path, create=create, read_only=read_only)
            opened.append(file)
            return file

    disk = Watching()
    disk._root = closed_disk()._root
    flip(disk, log_path(1, 2), 100)
    manager, _ = scrubbed(disk)
    manager.close()
    assert all(file._closed for file in opened if not file.path.endswith("LOCK"))

"""A disk that does not give some files (EIO): verify says which, and checks the rest; a start does
without them where it can."""

import errno

import pytest

from segbroker.protocol.markers import Outcome, encode_marker
from segbroker.protocol.record_batch import encode_batch, read_header
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.checks.findings import Finding
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import replace_file
from segbroker.segments.errors import StorageError
from segbroker.segments.names import partition_paths
from segbroker.segments.settings.topic_config import TopicConfig

from .test_restoring import manager_on, rows, seen
from .tools import SMALL, append, batch_of, flip, lose_wal, offsets_in, read_once

PATHS = partition_paths("/data", "t", 0)
OTHER = partition_paths("/data", "u", 0)
COUNT = 15


class Unreadable(MemoryStorage):
    """What lies under `bad` cannot be read, nor listed."""

    def __init__(self, image: MemoryStorage, bad: str, number: int = errno.EIO) -> None:
        super().__init__()
        self._root, self._boot = image._root, image._boot
        self.bad = bad
        self.number = number

    def check(self, path: str) -> None:
        if path == self.bad:
            raise OSError(self.number, "the disk does not give it", path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _File(path, plain._inode, self)
        file.disk = self
        return file

    def listdir(self, path: str) -> list[str]:
        self.check(path)
        return super().listdir(path)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target == self.bad:
            self.bad = ""  # another file, on other sectors


class _File(MemoryFile):
    disk: Unreadable

    def pread(self, buffer: memoryview, position: int) -> int:
        self.disk.check(self.path)
        return super().pread(buffer, position)


def filled(*, closed: bool = True) -> MemoryStorage:
    """Two topics, each with three batches to a segment; in each a segment is damaged."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    for topic in ("t", "u"):
        manager.create_topic(topic, 1, SMALL)
        for number in range(COUNT):
            append(manager.get_handler(topic, 0), batch_of(b"%03d" % number + b"x" * 57))
    manager.housekeeping(100_000)  # a snapshot has them
    if closed:
        manager.close()
    disk = disk.after_kill()
    if closed:
        lose_wal(disk)
    for paths in (PATHS, OTHER):
        flip(disk, paths.log(3), 100)
    return disk


def told(disk: MemoryStorage) -> dict[str, Finding]:
    """What verify tells as damage, by the path."""
    found = DirectoryChecker(disk, "/data", 0).check()
    return {one.path: one for one in found if one.is_damage}


def test_a_sealed_segment_that_cannot_be_read_hides_no_other_damage() -> None:
    disk = Unreadable(filled(), PATHS.log(1))
    found = told(disk)
    assert sorted(found) == [PATHS.log(1), PATHS.log(3), OTHER.log(3)]
    assert found[PATHS.log(1)].text == "it cannot be read: the disk does not give it"
    assert found[PATHS.log(1)].action.startswith("its records are refused as long as that is so")
    assert (found[PATHS.log(1)].topic, found[PATHS.log(1)].partition) == ("t", 0)
    handler = manager_on(disk).get_handler("t", 0)
    with pytest.raises(StorageError, match="the disk does not give it"):
        seen(handler)
    disk.bad = ""
    assert seen(handler) == ([n for n in range(COUNT) if n != 9], [(9, 10)])


@pytest.mark.parametrize("number", range(4))
def test_a_sealed_segment_that_cannot_be_read_keeps_no_log_closed_after_a_kill(number: int) -> None:
    image = filled()
    append(manager_on(image).get_handler("t", 0), batch_of(b"last"))  # behind its checkpoint
    image = image.after_kill()
    lose_wal(image)
    disk = Unreadable(image, PATHS.log(number))
    handler = manager_on(disk).get_handler("t", 0)
    assert handler.log_end_offset == COUNT + 1
    append(handler, batch_of(b"next"))
    assert offsets_in(read_once(handler, COUNT + 1)) == [COUNT + 1]
    with pytest.raises(StorageError, match="the disk does not give it"):
        read_once(handler, 3 * number)
    disk.bad = ""
    assert seen(handler) == ([n for n in range(COUNT + 2) if n != 9], [(9, 10)])


def test_an_index_that_cannot_be_read_is_made_again() -> None:
    disk = Unreadable(filled(), PATHS.index(1))
    found = told(disk)
    assert sorted(found) == [PATHS.index(1), PATHS.log(3), OTHER.log(3)]
    assert found[PATHS.index(1)].action == "it is made again from the log when it is needed"
    handler = manager_on(disk).get_handler("t", 0)
    assert seen(handler) == ([n for n in range(COUNT) if n != 9], [(9, 10)])
    assert not disk.bad, "there is another file"


@pytest.mark.parametrize("path", [PATHS.manifest, PATHS.producers, PATHS.log(4), PATHS.folder])
def test_a_partition_of_which_a_file_cannot_be_read_is_told_and_the_others_are_checked(
    path: str,
) -> None:
    disk = Unreadable(filled(), path)
    found = told(disk)
    assert set(found) - {PATHS.log(3)} == {path, OTHER.log(3)}
    assert found[path].action == "the partition is not opened as long as that is so"
    manager = manager_on(disk)
    with pytest.raises(StorageError, match="the disk does not give it"):
        manager.get_handler("t", 0)
    assert len(seen(manager.get_handler("u", 0))[0]) >= COUNT - 1


@pytest.mark.parametrize(("path", "closed"), [(PATHS.producers, True), (PATHS.log(4), False)])
def test_a_read_that_fails_is_taken_for_no_failed_sync(path: str, *, closed: bool) -> None:
    """Nothing of the log is in doubt: it need not be written anew when the read succeeds."""
    disk = Unreadable(filled(closed=closed), path)
    manager = manager_on(disk)
    with pytest.raises(StorageError, match="the disk does not give it"):
        manager.get_handler("t", 0)
    assert not disk.exists(PATHS.unsynced)
    disk.bad = ""
    assert len(seen(manager.get_handler("t", 0))[0]) >= COUNT - 1


@pytest.mark.parametrize(
    "path",
    [
        "/data/clock",
        "/data/meta/snapshot-1.msgpack",
        "/data/meta/snapshot-99.msgpack.tmp",
        "/data/wal/shard-00.wal-0",
        "/data/witness/shard-00.wal-0",
        "/data/witness/shard-00.wal-0.reached-4096",
        f"{PATHS.manifest}.tmp",
        PATHS.cleaned(4),
    ],
)
def test_a_directory_in_the_place_of_a_file_that_a_start_meets_is_named(path: str) -> None:
    disk = filled(closed=False)
    if disk.exists(path):
        disk.unlink(path)
    before = set(told(disk))
    disk.mkdir(path)
    assert set(told(disk)) - before == {path}
    with pytest.raises((StorageError, OSError), match="is a directory"):
        manager_on(disk).get_handler("t", 0)
    disk._locks.clear()
    disk.rmdir(path)
    manager_on(disk).get_handler("t", 0)


def test_a_write_ahead_log_that_cannot_be_read_is_told_and_the_rest_is_checked() -> None:
    image = filled(closed=False)
    (folder,) = [name for name in image.listdir("/data/wal") if "." not in name]
    name = next(one for one in image.listdir(f"/data/wal/{folder}") if one.startswith("wal-"))
    path = f"/data/wal/{folder}/{name}"
    found = told(Unreadable(image, path))
    assert {path, PATHS.log(3), OTHER.log(3)} <= set(found)
    assert found[path].action.startswith("it does not start")
    with pytest.raises(StorageError, match="the disk does not give it"):
        manager_on(Unreadable(image, path))


def test_metadata_that_cannot_be_read_is_told() -> None:
    image = filled()
    path = f"/data/meta/{max(image.listdir('/data/meta'))}"
    found = told(Unreadable(image, path))
    assert {one: found[one].action for one in found} == {path: "it does not start"}
    with pytest.raises((StorageError, OSError), match="the disk does not give it"):
        manager_on(Unreadable(image, path))


def test_a_topic_whose_directory_cannot_be_read_keeps_no_other_from_a_start() -> None:
    disk = Unreadable(filled(), "/data/topics/t")
    found = told(disk)
    assert set(found) == {"/data/topics/t", OTHER.log(3)}
    assert found["/data/topics/t"].action == "the partition is not opened as long as that is so"
    manager = manager_on(disk)
    (failure,) = manager.partitions.failed_at_start.values()
    assert "the disk does not give it" in str(failure)
    assert seen(manager.get_handler("u", 0)) == ([n for n in range(COUNT) if n != 9], [(9, 10)])
    disk.bad = ""
    assert seen(manager.get_handler("t", 0))[1] == [(9, 10)]
    assert rows(manager, "orphan_removed") == []


@pytest.mark.parametrize("name", ["nobody's", "~deleted"])
def test_a_directory_of_no_topic_that_cannot_be_read_is_told_and_left(name: str) -> None:
    disk = Unreadable(filled(), f"/data/topics/{name}")
    disk.mkdir(disk.bad)
    found = told(disk)
    assert set(found) == {disk.bad, PATHS.log(3), OTHER.log(3)}
    assert found[disk.bad].action == "it is left as it is"
    manager_on(disk)
    assert disk.exists(disk.bad)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_what_we_may_not_read_is_no_damage(number: int) -> None:
    disk = Unreadable(filled(), PATHS.log(1), number)
    with pytest.raises(OSError, match="the disk does not give it"):
        told(disk)


def test_what_is_not_ours_is_named_wherever_it_lies() -> None:
    disk = MemoryStorage()
    manager: DiskManager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    append(manager.get_handler("t", 0), batch_of(b"x"))
    manager.housekeeping(100_000)
    disk = disk.after_kill()
    assert not list(DirectoryChecker(disk, "/data", 0).check())
    (shard,) = [name for name in disk.listdir("/data/wal") if "." not in name]
    places = [
        "wal",
        f"wal/{shard}",
        "witness",
        "topics",
        "topics/t",
        "topics/t/partition_0",
        "meta",
    ]
    paths = [f"/data/{place}/notes.txt" for place in places]
    for path in paths:
        replace_file(disk, path, b"x")
    found = list(DirectoryChecker(disk, "/data", 0).check())
    assert sorted(one.path for one in found) == sorted(paths)
    assert {one.is_damage for one in found} == {False}
    assert {one.action for one in found} == {"it is left as it is"}
    manager_on(disk).close()
    assert all(disk.exists(path) for path in paths)


class _BadSector(MemoryStorage):
    """One byte of a file cannot be read, nor anything together with it."""

    path = ""
    position = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _Sectors(path, plain._inode, self)
        file.disk = self
        return file


class _Sectors(MemoryFile):
    disk: _BadSector

    def pread(self, buffer: memoryview, position: int) -> int:
        if self.path == self.disk.path and 0 <= self.disk.position - position < len(buffer):
            raise OSError(errno.EIO, "the disk does not give it", self.path)
        return super().pread(buffer, position)

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        return None  # nothing is in memory


def test_transactions_beside_a_bad_sector_are_known_after_a_kill() -> None:
    disk = _BadSector()
    manager = manager_on(disk)
    config = {"segment.bytes": "40000", "index.interval.bytes": "4096"}
    manager.create_topic("t", 1, TopicConfig(config))
    handler = manager.get_handler("t", 0)
    for producer_id in (7, 9):
        batch = encode_batch(
            [b"x" * 4_200],
            timestamps_ms=1_000,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        append(handler, memoryview(bytearray(batch)))
    marker = memoryview(encode_marker(Outcome.ABORT, 7, 0, 1_000))
    handler.append(marker, read_header(marker), 1_000)
    for _ in range(10):
        append(handler, batch_of(b"x" * 4_200))
    before = handler.transactions
    assert len(handler.sealed_numbers()) == len(before.aborted) == len(before.open) == 1
    image = disk.after_kill()
    disk = _BadSector()
    disk._root, disk._boot = image._root, image._boot
    disk.path, disk.position = PATHS.log(0), 5 * len(batch)

    after = manager_on(disk).get_handler("t", 0).transactions
    assert (after.aborted, after.open) == (before.aborted, before.open)


@pytest.mark.parametrize("block", range(9))
def test_what_lies_in_front_of_a_bad_sector_is_read(block: int) -> None:
    disk = _BadSector()
    manager = manager_on(disk)
    config = {"segment.bytes": "40000", "index.interval.bytes": "4096"}
    manager.create_topic("t", 1, TopicConfig(config))
    handler = manager.get_handler("t", 0)
    for _ in range(12):
        append(handler, batch_of(b"x" * 4_200))  # each is a block of its own
    size = len(batch_of(b"x" * 4_200))
    disk.path, disk.position = PATHS.log(0), block * size + 100
    offset = 0
    while offset < block:
        found = offsets_in(read_once(handler, offset))
        assert found == list(range(offset, found[-1] + 1))
        offset = found[-1] + 1
    assert offset == block
    with pytest.raises(StorageError, match="the disk does not give it"):
        read_once(handler, block)
    if block < 8:
        assert offsets_in(read_once(handler, block + 1))[0] == block + 1

"""What a disk lost of a sealed segment comes back from the write-ahead log, if that has it."""

import errno
from itertools import count

import pytest

from segbroker.protocol.record_batch import gap_reason, iter_batches, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Space, read_file, write_all
from segbroker.segments.errors import StorageError
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.journal import WalConfig

from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .tools import SMALL, append, as_after_a_checkpoint, batch_of, flip, read_from

FOLDER = "/data/topics/t/partition_0"
LOG_1 = f"{FOLDER}/t_partition_0_segment_1.log"
ALL = list(range(15))


def manager_on(disk: MemoryStorage) -> DiskManager:
    wal = WalConfig(file_bytes=1 << 14, shard_bytes=1 << 16)
    manager = DiskManager("/data", storage=disk, flushers=0, wal=wal, now_ms=1_000)
    manager.open()
    return manager


def killed(config: TopicConfig = SMALL, batches: int = len(ALL)) -> MemoryStorage:
    """The disk of a broker that was killed: | 0 1 2 | 3 4 5 | ... and all of it in the WAL."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, config)
    for number in range(batches):
        append(manager.get_handler("t", 0), batch_of(b"%03d" % number + b"x" * 57))
    assert manager.get_handler("t", 0).sealed_numbers() == [0, 1, 2, 3]
    return disk.after_kill()


def seen(handler: DiskHandler) -> tuple[list[int], list[tuple[int, int]]]:
    """Base offsets of records, and gaps."""
    records: list[int] = []
    gaps: list[tuple[int, int]] = []
    offset = handler.log_start_offset
    while offset < handler.high_watermark:
        for batch in iter_batches(read_from(handler, offset)):
            header = read_header(batch)
            if gap_reason(header) is None:
                records.append(header.base_offset)
            else:
                gaps.append((header.base_offset, header.next_offset))
            offset = header.next_offset
    return records, gaps


def rows(manager: DiskManager, what: str) -> list[tuple[int, int]]:
    return [(row.from_offset, row.to_offset) for row in manager.report.rows if row.what == what]


def cut(disk: MemoryStorage, path: str, size: int) -> None:
    file = disk.open(path)
    file.truncate(size)
    file.fdatasync()


def damage(disk: MemoryStorage, how: str) -> None:
    if how == "flipped":
        flip(disk, LOG_1, 200)
    elif how == "cut":
        cut(disk, LOG_1, 150)
    elif how == "emptied":
        cut(disk, LOG_1, 0)
    elif how == "zeros":
        write_all(disk.open(LOG_1), bytes(250), 0)
    elif how == "another's":
        other = read_file(disk, LOG_1.replace("_1", "_2"))
        write_all(disk.open(LOG_1), other, 0)
    else:
        disk.unlink(LOG_1)
        disk.fsync_dir(FOLDER)


LOST = {"flipped": (4, 5), "cut": (4, 6), "emptied": (3, 6), "zeros": (3, 5)}
KINDS = [*LOST, "another's", "missing"]


@pytest.mark.parametrize("policy", ["gap", "readonly", "refuse"])
@pytest.mark.parametrize("how", KINDS)
def test_what_a_sealed_segment_lost_is_put_back(how: str, policy: str) -> None:
    config = TopicConfig({**SMALL.overrides, "on.corruption": policy})
    disk = killed(config)
    whole = bytes(read_file(disk, LOG_1))
    damage(disk, how)
    damaged = bytes(read_file(disk, LOG_1)) if disk.exists(LOG_1) else b""
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert bytes(read_file(disk, LOG_1)) == whole
    assert rows(manager, "replayed") == [LOST.get(how, (3, 6))]
    assert len(rows(manager, "quarantined")) == bool(damaged)
    if damaged:
        (copy,) = disk.listdir(f"{FOLDER}/quarantine")
        assert bytes(read_file(disk, f"{FOLDER}/quarantine/{copy}")) == damaged
    assert seen(handler) == (ALL, [])
    assert append(handler, batch_of(b"more")).base_offset == 15
    # It was durable before the WAL let go of it.
    again = manager_on(disk.after_power_cut())
    assert seen(again.get_handler("t", 0)) == ([*ALL, 15], [])
    assert rows(again, "gap") == []


def test_what_the_log_ahead_has_not_is_a_gap_all_the_same() -> None:
    disk = killed(batches=14)
    manager = manager_on(disk)  # the WAL begins anew behind 13
    for number in range(14, 21):
        append(manager.get_handler("t", 0), batch_of(b"%03d" % number + b"x" * 57))
    assert 4 in manager.get_handler("t", 0).sealed_numbers()
    disk = disk.after_kill()
    segment = LOG_1.replace("_1", "_4")  # | 12 13 14 |
    for batch in (0, 2):
        flip(disk, segment, batch * 129 + 100)
    manager = manager_on(disk)
    assert rows(manager, "replayed") == [(14, 15)]
    assert seen(manager.get_handler("t", 0)) == ([*range(12), *range(13, 21)], [(12, 13)])
    assert rows(manager, "gap") == [(12, 13)]


def test_what_a_repair_told_as_lost_stays_lost() -> None:
    # The WAL could not be read then; what readers were told holds.
    disk = MemoryStorage()
    manager = manager_on(disk)
    as_after_a_checkpoint(manager)
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in ALL:
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    flip(disk, LOG_1, 200)
    handler._log.files.indexes.drop(FOLDER)
    told = seen(handler)
    assert told[1] == [(4, 5)]
    again = manager_on(disk.after_kill())
    assert seen(again.get_handler("t", 0)) == told
    assert rows(again, "replayed") == []


class UnreadableStorage(MemoryStorage):
    """A bad sector in one file."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if path == LOG_1 and read_only:
            raise OSError(errno.EIO, "a bad sector", path)
        return super().open(path, create=create, read_only=read_only)


def test_a_sealed_segment_that_cannot_be_read_keeps_nothing_from_being_served() -> None:
    disk = UnreadableStorage()
    disk._root = killed()._root
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert rows(manager, "not_served") == []
    assert append(handler, batch_of(b"more")).base_offset == 15


class _RoomStorage(MemoryStorage):
    """A volume that says how much room is left to keep damaged files in."""

    room = 0

    def space(self, path: str) -> Space | None:
        return Space(1 << 30, self.room) if path.endswith("quarantine") else None


@pytest.mark.parametrize("missing", [1, 150])
def test_a_start_takes_no_room_to_put_back_what_it_cannot_put_back_whole(missing: int) -> None:
    # A copy without room for what stands in its place: each start would fill the volume again.
    disk = _RoomStorage()
    disk._root = killed()._root
    size = len(read_file(disk, LOG_1))
    damage(disk, "flipped")
    disk.room = 2 * size - missing
    with pytest.raises(StorageError, match=f"a repair takes {2 * size} bytes of {disk.room}"):
        manager_on(disk)
    assert disk.listdir(f"{FOLDER}/quarantine") == []
    disk._root = disk.after_kill()._root
    disk.room = 2 * size
    assert seen(manager_on(disk).get_handler("t", 0)) == (ALL, [])


def test_segments_that_have_what_was_written_are_neither_written_nor_reported() -> None:
    disk = killed()
    before = {name: bytes(read_file(disk, f"{FOLDER}/{name}")) for name in disk.listdir(FOLDER)}
    manager = manager_on(disk)
    assert seen(manager.get_handler("t", 0)) == (ALL, [])
    assert rows(manager, "quarantined") == []
    for number in range(4):
        name = f"t_partition_0_segment_{number}.log"
        assert bytes(read_file(disk, f"{FOLDER}/{name}")) == before[name]


@pytest.mark.parametrize("then", ["again", "another"])
def test_what_was_put_back_under_a_name_that_could_not_be_synced_is_put_back_again(
    then: str,
) -> None:
    """By the same process, or by another one, behind a kill."""
    failed = 0
    for number in count():
        image = killed()
        damage(image, "flipped" if number % 2 else "missing")
        disk = RecordingStorage.over(image)
        disk.faults.append(Fault("fsync_dir", "/partition_0", number))
        disk.counts[0] = 0
        manager = manager_on(disk)
        if disk.counts[0] <= number:
            break
        failed += 1
        if then == "another":
            disk.restart()
            manager = manager_on(disk)
        assert seen(manager.get_handler("t", 0)) == (ALL, [])
        manager.close()
        for left in Images(disk).now():
            again = manager_on(left.build())
            assert seen(again.get_handler("t", 0)) == (ALL, [])
    assert failed

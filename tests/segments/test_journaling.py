"""Class fsync rests on the write-ahead log: acknowledged with its sync, put back after a crash."""

import errno

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Buffer, read_file
from segbroker.segments.errors import DiskFull, PartitionReadOnly
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.partition.journaling import Journaling
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.frames import FRAMES_BEGIN, HEADER_SIZE, OVERHEAD, Frame
from segbroker.segments.wal.journal import WalConfig
from segbroker.segments.wal.replay import scan_wal_file

from .crashing import CrashingStorage, Killed
from .tools import SMALL, append, batch_of, flip, offsets_in, read_from

FOLDER = "/data/topics/t/partition_0"
WAL = "/data/wal/shard-00"
PLAIN = TopicConfig()


def managed(disk: MemoryStorage, *, wal: WalConfig | None = None) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000, wal=wal)
    manager.open()
    return manager


def begun(
    disk: MemoryStorage, config: TopicConfig = PLAIN, *, wal: WalConfig | None = None
) -> tuple[DiskManager, DiskHandler]:
    manager = managed(disk, wal=wal)
    manager.create_topic("t", 1, config)
    return manager, manager.get_handler("t", 0)


def all_of(handler: DiskHandler) -> list[int]:
    """Every offset; these batches have one record each."""
    found: list[int] = []
    while got := offsets_in(read_from(handler, len(found))):
        found += got
    return found


def everything(disk: MemoryStorage) -> list[int]:
    return all_of(managed(disk).get_handler("t", 0))


def segment(disk: MemoryStorage, number: int = 0) -> str:
    return f"{FOLDER}/t_partition_0_segment_{number}.log"


class SyncCounting(MemoryStorage):
    """Knows what was synced; fails syncs and writes of files whose path has these words."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.failing = ""
        self.full = ""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _CountingFile(path, plain._inode, self)
        file.owner = self
        return file


class _CountingFile(MemoryFile):
    owner: SyncCounting

    def pwrite(self, data: Buffer, position: int) -> int:
        if self.owner.full and self.owner.full in self.path:
            raise OSError(errno.ENOSPC, "planted", self.path)
        return super().pwrite(data, position)

    def fdatasync(self) -> None:
        self.owner.synced.append(self.path)
        if self.owner.failing and self.owner.failing in self.path:
            raise OSError(errno.EIO, "planted", self.path)
        super().fdatasync()


def test_what_is_acknowledged_survives_a_power_cut_though_its_segment_was_never_synced() -> None:
    disk = SyncCounting()
    _, handler = begun(disk)
    append(handler, batch_of(b"0"))
    disk.synced.clear()
    for number in range(1, 5):
        append(handler, batch_of(b"%d" % number))
    assert handler.high_watermark == 5
    assert set(disk.synced) == {f"{WAL}/wal-0.log"}
    image = disk.after_power_cut()
    assert image.listdir(FOLDER) == [], "the picture is as described"
    assert everything(image) == [0, 1, 2, 3, 4]


def test_after_a_kill_nothing_is_written_again_and_everything_is_synced() -> None:
    disk = SyncCounting()
    _, handler = begun(disk)
    for number in range(5):
        append(handler, batch_of(b"%d" % number))
    image = disk.after_kill()
    manager = managed(image)
    assert manager.report.counts["replayed"] == 0
    assert everything(image.after_power_cut()) == [0, 1, 2, 3, 4]


def test_over_many_segments_and_many_wal_files_nothing_is_lost_and_the_wal_stays_small() -> None:
    disk = MemoryStorage()
    _, handler = begun(disk, SMALL)
    for number in range(600):
        append(handler, batch_of(b"%d" % number))
        if number % 97 == 0:
            assert everything(disk.after_power_cut())[-1] == number
    sizes = {name: len(read_file(disk, f"{WAL}/{name}")) for name in disk.listdir(WAL)}
    kept = [name for name in sizes if name.startswith("kept-")]
    assert [sizes.pop(name) for name in kept] == [FRAMES_BEGIN + OVERHEAD + HEADER_SIZE]
    assert sum(sizes.values()) <= 1 << 16


@pytest.mark.parametrize("is_prepared", [True, False])
def test_recovery_may_be_interrupted_at_every_operation(is_prepared: bool) -> None:
    disk = MemoryStorage()
    manager, handler = begun(disk, SMALL)
    manager.create_topic("u", 1, PLAIN)
    other = manager.get_handler("u", 0)
    # Without segments made ahead the names of the later files are not durable.
    handler._rolling._making.is_asked = not is_prepared
    for number in range(12):
        append(handler, batch_of(b"%d" % number))
        append(other, batch_of(b"%d" % number))
    begin = disk.after_power_cut()
    dies_at = 0
    while True:
        image = CrashingStorage(dies_at)
        image._root = begin.after_power_cut()._root
        try:
            managed(image)
        except Killed:
            pass
        else:
            break
        for left in (image.after_kill(), image.after_power_cut()):
            again = managed(left)
            for topic in ("t", "u"):
                found = all_of(again.get_handler(topic, 0))
                assert found == list(range(12)), (dies_at, topic)
        dies_at += 1
    assert dies_at > 20


def test_a_segment_that_an_interrupted_recovery_repaired_is_left_as_it_is() -> None:
    # | 0 | 1 | 2 | 3 |   1 is damaged and nothing in the WAL mends it: a gap stands in its place,
    # what follows moves.
    disk = MemoryStorage()
    manager, handler = begun(disk)
    for number in range(2):
        append(handler, batch_of(b"%d" % number * 40))
    manager.close()
    handler = managed(disk).get_handler("t", 0)
    for number in range(2, 4):
        append(handler, batch_of(b"%d" % number * 40))
    image = disk.after_kill()
    flip(image, segment(image), 150)
    wal = {name: read_file(image, f"{WAL}/{name}") for name in image.listdir(WAL)}
    assert everything(image) == [0, 1, 2, 3]
    repaired = read_file(image, segment(image))
    assert repaired != read_file(disk, segment(disk))
    # As if the power had gone before the WAL was emptied: its frames speak of the old positions.
    image = image.after_kill()
    for name in image.listdir(WAL):
        image.unlink(f"{WAL}/{name}")
    for name, content in wal.items():
        image.open(f"{WAL}/{name}", create=True).pwrite(content, 0)
    assert everything(image) == [0, 1, 2, 3]
    assert read_file(image, segment(image)) == repaired


def test_a_hole_that_the_wal_fills_is_none() -> None:
    disk = MemoryStorage()
    _, handler = begun(disk)
    for number in range(4):
        append(handler, batch_of(b"%d" % number * 40))
    image = disk.after_kill()
    flip(image, segment(image), 150)
    manager = managed(image)
    assert offsets_in(read_from(manager.get_handler("t", 0), 0)) == [0, 1, 2, 3]
    assert read_file(image, segment(image)) == read_file(disk, segment(disk))
    assert manager.report.counts == {"replayed": 1}


def test_frames_of_a_deleted_topic_do_not_come_back_into_its_successor() -> None:
    disk = MemoryStorage()
    manager, handler = begun(disk)
    append(handler, batch_of(b"old", b"old"))
    manager.delete_topic("t")
    manager.create_topic("t", 1, PLAIN)
    append(manager.get_handler("t", 0), batch_of(b"new"))
    assert everything(disk.after_power_cut()) == [0]
    assert managed(disk.after_power_cut()).get_handler("t", 0).log_end_offset == 1


def test_a_batch_larger_than_a_wal_file_is_acknowledged_by_the_sync_of_its_segment() -> None:
    disk = SyncCounting()
    _, handler = begun(disk)
    append(handler, batch_of(b"a"))
    handler.sync()
    disk.synced.clear()
    append(handler, batch_of(b"b" * 20_000))
    assert disk.synced == [segment(disk), f"{WAL}/wal-0.log"], "and then the END says so"
    append(handler, batch_of(b"c"))
    assert handler.high_watermark == 3
    assert everything(disk.after_power_cut()) == [0, 1, 2]


def test_nothing_behind_a_large_batch_is_acknowledged_before_it() -> None:
    disk = MemoryStorage()
    _, handler = begun(disk)
    handler.flushes_on_append = False
    append(handler, batch_of(b"a"))
    append(handler, batch_of(b"b" * 20_000))
    append(handler, batch_of(b"c"))
    handler._journaling._shard.submit(handler._journaling)
    assert handler.high_watermark == 1
    handler.flush_soon()
    assert handler.high_watermark == 3


def test_a_topic_that_becomes_fsync_syncs_what_it_had_before_the_wal_vouches_for_more() -> None:
    disk = MemoryStorage()
    manager, handler = begun(disk, TopicConfig({"durability": "disk"}))
    append(handler, batch_of(b"a"))
    manager.alter_topic("t", {"durability": "fsync"})
    append(handler, batch_of(b"b"))
    assert handler.high_watermark == 2
    assert everything(disk.after_power_cut()) == [0, 1]


def test_after_an_orderly_end_the_wal_is_empty() -> None:
    disk = MemoryStorage()
    manager, handler = begun(disk)
    append(handler, batch_of(b"a"))
    manager.close()
    assert [name for name in disk.listdir(WAL) if name.startswith("wal")] == []
    assert everything(disk.after_power_cut()) == [0]


def test_damage_to_the_last_frame_of_a_partition_is_a_gap_and_its_offset_is_not_used_again() -> (
    None
):
    disk = MemoryStorage()
    manager, handler = begun(disk)
    manager.create_topic("u", 1, PLAIN)
    for number in range(3):
        append(handler, batch_of(b"%d" % number))
    append(manager.get_handler("u", 0), batch_of(b"a later group"))
    image = disk.after_power_cut()
    # The third of t's frames: one bit of its payload, in the records.
    (place,) = [p for p, f in frames_of(image) if f.base_offset == 2 and f.payload]
    flip(image, f"{WAL}/wal-0.log", place + 64 + 61)
    again = managed(image)
    assert again.report.counts["wal_damaged"] == 1
    assert again.report.offsets_lost == 1
    back = again.get_handler("t", 0)
    assert (back.log_end_offset, all_of(back)) == (3, [0, 1, 2])
    assert append(back, batch_of(b"new")).base_offset == 3


def frames_of(disk: MemoryStorage) -> list[tuple[int, Frame]]:
    scanned = scan_wal_file(disk, f"{WAL}/wal-0.log")
    assert scanned is not None
    return list(zip(scanned.positions, scanned.frames, strict=True))


def test_killed_on_a_full_disk_it_starts_by_giving_up_spare_files_of_the_wal() -> None:
    disk = CrashingStorage()
    _, handler = begun(disk)
    for number in range(3):
        append(handler, batch_of(b"%d" % number))
    manager = managed(disk.after_kill())  # leaves a spare file
    image = CrashingStorage()
    image._root = disk.after_power_cut()._root
    spare = image.open(f"{WAL}/free-9.log", create=True)
    spare.pwrite(bytes(1 << 14), 0)
    image.room = 0
    unlink = image.unlink

    def unlinked(path: str) -> None:
        unlink(path)
        image.room = None

    image.unlink = unlinked  # type: ignore[method-assign]
    assert all_of(managed(image).get_handler("t", 0)) == [0, 1, 2]
    manager.close()


# Failure


def test_a_failed_sync_of_the_wal_acks_nothing_and_makes_the_partitions_read_only() -> None:
    disk = SyncCounting()
    manager, handler = begun(disk)
    manager.create_topic("u", 1, PLAIN)
    other = manager.get_handler("u", 0)
    append(handler, batch_of(b"kept"))
    disk.failing = WAL
    append(handler, batch_of(b"lost"))
    assert (handler.high_watermark, handler.log_end_offset) == (1, 2)
    disk.failing = ""
    disk.synced.clear()
    with pytest.raises(PartitionReadOnly, match="planted"):
        append(handler, batch_of(b"refused"))
    append(other, batch_of(b"told when it is tried"))
    assert other.high_watermark == 0
    assert isinstance(other.read_only, PartitionReadOnly)
    assert not isinstance(other.read_only, DiskFull)
    assert disk.synced == [], "no second sync"
    assert offsets_in(read_from(handler, 0)) == [0], "reads go on"
    # A restart is the way back, and what was acknowledged is there.
    assert everything(disk.after_power_cut())[0] == 0


def test_a_full_wal_comes_back_with_space_and_frames_that_were_given_up_do_not() -> None:
    disk = SyncCounting()
    manager, handler = begun(disk)
    append(handler, batch_of(b"kept"))
    disk.full = WAL
    append(handler, batch_of(b"told to try again"))
    assert isinstance(handler.read_only, DiskFull)
    manager.housekeeping(10_000)
    assert isinstance(handler.read_only, DiskFull)
    disk.full = ""
    manager.housekeeping(20_000)
    assert handler.read_only is None
    # The batch was whole in its segment: it stays, as after a kill.
    append(handler, batch_of(b"more"))
    assert everything(disk.after_power_cut()) == [0, 1, 2]


def test_what_was_acknowledged_before_a_segment_could_not_be_synced_is_put_back() -> None:
    disk = SyncCounting()
    manager, handler = begun(disk, SMALL)
    disk.failing = "segment_0"
    number = 0
    while handler.read_only is None:
        append(handler, batch_of(b"%d" % number))
        number += 1
    acked = handler.high_watermark
    assert acked > 3
    with pytest.raises(PartitionReadOnly):
        append(handler, batch_of(b"refused"))
    manager.close()
    assert everything(disk.after_power_cut())[:acked] == list(range(acked))


def test_no_append_comes_between_class_fsync_and_the_sync_of_what_it_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, handler = begun(MemoryStorage(), TopicConfig({"durability": "disk"}))
    append(handler, batch_of(b"unsynced"))
    sync_first, is_held = Journaling.sync_first, []

    def noted(journaling: Journaling, log: PartitionLog) -> None:
        is_held.append(log.append_lock.locked())
        sync_first(journaling, log)

    monkeypatch.setattr(Journaling, "sync_first", noted)
    handler.reconfigure(PLAIN, None)
    assert is_held == [True], "the WAL would vouch for what lies behind an unsynced batch"
    assert handler.ceiling is None


def test_a_batch_for_a_flusher_is_acknowledged_where_a_checkpoint_synced_it_first() -> None:
    disk = MemoryStorage()
    wal = WalConfig(file_bytes=1 << 14, shard_bytes=1 << 16)
    _, handler = begun(disk, wal=wal)
    handler.flushes_on_append = False
    append(handler, batch_of(bytes(1 << 15)))  # no frame holds it
    assert handler.wal_checkpoint(), "in its own thread"
    handler.flush_soon()
    assert handler.high_watermark == 1, "nobody else would tell who waits"
    append(handler, batch_of(b"1"))
    handler.flush_soon()
    assert handler.high_watermark == 2
    assert everything(disk.after_power_cut()) == [0, 1]

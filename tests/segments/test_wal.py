"""The write-ahead log by itself: what is acknowledged is found again, and nothing else counts."""

import errno
import time
from collections.abc import Callable

import pytest

from segbroker.segments.memory import MemoryFile, MemoryStorage
from segbroker.segments.posix import PosixStorage
from segbroker.segments.storage import Buffer, Storage, read_file
from segbroker.segments.wal.frames import (
    FRAMES_BEGIN,
    HEADER_SIZE,
    OVERHEAD,
    Frame,
    FrameType,
    Header,
    decode_header,
    scan_file,
)
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.pending import Pending
from segbroker.segments.wal.replay import Replay
from segbroker.segments.wal.trailers import TRAILER_SIZE

from ..support.gated_storage import GatedStorage

ROOT = "/data/wal"
SMALL = WalConfig(file_bytes=8192, shard_bytes=4 * 8192)
TOPIC = bytes(range(16))


class Writer:
    """A partition that appends bytes; `durable` and `failures` are what it was told."""

    def __init__(self, wal: Wal, partition: int = 0) -> None:
        self.wal_key = (TOPIC, partition)
        self.wal_queued = False
        self.partition = partition
        self.shard = wal.shard_of(TOPIC, partition)
        self.pending = Pending(TOPIC, partition, SMALL.batch_bytes_max)
        self.end = 0
        self.durable = 0
        self.failures: list[OSError] = []
        self.checkpoints = 0
        self.can_checkpoint = True

    def append(self, data: bytes) -> None:
        end = self.end + len(data)
        self.pending.add(data, 0, self.end, self.end, end, 1)
        self.end = end
        self.shard.submit(self)

    def take_frames(self) -> tuple[list[Frame], int]:
        return self.pending.take()

    def wal_synced(self, mark: int) -> None:
        self.durable = mark

    def wal_gave_up(self) -> None:
        pass

    def wal_failed(self, cause: OSError) -> None:
        self.failures.append(cause)

    def wal_checkpoint(self) -> bool:
        self.checkpoints += 1
        return self.can_checkpoint


def at_once(task: Callable[[], None]) -> None:
    task()


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.001)


def begun(storage: Storage, config: WalConfig = SMALL, *, root: str = ROOT) -> tuple[Wal, Replay]:
    wal = Wal(storage, root, config, threaded=False, call_soon=at_once)
    found = wal.open()
    wal.absorbed()
    return wal, found


def replayed(storage: Storage, config: WalConfig = SMALL) -> Replay:
    return Wal(storage, ROOT, config, threaded=False, call_soon=at_once).open()


def content(found: Replay, partition: int = 0) -> bytes:
    return b"".join(bytes(f.payload) for f in found.partitions.get((TOPIC, partition), []))


def test_what_was_acknowledged_is_there_after_a_power_cut() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"one")
    writer.append(b"two")
    assert writer.durable == 6
    found = replayed(disk.after_power_cut())
    frames = found.partitions[TOPIC, 0]
    assert [(f.type, f.segment, f.position, f.base_offset, f.lsn) for f in frames] == [
        (FrameType.BATCHES, 0, 0, 0, 0),
        (FrameType.BATCHES, 0, 3, 3, 1),
    ]
    assert content(found) == b"onetwo"
    assert not found.missing


def test_batches_that_wait_together_become_one_frame() -> None:
    pending = Pending(TOPIC, 0, SMALL.batch_bytes_max)
    for place, data in enumerate((b"ab", b"cd", b"ef")):
        pending.add(data, 0, 2 * place, place, place + 1, 7)
    pending.add(b"gh", 1, 0, 3, 4, 8)
    frames, end = pending.take()
    assert end == 4
    assert [(f.segment, f.base_offset, bytes(f.payload)) for f in frames] == [
        (0, 0, b"abcdef"),
        (1, 3, b"gh"),
    ]
    assert pending.take() == ([], 4)


def test_a_frame_never_grows_past_what_fits_a_file() -> None:
    pending = Pending(TOPIC, 0, 100)
    for place in range(3):
        pending.add(bytes(60), 0, 60 * place, place, place + 1, 7)
    assert [len(f.payload) for f in pending.take()[0]] == [60, 60, 60]


def test_frames_go_on_in_the_next_file_and_come_back_in_order() -> None:
    disk = MemoryStorage()
    config = WalConfig(file_bytes=8192, shard_bytes=64 * 8192)
    wal, _ = begun(disk, config)
    writer = Writer(wal)
    expected = b""
    for number in range(20):
        expected += bytes([number]) * 1000
        writer.append(bytes([number]) * 1000)
    found = replayed(disk.after_power_cut(), config)
    assert found.files_count > 5
    assert content(found) == expected
    assert not found.missing


def test_a_full_file_is_freed_by_a_checkpoint_and_its_old_frames_never_come_back() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    for number in range(100):
        writer.append(bytes([number]) * 1000)
    assert writer.checkpoints > 10
    names = disk.listdir(f"{ROOT}/shard-00")
    assert len(names) <= 4, "the bound holds"
    found = replayed(disk.after_power_cut())
    got = content(found)
    assert got == b"".join(bytes([n]) * 1000 for n in range(100))[-len(got) :]
    # A file on its third use, with the frames of the second behind those of the third.
    last = f"{ROOT}/shard-00/{[name for name in names if name.startswith('wal')][-1]}"
    data = read_file(disk, last)
    header = decode_header(data)
    assert header is not None
    scanned = scan_file(memoryview(data), header)
    assert any(data[scanned.end :]), "the picture is as described"


def test_a_log_that_cannot_be_synced_holds_up_no_other_and_keeps_its_frames() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    failed, other = Writer(wal, 1), Writer(wal, 2)
    failed.can_checkpoint = False
    failed.append(b"precious")
    for number in range(100):
        other.append(bytes([number]) * 1000)
    assert not failed.failures
    assert not other.failures
    names = disk.listdir(f"{ROOT}/shard-00")
    assert [name for name in names if name.startswith("kept")] == ["kept-0.log"]
    image = disk.after_power_cut()
    found = replayed(image)
    assert content(found, 1) == b"precious"
    assert bytes(found.partitions[TOPIC, 2][-1].payload) == bytes([99]) * 1000
    assert not found.missing
    # What is kept goes with everything else that was put back.
    begun(image)
    assert replayed(image).is_empty


def test_where_nothing_can_be_freed_the_full_wal_refuses_and_loses_nothing() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    possible = False

    def snapshot() -> None:
        if not possible:
            raise OSError(errno.ENOSPC, "planted")

    wal.snapshot = snapshot
    wal.control(b"an event")
    while not writer.failures:
        writer.append(bytes(1000))
    assert writer.failures[0].errno == errno.ENOSPC
    assert len(content(replayed(disk.after_power_cut()))) == writer.durable
    # Once there is a snapshot, the next write finds room.
    possible = True
    writer.failures.clear()
    before = writer.end
    writer.append(bytes(10))
    assert not writer.failures
    assert writer.durable == before + 10


def test_the_end_of_a_synced_log_is_known_as_long_as_there_is_a_wal() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    writer = Writer(wal)
    for number in range(100):
        writer.append(bytes([number]) * 1000)
    frames = replayed(disk.after_power_cut()).partitions[TOPIC, 5]
    assert {frame.base_offset for frame in frames} == {77}


def test_every_flipped_bit_of_a_header_leaves_its_copy() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    path = f"{ROOT}/shard-00/wal-0.log"
    file, before = disk.open(path), read_file(disk, path)
    for place in range(HEADER_SIZE):
        for bit in range(8):
            file.pwrite(bytes([before[place] ^ 1 << bit]), place)
            assert content(replayed(disk)) == b"one"
        file.pwrite(before[place : place + 1], place)


def test_a_barrier_voids_the_frames_of_its_partition_and_no_others() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    one, two = Writer(wal, 1), Writer(wal, 2)
    one.append(b"old")
    two.append(b"kept")
    wal.barrier(TOPIC, 1)
    one.append(b"new")
    found = replayed(disk.after_power_cut())
    assert content(found, 1) == b"new"
    assert content(found, 2) == b"kept"


def test_control_events_come_back_in_order() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    told: list[OSError | None] = []
    wal.control(b"first")
    wal.control_soon(b"second", told.append)
    assert told == [None]
    assert replayed(disk.after_power_cut()).control == [b"first", b"second"]


def test_a_snapshot_is_taken_before_a_file_with_control_events_is_freed() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    seen: list[int] = []
    wal.snapshot = lambda: seen.append(len(replayed(disk).control))
    for number in range(30):
        wal.control(bytes([number]) * 1000)
    assert len(seen) > 3
    assert all(seen), "the events were still there"


def test_the_end_of_a_synced_log_rides_with_the_next_group() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    assert (TOPIC, 5) not in replayed(disk.after_power_cut()).partitions
    wal.control(b"anything")
    (end,) = replayed(disk.after_power_cut()).partitions[TOPIC, 5]
    assert (end.type, end.segment, end.position, end.base_offset) == (FrameType.END, 3, 4096, 77)


def test_the_number_of_shards_may_change_between_two_starts() -> None:
    disk = MemoryStorage()
    wide = WalConfig(shards=4, file_bytes=8192, shard_bytes=4 * 8192)
    wal, _ = begun(disk, wide)
    for partition in range(16):
        Writer(wal, partition).append(b"%d" % partition)
    assert len(disk.listdir(ROOT)) == 4
    disk = disk.after_power_cut()
    wal, found = begun(disk)
    assert [content(found, partition) for partition in range(16)] == [
        b"%d" % partition for partition in range(16)
    ]
    assert disk.listdir(ROOT) == ["shard-00"]
    Writer(wal, 3).append(b"later")
    found = replayed(disk.after_power_cut(), wide)
    assert content(found, 3) == b"later"


def test_after_an_orderly_end_there_is_nothing_to_replay() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    wal.stop()
    wal.close(empty=True)
    found = replayed(disk.after_power_cut())
    assert found.is_empty
    assert found.files_count == 0
    assert all(name.startswith("free-") for name in disk.listdir(f"{ROOT}/shard-00"))


def test_an_end_without_synced_logs_leaves_everything_to_be_replayed() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    wal.stop()
    wal.close(empty=False)
    assert content(replayed(disk.after_power_cut())) == b"one"


# Damage


def written(groups: int = 6) -> tuple[bytearray, Header, list[int]]:
    """A file with so many groups of one frame: (bytes, header, where the frames begin)."""
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    for number in range(groups):
        writer.append(bytes([65 + number]) * 5)
    data = read_file(disk, f"{ROOT}/shard-00/wal-0.log")
    header = decode_header(data)
    assert header is not None
    scanned = scan_file(memoryview(data), header)
    return data, header, scanned.positions


def test_every_flipped_bit_costs_one_frame_and_no_wrong_byte_comes_back() -> None:
    data, header, positions = written()
    assert positions == [FRAMES_BEGIN + n * (OVERHEAD + 5) for n in range(6)]
    whole = [bytes(f.payload) for f in scan_file(memoryview(data), header).frames]
    end = positions[-1] + OVERHEAD + 5
    for place in range(FRAMES_BEGIN, end):
        for bit in range(8):
            data[place] ^= 1 << bit
            found = scan_file(memoryview(data), header)
            frames = [bytes(frame.payload) for frame in found.frames]
            hit, byte = divmod(place - FRAMES_BEGIN, OVERHEAD + 5)
            if byte >= OVERHEAD + 5 - TRAILER_SIZE:
                assert (frames, found.suspects) == (whole, [])
            else:
                assert frames == whole[:hit] + whole[hit + 1 :]
                (told,) = found.suspects
                assert (told.lsn, told.key, told.is_named) == (hit, (TOPIC, 0), True)
            data[place] ^= 1 << bit


def test_damage_below_a_later_group_is_reported_and_a_torn_end_is_not() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    for number in range(4):
        writer.append(bytes([65 + number]) * 5)
    path = f"{ROOT}/shard-00/wal-0.log"
    file = disk.open(path)
    file.pwrite(b"?", FRAMES_BEGIN + OVERHEAD + 5 + 40)
    found = replayed(disk)
    (missing,) = found.missing
    assert (missing.lsn, missing.frames, missing.durable) == (1, 1, True)
    assert content(found) == b"AAAAACCCCCDDDDD"
    # The last frame torn as well: that may never have been acknowledged.
    file.pwrite(bytes(OVERHEAD), FRAMES_BEGIN + 3 * (OVERHEAD + 5) + 30)
    assert replayed(disk).missing == [missing]
    assert not replayed(disk).unnamed


def test_damage_to_the_last_frame_of_all_is_told_by_what_stands_behind_it() -> None:
    # | frame 0 | frame 1 | frame 2 |   AAAAA BBBBB CCCCC, each acknowledged
    #                      ^^^^ its naming part is gone
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    for number in range(3):
        writer.append(bytes([65 + number]) * 5)
    file = disk.open(f"{ROOT}/shard-00/wal-0.log")
    file.pwrite(bytes(64), FRAMES_BEGIN + 2 * (OVERHEAD + 5))
    found = replayed(disk)
    assert content(found) == b"AAAAABBBBB"
    assert found.lost_below == {(TOPIC, 0): 15}
    assert [(one.lsn, one.frames, one.durable) for one in found.missing] == [(2, 1, True)]
    assert found.next_lsn == 3
    assert not found.unnamed


def test_frames_of_which_nothing_is_left_make_their_shard_suspect() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    for number in range(4):
        writer.append(bytes([65 + number]) * 5)
    file = disk.open(f"{ROOT}/shard-00/wal-0.log")
    file.pwrite(bytes(OVERHEAD + 5), FRAMES_BEGIN + OVERHEAD + 5)
    found = replayed(disk)
    assert content(found) == b"AAAAACCCCCDDDDD"
    assert (found.unnamed, found.shards, found.lost_below) == ({0}, 1, {})
    assert found.control_lost == 1, "it may have been an event"


def test_a_barrier_whose_frame_is_damaged_holds_all_the_same() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"void!")
    wal.barrier(TOPIC, 0)
    writer.append(b"after")
    file = disk.open(f"{ROOT}/shard-00/wal-0.log")
    file.pwrite(bytes(20), FRAMES_BEGIN + OVERHEAD + 5 + 10)
    found = replayed(disk)
    assert content(found) == b"after"
    assert not found.missing


def test_a_missing_file_is_noticed() -> None:
    disk = MemoryStorage()
    config = WalConfig(file_bytes=8192, shard_bytes=64 * 8192)
    wal, _ = begun(disk, config)
    writer = Writer(wal)
    for number in range(20):
        writer.append(bytes([number]) * 1000)
    disk.unlink(f"{ROOT}/shard-00/wal-2.log")
    (missing,) = replayed(disk, config).missing
    assert missing.durable
    assert missing.frames == 3


def test_the_header_of_another_file_makes_none_of_its_frames_valid() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    disk.rename(f"{ROOT}/shard-00/wal-0.log", f"{ROOT}/shard-00/wal-7.log")
    assert replayed(disk).is_empty


# Failure


class FailingStorage(MemoryStorage):
    """Fails the writes or syncs of WAL files while told to; counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.fail_write: int = 0
        self.fail_sync: int = 0
        self.calls: list[tuple[str, str]] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = FailingFile(path, plain._inode, self)
        file.owner = self
        return file


class FailingFile(MemoryFile):
    owner: FailingStorage

    def pwrite(self, data: Buffer, position: int) -> int:
        self.owner.calls.append(("pwrite", self.path))
        if self.owner.fail_write:
            raise OSError(self.owner.fail_write, "planted", self.path)
        return super().pwrite(data, position)

    def fdatasync(self) -> None:
        self.owner.calls.append(("fdatasync", self.path))
        if self.owner.fail_sync:
            raise OSError(self.owner.fail_sync, "planted", self.path)
        super().fdatasync()


def test_a_failed_sync_acks_nothing_and_is_never_tried_again() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    one, two = Writer(wal, 1), Writer(wal, 2)
    one.append(b"kept")
    disk.fail_sync = errno.EIO
    one.append(b"lost")
    disk.fail_sync = 0
    disk.calls.clear()
    two.append(b"late")
    assert (one.durable, two.durable) == (4, 0)
    assert one.failures[0].errno == two.failures[0].errno == errno.EIO
    assert disk.calls == [], "neither written nor synced"
    with pytest.raises(OSError, match="planted"):
        wal.control(b"event")
    wal.revive()
    two.append(b"more")
    wal.control(b"event")
    assert ("fdatasync", f"{ROOT}/shard-00/wal-0.log") not in disk.calls, "that one never again"


def test_after_a_write_without_space_the_shard_goes_on_in_another_file() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept")
    disk.fail_write = errno.ENOSPC
    writer.append(b"lost")
    assert writer.failures[0].errno == errno.ENOSPC
    shard = wal.shard_of(TOPIC, 0)
    disk.fail_write = 0
    disk.calls.clear()
    shard.revive()
    assert ("fdatasync", f"{ROOT}/shard-00/wal-0.log") not in disk.calls
    writer.append(b"more")
    assert writer.durable == 12
    found = replayed(disk.after_power_cut())
    assert content(found) == b"keptmore"
    assert not found.missing, "what was given up is not missed"


def test_frames_that_are_lost_behind_a_failure_that_passed_are_missed() -> None:
    # |kept|lost|  a full disk   | one | two | three |   in the next file; two is gone
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept")
    disk.fail_write = errno.ENOSPC
    writer.append(b"lost")
    disk.fail_write = 0
    wal.shard_of(TOPIC, 0).revive()
    for data in (b"111", b"222", b"333"):
        writer.append(data)
    file = disk.open(f"{ROOT}/shard-00/wal-1.log")
    file.pwrite(bytes(OVERHEAD + 3), FRAMES_BEGIN + OVERHEAD + 3)
    found = replayed(disk)
    assert content(found) == b"kept111333"
    (missing,) = found.missing
    assert (missing.frames, missing.durable) == (1, True)


def test_a_file_that_failed_is_not_used_again() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept")
    disk.fail_write = errno.ENOSPC
    writer.append(b"lost")
    disk.fail_write = 0
    wal.shard_of(TOPIC, 0).revive()
    assert writer.checkpoints == 0
    wal.checkpoint()
    assert writer.checkpoints == 1
    assert disk.listdir(f"{ROOT}/shard-00") == ["wal-1.log", "wal-2.log"]


def test_a_failed_file_is_given_up_once_however_often_it_takes_to_get_another() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept")
    disk.fail_write = errno.ENOSPC
    writer.append(b"lost")
    wal.revive()  # in the file that was made ahead
    writer.append(b"lost, too")
    for _ in range(2):
        with pytest.raises(OSError, match="planted"):
            wal.revive()
    disk.fail_write = 0
    wal.revive()
    assert writer.shard.full_count == 2
    wal.checkpoint()
    writer.append(b"more")
    assert content(replayed(disk.after_power_cut())) == b"more"


def test_what_comes_during_a_sync_shares_the_next_and_a_lone_write_waits_for_nothing() -> None:
    disk = GatedStorage()
    config = WalConfig(file_bytes=1 << 16, shard_bytes=1 << 18)
    wal = Wal(disk, ROOT, config, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    writers = [Writer(wal, partition) for partition in range(9)]
    first, others = writers[0], writers[1:]
    shard = first.shard
    wal.control(b"the file is there")
    before = shard.syncs
    disk.syncs.clear()
    first.append(b"alone")
    until(lambda: not first.wal_queued)  # the writer has taken it; then it hangs in the sync
    for writer in others:
        writer.append(b"meanwhile")
        writer.append(b"again")
    disk.syncs.set()
    wal.control(b"behind them")
    assert [writer.durable for writer in writers] == [5] + [14] * 8
    assert shard.syncs - before in (2, 3), "one alone, one for all others, control with it or not"
    wal.stop()
    wal.close(empty=False)


def test_threads_write_the_same_on_a_real_disk(tmp_path: object) -> None:
    root = f"{tmp_path}/wal"
    config = WalConfig(shards=2, file_bytes=1 << 16, shard_bytes=1 << 18)
    wal = Wal(PosixStorage(), root, config, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    writers = [Writer(wal, partition) for partition in range(8)]
    for number in range(200):
        for writer in writers:
            writer.append(bytes([number]) * 100)
    wal.barrier(TOPIC, 0)
    wal.control(b"event")
    wal.stop()
    assert [writer.durable for writer in writers] == [20_000] * 8
    wal.close(empty=False)
    found = Wal(PosixStorage(), root, config, threaded=False, call_soon=at_once).open()
    assert content(found, 0) == b""
    for partition in range(1, 8):
        got = content(found, partition)
        assert got == b"".join(bytes([n]) * 100 for n in range(200))[-len(got) :]


class Mistaken(Writer):
    """Has a mistake in it."""

    def take_frames(self) -> tuple[list[Frame], int]:
        raise ValueError("a mistake")


def test_an_event_that_waits_beside_a_mistake_of_ours_is_refused() -> None:
    disk = GatedStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    wal.control(b"the file is there")
    first, mistaken = Writer(wal, 1), Mistaken(wal)
    told: list[OSError | None] = []
    disk.syncs.clear()
    first.append(b"holds the writer up")
    until(lambda: not first.wal_queued)
    mistaken.append(b"never written")
    wal.control_soon(b"event", told.append)
    disk.syncs.set()
    until(lambda: bool(told))
    assert "a mistake" in str(told[0])
    wal.stop()
    wal.close(empty=False)
    assert b"event" not in replayed(disk).control


def test_a_mistake_of_ours_fails_everybody_who_waits_and_nobody_waits_for_ever() -> None:
    disk = MemoryStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    wal.control(b"the file is there")
    mistaken, other = Mistaken(wal), Writer(wal, 1)
    mistaken.append(b"never written")
    until(lambda: bool(mistaken.failures))
    assert "a mistake" in str(mistaken.failures[0])
    other.append(b"refused")
    until(lambda: bool(other.failures))
    with pytest.raises(OSError, match="a mistake"):
        wal.control(b"refused")
    wal.stop()
    wal.close(empty=False)
    assert content(replayed(disk), 1) == b""

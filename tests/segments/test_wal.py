"""The write-ahead log by itself: what is acknowledged is found again, and nothing else counts."""

import errno
import threading

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.frames import FrameType, decode_header
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.pending import Pending
from segbroker.segments.wal.replay import replay, shard_folders
from segbroker.segments.wal.scanning import scan_file

from ..support.gated_storage import GatedStorage
from .tools import append, batch_of
from .wal_writing import ROOT, SMALL, TOPIC, Writer, at_once, begun, content, replayed, until


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
    pending.add(b"ij", 2, 2, 4, 5, 9)  # where the other segment goes on; it is another all the same
    frames, end = pending.take()
    assert end == 5
    assert [(f.segment, f.base_offset, f.timestamp, bytes(f.payload)) for f in frames] == [
        (0, 0, 7, b"abcdef"),
        (1, 3, 8, b"gh"),
        (2, 4, 9, b"ij"),
    ]
    assert pending.take() == ([], 5)


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
    names = disk.listdir(f"{ROOT}/shard-00")
    assert sum(name.startswith("wal-") for name in names) > 5
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
    wal.control(b"an event")()
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
    frames = replayed(disk.after_power_cut()).partitions.get((TOPIC, 5), [])
    assert {frame.base_offset for frame in frames} == {77}


def test_nothing_is_said_of_the_logs_of_a_topic_that_is_gone() -> None:
    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    config = TopicConfig({"durability": "fsync"})
    for name in ("a", "b", "c"):
        manager.create_topic(name, 2, config)
        for partition in range(2):
            append(manager.get_handler(name, partition), batch_of(b"value"))
            manager.get_handler(name, partition).sync()
        manager.delete_topic(name)
    stays = manager.create_topic("stays", 1, config)
    for _ in range(200):
        append(manager.get_handler("stays", 0), batch_of(bytes(1_000)))
    assert manager.wal.statistics().checkpoints > 2
    found = replay(disk.after_kill(), "/data/wal")
    assert {topic_id for topic_id, _ in found.partitions} == {stays.topic_id.bytes}


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
    wal.control(b"first")()
    wal.control_soon(b"second", told.append)
    assert told == [None]
    assert replayed(disk.after_power_cut()).control == [b"first", b"second"]


def test_a_snapshot_is_taken_before_a_file_with_control_events_is_freed() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    seen: list[int] = []
    wal.snapshot = lambda: seen.append(len(replayed(disk).control))
    for number in range(30):
        wal.control(bytes([number]) * 1000)()
    assert len(seen) > 3
    assert all(seen), "the events were still there"


def test_the_end_of_a_synced_log_rides_with_the_next_group() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    assert (TOPIC, 5) not in replayed(disk.after_power_cut()).partitions
    wal.control(b"anything")()
    (end,) = replayed(disk.after_power_cut()).partitions[TOPIC, 5]
    assert (end.type, end.segment, end.position, end.base_offset) == (FrameType.END, 3, 4096, 77)


def test_the_number_of_shards_may_change_between_two_starts() -> None:
    disk = MemoryStorage()
    wide = WalConfig(shards=4, file_bytes=8192, shard_bytes=4 * 8192)
    wal, _ = begun(disk, wide)
    for partition in range(16):
        Writer(wal, partition).append(b"%d" % partition)
    assert len(shard_folders(disk, ROOT)) == 4
    disk = disk.after_power_cut()
    wal, found = begun(disk)
    assert [content(found, partition) for partition in range(16)] == [
        b"%d" % partition for partition in range(16)
    ]
    assert list(shard_folders(disk, ROOT)) == [0]
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
    assert all(name.startswith("free-") for name in disk.listdir(f"{ROOT}/shard-00"))


def test_an_end_without_synced_logs_leaves_everything_to_be_replayed() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    wal.stop()
    wal.close(empty=False)
    assert content(replayed(disk.after_power_cut())) == b"one"


def test_what_comes_during_a_sync_shares_the_next_and_a_lone_write_waits_for_nothing() -> None:
    disk = GatedStorage()
    config = WalConfig(file_bytes=1 << 16, shard_bytes=1 << 18)
    wal = Wal(disk, ROOT, config, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    writers = [Writer(wal, partition) for partition in range(9)]
    first, others = writers[0], writers[1:]
    shard = first.shard
    wal.control(b"the file is there")()
    before = shard.syncs
    disk.syncs.clear()
    first.append(b"alone")
    until(lambda: not first.wal_queued)  # the writer has taken it; then it hangs in the sync
    for writer in others:
        writer.append(b"meanwhile")
        writer.append(b"again")
    disk.syncs.set()
    wal.control(b"behind them")()
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
    wal.control(b"event")()
    wal.stop()
    assert [writer.durable for writer in writers] == [20_000] * 8
    wal.close(empty=False)
    found = Wal(PosixStorage(), root, config, threaded=False, call_soon=at_once).open()
    assert content(found, 0) == b""
    for partition in range(1, 8):
        got = content(found, partition)
        assert got == b"".join(bytes([n]) * 100 for n in range(200))[-len(got) :]


def test_who_stops_the_wal_waits_for_what_is_queued_and_for_every_thread_of_it() -> None:
    before = set(threading.enumerate())
    disk = GatedStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    writer = Writer(wal)
    writer.append(b"first")
    until(lambda: writer.durable == 5)
    disk.syncs.clear()
    writer.append(b"later")
    freeing = threading.Timer(0.2, disk.syncs.set)
    freeing.start()
    wal.stop()
    assert writer.durable == 10
    freeing.join()
    assert not set(threading.enumerate()) - before
    wal.close(empty=False)

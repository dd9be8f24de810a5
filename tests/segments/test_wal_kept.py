"""A file of frames that were kept for the next start is damaged: it was written whole, so every
byte that is no frame is told, as damage in the middle of the write-ahead log is."""

import errno
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import DiskManager, NewTopic
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import PAGE, read_file
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.frames import FRAME_SIZE, FRAMES_BEGIN, OVERHEAD, Frame, FrameType
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.kept import write_kept
from segbroker.segments.wal.replay import Replay, scan_wal_file
from segbroker.segments.wal.trailers import TRAILER_SIZE

from .crash.images import Images
from .crash.observing import see_handler
from .crash.recording import Fault, RecordingStorage
from .crashing import CrashingStorage, Killed
from .tools import batch_of, flip
from .wal_writing import ROOT, TOPIC, Writer, at_once, begun, content, replayed

FOLDER = f"{ROOT}/shard-00"
TWO_SHARDS = WalConfig(shards=2, file_bytes=8192, shard_bytes=4 * 8192)
KEPT = f"{FOLDER}/kept-7.log"


def batches(partition: int, base_offset: int) -> Frame:
    batch = bytearray(batch_of(b"x"))
    batch[:8] = base_offset.to_bytes(8, "big")
    end = base_offset + 1
    return Frame(FrameType.BATCHES, TOPIC, partition, 0, 0, base_offset, 1, batch, end_offset=end)


FRAMES = [
    batches(1, 10),
    batches(2, 20),
    Frame(FrameType.END, TOPIC, 1, base_offset=11, end_offset=11),
    batches(1, 11),
]


def kept_disk() -> tuple[MemoryStorage, list[int]]:
    """A disk with a kept file, and where its frames begin and the last one ends."""
    disk = MemoryStorage()
    begun(disk)
    write_kept(disk, FOLDER, 7, FRAMES)
    places = [FRAMES_BEGIN]
    for frame in FRAMES:
        places.append(places[-1] + frame.size)
    return disk, places


def kept(found: Replay) -> list[tuple[int, int]]:
    return sorted(
        (key[1], frame.base_offset)
        for key, frames in found.partitions.items()
        for frame in frames
        if frame.type is FrameType.BATCHES
    )


WHOLE = [(1, 10), (1, 11), (2, 20)]


def test_a_kept_file_that_is_whole_says_everything_and_nothing_is_missing() -> None:
    found = replayed(kept_disk()[0])
    assert kept(found) == WHOLE
    assert (found.missing, found.lost_below, found.unnamed) == ([], {}, set())


def test_every_damaged_byte_of_a_kept_file_costs_one_frame_and_is_told_of_its_partition() -> None:
    disk, places = kept_disk()
    file, before = disk.open(KEPT), read_file(disk, KEPT)
    for place in range(places[0], places[-1]):
        file.pwrite(bytes([before[place] ^ 0x41]), place)
        found = replayed(disk)
        hit = next(n for n, end in enumerate(places[1:]) if place < end)
        frame = FRAMES[hit]
        if frame.type is FrameType.END or place >= places[hit + 1] - TRAILER_SIZE:
            assert kept(found) == WHOLE, "it has nothing that its other half has not"
            assert (found.missing, found.lost_below) == ([], {})
        else:
            assert kept(found) == [
                one for one in WHOLE if one != (frame.partition, frame.base_offset)
            ]
            (missing,) = found.missing
            assert (missing.position, missing.size, missing.durable) == (
                places[hit],
                frame.size,
                True,
            )
            assert found.lost_below == {frame.key: frame.end_offset}
        assert not found.unnamed
        file.pwrite(before[place : place + 1], place)


@pytest.mark.parametrize("byte", [0, 0x5A])
def test_frames_of_a_kept_file_of_which_nothing_is_left_are_told_without_a_name(byte: int) -> None:
    for hit in range(len(FRAMES)):
        disk, places = kept_disk()
        size = places[hit + 1] - places[hit]
        disk.open(KEPT).pwrite(bytes([byte]) * size, places[hit])
        found = replayed(disk)
        (missing,) = found.missing
        assert (missing.position, missing.size, missing.durable) == (places[hit], size, True)
        assert found.unnamed == {0}


def test_a_kept_file_that_is_zeros_or_cut_anywhere_is_told() -> None:
    _, places = kept_disk()
    for end in range(places[0], places[-1]):
        disk, _ = kept_disk()
        disk.open(KEPT).truncate(end)
        found = replayed(disk)
        (missing,) = found.missing
        assert missing.durable
        assert missing.position + missing.size == places[-1]
        assert found.unnamed == {0}
    for begin in (0, *places[:-1]):
        disk, _ = kept_disk()
        disk.open(KEPT).pwrite(bytes(places[-1] - begin), begin)
        found = replayed(disk)
        assert [one.durable for one in found.missing] == [True]
        assert found.unnamed == {0}


def test_damage_to_a_full_file_is_told_after_its_frames_were_kept() -> None:
    # | precious | zeros... |   a byte of it is bad when the checkpoint copies it out
    disk = MemoryStorage()
    wal, _ = begun(disk)
    failed, other = Writer(wal, 1), Writer(wal, 2)
    failed.can_checkpoint = False
    failed.append(b"precious")
    failed.append(b"and whole")
    disk.open(f"{FOLDER}/wal-0.log").pwrite(b"?", FRAMES_BEGIN + 66)
    with capture_logs() as logs:
        for number in range(100):
            other.append(bytes([number]) * 1000)
    damaged = [one["number"] for one in logs if one["event"] == "wal_frames_damaged"]
    assert damaged == [0], "it is told when it is met, and of no whole file"
    assert disk.exists(f"{FOLDER}/kept-0.log")
    assert not disk.exists(f"{FOLDER}/wal-0.log")
    found = replayed(disk.after_power_cut())
    assert content(found, 1) == b"and whole"
    assert found.lost_below == {(TOPIC, 1): 8}
    (missing,) = found.missing
    assert missing.durable
    assert missing.what == f"all frames in bytes {FRAMES_BEGIN} to {FRAMES_BEGIN + OVERHEAD + 8}"


def test_what_the_disk_does_not_give_of_a_full_file_holds_up_nobody_else() -> None:
    disk, config = MemoryStorage(), WalConfig(file_bytes=4 * PAGE, shard_bytes=16 * PAGE)
    wal, _ = begun(disk, config)
    failed, other = Writer(wal, 1), Writer(wal, 2)
    failed.can_checkpoint = False
    for data in (bytes(3_000), bytes(2_000), b"precious"):
        failed.append(data)
    pread = MemoryFile.pread

    def given(file: MemoryFile, buffer: memoryview, position: int) -> int:
        if file.path.endswith("/wal-0.log") and position <= bad < position + len(buffer):
            raise OSError(errno.EIO, "a bad sector", file.path)
        return pread(file, buffer, position)

    bad = FRAMES_BEGIN + 100
    with patch.object(MemoryFile, "pread", given):
        for number in range(100):
            other.append(bytes([number]) * 1000)
    assert other.failures == []
    found = replayed(disk.after_power_cut(), config)
    assert content(found, 1) == b"precious"
    assert found.lost_below == {(TOPIC, 1): 5_000}
    assert [one.durable for one in found.missing] == [True]


def test_damage_behind_a_damaged_end_mark_is_told_after_its_frames_were_kept() -> None:
    # | END | precious | zeros... |   the heads of both are bad, their trailers are not
    disk = MemoryStorage()
    wal, _ = begun(disk)
    failed, other = Writer(wal, 1), Writer(wal, 2)
    failed.can_checkpoint = False
    wal.end_soon(TOPIC, 1, 0, 0, 0)
    failed.append(b"precious")
    for place in (FRAMES_BEGIN, FRAMES_BEGIN + OVERHEAD):
        disk.open(f"{FOLDER}/wal-0.log").pwrite(b"?", place)
    while not disk.exists(f"{FOLDER}/kept-0.log"):
        other.append(bytes(1_000))
    found = replayed(disk.after_power_cut())
    assert content(found, 1) == b""
    assert found.lost_below == {(TOPIC, 1): 8}
    assert [one.durable for one in found.missing] == [True]


def test_a_barrier_among_kept_frames_makes_those_before_it_void() -> None:
    disk = MemoryStorage()
    begun(disk)
    write_kept(disk, FOLDER, 7, [FRAMES[0], Frame(FrameType.BARRIER, TOPIC, 1), FRAMES[3]])
    assert kept(replayed(disk)) == [(1, 11)]


@pytest.mark.parametrize(("shard", "unnamed"), [(0, {0, 1}), (1, {1})])
def test_frames_that_a_start_kept_may_be_of_every_shard_and_others_of_their_own(
    shard: int, unnamed: set[int]
) -> None:
    disk = MemoryStorage()
    begun(disk, TWO_SHARDS)
    folder = f"{ROOT}/shard-{shard:02d}"
    write_kept(disk, folder, 7, FRAMES)
    disk.open(f"{folder}/kept-7.log").pwrite(bytes(FRAMES[0].size), FRAMES_BEGIN)
    assert replayed(disk, TWO_SHARDS).unnamed == unnamed


def test_a_start_keeps_frames_also_where_the_directory_for_them_is_gone() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk, TWO_SHARDS)
    wal.close(empty=True)
    for name in disk.listdir(FOLDER):
        disk.unlink(f"{FOLDER}/{name}")
    disk.rmdir(FOLDER)
    wal = Wal(disk, ROOT, TWO_SHARDS, threaded=False, call_soon=at_once)
    wal.open()
    wal.keep({(TOPIC, 1): FRAMES[:1]}, {})
    wal.absorbed()
    assert kept(replayed(disk.after_power_cut(), TWO_SHARDS)) == [(1, 10)]


def data_directory() -> tuple[MemoryStorage, str, list[int]]:
    """Topics `t` and `v`; the disk refused what the log ahead has of `t`, offsets 0 and 1: a kept
    file has it.  Its path, and where its frames begin and the last one ends."""
    disk = MemoryStorage()
    manager = opened(disk)
    manager.create_topics([NewTopic(name, 1, TopicConfig({})) for name in "tv"])
    for number in range(2):
        batch = memoryview(bytearray(encode_batch([b"kept %d" % number], timestamps_ms=1_000)))
        manager.get_handler("t", 0).append(batch, check_batch(batch), 1_000)
    refusing = RecordingStorage.over(disk.after_power_cut())
    refusing.faults.append(Fault("fdatasync", "/t_partition_0_segment_0.log", 0, lasts=True))
    opened(refusing).close()
    left = refusing.after_power_cut()
    (name,) = [name for name in left.listdir(FOLDER) if name.startswith("kept-")]
    path = f"{FOLDER}/{name}"
    size = OVERHEAD + len(batch)
    return left, path, [FRAMES_BEGIN, FRAMES_BEGIN + size, FRAMES_BEGIN + 2 * size]


def opened(disk: MemoryStorage) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=2_000)
    manager.open()
    return manager


def findings(disk: MemoryStorage) -> list[str]:
    return [one.text for one in DirectoryChecker(disk, "/data", 2_000).check() if one.is_damage]


def test_a_kept_batch_that_is_damaged_is_a_gap_of_its_partition() -> None:
    disk, path, places = data_directory()
    whole = opened(disk.after_kill())
    assert [one.is_gap for one in see_handler(whole.get_handler("t", 0)).items] == [False, False]
    assert not whole.report.counts["wal_damaged"]
    disk.open(path).pwrite(b"?", places[0] + 70)
    assert any("bytes 4096 to" in what for what in findings(disk))
    manager = opened(disk)
    assert manager.report.counts["wal_damaged"] == 1
    gap, batch = see_handler(manager.get_handler("t", 0)).items
    assert (gap.base_offset, gap.next_offset, gap.reason) == (0, 1, "corruption")
    assert (batch.base_offset, batch.is_gap) == (1, False)
    assert manager.get_handler("v", 0).leader_epoch == 0, "it lost nothing"


def test_where_nothing_is_left_of_a_kept_batch_every_partition_begins_a_leader_epoch() -> None:
    disk, path, places = data_directory()
    disk.open(path).pwrite(bytes(places[2] - places[1]), places[1])
    assert any(f"bytes {places[1]} to" in what for what in findings(disk))
    manager = opened(disk)
    assert manager.report.counts["wal_damaged"] == 1
    assert [manager.get_handler(name, 0).leader_epoch for name in "tv"] == [1, 1]


def kept_by_a_checkpoint(disk: MemoryStorage | None = None) -> tuple[MemoryStorage, Writer]:
    """What partition 1 appended is in kept-0.log; and another partition, that goes on."""
    disk = disk or MemoryStorage()
    wal, _ = begun(disk)
    failed, other = Writer(wal, 1), Writer(wal, 2)
    failed.can_checkpoint = False
    failed.append(b"precious")
    while not disk.exists(f"{FOLDER}/kept-0.log"):
        other.append(bytes(1_000))
    return disk, other


def test_a_kept_file_that_is_gone_is_told_whatever_was_written_since() -> None:
    # A marker speaks of it, from before the file goes that its frames came from.
    for later in (0, 1, 40):
        disk, other = kept_by_a_checkpoint()
        for _ in range(later):
            other.append(bytes(1_000))
        image = disk.after_power_cut()
        assert content(replayed(image), 1) == b"precious"
        assert not replayed(image).missing
        image.unlink(f"{FOLDER}/kept-0.log")
        found = replayed(image)
        assert [one.path for one in found.missing if one.durable] == [f"{FOLDER}/kept-0.log"]
        assert found.unnamed == {0}


def test_a_kept_file_that_is_gone_is_told_though_everything_was_freed_since() -> None:
    disk, other = kept_by_a_checkpoint()
    other.append(bytes(1_000))
    other.append(bytes(1_000))
    other.append(bytes(1_000))
    other.append(bytes(1_000))
    other.wal.checkpoint()
    image = disk.after_power_cut()
    assert not replayed(image).missing
    image.unlink(f"{FOLDER}/kept-0.log")
    assert [one.path for one in replayed(image).missing] == [f"{FOLDER}/kept-0.log"]


def test_a_marker_whose_directory_could_not_be_synced_is_made_anew() -> None:
    # What a failed sync was asked for is in doubt for ever: the second is for a new name.  The
    # directory is synced when it is made, for the markers of four files in use, for that of the
    # kept file, and before the first file is freed.
    for nth in range(2, 7):
        check_that_a_marker_is_made_anew(nth)


def check_that_a_marker_is_made_anew(nth: int) -> None:
    disk = RecordingStorage()
    disk.faults.append(Fault("fsync_dir", "/wal", nth))
    _, other = kept_by_a_checkpoint(disk)
    while disk.exists(f"{FOLDER}/wal-0.log"):
        other.append(bytes(1_000))
    assert disk.counts[0] > nth + 1, "it failed, and was tried again"
    images = [image.build() for image in Images(disk).now()]
    assert images
    for image in images:
        if not image.exists(f"{FOLDER}/wal-0.log"):
            assert image.exists(f"{FOLDER}.kept-0")
        assert not replayed(image).missing


def test_a_kept_file_that_was_put_back_is_not_missed_however_far_its_going_went() -> None:
    disk, other = kept_by_a_checkpoint()
    other.append(bytes(1_000))
    dies_at = 0
    while True:
        again = CrashingStorage(dies_at)
        again._root = disk.after_power_cut()._root
        try:
            begun(again)
        except Killed:
            for image in (again.after_power_cut(), again.after_kill()):
                assert not replayed(image).missing
            dies_at += 1
        else:
            break
    assert dies_at > 5
    assert not [name for name in again.listdir(FOLDER) if name.startswith("kept-")]
    assert again.listdir(ROOT) == ["shard-00"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_kept_file_of_a_start_that_is_gone_costs_every_partition_a_leader_epoch(
    goes_on: bool,
) -> None:
    disk = RecordingStorage.over(data_directory()[0])
    disk.faults.append(Fault("fdatasync", "/t_partition_0_segment_0.log", 0, lasts=True))
    manager = opened(disk)
    if goes_on:
        batch = memoryview(bytearray(encode_batch([b"v"], timestamps_ms=1_000)))
        manager.get_handler("v", 0).append(batch, check_batch(batch), 1_000)
    left = disk.after_power_cut()
    (name,) = [name for name in left.listdir(FOLDER) if name.startswith("kept-")]
    left.unlink(f"{FOLDER}/{name}")
    assert any("the file is missing" in text for text in findings(left))
    after = opened(left)
    assert after.report.counts["wal_damaged"] == 1
    assert [after.get_handler(name, 0).leader_epoch for name in "tv"] == [1, 1]
    assert after.get_handler("v", 0).high_watermark == (1 if goes_on else 0)
    assert not opened(left.after_power_cut()).report.counts["wal_damaged"], "it was told"


def test_a_kept_file_is_missed_with_the_directory_of_its_shard() -> None:
    left = data_directory()[0]
    for name in left.listdir(FOLDER):
        left.unlink(f"{FOLDER}/{name}")
    left.rmdir(FOLDER)
    after = opened(left)
    (path,) = [row.path for row in after.report.rows if row.what == "wal_damaged"]
    assert path.startswith(f"{FOLDER}/kept-"), "not the write-ahead log as a whole"
    assert [after.get_handler(name, 0).leader_epoch for name in "tv"] == [1, 1]


def test_a_kept_file_has_the_frames_of_the_logs_that_could_not_be_synced_and_no_others() -> None:
    disk, _ = kept_by_a_checkpoint()
    scanned = scan_wal_file(disk, f"{FOLDER}/kept-0.log")
    assert scanned is not None
    assert [(one.key, bytes(one.payload)) for one in scanned.frames] == [((TOPIC, 1), b"precious")]


@pytest.mark.parametrize("left", [0, 10])
def test_of_a_kept_file_that_is_damaged_and_cut_what_is_between_is_not_told_as_lost(
    left: int,
) -> None:
    disk, places = kept_disk()
    disk.open(KEPT).pwrite(b"?", places[0])
    disk.open(KEPT).truncate(places[3] + left)
    found = replayed(disk)
    assert kept(found) == [(2, 20)]
    first, last = found.missing
    assert (first.position, first.size) == (places[0], FRAMES[0].size)
    assert (last.position, last.position + last.size) == (places[3], places[4])


def test_what_an_earlier_version_has_put_back_is_not_missed_and_goes() -> None:
    # It renames the kept file, and knows no marker; a crash leaves the file under that name.
    disk, _ = kept_by_a_checkpoint()
    disk.rename(f"{FOLDER}/kept-0.log", f"{FOLDER}/spent-0.log")
    assert not replayed(disk).missing
    begun(disk)
    image = disk.after_power_cut()
    assert not [name for name in image.listdir(FOLDER) if name.startswith("spent-")]
    assert image.listdir(ROOT) == ["shard-00"]
    assert not replayed(image).missing


def test_what_was_put_back_excuses_no_later_file_of_its_number() -> None:
    disk = MemoryStorage()
    begun(disk)
    disk.open(f"{FOLDER}/spent-40.log", create=True)
    disk.fsync_dir(FOLDER)
    assert replayed(disk).next_sequence == 41


def test_a_kept_file_that_was_never_whole_is_removed_by_a_start() -> None:
    disk, _ = kept_by_a_checkpoint()
    file = disk.open(f"{FOLDER}/kept-9.log.tmp", create=True)
    file.pwrite(bytes(5_000), 0)
    file.fdatasync()
    disk.fsync_dir(FOLDER)
    image = disk.after_power_cut()
    assert content(replayed(image), 1) == b"precious"
    begun(image)
    assert not image.after_power_cut().exists(f"{FOLDER}/kept-9.log.tmp")


def test_a_kept_file_that_was_never_whole_gives_its_space_to_a_start_on_a_full_disk() -> None:
    disk = MemoryStorage()
    begun(disk)
    image = disk.after_kill()
    for name in image.listdir(FOLDER):
        if name.startswith("free-"):
            image.unlink(f"{FOLDER}/{name}")
    image.open(f"{FOLDER}/kept-9.log.tmp", create=True)
    wal = Wal(image, ROOT, WalConfig(), threaded=False, call_soon=lambda done: done())
    wal.open()
    assert wal.give_space_back()
    assert not image.exists(f"{FOLDER}/kept-9.log.tmp")
    assert not wal.give_space_back()


def test_a_frame_that_a_checkpoint_kept_says_twice_where_its_batches_end() -> None:
    disk, _ = kept_by_a_checkpoint()
    path = f"{FOLDER}/kept-0.log"
    scanned = scan_wal_file(disk, path)
    assert scanned is not None
    (position,) = scanned.positions
    flip(disk, path, position + FRAME_SIZE)
    found = replayed(disk)
    assert content(found, 1) == b""
    assert found.lost_below[TOPIC, 1] == len(b"precious")

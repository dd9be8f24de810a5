"""A file of the write-ahead log that was in use is gone: whichever it was, it is told."""

from collections.abc import Callable

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import remove_tree
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.files import list_files
from segbroker.segments.wal.journal import WalConfig
from segbroker.segments.wal.markers import marked
from segbroker.segments.wal.replay import shard_number

from .crash.observing import see_handler
from .crashing import CrashingStorage, Killed
from .tools import append as append_to
from .tools import batch_of
from .wal_writing import ROOT, Writer, begun, content, replayed

FOLDER = f"{ROOT}/shard-00"


def used(disk: MemoryStorage) -> list[int]:
    return list_files(disk, FOLDER)["wal"]


def test_a_file_in_use_that_is_gone_is_told() -> None:
    # | oldest, full | full | in use | made ahead |
    disk = MemoryStorage()
    wal, _ = begun(disk, WalConfig(file_bytes=8192, shard_bytes=64 * 8192))
    writer = Writer(wal)
    while len(used(disk)) < 4:
        writer.append(bytes(1_000))
    assert not replayed(disk.after_power_cut()).missing
    for places in ([0], [1], [2], [3], [2, 3], [0, 1, 2, 3]):
        image = disk.after_power_cut()
        gone = [f"{FOLDER}/wal-{used(disk)[place]}.log" for place in places]
        for path in gone:
            image.unlink(path)
        found = replayed(image)
        assert [one.path for one in found.missing if one.is_gone] == gone
        assert all(one.durable for one in found.missing)
        assert found.unnamed == {0}
        assert found.control_lost


def test_the_directory_of_a_shard_that_is_gone_is_told() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    for name in disk.listdir(FOLDER):
        disk.unlink(f"{FOLDER}/{name}")
    disk.rmdir(FOLDER)
    found = replayed(disk)
    assert [one.path for one in found.missing] == [f"{FOLDER}/wal-0.log", f"{FOLDER}/wal-1.log"]
    assert (found.shards, found.unnamed) == (1, {0})
    wal, _ = begun(disk)
    Writer(wal).append(b"two")
    found = replayed(disk.after_power_cut())
    assert (content(found), found.missing) == (b"two", []), "told once"


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_which_partitions_a_lost_shard_had_is_known_whichever_it_was(lost: int) -> None:
    four = WalConfig(shards=4, file_bytes=8192, shard_bytes=4 * 8192)

    def opened(disk: MemoryStorage) -> DiskManager:
        manager = DiskManager("/data", storage=disk, flushers=0, wal=four)
        manager.open()
        return manager

    disk = MemoryStorage()
    manager = opened(disk)
    manager.create_topic("t", 16, TopicConfig())
    for partition in range(16):
        append_to(manager.get_handler("t", partition), batch_of(b"x"))
    disk = disk.after_kill()
    remove_tree(disk, f"{ROOT}/shard-{lost:02d}")
    manager = opened(disk)
    meta = manager.topics["t"]
    anew = [number for number in range(16) if manager.leader_epoch(meta, number)]
    shards = [shard_number(meta.topic_id.bytes, number, 4) for number in range(16)]
    assert anew == [number for number in range(16) if shards[number] == lost]


def fill(disk: MemoryStorage) -> None:
    """A life in which files are freed, and used again, and that ends in order."""
    wal, _ = begun(disk)
    writer = Writer(wal)
    while writer.checkpoints < 2:
        writer.append(bytes(1_000))
    wal.stop()
    wal.close(empty=True)


def begin_again(disk: MemoryStorage) -> None:
    begun(disk)


@pytest.mark.parametrize(("before", "dies_in"), [(None, fill), (fill, fill), (None, begin_again)])
def test_nothing_is_missed_wherever_a_life_ends(
    before: Callable[[MemoryStorage], None] | None, dies_in: Callable[[MemoryStorage], None]
) -> None:
    begin = MemoryStorage()
    if before is not None:
        before(begin)
    if dies_in is begin_again:
        wal, _ = begun(begin)
        Writer(wal).append(b"one")
    for dies_at in range(10_000):
        disk = CrashingStorage(dies_at)
        disk._root = begin.after_kill()._root
        try:
            dies_in(disk)
        except Killed:
            for image in (disk.after_kill(), disk.after_power_cut()):
                assert not replayed(image).missing
        else:
            break
    assert dies_at > 5
    assert bool(marked(disk, ROOT)) is bool(used(disk))


def test_a_start_without_a_file_that_was_in_use_begins_a_leader_epoch() -> None:
    # The power took what the segments had, and somebody has removed the file that had it, too.
    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    manager.create_topic("t", 1, TopicConfig({"durability": "fsync"}))
    manager.housekeeping(100_000)  # a snapshot
    append_to(manager.get_handler("t", 0), batch_of(b"acknowledged"), 0)
    epoch = manager.get_handler("t", 0).leader_epoch
    image = disk.after_power_cut()
    for number in used(image):
        image.unlink(f"{FOLDER}/wal-{number}.log")
    manager = DiskManager("/data", storage=image, flushers=0)
    manager.open()
    assert manager.report.counts["wal_damaged"] == 2
    handler = manager.get_handler("t", 0)
    assert (see_handler(handler).end, handler.leader_epoch) == (0, epoch + 1)
    manager.close()
    manager = DiskManager("/data", storage=image, flushers=0)
    manager.open()
    assert not manager.report.counts["wal_damaged"], "told once"

"""The write-ahead log of another data directory in the place of the own one: a wrong volume was
mounted, or the parts of two backups were mixed.  Its files have the numbers that ours may have, and
its events would be applied, while our own records are missing and its records go.
"""

from collections.abc import Callable

import pytest

from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, remove_tree
from segbroker.segments.errors import CorruptMetadata
from segbroker.segments.names import wal_owner_of
from segbroker.segments.wal.files import list_files
from segbroker.segments.wal.frames import encode_header, frames_end, header_blocks, header_of

from .test_parts_of_a_backup import copy, put_over
from .tools import SMALL, append, batch_of, manager_on

WAL = "/data/wal"
FOLDER = f"{WAL}/shard-00"


def life(disk: MemoryStorage, topic: str) -> DiskManager:
    """One that has written five records, of which nothing but the write-ahead log is synced."""
    manager = manager_on(disk)
    manager.create_topic(topic, 1, SMALL)
    for number in range(5):
        append(manager.get_handler(topic, 0), batch_of(b"%d" % number))
    return manager


def killed_in_the_middle(topic: str, seed: int) -> MemoryStorage:
    disk = MemoryStorage(seed)
    life(disk, topic)
    return disk.after_power_cut()


def killed_behind_a_start(topic: str, seed: int) -> MemoryStorage:
    """It has nothing but what the start has kept."""
    disk = killed_in_the_middle(topic, seed)
    manager_on(disk)
    for number in list_files(disk, FOLDER)["wal"]:
        disk.unlink(f"{FOLDER}/wal-{number}.log")
    assert list_files(disk, FOLDER)["kept"]
    return disk.after_kill()


Ends = Callable[[str, int], MemoryStorage]


@pytest.mark.parametrize("ends", [killed_in_the_middle, killed_behind_a_start])
def test_it_is_refused_and_left_as_it_is(ends: Ends) -> None:
    ours, theirs = killed_in_the_middle("t", 0), ends("theirs", 1 << 32)
    own = ours.after_kill()
    put_over(ours, theirs, WAL)
    files = {name: read_file(ours, f"{FOLDER}/{name}") for name in ours.listdir(FOLDER)}
    told = [one for one in DirectoryChecker(ours.after_kill(), "/data", 0).check() if one.is_damage]
    assert [one for one in told if "another data directory" in one.text]
    for _ in range(2):
        with pytest.raises(CorruptMetadata, match="is another data directory's"):
            manager_on(ours)
    assert files == {name: read_file(ours, f"{FOLDER}/{name}") for name in ours.listdir(FOLDER)}
    put_over(ours, own, WAL)
    manager = manager_on(ours)
    assert set(manager.topics) == {"t"}
    assert manager.get_handler("t", 0).high_watermark == 5
    assert not manager.report.counts["wal_damaged"]


def test_one_goes_on_without_when_it_was_moved_away() -> None:
    ours, theirs = killed_in_the_middle("t", 0), killed_in_the_middle("theirs", 1 << 32)
    put_over(ours, theirs, WAL)
    remove_tree(ours, WAL)
    manager = manager_on(ours)
    assert manager.report.counts["wal_damaged"] == 1
    assert not manager.topics, "its event was in the log"


def test_a_copy_of_a_whole_data_directory_is_the_same_one() -> None:
    ours, elsewhere = killed_in_the_middle("t", 0), MemoryStorage(1 << 32)
    copy(ours, elsewhere, "/data")
    assert manager_on(elsewhere).get_handler("t", 0).high_watermark == 5


def test_each_file_says_whose_it_is_and_one_of_an_earlier_version_is_read() -> None:
    disk = MemoryStorage()
    manager = life(disk, "t")
    names = [name for name in disk.listdir(FOLDER) if name.startswith("wal-")]
    assert names
    for name in names:
        header = header_of(read_file(disk, f"{FOLDER}/{name}"))
        assert header is not None
        assert header.owner == wal_owner_of(manager.cluster_id)
        before = header._replace(owner=0)
        file = disk.open(f"{FOLDER}/{name}")
        (begin, first), _ = header_blocks(before)
        file.pwrite(first, begin)
        file.pwrite(encode_header(before), frames_end(header.size))
    left = disk.after_kill()
    again = manager_on(left)
    assert again.get_handler("t", 0).high_watermark == 5
    assert not again.report.counts["wal_damaged"]

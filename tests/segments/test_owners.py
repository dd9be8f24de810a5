"""Files put back by hand: of another partition, or a whole directory of a deleted topic."""

import pytest

from segbroker.segments.checks.directory_check import DirectoryChecker, repair_directory
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import make_dirs, read_file, replace_file
from segbroker.segments.errors import StorageError
from segbroker.segments.files.manifest import decode_manifest, encode_manifest
from segbroker.segments.names import partition_paths
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import SMALL, append, batch_of, offsets_in, read_from

PLAIN = TopicConfig({})
Files = dict[str, bytes]


def started(disk: MemoryStorage) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    return manager


def files_of(disk: MemoryStorage, topic: str, partition: int) -> Files:
    folder = partition_paths("/data", topic, partition).folder
    return {name: bytes(read_file(disk, f"{folder}/{name}")) for name in disk.listdir(folder)}


def put_files(disk: MemoryStorage, topic: str, partition: int, files: Files) -> None:
    folder = partition_paths("/data", topic, partition).folder
    make_dirs(disk, folder)
    for name in disk.listdir(folder):
        disk.unlink(f"{folder}/{name}")
    for name, content in files.items():
        replace_file(disk, f"{folder}/{name}", content)


def test_a_manifest_of_another_partition_moves_no_log_start() -> None:
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 2, PLAIN)
    for partition in (0, 1):
        for value in (b"zero", b"one", b"two"):
            append(manager.get_handler("t", partition), batch_of(value))
    manager.get_handler("t", 1).delete_records_before(2)
    manager.close()
    one, other = (partition_paths("/data", "t", partition) for partition in (0, 1))
    for kind in ("manifest", "start"):
        replace_file(disk, getattr(one, kind), bytes(read_file(disk, getattr(other, kind))))
    told = [found for found in DirectoryChecker(disk, "/data", 0).check() if found.is_damage]
    assert [found.path for found in told] == [one.manifest]
    handler = started(disk).get_handler("t", 0)
    assert handler.log_start_offset == 0, "what another one deleted is not deleted here"
    assert offsets_in(read_from(handler, 0)) == [0, 1, 2]


@pytest.mark.parametrize("config", [PLAIN, SMALL])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("kinds", ["all files", "segments alone"])
def test_the_directory_of_a_deleted_topic_is_not_served_as_that_of_the_next(
    config: TopicConfig, closed: bool, kinds: str
) -> None:
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, config)
    for _ in range(5):
        append(manager.get_handler("t", 0), batch_of(b"old" * 40))
    manager.close()
    old = files_of(disk, "t", 0)
    if kinds == "segments alone":
        old = {name: content for name, content in old.items() if name.endswith(".log")}
    manager = started(disk)
    manager.delete_topic("t")
    manager.create_topic("t", 1, config)
    append(manager.get_handler("t", 0), batch_of(b"new"))
    if closed:
        manager.close()
    disk = disk.after_kill()
    own = files_of(disk, "t", 0)
    put_files(disk, "t", 0, old)

    told = [found for found in DirectoryChecker(disk, "/data", 0).check() if found.is_damage]
    assert [found.path for found in told] == [partition_paths("/data", "t", 0).folder]
    repair_directory(disk, "/data", 0)
    manager = started(disk)
    with pytest.raises(StorageError, match="an earlier topic of this name"):
        manager.get_handler("t", 0)
    assert files_of(disk, "t", 0) == old, "nothing is changed"
    if not closed:
        put_files(disk, "t", 0, {})  # what the write-ahead log has of it needs no file
        assert offsets_in(read_from(manager.get_handler("t", 0), 0)) == [0]
    manager.close()

    put_files(disk, "t", 0, own)
    assert offsets_in(read_from(started(disk).get_handler("t", 0), 0)) == [0]


@pytest.mark.parametrize("config", [PLAIN, SMALL])
@pytest.mark.parametrize("ends", ["stopped", "killed"])
@pytest.mark.parametrize("theirs_ends", ["stopped", "killed"])
def test_the_directory_of_another_data_directory_is_not_served(
    config: TopicConfig, ends: str, theirs_ends: str
) -> None:
    disks = []
    for seed, value, end in ((0, b"ours" * 40, ends), (1 << 32, b"theirs" * 40, theirs_ends)):
        disk = MemoryStorage(seed)
        manager = started(disk)
        manager.create_topic("t", 1, config)
        for _ in range(5):
            append(manager.get_handler("t", 0), batch_of(value))
        if end == "stopped":
            manager.close()
        disks.append(disk.after_kill())
    disk, other = disks
    own, theirs = files_of(disk, "t", 0), files_of(other, "t", 0)
    put_files(disk, "t", 0, theirs)

    told = [found for found in DirectoryChecker(disk, "/data", 0).check() if found.is_damage]
    assert [found.path for found in told] == [partition_paths("/data", "t", 0).folder]
    manager = started(disk)
    with pytest.raises(StorageError, match="of another data directory"):
        manager.get_handler("t", 0)
    assert files_of(disk, "t", 0) == theirs, "nothing is changed"
    put_files(disk, "t", 0, own)
    assert offsets_in(read_from(manager.get_handler("t", 0), 0)) == [0, 1, 2, 3, 4]
    manager.close()


def test_the_producers_of_another_partition_are_not_taken_for_this_ones() -> None:
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 2, PLAIN)
    for partition, producer_id in ((0, 7), (1, 8)):
        for sequence in range(3):
            append(
                manager.get_handler("t", partition),
                batch_of(b"x", producer=(producer_id, 0, sequence)),
            )
    manager.close()
    one, other = (partition_paths("/data", "t", partition) for partition in (0, 1))
    replace_file(disk, one.producers, bytes(read_file(disk, other.producers)))
    told = [found for found in DirectoryChecker(disk, "/data", 0).check() if found.is_damage]
    assert [found.path for found in told] == [one.producers]
    again = append(started(disk).get_handler("t", 0), batch_of(b"x", producer=(7, 0, 2)))
    assert (again.base_offset, again.duplicate) == (2, True)


@pytest.mark.parametrize("closed", [True, False])
def test_a_manifest_of_an_earlier_version_that_is_of_another_cuts_nothing_off(closed: bool) -> None:
    """Both logs begin at 0, and the first segment of the other has more offsets."""
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 2, SMALL)
    for _ in range(5):
        append(manager.get_handler("t", 0), batch_of(b"ours" * 75))
    for _ in range(5):
        append(manager.get_handler("t", 1), batch_of(b"theirs" * 12))
    manager.close()
    if not closed:
        manager = started(disk)
        append(manager.get_handler("t", 0), batch_of(b"ours" * 75))
        disk = disk.after_kill()
    ours, theirs = (partition_paths("/data", "t", partition) for partition in (0, 1))
    manifest = decode_manifest(read_file(disk, theirs.manifest))
    assert manifest is not None
    replace_file(disk, ours.manifest, encode_manifest(0, manifest.rows))
    handler = started(disk).get_handler("t", 0)
    assert offsets_in(read_from(handler, 0)) == list(range(5 if closed else 6))


@pytest.mark.parametrize("closed", [True, False])
def test_a_segment_with_another_one_of_its_log_in_its_place_is_told_and_begins_no_other_log(
    closed: bool,
) -> None:
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, SMALL)
    for _ in range(2 if closed else 1):
        append(manager.get_handler("t", 0), batch_of(b"ours" * 75))
    manager.close()
    if not closed:
        manager = started(disk)
        append(manager.get_handler("t", 0), batch_of(b"ours" * 75))
        disk = disk.after_kill()
    paths = partition_paths("/data", "t", 0)
    replace_file(disk, paths.log(0), read_file(disk, paths.log(1)))
    again = started(disk)
    handler = again.get_handler("t", 0)
    assert offsets_in(read_from(handler, 0)) == [0, 1], "a gap for one"
    told = [row for row in again.report.rows if row.what == "gap"]
    assert [(row.from_offset, row.to_offset) for row in told] == [(0, 1)]

"""How far the newest file of each shard was written is said of each, until its files are freed."""

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.reached import Reached, reached, say_reached

from .test_parts_of_a_backup import put_over
from .wal_writing import ROOT, TOPIC, Writer, begun, replayed

TWO = WalConfig(shards=2, file_bytes=8192, shard_bytes=4 * 8192)
WITNESS = "/data/witness"


def writers(wal: Wal) -> list[Writer]:
    """One of each shard."""
    found: dict[int, Writer] = {}
    for partition in range(100):
        shard = wal._shards.index(wal.shard_of(TOPIC, partition))
        found.setdefault(shard, Writer(wal, partition))
    return [found[shard] for shard in sorted(found)]


def test_what_is_said_of_one_shard_leaves_the_others_alone() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk, TWO)
    first, second = writers(wal)
    for writer in (first, second):
        writer.append(b"0")
    older = disk.after_power_cut()
    for writer in (first, second):
        writer.append(b"1")
    wal.say_reached()
    second.append(b"2")
    wal.say_reached()
    assert [one.shard for one in reached(disk, WITNESS)] == [0, 1]
    for shard in (0, 1):
        image = disk.after_power_cut()
        put_over(image, older, f"{ROOT}/shard-0{shard}")
        assert len(replayed(image, TWO).missing) == 1, shard


def test_nothing_is_said_of_files_that_a_start_has_freed() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk, TWO)
    for writer in writers(wal):
        writer.append(b"0")
    wal.say_reached()
    disk = disk.after_kill()
    begun(disk, TWO)
    assert not reached(disk, WITNESS)


def test_what_is_said_again_after_a_failure_stays() -> None:
    disk = MemoryStorage()
    begun(disk, TWO)
    for _ in range(2):
        say_reached(disk, WITNESS, Reached(0, 3, 4096))
        assert reached(disk, WITNESS) == [Reached(0, 3, 4096)]

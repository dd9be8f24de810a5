"""What is flushed is on every disk that a power cut leaves; what is not may be, in any order."""

from pathlib import Path
from random import Random

import pytest

from .block_log import SECTOR, Kind, Survivor, encode, entries

DISK_BYTES = 8 * SECTOR


def sector(letter: bytes, count: int = 1) -> bytes:
    return letter * SECTOR * count


def written(log: Path, *what: tuple[int, bytes] | None) -> list[int]:
    """Write a log, None a flush; where each entry ends."""
    with log.open("wb") as file:
        for each in what:
            if each is None:
                file.write(encode(Kind.FLUSH))
            else:
                file.write(encode(Kind.WRITE, each[0] * SECTOR, each[1]))
    return [entry.end for entry in entries(log)]


def disks(survivor: Survivor, tries: int = 300) -> set[bytes]:
    """The first letters of the sectors of each disk that may be left."""
    random = Random(1)
    left = set()
    for _ in range(tries):
        disk = bytearray(survivor.base.read_bytes())
        for position, data in survivor.survivors(random):
            disk[position : position + len(data)] = data
        left.add(bytes(disk[::SECTOR]).rstrip(b"\0"))
    return left


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base"
    path.write_bytes(bytes(DISK_BYTES))
    return path


def test_what_was_flushed_is_there_and_of_the_rest_any_part(tmp_path: Path, base: Path) -> None:
    log = tmp_path / "log"
    ends = written(log, (0, sector(b"a")), None, (1, sector(b"b")), (2, sector(b"c")))
    survivor = Survivor(log, base)
    survivor.advance(ends[0])
    assert disks(survivor) == {b"", b"a"}
    survivor.advance(ends[1])
    assert disks(survivor) == {b"a"}
    survivor.advance(ends[3])
    assert disks(survivor) == {b"a", b"ab", b"abc", b"a\0c"}
    survivor.close()


def test_writes_of_one_place_may_reach_the_disk_in_any_order(tmp_path: Path, base: Path) -> None:
    log = tmp_path / "log"
    ends = written(log, (0, sector(b"a")), (0, sector(b"b")))
    survivor = Survivor(log, base)
    survivor.advance(ends[1])
    assert disks(survivor) == {b"", b"a", b"b"}
    survivor.close()


def test_a_long_write_may_be_there_in_part_but_no_sector_is(tmp_path: Path, base: Path) -> None:
    log = tmp_path / "log"
    ends = written(log, (0, sector(b"a", 3)))
    survivor = Survivor(log, base)
    survivor.advance(ends[0])
    assert disks(survivor) == {b"", b"a", b"aa", b"aaa"}
    survivor.close()


def test_most_is_in_the_cache_in_front_of_a_flush(tmp_path: Path, base: Path) -> None:
    log = tmp_path / "log"
    ends = written(log, *((n, sector(b"x")) for n in range(4)), None, (5, sector(b"y")))
    survivor = Survivor(log, base)
    survivor.advance(ends[0], to_flush=ends[2])
    assert survivor.cached_count == 3
    survivor.advance(ends[1], to_flush=ends[-1])
    assert survivor.cached_count == 4
    survivor.advance(ends[-1])
    assert survivor.cached_count == 1
    survivor.close()


def test_an_entry_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    log = tmp_path / "log"
    written(log, (0, sector(b"a")), (1, sector(b"b")))
    log.write_bytes(log.read_bytes()[:-1])
    assert [entry.data[:1] for entry in entries(log)] == [b"a"]

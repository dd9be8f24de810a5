"""What recovery takes from a file: two disks that are alike in it have the same outcome.

| file | taken from it |
|---|---|
| `.tmp` | that it is there: nobody reads it |
| a copy in quarantine/ | that it is there, and whether it is the file it is a copy of as that |
| ... | is now: what is kept already is not kept again (`Image.kind`) |
| a free file of the WAL | its size, where a file of the WAL may have it |
| a file of the WAL | its frames, what damaged ones say, where the first one stands, whether the |
| ... | header is its own and the file as long as it says; of a kept one every hole |
| a segment | its whole batches, and what follows: nothing, zeros, or no valid batch |
| ... with a valid batch behind damage | every byte |
| an index, a snapshot of producers, the clock | every byte, or that it is not whole |
| a manifest | the valid rows, and whether that is all |
| the newest snapshot of the metadata | every byte, and not its number: one that is found beside |
| ... | another gets the next |
| anything else | every byte |

Some say nothing beside the others that are there (`says_nothing`), before a recovery and behind it:

| file | says nothing |
|---|---|
| a marker, in `wal/` or `witness/` | while the file is there of which it speaks |
| an older snapshot; `witness/snapshot-<n>` | while there is a newer one; this or a newer one |
| `witness/wal-from-<n>` | while a file of the log, or another such name, has a higher number |

The product's own decoders say what is whole: where one of them is wrong, the file is of another
kind.  That nothing else is taken is a claim about recovery and not a fact; so the explorer
recovers some of the disks that are like an earlier one all the same, and compares what is seen and
what is left (`Plan.alike_every`; 1: every disk, as the long tier and the planted bugs do).
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, lru_cache
from typing import NamedTuple, TypeAlias

from segbroker.protocol.checksums import xxh3_64
from segbroker.segments.decisions import Tail, scan
from segbroker.segments.directory.age_clock import CLOCK
from segbroker.segments.files.index import ENTRY_SIZE, HEADER, WrongIndex, decode_index
from segbroker.segments.files.manifest import decode_manifest
from segbroker.segments.log.producers import decode_producers
from segbroker.segments.wal.frames import FILE_SIZE_MIN, header_of
from segbroker.segments.wal.scanning import scan_file

Taken: TypeAlias = Callable[[bytes], int]
"""A number for what is taken from these bytes."""

_BROKEN = 1
_THERE = 2
_PLAIN_TAILS = {Tail.WHOLE: b"|", Tail.ZEROS: b"0", Tail.TORN: b"?"}

_MARKER = re.compile(r"(.*)/(?:wal|witness)/(shard-\d+)\.((?:wal|kept)-\d+)")
_NUMBERED = re.compile(
    r".*/(meta/snapshot|witness/snapshot|witness/wal-from|wal/shard-\d+/(?:wal|kept))"
    r"-(\d+)(?:\.msgpack|\.log)?"
)


class _Said(NamedTuple):
    """A marker: of the file `what`; else a number of one kind of files."""

    what: str
    number: int


@cache
def taken_from(path: str) -> Taken | None:
    """How to tell what recovery takes from the file at `path`; None: every byte."""
    folder, _, name = path.rpartition("/")
    if name.endswith(".tmp") or folder.endswith("/quarantine"):
        return lambda data: _THERE
    if name.startswith("free-"):
        return lambda data: _BROKEN if len(data) % FILE_SIZE_MIN else 16 + len(data)
    if name.startswith(("wal-", "kept-")):
        return lambda data: _of_wal(name, data)
    if name == "clock":
        return _of_clock
    if name.endswith(".index"):
        return _of_index
    if name.endswith((".manifest", ".start")):
        return _of_manifest
    if name.endswith(".producers"):
        return lambda data: _BROKEN if decode_producers(data) is None else xxh3_64(data)
    if name.endswith(".log"):
        return _of_segment
    return None


def _of_wal(name: str, data: bytes) -> int:
    header = header_of(data)
    if header is None or name.partition("-")[2] != f"{header.sequence}.log":
        return _BROKEN
    found = scan_file(memoryview(data), header)
    frames = [(*frame._replace(payload=b""), xxh3_64(frame.payload)) for frame in found.frames]
    first = None if found.first is None else found.first[:4]
    holes = found.holes if name.startswith("kept-") else []
    return xxh3_64(repr((frames, found.suspects, first, found.cut, holes)).encode())


def _of_clock(data: bytes) -> int:
    whole = len(data) == CLOCK.size and data[8:] == xxh3_64(data[:8]).to_bytes(8, "big")
    return xxh3_64(data) if whole else _BROKEN


def _of_index(data: bytes) -> int:
    # Of whatever segment: its own base offset, and as many bytes as its blocks cover.
    with suppress(WrongIndex):
        if len(data) >= HEADER.size:
            covered = sum(
                int.from_bytes(data[place + 8 : place + 12], "big")
                for place in range(HEADER.size, len(data), ENTRY_SIZE)
            )
            decode_index(data, HEADER.unpack_from(data)[3], covered)
            return xxh3_64(data)
    return _BROKEN


def _of_manifest(data: bytes) -> int:
    manifest = decode_manifest(data)
    if manifest is None:
        return _BROKEN
    return xxh3_64(data[: manifest.size] + (b"|" if manifest.size == len(data) else b"?"))


def _of_segment(data: bytes) -> int:
    found = scan(memoryview(data), None)
    behind = _PLAIN_TAILS.get(found.tail)
    return xxh3_64(data if behind is None else data[: found.valid_size] + behind)


def says_nothing(paths: Iterable[str]) -> tuple[str, ...]:
    """Those of the files on a disk that could as well not be there."""
    return _silent_of(tuple(paths))


@lru_cache(maxsize=1_024)
def _silent_of(paths: tuple[str, ...]) -> tuple[str, ...]:
    there = [(path, said) for path in paths if (said := _said_by(path)) is not None]
    snapshot = max((one.number for _, one in there if one.what == "meta/snapshot"), default=-1)
    wal_from = max((one.number for _, one in there if one.what == "witness/wal-from"), default=0)
    following = max((one.number + 1 for _, one in there if one.what == "wal"), default=0)

    def is_silent(what: str, number: int) -> bool:
        match what:
            case "wal":
                return False
            case "meta/snapshot":
                return number < snapshot
            case "witness/snapshot":
                return number <= snapshot
            case "witness/wal-from":
                return number < wal_from or number <= following
            case _:
                return what in paths

    return tuple(path for path, said in there if is_silent(*said))


@cache
def _said_by(path: str) -> _Said | None:
    if marker := _MARKER.fullmatch(path):
        return _Said(f"{marker[1]}/wal/{marker[2]}/{marker[3]}.log", 0)
    if numbered := _NUMBERED.fullmatch(path):
        what = "wal" if numbered[1].startswith("wal/") else numbered[1]
        return _Said(what, int(numbered[2]))
    return None

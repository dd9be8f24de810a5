"""How far the newest file of a shard was written, said from outside of the write-ahead log.

    wal/shard-00/wal-17.log    | header | frames .................. | zeros
                                                                    ^ 40960
    witness/shard-00.wal-17.reached-40960

A file of the log is in use for as long as it takes to fill it, days where little is written.  An
older copy of it has the same name and the same salt, and fewer frames; so has one whose last pages
the disk has lost.  Nothing in it says that more was there.

Said once a minute, of files that went on since: a lower bound, which does not cover what was
acknowledged in the last minute.  Of a file that is gone nothing is looked up here: markers.py.
"""

import re
from typing import Final, NamedTuple

from ..disk.storage import Storage
from ..witness import make_fact, names_in

_REACHED: Final = re.compile(
    r"shard-([0-9]{2,9})\.wal-(0|[1-9][0-9]{0,18})\.reached-([1-9][0-9]{0,18})"
)


class Reached(NamedTuple):
    """Frames of this file were durable up to `position`."""

    shard: int
    number: int
    position: int


def reached(storage: Storage, folder: str) -> list[Reached]:
    """All that is said in `folder`, the witness of the log.  Raises OSError."""
    matches = map(_REACHED.fullmatch, names_in(storage, folder))
    return [Reached(int(match[1]), int(match[2]), int(match[3])) for match in matches if match]


def say_reached(storage: Storage, folder: str, one: Reached) -> None:
    """Say this of a shard instead of what was said before; durable at return.  The directory is
    there: the file that is spoken of has a marker in it.  Raises OSError."""
    before = [old for old in reached(storage, folder) if old.shard == one.shard and old != one]
    make_fact(storage, _path(folder, one))
    for old in before:
        storage.unlink(_path(folder, old))  # not synced: the higher one counts


def forget_reached(storage: Storage, folder: str) -> None:
    """The files are not in use any more; not synced: no other file has their numbers.  Raises
    OSError."""
    for one in reached(storage, folder):
        storage.unlink(_path(folder, one))


def _path(folder: str, one: Reached) -> str:
    return f"{folder}/shard-{one.shard:02d}.wal-{one.number}.reached-{one.position}"

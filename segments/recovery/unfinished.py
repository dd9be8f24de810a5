"""A cleaning that a crash interrupted: what its last decision says, and how far it got.

    .cleaned written, synced -> SEGMENT row, synced -> .cleaned gets the name -> the others go
                                ^ the decision

| found | the swap is | then |
|---|---|---|
| no row; .cleaned | not decided | .cleaned goes |
| row; its bytes under the segment's name | DONE | what it stands for goes, if it is still there |
| row; its bytes in .cleaned | WAITING | the rename is made up for |
| row; neither, the old segment under the name | UNDONE | the rows that it replaced hold again |
| row; neither | DONE: damage | a read finds it and repairs it |

A segment that is DONE gets its name once more before what it stands for goes (repairing.py): the
sync of it may have failed.

UNDONE takes a manifest whose sync failed, or a .cleaned that was damaged or removed: nothing was
unlinked before the rename was durable, so the old segments are all there.

Only the last swap of a manifest can be unfinished: the next one begins when it is done.
"""

from contextlib import closing
from enum import Enum
from typing import NamedTuple

from ..disk.storage import Storage, read_file
from ..files.manifest import Row
from ..names import LogPaths
from . import identity


class SwapState(Enum):
    """How far a swap got."""

    DONE = "done"
    WAITING = "waiting"
    UNDONE = "undone"


class Swap(NamedTuple):
    """A row that stands for others, in the place of which it came."""

    row: Row
    replaced: list[Row]


def state_of(storage: Storage, paths: LogPaths, swap: Swap) -> SwapState:
    """Where the swap stands; nothing is changed.  Raises OSError."""
    number, last = swap.row.number, swap.replaced[-1]
    size, base_offset = head_of(storage, paths.log(number))
    differs = (last.size, last.base_offset) != (swap.row.size, swap.row.base_offset)
    fits = (size, base_offset) == (swap.row.size, swap.row.base_offset)
    if fits and (differs or is_segment(storage, paths.log(number), swap.row)):
        return SwapState.DONE
    if is_segment(storage, paths.cleaned(number), swap.row):
        return SwapState.WAITING
    if (size, base_offset) == (last.size, last.base_offset):
        return SwapState.UNDONE
    return SwapState.DONE


def is_segment(storage: Storage, path: str, row: Row) -> bool:
    """Whether the bytes of a file are the segment that `row` speaks of, whole.  Raises OSError."""
    try:
        return identity.is_segment(memoryview(read_file(storage, path)), row)
    except FileNotFoundError:
        return False


def head_of(storage: Storage, path: str) -> tuple[int, int]:
    """(size, base offset of the first batch) of a file; -1 for what there is not.

    Zeros, as a power cut leaves them, are no batch: its length is not 0.
    """
    try:
        file = storage.open(path, read_only=True)
    except FileNotFoundError:
        return -1, -1
    with closing(file):
        head = bytearray(12)
        if file.pread(memoryview(head), 0) < len(head) or not any(head[8:]):
            return file.size(), -1
        return file.size(), int.from_bytes(head[:8], "big", signed=True)

"""What a segment file says after a crash, and what is done about it.

`scan` looks, `decide` judges, log.py acts.  Only segments that the manifest does not vouch for
are scanned: the active one, and what rolled after the last row was written.

| bytes behind the last good batch | a later good batch in this file | a later segment | decision |
|---|---|---|---|
| none | - | - | KEEP |
| any | none | none | CUT: a torn tail is not an error, nothing behind it was acked |
| any | yes | any | REPAIR: what follows is real, so what is missing was lost |
| any | none | yes | REPAIR up to the base offset of the later segment |

REPAIR keeps the damaged original in quarantine/ and writes prefix + gap + suffix to a new file.
An all-zero tail (the size grew, the data did not) is a torn tail like any other.

A later good batch is searched byte by byte: magic, plausible length, an offset that can follow,
then CRC-32C, which random bytes pass once in four billion.
"""

from enum import Enum
from typing import NamedTuple

from segbroker.protocol.batch_pure import HEADER_SIZE
from segbroker.protocol.record_batch import (
    BatchHeader,
    InvalidBatch,
    check_batch,
    read_header,
)

from .storage import StorageFile

_MAGIC_POSITION = 16
_LENGTH_END = 12
_SPAN_MAX = 2**31 - 1


class Decision(Enum):
    KEEP = "keep"
    CUT = "cut"
    REPAIR = "repair"


class Found(NamedTuple):
    """One good batch in a segment file."""

    position: int
    header: BatchHeader


class Scan(NamedTuple):
    """What a segment file holds."""

    size: int
    batches: list[Found]
    """Good batches from the start, one behind the other."""
    valid_size: int
    """Bytes up to the end of the last of them."""
    later: list[Found]
    """Good batches behind a bad stretch; empty when all is well or the rest is a torn tail."""
    fault: str
    """Why the first bad byte is bad; empty when all is well."""


def scan(file: StorageFile, *, base_offset: int | None) -> Scan:
    """Read a segment file and find its good batches.

    Args:
        base_offset: what the first batch must begin with; None accepts any.
    """
    size = file.size()
    content = bytearray(size)
    content = content[: file.pread(memoryview(content), 0)]
    view = memoryview(content)
    batches: list[Found] = []
    position, expected = 0, base_offset
    fault = ""
    while position < len(view):
        found = _good_batch(view, position, expected, exact=True)
        if isinstance(found, str):
            fault = found
            break
        batches.append(Found(position, found))
        position += found.size
        expected = found.next_offset
    later: list[Found] = []
    if fault:
        later = _search(view, content, position + 1, expected or 0)
    return Scan(len(content), batches, position, later, fault)


def decide(scanned: Scan, *, later_segment: bool) -> Decision:
    """The table above."""
    if scanned.valid_size == scanned.size:
        return Decision.KEEP
    if scanned.later or later_segment:
        return Decision.REPAIR
    return Decision.CUT


def _good_batch(
    view: memoryview, position: int, expected: int | None, *, exact: bool
) -> BatchHeader | str:
    """The batch at `position`, or why there is none."""
    if len(view) - position < HEADER_SIZE:
        return f"{len(view) - position} bytes are no batch header"
    header = read_header(view, position)
    if header.batch_length < HEADER_SIZE - _LENGTH_END:
        return f"batch length {header.batch_length}"
    if header.size > len(view) - position:
        return f"batch of {header.size} bytes, {len(view) - position} left"
    if expected is not None:
        wrong = header.base_offset != expected if exact else header.base_offset < expected
        if wrong or header.base_offset - expected > _SPAN_MAX:
            return f"base offset {header.base_offset}, expected {expected}"
    try:
        return check_batch(view[position : position + header.size], stored=True)
    except InvalidBatch as error:
        return str(error)


def _search(view: memoryview, content: bytearray, start: int, expected: int) -> list[Found]:
    """Good batches anywhere behind `start`, in rising offsets."""
    found: list[Found] = []
    position = start
    while True:
        magic = content.find(b"\x02", position + _MAGIC_POSITION)
        if magic < 0:
            return found
        position = magic - _MAGIC_POSITION
        header = _good_batch(view, position, expected, exact=False)
        if isinstance(header, str):
            position += 1
            continue
        found.append(Found(position, header))
        position += header.size
        expected = header.next_offset

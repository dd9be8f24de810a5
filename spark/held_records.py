"""Records that wait to be sent: of which partition, how large, and where a batch of them ends.

Sizes are what a record takes in a batch before compression, at most.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from segbroker.client.pending import partitions_for_keys, scatter

from .rows import Headers, Records

RECORD_BYTES: Final = 16
"""What a record takes besides its key, value and headers."""
HEADER_BYTES: Final = 6
"""What a header takes besides its own."""


@dataclass(eq=False, slots=True)
class Held:
    """Records of one partition that wait to be sent; `sizes`: of each in a batch, at most."""

    part: Records
    sizes: list[int]
    bytes: int = 0

    def add(self, part: Records, sizes: list[int]) -> int:
        """Put them behind the others; the bytes that they take.

        All rows of a task have the same columns, so there are keys and headers in both or neither.
        """
        self.part.values.extend(part.values)
        if self.part.keys is not None and part.keys is not None:
            self.part.keys.extend(part.keys)
        if self.part.headers is not None and part.headers is not None:
            self.part.headers.extend(part.headers)
        self.sizes.extend(sizes)
        size = sum(sizes)
        self.bytes += size
        return size


def by_partition(records: Records, count: int) -> Iterator[Records]:
    """The records by the partition that their keys say; None for those without a key."""
    if records.partition is not None or records.keys is None:
        yield records
        return
    partitions = partitions_for_keys(records.keys, count)
    values = scatter(records.values, partitions, count)
    keys = scatter(records.keys, partitions, count)
    headers: list[list[Headers | None]] | None = None
    if records.headers is not None:
        headers = [[] for _ in range(count + 1)]
        for header, partition in zip(records.headers, partitions, strict=True):
            headers[partition].append(header)
    for n, part in enumerate(values):
        if part:
            yield Records(
                records.topic,
                n if n < count else None,
                part,
                keys[n],
                None if headers is None else headers[n],
            )


def nothing_of(part: Records) -> Records:
    """No records, of the same kind."""
    return Records(
        part.topic,
        part.partition,
        [],
        None if part.keys is None else [],
        None if part.headers is None else [],
    )


def _size(headers: Headers | None) -> int:
    """Bytes of a record's headers, at most; a name takes up to 4 a character."""
    return sum(HEADER_BYTES + 4 * len(name) + len(value or b"") for name, value in headers or ())


def sizes_of(part: Records) -> list[int]:
    """Bytes of each record in a batch, at most."""
    sizes = [RECORD_BYTES + len(value or b"") for value in part.values]
    if part.keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, part.keys, strict=True)]
    if part.headers is not None:
        sizes = [size + _size(row) for size, row in zip(sizes, part.headers, strict=True)]
    return sizes


def cut(ends: list[int], begin: int, bytes_max: int) -> tuple[int, int]:
    """Where a batch from `begin` on ends, and its bytes: at most so many, or one larger record."""
    before = ends[begin - 1] if begin else 0
    end = max(begin + 1, bisect_right(ends, before + bytes_max, begin))
    return end, ends[end - 1] - before

"""The time of a segment's first batch, for what counts from the oldest record of a segment.

The columns of the sealed segments hold only the newest timestamp of each.  That of the first batch
is read from the file: one header, once per segment.  Only max.compaction.lag.ms needs it.
"""

from collections.abc import Iterable

import structlog

from segbroker.protocol.batch_layout import HEADER_SIZE
from segbroker.protocol.record_batch import InvalidBatch, read_header

from ..disk.storage import Storage
from ..names import LogPaths

log = structlog.get_logger()


def first_stamp(storage: Storage, path: str) -> int:
    """The newest timestamp (ms) of a segment's first batch; -1 without one.  Raises OSError."""
    try:
        file = storage.open(path, read_only=True)
    except FileNotFoundError:
        return -1
    try:
        head = bytearray(HEADER_SIZE)
        if file.pread(memoryview(head), 0) < HEADER_SIZE:
            return -1
        return int(read_header(head).max_timestamp)
    except InvalidBatch:
        return -1
    finally:
        file.close()


class FirstStamps:
    """Those of one log's sealed segments that were asked for, as long as they are."""

    __slots__ = ("_stamps",)

    def __init__(self) -> None:
        self._stamps: dict[int, int] = {}

    def of(self, storage: Storage, paths: LogPaths, numbers: Iterable[int]) -> list[int]:
        """The times (ms) of these segments, -1 where there is none; the others are forgotten."""
        kept: dict[int, int] = {}
        for number in numbers:
            stamp = self._stamps.get(number)
            if stamp is None:
                try:
                    stamp = first_stamp(storage, paths.log(number))
                except OSError as exc:  # asked for again
                    log.warning("first_batch_not_read", path=paths.log(number), error=str(exc))
                    continue
            kept[number] = stamp
        self._stamps = kept
        return list(kept.values())

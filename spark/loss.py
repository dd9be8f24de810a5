"""What of a range is gone, decided from numbers alone.

    asked        [start .......................... end)
    the log             [log start ...... log end)
    lost         [start, log start)        [log end, end)
    left                [log start ...... log end)

Below the log start: aged out, or deleted on purpose.  Past the log end: the log was cut, or
restored from something older.  Another topic id: the topic was deleted and made again, and all
that the old offsets meant is gone.  With failOnDataLoss the query fails and says which offsets and
why; without, it reads what is left and logs the same sentence.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from .errors import DataLoss
from .offsets import OffsetRange

log = logging.getLogger("segbroker.spark")

# Ranges that one message names; the number of the others is given.
NAMED_COUNT_MAX = 10


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets [start, end) of a partition that cannot be read, and why; `end` None: all after."""

    topic: str
    partition: int
    start: int
    end: int | None
    reason: str

    def __str__(self) -> str:
        end = "..." if self.end is None else self.end
        return (
            f"topic {self.topic!r} partition {self.partition}: offsets"
            f" [{self.start}, {end}) are lost, {self.reason}"
        )


def clip(asked: OffsetRange, log_start: int, log_end: int) -> tuple[OffsetRange, list[Lost]]:
    """What is left of a range (maybe nothing, then start == end), and what is lost of it."""
    lost: list[Lost] = []
    topic, partition = asked.topic, asked.partition
    start, end = asked.start, asked.end
    if start < log_start and start < end:
        reason = f"the log now starts at {log_start} (records aged out or were deleted)"
        lost.append(Lost(topic, partition, start, min(end, log_start), reason))
        start = min(end, log_start)
    if end > log_end:
        if start < end:
            reason = f"the log now ends at {log_end} (it was cut or the topic was made anew)"
            lost.append(Lost(topic, partition, max(start, log_end), end, reason))
        end = max(start, log_end)
    return OffsetRange(topic, partition, start, max(start, end)), lost


def report(lost: Iterable[Lost], *, fail: bool) -> None:
    """Raise DataLoss that names the ranges, or log them."""
    found = list(lost)
    if not found:
        return
    if not fail:
        for each in found:
            log.warning("%s; reading on because failOnDataLoss is false", each)
        return
    text = "; ".join(map(str, found[:NAMED_COUNT_MAX]))
    if len(found) > NAMED_COUNT_MAX:
        text += f"; and {len(found) - NAMED_COUNT_MAX} more ranges"
    raise DataLoss(f"{text}. Set failOnDataLoss=false to read what is left.")

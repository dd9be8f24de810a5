"""What of a range is gone, decided from numbers alone.

    asked        [start ............................................. end)
    the log             [0 .. lost .. floor .. deleted .. log start ...... log end)
    lost         [start, log start), by two reasons                [log end, end)
    left                                           [log start ...... log end)

Below the floor: aged out, evicted, or damaged, as the broker says; between the floor and the log
start: deleted on purpose.  A broker without floors (Apache Kafka) says only where the log starts.
Past the log end: the log was cut, or restored from something older.  Another topic id: the topic
was deleted and made again, and all that the old offsets meant is gone.  Inside the log a gap
batch says what was lost.

With failOnDataLoss the query fails and says which offsets and why; without, it reads what is left,
logs the same sentence, and with includeGaps has a row for it.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from .errors import DataLoss
from .offsets import OffsetRange

log = logging.getLogger("segbroker.spark")

# Ranges that one message names; the number of the others is given.
NAMED_COUNT_MAX = 10

# Reasons in one word, as the broker and the column `_gap` have them, for people.
WORDS = {
    "ttl": "records aged out",
    "cap": "records were evicted because the log reached its size limit",
    "corruption": "records were damaged on disk",
    "lost_tail": "at most these were written and not yet synced when the broker's machine stopped",
    "deleted": "records were deleted",
    "unknown": "records aged out or were deleted",
}
RECREATED = "recreated"
GONE = "gone"
CUT = "cut"
# Reasons in words, by the word for them.
WHY = {
    RECREATED: "the topic was deleted and made again",
    GONE: "the topic or partition does not exist or is not selected any more",
}


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Records are in [start, end); those below `floor` are gone for the reason `word`."""

    start: int
    end: int
    floor: int
    word: str

    @classmethod
    def plain(cls, start: int, end: int) -> "LogBounds":
        """Of a broker that does not say why a log starts where it does."""
        return cls(start, end, start, "unknown")


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets [start, end) of a partition that cannot be read, and why; `end` None: all after.

    `word` is the reason in one word: of WORDS, or RECREATED, GONE, CUT.
    """

    topic: str
    partition: int
    start: int
    end: int | None
    reason: str
    word: str = "unknown"

    @property
    def count(self) -> int | None:
        return None if self.end is None else self.end - self.start

    def __str__(self) -> str:
        end = "..." if self.end is None else self.end
        return (
            f"topic {self.topic!r} partition {self.partition}: offsets"
            f" [{self.start}, {end}) are lost, {self.reason}"
        )


def clip(asked: OffsetRange, log: LogBounds) -> tuple[OffsetRange, list[Lost]]:
    """What is left of a range (maybe nothing, then start == end), and what is lost of it."""
    lost: list[Lost] = []
    topic, partition = asked.topic, asked.partition
    start, end = asked.start, asked.end
    for bound, word in ((min(log.floor, log.start), log.word), (log.start, "deleted")):
        if start < bound and start < end:
            reason = f"the log now starts at {log.start} ({WORDS.get(word, WORDS['unknown'])})"
            lost.append(Lost(topic, partition, start, min(end, bound), reason, word))
            start = min(end, bound)
    if end > log.end:
        if start < end:
            reason = f"the log now ends at {log.end} (it was cut or the topic was made anew)"
            lost.append(Lost(topic, partition, max(start, log.end), end, reason, CUT))
        end = max(start, log.end)
    return OffsetRange(topic, partition, start, max(start, end)), lost


def in_log(asked: OffsetRange, start: int, end: int, word: str) -> Lost:
    """The part of the range that a gap batch [start, end) in the log covers."""
    return Lost(
        asked.topic,
        asked.partition,
        max(start, asked.start),
        min(end, asked.end),
        f"the log has a gap there ({WORDS.get(word, WORDS['unknown'])})",
        word,
    )


def report(lost: Iterable[Lost], *, fail: bool) -> None:
    """Raise DataLoss that names the ranges, or log them."""
    found = list(lost)
    if not found:
        return
    if not fail:
        for each in found:
            how_many = "" if each.count is None else f" ({each.count} offsets)"
            log.warning("%s%s; reading on because failOnDataLoss is false", each, how_many)
        return
    text = "; ".join(map(str, found[:NAMED_COUNT_MAX]))
    if len(found) > NAMED_COUNT_MAX:
        text += f"; and {len(found) - NAMED_COUNT_MAX} more ranges"
    raise DataLoss(f"{text}. Set failOnDataLoss=false to read what is left.")

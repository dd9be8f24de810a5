"""What retention takes out of a log, and when a log is full: decisions, no action.

Whole sealed segments, the oldest first, never one behind another that stays:

| by | a segment goes when | reason |
|---|---|---|
| nobody any more | all of it lies below the log start | none, it was deleted before |
| age (retention.ms) | its newest record is older; see `SealedSegments.count_older` | ttl |
| bytes, records | without it there is still as much as retention.bytes, .records | cap |

So a partition keeps at least what it was told to keep, as in Kafka, and at most one segment more,
but for what is not sealed yet.  What is neither acknowledged nor synced does not count: a power cut
may take it.  With `retention.full.policy=reject` nothing goes by bytes or
records; what would pass them is refused for `lacks_room`, before it has an offset.

A segment that is still written to goes too, after it was sealed: when all of the log is older than
retention.ms, or lies below the log start, it is rolled first (`wants_roll`).

What readers may not see yet, at or past the high watermark, stays: no log begins behind it.

With `cleanup.policy=compact`, without `delete`, only what lies below the log start goes: what stays
is for the cleaning to decide (cleaning.py).

Ages are measured by the timestamps of the records against `age_ms` (age_clock.py), None as long as
the clock is not to be trusted.  A timestamp from the future holds its segment, and those behind it,
until its time has come: what is kept too long can still be deleted.

Cost: a binary search and the segments that go, however many there are.
"""

from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from segbroker.protocol.record_batch import BatchHeader, GapReason

from ..settings.topic_config import FullPolicy, TopicConfig
from .partition_log import PartitionLog
from .segment import ActiveSegment


class Eviction(NamedTuple):
    """How many segments go, from the front, and why; `reason` None: they were deleted before."""

    segments: int
    reason: GapReason | None
    size_bytes: int


def due(log: PartitionLog, age_ms: int | None, high_watermark: int) -> Eviction | None:
    """What is to go now; None for nothing.  The caller holds state_lock, or seal_lock.

    age_ms: the time to measure ages by, None to leave ages alone.
    """
    sealed, config = log.sealed, log.config
    if not len(sealed):
        return None
    deleted = sealed.count_below(log.log_start_offset)
    by_age = 0
    if age_ms is not None and config.retention_ms >= 0 and config.deletes:
        by_age = sealed.count_older(age_ms - config.retention_ms)
    by_cap = _over_cap(log, config, high_watermark)
    count = min(max(deleted, by_age, by_cap), sealed.count_below(high_watermark))
    if not count:
        return None
    reason = GapReason.TTL if by_age >= by_cap else GapReason.CAP
    return Eviction(count, None if count == deleted else reason, sum(sealed.sizes[:count]))


def _over_cap(log: PartitionLog, config: TopicConfig, high_watermark: int) -> int:
    """How many segments can go without going below what is to be kept."""
    if config.retention_full_policy is FullPolicy.REJECT or not config.deletes:
        return 0
    safe_end = max(high_watermark, log.recovery_point)
    count = 0
    # How much there is comes first: what is written meanwhile, without a lock, is not counted.
    if config.retention_bytes >= 0:
        surplus = log.size_bytes - config.retention_bytes
        # Nobody knows how much of a segment that is still written to is in front of that.
        surplus -= sum(one.size for one in _unsealed(log) if one.next_offset > safe_end)
        count = _count_within(log.sealed.sizes, surplus)
    if config.retention_records >= 0:
        surplus = log.stored_records - config.retention_records
        surplus -= max(0, log.log_end_offset - safe_end)
        count = max(count, _count_within(log.sealed.records, surplus))
    return count


def _count_within(column: Sequence[int], most: int) -> int:
    """How many, from the front, are together at most so much."""
    return sum(1 for _ in takewhile(lambda total: total <= most, accumulate(column)))


def wants_roll(log: PartitionLog, age_ms: int | None) -> bool:
    """Whether the active segment has nothing in it that is to be kept."""
    active = log.active
    if not active.size:
        return False
    if log.log_start_offset >= active.next_offset:
        return True
    retention_ms = log.config.retention_ms
    if age_ms is None or retention_ms < 0 or active.max_timestamp < 0 or not log.config.deletes:
        return False
    before_ms = age_ms - retention_ms
    if any(segment.max_timestamp >= before_ms for segment in _unsealed(log)):
        return False
    with log.state_lock:
        newest = log.sealed.running_max_timestamps
        return not len(newest) or newest[-1] < before_ms


def _unsealed(log: PartitionLog) -> Sequence[ActiveSegment]:
    """Beside a roll one of them twice, none of them not at all."""
    return (log.active, *log.rotating)


def is_capped(config: TopicConfig) -> bool:
    """Whether appends may be refused for want of room in the topic."""
    return config.retention_full_policy is FullPolicy.REJECT and (
        config.retention_bytes >= 0 or config.retention_records >= 0
    )


def lacks_room(log: PartitionLog, header: BatchHeader) -> str:
    """Why this batch would pass the cap of a topic that rejects; empty when it has room."""
    config = log.config
    if 0 <= config.retention_bytes < log.size_bytes + header.size:
        return (
            f"{log.size_bytes} bytes are stored, {header.size} more would pass "
            f"retention.bytes={config.retention_bytes}"
        )
    if 0 <= config.retention_records < log.records_count + header.records_count:
        return (
            f"{log.records_count} records are stored, {header.records_count} more would pass "
            f"retention.records={config.retention_records}"
        )
    return ""

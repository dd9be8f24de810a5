"""How far the timestamps of new records may be from the clock of the broker.

    now - before.max.ms  <=  timestamp of every record  <=  now + after.max.ms

message.timestamp.before.max.ms and message.timestamp.after.max.ms; of topics whose timestamps the
producer chooses (CreateTime) alone.  The header of a batch has the greatest timestamp and not the
least, so a bound on the past has the batch decoded: who sets it pays for it, nobody else.  One that
opens to more than BOUNDED_SIZE_MAX is refused as too large, which makes producers split it.

A batch with one record out of bounds is refused as a whole, before it has an offset; one that was
appended before (a retry of an idempotent producer) is not looked at again.  A record without a
timestamp (-1) is within every bound, as in Kafka: it says nothing that could be wrong.
"""

from collections.abc import Sequence
from typing import Final

from segbroker.protocol.record_batch import BatchHeader, InvalidBatch, decode_batch

from ..disk.storage import Buffer
from ..errors import TimestampOutOfBounds
from .topic_config import TopicConfig

BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"
BOUNDED_SIZE_MAX: Final = 16 << 20
"""Bytes of records, opened: it is done in the thread that appends."""
_NONE: Final = -1


def check_timestamps(config: TopicConfig, batch: Buffer, header: BatchHeader, now_ms: int) -> None:
    """For topics that `bounds_timestamps`.  `batch` is checked.

    Raises:
        TimestampOutOfBounds
        InvalidBatch: it cannot be opened, or is too large then.
    """
    after_ms, before_ms = (
        config.message_timestamp_after_max_ms,
        config.message_timestamp_before_max_ms,
    )
    if not header.records_count:
        return
    least_ms, most_ms = now_ms - before_ms, now_ms + after_ms
    newest_ms = header.max_timestamp
    is_newest_wrong = newest_ms != _NONE and not least_ms <= newest_ms <= most_ms
    if least_ms <= 0 and not is_newest_wrong:
        return  # no timestamp is below it
    try:
        timestamps = _timestamps(batch)
    except InvalidBatch:
        if not is_newest_wrong:
            raise
        timestamps = []  # it is refused all the same, as a whole
    indexes = [
        n for n, each in enumerate(timestamps) if each != _NONE and not least_ms <= each <= most_ms
    ]
    if not indexes and not is_newest_wrong:
        return
    found = newest_ms if is_newest_wrong else timestamps[indexes[0]]
    setting, limit_ms = (BEFORE, before_ms) if found < least_ms else (AFTER, after_ms)
    raise TimestampOutOfBounds(found, now_ms, setting, limit_ms, indexes)


def _timestamps(batch: Buffer) -> Sequence[int]:
    return decode_batch(batch, size_max=BOUNDED_SIZE_MAX).timestamps()

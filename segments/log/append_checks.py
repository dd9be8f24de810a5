"""What only some topics ask of a batch: keys, room, timestamps.

Most topics require none of that, so the appender checks once whether they do, not for every batch.
A new check belongs in both `is_choosy` and `check_wanted`.

In a compacted topic every record has a key.  To check that, a compressed batch has to be
decompressed, in the thread that appends.  One that is larger than KEYED_SIZE_MAX then is refused as
too large, which makes producers split it.
"""

from typing import Final

from segbroker.protocol.record_batch import BatchHeader, decode_batch

from ..errors import KeylessRecords, PartitionFull
from ..settings.timestamp_bounds import check_timestamps
from ..settings.topic_config import TopicConfig
from .partition_log import PartitionLog
from .retention import is_capped, lacks_room

KEYED_SIZE_MAX: Final = 16 << 20
"""Bytes of records, opened: some 10 ms of the loop."""


def is_choosy(config: TopicConfig) -> bool:
    """Whether a batch may be refused for what is in it, or for want of room in the topic."""
    return config.compacts or config.bounds_timestamps or is_capped(config)


def check_wanted(
    opened: PartitionLog,
    topic: str,
    partition: int,
    batch: memoryview,
    header: BatchHeader,
    now_ms: int,
) -> None:
    """Raises KeylessRecords, PartitionFull, TimestampOutOfBounds, InvalidBatch."""
    config = opened.config
    if config.compacts:
        _check_keys(topic, partition, batch)
    if is_capped(config) and (why := lacks_room(opened, header)):
        raise PartitionFull(topic, partition, why)
    if config.bounds_timestamps:
        check_timestamps(config, batch, header, now_ms)


def _check_keys(topic: str, partition: int, batch: memoryview) -> None:
    """Raises KeylessRecords, InvalidBatch (it cannot be opened, or is too large then)."""
    keyless = decode_batch(batch, size_max=KEYED_SIZE_MAX).keyless()
    if keyless:
        raise KeylessRecords(topic, partition, keyless)

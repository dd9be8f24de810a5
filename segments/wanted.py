"""What only some topics ask of a batch: keys, room, timestamps.

Most topics ask for nothing of that, and whoever appends looks once, not at every batch: what is
added here belongs into both functions.
"""

from segbroker.protocol.record_batch import BatchHeader

from .errors import PartitionFull
from .keyed import check_keys
from .partition_log import PartitionLog
from .retention import is_capped, lacks_room
from .timestamp_bounds import check_timestamps
from .topic_config import TopicConfig


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
        check_keys(topic, partition, batch)
    if is_capped(config) and (why := lacks_room(opened, header)):
        raise PartitionFull(topic, partition, why)
    if config.bounds_timestamps:
        check_timestamps(config, batch, header, now_ms)

"""What topics have where nothing is set on them.

Keys of the configuration; config.py puts them together.  Each stands below one topic setting
(`topic` of its metadata), of all topics at once, those that there are among them: as in Kafka,
whose names they have.  What of it does not go with the settings of a topic itself is left out for
that topic (segments/settings/topic_config.py).
"""

from dataclasses import dataclass

from .config_key import key

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class TopicKeys:
    """See the module."""

    log_retention_ms: int = key(
        604_800_000,
        "retention.ms of topics that do not set it: segments whose newest record is older are "
        "deleted. -1: kept for ever.",
        least=-1,
        most=_INT64_MAX,
        kafka="log.retention.ms",
        topic="retention.ms",
        dynamic=True,
    )
    log_retention_bytes: int = key(
        -1,
        "retention.bytes of topics that do not set it: how much of a partition is kept. -1: all.",
        least=-1,
        most=_INT64_MAX,
        kafka="log.retention.bytes",
        topic="retention.bytes",
        dynamic=True,
    )
    log_retention_records: int = key(
        -1,
        "retention.records of topics that do not set it: how many records of a partition are "
        "kept. -1: all.",
        least=-1,
        most=_INT64_MAX,
        topic="retention.records",
        dynamic=True,
    )
    log_retention_full_policy: str = key(
        "drop-old",
        "retention.full.policy of topics that do not set it: in a full partition, delete the "
        "oldest segments (drop-old) or refuse new batches (reject).",
        choices=("drop-old", "reject"),
        topic="retention.full.policy",
        dynamic=True,
    )
    log_segment_bytes: int = key(
        1_048_576,
        "segment.bytes of topics that do not set it: maximum size of a segment file.",
        least=512,
        kafka="log.segment.bytes",
        topic="segment.bytes",
        dynamic=True,
    )
    log_roll_ms: int = key(
        604_800_000,
        "segment.ms of topics that do not set it: a segment whose first batch is older is sealed.",
        least=1,
        most=_INT64_MAX,
        kafka="log.roll.ms",
        topic="segment.ms",
        dynamic=True,
    )
    message_max_bytes: int = key(
        1_048_576,
        "max.message.bytes of topics that do not set it: the largest batch, after compression. If"
        " not set: log_segment_bytes.",
        least=61,
        kafka="message.max.bytes",
        topic="max.message.bytes",
        dynamic=True,
    )
    log_message_timestamp_type: str = key(
        "CreateTime",
        "message.timestamp.type of topics that do not set it: timestamps of the producer "
        "(CreateTime) or of the arrival (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        kafka="log.message.timestamp.type",
        topic="message.timestamp.type",
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = key(
        _INT64_MAX,
        "message.timestamp.before.max.ms of topics that do not set it: how much older than the "
        "broker's clock a record may be.",
        most=_INT64_MAX,
        kafka="log.message.timestamp.before.max.ms",
        topic="message.timestamp.before.max.ms",
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = key(
        _INT64_MAX,
        "message.timestamp.after.max.ms of topics that do not set it: how much newer than the "
        "broker's clock a record may be.",
        most=_INT64_MAX,
        kafka="log.message.timestamp.after.max.ms",
        topic="message.timestamp.after.max.ms",
        dynamic=True,
    )
    log_cleanup_policy: str = key(
        "delete",
        "cleanup.policy of topics that do not set it: delete, compact, or both, separated by a "
        "comma.",
        kafka="log.cleanup.policy",
        topic="cleanup.policy",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: str = key(
        "0.5",
        "min.cleanable.dirty.ratio of topics that do not set it: a compacted partition is cleaned"
        " when a larger share of it is not cleaned yet.",
        kafka="log.cleaner.min.cleanable.ratio",
        topic="min.cleanable.dirty.ratio",
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        0,
        "min.compaction.lag.ms of topics that do not set it: how long a record of a compacted "
        "topic is kept at least.",
        most=_INT64_MAX,
        kafka="log.cleaner.min.compaction.lag.ms",
        topic="min.compaction.lag.ms",
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        _INT64_MAX,
        "max.compaction.lag.ms of topics that do not set it: how long a segment of a compacted "
        "topic waits for a cleaning at most.",
        least=1,
        most=_INT64_MAX,
        kafka="log.cleaner.max.compaction.lag.ms",
        topic="max.compaction.lag.ms",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = key(
        86_400_000,
        "delete.retention.ms of topics that do not set it: how long a tombstone (a record without"
        " a value) stays in a compacted topic.",
        most=_INT64_MAX,
        kafka="log.cleaner.delete.retention.ms",
        topic="delete.retention.ms",
        dynamic=True,
    )
    compression_type: str = key(
        "producer",
        "compression.type of topics that do not set it: how batches are stored, as their producer "
        "compressed them, or compressed anew by this codec.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        kafka="compression.type",
        topic="compression.type",
        dynamic=True,
    )
    compression_gzip_level: int = key(
        -1,
        "compression.gzip.level of topics that do not set it: 1 to 9, or -1.",
        least=-1,
        most=9,
        kafka="compression.gzip.level",
        topic="compression.gzip.level",
        dynamic=True,
    )
    compression_lz4_level: int = key(
        9,
        "compression.lz4.level of topics that do not set it.",
        least=1,
        most=17,
        kafka="compression.lz4.level",
        topic="compression.lz4.level",
        dynamic=True,
    )
    compression_zstd_level: int = key(
        3,
        "compression.zstd.level of topics that do not set it.",
        least=-131_072,
        most=22,
        kafka="compression.zstd.level",
        topic="compression.zstd.level",
        dynamic=True,
    )
    on_corruption: str = key(
        "gap",
        "on.corruption of topics that do not set it: what happens to a partition whose stored "
        "bytes are damaged.",
        choices=("gap", "readonly", "refuse"),
        topic="on.corruption",
        dynamic=True,
    )

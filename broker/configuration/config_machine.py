"""Threads, files, the write-ahead log, what is done in the background, the log.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass

from .config_key import DAY_MS, key


@dataclass(frozen=True)
class MachineKeys:
    """See the module."""

    lanes: int = key(
        8, "Threads for cold reads, opening of partitions and administration.", least=1, most=256
    )
    flushers: int = key(
        2,
        "Threads that sync segments of class disk and batches too large for the write-ahead log.",
        least=1,
        most=64,
    )
    wal_shards: int = key(
        1,
        "Independent write-ahead logs, each with one thread that syncs; more help only where the "
        "disk syncs several files faster than one. May change between two starts.",
        least=1,
        most=64,
    )
    wal_file_bytes: int = key(
        16 << 20,
        "Size of a file of the write-ahead log; written with zeros once, then used again and "
        "again. A batch that does not fit one is made durable by a sync of its segment.",
        least=1 << 16,
        most=1 << 30,
    )
    wal_bytes_max: int = key(
        128 << 20,
        "Most bytes of all files of the write-ahead log; at half of a shard's part segments are "
        "synced so that its files can be used again, at all of it acknowledgements wait for that. "
        "At least two files for each shard.",
        least=1 << 17,
        most=1 << 40,
    )
    open_files_max: int = key(
        1_000, "Segment files kept open at once.", least=16, most=1_000_000, dynamic=True
    )
    housekeeping_interval_ms: int = key(
        1_000,
        "Pause between two rounds of rolling by age and closing.",
        least=10,
        most=DAY_MS,
        dynamic=True,
    )
    retention_interval_ms: int = key(
        300_000,
        "Pause between two rounds of deleting by age (retention.ms); the first is so long after "
        "the start.",
        least=10,
        most=DAY_MS,
        kafka="log.retention.check.interval.ms",
        dynamic=True,
    )
    scrub_bytes_per_second: int = key(
        4 << 20,
        "How fast sealed segments are read again to find damage before a reader does; 0 for not.",
        most=1 << 40,
        dynamic=True,
    )
    scrub_interval_ms: int = key(
        DAY_MS,
        "Least time from the beginning of one pass over all segments to that of the next.",
        least=1_000,
        most=365 * DAY_MS,
        dynamic=True,
    )
    cleaner_enable: bool = key(
        True,
        "Whether compacted topics are cleaned (cleanup.policy=compact).",
        kafka="log.cleaner.enable",
        dynamic=True,
    )
    cleaner_bytes_per_second: int = key(
        4 << 20,
        "How fast the cleaner reads, all compacted topics together (bytes per second); it bounds "
        "the processor time of cleaning, too.",
        least=1 << 10,
        most=1 << 40,
        kafka="log.cleaner.io.max.bytes.per.second",
        dynamic=True,
    )
    cleaner_buffer_bytes: int = key(
        32 << 20,
        "Most memory for the keys of one cleaning, 34 bytes a key; no more is taken than the "
        "partition's keys need. What does not fit is cleaned in the next round.",
        least=1 << 14,
        most=1 << 36,
        kafka="log.cleaner.dedupe.buffer.size",
        dynamic=True,
    )
    cleaner_backoff_ms: int = key(
        15_000,
        "Pause between two looks for a partition that is dirty enough to be cleaned.",
        least=10,
        most=DAY_MS,
        kafka="log.cleaner.backoff.ms",
        dynamic=True,
    )
    drain_timeout_ms: int = key(
        10_000,
        "On SIGTERM: time for requests in flight to be answered.",
        least=0,
        most=DAY_MS,
        dynamic=True,
    )
    log_level: str = key(
        "info",
        "Least level that is logged.",
        choices=("debug", "info", "warning", "error"),
        dynamic=True,
    )
    log_format: str = key(
        "auto",
        "console (for people), json (one object per line), or auto: console on a terminal.",
        choices=("auto", "console", "json"),
    )

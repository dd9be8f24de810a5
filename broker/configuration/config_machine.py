"""Threads, files, the write-ahead log, what is done in the background, the log.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass

from .config_key import DAY_MS, key


@dataclass(frozen=True)
class MachineKeys:
    """See the module."""

    lanes: int = key(
        8,
        "Threads for reads from the disk, opening of partitions, and administration.",
        least=1,
        most=256,
    )
    flushers: int = key(
        2,
        "Threads that sync segments of class disk, and batches that are too large for the "
        "write-ahead log.",
        least=1,
        most=64,
    )
    wal_shards: int = key(
        1,
        "Number of independent write-ahead logs, each with a thread that syncs. More than one "
        "helps only where the disk syncs several files faster than one. It may change between two"
        " starts.",
        least=1,
        most=64,
    )
    wal_file_bytes: int = key(
        16 << 20,
        "Size of a write-ahead log file. A file is filled with zeros once, then reused. A batch "
        "that does not fit into one is made durable by a sync of its segment.",
        least=1 << 16,
        most=1 << 30,
    )
    wal_bytes_max: int = key(
        128 << 20,
        "Maximum bytes of all write-ahead log files. When half of a shard's part is used, "
        "segments are synced so that its files can be reused; when all of it is used, "
        "acknowledgements wait for that. At least two files for each shard.",
        least=1 << 17,
        most=1 << 40,
    )
    open_files_max: int = key(
        1_000, "Segment files kept open at once.", least=16, most=1_000_000, dynamic=True
    )
    housekeeping_interval_ms: int = key(
        1_000,
        "Pause between two rounds of housekeeping: rolling segments by age, closing unused files.",
        least=10,
        most=DAY_MS,
        dynamic=True,
    )
    retention_interval_ms: int = key(
        300_000,
        "Pause between two rounds of deletion by age (retention.ms). The first round is this long"
        " after the start.",
        least=10,
        most=DAY_MS,
        kafka="log.retention.check.interval.ms",
        dynamic=True,
    )
    scrub_bytes_per_second: int = key(
        4 << 20,
        "Rate at which the scrub reads sealed segments, to find damage before a reader does. 0: "
        "no scrub.",
        most=1 << 40,
        dynamic=True,
    )
    scrub_interval_ms: int = key(
        DAY_MS,
        "Shortest time from the beginning of one scrub of all segments to the beginning of the "
        "next.",
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
        "Rate at which the cleaner reads, all compacted topics together (bytes per second); it "
        "bounds the processor time of cleaning, too.",
        least=1 << 10,
        most=1 << 40,
        kafka="log.cleaner.io.max.bytes.per.second",
        dynamic=True,
    )
    cleaner_buffer_bytes: int = key(
        32 << 20,
        "Maximum memory for the keys of one cleaning, 34 bytes per key; no more is taken than the"
        " partition's keys need. What does not fit is cleaned in the next round.",
        least=1 << 14,
        most=1 << 36,
        kafka="log.cleaner.dedupe.buffer.size",
        dynamic=True,
    )
    cleaner_backoff_ms: int = key(
        15_000,
        "How often the cleaner looks for a partition that is dirty enough to be cleaned.",
        least=10,
        most=DAY_MS,
        kafka="log.cleaner.backoff.ms",
        dynamic=True,
    )
    drain_timeout_ms: int = key(
        10_000,
        "On SIGTERM: how long requests in flight may take to be answered.",
        least=0,
        most=DAY_MS,
        dynamic=True,
    )
    log_level: str = key(
        "info",
        "Lowest level that is logged.",
        choices=("debug", "info", "warning", "error"),
        dynamic=True,
    )
    log_format: str = key(
        "auto",
        "console (text for people), json (one object per line), or auto: console on a terminal, "
        "otherwise json.",
        choices=("auto", "console", "json"),
    )

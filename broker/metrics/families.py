"""What is measured: the name of each family, its kind, its labels, its meaning.

Names are as Prometheus has them: `segbroker_`, a unit in the plural, `_total` for what only grows.
A counter begins at 0 with each start of the broker.  Labels have few values: what is named by
clients (topics, groups) is bounded by `metrics_rows_max`, and `segbroker_rows_left_out` says how
much that leaves out.

This is the one place where a family is declared; a number of another family, or with other labels,
is a mistake that numbers.py finds.  docs/metrics.md has the same table (a test compares them).
"""

from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["gauge", "counter", "histogram", "info"]


class Family(NamedTuple):
    """One of them."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


_PARTITION: Final = ("topic", "partition")
_PLACE: Final = ("group", "topic", "partition")

FAMILIES: Final[dict[str, Family]] = {
    # The broker
    "segbroker_build_info": Family(
        "info", "1; the version of the broker and how it runs.", ("version", "python", "kernel")
    ),
    "segbroker_start_time_seconds": Family("gauge", "When the broker was started, since 1970."),
    "segbroker_uptime_seconds": Family("gauge", "Time since the start."),
    "segbroker_ready": Family("gauge", "1 if /health/ready says so, else 0."),
    # Connections and requests
    "segbroker_connections": Family("gauge", "Connections that are open.", ("listener",)),
    "segbroker_connections_max": Family(
        "gauge",
        "Most connections of a listener: its own limit, or that of all together.",
        ("listener",),
    ),
    "segbroker_all_connections_max": Family("gauge", "Most connections of all listeners together."),
    "segbroker_certificate_expiry_timestamp_seconds": Family(
        "gauge",
        "When the certificate of a listener, or one of its chain, expires, since 1970.",
        ("listener",),
    ),
    "segbroker_certificate_reload_failed": Family(
        "gauge",
        "1 if its files, as they were last read, cannot be used: older ones are in force.",
        ("listener",),
    ),
    "segbroker_signing_keys_read_failed": Family(
        "gauge",
        "1 if the keys that sign tokens were not read the last time; no row without OAUTHBEARER.",
    ),
    "segbroker_connections_accepted_total": Family("counter", "Connections that were taken."),
    "segbroker_connections_refused_total": Family(
        "counter", "Connections that were refused, or closed for a reason that the log tells."
    ),
    "segbroker_connections_failed_total": Family(
        "counter", "Connections that ended with a mistake of the broker."
    ),
    "segbroker_requests_total": Family(
        "counter", "Requests; api=unknown: the api or its version is not served.", ("api",)
    ),
    "segbroker_errors_total": Family(
        "counter", "Error codes in answers, each row that has one.", ("api", "error")
    ),
    "segbroker_requests_throttled_total": Family(
        "counter",
        "Pauses in which a connection was not read: over a quota, or the disk was behind.",
        ("reason",),
    ),
    "segbroker_received_bytes_total": Family("counter", "Bytes of requests."),
    "segbroker_sent_bytes_total": Family("counter", "Bytes of answers."),
    "segbroker_produced_bytes_total": Family("counter", "Bytes of record batches appended."),
    "segbroker_fetched_bytes_total": Family("counter", "Bytes of record batches sent."),
    "segbroker_lane_reads_total": Family(
        "counter", "Answers that had to wait for a read from the disk."
    ),
    "segbroker_unsynced_bytes": Family("gauge", "Bytes appended that wait for their sync."),
    "segbroker_unsynced_bytes_max": Family(
        "gauge", "Limit above which producers wait (ingest_bytes_max)."
    ),
    "segbroker_fetch_buffer_bytes": Family("gauge", "Bytes of answers to fetches in memory."),
    "segbroker_fetch_buffer_bytes_max": Family("gauge", "Limit of these bytes."),
    "segbroker_room_bytes": Family(
        "gauge",
        "Bytes that large requests in work, long answers that were not taken yet, and what members "
        "of groups say of themselves are reckoned at.",
        ("of",),
    ),
    "segbroker_room_bytes_max": Family("gauge", "Limit of these bytes.", ("of",)),
    "segbroker_room_waiting": Family("gauge", "Requests that wait for such room.", ("of",)),
    "segbroker_lanes_busy": Family("gauge", "Threads for blocking work that are busy."),
    "segbroker_lanes": Family("gauge", "Threads for blocking work."),
    "segbroker_loop_stood_still_total": Family(
        "counter", "How often the event loop did nothing for over a second."
    ),
    "segbroker_loop_stood_still_seconds_total": Family("counter", "For how long in all."),
    # Storage
    "segbroker_topics": Family("gauge", "Topics."),
    "segbroker_partitions": Family("gauge", "Partitions of all topics."),
    "segbroker_partitions_open": Family("gauge", "Partitions that were used since the start."),
    "segbroker_partitions_not_served": Family(
        "gauge", "Partitions that could not be opened: neither reads nor writes."
    ),
    "segbroker_partitions_read_only": Family("gauge", "Partitions that take no writes."),
    "segbroker_metadata_unsettled": Family("gauge", "1 if the metadata cannot be written."),
    "segbroker_log_bytes": Family("gauge", "Bytes of the logs of all open partitions."),
    "segbroker_segments": Family("gauge", "Segments of all open partitions."),
    "segbroker_open_logs": Family("gauge", "Partitions whose active segment is open."),
    "segbroker_open_segment_files": Family("gauge", "Files of sealed segments that are open."),
    "segbroker_index_bytes": Family("gauge", "Bytes of indexes in memory."),
    "segbroker_rolls_unprepared_total": Family(
        "counter", "Rolls of logs that found no segment made ahead."
    ),
    "segbroker_volume_size_bytes": Family("gauge", "Size of the volume of the data directory."),
    "segbroker_volume_free_bytes": Family("gauge", "Room on it for the broker."),
    "segbroker_volume_free_files": Family(
        "gauge", "Files that can still be made on it (inodes); none: no limit."
    ),
    "segbroker_evicted_bytes_total": Family(
        "counter",
        "Bytes of segments that retention took out: by age (ttl), for a cap of bytes or records "
        "(cap), or all of it deleted before (deleted).",
        ("reason",),
    ),
    # The write-ahead log
    "segbroker_wal_shards": Family("gauge", "Shards of the write-ahead log."),
    "segbroker_wal_shards_failed": Family("gauge", "Shards that cannot be written."),
    "segbroker_wal_syncs_total": Family(
        "counter", "Syncs, by the thread that did them: writer, or the event loop.", ("thread",)
    ),
    "segbroker_wal_sync_seconds": Family("histogram", "Time of a write and its sync."),
    "segbroker_wal_frames_total": Family("counter", "Frames written."),
    "segbroker_wal_written_bytes_total": Family("counter", "Bytes written."),
    "segbroker_wal_files": Family("gauge", "Files that exist, used or free."),
    "segbroker_wal_files_full": Family("gauge", "Full files that wait for a checkpoint."),
    "segbroker_wal_files_max": Family(
        "gauge", "Limit of full files: there acknowledgements wait for a checkpoint."
    ),
    "segbroker_wal_file_waits_seconds_total": Family(
        "counter", "How long writes have waited for the next file: mostly for a checkpoint."
    ),
    "segbroker_wal_stuck_seconds": Family(
        "gauge", "For how long one write and its sync have not ended, from 10 s on; else 0."
    ),
    "segbroker_wal_checkpoints_total": Family("counter", "Checkpoints."),
    # Recovery and upkeep
    "segbroker_recovery_findings_total": Family(
        "counter", "What recovery found, by the words of the log events recovery_...", ("what",)
    ),
    "segbroker_recovery_offsets_lost_total": Family("counter", "Offsets that are in gaps."),
    "segbroker_not_removed": Family(
        "gauge", "Deleted segments and topics whose files cannot be removed, and take room."
    ),
    "segbroker_clock_ahead_seconds": Family(
        "gauge",
        "How far the clock is ahead, while nothing is deleted by age for that; else 0.",
    ),
    "segbroker_failed_reads_total": Family("counter", "Reads that the disk did not answer."),
    "segbroker_scrub_passes_total": Family("counter", "Passes over all sealed segments."),
    "segbroker_scrub_segments_total": Family("counter", "Segments read."),
    "segbroker_scrub_read_bytes_total": Family("counter", "Bytes read."),
    "segbroker_scrub_errors_total": Family("counter", "Segments in which damage was found."),
    "segbroker_scrub_last_pass_timestamp_seconds": Family(
        "gauge", "When the last whole pass ended, since 1970; no row before the first."
    ),
    "segbroker_cleaner_cleanings_total": Family("counter", "Cleanings of compacted partitions."),
    "segbroker_cleaner_failures_total": Family("counter", "Cleanings that failed."),
    "segbroker_cleaner_read_bytes_total": Family("counter", "Bytes read."),
    "segbroker_cleaner_freed_bytes_total": Family("counter", "Bytes freed."),
    "segbroker_cleaner_removed_records_total": Family("counter", "Records removed."),
    # Topics and partitions
    "segbroker_topic_partitions": Family("gauge", "Partitions of a topic.", ("topic",)),
    "segbroker_topic_size_bytes": Family(
        "gauge", "Bytes of its logs; no row until all of them are known.", ("topic",)
    ),
    "segbroker_topic_produced_bytes_total": Family(
        "counter", "Bytes of record batches appended.", ("topic",)
    ),
    "segbroker_topic_fetched_bytes_total": Family(
        "counter", "Bytes of record batches sent.", ("topic",)
    ),
    "segbroker_partition_log_start_offset": Family(
        "gauge", "First offset that can be read.", _PARTITION
    ),
    "segbroker_partition_log_end_offset": Family("gauge", "Offset of the next record.", _PARTITION),
    "segbroker_partition_size_bytes": Family("gauge", "Bytes of its log.", _PARTITION),
    # Groups and transactions
    "segbroker_groups": Family("gauge", "Groups of all types."),
    "segbroker_group_members": Family("gauge", "Members of a group.", ("group",)),
    "segbroker_group_state": Family(
        "gauge", "1 for the state in which a group is.", ("group", "type", "state")
    ),
    "segbroker_group_lag_records": Family(
        "gauge", "Records behind the committed offset; of a share group: not done with.", _PLACE
    ),
    "segbroker_group_lag_seconds": Family(
        "gauge", "Age of the batch that the group reads next; 0 if there is none.", _PLACE
    ),
    "segbroker_transactional_ids": Family("gauge", "Transactional ids."),
    "segbroker_transactions_open": Family("gauge", "Transactions that are open."),
    "segbroker_transactions_oldest_open_seconds": Family(
        "gauge", "Age of the oldest of them; 0 if there is none."
    ),
    # The page itself
    "segbroker_rows_left_out": Family(
        "gauge",
        "What has no row of its own here: above metrics_rows_max, not open, or not looked at yet.",
        ("rows",),
    ),
    "segbroker_page_gather_seconds": Family("gauge", "Time to gather these numbers."),
}

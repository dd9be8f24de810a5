"""The directory, the write-ahead log, recovery, upkeep, the volume, transactions.

The sums over all open partitions, and the room on the volume, are looked at in a lane.
"""

from contextlib import suppress

from ..core import Core
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from .numbers import Numbers


async def add_directory(numbers: Numbers, core: Core, pace: Pace) -> None:
    """Topics, partitions, segments, files, the volume."""
    manager, topics = core.topics.manager, core.topics
    storage = await core.lanes.run(manager.statistics)
    numbers.add("segbroker_topics", storage.topics_count)
    numbers.add("segbroker_partitions", storage.partitions_count)
    numbers.add("segbroker_partitions_open", storage.partitions_open)
    numbers.add("segbroker_partitions_read_only", storage.partitions_read_only)
    not_served = 0
    for key in tuple(topics.unopened):
        not_served += topics.is_unserved(*key)
        await pace.step()
    numbers.add("segbroker_partitions_not_served", not_served)
    numbers.add("segbroker_metadata_unsettled", manager.why_unsettled is not None)
    numbers.add("segbroker_log_bytes", storage.log_bytes)
    numbers.add("segbroker_segments", storage.segments_count)
    numbers.add("segbroker_not_removed", storage.not_removed_count)
    numbers.add("segbroker_open_logs", storage.open_logs)
    numbers.add("segbroker_open_segment_files", storage.open_files)
    numbers.add("segbroker_index_bytes", storage.index_bytes)
    numbers.add("segbroker_rolls_unprepared_total", storage.rolls_unprepared)
    with suppress(OSError):  # then it is as unknown as where there is no disk
        space = await core.lanes.run(manager.storage.space, manager.root)
        if space is not None:
            numbers.add("segbroker_volume_size_bytes", space.total)
            numbers.add("segbroker_volume_free_bytes", space.usable)
            if space.files is not None:
                numbers.add("segbroker_volume_free_files", space.files)
    for reason, size in manager.partitions.evicted.by_reason.items():
        word = "deleted" if reason is None else reason.name.lower()
        numbers.add("segbroker_evicted_bytes_total", size, word)


def add_wal(numbers: Numbers, core: Core) -> None:
    """The write-ahead log."""
    wal = core.topics.manager.wal.statistics()
    numbers.add("segbroker_wal_shards", wal.shards)
    numbers.add("segbroker_wal_shards_failed", wal.shards_failed)
    numbers.add("segbroker_wal_syncs_total", wal.syncs - wal.syncs_here, "writer")
    numbers.add("segbroker_wal_syncs_total", wal.syncs_here, "loop")
    numbers.add_histogram("segbroker_wal_sync_seconds", core.topics.manager.wal.sync_times())
    numbers.add("segbroker_wal_frames_total", wal.frames_written)
    numbers.add("segbroker_wal_written_bytes_total", wal.bytes_written)
    numbers.add("segbroker_wal_files", wal.files)
    numbers.add("segbroker_wal_files_full", wal.files_full)
    numbers.add("segbroker_wal_files_max", wal.files_max)
    numbers.add("segbroker_wal_file_waits_seconds_total", wal.file_waits_s)
    numbers.add("segbroker_wal_stuck_seconds", wal.stuck_s)
    numbers.add("segbroker_wal_checkpoints_total", wal.checkpoints)


def add_upkeep(numbers: Numbers, core: Core) -> None:
    """What recovery found; what scrub and cleaner did."""
    found = core.topics.manager.report.summary()
    numbers.add("segbroker_recovery_offsets_lost_total", found.pop("offsets_lost"))
    del found["offsets_lost_at_most"]
    for what, count in sorted(found.items()):
        numbers.add("segbroker_recovery_findings_total", count, what)
    hold = core.topics.manager.clock_hold
    numbers.add("segbroker_clock_ahead_seconds", 0 if hold is None else hold.ahead_ms / 1000)
    numbers.add("segbroker_failed_reads_total", core.failed_reads.count)
    scrub = core.scrubber.statistics
    numbers.add("segbroker_scrub_passes_total", scrub.passes)
    numbers.add("segbroker_scrub_segments_total", scrub.segments)
    numbers.add("segbroker_scrub_read_bytes_total", scrub.bytes)
    numbers.add("segbroker_scrub_errors_total", scrub.errors)
    if scrub.last_pass_ended_ms >= 0:
        ended_s = scrub.last_pass_ended_ms / 1000
        numbers.add("segbroker_scrub_last_pass_timestamp_seconds", ended_s)
    cleaner = core.cleaner.statistics
    numbers.add("segbroker_cleaner_cleanings_total", cleaner.cleanings)
    numbers.add("segbroker_cleaner_failures_total", cleaner.failures)
    numbers.add("segbroker_cleaner_read_bytes_total", cleaner.bytes_read)
    numbers.add("segbroker_cleaner_freed_bytes_total", cleaner.bytes_freed)
    numbers.add("segbroker_cleaner_removed_records_total", cleaner.records_removed)


async def add_transactions(numbers: Numbers, core: Core, pace: Pace) -> None:
    """How many are open, and since when."""
    table = core.transactions.table
    now_ms = oldest_ms = monotonic_ms()  # as they are aborted: no clock that is set changes it
    for entry in tuple(table.open.values()):
        oldest_ms = min(oldest_ms, entry.opened_ms)
        await pace.step()
    numbers.add("segbroker_transactional_ids", len(table.entries))
    numbers.add("segbroker_transactions_open", len(table.open))
    numbers.add("segbroker_transactions_oldest_open_seconds", (now_ms - oldest_ms) / 1000)

"""partition.producers: what is remembered of producers, saved before anything else forgets it.

It bounds what an opening replays, and it is all that is left of producers whose last batches lie in
segments that are gone: without it their retries would be taken for new batches.

Invariant: a segment file goes only when a snapshot covers it, unless no producer is known, or the
disk is full: then space comes first.
"""

from typing import NamedTuple

from .partition_log import PartitionLog


class Snapshot(NamedTuple):
    """What a snapshot covers: the end of the log, and where that lies."""

    end_offset: int
    number: int
    size: int


def save_producers(log: PartitionLog) -> Snapshot:
    """Save the producers as of now, after everything they have seen is durable.

    The caller holds seal_lock.  Raises OSError.
    """
    with log.append_lock:
        producers = log.producers.copy()
        taken = Snapshot(log.log_end_offset, log.active.number, log.active.size)
    log.sync()
    encoded = producers.encode(taken.end_offset, log.paths.owner)
    log.storage.replace_file(log.paths.producers, encoded)
    log.segments_since_snapshot = 0
    log.producers_saved = taken.end_offset
    return taken


def covers(log: PartitionLog, end_offset: int) -> bool:
    """Whether nothing is forgotten when the files below `end_offset` go."""
    return log.producers_saved >= end_offset or not len(log.producers)

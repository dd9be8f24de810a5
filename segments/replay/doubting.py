"""What a failed sync has cost, where the process that was told of it was killed before it looked.

    .unsynced says where the log ended -> the log is read -> less, or with holes: in doubt
                                                          -> all of it: made anew when it is opened

The kernel drops pages that it could not write, in the boot that goes on.  Of what was acknowledged
before its sync, and reserved in this boot, nothing else tells the next process that it was there:
it would give the offsets to other records.  A reservation in doubt (ceilings.py) becomes a gap, and
tears the open transactions of the partition (tearing.py).

Of another boot a start doubts every reservation anyhow.
"""

from collections.abc import Iterator, Mapping, Sequence

import structlog

from ..disk.storage import NO_DESCRIPTORS, Storage
from ..errors import StorageError
from ..files.unsynced import read_unsynced
from ..metadata.metadata import IN_DOUBT, Ceiling, Metadata
from ..names import LogPaths, owner_of, partition_paths
from ..recovery.survey import Circumstances, survey
from ..wal.frames import Frame, FrameType
from .resuming import CeilingRow

log = structlog.get_logger()


def lost_with_a_sync(
    storage: Storage,
    root: str,
    state: Metadata,
    boot_id: str,
    journaled: Mapping[tuple[bytes, int], Sequence[Frame]],
) -> Iterator[CeilingRow]:
    """The reservations of this boot, as they are from now on, of logs that a failed sync has made
    shorter or left with holes.  Changes nothing; reads the logs that have the mark.

    journaled: what the write-ahead log has of each topic id and partition: that will be put back.
    """
    boot = state.with_boot(boot_id).boot
    for meta in state.topics.values():
        for partition, ceiling in state.ceilings[meta.topic_id].items():
            if ceiling.boot != boot:
                continue
            owner = owner_of(meta.topic_id, partition)
            paths = partition_paths(root, meta.name, partition, owner)
            frames = journaled.get((meta.topic_id.bytes, partition), ())
            try:
                is_lost = has_lost(storage, paths, frames)
            except OSError as exc:  # who opens it looks again
                log.warning("failed_sync_not_looked_for", path=paths.folder, error=str(exc))
                continue
            if is_lost:
                yield (meta.topic_id, partition), Ceiling(ceiling.offset, IN_DOUBT)


def has_lost(storage: Storage, paths: LogPaths, frames: Sequence[Frame] = ()) -> bool:
    """Whether a log has the mark, and not all that it had then; what of it cannot be read may be
    lost.

    frames: what will be put back into it.  Raises OSError: nobody could look for the mark, or there
    was no descriptor to read the log with.
    """
    end_offset = read_unsynced(storage, paths)
    if end_offset is None:
        return False
    try:
        found = survey(storage, paths, Circumstances(now_ms=0))
    except (OSError, StorageError) as exc:
        if isinstance(exc, OSError) and exc.errno in NO_DESCRIPTORS:
            raise
        return True
    begins = [frame.base_offset for frame in frames if frame.type is FrameType.BATCHES]
    begin, end = min(begins, default=0), max((frame.end_offset for frame in frames), default=0)
    missing = [(gap.begin, gap.end) for gap in found.gaps]
    if found.end_offset < end_offset:
        missing.append((found.end_offset, end_offset))
    return any(low < begin or high > end for low, high in missing)

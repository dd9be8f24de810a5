"""After a failed sync: what may not be on the disk is written to new files, and those are synced.

    in memory: where each batch lies, and its checksum      as of the write
    file, in doubt --read--> compared --> new file --sync--> renamed over it

After a sync has failed the kernel may count the pages as clean although they never reached the
disk, and it tells so only once: another sync of this file proves nothing, and reading it back
proves what is in memory, not what is on the disk.  But the bytes in memory are right or wrong by
their checksums, and a new file has new pages, whose sync can be believed.  The new file gets the
name, durably, before anybody may write again.  So it is with names: each is given anew.

Whatever was promised has to be there: if a batch does not compare that is below the high watermark,
or that the write-ahead log has synced, everything stays as it is.  A restart then replays the
write-ahead log; of a class that acknowledges before the sync it finds a gap (ceilings.py).  What
lies above was promised to nobody and is kept up to the first batch that does not compare: what
follows that, also in later segments, would stand behind a gap that no record is missing in.

Costs a copy of the unsealed segments, once per failure.  Invariant: no file whose sync failed is
written or synced again.
"""

from typing import Final

from segbroker.protocol.checksums import xxh3_64

from ..disk.storage import check_room, read_file
from ..errors import CorruptSegment
from ..files.unsynced import mark_cut, settle_unsynced
from .partition_log import PartitionLog
from .ready import clear_the_way
from .segment import ActiveSegment

FIRST_RETRY_MS: Final = 1_000
FULL_RETRY_MS_MAX: Final = 4_000
RETRY_MS_MAX: Final = 60_000


def salvage(log: PartitionLog, promised: int) -> bool:
    """Put new, synced files in the place of those in doubt; whether all that was written is in
    them.

    promised: below it somebody may have been told of every batch.  The caller holds seal_lock and
    append_lock, and opens the log anew.  Raises CorruptSegment when something that was promised
    cannot be read any more, OSError.
    """
    manifest = log.manifest
    in_doubt = manifest.is_doubtful or manifest.sync_failed or not manifest.is_durable
    if in_doubt and not log.swap_failed:  # else the opening writes it anew, with the last swap
        manifest.replace(log.active.created_ms, log.manifest_rows())
    empty_from = log.active.number + (log.active.size > 0)
    for name in log.storage.listdir(log.paths.folder):
        number = log.paths.segment_number(name)
        if number is not None and number > log.active.number:
            clear_the_way(log.storage, log.paths, number)
        elif number is not None and number >= empty_from:
            # Nothing was promised of it; it may be its name of which the sync failed.
            log.storage.unlink(f"{log.paths.folder}/{name}")
    is_cut = False
    for segment in (*log.rotating, log.active):
        if segment.size:
            whole = _proven(log, segment, promised)
            content = whole[:0] if is_cut else whole
            if len(content) < segment.size and not is_cut:
                mark_cut(log.storage, log.paths, promised)
                is_cut = True
            check_room(log.storage, log.paths.folder, len(content), "a file written anew")
            log.storage.replace_file(segment.path, content)
    settle_unsynced(log.storage, log.paths)
    return not is_cut


def check_promised(log: PartitionLog, promised: int) -> bool:
    """Whether all that was written is there, in what is not sealed.  Raises CorruptSegment where
    something that was promised is not there any more, OSError."""
    is_all_there = True
    for segment in (*log.rotating, log.active):
        if segment.size:
            is_all_there &= len(_proven(log, segment, promised)) == segment.size
    return is_all_there


def _proven(log: PartitionLog, segment: ActiveSegment, promised: int) -> memoryview:
    """The bytes of a segment that are what was written, from its beginning on."""
    content = memoryview(_content(log, segment))
    # An append that was left half done may be among the sums alone.
    for ordinal, (offset, checksum) in enumerate(zip(segment.offsets, segment.sums, strict=False)):
        begin, end = segment.position_of(ordinal), segment.position_of(ordinal + 1)
        if end <= len(content) and xxh3_64(content[begin:end]) == checksum:
            continue
        if offset < promised:
            raise CorruptSegment(
                segment.path, begin, "not the bytes that were written; the broker has to restart"
            )
        return content[:begin]
    return content


def _content(log: PartitionLog, segment: ActiveSegment) -> bytearray:
    """What there is of a segment: in the file that was written, where that is open still, whatever
    its path leads to now."""
    if segment.file is None:
        try:
            return read_file(log.storage, segment.path)[: segment.size]
        except FileNotFoundError:
            return bytearray()
    content = bytearray(segment.size)
    del content[segment.file.pread(memoryview(content), 0) :]
    return content


class Retry:
    """When to try again to open a log after a failure; later each time."""

    __slots__ = ("_at_ms", "_pause_ms", "failures_count")

    def __init__(self) -> None:
        self._at_ms: int | None = None
        self._pause_ms = FIRST_RETRY_MS
        self.failures_count = 0
        """Of all times."""

    def is_due(self, now_ms: int) -> bool:
        return self._at_ms is None or not 0 <= self._at_ms - now_ms <= RETRY_MS_MAX

    def failed(self, now_ms: int, *, passes: bool) -> None:
        """Not yet.  passes: it is a failure that ends by itself, as a full disk."""
        self.failures_count += 1
        self._at_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, FULL_RETRY_MS_MAX if passes else RETRY_MS_MAX)

    def succeeded(self) -> None:
        self._at_ms = None
        self._pause_ms = FIRST_RETRY_MS

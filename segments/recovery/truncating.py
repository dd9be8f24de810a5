"""A log that ends earlier: what lies at or past an offset goes, and the log is opened again.

    manifest     without rows for what goes, and without a checkpoint that would vouch for it
    .producers   unlinked: a snapshot may speak of batches that other ones will replace
    k+n ... k+1  unlinked, from the end to the front, the directory synced after each
    k            cut behind the last batch that stays, synced

A crash on the way leaves a log that was cut less far, never one with a hole.  The log is closed
only after the first step, so a disk too full for that leaves it readable.

Opening again goes through recovery: nothing in memory survives a truncation, so this is also the
way back after a write that failed for want of space.
"""

from contextlib import closing

from ..decisions import scan
from ..disk.storage import read_file, replace_file
from ..errors import CorruptSegment
from ..files.manifest import RowKind, encode_manifest
from ..log.caches import Caches
from ..log.partition_log import PartitionLog
from ..log.sealing import close_log
from ..report import LogReport
from .opening import Evidence, open_log


def truncate_log(log: PartitionLog, offset: int, *, now_ms: int) -> PartitionLog:
    """Leave nothing at or past `offset`, which is in the log or its end; the log, opened again.

    Cuts between batches: a batch that contains `offset` goes as a whole, and so does what a
    failed write left behind the end.  Raises CorruptSegment, OSError.
    """
    storage, paths = log.storage.beneath, log.paths  # another log is opened on it
    sealed = log.sealed
    if len(sealed) and offset < sealed.end_offset:
        keep = max(0, sealed.find(offset))
        number, base = sealed.numbers[keep], sealed.base_offsets[keep]
    else:
        unsealed = (*log.rotating, log.active)
        segment = next((s for s in unsealed if offset < s.next_offset), log.active)
        number, base = segment.number, segment.base_offset
    path = paths.log(number)
    content = memoryview(read_file(storage, path))
    whole = scan(content, base, epochs=log.epochs)
    size = sum(found.header.size for found in whole.batches if found.header.next_offset <= offset)
    if whole.next_offset < offset:
        raise CorruptSegment(path, whole.valid_size, f"no valid batch before offset {offset}")
    log.cleaned = log.cleaned.cut(offset)
    rows = [
        row for row in log.manifest_rows() if row.kind != RowKind.SEGMENT or row.number < number
    ]
    replace_file(storage, paths.manifest, encode_manifest(now_ms, rows, paths.owner))
    last = max(log.active.number, log.ready.made)
    close_log(log, clean=False)
    if storage.exists(paths.producers):
        storage.unlink(paths.producers)
        storage.fsync_dir(paths.folder)
    for gone in range(last, number, -1):
        for path in (paths.log(gone), paths.index(gone)):
            if storage.exists(path):
                storage.unlink(path)
        storage.fsync_dir(paths.folder)
    with closing(storage.open(paths.log(number))) as file:
        file.truncate(size)
        file.fdatasync()
    reopened = open_log(
        storage,
        paths,
        log.config,
        Caches(log.files.files, log.files.indexes, log.open_logs),
        Evidence(writes_again=log.sync_failed),
        now_ms=now_ms,
        report=LogReport(),
    )
    reopened.on_damage = log.on_damage
    return reopened

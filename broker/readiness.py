"""Why the broker is not ready: a sentence for each reason.

| not ready, because | until |
|---|---|
| the broker ends | its end |
| the write-ahead log cannot be written: it failed | a file of it was |
| the same: the volume has no room for its next file | that is made |
| a write to it, with its sync, does not end | it does |
| no lane comes free: the disk does not answer reads, or has too much to do | one does |
| the metadata cannot be written | they are settled |
| the volume has less room than ROOM_MIN, or for fewer files than FILES_MIN | there is more |
| the volume lets no file be opened for writing: read-only, shut down, its server gone | it does |
| a partition met a volume without room, or one that is read-only | none is read-only for that |

All looks at the volume are needed.  A partition that met a full disk is tried again a second later
and is writable until the next batch finds no room, so partitions alone would say ready in between;
and none has met anything where nobody writes.  Room says nothing of a file system that became
read-only, and none of them of a quota that is used up.  A partition that failed for
another reason (a bad block, on.corruption) is its own trouble: the others can be written.
"""

import errno
import os
from contextlib import suppress
from typing import Final

from segbroker.segments.wal.shard import ShardFailed
from segbroker.segments.wal.supply import WalFull

from .core import Core
from .loop.pace import Pace

ENDING: Final = "the broker is ending"
ROOM_MIN: Final = 1 << 20
"""Bytes; a volume with less is full: a segment of the default size does not fit."""
FILES_MIN: Final = 16
"""With fewer inodes it is full, too: a segment is a file, with an index, and so is what takes the
place of another."""
_OF_THE_VOLUME: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_OF_THE_LOG: Final = WalFull, ShardFailed
"""What the write-ahead log has refused; it says itself why, and that may be no want of room."""
_TAKES_NO_WRITES: Final = frozenset(
    {
        *(errno.EROFS, errno.EIO, errno.EUCLEAN),
        *(errno.ENODEV, errno.ENXIO),  # the disk was taken away
        *(errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT),  # the server is (FUSE, NFS)
    }
)
"""What an open for writing says of the volume; else it is of the file, or of our descriptors."""


async def why_not_ready(core: Core) -> list[str]:
    """Of a broker that serves; none: it is ready."""
    why = []
    if core.is_draining:
        why.append(ENDING)
    manager = core.topics.manager
    wal = manager.wal.statistics()
    if wal.shards_failed:
        why.append(f"the write-ahead log cannot be written: {wal.why_failed}")
    if wal.stuck_s:
        why.append(f"the write-ahead log is stuck: a write has not ended for {wal.stuck_s:.0f} s")
    if (unsettled := manager.why_unsettled) is not None:
        why.append(f"the metadata cannot be written: {unsettled}")
    return why + await why_volume_full(core)


async def why_volume_full(core: Core) -> list[str]:
    """What keeps the volume of the data directory from being written, or looked at, a sentence for
    each."""
    if (stuck := core.lanes.why_stuck) is not None:
        return [stuck]  # who asked for a lane would wait as well
    why = []
    manager = core.topics.manager
    with suppress(OSError):  # then it is as unknown as where there is no disk
        space = await core.lanes.run(manager.storage.space, manager.root)
        if space is not None and space.usable < ROOM_MIN:
            why.append(f"the volume is full: {space.usable:,} bytes are free")
        if space is not None and space.files is not None and space.files < FILES_MIN:
            why.append(f"the volume is full: {space.files:,} more files can be made (inodes)")
    met: set[int] = set()
    try:
        await core.lanes.run(manager.check_writable)
    except OSError as exc:
        if exc.errno in _TAKES_NO_WRITES:
            met.add(exc.errno)
    pace = Pace()
    for partition in tuple(core.topics.served.values()):
        if (error := partition.handler.read_only) is not None:
            cause = error.cause
            if isinstance(cause, _OF_THE_LOG):
                continue
            if isinstance(cause, OSError) and cause.errno in _OF_THE_VOLUME:
                met.add(cause.errno)
        await pace.step()
    why += [f"the volume takes no writes: {os.strerror(number)}" for number in sorted(met)]
    return why

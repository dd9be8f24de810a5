"""The frames of one partition that are still in the WAL files in use, or were copied out of one, to
repair its segments with.

    wal-17.log (full)  wal-18.log (full)  wal-19.log (active)  -> the frames of its batches

It says what a start after a kill would put back of this partition: valid frames behind its last
BARRIER, without those that were given up.

The writer goes on meanwhile.  A frame that it is writing is valid as a whole or not at all; a file
that is used again has another salt and another number in its header, so nothing is mistaken for a
frame of the one that was asked for.
"""

from collections.abc import Sequence

from ..disk.storage import Storage
from .frames import Frame, FrameType
from .missing import without_given_up
from .replay import scan_wal_file
from .scanning import Scanned


def frames_in(storage: Storage, paths: Sequence[str], key: tuple[bytes, int]) -> list[Frame]:
    """The BATCHES frames of a partition in these files of its shard, oldest first.

    Blocking: reads all of them.  Raises OSError, UnsupportedFormat.
    """
    files: list[tuple[str, Scanned]] = []
    for path in paths:
        try:
            scanned = scan_wal_file(storage, path)
        except FileNotFoundError:
            continue  # freed meanwhile: everything in it is synced elsewhere
        if scanned is not None:
            files.append((path, scanned))
    found: list[Frame] = []
    for _, one in without_given_up(files):
        for frame in one.frames:
            if frame.key != key:
                continue
            if frame.type is FrameType.BARRIER:
                found.clear()
            elif frame.type is FrameType.BATCHES:
                found.append(frame)
    return found

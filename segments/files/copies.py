"""Which name a copy of a segment file gets in quarantine/, and how many there may be.

    quarantine/<log>_segment_<k>.log.0      damaged, or of somebody else
    quarantine/<log>_segment_<k>.log.1      the same segment once more, with other bytes

Where there are COPIES_MAX of one segment nothing is moved there, and what is to be moved stays as
it is: somebody has to look at them.
"""

import errno
from typing import Final

from ..disk.storage import Buffer, Storage, read_file
from ..names import LogPaths

COPIES_MAX: Final = 10_000


def name_of_copy(
    storage: Storage, paths: LogPaths, number: int, content: Buffer | None = None
) -> str:
    """A path in quarantine/ for another copy of segment `number`.

    content: of the copy; where one with the same bytes is there, its path.  Raises OSError.
    """
    name = paths.log(number).rpartition("/")[2]
    for copy in range(COPIES_MAX):
        path = f"{paths.quarantine}/{name}.{copy}"
        if not storage.exists(path) or (
            content is not None and read_file(storage, path) == content
        ):
            return path
    text = f"{COPIES_MAX} copies of {name} are in it: move them away"
    raise OSError(errno.EMLINK, text, paths.quarantine)


def keep_copies(storage: Storage, paths: LogPaths) -> None:
    """Before the names of a log that is not open are synced: who was killed behind moving a file to
    quarantine/ has not synced that.  Raises OSError."""
    if storage.exists(paths.quarantine):
        storage.fsync_dir(paths.quarantine)

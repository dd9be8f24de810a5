"""Behind a failed sync: all of a log that is not sealed in new files, under new names.

    sync fails -> .unsynced (files/unsynced.py) -> who opens the log next: each file -> synced copy
                                                   -> the name given anew -> synced -> mark gone

Pages, and names, of which a sync failed may count as clean and be on no disk, whoever asks for
another sync (salvaging.py).  Who opens a log behind that cannot tell which: so it begins with this,
and then goes on as behind any kill.  What is sealed was synced before it was said to be.  An empty
segment is not needed and goes; an index is never trusted.

It may be interrupted anywhere: the mark goes last.
"""

from ..disk.storage import Storage, check_room, put_file, read_file
from ..files.unsynced import read_unsynced, settle_unsynced
from ..names import LogPaths
from .known import read_known


def renew(storage: Storage, paths: LogPaths) -> frozenset[int] | None:
    """Make the log anew, if a mark says that a sync of it failed: of which segments everything is
    durable now, as all names are; None: no mark does.

    Raises OSError.
    """
    if read_unsynced(storage, paths) is None:
        return None
    known = read_known(storage, paths)
    first = 0 if known is None else known.sealed.next_number
    renewed: set[int] = set()
    for name in storage.listdir(paths.folder):
        path = f"{paths.folder}/{name}"
        number = paths.segment_number(name)
        is_unsealed = number is not None and number >= first
        if not (is_unsealed or path in paths.replaced or paths.cleaned_number(name) is not None):
            continue
        content = read_file(storage, path)
        if is_unsealed and not content:
            storage.unlink(path)
            continue
        check_room(storage, paths.folder, len(content), "a file written anew")
        put_file(storage, path, content)
        if is_unsealed and number is not None:
            renewed.add(number)
    storage.fsync_dir(paths.folder)
    settle_unsynced(storage, paths)
    return frozenset(renewed)

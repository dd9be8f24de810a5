"""The mark of a log of which a sync failed, for the next process: .unsynced

    sync fails -> mark -> written to new files by this process -> gone
                       -> killed -> the next process finds it, and does that

After a failed sync the kernel may count pages, and names, as clean that are not on the disk, and
tells so once: who comes next sees nothing of it.  The mark itself is not synced.  As long as the
machine is up it is there, and a power cut takes what is in doubt together with the mark, or leaves
what a start can do without.

Where the disk takes no mark, this process goes by what the mark would have said (`unmarked`).

It says where the log ended, so that the next process knows what it should find: of what was
acknowledged before its sync nothing else speaks (ceilings.py).

Format: the end offset in 19 decimal digits, and a line end.  A mark that was not written whole says
nothing of the end: 0.  It is written over in place, as long as before: where the disk takes no
other, it says what it said.
"""

from contextlib import closing

import structlog

from ..disk.storage import (
    NO_DESCRIPTORS,
    Buffer,
    Storage,
    StorageFile,
    make_own_dirs,
    put_file,
    read_file,
    write_all,
)
from ..names import LogPaths

log = structlog.get_logger()


class Unmarked(OSError):
    """A sync of a file has failed, and the disk has not taken the mark that says so."""


def mark_unsynced(storage: Storage, paths: LogPaths, end_offset: int = 0) -> bool:
    """A sync of this log has failed, which ended here; whether the mark says so.  Raises nothing:
    where the disk takes no mark either, only this process knows."""
    end_offset = max(end_offset, storage.unmarked.get(paths.unsynced, 0))
    try:
        known = _read(storage, paths)
        end_offset = max(end_offset, -1 if known is None else known)
        if end_offset != known:
            _write(storage, paths, end_offset)
    except OSError as exc:
        log.warning("failed_sync_not_marked", path=paths.folder, error=str(exc))
        storage.unmarked[paths.unsynced] = end_offset
        return False
    storage.unmarked.pop(paths.unsynced, None)
    return True


def mark_cut(storage: Storage, paths: LogPaths, end_offset: int) -> None:
    """What a marked log has from here on was promised to nobody, and is about to go.  Raises
    nothing: a mark that says more makes a loss that was none."""
    if storage.unmarked.get(paths.unsynced, 0) > end_offset:
        storage.unmarked[paths.unsynced] = end_offset
    try:
        if (_read(storage, paths) or 0) > end_offset:
            _write(storage, paths, end_offset)
    except OSError as exc:
        log.warning("failed_sync_not_marked", path=paths.folder, error=str(exc))


def _write(storage: Storage, paths: LogPaths, end_offset: int) -> None:
    with closing(storage.open(paths.unsynced, create=True)) as file:
        write_all(file, b"%019d\n" % end_offset, 0)


def sync_or_mark(storage: Storage, paths: LogPaths, file: StorageFile, end_offset: int) -> None:
    """Sync a file of a log that is not open, and ends there; also for want of room the kernel may
    drop what it could not write.  Raises OSError; Unmarked: nothing on the disk says so."""
    try:
        file.fdatasync()
    except OSError as exc:
        if not mark_unsynced(storage, paths, end_offset):
            raise Unmarked(exc.errno, exc.strerror, exc.filename) from exc
        raise


def sync_names_or_mark(storage: Storage, paths: LogPaths) -> None:
    """Sync the names of a log that is not open; those that could not be, also for want of room, are
    given anew by who opens it next.  Raises OSError."""
    try:
        storage.fsync_dir(paths.folder)
    except OSError as exc:
        if exc.errno not in NO_DESCRIPTORS:
            mark_unsynced(storage, paths)
        raise


def replace_or_mark(storage: Storage, paths: LogPaths, path: str, content: Buffer) -> None:
    """As `replace_file`, of a file of a log that is not open.  Raises OSError."""
    put_file(storage, path, content)
    sync_names_or_mark(storage, paths)


def make_dir_or_mark(storage: Storage, paths: LogPaths, path: str) -> None:
    """Make a directory in that of a log that is not open, durably, if it is not there.  As
    `make_own_dirs`, but that other names of the log may wait for that sync.  Raises OSError."""
    make_own_dirs(storage, path, lambda: sync_names_or_mark(storage, paths))


def read_unsynced(storage: Storage, paths: LogPaths) -> int | None:
    """Where the log ended when a sync of it failed, if nobody has made it anew since; None: no sync
    has failed.  Raises OSError."""
    known, alone = _read(storage, paths), storage.unmarked.get(paths.unsynced)
    return known if alone is None else max(known or 0, alone)


def _read(storage: Storage, paths: LogPaths) -> int | None:
    """What the mark says; None: there is none.  Raises OSError."""
    try:
        content = bytes(read_file(storage, paths.unsynced))
    except FileNotFoundError:
        return None
    digits = content.removesuffix(b"\n")
    return int(digits) if digits.isdigit() and digits != content else 0


def settle_unsynced(storage: Storage, paths: LogPaths) -> None:
    """All of it is in new files, under new names, and synced.  Raises OSError."""
    storage.unmarked.pop(paths.unsynced, None)
    if storage.exists(paths.unsynced):
        storage.unlink(paths.unsynced)

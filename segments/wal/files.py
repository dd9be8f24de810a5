"""The files of one shard: made ahead, named, used once, recycled.

    free-3.log --header, sync--> rename, sync of the directory--> wal-17.log: ready, active, full
        ^                                                                                    |
        +--------------- rename, oldest first, each durable before the next -----------------+

    kept-17.log: what outlives full files (kept.py)
    kept-17.log.tmp: one that a crash interrupted; the full files are still there
    spent-17.log: one that an earlier version has put back, and crashed before it removed it

Every `wal-` file has a marker from before its first frame on (markers.py).

A file is written once with zeros when it is made, so later writes change neither its size nor its
blocks.  The number in the name is that of the header: a `wal-` file whose header is another's, or
gone, is not replayed, and is told as damage.  `free-` files are never replayed.

Invariants: under a `wal-` name there is always a synced header with a salt of its own; the `wal-`
files that exist after a crash are the newest ones without a hole, for a BARRIER must not vanish
before what it makes void.

Where the volume has hardly any room a file that is used up is unlinked, but for one: the next.  A
shard that has one file or none, and no room for another of the size that is set, makes a small one,
and one of an earlier, smaller size is kept: without a file nothing could be deleted to make room.
Where there is room again such files go, when they are used up.

One thread makes (`prepare`) while another recycles.  Who gives a name, or takes one, syncs the
directory before anybody else does: a sync that fails is that of who gave the names that were
waiting for it.  Behind one the file is what it was: another sync would prove nothing of its name,
and whoever takes it next, in this process or the next, begins anew.
"""

import errno
import re
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing, suppress
from itertools import count
from typing import Final

import structlog

from ..disk.storage import (
    Storage,
    StorageFile,
    check_room,
    close_all,
    make_dirs,
    read_given,
    size_of,
    write_all,
)
from ..errors import NO_SPACE
from .frames import (
    FILE_SIZE_MIN,
    FRAMES_BEGIN,
    HEADER_SIZE,
    Frame,
    Header,
    encode_header,
    frames_end,
    header_blocks,
)
from .kept import KeptFile, copy_out, kept_path, remove_kept, spent_path, write_kept
from .markers import (
    KEPT,
    WAL,
    Marked,
    make_marker,
    remove_marker,
    remove_markers,
    take_back_marker,
)

log = structlog.get_logger()

_NAME = re.compile(r"(wal|free|kept|spent)-(0|[1-9][0-9]{0,18})\.log")
_INTERRUPTED: Final = re.compile(r"kept-(0|[1-9][0-9]{0,18})\.log\.tmp")
ZEROS_SIZE: Final = 1 << 20
SMALL_FILE_BYTES: Final = 64 << 10
"""Of a file on a volume that has no room for more: enough to delete what takes the room."""
SPARE_FILES: Final = 2
"""Free files per shard that a closed WAL keeps, and one on a volume that has no room for more."""


class WalFile:
    """A file that is open for writing.  `end` is where the next frame goes, no frame goes beyond
    `frames_end`."""

    __slots__ = ("end", "file", "frames_end", "header", "is_away", "path")

    def __init__(self, path: str, file: StorageFile, header: Header) -> None:
        self.path = path
        self.file = file
        self.header = header
        self.frames_end = frames_end(header.size)
        self.end = FRAMES_BEGIN
        self.is_away = False
        """Somebody has removed it, put another file in its place or written over it, and that was
        told."""

    @property
    def size(self) -> int:
        return self.header.size

    @property
    def sequence(self) -> int:
        return self.header.sequence

    @property
    def is_missed(self) -> bool:
        """Whether it is away, which was not told yet.  Blocking."""
        has_its_name = self.path == self.file.path  # not where one could not be given back
        return has_its_name and not self.is_away and not self._is_there()

    def _is_there(self) -> bool:
        """Whether its path leads to it, and it has its header, as long as that is in memory, and
        its size, which no frame changes; True where it cannot be told."""
        head = memoryview(bytearray(HEADER_SIZE))
        try:
            if not self.file.is_in_place(self.size):
                return False
            is_read = self.file.pread_nowait(head, 0) is not None
        except OSError:
            return True
        return not is_read or bytes(head) == encode_header(self.header)

    def goes_away(self) -> bool:
        """Whether it is away, and was not when this was asked before.  What it has is acknowledged
        and would not be found by a start.  Blocking."""
        if not self.is_missed:
            return False
        self.is_away = True
        log.error("wal_file_removed", path=self.path)
        return True


def list_files(storage: Storage, folder: str) -> dict[str, list[int]]:
    """Numbers of the files in a shard's directory by kind, sorted."""
    found: dict[str, list[int]] = {"wal": [], "free": [], "kept": [], "spent": []}
    for name in storage.listdir(folder):
        match = _NAME.fullmatch(name)
        if match:
            found[match[1]].append(int(match[2]))
    for numbers in found.values():
        numbers.sort()
    return found


def is_shard_file(name: str) -> bool:
    """Whether the directory of a shard has files of this name."""
    return bool(_NAME.fullmatch(name) or _INTERRUPTED.fullmatch(name))


class ShardFiles:
    """The directory of one shard.  Blocking; raises OSError."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        shard: int,
        file_bytes: int,
        owner: int = 0,
        next_sequence: int = 0,
    ) -> None:
        """file_bytes: of a file, where the volume has room.

        owner: what its files say of whose they are.  next_sequence: a number that no file has had.
        """
        self.folder = folder
        self.file_bytes = file_bytes
        self._storage = storage
        self._shard = shard
        self._owner = owner
        self.next_sequence = next_sequence
        """The least number that is in no name yet."""
        self._again = -1
        """A number that was given to a file that could not be made."""
        self._numbers = count()
        self._free: list[str] = []
        self._lock = threading.Lock()
        self._naming = threading.Lock()
        self.count = 0
        """Files that exist, used or free."""

    def open(self) -> None:
        """Find the free files; those of another size go, unless they are smaller and the volume is
        short of room.  Nothing else is in use any more."""
        make_dirs(self._storage, self.folder)
        files = list_files(self._storage, self.folder)
        assert not files["wal"], "replayed and recycled before"
        free = files["free"]
        for number in free:
            path = self._path("free", number)
            size = size_of(self._storage, path)
            if size == self.file_bytes or (_is_of_use(size, self.file_bytes) and self._is_short()):
                self._free.append(path)
            else:
                self._storage.unlink(path)
        self._numbers = count(free[-1] + 1 if free else 0)
        self.count = len(self._free)

    @property
    def free_count(self) -> int:
        return len(self._free)

    def _add(self, files: int) -> None:
        with self._lock:
            self.count += files

    def path(self, sequence: int) -> str:
        return self._path("wal", sequence)

    def _path(self, kind: str, number: int) -> str:
        return f"{self.folder}/{kind}-{number}.log"

    def prepare(self) -> WalFile:
        """A file under its final name, its header durable; made when none is free."""
        path = self._take_free() or self._make()
        try:
            if self._again < 0:
                self._again = self.claim()
            file = self._name(path, self._again)
        except Exception:
            # What it is now is not known: it is not used again.  The next one gets its number, and
            # so replaces what comes back; till then it is in the way of a disk that fills up.
            self._add(-1)
            with suppress(OSError):
                self._storage.unlink(path)
            with suppress(OSError):  # a marker that stays has its file
                take_back_marker(self._storage, self.folder, WAL, self._again)
                self._storage.unlink(self.path(self._again))
            raise
        self._again = -1
        return file

    def _take_free(self) -> str:
        """A free file; empty: there is none.  Raises OSError: none is forgotten where nobody can
        tell, as of a data directory that is away."""
        while self._free:
            path = self._free.pop()
            try:
                size = size_of(self._storage, path)
            except FileNotFoundError:
                self._add(-1)  # somebody has removed it
                continue
            except OSError:
                self._free.append(path)
                raise
            if size == self.file_bytes or _is_of_use(size, self.file_bytes):
                return path
            self._add(-1)  # somebody has cut it; it counts no more, whether it goes or not
            self._storage.unlink(path)
        return ""

    def claim(self) -> int:
        """A number that no file has had."""
        with self._lock:
            self.next_sequence += 1
            return self.next_sequence - 1

    def _is_short(self) -> bool:
        return is_short(self._storage, self.folder, self.file_bytes)

    def _make(self) -> str:
        try:
            return self._make_of(self.file_bytes)
        except OSError as exc:
            is_needed = self.count < SPARE_FILES and self.file_bytes > SMALL_FILE_BYTES
            if exc.errno not in NO_SPACE or not is_needed:
                raise
            path = self._make_of(SMALL_FILE_BYTES)
            log.warning("wal_file_small", path=path, bytes=SMALL_FILE_BYTES, error=str(exc))
            return path

    def _make_of(self, size: int) -> str:
        # It is tried every few seconds as long as the volume is full.
        make_dirs(self._storage, self.folder)  # where that was removed
        check_room(self._storage, self.folder, size, "a file of the write-ahead log")
        path = self._path("free", next(self._numbers))
        file = self._storage.open(path, create=True)
        try:
            for position in range(0, size, ZEROS_SIZE):
                zeros = bytes(min(ZEROS_SIZE, size - position))
                write_all(file, zeros, position)
            file.fdatasync()
        except Exception:
            # Half a file on a full disk is in everybody's way.
            file.close()
            with suppress(OSError):  # what it met first is what counts
                self._storage.unlink(path)
            raise
        file.close()
        self._add(1)
        return path

    def _name(self, path: str, sequence: int) -> WalFile:
        salt = int.from_bytes(self._storage.random_bytes(8), "big")
        with closing(self._storage.open(path)) as file:
            size = file.size()
            header = Header(self._shard, size, sequence, salt, owner=self._owner)
            for position, block in header_blocks(header):
                write_all(file, block, position)
            file.fdatasync()
        target = self.path(sequence)
        with self._naming:
            self._storage.rename(path, target)
            self._storage.fsync_dir(self.folder)
        make_marker(self._storage, self.folder, WAL, sequence)
        made = WalFile(target, self._storage.open(target), header)
        if made.is_missed:
            made.file.close()
            text = "another file was put in the place of this one"
            raise OSError(errno.ENOENT, text, target)
        return made

    def keep(self, used: WalFile, keys: Collection[tuple[bytes, int]]) -> str:
        """Copy the frames of these partitions out of a full file, which is then needed no more; the
        path of the copy.

        Durable when this returns.  The frames of a partition that cannot be synced must not hold
        up all others of its shard: what the disk does not give of them is kept as damage, which the
        next start tells.
        """
        # By its descriptor: somebody may have removed the file.
        content = read_given(used.file, used.size)
        copy_out(self._storage, self.folder, content, used.header, used.end, keys, self._naming)
        return kept_path(self.folder, used.sequence)

    def keep_ends(self, number: int, frames: Iterable[Frame]) -> KeptFile:
        """Write END frames into a kept file of a number that was claimed.  Durable when this
        returns.  Raises OSError: nothing counts on it, and it may be there."""
        return write_kept(self._storage, self.folder, number, frames, self._naming, self._owner)

    def remove_kept(self, number: int) -> None:
        """Others say all that this one says; again after a failure.  Raises OSError."""
        remove_kept(self._storage, self.folder, number, self._naming)

    def recycle(self, used: WalFile, *, trusted: bool = True) -> None:
        """A used file, the oldest, becomes a free one, or goes where there is one and the volume is
        short of room; durable when this returns.

        trusted False: a write or a sync of it failed, it is unlinked and another made instead.
        The same goes for what somebody has put in its place; one that was removed is gone.
        """
        # Where the volume is short of room the only one is kept, of whatever size it is.
        fits = not self._free if self._is_short() else used.size == self.file_bytes
        remove_marker(self._storage, self.folder, WAL, used.sequence)
        used.goes_away()
        with self._naming:
            self._set_free(used)
        is_of_use = trusted and fits and not used.is_away
        if not is_of_use:
            with suppress(FileNotFoundError):  # it was removed
                self._storage.unlink(used.path)
        close_all([used.file])  # not before: what is tried again may have to copy from it
        if is_of_use:
            self._free.append(used.path)
        else:
            self._add(-1)

    def _set_free(self, used: WalFile) -> None:
        """Durably.  Raises OSError: then it has its name as before, so that all of it is done once
        more."""
        name = self.path(used.sequence)
        self._rename(used, name)  # where it could not get it back
        with suppress(FileNotFoundError):  # it was removed, which is to be durable as well
            self._rename(used, self._path("free", next(self._numbers)))
        try:
            self._storage.fsync_dir(self.folder)
        except OSError:
            with suppress(OSError):
                self._rename(used, name)
            raise

    def _rename(self, used: WalFile, path: str) -> None:
        if used.path != path:
            self._storage.rename(used.path, path)
            used.path = path

    def shrink(self) -> None:
        """Unlink the free files, but for one.  Raises OSError."""
        with suppress(IndexError):  # somebody took one meanwhile
            while len(self._free) > 1:
                path = self._free.pop()
                self._add(-1)
                self._storage.unlink(path)


def in_use(storage: Storage, folder: str, shard: int) -> list[Marked]:
    """The files of a shard that need a marker."""
    files = list_files(storage, folder)
    return [Marked(shard, kind, number) for kind in (WAL, KEPT) for number in files[kind]]


def is_short(storage: Storage, folder: str, file_bytes: int) -> bool:
    """Whether the volume has no room for the spare files of a shard: then it needs what others have
    more of.  One that cannot be asked is told, and has room."""
    try:
        space = storage.space(folder)
    except OSError as exc:
        log.warning("room_not_known", path=folder, error=str(exc))
        return False
    return space is not None and space.usable < SPARE_FILES * file_bytes


def _is_of_use(size: int, file_bytes: int) -> bool:
    """Whether a file of this size was a whole one, if those of today have `file_bytes`."""
    return FILE_SIZE_MIN <= size < file_bytes


def discard_used(storage: Storage, folder: str, *, keep: int, kept: int) -> None:
    """Everything in the `wal-` files is durable elsewhere, or in the `kept-` file of this number:
    recycle `keep` of them, oldest first.  Raises OSError: the next start does the rest."""
    files = list_files(storage, folder)
    put_back = [number for number in files["kept"] if number != kept]
    for number in put_back:
        storage.unlink(kept_path(folder, number))
    if put_back:
        storage.fsync_dir(folder)  # first: its frames are the oldest
    free = files["free"]
    for following, number in enumerate(files["wal"], free[-1] + 1 if free else 0):
        path, spare = f"{folder}/wal-{number}.log", f"{folder}/free-{following}.log"
        storage.rename(path, spare)
        try:
            storage.fsync_dir(folder)
        except OSError:
            with suppress(OSError):  # who starts next goes by what it sees, and begins with this
                storage.rename(spare, path)
            raise
        if len(free) < keep:
            free.append(following)
        else:
            storage.unlink(spare)
    for number in files["spent"]:  # last: where frames speak of it, an earlier version asks for it
        storage.unlink(spent_path(folder, number))
    if _remove_interrupted(storage, folder) or files["spent"]:
        storage.fsync_dir(folder)


def _remove_interrupted(storage: Storage, folder: str) -> bool:
    """Remove what crashes have left of `kept-` files that never were; whether there was any."""
    interrupted = [name for name in storage.listdir(folder) if _INTERRUPTED.fullmatch(name)]
    for name in interrupted:
        storage.unlink(f"{folder}/{name}")
    return bool(interrupted)


def unlink_free(storage: Storage, folder: str, shard: int, unused: Sequence[str]) -> bool:
    """Remove the files that are not in use, and these, newest first; whether there were any."""
    there = [path for path in unused if storage.exists(path)]
    if there:
        root = folder.rpartition("/")[0]
        going = {Marked(shard, WAL, _number(path)) for path in there}
        remove_markers(storage, root, going)
    paths = [f"{folder}/free-{number}.log" for number in list_files(storage, folder)["free"]]
    paths += there
    for path in paths:
        storage.unlink(path)
    is_given = _remove_interrupted(storage, folder) or bool(paths)
    if is_given:
        storage.fsync_dir(folder)
    return is_given


def _number(path: str) -> int:
    match = _NAME.fullmatch(path.rpartition("/")[2])
    assert match, f"{path} is a file of a shard"
    return int(match[2])

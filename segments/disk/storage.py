"""The disk port: everything a log asks of a disk, and nothing else.

`PosixStorage` answers with system calls, `MemoryStorage` with dictionaries; a recording or a
failing implementation stands in front of either.  Nothing else in this room touches the
operating system, so what the port does not offer cannot happen to a log.

What an implementation promises:

| call | promise |
|---|---|
| pwrite | writes at least one byte and returns how many; after OSError nothing is known |
| pread | fills the buffer; fewer bytes only at the end of the file |
| pread_nowait | the same from memory alone; None when it would wait for the disk |
| fdatasync | bytes and size of this file survive a power cut |
| fsync_dir | the names in this directory survive: created, renamed, unlinked, removed |
| advise | nothing: a hint to the page cache, ignored where there is none |
| rename | atomically replaces a file that has the target's name |

Nothing but fdatasync and fsync_dir promises anything about a power cut.  Errors are OSError with
an errno; translating them is the caller's business.  Calls may come from several threads; two
writes to one range at once do not.  Paths are strings joined with `/`.

The port reports a short write, and `write_all` continues it: a full disk shows itself as a short
write first, and a simulated disk must be able to do the same.
"""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Nothing was opened, so nothing was done."""
_NOT_OURS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.EOPNOTSUPP}
)
"""What a sync says of a directory that this process may not change, or whose file system knows no
sync of one."""
SMALL_FILE: Final = 4096
PAGE: Final = 4096
"""What a disk writes and gives as one: a power cut leaves all of it or nothing, a bad sector takes
all of it."""
TEMPORARY: Final = ".tmp"
"""How names end that `put_file` gives; a start removes what a crash has left of them."""
_in_turn: Final[WeakValueDictionary[str, threading.RLock]] = WeakValueDictionary()
"""By directory, while somebody holds it or waits for it: one that does not answer stops nobody
else, of another data directory perhaps.  Reentrant for tests, which look in the middle of a change
at what a crash would leave."""
_finding: Final = threading.Lock()

Buffer: TypeAlias = bytes | bytearray | memoryview


class Advice(Enum):
    """What will become of the bytes of a file; for the page cache."""

    WILL_NEED = "read soon"
    DONT_NEED = "not read again"


class Space(NamedTuple):
    """The room of a volume, bytes.  `usable`: what may still be written, by whom we run as."""

    total: int
    usable: int
    files: int | None = None
    """How many files may still be made (inodes); None: they have no limit of their own."""


class StorageFile(Protocol):
    """One open file.  Positions and sizes are bytes."""

    @property
    def path(self) -> str: ...

    def pwrite(self, data: Buffer, position: int) -> int: ...

    def pread(self, buffer: memoryview, position: int) -> int: ...

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None: ...

    def fdatasync(self) -> None: ...

    def advise(self, advice: Advice) -> None: ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def is_in_place(self, size: int = 0) -> bool:
        """Whether its path still leads to this file, and it has at least `size` bytes: not when
        somebody has removed or moved it, put another in its place, or cut it off.  True where the
        disk does not say, and when it is closed."""
        ...

    def close(self) -> None:
        """Close; a second time does nothing."""
        ...


class StorageLock(Protocol):
    """A held lock; gone when released or when the process ends."""

    def release(self) -> None: ...

    def is_in_place(self) -> bool:
        """Whether its path still leads to the file that is held: not when that was removed or
        moved, or another one put or mounted there.  True where the disk does not say."""
        ...


class Storage(Protocol):
    """One disk."""

    @property
    def unmarked(self) -> dict[str, int]:
        """What it had no room to be told, by the path of the mark that is missing: this process
        alone knows (files/unsynced.py)."""
        ...

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> StorageFile:
        """Open a file; with `create` make it if it is not there.  Never empties one."""
        ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted; FileNotFoundError without one."""
        ...

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str, *, only_looks: bool = False) -> StorageLock:
        """Take the lock file `path`, made if missing; BlockingIOError when somebody has it.

        only_looks: whoever takes it writes nothing: also where nothing can be written.
        """
        ...

    def random_bytes(self, count: int) -> bytes:
        """Bytes for identifiers: chance enters here, so that a simulated disk can repeat it."""
        ...

    def space(self, path: str) -> Space | None:
        """How much room there is where `path` lies; None where there is no such limit, or the file
        system does not say."""
        ...

    def boot_id(self, path: str) -> str:
        """Which run of the machine this is, and of the disk where `path` lies: as long as it is the
        same, what was written is there, synced or not.  Empty where nobody knows; then every start
        counts as another boot.  Behind a space the disk, where it is known.  Raises OSError."""
        ...


def write_all(file: StorageFile, data: Buffer, position: int) -> None:
    """Write every byte of `data` at `position`, however many writes that takes."""
    done = file.pwrite(data, position)
    if done == len(data):
        return
    view = memoryview(data)
    while done < len(view):
        count = file.pwrite(view[done:], position + done)
        if count <= 0:
            raise OSError(errno.EIO, "a write took no bytes", file.path)
        done += count


def check_room(storage: Storage, folder: str, size: int, what: str) -> None:
    """Raises OSError where the volume has not so many bytes, and says so: to find it out by writing
    would take meanwhile what there is from others.  A volume that does not say has room."""
    try:
        space = storage.space(folder)
    except OSError:
        return
    if space is not None and space.usable < size:
        why = f"No space left on device: {what} takes {size} bytes of {space.usable}"
        raise OSError(errno.ENOSPC, why, folder)


def read_file(storage: Storage, path: str) -> bytearray:
    """The whole of a file that is small enough for it."""
    with closing(storage.open(path, read_only=True)) as file:
        # Most are small: one read finds that out and saves asking for the size.
        content = bytearray(SMALL_FILE)
        count = file.pread(memoryview(content), 0)
        if count == SMALL_FILE:
            content = bytearray(file.size())
            count = file.pread(memoryview(content), 0)
        del content[count:]
        return content


def size_of(storage: Storage, path: str) -> int:
    """Bytes of a file that is not open.  Raises OSError."""
    with closing(storage.open(path, read_only=True)) as file:
        return file.size()


def size_now(storage: Storage, path: str, size: int) -> int:
    """Bytes of a file that had `size`; -1: it was removed.  Where that cannot be told: `size`."""
    try:
        return size_of(storage, path)
    except OSError as exc:  # or the whole directory is away, which says so
        return -1 if isinstance(exc, FileNotFoundError) else size


def is_cut_off(storage: Storage, path: str, size: int) -> bool:
    """Whether a file was removed, or has less than `size` bytes; not where that cannot be told."""
    return size_now(storage, path, size) < size


def read_file_given(storage: Storage, path: str) -> bytearray:
    """As `read_file`, but with zeros in the place of what the disk does not give (EIO).  Raises
    OSError: any other, or EIO where it does not even open the file."""
    with closing(storage.open(path, read_only=True)) as file:
        return read_given(file, file.size())


def read_given(file: StorageFile, size: int) -> bytearray:
    """The first `size` bytes of a file, as far as it has them, with zeros in the place of what the
    disk does not give (EIO).  Raises OSError: any other."""
    content = bytearray(size)
    try:
        del content[file.pread(memoryview(content), 0) :]
        return content
    except OSError as exc:
        if exc.errno != errno.EIO:
            raise
    content = bytearray(min(size, file.size()))
    for begin in range(0, len(content), PAGE):
        piece = memoryview(content)[begin : begin + PAGE]
        try:
            file.pread(piece, begin)
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
    return content


def write_temporary(storage: Storage, path: str, content: Buffer, *, synced: bool = True) -> None:
    """Make the file `path` with this content, synced.  Its name is not: that is the caller's.
    synced: False: nor is the content."""
    with closing(storage.open(path, create=True)) as file:
        # Left over from a crash.  Not where there is nothing: ext4 writes out what is truncated to
        # nothing when it is closed, for each new partition.
        if file.size():
            file.truncate(0)
        if len(content):
            write_all(file, content, 0)
        if synced:
            file.fdatasync()


def replace_file(storage: Storage, path: str, content: Buffer) -> None:
    """Put `content` under `path`, durably, so that a crash leaves the old whole or the new whole.

    Raises OSError: it may be there, and may not be after a crash.
    """
    put_file(storage, path, content)
    storage.fsync_dir(path.rpartition("/")[0])


def put_file(storage: Storage, path: str, content: Buffer) -> None:
    """As `replace_file`, but that the name is not synced yet: that is the caller's.

    Temporary file, sync, rename.  What a crash may leave behind is `path`.tmp, which nobody reads,
    the next replacement empties, and a start removes.  After a failure it is unlinked: it takes no
    space on a full disk, and what a failed sync may have left of it is never synced again.
    """
    temporary = path + TEMPORARY
    try:
        write_temporary(storage, temporary, content)
    except OSError:
        with suppress(OSError):
            storage.unlink(temporary)
        raise
    storage.rename(temporary, path)


def close_all(files: Iterable[StorageFile]) -> None:
    """Close each of these, whatever that says: what was written to them is synced, or counts no
    more; and who happens to be here may have come for another."""
    for file in files:
        with suppress(OSError):
            file.close()


def set_aside(storage: Storage, path: str, target: str) -> None:
    """Move a file or a directory into another directory, durably there.

    Raises OSError: where the sync fails it is moved back, for who tries it next to find it; another
    sync would prove nothing of the name that it had.
    """
    storage.rename(path, target)
    try:
        storage.fsync_dir(target.rpartition("/")[0])
    except OSError:
        with suppress(OSError):
            storage.rename(target, path)
        raise


def make_dirs(storage: Storage, path: str) -> None:
    """Make a directory and what is missing above it, each name durable before the next.  One whose
    name could not be synced goes again: another sync would prove nothing of it, nor would one
    beside which another's has failed."""
    if not path:
        return
    parent = path.rpartition("/")[0]
    with in_turn(parent):
        if storage.exists(path):
            return
        make_dirs(storage, parent)
        storage.mkdir(path)
        try:
            storage.fsync_dir(_above(path))
        except OSError:
            with suppress(OSError):
                storage.rmdir(path)
            raise


def make_root(storage: Storage, path: str) -> None:
    """As `make_dirs`, of the directory that everything else is in.  Raises OSError.

    One with nothing in it counts as new, and so does an empty one that it is made in: who has made
    it may have been killed in front of the sync.  Where what is above may not be synced, it was
    made by somebody else.
    """
    if not storage.exists(path):
        if parent := path.rpartition("/")[0]:
            make_root(storage, parent)
        make_dirs(storage, path)
    elif not storage.listdir(path):
        try:
            storage.fsync_dir(_above(path))
        except OSError as exc:
            if exc.errno not in _NOT_OURS:
                raise


def _above(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def in_turn(folder: str) -> threading.RLock:
    """What holds who gives names in this directory, or takes some, until they are synced: so a sync
    that fails is that of whoever made, or took, what was waiting for it."""
    with _finding:
        return _in_turn.setdefault(folder, threading.RLock())


def make_own_dirs(storage: Storage, path: str, sync: Callable[[], None] | None = None) -> None:
    """As `make_dirs`, of a directory inside the data directory.  Raises OSError.

    One with something in it has a durable name, as nothing is in it before.  One that is empty
    counts as new: who has made it may have been killed in front of the sync.
    sync: syncs the directory that it is in; None: nobody has to be told where that fails.
    """
    parent = path.rpartition("/")[0]
    with in_turn(parent):
        is_there = storage.exists(path)
        if is_there and storage.listdir(path):
            return
        if not is_there:
            make_own_dirs(storage, parent)
            storage.mkdir(path)
        try:
            if sync is None:
                storage.fsync_dir(parent)
            else:
                sync()
        except OSError:
            with suppress(OSError):
                storage.rmdir(path)
            raise


def remove_tree(storage: Storage, path: str, *, last: str = "", links: int = 0) -> None:
    """Remove a directory and everything in it; only for names that are out of use already.

    last: what of it goes when all else is gone.  links: so many levels below `path` a link to a
    directory is one that was moved to another volume, a topic's partition, and goes with what it
    has, as where `path` is one; deeper, the link alone goes.
    """
    for _ in removals(storage, path, last=last, links=links):
        pass


def removals(storage: Storage, path: str, *, last: str = "", links: int) -> Iterator[None]:
    """The same, one file or directory at each step: whoever asks no further leaves the rest."""
    try:
        names = storage.listdir(path) if links >= 0 else None
    except (NotADirectoryError, FileNotFoundError):  # a file, or a link to nothing
        names = None
    if names is None:
        try:
            storage.unlink(path)
        except (IsADirectoryError, PermissionError) as exc:
            try:
                names = storage.listdir(path)
            except NotADirectoryError:  # a file that may not go
                raise exc from None
        else:
            yield
            return
    for name in sorted(names, key=last.__eq__):
        yield from removals(storage, f"{path}/{name}", links=links - 1)
    try:
        storage.rmdir(path)
    except NotADirectoryError:
        storage.unlink(path)
    yield

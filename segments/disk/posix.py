"""The disk port on a POSIX system: the only module of this room that touches `os`.

What some platforms have and others have not is looked up once, when a PosixStorage is made:

| call | has it | without it |
|---|---|---|
| preadv2 with RWF_NOWAIT | Linux | pread_nowait always answers None: the read happens in a lane |
| preadv | most, if no filter of system calls refuses it | pread, and a copy into the buffer |
| fdatasync | most | F_FULLFSYNC where there is one (macOS: fsync stops at the drive), or fsync |
| posix_fadvise | Linux, BSD | advice goes unheard |
| a boot id | Linux | empty: every start counts as another boot |
| a count of attached disks | Linux 5.15 | the boot id alone: as if no disk were ever taken away |

Only the owner and its group get rights on files (0640, directories 0750): files hold what access
rules protect, and data from which passwords could be guessed.

The plain path is slower, never wrong: the contract suite of the port runs over it, too.  It is also
taken when the call exists but the kernel or the file system refuses it.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable

from .storage import Advice, Buffer, Space

FILE_MODE = 0o640
FOLDER_MODE = 0o750
BOOT_ID = "/proc/sys/kernel/random/boot_id"
DISKS = "/sys/dev/block"
MOUNTS = "/proc/self/mountinfo"
_REFUSED = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_NOT_NOW = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Platform:
    """What this platform has, as calls that are always there."""

    __slots__ = ("fadvise", "fdatasync", "nowait", "preadv")

    def __init__(self) -> None:
        self.nowait: int | None = getattr(os, "RWF_NOWAIT", None)
        self.preadv: Callable[..., int] = os.preadv if _has_preadv() else _pread_into
        if self.preadv is _pread_into:
            self.nowait = None
        self.fdatasync: Callable[[int], object] = getattr(os, "fdatasync", _full_sync)
        self.fadvise: dict[Advice, int] = {}
        if hasattr(os, "posix_fadvise"):
            self.fadvise = {
                Advice.WILL_NEED: os.POSIX_FADV_WILLNEED,
                Advice.DONT_NEED: os.POSIX_FADV_DONTNEED,
            }


def _has_preadv() -> bool:
    """Whether it is there, and no filter refuses it (seccomp profiles that are older than it)."""
    if not hasattr(os, "preadv"):
        return False
    try:
        os.preadv(-1, [bytearray(1)], 0)
    except OSError as exc:
        return exc.errno not in _REFUSED
    return True


def _is_at(path: str, held: os.stat_result) -> bool:
    """Whether a path leads to the file that is held; True where it cannot be told."""
    try:
        return os.path.samestat(held, os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _pread_into(fd: int, buffers: list[memoryview], position: int) -> int:
    (buffer,) = buffers
    data = os.pread(fd, len(buffer), position)
    buffer[: len(data)] = data
    return len(data)


def _full_sync(fd: int) -> None:
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(fd)
    else:
        fcntl.fcntl(fd, full)


def _line_of(path: str) -> str:
    """What the kernel says there; nothing where it does not."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 64).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def _attached(path: str) -> str:
    """The disk below a path, and which of all attachments of disks in this boot it is; nothing
    where the file system has no disk, or the kernel does not count them."""
    device = os.stat(path).st_dev
    if not os.major(device):  # no disk's own: of btrfs, of what is in memory or elsewhere
        device = _mounted_disk(path)
    disk = f"{os.major(device)}:{os.minor(device)}"
    for place in ("", "/.."):  # of a disk; of a partition of one
        if number := _line_of(f"{DISKS}/{disk}{place}/diskseq"):
            return f"{disk}#{number}"
    return ""


def _mounted_disk(path: str) -> int:
    """The number of the disk that the mount of a path names; 0: it names none."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        held = _read_whole(f"/proc/self/fdinfo/{fd}")
    finally:
        os.close(fd)
    mounts = [line.split()[1] for line in held.splitlines() if line.startswith(b"mnt_id:")]
    for line in _read_whole(MOUNTS).splitlines():
        mount, _, source = line.partition(b" - ")
        if mount.split(b" ", 1)[:1] == mounts:  # then: type, source, options
            return _disk_at(source.split(b" ")[1])
    return 0


def _disk_at(name: bytes) -> int:
    """The number of a disk by its name; 0: it is none's, or not in this container."""
    try:
        found = os.stat(name)
    except OSError:
        return 0
    return found.st_rdev if stat.S_ISBLK(found.st_mode) else 0


def _read_whole(path: str) -> bytes:
    """What the kernel says there; nothing where it does not."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


class PosixFile:
    """A descriptor and the path it was opened under."""

    __slots__ = ("_fd", "_platform", "path")

    def __init__(self, path: str, fd: int, platform: Platform) -> None:
        self.path = path
        self._fd = fd
        self._platform = platform

    def pwrite(self, data: Buffer, position: int) -> int:
        return os.pwrite(self._fd, data, position)

    def pread(self, buffer: memoryview, position: int) -> int:
        size = len(buffer)
        preadv = self._platform.preadv
        done = preadv(self._fd, [buffer], position)
        while 0 < done < size:
            count = preadv(self._fd, [buffer[done:]], position + done)
            if count == 0:
                break
            done += count
        return done

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        platform = self._platform
        if platform.nowait is None:
            return None
        try:
            count = platform.preadv(self._fd, [buffer], position, platform.nowait)
        except OSError as exc:
            if exc.errno in _NOT_NOW:
                return None
            raise
        # The rest is on the disk, or behind the end of the file: the lane finds out which.
        return count if count == len(buffer) else None

    def fdatasync(self) -> None:
        self._platform.fdatasync(self._fd)

    def advise(self, advice: Advice) -> None:
        code = self._platform.fadvise.get(advice)
        if code is None:
            return
        try:
            os.posix_fadvise(self._fd, 0, 0, code)
        except OSError as exc:
            if exc.errno == errno.EBADF:
                raise  # ours: the file is closed

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def is_in_place(self, size: int = 0) -> bool:
        try:
            held = os.fstat(self._fd)
        except OSError:
            return True
        return held.st_size >= size and _is_at(self.path, held)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class PosixLock:
    """flock(2) on a lock file; the kernel drops it with the process, however that ends, and with
    those that were forked from it meanwhile."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._owner = os.getpid()
        self._held = os.fstat(fd)  # once: it is asked with each path of the directory

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if os.getpid() == self._owner:  # or it would stay with a child that has the file, too
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def is_in_place(self) -> bool:
        return _is_at(self._path, self._held)


class PosixStorage:
    """The files of this machine."""

    def __init__(self) -> None:
        self._platform = Platform()
        self.unmarked: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> PosixFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT
        return PosixFile(path, os.open(path, flags, FILE_MODE), self._platform)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        os.mkdir(path, FOLDER_MODE)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from exc
        finally:
            os.close(fd)

    def lock(self, path: str, *, only_looks: bool = False) -> PosixLock:
        while (lock := self._lock(path, only_looks)) is None:
            pass
        return lock

    def _lock(self, path: str, only_looks: bool) -> PosixLock | None:
        """None: the file was removed, by who had it, before it was locked here."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as exc:
            if exc.errno != errno.EROFS or not only_looks:
                raise
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # of a backup that is looked at
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return PosixLock(fd, path)
        except FileNotFoundError:
            pass
        except OSError as exc:
            os.close(fd)
            raise OSError(exc.errno, exc.strerror, path) from exc
        os.close(fd)
        return None

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def space(self, path: str) -> Space | None:
        found = os.statvfs(path)
        if not found.f_blocks:
            return None  # it says nothing: FUSE without statfs answers with zeros
        size = found.f_frsize
        files = found.f_favail if found.f_files else None
        return Space(found.f_blocks * size, found.f_bavail * size, files)

    def boot_id(self, path: str) -> str:
        boot = _line_of(BOOT_ID)
        attached = _attached(path)
        return f"{boot} {attached}" if boot and attached else boot

"""A disk with a page cache, faults, and a power switch; it outlives the processes that use it.

    Disk        what is there: names, bytes, and what of both was not synced, change by change
    Mount       one process's view: the Storage port; dead when the process is

A change is *pending* from its call until a sync that began after it has ended.  A sync takes
virtual time, so what is written meanwhile stays pending.  `cut_power` keeps of each file's pending
writes any prefix, any but one, the last one torn, or zeros; of each directory's pending changes any
prefix.  `kill` keeps everything: the page cache belongs to the machine.

A failed sync leaves its writes *doomed*: readable until the power goes, and never durable by any
later sync, as on Linux; that of a directory does so with the changes of its names.  A descriptor
that is synced again after a failure is a violation (I12).

Faults are switched on by the nemesis: `room` (bytes left; a full disk shows as a short write
first), `sync_errors`, `write_errors` and `wal_errors` (how many of the next ones fail),
`name_errors` (which share of the syncs of directories does), `sync_s` (how long a sync takes),
`cold` (how often a read is not in memory).
"""

import errno
import traceback
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import TypeAlias

from segbroker.segments.disk.storage import Advice, Buffer, Space

from .threads import Killed, Threads
from .world import World

Node: TypeAlias = "Inode | Directory"
Names: TypeAlias = dict[str, "Inode | Directory"]
TORN_AT = (1, 4, 8, 61, 512, 4096)
STREAKS = (1, 1, 1, 2, 4, 16)
"""How many syncs of directories fail in a row."""


class State(Enum):
    """Whether a write is durable."""

    PENDING = 0
    DURABLE = 1
    DOOMED = 2
    """A sync of it has failed: readable until the power goes, and nobody will write it again."""


class Write:
    """A write, or with data None a change of size."""

    __slots__ = ("data", "position", "state")

    def __init__(self, position: int, data: bytes | None) -> None:
        self.position = position
        self.data = data
        self.state = State.PENDING

    def apply(self, content: bytearray, size: int | None = None, *, zeros: bool = False) -> None:
        if self.data is None:
            del content[self.position :]
            content += bytes(self.position - len(content))
            return
        data = self.data if size is None else self.data[:size]
        if zeros:
            # The size grew, the data did not: what the file had before is not made zeros.
            data = bytes(max(0, self.position + len(data) - len(content)))
            content += data
            return
        if self.position > len(content):
            content += bytes(self.position - len(content))
        content[self.position : self.position + len(data)] = data


class Inode:
    """A file: what processes see, and what of it is durable.

    `base` is durable; `journal` is what was written since the first write that is not, in order,
    so that a later durable write lies above an earlier doomed one.
    """

    __slots__ = ("base", "content", "journal")

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.content = bytearray(content)
        self.base = bytearray(content)
        self.journal: list[Write] = []

    def write(self, write: Write) -> None:
        write.apply(self.content)
        self.journal.append(write)

    def synced(self, writes: list[Write]) -> None:
        """These are durable, but for the doomed ones."""
        for write in writes:
            if write.state is State.PENDING:
                write.state = State.DURABLE
        done = 0
        for write in self.journal:
            if write.state is not State.DURABLE:
                break
            write.apply(self.base)
            done += 1
        del self.journal[:done]

    def after_power_cut(self, random: Random, *, first_is_lost: bool = False) -> bytearray:
        """What may be left of it; first_is_lost: all pending writes but the first."""
        content = bytearray(self.base)
        pending = [write for write in self.journal if write.state is State.PENDING]
        mode = random.choice(
            ("all", "none", "prefix", "prefix", "dropped", "torn", "torn", "zeros")
        )
        kept = [] if mode == "none" else list(pending)
        if first_is_lost:
            mode, kept = "all", pending[1:]
        if kept and mode != "all":
            kept = kept[: random.randint(1, len(kept))]
            if mode == "dropped":
                del kept[random.randrange(len(kept))]
        last = kept[-1] if kept else None
        chosen = set(map(id, kept))
        for write in self.journal:
            match write.state:
                case State.DOOMED if random.random() < 0.5:
                    continue
                case State.PENDING if id(write) not in chosen:
                    continue
            if write is last and mode == "torn" and write.data and len(write.data) > 1:
                most = len(write.data) - 1
                write.apply(
                    content, min(most, random.choice((*TORN_AT, len(write.data) // 2, most)))
                )
            else:
                write.apply(content, zeros=write is last and mode == "zeros")
        return content


class Change:
    """A change of the names in a directory."""

    __slots__ = ("apply", "state")

    def __init__(self, apply: Callable[[Names], None]) -> None:
        self.apply = apply
        self.state = State.PENDING


class Directory:
    """Names: what processes see, what is durable, and the changes between the two, in order.

    A change that is durable stays in the journal behind one that is not, as the writes of a file.
    """

    __slots__ = ("durable", "journal", "names")

    def __init__(self) -> None:
        self.names: Names = {}
        self.durable: Names = {}
        self.journal: list[Change] = []

    def change(self, apply: Callable[[Names], None]) -> None:
        apply(self.names)
        self.journal.append(Change(apply))

    def synced(self, changes: list[Change], state: State = State.DURABLE) -> None:
        """These are durable, or doomed; but for those that another sync has settled."""
        for change in changes:
            if change.state is State.PENDING:
                change.state = state
        done = 0
        for change in self.journal:
            if change.state is not State.DURABLE:
                break
            change.apply(self.durable)
            done += 1
        del self.journal[:done]

    def after_power_cut(self, random: Random, doomed: Random) -> Names:
        """The names that may be left.  `doomed`: chance for what a failed sync has left."""
        names = dict(self.durable)
        pending = sum(change.state is State.PENDING for change in self.journal)
        kept = random.randint(0, pending)
        if pending and random.random() < 0.5:
            kept = random.choice((0, pending))
        all_are_lost: bool | None = None
        for change in self.journal:
            match change.state:
                case State.DOOMED:
                    if all_are_lost is None:
                        all_are_lost = doomed.random() < 0.5
                    if all_are_lost or doomed.random() < 0.5:
                        continue
                case State.PENDING:
                    kept -= 1
                    if kept < 0:
                        continue
            change.apply(names)
        return names


class Disk:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.stream("disk")
        self.root = Directory()
        self.room: int | None = None
        self.sync_errors = 0
        self.write_errors = 0
        self.wal_errors = 0
        self.name_errors = 0.0
        self.names_random = world.stream("names")
        self._names_fail = 0
        """How many of the next syncs of directories fail, in a streak."""
        self.sync_s: tuple[float, float] = (0.0002, 0.003)
        self.cold = 0.1
        self.locks: set[str] = set()
        self.ids = world.stream("ids")
        self.boot = 1
        self.first_is_lost = False
        """Of each file that is being written, at the next power cut; see nemesis.py."""
        self.faults = 0  # that somebody met: a run without any is held to more

    def cut_power(self) -> None:
        """Only what the disk promised is there, and of the rest what chance leaves."""
        random = self.random
        self.root = self._after_power_cut(self.root, random)
        self.locks.clear()
        self.boot += 1

    def copy(self) -> "Disk":
        """The same disk once more, as it is now, to try something on.

        Its random bytes go on from there: another file of the WAL with the salt of one that is on
        it would make the frames valid that an earlier use has left.
        """
        other = Disk(self.world)
        other.root = _copied(self.root)
        other.boot = self.boot
        other.ids.setstate(self.ids.getstate())
        return other

    def _after_power_cut(self, directory: Directory, random: Random) -> Directory:
        image = Directory()
        for name, node in directory.after_power_cut(random, self.names_random).items():
            if isinstance(node, Directory):
                image.names[name] = self._after_power_cut(node, random)
            else:
                left = node.after_power_cut(random, first_is_lost=self.first_is_lost)
                image.names[name] = Inode(left)
        image.durable = dict(image.names)
        return image

    def names_fail(self) -> bool:
        """Whether this sync of a directory fails."""
        random = self.names_random
        if not self.name_errors:
            self._names_fail = 0
        elif not self._names_fail and random.random() < self.name_errors:
            self._names_fail = random.choice(STREAKS)
        fails = self._names_fail > 0
        self._names_fail -= fails
        self.faults += fails
        return fails

    def take_room(self, size: int) -> int:
        """How many of `size` further bytes there is room for."""
        if self.room is not None:
            size = min(size, self.room)
            self.room -= size
        return size

    def give_room(self, size: int) -> None:
        if self.room is not None:
            self.room += size


class File:
    """An open file of a Mount."""

    __slots__ = ("_closed", "_failed", "_inode", "_mount", "path")

    def __init__(self, path: str, inode: Inode, mount: "Mount") -> None:
        self.path = path
        self._inode = inode
        self._mount = mount
        self._closed = False
        self._failed = False

    def _content(self) -> bytearray:
        if self._closed:
            raise OSError(errno.EBADF, "closed", self.path)
        return self._inode.content

    def pwrite(self, data: Buffer, position: int) -> int:
        mount = self._mount
        mount.act("pwrite", self.path, position, len(data))
        disk = mount.disk
        in_wal = bool(disk.wal_errors) and "/wal/" in self.path
        if (disk.write_errors or in_wal) and len(data):
            disk.wal_errors -= in_wal
            disk.write_errors -= not in_wal
            disk.faults += 1
            mount.world.trace("EIO", "pwrite", self.path)
            raise OSError(errno.EIO, "write failed", self.path)
        content = self._content()
        view = memoryview(data)
        growth = max(0, position + len(view) - len(content))
        given = disk.take_room(growth)
        if given < growth:
            disk.faults += 1
            mount.world.trace("ENOSPC", self.path, given)
            fits = len(view) - (growth - given)
            if fits <= 0:
                disk.give_room(given)
                raise OSError(errno.ENOSPC, "no space", self.path)
            view = view[:fits]
        elif len(view) > 1 and mount.random.random() < mount.short_writes:
            short = mount.random.randint(1, len(view) - 1)
            disk.give_room(max(0, growth - max(0, position + short - len(content))))
            view = view[:short]
        self._inode.write(Write(position, bytes(view)))
        return len(view)

    def pread(self, buffer: memoryview, position: int) -> int:
        self._mount.act("pread", self.path, position, len(buffer), quiet=True)
        found = self._content()[position : position + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        self._mount.check()
        if self._mount.random.random() < self._mount.disk.cold:
            return None
        found = self._content()[position : position + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def fdatasync(self) -> None:
        mount = self._mount
        self._content()
        if self._failed:
            mount.world.violation(f"{self.path} is synced again after a failure")
        writes = list(self._inode.journal)
        mount.sync_time("fdatasync", self.path)
        disk = mount.disk
        if disk.sync_errors:
            disk.sync_errors -= 1
            disk.faults += 1
            self._failed = True
            for write in writes:
                if write.state is State.PENDING:
                    write.state = State.DOOMED
            mount.world.trace("EIO", "fdatasync", self.path)
            raise OSError(errno.EIO, "sync failed", self.path)
        self._inode.synced(writes)

    def advise(self, advice: Advice) -> None:
        self._content()

    def truncate(self, size: int) -> None:
        self._mount.act("truncate", self.path, size)
        content = self._content()
        grown = size - len(content)
        if grown > 0 and self._mount.disk.take_room(grown) < grown:
            raise OSError(errno.ENOSPC, "no space", self.path)
        if grown < 0:
            self._mount.disk.give_room(-grown)
        self._inode.write(Write(size, None))

    def size(self) -> int:
        return len(self._content())

    def is_in_place(self, size: int = 0) -> bool:
        if self._closed:
            return True
        return self.size() >= size and self._mount.leads_to(self.path, self._inode)

    def close(self) -> None:
        self._closed = True


class MountLock:
    """A held lock; released, or gone with its process."""

    def __init__(self, mount: "Mount", path: str) -> None:
        self._mount = mount
        self._path = path

    def release(self) -> None:
        if self._mount.alive:
            self._mount.disk.locks.discard(self._path)

    def is_in_place(self) -> bool:
        return True


class Mount:
    """See the module: the Storage port for one process."""

    def __init__(self, disk: Disk, threads: Threads, *, short_writes: float = 0.0) -> None:
        self.disk = disk
        self.world = disk.world
        self.random = disk.random
        self.threads = threads
        self.short_writes = short_writes
        self.unmarked: dict[str, int] = {}
        self.alive = True
        self.serves = False  # a broker's loop runs on it: it may not sync there
        self.is_quick = False  # so that it may sync the WAL, for a lone writer

    # What every call goes through

    def check(self) -> None:
        if not self.alive:
            raise Killed

    def act(self, name: str, path: str, *facts: object, quiet: bool = False) -> None:
        """One operation: traced, and a place where its thread may be interrupted."""
        self.check()
        self.threads.preempt()
        self.check()
        if not quiet:
            self.world.trace(name, path.rpartition("/")[2], *facts)

    def sync_time(self, name: str, path: str) -> None:
        """A sync takes its time; on the loop it takes none, for nothing could pass meanwhile.

        The loop syncs nothing but the WAL, where the broker was told that its disk is quick.
        """
        self.check()
        low, high = self.disk.sync_s
        is_quick_wal = self.is_quick and name == "fdatasync" and "/wal/" in path
        if self.serves and self.threads.current() is None and not is_quick_wal:
            here = "".join(traceback.format_stack(limit=8)[:-2])
            self.world.violation(f"a sync on the loop: {name} {path}\n{here}")
        self.world.trace(name, path.rpartition("/")[2])
        self.threads.pause(self.random.uniform(low, high))
        self.check()

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, _, name = path.strip("/").rpartition("/")
        return self._directory(head), name

    def _directory(self, path: str) -> Directory:
        node: Node = self.disk.root
        for part in path.split("/"):
            if not part or part == ".":
                continue
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            child = node.names.get(part)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            node = child
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _needs_room(self, path: str) -> None:
        if self.disk.room == 0 and self.random.random() < 0.5:
            self.disk.faults += 1
            self.world.trace("ENOSPC", path)
            raise OSError(errno.ENOSPC, "no space", path)

    # The port

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.check()
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.act("create", path)
            self._needs_room(path)
            directory, name = self._parent(path)
            node = directory.names.get(name)
            if node is None:
                made = node = Inode()
                directory.change(lambda names: names.__setitem__(name, made))
            assert isinstance(node, Inode)
        return File(path, node, self)

    def exists(self, path: str) -> bool:
        self.check()
        try:
            directory, name = self._parent(path)
        except OSError:
            return False
        return not name or name in directory.names

    def leads_to(self, path: str, inode: Inode) -> bool:
        """Whether this is the file of that name."""
        self.check()
        try:
            directory, name = self._parent(path)
        except OSError:
            return False
        return directory.names.get(name) is inode

    def listdir(self, path: str) -> list[str]:
        self.check()
        return sorted(self._directory(path).names)

    def mkdir(self, path: str) -> None:
        self.act("mkdir", path)
        self._needs_room(path)
        directory, name = self._parent(path)
        if not name or name in directory.names:
            raise FileExistsError(errno.EEXIST, "exists", path)
        made = Directory()
        directory.change(lambda names: names.__setitem__(name, made))

    def rmdir(self, path: str) -> None:
        self.act("rmdir", path)
        if self._directory(path).names:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        directory, name = self._parent(path)
        directory.change(lambda names: _drop(names, name))

    def rename(self, source: str, target: str) -> None:
        self.act("rename", source, target.rpartition("/")[2])
        old, old_name = self._parent(source)
        new, new_name = self._parent(target)
        node = old.names.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        occupant = new.names.get(new_name)
        if isinstance(occupant, Directory) and occupant.names:
            raise OSError(errno.ENOTEMPTY, "not empty", target)
        if isinstance(occupant, Inode):
            self.disk.give_room(len(occupant.content))

        def change(names: Names) -> None:
            names.pop(old_name, None)
            names[new_name] = node

        if old is new:
            old.change(change)
        else:
            old.change(lambda names: _drop(names, old_name))
            new.change(lambda names: names.__setitem__(new_name, node))

    def unlink(self, path: str) -> None:
        self.act("unlink", path)
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self.disk.give_room(len(node.content))
        directory.change(lambda names: _drop(names, name))

    def fsync_dir(self, path: str) -> None:
        directory = self._directory(path)
        changes = list(directory.journal)
        self.sync_time("fsync_dir", path)
        if self.disk.names_fail():
            directory.synced(changes, State.DOOMED)
            self.world.trace("EIO", "fsync_dir", path)
            raise OSError(errno.EIO, "the names are not synced", path)
        directory.synced(changes)

    def lock(self, path: str, *, only_looks: bool = False) -> MountLock:
        self.open(path, create=True).close()
        if path in self.disk.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self.disk.locks.add(path)
        return MountLock(self, path)

    def random_bytes(self, count: int) -> bytes:
        return self.disk.ids.randbytes(count)

    def space(self, path: str) -> Space | None:
        return None

    def boot_id(self, path: str) -> str:
        return f"boot-{self.disk.boot}"

    def die(self) -> None:
        """The process is gone: nothing reaches the disk from here any more."""
        self.alive = False
        self.disk.locks.clear()


def _drop(names: Names, name: str) -> None:
    names.pop(name, None)


def _copied(directory: Directory) -> Directory:
    image = Directory()
    for name, node in directory.names.items():
        image.names[name] = (
            _copied(node) if isinstance(node, Directory) else Inode(bytes(node.content))
        )
    image.durable = dict(image.names)
    return image

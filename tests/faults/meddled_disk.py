"""A disk in memory whose files somebody changes while a broker has them open.

| how | what becomes of a file |
|---|---|
| remove | its name is gone; of a directory, with all that is in it |
| cut | the same file is shorter: by a byte, at any place, or nothing of it is left |
| beginning | another file of a part of its content is in its place |
| stale | it is what it was at an earlier time: another file in its place, or written into it |
| foreign | the same, with the content of another file of its kind |
| away | it has another name, outside of the data directory; `bring_back` gives it its own again |
| grow | rubbish behind it |
| other | it is nothing of ours, and longer |
| flip | one bit of it is another, or so many bytes are zeros, in place |
| fail | whatever is asked of it is EIO, until `heal` |

Half of the changes are durable at once: a power cut leaves them as they are.
"""

import errno
import re
from collections.abc import Iterator
from random import Random
from typing import Self

from segbroker.segments.disk.memory import MemoryFile, MemoryLock, MemoryStorage, _Directory, _Inode
from segbroker.segments.disk.storage import Buffer

HOWS = ("remove", "cut", "beginning", "stale", "foreign", "away", "grow", "fail", "flip", "other")
WEIGHTS = (3, 4, 3, 2, 2, 2, 1, 1, 2, 4)
OF_DIRECTORIES = ("remove", "away", "fail")
KINDS = {
    "segment": re.compile(r"/data/topics/[^~].*_segment_\d+\.log"),
    "index": re.compile(r"/data/topics/[^~].*\.index"),
    "manifest": re.compile(r"/data/topics/[^~].*\.manifest"),
    "beside": re.compile(r"/data/topics/[^~].*\.(?!index|manifest|log)\w+"),
    "wal": re.compile(r"/data/wal/shard-\d+/wal-\d+\.log"),
    "of the wal": re.compile(r"/data/wal/.*(kept-\d+\.log|free-\d+\.log|shard-\d+\.\w+-\d+)"),
    "snapshot": re.compile(r"/data/meta/.+"),
    "witness": re.compile(r"/data/witness/.+"),
    "other": re.compile(r"/data/(LOCK|clock|reserve)"),
    "directory": re.compile(r"/data(/topics(/[^~/]+(/partition_\d+)?)?|/wal(/shard-\d+)?|/meta)?"),
}


class Killed(BaseException):
    """The process ends here."""


class MeddledFile(MemoryFile):
    """A file of it."""

    disk: "MeddledDisk"

    def pwrite(self, data: Buffer, position: int) -> int:
        self.disk.step(self.path, writes=True)
        return super().pwrite(data, position)

    def pread(self, buffer: memoryview, position: int) -> int:
        self.disk.check(self.path)
        return super().pread(buffer, position)

    def fdatasync(self) -> None:
        self.disk.step(self.path)
        super().fdatasync()

    def truncate(self, size: int) -> None:
        self.disk.step(self.path)
        super().truncate(size)


class _Lock(MemoryLock):
    def __init__(self, held: set[str], path: str, file: MemoryFile) -> None:
        super().__init__(held, path)
        self._file = file

    def is_in_place(self) -> bool:
        return self._file.is_in_place()


class MeddledDisk(MemoryStorage):
    """See the module.  `full`: nothing is written.  `dies_in`: so many changes are made yet."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.failing: list[str] = []
        self.full = False
        self.dies_in: int | None = None
        self._names = 0
        self._away: list[tuple[str, str]] = []
        self._earlier: dict[str, list[bytes]] = {}

    def check(self, path: str) -> None:
        """Raises OSError for a file that fails at present."""
        if any(path == one or path.startswith(one + "/") for one in self.failing):
            raise OSError(errno.EIO, "planted", path)

    def step(self, path: str, *, writes: bool = False) -> None:
        """A change of the disk.  Raises OSError, Killed."""
        if self.dies_in is not None:
            if self.dies_in <= 0:
                raise Killed
            self.dies_in -= 1
        self.check(path)
        if self.full and writes:
            raise OSError(errno.ENOSPC, "planted", path)

    # The port

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MeddledFile:
        self.check(path)
        if create and not self.exists(path):
            self.step(path, writes=True)
        plain = super().open(path, create=create, read_only=read_only)
        file = MeddledFile(path, plain._inode, self)
        file.disk = self
        return file

    def lock(self, path: str, *, only_looks: bool = False) -> MemoryLock:
        super().lock(path).release()
        return _Lock(set(), path, self.open(path))

    def listdir(self, path: str) -> list[str]:
        self.check(path)
        return super().listdir(path)

    def mkdir(self, path: str) -> None:
        self.step(path, writes=True)
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self.step(path)
        super().rmdir(path)

    def rename(self, source: str, target: str) -> None:
        self.step(source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.step(path)
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        self.step(path)
        super().fsync_dir(path)

    def image(self, *, power_cut: bool) -> Self:
        """The disk as the next process finds it."""
        plain = self.after_power_cut() if power_cut else self.after_kill()
        found = type(self)(plain._seed)
        found._away, found._names, found._earlier = self._away, self._names, self._earlier
        found._boot = plain._boot
        found._root = plain._root
        return found

    # Who meddles

    def names(self, folder: str) -> list[str]:
        """What is in a directory, whether it fails or not; nothing where there is none."""
        return super().listdir(folder) if self.exists(folder) else []

    def remember(self) -> None:
        """What files are now is what they were at an earlier time, for what comes."""
        for path, _, _, node in _walk(self._root, ""):
            if isinstance(node, _Inode):
                self._earlier.setdefault(path, []).append(bytes(node.content))

    def meddle(
        self, random: Random, folder: str = "", *, is_aimed: bool = False
    ) -> tuple[str, str]:
        """Change something; how, and its path.  folder: in which that is, most often; is_aimed:
        it is one of its last segments, or seldom the whole of it."""
        only = folder if is_aimed or random.random() < 0.7 else ""
        found: dict[str, list[tuple[str, _Directory, str, _Inode | _Directory]]] = {}
        for one in _walk(self._root, ""):
            if not one[0].startswith(only):
                continue
            for kind, pattern in KINDS.items():
                if pattern.fullmatch(one[0]) and isinstance(one[3], _Directory) == (
                    kind == "directory"
                ):
                    found.setdefault(kind, []).append(one)
        if not found:
            return "nothing", ""
        # What holds the records is where most can go wrong.
        weights = [20 if kind == "segment" else 4 if kind == "wal" else 1 for kind in found]
        (kind,) = random.choices(list(found), weights)
        if is_aimed and "segment" in found:
            kind = "directory" if random.random() < 0.08 else "segment"
        chosen = found[kind]
        if is_aimed or random.random() < 0.5:  # the last files are those that change
            chosen.sort(key=lambda one: [int(part) for part in re.findall(r"\d+", one[0])])
            filled = [one for one in chosen if isinstance(one[3], _Inode) and one[3].content]
            chosen = (filled or chosen)[-random.choice((1, 1, 3)) :]
        path, directory, name, node = random.choice(chosen)
        is_durable = random.random() < 0.5
        is_directory = isinstance(node, _Directory)
        how = random.choice(OF_DIRECTORIES) if is_directory else random.choices(HOWS, WEIGHTS)[0]
        if how == "fail":
            self.failing.append(path)
        elif how == "away":
            self._names += 1
            target = f"/aside-{self._names}"
            super().rename(path, target)
            self._away.append((target, path))
        elif how == "remove":
            del directory.names[name]
            self._found.clear()
        elif isinstance(node, _Inode):
            others = [one[3] for one in found[kind] if one[3] is not node]
            content = self._changed(how, path, node, others, random)
            in_place = how in ("cut", "grow", "flip") or (
                how != "beginning" and random.random() < 0.5
            )
            how += " in place" if in_place else ""
            if in_place:
                node.content[:] = content
            else:
                node = directory.names[name] = _Inode(bytes(content))
                node.synced = content if is_durable else b""
            if is_durable:
                node.synced = content
        if is_durable and directory.durable.get(name) is not directory.names.get(name):
            directory.durable.pop(name, None)
            if name in directory.names:
                directory.durable[name] = directory.names[name]
        return how, path

    def _changed(
        self, how: str, path: str, node: _Inode, others: list[_Inode | _Directory], random: Random
    ) -> bytes:
        content = bytes(node.content)
        size = len(content)
        place = random.choice((0, size // 2, max(0, size - 1), random.randint(0, size)))
        if how == "stale" and path in self._earlier:
            return random.choice(self._earlier[path])
        if how == "foreign" and others:
            other = random.choice(others)
            assert isinstance(other, _Inode)
            return bytes(other.content)
        if how == "grow":
            return content + random.choice((bytes(random.randint(1, 5_000)), content, b"\x00\x01"))
        if how == "other":
            return random.choice((b"", b"\x01")).ljust(size + random.randint(1, 300), b"\0")
        if how == "flip":
            changed = bytearray(content)
            if changed and random.random() < 0.7:
                changed[min(place, size - 1)] ^= 1 << random.randrange(8)
            else:
                changed[place : place + 64] = bytes(len(changed[place : place + 64]))
            return bytes(changed)
        if path.endswith(".log") and "_segment_" in path and random.random() < 0.5:
            place = _edge(content, random)
        return content[:place]

    def heal(self, random: Random) -> None:
        """One of those that fail does so no more."""
        if self.failing:
            self.failing.pop(random.randrange(len(self.failing)))

    def away(self) -> list[str]:
        """The paths of what has another name at present."""
        return [path for _, path in self._away]

    def bring_back(self, random: Random) -> str:
        """One that is away has its name again, whatever has it now: its path; empty: none has."""
        if not self._away:
            return ""
        target, path = self._away.pop(random.randrange(len(self._away)))
        try:
            directory, name = self._parent(path)
            here, there = self._parent(target)
        except OSError:
            return ""  # what it was in is away
        if there not in here.names:
            return ""  # not behind a power cut
        directory.names[name] = here.names.pop(there)
        self._found.clear()
        return path


def _edge(content: bytes, random: Random) -> int:
    """Where one of the batches in it begins."""
    edges = [0]
    while edges[-1] + 12 <= len(content):
        size = 12 + int.from_bytes(content[edges[-1] + 8 : edges[-1] + 12], "big")
        if size <= 12 or edges[-1] + size > len(content):
            break
        edges.append(edges[-1] + size)
    return random.choice(edges)


def _walk(
    directory: _Directory, path: str
) -> Iterator[tuple[str, _Directory, str, _Inode | _Directory]]:
    for name, node in sorted(directory.names.items()):
        yield f"{path}/{name}", directory, name, node
        if isinstance(node, _Directory):
            yield from _walk(node, f"{path}/{name}")

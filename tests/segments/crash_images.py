"""Every disk that a power cut may leave: the seed of the crash-state enumerator.

What was not synced persists in any of these ways, checked at every operation:

    file        any prefix of its writes | any one of them dropped | the last one torn
                | the size there and the data zeros
    directory   any prefix of its creates, renames and unlinks, whatever the files hold

Not every combination: one file or directory varies while all others hold everything or nothing
of what was not synced.  Images that were seen before are skipped.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from segbroker.protocol.checksums import xxh3_64
from segbroker.segments.memory import MemoryFile, MemoryStorage, _Directory, _Inode
from segbroker.segments.storage import Buffer

Node: TypeAlias = _Inode | _Directory
Names: TypeAlias = dict[str, Node]
TORN_AT = (1, 4, 8, 16, 61, 512)
"""Bytes of a torn write that are there; and half of it, and all but one."""


class _Write:
    """A write or a truncation that was not synced."""

    def __init__(self, position: int, data: bytes | None) -> None:
        self.position = position
        self.data = data

    def apply(self, content: bytearray, size: int | None = None, *, zeros: bool = False) -> None:
        if self.data is None:
            del content[self.position :]
            content += bytes(self.position - len(content))
            return
        data = self.data if size is None else self.data[:size]
        if zeros:
            data = bytes(len(data))
        if self.position > len(content):
            content += bytes(self.position - len(content))
        content[self.position : self.position + len(data)] = data


class RecordingFile(MemoryFile):
    """A file whose unsynced writes are remembered one by one."""

    recording: "RecordingStorage"

    def pwrite(self, data: Buffer, position: int) -> int:
        count = super().pwrite(data, position)
        self.recording.writes.setdefault(self._inode, []).append(_Write(position, bytes(data)))
        self.recording.done("pwrite")
        return count

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self.recording.writes.setdefault(self._inode, []).append(_Write(size, None))
        self.recording.done("truncate")

    def fdatasync(self) -> None:
        if not self.recording.ignore_sync("fdatasync", self.path):
            super().fdatasync()
            self.recording.writes.pop(self._inode, None)
        self.recording.done("fdatasync")


class RecordingStorage(MemoryStorage):
    """Calls `on_operation` after every operation; `images` yields what a power cut may leave then.

    broken: (call, end of the path) of syncs that silently do nothing: planted bugs.
    """

    def __init__(self, broken: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.writes: dict[_Inode, list[_Write]] = {}
        self.renames: dict[_Directory, list[Callable[[Names], None]]] = {}
        self.on_operation: Callable[[RecordingStorage], None] = lambda _: None
        self.broken = broken
        self._seen: set[int] = set()

    def done(self, name: str) -> None:
        self.on_operation(self)

    def ignore_sync(self, call: str, path: str) -> bool:
        return self.broken is not None and self.broken[0] == call and path.endswith(self.broken[1])

    def _note(self, path: str, change: Callable[[Names], None]) -> None:
        directory, _ = self._parent(path)
        self.renames.setdefault(directory, []).append(change)
        self.done("name")

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RecordingFile:
        is_new = create and not self.exists(path)
        plain = super().open(path, create=create, read_only=read_only)
        file = RecordingFile(path, plain._inode, self)
        file.recording = self
        if is_new:
            name, node = path.rpartition("/")[2], plain._inode
            self._note(path, lambda names: names.__setitem__(name, node))
        return file

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        directory, name = self._parent(path)
        node = directory.names[name]
        self._note(path, lambda names: names.__setitem__(name, node))

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        directory, name = self._parent(target)
        old, node = source.rpartition("/")[2], directory.names[name]

        def change(names: Names) -> None:
            names.pop(old, None)
            names[name] = node

        self._note(target, change)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        name = path.rpartition("/")[2]

        def change(names: Names) -> None:
            names.pop(name, None)

        self._note(path, change)

    def fsync_dir(self, path: str) -> None:
        if not self.ignore_sync("fsync_dir", path):
            super().fsync_dir(path)
            self.renames.pop(self._directory(path), None)
        self.done("fsync_dir")

    # What a power cut leaves

    def images(self) -> Iterator[MemoryStorage]:
        """The images that were not there before."""
        for names_of in self._name_choices():
            for content_of in self._content_choices():
                image = MemoryStorage()
                image._root = self._copy(self._root, names_of, content_of)
                digest = xxh3_64(repr(_flat(image._root)).encode())
                if digest not in self._seen:
                    self._seen.add(digest)
                    yield image

    def _name_choices(self) -> Iterator[Callable[[_Directory], int]]:
        pending = {directory: len(changes) for directory, changes in self.renames.items()}
        yield lambda directory: pending.get(directory, 0)
        for chosen, count in pending.items():
            for kept in range(count):
                yield lambda directory, c=chosen, k=kept: (  # type: ignore[misc]
                    k if directory is c else pending.get(directory, 0)
                )

    def _content_choices(self) -> Iterator[Callable[[_Inode], bytes]]:
        pending = dict(self.writes)

        def nothing(inode: _Inode) -> bytes:
            return inode.synced if inode in pending else bytes(inode.content)

        def everything(inode: _Inode) -> bytes:
            return bytes(inode.content)

        yield nothing
        yield everything
        for chosen, writes in pending.items():
            for variant in _variants(chosen.synced, writes):
                for others in (nothing, everything):
                    yield lambda inode, c=chosen, v=variant, o=others: (  # type: ignore[misc]
                        v if inode is c else o(inode)
                    )

    def _copy(
        self,
        directory: _Directory,
        names_of: Callable[[_Directory], int],
        content_of: Callable[[_Inode], bytes],
    ) -> _Directory:
        names = dict(directory.durable)
        for change in self.renames.get(directory, [])[: names_of(directory)]:
            change(names)
        image = _Directory()
        for name, node in names.items():
            if isinstance(node, _Directory):
                image.names[name] = self._copy(node, names_of, content_of)
            else:
                image.names[name] = _Inode(content_of(node))
        image.durable = dict(image.names)
        return image


def _variants(synced: bytes, writes: list[_Write]) -> Iterator[bytes]:
    """What may be left of a file's unsynced writes."""

    def after(chosen: list[_Write], size: int | None = None, *, zeros: bool = False) -> bytes:
        content = bytearray(synced)
        for write in chosen[:-1]:
            write.apply(content)
        if chosen:
            chosen[-1].apply(content, size, zeros=zeros)
        return bytes(content)

    for kept in range(len(writes)):
        yield after(writes[:kept])
    for dropped in range(len(writes) - 1):
        yield after(writes[:dropped] + writes[dropped + 1 :])
    last = writes[-1].data
    if last is not None:
        for size in sorted({*TORN_AT, len(last) // 2, len(last) - 1}):
            if 0 < size < len(last):
                yield after(writes, size)
        yield after(writes, zeros=True)


def _flat(directory: _Directory) -> list[object]:
    return [
        (name, _flat(node) if isinstance(node, _Directory) else bytes(node.content))
        for name, node in sorted(directory.names.items())
    ]

"""Which disks a crash may leave, given what was not synced.

    file        any prefix of its writes | any one of them dropped | the last one torn, at the
                borders of headers and sectors, the rest missing or zeros; or without one of
                its pages, or with the last of them only
    directory   any prefix of its creates, renames and unlinks, whatever the files hold
    killed      the process alone died: everything is there, the last write perhaps torn

Not every combination: one file varies while all others hold everything or nothing of what was not
synced; one directory varies while the others hold all their names.  With `thorough` both vary at
once; without, a directory varies over files that hold everything or nothing.  `drawn` makes one of
all the others.

An image is described before it is made: its key is a sum of hashes of (path, content), so that
an image that was seen costs one addition.  The lock file is left out of it, and of the free files
of the WAL all but their sizes: nobody reads them.  Its kind is the same sum over what recovery
takes from each file, without those that say nothing beside the others (alike.py).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from random import Random
from typing import TypeAlias

from segbroker.protocol.checksums import xxh3_64
from segbroker.segments.disk.memory import MemoryStorage, _Directory, _Inode

from .alike import says_nothing, taken_from
from .recording import Changes, Pending, RecordingStorage, Write

TORN_AT = (1, 4, 8, 16, 32, 61, 64)
"""Bytes of a torn write that are there: into a length, headers, a manifest row.  And half, all but
one, and every border of a sector."""
SECTORS = (512, 4096)
PAGE = 4096
SEED_STEP = 1_000
"""Random bytes that no image shares with the disk it was made of, and all images of it share."""
MASK = (1 << 64) - 1
_ODD = 0x9E37_79B9_7F4A_7C15
_SNAPSHOTS = "/data/meta/snapshot-"
_MARK = re.compile("~[0-9a-f]{16}(?![0-9a-f])")

Entry = tuple[str, _Inode | None]
"""A path, and the file there; None for a directory."""


_KIND = 80
"""A term has the hash for the key below this bit, that for the kind above it: one addition sums up
both, and 16 bits are room for what is carried."""


@cache
def _of_path(path: str) -> int:
    return xxh3_64(path.encode())


@cache
def _is_unread(path: str) -> bool:
    """Whether nobody reads what the file holds, only its size: a free file of the WAL."""
    return path.rpartition("/")[2].startswith("free-")


@cache
def _of_kind(path: str) -> int:
    """The same without the random names under which recovery takes things out of the way, nor the
    numbers of snapshots of the metadata: the newest counts, whichever it has."""
    if path.startswith(_SNAPSHOTS) and path.endswith(".msgpack"):
        path = _SNAPSHOTS
    return xxh3_64(_MARK.sub("~", path).encode())


@cache
def _of_directory(path: str) -> int:
    """What a directory adds to the sum of a disk."""
    return (_of_kind(path) * _ODD & MASK) << _KIND | (_of_path(path) * _ODD & MASK)


def _mixed(of_path: int, of_content: int) -> int:
    return (of_path ^ (of_content * _ODD & MASK)) * _ODD & MASK


class _Content:
    """Bytes that a file may hold, and what they add to the sum of a disk."""

    __slots__ = ("_path", "_term", "data", "digest")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.digest = xxh3_64(data) or 1
        self._path = ""
        self._term = 0

    def term(self, path: str) -> int:
        """What a file at `path` with these bytes adds."""
        if path == self._path:
            return self._term
        key = len(self.data) or 1 if _is_unread(path) else self.digest
        taken = taken_from(path)
        kind = key if taken is None else taken(self.data)
        self._path = path
        self._term = _mixed(_of_kind(path), kind) << _KIND | _mixed(_of_path(path), key)
        return self._term


Kind: TypeAlias = tuple[int, int, int, tuple[str, ...]]
"""A sum over what recovery takes, the boot, what the next random bytes come from, and copies that
are what their files are now."""

known_content = lru_cache(maxsize=16_384)(_Content)
"""What recovery leaves in a file it has left before."""


class Listing:
    """Which files and directories a disk has, a directory before what is in it, and what the names
    alone say: many images have the same."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries

    @cached_property
    def is_begun(self) -> bool:
        """Whether there is a snapshot, in which the identity of the directory is."""
        return any(path.startswith(_SNAPSHOTS) and path.endswith(".msgpack") for path in self.files)

    @cached_property
    def files(self) -> dict[str, _Inode]:
        """Without the directories."""
        return {path: inode for path, inode in self.entries if inode is not None}

    @cached_property
    def silent(self) -> tuple[str, ...]:
        """Files that say nothing beside the others."""
        return tuple(says_nothing(self.files))

    @cached_property
    def copies(self) -> list[tuple[str, _Inode, _Inode]]:
        """Those in quarantine/ of files that are there, with the file of each."""
        found = []
        for path, inode in self.files.items():
            folder, _, name = path.rpartition("/")
            if folder.endswith("/quarantine"):
                original = f"{folder.rpartition('/')[0]}/{name.rpartition('.')[0]}"
                if (there := self.files.get(original)) is not None:
                    found.append((path, inode, there))
        return found


class Image:
    """One legal disk."""

    __slots__ = ("_boot", "_kind", "_listing", "_of", "_seed", "is_kill", "key")

    def __init__(
        self,
        total: int,
        listing: Listing,
        of: Callable[[_Inode], bytes],
        seed: int,
        boot: int,
        *,
        is_kill: bool,
    ) -> None:
        self.is_kill = is_kill
        self._boot = boot + (not is_kill)
        self.key = (total & MASK, self._boot)
        """Equal for equal disks in the same boot."""
        self._kind = total >> _KIND & MASK
        self._listing = listing
        self._of = of
        self._seed = seed

    @property
    def chance(self) -> int:
        """What the next random bytes come from."""
        return self._seed // SEED_STEP

    @property
    def kind(self) -> Kind:
        """Equal for disks from which recovery takes the same.

        Where there is no snapshot yet it makes the identity of the directory, by chance.
        """
        listing, of = self._listing, self._of
        seed = 0 if listing.is_begun else self.chance
        silent = {path: of(listing.files[path]) for path in listing.silent}
        kept = tuple(path for path, copy, there in listing.copies if of(copy) == of(there))
        return self._kind - _of_silent(silent) & MASK, self._boot, seed, kept

    def files(self) -> dict[str, bytes | None]:
        """Paths and contents; None for a directory."""
        return {p: None if inode is None else self._of(inode) for p, inode in self._listing.entries}

    def build(self) -> MemoryStorage:
        """The disk."""
        disk = MemoryStorage((self.chance + 1) * SEED_STEP)
        disk._boot = self._boot
        folders = {"": disk._root}
        for path, inode in self._listing.entries:
            parent, _, name = path.rpartition("/")
            node: _Inode | _Directory
            if inode is None:
                node = folders[path] = _Directory()
            else:
                node = _Inode(self._of(inode))
            folders[parent].names[name] = node
        for directory in folders.values():
            directory.durable = dict(directory.names)
        disk._found = folders
        return disk


def digest_of(disk: MemoryStorage, *, durable: bool) -> int:
    """The digest of a disk as it is, or of what a power cut is sure to leave of it."""
    return _sum_of(_contents_of(disk, durable=durable)) & MASK


def kinds_of(disk: MemoryStorage) -> tuple[int, int]:
    """The same of what recovery would take from what a power cut is sure to leave: of every file,
    and without those that say nothing beside the others."""
    contents = _contents_of(disk, durable=True)
    there = {path: content for path, content in contents.items() if content is not None}
    silent = {path: there[path] for path in says_nothing(there)}
    every = _sum_of(contents) >> _KIND
    return every & MASK, every - _of_silent(silent) & MASK


def _contents_of(disk: MemoryStorage, *, durable: bool) -> dict[str, bytes | None]:
    """Paths and contents, without the lock file; None for a directory."""
    found: dict[str, bytes | None] = {}
    stack: list[tuple[str, _Directory]] = [("", disk._root)]
    while stack:
        prefix, directory = stack.pop()
        for name, node in (directory.durable if durable else directory.names).items():
            if name == "LOCK":
                continue
            path = f"{prefix}/{name}"
            if isinstance(node, _Directory):
                found[path] = None
                stack.append((path, node))
            else:
                found[path] = node.synced if durable else bytes(node.content)
    return found


def _sum_of(contents: Mapping[str, bytes | None]) -> int:
    return sum(
        _of_directory(path) if content is None else known_content(content).term(path)
        for path, content in contents.items()
    )


def _of_silent(contents: Mapping[str, bytes]) -> int:
    """What these files add to the kind of a disk."""
    return sum(known_content(content).term(path) >> _KIND for path, content in contents.items())


class Images:
    """The images of one recording, never described twice while nothing changes."""

    def __init__(self, disk: RecordingStorage, *, thorough: bool = False) -> None:
        self._disk = disk
        self._thorough = thorough
        self._variants: dict[_Inode, tuple[int, list[_Content]]] = {}
        self._contents: dict[_Inode, tuple[int, _Content, _Content]] = {}

    def now(self) -> Iterator[Image]:
        """Every legal image at this moment."""
        disk = self._disk
        names: dict[_Directory, list[dict[str, _Inode | _Directory]]] = {
            directory: name_choices(changes) for directory, changes in disk.changes.items()
        }
        whole = self._walk({})
        total = sum(
            _of_directory(p) if i is None else self._both(i)[1].term(p) for p, i in whole.entries
        )
        yield self._image(total, whole, self._everything, is_kill=True)
        yield from self._killed_in_a_write(total, whole)
        yield from self._contents_over(whole, vary=True)
        for directory, choices in names.items():
            for choice in choices:
                yield from self._contents_over(self._walk({directory: choice}), vary=self._thorough)
        if len(names) > 1:
            barest = {directory: choices[0] for directory, choices in names.items() if choices}
            yield from self._contents_over(self._walk(barest), vary=False)

    def drawn(self, random: Random) -> Image:
        """A legal image in which every file and every directory is left by itself."""
        contents: dict[_Inode, _Content] = {}
        for inode in self._disk.pending:
            _, most, least = self._both(inode)
            others = self._variants_of(inode)
            contents[inode] = random.choice([most, least, random.choice([most, *others])])
        chosen = {
            directory: random.choice([directory.names, *name_choices(changes)])
            for directory, changes in self._disk.changes.items()
        }
        listing = self._walk(chosen)

        def content_of(inode: _Inode) -> _Content:
            return contents.get(inode) or self._both(inode)[1]

        total = sum(
            _of_directory(p) if i is None else content_of(i).term(p) for p, i in listing.entries
        )
        return self._image(total, listing, lambda inode: content_of(inode).data)

    def _killed_in_a_write(self, total: int, listing: Listing) -> Iterator[Image]:
        written = self._disk.last_written
        pending = self._disk.pending.get(written) if written is not None else None
        path = next((p for p, i in listing.entries if i is written), None)
        if written is None or pending is None or path is None:
            return
        full = self._everything
        for torn in tears(pending, with_zeros=False):

            def of(i: _Inode, v: bytes = torn) -> bytes:
                return v if i is written else full(i)

            before = self._both(written)[1]
            changed = total - before.term(path) + _Content(torn).term(path)
            yield self._image(changed, listing, of, is_kill=True)

    def _contents_over(self, listing: Listing, *, vary: bool) -> Iterator[Image]:
        pending = self._disk.pending
        full, none = self._everything, self._nothing
        full_sum = none_sum = 0
        varying: list[tuple[str, _Inode]] = []
        for path, inode in listing.entries:
            if inode is None:
                term = _of_directory(path)
                full_sum += term
                none_sum += term
            else:
                _, most, least = self._both(inode)
                full_sum += most.term(path)
                none_sum += least.term(path)
                if inode in pending:
                    varying.append((path, inode))
        yield self._image(full_sum, listing, full)
        yield self._image(none_sum, listing, none)
        if not vary:
            return
        for path, inode in varying:
            _, most, least = self._both(inode)
            rest_full = full_sum - most.term(path)
            rest_none = none_sum - least.term(path)
            for content in self._variants_of(inode):
                term, variant = content.term(path), content.data

                def of_full(i: _Inode, c: _Inode = inode, v: bytes = variant) -> bytes:
                    return v if i is c else full(i)

                def of_none(i: _Inode, c: _Inode = inode, v: bytes = variant) -> bytes:
                    return v if i is c else none(i)

                yield self._image(rest_full + term, listing, of_full)
                if len(varying) > 1:
                    yield self._image(rest_none + term, listing, of_none)

    def _image(
        self,
        total: int,
        listing: Listing,
        of: Callable[[_Inode], bytes],
        *,
        is_kill: bool = False,
    ) -> Image:
        disk = self._disk
        return Image(total, listing, of, disk._seed, disk._boot, is_kill=is_kill)

    def _walk(self, chosen: dict[_Directory, dict[str, _Inode | _Directory]]) -> Listing:
        found: list[Entry] = []
        stack: list[tuple[str, _Directory]] = [("", self._disk._root)]
        while stack:
            prefix, directory = stack.pop()
            for name, node in chosen.get(directory, directory.names).items():
                if name == "LOCK":
                    continue
                path = f"{prefix}/{name}"
                if isinstance(node, _Directory):
                    found.append((path, None))
                    stack.append((path, node))
                else:
                    found.append((path, node))
        return Listing(found)

    # Contents, each made once per version of the file so that its hash is, too

    def _both(self, inode: _Inode) -> tuple[int, _Content, _Content]:
        version = self._disk.versions.get(inode, 0)
        known = self._contents.get(inode)
        if known is None or known[0] != version:
            pending = self._disk.pending.get(inode)
            full = _Content(bytes(inode.content))
            least = full if pending is None else _Content(_least(pending))
            known = self._contents[inode] = (version, full, least)
        return known

    def _everything(self, inode: _Inode) -> bytes:
        return self._both(inode)[1].data

    def _nothing(self, inode: _Inode) -> bytes:
        return self._both(inode)[2].data

    def _variants_of(self, inode: _Inode) -> list[_Content]:
        pending = self._disk.pending[inode]
        known = self._variants.get(inode)
        version = self._disk.versions.get(inode, 0)
        if known is None or known[0] != version:
            known = self._variants[inode] = (
                version,
                [_Content(data) for data in dict.fromkeys(variants(pending))],
            )
        return known[1]


def name_choices(changes: Changes) -> list[dict[str, _Inode | _Directory]]:
    """What the names of a directory may be, other than all that was done."""
    open_ones = [i for i in range(len(changes.list)) if i not in changes.fixed]
    choices = []
    for kept in range(len(open_ones)):
        names = dict(changes.base)
        left_out = set(open_ones[kept:])
        for place, change in enumerate(changes.list):
            if place not in left_out:
                for name, node in change.names:
                    if node is None:
                        names.pop(name, None)
                    else:
                        names[name] = node
        choices.append(names)
    return choices


def _least(pending: Pending) -> bytes:
    content = bytearray(pending.base)
    for write in pending.writes:
        if write.fixed:
            write.apply(content)
    return bytes(content)


def variants(pending: Pending) -> Iterator[bytes]:
    """What may be left of a file's unsynced writes, other than all and nothing."""
    writes = pending.writes
    open_ones = [i for i, write in enumerate(writes) if not write.fixed]

    def without(left_out: set[int]) -> bytes:
        content = bytearray(pending.base)
        for place, write in enumerate(writes):
            if place not in left_out:
                write.apply(content)
        return bytes(content)

    for kept in range(1, len(open_ones)):
        yield without(set(open_ones[kept:]))
    for dropped in open_ones[:-1]:
        yield without({dropped})
    yield from tears(pending, with_zeros=True)
    yield from holes(pending)


def holes(pending: Pending) -> Iterator[bytes]:
    """The last write that is not certain, of several pages that the disk took in another order: one
    of them is missing, or all but the last; everything else is there."""
    writes = pending.writes
    last = max((i for i, write in enumerate(writes) if not write.fixed), default=-1)
    pages = _pages(writes[last]) if last >= 0 else []
    for place in range(len(pages) - 1):
        yield _with_pages(pending, last, pages[:place] + pages[place + 1 :])
    if len(pages) > 2:
        yield _with_pages(pending, last, pages[-1:])


def _pages(write: Write) -> list[Write]:
    """A write as its parts in each page of the file."""
    position, data = write.position, write.data or b""
    borders = range((position // PAGE + 1) * PAGE - position, len(data), PAGE)
    cuts = [0, *borders, len(data)]
    return [Write(position + low, data[low:high]) for low, high in pairwise(cuts)]


def _with_pages(pending: Pending, place: int, pages: list[Write]) -> bytes:
    """All writes, of the one at `place` these pages."""
    content = bytearray(pending.base)
    for write in (*pending.writes[:place], *pages, *pending.writes[place + 1 :]):
        write.apply(content)
    return bytes(content)


def tears(pending: Pending, *, with_zeros: bool) -> Iterator[bytes]:
    """The last write that is not certain, cut short; everything else is there."""
    writes = pending.writes
    last = max((i for i, write in enumerate(writes) if not write.fixed), default=-1)
    if last < 0:
        return
    torn = writes[last]
    if torn.data is None:
        return
    front = bytearray(pending.base)
    for write in writes[:last]:
        write.apply(front)
    for size, zeros in _tears(torn.position, len(torn.data)):
        if with_zeros or not zeros:
            content = bytearray(front)
            torn.apply(content, size, zeros=zeros)
            for write in writes[last + 1 :]:
                write.apply(content)
            yield bytes(content)


def _tears(position: int, size: int) -> Iterator[tuple[int, bool]]:
    """(bytes that are there, whether the rest is zeros) of a torn write."""
    sectors = [
        border - position
        for sector in SECTORS
        for border in range((position // sector + 1) * sector, position + size, sector)
    ]
    for there in sorted({*TORN_AT, size // 2, size - 1, *sectors}):
        if 0 < there < size:
            yield there, False
    for there in sorted({0, size // 2, *sectors}):
        if there < size:
            yield there, True

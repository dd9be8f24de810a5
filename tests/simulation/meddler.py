"""Somebody meddles with the files of a running broker: removes one, or puts another in its place.

| fault | what happens to a file |
|---|---|
| remove_file | its name is gone; who has it open goes on with it |
| replace_file | another one has its name: a copy of it, cut short, or an empty one |
| cut_file | a file of the write-ahead log is cut where it is |

Nothing of it is synced: a power cut may bring a name back.  Each kind of file is as likely as any
other, however many there are.

Left alone for a while (`is_seen`) the broker has to be as safe as before (`is_safe`): what a file
had is made durable elsewhere, and nothing that was acknowledged may be missing behind any crash.
But what is in one file alone is lost with it: of a segment what is sealed or synced, as long as no
other sync has seen that the file is away, may be missing, and has to be told as a gap.  Where the
broker has nothing open of it, it says that it has to be restarted (`wants_restart`).

Behind a crash that comes first a file of the write-ahead log may be missed: then nothing that was
acknowledged need be there any more, as long as the next start has said so.  And of a log without
frames nobody knows then how far the file reached: nothing of its topic is judged any more but that
no other's records are in it.  All else counts.
"""

import re
from collections.abc import Collection, Iterator

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.settings.topic_config import Durability

from .disk import Directory, Disk, Inode, Names, Write
from .history import History
from .process import ROOT
from .world import World

KINDS = {
    "wal": re.compile(r"/wal/shard-\d+/wal-\d+\.log"),
    "kept": re.compile(r"/wal/shard-\d+/kept-\d+\.log"),
    "free": re.compile(r"/wal/shard-\d+/free-\d+\.log"),
    "marker": re.compile(r"/wal/shard-\d+\.\w+-\d+"),
    "witness": re.compile(r"/witness/.+"),
    "snapshot": re.compile(r"/meta/snapshot-\d+\.msgpack"),
    "segment": re.compile(r"/topics/[^~].*_segment_\d+\.log"),
    "index": re.compile(r"/topics/[^~].*\.index"),
    "manifest": re.compile(r"/topics/[^~].*\.manifest"),
    "producers": re.compile(r"/topics/[^~].*\.producers"),
    "start": re.compile(r"/topics/[^~].*\.start"),
    "other": re.compile(r"/(clock|reserve)"),
}
WHOLE_ONLY = frozenset({"snapshot"})
"""Of what only the name is looked for: another content is told by the next start.  Without it there
is none."""
FIXED_SIZE = frozenset({"wal", "free"})
"""Where a cut is seen by the size alone."""
OF_THE_WAL = frozenset({"wal", "kept", "free"})
SEGMENT = re.compile(r"/topics/(.+)/partition_(\d+)/.*_segment_(\d+)\.log")


class Meddler:
    """See the module."""

    def __init__(
        self, world: World, disk: Disk, history: History, *, spared: Collection[str]
    ) -> None:
        """spared: topics whose segments are left alone: a gap in them is not judged as one."""
        self.world = world
        self.random = world.stream("meddler")
        self._disk = disk
        self._history = history
        self._spared = spared
        self._may_lack_frames = False
        self._may_want_restart = False

    def strike(self, kind: str, manager: DiskManager, *, is_seen: bool = True) -> None:
        """One file goes, or becomes another's.  is_seen: the broker will see it before a crash."""
        found: dict[str, list[tuple[str, Directory, str, Inode]]] = {}
        top = self._disk.root.names.get(ROOT.strip("/"))
        assert isinstance(top, Directory)
        for path, directory, name, inode in _files(top, ""):
            for what, pattern in KINDS.items():
                is_fit = is_seen or what not in WHOLE_ONLY
                is_fit = is_fit and (kind != "cut_file" or what in FIXED_SIZE)
                match = SEGMENT.fullmatch(path)
                is_fit = is_fit and (match is None or match[1] not in self._spared)
                if pattern.fullmatch(path) and is_fit:
                    found.setdefault(what, []).append((path, directory, name, inode))
        if not found:
            return
        random = self.random
        what = random.choice(sorted(found))
        path, directory, name, inode = random.choice(found[what])
        self._may_want_restart = False
        if what == "segment":
            self._may_be_lost(path, manager, is_seen)
        self._may_lack_frames |= not is_seen and what in OF_THE_WAL
        self._disk.faults += 1
        if kind == "remove_file":
            self.world.trace(kind, path)
            directory.change(lambda names: _drop(names, name))
            return
        if kind == "cut_file":
            size = random.choice((0, len(inode.content) // 2))
            self.world.trace(kind, path, size)
            inode.write(Write(size, None))
            return
        sizes = (len(inode.content), len(inode.content) // 2, 0)
        size = sizes[0] if what in WHOLE_ONLY else random.choice(sizes)
        self.world.trace(kind, path, size)
        other = Inode(inode.content[:size])
        directory.change(lambda names: names.__setitem__(name, other))

    def listen(self, manager: DiskManager) -> None:
        """What a start has said: that frames are missing, which is why."""
        if self._may_lack_frames:
            told = [row for row in manager.report.rows if row.what == "wal_damaged"]
            self.world.is_excused |= bool(told)
            self._may_lack_frames = False  # what is damaged behind this is damaged by nobody

    def _may_be_lost(self, path: str, manager: DiskManager, is_seen: bool) -> None:
        """What is in this segment, unless the broker holds it open and has to sync it yet; where
        the next checkpoint does that, what was synced before."""
        match = SEGMENT.fullmatch(path)
        assert match is not None
        key, number = (match[1], int(match[2])), int(match[3])
        handler = manager.handler_if_open(*key)
        begin, end = 0, 1 << 60
        is_known = manager.topics[key[0]].config.durability is Durability.FSYNC
        if handler is not None:
            log = handler._log
            for segment in (*log.rotating, log.active):
                if segment.number == number:
                    self._may_want_restart = segment.file is None
                    is_unsynced = segment.file is not None and segment.synced_size < segment.size
                    begin, end = segment.base_offset, segment.next_offset
                    if is_unsynced and log.config.durability is Durability.FSYNC:
                        end = min(end, log.recovery_point)
                    elif is_unsynced and is_seen:
                        return
            sealed = log.sealed
            for place in range(len(sealed)):
                if sealed.numbers[place] == number:
                    is_known = True
                    begin, end = sealed.base_offsets[place], sealed.end_of(place)
        self._history.promises[key[0]].churned |= not (is_known or is_seen)
        self._history.promises[key[0]].doubted.append((key[1], begin, end))

    def wants_restart(self, manager: DiskManager) -> bool:
        """Whether it cannot be safe before that: of what was taken it had nothing open."""
        handlers = manager.handlers.values()
        return self._may_want_restart and any(handler.why_still for handler in handlers)

    def is_safe(self, manager: DiskManager) -> bool:
        """Whether everything that the broker needs is where a start would find it."""
        wal = manager.wal
        for shard in wal._shards:
            active = shard._active
            files = [full.file for full in shard.full] + ([] if active is None else [active])
            if shard.failure is not None or any(f.is_away or f.is_missed for f in files):
                return False
        if not manager.is_settled:
            return False
        return all(handler.read_only is None for handler in manager.handlers.values())


def _files(directory: Directory, path: str) -> Iterator[tuple[str, Directory, str, Inode]]:
    for name, node in sorted(directory.names.items()):
        if isinstance(node, Directory):
            yield from _files(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", directory, name, node


def _drop(names: Names, name: str) -> None:
    names.pop(name, None)

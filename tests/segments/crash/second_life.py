"""A process dies, another one starts on what it has left, synced or not; then the power goes.

    operation -> killed -> start on the same disk -> seen -> any disk of a power cut -> seen again
                           what was not synced still is not                             the same

An image of a kill (images.py) is a disk of which all is durable.  Here it is told what is only in
memory: whoever starts finds it, goes by it, and has to make durable whatever he goes by.  What one
start has seen, the next one sees.

Of disks that are of one kind (alike.py) the first is recovered, and one of `alike_every` of the
others: what the next start sees is the same.

With `behind_failure` the same where a sync of a directory has failed: what it was for is in doubt
for good, for whoever syncs it again.  Else such moments are not looked at.
"""

from segbroker.segments.disk.memory import _Directory, _Inode

from .explorer import Explorer, continues, differ
from .images import SEED_STEP, Images, Kind, digest_of
from .recording import Change, Changes, Pending, RecordingStorage, Write


def left_by(disk: RecordingStorage) -> RecordingStorage:
    """The disk as the next process finds it: a copy, of which as much is synced."""
    copies: dict[_Inode | _Directory, _Inode | _Directory] = {}

    def directory_of(directory: _Directory) -> _Directory:
        copy = copies.get(directory)
        if copy is None:
            copies[directory] = copy = _Directory()
            copy.names = names_of(directory.names)
            copy.durable = names_of(directory.durable)
        assert isinstance(copy, _Directory)
        return copy

    def inode_of(inode: _Inode) -> _Inode:
        copy = copies.get(inode)
        if copy is None:
            copies[inode] = copy = _Inode(bytes(inode.content))
            copy.synced = inode.synced
        assert isinstance(copy, _Inode)
        return copy

    def node_of(node: _Inode | _Directory) -> _Inode | _Directory:
        return directory_of(node) if isinstance(node, _Directory) else inode_of(node)

    def names_of(names: dict[str, _Inode | _Directory]) -> dict[str, _Inode | _Directory]:
        return {name: node_of(node) for name, node in names.items()}

    left = RecordingStorage((disk._seed // SEED_STEP + 1) * SEED_STEP)
    left._root, left._boot = directory_of(disk._root), disk._boot
    for inode, pending in disk.pending.items():
        left.pending[inode_of(inode)] = copy = Pending(pending.base)
        copy.writes = [_copied(write) for write in pending.writes]
    for directory, changes in disk.changes.items():
        left.changes[directory_of(directory)] = changed = Changes(names_of(changes.base))
        changed.list = [
            Change(tuple((name, node and node_of(node)) for name, node in change.names))
            for change in changes.list
        ]
        changed.fixed, changed.in_doubt = set(changes.fixed), set(changes.in_doubt)
    return left


def _copied(write: Write) -> Write:
    copy = Write(write.position, write.data)
    copy.fixed, copy.in_doubt = write.fixed, write.in_doubt
    return copy


class SecondLife:
    """What becomes of one scenario when it is killed after each of its operations.  `look` goes
    into a plan."""

    def __init__(self, *, behind_failure: bool = False, alike_every: int = 1) -> None:
        self._behind_failure = behind_failure
        self._alike_every = alike_every
        self._known: set[tuple[int, int, int]] = set()
        self._judged: set[tuple[tuple[int, int], int]] = set()
        self._kinds: set[tuple[Kind, int]] = set()
        self.kills = 0
        self.cuts = 0
        self.recovered = 0

    def look(self, explorer: Explorer) -> None:
        """Kill it here.  Raises Found."""
        disk = explorer.disk
        if any(changes.in_doubt for changes in disk.changes.values()) != self._behind_failure:
            return
        key = digest_of(disk, durable=False), digest_of(disk, durable=True), disk._boot
        if key not in self._known:
            self._known.add(key)
            self._live_on(left_by(disk), explorer)

    def _live_on(self, disk: RecordingStorage, explorer: Explorer) -> None:
        self.kills += 1
        seen = explorer.opener(disk).see()
        for image in Images(disk).now():
            sight = image.key, hash(seen)
            if image.is_kill or sight in self._judged:
                continue
            self._judged.add(sight)
            self.cuts += 1
            kind = image.kind, sight[1]
            if kind in self._kinds and image.key[0] // 8 % self._alike_every:
                continue
            self._kinds.add(kind)
            self.recovered += 1
            session = explorer.opener(image.build())
            again = session.see()
            if session.events_lost or session.files_missed:
                explorer.report("I7: something is told as lost, and nothing is", image)
            if not continues(seen, again):
                explorer.report(f"I1: a start has seen what is gone: {differ(seen, again)}", image)

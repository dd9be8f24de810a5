"""What the WAL says at a start: frames by partition, control events, and what is missing.

It reads and judges; nothing is changed (segments/replay/ puts the frames back).  Every directory
`shard-<nn>` that exists is read, whatever the number of shards is today: a partition is in only one
of them, because all files are put back before anything new is written.

| found | means |
|---|---|
| a bad frame, good ones of a later group after it | damage: it is missing, the others count |
| a bad frame, good ones of the same group | nobody was told, or damage: the good ones count |
| bad bytes at the end | a torn write, or nothing |
| ... and the trailer of a frame after them | damage to the last frames of all: reported as lost |
| a hole in a group that awaits a MARK, nothing of a later group | nobody was told: no damage |
| a header that is not the file's, or of another shard | damage: it is synced before the name |
| the lsns jump between two files | a file is missing: damage |
| the first frame of all is not at the beginning | those before it are missing (missing.py) |
| a `kept-` file | the frames of logs that could not be synced; older than all others (kept.py) |
| ... and bytes in it that are no frame | damage, at its end as well: it was written whole |
| a file that has its marker, and is not there | damage |
| a file whose frames end before where they are known to have been | damage |

Frames of an unacknowledged group may be among those returned: whoever replays may apply them or
not, but each wholly.  Not returned: control events after a hole in a group that nobody was told of
(those before them are missing, and that is no loss), and frames before a BARRIER of their
partition.

A lost frame whose trailer is whole is lost by name: of a partition (`lost_below`) or of the
metadata (`control_lost`).  If no trailer is left `unnamed` says which partitions it may have been
of.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

import structlog

from segbroker.protocol.checksums import xxh3_64

from ..disk.storage import Storage, read_file
from ..errors import CorruptMetadata, UnsupportedFormat
from ..witness import WAL_FROM, least, witness_folder
from .files import list_files
from .frames import (
    AFTER_FAILURE,
    AWAITS_MARK,
    VERSION,
    Frame,
    FrameType,
    Header,
    decode_header,
    header_of,
    later_version,
)
from .kept import SHARD_OF_STARTS, holes_of, kept_path, spent_path
from .markers import KEPT, Marked, marked
from .missing import (
    Missing,
    damage,
    events_in,
    frames_max_in,
    frames_missing,
    is_in,
    missing_in_front,
    without_given_up,
)
from .reached import Reached, reached
from .scanning import Hole, Scanned, Suspect, scan_file

log = structlog.get_logger()

NUMBERS_MAX: Final = 10**18
"""So many files were never made; names have room for one more digit."""
_SHARD: Final = re.compile(r"shard-([0-9]{2,9})")


@dataclass(slots=True)
class Replay:
    """What was found.  `partitions`: BATCHES and END frames, in the order they were written."""

    partitions: dict[tuple[bytes, int], list[Frame]] = field(default_factory=dict)
    control: list[bytes] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    lost_below: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """End offsets that damaged frames speak of: what a log has not below them was acknowledged and
    is lost."""
    control_lost: int = 0
    """Control events that are lost, at most."""
    unnamed: set[int] = field(default_factory=set)
    """Shards that lost frames of which nobody can say whose they were."""
    torn: set[int] = field(default_factory=set)
    """Shards whose last group has a hole: nobody was told of it, or it is damaged."""
    unused: dict[int, list[str]] = field(default_factory=dict)
    """The newest files of a shard, newest first, in which no frame was written: whether they are
    there or not, the WAL says the same."""
    owners: dict[int, str] = field(default_factory=dict)
    """Whose the files say that they are, and one of each that say so."""
    shards: int = 0
    """Shards that were in use."""
    is_missing: bool = False
    """Nothing at all is there, and there were files in use."""
    next_lsn: int = 0
    next_sequence: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to put back."""
        return not self.partitions and not self.control

    def say_owner(self, path: str, header: Header) -> None:
        """A file says whose it is, unless an earlier version wrote it."""
        if header.owner:
            self.owners.setdefault(header.owner, path)

    def check_owner(self, root: str, owner: int) -> None:
        """Whether all files are of the data directory that `owner` stands for, as far as they say.

        Raises CorruptMetadata: they are another's, which still needs them.
        """
        for found, path in self.owners.items():
            if found != owner:
                raise CorruptMetadata(
                    path,
                    "this file of the write-ahead log is another data directory's, which needs it:"
                    f" was a wrong volume mounted? Put this one's own {root} in its place; or, to"
                    " go on without it, move what is there away",
                )

    def follow(self, number: int) -> None:
        """The next file has a higher number than this, unless it is one that files cannot have: a
        file of ours behind it would have a name that no start looks for."""
        if number < NUMBERS_MAX:
            self.next_sequence = max(self.next_sequence, number + 1)

    def lose_all(self, root: str) -> None:
        """Not even the directory of a shard is there, though the log was in use: anything may be
        lost."""
        log.error("wal_missing", path=root)
        self.missing.append(damage(root, is_gone=True))
        self.shards = 1
        self.unnamed.add(0)
        self.control_lost += 1


def shard_folder(root: str, shard: int) -> str:
    """The directory of a shard under the WAL's."""
    return f"{root}/shard-{shard:02d}"


def shard_number(topic_id: bytes, partition: int, shards: int) -> int:
    """Which of so many shards has the frames of a partition."""
    return xxh3_64(topic_id + partition.to_bytes(4, "big")) % shards


def shard_folders(storage: Storage, root: str) -> dict[int, str]:
    """The directories of all shards that were ever used, by number."""
    matches = (_SHARD.fullmatch(name) for name in storage.listdir(root))
    return {int(match[1]): f"{root}/{match[0]}" for match in matches if match}


def scan_wal_file(storage: Storage, path: str) -> Scanned | None:
    """What one file says; None when its header is wrong or another file's.

    Raises UnsupportedFormat: a later version wrote it, and what it says was acknowledged.
    """
    data = read_file(storage, path)
    header = header_of(data)
    version = 0 if header is not None else later_version(data)
    if version:
        raise UnsupportedFormat(path, version, f"1 to {VERSION}")
    name = path.rpartition("/")[2]
    if header is None or name not in (f"wal-{header.sequence}.log", f"kept-{header.sequence}.log"):
        return None
    if decode_header(data) is None:
        log.error("wal_header_damaged", path=path)  # nothing is lost by it
    return scan_file(memoryview(data), header)


def replay(storage: Storage, root: str) -> Replay:
    """Read everything.  Raises OSError, UnsupportedFormat."""
    found = Replay()
    found.follow(least(storage, witness_folder(root), WAL_FROM) - 1)
    folders = shard_folders(storage, root)
    found.shards = max(folders, default=-1) + 1  # one in the middle may be gone
    said = {one[:2]: one for one in sorted(reached(storage, witness_folder(root)))}
    for shard, folder in folders.items():
        _replay_shard(storage, shard, folder, said, found)
    if not storage.listdir(root):  # `lose_all` says more than the names of its files
        found.is_missing = bool(marked(storage, root))
        return found
    for one in sorted(marked(storage, root)):
        _look_for_marked(storage, root, one, found)
    return found


def _look_for_marked(storage: Storage, root: str, one: Marked, found: Replay) -> None:
    """A file that has a marker: what is lost with it if it is gone."""
    folder = shard_folder(root, one.shard)
    path = f"{folder}/{one.kind}-{one.number}.log"
    if storage.exists(path):
        return
    # Put back by an earlier version, which knows no markers, and crashed before it went.
    if one.kind == KEPT and storage.exists(spent_path(folder, one.number)):
        return
    found.missing.append(damage(path, is_gone=True))
    found.shards = max(found.shards, one.shard + 1)  # its directory may be gone as well
    found.follow(one.number)
    if one.kind == KEPT:
        found.unnamed.update(_shards_of_kept(one.shard, found))
        return
    found.unnamed.add(one.shard)
    if one.shard == 0:
        found.control_lost += 1


def _replay_shard(
    storage: Storage,
    shard: int,
    folder: str,
    said: Mapping[tuple[int, int], Reached],
    found: Replay,
) -> None:
    files = list_files(storage, folder)
    for number in files["kept"]:
        found.follow(number)
        _replay_kept(storage, shard, kept_path(folder, number), found)
    # A number that one was put back by says so of no other.
    for number in files["spent"]:
        found.follow(number)
    known = len(found.missing)
    in_files = _scan_files(storage, shard, folder, files["wal"], found)
    for path, one in in_files:
        _look_for_end(path, one, said.get((shard, one.header.sequence)), found)
    if len(in_files) == len(files["wal"]):
        found.unused[shard] = _unused(in_files)
    scanned = without_given_up(in_files)
    frames = [(path, frame) for path, one in scanned for frame in one.frames]
    for path, one in scanned:
        if one.cut is not None:
            found.missing.append(damage(path, one.cut))
            found.unnamed.add(shard)
            found.control_lost += frames_max_in(one.cut.size) if shard == 0 else 0
    missing = _look_for_holes(shard, scanned, frames, found)
    if any(one.is_in_doubt for one in found.missing[known:]):
        found.torn.add(shard)
    durable_below = max((frame.durable_below for _, frame in frames), default=0)
    whole_below = _whole_below(frames, durable_below)
    told: list[Suspect] = []
    for path, suspect in ((path, suspect) for path, one in scanned for suspect in one.suspects):
        if is_in(missing, suspect):
            told.append(suspect)
        elif (
            suspect.is_named
            and not _awaits_a_mark(suspect, durable_below)
            and not _was_given_up(suspect, frames)
        ):
            told.append(suspect)
            found.missing.append(Missing(path, suspect.lsn, 1, durable=True))
    _sum_up_losses(shard, missing, told, found)
    _fold([frame for _, frame in frames], told, whole_below, found)


def _scan_files(
    storage: Storage, shard: int, folder: str, numbers: Sequence[int], found: Replay
) -> list[tuple[str, Scanned]]:
    """What the `wal-` files of a shard say, oldest first; those without a header are damage."""
    files: list[tuple[str, Scanned]] = []
    for number in numbers:
        found.follow(number)
        path = f"{folder}/wal-{number}.log"
        scanned = scan_wal_file(storage, path)
        if scanned is not None and scanned.header.shard == shard:
            files.append((path, scanned))
            found.say_owner(path, scanned.header)
            continue
        log.error("wal_file_without_header", path=path)
        found.missing.append(damage(path))
        found.unnamed.add(shard)
        if shard == 0:
            lsns = [frame.lsn for _, one in files for frame in one.frames]
            events = events_in(read_file(storage, path), max(lsns, default=-1))
            found.control_lost += 1 + events
    return files


def _look_for_end(path: str, one: Scanned, said: Reached | None, found: Replay) -> None:
    """Whether a file has all that is known to have been durable in it."""
    if said is not None and one.end < said.position:
        lost = Hole(one.end, said.position - one.end, is_named=False)
        found.missing.append(damage(path, lost))
        found.unnamed.add(said.shard)
        found.control_lost += frames_max_in(lost.size) if said.shard == 0 else 0


def _unused(files: Sequence[tuple[str, Scanned]]) -> list[str]:
    """The newest files in which is no frame, nor a trace of one; newest first."""
    return [
        path
        for path, _ in takewhile(
            lambda file: file[1].first is None and not file[1].suspects and file[1].cut is None,
            reversed(files),
        )
    ]


def _look_for_holes(
    shard: int,
    files: Sequence[tuple[str, Scanned]],
    frames: list[tuple[str, Frame]],
    found: Replay,
) -> list[Missing]:
    """The holes between the frames of a shard; one in front of the first is told, too."""
    awaits_a_mark = bool(frames) and bool(frames[-1][1].flags & AWAITS_MARK)
    in_front = missing_in_front(files)
    if in_front is not None:
        hole, frames_max = in_front
        found.missing.append(hole._replace(is_torn=not hole.durable and awaits_a_mark))
        if hole.durable:
            found.unnamed.add(shard)
            found.control_lost += frames_max if shard == 0 else 0
    missing = [
        hole if hole.durable else hole._replace(is_torn=awaits_a_mark)
        for hole in frames_missing(frames)
    ]
    found.missing += missing
    return missing


def _replay_kept(storage: Storage, shard: int, path: str, found: Replay) -> None:
    scanned = scan_wal_file(storage, path)
    if scanned is None:
        found.missing.append(damage(path))
        is_named = False
    else:
        found.say_owner(path, scanned.header)
        holes = holes_of(scanned)
        found.missing += [damage(path, hole) for hole in holes]
        is_named = all(hole.is_named for hole in holes)
        _fold(scanned.frames, list(scanned.suspects), 0, found)
    if not is_named:
        found.unnamed.update(_shards_of_kept(shard, found))


def _shards_of_kept(shard: int, found: Replay) -> Collection[int]:
    """Whose frames a kept file in the directory of this shard may have."""
    return range(found.shards) if shard == SHARD_OF_STARTS else (shard,)


def _fold(frames: list[Frame], told: list[Suspect], whole_below: int, found: Replay) -> None:
    """Take what these frames say, and those that are told as lost, in the order of their lsns."""
    for frame in frames:
        while told and told[0].lsn < frame.lsn:
            _lose(told.pop(0), found)
        found.next_lsn = max(found.next_lsn, frame.lsn + 1)
        match frame.type:
            case FrameType.BARRIER:
                found.partitions.pop(frame.key, None)
                found.lost_below.pop(frame.key, None)  # given up, and said so
            case FrameType.CONTROL:
                if not _awaits_a_mark(frame, whole_below):
                    found.control.append(bytes(frame.payload))
            case FrameType.MARK | FrameType.GIVEN_UP | FrameType.KEPT:
                pass
            case _:
                found.partitions.setdefault(frame.key, []).append(frame)
    for suspect in told:
        found.next_lsn = max(found.next_lsn, suspect.lsn + 1)
        _lose(suspect, found)


def _whole_below(frames: list[tuple[str, Frame]], durable_below: int) -> int:
    """The first frame that is missing in the last group."""
    for _, frame in frames:
        durable_below += frame.lsn == durable_below
    return durable_below


def _awaits_a_mark(one: Frame | Suspect, below: int) -> bool:
    """Whether it needed a MARK, and none vouches for a frame from `below` on."""
    return bool(one.flags & AWAITS_MARK) and one.lsn >= below


def _was_given_up(suspect: Suspect, frames: list[tuple[str, Frame]]) -> bool:
    following = next((frame for _, frame in frames if frame.lsn > suspect.lsn), None)
    return following is not None and bool(following.flags & AFTER_FAILURE)


def _sum_up_losses(shard: int, missing: list[Missing], told: list[Suspect], found: Replay) -> None:
    """How many control events are lost, and whether frames are that nobody can name."""
    holes = sum(hole.frames for hole in missing if hole.durable)
    named = sum(is_in(missing, one) for one in told if one.is_named)
    unnamed = holes - named
    if unnamed > 0:
        found.unnamed.add(shard)
    controls = sum(one.type is FrameType.CONTROL for one in told)
    found.control_lost += controls + (max(unnamed, 0) if shard == 0 else 0)


def _lose(suspect: Suspect, found: Replay) -> None:
    if suspect.type is FrameType.BATCHES:
        end_offset = max(found.lost_below.get(suspect.key, -1), suspect.end_offset)
        found.lost_below[suspect.key] = end_offset

"""How much room a start needs on its volume: an estimate, rather too high than too low.

| what | room |
|---|---|
| the snapshot of the metadata, written anew beside the old one | its size |
| records that are in the WAL and not in their segments, lost by a power cut | theirs |
| what is not sealed of a log that is written anew, behind a failed sync | its largest segment |
| indexes, manifests, directories | ROOM_FOR_SMALL_FILES |

If only the process died, the segments have everything, and the second row is zero.
"""

from typing import Final

from ..disk.storage import Storage, size_of
from ..files.unsynced import read_unsynced
from ..metadata.metadata import Metadata
from ..names import LogPaths, owner_of, partition_paths
from ..recovery.known import read_known
from ..wal.files import list_files
from ..wal.frames import Frame, FrameType
from ..wal.replay import Replay, shard_folders
from .reserve import RESERVE

ROOM_FOR_SMALL_FILES: Final = 64 << 10


def room_to_start(storage: Storage, root: str, found: Replay, state: Metadata) -> int:
    """About how many bytes a start writes that take new room.  Raises OSError."""
    room = len(state.encode()) + ROOM_FOR_SMALL_FILES
    by_id = {meta.topic_id.bytes: meta for meta in state.topics.values()}
    for (topic_id, partition), frames in found.partitions.items():
        meta = by_id.get(topic_id)
        if meta is not None and partition < meta.partitions:
            owner = owner_of(meta.topic_id, partition)
            room += _room_of(storage, partition_paths(root, meta.name, partition, owner), frames)
    return room


def room_given_back(storage: Storage, root: str, found: Replay) -> int:
    """Bytes of files that a start on a full disk removes.  Raises OSError."""
    paths = [f"{root}/{RESERVE}"]
    wal = f"{root}/wal"
    folders = shard_folders(storage, wal) if storage.exists(wal) else {}
    for shard, folder in folders.items():
        free = list_files(storage, folder)["free"]
        paths += [f"{folder}/free-{number}.log" for number in free]
        paths += found.unused.get(shard, ())
    return sum(_size(storage, path) for path in paths)


def _room_of(storage: Storage, paths: LogPaths, frames: list[Frame]) -> int:
    known = read_known(storage, paths)
    first = 0 if known is None else known.sealed.next_number
    ends: dict[int, int] = {}
    for frame in frames:
        if frame.type is FrameType.BATCHES and frame.segment >= first:
            end = frame.position + len(frame.payload)
            ends[frame.segment] = max(ends.get(frame.segment, 0), end)
    room = sum(max(end - _size(storage, paths.log(number)), 0) for number, end in ends.items())
    if ends and read_unsynced(storage, paths) is not None:
        numbers = map(paths.segment_number, storage.listdir(paths.folder))
        unsealed = [number for number in numbers if number is not None and number >= first]
        room += max((_size(storage, paths.log(number)) for number in unsealed), default=0)
    return room


def _size(storage: Storage, path: str) -> int:
    """Bytes of a file, 0 of one that is not there."""
    return size_of(storage, path) if storage.exists(path) else 0

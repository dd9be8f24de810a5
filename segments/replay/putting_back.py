"""What the WAL holds, back in the partitions it speaks of; and what of it has no place.

| frames of a partition | then |
|---|---|
| that is known | durable in its segments (replaying.py), which a start opens |
| ... of class `fsync`, ENDs only | nothing is read: vouched for until it is opened |
| ... whose disk refuses: EIO | it is not served, the others are; tried again when it is asked for |
| ... whose directory is another's | the same |
| ... on a full disk | nothing is opened: nothing could be kept, either |
| that is not known | deleted since: nothing |
| ... and events of the metadata are lost | told, and kept in quarantine/ as a segment file |

The frames of a partition that could not be put back outlive the WAL files they came from: in
memory, and in a `kept-` file of the WAL for the next start.

Where frames are lost of which nobody can say whose they were, every partition of their shard begins
a leader epoch: an offset that is given again is never taken for the one that was acknowledged.  So
do those that acknowledge by the WAL where the last group has a hole: torn by a power cut or
damaged, nobody can tell, and the report says just that (`wal_torn`).
"""

from collections.abc import Mapping, Sequence

from ..disk.storage import Storage, make_own_dirs, replace_file
from ..errors import NO_SPACE, PartitionForeign, StorageError
from ..metadata.metadata import TopicMeta
from ..names import owner_of, partition_paths
from ..parallel import Each
from ..report import LogReport, RecoveryReport, ReportRow
from ..settings.topic_config import Durability
from ..wal.frames import Frame, FrameType
from ..wal.replay import Replay
from .replaying import put_back

Place = tuple[str, int]
"""Topic name and partition."""
Key = tuple[bytes, int]
"""Topic id and partition: what is known of a log is not believed of a later topic of its name."""


class PuttingBack:
    """The frames that one opening of a data directory found."""

    def __init__(self, storage: Storage, root: str, report: RecoveryReport, each: Each) -> None:
        """each: how the partitions are worked on."""
        self._each = each
        self._storage = storage
        self._root = root
        self._report = report
        self.refused: dict[Place, StorageError] = {}
        """Why the last start could not put these back; who opens one later tries again."""
        self.waiting: dict[Key, Sequence[Frame]] = {}
        """What could not be put back."""
        self._ends: dict[Key, int] = {}
        self._synced: dict[Key, frozenset[int]] = {}

    def put_back(
        self, found: Replay, topics: Mapping[str, TopicMeta], *, events_lost: bool
    ) -> list[Place]:
        """Put back what has a place; the partitions that are to be opened for it: not those that
        nothing was written to since they were synced.

        Raises OSError on a full disk.
        """
        for missing in found.missing:
            reason = f"{missing.what} are {'lost' if missing.is_gone else 'not valid'}"
            if missing.durable:
                self._report.add(ReportRow("wal_damaged", missing.path, reason=reason))
            elif missing.is_in_doubt:
                reason += ": torn and told to nobody, or damaged"
                self._report.add(ReportRow("wal_torn", missing.path, reason=reason))
        self._synced.clear()  # of an opening that failed: others may have been there since
        self.refused.clear()
        by_id = {meta.topic_id.bytes: meta for meta in topics.values()}
        of_topics: list[tuple[TopicMeta, int, list[Frame]]] = []
        for key, frames in found.partitions.items():
            meta = by_id.get(key[0])
            if meta is None or key[1] >= meta.partitions:
                if events_lost:
                    self._put_aside(key, frames)
                continue  # deleted since
            of_topics.append((meta, key[1], frames))
        touched: dict[Place, None] = {}
        refused = self._put_back_all(of_topics)
        for number, (meta, partition, frames) in enumerate(of_topics):
            if number in refused:
                self.waiting[meta.topic_id.bytes, partition] = frames
                self.refused[meta.name, partition] = _not_put_back(
                    meta.name, partition, refused[number]
                )
                self._tell(meta, partition, refused[number])
            elif not _is_settled(meta, frames):
                touched[meta.name, partition] = None
        for (topic_id, partition), end_offset in found.lost_below.items():
            meta = by_id.get(topic_id)
            if meta is not None and partition < meta.partitions:
                self._vouch((topic_id, partition), end_offset)
                touched[meta.name, partition] = None
        return [place for place in touched if place not in self.refused]

    def end_of(self, meta: TopicMeta, partition: int) -> int:
        """The end offset that the WAL vouches for, -1 for none; what it holds is put back first.

        Raises StorageError.
        """
        frames = self.waiting.get((meta.topic_id.bytes, partition))
        if frames is not None:
            try:
                self._put_back(meta, partition, frames)
            except (OSError, PartitionForeign) as exc:
                raise _not_put_back(meta.name, partition, exc) from exc
            del self.waiting[meta.topic_id.bytes, partition]
        return self._ends.get((meta.topic_id.bytes, partition), -1)

    def vouched(self) -> list[tuple[Key, int]]:
        """What was not opened yet, and the end offsets that the WAL vouched for.  From any
        thread."""
        return sorted(dict(self._ends).items())

    def take_synced(self, meta: TopicMeta, partition: int) -> frozenset[int]:
        """The segments that were put back, whole and synced with their names; told once, so only
        to who opens the partition next."""
        return self._synced.pop((meta.topic_id.bytes, partition), frozenset())

    def opened(self, meta: TopicMeta, partition: int) -> None:
        """What the WAL vouches for was taken account of."""
        self._ends.pop((meta.topic_id.bytes, partition), None)

    def _put_back_all(
        self, some: Sequence[tuple[TopicMeta, int, Sequence[Frame]]]
    ) -> dict[int, OSError | PartitionForeign]:
        """By their numbers, those whose disk or directory refused, and why.  Raises OSError on a
        full disk."""
        refused: dict[int, OSError | PartitionForeign] = {}

        def put_back_one(number: int) -> None:
            try:
                self._put_back(*some[number])
            except PartitionForeign as exc:
                refused[number] = exc
            except OSError as exc:
                if exc.errno in NO_SPACE:
                    raise
                refused[number] = exc

        self._each(put_back_one, range(len(some)))
        return refused

    def _put_back(self, meta: TopicMeta, partition: int, frames: Sequence[Frame]) -> None:
        owner = owner_of(meta.topic_id, partition)
        paths = partition_paths(self._root, meta.name, partition, owner)
        report = LogReport(self._report, meta.name, partition)
        done = put_back(self._storage, paths, frames, report, meta.epoch)
        key = meta.topic_id.bytes, partition
        self._vouch(key, done.end_offset)
        self._synced[key] = done.synced

    def _vouch(self, key: Key, end_offset: int) -> None:
        self._ends[key] = max(self._ends.get(key, -1), end_offset)

    def _tell(self, meta: TopicMeta, partition: int, exc: OSError | PartitionForeign) -> None:
        folder = partition_paths(self._root, meta.name, partition).folder
        row = ReportRow("not_served", folder, meta.name, partition, reason=str(exc))
        self._report.add(row)

    def _put_aside(self, key: Key, frames: Sequence[Frame]) -> None:
        """Keep the batches of a partition that nothing is known of.  Raises OSError."""
        batches = [frame for frame in frames if frame.type is FrameType.BATCHES]
        if not batches:
            return
        folder = f"{self._root}/quarantine"
        path = f"{folder}/wal-{key[0].hex()}-{key[1]}.log"
        make_own_dirs(self._storage, folder)
        content = b"".join(bytes(frame.payload) for frame in batches)
        replace_file(self._storage, path, content)
        ends = [frame.end_offset for frame in batches]
        self._report.add(
            ReportRow(
                "unknown_topic",
                path,
                partition=key[1],
                from_offset=min(frame.base_offset for frame in batches),
                to_offset=max(ends),
                bytes=len(content),
                reason=f"topic id {key[0].hex()}",
            )
        )


def _is_settled(meta: TopicMeta, frames: Sequence[Frame]) -> bool:
    """Whether all that was acknowledged of a partition is synced, and nothing has to be noted of
    it: whoever asks for it first opens it."""
    is_synced = all(frame.type is FrameType.END for frame in frames)
    return is_synced and meta.config.durability is Durability.FSYNC


def _not_put_back(topic: str, partition: int, cause: Exception) -> StorageError:
    error = StorageError(
        f"partition {partition} of {topic!r} is not served: what the write-ahead log holds of it"
        f" could not be put back: {cause}"
    )
    error.__cause__ = cause
    return error

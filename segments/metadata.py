"""meta/snapshot-<n>.msgpack: topics, epochs, ids; one file, replaced as a whole.

    byte 0       4         6       8            16             24
         +-------+---------+-------+------------+--------------+----------------
         | magic | version | 0     | size       | xxh3-64 of   | msgpack map ...
         | SBMD  | u16 =1  | u16   | u64        | the map, u64 |
         +-------+---------+-------+------------+--------------+----------------

The map: cluster_id str, next_producer_id int, epoch_floor int, retired {name: epoch},
topics [{name, id bytes(16), partitions int, epoch int, config {key: value}}].

n rises with every change: the new file is written, synced and renamed into place, the directory
synced, then the old one unlinked.  The highest n is the truth; if it is damaged nothing is opened,
because an older one could bring deleted topics back.

`retired` remembers the epoch of deleted topics, so that one of the same name starts above it.
It is bounded: past RETIRED_MAX names the highest epoch becomes the floor of every new topic.
"""

import re
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.vendor import pack, unpack

from .errors import CorruptSegment
from .storage import Storage, read_file, replace_file
from .topic_config import TopicConfig

MAGIC: Final = b"SBMD"
VERSION: Final = 1
HEADER: Final = struct.Struct(">4sHHQQ")
HEADER_SIZE: Final = HEADER.size
assert HEADER_SIZE == 24, "the box above"
SNAPSHOT_SIZE_MAX: Final = 1 << 28
RETIRED_MAX: Final = 10_000

_NAME = re.compile(r"snapshot-(\d{1,18})\.msgpack")


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """A topic as it is known to exist."""

    name: str
    topic_id: UUID
    partitions: int
    config: TopicConfig
    epoch: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """Everything that is neither a batch nor rebuilt from batches."""

    cluster_id: str
    next_producer_id: int = 0
    epoch_floor: int = 0
    topics: dict[str, TopicMeta] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)

    def with_topic(self, meta: TopicMeta) -> "Metadata":
        """With this topic new or changed."""
        retired = {name: epoch for name, epoch in self.retired.items() if name != meta.name}
        return replace(self, topics={**self.topics, meta.name: meta}, retired=retired)

    def without_topic(self, name: str) -> "Metadata":
        """With this topic deleted and its epoch remembered."""
        topics = {key: meta for key, meta in self.topics.items() if key != name}
        retired = {**self.retired, name: self.topics[name].epoch}
        if len(retired) > RETIRED_MAX:
            floor = max(self.epoch_floor, 1 + max(retired.values()))
            return replace(self, topics=topics, retired={}, epoch_floor=floor)
        return replace(self, topics=topics, retired=retired)

    def first_epoch(self, name: str) -> int:
        """The epoch of a topic of this name if it were created now."""
        return max(self.epoch_floor, self.retired.get(name, -1) + 1)

    def encode(self) -> bytes:
        """The file."""
        topics = [
            {
                "name": meta.name,
                "id": meta.topic_id.bytes,
                "partitions": meta.partitions,
                "epoch": meta.epoch,
                "config": meta.config.overrides,
            }
            for meta in self.topics.values()
        ]
        body = pack(
            {
                "cluster_id": self.cluster_id,
                "next_producer_id": self.next_producer_id,
                "epoch_floor": self.epoch_floor,
                "retired": self.retired,
                "topics": topics,
            }
        )
        return HEADER.pack(MAGIC, VERSION, 0, len(body), xxh3_64(body)) + body


def decode_metadata(data: bytes, path: str) -> Metadata:
    """The content of a snapshot file.  Raises CorruptSegment."""
    if len(data) < HEADER_SIZE:
        raise CorruptSegment(path, 0, f"{len(data)} bytes, a header has {HEADER_SIZE}")
    magic, version, _, size, checksum = HEADER.unpack_from(data)
    body = data[HEADER_SIZE:]
    if magic != MAGIC or version != VERSION:
        raise CorruptSegment(path, 0, f"{magic!r} version {version}, not {MAGIC!r} {VERSION}")
    if size != len(body) or checksum != xxh3_64(body):
        raise CorruptSegment(path, HEADER_SIZE, "the map does not match its size or checksum")
    try:
        fields: dict[str, Any] = unpack(body, size_max=SNAPSHOT_SIZE_MAX)
        topics = {
            topic["name"]: TopicMeta(
                topic["name"],
                UUID(bytes=topic["id"]),
                topic["partitions"],
                TopicConfig.parse(topic["config"]),
                topic["epoch"],
            )
            for topic in fields["topics"]
        }
        return Metadata(
            fields["cluster_id"],
            fields["next_producer_id"],
            fields["epoch_floor"],
            topics,
            fields["retired"],
        )
    except (RemoteProtocolError, KeyError, TypeError, ValueError) as exc:
        raise CorruptSegment(path, HEADER_SIZE, f"not the map of this version: {exc!r}") from exc


class MetadataStore:
    """The directory meta/.  One thread at a time."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._number = 0

    def load(self) -> Metadata | None:
        """The newest snapshot; None in a new data directory.  Raises CorruptSegment."""
        numbers = sorted(
            int(match[1])
            for name in self._storage.listdir(self._folder)
            if (match := _NAME.fullmatch(name))
        )
        if not numbers:
            return None
        self._number = numbers[-1]
        path = self._path(self._number)
        metadata = decode_metadata(bytes(read_file(self._storage, path)), path)
        for number in numbers[:-1]:
            self._storage.unlink(self._path(number))
        return metadata

    def save(self, metadata: Metadata) -> None:
        """Replace the snapshot; durable when this returns.  Raises OSError."""
        old, new = self._number, self._number + 1
        replace_file(self._storage, self._path(new), metadata.encode())
        self._number = new
        if old:
            # Not synced: were it to come back, it would lose against the higher number.
            self._storage.unlink(self._path(old))

    def _path(self, number: int) -> str:
        return f"{self._folder}/snapshot-{number}.msgpack"

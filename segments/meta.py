"""Durable metadata: what topics there are, and numbers that must never be given twice.

    meta/snapshot-<n>.msgpack:   xxh3-64 of the rest, u64 | msgpack map

    {"v": 1, "cluster_id": text, "next_producer_id": i, "epochs": {topic: i},
     "topics": {name: {"id": 16 bytes, "partitions": i, "epoch": i, "config": {key: text}}}}

Every change writes a whole new snapshot with the next number (temp, sync, rename, directory
sync) before it is answered, then removes the one before the last.  A start takes the highest
number whose checksum holds; a lower one is the state before an unanswered change.

`epochs` remembers the epoch of deleted topics: a topic made again under the same name starts above
its predecessor, so that no client takes one for the other.
"""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import xxhash

from segbroker.protocol import vendor
from segbroker.protocol.errors import ProtocolError

from .errors import UnsupportedFormat
from .storage import Storage, read_file, replace_file
from .topic_config import TopicConfig

VERSION = 1
_PREFIX = "snapshot-"
_SUFFIX = ".msgpack"
_DIGEST_SIZE = 8


@dataclass(frozen=True)
class TopicMeta:
    """What is known of one topic."""

    name: str
    topic_id: UUID
    partitions: int
    config: TopicConfig
    epoch: int


@dataclass(frozen=True)
class Metadata:
    """The whole state; replaced, never changed."""

    cluster_id: str
    next_producer_id: int = 0
    topics: dict[str, TopicMeta] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)

    def with_topic(self, topic: TopicMeta) -> "Metadata":
        return replace(self, topics={**self.topics, topic.name: topic})

    def without_topic(self, name: str) -> "Metadata":
        epoch = self.topics[name].epoch
        topics = {key: topic for key, topic in self.topics.items() if key != name}
        return replace(self, topics=topics, epochs={**self.epochs, name: epoch})


def encode(state: Metadata) -> bytes:
    body = vendor.pack(
        {
            "v": VERSION,
            "cluster_id": state.cluster_id,
            "next_producer_id": state.next_producer_id,
            "epochs": state.epochs,
            "topics": {
                topic.name: {
                    "id": topic.topic_id.bytes,
                    "partitions": topic.partitions,
                    "epoch": topic.epoch,
                    "config": dict(topic.config.overrides),
                }
                for topic in state.topics.values()
            },
        }
    )
    return xxhash.xxh3_64_digest(body) + body


def decode(content: bytes, path: str) -> Metadata | None:
    """Read a snapshot; None when it is not whole.

    Raises:
        UnsupportedFormat: it is whole, and of another version.
    """
    digest, body = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    if xxhash.xxh3_64_digest(body) != digest:
        return None
    try:
        raw: dict[str, Any] = vendor.unpack(body, size_max=len(body))
    except ProtocolError:
        return None
    if raw.get("v") != VERSION:
        raise UnsupportedFormat(path, raw.get("v"), VERSION)
    topics = {
        name: TopicMeta(
            name,
            UUID(bytes=topic["id"]),
            topic["partitions"],
            TopicConfig.parse(topic["config"]),
            topic["epoch"],
        )
        for name, topic in raw["topics"].items()
    }
    return Metadata(raw["cluster_id"], raw["next_producer_id"], topics, raw["epochs"])


class MetadataStore:
    """The snapshots of one data directory."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._number = 0

    def load(self) -> Metadata | None:
        """The newest whole snapshot, or None in a new directory.

        Raises:
            UnsupportedFormat: there are snapshots, and none of them can be read.
        """
        self._storage.makedirs(self._folder)
        numbers = self._numbers()
        self._number = max(numbers, default=0)
        for number in reversed(numbers):
            path = self._path(number)
            state = decode(read_file(self._storage, path), path)
            if state is not None:
                return state
        if numbers:
            raise UnsupportedFormat(self._path(numbers[-1]), "damaged", VERSION)
        return None

    def save(self, state: Metadata) -> None:
        """Make `state` the durable one.  Raises OSError; then the old one stands."""
        number = self._number + 1
        replace_file(self._storage, self._path(number), encode(state))
        self._number = number
        for old in self._numbers():
            if old < number - 1:
                self._storage.unlink(self._path(old))

    def _path(self, number: int) -> str:
        return f"{self._folder}/{_PREFIX}{number}{_SUFFIX}"

    def _numbers(self) -> list[int]:
        found = []
        for name in self._storage.listdir(self._folder):
            digits = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            if name == f"{_PREFIX}{digits}{_SUFFIX}" and digits.isdecimal():
                found.append(int(digits))
        return sorted(found)

"""meta/snapshot-<n>.msgpack: everything that is neither a batch nor rebuilt from batches.

    byte 0       4         6       8            16             24
         +-------+---------+-------+------------+--------------+----------------
         | magic | version | 0     | size       | xxh3-64 of   | msgpack map ...
         | SBMD  | u16 =2  | u16   | u64        | the map, u64 |
         +-------+---------+-------+------------+--------------+----------------

The map: cluster_id str, next_producer_id int, epoch_floor int, retired {name: epoch},
topics [{name, id bytes(16), partitions int, epoch int, config {key: value}}], and since version 2
seq int, boot {id str, number int}, ceilings [[topic id, partition, offset, boot]],
epochs [[topic id, partition, leader epoch]], sections {name: anything}.

State = snapshot + the events behind it (control.py) with a `seq` above the snapshot's.

    ceilings   no offset from there on was ever acknowledged; `boot` is the boot in which it was
               reserved, SETTLED where the partition's synced end is exactly there (ceilings.py)
    epochs     leader epochs of partitions that are above their topic's
    sections   what other kinds of events keep (groups, cursors): theirs to read, kept as it is

`retired` remembers the highest epoch of deleted topics, so that one of the same name starts above
it.  It is bounded: past RETIRED_MAX names the highest epoch becomes the floor of every new topic.

Invariant: a Metadata is never changed; whoever holds one may read it without a lock.
"""

import errno
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.vendor import pack_behind, unpack

from ..errors import CorruptSegment, UnsupportedFormat
from ..settings.topic_config import TopicConfig
from ..settings.topic_defaults import SECTION, defaults_of
from . import committed, share_groups
from .alike import AlikeNames, with_names, without_names
from .name_map import NameMap, plain
from .partition_map import PartitionMap
from .sections import check_sections
from .wide_rows import plain_rows, taken_up

MAGIC: Final = b"SBMD"
VERSION: Final = 2
HEADER: Final = struct.Struct(">4sHHQQ")
HEADER_SIZE: Final = HEADER.size
assert HEADER_SIZE == 24, "the box above"
SNAPSHOT_SIZE_MAX: Final = 1 << 28
SNAPSHOT_SIZE_FULL: Final = 1 << 27
"""From here on nothing is added that clients may make up without end: there is room left for what
comes until the next snapshot."""
RETIRED_MAX: Final = 10_000
SETTLED: Final = 0
"""The boot of a ceiling that holds in every boot: everything below it is there, and synced."""
IN_DOUBT: Final = -1
"""The boot of a ceiling below which something was found to be gone, as if it were of another."""

_OF_PARTITIONS: Final = frozenset({committed.SECTION, share_groups.SECTION})
"""Sections with rows by partition, of groups by name."""

PartitionKey: TypeAlias = tuple[UUID, int]


class Ceiling(NamedTuple):
    """No offset from `offset` on was ever acknowledged."""

    offset: int
    boot: int


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """A topic as it is known to exist."""

    name: str
    topic_id: UUID
    partitions: int
    config: TopicConfig
    epoch: int


def machine_of(boot_id: str) -> str:
    """Of a boot id that may name a disk, the part about the machine."""
    return boot_id.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The state."""

    cluster_id: str
    next_producer_id: int = 0
    epoch_floor: int = 0
    topics: dict[str, TopicMeta] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    seq: int = 0
    boot_id: str = ""
    boot: int = SETTLED
    ceilings: PartitionMap[Ceiling] = field(default_factory=PartitionMap)
    epochs: PartitionMap[int] = field(default_factory=PartitionMap)
    sections: Mapping[str, Any] = field(default_factory=dict)
    alike: AlikeNames = field(default_factory=NameMap, repr=False, compare=False)
    """Made of the names of `topics`, and not stored."""

    # What it says

    @property
    def topic_defaults(self) -> Mapping[str, str]:
        """Topic settings that are chosen for all topics."""
        return defaults_of(self.sections)

    def first_epoch(self, name: str) -> int:
        """The epoch of a topic of this name if it were created now."""
        return self.deleted_epoch(name) + 1

    def deleted_epoch(self, name: str) -> int:
        """The highest epoch that topics of this name were in when they were deleted; -1: none."""
        return max(self.epoch_floor - 1, self.retired.get(name, -1))

    def ceiling(self, key: PartitionKey) -> Ceiling | None:
        """The ceiling of a partition; None where none was ever reserved."""
        rows = self.ceilings.get(key[0])
        return None if rows is None else rows.get(key[1])

    def leader_epoch(self, meta: TopicMeta, partition: int) -> int:
        """The least leader epoch that a partition is in."""
        return max(meta.epoch, self.epochs.get(meta.topic_id, {}).get(partition, 0))

    # What becomes of it

    def with_topics(self, metas: Collection[TopicMeta]) -> "Metadata":
        """With these topics, of different names, new or changed."""
        topics, retired = dict(self.topics), dict(self.retired)
        for meta in metas:
            topics[meta.name] = meta
            retired.pop(meta.name, None)
        ids = [meta.topic_id for meta in metas]
        return replace(
            self,
            topics=topics,
            retired=retired,
            alike=with_names(self.alike, [meta.name for meta in metas]),
            ceilings=self.ceilings.with_topics(ids),
            epochs=self.epochs.with_topics(ids),
        )

    def without_topics(self, names: Collection[str]) -> "Metadata":
        """With these topics deleted and their highest epochs remembered."""
        if not names:
            return self
        topics, retired, floor = dict(self.topics), dict(self.retired), self.epoch_floor
        ids = []
        for name in names:
            gone = topics.pop(name)
            ids.append(gone.topic_id)
            retired[name] = max([gone.epoch, *self.epochs.get(gone.topic_id, {}).values()])
            if len(retired) > RETIRED_MAX:
                floor, retired = max(floor, 1 + max(retired.values())), {}
        return replace(
            self,
            topics=topics,
            retired=retired,
            epoch_floor=floor,
            alike=without_names(self.alike, names),
            ceilings=self.ceilings.without_topics(ids),
            epochs=self.epochs.without_topics(ids),
        )

    def with_section(self, name: str, content: object) -> "Metadata":
        """With this in a section of the snapshot."""
        return replace(self, sections={**self.sections, name: content})

    def with_topic_defaults(self, content: Mapping[str, Any]) -> "Metadata":
        """With this chosen for all topics.  Raises InvalidConfig (ValueError)."""
        sections = {**self.sections, SECTION: content}
        values = defaults_of(sections)
        topics = {
            name: replace(meta, config=TopicConfig.parse(meta.config.overrides, values))
            for name, meta in self.topics.items()
        }
        return replace(self, topics=topics, sections=sections)

    def with_ceilings(self, rows: Iterable[tuple[UUID, int, Ceiling]]) -> "Metadata":
        """With these ceilings; those of topics that are gone are passed over."""
        return replace(self, ceilings=self.ceilings.with_rows(rows))

    def with_epochs(self, rows: Iterable[tuple[UUID, int, int]]) -> "Metadata":
        """With these leader epochs, where they are higher; topics that are gone are passed over."""
        higher = [
            (topic_id, partition, epoch)
            for topic_id, partition, epoch in rows
            if epoch > self.epochs.get(topic_id, {}).get(partition, 0)
        ]
        return replace(self, epochs=self.epochs.with_rows(higher))

    def with_boot(self, boot_id: str) -> "Metadata":
        """In this boot of the machine.  Without an id it is another one than any before; an id that
        names no disk, as before 0.5.10, is of all disks of its boot."""
        if boot_id and boot_id == self.boot_id:
            return self
        is_same = boot_id and machine_of(boot_id) == self.boot_id
        return replace(self, boot_id=boot_id, boot=self.boot + (0 if is_same else 1))

    # What is stored

    def encode(self) -> bytearray:
        """The file.  Raises OSError: it is larger than a start would read."""
        data = bytearray(HEADER_SIZE)
        pack_behind(
            data,
            {
                "cluster_id": self.cluster_id,
                "next_producer_id": self.next_producer_id,
                "epoch_floor": self.epoch_floor,
                "retired": self.retired,
                "topics": [encode_topic(meta) for meta in self.topics.values()],
                "seq": self.seq,
                "boot": {"id": self.boot_id, "number": self.boot},
                "ceilings": [
                    [topic_id.bytes, partition, *ceiling]
                    for topic_id, partition, ceiling in self.ceilings.rows()
                ],
                "epochs": [
                    [topic_id.bytes, partition, epoch]
                    for topic_id, partition, epoch in self.epochs.rows()
                ],
                "sections": {
                    name: _stored(name, content) for name, content in self.sections.items()
                },
            },
        )
        size = len(data) - HEADER_SIZE
        if size > SNAPSHOT_SIZE_MAX:
            text = f"the metadata of {size} bytes is above {SNAPSHOT_SIZE_MAX}"
            raise OSError(errno.EFBIG, text)
        checksum = xxh3_64(memoryview(data)[HEADER_SIZE:])
        HEADER.pack_into(data, 0, MAGIC, VERSION, 0, size, checksum)
        return data


def _stored(section: str, content: Any) -> Any:  # noqa: ANN401  as of `plain`
    is_taken_up = section in _OF_PARTITIONS and isinstance(content, NameMap)
    return plain_rows(content) if is_taken_up else plain(content)


def encode_topic(meta: TopicMeta) -> dict[str, object]:
    """A topic as a map."""
    return {
        "name": meta.name,
        "id": meta.topic_id.bytes,
        "partitions": meta.partitions,
        "epoch": meta.epoch,
        "config": meta.config.overrides,
    }


def decode_topic(fields: Mapping[str, Any], defaults: Mapping[str, str]) -> TopicMeta:
    """The topic of such a map.  Raises KeyError, TypeError, ValueError."""
    return TopicMeta(
        fields["name"],
        UUID(bytes=fields["id"]),
        fields["partitions"],
        TopicConfig.parse(fields["config"], defaults),
        fields["epoch"],
    )


def decode_metadata(data: bytes | bytearray, path: str) -> Metadata:
    """The content of a snapshot file, version 1 or 2.

    Raises CorruptSegment, UnsupportedFormat: a later version wrote it, or rows of its sections.
    """
    if len(data) < HEADER_SIZE:
        raise CorruptSegment(path, 0, f"{len(data)} bytes, a header has {HEADER_SIZE}")
    magic, version, _, size, checksum = HEADER.unpack_from(data)
    body = data[HEADER_SIZE:]
    if magic == MAGIC and version > VERSION:
        raise UnsupportedFormat(path, version, f"1 to {VERSION}")
    if magic != MAGIC or version < 1:
        raise CorruptSegment(path, 0, f"{magic!r} version {version}, not {MAGIC!r} 1 to {VERSION}")
    if size != len(body) or checksum != xxh3_64(body):
        raise CorruptSegment(path, HEADER_SIZE, "the map does not match its size or checksum")
    try:
        # As many groups, topics or rows as there were: what was written can be read.
        fields: dict[str, Any] = unpack(
            body, size_max=SNAPSHOT_SIZE_MAX, count_max=SNAPSHOT_SIZE_MAX
        )
        defaults = defaults_of(fields["sections"]) if version > 1 else {}
        topics = [decode_topic(topic, defaults) for topic in fields["topics"]]
        known = Metadata(
            fields["cluster_id"],
            fields["next_producer_id"],
            fields["epoch_floor"],
            {meta.name: meta for meta in topics},
            fields["retired"],
            ceilings=PartitionMap.of_topics(meta.topic_id for meta in topics),
            epochs=PartitionMap.of_topics(meta.topic_id for meta in topics),
            alike=with_names(NameMap(), (meta.name for meta in topics)),
        )
        known = known if version == 1 else _with_version_2(known, fields)
    except (RemoteProtocolError, KeyError, TypeError, ValueError) as exc:
        raise CorruptSegment(path, HEADER_SIZE, f"not the map of this version: {exc!r}") from exc
    check_sections(known.sections, path)
    groups = {name: known.sections[name] for name in _OF_PARTITIONS if known.sections.get(name)}
    try:
        wide = {name: taken_up(content) for name, content in groups.items()}
    except ValueError as exc:
        raise UnsupportedFormat(path, f"rows by {exc}", "rows by partition") from exc
    return replace(known, sections={**known.sections, **wide})


def _with_version_2(known: Metadata, fields: Mapping[str, Any]) -> Metadata:
    known = replace(
        known,
        seq=fields["seq"],
        boot_id=fields["boot"]["id"],
        boot=fields["boot"]["number"],
        sections=fields["sections"],
    )
    known = known.with_ceilings(
        (UUID(bytes=topic_id), partition, Ceiling(offset, boot))
        for topic_id, partition, offset, boot in fields["ceilings"]
    )
    return known.with_epochs(
        (UUID(bytes=topic_id), partition, epoch) for topic_id, partition, epoch in fields["epochs"]
    )

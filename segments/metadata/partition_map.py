"""An immutable map from topic and partition to something, of which a changed copy is cheap.

    bucket 0            bucket 1            ...  bucket 255          by the topic id's last byte
    {id: {0: x, 1: y}}  {id: {0: z}, id: {}}

Changing one entry copies one bucket and the partitions of one topic, of a wide one some of its
neighbours (wide_rows.py), not all of them: the state has 10,000 topics and changes with every
reservation of offsets.  A topic is in the map from `with_topics` on; rows of other topics are
passed over.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from .wide_rows import changed_rows

T = TypeVar("T")
Bucket: TypeAlias = dict[UUID, Mapping[int, T]]

BUCKETS: Final = 256


class PartitionMap(Mapping[UUID, Mapping[int, T]]):
    """Topic id -> partition -> value."""

    __slots__ = ("_buckets",)

    def __init__(self, buckets: "tuple[Bucket[T], ...] | None" = None) -> None:
        # Buckets are never changed, so the empty ones may all be the same one.
        self._buckets: tuple[Bucket[T], ...] = buckets or ({},) * BUCKETS

    @classmethod
    def of_topics(cls, topic_ids: Iterable[UUID]) -> "PartitionMap[T]":
        """These topics, without a value yet."""
        filled: dict[int, Bucket[T]] = {}
        for topic_id in topic_ids:
            filled.setdefault(topic_id.int % BUCKETS, {})[topic_id] = {}
        return cls()._with(filled)

    def __getitem__(self, topic_id: UUID) -> Mapping[int, T]:
        return self._buckets[topic_id.int % BUCKETS][topic_id]

    def __iter__(self) -> Iterator[UUID]:
        for bucket in filter(None, self._buckets):
            yield from bucket

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def with_topics(self, topic_ids: Iterable[UUID]) -> "PartitionMap[T]":
        """With these topics, which keep what they have."""
        changed: dict[int, Bucket[T]] = {}
        for topic_id in topic_ids:
            self._copied(topic_id, changed).setdefault(topic_id, {})
        return self._with(changed)

    def without_topics(self, topic_ids: Iterable[UUID]) -> "PartitionMap[T]":
        """Without anything of these topics."""
        changed: dict[int, Bucket[T]] = {}
        for topic_id in topic_ids:
            self._copied(topic_id, changed).pop(topic_id, None)
        return self._with(changed)

    def _copied(self, topic_id: UUID, changed: dict[int, Bucket[T]]) -> Bucket[T]:
        """The bucket of this topic among those that are changed."""
        place = topic_id.int % BUCKETS
        if place not in changed:
            changed[place] = dict(self._buckets[place])
        return changed[place]

    def with_rows(self, rows: Iterable[tuple[UUID, int, T]]) -> "PartitionMap[T]":
        """With these values, the last one of a partition; of topics that are in the map."""
        put: dict[UUID, dict[int, T]] = {}
        for topic_id, partition, value in rows:
            put.setdefault(topic_id, {})[partition] = value
        changed: dict[int, Bucket[T]] = {}
        for topic_id, some in put.items():
            if topic_id in self._buckets[topic_id.int % BUCKETS]:
                bucket = self._copied(topic_id, changed)
                bucket[topic_id] = changed_rows(bucket[topic_id], some)
        return self._with(changed) if changed else self

    def rows(self) -> Iterator[tuple[UUID, int, T]]:
        """Every value with its place."""
        for bucket in filter(None, self._buckets):
            for topic_id, values in bucket.items():
                for partition, value in values.items():
                    yield topic_id, partition, value

    def _with(self, changed: "dict[int, Bucket[T]]") -> "PartitionMap[T]":
        buckets = list(self._buckets)
        for place, bucket in changed.items():
            buckets[place] = bucket
        return PartitionMap(tuple(buckets))

"""The rows of one topic by partition: where there are many, a map of which a changed copy is cheap.

    {"0": x, "1": y}                                      a dict, below WIDE_MIN rows
    part 0                     part 390                   from there on
    {"0": x, ... "255": y} ... {"99840": z, ...}          256 neighbours each

What a group knows of a topic changes with each of its commits, what the broker knows with each
reservation of offsets, and what stood before stays: a copy of a hundred thousand rows was most of
what a commit of one took, and a start that applies ten thousand of them copied as often.  Whoever
holds rows may read them while the next are made.

Stored are plain dicts (`plain_rows`), which are taken up again at the start (`taken_up`).
"""

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, Final, Generic, TypeAlias, TypeVar

from .name_map import NameMap

K = TypeVar("K", bound=str | int)
"""A partition: where rows are stored, as a text."""
T = TypeVar("T")
Topics: TypeAlias = Mapping[str, Any]
"""By topic its id, and its rows by partition."""

WIDE_MIN: Final = 2_000
"""Rows below which they are copied as a whole: it takes less than what is left of a commit."""
_NEIGHBOURS: Final = 8
"""Bits of a partition's number that tell those of one part apart."""


class WideRows(Mapping[K, T]):
    """Partition -> row."""

    __slots__ = ("_count", "_parts")

    def __init__(self, parts: dict[int, dict[K, T]], count: int) -> None:
        """parts: never changed from here on, nor are they."""
        self._parts = parts
        self._count = count

    @classmethod
    def of(cls, rows: Mapping[K, T]) -> "WideRows[K, T]":
        """The same rows; nothing is copied if they are in such a map already."""
        return rows if isinstance(rows, WideRows) else cls({}, 0).changed(rows, ())

    def __getitem__(self, partition: K) -> T:
        return self._parts[int(partition) >> _NEIGHBOURS][partition]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._parts.values())

    def __len__(self) -> int:
        return self._count

    def items(self) -> ItemsView[K, T]:
        """As of any map, but that none of them is looked up."""
        return _Items(self)

    def values(self) -> ValuesView[T]:
        """As `items`."""
        return _Values(self)

    def parts(self) -> Iterator[Mapping[K, T]]:
        """All rows, some in each."""
        return iter(self._parts.values())

    def changed(self, put: Mapping[K, T], gone: Collection[K]) -> "WideRows[K, T]":
        """With these rows, and without those partitions."""
        parts, count = dict(self._parts), self._count
        copied: set[int] = set()

        def own(number: int) -> dict[K, T]:
            if number not in copied:
                copied.add(number)
                parts[number] = dict(parts.get(number, ()))
            return parts[number]

        for partition, row in put.items():
            part = own(int(partition) >> _NEIGHBOURS)
            count += partition not in part
            part[partition] = row
        for partition in gone:
            number = int(partition) >> _NEIGHBOURS
            if partition in parts.get(number, ()):
                del own(number)[partition]
                count -= 1
                if not parts[number]:
                    del parts[number]
                    copied.discard(number)
        return WideRows(parts, count)


class _Items(ItemsView[K, T]):
    """What collections.abc would make, without a look-up for each."""

    _mapping: WideRows[K, T]

    def __iter__(self) -> Iterator[tuple[K, T]]:
        return chain.from_iterable(part.items() for part in self._mapping.parts())


class _Values(ValuesView[T], Generic[K, T]):
    """The same of values alone."""

    _mapping: WideRows[K, T]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(part.values() for part in self._mapping.parts())


def changed_rows(
    rows: Mapping[K, T], put: Mapping[K, T], gone: Collection[K] = ()
) -> Mapping[K, T]:
    """With these rows, and without those partitions; `rows` stays as it is."""
    if len(rows) + len(put) >= WIDE_MIN:
        return WideRows.of(rows).changed(put, gone)
    changed = {**rows, **put}
    for partition in gone:
        changed.pop(partition, None)
    return changed


def taken_up(content: Mapping[str, Topics]) -> NameMap[Topics]:
    """Of groups by name, as they were stored: as they are kept in memory."""
    return NameMap.of(_with_rows(content.items(), lambda rows: len(rows) >= WIDE_MIN, WideRows.of))


def plain_rows(content: NameMap[Topics]) -> dict[str, Topics]:
    """Of groups by name: as it is stored, any rows a dict."""
    return _with_rows(content.entries(), lambda rows: type(rows) is not dict, dict)


def _with_rows(
    groups: Iterable[tuple[str, Topics]],
    is_meant: Callable[[Mapping[str, Any]], bool],
    made: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> dict[str, Topics]:
    """With those rows as they are made; topics that have none of them are the same object."""

    def those(topics: Topics) -> Topics:
        if not any(is_meant(rows) for _, rows in topics.values()):
            return topics
        return {
            topic: [topic_id, made(rows) if is_meant(rows) else rows]
            for topic, (topic_id, rows) in topics.items()
        }

    return {group: those(topics) for group, topics in groups}

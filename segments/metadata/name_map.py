"""An immutable map by name, of which a changed copy is cheap.

    bucket 0          bucket 1   ...  bucket 255          by the CRC-32 of the name
    {"a": x, "b": y}  {}              {"c": z}

Changing one entry copies one bucket and the tuple of them, not all entries: there are 10,000 groups
and each of their commits is a new state.  Whoever holds a map may read it while the next is made.

    draft = NameMap.of(content).draft()         a dict to change
    draft["a"] = 1; draft.pop("b", None)
    content = draft.done()                      the map after it; what `of` was given is as it was

A NameMap is stored as the plain dict that `plain` makes of it, and is made of that again by `of`
at the first change.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeVar
from zlib import crc32

T = TypeVar("T")

BUCKETS: Final = 256


def _place(name: str) -> int:
    return crc32(name.encode()) % BUCKETS


class NameMap(Mapping[str, T]):
    """Name -> value."""

    __slots__ = ("_buckets", "_count")

    def __init__(self, buckets: "tuple[dict[str, T], ...] | None" = None, count: int = 0) -> None:
        # Buckets are never changed, so the empty ones may all be the same one.
        self._buckets: tuple[dict[str, T], ...] = buckets or ({},) * BUCKETS
        self._count = count

    @classmethod
    def of(cls, content: Mapping[str, T] | None) -> "NameMap[T]":
        """The same entries; nothing is copied if they are in such a map already."""
        if isinstance(content, NameMap):
            return content
        draft = cls().draft()
        draft.update(content or {})
        return draft.done()

    def __getitem__(self, name: str) -> T:
        return self._buckets[_place(name)][name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._buckets[_place(name)]

    def __iter__(self) -> Iterator[str]:
        for bucket in filter(None, self._buckets):
            yield from bucket

    def __len__(self) -> int:
        return self._count

    def entries(self) -> Iterator[tuple[str, T]]:
        """As `items`, which looks each of them up: for who looks at all."""
        for bucket in self._buckets:
            yield from bucket.items()

    def draft(self) -> "Draft[T]":
        """To change a copy of it."""
        return Draft(self._buckets, self._count)


class Draft(MutableMapping[str, T]):
    """A NameMap that is being changed; the one it was made of stays as it is."""

    __slots__ = ("_buckets", "_copied", "_count")

    def __init__(self, buckets: tuple[dict[str, T], ...], count: int) -> None:
        self._buckets = list(buckets)
        self._copied: set[int] = set()
        self._count = count

    def __getitem__(self, name: str) -> T:
        return self._buckets[_place(name)][name]

    def __setitem__(self, name: str, value: T) -> None:
        bucket = self._own(name)
        self._count += name not in bucket
        bucket[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self._buckets[_place(name)]:
            raise KeyError(name)
        del self._own(name)[name]
        self._count -= 1

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._count

    def _own(self, name: str) -> dict[str, T]:
        """The bucket of this name, copied once."""
        place = _place(name)
        if place not in self._copied:
            self._copied.add(place)
            self._buckets[place] = dict(self._buckets[place])
        return self._buckets[place]

    def done(self) -> NameMap[T]:
        """The map as it is now; the draft is not used any more."""
        return NameMap(tuple(self._buckets), self._count)


def plain(content: Any) -> Any:  # noqa: ANN401  sections hold what their kinds of events like
    """As it is stored: any map as a dict, anything else as it is."""
    return dict(content) if isinstance(content, Mapping) else content

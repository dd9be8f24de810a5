"""What the caller says of a topic's partitions before they are known.

    subscribe --seek, pause, resume of what is not known--> said --the partitions are known--> so

A moment later the same words mean the same partitions; that they came first must not make them
nothing (records of a paused topic) or an error (a seek of a partition that is there).

Limit: what is said of each partition that a topic can have.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from .starting import Start


@dataclass(slots=True)
class _Said:
    is_paused: bool = False
    # Single partitions that are paused, or are not.
    otherwise: dict[int, bool] = field(default_factory=dict)
    starts: dict[int, Start] = field(default_factory=dict)


class Early:
    """See the module."""

    def __init__(self) -> None:
        self._topics: dict[str, _Said] = {}

    def keep(self, topics: Collection[str]) -> None:
        """Only these are read any more."""
        self._topics = {name: said for name, said in self._topics.items() if name in topics}

    def seek(self, topic: str, partition: int, start: Start) -> None:
        """Begin there."""
        self._said(topic).starts[partition] = start

    def pause(self, topic: str, partition: int | None, *, is_paused: bool) -> None:
        """Have one partition paused or not; None: all of them."""
        said = self._said(topic)
        if partition is None:
            said.is_paused = is_paused
            said.otherwise.clear()
        else:
            said.otherwise[partition] = is_paused

    def take(self, topic: str, count: int) -> tuple[dict[int, Start], set[int], int | None]:
        """The topic has so many partitions: where to begin in which, which are paused, and one that
        was named and is not there."""
        said = self._topics.pop(topic, None)
        if said is None:
            return {}, set(), None
        named = said.starts.keys() | said.otherwise.keys()
        paused = {p for p in range(count) if said.otherwise.get(p, said.is_paused)}
        starts = {p: start for p, start in said.starts.items() if p < count}
        return starts, paused, max((p for p in named if p >= count), default=None)

    def _said(self, topic: str) -> _Said:
        return self._topics.setdefault(topic, _Said())

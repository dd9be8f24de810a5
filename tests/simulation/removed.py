"""What was removed stays removed: of records, and of topics.

    log start    it is published when its row is synced: no later start begins a log below it
    topics       one that was deleted, as an administrator was told, is not there under its id

Looked at while the broker runs, in front of each end of it, behind each start, and on a copy of the
disk as the last crash left it, where nothing was deleted anew yet.

Of a topic that somebody has taken files of nothing is said: what tells of the start may be gone.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from segbroker.broker.core import Core

from .history import Final, History, Key
from .world import World


class Removed:
    """See the module."""

    def __init__(self, world: World, history: History) -> None:
        self._world = world
        self._history = history
        self._ids: dict[str, UUID] = {}
        self._starts: dict[tuple[UUID, int], int] = {}
        self._gone: set[UUID] = set()

    def look(self, core: Core) -> None:
        """What a broker has open."""
        now = {name: meta.topic_id for name, meta in core.topics.all.items()}
        self._ids |= now  # one that is going is told to be gone a little later
        self._are_gone(now.values())
        starts = {key: one.handler.log_start_offset for key, one in core.topics.served.items()}
        self._compare(starts)

    def recovered(self, found: Mapping[Key, Final]) -> None:
        """What a recovery of the disk has found, by topic and partition."""
        self._compare({key: final.start for key, final in found.items()})

    def deleted(self, topic: str) -> None:
        """The deletion of what has this name was acknowledged."""
        if (topic_id := self._ids.pop(topic, None)) is not None:
            self._gone.add(topic_id)

    def _are_gone(self, ids: Iterable[UUID]) -> None:
        for topic_id in self._gone.intersection(ids):
            self._world.lapse(f"back again: topic {topic_id}, which was deleted")

    def _compare(self, starts: Mapping[Key, int]) -> None:
        for (topic, partition), start in starts.items():
            promise = self._history.promises[topic]
            if topic not in self._ids or promise.doubted:
                continue
            key = self._ids[topic], partition
            before = self._starts.get(key, 0)
            if start < before:
                self._world.lapse(
                    f"back again: {topic}-{partition} begins at {start}, it began at {before}"
                )
            self._starts[key] = max(start, before)

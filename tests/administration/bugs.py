"""Bugs planted to prove that they are found: each a mistake that one could make in a line."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from segbroker.broker.groups.group_offsets import GroupOffsets
from segbroker.segments.directory.topic_registry import TopicRegistry
from segbroker.segments.metadata.committed import Offsets, offsets_of
from segbroker.segments.metadata.metadata_log import MetadataLog


@dataclass(frozen=True)
class Bug:
    """`seed` finds it."""

    name: str
    plant: Callable[[], AbstractContextManager[object]]
    seed: int


@contextmanager
def _not_followed() -> Iterator[None]:
    """Settings are stored, and the partitions that are open go by the old ones."""
    with patch.object(TopicRegistry, "_reconfigure", lambda *_: None):
        yield


@contextmanager
def _not_waited() -> Iterator[None]:
    """A change is answered before it is durable."""
    record_all = MetadataLog.record_all

    def hasty(self: MetadataLog, kind: str, several: Any) -> Any:  # noqa: ANN401
        if self._log is None:
            return record_all(self, kind, several)
        with self._order:
            events, payloads = self._next(kind, several)
            self._log.control(*payloads)
        return self._happened(events)

    with patch.object(MetadataLog, "record_all", hasty):
        yield


@contextmanager
def _id_not_asked() -> Iterator[None]:
    """Where a group stands goes by the name of a topic, whichever has it."""

    def offsets(self: GroupOffsets, group_id: str, topic: str, topic_id: UUID) -> Offsets:
        found = self._manager.committed.get(group_id, {}).get(topic)
        known = topic_id if found is None else UUID(bytes=bytes(found[0]))
        return offsets_of(self._manager.committed, group_id, topic, known)

    with patch.object(GroupOffsets, "offsets", offsets):
        yield


BUGS: Final = (
    Bug("not followed", _not_followed, 1),
    Bug("not waited", _not_waited, 1),
    Bug("id not asked", _id_not_asked, 2),
)

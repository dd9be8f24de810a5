"""What was removed and comes back is told."""

from types import SimpleNamespace
from typing import cast
from uuid import UUID

from segbroker.broker.core import Core

from .history import Final, History
from .removed import Removed
from .world import World

OLD, NEW = UUID(int=1), UUID(int=2)


def core_of(topic_id: UUID, start: int) -> Core:
    """A broker with one partition, which begins there."""
    served = {("t", 0): SimpleNamespace(handler=SimpleNamespace(log_start_offset=start))}
    topics = SimpleNamespace(all={"t": SimpleNamespace(topic_id=topic_id)}, served=served)
    return cast(Core, SimpleNamespace(topics=topics))


def test_a_log_that_begins_earlier_than_it_did_is_told() -> None:
    world = World(1)
    removed = Removed(world, History())
    for start in (3, 5, 5):
        removed.look(core_of(OLD, start))
    assert not world.violations
    removed.recovered({("t", 0): Final(4, 9, [])})
    removed.look(core_of(OLD, 0))
    assert [text.rpartition(": ")[2] for text in world.violations] == [
        "t-0 begins at 4, it began at 5",
        "t-0 begins at 0, it began at 5",
    ]


def test_a_deleted_topic_is_told_when_it_is_back_and_another_of_its_name_is_not() -> None:
    world = World(1)
    removed = Removed(world, History())
    removed.look(core_of(OLD, 5))
    removed.deleted("t")
    removed.look(core_of(NEW, 0))
    assert not world.violations
    removed.look(core_of(OLD, 5))
    assert [text.partition(": ")[2] for text in world.violations] == [
        f"back again: topic {OLD}, which was deleted"
    ]

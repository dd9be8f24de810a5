"""Rules of the client that are undone, to prove that what breaks them is found."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from segbroker.client.assigned import PartitionState
from segbroker.client.fetching import Fetching
from segbroker.client.group_commits import Commits
from segbroker.client.group_events import Events
from segbroker.client.group_reading import GroupReading
from segbroker.client.progress import Progress
from segbroker.client.reading import Reading


@dataclass(frozen=True)
class Bug:
    """`seed` finds it."""

    name: str
    plant: Callable[[], AbstractContextManager[object]]
    seed: int


def _replaced(of: type, name: str, new: object) -> Callable[[], AbstractContextManager[object]]:
    return lambda: patch.object(of, name, new)


def _in_hand_is_past(self: Progress, state: PartitionState) -> int | None:
    return self.position(state)


def _keeps_what_is_in_hand(self: Progress, tp: Any) -> None:  # noqa: ANN401
    """A seek, or a loss, leaves what was begun."""


def _any_may_go_on(self: Reading, tp: Any) -> bool:  # noqa: ANN401
    return True


def _nothing_is_held(self: GroupReading, partitions: Any, is_held: bool) -> None:  # noqa: ANN401
    if not is_held:
        self._fetching.notify()


def _all_are_own(self: Commits, offsets: Any, since: int, *, is_of_all: bool) -> Any:  # noqa: ANN401
    """Whoever has a partition by now."""
    return offsets


def _lost_is_not_told(self: GroupReading, partitions: Any) -> set[Any]:  # noqa: ANN401
    return set()


def _told_again(self: Events) -> set[Any]:
    return set()


def _nothing(*_: object, **__: object) -> None:
    """It is not done."""


def _no_offsets(*_: object) -> dict[Any, Any]:
    return {}


BUGS: Final = (
    Bug("in hand is past", _replaced(Progress, "gone_past", _in_hand_is_past), 2),
    Bug("begun goes on", _replaced(Progress, "sought", _keeps_what_is_in_hand), 3),
    Bug("paused goes on", _replaced(Reading, "_may_go_on", _any_may_go_on), 9),
    Bug("nothing is held", _replaced(GroupReading, "_hold", _nothing_is_held), 1),
    Bug("not own", _replaced(Commits, "_own", _all_are_own), 23),
    Bug("lost is not told", _replaced(GroupReading, "_to_hear_of", _lost_is_not_told), 1),
    Bug("prefetched stays", _replaced(Fetching, "_discard", _nothing), 2),
    Bug("no last commit", _replaced(Commits, "gone_past", _no_offsets), 8),
    Bug("void news is told", _replaced(Events, "withdraw", _nothing), 2),
    Bug("loop goes on", _replaced(Progress, "interrupt", _nothing), 52),
    Bug("told again", _replaced(Events, "being_told_gone", _told_again), 41),
)

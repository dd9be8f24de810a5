"""Rules of the shells that are undone, to prove that what breaks them is found."""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from segbroker.client import AsyncConsumer, Consumer
from segbroker.client.acknowledging import Kind
from segbroker.client.async_driver import AsyncDriver
from segbroker.client.share_reading import ShareReading
from segbroker.client.thread_driver import ThreadDriver
from segbroker.client.turns import Turns

from .programs import program


@dataclass(frozen=True)
class Bug:
    """A program of this kind with this act at this moment finds it."""

    name: str
    plant: Callable[[], AbstractContextManager[object]]
    kind: str
    moment: str
    act: str

    @property
    def number(self) -> int:
        """Of that program."""
        number = 0
        while program(number).acts != ((self.moment, self.act),) or self.kind not in str(
            program(number)
        ):
            number += 1
        return number


def _replaced(of: type, name: str, new: object) -> Callable[[], AbstractContextManager[object]]:
    return lambda: patch.object(of, name, new)


def _any_turn(self: Turns, before: int = 0) -> int:
    return 1


def _any_task(self: Any) -> None:  # noqa: ANN401
    self._is_busy = True


def _nothing(*_: object, **__: object) -> None:
    """It is not done."""


async def _nothing_async(*_: object, **__: object) -> None:
    """It is not done."""


@contextmanager
def _stays_open() -> Any:  # noqa: ANN401
    """A closed one says nothing of it."""
    whole = Consumer._next_records

    def records(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        return None if self._driver._thread is None else whole(self, *args, **options)

    with patch.object(Consumer, "_next_records", records):
        yield


BUGS: Final = (
    Bug("anybody's turn", _replaced(Turns, "begin", _any_turn), "reader", "beside", "poll"),
    Bug(
        "two tasks read",
        _replaced(AsyncConsumer, "_enter", _any_task),
        "classic",
        "assigned",
        "poll",
    ),
    Bug("no last word", _replaced(Consumer, "_tell_last", _nothing), "classic", "hand", "lag"),
    Bug("no goodbye", _replaced(ThreadDriver, "say_goodbye", _nothing), "classic", "hand", "lag"),
    Bug(
        "no async goodbye",
        _replaced(AsyncDriver, "say_goodbye", _nothing_async),
        "classic",
        "hand",
        "lag",
    ),
    Bug("closed is empty", _stays_open, "reader", "closed", "poll"),
)


@dataclass(frozen=True)
class ShareBug:
    """Of members of share groups: this seed finds it."""

    name: str
    plant: Callable[[], AbstractContextManager[object]]
    seed: int


@contextmanager
def _released_is_accepted() -> Any:  # noqa: ANN401
    whole = ShareReading.say

    def say(self: ShareReading, records: Any, kind: Kind) -> None:  # noqa: ANN401
        whole(self, records, Kind.ACCEPT if kind is Kind.RELEASE else kind)

    with patch.object(ShareReading, "say", say):
        yield


@contextmanager
def _in_hand_is_accepted() -> Any:  # noqa: ANN401
    whole = ShareReading.goodbye

    def goodbye(self: ShareReading, *, patient: bool) -> Any:  # noqa: ANN401
        self.came_back(self._seen_ms)
        return whole(self, patient=patient)

    with patch.object(ShareReading, "goodbye", goodbye):
        yield


SHARE_BUGS: Final = (
    ShareBug("released is accepted", _released_is_accepted, 4),
    ShareBug("in hand is accepted", _in_hand_is_accepted, 2),
    ShareBug("gone past is kept", _replaced(ShareReading, "_accept_shown", _nothing), 5),
)

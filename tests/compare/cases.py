"""The list of cases, filled by the modules cases_*.py as they are imported."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from segbroker.protocol.api_keys import ApiKey

from .stage import Stage

Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """One story told to both brokers.

    Attributes:
        key: the api it is about.
        run: tells it.
        first: lowest version that has what it needs.
    """

    key: ApiKey
    run: Play
    first: int

    @property
    def name(self) -> str:
        return self.run.__name__


CASES: Final[list[Case]] = []


def case(key: ApiKey, since: int = 0) -> Callable[[Play], Play]:
    """Add a case for every version of an api that both serve, from `since` on."""

    def add(run: Play) -> Play:
        CASES.append(Case(key, run, since))
        return run

    return add

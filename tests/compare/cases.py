"""The list of cases, filled by the modules cases_*.py as they are imported."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from segbroker.protocol.api_keys import ApiKey

from .stage import Stage

Play = Callable[[Stage], Awaitable[None]]
Halves = Callable[[Stage], AsyncGenerator[None, None]]
"""A story with a `yield` where the brokers are started again, or time goes by."""


class Ground(Enum):
    """How the brokers of a case are set up (brokers.py)."""

    OPEN = "open"
    """Everybody may do everything."""
    GUARDED = "guarded"
    """Who connects logs in, and access rules are in force; the case is told as a super user."""
    RESTARTED = "restarted"
    """The brokers are started again in the middle of every case."""
    BRIEF = "brief"
    """What is kept for long elsewhere is old after half a minute, or one; it is waited for in the
    middle of every case."""
    STORIES = "stories"
    """Access rules are in force, and everybody is a super user; nothing waits on purpose: for
    stories drawn at random."""


@dataclass(frozen=True)
class Case:
    """One story told to both brokers.

    Attributes:
        key: the api it is about.
        run: tells it.
        first: lowest version that has what it needs.
        ground: on which brokers.
        ends: only in the lowest and the highest version.
    """

    key: ApiKey
    run: Play
    first: int
    ground: Ground = Ground.OPEN
    ends: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__


@dataclass(frozen=True)
class Broken:
    """A story with a break, told in the highest version that both serve.

    Attributes:
        key: the api it is about.
        halves: tells it.
        ground: what the break is.
    """

    key: ApiKey
    halves: Halves
    ground: Ground

    @property
    def name(self) -> str:
        return self.halves.__name__


CASES: Final[list[Case]] = []
BROKEN: Final[list[Broken]] = []


def case(
    key: ApiKey, since: int = 0, ground: Ground = Ground.OPEN, *, ends: bool = False
) -> Callable[[Play], Play]:
    """Add a case for every version of an api that both serve, from `since` on."""

    def add(run: Play) -> Play:
        CASES.append(Case(key, run, since, ground, ends))
        return run

    return add


def broken(key: ApiKey, *grounds: Ground) -> Callable[[Halves], Halves]:
    """Add a case with a break, for each of these kinds of break."""

    def add(halves: Halves) -> Halves:
        BROKEN.extend(Broken(key, halves, ground) for ground in grounds)
        return halves

    return add

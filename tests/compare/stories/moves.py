"""The moves of stories: each is drawn as plain values, and played on a scene."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import SERVED, ApiKey

from .scene import Scene

Draw = Callable[[Random], dict[str, Any]]
Play = Callable[..., Awaitable[None]]


@dataclass(frozen=True)
class Step:
    """One move of a story.

    Attributes:
        move: its name.
        says: what was drawn for it.
    """

    move: str
    says: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.move}({', '.join(f'{name}={value!r}' for name, value in self.says.items())})"


Story = tuple[Step, ...]


@dataclass(frozen=True)
class Move:
    """A kind of step.

    Attributes:
        theme: which stories make it: "transactions", "groups", "shares", "topics" or "cluster".
        weight: how often, beside the others of its theme.
        draw: draws what the step says.
        play: plays that on a scene.
    """

    theme: str
    weight: int
    draw: Draw
    play: Play


MOVES: Final[dict[str, Move]] = {}


def move(theme: str, weight: int, draw: Draw) -> Callable[[Play], Play]:
    """Add a move; its name is that of the function that plays it."""

    def add(play: Play) -> Play:
        MOVES[play.__name__] = Move(theme, weight, draw, play)
        return play

    return add


def step(random: Random, name: str, **fixed: Any) -> Step:
    """A step of this name, drawn but for what is fixed."""
    return Step(name, MOVES[name].draw(random) | fixed)


async def played(scene: Scene, one: Step) -> None:
    """Play a step."""
    await MOVES[one.move].play(scene, **one.says)


def version(random: Random, key: ApiKey, first: int = 0) -> int:
    """A version of a request; the newest of them half of the time."""
    span = SERVED[key]
    return span.max if random.random() < 0.5 else random.randint(max(span.min, first), span.max)


def mostly(random: Random, usual: Any, *others: Any, unusual: float = 0.12) -> Any:
    """The usual value, or seldom another one."""
    return random.choice(others) if random.random() < unusual else usual

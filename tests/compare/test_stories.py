"""Stories drawn at random: the same for the same seed, and the same on two brokers alike."""

from typing import Any

import pytest

from ..broker.conftest import serving
from .stories import telling
from .stories.moves import MOVES
from .stories.plots import drawn
from .stories.telling import Two

SETTINGS: dict[str, Any] = {
    "authorizer": "acl",
    "super_users": "User:ANONYMOUS",
    "group_initial_rebalance_delay_ms": 0,
    "group_streams_initial_rebalance_delay_ms": 0,
}


def test_a_seed_is_a_story_and_another_one_another() -> None:
    assert drawn(7, 30) == drawn(7, 30)
    assert drawn(7, 30) != drawn(8, 30)


def test_every_move_is_made_in_some_story() -> None:
    made = {step.move for seed in range(60) for step in drawn(seed, 40)}
    assert made == MOVES.keys()


@pytest.mark.parametrize("seed", range(3))
async def test_two_brokers_alike_answer_a_story_alike(seed: int) -> None:
    async with serving(**SETTINGS) as one, serving(**SETTINGS) as other:
        pair = Two(one.address, other.address)
        ended, answers = await telling.told(pair, drawn(seed, 25))
        assert ended is None, ended
        assert answers > 40

"""Async clients whose calls are cancelled at places that are drawn, while connections are cut.

Nothing that was acknowledged is missing, nothing is there twice, nothing that was committed comes
again; no task and no socket is left; each call ends.  More of it: `python -m tests.soak.cut_short`.
"""

from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from .conftest import Run
from .cut_short import Cutter, Faults, World, world
from .cut_short_consumers import member_story, reader_story, share_story
from .cut_short_producers import producer_story, transaction_story

Story = Callable[[World, str, int, Faults], Awaitable[Cutter]]

STORIES: list[Story] = [
    producer_story,
    transaction_story,
    reader_story,
    member_story,
    share_story,
]
SEEDS = 2


@pytest.fixture(scope="module")
def of_stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("cut-short")) as made:
        yield made


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("story", STORIES)
def test_a_client_keeps_its_promises_whatever_cuts_its_calls_short(
    run: Run, of_stories: World, topic: str, story: Story, seed: int
) -> None:
    of_stories.make_topic(topic)
    run(story, of_stories, topic, seed, Faults(of_stories, Random(seed)))

"""Async clients whose calls are cancelled at places that are drawn, while connections are cut.

Nothing that was acknowledged is missing, nothing is there twice, nothing that was committed comes
again; no task and no socket is left; each call ends.  More of it: `python -m tests.soak.cut_short`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from random import Random

import anyio
import pytest

from segbroker.client import Admin, AsyncConsumer, AsyncProducer, AsyncShareConsumer

from .conftest import Run
from .cut_short import Cutter, Faults, World, world
from .cut_short_consumers import fill, member_story, reader_story, share_story
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


Act = Callable[[], Awaitable[object]]


@asynccontextmanager
async def about_to_await(world: World, topic: str) -> AsyncIterator[Act]:
    async with AsyncProducer(world.address) as producer:
        await (await producer.send(topic, b"first"))

        async def act() -> None:
            await (await producer.send(topic, b"v"))

        yield act


@asynccontextmanager
async def about_to_flush(world: World, topic: str) -> AsyncIterator[Act]:
    async with AsyncProducer(world.address) as producer:
        await (await producer.send(topic, b"first"))

        async def act() -> None:
            await producer.send(topic, b"v")
            await producer.flush()

        yield act


@asynccontextmanager
async def about_to_end(world: World, topic: str) -> AsyncIterator[Act]:
    async with AsyncProducer(world.address, transactional_id=topic) as producer:
        transaction = producer.transaction()
        await transaction.__aenter__()
        await (await producer.send(topic, b"v"))
        yield partial(transaction.__aexit__, None, None, None)


@asynccontextmanager
async def about_to_commit(world: World, topic: str) -> AsyncIterator[Act]:
    fill(world, topic, Random(0))
    async with AsyncConsumer(world.address, topic, group=topic, auto_commit=False) as consumer:
        while not await consumer.poll():
            pass
        yield consumer.commit


@asynccontextmanager
async def about_to_accept(world: World, topic: str) -> AsyncIterator[Act]:
    fill(world, topic, Random(0))
    with Admin(world.address) as admin:
        admin.alter_share_offsets(topic, {(topic, 0): 0, (topic, 1): 0})
    async with AsyncShareConsumer(world.address, topic, group=topic) as consumer:
        while not await consumer.poll():
            pass
        yield consumer.commit


@pytest.mark.parametrize(
    "about", [about_to_await, about_to_flush, about_to_end, about_to_commit, about_to_accept]
)
def test_nothing_is_done_that_the_broker_has_not_heard_of(
    run: Run,
    of_stories: World,
    topic: str,
    about: Callable[[World, str], AbstractAsyncContextManager[Act]],
) -> None:
    async def main() -> None:
        async with about(of_stories, topic) as act:
            of_stories.proxy.hold()
            try:
                with anyio.move_on_after(0.1) as scope:
                    await act()
            finally:
                of_stories.proxy.release()
            assert scope.cancelled_caught

    of_stories.make_topic(topic)
    run(main)

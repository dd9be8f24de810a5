"""Async clients that nobody refers to any more, and that nobody has closed: they end by themselves.

As in a notebook whose cell is run once more.  Those that block: tests/client/test_groups.py.
"""

import asyncio
import gc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator

import anyio
import pytest
import trio

from segbroker.client import Admin, AsyncConsumer, AsyncProducer, AsyncShareConsumer, Consumer

from ..support.daemon import Daemon
from ..support.waiting import DEADLINE_S
from .conftest import Run
from .test_own_tasks import Client, Make, living, make, topic, use

__all__ = ["make", "topic"]  # fixtures


@pytest.fixture
def said() -> Iterator[list[warnings.WarningMessage]]:
    """What was warned of that was not closed."""
    gc.collect()  # what other tests have left
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        yield told


async def opened(client: Client) -> list[Client]:
    """Alone in its list."""
    await client.__aenter__()
    await use(client)
    if isinstance(client, AsyncConsumer | AsyncShareConsumer):
        while not client.assignment:
            await client.poll(timeout_ms=10)
    if isinstance(client, AsyncProducer):
        await client.send("forgotten", repr(id(client)).encode())
    return [client]


@pytest.mark.parametrize("where", ["here", "in another thread"])
def test_a_client_that_nobody_refers_to_any_more_ends_by_itself(
    run: Run,
    daemon: Daemon,
    topic: str,
    make: Make,
    where: str,
    said: list[warnings.WarningMessage],
) -> None:
    """It leaves its group, and delivers what it was given."""
    sent: list[bytes] = []

    async def main() -> None:
        before = living()
        with anyio.fail_after(DEADLINE_S):
            client = await opened(make(daemon.address, topic))
            sent.append(repr(id(client[0])).encode())
            if where == "here":
                client.clear()
            else:
                thread = threading.Thread(target=client.clear)
                thread.start()
                thread.join(DEADLINE_S)
            while living() > before:  # noqa: ASYNC110 - nothing tells of it
                await anyio.sleep(0.01)

    run(main)
    (one,) = said
    assert "was not closed" in str(one.message)
    with Admin(daemon.address) as admin:
        groups = [group.group_id for group in admin.list_groups() if topic in group.group_id]
        assert not any(admin.describe_group(group).members for group in groups)
    if "AsyncProducer" in str(one.message):
        with Consumer(daemon.address, "forgotten", stop_at_end=True) as consumer:
            assert sent[0] in [record.value for record in consumer]


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_client_that_is_forgotten_with_its_event_loop_says_so_and_leaves_nothing(
    daemon: Daemon,
    topic: str,
    make: Make,
    backend: str,
    said: list[warnings.WarningMessage],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one of a function that was the last."""

    async def main() -> None:
        client = await opened(make(daemon.address, topic))
        assert client

    with caplog.at_level(logging.ERROR):
        asyncio.run(main()) if backend == "asyncio" else trio.run(main)
        gc.collect()
    assert ["was not closed" in str(one.message) for one in said] == [True]
    assert not caplog.records


def test_a_client_that_is_forgotten_behind_its_event_loop_hinders_nobody(
    daemon: Daemon, topic: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[Callable[..., object]] = [asyncio.run, lambda main: trio.run(lambda: main)]
    # Each in a group of its own: what the first has left stays a member to the end of its session.
    for number, run in enumerate(runs):
        clients: list[Client] = []
        name = f"{topic}-{number}"
        with Admin(daemon.address) as admin:
            admin.create_topic(name, partitions=1)

        async def main(clients: list[Client] = clients, name: str = name) -> None:
            clients += await opened(make(daemon.address, name))

        with caplog.at_level(logging.ERROR), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of its sockets, by Python
            run(main())
            clients.clear()
            gc.collect()
    assert not caplog.records


def test_a_client_that_was_closed_asks_nothing_of_its_event_loop_any_more(
    daemon: Daemon, topic: str, make: Make, said: list[warnings.WarningMessage]
) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        clients = await opened(make(daemon.address, topic))
        await clients[0].aclose()
        clients.clear()
        gc.collect()
        for _ in range(3):
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before

    asyncio.run(main())
    assert not said

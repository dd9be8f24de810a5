"""What an event loop does to a client that is open when it ends, is left, or is no longer the one.

Each way is a program's, none of them a wait without end.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
import trio

from segbroker.client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClosedError,
    Producer,
    RecordMetadata,
)

from ..support.daemon import Daemon
from ..support.waiting import DEADLINE_S
from .test_own_tasks import Client, Make, close, living, make, topic, use

__all__ = ["make", "topic"]  # fixtures

# Cancelled with its own tasks.


async def sends(client: Client, topic: str) -> None:
    assert isinstance(client, AsyncProducer)
    await client.send(topic, b"v")
    await client.flush()


async def awaits_a_delivery(client: Client, topic: str) -> None:
    assert isinstance(client, AsyncProducer)
    await (await client.send(topic, b"v"))


async def asks(client: Client, topic: str) -> None:
    assert isinstance(client, AsyncAdmin)
    await client.describe_topic(topic)


async def reads(client: Client, topic: str) -> None:
    assert not isinstance(client, AsyncAdmin | AsyncProducer)
    with anyio.fail_after(DEADLINE_S):
        while not await client.poll(timeout_ms=DEADLINE_S * 1000):
            pass


async def commits(client: Client, topic: str) -> None:
    assert isinstance(client, AsyncConsumer)
    await reads(client, topic)
    await client.commit()


WAYS: dict[str, tuple[Make, Callable[[Client, str], Awaitable[None]]]] = {
    "sends": (lambda address, topic: AsyncProducer(address, linger_ms=600_000), sends),
    "delivered": (
        lambda address, topic: AsyncProducer(address, linger_ms=600_000),
        awaits_a_delivery,
    ),
    "asks": (lambda address, topic: AsyncAdmin(address), asks),
    "reads": (lambda address, topic: AsyncConsumer(address, topic), reads),
    "commits": (lambda address, topic: AsyncConsumer(address, topic, group=topic), commits),
}


@pytest.mark.parametrize("turn", ["first", "last", "later", "never"])
@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_is_cancelled_with_those_of_its_client_may_use_it_to_its_end(
    daemon: Daemon, topic: str, way: str, turn: str
) -> None:
    """As by the end of asyncio.run, in any order."""
    made, does = WAYS[way]
    with Producer(daemon.address) as producer:
        producer.send(topic, b"there").result(DEADLINE_S)

    async def work(is_open: asyncio.Event, is_over: asyncio.Event) -> None:
        async with made(daemon.address, topic) as client:
            await use(client)
            is_open.set()
            with suppress(asyncio.CancelledError):
                await is_over.wait()
            await does(client, topic)

    async def main() -> None:
        before = asyncio.all_tasks()
        is_open, is_over = asyncio.Event(), asyncio.Event()
        worker = asyncio.create_task(work(is_open, is_over))
        await is_open.wait()
        own = asyncio.all_tasks() - before - {worker}
        assert own
        if turn == "first":
            worker.cancel()
        for task in own:
            task.cancel()
        if turn == "last":
            worker.cancel()
        await asyncio.wait(own)
        if turn == "later":
            worker.cancel()
        is_over.set()
        done, _ = await asyncio.wait({worker}, timeout=DEADLINE_S)
        assert done, "it waits"
        await worker
        assert asyncio.all_tasks() == before

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_who_awaits_a_delivery_hears_of_it_though_the_tasks_of_its_client_were_cancelled(
    daemon: Daemon, topic: str, count: int
) -> None:
    """As by a program that cancels all tasks but some, at its end."""

    async def work(producer: AsyncProducer) -> list[RecordMetadata]:
        if count == 1:
            return [await (await producer.send(topic, b"v"))]
        return await (await producer.send_many(topic, [b"v"] * count))

    async def main() -> None:
        before = asyncio.all_tasks()
        async with AsyncProducer(daemon.address, linger_ms=0) as producer:
            await producer.partitions_for(topic)
            own = asyncio.all_tasks() - before
            os.kill(daemon.process.pid, signal.SIGSTOP)
            try:
                worker = asyncio.create_task(work(producer))
                await anyio.wait_all_tasks_blocked()
                for task in own:
                    task.cancel()
                await asyncio.wait(own)
            finally:
                os.kill(daemon.process.pid, signal.SIGCONT)
            async with asyncio.timeout(DEADLINE_S):
                assert len(await worker) == count
        assert asyncio.all_tasks() == before

    asyncio.run(main())


# In the middle of its end.


def test_ctrl_c_in_the_middle_of_an_end_leaves_nothing(
    daemon: Daemon, topic: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of trio, which raises it wherever the main task is."""

    async def main() -> None:
        before = living()
        client = make(daemon.address, topic)
        await client.__aenter__()
        await use(client)
        network = client._driver.engine.network
        end = network.close

        def interrupted(now_ms: int) -> None:
            signal.raise_signal(signal.SIGINT)
            end(now_ms)

        monkeypatch.setattr(network, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await client.aclose()
        assert living() == before
        await close(client)

    trio.run(main)


# Another loop than its own.


def test_another_loop_of_the_thread_is_told_that_the_client_is_not_its_own(
    daemon: Daemon, topic: str, make: Make
) -> None:
    """As where a fixture has a loop for the session, and a test one of its own."""
    loop = asyncio.new_event_loop()
    client = make(daemon.address, topic)

    async def elsewhere() -> None:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ClosedError, match="another event loop"):
                await use(client)
            with pytest.raises(ClosedError, match="another event loop"):
                await client.aclose()

    try:
        loop.run_until_complete(client.__aenter__())
        asyncio.run(elsewhere())
        loop.run_until_complete(use(client))
        loop.run_until_complete(close(client))
    finally:
        loop.close()


def test_a_client_runs_in_a_run_of_trio_that_is_a_guest_of_asyncio(
    daemon: Daemon, topic: str, make: Make
) -> None:
    async def guest() -> None:
        before = living()
        async with make(daemon.address, topic) as client:
            await use(client)
        assert living() == before

    async def host() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
        )
        (await ended).unwrap()

    asyncio.run(host())

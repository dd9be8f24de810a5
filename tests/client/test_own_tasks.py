"""Where and when an async client is opened and closed is the program's: its tasks are in no group
of the caller's.

Each way is shown on trio and on asyncio; none leaves a task behind.
"""

import asyncio
import gc
import logging
import os
import signal
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    ClosedError,
    Consumer,
    SegbrokerError,
)

from ..support.daemon import Daemon
from ..support.waiting import DEADLINE_S
from .conftest import Run
from .test_oauth import by

Client = AsyncProducer | AsyncConsumer[Any] | AsyncShareConsumer[Any] | AsyncAdmin
Make = Callable[[str, str], Client]

MAKE: dict[str, Make] = {
    "producer": lambda address, topic: AsyncProducer(address),
    "consumer": lambda address, topic: AsyncConsumer(address, topic, group=topic),
    "sharer": lambda address, topic: AsyncShareConsumer(address, topic, group=f"{topic}-shared"),
    "admin": lambda address, topic: AsyncAdmin(address),
}


@pytest.fixture
def topic(daemon: Daemon, topic: str) -> str:
    """One that exists: who works on it is not told otherwise, however long that takes."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    return topic


@pytest.fixture(params=MAKE)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKE[request.param]


def living() -> int:
    """How many tasks the loop has."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return trio.lowlevel.current_statistics().tasks_living


async def use(client: Client) -> None:
    if isinstance(client, AsyncAdmin):
        await client.list_topics()
    elif isinstance(client, AsyncProducer):
        await (await client.send("own-tasks", b"v"))
    else:
        await client.poll(timeout_ms=0)


async def close(client: Client) -> None:
    await client.aclose()
    assert repr(client).endswith(", closed>")


# In whose scope.


async def closed_in_a_scope(client: Client) -> None:
    async with client:
        with anyio.move_on_after(DEADLINE_S) as scope:
            await use(client)
            await close(client)
        assert not scope.cancelled_caught


async def closed_in_a_group(client: Client) -> None:
    async with client, anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.lowlevel.checkpoint)
        await close(client)
        tasks.start_soon(anyio.lowlevel.checkpoint)


async def opened_in_a_scope_that_ends_before(client: Client) -> None:
    with anyio.fail_after(DEADLINE_S):
        await client.__aenter__()
    await use(client)
    await close(client)


async def opened_in_a_group_that_ends_before(client: Client) -> None:
    async with anyio.create_task_group() as tasks:
        await client.__aenter__()
        tasks.start_soon(use, client)
    await use(client)
    await close(client)


async def opened_in_a_scope_that_is_cancelled_before(client: Client) -> None:
    with anyio.CancelScope() as scope:
        await client.__aenter__()
        scope.cancel()
        await anyio.sleep_forever()
    await use(client)
    await close(client)


async def closed_by_a_stack_that_is_left_elsewhere(client: Client) -> None:
    stack = AsyncExitStack()
    with anyio.fail_after(DEADLINE_S):
        await stack.enter_async_context(client)
    with anyio.fail_after(DEADLINE_S):
        await stack.aclose()


async def opened_by_a_task_that_ends_closed_by_another(client: Client) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.__aenter__)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use, client)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close, client)


async def opened_by_a_task_that_goes_on_closed_by_another(client: Client) -> None:
    is_open, is_closed = anyio.Event(), anyio.Event()

    async def opener() -> None:
        await client.__aenter__()
        is_open.set()
        await is_closed.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opener)
        await is_open.wait()
        await use(client)
        await close(client)
        is_closed.set()


@pytest.mark.parametrize(
    "way",
    [
        closed_in_a_scope,
        closed_in_a_group,
        opened_in_a_scope_that_ends_before,
        opened_in_a_group_that_ends_before,
        opened_in_a_scope_that_is_cancelled_before,
        closed_by_a_stack_that_is_left_elsewhere,
        opened_by_a_task_that_ends_closed_by_another,
        opened_by_a_task_that_goes_on_closed_by_another,
    ],
)
def test_a_client_is_opened_and_closed_in_any_scope_and_task(
    run: Run, daemon: Daemon, topic: str, make: Make, way: Callable[[Client], Awaitable[None]]
) -> None:
    async def main() -> None:
        before = living()
        await way(make(daemon.address, topic))
        assert living() == before
        await anyio.lowlevel.checkpoint()  # the loop goes on

    run(main)


def test_clients_are_closed_in_any_order(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        before = living()
        clients = [make(daemon.address, topic) for make in MAKE.values()]
        for client in clients:
            await client.__aenter__()
        for client in clients:
            await use(client)
            await close(client)
        assert living() == before

    run(main)


def test_both_of_two_tasks_that_close_a_client_find_it_closed(
    run: Run, daemon: Daemon, topic: str, make: Make
) -> None:
    async def main() -> None:
        before = living()
        client = make(daemon.address, topic)

        async def end() -> None:
            await close(client)
            ended.append(living())

        ended: list[int] = []
        await client.__aenter__()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            tasks.start_soon(end)
        assert ended
        assert max(ended) <= before + 2
        assert living() == before

    run(main)


# Cancelled.


def test_who_is_cancelled_while_it_opens_leaves_nothing(run: Run, topic: str, make: Make) -> None:
    async def main() -> None:
        before = living()
        client = make("127.0.0.1:1", topic)
        with anyio.move_on_after(0.05) as scope:
            await client.__aenter__()
        assert scope.cancelled_caught
        assert living() == before
        assert repr(client).endswith(", closed>")
        await client.aclose()
        client = make("127.0.0.1:1", topic)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await client.__aenter__()
        assert scope.cancelled_caught
        assert living() == before

    run(main)


def test_who_is_cancelled_while_it_closes_leaves_nothing(
    run: Run, daemon: Daemon, topic: str, make: Make
) -> None:
    async def main() -> None:
        before = living()
        client = make(daemon.address, topic)
        await client.__aenter__()
        await use(client)
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            if isinstance(client, AsyncProducer):
                await client.send("own-tasks", b"not answered")
            with anyio.move_on_after(0.05):
                await client.aclose()
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        assert living() == before
        assert repr(client).endswith(", closed>")
        await client.aclose()

    run(main)


def test_a_block_in_a_scope_that_is_cancelled_leaves_nothing(
    run: Run, daemon: Daemon, topic: str, make: Make
) -> None:
    async def main() -> None:
        before = living()
        with anyio.CancelScope() as scope:
            async with make(daemon.address, topic) as client:
                await use(client)
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert living() == before

    run(main)


def test_a_timeout_of_asyncio_ends_a_client(daemon: Daemon, topic: str, make: Make) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), make("127.0.0.1:1", topic):
                raise AssertionError("nobody is there")
        with pytest.raises(TimeoutError):  # noqa: PT012
            async with asyncio.timeout(None) as limit, make(daemon.address, topic) as client:
                await use(client)
                limit.reschedule(0)
                await asyncio.sleep(DEADLINE_S)
        client = make(daemon.address, topic)
        async with asyncio.timeout(DEADLINE_S):
            await client.__aenter__()
        async with asyncio.timeout(DEADLINE_S):
            await client.aclose()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(make("127.0.0.1:1", topic).__aenter__(), 0.05)
        assert len(asyncio.all_tasks()) == 1
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    asyncio.run(main())


# What fails, and Ctrl-C.


@pytest.mark.parametrize("wait", ["flush", "poll", "offsets"])
def test_a_failure_of_its_own_tasks_ends_a_client_and_whoever_waits_hears_of_it(
    run: Run, daemon: Daemon, topic: str, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody else: no other client, nor task."""
    heard: list[str] = []

    async def hear(client: Any) -> None:  # noqa: ANN401 - any that has it
        with pytest.raises(SegbrokerError) as caught:
            await {
                "flush": lambda: client.flush(),
                "poll": lambda: client.poll(timeout_ms=DEADLINE_S * 1000),
                "offsets": lambda: client.position(topic, 0),
            }[wait]()
        heard.append(str(caught.value))

    def broken() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        before = living()
        client: Any = (
            AsyncProducer(daemon.address, linger_ms=60_000)
            if wait == "flush"
            else AsyncConsumer(daemon.address, topic)
        )
        async with AsyncAdmin(daemon.address) as other:
            await client.__aenter__()
            await client.partitions_for(topic)
            os.kill(daemon.process.pid, signal.SIGSTOP)
            try:
                if wait == "flush":
                    await client.send(topic, b"never answered")
                if wait == "offsets":
                    client.seek(topic, 0, "end")  # only an answer says where that is
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(hear, client)
                    await anyio.wait_all_tasks_blocked()
                    monkeypatch.setattr(client._driver, "pump", broken)
                    client._driver.wake_by(0)
            finally:
                os.kill(daemon.process.pid, signal.SIGCONT)
            with pytest.raises(SegbrokerError, match="bug in the client: ZeroDivisionError"):
                await client.partitions_for(topic)
            with pytest.raises(SegbrokerError, match="bug in the client: ZeroDivisionError"):
                await client.aclose()
            await client.aclose()
            with pytest.raises(ClosedError, match="was closed"):
                await client.partitions_for(topic)
            await other.list_topics()
        assert living() == before

    run(main)
    assert len(heard) == 1
    assert "ZeroDivisionError" in heard[0]


def test_ctrl_c_that_comes_while_its_own_task_runs_ends_the_block(
    daemon: Daemon, topic: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of trio; asyncio cancels the main task."""
    behind: list[int] = []

    async def main() -> None:
        before = living()
        client = make(daemon.address, topic)
        try:
            async with client:
                await use(client)
                driver = client._driver
                pump = driver.pump

                def interrupted() -> None:
                    monkeypatch.setattr(driver, "pump", pump)
                    os.kill(os.getpid(), signal.SIGINT)
                    pump()

                monkeypatch.setattr(driver, "pump", interrupted)
                driver.wake_by(0)
                await trio.sleep_forever()
        finally:
            behind.append(living() - before)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert behind == [0]


def test_its_own_tasks_have_the_variables_of_who_opened_it_and_may_close_it(run: Run) -> None:
    """As a provider of tokens, which is awaited in them."""
    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen: list[str] = []
    closed: list[str] = []

    async def main() -> None:
        before = living()

        async def token() -> str:
            seen.append(who.get())
            await client.aclose()
            closed.append(repr(client))
            return "never used"

        client = AsyncAdmin("127.0.0.1:1", security=by(token))
        who.set("opener")
        with anyio.fail_after(DEADLINE_S):
            with pytest.raises(ClosedError):
                await client.__aenter__()
            await client.aclose()
        assert living() == before

    run(main)
    assert seen == ["opener"]
    assert closed[0].endswith(", closed>")


# At the end of a loop.


def test_a_client_that_a_run_of_trio_has_left_open_says_so(
    daemon: Daemon, topic: str, make: Make
) -> None:
    client = make(daemon.address, topic)

    async def first() -> None:
        await client.__aenter__()
        await use(client)

    async def second() -> None:
        with trio.fail_after(DEADLINE_S):
            with pytest.raises(ClosedError, match="event loop that it was opened in has ended"):
                await use(client)
            if isinstance(client, AsyncProducer):
                with pytest.raises(ClosedError, match="event loop"):
                    await client.aclose()
            await client.aclose()
        assert repr(client).endswith(", closed>")

    gc.collect()  # what other tests have left
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trio.run(first)
        trio.run(second)
        gc.collect()
    assert [str(one.message) for one in said] == []


COUNT = 50


async def sending(address: str, topic: str) -> AsyncGenerator[int, None]:
    async with AsyncProducer(address, linger_ms=60_000) as producer:
        for number in range(1_000):
            await producer.send(topic, b"%d" % number, partition=0)
            yield number


async def left_half_way(numbers: AsyncGenerator[int, None]) -> None:
    async for number in numbers:
        if number == COUNT - 1:
            break


def test_what_an_async_generator_has_sent_is_delivered_at_the_end_of_its_loop(
    daemon: Daemon, topic: str
) -> None:
    """asyncio.run ends it when it has cancelled all tasks, those of the client, too."""
    numbers = sending(daemon.address, topic)
    asyncio.run(left_half_way(numbers))
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        assert len(list(consumer)) == COUNT


def test_what_an_async_generator_has_not_delivered_at_the_end_of_trios_run_is_said(
    daemon: Daemon, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """trio lets it wait for nothing."""
    numbers = sending(daemon.address, topic)
    with caplog.at_level(logging.ERROR):
        trio.run(left_half_way, numbers)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ClosedError)
    assert f"{COUNT} records were not delivered" in record.exc_info[1].__notes__[0]


@pytest.mark.parametrize("way", ["generator", "task"])
def test_a_member_that_the_end_of_asyncios_loop_meets_leaves_its_group(
    daemon: Daemon, topic: str, way: str
) -> None:
    kept: list[object] = []

    async def reading() -> AsyncGenerator[object, None]:
        async with AsyncConsumer(daemon.address, topic, group=topic) as consumer:
            while True:
                await consumer.poll(timeout_ms=10)
                yield consumer.assignment

    async def read(is_member: asyncio.Event) -> None:
        async with aclosing(reading()) as polls:
            async for assignment in polls:
                if assignment:
                    is_member.set()

    async def main() -> None:
        if way == "generator":
            polls = reading()
            kept.append(polls)
            async for assignment in polls:
                if assignment:
                    break
        else:
            is_member = asyncio.Event()
            kept.append(asyncio.create_task(read(is_member)))
            await is_member.wait()

    asyncio.run(main())
    with Admin(daemon.address) as admin:
        assert not admin.describe_group(topic).members


@pytest.mark.parametrize("turns", range(8))
def test_what_is_closed_while_its_cut_tasks_are_about_to_go_on_leaves_nothing(
    daemon: Daemon, topic: str, turns: int
) -> None:
    """They go on for a task that waits; one of these numbers of turns is just between."""

    async def main() -> None:
        before = asyncio.all_tasks()
        consumer = AsyncConsumer(daemon.address, topic)
        await consumer.__aenter__()
        own = asyncio.all_tasks() - before
        waiting = asyncio.create_task(consumer.end_offsets((topic, 0)))
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(0)
            for task in own:
                task.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            await consumer.aclose()
            with pytest.raises(ClosedError):
                await waiting
            for _ in range(5):
                await asyncio.sleep(0)
            assert asyncio.all_tasks() == before
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)

    asyncio.run(main())


@pytest.fixture
async def administrator(daemon: Daemon) -> AsyncGenerator[AsyncAdmin, None]:
    admin = AsyncAdmin(daemon.address)
    with trio.fail_after(DEADLINE_S):
        await admin.__aenter__()
    yield admin
    with trio.fail_after(DEADLINE_S):
        await admin.aclose()


async def test_a_fixture_of_pytest_trio_holds_a_client(administrator: AsyncAdmin) -> None:
    await use(administrator)

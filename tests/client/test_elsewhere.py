"""A client that is used where it is not at home: in another thread than that of its event loop, in
another process, behind its end, in a task that was cancelled.  Each says so, and where it was
opened it goes on."""

import asyncio
import gc
import os
import pickle
import signal
import warnings
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from threading import Thread
from typing import Any

import anyio
import anyio.to_thread
import pytest

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncDeliveries,
    AsyncDelivery,
    AsyncProducer,
    AsyncShareConsumer,
    ClosedError,
    Consumer,
    DeliveryFailed,
    Producer,
    ShareConsumer,
)

from ..support.daemon import Daemon
from .conftest import Run

WAIT_S = 60


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("debug", [False, True])
def test_an_async_client_is_not_used_from_the_loop_of_another_thread(
    daemon: Daemon, topic: str, debug: bool
) -> None:
    async def main() -> None:
        async with (
            AsyncProducer(daemon.address) as producer,
            AsyncConsumer(daemon.address, topic) as consumer,
            AsyncAdmin(daemon.address) as admin,
        ):
            sent = await producer.send(topic, b"first")
            await sent

            async def elsewhere() -> None:
                for use in (
                    lambda: producer.send(topic, b"elsewhere"),
                    lambda: producer.send_many(topic, [b"elsewhere"]),
                    producer.flush,
                    consumer.poll,
                    consumer.end_offsets,
                    lambda: anext(aiter(consumer)),
                    admin.list_topics,
                    producer.aclose,
                    consumer.aclose,
                    admin.aclose,
                ):
                    with pytest.raises(ClosedError, match="another thread"):
                        await asyncio.wait_for(use(), WAIT_S)

            await asyncio.to_thread(asyncio.run, elsewhere())
            (record,) = await consumer.poll(timeout_ms=WAIT_S * 1000)
            assert record.value == b"first"
            assert await (await producer.send(topic, b"second"))
            assert topic in await admin.list_topics()

    asyncio.run(main(), debug=debug)


@pytest.mark.usefixtures("made")
def test_what_another_thread_is_refused_has_not_happened(daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        async with (
            AsyncProducer(daemon.address) as producer,
            AsyncConsumer(daemon.address, topic, start="start") as consumer,
        ):
            await (await producer.send(topic, b"first", partition=0))
            (record,) = await consumer.poll(timeout_ms=WAIT_S * 1000)
            was = consumer.assignment, await consumer.positions()

            uses: list[Callable[[], Any]] = [
                lambda: producer.send(topic, b"elsewhere"),
                lambda: producer.send(topic, b"elsewhere", partition=0),
            ]
            changes: list[Callable[[], Any]] = [
                lambda: consumer.seek(topic, 0, 0),
                consumer.pause,
                consumer.resume,
                lambda: consumer.assign([(topic, 1)]),
                lambda: consumer.subscribe(["other"]),
                lambda: consumer.is_at_end,  # which asks the group, where it is a member
            ]

            async def elsewhere() -> None:
                for use in uses:
                    for _ in range(3):
                        with pytest.raises(ClosedError, match="another thread"):
                            await use()
                for change in changes:
                    with pytest.raises(ClosedError, match="another thread"):
                        change()

            await asyncio.to_thread(asyncio.run, elsewhere())
            assert (consumer.assignment, await consumer.positions()) == was
            await (await producer.send(topic, b"second", partition=0))
            (record,) = await consumer.poll(timeout_ms=WAIT_S * 1000)
            assert record.value == b"second"
        async with AsyncConsumer(daemon.address, topic, stop_at_end=True) as consumer:
            assert [record.value async for record in consumer] == [b"first", b"second"]

    asyncio.run(main())


def test_while_a_task_reads_another_thread_is_told_that_it_is_one(
    daemon: Daemon, topic: str
) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)

    async def main() -> None:
        async with (
            AsyncConsumer(daemon.address, topic) as consumer,
            AsyncShareConsumer(daemon.address, topic, group=topic) as sharing,
        ):
            for client in (consumer, sharing):
                reading = asyncio.create_task(client.poll(timeout_ms=WAIT_S * 1000))
                await asyncio.sleep(0.1)
                with pytest.raises(ClosedError, match="another thread"):
                    await asyncio.to_thread(asyncio.run, client.poll())
                assert not reading.done()
                reading.cancel()

    asyncio.run(main())


def test_a_delivery_under_way_is_not_awaited_in_another_thread(daemon: Daemon, topic: str) -> None:
    """It would wait for ever: nothing wakes the loop there."""

    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            await (await producer.send(topic, b"first"))
            os.kill(daemon.process.pid, signal.SIGSTOP)
            try:
                delivery = await producer.send(topic, b"second")
                many = await producer.send_many(topic, [b"third"])
                here = asyncio.gather(asyncio.ensure_future(wait(delivery)), wait(many))
                await asyncio.sleep(0.1)
                for sent in (delivery, many):
                    with pytest.raises(ClosedError, match="another thread"):
                        await asyncio.to_thread(
                            asyncio.run, asyncio.wait_for(wait(sent), WAIT_S / 4)
                        )
            finally:
                os.kill(daemon.process.pid, signal.SIGCONT)
            await here
            await asyncio.to_thread(asyncio.run, wait(delivery))  # decided: nothing to wait for

    async def wait(sent: AsyncDelivery | AsyncDeliveries) -> object:
        return await sent

    asyncio.run(main())


@pytest.mark.usefixtures("made")
def test_a_loop_of_asyncio_may_go_on_in_another_thread(daemon: Daemon, topic: str) -> None:
    """As where a program sets up what it needs, and then has its loop run beside it."""
    loop = asyncio.new_event_loop()
    ends = asyncio.Event()
    is_open = asyncio.Event()

    async def main() -> None:
        async with (
            AsyncProducer(daemon.address) as producer,
            AsyncConsumer(daemon.address, topic, group=topic) as consumer,
        ):
            clients.extend((producer, consumer))
            is_open.set()
            await ends.wait()
            await producer.send(topic, b"last")

    async def use() -> bytes | None:
        producer, consumer = clients
        await producer.send(topic, b"first")
        await producer.flush()
        (record,) = await consumer.poll(timeout_ms=WAIT_S * 1000)
        ends.set()
        value: bytes | None = record.value
        return value

    clients: list[Any] = []
    running = loop.create_task(main())
    loop.run_until_complete(is_open.wait())
    beside = Thread(target=loop.run_forever)
    beside.start()
    try:
        assert asyncio.run_coroutine_threadsafe(use(), loop).result(WAIT_S) == b"first"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        beside.join()
    loop.run_until_complete(asyncio.wait_for(running, WAIT_S))
    loop.close()
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        assert {record.value for record in consumer} == {b"first", b"last"}


def test_what_a_loop_has_left_open_ends_in_another_thread_as_in_its_own(
    daemon: Daemon, topic: str
) -> None:
    def opened() -> list[Any]:
        clients: list[Any] = [
            AsyncProducer(daemon.address),
            AsyncConsumer(daemon.address, topic, group=topic),
            AsyncShareConsumer(daemon.address, topic, group=f"{topic}-shared"),
            AsyncAdmin(daemon.address),
        ]

        async def main() -> None:
            for client in clients:
                await client.__aenter__()

        asyncio.run(main())
        return clients

    def ends(clients: list[Any]) -> list[str]:
        said = []
        for client in clients:
            try:
                asyncio.run(client.aclose())
            except ClosedError as error:
                said.append(str(error))
            assert repr(client).endswith(", closed>")
        return said

    with ThreadPoolExecutor(1) as beside:
        elsewhere = ends(beside.submit(opened).result(WAIT_S))
        assert elsewhere == ends(opened())
    assert not any("another thread" in error for error in elsewhere)


def test_what_had_no_turn_before_its_loop_ended_is_not_missed(daemon: Daemon, topic: str) -> None:
    """The task that waits until the socket takes more: asyncio.run cancels it before it begins."""
    producer = AsyncProducer(daemon.address)

    async def main() -> None:
        await producer.__aenter__()
        await (await producer.send(topic, b"first"))
        for _ in range(20):
            producer.send_nowait(topic, bytes(900_000))

    async def end() -> None:
        with pytest.raises(ClosedError, match="event loop"):
            await producer.aclose()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
        asyncio.run(end())
        gc.collect()
    assert [str(one.message) for one in said] == []


@pytest.mark.parametrize("make", range(4))
def test_a_client_may_end_in_another_task_than_that_which_opened_it_if_that_has_ended(
    daemon: Daemon, make: int
) -> None:
    """As a fixture of pytest-asyncio, or an async generator that its loop ends."""
    client = ASYNC[make](daemon.address)

    async def fixture() -> AsyncGenerator[None, None]:
        async with client:
            yield

    parts = fixture()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(loop.create_task(parts.__anext__()))
    with pytest.raises(StopAsyncIteration):
        loop.run_until_complete(loop.create_task(parts.__anext__()))
    assert repr(client).endswith(", closed>")
    assert not asyncio.all_tasks(loop)
    loop.close()


def test_send_nowait_is_not_for_a_thread_beside_the_event_loop(
    run: Run, daemon: Daemon, topic: str
) -> None:
    """As that in which a web framework runs a plain function."""

    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            await (await producer.send(topic, b"first"))
            for _ in range(3):
                with pytest.raises(ClosedError, match="another thread"):
                    await anyio.to_thread.run_sync(producer.send_nowait, topic, b"beside")
            await producer.send_nowait(topic, b"second")
        async with AsyncConsumer(daemon.address, topic, stop_at_end=True) as consumer:
            assert {record.value async for record in consumer} == {b"first", b"second"}

    run(main)


BLOCKING: list[Callable[[str], Any]] = [
    Producer,
    lambda address: Consumer(address, "t"),
    lambda address: ShareConsumer(address, "t", group="g"),
    Admin,
]
ASYNC: list[Callable[[str], Any]] = [
    AsyncProducer,
    lambda address: AsyncConsumer(address, "t"),
    lambda address: AsyncShareConsumer(address, "t", group="g"),
    AsyncAdmin,
]


@pytest.mark.parametrize("make", range(8))
def test_a_client_is_not_sent_to_another_process(make: int) -> None:
    client = [*BLOCKING, *ASYNC][make]("h")
    for send in (pickle.dumps, deepcopy):
        with pytest.raises(TypeError, match="make one in each process"):
            send(client)


@pytest.mark.parametrize("make", range(4))
def test_a_client_says_that_it_was_closed(run: Run, daemon: Daemon, make: int) -> None:
    client = BLOCKING[make](daemon.address)
    assert repr(client).endswith(", not open>")
    with client:
        assert repr(client).endswith(", open>")
    assert repr(client).endswith(", closed>")

    async def main() -> None:
        client = ASYNC[make](daemon.address)
        assert repr(client).endswith(", not open>")
        async with client:
            assert repr(client).endswith(", open>")
        assert repr(client).endswith(", closed>")

    run(main)


def test_who_uses_a_closed_client_is_not_told_to_open_it(run: Run, daemon: Daemon) -> None:
    with Consumer(daemon.address, "t") as consumer, Admin(daemon.address) as admin:
        pass
    for use in (consumer.poll, lambda: list(consumer), admin.list_topics):
        with pytest.raises(ClosedError, match="was closed"):
            use()

    async def main() -> None:
        async with (
            AsyncConsumer(daemon.address, "t") as consumer,
            AsyncAdmin(daemon.address) as admin,
        ):
            pass
        for use in (consumer.poll, lambda: anext(aiter(consumer)), admin.list_topics):
            with pytest.raises(ClosedError, match="was closed"):
                await use()

    run(main)


def test_deliveries_say_how_many_they_are_and_whether_they_are_decided(
    run: Run, daemon: Daemon, topic: str
) -> None:
    with Producer(daemon.address, linger_ms=WAIT_S * 1000) as producer:
        producer.partitions_for(topic)
        deliveries = producer.send_many(topic, [b"1", b"2"])
        assert repr(deliveries) == "<Deliveries, 2 records, under way>"
        deliveries.result(WAIT_S)
        assert repr(deliveries) == "<Deliveries, 2 records, decided>"

    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            deliveries = await producer.send_many(topic, [b"1"])
            await deliveries
            assert repr(deliveries) == "<AsyncDeliveries, 1 record, decided>"

    run(main)


def test_a_cancellation_that_the_program_has_caught_does_not_end_the_block_of_a_client(
    daemon: Daemon, topic: str
) -> None:
    """As where a web server cleans up in the task that was cancelled."""
    behind: list[str] = []

    async def wait_to_be_cancelled(inside: asyncio.Event) -> None:
        inside.set()
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()

    async def produce(inside: asyncio.Event) -> None:
        try:
            async with AsyncProducer(daemon.address) as producer:
                await (await producer.send(topic, b"delivered"))
                await producer.send(topic, bytes(2 << 20))  # too large for the topic
                await wait_to_be_cancelled(inside)
        except DeliveryFailed as error:
            behind.append(str(error).partition(":")[0])

    async def use(client: Any, inside: asyncio.Event) -> None:  # noqa: ANN401 - any client
        async with client:
            await wait_to_be_cancelled(inside)
        behind.append(repr(client).split()[0])

    async def main() -> None:
        inside = asyncio.Event()
        for run in (
            produce(inside),
            use(AsyncConsumer(daemon.address, topic, group=topic), inside),
            use(AsyncShareConsumer(daemon.address, topic, group=f"{topic}-shared"), inside),
            use(AsyncAdmin(daemon.address), inside),
        ):
            inside.clear()
            task = asyncio.create_task(run)
            await asyncio.wait_for(inside.wait(), WAIT_S)
            task.cancel()
            await asyncio.wait_for(task, WAIT_S)

    asyncio.run(main())
    assert behind == [
        "1 record was not delivered",
        "<AsyncConsumer",
        "<AsyncShareConsumer",
        "<AsyncAdmin",
    ]

"""The async shell against a real broker, on trio and on asyncio."""

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncDelivery,
    AsyncProducer,
    AsyncShareConsumer,
    BrokerUnreachable,
    BusyError,
    ClosedError,
    ConnectionLost,
    DeliveryFailed,
    OffsetAndTimestamp,
    Record,
    RecordMetadata,
    TopicPartition,
    UnknownTopicOrPartition,
    async_consumer,
)
from segbroker.client.clock import now_ms
from segbroker.testing.embedded import EmbeddedBroker

from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import Daemon, start
from ..support.ports import keep_port
from ..support.waiting import DEADLINE_S, within_one_of
from .conftest import Run


def numbers(count: int) -> list[bytes | None]:
    return [b"%06d" % number for number in range(count)]


def test_what_is_sent_comes_back(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            delivery = await producer.send(topic, b"v", key=b"k", partition=1, timestamp_ms=5)
            assert await delivery == RecordMetadata(topic, 1, 0, 5)
            await producer.send_many(topic, numbers(5_000), partition=0)
        async with AsyncConsumer(daemon.address, topic, stop_at_end=True) as consumer:
            records = [record async for record in consumer]
        assert Record(topic, 1, 0, 5, b"k", b"v", ()) in records
        assert [r.value for r in records if r.partition == 0] == numbers(5_000)
        async with AsyncConsumer(daemon.address, topic, stop_at_end=True) as consumer:
            polled: list[Record] = []
            while not consumer.is_at_end:
                polled += await consumer.poll()
        assert sorted(polled) == sorted(records)

    run(main)


def test_send_gives_way_when_the_buffer_is_full(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(
            daemon.address, buffer_bytes=50_000, batch_bytes=5_000
        ) as producer:
            deliveries = [await producer.send(topic, v, partition=0) for v in numbers(3_000)]
            deliveries += [await producer.send(topic, v or b"") for v in numbers(10_000)]
            for delivery in deliveries:
                await delivery
            assert [(await d).offset for d in deliveries[:3_000]][:5] == [0, 1, 2, 3, 4]
            with pytest.raises(BusyError):  # noqa: PT012
                for _ in range(10_000):
                    producer.send_nowait(topic, b"x" * 5_000)

    run(main)


def test_a_topic_that_send_nowait_does_not_know_yet_is_looked_up(
    run: Run, daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing else has the producer do anything."""
    monkeypatch.setattr("segbroker.client.network.SETUP_TIMEOUT_MS", 1 << 40)

    async def main() -> None:
        async with AsyncProducer(
            daemon.address, connect_timeout_ms=1 << 30, request_timeout_ms=1 << 30
        ) as producer:
            delivery: AsyncDelivery | None = None
            with anyio.fail_after(DEADLINE_S):
                while delivery is None:
                    with suppress(BusyError):
                        delivery = producer.send_nowait(topic, b"first")
                    await anyio.sleep(0.01)
            assert (await delivery).offset == 0

    run(main)


@pytest.mark.parametrize("partition", [None, 0])
@pytest.mark.parametrize("buffer_bytes", [1 << 20, 4_000])
def test_what_was_cancelled_in_send_was_not_sent(
    run: Run, daemon: Daemon, topic: str, partition: int | None, buffer_bytes: int
) -> None:
    async def main() -> None:
        taken = 0
        async with AsyncAdmin(daemon.address) as admin:
            await admin.create_topic(topic, partitions=1)
        async with AsyncProducer(
            daemon.address, batch_bytes=2_000, buffer_bytes=buffer_bytes, linger_ms=60_000
        ) as producer:
            await producer.partitions_for(topic)
            for _ in range(20):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    while True:
                        await producer.send(topic, b"%06d" % taken, partition=partition)
                        taken += 1
                await producer.flush()
        async with AsyncConsumer(daemon.address, topic, stop_at_end=True) as consumer:
            assert [record.value async for record in consumer] == numbers(taken)
        assert taken

    run(main)


def test_a_poll_that_was_cancelled_has_handed_out_nothing(
    run: Run, daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A checkpoint wherever there may be one, however fast the machine.
    monkeypatch.setattr(async_consumer, "GIVE_WAY_MS", -1)

    async def main() -> None:
        async with AsyncAdmin(daemon.address) as admin:
            await admin.create_topic(topic, partitions=1)
        async with AsyncProducer(daemon.address) as producer:
            for first in range(0, 100, 10):
                await (await producer.send_many(topic, numbers(100)[first : first + 10]))
        got: list[Record] = []
        turns = 0
        async with AsyncConsumer(daemon.address, topic, stop_at_end=True) as consumer:
            await consumer.positions()
            while len(got) < 100 and turns < 500:
                turns += 1
                async with anyio.create_task_group() as tasks:

                    async def cancel_in(turns: int, scope: anyio.CancelScope) -> None:
                        for _ in range(turns):
                            await anyio.lowlevel.checkpoint()
                        scope.cancel()

                    tasks.start_soon(cancel_in, turns, tasks.cancel_scope)
                    got += await consumer.poll(40, 10)
        assert [record.value for record in got] == numbers(100)

    run(main)


def test_all_that_was_subscribed_to_is_meant_at_once(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            count = await producer.partitions_for(topic)
        starts = {TopicPartition(topic, number): 0 for number in range(count)}
        for ask in (AsyncConsumer.end_offsets, AsyncConsumer.positions):
            async with AsyncConsumer(daemon.address) as consumer:
                consumer.subscribe([topic])
                assert await ask(consumer) == starts
        async with AsyncConsumer(daemon.address) as consumer:
            consumer.subscribe([topic])
            consumer.pause()
            assert await consumer.position(topic, 0) == 0

    run(main)


def test_the_first_record_of_a_topic_waits_as_long_as_any_record(
    run: Run, tmp_path: Path, topic: str
) -> None:
    daemon = start(tmp_path / "data")

    async def main() -> None:
        async with AsyncProducer(daemon.address, delivery_timeout_ms=500) as producer:
            daemon.stop(signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(BrokerUnreachable, match="could be reached"):
                await producer.send(topic, b"first")
            assert time.monotonic() - began < 30

    try:
        run(main)
    finally:
        daemon.stop()


def test_many_tasks_wait_each_for_its_own_record(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        seen: set[tuple[int, int]] = set()

        async def one(number: int) -> None:
            where = await (await producer.send(topic, b"%d" % number))
            seen.add((where.partition, where.offset))

        async with AsyncProducer(daemon.address) as producer, anyio.create_task_group() as tasks:
            for number in range(300):
                tasks.start_soon(one, number)
        assert len(seen) == 300

    run(main)


def test_cancelling_ends_a_wait_and_leaves_the_client_usable(
    run: Run, daemon: Daemon, topic: str
) -> None:
    async def main() -> None:
        async with AsyncAdmin(daemon.address) as admin:
            await admin.create_topic(topic, partitions=1)
        async with (
            AsyncConsumer(daemon.address, topic) as consumer,
            AsyncProducer(daemon.address) as producer,
        ):
            with anyio.move_on_after(0.1) as scope:
                async for _ in consumer:
                    raise AssertionError("nothing was written")
            assert scope.cancelled_caught
            await (await producer.send(topic, b"now"))
            with anyio.fail_after(60):
                async for record in consumer:
                    assert record.value == b"now"
                    break
            assert await consumer.poll(1, 20) == []
            assert await consumer.positions() == {TopicPartition(topic, 0): 1}

    run(main)


def test_a_cancelled_wait_of_any_kind_is_over_soon(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        took = []
        async with AsyncProducer(daemon.address, linger_ms=60_000) as producer:
            await producer.partitions_for(topic)
            async with AsyncConsumer(daemon.address, topic) as consumer:
                await consumer.positions()
                # How soon is measured by `python -m bench interrupts`.
                for wait in (
                    lambda: consumer.poll(timeout_ms=60_000),
                    lambda: anext(aiter(consumer)),
                    lambda: anext(consumer.batches()),
                ):
                    with anyio.move_on_after(0.02) as scope:
                        await wait()
                    assert scope.cancelled_caught
                    took.append(anyio.current_time() - scope.deadline)
        assert max(took) < 20, took

    run(main)


def test_a_connection_that_is_cut_in_the_turn_in_which_it_stands_is_made_again(
    run: Run, daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = anyio.wait_writable
    cut: list[str] = []

    async def main() -> None:
        consumer = AsyncConsumer(daemon.address, topic)

        async def and_cut(sock: socket.socket) -> None:
            await real(sock)
            if not cut:
                driver = consumer._driver
                for connection in list(driver._transports):
                    connection.lost(ConnectionLost("cut"), now_ms())
                    cut.append(str(connection))
                driver.pump()

        async with AsyncAdmin(daemon.address) as admin:
            await admin.create_topic(topic, partitions=3)
        monkeypatch.setattr(anyio, "wait_writable", and_cut)
        async with consumer:
            assert await consumer.partitions_for(topic) == 3

    run(main)
    assert cut


def test_cancelling_the_block_ends_it_at_once(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        with anyio.move_on_after(0.2) as scope:
            async with AsyncProducer(daemon.address, linger_ms=60_000) as producer:
                await producer.send(topic, b"x")
                await anyio.sleep_forever()
        assert scope.cancelled_caught

    began = anyio.run(_timed, run, main)
    assert began < 30, "the record lingers for a minute"


async def _timed(run: Run, main: Callable[..., object]) -> float:
    # In a thread of its own: an event loop cannot run in another.
    began = anyio.current_time()
    await anyio.to_thread.run_sync(lambda: run(main))
    return anyio.current_time() - began


def test_an_exception_in_the_block_comes_out_as_it_is(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with AsyncProducer(daemon.address) as producer:
                await producer.send(topic, b"x")
                _ = 1 / 0
        with pytest.raises(ZeroDivisionError):
            async with AsyncConsumer(daemon.address, topic):
                _ = 1 / 0
        with pytest.raises(ZeroDivisionError):
            async with AsyncAdmin(daemon.address):
                _ = 1 / 0

    run(main)


def test_records_that_failed_are_handed_back_at_the_end(
    run: Run, daemon: Daemon, topic: str
) -> None:
    async def main() -> None:
        with pytest.raises(DeliveryFailed) as caught:
            async with AsyncProducer(daemon.address) as producer:
                await producer.send(topic, b"x" * 2_000_000)
        assert len(caught.value.undelivered) == 1

    run(main)


def test_a_block_that_was_left_is_closed(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        producer = AsyncProducer(daemon.address)
        with pytest.raises(ClosedError):
            await producer.send(topic, b"too early")
        async with producer:
            pass
        with pytest.raises(ClosedError):
            await producer.send(topic, b"too late")

    run(main)


def test_a_broker_that_is_not_there_is_said(run: Run) -> None:
    async def main(within_ms: int) -> None:
        with pytest.raises(BrokerUnreachable, match="refused"):
            async with AsyncAdmin("127.0.0.1:1", connect_timeout_ms=within_ms):
                pass

    within_one_of((300, 5_000), lambda within_ms: run(main, within_ms))


def test_batches_offsets_and_seeking(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            for second in range(10):
                await producer.send(topic, b"x", partition=0, timestamp_ms=second * 1_000)
        tp = TopicPartition(topic, 0)
        async with AsyncConsumer(daemon.address, stop_at_end=True) as consumer:
            consumer.assign([tp])
            assert await consumer.end_offsets() == {tp: 10}
            assert await consumer.beginning_offsets() == {tp: 0}
            assert await consumer.offsets_for_times({tp: 2_500}) == {
                tp: OffsetAndTimestamp(3, 3_000)
            }
            assert sum([len(batch) async for batch in consumer.batches()]) == 10
            consumer.seek(topic, 0, -2)
            assert [record.offset async for record in consumer] == [8, 9]
            consumer.seek(topic, 0, 5)
            assert await consumer.position(topic, 0) == 5

    run(main)


def test_a_topic_that_does_not_exist_is_an_error(run: Run, daemon: Daemon) -> None:
    async def main() -> None:
        async with AsyncConsumer(daemon.address, "not-there") as consumer:
            with pytest.raises(UnknownTopicOrPartition):
                await consumer.poll(1, 60_000)

    run(main)


def test_administration(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        async with AsyncAdmin(daemon.address) as admin:
            await admin.create_topic(topic, partitions=3)
            assert topic in await admin.list_topics()
            assert len((await admin.describe_topic(topic)).partitions) == 3
            assert len(await admin.offsets(topic)) == 3
            await admin.delete_topic(topic)

    run(main)


async def next_by_poll(consumer: AsyncConsumer) -> object:
    return await consumer.poll(1, 60_000)


async def next_by_loop(consumer: AsyncConsumer) -> object:
    return await anext(aiter(consumer))


async def next_by_batches(consumer: AsyncConsumer) -> object:
    return await anext(aiter(consumer.batches()))


@pytest.mark.parametrize("take", [next_by_poll, next_by_loop, next_by_batches])
def test_a_second_task_is_refused_also_while_the_first_gives_way(
    run: Run, daemon: Daemon, topic: str, take: Callable[[AsyncConsumer], Awaitable[object]]
) -> None:
    refused: list[BusyError] = []

    async def one(consumer: AsyncConsumer) -> None:
        try:
            await take(consumer)
        except BusyError as exc:
            refused.append(exc)

    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            for _ in range(2):  # batches
                await producer.send_many(topic, numbers(1_000), partition=0)
                await producer.flush()
        async with AsyncConsumer(daemon.address, topic) as consumer:
            assert await consumer.poll(1, 60_000)
            # Longer than it goes on without giving way; what is asked for then is there.
            await anyio.sleep(0.05)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, consumer)
                tasks.start_soon(one, consumer)
        assert len(refused) == 1

    run(main)


def test_two_tasks_reading_at_once_is_busy(run: Run, daemon: Daemon, topic: str) -> None:
    async def main() -> None:
        async with AsyncAdmin(daemon.address) as admin:
            await admin.create_topic(topic)
        async with AsyncConsumer(daemon.address, topic) as consumer:  # noqa: SIM117
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consumer.poll, 1, 60_000)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(BusyError):
                    await consumer.poll(1, 10)
                tasks.cancel_scope.cancel()

    run(main)


def test_several_tasks_can_be_the_first_to_send_to_a_new_partition(
    run: Run, daemon: Daemon, topic: str
) -> None:
    offsets: list[int] = []

    async def main() -> None:
        async with AsyncAdmin(daemon.address) as admin, AsyncProducer(daemon.address) as producer:
            await admin.create_topic(topic, partitions=1)
            await (await producer.send(topic, b"known"))
            await admin.create_partitions(topic, 4)

            async def send() -> None:
                offsets.append((await (await producer.send(topic, b"new", partition=3))).offset)

            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(send)
            with pytest.raises(ValueError, match="outside"):
                await producer.send(topic, b"never", partition=9)
        assert sorted(offsets) == [0, 1, 2, 3]

    run(main)


def test_a_broker_that_comes_back_gets_the_rest(run: Run, tmp_path: Path, topic: str) -> None:
    import signal

    async def main() -> None:
        daemon = start(tmp_path / "data", "--durability", "disk")
        try:
            async with AsyncProducer(daemon.address, batch_bytes=1_000) as producer:
                deliveries = []
                for index, value in enumerate(numbers(2_000)):
                    deliveries.append(await producer.send(topic, value, partition=0))
                    if index == 1_000:
                        await deliveries[500]
                        daemon.stop(signal.SIGKILL)
                        daemon.again()
                assert [(await d).offset for d in deliveries] == list(range(2_000))
        finally:
            daemon.stop()

    run(main)


def test_the_time_of_a_poll_does_not_cut_off_what_the_caller_is_told(
    run: Run, daemon: Daemon, topic: str
) -> None:
    told: list[str] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        told.append("begun")
        await anyio.sleep(0.2)
        told.append("ended")

    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            await producer.send_many(topic, numbers(3), partition=0)
        async with AsyncConsumer(
            daemon.address, topic, group=f"told-{topic}", start="start", on_assigned=assigned
        ) as consumer:
            records: list[Record] = []
            while len(records) < 3:
                records += await consumer.poll(timeout_ms=20)
            assert told == ["begun", "ended"]

    told.clear()
    run(main)


def test_who_is_cancelled_while_what_is_left_gets_a_moment_leaves_no_task(
    run: Run, topic: str
) -> None:
    async def main(address: str, proxy: CuttingProxy) -> None:
        producer = AsyncProducer(address)
        with anyio.CancelScope() as scope:
            async with producer:
                await (await producer.send(topic, b"before"))
                proxy.go_away()
                await producer.send(topic, b"never answered")
                scope.deadline = anyio.current_time() + 0.1
                raise ValueError("the caller's own")
        assert scope.cancelled_caught
        with pytest.raises(ClosedError):
            await producer.partitions_for(topic)

    port = keep_port()
    with (
        CuttingProxy(("127.0.0.1", port)) as proxy,
        EmbeddedBroker(listen=f"127.0.0.1:{port}", advertised=proxy.address),
    ):
        run(main, proxy.address, proxy)


def test_calls_that_ask_for_the_same_missing_topic_at_once_hear_the_same(
    run: Run, daemon: Daemon, topic: str
) -> None:
    heard: list[type[BaseException]] = []

    async def main() -> None:
        heard.clear()
        async with AsyncAdmin(daemon.address) as admin:

            async def ask() -> None:
                try:
                    await admin.offsets(topic)
                except Exception as exc:
                    heard.append(type(exc))

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask)

    run(main)
    assert heard == [UnknownTopicOrPartition] * 3


@pytest.mark.parametrize("kind", [AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer])
def test_another_task_may_close_a_client_within_its_block(
    kind: type[Any], daemon: Daemon, topic: str, run: Run
) -> None:
    """As one that waits for the signal to end; the end of the block may be the caller's own."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic)
    is_member = kind in (AsyncConsumer, AsyncShareConsumer)

    async def ends(client: Any, *_: object) -> None:  # noqa: ANN401 - of any kind
        await client.aclose()

    own = type("Own", (kind,), {"__aexit__": ends})

    async def use(client: Any) -> None:  # noqa: ANN401 - of any kind
        if is_member:
            await client.poll(timeout_ms=0)
        elif kind is AsyncAdmin:
            await client.list_topics()
        else:
            await client.send(topic, b"v")

    async def main() -> None:
        client = own(daemon.address, topic, group=topic) if is_member else own(daemon.address)
        async with anyio.create_task_group() as tasks, client:
            await use(client)
            async with anyio.create_task_group() as others:
                others.start_soon(client.aclose)
                others.start_soon(client.aclose)
            with pytest.raises(ClosedError):
                await use(client)
            tasks.start_soon(anyio.lowlevel.checkpoint)

    run(main)


def test_a_client_of_an_event_loop_that_has_ended_says_so(daemon: Daemon, topic: str) -> None:
    """As one that is global where a framework runs each request in a loop of its own."""
    producer = AsyncProducer(daemon.address)
    consumer: AsyncConsumer = AsyncConsumer(daemon.address, topic, group=topic)
    admin = AsyncAdmin(daemon.address)

    async def first() -> None:
        await producer.__aenter__()
        await consumer.__aenter__()
        await admin.__aenter__()
        await (await producer.send(topic, b"v"))

    async def second() -> None:
        with anyio.fail_after(60):
            with pytest.raises(ClosedError, match="event loop that it was opened in has ended"):
                await (await producer.send(topic, b"w"))
            with pytest.raises(ClosedError, match="event loop"):
                await consumer.poll(timeout_ms=60_000)
            with pytest.raises(ClosedError, match="event loop"):
                await admin.list_topics()
            with pytest.raises(ClosedError, match="event loop"):
                await producer.aclose()
            await consumer.aclose()
            await admin.aclose()

    asyncio.run(first())
    asyncio.run(second())


def test_a_client_whose_event_loop_ended_while_it_asked_something_can_be_closed(
    daemon: Daemon, topic: str
) -> None:
    consumer: AsyncConsumer = AsyncConsumer(daemon.address)

    async def first() -> None:
        await consumer.__aenter__()
        consumer.assign([(topic, 0)])
        await anyio.lowlevel.checkpoint()  # it begins to ask where the partition starts

    asyncio.run(first())
    asyncio.run(consumer.aclose())
    with pytest.raises(ClosedError):
        asyncio.run(consumer.poll())

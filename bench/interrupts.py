"""How soon a wait ends after Ctrl-C or a cancellation; what waiting for a dead broker costs.

    Ctrl-C       a process that waits in our client gets SIGINT: until it has left its `with` block
    cancelled    a task under trio or asyncio is cancelled: until it has left its `async with` block
    away         its broker is killed: processor time of the client in AWAY_S, of one core

Each wait is a function below, run in a process of its own: `python -m bench.interrupts WAIT ADDRESS
TOPIC PID BACKEND`.  It says "waits", waits, and says when the block was left; of the monotonic
clock, which all processes share.  In those named "stopped" the broker is stopped by a signal, so
that nothing answers any more.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    Producer,
    ShareConsumer,
)
from segbroker.client.errors import NonEmptyGroup

from .machine import ROOT
from .report import Entry, Row
from .servers import segbroker

ROUNDS = 10
SETTLE_S = 0.3
AWAY_S = 5.0
DEADLINE_S = 30.0
GOAL_MS = 50
VALUE = bytes(1000)
# Of this process alone: a member that was interrupted beside a stopped broker is in its group for
# the length of a session.
GROUP = f"interrupted-{os.getpid()}"
SHARE_GROUP = f"shared-{os.getpid()}"


def _says() -> None:
    print("waits", flush=True)


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    _says()


# Blocking: each is ended by SIGINT.


def reading(address: str, topic: str, pid: int) -> None:
    """for record in consumer, nothing comes"""
    with Consumer(address, topic, start="end") as consumer:
        consumer.positions()
        _says()
        for _ in consumer:
            pass


def polling(address: str, topic: str, pid: int) -> None:
    """consumer.poll(timeout_ms=60_000), nothing comes"""
    with Consumer(address, topic, start="end") as consumer:
        consumer.positions()
        _says()
        consumer.poll(timeout_ms=60_000)


def busy(address: str, topic: str, pid: int) -> None:
    """for record in consumer, records come all the time"""
    with Consumer(address, topic, start="start") as consumer:
        _says()
        while True:
            for partition in range(4):
                consumer.seek(topic, partition, "start")
            consumer.poll(max_records=100_000, timeout_ms=100)


def member(address: str, topic: str, pid: int) -> None:
    """for record in consumer, in a group"""
    with Consumer(address, topic, group=GROUP) as consumer:
        for at, _ in enumerate(consumer):
            if at == 100:
                _says()


def member_stopped(address: str, topic: str, pid: int) -> None:
    """for record in consumer, in a group, stopped"""
    with Consumer(address, topic, group=GROUP) as consumer:
        for at, _ in enumerate(consumer):
            if at == 100:
                _stop(pid)


def _worked(address: str, topic: str) -> None:
    """Have the share group begin at the start: it has something to work at."""
    with Admin(address) as admin, suppress(NonEmptyGroup):
        admin.alter_share_offsets(SHARE_GROUP, dict.fromkeys(admin.offsets(topic, "start"), 0))


def sharing(address: str, topic: str, pid: int) -> None:
    """for record in share consumer, records come all the time"""
    _worked(address, topic)
    with ShareConsumer(address, topic, group=SHARE_GROUP) as consumer:
        for at, _ in enumerate(consumer):
            if at == 100:
                _says()


def sharing_stopped(address: str, topic: str, pid: int) -> None:
    """for record in share consumer, stopped"""
    _worked(address, topic)
    with ShareConsumer(address, topic, group=SHARE_GROUP) as consumer:
        for at, _ in enumerate(consumer):
            if at == 100:
                _stop(pid)


def result_stopped(address: str, topic: str, pid: int) -> None:
    """producer.send(...).result(), stopped"""
    with Producer(address) as producer:
        producer.send(topic, VALUE).result()
        _stop(pid)
        producer.send(topic, VALUE).result()


def full_stopped(address: str, topic: str, pid: int) -> None:
    """producer.send, the buffer full, stopped"""
    with Producer(address) as producer:
        producer.send(topic, VALUE).result()
        _stop(pid)
        while True:
            producer.send(topic, VALUE)


def flush_stopped(address: str, topic: str, pid: int) -> None:
    """producer.flush(), stopped"""
    with Producer(address) as producer:
        producer.send(topic, VALUE).result()
        _stop(pid)
        producer.send(topic, VALUE)
        producer.flush()


def leaving_stopped(address: str, topic: str, pid: int) -> None:
    """leaving the producer's block, stopped"""
    with Producer(address) as producer:
        producer.send(topic, VALUE).result()
        _stop(pid)
        producer.send(topic, VALUE)


def transaction_stopped(address: str, topic: str, pid: int) -> None:
    """committing a transaction, stopped"""
    with Producer(address, transactional_id="interrupted") as producer, producer.transaction():
        producer.send(topic, VALUE).result()
        _stop(pid)


def entering_stopped(address: str, topic: str, pid: int) -> None:
    """entering the consumer's block, stopped"""
    _stop(pid)
    with Consumer(address, topic, connect_timeout_ms=60_000):
        pass


def asking_stopped(address: str, topic: str, pid: int) -> None:
    """admin.describe_topic(), stopped"""
    with Admin(address) as admin:
        admin.describe_topic(topic)
        _stop(pid)
        admin.describe_topic(topic)


# Async: each is ended by a cancellation.


async def async_reading(address: str, topic: str, pid: int) -> None:
    """async for record in consumer, nothing comes"""
    async with AsyncConsumer(address, topic, start="end") as consumer:
        await consumer.positions()
        _says()
        async for _ in consumer:
            pass


async def async_busy(address: str, topic: str, pid: int) -> None:
    """async for record in consumer, records come all the time"""
    async with AsyncConsumer(address, topic, start="start") as consumer:
        _says()
        while True:
            for partition in range(4):
                await consumer.position(topic, partition)
                consumer.seek(topic, partition, "start")
            seen = 0
            async for _ in consumer:
                seen += 1
                if seen == 100_000:
                    break


async def async_member_stopped(address: str, topic: str, pid: int) -> None:
    """async for record in consumer, in a group, stopped"""
    async with AsyncConsumer(address, topic, group=GROUP) as consumer:
        seen = 0
        async for _ in consumer:
            seen += 1
            if seen == 100:
                _stop(pid)


async def async_sharing_stopped(address: str, topic: str, pid: int) -> None:
    """async for record in share consumer, stopped"""
    await anyio.to_thread.run_sync(_worked, address, topic)
    async with AsyncShareConsumer(address, topic, group=SHARE_GROUP) as consumer:
        seen = 0
        async for _ in consumer:
            seen += 1
            if seen == 100:
                _stop(pid)


async def async_full_stopped(address: str, topic: str, pid: int) -> None:
    """await producer.send, the buffer full, stopped"""
    async with AsyncProducer(address) as producer:
        await (await producer.send(topic, VALUE))
        _stop(pid)
        while True:
            await producer.send(topic, VALUE)


async def async_result_stopped(address: str, topic: str, pid: int) -> None:
    """await delivery, stopped"""
    async with AsyncProducer(address) as producer:
        await (await producer.send(topic, VALUE))
        _stop(pid)
        await (await producer.send(topic, VALUE))


async def async_transaction_stopped(address: str, topic: str, pid: int) -> None:
    """committing a transaction, stopped"""
    producer = AsyncProducer(address, transactional_id="interrupted")
    async with producer, producer.transaction():
        await (await producer.send(topic, VALUE))
        _stop(pid)


async def async_asking_stopped(address: str, topic: str, pid: int) -> None:
    """await admin.describe_topic(), stopped"""
    async with AsyncAdmin(address) as admin:
        await admin.describe_topic(topic)
        _stop(pid)
        await admin.describe_topic(topic)


# Away: each ends by itself.


def _idle(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    time.sleep(SETTLE_S)
    spent, since = time.process_time(), time.monotonic()
    time.sleep(AWAY_S)
    spent = time.process_time() - spent
    print(spent / (time.monotonic() - since), flush=True)
    os._exit(0)  # the blocks would wait for the broker


def away_producer(address: str, topic: str, pid: int) -> None:
    """a producer with records to deliver"""
    with Producer(address) as producer:
        producer.send(topic, VALUE).result()
        threading.Timer(SETTLE_S, lambda: producer.send(topic, VALUE)).start()
        _idle(pid)


def away_consumer(address: str, topic: str, pid: int) -> None:
    """a consumer"""
    with Consumer(address, topic) as consumer:
        consumer.poll(timeout_ms=10_000)
        _idle(pid)


def away_member(address: str, topic: str, pid: int) -> None:
    """a consumer in a group"""
    with Consumer(address, topic, group=GROUP) as consumer:
        consumer.poll(timeout_ms=10_000)
        _idle(pid)


def away_sharing(address: str, topic: str, pid: int) -> None:
    """a share consumer"""
    _worked(address, topic)
    with ShareConsumer(address, topic, group=SHARE_GROUP) as consumer:
        consumer.poll(timeout_ms=10_000)
        _idle(pid)


async def away_async_member(address: str, topic: str, pid: int) -> None:
    """an async consumer in a group, trio"""
    async with AsyncConsumer(address, topic, group=GROUP) as consumer:
        await consumer.poll(timeout_ms=10_000)
        os.kill(pid, signal.SIGKILL)
        await anyio.sleep(SETTLE_S)
        spent, since = time.process_time(), time.monotonic()
        await anyio.sleep(AWAY_S)
        spent = time.process_time() - spent
        print(spent / (time.monotonic() - since), flush=True)
        os._exit(0)


BLOCKING: tuple[Callable[..., None], ...] = (
    reading,
    polling,
    busy,
    member,
    member_stopped,
    sharing,
    sharing_stopped,
    result_stopped,
    full_stopped,
    flush_stopped,
    leaving_stopped,
    transaction_stopped,
    entering_stopped,
    asking_stopped,
)
ASYNC: tuple[Callable[..., Any], ...] = (
    async_reading,
    async_busy,
    async_member_stopped,
    async_sharing_stopped,
    async_full_stopped,
    async_result_stopped,
    async_transaction_stopped,
    async_asking_stopped,
)
AWAY: tuple[Callable[..., Any], ...] = (
    away_producer,
    away_consumer,
    away_member,
    away_sharing,
    away_async_member,
)
BY_NAME = {run.__name__: run for run in (*BLOCKING, *ASYNC, *AWAY)}


# The child.


async def _cancelled(run: Callable[..., Any], *arguments: object) -> None:
    """Run it; a line on standard input cancels it."""

    async def cancel() -> None:
        await anyio.wait_readable(sys.stdin)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel)
        await run(*arguments)


def child(name: str, address: str, topic: str, pid: str, backend: str) -> None:
    run = BY_NAME[name]
    arguments = address, topic, int(pid)
    if run in ASYNC:
        anyio.run(_cancelled, run, *arguments, backend=backend)
    elif run is away_async_member:
        anyio.run(run, *arguments, backend="trio")
    else:
        with suppress(KeyboardInterrupt):
            run(*arguments)
    print(time.monotonic(), flush=True)


# The parent.


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
    if not ready:
        process.kill()
        raise TimeoutError(f"{process.args!r} did not go on")
    return process.stdout.readline()


def _start(
    run: Callable[..., Any], address: str, topic: str, pid: int, backend: str
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.interrupts", run.__name__, address, topic, str(pid)]
    return subprocess.Popen(
        [*command, backend],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _filled(address: str) -> str:
    with Admin(address) as admin:
        admin.create_topic("interrupted", partitions=4)
    with Producer(address) as producer:
        for n in range(100_000):
            producer.send("interrupted", VALUE[:100], partition=n % 4)
    return "interrupted"


def _ended_after_s(run: Callable[..., Any], address: str, topic: str, pid: int, by: str) -> float:
    """Seconds from the signal or the cancellation to the end of the block."""
    process = _start(run, address, topic, pid, by)
    try:
        said = _line(process)
        assert said == "waits\n", f"{run.__name__} said {said!r}"
        time.sleep(SETTLE_S)
        began = time.monotonic()
        if run in ASYNC:
            assert process.stdin is not None
            process.stdin.write("now\n")
            process.stdin.flush()
        else:
            process.send_signal(signal.SIGINT)
        return float(_line(process)) - began
    finally:
        os.kill(pid, signal.SIGCONT)
        process.communicate(timeout=DEADLINE_S)


def rows(quick: bool = False) -> list[Entry]:
    """Every wait by its end, then the cost of a broker that is away."""
    found: list[Entry] = []
    rounds = 2 if quick else ROUNDS
    with segbroker() as server:
        topic = _filled(server.address)
        waits = [("Ctrl-C", "", run) for run in BLOCKING]
        waits += [(f"cancelled, {by}", by, run) for run in ASYNC for by in ("trio", "asyncio")]
        for what, by, run in waits:
            took = sorted(
                _ended_after_s(run, server.address, topic, server.pid, by) * 1e3
                for _ in range(rounds)
            )
            found.append(
                Row(
                    f"{what}: {run.__doc__}",
                    "–",
                    f"{took[len(took) // 2]:.1f} ms, at most {took[-1]:.1f} of {rounds}",
                    goal=f"≤ {GOAL_MS} ms",
                )
            )
    for run in AWAY:
        with segbroker() as server:
            process = _start(run, server.address, _filled(server.address), server.pid, "trio")
            share = float(process.communicate(timeout=DEADLINE_S)[0])
        found.append(
            Row(f"broker away: {run.__doc__}", "–", f"{share * 100:.2f} % of a core", goal="< 1 %")
        )
    return found


if __name__ == "__main__":
    child(*sys.argv[1:])

"""What a scrape costs on a large broker; `python -m bench.metrics_page [METRICS_ROWS_MAX]`.

A broker in this process with 10,000 open partitions and 1,000 groups is scraped a few times, a
second apart, while a client in a process of its own produces one record after the other.  Printed
for each scrape: its time, its bytes, the longest step of any task of the event loop meanwhile, by
the clock and in processor time of the loop's thread (the clock counts what the machine gives to
others, too), and how long the client waited for its acknowledgements, during the scrapes and
between them.
"""

import logging
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import structlog
import trio

from segbroker.broker.address import join_address
from segbroker.broker.configuration.config import merge
from segbroker.broker.loop.long_lived import spare
from segbroker.broker.server import Broker
from segbroker.client import Admin, Producer, TopicPartition

from .report import latency

TOPICS: Final = 100
PARTITIONS: Final = 100
GROUPS: Final = 1_000
PLACES: Final = 10
"""Partitions to which each group has committed."""
SCRAPES: Final = 10
PAUSE_S: Final = 1.0
ASK: Final = b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"


class Steps(trio.abc.Instrument):
    """The longest step of any task."""

    def __init__(self) -> None:
        self.longest_s = self.longest_work_s = 0.0
        self._began, self._work = time.perf_counter(), time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began, self._work = time.perf_counter(), time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest_s = max(self.longest_s, time.perf_counter() - self._began)
        self.longest_work_s = max(self.longest_work_s, time.thread_time() - self._work)


def _prepare(address: str) -> None:
    """Topics, each partition opened by its first record, and groups that stand at 0."""
    with Admin(address) as admin, Producer(address) as producer:
        names = [f"t{number:03}" for number in range(TOPICS)]
        for name in names:
            admin.create_topic(name, partitions=PARTITIONS, config={"durability": "memory"})
            for partition in range(PARTITIONS):
                producer.send(name, b"v" * 100, partition=partition)
        producer.flush()
        for number in range(GROUPS):
            name = names[number % TOPICS]
            admin.commit(f"g{number:04}", {TopicPartition(name, one): 0 for one in range(PLACES)})
        admin.create_topic("pinged", partitions=1, config={"durability": "memory"})


def _ping(address: str, end: Connection) -> None:
    """In a process of its own: (when a record was sent, how long until it was acknowledged)."""
    pings = []
    with Producer(address, linger_ms=0) as producer:
        while not end.poll():
            began = time.monotonic()
            producer.send("pinged", b"v" * 100).result()
            pings.append((began, time.monotonic() - began))
    end.send(pings)


async def _scrape(address: tuple[str, int]) -> int:
    size = 0
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(ASK)
        async for piece in stream:
            size += len(piece)
    return size


async def _measure(data: str, rows_max: int) -> None:
    listen = "127.0.0.1:0"
    settings = {"data": data, "listen": listen, "metrics_listen": listen}
    broker = Broker(merge({**settings, "metrics_rows_max": rows_max}))
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    scrapes: list[tuple[float, float]] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        address = join_address(*broker.address)
        await trio.to_thread.run_sync(_prepare, address)
        nursery.start_soon(spare, broker.core.topics)  # as `segbroker serve` does
        page = broker.metrics_address
        assert page is not None
        pinger = multiprocessing.get_context("spawn").Process(target=_ping, args=(address, theirs))
        pinger.start()
        await trio.sleep(3 * PAUSE_S)
        for _ in range(SCRAPES):
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            began = time.monotonic()
            size = await _scrape(page)
            ended = time.monotonic()
            trio.lowlevel.remove_instrument(steps)
            scrapes.append((began, ended))
            _say(
                f"scrape: {(ended - began) * 1000:.0f} ms, {size:,} bytes, "
                f"longest step {steps.longest_s * 1000:.1f} ms, "
                f"{steps.longest_work_s * 1000:.1f} ms of processor time"
            )
            await trio.sleep(PAUSE_S)
        await trio.to_thread.run_sync(ours.send, None)
        pings = await trio.to_thread.run_sync(ours.recv)
        await trio.to_thread.run_sync(pinger.join)
        broker.drain()
        nursery.cancel_scope.cancel()
    within: Callable[[float], bool] = lambda at: any(a <= at < b for a, b in scrapes)  # noqa: E731
    first = scrapes[0][0] - PAUSE_S
    during = [took for at, took in pings if within(at)]
    between = [took for at, took in pings if at >= first and not within(at)]
    _say(f"acknowledgements during scrapes: {len(during)}, {latency(during)}")
    _say(f"acknowledgements between them: {len(between)}, {latency(between)}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rows_max = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_measure, str(Path(folder) / "data"), rows_max)


if __name__ == "__main__":
    main()

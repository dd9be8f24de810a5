"""A reader that was ahead of the disk when the power failed: told what is gone, and goes on.

The broker runs in the test's loop on a disk in memory that forgets what was not synced; the reader,
one of each shell, in a thread of its own, through the cut.
"""

from collections.abc import Callable
from functools import partial
from threading import Event
from typing import TypeAlias

import anyio
import pytest
import trio

from segbroker.client import AsyncConsumer, Consumer, Gap, Record
from segbroker.segments.disk.memory import MemoryStorage

from ..broker.conftest import serving
from ..support.ports import keep_port
from ..support.wire_client import connect

WAIT_S = 60
NEVER_MS = 3_600_000
# What a power cut costs in offsets beside the records: see docs/storage.md, ceilings.
BLOCK = 1 << 20

Item: TypeAlias = Record | Gap
# (address, three records were read, go on) -> all that was read
Reader: TypeAlias = Callable[[str, Event], list[Item]]


def is_caught_up(items: list[Item]) -> bool:
    last = items[-1] if items else None
    return isinstance(last, Record) and last.value == b"next"


def read(address: str, three_are_read: Event) -> list[Item]:
    items: list[Item] = []
    with Consumer(address, "t", on_gap="yield") as consumer:
        while not is_caught_up(items):
            items += consumer.poll(10, 1_000)
            if len(items) == 3:
                three_are_read.set()
    return items


async def read_async(address: str, three_are_read: Event) -> list[Item]:
    items: list[Item] = []
    async with AsyncConsumer(address, "t", on_gap="yield") as consumer:
        while not is_caught_up(items):
            items += await consumer.poll(10, 1_000)
            if len(items) == 3:
                three_are_read.set()
    return items


def in_loop(backend: str) -> Reader:
    return lambda *args: anyio.run(partial(read_async, *args), backend=backend)


@pytest.mark.parametrize(
    "reader", [read, in_loop("trio"), in_loop("asyncio")], ids=["blocking", "trio", "asyncio"]
)
async def test_a_tail_that_was_read_and_lost_in_a_power_cut_is_told(reader: Reader) -> None:
    disk = MemoryStorage()
    address = f"127.0.0.1:{keep_port()}"
    three_are_read = Event()
    has_read = trio.Event()
    items: list[Item] = []

    async def run_reader(address: str) -> None:
        items.extend(await trio.to_thread.run_sync(reader, address, three_are_read))
        has_read.set()

    with trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            async with serving(
                storage=disk, listen=address, housekeeping_interval_ms=NEVER_MS
            ) as broker:
                async with connect(broker.address) as client:
                    await client.create("t", durability="disk")
                    await client.produce("t", b"kept")
                    partition = broker.core.topics.served_partition("t", 0)
                    assert partition is not None
                    partition.handler.sync()
                    await client.produce("t", b"lost", b"lost too")
                nursery.start_soon(run_reader, address)
                await trio.to_thread.run_sync(three_are_read.wait, WAIT_S, abandon_on_cancel=True)
                disk = disk.after_power_cut()
            async with serving(
                storage=disk, listen=address, housekeeping_interval_ms=NEVER_MS
            ) as broker:
                async with connect(broker.address) as client:
                    await client.fetch("t", 0)
                    assert (await client.produce("t", b"next")).base_offset == BLOCK + 1
                await has_read.wait()
    records = [(item.offset, item.value) for item in items if isinstance(item, Record)]
    assert records == [(0, b"kept"), (1, b"lost"), (2, b"lost too"), (BLOCK + 1, b"next")]
    gaps = [item for item in items if isinstance(item, Gap)]
    assert {gap.reason for gap in gaps} == {"lost_tail"}
    assert (gaps[0].from_offset, gaps[-1].to_offset) == (1, BLOCK + 1)
    assert sum(gap.lost_count for gap in gaps) == BLOCK, "told once"

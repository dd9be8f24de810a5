"""What is done again and again beside the requests never ends the broker."""

from collections.abc import Callable

import pytest
import trio

from segbroker.broker import chores
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.scrubbing import Scrubber
from segbroker.segments.errors import StorageError

from ..support.patient_clock import passes
from ..support.wire_client import connect, values
from ..support.wire_settings import alter
from ..support.wire_transactions import Tx, read, until
from .conftest import Events, serving


@pytest.mark.parametrize(
    ("part", "method", "event"),
    [
        (DiskManager, "housekeeping", "housekeeping_failed"),
        (Scrubber, "step", "scrub_failed"),
        (Cleaner, "step", "cleaner_failed"),
    ],
)
async def test_a_mistake_in_a_chore_is_told_again_and_again_and_requests_go_on(
    part: type[object], method: str, event: str, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashes(*_: object) -> Callable[[], None]:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(part, method, crashes)
    monkeypatch.setattr(chores, "SCRUB_STEP_S", 0.01)
    monkeypatch.setattr(chores, "CLEAN_LOOK_S", 0.01)
    async with serving(housekeeping_interval_ms=10) as broker, connect(broker.address) as client:
        with trio.fail_after(60):
            while len(events.named(event)) < 2:
                await trio.lowlevel.checkpoint()
        await client.create("t")
        await client.produce("t", b"on")
        assert values(await client.fetch("t", 0)) == [b"on"]
        assert all(line.get("exc_info") for line in events.named(event)), "with its traceback"


async def test_a_shorter_pause_holds_also_for_the_pause_under_way(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashes(*_: object) -> Callable[[], None]:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(DiskManager, "housekeeping", crashes)
    monkeypatch.setattr(chores, "LOOK_S", 0.01)
    async with (
        serving(housekeeping_interval_ms=86_400_000) as broker,
        connect(broker.address) as client,
    ):
        assert await alter(client, "1", housekeeping_interval_ms="10") == (0, None)
        with trio.fail_after(60):
            while not events.named("housekeeping_failed"):
                await trio.lowlevel.checkpoint()


async def test_a_transaction_is_ended_after_its_time_also_where_housekeeping_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(DiskManager, "housekeeping", fails)
    async with serving(housekeeping_interval_ms=10) as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx")
        assert await tx.init(timeout_ms=60_000) == 0
        assert await tx.send("t", b"v") == 0
        await passes(60)

        async def is_over() -> bool:
            return (await read(client, "t")).last_stable_offset == 2

        await until(is_over)

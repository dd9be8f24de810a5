"""What thousands wait for at once is told, and done, some at a time: others have their turn."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
import trio

from segbroker.broker.loop import pace
from segbroker.broker.loop.callbacks import Callbacks
from segbroker.broker.transactions.ledger import Ledger
from segbroker.broker.transactions.transaction_table import Entry
from segbroker.broker.transactions.transaction_upkeep import ABORTS_AT_ONCE
from segbroker.segments.metadata.transactions import Transaction
from segbroker.segments.wal.frames import Frame, FrameType
from segbroker.segments.wal.group import TOLD_AT_ONCE, Group, Request

from ..support.waiting import becomes
from ..support.wire_client import connect
from ..support.wire_transactions import NOW_MS, V1, Tx
from .conftest import Events, serving

LATE = ABORTS_AT_ONCE * 5 // 2


async def test_of_transactions_that_are_late_some_are_aborted_at_a_time(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """After a start the time of ten thousand may be over at the same moment."""
    abort = Ledger.abort
    running = most = 0

    async def counted(self: Ledger, entry: Entry, meant: Transaction) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await abort(self, entry, meant)
        running -= 1

    monkeypatch.setattr(Ledger, "abort", counted)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for number in range(LATE):
            tx = Tx(client, f"x-{number}", V1)
            assert await tx.init() == 0
            assert await tx.add("t", 0) == [0]
        table = broker.core.transactions.table
        assert len(table.open) == LATE
        for entry in table.open.values():
            entry.deadline_ms = 0
        broker.core.transaction_upkeep.keep_house(NOW_MS)
        await becomes(lambda: not table.open)
    assert most == ABORTS_AT_ONCE
    named = [event["transactional_id"] for event in events.named("transaction_timed_out")]
    assert len(set(named)) == len(named) == LATE


def test_what_a_sync_has_made_durable_is_told_some_hundreds_at_a_time() -> None:
    """Each of ten thousand commits makes a state anew when it is told."""
    told: list[int] = []
    jobs: list[Callable[[], None]] = []
    group, count = Group(), TOLD_AT_ONCE * 5 // 2
    for number in range(count):
        frame = Frame(FrameType.CONTROL, payload=b"")
        group.add_request(Request([frame], lambda _, number=number: told.append(number)))  # type: ignore[misc]
    group.settle(None, jobs.append)
    for job in jobs:
        before = len(told)
        job()
        assert len(told) - before <= TOLD_AT_ONCE
    assert told == [*range(count)]


async def test_jobs_from_threads_leave_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: now))
    order: list[str] = []
    calls = Callbacks()

    def job(number: int) -> None:
        nonlocal now
        now += pace.STEP_S
        order.append(f"job {number}")

    async def other() -> None:
        while "job 2" not in order:
            order.append("other")
            await trio.lowlevel.checkpoint()

    for number in range(3):
        calls(partial(job, number))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
    assert [one for one in order if one != "other"] == ["job 0", "job 1", "job 2"]
    # Who is first in a pass is drawn.
    assert order.index("job 2") - order.index("job 0") > 2

"""Transactions decided together, by a query's batch; ids and queries that are forgotten."""

from collections import Counter

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.apis.batch_commits import NAME_SIZE_MAX
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.directory.age_clock import JUMP_MS

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect
from ..support.wire_transactions import (
    NOW_MS,
    VERSIONS,
    Tx,
    aborted,
    commit_batch,
    last_batch,
    read,
    some,
    until,
)
from .conftest import serving


@VERSIONS
async def test_a_batch_is_committed_once_with_all_of_its_transactions(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        assert await last_batch(client, "q") is None
        tasks = await some(client, version, "a", "b")
        assert await commit_batch(client, "q", 0, *tasks) == {"committed": True, "repeated": False}
        assert await last_batch(client, "q") == 0
        # The answer was lost: asked again, nothing changes.
        assert await commit_batch(client, "q", 0, *tasks) == {"committed": True, "repeated": True}
        # The batch is run a second time: what it wrote is aborted.
        again = await some(client, version, "a", "b")
        assert await commit_batch(client, "q", 0, *again) == {"committed": True, "repeated": True}
        row = await read(client, "t")
        assert row.last_stable_offset == row.high_watermark == 8
        assert len(aborted(row)) == 2
        for one in again:  # whoever prepared it has to begin anew
            assert await one.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert await commit_batch(client, "q", 1) == {"committed": True, "repeated": False}
        assert await last_batch(client, "q") == 1
        assert await last_batch(client, "another") is None


@VERSIONS
async def test_a_batch_with_a_transaction_that_is_not_open_changes_nothing(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        sound, gone = await some(client, version, "sound", "gone")
        assert await gone.end(commit=False) == 0
        fenced = Tx(client, "fenced", version)
        await fenced.init()
        before = Tx(client, "fenced", version, fenced.producer_id, fenced.epoch)
        await fenced.init()
        unknown = Tx(client, "unknown", version, 1, 1)
        for other, code in (
            (gone, ErrorCode.INVALID_TXN_STATE),
            (before, ErrorCode.PRODUCER_FENCED),
            (unknown, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ):
            reply = await commit_batch(client, "q", 0, sound, other)
            assert isinstance(reply["error"], dict)
            assert reply["error"]["code"] == code
        assert await last_batch(client, "q") is None
        assert (await read(client, "t")).last_stable_offset == 0
        assert await commit_batch(client, "q", 0, sound) == {"committed": True, "repeated": False}


async def test_what_a_batch_ends_beside_its_own_need_not_fit_one_event() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        names = [f"q/{number:030000}/0" for number in range(40)]
        for one in await some(client, 1, *names):
            assert one.producer_id >= 0
        assert sum(map(len, names)) > broker.core.topics.manager.event_size_max
        reply = await commit_batch(client, "q", 0, ends_others=True)
        assert reply == {"committed": True, "repeated": False}
        assert not broker.core.transactions.table.open


async def test_a_batch_whose_names_do_not_fit_one_event_is_an_invalid_request() -> None:
    """A prefix is said once, and is part of each name that is written down."""
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        prefix = NAME_SIZE_MAX * "\N{GRINNING FACE}"
        most = broker.core.topics.manager.event_size_max // len(prefix.encode())
        tasks = await some(client, 1, *(f"{prefix}{number}" for number in range(most + 1)))
        for one in tasks:
            one.name = one.name.removeprefix(prefix)
        reply = await commit_batch(client, "q", 0, *tasks, prefix=prefix)
        assert isinstance(reply["error"], dict)
        assert reply["error"]["code"] == ErrorCode.INVALID_REQUEST
        assert len(broker.core.transactions.table.open) == len(tasks)
        half = tasks[: most // 2]
        reply = await commit_batch(client, "q", 0, *half, prefix=prefix)
        assert reply == {"committed": True, "repeated": False}


async def test_a_task_that_holds_many_transactions_looks_for_none_among_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trio.Lock is looked for in the list of those that its task holds: to release the locks of
    twenty thousand took the loop two seconds."""
    held: Counter[trio.lowlevel.Task] = Counter()
    most = 0

    def added(task: trio.lowlevel.Task, lot: trio.lowlevel.ParkingLot) -> None:
        nonlocal most
        trio.lowlevel.add_parking_lot_breaker(task, lot)
        held[task] += 1
        most = max(most, held[task])

    def removed(task: trio.lowlevel.Task, lot: trio.lowlevel.ParkingLot) -> None:
        trio.lowlevel.remove_parking_lot_breaker(task, lot)
        held[task] -= 1

    monkeypatch.setattr("trio._sync.add_parking_lot_breaker", added)
    monkeypatch.setattr("trio._sync.remove_parking_lot_breaker", removed)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tasks = await some(client, 1, *(f"q/{number}/0" for number in range(20)))
        reply = await commit_batch(client, "q", 0, *tasks[:10], ends_others=True)
        assert reply == {"committed": True, "repeated": False}
        assert not broker.core.transactions.table.open
    assert 0 < most < 5


@VERSIONS
async def test_what_all_names_begin_with_may_be_said_once(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        prepared = await some(client, version, "q/0/0", "q/1/0")
        rows = [{**one.prepared(), "transactional_id": f"{n}/0"} for n, one in enumerate(prepared)]
        body = {"query": "q", "batch": 0, "prefix": "q/", "transactions": rows}
        reply = await client.ask_vendor(VendorKey.COMMIT_BATCH, body)
        assert reply["committed"]
        row = await read(client, "t")
        assert row.last_stable_offset == row.high_watermark == 4
        assert not aborted(row)


@VERSIONS
async def test_with_a_batch_end_the_other_attempts_of_its_tasks_and_nothing_else(
    version: int,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        written, died, of_more = await some(client, version, "q/0/1", "q/0/0", "q/17/0")
        names = ("q", "q/0", "q/0/x", "q/0/0/0", "q/a/0/0", "q/0/0 ", "qq/0/0", "r/0/0")
        others = await some(client, version, *names)
        reply = await commit_batch(client, "q", 3, written, ends_others=True)
        assert reply == {"committed": True, "repeated": False}
        row = await read(client, "t")
        assert row.last_stable_offset == 3
        assert [first for _, first in aborted(row)] == [1, 2]
        for one in (died, of_more):
            assert await one.end(commit=True) == ErrorCode.PRODUCER_FENCED
        for one in others:
            assert await one.end(commit=True) == 0


@VERSIONS
async def test_a_batch_that_is_committed_again_leaves_what_the_next_one_has_open(
    version: int,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        late, _ = of_the_dead = await some(client, version, "q/0/0", "q/1/0")
        of_the_next = await some(client, version, "q/0/1")
        await commit_batch(client, "q", 3, *of_the_next, ends_others=True)
        next_ones = await some(client, version, "q/0/0", "q/1/0", "q/2/0")
        # A driver that was taken for dead.
        for _ in range(2):
            reply = await commit_batch(client, "q", 3, *of_the_dead, ends_others=True)
            assert reply == {"committed": True, "repeated": True}
        reply = await commit_batch(client, "q", 4, *next_ones, ends_others=True)
        assert reply == {"committed": True, "repeated": False}
        assert await late.end(commit=True) == ErrorCode.PRODUCER_FENCED


async def test_a_batch_that_says_nonsense_is_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        good = {"transactional_id": "a", "producer_id": 1, "producer_epoch": 0}
        for body in (
            {"query": "", "batch": 0, "transactions": []},
            {"query": 5, "batch": 0, "transactions": []},
            {"query": "q", "batch": -1, "transactions": []},
            {"query": "q", "batch": True, "transactions": []},
            {"query": "q", "batch": 0, "transactions": None},
            {"query": "q", "batch": 0, "transactions": [{}]},
            {"query": "q", "batch": 0, "transactions": [good, good]},
            {"query": "q", "batch": 0, "transactions": [{**good, "producer_id": -1}]},
            {"query": "q", "batch": 0, "transactions": [{**good, "producer_epoch": -1}]},
            {"query": "q", "batch": 0, "transactions": [{**good, "producer_epoch": 2**15}]},
            {"query": "q", "batch": 0, "prefix": 5, "transactions": [good]},
            {"query": "q", "batch": 0, "ends_others": 1, "transactions": []},
            {"query": "q", "batch": 0, "prefix": "q" * 1_001, "transactions": [good]},
        ):
            reply = await client.ask_vendor(VendorKey.COMMIT_BATCH, body)
            assert isinstance(reply["error"], dict)
            assert reply["error"]["code"] == ErrorCode.INVALID_REQUEST, body


async def forget(client: WireClient, *names: str, query: str | None = None) -> dict[str, object]:
    body: dict[str, object] = {"transactional_ids": list(names), "query": query}
    reply = await client.ask_vendor(VendorKey.FORGET_TRANSACTIONS, body)
    del reply["performance"]
    return reply


@VERSIONS
async def test_names_that_nobody_comes_back_to_are_aborted_and_forgotten(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        kept, left = await some(client, version, "kept", "left open")
        await commit_batch(client, "q", 0, kept)
        assert (await read(client, "t")).last_stable_offset == 1
        assert await forget(client, "left open", "never seen") == {"forgotten": 1}
        row = await read(client, "t")
        assert row.last_stable_offset == row.high_watermark == 4
        assert [first for _, first in aborted(row)] == [1]
        assert await left.send("t", b"late") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        # Until it is named as well, the query is known, and so is its batch.
        assert await last_batch(client, "q") == 0
        assert await forget(client, "kept", "left open", query="q") == {"forgotten": 1}
        assert await last_batch(client, "q") is None
        assert not broker.core.transactions.table.entries
        assert await forget(client, "kept", query="q") == {"forgotten": 0}


@pytest.mark.parametrize(
    "body",
    [
        {"transactional_ids": None},
        {"transactional_ids": [1]},
        {"transactional_ids": ["a"] * 10_001},
        {"transactional_ids": [], "query": ""},
    ],
)
async def test_names_to_be_forgotten_that_are_none_are_refused(body: dict[str, object]) -> None:
    async with serving() as broker, connect(broker.address) as client:
        reply = await client.ask_vendor(VendorKey.FORGET_TRANSACTIONS, body)
        assert isinstance(reply["error"], dict)
        assert reply["error"]["code"] == ErrorCode.INVALID_REQUEST


async def test_a_query_is_forgotten_when_it_is_old() -> None:
    now_ms = NOW_MS
    async with (
        serving(
            now_ms=lambda: now_ms, housekeeping_interval_ms=10, transactional_id_expiration_ms=1_000
        ) as broker,
        connect(broker.address) as client,
    ):
        await commit_batch(client, "q", 7)
        now_ms += 1_001

        async def is_forgotten() -> bool:
            return await last_batch(client, "q") is None

        await until(is_forgotten)


async def test_a_clock_that_jumped_ahead_forgets_neither_ids_nor_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms, asked_count = NOW_MS, 0

    def clock() -> int:
        nonlocal asked_count
        asked_count += 1
        return now_ms

    monkeypatch.setattr("segbroker.broker.chores.wall_ms", clock)  # nobody sets it on purpose
    async with (
        serving(
            now_ms=clock, housekeeping_interval_ms=10, transactional_id_expiration_ms=1_000
        ) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        tx = Tx(client, "tx")
        assert await tx.init() == 0
        await commit_batch(client, "q", 7)

        async def rounds_passed() -> bool:
            return asked_count >= 20

        asked_count = 0
        await until(rounds_passed)
        now_ms += 2 * JUMP_MS
        asked_count = 0
        await until(rounds_passed)
        assert not broker.core.topics.manager.believes_clock
        assert await last_batch(client, "q") == 7
        assert await tx.add("t", 0) == [0]


async def test_a_query_whose_batch_is_on_its_way_is_not_forgotten_with_its_last_one() -> None:
    now_ms = NOW_MS
    disk = GatedStorage()
    async with (
        serving(storage=disk, now_ms=lambda: now_ms) as broker,
        connect(broker.address) as client,
        trio.open_nursery() as nursery,
    ):
        await commit_batch(client, "q", 7)
        now_ms += 1_001
        disk.syncs.clear()
        batches = broker.core.query_batches
        nursery.start_soon(batches.commit, "q", 8, [])
        await wait_all_tasks_blocked()
        nursery.start_soon(batches.forget_old, NOW_MS + 1)
        await wait_all_tasks_blocked()
        disk.syncs.set()

        async def is_committed() -> bool:
            return await last_batch(client, "q") == 8

        await until(is_committed)
        await batches.forget_old(NOW_MS + 1)
        assert await is_committed()


async def test_who_waits_while_its_id_is_forgotten_has_it_anew() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        trio.open_nursery() as nursery,
    ):
        await client.create("t")
        tx = Tx(client, "tx")
        assert await tx.init() == 0
        coordinator = broker.core.transactions
        async with coordinator.table.entries["tx"].lock:
            nursery.start_soon(coordinator.init, "tx", 60_000, -1, -1, {})
            await wait_all_tasks_blocked()
            coordinator.table.forget("tx")

        async def is_known() -> bool:
            return coordinator.table.get("tx") is not None

        await until(is_known)

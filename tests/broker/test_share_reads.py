"""How much a share fetch reads: what the records that are asked for may take."""

import pytest
import trio

from segbroker.segments.partition.handler import DiskHandler, ReadPlan

from ..support.wire_client import connect
from ..support.wire_shares import Sharing
from ..support.wire_transactions import V2, Tx
from .conftest import serving
from .test_share_fetch import offsets, sharing

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each read, as it was planned."""
    sizes: list[int] = []
    plan_read = DiskHandler.plan_read

    def noted(
        self: DiskHandler, offset: int, max_bytes: int, *, up_to: int | None = None
    ) -> ReadPlan | None:
        plan = plan_read(self, offset, max_bytes, up_to=up_to)
        if plan is not None:
            sizes.append(plan.size_max)
        return plan

    monkeypatch.setattr(DiskHandler, "plan_read", noted)
    return sizes


async def fetched(one: Sharing, count: int, *partitions: int) -> list[int]:
    return offsets(
        await one.fetch(*partitions, max_records=count, strict=True, max_bytes=8 * MIB, wait_ms=0)
    )


async def test_who_asks_for_few_records_has_few_read(planned: list[int]) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        for _ in range(20):
            for partition in range(2):
                await client.produce("t", *(b"a" * KIB,) * 50, partition=partition)
        one = await sharing(client)
        assert await fetched(one, 10, 0, 1) == list(range(10))
        assert sum(planned) <= 2 * 51 * KIB, "of two megabytes"


async def test_who_asks_for_large_records_has_as_many_as_there_is_room_for(
    planned: list[int],
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for _ in range(40):
            await client.produce("t", b"a" * (100 * KIB))
        one = await sharing(client)
        first = await fetched(one, 20, 0)
        assert first, "they are larger than was to be expected"
        again = await fetched(one, 20)
        assert again == list(range(len(first), len(first) + 20))


@pytest.mark.parametrize("most", ["to be wanted", "to be sent"])
async def test_what_whole_batches_leave_of_a_limit_is_not_waited_for(most: str) -> None:
    size, limit = 30 * KIB, 200_000
    assert limit % size
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for _ in range(1 + limit // size):
            await client.produce("t", b"a" * size)
        one = await sharing(client)
        max_bytes = limit if most == "to be sent" else MIB
        with trio.fail_after(60):
            given = await one.fetch(
                0, min_bytes=limit, max_bytes=max_bytes, max_records=5, wait_ms=600_000
            )
        assert offsets(given)[:5] == list(range(5))


async def test_aborted_records_that_are_deleted_while_another_partition_is_read_are_not_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The read of the second has been planned: the batches are there, the log knows no range."""
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 2)
        await client.produce("t", b"first")
        tx = Tx(client, "x", V2)
        assert not await tx.init()
        assert not await tx.send("t", b"aborted", partition=1)
        assert not await tx.end(commit=False)
        await client.produce("t", b"behind", partition=1)
        one = await sharing(client, share_isolation_level="read_committed")
        handler = broker.core.topics.served["t", 1].handler
        read_nowait = ReadPlan.read_nowait

        def deleted(self: ReadPlan, buffer: memoryview) -> int | None:
            if handler.log_start_offset == 0:
                handler.delete_records_before(2)
                handler.keep_house(broker.core.now_ms())
                assert not handler.transactions.aborted
            return read_nowait(self, buffer)

        monkeypatch.setattr(ReadPlan, "read_nowait", deleted)
        assert [given.value for given in await one.fetch(0, 1)] == [b"first", b"behind"]

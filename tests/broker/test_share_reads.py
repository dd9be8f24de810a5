"""How much a share fetch reads: what the records that are asked for may take."""

import pytest

from segbroker.segments.partition.handler import DiskHandler, ReadPlan

from ..support.wire_client import connect
from ..support.wire_shares import Sharing
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

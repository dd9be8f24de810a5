"""The scrub of a running broker, and how it is told."""

from typing import Any

import pytest
import trio

from segbroker.protocol.vendor import VendorKey
from segbroker.segments.disk.memory import MemoryStorage

from ..segments.tools import as_after_a_checkpoint, flip
from ..support.wire_client import connect
from .conftest import serving


@pytest.mark.parametrize("has_records", [False, True])
async def test_damage_is_found_by_the_scrub_and_told_by_the_server(has_records: bool) -> None:
    """has_records: the write-ahead log has the batch."""
    disk = MemoryStorage()
    async with (
        serving(storage=disk, scrub_interval_ms=1_000) as broker,
        connect(broker.address) as client,
    ):
        if not has_records:
            as_after_a_checkpoint(broker.core.topics.manager)
        await client.create("t", segment_bytes="512")
        for _ in range(20):
            await client.produce("t", b"v" * 100)
        flip(disk, "/data/topics/t/partition_0/t_partition_0_segment_1.log", 100)
        with trio.fail_after(60):
            while not broker.core.scrubber.statistics.errors:  # noqa: ASYNC110 - a real second
                await trio.sleep(0.05)
        info = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        recovery: Any = info["recovery"]
        scrub: Any = info["scrub"]
        assert recovery["counts"]["offsets_lost"] == (0 if has_records else 1)
        what = "replayed" if has_records else "gap"
        (told,) = [row for row in recovery["rows"] if row["what"] in ("gap", "replayed")]
        assert (told["what"], told["topic"], told["partition"]) == (what, "t", 0)
        assert has_records or told["reason"] == "corruption"
        assert scrub["errors"] == 1
        assert scrub["bytes"] > 500
        reply: Any = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {"topics": ["t"]})
        (row,) = reply["topics"]["t"]["partitions"]
        assert row["repairs"] == 1


@pytest.mark.parametrize("mode", ["readonly", "refuse"])
async def test_damage_is_told_by_each_start_though_nobody_asks_for_the_partition(mode: str) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        as_after_a_checkpoint(broker.core.topics.manager)
        await client.create("t", segment_bytes="512", on_corruption=mode)
        for _ in range(20):
            await client.produce("t", b"v" * 100)
    flip(disk, "/data/topics/t/partition_0/t_partition_0_segment_1.log", 100)
    for rate in (1 << 20, 0):  # found by the scrub, and known from then on
        async with (
            serving(storage=disk, scrub_bytes_per_second=rate) as broker,
            connect(broker.address) as client,
        ):
            told: list[Any] = []
            with trio.fail_after(60):
                while not told:
                    await trio.sleep(0.05)  # the broker's own second
                    info: Any = await client.ask_vendor(VendorKey.SERVER_INFO, {})
                    told = [*info["read_only"], *info["not_opened"]]
            assert [(row["topic"], row["partition"]) for row in told] == [("t", 0)]
            assert "segment_1.log is damaged" in told[0]["why"]
            assert not broker.core.topics.served

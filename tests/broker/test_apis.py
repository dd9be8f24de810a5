"""Which apis there are and who serves them; segbroker's own requests."""

import errno
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from segbroker.broker.requests import ANSWERS, SLOW_ANSWERS, WAITING_ANSWERS
from segbroker.cli.broker_status import concerns
from segbroker.protocol.api_keys import SERVED, ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from segbroker.protocol.messages_core import (
    ApiVersionsResponse,
)
from segbroker.protocol.messages_groups import FindCoordinatorRequest, FindCoordinatorResponse
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.directory import upkeep
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.wire_client import (
    batch,
    connect,
    software,
)
from .conftest import serving


async def test_vendor_apis_are_told_only_to_our_own_clients() -> None:
    async with serving() as broker:
        async with connect(broker.address) as ours, connect(broker.address) as foreign:
            to_us = await ours.ask(software("segbroker-py"), ApiVersionsResponse, 3)
            to_them = await foreign.ask(software("librdkafka"), ApiVersionsResponse, 3)
        keys = {one.api_key for one in to_them.api_keys}
        assert keys == {int(key) for key in SERVED}
        assert {one.api_key for one in to_us.api_keys} - keys >= {VendorKey.SERVER_INFO}


async def test_every_api_that_is_served_has_a_handler() -> None:
    own = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS}
    handled = ANSWERS.keys() | SLOW_ANSWERS.keys() | WAITING_ANSWERS.keys()
    assert {int(key) for key in SERVED} == handled | own


async def test_the_cluster_is_one_broker() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        reply = await client.ask(request, DescribeClusterResponse, 1)
        assert [(one.broker_id, one.host, one.port) for one in reply.brokers] == [
            (1, *broker.address)
        ]
        assert reply.controller_id == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_we_coordinate_groups(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = FindCoordinatorRequest(key="group")
        reply = await client.ask(request, FindCoordinatorResponse, version)
        assert (reply.error_code, reply.node_id, reply.host, reply.port) == (
            0,
            1,
            *broker.address,
        )


async def test_we_coordinate_transactions_and_nothing_else() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for key_type, code in ((1, ErrorCode.NONE), (2, ErrorCode.INVALID_REQUEST)):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"])
            reply = await client.ask(request, FindCoordinatorResponse, 4)
            assert {one.error_code for one in reply.coordinators} == {code}


async def test_the_server_tells_of_itself() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"v")
        info = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        assert (info["broker_id"], info["topics"], info["connections"]) == (1, 1, 1)
        assert info["connections_max"] == 10_000
        unlimited = {"connections": 1, "connections_max": 2**31 - 1}
        assert info["listeners"] == [{"name": "PLAINTEXT", **unlimited}]
        counters = info["counters"]
        assert isinstance(counters, dict)
        assert counters["produced_bytes"] == len(batch(b"v"))
        assert set(info["performance"]) == {"storage_us"}  # type: ignore[call-overload]
        assert info["recovery"] == {
            "counts": {"offsets_lost": 0, "offsets_lost_at_most": 0},
            "rows": [],
        }
        wal = info["wal"]
        assert isinstance(wal, dict)
        assert wal["syncs"] <= wal["frames_written"] >= 2, "the topic and the record"
        assert wal["bytes_written"] > counters["produced_bytes"]
        assert (wal["shards_failed"], wal["files_full"]) == (0, 0)


async def test_the_alarms_of_the_page_are_of_fields_that_the_server_tells() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    rows = (
        page.partition("| seen | meaning | what to do |")[2].partition("\n\n")[0].splitlines()[2:]
    )
    fields = [
        name
        for row in rows
        for name in re.findall(r"`([a-z_.]+)` (?:above 0|is not |grows)", row.split("|")[1])
    ]
    assert len(fields) > 10
    async with serving() as broker, connect(broker.address) as client:
        info: Any = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        for name in fields:
            told, keys = info, name.split(".")
            for key in keys[:2] if keys[0] == "recovery" else keys:  # no count of what was not done
                assert key in told, name
                told = told[key]


async def test_the_statistics_of_partitions() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await client.create("u")
        await client.produce("t", b"a", b"b", partition=1)
        reply = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {"topics": ["t"]})
        topics = reply["topics"]
        assert isinstance(topics, dict)
        assert list(topics) == ["t"]
        empty, written = topics["t"]["partitions"]
        assert (empty["log_end_offset"], written["log_end_offset"]) == (0, 2)
        assert (written["high_watermark"], written["read_only"]) == (2, None)
        every = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {})
        assert sorted(every["topics"]) == ["t", "u"]  # type: ignore[call-overload]


async def test_the_statistics_of_many_partitions_come_in_pages() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("big", partitions=1_001)
        await client.create("small", partitions=2)
        body: dict[str, object] = {}
        pages: list[list[tuple[str, int]]] = []
        for _ in range(3):
            reply: Any = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, body)
            pages.append(
                [
                    (name, row["partition"])
                    for name, topic in reply["topics"].items()
                    for row in topic["partitions"]
                ]
            )
            if reply["next"] is None:
                break
            body = {"from": reply["next"]}
        assert pages == [
            [("big", index) for index in range(1_000)],
            [("big", 1_000), ("small", 0), ("small", 1)],
        ]
        assert not broker.core.topics.served
        behind_gone: dict[str, object] = {"from": {"topic": "big-gone", "partition": 7}}
        rest: Any = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, behind_gone)
        assert list(rest["topics"]) == ["small"], "deleted between two pages"
        twice: dict[str, object] = {"topics": ["small", "big", "small"], "open": False}
        reply = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, twice)
        assert reply["next"] == {"topic": "big", "partition": 998}
        for begin in ({"topic": "big", "partition": 0}, {"topic": "small", "partition": -1}):
            wrong: dict[str, object] = {"topics": ["small"], "from": begin}
            refused: Any = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, wrong)
            assert refused["error"]["class"] == "INVALID_REQUEST"


@pytest.mark.parametrize(("topics", "code"), [(["missing"], 3), ("t", 42), ([7], 42)])
async def test_a_vendor_request_is_refused_with_code_class_and_detail(
    topics: object, code: int
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        reply = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {"topics": topics})
        error = reply["error"]
        assert isinstance(error, dict)
        assert error["code"] == code
        assert error["class"] == ErrorCode.of(code).name
        assert error["detail"]


async def test_the_server_tells_why_the_snapshot_of_its_metadata_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though nothing is in doubt, as the write-ahead log has it."""

    class Refusing(MemoryStorage):
        refused = ""

        def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
            if create and self.refused and self.refused in path:
                raise PermissionError(errno.EACCES, "nobody may write there", path)
            return super().open(path, create=create, read_only=read_only)

    monkeypatch.setattr(upkeep, "SNAPSHOT_TICK_MS", 0)
    disk = Refusing()
    async with (
        serving(storage=disk, housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
    ):

        async def told() -> Any:  # noqa: ANN401 - from the wire
            return (await client.ask_vendor(VendorKey.SERVER_INFO, {}))["metadata_not_saved"]

        disk.refused = "/meta/"
        await client.create("t")
        with trio.fail_after(60):
            while await told() is None:
                await trio.lowlevel.checkpoint()
        info: dict[str, Any] = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        assert info["metadata_unsettled"] is None
        (line,) = [line for line in concerns(info) if "metadata" in line]
        assert "nobody may write there" in line
        disk.refused = ""
        with trio.fail_after(60):
            while await told() is not None:
                await trio.lowlevel.checkpoint()


async def test_the_server_tells_why_its_metadata_cannot_be_written() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
    ):

        async def told() -> object:
            return (await client.ask_vendor(VendorKey.SERVER_INFO, {}))["metadata_unsettled"]

        assert await told() is None
        disk.sync_error = OSError(errno.EIO, "the disk is gone")
        code, _ = await client.try_create("t")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        info: dict[str, Any] = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        (line,) = [line for line in concerns(info) if "metadata" in line]
        assert line.endswith("the disk is gone")
        disk.sync_error = None
        with trio.fail_after(60):
            while await told() is not None:
                await trio.lowlevel.checkpoint()

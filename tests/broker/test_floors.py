"""Where partitions begin and what was lost, over the wire: FLOORS, GAPS, statistics."""

from typing import Any

import pytest

from segbroker.broker.apis.floors import PARTITIONS_MAX
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.record_batch import GapReason
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.log.deleting import evict, unlink_doomed
from segbroker.segments.log.sealing import seal

from ..support.wire_client import WireClient, connect, values
from .conftest import serving
from .test_hostile import turns_meanwhile


async def ask(client: WireClient, key: int, **body: object) -> dict[str, Any]:
    return await client.ask_vendor(key, body)


async def fill(client: WireClient) -> None:
    """Topic t, partition 0: offsets 0 to 5, two in each segment."""
    await client.create("t", segment_bytes="512", index_interval_bytes="4096")
    for n in range(6):
        await client.produce("t", b"%d" % n + bytes(150))


async def test_the_floors_tell_what_was_lost_from_what_was_deleted() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await fill(client)
        handler = broker.core.topics.served["t", 0].handler
        seal(handler._log)
        evict(handler._log, 1, GapReason.TTL)
        handler.delete_records_before(3)
        reply = await ask(
            client,
            VendorKey.FLOORS,
            partitions=[{"topic": "t", "partition": 0}, {"topic": "t", "partition": 7}],
        )
        row, unknown = reply["partitions"]
        assert len(row.pop("topic_id")) == 16
        assert row == {
            "topic": "t",
            "partition": 0,
            "evict_floor": 2,
            "evict_reason": "ttl",
            "log_start_offset": 3,
            "high_watermark": 6,
            "leader_epoch": 0,
        }
        assert unknown["error"]["code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        gaps = await ask(client, VendorKey.GAPS, topic="t", partition=0)
        assert gaps["gaps"] == [
            {"from": 0, "to": 2, "reason": "ttl"},
            {"from": 2, "to": 3, "reason": "deleted"},
        ]
        assert gaps["next"] is None
        statistics = await ask(client, VendorKey.PARTITION_STATISTICS, topics=["t"])
        (row,) = statistics["topics"]["t"]["partitions"]
        assert (row["records"], row["evict_floor"], row["evict_reason"]) == (3, 2, "ttl")


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (VendorKey.FLOORS, {}),
        (VendorKey.FLOORS, {"partitions": [7]}),
        (VendorKey.FLOORS, {"partitions": [{"topic": 1, "partition": 0}]}),
        (VendorKey.GAPS, {"topic": "t"}),
        (VendorKey.GAPS, {"topic": "t", "partition": 0, "from": -1}),
        (VendorKey.GAPS, {"topic": "t", "partition": 0, "to": "end"}),
    ],
)
async def test_a_malformed_question_is_refused(key: VendorKey, body: dict[str, object]) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await ask(client, key, **body)
        assert reply["error"]["code"] == ErrorCode.INVALID_REQUEST


async def test_statistics_of_everything_open_nothing() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=3)
        await client.produce("t", b"v", partition=1)
        reply = await ask(client, VendorKey.PARTITION_STATISTICS)
        rows = reply["topics"]["t"]["partitions"]
        assert [row["is_open"] for row in rows] == [False, True, False]
        assert list(broker.core.topics.served) == [("t", 1)]
        reply = await ask(client, VendorKey.PARTITION_STATISTICS, topics=["t"])
        assert [row["records"] for row in reply["topics"]["t"]["partitions"]] == [0, 1, 0]


async def test_a_segment_that_goes_while_it_is_read_ends_in_out_of_range() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await fill(client)
        handler = broker.core.topics.served["t", 0].handler
        seal(handler._log)
        handler._log.files.drop()
        plan = handler.plan_read(0, 1 << 20)
        assert plan is not None
        handler.delete_records_before(4)
        unlink_doomed(handler._log)
        with pytest.raises(Exception, match=r"missing|meanwhile"):
            plan.read(memoryview(bytearray(plan.size_max)))
        plan.release()
        row = await client.fetch("t", 0)
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert row.log_start_offset == 4
        assert len(values(await client.fetch("t", 4))) == 2


async def test_who_is_asked_about_more_than_allowed_lets_others_run_meanwhile() -> None:
    async with serving() as broker, connect(broker.address) as client:
        replies: list[dict[str, Any]] = []

        async def ask_for_many() -> None:
            asked = [{"t": n} for n in range(2 * PARTITIONS_MAX)]
            replies.append(await ask(client, VendorKey.FLOORS, partitions=asked))

        turns = await turns_meanwhile(ask_for_many)
        assert replies[0]["error"]["code"] == ErrorCode.INVALID_REQUEST
        assert turns > 100  # 4 where it is decoded in between

"""Retention and full topics as clients see them."""

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.record_batch import GapReason
from segbroker.segments.log.sealing import seal

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import WireClient, batch, connect, fetch_request, values
from .conftest import serving


async def create_small(client: WireClient, retention_bytes: int = -1) -> None:
    """Two records of the tests per segment."""
    await client.create(
        "t",
        segment_bytes="512",
        index_interval_bytes="4096",
        retention_bytes=str(retention_bytes),
    )


async def test_of_a_topic_without_a_policy_nothing_goes() -> None:
    async with (
        serving(retention_interval_ms=1_000) as broker,
        connect(broker.address) as client,
    ):
        for name, policy in (("kept", ""), ("dropped", "delete")):
            await client.create(
                name, segment_records="1", retention_records="2", cleanup_policy=policy
            )
            for _ in range(6):
                await client.produce(name, b"a")
        with trio.fail_after(60):
            while (await client.fetch("dropped", 0)).error_code == 0:
                pass
        assert (await client.fetch("kept", 0)).error_code == 0


async def test_a_full_partition_refuses_its_batch_and_the_rest_of_the_request_is_served() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("full", retention_records="2", retention_full_policy="reject")
        await client.create("t")
        await client.produce("full", b"a", b"b")
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                ProduceRequestTopic(
                    name=name,
                    partition_data=[ProduceRequestPartition(index=0, records=batch(b"c"))],
                )
                for name in ("full", "t")
            ],
        )
        reply = await client.ask(request, ProduceResponse, 9)
        refused, taken = (topic.partition_responses[0] for topic in reply.responses)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert not ErrorCode.POLICY_VIOLATION.retryable
        assert "retention.records=2" in (refused.error_message or "")
        assert (refused.base_offset, taken.error_code, taken.base_offset) == (-1, 0, 0)
        single = await client.produce("full", b"d")
        assert single.error_code == ErrorCode.POLICY_VIOLATION
        assert (await client.fetch("full", 2)).high_watermark == 2


async def test_old_records_make_room_in_the_background() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await create_small(client, retention_bytes=1000)
        for n in range(20):
            await client.produce("t", b"%d" % n + bytes(150))
        handler = broker.core.topics.served["t", 0].handler
        await becomes(lambda: handler.size_bytes <= 1_000 + 2 * 512)
        keeper = broker.core.topics.manager.partitions.threads.housekeeper
        assert keeper is not None
        await trio.to_thread.run_sync(keeper.wait_idle)
        row = await client.fetch("t", 0)
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert row.log_start_offset > 0
        assert len(values(await client.fetch("t", 19))) == 1
        assert handler.evict_reason is GapReason.CAP
        assert handler.evict_floor >= row.log_start_offset


async def test_a_segment_that_is_being_read_is_read_to_its_end_while_retention_takes_it() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as reader,
        connect(broker.address) as other,
    ):
        await create_small(other)
        for n in range(8):
            await other.produce("t", b"%d" % n + bytes(150))
        handler = broker.core.topics.served["t", 0].handler
        await trio.to_thread.run_sync(seal, handler._log)
        assert len(values(await reader.fetch("t", 0))) >= 2
        disk.cached = False
        disk.reads.clear()
        await reader.send(fetch_request("t", 0), 12)
        files = broker.core.topics.manager.files._files
        await becomes(lambda: any(file.pins for file in tuple(files.values())))
        before = len(disk.listdir("/data/topics/t/partition_0"))
        handler.delete_records_before(6)  # does not wait for the reader
        await becomes(lambda: len(disk.listdir("/data/topics/t/partition_0")) < before)
        disk.reads.set()
        with trio.fail_after(60):
            frame = await reader.receive_frame()
        assert b"0" + bytes(150) in frame, "what was pinned is delivered whole"
        disk.cached = True
        assert (await reader.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

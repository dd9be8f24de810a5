"""Ids of producers, what is sent again, and times that the broker sets."""

from typing import cast

import pytest

from segbroker.broker.loop import pace
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ProduceResponse,
)
from segbroker.protocol.messages_transactions import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from segbroker.protocol.record_batch import check_batch, encode_batch, set_log_append_time

from ..support.wire_client import (
    batch,
    connect,
    produce_request,
)
from .conftest import serving
from .test_hostile import turns_meanwhile


async def test_producer_ids_never_repeat() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        replies = [await client.ask(request, InitProducerIdResponse, 4) for _ in range(20)]
        assert len({reply.producer_id for reply in replies}) == 20
        assert {reply.producer_epoch for reply in replies} == {0}


async def test_a_transactional_id_has_one_producer_id_and_the_next_epoch_each_time() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
        replies = [await client.ask(request, InitProducerIdResponse, 5) for _ in range(3)]
        assert [(reply.error_code, reply.producer_epoch) for reply in replies] == [
            (0, 0),
            (0, 1),
            (0, 2),
        ]
        assert len({reply.producer_id for reply in replies}) == 1


async def test_half_of_a_producer_is_refused_and_fences_nobody() -> None:
    async with serving() as broker, connect(broker.address) as client:

        async def init(producer_id: int, epoch: int) -> tuple[int, int]:
            request = InitProducerIdRequest(
                transactional_id="tx",
                transaction_timeout_ms=1000,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            reply = await client.ask(request, InitProducerIdResponse, 5)
            return reply.error_code, reply.producer_epoch

        assert await init(-1, -1) == (0, 0)
        known = broker.core.transactions.table.get("tx")
        assert known is not None
        for half in ((-1, 0), (known.producer_id, -1)):
            assert await init(*half) == (ErrorCode.INVALID_REQUEST, -1)
        assert await init(known.producer_id, 0) == (0, 1)


async def test_an_idempotent_batch_sent_again_is_answered_but_not_appended_again() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")

        async def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
            records = encode_batch(
                [b"v"],
                timestamps_ms=1000,
                producer_id=7,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            reply = await client.ask(produce_request("t", records), ProduceResponse, 9)
            row = reply.responses[0].partition_responses[0]
            return row.error_code, row.base_offset

        assert await send(0) == (0, 0)
        assert await send(1) == (0, 1)
        assert await send(0) == (0, 0)
        assert await send(5) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await send(0, epoch=1) == (0, 2)
        assert await send(2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert (await client.fetch("t", 0)).high_watermark == 3


async def test_a_topic_of_log_append_time_gets_the_brokers_time() -> None:
    async with serving(now_ms=lambda: 1_234_567) as broker, connect(broker.address) as client:
        await client.create("t", message_timestamp_type="LogAppendTime")
        row = await client.produce("t", b"v")
        assert (row.error_code, row.log_append_time_ms) == (0, 1_234_567)
        records = bytes(cast(bytes, (await client.fetch("t", 0)).records))
        header = check_batch(records, stored=True)
        assert (header.is_log_append_time, header.max_timestamp) == (True, 1_234_567)


async def test_a_batch_sent_again_has_the_time_of_when_it_was_appended() -> None:
    now_ms = [1_234_567]
    async with serving(now_ms=lambda: now_ms[0]) as broker, connect(broker.address) as client:
        await client.create("t", message_timestamp_type="LogAppendTime")
        records = encode_batch(
            [b"v"], timestamps_ms=1000, producer_id=7, producer_epoch=0, base_sequence=0
        )
        for _ in range(2):
            reply = await client.ask(produce_request("t", records), ProduceResponse, 9)
            (row,) = reply.responses[0].partition_responses
            assert (row.base_offset, row.log_append_time_ms) == (0, 1_234_567)
            now_ms[0] += 1
        topics = [DescribeProducersRequestTopic(name="t", partition_indexes=[0])]
        described = await client.ask(
            DescribeProducersRequest(topics=topics), DescribeProducersResponse, 0
        )
        (producer,) = described.topics[0].partitions[0].active_producers
        assert producer.last_timestamp == 1_234_567


async def test_log_append_time_is_refused_from_a_producer_of_a_create_time_topic() -> None:
    records = bytearray(batch(b"v"))
    set_log_append_time(records, 1000)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await client.ask(produce_request("t", bytes(records)), ProduceResponse, 9)
        row = reply.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.INVALID_TIMESTAMP


async def test_producers_of_a_partition_are_told_with_other_requests_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 40
    monkeypatch.setattr(pace, "STEP_S", -1.0)  # it has had its time after each
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for producer_id in range(count):
            request = produce_request("t", batch(b"v", producer=(producer_id, 0, 0)))
            await client.ask(request, ProduceResponse, 9)
        asked = DescribeProducersRequest(
            topics=[DescribeProducersRequestTopic(name="t", partition_indexes=[0])]
        )

        async def ask() -> None:
            reply = await client.ask(asked, DescribeProducersResponse, 0)
            assert len(reply.topics[0].partitions[0].active_producers) == count

        assert await turns_meanwhile(ask) > count

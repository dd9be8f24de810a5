"""Answers of many rows to requests of few bytes are encoded beside the loop."""

import threading

import pytest
import trio

from segbroker.broker import requests
from segbroker.broker.producing import produce as producing
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import encode_response
from segbroker.protocol.messages_admin import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    ListConfigResourcesRequest,
)
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import (
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from segbroker.protocol.schema import Message

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import batch, connect
from .conftest import serving

ROWS = 30


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (ListConfigResourcesRequest(resource_types=[]), 1),
        (
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequestResource(
                        resource_type=4, resource_name="1", configuration_keys=None
                    )
                ]
            ),
            4,
        ),
        (ListGroupsRequest(), 4),
    ],
    ids=["ListConfigResources", "DescribeConfigs", "ListGroups"],
)
async def test_a_long_answer_to_a_short_request_is_encoded_in_a_lane(
    request_: Message, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[bool] = []

    def noted(message: Message, key: int, *more: int) -> object:
        if key == request_.message_key:
            on_loop.append(threading.current_thread() is threading.main_thread())
        return encode_response(message, key, *more)

    monkeypatch.setattr(requests, "encode_response", noted)
    async with serving() as broker, connect(broker.address) as client:
        for n in range(ROWS):
            await client.create(f"t{n}")
            row = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata=""
            )
            commit = OffsetCommitRequest(
                group_id=f"g{n}",
                member_id="",
                topics=[OffsetCommitRequestTopic(name=f"t{n}", partitions=[row])],
            )
            await client.ask(commit, OffsetCommitResponse, 8)
        for most in (1_000_000, ROWS - 1):
            monkeypatch.setattr(requests, "ROWS_ON_LOOP_MAX", most)
            await client.send(request_, version)
            assert await client.receive_frame()
    assert on_loop == [True, False]


@pytest.mark.parametrize("how", ["at once", "when it is durable", "when its time is over"])
async def test_the_reply_to_a_produce_of_many_batches_is_encoded_in_a_lane(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[bool] = []

    def noted(message: Message, *more: int) -> object:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return encode_response(message, *more)

    monkeypatch.setattr(producing, "encode_response", noted)
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=ROWS)
        name = "none" if how == "at once" else "t"
        rows = [ProduceRequestPartition(index=n, records=batch(b"v")) for n in range(ROWS)]
        topics = [ProduceRequestTopic(name=name, partition_data=rows)]
        timeout_ms = 1 if how == "when its time is over" else 600_000
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=topics)
        for most in (ROWS, ROWS - 1):
            monkeypatch.setattr(producing, "ENCODED_ON_LOOP_MAX", most)
            if how == "when its time is over":
                disk.syncs.clear()
            await client.send(request, 9)
            with trio.fail_after(60):
                _, reply = await client.receive(ProduceResponse, 9)
            disk.syncs.set()
            code = {
                "at once": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "when it is durable": ErrorCode.NONE,
                "when its time is over": ErrorCode.REQUEST_TIMED_OUT,
            }[how]
            assert {row.error_code for row in reply.responses[0].partition_responses} == {code}
            assert broker.core.counters.tally.errors[ApiKey.PRODUCE, code] % ROWS == 0
            await becomes(lambda: not len(broker.core.deadlines))
    assert on_loop == [True, False]

"""Answers of many rows to requests of few bytes are encoded beside the loop."""

import threading

import pytest

from segbroker.broker import requests
from segbroker.protocol.headers import encode_response
from segbroker.protocol.messages_admin import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    ListConfigResourcesRequest,
)
from segbroker.protocol.messages_groups import (
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from segbroker.protocol.schema import Message

from ..support.wire_client import connect
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

"""What a member said before the broker stood still, on a connection that it has given up since."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from segbroker.protocol.messages_admin import CreateTopicsRequest, CreateTopicsRequestTopic
from segbroker.protocol.messages_groups import (
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from segbroker.protocol.messages_transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from segbroker.protocol.schema import Message

from ..support.wire_client import connect
from ..support.wire_groups import WireMember
from .conftest import serving

Sign = Callable[[WireMember], tuple[Message, int]]
SESSION_MS = 10_000
# What is sent behind it is read when the client has ended the connection.
SLOW = CreateTopicsRequest(
    topics=[
        CreateTopicsRequestTopic(
            name="u", num_partitions=50, replication_factor=1, assignments=[], configs=[]
        )
    ],
    timeout_ms=10_000,
    validate_only=False,
)


def heartbeat(one: WireMember) -> tuple[Message, int]:
    request = HeartbeatRequest(
        group_id=one.group, generation_id=one.generation, member_id=one.member_id
    )
    return request, 3


def commit(one: WireMember) -> tuple[Message, int]:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=one.group,
        generation_id_or_member_epoch=one.generation,
        member_id=one.member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    return request, 7


def commit_in_a_transaction(one: WireMember) -> tuple[Message, int]:
    row = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=one.group,
        producer_id=1,
        producer_epoch=0,
        generation_id=one.generation,
        member_id=one.member_id,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    return request, 3


@pytest.mark.parametrize("sign", [heartbeat, commit, commit_in_a_transaction])
async def test_it_counts_as_said_when_the_broker_began_to_stand_still(
    sign: Sign, mock_clock: MockClock
) -> None:
    async with serving(group_initial_rebalance_delay_ms=0) as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            one = WireMember(client, session_timeout_ms=SESSION_MS)
            assert (await one.join()).error_code == 0
            assert (await one.deal()).error_code == 0
            mock_clock.jump(SESSION_MS / 2000)
            await client.send(SLOW, 5)
            await client.send(*sign(one))
        while broker.connections:
            await trio.lowlevel.checkpoint()
        group = broker.core.groups.get(one.group)
        assert group is not None
        ends = group.members[one.member_id].session_ends_ms
        assert ends == int(broker.core.deadlines.stood_still_since * 1000) + SESSION_MS

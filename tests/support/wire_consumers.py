"""KIP-848 groups on the wire: the requests of one member, or of whoever looks at its group."""

from uuid import UUID

from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from segbroker.protocol.messages_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

from .wire_client import WireClient


def joining(member: str = "m", **changes: object) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member of g, which reads t."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


async def beat(
    client: WireClient, request: ConsumerGroupHeartbeatRequest, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    return await client.ask(request, ConsumerGroupHeartbeatResponse, version)


def read_by(reply: ConsumerGroupHeartbeatResponse) -> dict[UUID, list[int]]:
    """What a member was told to read."""
    assert reply.assignment is not None
    return {one.topic_id: one.partitions for one in reply.assignment.topic_partitions}


async def described(client: WireClient, name: str = "g") -> ConsumerGroupDescribeResponseGroup:
    request = ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    reply = await client.ask(request, ConsumerGroupDescribeResponse, 1)
    return reply.groups[0]


async def commit(client: WireClient, member: str, epoch: int, version: int = 9) -> int:
    """Commit offset 3 of t-0; the error code."""
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    reply = await client.ask(request, OffsetCommitResponse, version)
    return reply.topics[0].partitions[0].error_code


async def fetch_code(client: WireClient, member: str | None, epoch: int) -> int:
    group = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch, topics=None)
    reply = await client.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, 9)
    return reply.groups[0].error_code


async def join_classic(client: WireClient, member: str = "") -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return await client.ask(request, JoinGroupResponse, 3)

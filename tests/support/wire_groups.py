"""A member of a classic group as thin as the protocol: each request, and what it was told."""

from dataclasses import dataclass

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from segbroker.protocol.messages_transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

from .waiting import DEADLINE_S
from .wire_client import WireClient
from .wire_transactions import Tx

GROUP = "g"
_LONG_MS = int(DEADLINE_S * 1000)


@dataclass
class WireMember:
    """One member on a connection; `client` may be replaced when the broker was."""

    client: WireClient
    instance: str | None = None
    group: str = GROUP
    session_timeout_ms: int = _LONG_MS
    metadata: bytes = b"t"
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    rebalance_timeout_ms: int = _LONG_MS
    kind: str = "consumer"

    def to_join(self) -> JoinGroupRequest:
        """What it joins with."""
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.kind,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
        )

    async def join(self) -> JoinGroupResponse:
        """Join, for the first time or again."""
        # 3: no id has to be asked for first; 5: with an instance.
        version = 3 if self.instance is None else 5
        reply = await self.client.ask(self.to_join(), JoinGroupResponse, version)
        if not reply.error_code:
            self.member_id, self.generation = reply.member_id, reply.generation_id
            self.leader = reply.leader
        return reply

    async def sync(self, **assignments: bytes) -> SyncGroupResponse:
        """Ask for the assignment; by member id: what a leader has dealt out."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        return await self.client.ask(request, SyncGroupResponse, 3)

    async def deal(self) -> SyncGroupResponse:
        """As a leader that is alone: everything is its own."""
        return await self.sync(**{self.member_id: self.member_id.encode()})

    async def beat(self) -> int:
        """A heartbeat's code."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return (await self.client.ask(request, HeartbeatResponse, 3)).error_code

    async def is_to_join(self) -> bool:
        """Whether a heartbeat says that a rebalance has begun."""
        return await self.beat() == ErrorCode.REBALANCE_IN_PROGRESS

    async def commit(self, topic: str, offset: int, *, generation: int | None = None) -> int:
        """A commit's code, for partition 0."""
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        reply = await self.client.ask(request, OffsetCommitResponse, 7)
        return reply.topics[0].partitions[0].error_code

    async def stage(self, tx: Tx, topic: str, offset: int, *, generation: int | None = None) -> int:
        """The code of an offset that is to stand with a transaction, sent as this member."""
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=tx.name,
            group_id=self.group,
            producer_id=tx.producer_id,
            producer_epoch=tx.epoch,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        reply = await self.client.ask(request, TxnOffsetCommitResponse, 5)
        return reply.topics[0].partitions[0].error_code

    async def leave(self) -> int:
        """Go; the code."""
        members = [
            LeaveGroupRequestMember(member_id=self.member_id, group_instance_id=self.instance)
        ]
        request = LeaveGroupRequest(group_id=self.group, members=members)
        reply = await self.client.ask(request, LeaveGroupResponse, 3)
        return reply.error_code or reply.members[0].error_code


async def described(client: WireClient) -> DescribeGroupsResponseGroup:
    """What the broker says of GROUP."""
    request = DescribeGroupsRequest(groups=[GROUP])
    return (await client.ask(request, DescribeGroupsResponse, 5)).groups[0]


def commit_of(*partitions: int, metadata: str = "") -> OffsetCommitRequest:
    """By nobody who is a member."""
    rows = [
        OffsetCommitRequestPartition(
            partition_index=n, committed_offset=1, committed_metadata=metadata
        )
        for n in partitions
    ]
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
    )

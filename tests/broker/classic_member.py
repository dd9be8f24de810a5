"""A classic member of a test, one request at a time: it does what it is told to, and no more."""

from dataclasses import dataclass, field

from segbroker.protocol.consumer_protocol import (
    Subscription,
    assigned_partitions,
    encode_assignment,
    encode_subscription,
)
from segbroker.protocol.messages_groups import (
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

from ..support.wire_client import WireClient

Shares = dict[str, list[tuple[str, int]]]


@dataclass
class ClassicMember:
    """Of group "g"."""

    client: WireClient
    topics: tuple[str, ...] = ("t",)
    protocol: str = "range"
    protocol_type: str = "consumer"
    metadata: bytes | None = None
    """What it says in place of a subscription."""
    instance_id: str | None = None
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    member_id: str = ""
    generation: int = -1
    has: list[tuple[str, int]] = field(default_factory=list)

    async def join(self, *owned: tuple[str, int], version: int = 5) -> JoinGroupResponse:
        """One JoinGroup, and another where an id comes first; what it learns it keeps."""
        reply = await self.join_once(*owned, version=version)
        if reply.error_code == 79:  # MEMBER_ID_REQUIRED
            self.member_id = reply.member_id
            reply = await self.join_once(*owned, version=version)
        if not reply.error_code:
            self.member_id, self.generation = reply.member_id, reply.generation_id
        return reply

    async def join_once(self, *owned: tuple[str, int], version: int = 5) -> JoinGroupResponse:
        subscription = Subscription(self.topics, owned, self.generation)
        metadata = encode_subscription(subscription) if self.metadata is None else self.metadata
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=metadata)],
        )
        return await self.client.ask(request, JoinGroupResponse, version)

    async def sync(self, shares: Shares | None = None) -> int:
        """One SyncGroup, with the shares of all where it leads; the error."""
        encoded = {member: encode_assignment(mine) for member, mine in (shares or {}).items()}
        return await self.sync_with(encoded)

    async def sync_with(self, shares: dict[str, bytes]) -> int:
        """The same, with bytes of any kind."""
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=mine)
                for one, mine in shares.items()
            ],
        )
        reply = await self.client.ask(request, SyncGroupResponse, 5)
        if not reply.error_code:
            self.has = assigned_partitions(reply.assignment) or []
        return reply.error_code

    async def beat(self, generation: int | None = None) -> int:
        """One Heartbeat; the error."""
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return (await self.client.ask(request, HeartbeatResponse, 3)).error_code

    async def leave(self) -> int:
        """One LeaveGroup; the error."""
        row = LeaveGroupRequestMember(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id="g", members=[row])
        reply = await self.client.ask(request, LeaveGroupResponse, 3)
        return reply.error_code or reply.members[0].error_code

    async def commit(self, generation: int | None = None, version: int = 7) -> int:
        """One OffsetCommit of the first partition; the error."""
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=3, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        reply = await self.client.ask(request, OffsetCommitResponse, version)
        return reply.topics[0].partitions[0].error_code

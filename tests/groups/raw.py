"""Members that speak the wire themselves, of both protocols: prompt ones, and zombies.

Classic ones are eager or cooperative, in one group too: who leads shares out what nobody else says
that it still has.

A zombie falls silent for longer than its session and then goes on as if nothing had been: it
commits what it read with the generation that it had.  That has to be refused.
"""

import time
from abc import ABC, abstractmethod
from random import Random
from typing import Final
from uuid import UUID

import trio

from segbroker.protocol.consumer_protocol import (
    Subscription,
    assigned_partitions,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_core import MetadataRequest, MetadataRequestTopic, MetadataResponse
from segbroker.protocol.messages_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.support.wire_client import Closed, WireClient, connect

from .ledger import Ledger

SESSION_MS: Final = 1_500
BEAT_S: Final = 0.05
RETRY_S: Final = 0.05
LOST: Final = (Closed, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
# A commit may be refused so; anything else is a finding.
FENCED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class Rejoin(Exception):
    """It is no member any more, or not of this generation."""


class Member(ABC):
    """One member; `run` until it is cancelled."""

    def __init__(
        self, address: tuple[str, int], ledger: Ledger, name: str, topic: str, random: Random
    ) -> None:
        self.address = address
        self.ledger = ledger
        self.name = name
        self.topic = topic
        self.random = random
        self.member_id = ""
        self.generation = -1
        self.asked_s = 0.0
        self.reads: dict[int, int] = {}
        """Partition -> position."""

    async def run(self, lives: int = 1_000_000) -> None:
        """Live, leave, come back; `lives` times."""
        for _ in range(lives):
            try:
                async with connect(self.address, self.name) as client:
                    await self._live(client)
            except LOST:
                await trio.sleep(RETRY_S)
            except Rejoin:
                pass
            self.ledger.let_go(self.name)
            self.reads = {}

    async def _live(self, client: WireClient) -> None:
        await self.join(client)
        for _ in range(self.random.randrange(3, 25)):
            for partition in self.reads:
                self.reads[partition] += self.random.randrange(1, 5)
            if self.random.random() < 0.5:
                await self.commit_all(client)
            await trio.sleep(BEAT_S)
            await self.beat(client)
        match self.random.randrange(4):
            case 0:
                await self.be_a_zombie(client)
            case 1:
                return  # it dies: the session ends it
            case _:
                await self.leave(client)

    async def be_a_zombie(self, client: WireClient) -> None:
        """Silent for longer than its session; then it commits what it thinks it has."""
        await trio.sleep(SESSION_MS / 1000 * self.random.uniform(1.1, 1.6))
        await self.commit_all(client)
        raise Rejoin

    async def commit_all(self, client: WireClient) -> None:
        for partition, offset in self.reads.items():
            sent = self.ledger.sending(self.name, partition, offset)
            row = OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            request = OffsetCommitRequest(
                group_id=self.ledger.group,
                member_id=self.member_id,
                generation_id_or_member_epoch=self.generation,
                topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[row])],
            )
            reply = await client.ask(request, OffsetCommitResponse, 9)
            code = reply.topics[0].partitions[0].error_code
            if code:
                assert code in FENCED, ErrorCode.of(code)
                self.ledger.refused()
                raise Rejoin
            self.ledger.accepted(self.name, sent)

    async def take_up(
        self, client: WireClient, partitions: set[int], generation: int | None
    ) -> None:
        """It was told what it has: from where does it read on?"""
        self.ledger.told(self.name, partitions, generation)
        for partition in self.reads.keys() - partitions:
            del self.reads[partition]
        for partition in sorted(partitions - self.reads.keys()):
            least = self.ledger.stands(partition)
            asked = OffsetFetchRequestGroupTopic(name=self.topic, partition_indexes=[partition])
            group = OffsetFetchRequestGroup(group_id=self.ledger.group, topics=[asked])
            reply = await client.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, 8)
            row = reply.groups[0].topics[0].partitions[0]
            assert row.error_code == 0
            offset = max(row.committed_offset, 0)
            self.ledger.fetched(partition, offset, least)
            self.reads[partition] = offset

    @abstractmethod
    async def join(self, client: WireClient) -> None: ...

    @abstractmethod
    async def beat(self, client: WireClient) -> None: ...

    @abstractmethod
    async def leave(self, client: WireClient) -> None: ...


class ClassicMember(Member):
    """Joins, syncs, heartbeats; lets go of everything when a rebalance begins (eager)."""

    partitions: int = 0
    owned: frozenset[int] = frozenset()
    """What it says that it still has when it joins."""

    async def join(self, client: WireClient) -> None:
        self.ledger.let_go(self.name)
        self.reads = {}
        self.member_id = ""
        while True:
            reply = await self._join_once(client)
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = reply.member_id
                continue
            if reply.error_code:
                self.member_id = ""
                await trio.sleep(RETRY_S)
                continue
            self.member_id, self.generation = reply.member_id, reply.generation_id
            self.ledger.answered(self.name, SESSION_MS / 1000, self.asked_s)
            if await self._sync(client, reply):
                return

    async def _join_once(self, client: WireClient) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.ledger.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=2 * SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self._metadata())],
        )
        self.asked_s = time.monotonic()
        return await client.ask(request, JoinGroupResponse, 5)

    def _metadata(self) -> bytes:
        owned = tuple((self.topic, one) for one in sorted(self.owned))
        return encode_subscription(Subscription((self.topic,), owned, self.generation))

    def _shares(self, members: list[JoinGroupResponseMember]) -> dict[str, list[tuple[str, int]]]:
        """Everything shared out, by the leader."""
        shares: dict[str, list[tuple[str, int]]] = {one.member_id: [] for one in members}
        claims: dict[int, str] = {}
        for one in members:
            said = decode_subscription(one.metadata)
            assert said is not None
            claims |= {partition: one.member_id for _, partition in said.owned}
        for partition in range(self.partitions if members else 0):
            to = members[partition % len(members)].member_id
            if claims.get(partition, to) == to:
                shares[to].append((self.topic, partition))
        return shares

    async def _sync(self, client: WireClient, joined: JoinGroupResponse) -> bool:
        """Ask what it has; whether it was told."""
        request = SyncGroupRequest(
            group_id=self.ledger.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=encode_assignment(mine))
                for one, mine in self._shares(joined.members).items()
            ],
        )
        self.asked_s = time.monotonic()
        reply = await client.ask(request, SyncGroupResponse, 3)
        if reply.error_code:
            if reply.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                self.member_id = ""
            return False
        self.ledger.answered(self.name, SESSION_MS / 1000, self.asked_s)
        told = assigned_partitions(reply.assignment)
        assert told is not None, reply.assignment
        await self._take(client, {partition for _, partition in told})
        return True

    async def _take(self, client: WireClient, told: set[int]) -> None:
        await self.take_up(client, told, self.generation)

    async def beat(self, client: WireClient) -> None:
        request = HeartbeatRequest(
            group_id=self.ledger.group, generation_id=self.generation, member_id=self.member_id
        )
        self.asked_s = time.monotonic()
        code = (await client.ask(request, HeartbeatResponse, 3)).error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.ledger.answered(self.name, SESSION_MS / 1000, self.asked_s)
            await self.commit_all(client)
            await self._rejoin(client)
        elif code:
            raise Rejoin
        else:
            self.ledger.answered(self.name, SESSION_MS / 1000, self.asked_s)

    async def _rejoin(self, client: WireClient) -> None:
        self._let_go()
        reply = await self._join_once(client)
        if reply.error_code:
            raise Rejoin
        self.generation = reply.generation_id
        self.ledger.answered(self.name, SESSION_MS / 1000, self.asked_s)
        if not await self._sync(client, reply):
            raise Rejoin

    def _let_go(self) -> None:
        """It is about to join again."""
        self.ledger.let_go(self.name)
        self.reads = {}

    async def leave(self, client: WireClient) -> None:
        await self.commit_all(client)
        self.ledger.let_go(self.name)
        members = [LeaveGroupRequestMember(member_id=self.member_id)]
        request = LeaveGroupRequest(group_id=self.ledger.group, members=members)
        await client.ask(request, LeaveGroupResponse, 3)


class CooperativeMember(ClassicMember):
    """Reads on while it joins again, and says what; lets go of what it is told to, no more."""

    async def join(self, client: WireClient) -> None:
        self.owned = frozenset()
        await super().join(client)

    def _let_go(self) -> None:
        self.owned = frozenset(self.reads)

    async def _take(self, client: WireClient, told: set[int]) -> None:
        gone = self.reads.keys() - told
        if not gone:
            await super()._take(client, told)
            return
        await self.commit_all(client)
        self.ledger.let_go(self.name, set(gone))
        await super()._take(client, told)
        await self._rejoin(client)


class ConsumerMember(Member):
    """KIP-848: heartbeats, and lets go of what it is told to, no more."""

    topic_id: UUID

    async def join(self, client: WireClient) -> None:
        asked = [MetadataRequestTopic(name=self.topic)]
        known = await client.ask(MetadataRequest(topics=asked), MetadataResponse, 12)
        self.topic_id = known.topics[0].topic_id
        self.member_id = f"{self.name}-{self.random.getrandbits(32):08x}"
        self.generation = 0
        self.reads = {}
        await self._beat(
            client,
            ConsumerGroupHeartbeatRequest(
                group_id=self.ledger.group,
                member_id=self.member_id,
                member_epoch=0,
                rebalance_timeout_ms=2 * SESSION_MS,
                subscribed_topic_names=[self.topic],
                server_assignor=self.random.choice([None, "uniform", "range"]),
                topic_partitions=[],
            ),
        )

    async def beat(self, client: WireClient) -> None:
        await self._beat(
            client,
            ConsumerGroupHeartbeatRequest(
                group_id=self.ledger.group,
                member_id=self.member_id,
                member_epoch=self.generation,
                topic_partitions=[
                    GroupTopicPartitions(topic_id=self.topic_id, partitions=sorted(self.reads))
                ],
            ),
        )

    async def _beat(self, client: WireClient, request: ConsumerGroupHeartbeatRequest) -> None:
        self.asked_s = time.monotonic()
        reply = await client.ask(request, ConsumerGroupHeartbeatResponse, 1)
        if reply.error_code:
            raise Rejoin
        self.generation = reply.member_epoch
        self.ledger.answered(self.name, SESSION_MS / 1000, self.asked_s)
        if reply.assignment is None:
            return
        told = {index for topic in reply.assignment.topic_partitions for index in topic.partitions}
        gone = self.reads.keys() - told
        if gone:
            # Where it is with them, before the next heartbeat says that it has let go.
            kept = {one: self.reads.pop(one) for one in tuple(self.reads) if one not in gone}
            await self.commit_all(client)
            self.reads = kept
            self.ledger.let_go(self.name, set(gone))
        await self.take_up(client, told, None)

    async def leave(self, client: WireClient) -> None:
        await self.commit_all(client)
        self.ledger.let_go(self.name)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.ledger.group, member_id=self.member_id, member_epoch=-1
        )
        await client.ask(request, ConsumerGroupHeartbeatResponse, 1)

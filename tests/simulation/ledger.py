"""What the broker tells members of groups, and what it takes from them, as it passes on the wire.

| rule | broken when | |
|---|---|---|
| one owner | a member is given a partition that another has in the same generation | I15 |
| fenced | a commit is taken that came after somebody else was given the partition | I15 |
| no way back | a commit is taken, or a position told, below what stood when it came | I16 |
| a place is kept | a static member is fenced that was told last that the place is its own | |
| ... of KIP-848 | who is within its times, at the epoch it was told, is told that it is none | |
| one copy | a member of a streams group is given a task that its process has already | |

Of KIP-848 and streams groups a generation says nothing: who was given a partition, or a task, has
it until it says that it has it no more, leaves, is refused, or is silent for too long (holders.py).

Members of all of these protocols outlive every end of the broker: whoever was told something has
been told of what was durable.  A request is judged by what had been answered when its last byte
came.  Nobody seeks in a run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from segbroker.protocol.consumer_protocol import assigned_partitions
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import decode_request, decode_response, parse_request_header
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_core import MetadataResponse
from segbroker.protocol.messages_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTaskIds,
)
from segbroker.protocol.schema import Message

from .holders import Holders, Place
from .world import World

# Metadata, OffsetCommit, OffsetFetch, JoinGroup, Heartbeat, SyncGroup, ConsumerGroupHeartbeat,
# StreamsGroupHeartbeat.
KEYS: Final = frozenset({3, 8, 9, 11, 12, 14, 68, 88})
SUBTOPOLOGY: Final = "0"
"""The one of each streams group: its task n reads partition n of the topic of the group."""
OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})

_Heartbeat: TypeAlias = ConsumerGroupHeartbeatRequest | StreamsGroupHeartbeatRequest


@dataclass(slots=True)
class Asked:
    """A request, and how things stood when it came."""

    api_key: int
    api_version: int
    message: Message
    incarnation: int
    stands: dict[Place, int]
    owners: dict[Place, str]
    came_s: float


@dataclass
class Ledger:
    """See the module."""

    world: World
    incarnation: int = 0
    names: dict[UUID, str] = field(default_factory=dict)
    """Of topics, by the ids that members were told."""
    holders: Holders = field(default_factory=Holders)
    sources: dict[str, str] = field(default_factory=dict)
    """The topic of each streams group."""
    tasks: Holders = field(default_factory=Holders)
    """As `holders`, of streams groups: what is done in a topic, and what is in a process."""
    stands: dict[Place, int] = field(default_factory=dict)
    owners: dict[Place, str] = field(default_factory=dict)
    _given: dict[tuple[int, Place], str] = field(default_factory=dict)
    _seats: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of static members, by group and instance: who was told last that the place is its own, as
    long as nobody asks for it."""
    _processes: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of members of streams groups, by group and member id."""

    def restarted(self) -> None:
        """The broker has been started anew."""
        self.incarnation += 1
        self.holders.restarted(self.world.now())
        self.tasks.restarted(self.world.now())

    def asked(self, frame: bytes) -> Asked:
        """A request has come."""
        header = parse_request_header(frame)
        message = decode_request(frame, header)
        came_s = self.world.now()
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            self._says(message, came_s)
        if isinstance(message, StreamsGroupHeartbeatRequest):
            self._says_tasks(message, came_s)
        if isinstance(message, JoinGroupRequest) and message.group_instance_id is not None:
            self._seats.pop((message.group_id, message.group_instance_id), None)
        return Asked(
            header.api_key,
            header.api_version,
            message,
            self.incarnation,
            dict(self.stands),
            dict(self.owners),
            came_s,
        )

    def answered(self, asked: Asked, frame: bytes) -> None:
        """Its answer leaves."""
        _, reply = decode_response(frame, asked.api_key, asked.api_version)
        match asked.message, reply:
            case _, MetadataResponse() as metadata:
                self.names |= {row.topic_id: row.name for row in metadata.topics if row.name}
            case JoinGroupRequest() as request, JoinGroupResponse() as response:
                if request.group_instance_id is not None and not response.error_code:
                    seat = (request.group_id, request.group_instance_id)
                    self._seats[seat] = response.member_id
            case HeartbeatRequest() as request, HeartbeatResponse() as response:
                self._seated(request, response.error_code)
            case SyncGroupRequest() as request, SyncGroupResponse() as response:
                self._seated(request, response.error_code)
                self._given_to(asked, request, response)
            case OffsetCommitRequest() as request, OffsetCommitResponse() as response:
                for topic in request.topics:
                    topic.name = topic.name or self.names[topic.topic_id]
                for answered in response.topics:
                    answered.name = answered.name or self.names[answered.topic_id]
                self._taken(asked, request, response)
            case (
                ConsumerGroupHeartbeatRequest() as request,
                ConsumerGroupHeartbeatResponse() as response,
            ):
                told = response.assignment
                places = None if told is None else self._read(request, told.topic_partitions)
                self._beaten(asked, request, response, self.holders, places)
            case (
                StreamsGroupHeartbeatRequest() as request,
                StreamsGroupHeartbeatResponse() as response,
            ):
                places = self._tasks(request, response.active_tasks, response.standby_tasks)
                self._beaten(asked, request, response, self.tasks, places)
            case OffsetFetchRequest(), OffsetFetchResponse() as response:
                self._told(asked, response)

    def _seated(self, request: HeartbeatRequest | SyncGroupRequest, code: int) -> None:
        seat = (request.group_id, request.group_instance_id or "")
        if code == ErrorCode.FENCED_INSTANCE_ID and self._seats.get(seat) == request.member_id:
            self.world.lapse(f"thrown out: {request.member_id} has the place {seat}")

    def _given_to(
        self, asked: Asked, request: SyncGroupRequest, response: SyncGroupResponse
    ) -> None:
        if response.error_code or asked.incarnation != self.incarnation:
            return
        for topic, partition in assigned_partitions(response.assignment) or ():
            place = (request.group_id, topic, partition)
            key = (request.generation_id, place)
            # Under whatever member id: a static member's place is one.
            owner = request.group_instance_id or request.member_id
            other = self._given.setdefault(key, owner)
            if other != owner:
                self.world.lapse(
                    f"two owners: {place} of generation {request.generation_id} is given to "
                    f"{owner} and to {other}"
                )
            self.owners[place] = request.member_id
            self.world.trace("given", *place, request.member_id)

    def _says(self, request: ConsumerGroupHeartbeatRequest, came_s: float) -> None:
        reads = None
        if request.topic_partitions is not None:
            reads = self._read(request, request.topic_partitions)
        self._has(self.holders, request, reads, came_s)

    def _says_tasks(self, request: StreamsGroupHeartbeatRequest, came_s: float) -> None:
        if request.process_id is not None:
            self._processes[request.group_id, request.member_id] = request.process_id
        has = self._tasks(request, request.active_tasks, request.standby_tasks)
        self._has(self.tasks, request, has, came_s)

    def _has(
        self, holders: Holders, request: _Heartbeat, has: set[Place] | None, came_s: float
    ) -> None:
        member = (request.group_id, request.member_id)
        if request.member_epoch < 0:
            holders.gone(member, came_s)
            return
        timeout_ms = request.rebalance_timeout_ms
        holders.says(member, has, None if timeout_ms < 0 else timeout_ms / 1000, came_s)

    def _read(
        self, request: ConsumerGroupHeartbeatRequest, topics: Iterable[GroupTopicPartitions]
    ) -> set[Place]:
        """Partitions, by topic id."""
        return {
            (request.group_id, self.names[topic.topic_id], number)
            for topic in topics
            if topic.topic_id in self.names
            for number in topic.partitions
        }

    def _tasks(
        self,
        request: StreamsGroupHeartbeatRequest,
        active: Iterable[StreamsGroupTaskIds] | None,
        standby: Iterable[StreamsGroupTaskIds] | None,
    ) -> set[Place] | None:
        """What is done, and that it is in this process; None: nothing is said of it."""
        if active is None or standby is None:
            return None
        group = request.group_id
        process = self._processes[group, request.member_id]
        done = {number for row in active for number in row.partitions}
        copies = {number for row in standby for number in row.partitions}
        here = {(group, f"in {process}", number) for number in done | copies}
        return here | {(group, self.sources[group], number) for number in done}

    def _beaten(
        self,
        asked: Asked,
        request: _Heartbeat,
        response: ConsumerGroupHeartbeatResponse | StreamsGroupHeartbeatResponse,
        holders: Holders,
        places: set[Place] | None,
    ) -> None:
        """places: what the member is told that it has; None: nothing is said of it."""
        member = (request.group_id, request.member_id)
        if asked.incarnation != self.incarnation or request.member_epoch < 0:
            return
        if response.error_code:
            if response.error_code in OUT:
                now_s = self.world.now()
                if holders.is_member(member, request.member_epoch, asked.came_s, now_s):
                    self.world.lapse(
                        f"thrown out: {request.member_id} at epoch {request.member_epoch}"
                    )
                holders.gone(member, asked.came_s)
            return
        holders.heard(member, response.member_epoch, asked.came_s)
        if places is None:
            return
        conflicts = holders.told(member, places, asked.came_s, self.world.now())
        if conflicts is None:
            for place in places:
                self.owners.pop(place, None)  # this member, or who had it before
            return
        for place, other in conflicts:
            self.world.lapse(
                f"two owners: {place} is given to {request.member_id} while {other} may read it"
            )
        for place in sorted(places):
            self.owners[place] = request.member_id
            self.world.trace("given", *place, request.member_id)

    def _taken(
        self, asked: Asked, request: OffsetCommitRequest, response: OffsetCommitResponse
    ) -> None:
        taken = {
            (topic.name, partition.partition_index)
            for topic in response.topics
            for partition in topic.partitions
            if not partition.error_code
        }
        for topic in request.topics:
            for partition in topic.partitions:
                if (topic.name, partition.partition_index) not in taken:
                    continue
                place = (request.group_id, topic.name, partition.partition_index)
                offset = partition.committed_offset
                self.world.trace("committed", *place, offset)
                owner = asked.owners.get(place, request.member_id)
                if owner != request.member_id:
                    self.world.lapse(
                        f"not fenced: {request.member_id} commits {place}, which {owner} has"
                    )
                if offset < asked.stands.get(place, -1):
                    self.world.lapse(
                        f"moved back: {place} is committed at {offset}, "
                        f"it stood at {asked.stands[place]}"
                    )
                self.stands[place] = max(offset, self.stands.get(place, 0))

    def _told(self, asked: Asked, response: OffsetFetchResponse) -> None:
        for group in response.groups:
            for topic in group.topics:
                name = topic.name or self.names[topic.topic_id]
                for partition in topic.partitions:
                    place = (group.group_id, name, partition.partition_index)
                    if partition.error_code:
                        continue
                    # A commit whose answer was lost may have been taken: it stands once it is told.
                    offset = partition.committed_offset
                    if offset > self.stands.get(place, -1):
                        self.stands[place] = offset
                    least = asked.stands.get(place, -1)
                    if offset < least:
                        self.world.lapse(
                            f"forgotten: {place} is told to stand at {offset}, it stood at {least}"
                        )

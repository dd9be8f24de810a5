"""Members of a group in memory: their real core, the broker's real rules of a group, one clock.

    world = GroupWorld(seed, partitions=6, records=40)
    member = world.start("cooperative-sticky", "range")
    world.run(lambda: world.is_settled())

Each member has an application that works at one record at a time, for as long as the world says.
The wire is real bytes; answers that have to wait (a join, a fetch of nothing) are given when it is
time.  Faults: `world.kill(member)` (its session has to end), `world.cut(member)` (its connections),
`world.restart()` (the members of the last generation that was recorded go on), `world.forget()`
(the broker knows no members any more, but what they committed).

Checked all the time: no two members work at one partition; but for the first moments after the
broker forgot them, when a member does not know that yet.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from segbroker.broker.groups.group import Group
from segbroker.broker.groups.group_members import Joined, Joining, Synced
from segbroker.broker.groups.group_rounds import OnRecorded
from segbroker.client.assigned import Fetched
from segbroker.client.connection import Connection
from segbroker.client.errors import ConnectionLost
from segbroker.client.membership import Phase
from segbroker.client.reading import Reading
from segbroker.client.records import Record, TopicPartition
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import decode_request, encode_response, parse_request_header
from segbroker.protocol.messages_core import FetchRequest
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    SyncGroupRequest,
    SyncGroupResponse,
)
from segbroker.protocol.record_batch import encode_batch, read_header
from segbroker.protocol.schema import Message
from segbroker.segments.metadata.generations import Generation

from .simulated import Cluster, hand_over

TOPIC = "t"
# After a restart: back-off, the next heartbeat, the job in hand.
RESTART_MS = 5_000


class Link:
    """A connection: answers leave in the order of the requests."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.reader = FrameReader(size_min=8)
        self.slots: deque[list[bytes]] = deque()


class SimulatedMember:
    def __init__(self, world: "GroupWorld", *, stop_at_end: bool, options: Any) -> None:  # noqa: ANN401
        self.world = world
        # Of a bounded reading: the application's loop is over, what is left is to leave.
        self.is_at_end = False
        self.links: dict[Connection, Link] = {}
        self.busy_until_ms = 0
        self.in_hand: Record | None = None
        self.told: list[tuple[str, list[int]]] = []
        # What it has heard to be its own, and not to go.
        self.heard: set[TopicPartition] = set()
        self.is_alive = True
        # What the application takes note of, and asks for more.
        self.expected: tuple[type[Exception], ...] = ()
        self.reading = Reading(
            "10.0.0.1:9001",
            [TOPIC],
            group="g",
            start=options.pop("start", "start"),
            stop_at_end=stop_at_end,
            on_gap="raise",
            on_assigned=lambda partitions: self._tell("assigned", partitions),
            on_revoked=lambda partitions: self._tell("revoked", partitions),
            on_lost=lambda partitions: self._tell("lost", partitions),
            wake_by=lambda at_ms: None,
            options=options,
            random=Random(world.random.random()),
        )

    def _tell(self, what: str, partitions: list[TopicPartition]) -> None:
        self.told.append((what, [tp.partition for tp in partitions]))
        if what == "assigned":
            assert self.heard.isdisjoint(partitions), f"assigned again: {self.told}"
            self.heard.update(partitions)
        else:
            assert self.heard.issuperset(partitions), f"never assigned: {self.told}"
            self.heard.difference_update(partitions)

    @property
    def owned(self) -> set[int]:
        return {tp.partition for tp in self.reading.fetching.states}

    def work(self) -> None:
        """One turn of the application's loop."""
        world = self.world
        if not self.is_alive or self.is_at_end or world.now_ms < self.busy_until_ms:
            return
        self.in_hand = None
        try:
            record = self._next()
        except self.expected:
            return
        if record is None:
            self.is_at_end = self.reading.is_ended
            return
        world.check_alone(self, record)
        self.in_hand = record
        world.processed.append((record.partition, record.offset))
        self.busy_until_ms = world.now_ms + world.job_ms()

    def _next(self) -> Record | None:
        world, reading = self.world, self.reading
        reading.came_back()
        while (event := reading.group.events.next()) is not None:
            if event.listener is not None:
                event.listener(event.partitions)
            reading.group.event_done(event, world.now_ms)
        while True:
            for record in reading.take_records() or ():
                return record
            fetched: Fetched | None = reading.fetching.prefetched.take()
            if fetched is None or fetched.data is None:
                return None
            reading.hand_out(fetched, reading.fetching.open(fetched))

    def leave(self) -> None:
        self.reading.came_back()
        group = self.reading.group
        for event in group.closing(self.world.now_ms):
            if event.listener is not None:
                event.listener(event.partitions)
        goodbye = group.goodbye(self.world.now_ms, patient=True)
        done = self.reading.engine.call(goodbye, self.world.now_ms)
        self.world.run(lambda: done.done)
        self.is_alive = False
        self.in_hand = None
        self.reading.engine.close(self.world.now_ms)


class GroupWorld:
    def __init__(self, seed: int, *, partitions: int, records: int) -> None:
        self.now_ms = 1_000
        self.random = Random(seed)
        self.cluster = Cluster(1)
        self.cluster.create(TOPIC, partitions)
        for partition in range(partitions):
            for first in range(0, records, 10):
                self.store(partition, 10, first)
        self.records = records
        self.members: list[SimulatedMember] = []
        self.processed: list[tuple[int, int]] = []
        self.committed: dict[tuple[str, int], int] = {}
        self.job_ms: Callable[[], int] = lambda: 10
        # Members of a broker that has forgotten them go on until they hear of it.
        self.unsure_until_ms = 0
        # So many heartbeats, commits are not answered: the connections are cut when one comes.
        self.to_cut: Counter[int] = Counter()
        # The same, but the request is done: its answer is lost.
        self.to_lose: Counter[int] = Counter()
        # What the next commits, and questions for the coordinator, are refused with.
        self.commit_refusals: list[ErrorCode] = []
        self.find_refusals: list[ErrorCode] = []
        # So many questions where the group stands are answered with what is so when they come, but
        # not before `answer_late`.
        self.late = 0
        # What the next questions where the group stands are refused with, as a whole.
        self.refusals: list[ErrorCode] = []
        # Commits are refused as during a rebalance, so many until now.
        self.rebalancing = False
        self.rebalanced_count = 0
        self._late: list[Callable[[], None]] = []
        self._numbers = count()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self.kept: Generation | None = None
        self.group: Any = self._new_group()

    def _new_group(self) -> Any:  # noqa: ANN401 - the rules of another protocol's, too
        return Group(
            "g", lambda prefix: f"{prefix}-{next(self._numbers)}", 0, 1_000, self._recorded
        )

    def _recorded(self, kept: Generation, done: OnRecorded) -> None:
        self.kept = kept
        done(self.now_ms, ErrorCode.NONE)

    def store(self, partition: int, count: int, first: int = 0) -> None:
        """A batch of so many records more; the values count from `first`."""
        values: list[bytes | None] = [b"%d" % n for n in range(first, first + count)]
        data = encode_batch(values, timestamps_ms=1)
        self.cluster.topics[TOPIC][partition].store(data, read_header(data))

    # What may happen.

    def start(self, *assignors: str, **options: Any) -> SimulatedMember:  # noqa: ANN401
        names = assignors or ("cooperative-sticky", "range", "roundrobin", "sticky")
        return self._begin({"assignors": names, **options})

    def _begin(self, options: dict[str, Any]) -> SimulatedMember:
        stop_at_end = options.pop("stop_at_end", False)
        member = SimulatedMember(self, stop_at_end=stop_at_end, options=options)
        self.members.append(member)
        return member

    def kill(self, member: SimulatedMember) -> None:
        member.is_alive = False
        member.in_hand = None
        for link in member.links.values():
            self._forget(link)
        member.links.clear()

    def cut(self, member: SimulatedMember) -> None:
        for connection, link in list(member.links.items()):
            self._forget(link)
            connection.lost(ConnectionLost("10.0.0.1: cut"), self.now_ms)

    def restart(self) -> None:
        for member in self.members:
            self.cut(member)
        self.group = self._new_group()
        if self.kept is not None and self.kept.members:
            self.group.restore(self.now_ms, self.kept, frozenset())

    def forget(self) -> None:
        for member in self.members:
            self.cut(member)
        self.group = self._new_group()
        self.unsure_until_ms = self.now_ms + RESTART_MS

    def expel(self, member_id: str) -> None:
        """The group gives this member up."""
        self.group.leave(self.now_ms, member_id, None)

    def _forget(self, link: Link) -> None:
        link.slots.clear()

    # The rules.

    def check_alone(self, member: SimulatedMember, record: Record) -> None:
        if self.now_ms < self.unsure_until_ms:
            return
        for other in self.members:
            held = other.in_hand
            assert other is member or held is None or held.partition != record.partition, (
                f"two members work at partition {record.partition}"
            )

    def is_settled(self) -> bool:
        """Every partition is with one living member, and all records were processed."""
        alive = [member for member in self.members if member.is_alive]
        owned = [partition for member in alive for partition in member.owned]
        partitions = len(self.cluster.topics[TOPIC])
        return (
            sorted(owned) == list(range(partitions))
            and all(member.reading.group.membership.phase is Phase.STABLE for member in alive)
            and len(set(self.processed)) == partitions * self.records
        )

    # Time.

    def passes(self, ms: int) -> None:
        """So much time."""
        end_ms = self.now_ms + ms
        self.run(lambda: self.now_ms >= end_ms)

    def run(self, until: Callable[[], bool], *, within_ms: int = 900_000) -> None:
        end_ms = self.now_ms + within_ms
        while not until():
            moved = False
            for member in self.members:
                moved = self._exchange(member) or moved
                member.work()
            if not moved:
                self._advance()
            assert self.now_ms <= end_ms, f"not within {within_ms} ms"

    def _advance(self) -> None:
        wakes = [self.group.due_ms]
        if self._timers:
            wakes.append(self._timers[0][0])
        for member in self.members:
            if member.is_alive:
                wake_ms = member.reading.engine.next_wake_ms()
                wakes += [] if wake_ms is None else [wake_ms]
                if member.busy_until_ms > self.now_ms:
                    wakes.append(member.busy_until_ms)
        self.now_ms = max(self.now_ms + 1, min(wakes))
        while self._timers and self._timers[0][0] <= self.now_ms:
            heapq.heappop(self._timers)[2]()
        if self.group.due_ms <= self.now_ms:
            self.group.tick(self.now_ms)

    def _at(self, at_ms: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (at_ms, next(self._numbers), do))

    # The wire.

    def _exchange(self, member: SimulatedMember) -> bool:
        if not member.is_alive:
            return False
        engine = member.reading.engine
        engine.step(self.now_ms)
        moved = False
        for connection in engine.network.take_opening():
            member.links[connection] = Link(connection)
            connection.connected()
            moved = True
        for connection in engine.network.take_closed():
            link = member.links.pop(connection, None)
            if link is not None:
                self._forget(link)
        for connection, link in list(member.links.items()):
            data = b"".join(connection.outgoing)
            if data:
                moved = True
                connection.sent(len(data))
                link.reader.receive_data(data)
                while (frame := link.reader.next_frame()) is not None:
                    api_key = parse_request_header(frame).api_key
                    if self.to_cut[api_key]:
                        self.to_cut[api_key] -= 1
                        self.cut(member)
                        return True
                    self._take(link, bytes(frame))
                    if self.to_lose[api_key]:
                        self.to_lose[api_key] -= 1
                        self.cut(member)
                        return True
            while link.slots and link.slots[0]:
                moved = True
                hand_over(connection, link.slots.popleft()[0], self.now_ms)
        return moved

    def _take(self, link: Link, frame: bytes) -> None:
        header = parse_request_header(memoryview(frame))
        request = decode_request(memoryview(frame), header)
        slot: list[bytes] = []
        link.slots.append(slot)

        def reply(message: Message) -> None:
            key, version = header.api_key, header.api_version
            slot.append(b"".join(encode_response(message, key, version, header.correlation_id)))

        if self._answer_group(request, reply, header.client_id or ""):
            return
        broker = self.cluster.brokers[1]
        data = broker.answer(memoryview(frame))
        assert data is not None
        if isinstance(request, FetchRequest) and broker.held_back_ms:
            self._at(self.now_ms + broker.held_back_ms, lambda: slot.append(data))
        else:
            slot.append(data)

    def _answer_group(
        self, request: Message, reply: Callable[[Message], None], client_id: str
    ) -> bool:
        now_ms, group = self.now_ms, self.group
        match request:
            case FindCoordinatorRequest():
                code = self.find_refusals.pop(0) if self.find_refusals else ErrorCode.NONE
                row = FindCoordinatorResponseCoordinator(
                    key="g",
                    node_id=-1 if code else 1,
                    host="10.0.0.1",
                    port=9001,
                    error_code=code,
                    error_message=None,
                )
                reply(FindCoordinatorResponse(coordinators=[row]))
            case JoinGroupRequest():
                joining = Joining(
                    request.member_id,
                    request.group_instance_id,
                    client_id,
                    "here",
                    request.session_timeout_ms,
                    request.rebalance_timeout_ms,
                    request.protocol_type,
                    {one.name: bytes(one.metadata) for one in request.protocols},
                    True,
                    True,
                )
                group.join(now_ms, joining, lambda joined: reply(_joined(joined)))
            case SyncGroupRequest():
                group.sync(
                    now_ms,
                    request.member_id,
                    request.group_instance_id,
                    request.generation_id,
                    request.protocol_type,
                    request.protocol_name,
                    {one.member_id: bytes(one.assignment) for one in request.assignments},
                    lambda synced: reply(_synced(synced)),
                )
            case HeartbeatRequest():
                code = group.heartbeat(
                    now_ms, request.member_id, request.group_instance_id, request.generation_id
                )
                reply(HeartbeatResponse(error_code=code))
            case LeaveGroupRequest():
                for one in request.members:
                    group.leave(now_ms, one.member_id, one.group_instance_id)
                reply(LeaveGroupResponse())
            case DescribeGroupsRequest():
                reply(DescribeGroupsResponse(groups=[self._described()]))
            case OffsetCommitRequest():
                reply(self._commit(request))
            case OffsetFetchRequest():
                answer = self._stands(request)
                if self.late:
                    self.late -= 1
                    self._late.append(lambda: reply(answer))
                else:
                    reply(answer)
            case _:
                return False
        return True

    def _described(self) -> DescribeGroupsResponseGroup:
        members = [
            DescribeGroupsResponseMember(
                member_id=one.member_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=b"",
                member_assignment=one.held,
            )
            for one in self.group.members.values()
        ]
        return DescribeGroupsResponseGroup(
            group_id="g",
            group_state=self.group.state.value,
            protocol_type="consumer",
            protocol_data="",
            members=members,
        )

    def answer_late(self) -> None:
        while self._late:
            self._late.pop(0)()

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        may_commit = self._may_commit(request)
        if self.commit_refusals:
            refused = self.commit_refusals.pop(0)
            may_commit = lambda topic_id, partition: refused  # noqa: E731
        if self.rebalancing:
            self.rebalanced_count += 1
        topics = []
        for topic in request.topics:
            rows = []
            name = topic.name or self.cluster.name_of(topic.topic_id)
            for row in topic.partitions:
                if name is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                elif self.rebalancing:
                    code = ErrorCode.REBALANCE_IN_PROGRESS
                else:
                    code = may_commit(self.cluster.topic_ids[name], row.partition_index)
                if name is not None and code == ErrorCode.NONE:
                    self.committed[name, row.partition_index] = row.committed_offset
                rows.append(
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                )
            topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)
            )
        return OffsetCommitResponse(topics=topics)

    def _may_commit(self, request: OffsetCommitRequest) -> Callable[[UUID, int], ErrorCode]:
        """What a commit of each partition is answered."""
        code = self.group.check_commit(
            self.now_ms,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
        )
        return lambda topic_id, partition: code

    def _may_ask(self, group: OffsetFetchRequestGroup) -> ErrorCode:
        """What a question where the group stands is refused with."""
        return ErrorCode.NONE

    def _refused(self, code: ErrorCode) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)]
        )

    def _stands(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        (group,) = request.groups
        if self.refusals:
            return self._refused(self.refusals.pop(0))
        if code := self._may_ask(group):
            return self._refused(code)
        topics = []
        for topic in group.topics or ():
            name = topic.name or self.cluster.name_of(topic.topic_id)
            rows = [
                OffsetFetchResponseGroupTopicPartition(
                    partition_index=number,
                    committed_offset=self.committed.get((name or "", number), -1),
                    metadata="",
                    error_code=ErrorCode.NONE if name else ErrorCode.UNKNOWN_TOPIC_ID,
                )
                for number in topic.partition_indexes
            ]
            topics.append(
                OffsetFetchResponseGroupTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=rows
                )
            )
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)],
        )


def _joined(joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=one, group_instance_id=instance, metadata=metadata)
            for one, instance, metadata in joined.members
        ],
    )


def _synced(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )

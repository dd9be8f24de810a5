"""A share group's member among simulated brokers, over connections that take their time.

    world = ShareWorld(seed, brokers=3, lock_ms=2_000)
    reading = world.start(explicit=True)

The brokers follow the rules of Apache Kafka: a session is that of a connection, and ends with it;
its epochs are counted; a lock is the session's, for `lock_ms`; what a leader has locked is free
when another one comes.  The group's coordinator is broker 1, which gives the member `world.given`.

What a record was locked for, said of, and how often, stands in `world.shares`.
"""

from collections import Counter
from collections.abc import Container, Iterable
from functools import partial
from random import Random
from typing import Any, Unpack

import pytest

from segbroker.client import share_reading
from segbroker.client.connection import Connection
from segbroker.client.share_reading import ShareReading
from segbroker.client.share_settings import ShareOptions
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import encode_response, parse_request_header
from segbroker.protocol.messages_consumer_groups import GroupAssignment, GroupTopicPartitions
from segbroker.protocol.messages_core import LeaderIdAndEpoch
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecords,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from segbroker.protocol.schema import Message

from .share_cluster import NOBODY, RELEASE, RENEW, said_of
from .simulated import Broker, Partition
from .test_produce_storms import SlowWorld

TOPIC = "a"
INTERVAL_MS = 1_000
# How often a broker that holds a question looks whether there is something for it.
LOOK_MS = 20


class Share:
    """One partition, as its share group has it."""

    def __init__(self, log: Partition) -> None:
        self.log = log
        # offset -> whose it is, and until when.
        self.locks: dict[int, tuple[object, int]] = {}
        # What became of a record for good, by whom; and how often each was handed out.
        self.done: dict[int, tuple[object, int]] = {}
        self.delivered: Counter[int] = Counter()
        # Which leader has handed it out last.
        self.given_by: dict[int, int] = {}
        # What was locked for a session that ended with its connection, as the member knows.
        self.ended: dict[int, object] = {}

    def lapse(self, now_ms: int) -> None:
        self.locks = {o: lock for o, lock in self.locks.items() if lock[1] > now_ms}

    def free(self, holder: object) -> None:
        self.ended.update((o, by) for o, (by, _) in self.locks.items() if by is holder)
        self.locks = {o: lock for o, lock in self.locks.items() if lock[0] is not holder}

    def acquire(self, holder: object, limit: int, until_ms: int) -> list[int]:
        offsets = range(self.log.log_start, self.log.log_end)
        free = (o for o in offsets if o not in self.locks and o not in self.done)
        taken = [offset for offset, _ in zip(free, range(limit), strict=False)]
        for offset in taken:
            self.locks[offset] = holder, until_ms
            self.given_by[offset] = self.log.leader
            self.ended.pop(offset, None)
            self.delivered[offset] += 1
        return taken

    def take(self, holder: object, said: dict[int, int], until_ms: int) -> ErrorCode:
        if not all(offset in self.locks and self.locks[offset][0] is holder for offset in said):
            return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in said.items():
            del self.locks[offset]
            if kind == RENEW:
                self.locks[offset] = holder, until_ms
            elif kind != RELEASE:
                self.done[offset] = holder, kind
        return ErrorCode.NONE


class ShareSession:
    """The member's session with one broker: its connection's."""

    def __init__(self) -> None:
        self.epoch = 0
        self.known: dict[int, None] = {}


class ShareBroker(Broker):
    """See the module."""

    world: "ShareWorld"

    def __init__(self, number: int, world: "ShareWorld") -> None:
        super().__init__(number, world.cluster)
        self.world = world
        self.session: ShareSession | None = None
        # It hears, and says nothing any more.
        self.hangs = False
        # What it says next instead of looking at what was said of records; of its partitions; of
        # the session, which is over then.
        self.acknowledge_refusals: list[ErrorCode] = []
        self.fetch_refusals: list[ErrorCode] = []
        self.session_refusals: list[ErrorCode] = []
        # So many next answers do not say what became of what was said.
        self.omissions = 0
        # Whose connection the next request comes over, and of whom the session is.
        self.connection: Connection | None = None
        self._of: Connection | None = None
        self.is_asked_in_vain = False

    def gone(self, connection: Connection) -> None:
        """The end of a connection has come here."""
        if connection is self._of:
            self.end()

    def end(self, *, is_known: bool = True) -> None:
        """The session is over; `is_known`: the member has noticed."""
        session, self.session, self._of = self.session, None, None
        for share in self.world.shares:
            if session is not None:
                share.free(session)
            if not is_known:
                share.ended.clear()

    def _reply(self, request: Message, version: int) -> tuple[Message, int]:
        self.is_asked_in_vain = False
        match request:
            case FindCoordinatorRequest():
                row = FindCoordinatorResponseCoordinator(
                    key=request.coordinator_keys[0],
                    node_id=1,
                    host="10.0.0.1",
                    port=9001,
                    error_message=None,
                )
                return FindCoordinatorResponse(coordinators=[row]), version
            case ShareGroupHeartbeatRequest():
                return self.world.beat(request), version
            case ShareFetchRequest():
                return self._share_fetch(request), version
            case ShareAcknowledgeRequest():
                return self._acknowledge(request), version
        return super()._reply(request, version)

    def _turn(self, epoch: int) -> ErrorCode:
        """The session goes on, begins or ends with a request of this epoch."""
        if self.session_refusals:
            self.end(is_known=False)
            return self.session_refusals.pop(0)
        if epoch == 0:
            self.end()
            self.session, self._of = ShareSession(), self.connection
            return ErrorCode.NONE
        if self.session is None or self._of is not self.connection:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch > 0 and epoch != self.session.epoch + 1:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        self.session.epoch = epoch
        return ErrorCode.NONE

    def _leads(self, partition: int) -> bool:
        return self.world.shares[partition].log.leader == self.number

    def _take(self, topics: list[Any]) -> dict[int, ErrorCode]:
        verdicts: dict[int, ErrorCode] = {}
        until_ms = self.world.now_ms + self.world.lock_ms
        for row in _rows(topics):
            said = said_of(row)
            share = self.world.shares[row.partition_index]
            if not said:
                continue
            if self.acknowledge_refusals:
                verdict = self.acknowledge_refusals.pop(0)
            elif not self._leads(row.partition_index):
                verdict = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                verdict = share.take(self.session, said, until_ms)
            verdicts[row.partition_index] = verdict
        return verdicts

    def _share_fetch(self, asked: ShareFetchRequest) -> ShareFetchResponse:
        self.world.lapse()
        code = self._turn(asked.share_session_epoch)
        if code:
            return _fetched([], self.world, code)
        session = self.session
        assert session is not None
        assert asked.share_session_epoch or not any(map(said_of, _rows(asked.topics)))
        session.known.update(dict.fromkeys(row.partition_index for row in _rows(asked.topics)))
        for gone in asked.forgotten_topics_data:
            for index in gone.partitions:
                session.known.pop(index, None)
        self._check_asked(session)
        verdicts = self._said(self._take(asked.topics))
        rows = self._found(asked, session, verdicts)
        self.is_asked_in_vain = not rows
        return _fetched(rows, self.world)

    def _check_asked(self, session: ShareSession) -> None:
        """It has none of what the member does not ask for any more."""
        if self.connection in self.world.connections:
            lane = self.world.reading.lanes.lanes[self.number]
            assert set(session.known) == {index for _, index in lane.session._known}

    def _said(self, verdicts: dict[int, ErrorCode]) -> dict[int, ErrorCode]:
        """What the answer says of them."""
        if not verdicts or not self.omissions:
            return verdicts
        self.omissions -= 1
        return {}

    def again(self, asked: ShareFetchRequest) -> ShareFetchResponse | None:
        """What there is by now for a question that is held; None: nothing yet."""
        self.world.lapse()
        if self.session is None or self._of is not self.connection:
            return _fetched([], self.world)
        rows = self._found(asked, self.session, {})
        return _fetched(rows, self.world) if rows else None

    def _found(
        self, asked: ShareFetchRequest, session: ShareSession, verdicts: dict[int, ErrorCode]
    ) -> list[ShareFetchResponsePartition]:
        left = asked.max_records
        until_ms = self.world.now_ms + self.world.lock_ms
        rows = []
        for index in {**session.known, **verdicts}:
            code, offsets = ErrorCode.NONE, list[int]()
            if index in session.known and not self._leads(index):
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif index in session.known and self.fetch_refusals:
                code = self.fetch_refusals.pop(0)
            elif index in session.known:
                offsets = self.world.shares[index].acquire(session, left, until_ms)
                left -= len(offsets)
            if code or offsets or index in verdicts:
                rows.append(self._row(index, code, verdicts.get(index, ErrorCode.NONE), offsets))
        return rows

    def _row(
        self, index: int, code: ErrorCode, verdict: ErrorCode, offsets: list[int]
    ) -> ShareFetchResponsePartition:
        share = self.world.shares[index]
        return ShareFetchResponsePartition(
            partition_index=index,
            error_code=code,
            acknowledge_error_code=verdict,
            current_leader=LeaderIdAndEpoch(**NOBODY),
            records=share.log.read(offsets[0], 1 << 20) if offsets else b"",
            acquired_records=[
                ShareFetchResponseAcquiredRecords(
                    first_offset=offset, last_offset=offset, delivery_count=share.delivered[offset]
                )
                for offset in offsets
            ],
        )

    def _acknowledge(self, asked: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        self.world.lapse()
        code = self._turn(asked.share_session_epoch)
        verdicts = {} if code else self._said(self._take(asked.topics))
        if asked.share_session_epoch == -1:
            self.end()
        rows = [
            ShareAcknowledgeResponsePartition(
                partition_index=index,
                error_code=verdict,
                current_leader=LeaderIdAndEpoch(**NOBODY),
            )
            for index, verdict in verdicts.items()
        ]
        topic = ShareAcknowledgeResponseTopic(topic_id=self.world.topic_id, partitions=rows)
        return ShareAcknowledgeResponse(
            error_code=code,
            acquisition_lock_timeout_ms=self.world.lock_ms,
            responses=[topic] if rows else [],
            node_endpoints=[],
        )


class ShareWorld(SlowWorld):
    """See the module."""

    reading: ShareReading

    def __init__(self, seed: int, *, brokers: int, partitions: int, lock_ms: int) -> None:
        super().__init__(seed, brokers)
        self.seed = seed
        self.lock_ms = lock_ms
        self.share_brokers = {n: ShareBroker(n, self) for n in range(1, brokers + 1)}
        self.cluster.brokers = dict[int, Broker](self.share_brokers)
        logs = self.cluster.create(TOPIC, partitions)
        self.topic_id = self.cluster.topic_ids[TOPIC]
        self.shares = [Share(log) for log in logs]
        # What the group gives the member, and what it was told last.
        self.given = list(range(partitions))
        self._told: list[int] | None = None
        # What the next heartbeats are refused with.
        self.beat_refusals: list[ErrorCode] = []

    def start(
        self, patch: pytest.MonkeyPatch, *, explicit: bool = False, **options: Unpack[ShareOptions]
    ) -> ShareReading:
        """The member, which waits for nothing by itself."""
        patch.setattr(share_reading, "now_ms", self.clock)
        patch.setattr(share_reading, "Random", lambda: Random(self.seed))
        reading = ShareReading(
            "10.0.0.1:9001",
            [TOPIC],
            group="g",
            explicit=explicit,
            on_gap="raise",
            on_failed=lambda failed: None,
            wake_by=lambda at_ms: None,
            options={"request_timeout_ms": 5_000, **options},
        )
        self.engine = reading.engine
        self.reading = reading
        return reading

    @property
    def connections(self) -> Container[object]:
        """Those that are open."""
        return self._links

    def lapse(self) -> None:
        for share in self.shares:
            share.lapse(self.now_ms)

    def move(self, index: int, leader: int) -> None:
        """Another broker leads it from now on: what was locked is free."""
        share = self.shares[index]
        share.log.leader = leader
        share.log.leader_epoch += 1
        share.locks.clear()

    def beat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        code = ErrorCode.NONE
        if self.beat_refusals and request.member_epoch >= 0:
            code = self.beat_refusals.pop(0)
        is_told = not code and request.member_epoch >= 0
        is_new = request.member_epoch == 0 or self._told != self.given
        if is_told:
            self._told = list(self.given)
        row = GroupTopicPartitions(topic_id=self.topic_id, partitions=self.given)
        return ShareGroupHeartbeatResponse(
            error_code=code,
            member_id=request.member_id,
            member_epoch=3,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=GroupAssignment(topic_partitions=[row]) if is_told and is_new else None,
        )

    # Connections.

    def turn(self) -> bool:
        before = dict(self._links)
        moved = super().turn()
        for connection in before.keys() - self._links.keys():
            broker = before[connection][0]
            assert isinstance(broker, ShareBroker)
            self._later((connection, "to"), partial(broker.gone, connection))
        return moved

    def _arrives(
        self, connection: Connection, broker: Broker, reader: FrameReader, data: bytes
    ) -> None:
        assert isinstance(broker, ShareBroker)
        if not broker.is_up or broker.hangs:
            return
        reader.receive_data(data)
        while (frame := reader.next_frame()) is not None:
            broker.connection = connection
            reply = broker.answer(frame)
            assert reply is not None
            asked = broker.requests[-1]
            if isinstance(asked, ShareFetchRequest) and broker.is_asked_in_vain:
                self._hold(connection, broker, bytes(frame), asked, self.now_ms + asked.max_wait_ms)
                continue
            self._later((connection, "from"), partial(self._answers, connection, reply))

    def _hold(
        self,
        connection: Connection,
        broker: ShareBroker,
        frame: bytes,
        asked: ShareFetchRequest,
        until_ms: int,
    ) -> None:
        """A broker holds a question until there is something, or its time is over."""

        def look() -> None:
            if not broker.is_up or broker.hangs:
                return
            broker.connection = connection
            done = broker.again(asked)
            if done is None and self.now_ms < until_ms:
                self._late.append((min(until_ms, self.now_ms + LOOK_MS), connection, look))
                return
            header = parse_request_header(frame)
            parts = encode_response(
                done or _fetched([], self),
                header.api_key,
                header.api_version,
                header.correlation_id,
            )
            reply = b"".join(map(bytes, parts))
            self._later((connection, "from"), partial(self._answers, connection, reply))

        self._late.append((min(until_ms, self.now_ms + LOOK_MS), connection, look))


def _rows(topics: Iterable[Any]) -> list[Any]:
    return [row for topic in topics for row in topic.partitions]


def _fetched(
    rows: list[ShareFetchResponsePartition], world: ShareWorld, code: ErrorCode = ErrorCode.NONE
) -> ShareFetchResponse:
    topic = ShareFetchResponseTopic(topic_id=world.topic_id, partitions=rows)
    return ShareFetchResponse(
        error_code=code,
        acquisition_lock_timeout_ms=world.lock_ms,
        responses=[topic] if rows else [],
        node_endpoints=[],
    )

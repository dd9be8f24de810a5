"""Several scripted brokers of one share group with one member: over sockets, in real time.

    with ShareCluster(brokers=2, partitions=4, count=100) as cluster, cluster.working() as consumer:
        cluster.move(0, 2)

Brokers are numbered from 1; partition p begins at broker p % brokers + 1.  Each log has `count`
records, which are available, locked by the session with its leader, or done with.  A broker says
what Apache Kafka does: of partitions that it does not lead, of epochs out of turn, of records that
are not locked by the session.  A move, and the begin or end of a session, make free what was
locked.  The group's coordinator is broker 1.

What a broker does instead a test says: `broker.before` is called with each request, and may raise
ConnectionError; where it gives False the request is not answered.  `broker.after` is called behind
what was done, before the answer goes.
"""

import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from segbroker.client import ShareConsumer
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import GroupAssignment, GroupTopicPartitions
from segbroker.protocol.messages_core import (
    LeaderIdAndEpoch,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
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
from segbroker.protocol.record_batch import encode_batch

from .replaying import TOPIC, Replaying, Request, versions
from .scripted_shares import LOCK_MS, PATIENT, TOPIC_ID, decode

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
NOBODY: dict[str, int] = {"leader_id": -1, "leader_epoch": -1}


@dataclass
class Log:
    """One partition, as its leader has it."""

    leader: int
    count: int
    epoch: int = 0
    locked: set[int] = field(default_factory=set)
    # What became of a record for good; and how often each was handed out.
    done: dict[int, int] = field(default_factory=dict)
    delivered: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))

    def acquire(self, limit: int) -> list[int]:
        free = (o for o in range(self.count) if o not in self.locked and o not in self.done)
        taken = [offset for offset, _ in zip(free, range(limit), strict=False)]
        self.locked.update(taken)
        for offset in taken:
            self.delivered[offset] += 1
        return taken

    def take(self, said: dict[int, int]) -> ErrorCode:
        if not self.locked >= said.keys():
            return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in said.items():
            if kind != RENEW:
                self.locked.discard(offset)
            if kind not in (RELEASE, RENEW):
                self.done[offset] = kind
        return ErrorCode.NONE


class Broker:
    """One of them, with the session that the member has there."""

    def __init__(self, number: int, cluster: "ShareCluster") -> None:
        self.number = number
        self.before: Callable[[Request], bool] = lambda request: True
        self.after: Callable[[Request], object] = lambda request: None
        self.fetches: list[ShareFetchRequest] = []
        self.acknowledged: list[ShareAcknowledgeRequest] = []
        self.epoch = -1
        self._cluster = cluster
        self._known: dict[int, None] = {}
        handlers = {
            ApiKey.API_VERSIONS: versions,
            ApiKey.METADATA: lambda request: cluster.metadata(),
            ApiKey.FIND_COORDINATOR: cluster.coordinator,
            ApiKey.SHARE_GROUP_HEARTBEAT: cluster.beat,
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
        }

        def answering(handle: Callable[[Request], Any]) -> Callable[[Request], bytes | None]:
            def answer(request: Request) -> bytes | None:
                if not self.before(request):
                    return None
                done = handle(request)
                self.after(request)
                return request.answer(done)

            return answer

        self.server = Replaying({key: answering(handle) for key, handle in handlers.items()})

    def _turn(self, epoch: int) -> ErrorCode:
        """The session goes on, begins or ends with a request of this epoch."""
        if epoch > 0 and self.epoch < 0:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch > 0 and epoch != self.epoch + 1:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        if epoch == 0:
            self.end()
        self.epoch = epoch
        return ErrorCode.NONE

    def end(self) -> None:
        """The session is over."""
        self.epoch, self._known = -1, {}
        for log in self._cluster.logs:
            if log.leader == self.number:
                log.locked.clear()
        self._cluster.changed.notify_all()

    def _take(self, topics: list[Any]) -> dict[int, ErrorCode]:
        verdicts: dict[int, ErrorCode] = {}
        for topic in topics:
            assert topic.topic_id == TOPIC_ID
            for row in topic.partitions:
                said = said_of(row)
                log = self._cluster.logs[row.partition_index]
                is_mine = log.leader == self.number
                if said:
                    verdicts[row.partition_index] = (
                        log.take(said) if is_mine else ErrorCode.NOT_LEADER_OR_FOLLOWER
                    )
        return verdicts

    def _fetch(self, request: Request) -> ShareFetchResponse:
        asked: ShareFetchRequest = decode(request, ShareFetchRequest)
        with self._cluster.changed:
            self.fetches.append(asked)
            code = self._turn(asked.share_session_epoch)
            if code:
                return _fetched([], code)
            named = [row.partition_index for topic in asked.topics for row in topic.partitions]
            self._known.update(dict.fromkeys(named))
            for gone in asked.forgotten_topics_data:
                for partition in gone.partitions:
                    self._known.pop(partition, None)
            verdicts = self._take(asked.topics)
            found: dict[int, list[int]] = {}

            def is_answered() -> bool:
                left = asked.max_records
                for partition in self._known:
                    log = self._cluster.logs[partition]
                    if log.leader == self.number and (taken := log.acquire(left)):
                        found[partition] = taken
                        left -= len(taken)
                    elif log.leader != self.number:
                        verdicts.setdefault(partition, ErrorCode.NONE)
                return bool(found or verdicts)

            self._cluster.changed.wait_for(is_answered, asked.max_wait_ms / 1000)
            told = {**verdicts, **found}
            return _fetched([self._row(each, verdicts, found) for each in told])

    def _row(
        self, partition: int, verdicts: dict[int, ErrorCode], found: dict[int, list[int]]
    ) -> ShareFetchResponsePartition:
        log = self._cluster.logs[partition]
        is_mine = log.leader == self.number
        offsets = found.get(partition, [])
        return ShareFetchResponsePartition(
            partition_index=partition,
            error_code=ErrorCode.NONE if is_mine else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            acknowledge_error_code=verdicts.get(partition, ErrorCode.NONE),
            current_leader=LeaderIdAndEpoch(**NOBODY),
            records=b"".join(_record(partition, offset) for offset in offsets),
            acquired_records=[
                ShareFetchResponseAcquiredRecords(
                    first_offset=offset, last_offset=offset, delivery_count=log.delivered[offset]
                )
                for offset in offsets
            ],
        )

    def _acknowledge(self, request: Request) -> ShareAcknowledgeResponse:
        asked: ShareAcknowledgeRequest = decode(request, ShareAcknowledgeRequest)
        with self._cluster.changed:
            self.acknowledged.append(asked)
            code = self._turn(asked.share_session_epoch)
            verdicts = {} if code else self._take(asked.topics)
            if asked.share_session_epoch == -1:
                self.end()
        rows = [
            ShareAcknowledgeResponsePartition(
                partition_index=partition,
                error_code=verdict,
                current_leader=LeaderIdAndEpoch(**NOBODY),
            )
            for partition, verdict in verdicts.items()
        ]
        topic = ShareAcknowledgeResponseTopic(topic_id=TOPIC_ID, partitions=rows)
        return ShareAcknowledgeResponse(
            error_code=code, responses=[topic] if rows else [], node_endpoints=[]
        )


class ShareCluster:
    """See the module."""

    def __init__(self, *, brokers: int, partitions: int, count: int) -> None:
        # Guards all, and tells waiting fetches of what has changed.
        self.changed = threading.Condition()
        self.logs = [Log(partition % brokers + 1, count) for partition in range(partitions)]
        self.brokers = {number: Broker(number, self) for number in range(1, brokers + 1)}
        # How often somebody was told who leads what.
        self.views_count = 0
        # Whether the member has left.
        self.left = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for broker in self.brokers.values():
            self._stack.enter_context(broker.server)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @contextmanager
    def working(self, **options: Any) -> Iterator[ShareConsumer[Any]]:  # noqa: ANN401
        address = self.brokers[1].server.address
        with ShareConsumer(address, TOPIC, group="g", **{**PATIENT, **options}) as consumer:
            yield consumer

    def move(self, partition: int, leader: int) -> None:
        """Another broker leads it from now on: what was locked is free."""
        with self.changed:
            log = self.logs[partition]
            log.leader = leader
            log.epoch += 1
            log.locked.clear()
            self.changed.notify_all()

    def metadata(self) -> MetadataResponse:
        self.views_count += 1
        rows = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=log.leader,
                leader_epoch=log.epoch,
                replica_nodes=list(self.brokers),
                isr_nodes=list(self.brokers),
            )
            for index, log in enumerate(self.logs)
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=broker.server.port)
                for number, broker in self.brokers.items()
            ],
            controller_id=1,
            topics=[MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=rows)],
        )

    def coordinator(self, request: Request) -> FindCoordinatorResponse:
        asked = decode(request, FindCoordinatorRequest)
        row = FindCoordinatorResponseCoordinator(
            key=asked.coordinator_keys[0],
            node_id=1,
            host="127.0.0.1",
            port=self.brokers[1].server.port,
            error_message=None,
        )
        return FindCoordinatorResponse(coordinators=[row])

    def beat(self, request: Request) -> ShareGroupHeartbeatResponse:
        asked = decode(request, ShareGroupHeartbeatRequest)
        self.left = asked.member_epoch == -1
        given = GroupTopicPartitions(topic_id=TOPIC_ID, partitions=list(range(len(self.logs))))
        return ShareGroupHeartbeatResponse(
            member_id=asked.member_id,
            member_epoch=3,
            heartbeat_interval_ms=5_000,
            assignment=None if asked.member_epoch else GroupAssignment(topic_partitions=[given]),
        )


def _fetched(
    rows: list[ShareFetchResponsePartition], code: ErrorCode = ErrorCode.NONE
) -> ShareFetchResponse:
    topic = ShareFetchResponseTopic(topic_id=TOPIC_ID, partitions=rows)
    return ShareFetchResponse(
        error_code=code,
        acquisition_lock_timeout_ms=LOCK_MS,
        responses=[topic] if rows else [],
        node_endpoints=[],
    )


def _record(partition: int, offset: int) -> bytes:
    data = bytearray(encode_batch([b"%d/%d" % (partition, offset)], timestamps_ms=1))
    struct.pack_into(">q", data, 0, offset)
    return bytes(data)


def said_of(row: Any) -> dict[int, int]:  # noqa: ANN401 - of either request
    """What is said of a partition: offset -> kind."""
    said: dict[int, int] = {}
    for batch in row.acknowledgement_batches:
        offsets = range(batch.first_offset, batch.last_offset + 1)
        kinds = batch.acknowledge_types
        said.update(zip(offsets, kinds * (len(offsets) // len(kinds)), strict=True))
    return said

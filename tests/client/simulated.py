"""A cluster of brokers in memory, and a world without sockets, clock or chance.

    world = World(brokers=2)
    world.run(until=lambda: completion.done)

The brokers speak the real wire: what the client's connections put out is parsed from bytes, answers
go back as bytes.  They keep real batches, patch base offsets, and recognise repeated batches by
producer id, epoch and sequence (the last five), as Kafka does.  Time jumps to the next moment at
which the client wants to do something.

Faults are asked for before they happen: `broker.cut_before(n)`, `broker.cut_after(n)` (the nth
produce is not appended, or appended and not answered), `broker.is_up = False`,
`cluster.move(topic, 0, 2)`, to `NOBODY` for a partition that is not served.

What a log may lose: `partition.evict(to, reason)`, `partition.delete(to)` (on purpose),
`partition.truncate(end)` (its tail, with a new leader epoch), `cluster.create` once more (the
topic is another one).  Floors are told by brokers that say they are segbroker.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from segbroker.client.connection import Connection
from segbroker.client.engine import Engine
from segbroker.client.errors import ConnectionLost
from segbroker.client.settings import ClientSettings
from segbroker.protocol.api_keys import api_versions_response, is_vendor
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import (
    RequestHeader,
    decode_request,
    encode_response,
    encode_vendor_response,
    parse_request_header,
)
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    ApiVersionsResponseKey,
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseDivergingEpoch,
    FetchResponsePartition,
    FetchResponseTopic,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from segbroker.protocol.messages_transactions import InitProducerIdRequest, InitProducerIdResponse
from segbroker.protocol.record_batch import (
    BatchHeader,
    GapReason,
    check_batch,
    decode_batch,
    gap_batches,
    patch_batch,
    read_header,
)
from segbroker.protocol.schema import Message, records_view
from segbroker.protocol.vendor import VendorKey, unpack

NOBODY = -1


@dataclass
class Partition:
    leader: int
    batches: list[bytes] = field(default_factory=list)
    log_start: int = 0
    log_end: int = 0
    # (producer id, first offset) of aborted transactions, as the broker tells with a fetch
    aborted: list[tuple[int, int]] = field(default_factory=list)
    # (producer id, epoch) -> the last five (first sequence, last sequence, base offset)
    seen: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    leader_epoch: int = 0
    # (leader epoch, its first offset)
    epoch_starts: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    # Another leader epoch begins when somebody asks about epochs, as of a log that is opened then.
    begins_epoch_late: bool = False
    # What the next batches are refused with.
    refusals: list[int] = field(default_factory=list)
    # It has a leader that refuses to read it, as one with damage under on.corruption=refuse.
    is_damaged: bool = False
    evict_floor: int = 0
    evict_reason: str = "ttl"

    def delete(self, to: int) -> None:
        """Delete what lies below an offset, on purpose."""
        self.log_start = to
        self.batches = [b for b in self.batches if read_header(b).next_offset > to]

    def evict(self, to: int, reason: str) -> None:
        self.evict_floor, self.evict_reason = to, reason
        self.delete(to)

    def truncate(self, end: int) -> None:
        """Lose the tail; what comes now belongs to the next leader epoch."""
        self.batches = [b for b in self.batches if read_header(b).next_offset <= end]
        self.log_end = end
        self.leader_epoch += 1
        self.epoch_starts = [(e, start) for e, start in self.epoch_starts if start < end]
        self.epoch_starts.append((self.leader_epoch, end))
        self.seen.clear()

    def restore(self, end: int) -> None:
        """Go back to the log as it was when it ended there, as an older backup of it."""
        self.batches = [b for b in self.batches if read_header(b).next_offset <= end]
        self.log_end = end
        self.epoch_starts = [(e, start) for e, start in self.epoch_starts if start < end]
        self.leader_epoch = self.epoch_starts[-1][0]
        self.seen.clear()

    def store_gap(self, to: int, reason: GapReason) -> None:
        """Lose what would have come up to an offset."""
        for gap in gap_batches(self.log_end, to, reason, 5, self.leader_epoch):
            self.batches.append(bytes(gap))
        self.log_end = to

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(the greatest epoch up to this one, where it ends), as OffsetForLeaderEpoch says."""
        ends = [start for _, start in self.epoch_starts[1:]] + [self.log_end]
        found = (-1, -1)
        for (number, _), end in zip(self.epoch_starts, ends, strict=True):
            if number <= epoch:
                found = number, end
        return found

    def compare_epochs(self, epoch: int, offset: int) -> tuple[ErrorCode, tuple[int, int] | None]:
        """What Apache Kafka says to a fetch of `offset` behind a record of `epoch`: the error, or
        where the log parts from what was read."""
        known, end = self.epoch_end(epoch)
        if not 0 <= epoch <= self.leader_epoch or known < 0 or offset < self.log_start:
            return ErrorCode.OFFSET_OUT_OF_RANGE, None
        return ErrorCode.NONE, (known, end) if known < epoch or end < offset else None

    def append(self, data: bytes) -> tuple[int, int]:
        """(error code, base offset), by the rules of Kafka's idempotent producer."""
        header = check_batch(data)
        if self.refusals:
            return self.refusals.pop(0), -1
        if header.producer_id >= 0:
            mine = (header.producer_id, header.producer_epoch)
            known = self.seen.get(mine, [])
            for first, last, base in known:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return ErrorCode.NONE, base
            if any(p == mine[0] and e > mine[1] for p, e in self.seen):
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            expected = (known[-1][1] + 1) % (1 << 31) if known else 0
            # Who is not known is taken at its word: it may have been forgotten.
            is_known = any(producer_id == mine[0] for producer_id, _ in self.seen)
            if is_known and header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            this = (header.base_sequence, header.last_sequence, self.log_end)
            self.seen[mine] = [*known, this][-5:]
        return ErrorCode.NONE, self.store(data, header)

    def store(self, data: bytes, header: BatchHeader) -> int:
        base = self.log_end
        stored = bytearray(data)
        patch_batch(stored, base, self.leader_epoch)
        self.batches.append(bytes(stored))
        self.log_end = base + header.last_offset_delta + 1
        return base

    def values(self) -> list[bytes | None]:
        return [
            value
            for batch in self.batches
            if not read_header(batch).is_control
            for value in decode_batch(batch).values()
        ]

    def read(self, offset: int, max_bytes: int) -> bytes:
        out = b""
        for batch in self.batches:
            if read_header(batch).next_offset > offset:
                if out and len(out) + len(batch) > max_bytes:
                    break
                out += batch
        return out


class Cluster:
    """Topics and their partitions, shared by the brokers."""

    def __init__(self, brokers: int) -> None:
        self.topics: dict[str, list[Partition]] = {}
        self.topic_ids: dict[str, UUID] = {}
        self._ids = count(1)
        self.brokers = {number: Broker(number, self) for number in range(1, brokers + 1)}
        self.producer_id_error = 0
        self.auto_create = True
        self.next_producer_id = 1000
        # What the next answers call the first partition of each topic.
        self.false_indexes: list[int] = []
        # Partitions that nobody may read.
        self.forbidden: set[tuple[str, int]] = set()
        # Topics that answers leave out, asked for or not; and brokers, also where they lead.
        self.unmentioned: set[str] = set()
        self.unlisted: set[int] = set()

    def create(self, name: str, partitions: int = 1) -> list[Partition]:
        numbers = list(self.brokers)
        self.topic_ids[name] = UUID(int=next(self._ids))
        self.topics[name] = [Partition(numbers[p % len(numbers)]) for p in range(partitions)]
        return self.topics[name]

    def name_of(self, topic_id: UUID) -> str | None:
        """Of the topic that has this id now."""
        names = (name for name, known in self.topic_ids.items() if known == topic_id)
        return next((name for name in names if name in self.topics), None)

    def move(self, topic: str, partition: int, leader: int) -> None:
        self.topics[topic][partition].leader = leader


class Session:
    """A fetch session by the rules of KIP-227."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.epoch = 0
        self.rows: dict[tuple[str, int], FetchRequestPartition] = {}
        self.told: dict[tuple[str, int], tuple[int, int]] = {}

    def asked_for(self, request: FetchRequest) -> list[tuple[str, FetchRequestPartition]]:
        for topic in request.topics:
            for row in topic.partitions:
                self.rows[topic.topic, row.partition] = row
        for gone in request.forgotten_topics_data:
            for partition in gone.partitions:
                self.rows.pop((gone.topic, partition), None)
                self.told.pop((gone.topic, partition), None)
        return [(topic, row) for (topic, _), row in self.rows.items()]

    def tells(self, topic: str, row: FetchResponsePartition) -> bool:
        at = topic, row.partition_index
        now = row.high_watermark, row.log_start_offset
        is_told = bool(row.records or row.error_code or row.diverging_epoch)
        is_told = is_told or self.told.get(at) != now
        if row.error_code:
            self.told.pop(at, None)
        else:
            self.told[at] = now
        return is_told


class Broker:
    def __init__(self, number: int, cluster: Cluster) -> None:
        self.number = number
        self.cluster = cluster
        self.is_up = True
        self.is_segbroker = False
        self.requests: list[Message] = []
        self.produce_errors: list[int] = []
        self.too_large_bytes = 1 << 20
        self.refused_as_too_large = 0
        self.asked_versions: list[int] = []
        # Of an older broker: the newest versions that it knows, by api key.
        self.newest: dict[int, int] = {}
        # Called with each produce request before it is done.
        self.on_produce: Callable[[ProduceRequest], object] = lambda request: None
        self._cut_before: set[int] = set()
        self._cut_after: set[int] = set()
        self._produces = 0
        self.held_back_ms = 0
        self.keeps_sessions = True
        self.sessions: dict[int, Session] = {}
        self.last_session_id = 0

    def cut_before(self, *numbers: int) -> None:
        """End the connection at these produce requests (from 1), nothing being done."""
        self._cut_before.update(numbers)

    def cut_after(self, *numbers: int) -> None:
        """End the connection after these produce requests were done, before the answer."""
        self._cut_after.update(numbers)

    def answer(self, frame: memoryview) -> bytes | None:
        """The reply frame; empty when there is none; None ends the connection."""
        self.held_back_ms = 0
        header = parse_request_header(frame)
        if is_vendor(header.api_key):
            return self._answer_vendor(header, frame)
        request = decode_request(frame, header)
        self.requests.append(request)
        version = header.api_version
        if isinstance(request, ApiVersionsRequest):
            self.asked_versions.append(version)
        if isinstance(request, ProduceRequest):
            self._produces += 1
            self.on_produce(request)
            if self._produces in self._cut_before:
                return None
        reply, version = self._reply(request, version)
        if isinstance(request, ProduceRequest):
            if self._produces in self._cut_after:
                return None
            if request.acks == 0:
                return b""
        return b"".join(encode_response(reply, header.api_key, version, header.correlation_id))

    def _answer_vendor(self, header: RequestHeader, frame: memoryview) -> bytes:
        assert header.api_key == VendorKey.FLOORS
        assert self.is_segbroker, "asked for what was not advertised"
        rows = []
        for row in unpack(frame[header.body_position :])["partitions"]:
            partition = self.cluster.topics[row["topic"]][row["partition"]]
            rows.append(
                {
                    **row,
                    "topic_id": self.cluster.topic_ids[row["topic"]].bytes,
                    "evict_floor": partition.evict_floor,
                    "evict_reason": partition.evict_reason,
                    "log_start_offset": partition.log_start,
                    "high_watermark": partition.log_end,
                    "leader_epoch": partition.leader_epoch,
                }
            )
        return b"".join(encode_vendor_response({"partitions": rows}, header.correlation_id))

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                partition = self.cluster.topics[topic.topic][row.partition]
                if partition.begins_epoch_late:
                    partition.begins_epoch_late = False
                    partition.truncate(partition.log_end)
                if 0 <= row.current_leader_epoch < partition.leader_epoch:
                    rows.append(
                        OffsetForLeaderEpochResponsePartition(
                            partition=row.partition, error_code=ErrorCode.FENCED_LEADER_EPOCH
                        )
                    )
                    continue
                epoch, end = partition.epoch_end(row.leader_epoch)
                rows.append(
                    OffsetForLeaderEpochResponsePartition(
                        partition=row.partition, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=rows))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _reply(self, request: Message, version: int) -> tuple[Message, int]:
        match request:
            case ApiVersionsRequest():
                reply, version = api_versions_response(version, vendor=False)
                for row in reply.api_keys:
                    row.max_version = min(row.max_version, self.newest.get(row.api_key, 99))
                if self.is_segbroker:
                    key = ApiVersionsResponseKey(
                        api_key=VendorKey.FLOORS, min_version=0, max_version=0
                    )
                    reply.api_keys.append(key)
                return reply, version
            case OffsetForLeaderEpochRequest():
                return self._epoch_ends(request), version
            case MetadataRequest():
                return self._metadata(request), version
            case InitProducerIdRequest():
                if code := self.cluster.producer_id_error:
                    refused = InitProducerIdResponse(
                        error_code=code, producer_id=-1, producer_epoch=-1
                    )
                    return refused, version
                self.cluster.next_producer_id += 1
                return (
                    InitProducerIdResponse(
                        producer_id=self.cluster.next_producer_id, producer_epoch=0
                    ),
                    version,
                )
            case ProduceRequest():
                return self._produce(request), version
            case FetchRequest():
                return self._fetch(request), version
            case ListOffsetsRequest():
                return self._offsets(request), version
        raise AssertionError(f"the simulated broker does not know {request}")

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        cluster = self.cluster
        names = [topic.name or "" for topic in request.topics or ()]
        if request.topics is None:
            names = list(cluster.topics)
        names = [name for name in names if name not in cluster.unmentioned]
        topics = []
        first = cluster.false_indexes.pop(0) if cluster.false_indexes else 0
        for name in names:
            may_create = cluster.auto_create and request.allow_auto_topic_creation
            if name not in cluster.topics and may_create:
                cluster.create(name)
            code = ErrorCode.NONE
            if name not in cluster.topics:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(
                MetadataResponseTopic(
                    error_code=code,
                    name=name,
                    topic_id=cluster.topic_ids.get(name, UUID(int=0)),
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=index or first,
                            leader_id=partition.leader,
                            leader_epoch=partition.leader_epoch,
                            replica_nodes=[1],
                            isr_nodes=[],
                            offline_replicas=[1] if partition.leader == NOBODY else [],
                        )
                        for index, partition in enumerate(cluster.topics.get(name, ()))
                    ],
                )
            )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host="10.0.0.1", port=9000 + number)
                for number in cluster.brokers
                if number not in cluster.unlisted
            ],
            cluster_id="simulated",
            controller_id=1,
            topics=topics,
        )

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        responses = []
        for topic in request.topic_data:
            rows = []
            name = topic.name or self.cluster.name_of(topic.topic_id)
            for row in topic.partition_data:
                code: int = ErrorCode.UNKNOWN_TOPIC_ID
                base = -1
                if name is not None:
                    code, base = self._produce_one(
                        name, row.index, bytes(records_view(row.records))
                    )
                rows.append(
                    ProduceResponsePartition(index=row.index, error_code=code, base_offset=base)
                )
            responses.append(
                ProduceResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=rows
                )
            )
        return ProduceResponse(responses=responses)

    def _produce_one(self, topic: str, index: int, data: bytes) -> tuple[int, int]:
        if self.produce_errors:
            code = self.produce_errors.pop(0)
            if code:
                return code, -1
        if not index < len(self.cluster.topics.get(topic, [])):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        partition = self.cluster.topics[topic][index]
        if partition.leader == NOBODY:
            return ErrorCode.POLICY_VIOLATION, -1  # as where what is damaged is refused
        if partition.leader != self.number:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if len(data) > self.too_large_bytes:
            self.refused_as_too_large += 1
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return partition.append(data)

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        session: Session | None = None
        if request.session_epoch in (0, -1):
            self.sessions.pop(request.session_id, None)
            if request.session_epoch == 0 and self.keeps_sessions:
                self.last_session_id += 1
                session = self.sessions[self.last_session_id] = Session(self.last_session_id)
        else:
            session = self.sessions.get(request.session_id)
            if session is None:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
            if session.epoch != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
        asked = [(topic.topic, row) for topic in request.topics for row in topic.partitions]
        if session is not None:
            asked = session.asked_for(request)
        found = [
            (topic, self._fetch_one(topic, row, request.isolation_level)) for topic, row in asked
        ]
        if session is not None:
            found = [one for one in found if session.tells(*one)]
            session.epoch += 1
        topics: dict[str, list[FetchResponsePartition]] = {}
        for topic, answer in found:
            topics.setdefault(topic, []).append(answer)
        if not any(answer.records or answer.error_code for _, answer in found):
            self.held_back_ms = request.max_wait_ms
        return FetchResponse(
            session_id=0 if session is None else session.id,
            responses=[
                FetchResponseTopic(topic=topic, partitions=rows) for topic, rows in topics.items()
            ],
        )

    def _fetch_one(
        self, topic: str, row: FetchRequestPartition, isolation_level: int
    ) -> FetchResponsePartition:
        partitions = self.cluster.topics.get(topic, [])
        if not row.partition < len(partitions):
            return FetchResponsePartition(
                partition_index=row.partition,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                high_watermark=-1,
                aborted_transactions=None,
                records=b"",
            )
        partition = partitions[row.partition]
        code = ErrorCode.NONE
        diverging: tuple[int, int] | None = None
        if partition.leader != self.number:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif (topic, row.partition) in self.cluster.forbidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif partition.is_damaged:
            code = ErrorCode.POLICY_VIOLATION
        elif 0 <= row.current_leader_epoch < partition.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif row.current_leader_epoch > partition.leader_epoch:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif row.last_fetched_epoch >= 0:
            code, diverging = partition.compare_epochs(row.last_fetched_epoch, row.fetch_offset)
        elif not partition.log_start <= row.fetch_offset <= partition.log_end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        return FetchResponsePartition(
            partition_index=row.partition,
            error_code=code,
            high_watermark=partition.log_end if not code else -1,
            last_stable_offset=partition.log_end if not code else -1,
            log_start_offset=partition.log_start if not code else -1,
            aborted_transactions=[
                FetchResponseAbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in partition.aborted
                if isolation_level
            ]
            or None,
            diverging_epoch=diverging
            and FetchResponseDivergingEpoch(epoch=diverging[0], end_offset=diverging[1]),
            records=b""
            if code or diverging
            else partition.read(row.fetch_offset, row.partition_max_bytes),
        )

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                partition = self.cluster.topics[topic.name][row.partition_index]
                offset = {-2: partition.log_start, -1: partition.log_end}[row.timestamp]
                code = ErrorCode.NONE
                if partition.leader != self.number:
                    code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                rows.append(
                    ListOffsetsResponsePartition(
                        partition_index=row.partition_index, error_code=code, offset=offset
                    )
                )
            topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)


def hand_over(connection: Connection, data: bytes, now_ms: int) -> None:
    """Have a connection receive all of it."""
    while data:
        space = connection.get_buffer()
        size = min(len(space), len(data))
        space[:size] = data[:size]
        connection.received(size, now_ms)
        data = data[size:]


class World:
    """A client's engine among simulated brokers."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        create_topics: bool = True,
        seed: int = 1,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        self.now_ms = 1_000
        self.cluster = Cluster(brokers)
        self.random = Random(seed)
        self.settings = ClientSettings(bootstrap=(("10.0.0.1", 9001),), **settings)
        self.engine = Engine(self.settings, self.random, create_topics=create_topics)
        # How long the fetch just answered would have waited at a real broker.
        self._held_back_ms = 0
        self._links: dict[Connection, tuple[Broker, FrameReader]] = {}

    @property
    def broker(self) -> Broker:
        return self.cluster.brokers[1]

    def clock(self) -> int:
        return self.now_ms

    def run(self, until: Callable[[], bool], *, within_ms: int = 600_000) -> None:
        """Let things happen until the condition holds; AssertionError when time runs out."""
        end_ms = self.now_ms + within_ms
        while not until():
            if self.turn():
                continue
            wake_ms = self.engine.next_wake_ms()
            assert wake_ms is not None, "nothing will ever happen"
            # A deadline that has passed and does nothing would spin for ever in a real shell.
            self.now_ms = max(self.now_ms + 1, wake_ms)
            assert self.now_ms <= end_ms, f"not within {within_ms} ms"

    def turn(self) -> bool:
        """One exchange of what there is; False when nothing moved."""
        self.engine.step(self.now_ms)
        moved = False
        for connection in self.engine.network.take_opening():
            moved = True
            broker = self.cluster.brokers[connection.port - 9000]
            if broker.is_up:
                self._links[connection] = (broker, FrameReader(size_min=8))
                connection.connected()
            else:
                connection.lost(ConnectionLost("10.0.0.1: refused"), self.now_ms)
        for connection in self.engine.network.take_closed():
            self._links.pop(connection, None)
        for connection, (broker, reader) in list(self._links.items()):
            moved = self._exchange(connection, broker, reader) or moved
        return moved

    def _exchange(self, connection: Connection, broker: Broker, reader: FrameReader) -> bool:
        if not broker.is_up:
            connection.lost(ConnectionLost("10.0.0.1: reset"), self.now_ms)
            return True
        data = b"".join(connection.outgoing)
        if not data:
            return False
        connection.sent(len(data))
        reader.receive_data(data)
        while (frame := reader.next_frame()) is not None:
            reply = broker.answer(frame)
            self._held_back_ms = broker.held_back_ms
            if reply is None:
                connection.lost(ConnectionLost("10.0.0.1: cut"), self.now_ms)
                return True
            if self._held_back_ms:
                self.now_ms += self._held_back_ms
                self._held_back_ms = 0
            self.deliver(connection, reply)
        return True

    def deliver(self, connection: Connection, data: bytes) -> None:
        hand_over(connection, data, self.now_ms)

    def stored(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return self.cluster.topics[topic][partition].values()

"""Records of one task on their way to the brokers: batches, sequences, a few in flight.

    records --> held by partition --> batches --> requests, IN_FLIGHT_MAX a link --> acknowledged

Records wait until their partition has a batch of them, or all that wait are HELD_BYTES: a topic of
many partitions gets few from each table of rows.  Batches of different partitions travel together,
one of each partition in a request: a request for each would take a broker longer than its records.

Each partition's batches carry consecutive sequences, so a batch that is sent again after a lost
connection or a moved leader is recognised by the broker and neither repeated nor reordered.  After
trouble on a link all that is not acknowledged there is sent again, in order.  The second batch of a
partition is sent when the first one is there: Apache Kafka takes any sequence of a producer that it
does not know, and could take the second one alone.  Nor is one sent to a leader as long as another,
of before, has an earlier one.

With a transactional id all of it is one transaction, which `prepare` leaves open for the driver to
commit; otherwise records are there as soon as they are acknowledged.

A batch that is too large for its topic is cut into pieces of half its size, with the same
sequences, until they fit or one record is too large; the later ones of the topic are no larger.

Invariant: `flush` returns only when every record is acknowledged.
Limits: a record that is larger than a batch travels alone in its batch; in memory are HELD_BYTES,
and what is in flight: at most IN_FLIGHT_MAX requests of REQUEST_BYTES or of one batch for each
leader, with the rows that they were made of.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from random import Random
from uuid import UUID

from segbroker.client.backoff import Backoff
from segbroker.client.errors import BrokerError, SegbrokerError, broker_error
from segbroker.client.settings import Address, parse_codec
from segbroker.client.spoken import ById
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.record_batch import encode_batch

from .cluster import BACKOFF_FIRST_MS, BACKOFF_MAX_MS, Cluster
from .errors import SinkError, SourceUnavailable
from .held_records import Held, by_partition, cut, nothing_of, sizes_of
from .layouts import TopicLayout
from .link import Link, now_ms
from .offsets import TopicPartition
from .options import Subscribe
from .rows import Records
from .sink_options import SinkOptions
from .transactions import OVER, WHY_OVER, Identity, abort, add_partitions, producer_id

# A broker recognises a repeated batch among the last five of a partition.
IN_FLIGHT_MAX = 5
# Of records that wait to be sent, before compression; and of batches in one request.
HELD_BYTES = 4 << 20
REQUEST_BYTES = 1 << 20
SEQUENCE_END = 1 << 31

# A leader that moved, and a sequence that is only out of order because the one before it was not
# taken either: sent again, in order, both are put right.
_AGAIN = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
# Of a batch that is in the log, by this request or by an earlier one.
_TAKEN = {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
# A batch of several records is cut, and the later ones of the topic are made no larger.
_TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}


@dataclass(eq=False, slots=True)
class Batch:
    """One batch, until it is acknowledged: records [begin, end) of a part, `size` bytes of them."""

    key: TopicPartition
    data: bytes
    part: Records
    begin: int
    end: int
    size: int
    sequence: int


class RecordWriter:
    """See the module."""

    def __init__(self, options: SinkOptions, transactional_id: str | None, rotation: int) -> None:
        """`rotation`: where records without a key begin, modulo the partitions of their topic."""
        self._options = options
        self._cluster = Cluster(options.client, creates_topics=True)
        self._codec = parse_codec(options.compression)
        self._topics: dict[str, TopicLayout] = {}
        self._sequences: dict[TopicPartition, int] = {}
        # Partitions that have answered a batch of ours, and where the last one went at first.
        self._begun: set[TopicPartition] = set()
        self._sent_to: dict[TopicPartition, Address] = {}
        self._held: dict[TopicPartition, Held] = {}
        self._held_bytes = 0
        # Batches of one request are of different partitions.
        self._in_flight: dict[Address, deque[list[Batch]]] = {}
        self._links: dict[Address, Link] = {}
        self._rotation = rotation
        self._transactional_id = transactional_id
        self._identity: Identity | None = None
        self._random = Random()
        # Of topics that have refused a batch as too large: what later ones may have.
        self._fitting: dict[str, int] = {}

    def write(self, records: Records) -> None:
        """Take records, and send what is enough; waits while too much is in flight.

        Raises SinkError.
        """
        layout = self._layout(records.topic)
        self._have_identity()
        full: list[TopicPartition] = []
        for part in by_partition(records, len(layout.leaders)):
            key = (records.topic, self._choose(layout, part.partition))
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = Held(nothing_of(part), [])
            self._held_bytes += held.add(part, sizes_of(part))
            if held.bytes >= self._batch_bytes(records.topic):
                full.append(key)
        if self._held_bytes >= HELD_BYTES:
            full = list(self._held)
        self._send_held(full)

    def flush(self) -> None:
        """Send all, and wait until everything is acknowledged.  Raises SinkError."""
        self._send_held(list(self._held))
        for leader in list(self._in_flight):
            while self._in_flight.get(leader):
                self._receive(leader)

    def prepare(self) -> Identity | None:
        """Flush, and leave the transaction open; None where nothing was written."""
        self.flush()
        return self._identity if self._sequences else None

    def abandon(self) -> None:
        """Abort the transaction if there is one; best effort, else its time runs out."""
        if self._identity is None or self._identity.transactional_id is None:
            return
        try:
            abort(self._cluster, self._identity)
        except SourceUnavailable:
            return  # the broker ends it by transaction.timeout.ms, or the next attempt does

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._cluster.close()

    # Where to.

    def _layout(self, topic: str, timeout_ms: int | None = None) -> TopicLayout:
        found = self._topics.get(topic)
        if found is None:
            layout = self._cluster.layout(Subscribe((topic,)), timeout_ms)
            if topic not in layout:
                raise SinkError(no_topic(topic))
            found = layout[topic]
            if self._options.topic_id not in (None, found.topic_id):
                raise SinkError(made_again(topic))
            self._topics[topic] = found
        return found

    def _choose(self, layout: TopicLayout, partition: int | None) -> int:
        if partition is not None:
            if partition not in layout.leaders:
                raise SinkError(
                    f"the column 'partition' says {partition}, and the topic has partitions 0 to"
                    f" {len(layout.leaders) - 1}"
                )
            return partition
        self._rotation += 1
        return sorted(layout.leaders)[self._rotation % len(layout.leaders)]

    def _have_identity(self) -> Identity:
        """Taken with the first row: an attempt whose batch is committed without it is over then."""
        if self._identity is None:
            self._identity = producer_id(
                self._cluster,
                self._transactional_id,
                self._options.transaction_timeout_ms,
            )
        return self._identity

    def _take_part(self, keys: Iterable[TopicPartition]) -> None:
        """Have the partitions in the transaction."""
        identity = self._have_identity()
        fresh = sorted(key for key in keys if key not in self._sequences)
        if fresh and self._transactional_id is not None:
            try:
                add_partitions(self._cluster, identity, fresh)
            except SourceUnavailable as exc:
                error = exc.__cause__
                if isinstance(error, BrokerError) and error.code in OVER:
                    raise SinkError(f"not written: {error}{self._hint(error)}") from exc
                raise
        for key in fresh:
            self._sequences[key] = 0

    def _batch_bytes(self, topic: str) -> int:
        return min(self._options.batch_bytes, self._fitting.get(topic, self._options.batch_bytes))

    def _batch(
        self, key: TopicPartition, part: Records, begin: int, end: int, size: int, sequence: int
    ) -> Batch:
        assert self._identity is not None
        try:
            data = encode_batch(
                part.values[begin:end],
                keys=None if part.keys is None else part.keys[begin:end],
                headers=None if part.headers is None else part.headers[begin:end],
                timestamps_ms=time.time_ns() // 1_000_000,
                codec=self._codec,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                base_sequence=sequence,
                transactional=self._transactional_id is not None,
            )
        except (ValueError, TypeError) as exc:
            raise SinkError(f"topic {key[0]!r} partition {key[1]}: {exc}") from exc
        return Batch(key, data, part, begin, end, size, sequence)

    # On the way.

    def _send_held(self, keys: Iterable[TopicPartition]) -> None:
        """Send what is held of these partitions, of each a batch in turn."""
        held = {key: self._held.pop(key) for key in dict.fromkeys(keys)}
        self._held_bytes -= sum(each.bytes for each in held.values())
        if held:
            self._take_part(held.keys())
        waiting = [self._batches(key, each) for key, each in held.items()]
        while waiting:
            first_ones = [(each, next(each, None)) for each in waiting]
            waiting = [each for each, batch in first_ones if batch is not None]
            self._send_all([batch for _, batch in first_ones if batch is not None])

    def _batches(self, key: TopicPartition, held: Held) -> Iterator[Batch]:
        begin, ends = 0, list(accumulate(held.sizes))
        while begin < len(ends):
            # Looked up for each: a batch that was refused meanwhile has made them smaller.
            end, size = cut(ends, begin, self._batch_bytes(key[0]))
            sequence = self._sequences[key]
            self._sequences[key] = (sequence + end - begin) % SEQUENCE_END
            yield self._batch(key, held.part, begin, end, size, sequence)
            begin = end

    def _send_all(self, batches: list[Batch]) -> None:
        """Send batches of different partitions, in as few requests as they fit in."""
        by_leader: dict[Address, list[Batch]] = {}
        for batch in batches:
            by_leader.setdefault(self._leader(batch.key), []).append(batch)
        for leader, led in by_leader.items():
            for together in _requests(led):
                self._send(leader, together)

    def _leader(self, key: TopicPartition) -> Address:
        return self._topics[key[0]].leaders[key[1]]

    def _send(self, leader: Address, batches: list[Batch]) -> None:
        while len(self._in_flight.setdefault(leader, deque())) >= IN_FLIGHT_MAX:
            self._receive(leader)
        while (of_earlier := self._leader_of_earlier(leader, batches)) is not None:
            self._receive(of_earlier)
        if any(self._leader(batch.key) != leader for batch in batches):
            self._send_all(batches)  # some of their leaders have moved meanwhile
            return
        self._in_flight.setdefault(leader, deque()).append(batches)
        self._sent_to.update((batch.key, leader) for batch in batches)
        try:
            self._link(leader).send(self._request(batches))
        except SegbrokerError as exc:
            self._again(leader, exc)

    def _request(self, batches: Iterable[Batch]) -> ProduceRequest | ById:
        """By the ids of the topics that the first rows went to, where the broker knows ids: another
        topic of the name takes none of the others."""
        topics: dict[str, list[ProduceRequestPartition]] = {}
        for batch in batches:
            topic, partition = batch.key
            row = ProduceRequestPartition(index=partition, records=batch.data)
            topics.setdefault(topic, []).append(row)
        ids = {topic: self._topics[topic].topic_id or ZERO_UUID for topic in topics}
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._options.client.request_timeout_ms,
            topic_data=[
                ProduceRequestTopic(name=topic, topic_id=ids[topic], partition_data=rows)
                for topic, rows in topics.items()
            ],
        )
        return ById(request) if ZERO_UUID not in ids.values() else request

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """Of the topics that were written to, where the broker knows ids."""
        return {name: found.topic_id for name, found in self._topics.items() if found.topic_id}

    def _receive(self, leader: Address) -> None:
        """The oldest reply of a leader: its batches are there, or all that waits goes again."""
        waiting = self._in_flight[leader]
        try:
            reply = self._link(leader).receive(ProduceResponse)
        except SegbrokerError as exc:
            self._again(leader, exc)
            return
        refused, error = self._refused(waiting[0], reply)
        if error is None:
            waiting.popleft()
            return
        waiting[0] = refused
        self._again(leader, error)

    def _leader_of_earlier(self, leader: Address, batches: Iterable[Batch]) -> Address | None:
        """Where an earlier batch is still on its way that one of these has to wait for: the first
        of its partition, or any that a leader of before has.

        That the leader has moved is known by what a batch of another partition met.
        """
        keys = {
            batch.key
            for batch in batches
            if batch.sequence
            and (batch.key not in self._begun or self._sent_to[batch.key] != leader)
        }
        if not keys:
            return None
        for of_earlier, requests in self._in_flight.items():
            if any(batch.key in keys for batch in chain.from_iterable(requests)):
                return of_earlier
        return None

    def _refused(
        self, batches: list[Batch], reply: ProduceResponse
    ) -> tuple[list[Batch], SegbrokerError | None]:
        """Those of a request that are not there, and why the first of them is not."""
        # What was refused goes again before anything else does.
        self._begun |= {batch.key for batch in batches}
        # Of each topic one id, for as long as it is written to.
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        codes = {
            (topic.name or names.get(topic.topic_id, ""), row.index): row.error_code
            for topic in reply.responses
            for row in topic.partition_responses
        }
        refused = [batch for batch in batches if codes[batch.key] not in _TAKEN]
        if not refused:
            return [], None
        topic, partition = refused[0].key
        code = codes[topic, partition]
        return refused, broker_error(code, f"topic {topic!r} partition {partition}")

    def _again(self, leader: Address, error: SegbrokerError) -> None:
        """Send all that waits at a leader again, to where its partitions are led now."""
        deadline_ms = now_ms() + self._options.delivery_timeout_ms
        backoff = Backoff(self._random, BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
        waiting = deque(chain.from_iterable(self._in_flight.pop(leader, ())))
        first_code = getattr(error, "code", None)
        while waiting:
            is_cut = self._cut_smaller(waiting, error)
            if not is_cut and not error.retryable and first_code not in _AGAIN:
                raise SinkError(f"not written: {error}{self._hint(error)}") from error
            if now_ms() > deadline_ms:
                raise self._too_late(error) from error
            if not is_cut:
                time.sleep(backoff.next_delay_ms() / 1000)
            self._drop(leader)
            for topic in {batch.key[0] for batch in waiting}:
                before = self._topics.pop(topic)
                try:
                    now = self._layout(topic, max(0, deadline_ms - now_ms()))
                except SourceUnavailable as exc:
                    raise self._too_late(error) from exc
                if _is_another(before, now):
                    raise SinkError(made_again(topic))
            try:
                # One of each partition at a time: what was behind it may be there already.
                while waiting:
                    self._deliver(waiting)
            except SegbrokerError as exc:
                error, first_code = exc, None
                leader = self._leader(waiting[0].key)

    def _cut_smaller(self, waiting: deque[Batch], error: SegbrokerError) -> bool:
        """Cut the oldest, which was refused, if that was for its size and it has several records.

        With the same sequences, and all that waits behind it for its partition: without what
        comes before, none of that was taken.
        """
        refused = waiting[0]
        code = error.code if isinstance(error, BrokerError) else None
        if code not in _TOO_LARGE or refused.end - refused.begin < 2:
            return False
        topic = refused.key[0]
        self._fitting[topic] = min(self._batch_bytes(topic), max(1, refused.size // 2))
        batches = list(waiting)
        waiting.clear()
        for batch in batches:
            waiting.extend(self._pieces(batch) if batch.key == refused.key else [batch])
        return True

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        ends, begin = list(accumulate(sizes_of(batch.part)[: batch.end])), batch.begin
        while begin < batch.end:
            end, size = cut(ends, begin, self._batch_bytes(batch.key[0]))
            sequence = (batch.sequence + begin - batch.begin) % SEQUENCE_END
            yield self._batch(batch.key, batch.part, begin, end, size, sequence)
            begin = end

    def _hint(self, error: SegbrokerError) -> str:
        """What may be done about it, behind the error."""
        code = error.code if isinstance(error, BrokerError) else None
        if code in OVER and self._transactional_id is not None:
            return f"; {WHY_OVER}"
        return "; it is one record" if code in _TOO_LARGE else ""

    def _too_late(self, error: SegbrokerError) -> SinkError:
        limit_ms = self._options.delivery_timeout_ms
        return SinkError(
            f"not written within {limit_ms} ms (kafka.delivery.timeout.ms); last: {error}"
        )

    def _deliver(self, waiting: deque[Batch]) -> None:
        """Send the first of each partition again, on a link that nothing else is on.

        Takes out what is there then.  Raises for the first that is not, and puts that in front.
        """
        leader = self._leader(waiting[0].key)
        while self._in_flight.get(leader):
            self._receive(leader)
        first_ones: dict[TopicPartition, Batch] = {}
        for batch in waiting:
            if self._leader(batch.key) == leader:
                first_ones.setdefault(batch.key, batch)
        batches = next(_requests(first_ones.values()))
        reply = self._link(leader).ask(self._request(batches), ProduceResponse)
        refused, error = self._refused(batches, reply)
        sent = set(batches)
        rest = [batch for batch in waiting if batch not in sent]
        waiting.clear()
        waiting.extend([*refused, *rest])
        if error is not None:
            raise error

    def _link(self, leader: Address) -> Link:
        link = self._links.get(leader)
        if link is None or not link.is_open:
            link = self._links[leader] = Link(leader, self._options.client)
        return link

    def _drop(self, leader: Address) -> None:
        link = self._links.pop(leader, None)
        if link is not None:
            link.close()


def no_topic(topic: str) -> str:
    """What is said of a topic that is not there."""
    return f"topic {topic!r} does not exist, and the broker does not make it"


def made_again(topic: str) -> str:
    """What is said of a topic that is another one now."""
    return (
        f"topic {topic!r} was deleted and made again while rows were written:"
        " what was written before is gone with it"
    )


def _is_another(before: TopicLayout, now: TopicLayout) -> bool:
    """Whether it is not the topic that it was; a broker without ids tells by its partitions."""
    old, new = before.topic_id, now.topic_id
    is_known = old is not None and new is not None
    return old != new if is_known else not before.leaders.keys() <= now.leaders.keys()


def _requests(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """The batches, cut into what one request takes: REQUEST_BYTES, or one larger batch."""
    together: list[Batch] = []
    size = 0
    for batch in batches:
        if together and size + len(batch.data) > REQUEST_BYTES:
            yield together
            together, size = [], 0
        together.append(batch)
        size += len(batch.data)
    if together:
        yield together

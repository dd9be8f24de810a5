"""Records of one task on their way to the brokers: batches, sequences, a few in flight.

    records --> partitions --> batches --> links, IN_FLIGHT_MAX requests on each --> acknowledged

Each partition's batches carry consecutive sequences, so a batch that is sent again after a lost
connection or a moved leader is recognised by the broker and neither repeated nor reordered.  After
trouble on a link all that is not acknowledged there is sent again, in order.

With a transactional id all of it is one transaction, which `prepare` leaves open for the driver to
commit; otherwise records are there as soon as they are acknowledged.

A batch that is too large for its topic is cut into pieces of half its size, with the same
sequences, until they fit or one record is too large; the later ones of the topic are no larger.

Invariant: `flush` returns only when every record is acknowledged.
Limits: a record that is larger than a batch travels alone; what is in flight is in memory, at most
IN_FLIGHT_MAX batches for each leader, with the rows that they were made of.
"""

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from segbroker.client.backoff import Backoff
from segbroker.client.errors import BrokerError, SegbrokerError, broker_error
from segbroker.client.pending import partitions_for_keys, scatter
from segbroker.client.settings import Address, parse_codec
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.record_batch import encode_batch

from .cluster import BACKOFF_FIRST_MS, BACKOFF_MAX_MS, Cluster
from .errors import SinkError, SourceUnavailable
from .layouts import TopicLayout
from .link import Link, now_ms
from .offsets import TopicPartition
from .options import Subscribe
from .rows import Headers, Records
from .sink_options import SinkOptions
from .transactions import OVER, WHY_OVER, Identity, abort, add_partitions, producer_id

# A broker recognises a repeated batch among the last five of a partition.
IN_FLIGHT_MAX = 5
# What a record takes in a batch besides its key, value and headers, and a header besides its own.
RECORD_BYTES = 16
HEADER_BYTES = 6
SEQUENCE_END = 1 << 31

# A leader that moved, and a sequence that is only out of order because the one before it was not
# taken either: sent again, in order, both are put right.
_AGAIN = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
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
        """`rotation`: where records without a key begin; tasks begin at different partitions."""
        self._options = options
        self._timeout_ms = options.client.request_timeout_ms
        self._cluster = Cluster(options.client, creates_topics=True)
        self._codec = parse_codec(options.compression)
        self._topics: dict[str, TopicLayout] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._in_flight: dict[Address, deque[Batch]] = {}
        self._links: dict[Address, Link] = {}
        self._rotation = rotation
        self._transactional_id = transactional_id
        self._identity: Identity | None = None
        self._random = Random()
        # Of topics that have refused a batch as too large: what later ones may have.
        self._fitting: dict[str, int] = {}
        self.records_count = 0

    def write(self, records: Records) -> None:
        """Send records; waits while too many are in flight.  Raises SinkError."""
        layout = self._layout(records.topic)
        parts = list(_by_partition(records, len(layout.leaders)))
        chosen = [(self._choose(layout, part.partition), part) for part in parts]
        self._take_part({(records.topic, partition) for partition, _ in chosen})
        for partition, part in chosen:
            key = (records.topic, partition)
            begin, ends = 0, _ends(part)
            while begin < len(ends):
                # Looked up for each: a batch that was refused meanwhile has made them smaller.
                end, size = _cut(ends, begin, self._batch_bytes(records.topic))
                sequence = self._sequences[key]
                self._sequences[key] = (sequence + end - begin) % SEQUENCE_END
                self._send(self._batch(key, part, begin, end, size, sequence))
                begin = end
        self.records_count += len(records.values)

    def flush(self) -> None:
        """Wait until everything is acknowledged.  Raises SinkError."""
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
            abort(self._cluster, self._identity, self._timeout_ms)
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
                raise SinkError(f"topic {topic!r} does not exist, and the broker does not make it")
            found = self._topics[topic] = layout[topic]
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

    def _take_part(self, keys: set[TopicPartition]) -> None:
        """Have an identity, and the partitions in its transaction."""
        if self._identity is None:
            self._identity = producer_id(
                self._cluster,
                self._transactional_id,
                self._timeout_ms,
                self._options.transaction_timeout_ms,
            )
        fresh = sorted(keys - self._sequences.keys())
        if fresh and self._transactional_id is not None:
            add_partitions(self._cluster, self._identity, fresh, self._timeout_ms)
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

    def _leader(self, key: TopicPartition) -> Address:
        return self._topics[key[0]].leaders[key[1]]

    def _send(self, batch: Batch) -> None:
        leader = self._leader(batch.key)
        waiting = self._in_flight.setdefault(leader, deque())
        while len(waiting) >= IN_FLIGHT_MAX:
            self._receive(leader)
            leader = self._leader(batch.key)
            waiting = self._in_flight.setdefault(leader, deque())
        waiting.append(batch)
        try:
            self._link(leader).send(self._request(batch), self._timeout_ms)
        except SegbrokerError as exc:
            self._again(leader, exc)

    def _request(self, batch: Batch) -> ProduceRequest:
        topic, partition = batch.key
        row = ProduceRequestPartition(index=partition, records=batch.data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._timeout_ms,
            topic_data=[ProduceRequestTopic(name=topic, partition_data=[row])],
        )

    def _receive(self, leader: Address) -> None:
        """The oldest reply of a leader: its batch is there, or all that waits there goes again."""
        waiting = self._in_flight[leader]
        try:
            reply = self._link(leader).receive(ProduceResponse, self._timeout_ms)
            row = reply.responses[0].partition_responses[0]
            if row.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                topic, partition = waiting[0].key
                raise broker_error(row.error_code, f"topic {topic!r} partition {partition}")
        except SegbrokerError as exc:
            self._again(leader, exc)
            return
        waiting.popleft()

    def _again(self, leader: Address, error: SegbrokerError) -> None:
        """Send all that waits at a leader again, to where its partitions are led now."""
        deadline_ms = now_ms() + self._options.delivery_timeout_ms
        backoff = Backoff(self._random, BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
        waiting = self._in_flight.pop(leader, deque())
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
                self._topics.pop(topic, None)
                try:
                    self._layout(topic, max(0, deadline_ms - now_ms()))
                except SourceUnavailable as exc:
                    raise self._too_late(error) from exc
            try:
                # One at a time: what was in flight beside it may be there already.
                while waiting:
                    self._deliver(waiting[0])
                    waiting.popleft()
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
        ends, begin = _ends(batch.part)[: batch.end], batch.begin
        while begin < batch.end:
            end, size = _cut(ends, begin, self._batch_bytes(batch.key[0]))
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

    def _deliver(self, batch: Batch) -> None:
        """Send one batch again and wait for its reply, on a link that nothing else is on."""
        leader = self._leader(batch.key)
        while self._in_flight.get(leader):
            self._receive(leader)
        reply = self._link(leader).ask(self._request(batch), ProduceResponse, self._timeout_ms)
        row = reply.responses[0].partition_responses[0]
        if row.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            topic, partition = batch.key
            raise broker_error(row.error_code, f"topic {topic!r} partition {partition}")

    def _link(self, leader: Address) -> Link:
        link = self._links.get(leader)
        if link is None or not link.is_open:
            client = self._options.client
            link = Link(leader, client.client_id, client.request_timeout_ms, client.security)
            self._links[leader] = link
        return link

    def _drop(self, leader: Address) -> None:
        link = self._links.pop(leader, None)
        if link is not None:
            link.close()


def _by_partition(records: Records, count: int) -> Iterator[Records]:
    """The records by the partition that their keys say; None for those without a key."""
    if records.partition is not None or records.keys is None:
        yield records
        return
    partitions = partitions_for_keys(records.keys, count)
    values = scatter(records.values, partitions, count)
    keys = scatter(records.keys, partitions, count)
    headers: list[list[Headers | None]] | None = None
    if records.headers is not None:
        headers = [[] for _ in range(count + 1)]
        for header, partition in zip(records.headers, partitions, strict=True):
            headers[partition].append(header)
    for n, part in enumerate(values):
        if part:
            yield Records(
                records.topic,
                n if n < count else None,
                part,
                keys[n],
                None if headers is None else headers[n],
            )


def _size(headers: Headers | None) -> int:
    """Bytes of a record's headers, at most; a name takes up to 4 a character."""
    return sum(HEADER_BYTES + 4 * len(name) + len(value or b"") for name, value in headers or ())


def _ends(part: Records) -> list[int]:
    """Behind each record, the bytes of all up to there in a batch, at most."""
    sizes = [RECORD_BYTES + len(value or b"") for value in part.values]
    if part.keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, part.keys, strict=True)]
    if part.headers is not None:
        sizes = [size + _size(row) for size, row in zip(sizes, part.headers, strict=True)]
    return list(accumulate(sizes))


def _cut(ends: list[int], begin: int, bytes_max: int) -> tuple[int, int]:
    """Where a batch from `begin` on ends, and its bytes: at most so many, or one larger record."""
    before = ends[begin - 1] if begin else 0
    end = max(begin + 1, bisect_right(ends, before + bytes_max, begin))
    return end, ends[end - 1] - before

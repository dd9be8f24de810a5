"""The batches of one range, fetched by an executor: one fetch ahead, over a connection that stays.

    send fetch(start)
      receive reply --> walk the batch headers --> send the next fetch --> decode, hand out --> ...

The next offset stands in the last header of a reply, so the next fetch is on its way before the
first record of this one is decoded: the broker reads and the network carries while Spark works.

With `readSegmentsFrom` the sealed segments of the range are read first, from their files (see
segment_files); the broker has the rest, and all that the files cannot prove.

A fetch asks for about what the rest of the range needs, at most `fetch_bytes`: a micro-batch
of a hundred records must not bring megabytes that it throws away.

The worker process keeps idle connections for its next task (LINKS).  A link with a reply still on
its way (a query that stopped at a LIMIT) is closed instead.

A lost connection, a moved leader or a slow broker is tried again until nothing has come for
`kafkaConsumer.pollTimeoutMs`.  What the log does not hold any more is data loss (see loss), and so
is the rest of the range when the topic is deleted.

The topic is asked for by the id that it had when the task was planned, where the broker knows ids:
of a topic that was deleted and made again meanwhile not one record is taken for one of the old.

A gap in the log (a control batch that says what was lost) is data loss too, unless it says that
records were deleted on purpose.

Invariant: yields each batch that holds records of the range once, in order; control batches and,
with read_committed, the batches of aborted transactions only move the position.
"""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from random import Random
from uuid import UUID

from segbroker.client.backoff import Backoff
from segbroker.client.errors import SegbrokerError, check_code
from segbroker.client.security import Security
from segbroker.client.settings import Address
from segbroker.client.spoken import ById
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from segbroker.protocol.record_batch import (
    BatchHeader,
    GapReason,
    InvalidBatch,
    RecordBatch,
    decode_batch,
    gap_reason,
    iter_batches,
    read_header,
)
from segbroker.protocol.schema import records_view

from .cluster import BACKOFF_FIRST_MS, BACKOFF_MAX_MS, Cluster
from .connecting import ClientOptions
from .errors import SourceError, SourceUnavailable
from .link import Link, now_ms
from .loss import GONE, RECREATED, WHY, Lost, clip, in_log, report
from .offsets import OffsetRange
from .options import Assign, SourceOptions
from .segment_files import SegmentFiles, Unreadable
from .segment_transactions import Decided, decide, has_transactions

log = logging.getLogger("segbroker.spark")

FETCH_WAIT_MS = 500
FETCH_BYTES_MIN = 16 << 10
# Bytes per offset before the first reply says better.
RECORD_BYTES_GUESS = 1 << 10
# A new leader may know its high watermark late: how long an end below the range is doubted.
SHORT_LOG_GRACE_MS = 3_000
# A broker that has just started may not know all topics: how long it is doubted that one is gone.
GONE_GRACE_MS = 5_000
# Why a fetch of one partition is answered without any.
THROTTLED = "the client has a quota, and the broker throttles it"
# Idle connections that a worker keeps.
LINKS_COUNT_MAX = 16

# Idle links of this worker process.  Workers are forked before they run any of this, so the dict
# is empty in each of them at the start.
LINKS: dict[tuple[Address, str, Security | None], Link] = {}


@dataclass(frozen=True, slots=True)
class Task:
    """What one Spark task reads: a range, and who led the partition when it was planned.

    `lost` is what the driver found gone and passed over, where the query wants to see it.
    `topic_id`: of the topic that was planned; None where the broker has none.
    """

    range: OffsetRange
    leader: Address
    lost: tuple[Lost, ...] = ()
    topic_id: UUID | None = None


class RangeFetcher:
    """See the module."""

    def __init__(self, options: SourceOptions, task: Task) -> None:
        self._options = options
        self._lost = list(task.lost)
        self._range = task.range
        self._leader = task.leader
        self._topic_id = task.topic_id
        self._about = f"topic {task.range.topic!r} partition {task.range.partition}"
        self._position = task.range.start
        self._cluster = Cluster(options.client)
        self._link: Link | None = None
        self._backoff = Backoff(Random(), BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
        self._record_bytes = float(RECORD_BYTES_GUESS)
        self._progress_ms = now_ms()
        self._short_since_ms: int | None = None
        self._gone_since_ms: int | None = None

    def batches(self) -> Iterator[RecordBatch]:
        """Decoded batches that hold records of the range; the first and last may hold others too.

        Raises DataLoss, SourceUnavailable, SourceError.
        """
        with closing(self.batches_and_losses()) as found:
            for item in found:
                if isinstance(item, RecordBatch):
                    yield item

    def batches_and_losses(self) -> Generator[RecordBatch | Lost]:
        """The same, and what is found lost on the way, where it would stand.

        The batch behind a loss may hold records of it, too, which are not to be handed out.
        """
        try:
            yield from self._losses()
            if self._options.segments_folder is not None:
                yield from self._from_files(self._options.segments_folder)
                self._progress_ms = now_ms()
            while self._position < self._range.end:
                row = self._next_reply()
                yield from self._losses()
                if row is None:
                    continue
                before = self._position
                views = self._walk(row)
                if self._position == before:
                    self._wait_for_more(row)
                    continue
                self._fetch_ahead()
                for view in views:
                    yield view if isinstance(view, Lost) else self._decode(view)
                # Spark may have let us wait: only from here on is the broker slow.
                self._progress_ms = now_ms()
        finally:
            self._release()
            self._cluster.close()

    # Sealed segments, where they can be reached.

    def _from_files(self, folder: str) -> Iterator[RecordBatch | Lost]:
        """What the files have; the position is then where the broker is asked to go on."""
        asked = self._range
        files = SegmentFiles(folder, asked.topic, asked.partition, self._topic_id)
        decided: Decided | None = None
        aborted_producers: set[int] = set()
        try:
            for run in files.runs(asked):
                if self._options.read_committed and decided is None and has_transactions(run):
                    decided = decide(files, replace(asked, start=self._position))
                whole = run if decided is None else decided.cut(run)
                aborted = [] if decided is None else decided.aborted
                for view in self._walk_batches(whole, aborted, aborted_producers):
                    yield view if isinstance(view, Lost) else self._decode(view)
                if self._position >= asked.end or len(whole) < len(run):
                    return
        except Unreadable as exc:
            log.info("%s from offset %d on from the broker: %s", self._about, self._position, exc)

    # One reply.

    def _next_reply(self) -> FetchResponsePartition | None:
        """The reply to the fetch at the position; None: something was put right, try again."""
        try:
            if self._link is None:
                self._link = _take_link(self._leader, self._options.client)
                self._fetch()
            reply = self._link.receive(FetchResponse, FETCH_WAIT_MS)
            check_code(reply.error_code, self._about)
            if not reply.responses:
                # So Apache Kafka answers a client in debt; it reads on when that is paid off.
                self._pause(THROTTLED)
                self._fetch_ahead()
                return None
            row = reply.responses[0].partitions[0]
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._skip_what_is_lost()
                return None
            check_code(row.error_code, self._about)
            return row
        except SegbrokerError as exc:
            self._recover(exc)
            return None

    def _losses(self) -> Iterator[Lost]:
        """What was found lost since the last call."""
        lost, self._lost = self._lost, []
        yield from lost

    def _walk(self, row: FetchResponsePartition) -> list[memoryview | Lost]:
        """The whole batches of the reply that hold records to hand out; moves the position."""
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in row.aborted_transactions or ()
        )
        return self._walk_batches(records_view(row.records), aborted, set())

    def _walk_batches(
        self,
        records: memoryview,
        aborted: list[tuple[int, int]],
        aborted_producers: set[int],
    ) -> list[memoryview | Lost]:
        """As `_walk`; the two lists say which transactions begin, and are under way, as aborted."""
        views: list[memoryview | Lost] = []
        first, size = self._position, 0
        try:
            for view in iter_batches(records):
                header = read_header(view)
                if header.next_offset <= self._position:
                    continue
                if header.base_offset >= self._range.end:
                    self._position = self._range.end
                    break
                while aborted and aborted[0][0] <= header.last_offset:
                    aborted_producers.add(aborted.pop(0)[1])
                if not _is_skipped(header, aborted_producers):
                    views.append(view)
                elif (reason := gap_reason(header)) is not None:
                    views += self._gap(header, reason)
                self._position = header.next_offset
                size += len(view)
        except InvalidBatch as exc:
            raise SourceError(f"{self._about} at offset {self._position}: {exc}") from exc
        if self._position > first:
            self._record_bytes = max(1.0, size / (self._position - first))
            self._progress_ms = now_ms()
            self._short_since_ms = None
            self._backoff.reset()
        return views

    def _gap(self, header: BatchHeader, reason: GapReason) -> list[Lost]:
        """A gap in the log: the end of a strict query, a row for who wants it, else skipped."""
        lost = in_log(self._range, header.base_offset, header.next_offset, reason.name.lower())
        if reason is not GapReason.DELETED:
            report([lost], fail=self._options.fail_on_data_loss)
        return [lost] if self._options.include_gaps else []

    def _decode(self, view: memoryview) -> RecordBatch:
        try:
            return decode_batch(view)
        except InvalidBatch as exc:
            offset = read_header(view).base_offset
            raise SourceError(f"{self._about}, batch at offset {offset}: {exc}") from exc

    # Requests.

    def _fetch(self) -> None:
        assert self._link is not None
        left = self._range.end - self._position
        # An eighth more than the average, and room for the batch that the position is inside of.
        wanted = int(left * self._record_bytes * 1.125) + FETCH_BYTES_MIN
        partition = FetchRequestPartition(
            partition=self._range.partition,
            fetch_offset=self._position,
            partition_max_bytes=min(wanted, self._options.fetch_bytes),
        )
        topic_id = self._topic_id or ZERO_UUID
        topic = FetchRequestTopic(
            topic=self._range.topic, topic_id=topic_id, partitions=[partition]
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=self._options.fetch_bytes,
            isolation_level=int(self._options.read_committed),
            topics=[topic],
        )
        self._link.send(request if self._topic_id is None else ById(request))

    def _fetch_ahead(self) -> None:
        """Send the next fetch, unless all is read; what goes wrong is met, and put right, when its
        reply is wanted."""
        if self._position >= self._range.end:
            return
        try:
            self._fetch()
        except SegbrokerError:
            self._drop_link()

    # Trouble.

    def _wait_for_more(self, row: FetchResponsePartition) -> None:
        """Nothing came: the log may end below the range, for a moment or for good."""
        why = "the broker sends nothing"
        if row.high_watermark < self._range.end:
            since = self._short_since_ms = self._short_since_ms or now_ms()
            if now_ms() - since > SHORT_LOG_GRACE_MS:
                self._skip_what_is_lost()
                return
        elif self._options.read_committed and row.last_stable_offset < self._range.end:
            why = "a transaction is open"
        self._pause(why)
        self._fetch_ahead()

    def _skip_what_is_lost(self) -> None:
        """Fail, or move on to what is left of the range, and fetch that."""
        asked = OffsetRange(
            self._range.topic, self._range.partition, self._position, self._range.end
        )
        left, lost = clip(asked, self._cluster.bounds_now(asked.topic, asked.partition))
        report(lost, fail=self._options.fail_on_data_loss)
        self._lost += lost
        if not lost:
            self._pause("out of range, and then not")
        self._range = OffsetRange(asked.topic, asked.partition, left.start, left.end)
        self._position = left.start
        self._short_since_ms = None
        self._fetch_ahead()

    def _recover(self, error: SegbrokerError) -> None:
        """After an error that may pass: pause, and find the leader again."""
        if not error.retryable:
            raise SourceUnavailable(f"{self._about}: {error}") from error
        self._drop_link()
        self._pause(str(error), error)
        topic, partition = self._range.topic, self._range.partition
        try:
            # One try: the pauses between the tries, and their end, are this task's.
            layout = self._cluster.layout(Assign({topic: (partition,)}), timeout_ms=0)
        except SourceUnavailable as exc:
            if isinstance(exc.__cause__, SegbrokerError) and exc.__cause__.retryable:
                return
            raise
        found = layout.get(topic)
        topic_id = None if found is None else found.topic_id
        if None not in (topic_id, self._topic_id) and topic_id != self._topic_id:
            self._lose_the_rest(RECREATED)
            return
        if found is not None and partition in found.leaders:
            self._leader = found.leaders[partition]
            self._gone_since_ms = None
            return
        self._gone_since_ms = self._gone_since_ms or now_ms()
        if now_ms() - self._gone_since_ms > GONE_GRACE_MS:
            self._lose_the_rest(GONE)

    def _lose_the_rest(self, word: str) -> None:
        """The topic is not there or another one now: no offset of the range means a record."""
        start, end = self._position, self._range.end
        where = self._range.topic, self._range.partition
        lost = Lost(*where, start, end, WHY[word], word)
        report([lost], fail=self._options.fail_on_data_loss)
        self._lost.append(lost)
        self._position = end

    def _pause(self, why: str, cause: Exception | None = None) -> None:
        delay_ms = self._backoff.next_delay_ms()
        limit_ms = self._options.poll_timeout_ms
        if now_ms() + delay_ms - self._progress_ms > limit_ms:
            raise SourceUnavailable(
                f"{self._about} at offset {self._position}: no progress within {limit_ms} ms"
                f" (kafkaConsumer.pollTimeoutMs); last: {why}"
            ) from cause
        time.sleep(delay_ms / 1000)

    # The link.

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _release(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            _give_back(link, self._options.client)


def _is_skipped(header: BatchHeader, aborted_producers: set[int]) -> bool:
    if header.is_transactional and header.producer_id in aborted_producers:
        # The marker that ends the aborted transaction is a control batch of the same producer.
        if header.is_control:
            aborted_producers.discard(header.producer_id)
        return True
    return header.is_control or not header.records_count


def _take_link(address: Address, client: ClientOptions) -> Link:
    link = LINKS.pop((address, client.client_id, client.security), None)
    if link is not None:
        if link.is_idle:
            return link
        link.close()  # the broker has hung up
    return Link(address, client)


def _give_back(link: Link, client: ClientOptions) -> None:
    key = (link.address, client.client_id, client.security)
    if not link.is_idle or key in LINKS:
        link.close()
        return
    while len(LINKS) >= LINKS_COUNT_MAX:
        LINKS.pop(next(iter(LINKS))).close()
    LINKS[key] = link

"""Fetch: whole batches from an offset on, now or when there are enough.

    arrive   look: an error, or min_bytes to read, or no wait wanted?   -> done
             else enter the partitions' waiting lists, then look again, then wait
    wake     a partition's high watermark moved: look again             -> done
    expire   max_wait is over                                           -> done
    render   (done, and first in its connection's line) plan, read, answer
                plan    which bytes, on the loop, no I/O; pins the segments
                read    from the page cache into a pooled buffer; what is not cached goes to a
                        lane and the loop goes on; the reply leaves when the lane returns

Nothing is read before the reply is about to leave, so a deep pipeline costs one buffer per
connection.  A buffer that waits for a slow reader is given up when another fetch needs it: its
plan is kept, and read again when the reader goes on.  Above half of the budget replies are
smaller; at it, with nobody stuck, a fetch waits in line.  A reply holds the first batch always,
even above max_bytes; further partitions only as far as they fit.  No fetch sessions: session_id
is always 0.

Invariant: a waiting slot stands in the waiting list of each partition it asks for, or in none.
"""

from collections.abc import Awaitable, Iterator
from typing import Final

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader, encode_response
from segbroker.protocol.hot import encode_single_fetch_response
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from segbroker.segments.errors import OffsetOutOfRange, SegmentReplaced
from segbroker.segments.handler import ReadPlan
from segbroker.segments.transaction_index import AbortedRanges

from . import topic_ids
from .authorizer import READ, TOPIC
from .core import Core
from .error_map import STORAGE_FAILURES, wire_error
from .isolation import READ_COMMITTED, aborted_in, visible_end
from .pace import Pace
from .partition import Partition
from .peer import Peer
from .pool import Lease
from .replies import Buffer

log = structlog.get_logger()

# More partitions than this are planned with others in between, and encoded in a lane.
TARGETS_ON_LOOP_MAX: Final = 1_000
# Most partitions of one fetch; beyond it the connection is closed.
PARTITIONS_MAX: Final = 20_000
# A batch header: nothing is planned for less, and the first batch comes anyway.
_READ_LEAST: Final = 64


class TooManyPartitions(Exception):
    """More partitions in one fetch than one reply should hold; the connection is closed."""


class _Target:
    """One partition of a request."""

    __slots__ = ("asked", "code", "isolation", "partition", "topic")

    def __init__(
        self,
        topic: FetchRequestTopic,
        asked: FetchRequestPartition,
        partition: Partition | None,
        code: ErrorCode,
        isolation: int,
    ) -> None:
        self.topic = topic
        self.asked = asked
        self.partition = partition
        self.code = code
        self.isolation = isolation

    def look(self) -> bool:
        """Whether this partition has something to say: an error, or records."""
        if self.code or self.partition is None:
            return True
        handler = self.partition.handler
        offset = self.asked.fetch_offset
        return offset < visible_end(handler, self.isolation) or not (
            handler.log_start_offset <= offset <= handler.log_end_offset
        )


class _Read:
    """Planned bytes of one partition of a reply."""

    __slots__ = ("aborted", "fetch_offset", "plan", "row", "start", "stop")

    def __init__(
        self,
        plan: ReadPlan,
        row: FetchResponsePartition,
        start: int,
        fetch_offset: int,
        aborted: AbortedRanges | None,
    ) -> None:
        """aborted: ranges for a reader of committed records; None for another."""
        self.fetch_offset = fetch_offset
        self.aborted = aborted
        self.plan = plan
        self.row = row
        self.start = start
        self.stop = start + plan.size_max


class _Kept:
    """Bytes of a reply that stand in the log: where to read them again."""

    __slots__ = ("count", "plan", "start", "stop", "view")

    def __init__(self, plan: ReadPlan, start: int, stop: int, view: memoryview) -> None:
        self.plan = plan
        self.start = start
        self.stop = stop
        self.view = view
        self.count = len(view)

    def again(self, buffer: memoryview, count: int | None) -> bool:
        """Use what was read again into `buffer`; False when that are fewer bytes than before."""
        if count is None or count < self.count:
            return False
        self.view = buffer[: self.count]
        return True


class RereadFailed(Exception):
    """A reply that was half sent cannot be read again: its connection is closed."""


class FetchSlot:
    """The reply of one fetch request."""

    __slots__ = (
        "_abandoned",
        "_by_partition",
        "_core",
        "_forgotten",
        "_header",
        "_kept",
        "_lease",
        "_parts",
        "_peer",
        "_pending",
        "_request",
        "_targets",
        "_timed",
        "done",
    )

    restores: Final = True

    def __init__(
        self,
        core: Core,
        peer: Peer,
        header: RequestHeader,
        request: FetchRequest,
        targets: list[_Target],
    ) -> None:
        self.done = False
        self._core = core
        self._peer = peer
        self._header = header
        self._request = request
        self._targets = targets
        self._timed = False
        self._by_partition: dict[Partition | None, _Target] | None = None
        self._lease: Lease | None = None
        # The reply, once rendered; what of it was read from the log; without that, once forgotten.
        self._parts: list[Buffer] | None = None
        self._kept: list[_Kept] = []
        self._forgotten: list[Buffer | _Kept] | None = None
        self._pending = False  # waits for a buffer or for a lane
        self._abandoned = False

    def begin(self) -> None:
        """Answer at once, or wait for records."""
        wait_ms = min(self._request.max_wait_ms, self._core.config.long_poll_max_ms)
        if wait_ms <= 0 or self._is_ready():
            self._finish()
            return
        for target in self._targets:
            assert target.partition is not None, "a missing partition is ready at once"
            target.partition.fetches[self] = None
        self._timed = True
        self._core.deadlines.add(trio.current_time() + wait_ms / 1000, self)
        # The last check comes after the registration, so no wake-up can fall between.
        if self._is_ready():
            self._finish()

    def wake(self, partition: Partition) -> None:
        if self.done:
            return
        if self._request.min_bytes <= 1:
            # Enough is one record in this partition: the others need not be asked again.
            if self._by_partition is None:
                self._by_partition = {target.partition: target for target in self._targets}
            if not self._by_partition[partition].look():
                return
        elif not self._is_ready():
            return
        self._finish()

    def complete(self) -> None:
        if not self.done:
            self._finish()

    def expire(self) -> None:
        self._finish()

    def abandon(self) -> None:
        self._abandoned = True
        if not self.done:
            self._finish()
        if not self._pending:
            self._release()

    def sent(self) -> None:
        self._release()

    def stuck(self) -> None:
        if self._lease is not None:
            self._lease.stuck(self._give_back)

    def render(self) -> list[Buffer] | None:
        if self._parts is None and not self._pending:
            self._parts = self._render() if self._forgotten is None else self._render_again()
        return self._parts

    def _render(self) -> list[Buffer] | None:
        if len(self._targets) > TARGETS_ON_LOOP_MAX:
            self._pending = True
            self._core.spawn(self._render_paced)
            return None
        if (parts := self._render_single()) is not None:
            return parts
        response = FetchResponse(responses=[])
        reads: list[_Read] = []
        for _ in self._plan(response, reads):
            pass
        if not reads:
            return self._encode(response)
        size = reads[-1].stop
        lease = self._core.pool.lease(size)
        if lease is None:
            for read in reads:
                read.plan.release()
            self._pending = True
            self._core.pool.wait(size, self._buffer_free)
            return None
        self._lease = lease
        unread = [read for read in reads if not self._read_nowait(read, lease)]
        if unread:
            self._pending = True
            self._core.counters.lane_reads += 1
            self._core.spawn(lambda: self._read_in_lane(response, unread, lease))
            return None
        return self._encode(response)

    def _is_ready(self) -> bool:
        """Whether there is an error or enough to read."""
        least = self._request.min_bytes
        looks = [target for target in self._targets if target.look()]
        if not looks:
            return not self._targets
        if least <= 1 or any(target.code for target in looks):
            return True
        available = 0
        for target in looks:
            size = self._available(target)
            if size is None:
                return True
            available += size
        return available >= min(least, self._bytes_max())

    def _available(self, target: _Target) -> int | None:
        """Bytes to read from a partition; None for an error."""
        assert target.partition is not None, "a missing partition has an error code"
        try:
            handler = target.partition.handler
            plan = handler.plan_read(
                target.asked.fetch_offset,
                self._partition_bytes_max(target),
                up_to=visible_end(handler, target.isolation),
            )
        except STORAGE_FAILURES:
            return None
        if plan is None:
            return 0
        size = plan.size_max
        plan.release()
        return size

    def _bytes_max(self) -> int:
        config = self._core.config
        return max(_READ_LEAST, min(self._request.max_bytes, config.fetch_bytes_max))

    def _partition_bytes_max(self, target: _Target) -> int:
        return max(_READ_LEAST, min(target.asked.partition_max_bytes, self._bytes_max()))

    def _finish(self) -> None:
        self.done = True
        for target in self._targets:
            if target.partition is not None:
                target.partition.fetches.pop(self, None)
        if self._timed:
            self._core.deadlines.forget()
        self._core.turn.flush(self._peer.flush)

    # Rendering

    def _render_single(self) -> list[Buffer] | None:
        """The usual reply by the hand-made way: records of one partition, all in the page cache.

        None when it is another one; nothing has happened then.
        """
        if len(self._targets) != 1 or self._request.isolation_level == READ_COMMITTED:
            return None
        (target,) = self._targets
        partition = target.partition
        if target.code or partition is None:
            return None
        topics, pool = self._core.topics, self._core.pool
        if topics.served_partition(partition.topic, partition.index) is not partition:
            return None
        handler = partition.handler
        try:
            plan = handler.plan_read(
                target.asked.fetch_offset,
                min(self._partition_bytes_max(target), pool.allowance),
            )
        except STORAGE_FAILURES:
            return None
        view: memoryview | None = None
        if plan is not None:
            lease: Lease | None = None
            read: int | None = None
            try:
                lease = pool.lease(plan.size_max)
                if lease is not None:
                    read = plan.read_nowait(lease.buffer[: plan.size_max])
            except STORAGE_FAILURES:
                read = None
            if lease is None or read is None:
                plan.release()
                if lease is not None:
                    lease.release()
                return None
            view = lease.buffer[:read]
            self._lease = lease
            self._kept.append(_Kept(plan, 0, plan.size_max, view))
        header = self._header
        high_watermark = handler.high_watermark
        self._core.counters.fetched_bytes += 0 if view is None else len(view)
        return encode_single_fetch_response(
            header.api_version,
            header.correlation_id,
            target.topic.topic,
            target.asked.partition,
            topic_id=target.topic.topic_id,
            high_watermark=high_watermark,
            last_stable_offset=min(high_watermark, handler.last_stable_offset),
            log_start_offset=handler.log_start_offset,
            records=() if view is None else (view,),
        )

    async def _render_paced(self) -> None:
        """As `render`, for thousands of partitions: others get their turn between."""
        reads: list[_Read] = []
        try:
            pace = Pace()
            response = FetchResponse(responses=[])
            for _ in self._plan(response, reads):
                await pace.step()
            if reads:
                lease = self._core.pool.lease(reads[-1].stop)
                if lease is None:
                    # Planned again when there is room: what there is to read may have changed.
                    if not self._abandoned:
                        self._core.pool.wait(reads[-1].stop, self._buffer_free)
                    return
                self._lease = lease
                for read in reads:
                    await self._read_lane(read, lease)
            parts = await self._core.lanes.run(self._encode, response)
        except Exception:
            log.exception("lane_read_failed")
            self._peer.outbox.break_off()
            self._pending = False
            return
        finally:
            self._let_go(reads)
            if self._abandoned:
                self._release()
        self._pending = False
        if not self._abandoned:
            self._parts = parts
            self._peer.outbox.flush()

    def _plan(self, response: FetchResponse, reads: list[_Read]) -> Iterator[None]:
        """Fill in the reply without its records, and what is to be read into it.

        Yields after each partition, where a caller may let others run.
        """
        room = min(self._bytes_max(), self._core.pool.allowance)
        position = 0
        asked: FetchRequestTopic | None = None
        for target in self._targets:
            if target.topic is not asked:
                asked = target.topic
                topic = FetchResponseTopic(
                    topic=asked.topic, topic_id=asked.topic_id, partitions=[]
                )
                response.responses.append(topic)
            row = self._row(target)
            topic.partitions.append(row)
            yield
            if row.error_code or position >= room or target.partition is None:
                continue
            size = min(self._partition_bytes_max(target), room - position)
            aborted: AbortedRanges | None = None
            if target.isolation == READ_COMMITTED:
                aborted = target.partition.handler.transactions.ranges()
            plan = self._plan_partition(target.partition, target, row, size)
            if plan is None:
                continue
            if position and plan.size_max > room - position:
                plan.release()  # it begins the next reply; only the first may pass the limit
                continue
            reads.append(_Read(plan, row, position, target.asked.fetch_offset, aborted))
            position += plan.size_max

    def _row(self, target: _Target) -> FetchResponsePartition:
        committed = self._request.isolation_level == READ_COMMITTED
        row = FetchResponsePartition(
            partition_index=target.asked.partition,
            error_code=target.code,
            high_watermark=-1,
            aborted_transactions=[] if committed else None,
            records=b"",
        )
        partition = target.partition
        if partition is None:
            return row
        if self._core.topics.served_partition(partition.topic, partition.index) is not partition:
            # Deleted while this request waited.
            row.error_code = topic_ids.unknown_code(self._header.api_version, topic_ids.FETCH_SINCE)
            return row
        handler = partition.handler
        row.high_watermark = handler.high_watermark
        row.last_stable_offset = handler.last_stable_offset
        row.log_start_offset = handler.log_start_offset
        return row

    def _plan_partition(
        self,
        partition: Partition,
        target: _Target,
        row: FetchResponsePartition,
        size: int,
    ) -> ReadPlan | None:
        handler = partition.handler
        up_to = visible_end(handler, target.isolation)
        try:
            return handler.plan_read(target.asked.fetch_offset, size, up_to=up_to)
        except OffsetOutOfRange:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        except STORAGE_FAILURES as exc:
            self._storage_failed(partition, row, exc)
        return None

    def _read_nowait(self, read: _Read, lease: Lease) -> bool:
        """Read from the page cache; False when that would block."""
        buffer = lease.buffer[read.start : read.stop]
        try:
            count = read.plan.read_nowait(buffer)
        except STORAGE_FAILURES as exc:
            self._read_failed(read, exc)
            count = 0
        if count is None:
            return False
        self._was_read(read, buffer[:count])
        return True

    async def _read_in_lane(
        self, response: FetchResponse, unread: list[_Read], lease: Lease
    ) -> None:
        """Read what was not in the page cache; then the reply is ready."""
        try:
            for read in unread:
                await self._read_lane(read, lease)
            self._parts = self._encode(response)
        except Exception:
            log.exception("lane_read_failed")
            self._peer.outbox.break_off()
        finally:
            self._let_go(unread)
            self._pending = False
            if self._abandoned:
                self._release()
        if not self._abandoned:
            self._peer.outbox.flush()

    async def _read_lane(self, read: _Read, lease: Lease) -> None:
        buffer = lease.buffer[read.start : read.stop]
        try:
            count = await self._core.lanes.run(read.plan.read, buffer)
        except STORAGE_FAILURES as exc:
            self._read_failed(read, exc)
            count = 0
        self._was_read(read, buffer[:count])

    def _was_read(self, read: _Read, view: memoryview) -> None:
        read.row.records = view
        if not len(view):
            read.plan.release()
            return
        if read.aborted is not None:
            read.row.aborted_transactions = aborted_in(read.aborted, read.fetch_offset, view)
        self._kept.append(_Kept(read.plan, read.start, read.stop, view))
        self._core.counters.fetched_bytes += len(view)

    def _let_go(self, reads: list[_Read]) -> None:
        """Release the plans of which nothing was kept."""
        kept = {kept.plan for kept in self._kept}
        for read in reads:
            if read.plan not in kept:
                read.plan.release()

    # The reader is slow, and somebody needs the buffer

    def _give_back(self) -> None:
        assert self._parts is not None
        kept = {id(kept.view): kept for kept in self._kept}
        self._forgotten = [kept.get(id(part), part) for part in self._parts]
        self._peer.outbox.forget()
        self._parts = None
        lease, self._lease = self._lease, None
        for one in self._kept:
            one.view = memoryview(b"")
        if lease is not None:
            lease.release()

    def _render_again(self) -> list[Buffer] | None:
        """The same bytes as before, read again; None when that takes a buffer or a lane."""
        stop = max(kept.stop for kept in self._kept)
        lease = self._core.pool.lease(stop)
        if lease is None:
            self._pending = True
            self._core.pool.wait(stop, self._buffer_free)
            return None
        self._lease = lease
        unread = []
        for kept in self._kept:
            buffer = lease.buffer[kept.start : kept.stop]
            try:
                is_read = kept.again(buffer, kept.plan.read_nowait(buffer))
            except STORAGE_FAILURES:
                is_read = False
            if not is_read:
                unread.append(kept)
        if unread:
            self._pending = True
            self._core.counters.lane_reads += 1
            self._core.spawn(lambda: self._read_again_in_lane(unread, lease))
            return None
        return self._restored_parts()

    async def _read_again_in_lane(self, unread: list[_Kept], lease: Lease) -> None:
        try:
            for kept in unread:
                buffer = lease.buffer[kept.start : kept.stop]
                if not kept.again(buffer, await self._core.lanes.run(kept.plan.read, buffer)):
                    raise RereadFailed("fewer bytes than before")
            self._parts = self._restored_parts()
        except (RereadFailed, *STORAGE_FAILURES) as exc:
            # Half of the reply is sent: there is no honest way to end it.
            log.error("reply_not_read_again", error=str(exc))
            self._peer.outbox.break_off()
        finally:
            self._pending = False
            if self._abandoned:
                self._release()
        if not self._abandoned:
            self._peer.outbox.flush()

    def _restored_parts(self) -> list[Buffer]:
        assert self._forgotten is not None
        parts = [part.view if isinstance(part, _Kept) else part for part in self._forgotten]
        self._forgotten = None
        return parts

    def _read_failed(self, read: _Read, exc: Exception) -> None:
        if isinstance(exc, SegmentReplaced):
            return  # no records and no error: the client asks again and gets what is there now
        code, _ = wire_error(exc)
        read.row.error_code = code
        log.error("read_failed", partition=read.row.partition_index, error=str(exc))

    def _storage_failed(
        self, partition: Partition, row: FetchResponsePartition, exc: Exception
    ) -> None:
        row.error_code, _ = wire_error(exc)
        log.error("read_failed", topic=partition.topic, partition=partition.index, error=str(exc))

    def _encode(self, response: FetchResponse) -> list[Buffer]:
        header = self._header
        parts = encode_response(response, header.api_key, header.api_version, header.correlation_id)
        return parts

    def _buffer_free(self) -> None:
        self._pending = False
        if self._abandoned:
            self._release()
        else:
            self._peer.outbox.flush()

    def _release(self) -> None:
        self._parts = None
        for kept in self._kept:
            kept.plan.release()
        self._kept.clear()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()


def fetch(
    core: Core, peer: Peer, header: RequestHeader, request: FetchRequest
) -> Awaitable[None] | None:
    """Begin a fetch. Returns something to await when a partition must be opened first."""
    if header.api_version >= topic_ids.FETCH_SINCE:
        for topic in request.topics:
            topic.topic = topic_ids.name_of(core.topics, topic.topic_id)
    served = core.topics.served
    closed = [
        (topic.topic, partition.partition)
        for topic in request.topics
        for partition in topic.partitions
        if (topic.topic, partition.partition) not in served
        and core.topics.exists(topic.topic, partition.partition)
    ]
    if closed:
        return _open_and_fetch(core, peer, header, request, closed)
    _begin(core, peer, header, request, {})
    return None


async def fetch_large(core: Core, peer: Peer, header: RequestHeader, request: FetchRequest) -> None:
    """As `fetch`, for a request of many partitions: others get their turn between.

    Raises:
        TooManyPartitions: more than one reply should hold.
    """
    count = sum(len(topic.partitions) for topic in request.topics)
    if count > PARTITIONS_MAX:
        raise TooManyPartitions(f"a fetch of {count} partitions, limit {PARTITIONS_MAX}")
    pace = Pace()
    closed = []
    for topic in request.topics:
        if header.api_version >= topic_ids.FETCH_SINCE:
            topic.topic = topic_ids.name_of(core.topics, topic.topic_id)
            await pace.step()
        for one in topic.partitions:
            if core.topics.served_partition(topic.topic, one.partition) is None:
                closed.append((topic.topic, one.partition))
            await pace.step()
    await _open_and_fetch(core, peer, header, request, closed)


async def _open_and_fetch(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    request: FetchRequest,
    closed: list[tuple[str, int]],
) -> None:
    failed: dict[tuple[str, int], ErrorCode] = {}
    pace = Pace()
    for name, index in closed:
        await pace.step()
        try:
            await core.topics.open(name, index)
        except STORAGE_FAILURES as exc:
            failed[name, index], _ = wire_error(exc)
            log.error("partition_not_opened", topic=name, partition=index, error=str(exc))
    _begin(core, peer, header, request, failed)


def _begin(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    request: FetchRequest,
    failed: dict[tuple[str, int], ErrorCode],
) -> None:
    core.counters.fetch_requests += 1
    targets = [
        _target(core, header, topic, asked, failed, request.isolation_level, may_read=may_read)
        for topic in request.topics
        for may_read in (
            core.authorizer is None
            or topic.topic == topic_ids.UNKNOWN
            or core.authorizer.allows(peer, READ, TOPIC, topic.topic),
        )
        for asked in topic.partitions
    ]
    slot = FetchSlot(core, peer, header, request, targets)
    peer.outbox.push(slot)
    slot.begin()


def _target(
    core: Core,
    header: RequestHeader,
    topic: FetchRequestTopic,
    asked: FetchRequestPartition,
    failed: dict[tuple[str, int], ErrorCode],
    isolation: int,
    *,
    may_read: bool,
) -> _Target:
    name = topic.topic
    if not may_read:
        return _Target(topic, asked, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, isolation)
    partition = core.topics.served_partition(name, asked.partition)
    code = ErrorCode.NONE
    if partition is None:
        code = failed.get((name, asked.partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if name == topic_ids.UNKNOWN:
            code = topic_ids.unknown_code(header.api_version, topic_ids.FETCH_SINCE)
    elif asked.current_leader_epoch >= 0:
        code = check_epoch(asked.current_leader_epoch, partition.handler.leader_epoch)
    return _Target(topic, asked, partition, code, isolation)


def check_epoch(asked: int, actual: int) -> ErrorCode:
    """What to say to a client that believes in leader epoch `asked`; negative: it has no belief."""
    if asked < 0 or asked == actual:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < actual else ErrorCode.UNKNOWN_LEADER_EPOCH

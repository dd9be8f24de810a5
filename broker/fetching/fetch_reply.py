"""The reply of a fetch: planned, read and encoded when it is about to leave, and not before.

    plan    which bytes, on the loop, no I/O; pins the segments (fetch_plan.py)
    read    from the page cache into a pooled buffer, for as long as a piece of work has the loop;
            what is not cached goes to a lane; the reply leaves when all is read
    encode  the rows around the bytes, which are never copied

A deep pipeline costs one buffer per connection.  A buffer that waits for a slow reader is given up
when another fetch needs it; the plan is kept, and the bytes are read again when the reader goes on.
When the budget is used up and no reader is stuck, a fetch waits in line.

Invariant: what is planned is released exactly once, when it is sent, given up, or not used.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader, encode_response
from segbroker.protocol.hot import encode_single_fetch_response
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchResponse,
)
from segbroker.segments.disk.relieving import NoDescriptor
from segbroker.segments.errors import SegmentReplaced
from segbroker.segments.partition.handler import ReadPlan

from ..access.acl_rules import Rules
from ..access.authorizer import READ, TOPIC
from ..access.quotas import UNLIMITED
from ..address import join_address
from ..core import Core
from ..error_map import STORAGE_FAILURES
from ..loop.pace import Pace
from ..loop.pool import Lease, Place
from ..partitions.isolation import READ_COMMITTED, committed_part
from ..partitions.partition import Partition
from ..peers.fetch_session import NO_SESSION, FetchSession
from ..peers.peer import Peer
from ..peers.replies import Buffer
from .fetch_plan import FetchPlan, PlannedRead
from .fetch_target import FetchTarget

log = structlog.get_logger()

# More partitions than this are looked at with others in between, and encoded in a lane.
TARGETS_ON_LOOP_MAX: Final = 1_000
TOLD_MAX: Final = 10
"""Topics that a line names."""


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


class FetchReply(FetchPlan):
    """The bytes that answer one fetch request."""

    __slots__ = (
        "_abandoned",
        "_forgotten",
        "_kept",
        "_lease",
        "_parts",
        "_peer",
        "_pending",
        "_place",
        "_rules",
        "_spare",
        "code",
    )

    def __init__(
        self,
        core: Core,
        peer: Peer,
        header: RequestHeader,
        request: FetchRequest,
        targets: Sequence[FetchTarget],
        session: FetchSession | None,
        rules: Rules | None,
    ) -> None:
        """rules: by which the targets were allowed; None: there are none."""
        super().__init__(core, header, request, targets, session)
        self._rules = rules
        self._peer = peer
        # Why nothing of it is answered.
        self.code = ErrorCode.NONE
        self._lease: Lease | None = None
        # The reply, once rendered; what of it was read from the log; without that, once forgotten.
        self._parts: list[Buffer] | None = None
        self._kept: list[_Kept] = []
        self._forgotten: list[Buffer | _Kept] | None = None
        self._pending = False  # waits for a buffer or for a lane
        self._place: Place | None = None  # where it waits for a buffer
        self._spare: Lease | None = None  # what it waited for, and has not used yet
        self._abandoned = False

    def render(self) -> list[Buffer] | None:
        """The bytes; None when that takes a buffer or a lane: then the outbox is flushed later."""
        if self._parts is None and not self._pending:
            self._parts = self._render() if self._forgotten is None else self._render_again()
            if self._spare is not None and not self._pending:
                self._release_spare()
        return self._parts

    def stuck(self) -> None:
        """The peer does not take it: its buffer may be taken back."""
        if self._lease is not None:
            self._lease.stuck(self._give_back)

    def abandon(self) -> None:
        """The peer is gone."""
        self._abandoned = True
        place, self._place = self._place, None
        if not self._pending or place is not None:
            self.release()
        if place is not None:
            self._core.pool.leave(place)

    def _check_again(self) -> None:
        """Take away what is not allowed any more."""
        authorizer = self._core.authorizer
        if authorizer is None or authorizer.rules is self._rules:
            return
        self._rules = authorizer.rules
        for target in self._targets:
            if not target.code and not authorizer.allows(
                self._peer, READ, TOPIC, target.topic.topic
            ):
                target.partition = None
                target.code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _render(self) -> list[Buffer] | None:
        self._check_again()
        quotas = self._core.quotas
        self._limit = UNLIMITED if quotas is None else quotas.fetch_limit(self._peer)
        if self._spare is not None:  # there may be more to read by now
            self._limit = min(self._limit, len(self._spare.buffer))
        if len(self._targets) > TARGETS_ON_LOOP_MAX:
            self._pending = True
            self._core.spawn(self._render_paced)
            return None
        if (parts := self._render_single()) is not None:
            return parts
        response = FetchResponse(responses=[])
        reads: list[PlannedRead] = []
        for _ in self._plan(response, reads):
            pass
        if not reads:
            self._settle(response)
            return self._encode(response)
        size = reads[-1].stop
        lease = self._take_buffer(size)
        if lease is None:
            for read in reads:
                read.plan.release()
            self._pending = True
            self._wait_for_buffer(size)
            return None
        self._lease = lease
        pace = Pace()
        rest = [read for read in reads if pace.is_over or not self._read_nowait(read, lease)]
        if rest:
            self._pending = True
            self._core.spawn(lambda: self._read_rest(response, rest, lease))
            return None
        self._settle(response)
        return self._encode(response)

    def _render_single(self) -> list[Buffer] | None:
        """The usual reply by the hand-made way: records of one partition, all in the page cache.

        None when it is another one; nothing has happened then.
        """
        if len(self._targets) != 1 or self._request.isolation_level == READ_COMMITTED:
            return None
        (target,) = self._targets
        partition = target.partition
        if target.code or partition is None or target.diverging or not self._limit:
            return None
        if not self.is_served(partition):
            return None
        handler = partition.handler
        try:
            plan = handler.plan_read(
                target.asked.fetch_offset,
                min(self.partition_bytes_max(target), self._core.pool.allowance),
            )
        except STORAGE_FAILURES:
            return None
        if plan is None and self._session is not None:
            return None  # there may be nothing to say
        view: memoryview | None = None
        if plan is not None:
            lease: Lease | None = None
            read: int | None = None
            try:
                lease = self._take_buffer(plan.size_max)
                if lease is not None:
                    read = plan.read_nowait(lease.buffer[: plan.size_max])
            except STORAGE_FAILURES:
                read = None
            if lease is None or read is None:
                plan.release()
                self._spare = lease
                return None
            view = lease.buffer[:read]
            self._lease = lease
            self._kept.append(_Kept(plan, 0, plan.size_max, view))
        header = self._header
        high_watermark = handler.high_watermark
        session_id = NO_SESSION
        if self._session is not None and target.kept is not None:
            session_id = self._session.id
            target.kept.said = high_watermark, handler.log_start_offset
        if view is not None:
            self._count(len(view), partition)
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
            throttle_time_ms=self._peer.throttle_ms(),
            session_id=session_id,
        )

    def _settle(self, response: FetchResponse) -> None:
        """The reply leaves like this: what its session, and its client, are told."""
        response.throttle_time_ms = self._peer.throttle_ms()
        response.error_code = self.code
        self._core.counters.tally.answered(self._header.api_key, response)
        if self._session is not None:
            response.session_id = self._session.id
            for kept, row in self._told:
                self._session.told(kept, row)

    async def _render_paced(self) -> None:
        """As `render`, for thousands of partitions: others get their turn between."""
        reads: list[PlannedRead] = []
        try:
            pace = Pace()
            response = FetchResponse(responses=[])
            for _ in self._plan(response, reads):
                await pace.step()
            if reads:
                lease = self._take_buffer(reads[-1].stop)
                if lease is None:
                    # Planned again when there is room: what there is to read may have changed.
                    if not self._abandoned:
                        self._wait_for_buffer(reads[-1].stop)
                    return
                self._lease = lease
                unread: list[PlannedRead] = []
                for read in reads:
                    if not self._read_nowait(read, lease):
                        unread.append(read)
                    await pace.step()
                self._core.counters.lane_reads += bool(unread)
                for read in unread:
                    await self._read_lane(read, lease)
            self._settle(response)
            parts = await self._core.lanes.run(self._encode, response)
        except Exception:
            log.exception("lane_read_failed")
            self._peer.outbox.break_off()
            self._pending = False
            return
        finally:
            self._let_go(reads)
            self._release_spare()
            if self._abandoned:
                self.release()
        self._pending = False
        if not self._abandoned:
            self._parts = parts
            self._peer.outbox.flush()

    def _read_nowait(self, read: PlannedRead, lease: Lease) -> bool:
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

    async def _read_rest(
        self, response: FetchResponse, rest: list[PlannedRead], lease: Lease
    ) -> None:
        """Read what there was no time for, or what was not in the page cache; then the reply is
        ready."""
        is_cached = True
        try:
            pace = Pace()
            for read in rest:
                await pace.step()
                if not self._read_nowait(read, lease):
                    self._core.counters.lane_reads += is_cached
                    is_cached = False
                    await self._read_lane(read, lease)
            self._settle(response)
            self._parts = self._encode(response)
        except Exception:
            log.exception("lane_read_failed")
            self._peer.outbox.break_off()
        finally:
            self._let_go(rest)
            self._pending = False
            if self._abandoned:
                self.release()
        if not self._abandoned:
            self._peer.outbox.flush()

    async def _read_lane(self, read: PlannedRead, lease: Lease) -> None:
        buffer = lease.buffer[read.start : read.stop]
        try:
            count = await self._core.lanes.run(read.plan.read, buffer)
        except STORAGE_FAILURES as exc:
            self._read_failed(read, exc)
            count = 0
        self._was_read(read, buffer[:count])

    def _was_read(self, read: PlannedRead, view: memoryview) -> None:
        if read.aborted is not None:
            view, rows = committed_part(read.aborted, read.fetch_offset, view)
            read.row.aborted_transactions = rows
        read.row.records = view
        if not len(view):
            read.plan.release()
            return
        self._kept.append(_Kept(read.plan, read.start, read.stop, view))
        self._count(len(view), read.partition)

    def _let_go(self, reads: list[PlannedRead]) -> None:
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
        lease = self._take_buffer(stop)
        if lease is None:
            self._pending = True
            self._wait_for_buffer(stop)
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
                    raise OSError("fewer bytes than before")
            self._parts = self._restored_parts()
        except Exception as exc:
            # Half of the reply is sent: there is no honest way to end it.
            topics = {target.topic.topic for target in self._targets}
            facts = {"peer": join_address(*self._peer.address), "topics": sorted(topics)[:TOLD_MAX]}
            log.error("reply_not_read_again", error=str(exc) or repr(exc), **facts)
            self._peer.outbox.break_off()
        finally:
            self._pending = False
            if self._abandoned:
                self.release()
        if not self._abandoned:
            self._peer.outbox.flush()

    def _restored_parts(self) -> list[Buffer]:
        assert self._forgotten is not None
        parts = [part.view if isinstance(part, _Kept) else part for part in self._forgotten]
        self._forgotten = None
        return parts

    def _read_failed(self, read: PlannedRead, exc: Exception) -> None:
        if isinstance(exc, SegmentReplaced):
            return  # no records and no error: the client asks again and gets what is there now
        if isinstance(exc.__cause__, NoDescriptor) and self._kept:
            return  # the same, when the descriptors of those that were read are free
        self._storage_failed(read.partition, read.row, exc)

    def _count(self, size: int, partition: Partition) -> None:
        core = self._core
        core.counters.fetched_bytes += size
        partition.fetched_bytes += size
        if core.quotas is not None:
            core.quotas.consumed(self._peer, size)

    def _encode(self, response: FetchResponse) -> list[Buffer]:
        header = self._header
        return encode_response(response, header.api_key, header.api_version, header.correlation_id)

    def _take_buffer(self, size: int) -> Lease | None:
        spare, self._spare = self._spare, None
        if spare is not None:
            if len(spare.buffer) >= size:
                return spare
            spare.release()
        return self._core.pool.lease(size)

    def _wait_for_buffer(self, size: int) -> None:
        host = self._peer.address[0]
        self._place = self._core.pool.wait(size, self._buffer_free, host=host)

    def _buffer_free(self, lease: Lease) -> None:
        self._pending, self._place, self._spare = False, None, lease
        self._peer.outbox.flush()

    def _release_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.release()

    def release(self) -> None:
        """It is sent, or nobody wants it: give everything back."""
        self._parts = None
        for kept in self._kept:
            kept.plan.release()
        self._kept.clear()
        self._release_spare()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

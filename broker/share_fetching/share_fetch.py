"""ShareFetch (KIP-932): what became of records, and others to work on.

    arrive    the session takes the changes, and the acknowledgements are checked
    look      which partitions of the session have records: enough of them, or no wait wanted?
              else wait for records, for the end of a lock, for a release by others; look again.
              Only partitions that may have some are looked at (share_session.py)
    read      whole batches, from the first available record on
    acquire   the available records are now the member's; the reply has the batches and says which
    answer    when the acknowledgements are durable, too

Nothing is acquired for a connection or a session that has ended meanwhile.  Only one request at a
time reads from a partition for a group; the next one looks again after that.

Limits: a reply has `fetch_bytes_max` bytes of records, but for a first batch that is larger; all
replies together, and those to one address, are limited in reply_budget.py.  Not more is read than
the records that are asked for may take, by what those of the session took last.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import LeaderIdAndEpoch
from segbroker.protocol.messages_share_groups import (
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecords,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
)
from segbroker.segments.errors import SegmentReplaced
from segbroker.segments.log.transaction_index import AbortedRanges
from segbroker.segments.partition.handler import ReadPlan

from ..access.authorizer import GROUP, READ, TOPIC
from ..apis.later_reply import LaterReply
from ..call import Call
from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..groups.group_keys import READ_COMMITTED as COMMITTED
from ..groups.group_keys import SHARE_ISOLATION, SHARE_RECORD_LOCK
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from ..partitions.isolation import READ_COMMITTED, visible_end
from ..peers.replies import Buffer
from ..refused import Refused
from ..shares.beginnings import Why
from ..shares.fetched import Fetched
from ..shares.live_partition import LivePartition
from ..shares.reply_budget import ReplyBudget
from ..shares.share_session import FINAL_EPOCH, FIRST_EPOCH, Place, ShareSession
from .acknowledging import Acknowledging, Outcome, member_of, said_in
from .entering import STRICT, enter

log = structlog.get_logger()

_READ_LEAST: Final = 64
_ROOM_LEAST: Final = 64 << 10
_LOOKED_AT_TOGETHER: Final = 250
"""So many partitions are brought into memory together."""


def share_fetch(core: Core, call: Call[ShareFetchRequest], slot: LaterReply) -> None:
    """Begin one; answered later."""
    try:
        member = member_of(core, call.request)
        core.groups.check_shared(member.group_id)
        session = enter(core, call, member)
    except Refused as exc:
        slot.answer(_refusal(exc.code, exc.message))
        return
    acknowledging = Acknowledging(core, call, member, session)
    if call.request.share_session_epoch != FIRST_EPOCH:
        acknowledging.begin(said_in(call.request))
    # Not to be kept while it waits for records.
    call.request.topics, call.request.forgotten_topics_data = [], []
    core.spawn(_ShareFetching(core, call, slot, session, acknowledging).run)


def _refusal(code: ErrorCode, message: str | None) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=code,
        error_message=message,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


class _Planned:
    """A partition to be read for the reply."""

    __slots__ = ("_host", "_replies", "aborted", "live", "offset", "plan")

    def __init__(
        self,
        live: LivePartition,
        offset: int,
        plan: ReadPlan,
        aborted: AbortedRanges | None,
        replies: ReplyBudget,
        host: str,
    ) -> None:
        """aborted: ranges for a reader of committed records; None for another."""
        self.live = live
        self.offset = offset
        self.plan = plan
        self.aborted = aborted
        self._replies = replies
        self._host = host
        replies.add(host, plan.size_max)
        live.is_read = True

    def release(self) -> None:
        """Done with it: others may read."""
        self.plan.release()
        self._replies.left(self._host, self.plan.size_max)
        self.live.was_read()


class _ShareFetching:
    """One request, from its first look to its answer."""

    def __init__(
        self,
        core: Core,
        call: Call[ShareFetchRequest],
        slot: LaterReply,
        session: ShareSession,
        acknowledging: Acknowledging,
    ) -> None:
        self._core = core
        self._call = call
        self._request = call.request
        self._slot = slot
        self._session = session
        self._acknowledging = acknowledging
        self._rows: dict[Place, ShareFetchResponsePartition] = {}
        self._records_left = call.request.max_records
        self._bytes = 0
        self._woken = trio.Event()
        # Whether the last look stopped in front of partitions that may have records.
        self._is_cut_short = False

    async def run(self) -> None:
        """Answer, whatever happens."""
        request = self._request
        try:
            await self._acknowledging.go_on()
            if self._asks_for_records:
                self._session.waiters[self] = None
                try:
                    await self._collect()
                finally:
                    del self._session.waiters[self]
                    self._core.shares.reply_budget.wait_no_longer(self)
            await self._acknowledging.settle()
            if request.share_session_epoch == FINAL_EPOCH:
                self._session.close()
            answer = await self._response()
        except Exception:
            log.exception("share_fetch_failed")
            answer = _refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")
        self._answer(answer)
        self._core.turn.end()

    @property
    def _asks_for_records(self) -> bool:
        """Whether there may be any for it: else it is answered without waiting, as by Kafka."""
        request = self._request
        return (
            request.share_session_epoch != FINAL_EPOCH
            and request.max_records > 0
            and request.max_bytes > 0
            and bool(self._session.places)
        )

    # Waiting

    def look_again(self) -> None:
        """There may be something to acquire, or nobody waits for it any more."""
        self._woken.set()

    async def _collect(self) -> None:
        """Find records, or wait for some."""
        wait_ms = min(self._request.max_wait_ms, self._core.config.long_poll_max_ms)
        deadline = trio.current_time() + max(0, wait_ms) / 1000
        while True:
            self._woken = trio.Event()
            is_late = trio.current_time() >= deadline
            await self._look(is_late=is_late or self._core.is_draining)
            if self._rows or is_late or self._is_gone or self._core.is_draining:
                return
            with trio.move_on_at(deadline):
                await self._woken.wait()

    @property
    def _is_gone(self) -> bool:
        """Whether nobody takes the answer, or may have records."""
        return self._slot.done or not self._session.is_open or not self._may_read

    @property
    def _may_read(self) -> bool:
        """Whether its client may still read the group: its next request is refused, if not."""
        authorizer = self._core.authorizer
        return authorizer is None or authorizer.would_allow(
            self._call.peer, READ, GROUP, self._session.group_id
        )

    # Looking

    async def _look(self, *, is_late: bool) -> None:
        """Acquire what there is, if that is enough; is_late: whatever it is."""
        if self._owes() or self._is_gone:
            return
        planned = await self._plan()
        try:
            if not planned or not (is_late or self._rows or self._is_enough(planned)):
                return
            pace = Pace()
            for one in planned:
                await pace.step()
                if self._records_left <= 0 or self._is_gone:
                    break
                await self._read(one)
            if self._is_cut_short:
                self._woken.set()  # no records were there, and not all was looked at
        finally:
            for one in planned:
                one.release()

    def _is_enough(self, planned: Sequence[_Planned]) -> bool:
        """Whether it is what was asked for; or all that there is room for, the rest comes later."""
        if self._is_cut_short or any(one.plan.is_cut for one in planned):
            return True
        size = sum(one.plan.size_max for one in planned)
        return size >= min(self._request.min_bytes, self._bytes_max)

    @property
    def _bytes_wanted(self) -> int:
        """What so many records may take, and as much again."""
        return max(_ROOM_LEAST, 2 * self._records_left * self._session.record_size)

    @property
    def _bytes_max(self) -> int:
        return min(self._request.max_bytes, self._core.config.fetch_bytes_max)

    def _owes(self) -> bool:
        """Whether its client, or its address, has had as much as it may for now."""
        core, peer = self._core, self._call.peer
        if not core.shares.reply_budget.has_room(peer.address[0]):
            core.shares.reply_budget.wait(self, lambda: self._woken.set())
            return True
        return core.quotas is not None and not core.quotas.fetch_limit(peer)

    async def _plan(self) -> list[_Planned]:
        """Which partitions to read, as far as they fit."""
        core, request, session = self._core, self._request, self._session
        room = min(self._bytes_max, max(self._bytes_wanted, request.min_bytes))
        if core.quotas is not None:
            room = min(room, core.quotas.fetch_limit(self._call.peer))
        rules = None if core.authorizer is None else core.authorizer.rules
        isolation = self._isolation
        session.go_by(rules, isolation)
        planned: list[_Planned] = []
        pace = Pace()
        places, self._is_cut_short = iter(tuple(session.ready)), False
        try:
            while some := tuple(islice(places, _LOOKED_AT_TOGETHER)):
                if sum(one.plan.size_max for one in planned) >= max(1, request.min_bytes):
                    self._is_cut_short = True  # the others the next time
                    break
                refused = await self._begun(some, pace)
                for place in some:
                    if room <= 0 or self._is_gone:
                        self._is_cut_short = True
                        return planned
                    await pace.step()
                    try:
                        if (why := refused.get(place)) is not None:
                            raise Refused(*why)
                        live = await self._brought(place)
                        size = max(_READ_LEAST, room)
                        one = self._planned(live, size, isolation, is_first=not planned)
                    except Refused as exc:
                        self._rows[place] = _row(place.partition, exc.code, exc.message)
                        continue
                    if one is not None:
                        planned.append(one)
                        room -= one.plan.size_max
                    elif self._is_cut_short:
                        return planned
        except BaseException:
            for one in planned:
                one.release()
            raise
        return planned

    async def _begun(self, places: Sequence[Place], pace: Pace) -> dict[Place, Why]:
        """Have the group begin where it is new, together; in which it cannot, and why."""
        refused: dict[Place, Why] = {}
        for place in places:
            if (why := self._why_not_read(place)) is not None:
                refused[place] = why
        shares, group_id = self._core.shares, self._session.group_id
        allowed = [place for place in places if place not in refused]
        try:
            with self._name_is_held():
                return refused | await shares.begin(group_id, allowed, pace)
        except Refused as exc:
            return dict.fromkeys(allowed, (exc.code, exc.message)) | refused

    def _why_not_read(self, place: Place) -> Why | None:
        authorizer = self._core.authorizer
        meta = None if authorizer is None else self._core.topics.by_id(place.topic_id)
        if meta is None or authorizer is None:
            return None
        if authorizer.allows(self._call.peer, READ, TOPIC, meta.name):
            return None
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return code, code.description  # without its name, which was not asked for

    async def _brought(self, place: Place) -> LivePartition:
        """Into memory."""
        with self._name_is_held():
            return await self._core.shares.open(self._session, place)

    @contextmanager
    def _name_is_held(self) -> Iterator[None]:
        """Until it is written down where a group begins no other one gets its name, though what is
        known of it be deleted meanwhile.  Raises Refused."""
        core = self._core
        group = core.groups.obtain_share(self._session.group_id)
        group.moving += 1
        try:
            yield
        finally:
            group.moving -= 1
            core.groups.share_groups.changed(group)

    def _planned(
        self, live: LivePartition, size: int, isolation: int, *, is_first: bool
    ) -> _Planned | None:
        """What to read of a partition; None: there is nothing to hand out.  Raises Refused."""
        if live.is_gone:
            return None
        if live.is_read:
            live.skipped[self._session] = None
            self._session.has_nothing(live.place)
            return None
        handler, part = live.partition.handler, live.part
        if lost := part.begin_at(handler.log_start_offset):
            log.warning(
                "share_records_deleted",
                group=live.key.group_id,
                topic=live.topic,
                partition=live.key.partition,
                offset=handler.log_start_offset,
                offsets=lost,
            )
        offset, end = part.next_offset, visible_end(handler, isolation)
        if offset >= end:  # as most are
            self._session.has_nothing(live.place)
            return None
        if not part.has_room(self._core.shares.limits(live.key.group_id)):
            return None
        # In front of the plan: what the log forgets behind it, the read may still have batches of.
        aborted = handler.transactions.ranges() if isolation == READ_COMMITTED else None
        try:
            plan = handler.plan_read(offset, size, up_to=end)
        except STORAGE_FAILURES as exc:
            raise Refused(*wire_error(exc)) from exc
        if plan is None:
            return None
        if not is_first and plan.size_max > size:
            plan.release()
            self._is_cut_short = True
            return None
        core, host = self._core, self._call.peer.address[0]
        return _Planned(live, offset, plan, aborted, core.shares.reply_budget, host)

    @property
    def _isolation(self) -> int:
        level = self._core.group_settings.text_in_force(self._session.group_id, SHARE_ISOLATION)
        return READ_COMMITTED if level == COMMITTED else 0

    # Reading

    async def _read(self, one: _Planned) -> None:
        """Read, and acquire what of it is available then."""
        live = one.live
        self._session.had_its_turn(live.place)
        buffer = memoryview(bytearray(one.plan.size_max))
        try:
            count = one.plan.read_nowait(buffer)
            if count is None:
                self._core.counters.lane_reads += 1
                count = await self._core.lanes.run(one.plan.read, buffer)
        except SegmentReplaced:
            live.skipped[self._session] = None  # look again at once
            return
        except STORAGE_FAILURES as exc:
            code, message = wire_error(exc)
            now_ms = self._core.now_ms()
            self._core.failed_reads.tell(live.topic, live.key.partition, exc, now_ms)
            self._rows[live.place] = _row(live.key.partition, code, message)
            return
        if self._is_gone or live.is_gone:
            return
        found = Fetched(buffer[:count], one.aborted)
        limits, start = self._core.shares.limits(live.key.group_id), live.part.start
        acquired = live.part.acquire(
            self._session.member_id,
            found.batches(),
            limits,
            monotonic_ms(),
            offset=one.offset,
            records_max=self._records_left,
            batch_size=max(1, self._request.batch_size),
            is_strict=self._request.share_acquire_mode == STRICT or self._core.shares.is_full,
        )
        self._core.shares.looked_into(live, start)
        self._session.record_size = found.record_size
        if not acquired:
            if live.part.next_offset != one.offset:
                live.skipped[self._session] = None  # nothing of it holds records: go on behind it
            return
        self._records_left -= sum(row.last - row.first + 1 for row in acquired)
        records: Buffer = found.with_records(acquired)
        if len(records) * 2 < len(buffer):
            records = bytes(records)  # or the whole buffer would stay
        self._keep(len(buffer) if isinstance(records, memoryview) else len(records))
        live.partition.fetched_bytes += len(records)
        self._rows[live.place] = ShareFetchResponsePartition(
            partition_index=live.key.partition,
            current_leader=LeaderIdAndEpoch(),
            records=records,
            acquired_records=[
                ShareFetchResponseAcquiredRecords(
                    first_offset=row.first, last_offset=row.last, delivery_count=row.deliveries
                )
                for row in acquired
            ],
        )

    def _keep(self, size: int) -> None:
        """So many bytes stay until the reply is sent."""
        self._bytes += size
        self._core.shares.reply_budget.add(self._call.peer.address[0], size)

    # Answering

    async def _response(self) -> ShareFetchResponse:
        core, request, pace = self._core, self._request, Pace()
        for place, outcome in self._acknowledging.outcomes.items():
            self._add_outcome(place, outcome)
        if request.share_session_epoch == FIRST_EPOCH:
            for place in tuple(self._session.places):
                if place not in self._rows:
                    self._rows[place] = _row(place.partition, ErrorCode.NONE, None)
                await pace.step()
        topics: dict[object, ShareFetchResponseTopic] = {}
        for place, row in self._rows.items():
            topic = topics.get(place.topic_id)
            if topic is None:
                topic = ShareFetchResponseTopic(topic_id=place.topic_id, partitions=[])
                topics[place.topic_id] = topic
            topic.partitions.append(row)
            await pace.step()
        lock_ms = core.group_settings.in_force(self._session.group_id, SHARE_RECORD_LOCK)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=lock_ms,
            responses=list(topics.values()),
            node_endpoints=[],
        )

    def _add_outcome(self, place: Place, outcome: Outcome) -> None:
        row = self._rows.setdefault(place, _row(place.partition, ErrorCode.NONE, None))
        row.acknowledge_error_code = outcome.code
        row.acknowledge_error_message = outcome.message

    def _answer(self, answer: ShareFetchResponse) -> None:
        core, peer, slot = self._core, self._call.peer, self._slot
        gone = partial(core.shares.reply_budget.left, peer.address[0], self._bytes)
        if slot.done:
            gone()
            return
        core.counters.fetch_requests += 1
        size = sum(len(row.records or b"") for row in self._rows.values())
        core.counters.fetched_bytes += size
        if core.quotas is not None:
            core.quotas.consumed(peer, size)
        slot.on_gone = gone
        slot.answer(answer)


def _row(index: int, code: ErrorCode, message: str | None) -> ShareFetchResponsePartition:
    return ShareFetchResponsePartition(
        partition_index=index,
        error_code=code,
        error_message=message,
        current_leader=LeaderIdAndEpoch(),
        records=b"",
        acquired_records=[],
    )

"""Fetch: whole batches from an offset on, now or when there are enough.

    arrive   look: an error, or min_bytes to read, or no wait wanted?   -> done
             (nor where no bytes are: min_bytes of 0)
             else enter the partitions' waiting lists, then look again, then wait
    wake     a partition's high watermark moved: look again             -> done
    expire   max_wait_ms is over                                        -> done
    render   (done, and first in its connection's line) see fetch_reply.py

If the access rules change while a fetch waits, for records or for its turn, it is checked again
when its reply is made: it returns nothing that its client may no longer read.

A fetch of a session (fetch_session.py) covers all partitions of the session, whatever it names.

A client that fetches as a follower (replica_id of 0 or more) needs CLUSTER_ACTION instead of READ,
and is answered NOT_LEADER_OR_FOLLOWER, as Kafka answers a broker that has no replica of the
partition.

Invariant: a waiting slot stands in the waiting list of each partition it asks for, or in none.  If
it asks for thousands of partitions it is entered piece by piece.
"""

from collections.abc import Awaitable, Iterable
from typing import Final

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
)

from ..access.acl_rules import Rules
from ..access.authorizer import CLUSTER_ACTION, READ, TOPIC
from ..core import Core
from ..error_map import STORAGE_FAILURES
from ..loop.pace import Pace
from ..partitions import topic_ids
from ..partitions.isolation import visible_end
from ..partitions.partition import Partition
from ..peers.fetch_session import FINAL_EPOCH, FIRST_EPOCH, FetchSession, SessionRow
from ..peers.peer import Peer
from ..peers.replies import Buffer
from .fetch_reply import TARGETS_ON_LOOP_MAX, FetchReply
from .fetch_target import FetchTarget

# Most partitions of one fetch; beyond it the connection is closed.
PARTITIONS_MAX: Final = 20_000
# So many of them are looked up before others may have their turn.
_TARGETS_AT_ONCE: Final = 100
# So many partitions of a fetch that is not answered count as a request of their own.
PARTITIONS_PER_SLOT: Final = 10

# A partition of a fetch, and what its session has of it.
Asked = tuple[FetchRequestTopic, FetchRequestPartition, SessionRow | None]


class TooManyPartitions(Exception):
    """More partitions in one fetch than one reply should hold; the connection is closed."""


class FetchSlot:
    """The place of one fetch in its connection's line: it waits, then its reply leaves."""

    __slots__ = (
        "_by_partition",
        "_core",
        "_counted",
        "_least",
        "_peer",
        "_reply",
        "_request",
        "_sizes",
        "_targets",
        "_timed",
        "_total",
        "done",
    )

    restores: Final = True

    def __init__(
        self,
        core: Core,
        peer: Peer,
        header: RequestHeader,
        request: FetchRequest,
        targets: list[FetchTarget],
        session: FetchSession | None,
        rules: Rules | None,
    ) -> None:
        """rules: by which the targets were allowed; None: there are none."""
        self.done = False
        self._core = core
        self._peer = peer
        self._request = request
        self._targets = targets
        self._timed = False
        self._least = request.min_bytes
        # What was to read from each of them at its last look; empty where one record is enough.
        self._sizes: dict[Partition | None, int] = {}
        self._total = 0
        self._by_partition: dict[Partition | None, FetchTarget] | None = None
        self._reply = FetchReply(core, peer, header, request, targets, session, rules)
        self._counted = 0
        # Not to be kept while it waits: only the targets are counted.
        request.topics, request.forgotten_topics_data = [], []

    def refuse(self, code: ErrorCode) -> None:
        """Answer with this instead of any partition."""
        self._reply.code = code

    @property
    def waiting(self) -> int:
        """As one of those who wait at a partition."""
        return 1

    @property
    def further(self) -> int:
        """How many further requests it counts as until it is sent."""
        return len(self._targets) // PARTITIONS_PER_SLOT

    def count(self) -> None:
        """It has its place: count its partitions until it is sent.  It may be abandoned by that."""
        self._counted = len(self._targets)
        self._core.unanswered.add(self._peer, self._counted)

    def _uncount(self) -> None:
        counted, self._counted = self._counted, 0
        self._core.unanswered.take(self._peer, counted)

    def begin(self) -> None:
        """Answer at once, or wait for records."""
        if self.done:
            return
        if not self._may_wait() or self._is_ready():
            self._finish()
            return
        for target in self._targets:
            assert target.partition is not None, "a missing partition is ready at once"
            target.partition.fetches[self] = None
        self._wait()
        # The last check comes after the registration, so no wake-up can fall between.
        if self._is_ready():
            self._finish()

    async def begin_paced(self) -> None:
        """As `begin`, for thousands of partitions: others get their turn between."""
        pace = Pace()
        if self.done:
            return
        if not self._may_wait():
            self._finish()
            return
        for target in self._targets:
            if (partition := target.partition) is not None:
                partition.fetches[self] = None
            # Looked at behind its registration; what went while others had their turn wakes nobody.
            if partition is None or self._has_news(target) or not self._reply.is_served(partition):
                self._finish()
                return
            await pace.step()
            if self.done:
                return  # woken meanwhile, or abandoned: it stands in no list any more
        self._wait()

    def _may_wait(self) -> bool:
        """Whether it waits where there is nothing to read."""
        is_wanted = self._request.max_wait_ms > 0 and self._request.min_bytes > 0
        return is_wanted and not self._core.is_draining and not self._owes()

    def _wait(self) -> None:
        wait_ms = min(self._request.max_wait_ms, self._core.config.long_poll_max_ms)
        self._timed = True
        self._core.deadlines.add(trio.current_time() + wait_ms / 1000, self)

    def _has_news(self, target: FetchTarget) -> bool:
        """Whether it is answered, now that this partition has been asked."""
        return target.look() and (self._least <= 1 or self._is_enough_with(target))

    def wake(self, partition: Partition) -> int:
        if self.done:
            return 0
        # Only this partition is asked again, or a turn in which all of a thousand have moved would
        # ask each of them a thousand times.
        if self._by_partition is None:
            self._by_partition = {target.partition: target for target in self._targets}
        if self._has_news(self._by_partition[partition]):
            self._finish()
        return 0

    def complete(self) -> None:
        if not self.done:
            self._finish()

    def expire(self) -> None:
        self._finish()

    def abandon(self) -> None:
        if not self.done:
            self._finish()
        self._uncount()
        self._reply.abandon()

    def sent(self) -> None:
        if further := self.further:
            self._peer.outbox.weigh(-further)
        self._uncount()
        self._reply.release()

    def stuck(self) -> None:
        self._reply.stuck()

    def render(self) -> list[Buffer] | None:
        return self._reply.render()

    def _owes(self) -> bool:
        """Whether its client has had more than its quota: the reply is empty, and at once."""
        quotas = self._core.quotas
        return quotas is not None and not quotas.fetch_limit(self._peer)

    def _is_ready(self) -> bool:
        """Whether there is an error or enough to read."""
        looks = [target for target in self._targets if target.look()]
        if not looks:
            return not self._targets
        if self._least <= 1 or any(target.code for target in looks):
            return True
        return any(self._is_enough_with(target) for target in looks)

    def _is_enough_with(self, target: FetchTarget) -> bool:
        """Whether there is an error, or enough to read, now that this partition has been asked."""
        if target.code or target.diverging is not None:
            return True
        size = self._available(target)
        if size is None:
            return True
        self._total += size - self._sizes.get(target.partition, 0)
        self._sizes[target.partition] = size
        return self._total >= min(self._least, self._reply.bytes_max)

    def _available(self, target: FetchTarget) -> int | None:
        """Bytes to read from a partition; None for an error."""
        assert target.partition is not None, "a missing partition has an error code"
        try:
            handler = target.partition.handler
            plan = handler.plan_read(
                target.asked.fetch_offset,
                self._reply.partition_bytes_max(target),
                up_to=visible_end(handler, target.isolation),
            )
        except STORAGE_FAILURES:
            return None
        if plan is None:
            return 0
        size = plan.size_max
        if plan.is_cut:  # whole batches fill no limit to the last byte
            size = max(size, self._reply.partition_bytes_max(target))
        plan.release()
        return size

    def _finish(self) -> None:
        self.done = True
        for target in self._targets:
            if target.partition is not None:
                target.partition.fetches.pop(self, None)
        if self._timed:
            self._core.deadlines.forget()
        self._core.turn.flush(self._peer.flush)


def fetch(
    core: Core, peer: Peer, header: RequestHeader, request: FetchRequest
) -> Awaitable[None] | None:
    """Begin a fetch. Returns something to await when a partition must be opened first."""
    if request.session_epoch != FINAL_EPOCH or request.session_id:
        if (code := _enter_session(core, peer, header, request)) is not None:
            _refuse(core, peer, header, request, code)
            return None
        session = peer.fetch_session
        if session is not None and len(session.rows) > TARGETS_ON_LOOP_MAX:
            return fetch_large(core, peer, header, request, entered=True)
    asked = _asked(peer, request)
    _name_topics(core, header, asked)
    served = core.topics.served
    closed = [
        (topic.topic, one.partition)
        for topic, one, _ in asked
        if (topic.topic, one.partition) not in served
        and core.topics.exists(topic.topic, one.partition)
    ]
    if closed:
        return _open_and_fetch(core, peer, header, request, asked, closed)
    _begin(core, peer, header, request, asked)
    return None


async def fetch_large(
    core: Core, peer: Peer, header: RequestHeader, request: FetchRequest, *, entered: bool = False
) -> None:
    """As `fetch`, for a request of many partitions: others get their turn between.

    entered: its session is settled.

    Raises:
        TooManyPartitions: more than one reply should hold.
    """
    count = sum(len(topic.partitions) for topic in request.topics)
    if count > PARTITIONS_MAX:
        raise TooManyPartitions(f"a fetch of {count} partitions, limit {PARTITIONS_MAX}")
    if not entered and (code := _enter_session(core, peer, header, request)) is not None:
        _refuse(core, peer, header, request, code)
        return
    asked = _asked(peer, request)
    if len(asked) > PARTITIONS_MAX:
        raise TooManyPartitions(f"a session of {len(asked)} partitions, limit {PARTITIONS_MAX}")
    pace = Pace()
    closed = []
    for one in asked:
        _name_topics(core, header, [one])
        topic, partition, _ = one
        if core.topics.served_partition(topic.topic, partition.partition) is None:
            closed.append((topic.topic, partition.partition))
        await pace.step()
    await _open_and_fetch(core, peer, header, request, asked, closed)


def _enter_session(
    core: Core, peer: Peer, header: RequestHeader, request: FetchRequest
) -> ErrorCode | None:
    """Settle which session the request belongs to (`peer.fetch_session`), or why it cannot."""
    session = peer.fetch_session
    by_id = header.api_version >= topic_ids.FETCH_SINCE
    if request.session_epoch in (FIRST_EPOCH, FINAL_EPOCH):
        peer.end_fetch_session()
        if request.session_epoch == FIRST_EPOCH:
            peer.fetch_session = core.fetch_sessions.begin(request, by_id=by_id)
        return None
    if session is None or session.id != request.session_id:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != request.session_epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.by_id is not by_id:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session.follows()
    if not session.merge(request):
        peer.end_fetch_session()
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if not session.rows:
        peer.end_fetch_session()
    return None


def _refuse(
    core: Core, peer: Peer, header: RequestHeader, request: FetchRequest, code: ErrorCode
) -> None:
    slot = FetchSlot(core, peer, header, request, [], None, None)
    slot.refuse(code)
    peer.outbox.push(slot)
    slot.begin()


def _asked(peer: Peer, request: FetchRequest) -> list[Asked]:
    """What the request is about: the rows of its session, or its own."""
    session = peer.fetch_session
    if session is not None and request.session_epoch != FINAL_EPOCH:
        return [(row.topic, row.asked, row) for row in session.rows.values()]
    return [(topic, one, None) for topic in request.topics for one in topic.partitions]


def _name_topics(core: Core, header: RequestHeader, asked: Iterable[Asked]) -> None:
    if header.api_version < topic_ids.FETCH_SINCE:
        return
    named = None
    for topic, _, _ in asked:
        if topic is not named:
            topic.topic = topic_ids.name_of(core.topics, topic.topic_id)
            named = topic


async def _open_and_fetch(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    request: FetchRequest,
    asked: list[Asked],
    closed: list[tuple[str, int]],
) -> None:
    # What may not be read is answered below, whether it exists or not.
    await core.topics.open_all(closed, lambda name: _may_read(core, peer, name))
    if len(asked) > TARGETS_ON_LOOP_MAX:
        await _begin_paced(core, peer, header, request, asked)
        return
    _name_topics(core, header, asked)  # meanwhile a name may have become that of another topic
    _begin(core, peer, header, request, asked)


def _may_read(core: Core, peer: Peer, topic: str) -> bool:
    return core.authorizer is None or core.authorizer.would_allow(peer, READ, TOPIC, topic)


def _begin(
    core: Core, peer: Peer, header: RequestHeader, request: FetchRequest, asked: list[Asked]
) -> None:
    rules = _rules(core)
    _slot(core, peer, header, request, _targets(core, peer, header, request, asked), rules).begin()


async def _begin_paced(
    core: Core, peer: Peer, header: RequestHeader, request: FetchRequest, asked: list[Asked]
) -> None:
    """As `_begin`, for thousands of partitions: others get their turn between."""
    pace, rules = Pace(), _rules(core)
    targets: list[FetchTarget] = []
    for start in range(0, len(asked), _TARGETS_AT_ONCE):
        some = asked[start : start + _TARGETS_AT_ONCE]
        _name_topics(core, header, some)  # by now: a name may be that of another topic
        targets += _targets(core, peer, header, request, some)
        await pace.step()
    await _slot(core, peer, header, request, targets, rules).begin_paced()


def _rules(core: Core) -> Rules | None:
    return None if core.authorizer is None else core.authorizer.rules


def _slot(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    request: FetchRequest,
    targets: list[FetchTarget],
    rules: Rules | None,
) -> FetchSlot:
    """Its place in the line of its connection."""
    core.counters.fetch_requests += 1
    session = None if request.session_epoch == FINAL_EPOCH else peer.fetch_session
    slot = FetchSlot(core, peer, header, request, targets, session, rules)
    peer.outbox.push(slot)
    if further := slot.further:
        peer.outbox.weigh(further)
    slot.count()
    return slot


def _targets(
    core: Core, peer: Peer, header: RequestHeader, request: FetchRequest, asked: list[Asked]
) -> list[FetchTarget]:
    isolation = request.isolation_level
    if _is_follower(request):
        may = core.authorizer is None or core.authorizer.allows_cluster(peer, CLUSTER_ACTION)
        targets = [_target(core, header, one, isolation, may_read=may) for one in asked]
        for target in targets:
            if not target.code:
                target.partition, target.code = None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        return targets
    if core.authorizer is None:
        return [_target(core, header, one, isolation, may_read=True) for one in asked]
    targets = []
    looked_at: FetchRequestTopic | None = None
    may = True
    by_id = header.api_version >= topic_ids.FETCH_SINCE
    for one in asked:
        topic = one[0]
        if topic is not looked_at:
            looked_at = topic
            may = (by_id and topic.topic == topic_ids.UNKNOWN) or core.authorizer.allows(
                peer, READ, TOPIC, topic.topic
            )
        targets.append(_target(core, header, one, isolation, may_read=may))
    return targets


def _is_follower(request: FetchRequest) -> bool:
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


def _target(
    core: Core,
    header: RequestHeader,
    one: Asked,
    isolation: int,
    *,
    may_read: bool,
) -> FetchTarget:
    topic, asked, kept = one
    name = topic.topic
    if not may_read:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return FetchTarget(topic, asked, None, code, isolation, kept)
    partition = core.topics.served_partition(name, asked.partition)
    code = ErrorCode.NONE
    if partition is None:
        if name == topic_ids.UNKNOWN:
            code = topic_ids.unknown_code(header.api_version, topic_ids.FETCH_SINCE)
        else:
            code, _ = core.topics.why_unopened(name, asked.partition)
    elif asked.current_leader_epoch >= 0:
        code = check_epoch(asked.current_leader_epoch, partition.handler.leader_epoch)
    target = FetchTarget(topic, asked, partition, code, isolation, kept)
    if asked.last_fetched_epoch >= 0 and partition is not None and not code:
        target.compare_epochs()
    return target


def check_epoch(asked: int, actual: int) -> ErrorCode:
    """What to say to a client that believes in leader epoch `asked`; -1: it has no belief."""
    if asked in (-1, actual):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < actual else ErrorCode.UNKNOWN_LEADER_EPOCH

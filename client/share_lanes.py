"""Which broker is asked what next for a share group's member: one question at a time per broker.

    locks that end soon, renewals asked for --> ShareAcknowledge, alone
    somebody waits for records -------------> ShareFetch, and what was said of others with it
    what was said has waited long enough ---> ShareAcknowledge

Nothing is fetched ahead: what a fetch brings is locked for this member, and others cannot have it.
While the caller works, no question is open, so what it says of its records goes at once when it is
due.  All of one broker goes over one connection: with it the session ends, and every lock with it.

What an answer brings is for share_reading; what became of what was said is told there, too.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_share_groups import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
    ShareFetchResponsePartition,
)

from .acknowledging import Acquired, Kind
from .cluster import LEADER_CODES, NOBODY
from .engine import Engine
from .errors import (
    ClosedError,
    ConnectionLost,
    LeaderNotAvailable,
    PeerError,
    SegbrokerError,
    UnsupportedByBroker,
    broker_error,
)
from .network import FETCH, Node
from .records import TopicPartition
from .share_lane import Lane, Reader, Trouble
from .share_session import Key, ShareSession
from .share_settings import ShareSettings
from .spoken import Reply
from .unserved import Unserved

RENEWALS_SINCE = 2
BLOCKED_MS = 10
# Of what is gone: no more is to be had there until the view of the cluster is another one.
# A disk that failed takes no lock away: what is in hand may be said when it is back.
_GONE = (LEADER_CODES - {ErrorCode.KAFKA_STORAGE_ERROR}) | {ErrorCode.UNKNOWN_TOPIC_ID}
# Errors of an answer as a whole that pass: the session is over, a topic is being deleted.
_PASSING = _GONE | {
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Closing(NamedTuple):
    """The end of a session, and who hears what came of it."""

    request: ShareAcknowledgeRequest
    take: Callable[[Reply, int], None]


class ShareLanes:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        settings: ShareSettings,
        member_id: str,
        reader: Reader,
    ) -> None:
        # Who was asked for records longest ago comes first.
        self.lanes: dict[int, Lane] = {}
        # Topic id and partition -> what it is called: what the group gave this member.
        self.given: Mapping[Key, TopicPartition] = {}
        self._engine = engine
        self._settings = settings
        self._member_id = member_id
        self._reader = reader
        self._troubles: dict[Key, Trouble] = {}
        self._unserved = Unserved(engine.network.absences.say)
        self._now_ms = 0

    # What the caller says.

    def mark(self, key: Key, offset: int, kind: Kind, now_ms: int) -> bool:
        """See Acquired.mark."""
        for lane in self.lanes.values():
            part = lane.acquired.get(key)
            if part is not None and part.mark(offset, kind, now_ms):
                return True
        return False

    def holds(self, key: Key, offset: int, now_ms: int) -> bool:
        """Whether a record is locked for this member, and nothing was said of it."""
        for lane in self.lanes.values():
            part = lane.acquired.get(key)
            if part is not None and part.held.get(offset, now_ms) > now_ms:
                return True
        return False

    @property
    def held_count(self) -> int:
        return sum(len(part.held) for part in self._parts())

    @property
    def is_settled(self) -> bool:
        """Whether all that was said was answered."""
        return all(part.is_settled for part in self._parts())

    def _parts(self) -> Iterator[Acquired]:
        return (part for lane in self.lanes.values() for part in lane.acquired.values())

    # The engine's side.

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._share_out(now_ms)
        for lane in list(self.lanes.values()):
            self._leave_moved(lane)
            self._serve(lane, now_ms)

    def next_wake_ms(self) -> int | None:
        wakes: list[int] = []
        for lane in self.lanes.values():
            looks = [part.look_ms for part in lane.acquired.values() if part.look_ms is not None]
            if lane.is_asked:
                wakes += looks
                continue
            if lane.retry_at_ms > self._now_ms:
                wakes.append(lane.retry_at_ms)
            wakes += [max(look_ms, lane.retry_at_ms) for look_ms in looks]
            for part in lane.acquired.values():
                due_ms = part.due_ms(self._settings.acknowledge_interval_ms)
                if due_ms is not None:
                    wakes.append(max(due_ms, lane.retry_at_ms))
        wakes += [one.until_ms for one in self._troubles.values() if one.until_ms > self._now_ms]
        # What is still due behind a step waits for a connection.
        return max(self._now_ms + BLOCKED_MS, min(wakes)) if wakes else None

    def close(self, error: SegbrokerError) -> None:
        for lane in self.lanes.values():
            self._lose(lane, error)

    def close_session(self, lane: Lane) -> Closing | None:
        """The last question of a session: what was said; the rest is given back.  None: there is
        no session."""
        node = self._engine.cluster.node(lane.node_id, FETCH)
        if not lane.session.epoch or node is None or node.connection is not lane.connection:
            return None
        said = lane.take_marked(renewals=False)
        request = lane.session.acknowledge(said, is_final=True)
        # Behind it nothing more is asked: no renewals of what it gives back.
        lane.is_asked = True

        def take(reply: Reply, now_ms: int) -> None:
            self._acknowledged(lane, said, reply, now_ms)
            lane.session.begin_anew()
            for part in lane.acquired.values():
                self._lose_part(part, ClosedError("the consumer was closed"))

        return Closing(request, take)

    def _share_out(self, now_ms: int) -> None:
        """Which broker has which of the partitions."""
        for lane in self.lanes.values():
            lane.wanted = {}
            lane.led_in = {key: epoch for key, epoch in lane.led_in.items() if key in self.given}
        self._troubles = {key: one for key, one in self._troubles.items() if key in self.given}
        cluster = self._engine.cluster
        for key, tp in self.given.items():
            if key in self._troubles and now_ms < self._troubles[key].until_ms:
                continue
            leader = cluster.leader(*tp)
            if leader is None:
                cluster.invalidate()
                if cluster.is_unserved(*tp):
                    self._not_served(key, tp, now_ms)
                continue
            if leader not in self.lanes:
                session = ShareSession(self._settings, self._member_id)
                self.lanes[leader] = Lane(leader, session, self._new_trouble())
            lane = self.lanes[leader]
            lane.wanted[key] = tp
            lane.led_in[key] = max(lane.led_in.get(key, -1), cluster.leader_epoch(*tp))
        if self._unserved:
            self._unserved.look(
                self.given.values(), lambda tp: not cluster.is_unserved(*tp), now_ms
            )

    def _leave_moved(self, lane: Lane) -> None:
        """What another broker leads by now it gives to anybody, whoever had it locked here; not
        where an older view says so."""
        cluster = self._engine.cluster
        for key, part in lane.acquired.items():
            is_older = cluster.leader_epoch(*part.tp) < lane.led_in.get(key, -1)
            is_here = is_older or cluster.leader(*part.tp) in (None, lane.node_id)
            if key in self.given and not is_here and not part.is_idle:
                where = f"{part.tp.topic}-{part.tp.partition}"
                self._lose_part(part, broker_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, where))

    def _not_served(self, key: Key, tp: TopicPartition, now_ms: int) -> None:
        """Try it again later; the caller hears of it where nothing else is served."""
        error = LeaderNotAvailable(f"share fetch of {tp.topic}-{tp.partition}: {NOBODY}")
        self._unserved.missing(tp, error, now_ms)
        patience_ms = self._engine.settings.api_timeout_ms
        is_all = self._unserved.is_all_of(len(self.given), now_ms, patience_ms)
        if self._troubles.setdefault(key, self._new_trouble()).failed(now_ms) and is_all:
            self._reader.fail(error)

    def _new_trouble(self) -> Trouble:
        settings = self._engine.settings
        return Trouble(self._engine.backoff(settings.retry_backoff_max_ms), settings.api_timeout_ms)

    def _serve(self, lane: Lane, now_ms: int) -> None:
        if lane.is_asked:
            self._look_at_locks(lane, now_ms)
            return
        node = self._engine.cluster.node(lane.node_id, FETCH)
        connection = None if node is None else node.connection
        if lane.session.epoch and connection is not lane.connection:
            self._lose(lane, ConnectionLost(f"the connection to broker {lane.node_id} was lost"))
        self._look_at_locks(lane, now_ms)
        if now_ms < lane.retry_at_ms:
            return
        question = self._question(lane, now_ms)
        if question is None:
            return
        if node is None:
            self._engine.cluster.invalidate()
            del self.lanes[lane.node_id]
            return
        if not self._engine.network.want(node, now_ms):
            if node.connection is None and now_ms < node.retry_at_ms:
                # It is away: it may also have moved.
                lane.retry_at_ms = node.retry_at_ms
                self._engine.cluster.invalidate()
            return
        question(lane, node, now_ms)

    def _look_at_locks(self, lane: Lane, now_ms: int) -> None:
        for part in lane.acquired.values():
            if part.look_ms is not None and now_ms >= part.look_ms:
                self._reader.told(part.lapse(now_ms))
                if lane.is_asked or not self._reader.may_renew(now_ms):
                    lane.is_late = lane.is_asked
                    part.looked(now_ms)

    def _question(self, lane: Lane, now_ms: int) -> Callable[[Lane, Node, int], None] | None:
        """What to ask next, if anything."""
        parts = lane.acquired.items()
        interval_ms = self._settings.acknowledge_interval_ms
        is_due = any(
            due_ms is not None and (self._reader.is_hurried or now_ms >= due_ms)
            for due_ms in (part.due_ms(interval_ms) for _, part in parts)
        )
        if lane.is_late or any(
            part.look_ms is not None and now_ms >= part.look_ms for _, part in parts
        ):
            return self._renew
        if is_due and any(part.has_marked(renewals=True) for _, part in parts):
            return self._renew
        wants = lane.wanted and self._reader.wait_ms(now_ms) is not None
        if wants and self._settings.acquire == "records":
            wants = not any(other.is_fetching for other in self.lanes.values())
        # What is not fetched any more goes alone: it would be fetched again.
        is_elsewhere = any(
            part.has_marked(renewals=False) and key not in lane.wanted for key, part in parts
        )
        if wants and not is_elsewhere:
            return self._fetch
        if (is_due or wants) and any(part.has_marked(renewals=False) for _, part in parts):
            return self._acknowledge
        return None

    # Questions.

    def _renew(self, lane: Lane, node: Node, now_ms: int) -> None:
        said = lane.take_marked(renewals=True)
        is_late, lane.is_late = lane.is_late and self._reader.may_renew(now_ms), False
        for key, part in lane.acquired.items():
            if part.look_ms is not None and (is_late or now_ms >= part.look_ms):
                due = part.due_renewals(now_ms)
                part.looked(now_ms)
                if due:
                    said.setdefault(key, {}).update(due)
        connection = node.connection
        assert connection is not None, "only a ready node is sent to"
        version = connection.version_for(ApiKey.SHARE_ACKNOWLEDGE)
        if said and (version is None or version < RENEWALS_SINCE):
            why = UnsupportedByBroker("this broker cannot renew the locks of records")
            self._refuse(lane, said, why, now_ms)
            return
        if said:
            self._send_acknowledge(lane, node, said, now_ms, is_renewal=True)
        elif (question := self._question(lane, now_ms)) is not None:
            question(lane, node, now_ms)

    def _acknowledge(self, lane: Lane, node: Node, now_ms: int) -> None:
        self._send_acknowledge(lane, node, lane.take_marked(renewals=False), now_ms)

    def _send_acknowledge(
        self,
        lane: Lane,
        node: Node,
        said: dict[Key, dict[int, Kind]],
        now_ms: int,
        *,
        is_renewal: bool = False,
    ) -> None:
        request = lane.session.acknowledge(said, is_renewal=is_renewal)
        lane.is_asked = True
        self._engine.network.request(
            node,
            request,
            partial(self._acknowledged, lane, said),
            now_ms=now_ms,
            deadline_ms=now_ms + self._engine.settings.request_timeout_ms,
        )

    def _fetch(self, lane: Lane, node: Node, now_ms: int) -> None:
        wait_ms = self._reader.wait_ms(now_ms)
        assert wait_ms is not None, "somebody wants records"
        opens = (part.open_ms_max(now_ms) for part in lane.acquired.values())
        wait_ms = min([wait_ms, *(open_ms for open_ms in opens if open_ms is not None)])
        if self._settings.acquire == "records":  # the others wait for it, too
            wait_ms //= sum(bool(each.wanted) for each in self.lanes.values())
        said = lane.take_marked(renewals=False) if lane.session.epoch else {}
        request = lane.session.fetch(lane.wanted, said, wait_ms=wait_ms)
        lane.connection = node.connection
        lane.is_asked = lane.is_fetching = True
        self.lanes[lane.node_id] = self.lanes.pop(lane.node_id)  # behind all others
        self._engine.network.request(
            node,
            request,
            partial(self._fetched, lane, said, dict(lane.wanted)),
            now_ms=now_ms,
            deadline_ms=now_ms + self._engine.settings.request_timeout_ms,
        )

    # Answers.

    def _acknowledged(
        self, lane: Lane, said: dict[Key, dict[int, Kind]], reply: Reply, now_ms: int
    ) -> None:
        lane.is_asked = False
        self._now_ms = now_ms
        if not self._goes_on(lane, said, reply, now_ms):
            return
        assert isinstance(reply, ShareAcknowledgeResponse)
        left = dict(said)
        for topic in reply.responses:
            for row in topic.partitions:
                key = topic.topic_id, row.partition_index
                mine = left.pop(key, None)
                if mine is not None:
                    lock_ms = reply.acquisition_lock_timeout_ms
                    self._settle(
                        lane, key, mine, row.error_code, row.error_message, lock_ms, now_ms
                    )
        self._unanswered(lane, left, now_ms)
        self._is_well(lane, now_ms)

    def _fetched(
        self,
        lane: Lane,
        said: dict[Key, dict[int, Kind]],
        asked: dict[Key, TopicPartition],
        reply: Reply,
        now_ms: int,
    ) -> None:
        lane.is_asked = lane.is_fetching = False
        self._now_ms = now_ms
        if not self._goes_on(lane, said, reply, now_ms):
            return
        assert isinstance(reply, ShareFetchResponse)
        left = dict(said)
        lock_ms = reply.acquisition_lock_timeout_ms
        for topic in reply.responses:
            for row in topic.partitions:
                key = topic.topic_id, row.partition_index
                mine = left.pop(key, None)
                if mine is not None:
                    self._settle(
                        lane,
                        key,
                        mine,
                        row.acknowledge_error_code,
                        row.acknowledge_error_message,
                        lock_ms,
                        now_ms,
                    )
                if key in asked:
                    self._take(lane, key, asked.pop(key), row, lock_ms, now_ms)
        for key in asked:  # of what there is nothing to say all is well with it
            self._troubles.pop(key, None)
        self._unanswered(lane, left, now_ms)
        self._is_well(lane, now_ms)

    @staticmethod
    def _is_well(lane: Lane, now_ms: int) -> None:
        """Behind an answer: nothing in it has to be said again after a while."""
        if lane.retry_at_ms <= now_ms:
            lane.trouble.over()

    def _goes_on(
        self, lane: Lane, said: dict[Key, dict[int, Kind]], reply: Reply, now_ms: int
    ) -> bool:
        """Whether the session does; what else there is to it."""
        error: SegbrokerError | None = None
        if isinstance(reply, SegbrokerError):
            error = reply
            self._engine.cluster.invalidate()
        else:
            self._reader.answered()
            assert isinstance(reply, ShareFetchResponse | ShareAcknowledgeResponse)
            if reply.error_code != ErrorCode.NONE:
                about = f"share group {self._settings.group_id!r}, broker {lane.node_id}"
                error = broker_error(reply.error_code, about, reply.error_message)
        if error is None:
            lane.session.answered()
            return True
        self._refuse(lane, said, error, now_ms)
        self._lose(lane, error)
        is_long = lane.trouble.failed(now_ms)
        lane.retry_at_ms = lane.trouble.until_ms
        code = None if isinstance(reply, SegbrokerError) else ErrorCode.of(reply.error_code)
        if code in _GONE:
            self._engine.cluster.invalidate()
        if is_long or not (error.retryable or code in _PASSING):
            self._reader.fail(error)
        return False

    def _settle(
        self,
        lane: Lane,
        key: Key,
        said: dict[int, Kind],
        code: int,
        message: str | None,
        lock_ms: int,
        now_ms: int,
    ) -> None:
        """What became of what was said of a partition."""
        part = lane.acquired.get(key)
        if part is None:
            return
        if code == ErrorCode.NONE:
            if lock_ms > 0:
                part.lock_ms = lock_ms
            part.settled(said, now_ms)
            return
        error = broker_error(code, f"{part.tp.topic}-{part.tp.partition}", message)
        if ErrorCode.of(code) in _GONE:
            self._engine.cluster.invalidate()
            self._reader.told(part.refused(said, error, now_ms))
            self._lose_part(part, error)
        elif error.retryable and part.again(said, now_ms):
            lane.trouble.failed(now_ms)
            lane.retry_at_ms = lane.trouble.until_ms
        else:
            self._refuse(lane, {key: said}, error, now_ms)

    def _refuse(
        self, lane: Lane, said: dict[Key, dict[int, Kind]], error: SegbrokerError, now_ms: int
    ) -> None:
        for key, mine in said.items():
            part = lane.acquired.get(key)
            if part is not None:
                self._reader.told(part.refused(mine, error, now_ms))

    def _unanswered(self, lane: Lane, left: dict[Key, dict[int, Kind]], now_ms: int) -> None:
        if left:
            why = PeerError(f"broker {lane.node_id} did not say what became of it")
            self._refuse(lane, left, why, now_ms)

    def _take(
        self,
        lane: Lane,
        key: Key,
        tp: TopicPartition,
        row: ShareFetchResponsePartition,
        lock_ms: int,
        now_ms: int,
    ) -> None:
        code = ErrorCode.of(row.error_code)
        if code == ErrorCode.NONE:
            self._troubles.pop(key, None)
            if row.acquired_records:
                self._reader.take_in(lane.part(key, tp), row, lock_ms, now_ms)
            return
        error = broker_error(row.error_code, f"{tp.topic}-{tp.partition}", row.error_message)
        is_long = self._troubles.setdefault(key, self._new_trouble()).failed(now_ms)
        if code in LEADER_CODES | _GONE:
            self._engine.cluster.invalidate()
        if code in _GONE:
            part = lane.acquired.get(key)
            if part is not None:
                self._lose_part(part, error)
        if is_long or not (error.retryable or code in _PASSING):
            self._reader.fail(error)

    def _lose_part(self, part: Acquired, error: SegbrokerError) -> None:
        self._reader.told(part.lost(error))

    def _lose(self, lane: Lane, error: SegbrokerError) -> None:
        """The session is over, and every lock with it."""
        lane.session.begin_anew()
        lane.connection = None
        for part in lane.acquired.values():
            self._lose_part(part, error)
        lane.forget_idle()

"""A member of a consumer group by the classic protocol: joining, the heartbeat, leaving.

    OUT --enter--> DUE --holder is prepared--> JOINING ------------> STABLE --rejoin--> DUE
     ^              |                          JoinGroup, SyncGroup   |
     +----leave-----+<------- refused: lost, or try again ------------+   heartbeats in DUE, STABLE

The leader of the group assigns the partitions (see assignors), and looks whether topics have more
of them by now, or were deleted.  One that is static and came back is told to leave them as they
are: it asks what was dealt out, and goes on from that.  The *holder* is the part that reads: it
says which partitions the member has, gives them up when it must, and takes over those that the
member was given.

    strategy      before joining              what is taken away
    eager         all is given up             everything, always
    cooperative   nothing                     is given up, then the member joins once more

A group takes the strategy that all members support and most prefer.  So the strategy changes when a
member joins that knows only eager ones.  At that moment other members still have partitions that
are about to be assigned to somebody else: they do not ask for their share, but give up everything
and join again.

Invariants: one join request at a time; answers that belong to an earlier membership are dropped;
heartbeats go on whatever the caller of the consumer does, also while the holder gives up
partitions.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from segbroker.protocol.consumer_protocol import assigned_partitions, encode_assignment
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

from .assignors import GroupMemberInfo, deal_out, is_cooperative, member_info, subscription_bytes
from .backoff import Backoff
from .completion import Completion
from .coordinator import GROUP_KEY, Coordinator
from .engine import Call, Engine, Pause, Refresh
from .errors import (
    BrokerError,
    IllegalGeneration,
    PeerError,
    RebalanceInProgress,
    SegbrokerError,
    UnknownMemberId,
    as_told,
    check_code,
)
from .group_offsets import GroupMetadata
from .membership import Goodbye, Holder, Phase
from .network import CONTROL, GROUP
from .records import TopicPartition
from .refusals import of_joining
from .settings import GroupSettings
from .whole_share import Standing, WholeShare, assigned_in, is_all_assigned

PROTOCOL_TYPE = "consumer"
# What a broker may take beyond the time that it gives the members to join.
JOIN_GRACE_MS = 10_000
# Refusals in a row after which a member joins again at once; then it takes its time.
REFUSALS_MAX = 3


class ClassicMembership:
    """See the module.  A component of the engine."""

    def __init__(self, engine: Engine, settings: GroupSettings, holder: Holder) -> None:
        self.phase = Phase.OUT
        self.generation = -1
        self.member_id = ""
        self.protocol: str | None = None
        self.coordinator = Coordinator(engine, settings.group_id, GROUP_KEY)
        # Why the member last wanted to join, for the broker's log.
        self.reason = "first join"
        self._engine = engine
        self._settings = settings
        self._holder = holder
        self._given: tuple[TopicPartition, ...] = ()
        self._backoff = engine.backoff()
        self._join_due_ms = 0
        # Not before this it tries again behind a refusal that does not pass, however often it is
        # told to.
        self._again_ms = 0
        # Since when it tries to join, if it does; and how often it was refused since.
        self._trying_since_ms: int | None = None
        self._refusals = 0
        self._heartbeat_due_ms = 0
        self._is_beating = False
        # What is on its way to the group says something that is not true any more.
        self._is_stale = False
        # Counts memberships: answers to what an earlier one asked are dropped.
        self._era = 0
        self._kept_out = of_joining(settings.group_id, engine.network.absences.say)
        # As leader: how many partitions of each topic were dealt out; or the topics of which it
        # has to ask that, as the leader before has dealt them out.
        self._dealt_by: dict[str, int] = {}
        self._dealt_before: set[str] = set()
        # ... the topics of all members.
        self.watched: set[str] = set()
        self._now_ms = 0
        self._share = WholeShare(
            engine,
            self._is_all_assigned,
            answered=self._heard_of_share,
        )
        engine.components.append(self)
        engine.cluster.on_update.append(self._cluster_updated)

    # What the consumer says.

    @property
    def metadata(self) -> GroupMetadata:
        settings = self._settings
        return GroupMetadata(
            settings.group_id, self.generation, self.member_id, settings.instance_id
        )

    @property
    def asks_as(self) -> GroupMetadata:
        return GroupMetadata(self._settings.group_id)

    @property
    def is_given(self) -> bool:
        return self.phase is Phase.STABLE

    def has_all(self) -> bool:
        return self._share.is_whole(self._standing)

    @property
    def _standing(self) -> Standing:
        return Standing(self.member_id, self.generation)

    def _is_all_assigned(self, standing: Standing) -> Call[bool]:
        topics = self._engine.cluster.topics
        wanted = [topics[name] for name in self._holder.topics() if name in topics]
        partitions = [(view.name, n) for view in wanted for n in range(view.dealt_count)]
        given = [(topics[name].topic_id, n) for name, n in self._given if name in topics]
        return is_all_assigned(
            self.coordinator,
            standing,
            partitions,
            given,
            is_late=lambda: self._share.has_asked_for(self._settings.rebalance_timeout_ms),
        )

    def _heard_of_share(self, is_whole: bool) -> None:
        if not is_whole:
            self._heartbeat_due_ms = self._now_ms  # that it has to join it hears by that
        self._holder.settled()

    @property
    def is_cooperative(self) -> bool:
        """Whether the present generation lets members keep what they have while joining."""
        return self.protocol is None or is_cooperative(self.protocol)

    def enter(self, *, not_before_ms: int = 0) -> None:
        """Be a member from now on, or from then on."""
        if self.phase is Phase.OUT:
            self.phase = Phase.DUE
            self._join_due_ms = max(self._again_ms, not_before_ms)

    def rejoin(self, reason: str) -> None:
        """Join once more: something has changed that the others must know of."""
        if self.phase is Phase.STABLE:
            self.phase = Phase.DUE
            self._join_due_ms = 0
            self.reason = reason
        elif self.phase is Phase.JOINING:
            # What is on its way does not say it: once more behind it.
            self._is_stale = True
            self.reason = reason

    def end(self, reason: str) -> Goodbye:
        """See Membership."""
        was_member = self.member_id and self._settings.instance_id is None
        request = self._leaving(self.member_id, reason)
        self._end(Phase.OUT)
        self.member_id = ""
        return partial(self._say_goodbye, request if was_member else None)

    def _leaving(self, member_id: str, reason: str) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=self._settings.group_id,
            member_id=member_id,
            members=[LeaveGroupRequestMember(member_id=member_id, reason=reason[:255])],
        )

    def _say_goodbye(self, request: LeaveGroupRequest | None, lane: str = CONTROL) -> Call[None]:
        if request is not None:
            yield from self.coordinator.ask(request, lane=lane, repeat=False)

    # The engine's side.

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        is_due = self.phase is Phase.DUE and now_ms >= self._join_due_ms
        if is_due and self._holder.prepare(now_ms, cooperative=self.is_cooperative):
            self._join(now_ms)
        if self._has_to_beat and now_ms >= self._heartbeat_due_ms:
            self._beat(now_ms)
        if self.phase is Phase.STABLE and self._share.is_due(now_ms):
            self._share.ask(self._standing, now_ms)

    def next_wake_ms(self) -> int | None:
        wakes = []
        if self.phase is Phase.DUE and self._join_due_ms > self._now_ms:
            wakes.append(self._join_due_ms)
        if self._has_to_beat:
            wakes.append(self._heartbeat_due_ms)
        if self.phase is Phase.STABLE and (asks_ms := self._share.next_wake_ms) is not None:
            wakes.append(asks_ms)
        return min(wakes, default=None)

    @property
    def _has_to_beat(self) -> bool:
        is_in = self.phase in (Phase.DUE, Phase.STABLE) and self.generation >= 0
        return is_in and not self._is_beating

    def close(self, error: SegbrokerError) -> None:
        self._end(Phase.OUT)

    def _end(self, phase: Phase) -> None:
        if phase is Phase.OUT:
            self._kept_out.over()
        self.phase = phase
        self.generation = -1
        self._era += 1
        self._is_beating = False

    # Joining.

    @property
    def _patience_ms(self) -> int:
        """How long joining may take: the others have their time, too."""
        return self._settings.rebalance_timeout_ms * 2 + self._engine.settings.api_timeout_ms

    def _join(self, now_ms: int) -> None:
        self.phase = Phase.JOINING
        self._is_stale = False
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms
        era = self._era
        engine = self._engine
        call = engine.call(
            self._join_and_sync(era),
            now_ms,
            timeout_ms=self._patience_ms,
        )
        call.on_done(lambda: self._joined(era, call))

    def _joined(self, era: int, call: Completion[Sequence[TopicPartition] | None]) -> None:
        if era != self._era:
            return
        if call.error is not None:
            self._refused(call.error)
            return
        given = call.result()
        self._backoff.reset()
        self._kept_out.done(self._now_ms)
        self._trying_since_ms = None
        self._refusals = 0
        self._heartbeat_due_ms = self._now_ms + self._settings.heartbeat_interval_ms
        if given is None:
            # The group is an eager one by now, and this member still has something.
            self.phase = Phase.DUE
            self._join_due_ms = 0
            self.reason = "the group became eager"
            return
        self.phase = Phase.STABLE
        self._given = tuple(given)
        self._holder.take_over(given, self._now_ms)
        if self._is_stale:
            self.rejoin(self.reason)
        if self._dealt_before and self.phase is Phase.STABLE:
            self._look_what_was_dealt_out()
        self._cluster_updated()

    def _join_and_sync(self, era: int) -> Call[Sequence[TopicPartition] | None]:
        """What the member was given; None: it has to give up all first, and join again.

        A membership that ended meanwhile learns nothing from the answers.
        """
        settings = self._settings
        joined = yield from self._ask_to_join(era)
        if joined is None:
            return None
        self.generation = joined.generation_id
        self.member_id = joined.member_id
        self.protocol = joined.protocol_name
        if self.protocol is None or self.protocol not in settings.assignors:
            raise PeerError(
                f"group {settings.group_id!r} has taken the strategy {self.protocol!r}, which this"
                " member did not offer"
            )
        if not is_cooperative(self.protocol) and self._holder.owned():
            return None
        assignments: list[SyncGroupRequestAssignment] = []
        self._dealt_by = {}
        self._dealt_before = set()
        self.watched = set()
        is_leader = joined.leader == joined.member_id
        if is_leader and joined.skip_assignment:
            members = _members(self.protocol, joined)
            self._dealt_before = self.watched = _topics_of(members)
        elif is_leader:
            assignments = yield from self._deal_out(self.protocol, joined)
            if era != self._era:
                return None
        reply = yield from self.coordinator.ask(
            SyncGroupRequest(
                group_id=settings.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=settings.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=self.protocol,
                assignments=assignments,
            ),
            lane=GROUP,
            timeout_ms=settings.rebalance_timeout_ms + JOIN_GRACE_MS,
            repeat=False,
            refused=self._is_refused,
        )
        assert isinstance(reply, SyncGroupResponse)
        self._check(reply.error_code, "sync")
        pairs = assigned_partitions(reply.assignment) if reply.assignment else []
        given = [TopicPartition(*pair) for pair in pairs or ()]
        self._want({tp.topic for tp in given})
        return given

    def _ask_to_join(self, era: int) -> Call[JoinGroupResponse | None]:
        """The answer; None: the membership has ended, and the group was told so."""
        settings = self._settings
        while True:
            request = JoinGroupRequest(
                group_id=settings.group_id,
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=settings.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=self._says(name))
                    for name in settings.assignors
                ],
                reason=self.reason[:255],
            )
            reply = yield from self.coordinator.ask(
                request,
                lane=GROUP,
                timeout_ms=settings.rebalance_timeout_ms + JOIN_GRACE_MS,
                repeat=False,
                # Behind the join of another membership it would take the instance away from that.
                is_wanted=lambda: era == self._era,
                refused=self._is_refused,
            )
            assert isinstance(reply, JoinGroupResponse)
            if era != self._era:
                if reply.member_id and settings.instance_id is None:
                    # The group would wait for this one until its session ends.
                    yield from self._say_goodbye(self._leaving(reply.member_id, self.reason))
                return None
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED and reply.member_id:
                self.member_id = reply.member_id
                # The group keeps the name for a session: it is to be there before that.
                yield Pause(min(self._pause_ms(), settings.session_timeout_ms // 2))
                continue
            limits = f"session_timeout_ms={settings.session_timeout_ms}"
            known = ", ".join(settings.assignors)
            self._check(reply.error_code, f"join with {limits}, assignors {known}")
            return reply

    def _says(self, assignor: str) -> bytes:
        holder = self._holder
        return subscription_bytes(
            assignor, holder.topics(), holder.owned(), self.generation, self._given
        )

    def _deal_out(
        self, protocol: str, joined: JoinGroupResponse
    ) -> Call[list[SyncGroupRequestAssignment]]:
        members = _members(protocol, joined)
        topics = self.watched = _topics_of(members)
        cluster = self._engine.cluster
        self._want(topics)
        backoff = Backoff(self._engine.random, 20, 500)
        # Kept here: a call of the caller's that asks for one of them may forget it.
        views = [cluster.topics[name] for name in topics]
        while not all(view.is_settled for view in views):
            yield Refresh()
            yield Pause(backoff.next_delay_ms())
        counts = {view.name: view.dealt_count for view in views}
        self._dealt_by = counts
        dealt = deal_out(protocol, members, counts)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(given))
            for member_id, given in dealt.items()
        ]

    def _want(self, topics: set[str]) -> None:
        """Raises SegbrokerError where they are more than a client works with."""
        try:
            self._engine.cluster.want(topics)
        except ValueError as exc:
            raise SegbrokerError(f"group {self._settings.group_id!r}: {exc}") from exc

    def _look_what_was_dealt_out(self) -> None:
        """By the leader before, perhaps before partitions came that nobody has.  Beside all else:
        the member has what it was given, and lives, whatever is answered, and when."""
        try:
            self._want(self._dealt_before)
        except SegbrokerError:
            return  # nobody sees whether they grow
        era, generation = self._era, self.generation
        call = self._engine.call(self._dealt_out(), self._now_ms)
        call.on_done(lambda: self._dealt_out_before(era, generation, call))

    def _dealt_out(self) -> Call[Counter[str]]:
        request = DescribeGroupsRequest(groups=[self._settings.group_id])
        reply = yield from self.coordinator.ask(request)
        assert isinstance(reply, DescribeGroupsResponse)
        return Counter(topic for group in reply.groups for topic, _ in assigned_in(group))

    def _dealt_out_before(self, era: int, generation: int, call: Completion[Counter[str]]) -> None:
        if (era, generation) != (self._era, self.generation) or self.phase is not Phase.STABLE:
            return  # it joins once more, or has
        # Where it is not said, nothing was: it is dealt out anew.
        counts = Counter[str]() if call.error is not None else call.result()
        self._dealt_by = {topic: counts[topic] for topic in self._dealt_before}
        self._cluster_updated()

    def _cluster_updated(self, asked: Collection[str] = ()) -> None:
        """As leader: partitions came, or a topic went or came."""
        topics = self._engine.cluster.topics
        for name, count in self._dealt_by.items():
            view = topics.get(name)
            if view is not None and view.is_settled and view.dealt_count != count:
                self._dealt_by = {}
                self.rejoin(f"topic {name} has {view.dealt_count} partitions")
                return

    # Being alive.

    def _beat(self, now_ms: int) -> None:
        self._is_beating = True
        era, generation = self._era, self.generation
        call = self._engine.call(self._heartbeat(), now_ms)
        call.on_done(lambda: self._beaten(era, generation, call))

    def _heartbeat(self) -> Call[None]:
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.instance_id,
        )
        reply = yield from self.coordinator.ask(request, lane=GROUP)
        assert isinstance(reply, HeartbeatResponse)
        self._check(reply.error_code, "heartbeat")

    def _beaten(self, era: int, generation: int, call: Completion[None]) -> None:
        if era != self._era:
            return
        self._is_beating = False
        self._heartbeat_due_ms = self._now_ms + self._settings.heartbeat_interval_ms
        if generation != self.generation:
            return  # sent again after a lost connection, and refused: the member is further by now
        # While joining, the answer to that says all there is to say.
        if call.error is not None and self.phase in (Phase.DUE, Phase.STABLE):
            self._refused(call.error)

    # Refusals.

    def _check(self, code: int, what: str) -> None:
        check_code(code, f"group {self._settings.group_id!r}, {what}")

    def _is_refused(self, why: SegbrokerError) -> None:
        if self.phase is Phase.JOINING:
            self._kept_out.refused(why, self._now_ms)

    def _refused(self, error: BaseException) -> None:
        """Joining, or a heartbeat, failed: what of it is the end of something."""
        now_ms = self._now_ms
        match error:
            case RebalanceInProgress():
                if self.phase is Phase.STABLE:
                    self.rejoin("the group is rebalancing")
                elif self.phase is Phase.JOINING:
                    self._again(self._pause_ms())
                    self._notice_time(error)
            case UnknownMemberId() | IllegalGeneration():
                if isinstance(error, UnknownMemberId):
                    self.member_id = ""
                self._end(Phase.DUE)
                self.protocol = None
                self.reason = "given up by the group"
                self._join_due_ms = now_ms + self._pause_ms()
                self._given = ()
                self._holder.lost(now_ms)
                self._notice_time(error)
            case SegbrokerError() if error.retryable:
                self.coordinator.forget()
                self._again(self._backoff.next_delay_ms())
                self._notice_time(error)
            case _:
                self._again_ms = now_ms + self._backoff.next_delay_ms()
                member_id = self.member_id
                goodbye = self.end(str(error))
                if isinstance(error, BrokerError):
                    # A group that refuses has not given the member up: once it may, it is that one
                    # again, and nobody waits for a session to end.
                    self.member_id = member_id
                else:
                    self._engine.call(goodbye(CONTROL), now_ms)
                self._holder.lost(now_ms)
                self._holder.failed(as_told(error))

    def _pause_ms(self) -> int:
        """Before joining after a refusal that is part of how a group works: none at first."""
        self._refusals += 1
        return 0 if self._refusals <= REFUSALS_MAX else self._backoff.next_delay_ms()

    def _notice_time(self, error: SegbrokerError) -> None:
        """Tell the caller what has kept it out for so long; it goes on trying."""
        since_ms = self._trying_since_ms
        if since_ms is not None and self._now_ms >= since_ms + self._patience_ms:
            self._trying_since_ms = self._now_ms
            self._holder.kept_out(error)

    def _again(self, delay_ms: int) -> None:
        if self.phase is Phase.JOINING:
            self.phase = Phase.DUE
            self._join_due_ms = self._now_ms + delay_ms


def _topics_of(members: Iterable[GroupMemberInfo]) -> set[str]:
    return {topic for member in members for topic in member.topics}


def _members(protocol: str, joined: JoinGroupResponse) -> list[GroupMemberInfo]:
    """Who is in the group, as its leader is told."""
    return [
        member_info(protocol, row.member_id, row.group_instance_id, row.metadata)
        for row in joined.members
    ]

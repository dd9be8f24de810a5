"""A member of a consumer group by the protocol of KIP-848: the group's broker assigns.

    JOINING --given--> RECONCILING --the holder has that, which is said--> STABLE --given--> ...
       ^                    |                                                 |
       +------ lost --------+-- unknown to the group, or at another epoch ----+

All is said and heard by heartbeats (see heartbeating): the first, and one after an error, say
everything, the others what has changed.  Only when the holder has nothing left of what it has to
give up is that said, and not before may the broker give it to others; so what it gives this member
is free.  As long as that takes, a partition stays the member's own, up to the rebalance timeout
that the member has told.

    epoch            by which it commits; rises with each target that it has taken up
    what is given    partitions by the ids of their topics: those of which no name is known yet
                     are asked for again, and taken over when it is

The member's id is its own as long as its group knows it; who leaves, or is not known any more,
comes back as another one.

Invariants: as in heartbeating; one thing that was given at a time, the last.
Source: KIP-848; ConsumerMembershipManager and ConsumerHeartbeatRequestManager of Apache Kafka 4.3.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    GroupTopicPartitions,
)

from .engine import Call, Engine
from .errors import FencedMemberEpoch, SegbrokerError
from .group_offsets import GroupMetadata
from .heartbeating import JOIN_EPOCH, LEAVE_EPOCH, Given, HeartbeatingMember, Stage
from .membership import Goodbye, Holder, Phase
from .network import GROUP
from .records import TopicPartition, grouped
from .settings import ON_WIRE_MAX, GroupSettings
from .whole_share import Standing, WholeShare, is_target_reached

LEAVE_FOR_A_WHILE_EPOCH: Final = -2


class ConsumerMembership(HeartbeatingMember):
    """See the module."""

    kind = "group"
    absence = 'this broker has no groups of group_protocol="consumer"; "classic" is served by all'
    is_cooperative = True
    watched: frozenset[str] = frozenset()

    def __init__(self, engine: Engine, settings: GroupSettings, holder: Holder) -> None:
        super().__init__(engine, settings.group_id)
        self._settings = settings
        self._holder = holder
        self._saying: Sequence[str] = ()
        self._said: Sequence[str] = ()
        # What it was given last; what of it the holder knows, by name; and what it had before.
        self._given: Given = ()
        self._taken: dict[TopicPartition, UUID] = {}
        self._had: Mapping[TopicPartition, UUID] = {}
        # It is to be said that the holder has that, or is being said.
        self._owes_answer = False
        self._answers = False
        # Topics of it whose names are not known, and when these are looked for again.
        self._nameless: frozenset[UUID] = frozenset()
        self._looking = engine.backoff(10_000)
        self._look_ms: int | None = None
        self._share = WholeShare(
            engine,
            lambda standing: is_target_reached(self.coordinator, standing, self._given),
            answered=self._heard_of_share,
        )
        engine.cluster.on_update.append(self._cluster_updated)

    # What the consumer says.

    @property
    def phase(self) -> Phase:
        if self.stage is Stage.IN:
            # Who subscribes anew is given what goes with that when it has said so.
            is_settled = not self._owes_answer and not self._nameless and self._has_said_topics
            return Phase.STABLE if is_settled else Phase.RECONCILING
        return Phase.OUT if self.stage is Stage.OUT else Phase.JOINING

    @property
    def generation(self) -> int:
        return self.epoch if self.epoch > JOIN_EPOCH else -1

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(
            self.group_id, self.generation, self.member_id, self._settings.instance_id
        )

    @property
    def asks_as(self) -> GroupMetadata:
        return self.metadata

    @property
    def is_given(self) -> bool:
        return self.stage is Stage.IN

    def has_all(self) -> bool:
        return self._share.is_whole(self._standing)

    @property
    def _standing(self) -> Standing:
        return Standing(self.member_id, self.epoch)

    def _heard_of_share(self, is_whole: bool) -> None:
        if is_whole:
            self._empty.reset()
        elif self.stage is Stage.IN:
            # There is more to come, or was a moment ago.
            self._due_ms = min(self._due_ms, self._now_ms + self._empty.next_delay_ms())
        self._holder.settled()

    def rejoin(self, reason: str) -> None:
        """Something has changed that the group must know of: it is said at once."""
        if self.stage is Stage.IN and self._has_more_to_say:
            self._hurry()

    def end(self, reason: str) -> Goodbye:
        """See Membership."""
        is_joining = self.epoch == JOIN_EPOCH
        is_static = self._settings.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_FOR_A_WHILE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self._settings.instance_id,
        )
        may_be_known = self._may_be_known
        self._end()
        self._forget()
        self.member_id = self._new_id()

        def goodbye(lane: str) -> Call[None]:
            if may_be_known:
                # Behind a join that is on its way, not past it.
                yield from self._say_goodbye(request, GROUP if is_joining else lane)

        return goodbye

    # What it says.

    def _beat(self) -> ConsumerGroupHeartbeatRequest | None:
        settings, holder = self._settings, self._holder
        is_joining, says_all = self.epoch == JOIN_EPOCH, self._says_all
        if is_joining and not holder.prepare(self._now_ms, cooperative=True):
            return None
        topics = self._saying = sorted(holder.topics())
        is_new = is_joining or topics != self._said
        if is_new:
            self._subscribes_anew()
            self._share.forget()
        self._answers = self._can_answer
        has: Mapping[TopicPartition, UUID] | None = None
        if is_joining:
            has = {}
        elif self._answers:
            has = self._taken
        elif says_all:
            known = {**self._had, **self._taken}
            has = {tp: known[tp] for tp in holder.owned()}
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=settings.instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms(settings) if says_all else -1,
            subscribed_topic_names=topics if is_new or says_all else None,
            server_assignor=settings.group_remote_assignor if says_all else None,
            topic_partitions=None if has is None else _by_topic(has),
        )

    @property
    def _can_answer(self) -> bool:
        """Whether the holder has what was given, and nothing else, which was not said yet."""
        if not self._owes_answer:
            return False
        return list(self._holder.owned()) == sorted(self._taken)

    @property
    def _has_said_topics(self) -> bool:
        return self._said == sorted(self._holder.topics())

    @property
    def _has_more_to_say(self) -> bool:
        return not self._has_said_topics or self._can_answer

    # What it is told.

    def _answered(self, given: Given | None) -> None:
        self._said = self._saying
        if self._answers:
            self._owes_answer = self._answers = False
        self._holder.settled()  # it may be by this, also where it is given what it has
        if given is not None:
            self._given = given
            self._share.forget()
            self._owes_answer = True
            self._looking.reset()
            self._take_over()

    def _take_over(self) -> None:
        """Have the holder go over to what was given, as far as its topics are known by name."""
        self._had = {**self._had, **self._taken}
        # What it has keeps its name, which another topic may have by now: the group says when.
        names = {topic_id: tp.topic for tp, topic_id in self._had.items()}
        names |= {view.topic_id: name for name, view in self._engine.cluster.topics.items()}
        taken = {
            TopicPartition(names[topic_id], partition): topic_id
            for topic_id, partition in self._given
            if topic_id in names
        }
        self._nameless = frozenset(one for one, _ in self._given if one not in names)
        self._answers = False  # what is being said is not of this
        self._look_ms = None
        if self._nameless:
            self._look_ms = self._now_ms + self._looking.next_delay_ms()
        self._taken = taken
        self._holder.take_over(list(taken), self._now_ms)
        owned = self._holder.owned()
        self._had = {tp: self._had[tp] for tp in owned if tp not in taken}

    def _cluster_updated(self, asked: Collection[str]) -> None:
        topics = self._engine.cluster.topics.values()
        if self._nameless and any(view.topic_id in self._nameless for view in topics):
            self._owes_answer = True
            self._take_over()
            self.rejoin("topics are known by name")

    def step(self, now_ms: int) -> None:
        if self._look_ms is not None and now_ms >= self._look_ms:
            self._look_ms = now_ms + self._looking.next_delay_ms()
            self._engine.cluster.invalidate()
        super().step(now_ms)
        if self._may_ask and self._share.is_due(now_ms):
            self._share.ask(self._standing, now_ms)

    @property
    def _may_ask(self) -> bool:
        return self.phase is Phase.STABLE and not self._is_beating

    def next_wake_ms(self) -> int | None:
        asks_ms = self._share.next_wake_ms if self._may_ask else None
        wakes = (self._look_ms, asks_ms, super().next_wake_ms())
        return min((wake for wake in wakes if wake is not None), default=None)

    def _forget(self) -> None:
        """It has nothing any more."""
        self._given, self._taken, self._had = (), {}, {}
        self._nameless, self._look_ms = frozenset(), None
        self._owes_answer = self._answers = False

    def _join_again(self, error: SegbrokerError) -> None:
        if not isinstance(error, FencedMemberEpoch):
            self.member_id = self._new_id()  # what it was is somebody that the group has given up
        super()._join_again(error)

    def _notice_time(self, error: SegbrokerError) -> None:
        if self.epoch == JOIN_EPOCH:  # who is in reads on, and hears of it by that
            super()._notice_time(error)

    def _lost(self) -> None:
        self._forget()
        self._holder.lost(self._now_ms)

    def _tell(self, error: SegbrokerError) -> None:
        self._holder.kept_out(error)

    def _failed(self, error: SegbrokerError) -> None:
        self._holder.failed(error)


def rebalance_timeout_ms(settings: GroupSettings) -> int:
    """How long the member may take to give up partitions before the group gives it up.

    As long as the caller may be away, then on_revoked and the last commit have their time.  Where
    it may be away for ever, for what is as good as that: a job in hand costs no partition.
    """
    if settings.max_poll_interval_ms is None:
        return ON_WIRE_MAX
    return min(ON_WIRE_MAX, settings.max_poll_interval_ms + settings.rebalance_timeout_ms)


def _by_topic(
    partitions: Mapping[TopicPartition, UUID],
) -> list[GroupTopicPartitions]:
    rows = grouped((topic_id, partition) for (_, partition), topic_id in partitions.items())
    return [
        GroupTopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in rows.items()
    ]

"""One share group (KIP-932): a state machine, time and topics passed in.

There is one request: a heartbeat, which joins (epoch 0), says that a member lives and what it is
subscribed to, and leaves (-1).  The broker says what each fetches from (share_assignor.py).
Several members may have one partition, so nobody waits until somebody else has let go: a member is
at the target with its next heartbeat.  What they are given of a partition is no matter of the group
(broker/shares).

    epoch              rises with every change of members, subscriptions or subscribed topics
    assignment_epoch   the epoch that the target was made for; made at the next heartbeat, in a
                       group larger than LARGE_MIN a second after the last (REST_MS): a thousand
                       members that join one after the other would take as many targets
    a member's epoch   the target that it has heard of; a request with another one is fenced

    EMPTY   nobody        STABLE   somebody

| refused with | who |
|---|---|
| 25 UNKNOWN_MEMBER_ID | is no member: it joins again |
| 110 FENCED_MEMBER_EPOCH | is at another epoch, and its last answer was not lost: it joins again |
| 81 GROUP_MAX_SIZE_REACHED | one too many |
| 15 COORDINATOR_NOT_AVAILABLE | uses an older connection than before: it asks again |

Members do not outlive the broker: nobody has anything alone, so nothing is lost when all join
again.

Invariants: epochs only rise; `due_ms` is never later than the next thing that has to happen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from segbroker.protocol.errors import ErrorCode

from ..loop.loop_clock import NEVER_MS
from ..refused import Refused
from . import group_news
from .consumer_members import Beat, Told
from .consumer_target import Topic, existing
from .epochal_group import EpochalGroup
from .group_news import Who
from .group_rounds import State
from .member_epochs import JOIN, LEAVE, MemberEpochs
from .server_assignors import Assignment, Partition, Subscriber, TopicId
from .share_assignor import simple

LARGE_MIN: Final = 250_000
"""Members, times members and partitions together: what it costs that all of them join."""
FIRST_EPOCH: Final = 1
"""Of a group that nobody was in yet, as in Kafka."""
_NOTHING: Final[tuple[Partition, ...]] = ()


@dataclass(slots=True, eq=False)
class ShareMember(MemberEpochs):
    """One member."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    assigned: tuple[Partition, ...] = _NOTHING
    session_ends_ms: int = 0

    @property
    def who(self) -> Who:
        """As it is told of."""
        return Who(self.member_id, None, self.client_id, self.client_host)

    def in_full(self, beat: Beat) -> Beat:
        """A heartbeat, and the rack that it leaves as it was."""
        return beat if beat.rack_id is not None else beat._replace(rack_id=self.rack_id)


@dataclass(slots=True, eq=False)
class ShareGroup(EpochalGroup[ShareMember]):
    """One group."""

    kind = "share"

    epoch: int = FIRST_EPOCH
    large_min: int = LARGE_MIN
    moving: int = 0
    """Changes of where it stands that are on their way to the disk: it stays until then."""
    _target: Assignment = field(default_factory=dict)
    _topics: Mapping[str, Topic] = field(default_factory=dict)
    _counts: dict[TopicId, int] = field(default_factory=dict)
    """Partitions of each topic that anybody is subscribed to."""
    _counted_of: tuple[set[frozenset[str]], Mapping[str, Topic]] | None = None
    """The different subscriptions, and the topics, that `_counts` is of."""
    _ids: dict[frozenset[str], frozenset[TopicId]] = field(default_factory=dict)
    """The topics of those who subscribe so, as far as a target was made of `_counts`."""

    @property
    def state(self) -> str:
        """Kafka's word for where the group stands."""
        return State.STABLE.value if self.members else State.EMPTY.value

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, and nothing is about to be written down of it."""
        return not self.members and not self.moving

    def heartbeat(self, now_ms: int, beat: Beat, topics: Mapping[str, Topic]) -> Told:
        """A member says that it lives; what it is told.  Raises Refused.

        topics: all that there are, by name; the same object as long as nothing changed.
        """
        if beat.epoch == LEAVE:
            self._drop(now_ms, [self._known(beat.member_id)], group_news.LEFT)
            return Told(beat.member_id, LEAVE)
        member = self._join(beat) if beat.epoch == JOIN else self._at_epoch(beat)
        member.check_connection(beat.connection)
        has_missed = beat.epoch != member.epoch
        is_new, resubscribed = not member.epoch, self._take_down(member, beat)
        if self._look(topics, resubscribed=resubscribed) or resubscribed:
            self.epoch += 1
            why = group_news.RESUBSCRIBED if resubscribed else group_news.OTHER_TOPICS
            self._tell_rise(group_news.CAME if is_new else why, member.who)
        if self.epoch != self.assignment_epoch:
            self._retarget(now_ms)
        before = member.assigned
        member.assigned = self._target.get(member.member_id, _NOTHING)
        member.move_to(self.assignment_epoch)
        member.session_ends_ms = now_ms + self.session_timeout_ms
        self.due_at(member.session_ends_ms)
        is_full = beat.names is not None
        if has_missed or is_full or before != member.assigned:
            return Told(member.member_id, member.epoch, member.assigned)
        return Told(member.member_id, member.epoch)

    def _join(self, beat: Beat) -> ShareMember:
        known = self.members.get(beat.member_id)
        if known is not None:
            return known  # its answer was lost, or it begins again: its place is its own
        self._check_place()
        member = self.members[beat.member_id] = ShareMember(beat.member_id)
        self._tell(group_news.JOINED, "", beat.who)
        return member

    def _at_epoch(self, beat: Beat) -> ShareMember:
        """Its epoch, or one that it may have been told last."""
        member = self._known(beat.member_id)
        if not member.may_be_at(beat.epoch):
            raise Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"member {member.member_id!r} is at epoch {member.epoch}, not {beat.epoch}",
            )
        member.said_epoch = beat.epoch
        return member

    def _take_down(self, member: ShareMember, beat: Beat) -> bool:
        """What a member says of itself; whether it is new, or subscribes to something else."""
        member.rack_id = member.in_full(beat).rack_id
        member.client_id, member.client_host = beat.client_id, beat.client_host
        is_new = not member.epoch
        if beat.names is None or (beat.names == member.names and not is_new):
            return False
        # One object for all who subscribe to the same; found by its hash, which is kept.
        known = {one.names: one.names for one in self.members.values()}
        member.names = known.get(beat.names, beat.names)
        return True

    def _look(self, topics: Mapping[str, Topic], *, resubscribed: bool) -> bool:
        """Look at the topics that there are; whether others are subscribed to, or of other sizes,
        than before."""
        if topics is self._topics and not resubscribed:
            return False
        self._topics = topics
        before = self._counts
        self._count()
        return before is not self._counts and before != self._counts

    def _count(self) -> None:
        subscriptions = {one.names for one in self.members.values()}
        if self._counted_of is not None:
            same, topics = self._counted_of
            if topics is self._topics and same == subscriptions:
                return  # somebody came or left who subscribes as others do
        self._counted_of, self._ids = (subscriptions, self._topics), {}
        names = {name for some in subscriptions for name in existing(some, self._topics)}
        found = (self._topics[name] for name in names)
        self._counts = {one.topic_id.bytes: one.partitions for one in found}

    def _retarget(self, now_ms: int) -> None:
        count = len(self.members)
        is_large = count * (count + sum(self._counts.values())) > self.large_min
        if not self._may_retarget(now_ms, is_large=is_large):
            return
        ids = self._ids
        subscribers = []
        for one in self.members.values():
            if one.names not in ids:
                found = (self._topics[name] for name in existing(one.names, self._topics))
                ids[one.names] = frozenset(topic.topic_id.bytes for topic in found)
            subscribers.append(Subscriber(one.member_id, one.member_id, ids[one.names]))
        self._target = simple(subscribers, self._counts, self._target)
        self.assignment_epoch = self.epoch

    # Time

    def _drop(self, now_ms: int, leaving: Sequence[ShareMember], why: str) -> None:
        for member in leaving:
            del self.members[member.member_id]
            self._target.pop(member.member_id, None)
            self.epoch += 1
            self._tell(group_news.REMOVED, why, member.who)
        self._count()
        self._have_left(now_ms, why, leaving[-1].who)

    def tick(self, now_ms: int) -> None:
        """Drop who was not heard of for a session."""
        if late := [one for one in self.members.values() if one.session_ends_ms <= now_ms]:
            self._drop(now_ms, late, group_news.SESSION_ENDED)
        ends = (one.session_ends_ms for one in self.members.values())
        self.due_ms = min(ends, default=NEVER_MS)

    def close(self, code: ErrorCode) -> None:
        """The group is deleted, or its broker ends.  Nobody waits for an answer here."""
        self.members.clear()

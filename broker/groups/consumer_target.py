"""What the members of a KIP-848 group subscribe to, and which partition is for whom: the target.

    look     which topics there are, of those that anybody subscribes to: other ones, or of another
             size, are a new epoch of the group
    make     the target of an epoch, by the assignor that most members ask for

After a restart the target that was written down says what was subscribed to: each partition of a
subscribed topic is somebody's.  Expressions are matched anew; until all topics were looked at there
is no other target, or who subscribes by one would lose what is matched only afterwards.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from uuid import UUID

from .consumer_members import ConsumerMember, MaySee, Sight, Subscription
from .server_assignors import ASSIGNORS, DEFAULT, Assignment, Partition, TopicId
from .topic_expressions import Expressions
from .topic_regex import TopicRegex


class Topic(Protocol):
    """A topic as a group sees it."""

    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> int: ...


def existing(names: frozenset[str], topics: Mapping[str, Topic]) -> frozenset[str]:
    """Those of which there is a topic: as cheap as the fewer of both are."""
    if len(names) > len(topics):
        return names.intersection(topics)
    return frozenset([name for name in names if name in topics])


_Kind: TypeAlias = tuple[frozenset[str], frozenset[str]]
"""Names, and what an expression matches: many who see the same are one."""


@dataclass(slots=True)
class _Subscribers:
    """Those who subscribe to the same."""

    names: frozenset[str]
    """One object for all: to compare two large sets is slow, to see that they are one is not."""
    count: int = 0


@dataclass(slots=True, eq=False)
class Target:
    """Of one group."""

    assignor: str = DEFAULT
    given: Assignment = field(default_factory=dict)
    """What each member is to have."""
    is_ready: bool = True
    """Whether it can be made: not so after a restart, until all topics were looked at."""
    _expressions: Expressions = field(default_factory=Expressions)
    _said: dict[Subscription, _Subscribers] = field(default_factory=dict)
    """What all members subscribe to: a few kinds, where the members may be thousands."""
    _topics: Mapping[str, Topic] = field(default_factory=dict)
    _counts: dict[TopicId, int] = field(default_factory=dict)
    """Partitions of each topic that anybody is subscribed to."""
    _kinds: set[_Kind] = field(default_factory=set)
    """The different subscriptions that `_counts` is of."""
    _counted: Mapping[str, Topic] | None = None
    """The topics that it is of."""
    _followed: dict[Sight, frozenset[str]] | None = None
    """What each expression matched of what the group has an epoch for; None: not known yet."""
    _topics_of: dict[_Kind, frozenset[TopicId]] = field(default_factory=dict)
    """What those are of who subscribe so, as far as a target was made of `_counts`."""
    _subscribed: dict[frozenset[TopicId], frozenset[TopicId]] = field(default_factory=dict)
    """What members are subscribed to, one object for all who are to the same."""

    @property
    def size(self) -> int:
        """How many partitions there are to be given."""
        return sum(self._counts.values())

    def of(self, member_id: str) -> tuple[Partition, ...]:
        """What a member is to have."""
        return self.given.get(member_id, ())

    def has_topic(self, topic_id: UUID) -> bool:
        """Whether anybody is subscribed to it."""
        return topic_id.bytes in self._counts

    def reader(self) -> Callable[[str, UUID], bool]:
        """What says of a topic, by name and id, whether anybody is subscribed to it; also of one
        that came after the last heartbeat."""
        names = frozenset[str]().union(*[names for names, _ in self._said])
        sights = {sight for _, sight in self._said if sight}

        def is_read(name: str, topic_id: UUID) -> bool:
            if name in names or self.has_topic(topic_id):
                return True
            return any(self._expressions.matches(sight, name) for sight in sights)

        return is_read

    @property
    def knows_topics(self) -> bool:
        """Whether every topic was looked at."""
        return self.is_ready and self._expressions.is_done

    def restore(self, assignor: str, given: Assignment) -> None:
        """Go on with a target that was written down."""
        self.assignor, self.given = assignor, given
        for partitions in given.values():
            for topic_id, index in partitions:
                self._counts[topic_id] = max(index + 1, self._counts.get(topic_id, 0))
        self.is_ready = False

    # What is subscribed to

    def come(self, member: ConsumerMember) -> None:
        """A member subscribes to what it says: it is new, or says something else than before."""
        same = self._said.setdefault(member.subscription, _Subscribers(member.names))
        member.names = same.names
        same.count += 1

    def go(self, subscription: Subscription) -> None:
        """A member that subscribed to this does not any more."""
        same = self._said[subscription]
        same.count -= 1
        if not same.count:
            del self._said[subscription]

    def compiled(self, pattern: str) -> TopicRegex:
        """An expression, if it can be subscribed by.  Raises Refused."""
        return self._expressions.compiled(pattern)

    def take(self, regex: TopicRegex, viewer: str, may_see: MaySee) -> None:
        """A member subscribes by it."""
        self._expressions.take(regex, viewer, may_see)

    def look(
        self,
        topics: Mapping[str, Topic],
        members: Collection[ConsumerMember],
        *,
        resubscribed: bool,
    ) -> bool:
        """Look at the topics that there are; whether other ones are subscribed to, or by others,
        than before.  resubscribed: a member has changed what it subscribes to.

        What somebody sees now that others saw before is no other topic, but may be for that one:
        once, when all were looked at (docs/decisions/0220).
        """
        was_seen = topics is self._topics and self._expressions.is_current
        if was_seen and not resubscribed:
            return False
        self._topics = topics
        if not was_seen:
            self._expressions.look(topics)
        if not (self.is_ready or self._expressions.is_done):
            # A new epoch at once, which is durable: the target follows, over another restart too.
            return resubscribed
        self.is_ready = True
        before = self._counts
        self._count()
        is_other = before is not self._counts and before != self._counts
        if not (resubscribed or is_other) and self._expressions.is_done:
            if self._followed is None:
                is_other = self._assigned(members) != self.given  # rules may be others since
            else:
                is_other = self._followed != self._expressions.seen
        if resubscribed or is_other or self._followed is None:
            self._followed = self._expressions.seen
        return resubscribed or is_other

    def resubscribe(self) -> None:
        """Members are gone, which is an epoch."""
        self._count()
        if self.is_ready:
            self._followed = self._expressions.seen

    def _count(self) -> None:
        self._expressions.keep({sight for _, sight in self._said if sight})
        if not self.is_ready:
            return  # what there is was not looked at yet
        kinds = {self._kind(said) for said in self._said}
        if self._counted is self._topics and self._kinds == kinds:
            return  # somebody came or left who subscribes as others do: the topics are thousands
        self._counted, self._kinds, self._topics_of = self._topics, kinds, {}
        names: set[str] = set()
        for kind in kinds:
            names |= self._found(kind)
        found = map(self._topics.__getitem__, names)
        self._counts = {topic.topic_id.bytes: topic.partitions for topic in found}

    def _kind(self, said: Subscription) -> _Kind:
        names, sight = said
        return names, frozenset() if sight is None else self._expressions.names(sight)

    def _found(self, kind: _Kind) -> frozenset[str]:
        names, matching = kind
        return existing(names, self._topics) | existing(matching, self._topics)

    def _ids(self, kind: _Kind) -> frozenset[TopicId]:
        topics = self._topics_of.get(kind)
        if topics is None:
            found = self._found(kind)
            topics = frozenset([self._topics[name].topic_id.bytes for name in found])
            topics = self._topics_of[kind] = self._subscribed.setdefault(topics, topics)
        return topics

    # Who is to have what

    def make(self, members: Mapping[str, ConsumerMember]) -> list[str]:
        """Make it anew; the ids of those who are to have something else than before."""
        votes = Counter(one.assignor for one in members.values() if one.assignor)
        self.assignor = max(votes, key=lambda name: votes[name]) if votes else DEFAULT
        before = self.given
        self.given = self._assigned(members.values())
        self._subscribed = {topics: topics for topics in self._topics_of.values()}
        return [one for one, mine in self.given.items() if mine != before.get(one, ())]

    def _assigned(self, members: Collection[ConsumerMember]) -> Assignment:
        ids = {said: self._ids(self._kind(said)) for said in self._said}
        subscribers = [member.subscriber(ids[member.subscription]) for member in members]
        return ASSIGNORS[self.assignor](subscribers, self._counts, self.given)

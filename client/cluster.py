"""What Metadata said: brokers, the controller, and who leads which partition.

    all wanted topics --(due: aged, or somebody says that the view is wrong)--+
    new ones, alone ----(at once)---------------------------------------------+--> MetadataRequest
    ... so often that more will come: all that there are (`others`) ----------+
    what was no answer yet --(after a back-off)-------------------------------+
                  <-- reply: brokers, controller, topics with leaders, or an error per topic

This is a view, not the truth: a leader may have moved since.  Code that meets
NOT_LEADER_OR_FOLLOWER and the like calls `invalidate()` and tries again after the next reply.  A
back-off limits how often the client asks, so that a broker that answers nonsense is not asked in a
tight loop.  A new topic is asked for alone: otherwise a sender to thousands of topics, one after
another, would ask for all of them each time.

Such a sender waits for each answer before it names the next topic.  So after NEW_COUNT_MAX requests
for new topics, and whenever their number has grown fourfold, the client asks once for all topics of
the cluster (less often if there are many, because their list costs, too).  Topics in that answer
that nobody wants yet are kept until the next refresh; a caller that wants one of them need not
wait.  A topic that is not in the answer is asked for alone, as always: a broker creates a topic, or
says what is wrong with it, only if it is named.

Only for who sends is a topic made, and only one that it has records for: what was never there when
it was asked for, and what is gone (`is_gone`) while records wait for it (`make`).  A view that is
asked for anew makes nothing: who deletes a topic to create another one finds it deleted still.

A topic that was there and is gone may be one that a broker does not know yet, or be about to be
made anew: it is asked for until it is there, or was gone for DELETED_MS.  Then it counts as deleted
until it is there again, also if it is wanted anew meanwhile.  What it had last stays known: by that
its successor is recognised.

A topic that has not been there for GONE_MS_MAX is let go where nobody works with it: topics come
and go, and who lives for long would ask for all that ever were.

Invariant: at most one MetadataRequest is in flight.  A topic is asked for as long as it is wanted;
beside these, only the topics of the last list are kept, OTHERS_COUNT_MAX at most.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from .backoff import Backoff
from .completion import Completion
from .errors import PeerError, SegbrokerError, UnknownTopicOrPartition, broker_error
from .network import CONTROL, Network, Node
from .records import check_text
from .settings import Address, ClientSettings
from .spoken import Reply

# Looks at a topic that does not exist before that is believed.
LOOKS_MAX = 4
# How long one that was there is gone before a group gives it up.
DELETED_MS = 5_000
# How long one that is gone is asked for: as what is idle by Kafka's `metadata.max.idle.ms`.
GONE_MS_MAX = 300_000
# Topics that one client may want at a time.
TOPICS_COUNT_MAX = 10_000
# Questions for new topics before the first for all of them.
NEW_COUNT_MAX = 32
# Topics that one question may have the broker make: each takes it a sync or two, one by one.
MADE_COUNT_MAX = 100
# So many topics in a list cost, here and at the broker, about what one more question does.
LISTED_PER_QUESTION = 25
# Topics that nobody wants yet: 700 bytes each, with one partition.
OTHERS_COUNT_MAX = 20_000
# Partitions of one topic, and those that a consumer reads.
PARTITIONS_COUNT_MAX = 100_000
# What a broker says of a partition when the view is wrong: it moved, is not there yet, or not any
# more; or its disk failed: another broker may lead it by now, or nobody.
LEADER_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
# What is said of a partition that is not served.
NOBODY = "no broker serves the partition for now"


@dataclass(slots=True)
class TopicView:
    """One topic as last heard of."""

    name: str
    # Zero where the broker tells none.  Another id is another topic of the same name.
    topic_id: UUID = ZERO_UUID
    leaders: list[int] = field(default_factory=list)
    leader_epochs: list[int] = field(default_factory=list)
    # Those that nobody can lead for now: all brokers that have them are away, or their disks are.
    unserved: frozenset[int] = frozenset()
    # What is said of those that have no leader.
    codes: Mapping[int, int] = field(default_factory=dict)
    error: SegbrokerError | None = None
    # Looks at a topic that is not there, since it was last wanted.
    looks: int = 0
    # Since when it is not there, since it was last wanted, and for how long by the last answer.
    gone_ms: int | None = None
    gone_for_ms: int = 0
    # That was DELETED_MS: so it is until it is there again.
    is_deleted: bool = False

    @property
    def partition_count(self) -> int:
        """How many it has, or had when it was last seen."""
        return len(self.leaders)

    @property
    def dealt_count(self) -> int:
        """How many there are for the members of a group."""
        return 0 if self.is_deleted else self.partition_count

    def take_in(self, row: MetadataResponseTopic) -> None:
        """What an answer says of it.

        A topic that is being created has an error and no partitions yet; one that was known keeps
        its partitions until told otherwise.
        """
        self.error = None
        if row.error_code != ErrorCode.NONE:
            self.error = broker_error(row.error_code, f"topic {self.name!r}")
            self.looks += 1
        if row.partitions:
            self.is_deleted = False
            self.topic_id = row.topic_id
            count = 1 + max(partition.partition_index for partition in row.partitions)
            self.leaders = [-1] * count
            self.leader_epochs = [-1] * count
            for partition in row.partitions:
                self.leaders[partition.partition_index] = partition.leader_id
                self.leader_epochs[partition.partition_index] = partition.leader_epoch
            self.codes = {
                partition.partition_index: partition.error_code
                for partition in row.partitions
                if partition.leader_id < 0 and partition.error_code
            }
            self.unserved = frozenset(
                partition.partition_index for partition in row.partitions if _is_unserved(partition)
            )

    @property
    def is_gone(self) -> bool:
        """Whether there is no such topic, as far as is known."""
        return isinstance(self.error, UnknownTopicOrPartition)

    @property
    def is_doubted(self) -> bool:
        """Whether it was there, and is gone, but not for long enough to count as deleted."""
        return bool(self.leaders) and self.is_gone and not self.is_deleted

    def want_again(self) -> None:
        """Somebody does: it is looked for as if for the first time."""
        self.looks = self.gone_for_ms = 0
        self.gone_ms = None

    def count_absence(self, now_ms: int) -> None:
        """The answer that was taken in is of this time."""
        if not self.is_gone:
            self.gone_ms = None
        elif self.gone_ms is None:
            self.gone_ms = now_ms
        self.gone_for_ms = 0 if self.gone_ms is None else now_ms - self.gone_ms
        if self.gone_for_ms >= DELETED_MS:
            self.is_deleted = True

    @property
    def leaderless(self) -> frozenset[int]:
        """The partitions that nobody leads, as far as is known."""
        if -1 not in self.leaders:
            return frozenset()
        return frozenset(number for number, leader in enumerate(self.leaders) if leader < 0)

    @property
    def is_settled(self) -> bool:
        """Whether there is something to work with: partitions, or an error that is final.

        A topic that does not exist may be one created a moment ago: that is final only after a
        few looks.  For ever would hide a typing mistake.
        """
        if self.leaders or self.error is None:
            return bool(self.leaders)
        return not self.error.retryable or (self.is_gone and self.looks >= LOOKS_MAX)


def _too_many() -> ValueError:
    return ValueError(f"a client works with at most {TOPICS_COUNT_MAX} topics")


class Cluster:
    """See the module."""

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        random: Random,
        *,
        create_topics: bool,
    ) -> None:
        """`create_topics`: for who sends; a wanted topic that does not exist may be created."""
        self.brokers: dict[int, Address] = {}
        self.controller_id = -1
        self.topics: dict[str, TopicView] = {}
        # Called with the topics that a reply was about.
        self.on_update: list[Callable[[Collection[str]], None]] = []
        # Each says which topics it works with: the others may go when there is no room for more.
        # Where nobody says so, none goes.
        self.wanted_by: list[Callable[[], Iterable[str]]] = []
        self.replies_count = 0
        self._settings = settings
        self._network = network
        self._create_topics = create_topics
        self._backoff = Backoff(random, settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        # Never asked for.
        self._new: dict[str, None] = {}
        # How often such were, and when next all topics are asked for.
        self._new_count = 0
        self._list_at_count = NEW_COUNT_MAX
        # What an answer said of topics that nobody has wanted yet.
        self._others: dict[str, MetadataResponseTopic] = {}
        # To be asked for again, alone, when the back-off is over.
        self._again: dict[str, None] = {}
        # Known once, and gone: somebody has records for them.
        self._to_make: set[str] = set()
        self._is_wrong = True
        self._due_ms = 0
        self._all_asked_ms = 0
        self._in_flight = False
        self._asked_ms = 0
        # Whether the last question has got no answer, or could not be asked.
        self._is_failed = False
        self._waiting: list[Completion[None]] = []

    # What others ask.

    def check(self, topics: Collection[str]) -> None:
        """Raises ValueError for what `want` refuses, whatever gives way to them."""
        for name in topics:
            check_text("topic", name)
        if len(topics) > TOPICS_COUNT_MAX:
            raise _too_many()

    def want(self, topics: Iterable[str]) -> None:
        """Keep these topics in view from now on.  Raises ValueError where they are too many, or one
        is no name: one such would keep the view from being asked for at all."""
        names = list(topics)
        self.check(names)
        self._make_room(set(names))
        for name in names:
            if name not in self.topics:
                view = self.topics[name] = TopicView(name)
                other = self._others.pop(name, None)
                if other is None:
                    self._new[name] = None
                else:
                    view.take_in(other)
            elif self.topics[name].error is not None:
                self.topics[name].want_again()
                self._again[name] = None

    def _make_room(self, wanted: set[str]) -> None:
        """For these, too.  Topics come and go, and of who reads for long most have gone."""
        for may_forget in (bool(self.wanted_by), False):
            new = wanted - self.topics.keys()
            if not new or len(self.topics) + len(new) <= TOPICS_COUNT_MAX:
                return
            if may_forget:
                kept = wanted.union(*(names() for names in self.wanted_by))
                self.forget(self.topics.keys() - kept)
        raise _too_many()

    def forget(self, topics: Iterable[str]) -> None:
        for name in topics:
            self.topics.pop(name, None)
            self._new.pop(name, None)
            self._again.pop(name, None)
            self._to_make.discard(name)

    def is_gone(self, topic: str) -> bool:
        """Whether it was there, and is not any more as far as is known."""
        view = self.topics.get(topic)
        return view is not None and view.is_gone

    def is_long_gone(self, topic: str) -> bool:
        """Whether it has not been there for so long that it may be forgotten: not before it is
        settled, as somebody may wait for that."""
        view = self.topics.get(topic)
        return view is not None and view.is_settled and view.gone_for_ms >= GONE_MS_MAX

    def topic_id(self, topic: str) -> UUID:
        """The id of the topic as last heard of; zero where none is known."""
        view = self.topics.get(topic)
        return ZERO_UUID if view is None else view.topic_id

    def make(self, topic: str) -> None:
        """Somebody has records for a topic that is gone: ask for it so that it may be made."""
        self._to_make.add(topic)
        self._again[topic] = None

    def invalidate(self) -> None:
        """Something here turned out wrong: ask again, after the back-off."""
        self._is_wrong = True

    def refreshed(self, topics: Collection[str] = ()) -> Completion[None]:
        """Ask for these topics, or all; done when the next reply is in (failed: asking failed).

        The next reply may be to what was asked before.
        """
        for name in topics:
            if name in self.topics and name not in self._new:
                self._again[name] = None
        if not topics or not (self._new or self._again):
            self._is_wrong = True
        done: Completion[None] = Completion()
        self._waiting.append(done)
        return done

    @property
    def is_asking(self) -> bool:
        """Whether a question is on its way, which the next reply will be to."""
        return self._in_flight

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker that leads the partition; None when that is not known."""
        view = self.topics.get(topic)
        return None if view is None else self.leader_in(view, partition)

    def leader_in(self, view: TopicView, partition: int) -> int | None:
        """As `leader`, for who has a view that another call may have had forgotten."""
        if not partition < len(view.leaders):
            return None
        leader = view.leaders[partition]
        return leader if leader in self.brokers else None

    def why_unled(self, topic: str, partition: int) -> SegbrokerError | None:
        """Why nobody leads the partition for now, as far as the cluster says it; None where nobody
        can (`is_unserved`), which says more."""
        view = self.topics.get(topic)
        if view is None or partition not in view.codes or partition in view.unserved:
            return None
        return broker_error(view.codes[partition], f"topic {topic!r}, partition {partition}")

    def is_unserved(self, topic: str, partition: int) -> bool:
        """Whether the cluster says that nobody can lead the partition for now."""
        view = self.topics.get(topic)
        return view is not None and partition in view.unserved

    def is_silent(self, now_ms: int, limit_ms: int) -> bool:
        """Whether nobody answers: never yet, not the last question, or not this one for `limit_ms`.

        How long ago the last answer came does not tell: the next may wait for its back-off.
        """
        is_long = self._in_flight and now_ms >= self._asked_ms + limit_ms
        return self._is_failed or is_long or not self.replies_count

    def leader_epoch(self, topic: str, partition: int) -> int:
        view = self.topics.get(topic)
        if view is None or not partition < len(view.leader_epochs):
            return -1
        return view.leader_epochs[partition]

    def node(self, broker_id: int, lane: str = CONTROL) -> Node | None:
        """The node of a broker, None when the broker is not known (any more)."""
        address = self.brokers.get(broker_id)
        return None if address is None else self._network.node((broker_id, lane), address)

    # Time.

    def step(self, now_ms: int) -> None:
        if self._in_flight or self._network.closed:
            return
        is_due = now_ms >= self._due_ms
        is_all = is_due and (self._is_wrong or self._aged(now_ms))
        if not (is_all or self._new or (is_due and self._again)):
            return
        is_new = bool(self._new) and not is_all
        names, may_make = self._asked(is_all)
        node = self._network.any_node(now_ms)
        if node.connection is None and now_ms < node.retry_at_ms:
            # Nobody can be tried yet: the request would only wait in that node.
            self._is_failed = True
            self._put_off(names, is_all, node.retry_at_ms)
            return
        self._in_flight, self._asked_ms = True, now_ms
        is_list = False
        if is_all:
            self._is_wrong = False
            self._others.clear()
        elif is_new:
            self._new_count += 1
            # Only for who sends: others ask for what is so now.
            is_list = self._create_topics and self._new_count >= self._list_at_count
            if is_list:  # whatever comes of it
                self._list_at_count = 4 * self._new_count
        self._drop(names)
        request = MetadataRequest(
            topics=None if is_list else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=may_make,
        )

        def on_reply(reply: Reply, at_ms: int) -> None:
            self._in_flight = False
            if isinstance(reply, MetadataResponse):
                reply = _checked(reply)
            if isinstance(reply, SegbrokerError):
                self._is_failed = True
                if not reply.retryable:
                    node.last_error = reply  # why there was no answer, for who gives up
                self._put_off(names, is_all, at_ms + self._backoff.next_delay_ms())
                self._finish(reply)
                return
            assert isinstance(reply, MetadataResponse)
            if is_all:
                self._all_asked_ms = at_ms
            self._update(reply, self._listed(reply, names) if is_list else names, at_ms)

        self._network.request(
            node,
            request,
            on_reply,
            now_ms=now_ms,
            deadline_ms=now_ms + self._settings.request_timeout_ms,
        )

    def _asked(self, is_all: bool) -> tuple[list[str], bool]:
        """What is asked for now, and whether that may be made.

        What may be made is asked for without what may not, right behind it; and not more than some
        at a time.
        """
        names = list(self.topics if is_all else self._new or self._again)
        if not self._create_topics:
            return names, False
        makes = [name for name in names if self._is_to_make(name)]
        if len(makes) < len(names):
            self._new.update(dict.fromkeys(makes))
            return [name for name in names if name not in self._new], False
        later = set(islice(self._new, MADE_COUNT_MAX, None))
        return [name for name in names if name not in later], True

    def _is_to_make(self, name: str) -> bool:
        return name in self._new or name in self._to_make or not self.topics[name].leaders

    def next_wake_ms(self) -> int | None:
        if self._in_flight:
            return None
        if self._new:
            return 0
        if self._is_wrong or self._again:
            return self._due_ms
        if not self.topics:
            return None
        return max(self._due_ms, self._all_asked_ms + self._settings.metadata_max_age_ms)

    def _aged(self, now_ms: int) -> bool:
        if not self.topics:
            return False
        return now_ms >= self._all_asked_ms + self._settings.metadata_max_age_ms

    def _put_off(self, names: Collection[str], is_all: bool, due_ms: int) -> None:
        """Nobody answered for these: they are asked for again, and not before that."""
        self._drop(names)
        if is_all:
            self._is_wrong = True
        else:
            self._again.update(dict.fromkeys(names))
        self._due_ms = due_ms

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._new.pop(name, None)
            self._again.pop(name, None)
            self._to_make.discard(name)

    def _listed(self, reply: MetadataResponse, names: list[str]) -> list[str]:
        """All topics were asked for: which of these are among them; the rest is new as before."""
        there = {row.name: row for row in reply.topics if row.name and row.partitions}
        self._new.update(
            (name, None) for name in names if name in self.topics and name not in there
        )
        others = (
            (name, row)
            for name, row in there.items()
            if name not in self.topics and row.error_code == ErrorCode.NONE
        )
        self._others = dict(islice(others, OTHERS_COUNT_MAX))
        cost = len(there) // LISTED_PER_QUESTION
        self._list_at_count = max(self._list_at_count, self._new_count + cost)
        return [name for name in names if name in there]

    def _update(self, reply: MetadataResponse, asked: list[str], now_ms: int) -> None:
        self.replies_count += 1
        self._is_failed = False
        self.controller_id = reply.controller_id
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in reply.brokers}
        for broker_id, address in self.brokers.items():
            self._network.adopt(broker_id, address)
        if self.brokers:
            self._network.keep(self.brokers, now_ms)
        answered = {topic.name or "": topic for topic in reply.topics}
        unsettled = []
        for name in asked:
            view = self.topics.get(name)
            row = answered.get(name)
            if view is None:
                continue
            if row is None:
                unsettled.append(name)
                continue
            view.take_in(row)
            view.count_absence(now_ms)
            if view.error is None:
                self._to_make.discard(name)
            if not view.is_settled or -1 in view.leaders or view.is_doubted:
                unsettled.append(name)
        if unsettled:
            self._again.update(dict.fromkeys(unsettled))
            self._due_ms = now_ms + self._backoff.next_delay_ms()
        else:
            # Never more often than the first back-off, however often it is called wrong, or gone.
            soonest_ms = now_ms + self._settings.retry_backoff_ms
            if not self._again:
                self._backoff.reset()
                self._due_ms = soonest_ms
            elif any(map(self.is_gone, asked)):
                self._due_ms = max(self._due_ms, soonest_ms)
        for notify in self.on_update:
            notify(asked)
        if self.wanted_by and (gone := {name for name in asked if self.is_long_gone(name)}):
            self.forget(gone.difference(*(names() for names in self.wanted_by)))
        self._finish(None)

    def _finish(self, error: SegbrokerError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if error is None:
                done.resolve(None)
            else:
                done.fail(error)


def _is_unserved(row: MetadataResponsePartition) -> bool:
    return (
        row.leader_id < 0
        and bool(row.offline_replicas)
        and (set(row.replica_nodes) <= set(row.offline_replicas))
    )


def _checked(reply: MetadataResponse) -> Reply:
    """The answer, or an error in its place: it names a partition that no topic can have, or a
    broker that none can be (those below 0 are addresses of the bootstrap list, see network)."""
    for broker in reply.brokers:
        if broker.node_id < 0:
            return PeerError(f"the broker names a broker {broker.node_id}")
    for topic in reply.topics:
        for row in topic.partitions:
            if not 0 <= row.partition_index < PARTITIONS_COUNT_MAX:
                return PeerError(
                    f"the broker names partition {row.partition_index} of topic {topic.name!r}"
                )
    return reply

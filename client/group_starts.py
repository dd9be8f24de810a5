"""Where a member begins in the partitions that it is given: where its group stands.

    look_up --OffsetFetch--> the committed offset, with what was read before it   --> it is read
                  |          none committed: `start`, or as below                 -->
                  +-- it passes: the caller hears of it, and it is asked again a moment later

An error that does not pass ends the membership: who does not know where the group stands cannot
read with it.

Of each partition one question counts, the last.  What was taken away meanwhile is dropped from it,
and asked for anew if it comes back: another member may have worked there in between.

The broker is to wait for transactions that are about to commit offsets there (`require_stable`).
The ids of the topics come with the offsets: an offset means nothing in a topic that has got the
name since, and that it is another one is told as a gap.

`start` is for what was there when the consumer, a member by then, knew of the topic first.  A
partition that came later, or that is of another topic of the name (with the old one went what was
committed), is read from its start: what it holds was written since, and "end" would pass over it
without a word (0506).
"""

from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Set
from uuid import UUID

from segbroker.protocol.fields import ZERO_UUID

from .completion import Completion
from .engine import Engine
from .errors import SegbrokerError, as_told
from .fetching import Fetching
from .group_commits import Commits
from .group_offsets import CommittedOffset, fetch_offsets
from .membership import Membership
from .records import TopicPartition
from .settings import GroupSettings
from .starting import Start


class GroupStarts:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        settings: GroupSettings,
        membership: Membership,
        fetching: Fetching,
        commits: Commits,
        *,
        start: Start,
        owned: Set[TopicPartition],
        found: Callable[[list[TopicPartition]], object],
        failed: Callable[[SegbrokerError], object],
    ) -> None:
        """owned: what is the member's, now and later.  `found` is called with what is read from now
        on, `failed` with what ends the membership."""
        self._engine = engine
        self._settings = settings
        self._membership = membership
        self._fetching = fetching
        self._commits = commits
        self._start = start
        self._owned = owned
        self._found = found
        self._failed = failed
        # One that has failed stays, until it is asked again.
        self._asked: dict[TopicPartition, Completion[dict[TopicPartition, CommittedOffset]]] = {}
        self._again_ms: int | None = None
        self._now_ms = 0
        # Of each topic subscribed to, as the member knew it first: its id, and how many partitions.
        self._first: dict[str, tuple[UUID, int]] = {}

    @property
    def asked(self) -> KeysView[TopicPartition]:
        """What is being looked up, and not read yet."""
        return self._asked.keys()

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._again_ms is not None and now_ms >= self._again_ms:
            self._again_ms = None
            self._ask(sorted(tp for tp, call in self._asked.items() if call.done), now_ms)

    @property
    def next_wake_ms(self) -> int | None:
        return self._again_ms

    def subscribed(self, topics: Collection[str]) -> None:
        """To these: of others it does not matter any more what was there."""
        first = self._first
        self._first = {topic: first[topic] for topic in topics if topic in first}

    def hear(self, topics: Iterable[str]) -> None:
        """Said of a member: these are subscribed to.  What it has is there, also where the broker
        that was looked at does not know of that yet."""
        views = map(self._engine.cluster.topics.get, topics)
        new = [view for view in views if view and view.leaders and view.name not in self._first]
        counts = {topic: number + 1 for topic, number in sorted(self._owned)} if new else {}
        for view in new:
            count = max(view.partition_count, counts.get(view.name, 0))
            self._first[view.name] = view.topic_id, count

    def look_up(self, partitions: Set[TopicPartition], now_ms: int) -> None:
        """Ask about those of them that are not read yet, nor asked about, and begin to read."""
        self._ask(sorted(partitions - self._fetching.states.keys() - self._asked.keys()), now_ms)

    def _ask(self, wanted: list[TopicPartition], now_ms: int) -> None:
        if not wanted:
            return
        topic_ids: dict[str, UUID] = {}
        question = fetch_offsets(
            self._membership.coordinator,
            self._settings.group_id,
            wanted,
            require_stable=True,
            topic_ids=topic_ids,
            member=lambda: self._membership.asks_as,
        )
        call = self._engine.call(question, now_ms)
        self._asked.update(dict.fromkeys(wanted, call))
        call.on_done(lambda: self._answered(wanted, call, topic_ids))

    def look_up_returned(self, partitions: Iterable[TopicPartition]) -> None:
        """Of these, which are the member's and not read: those that the cluster has.  A topic that
        was made again without one of them may have it once more."""
        self.look_up({tp for tp in partitions if self._is_there(tp)}, self._now_ms)

    def _is_there(self, tp: TopicPartition) -> bool:
        view = self._engine.cluster.topics.get(tp.topic)
        return view is not None and tp.partition < view.partition_count

    def forget(self, tp: TopicPartition) -> None:
        """It is not the member's any more."""
        self._asked.pop(tp, None)

    def _answered(
        self,
        wanted: list[TopicPartition],
        call: Completion[dict[TopicPartition, CommittedOffset]],
        topic_ids: Mapping[str, UUID],
    ) -> None:
        owned, read = self._owned, self._fetching.states
        wanted = [
            tp for tp in wanted if self._asked.get(tp) is call and tp in owned and tp not in read
        ]
        if not wanted:
            return
        if call.error is not None:
            error = as_told(call.error)
            if not error.retryable:
                self._failed(error)
            elif not self._fetching.is_closed:
                self._fetching.fail(error)
                # Not at once: with too many calls under way it would be refused at once.
                self._again_ms = self._now_ms + self._engine.settings.retry_backoff_ms
            return
        for tp in wanted:
            del self._asked[tp]
        found = call.result()
        for tp in wanted:
            stands = found.get(tp)
            self._commits.stands_at(tp, None if stands is None else stands.offset)
            topic_id = topic_ids.get(tp.topic, ZERO_UUID)
            if stands is not None:
                self._fetching.add_read(tp, stands.offset, stands.leader_epoch, topic_id)
            else:
                self._begin(tp, topic_id)
        self._found(wanted)

    def _begin(self, tp: TopicPartition, topic_id: UUID) -> None:
        """Read a partition of this topic in which nothing is committed."""
        topic_id = topic_id if topic_id.int else self._engine.cluster.topic_id(tp.topic)
        first_id, first_count = self._first.get(tp.topic, (topic_id, tp.partition + 1))
        is_another = topic_id != first_id and ZERO_UUID not in (topic_id, first_id)
        is_new = is_another or tp.partition >= first_count
        self._fetching.add(tp, "start" if is_new else self._start)

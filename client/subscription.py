"""Topics that are read whole: what is read of them is what the cluster tells of them.

    choose --> awaited --the view has its partitions--> all of them, from `start`, or as the caller
                  |                                     has said meanwhile (early.py); those that
                  |                                     come later from their start: what they hold
                  |                                     was written since
                  +-- nobody says it for api_timeout_ms: the caller hears why, and again

Who chooses partitions itself, or is given them by a group, has none.  What becomes of a partition
that is read is fetching.py's.

Limit: PARTITIONS_COUNT_MAX of one consumer.  A topic that has more than are left is not read, and
the caller hears so.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from .assigned import PartitionState
from .cluster import PARTITIONS_COUNT_MAX
from .early import Early
from .engine import Engine
from .errors import PeerError, SegbrokerError, UnknownTopicOrPartition
from .records import TopicPartition
from .silence import Silence
from .starting import Start


class Subscription:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        states: Mapping[TopicPartition, PartitionState],
        *,
        add: Callable[[Iterable[TopicPartition], Start], object],
        seek: Callable[[TopicPartition, Start], object],
        fail: Callable[[SegbrokerError, str | None], object],
    ) -> None:
        """states: what is read, now and later; `add` reads more, `seek` goes elsewhere in it."""
        self.topics: dict[str, Start] = {}
        self.early = Early()
        self._engine = engine
        self._states = states
        self._add = add
        self._seek = seek
        self._fail = fail
        # The view may have partitions that are not read yet.
        self._is_view_new = False
        # Of which partitions a topic has.
        self._silence = Silence()

    def choose(self, topics: Collection[str], start: Start) -> None:
        """These and no others; `start` is for those that are new among them."""
        self.topics = {topic: self.topics.get(topic, start) for topic in topics}
        self.early.keep(self.topics)

    def is_awaited(self, topic: str) -> bool:
        """Whether its partitions are not known yet."""
        view = self._engine.cluster.topics.get(topic)
        return view is None or not view.partition_count

    def awaited(self) -> list[str]:
        """The topics whose partitions are not known yet."""
        return [topic for topic in self.topics if self.is_awaited(topic)]

    def is_early(self, tp: TopicPartition) -> bool:
        """Whether it is of a topic whose partitions are not known yet."""
        topic, partition = tp
        if tp in self._states or topic not in self.topics:
            return False
        self.take_in_partitions()
        return self.is_awaited(topic) and 0 <= partition < PARTITIONS_COUNT_MAX

    def take_in_partitions(self) -> None:
        """Read what is known of the topics by now."""
        self._is_view_new = False
        for topic, start in list(self.topics.items()):
            view = self._engine.cluster.topics.get(topic)
            if view is None or not view.partition_count:
                continue
            new = [
                tp
                for tp in (TopicPartition(topic, p) for p in range(view.partition_count))
                if tp not in self._states
            ]
            if len(self._states) + len(new) > PARTITIONS_COUNT_MAX:
                del self.topics[topic]
                limit = f"a consumer reads at most {PARTITIONS_COUNT_MAX} partitions"
                self._fail(SegbrokerError(f"topic {topic!r} is not read: {limit}"), topic)
            elif new:
                # Records of a partition that appeared later were all written since: read them all.
                is_first = view.partition_count == len(new)
                self._add(new, start if is_first else "start")
                if is_first:
                    self._take_early(topic, view.partition_count)

    def _take_early(self, topic: str, count: int) -> None:
        starts, paused, missing = self.early.take(topic, count)
        for partition, start in starts.items():
            self._seek(TopicPartition(topic, partition), start)
        for partition in paused:
            self._states[TopicPartition(topic, partition)].paused = True
        if missing is not None:
            why = f"{topic}-{missing} was sought or paused; the topic has {count} partitions"
            self._fail(UnknownTopicOrPartition(why), topic)

    # The engine's side.

    def view_is_new(self) -> None:
        """The cluster was looked at: the next step takes in what it has."""
        self._is_view_new = True

    def step(self, now_ms: int) -> None:
        if self._is_view_new:
            self.take_in_partitions()
        self._notice_unknown(now_ms)

    def _notice_unknown(self, now_ms: int) -> None:
        """Nobody says which partitions a topic has, for long: the caller must hear of it."""
        cluster, limit_ms = self._engine.cluster, self._engine.settings.api_timeout_ms
        views = map(cluster.topics.get, self.topics)
        unknown = next((view for view in views if view and not view.is_settled), None)
        if unknown is None:
            self._silence.over()
            return
        self._silence.wanted(now_ms)
        if self._silence.is_too_long(now_ms, limit_ms):
            if cluster.is_silent(now_ms, limit_ms // 2):
                self._fail(self._engine.network.unreachable(), None)
            else:
                why = f"no broker says which partitions topic {unknown.name!r} has"
                self._fail(unknown.error or PeerError(why), unknown.name)

    @property
    def next_wake_ms(self) -> int | None:
        return self._silence.due_ms(self._engine.settings.api_timeout_ms)

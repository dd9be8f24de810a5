"""The consumer's I/O side: which partitions are read, what is fetched ahead, what is handed out.

    partition:  where? --lookup--> fetch_offset --fetch--> batches ready --take--> position
                                        ^                                            |
                                        +------------- seek ------------------------+

`fetch_offset` is what is asked of the broker next, `position` what the caller gets next; between
them lies what was prefetched, at most `prefetch_bytes` over all partitions and about
`fetch_partition_bytes` per partition: one batch of work ahead, not the log.

This is where it all comes together, and each part is another module's: which partitions a
subscribed topic has (subscription), where they begin (start_lookup), who is asked when
(fetch_lanes), what an answer means (fetch_replies, log_changes), what waits for the caller
(prefetched), and what cannot be read at present (holding).

In a fetch reply (fetch_replies) a batch may begin before the offset asked for (its first records
are dropped when it is handed out), and the last batch may be cut off (it is ignored).  Control
batches and gaps move the position and hold no records.  With read_committed, batches of aborted
transactions are skipped.

Out of range: by default that is an error with the bounds; `on_reset` can move to the start or the
end.  The caller may seek and go on.

A seek, or giving a partition up, changes `generation`: replies to earlier requests are ignored.  A
pause, or an assignment that keeps the partition, does not: prefetched records are kept, those of a
paused one as long as the others have room.

Threads: the I/O thread steps, the caller takes and seeks, the shell holds one lock around each.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from uuid import UUID

from segbroker.protocol import limits
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.record_batch import InvalidBatch, decode_batch

from .assigned import Fetched, PartitionState
from .cluster import PARTITIONS_COUNT_MAX
from .completion import Completion
from .consumed import ConsumedBatch
from .engine import Engine
from .errors import CorruptBatch, SegbrokerError, UnknownTopicOrPartition
from .fetch_lanes import FetchLanes
from .fetch_replies import Asked, FetchReplies
from .holding import Holding
from .log_changes import LogChanges
from .prefetched import GO_ON, About, Prefetched
from .records import TopicPartition
from .settings import ConsumerSettings
from .spoken import Reply
from .start_lookup import StartLookup
from .starting import Start, check_start, is_offset
from .subscription import Subscription

WakeBy = Callable[[int], object]


def _too_many() -> ValueError:
    return ValueError(f"a consumer reads at most {PARTITIONS_COUNT_MAX} partitions")


class Fetching:
    """See the module.  A component of the engine."""

    def __init__(
        self,
        engine: Engine,
        settings: ConsumerSettings,
        *,
        wake_by: WakeBy,
        stop_at_end: bool,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.stop_at_end = stop_at_end
        self.states: dict[TopicPartition, PartitionState] = {}
        # Those of which something has changed since the last step, and some that went.
        self._touched: dict[PartitionState, None] = {}
        self.prefetched = Prefetched(settings, lambda: wake_by(0))
        self.is_closed = False
        self._holding = Holding(engine, self.states, stop_at_end=stop_at_end, fail=self.fail)
        self._changes = LogChanges(
            engine,
            settings,
            self.prefetched,
            hold=lambda state: self._holding.hold(state, self._now_ms),
            seek=lambda state, to: self.seek(state.tp, to),
            notify=self.notify,
        )
        self._replies = FetchReplies(
            engine.cluster,
            settings,
            self.prefetched,
            self._changes,
            self._holding,
            fail=self.fail,
            notify=self.notify,
            answered=lambda: self._lanes.answered(),
        )
        self._lanes = FetchLanes(
            engine,
            settings,
            self.states,
            self._touched,
            self.prefetched,
            self._changes,
            self._holding,
            stop_at_end=stop_at_end,
            take=self._take,
            fail=self.fail,
        )
        self._starts = StartLookup(
            engine,
            settings,
            self.states,
            self._touched,
            self._holding,
            self._changes,
            stop_at_end=stop_at_end,
            fail=self.fail,
            found=self._found,
        )
        self.subscription = Subscription(
            engine, self.states, add=self._add, seek=self.seek, fail=self.fail
        )
        self._changed: Completion[None] | None = None
        self._wake_by = wake_by
        self._now_ms = 0
        engine.components.append(self)
        engine.cluster.on_update.append(self._cluster_updated)
        engine.cluster.wanted_by.append(self._wanted)

    # The caller's side.

    def assign(self, partitions: Iterable[TopicPartition], start: Start) -> None:
        """Read exactly these partitions, from `start`."""
        wanted = list(dict.fromkeys(partitions))
        topics = {tp.topic for tp in wanted}
        self.engine.cluster.check(topics)  # first: who is refused reads on what he had
        if len(wanted) > PARTITIONS_COUNT_MAX:
            raise _too_many()
        self.subscription.choose((), start)
        self._starts.is_named = True
        self._keep(set(wanted).__contains__)
        self.prefetched.forget_topics(topics)
        self.engine.cluster.want(topics)
        self._add(wanted, start)

    def subscribe(self, topics: Collection[str], start: Start) -> None:
        """Read all partitions of these topics from `start`; those that appear later, whole."""
        self.engine.cluster.check(topics)  # as in `assign`
        self.subscription.choose(topics, start)
        self._starts.is_named = False
        self._keep(lambda tp: tp.topic in self.subscription.topics)
        self.prefetched.forget_topics(self.subscription.topics)
        self.engine.cluster.want(topics)
        self.subscription.take_in_partitions()
        self._wake_by(0)

    def _wanted(self) -> set[str]:
        return {*self.subscription.topics, *(tp.topic for tp in self.states)}

    def seek(self, tp: TopicPartition, start: Start, *, read_in_epoch: int | None = None) -> None:
        """Go on at `start`; what was prefetched is dropped.

        An offset is one of the topic that the caller is in, as far as it has heard: if another one
        came since, it is told so, and goes on at the start of that.

        `read_in_epoch`: all below was read; as the `epoch` of `add_read`.
        """
        if self.subscription.is_early(tp):
            self.subscription.early.seek(*tp, start)
            return
        state = self.state(tp)
        is_told_all = not state.topics_ahead_count or read_in_epoch is not None
        if not is_told_all and isinstance(start, int) and is_offset(start):
            self.go_back(tp, start)
            return
        for other in self.prefetched.states():
            if other.tp == tp:  # of a topic that is gone, too
                self._discard(other)
        state.forget_log()
        state.position_epoch = -1
        self._go_to(state, start)
        if read_in_epoch is not None:
            state.was_read_in(read_in_epoch)

    def _go_to(self, state: PartitionState, start: Start) -> None:
        self._discard(state)
        state.start = start
        state.position = None
        state.fetch_offset = -1
        state.failures = 0
        state.backoff_until_ms = 0
        state.is_stuck = False
        state.topics_ahead_count = 0
        if isinstance(start, int) and is_offset(start):
            state.position = state.fetch_offset = start
            if state.stop_offset is not None and start > state.stop_offset:
                state.stop_offset = None  # look again where the end is, and whether this is beyond
        state.opening = None  # when the position is before the batch again
        self._wake_by(0)

    def go_back(self, tp: TopicPartition, offset: int) -> None:
        """Hand out what lies at `offset`, which was taken before, again; or tell that it is lost.

        In a topic of the same name that came since lie others: what was of the old one is lost.
        Of a partition that is not read any more there is nothing.
        """
        state = self.prefetched.gone(tp, self.states.get(tp))
        if state is None:
            return
        if state.topics_ahead_count:
            self.prefetched.give_up_old(state, offset)
            state.opening = None
        else:
            lost = self.prefetched.lost_tail(state)
            if lost is None:
                state.told_offset = 0  # with the notice of it in the log it is forgotten here
            else:
                offset = min(offset, lost.from_offset)
            state.forget_from(offset)
            state.position_epoch = state.epoch
            self._go_to(state, offset)
            if lost is not None:
                self.prefetched.move(state, offset, lost)

    def rewind(self, fetched: Fetched) -> None:
        """A batch that was taken could not be read: hand it out again next time.

        Of a partition that is not read any more there is no next time.
        """
        tp = fetched.state.tp
        if self.prefetched.gone(tp, self.states.get(tp)) is fetched.state:
            self.go_back(tp, fetched.from_offset)
        else:
            fetched.state.opening = None

    def rewind_unopened(self) -> None:
        """Hand out what was taken and left by an exception before anybody had it."""
        left = self.prefetched.left_unopened
        if left is not None:
            self.rewind(left)

    def pause(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Hand out and fetch nothing of these (None: of all) until `resume`; what was prefetched is
        kept while there is room (Prefetched.give_way)."""
        self._pause(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition] | None) -> None:
        self._pause(partitions, False)
        self.notify()
        self._wake_by(0)

    def _pause(self, partitions: Iterable[TopicPartition] | None, is_paused: bool) -> None:
        subscription = self.subscription
        if partitions is None:
            subscription.take_in_partitions()
            for topic in subscription.awaited():
                subscription.early.pause(topic, None, is_paused=is_paused)
            partitions = self.states
        # First: who is refused has paused nothing.
        states = {tp: None if subscription.is_early(tp) else self.state(tp) for tp in partitions}
        for tp, state in states.items():
            if state is None:
                subscription.early.pause(*tp, is_paused=is_paused)
            else:
                state.paused = is_paused

    def state(self, tp: TopicPartition) -> PartitionState:
        state = self.states.get(tp)
        if state is None:
            raise ValueError(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        return state

    def open(self, fetched: Fetched) -> ConsumedBatch:
        """Decode what was taken.  Raises CorruptBatch; the position then is before the batch."""
        assert fetched.data is not None
        topic, partition_number = fetched.state.tp
        try:
            batch = decode_batch(fetched.data, headers_max=limits.HEADERS_COUNT_MAX)
        except InvalidBatch as exc:
            raise CorruptBatch(
                f"{topic}-{partition_number}, batch at offset {fetched.from_offset}: {exc}{GO_ON}"
            ) from exc
        return ConsumedBatch(
            topic,
            partition_number,
            batch,
            from_offset=fetched.from_offset,
            to_offset=fetched.stop_offset,
        )

    @property
    def is_ended(self) -> bool:
        """A bounded reading has come to its end: everything was handed out."""
        return (
            self.stop_at_end
            and bool(self.states)
            and self.prefetched.is_empty
            and not self.prefetched.errors
            and all(state.at_stop and not state.resolving for state in self.states.values())
            and not self.subscription.awaited()
        )

    def changed(self) -> Completion[None]:
        """Done when there is something new: batches, errors, positions, the end."""
        if self._changed is None:
            self._changed = Completion()
            if self.is_closed:
                self._changed.resolve(None)
        return self._changed

    # The engine's side.

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        # Without anything to read, too: nobody is waited for any more.
        self.subscription.step(now_ms)
        self._starts.step(now_ms)
        self._lanes.step(now_ms)
        if not self.stop_at_end:
            self._holding.look(now_ms)
        elif self.prefetched.is_empty and not (
            self.prefetched.errors or self.subscription.awaited()
        ):
            self._holding.tell_unserved()

    def next_wake_ms(self) -> int | None:
        looked = {**self._starts.lacking, **self._lanes.waiting, **self._touched}
        wakes = [
            state.backoff_until_ms for state in looked if state.backoff_until_ms > self._now_ms
        ]
        if (silent_ms := self._lanes.next_wake_ms) is not None:
            wakes.append(silent_ms)
        if (unknown_ms := self.subscription.next_wake_ms) is not None:
            wakes.append(unknown_ms)
        return min(wakes, default=None)

    def close(self, error: SegbrokerError) -> None:
        self.is_closed = True
        if not self.prefetched.errors:
            self.prefetched.fail(error)
        self.notify()

    def notify(self) -> None:
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.resolve(None)

    def fail(self, error: SegbrokerError, about: About | None = None) -> None:
        self.prefetched.fail(error, about)
        self.notify()

    # Assignment.

    def _add(self, partitions: Iterable[TopicPartition], start: Start) -> None:
        for tp in partitions:
            if tp in self.states:
                continue
            if len(self.states) >= PARTITIONS_COUNT_MAX:
                raise _too_many()
            state = self.states[tp] = PartitionState(tp, check_start(start), self._touched)
            state.topic_id = self.engine.cluster.topic_id(tp.topic)
        self.notify()
        self._wake_by(0)

    def add(self, tp: TopicPartition, start: Start) -> None:
        """Read one partition more."""
        self.engine.cluster.want([tp.topic])
        self._add([tp], start)

    def add_read(self, tp: TopicPartition, offset: int, epoch: int, topic_id: UUID) -> None:
        """Read one partition more, all of which was read below `offset`, by somebody.

        epoch: leader epoch of the record before it (-1: not known); what is not there any more is a
        gap.  topic_id: that of which `offset` is; zero: not known, the one that is there.
        """
        self.add(tp, offset)
        state = self.states[tp]
        state.was_read_in(epoch)
        if topic_id != ZERO_UUID:
            state.topic_id = topic_id
            state.position = state.fetch_offset = offset
            self._notice_topic_id(state)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer."""
        for tp in partitions:
            self._discard(self.states.pop(tp))

    def _keep(self, is_kept: Callable[[TopicPartition], bool]) -> None:
        """Read no others; nor is more handed out of one that went with its topic."""
        self.drop([tp for tp in self.states if not is_kept(tp)])
        for state in self.prefetched.states():
            if not is_kept(state.tp):
                self._discard(state)

    def _discard(self, state: PartitionState) -> None:
        """Forget what was prefetched; a reply on its way is not wanted any more."""
        state.generation += 1
        state.resolving = False
        self.prefetched.discard(state)

    def _cluster_updated(self, asked: Collection[str]) -> None:
        self.subscription.view_is_new()
        self._lanes.view_is_new()
        for topic in {tp.topic for tp in self.states} | self.subscription.topics.keys():
            view = self.engine.cluster.topics.get(topic)
            if view is not None and view.is_settled and not view.partition_count:
                assert view.error is not None, "settled without partitions is an error"
                self.fail(view.error, topic)
        for state in list(self.states.values()):
            self._notice_topic_id(state)
        self._wake_by(0)

    def _notice_topic_id(self, state: PartitionState) -> None:
        view = self.engine.cluster.topics.get(state.tp.topic)
        if view is None or view.topic_id == ZERO_UUID or view.topic_id == state.topic_id:
            return
        is_known = state.topic_id != ZERO_UUID
        if is_known and state.fetch_offset >= 0:
            self._changes.recreated(state, view.topic_id)
        elif is_known:
            state.round += 1  # where it begins is being looked up in the one before
        state.topic_id = view.topic_id
        if is_known and not state.tp.partition < view.partition_count:
            # The new topic has fewer: a gap is told, and then there is nothing more.
            del self.states[state.tp]
            # What was fetched ahead is handed out: nobody could resume it, or let it go, any more.
            state.paused = state.held = False
            if not self.subscription.topics:
                topic, partition = state.tp
                why = "its topic was made again, with fewer partitions"
                gone = UnknownTopicOrPartition(f"{topic}-{partition} is gone: {why}")
                self.fail(gone, topic)

    def _found(self) -> None:
        self.notify()
        self._wake_by(0)

    def _take(
        self,
        asked: Mapping[TopicPartition, Asked],
        spoken: Collection[TopicPartition],
        reply: Reply | None,
        now_ms: int,
    ) -> None:
        self._now_ms = now_ms
        self._replies.take(asked, spoken, reply, now_ms)

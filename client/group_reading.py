"""Reading as a member of a group: what the member is given is read, what it loses is let go.

    given      its committed offset is asked for; from there, or `start` without one, it is read
    to give up nothing more of it is handed out; when the caller has gone past what it has in hand,
               on_revoked is called, its position is committed, and the member joins without it
    lost       dropped at once; on_lost is called.  Its position is not ours to commit any more

The callbacks run in the caller's thread or task, between two records: the reading is interrupted
there, so none waits for the rest of a batch.  Without callbacks the caller is not waited for,
unless it has a record in hand of what is given up.  However long it takes with that record, the
partition stays its own: heartbeats do not depend on the caller.  Only where all give up all first
(eager strategies) the others cannot wait for ever: after half of the rebalance timeout the member
joins all the same, and what it is not given again is lost.

Commits: what the caller has gone past, at intervals, when a partition is given up, and at the end;
in the member's generation, so never over the head of a successor.

Threads: everything here runs under the shell's lock; `next_event` and `event_done` are the
caller's, who runs the callback between the two, without the lock.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse

from .completion import Completion
from .engine import Ask, Call, Engine, Pause, Until
from .errors import (
    IllegalGeneration,
    RebalanceInProgress,
    SegbrokerError,
    UnknownMemberId,
)
from .fetching import Fetching
from .group_offsets import CommittedOffset, GroupMetadata, commit_offsets, fetch_offsets
from .log_changes import bug
from .membership import Membership, Phase
from .progress import Progress
from .records import TopicPartition
from .settings import GroupSettings
from .starting import Start

Partitions = list[TopicPartition]
Listener = Callable[[Partitions], Any]
"""Called with partitions; in an async consumer it may be an async function."""

# A commit of what is given up may take this long; then it is given up without.
COMMIT_TIMEOUT_MS = 5_000


class Event:
    """Something that the caller has to be told: with which callback, and what comes after it."""

    __slots__ = ("after", "listener", "partitions", "waits_for")

    def __init__(
        self,
        listener: Listener | None,
        partitions: Iterable[TopicPartition],
        after: Callable[[], object],
        waits_for: Iterable[TopicPartition] = (),
    ) -> None:
        self.listener = listener
        self.partitions = sorted(partitions)
        self.after = after
        # Without a listener: the caller may not have any of these in hand.
        self.waits_for = set(waits_for)


class GroupReading:
    """See the module.  A component of the engine, and the holder of its membership."""

    def __init__(
        self,
        engine: Engine,
        settings: GroupSettings,
        fetching: Fetching,
        progress: Progress,
        random: Random,
        *,
        start: Start,
        wake_by: Callable[[int], object],
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        self.settings = settings
        self.membership = Membership(engine, settings, random, self)
        self.error: SegbrokerError | None = None
        self._engine = engine
        self._fetching = fetching
        self._progress = progress
        self._start = start
        self._wake_by = wake_by
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost if on_lost is not None else on_revoked
        self._topics: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self._is_looking = False
        self._look_due_ms = 0
        self._events: deque[Event] = deque()
        self._running: Event | None = None
        # Given to us in the last generation, and not taken away since.
        self._given: set[TopicPartition] = set()
        # ... what of it, and of what was given before, is still ours to claim.
        self._owned: set[TopicPartition] = set()
        # Being given up.
        self._leaving: set[TopicPartition] = set()
        # Eager: the member joined before the caller had gone past these.
        self._overdue: set[TopicPartition] = set()
        self._prepare_until_ms: int | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._commit_due_ms = 0
        self._is_committing = False
        self._is_committed_to_join = False
        self._seen_ms = 0
        self._now_ms = 0
        # Topics that were said not to exist.
        self._missing: set[str] = set()
        engine.components.append(self)
        engine.cluster.on_update.append(self._cluster_updated)

    # The caller's side.

    def subscribe(self, topics: Sequence[str]) -> None:
        self._pattern = None
        self._set_topics(topics)
        self.membership.enter()

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """All topics whose whole name the pattern matches, also those that come later."""
        self._pattern = pattern
        self._look_due_ms = 0
        self._wake_by(0)

    @property
    def member(self) -> GroupMetadata:
        return self.membership.metadata

    @property
    def is_settled(self) -> bool:
        """Nothing is under way: what is read is what was given."""
        return (
            self.membership.phase is Phase.STABLE
            and not self._events
            and self._running is None
            and self._owned == self._given == self._fetching.states.keys()
        )

    def came_back(self, now_ms: int) -> None:
        """The caller asks for more."""
        self._progress.came_back()
        self._seen_ms = now_ms
        if self.error is not None:
            raise self.error
        if self.membership.phase is Phase.OUT and (self._topics or self._pattern):
            self.membership.enter()
            self._wake_by(0)

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def next_event(self) -> Event | None:
        """What the caller has to be told next; it says `event_done` when that is done."""
        if self._running is not None or not self._events:
            return None
        self._running = self._events.popleft()
        return self._running

    def event_done(self, event: Event) -> None:
        assert self._running is event, "one event at a time"
        self._running = None
        event.after()
        self._wake_by(0)

    # What the member has, for the membership.

    def topics(self) -> Sequence[str]:
        return self._topics

    def owned(self) -> Sequence[TopicPartition]:
        return sorted(self._owned - self._overdue)

    def prepare(self, now_ms: int, *, cooperative: bool) -> bool:
        """Commit; eager: give up all.  Whether that is done, or its time is over."""
        if self._pattern is not None and not self._topics:
            return False
        # While the others wait to join the group still takes commits; then no more until all have
        # heard what they were given, and by then a partition may be somebody else's.
        if self._is_committing:
            return False
        if not self._is_committed_to_join:
            self._is_committed_to_join = True
            self._commit_due_ms = now_ms
            self._auto_commit(now_ms)
            if self._is_committing:
                return False
        if cooperative or not self._owned - self._overdue:
            self._prepare_until_ms = None
            return True
        if self._prepare_until_ms is None:
            self._prepare_until_ms = now_ms + self.settings.rebalance_timeout_ms // 2
        self._give_up(self._owned)
        if not self._owned:
            self._prepare_until_ms = None
            return True
        if now_ms < self._prepare_until_ms:
            return False
        self._overdue = set(self._owned)
        self._prepare_until_ms = None
        return True

    def take_over(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        given = set(partitions)
        self._given = given
        self._prepare_until_ms = None
        self._is_committed_to_join = False
        gone = self._overdue - given
        self._keep(self._overdue & given)
        self._overdue.clear()
        if gone:
            self._lose(gone)
        self._keep(self._leaving & given)
        self._give_up(self._owned - given)
        added = given - self._owned
        self._owned |= added
        self._engine.cluster.want({tp.topic for tp in added})
        self._load(added, now_ms)
        self._fetching.notify()

    def lost(self, now_ms: int) -> None:
        self._given = set()
        self._is_committed_to_join = False
        self._overdue.clear()
        self._lose(set(self._owned))

    def failed(self, error: SegbrokerError) -> None:
        self.error = error
        self._fetching.fail(error)

    # What is given.

    def _load(self, added: set[TopicPartition], now_ms: int) -> None:
        """Ask where the group stands in these, and begin to read there."""
        wanted = sorted(added - self._fetching.states.keys())
        if not wanted:
            return
        question = fetch_offsets(
            self.membership.coordinator, self.settings.group_id, wanted, require_stable=True
        )
        call = self._engine.call(question, now_ms)
        call.on_done(lambda: self._loaded(wanted, call))

    def _loaded(
        self, wanted: list[TopicPartition], call: Completion[dict[TopicPartition, CommittedOffset]]
    ) -> None:
        # What was taken away meanwhile, or came another way, is none of it.
        wanted = [tp for tp in wanted if tp in self._owned and tp not in self._fetching.states]
        if call.error is not None:
            error = call.error
            self._fetching.fail(error if isinstance(error, SegbrokerError) else bug(error))
            if wanted and not self._fetching.is_closed:
                self._load(set(wanted), self._now_ms)
            return
        if not wanted:
            return
        found = call.result()
        for tp in wanted:
            stands = found.get(tp)
            if stands is None:
                self._fetching.add(tp, self._start)
            else:
                self._committed[tp] = stands.offset
                self._fetching.add(tp, stands.offset, read_in_epoch=stands.leader_epoch)
        if self._on_assigned is not None:
            self._hold(wanted, True)
            self._tell(
                Event(
                    self._on_assigned, wanted, lambda: self._hold(self._owned & set(wanted), False)
                )
            )
        self._fetching.notify()

    # What goes.

    def _give_up(self, partitions: set[TopicPartition]) -> None:
        going = partitions - self._leaving
        if not going:
            return
        self._leaving |= going
        self._hold(going, True)
        event = Event(self._on_revoked, going, lambda: self._given_up(event), going)
        self._tell(event)

    def _given_up(self, event: Event) -> None:
        """The caller is done with them: say where it was, and let them go."""
        going = {tp for tp in event.partitions if tp in self._leaving}
        if not going:
            return
        offsets = self._gone_past(going) if self.settings.auto_commit else {}
        call = self._engine.call(self._commit(offsets), self._now_ms, timeout_ms=COMMIT_TIMEOUT_MS)
        call.on_done(lambda: self._let_go(going, call))

    def _let_go(self, going: set[TopicPartition], call: Completion[None]) -> None:
        going &= self._leaving
        self._drop(going)
        again = going & self._given if self.membership.phase is Phase.STABLE else set()
        if again:
            # Given once more while it was being given up.
            self._owned |= again
            self._load(again, self._now_ms)
        if going and self.membership.is_cooperative:
            self.membership.rejoin("gave up partitions")
        self._fetching.notify()
        self._wake_by(0)

    def _keep(self, partitions: set[TopicPartition]) -> None:
        """They are ours again before they were gone."""
        kept = partitions & self._leaving
        if not kept:
            return
        told = set(self._running.partitions) if self._running is not None else set()
        kept -= told  # the caller is being told: these go, and come again
        self._leaving -= kept
        self._hold(kept, False)
        for event in list(self._events):
            if event.waits_for & kept:
                event.partitions = [tp for tp in event.partitions if tp not in kept]
                event.waits_for -= kept
                if not event.partitions:
                    self._events.remove(event)

    def _lose(self, partitions: set[TopicPartition]) -> None:
        for event in list(self._events):
            event.partitions = [tp for tp in event.partitions if tp not in partitions]
            event.waits_for -= partitions
            if not event.partitions:
                self._events.remove(event)
        self._drop(partitions)
        if partitions:
            self._tell(Event(self._on_lost, partitions, _nothing))

    def _drop(self, partitions: set[TopicPartition]) -> None:
        self._leaving -= partitions
        self._owned -= partitions
        self._overdue -= partitions
        for tp in partitions:
            self._progress.sought(tp)
            self._committed.pop(tp, None)
        self._fetching.drop(partitions & self._fetching.states.keys())

    def _hold(self, partitions: Iterable[TopicPartition], is_held: bool) -> None:
        for tp in partitions:
            state = self._fetching.states.get(tp)
            if state is not None:
                state.held = is_held
        if is_held:
            self._progress.interrupt()
        else:
            self._fetching.notify()

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._progress.interrupt()
        self._settle()
        self._fetching.notify()

    def _settle(self) -> None:
        """What needs no callback does not wait for the caller."""
        for event in list(self._events):
            if event.listener is not None:
                continue
            if not any(self._progress.is_busy_with(tp) for tp in event.waits_for):
                self._events.remove(event)
                event.after()

    # Commits.

    def _gone_past(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Where the caller stands in these, where that is not committed."""
        found = {}
        for tp in partitions:
            state = self._fetching.states.get(tp)
            offset = None if state is None else self._progress.gone_past(state)
            if state is None or offset is None or self._committed.get(tp) == offset:
                continue
            found[tp] = CommittedOffset(offset, state.position_epoch)
        return found

    def _commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> Call[None]:
        if offsets and self.member.generation >= 0:
            yield from commit_offsets(self.membership.coordinator, self.member, offsets)
            self._note(offsets)

    def _note(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        for tp, stands in offsets.items():
            if tp in self._owned:
                self._committed[tp] = stands.offset

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset] | None) -> Call[None]:
        """Commit these; without any where the caller is, all that it was handed included.

        Goes on through a rebalance.  Raises UnknownMemberId or IllegalGeneration when what is to
        be committed is not this member's any more.
        """
        if offsets is None:
            states = list(self._fetching.states.values())
            self._progress.acknowledge([s for s in states if s.position is not None])
            offsets = self._gone_past(tp for tp in self._owned)
        else:
            for tp, stands in offsets.items():
                state = self._fetching.states.get(tp)
                if state is not None:
                    self._progress.acknowledge_below(state, stands.offset)
        while offsets:
            strange = sorted(offsets.keys() - self._owned)
            if strange:
                topic, partition = strange[0]
                raise IllegalGeneration(f"{topic}-{partition} is not this member's (any more)")
            try:
                yield from commit_offsets(self.membership.coordinator, self.member, offsets)
            except RebalanceInProgress:
                yield Pause(self._engine.settings.retry_backoff_ms)
                continue
            self._note(offsets)
            return

    def closing(self) -> Event | None:
        """The end: nothing more is handed out; what the caller is told of it, if anything."""
        self._events.clear()
        self._hold(self._owned, True)
        if not self._owned or self._on_revoked is None:
            return None
        self._running = Event(self._on_revoked, self._owned, _nothing)
        return self._running

    def goodbye(self, *, patient: bool) -> Call[None]:
        """At the end: commit what the caller has gone past, and leave.

        Patient: again until it is done.  Else one try, for who may wait a moment only.
        """
        coordinator = self.membership.coordinator
        offsets: dict[TopicPartition, CommittedOffset] = {}
        if self.settings.auto_commit and self.member.generation >= 0:
            offsets = self._gone_past(self._owned - self._overdue)
        commit = commit_offsets(coordinator, self.member, offsets)
        leave = self.membership.leave("closed")
        if patient:
            for call in (commit, leave):
                # The next owner reads it again, and a session ends by itself.
                with suppress(SegbrokerError):
                    yield from call
        else:
            # Both are sent at once, in this order.
            for done in [self._engine.call(call, self._now_ms) for call in (commit, leave)]:
                yield Until(done)

    def _auto_commit(self, now_ms: int) -> None:
        is_due = self.settings.auto_commit and now_ms >= self._commit_due_ms
        if not is_due or self._is_committing or self.member.generation < 0:
            return
        self._commit_due_ms = now_ms + self.settings.commit_interval_ms
        offsets = self._gone_past(self._owned - self._leaving - self._overdue)
        if not offsets:
            return
        self._is_committing = True
        call = self._engine.call(self._commit(offsets), now_ms, timeout_ms=COMMIT_TIMEOUT_MS)
        call.on_done(lambda: self._auto_committed(call))

    def _auto_committed(self, call: Completion[None]) -> None:
        self._is_committing = False
        self._wake_by(0)
        error = call.error
        if error is None or (isinstance(error, SegbrokerError) and error.retryable):
            return
        if isinstance(error, RebalanceInProgress | IllegalGeneration | UnknownMemberId):
            return  # the membership hears of it too
        self._fetching.fail(error if isinstance(error, SegbrokerError) else bug(error))

    # The engine's side.

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._look_for_topics(now_ms)
        self._settle()
        self._auto_commit(now_ms)
        limit_ms = self.settings.max_poll_interval_ms
        is_away = limit_ms is not None and now_ms >= self._seen_ms + limit_ms
        if is_away and self._progress.is_busy and self.membership.phase is not Phase.OUT:
            self._engine.call(self.membership.leave("max_poll_interval_ms passed"), now_ms)
            self.lost(now_ms)

    def next_wake_ms(self) -> int | None:
        wakes = []
        if self.settings.auto_commit and self._owned and not self._is_committing:
            wakes.append(max(self._commit_due_ms, self._now_ms + 1))
        if self._pattern is not None and not self._is_looking:
            wakes.append(self._look_due_ms)
        if self._prepare_until_ms is not None:
            wakes.append(self._prepare_until_ms)
        limit_ms = self.settings.max_poll_interval_ms
        if limit_ms is not None and self._owned:
            wakes.append(max(self._seen_ms + limit_ms, self._now_ms + 1_000))
        return min(wakes, default=None)

    def close(self, error: SegbrokerError) -> None:
        self._events.clear()

    # Which topics.

    def _cluster_updated(self, now_ms: int) -> None:
        """A topic that was named and is not there is said once."""
        if self._pattern is not None:
            return
        for name in self._topics:
            view = self._engine.cluster.topics.get(name)
            if view is None or not view.is_settled:
                continue
            if view.partition_count:
                self._missing.discard(name)
            elif name not in self._missing and view.error is not None:
                self._missing.add(name)
                self._fetching.fail(view.error)

    def _look_for_topics(self, now_ms: int) -> None:
        if self._pattern is None or self._is_looking or now_ms < self._look_due_ms:
            return
        self._is_looking = True
        call = self._engine.call(_all_topics(), now_ms)
        call.on_done(lambda: self._topics_found(call))

    def _topics_found(self, call: Completion[list[str]]) -> None:
        self._is_looking = False
        if call.error is not None:
            self._look_due_ms = self._now_ms + 1_000
            return
        self._look_due_ms = self._now_ms + self._engine.settings.metadata_max_age_ms
        if self._pattern is None:
            return
        topics = [name for name in call.result() if self._pattern.fullmatch(name)]
        if sorted(topics) != sorted(self._topics):
            self._set_topics(topics)
        self.membership.enter()

    def _set_topics(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)
        self._engine.cluster.want(topics)
        self.membership.rejoin("other topics are wanted")
        self._wake_by(0)


def _all_topics() -> Call[list[str]]:
    """The names of the topics that are not the broker's own."""
    reply = yield Ask(MetadataRequest(topics=None))
    assert isinstance(reply, MetadataResponse)
    return [
        topic.name
        for topic in reply.topics
        if topic.name and not topic.is_internal and topic.error_code == ErrorCode.NONE
    ]


def _nothing() -> None:
    """Nothing comes after it."""

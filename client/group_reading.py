"""Reading as a member of a group: from assigned partitions, until they are revoked or lost.

    given      its committed offset is looked up (group_starts); reading begins there
    to give up no more of its records are handed out; when the caller has gone past the record in
               hand, on_revoked is called, its position is committed, and the member joins again
               without it; one that is still looked up goes at once, and nobody hears of it
    lost       dropped at once; on_lost is called.  The member may not commit its position any more

The callbacks run in the caller's thread or task, between two records: iteration is interrupted
there, so a callback never waits for the rest of a batch.  Without callbacks nobody waits for the
caller, unless it has a record of such a partition in hand.  However long it works on that record,
the partition stays with the member: heartbeats do not depend on the caller.  Other members do not
wait that long for the partitions of which the caller has no record in hand.  If the caller has not
come back to hear on_revoked when half of the rebalance timeout is over, these are let go, and
on_lost is called when it comes back.  With `max_poll_interval_ms` a caller that neither waits nor
comes back for so long costs the member its place, until it comes back.  With eager strategies,
where every member first gives up everything, the member joins at that moment all the same, and
partitions that it is not given again are lost.

Commits (group_commits): the positions that the caller has gone past, at intervals, when a partition
is given up, and at the end.  They name the member's generation, so they never overwrite those of a
successor; which member the caller's own commits are of is in committing_member.

What the caller is told, and when, is in group_events, whether it is here in poll_interval, and how
a member joins, lives and leaves in classic_membership and consumer_membership: this is the holder
of either.

Threads: everything here runs under the shell's lock.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from .classic_membership import ClassicMembership
from .committing_member import CommittingMember
from .completion import Completion
from .consumer_membership import ConsumerMembership
from .engine import Call, Engine, Pause, Until
from .errors import (
    FencedInstanceId,
    GroupAuthorizationFailed,
    SegbrokerError,
    TimedOut,
    TopicAuthorizationFailed,
)
from .fetching import Fetching
from .group_commits import Commits, Offsets
from .group_events import Event, Events, Listener, News
from .group_offsets import commit_offsets
from .group_starts import GroupStarts
from .group_topics import GroupTopics
from .membership import Goodbye, Holder, Membership, Phase
from .network import CONTROL, GROUP
from .poll_interval import PollInterval
from .progress import Progress
from .records import TopicPartition
from .settings import GroupSettings
from .starting import Start

# What the commit at the end may take of the time for the end: then the member leaves without.
LAST_COMMIT_MS = 4_000
# How long who closes waits for a callback that another is in, and how often it looks.
CALLBACK_MS = 4_000
CALLBACK_LOOK_MS = 10
# How long who is not told where to begin is no member, at most: it costs the others two rebalances.
BEGIN_PAUSE_MAX_MS = 10_000
NOT_ALLOWED: Final = (GroupAuthorizationFailed, TopicAuthorizationFailed)


# By their group_protocol.
MEMBERSHIPS: Final[dict[str, Callable[[Engine, GroupSettings, Holder], Membership]]] = {
    "classic": ClassicMembership,
    "consumer": ConsumerMembership,
}


class GroupReading:
    """See the module.  A component of the engine, and the holder of its membership."""

    def __init__(
        self,
        engine: Engine,
        settings: GroupSettings,
        fetching: Fetching,
        progress: Progress,
        *,
        start: Start,
        wake_by: Callable[[int], object],
        on_assigned: Listener | None,
        on_revoked: Listener | None,
        on_lost: Listener | None,
    ) -> None:
        self.settings = settings
        self.membership = MEMBERSHIPS[settings.group_protocol](engine, settings, self)
        self.error: SegbrokerError | None = None
        self._engine = engine
        self._fetching = fetching
        self._progress = progress
        self._wake_by = wake_by
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost if on_lost is not None else on_revoked
        self.events = Events(progress, fetching.notify)
        # What of that, and of what was given before, is still ours to claim.
        self._owned: set[TopicPartition] = set()
        self._topics = GroupTopics(
            engine, changed=self._topics_changed, missing=fetching.fail, known=fetching.notify
        )
        self._commits = Commits(
            engine,
            settings,
            self.membership,
            fetching,
            progress,
            owned=self._owned,
            member=lambda: self.committing.present,
            wake_by=wake_by,
        )
        self.committing = CommittingMember(self.membership, progress, self._commits)
        self._starts = GroupStarts(
            engine,
            settings,
            self.membership,
            fetching,
            self._commits,
            start=start,
            owned=self._owned,
            found=self._reads,
            failed=self._cannot_begin,
        )
        # When it may be a member again that was not told where to begin.
        self._begin_backoff = engine.backoff(BEGIN_PAUSE_MAX_MS)
        self._begin_again_ms = 0
        # Given to us in the last generation, and not taken away since.
        self._given: set[TopicPartition] = set()
        # Being given up.
        self._leaving: set[TopicPartition] = set()
        # ... the last commit of what of it the caller is done with.
        self._last_commits: dict[TopicPartition, Completion[None]] = {}
        # ... and of that, what the caller has heard to go, or never to be its own: that is not
        # taken back, nor told again.
        self._going_for_good: set[TopicPartition] = set()
        # Eager: the member joined before the caller had gone past these.
        self._overdue: set[TopicPartition] = set()
        self._prepare_until_ms: int | None = None
        self._is_committed_to_join = False
        # Closed while the caller's loop goes on, in another thread or task: it does not join again.
        self._is_closing = False
        # The threads or tasks that are in a callback, by any number that is theirs.
        self.tellers: set[int] = set()
        # What is said at the end is under way, or over.
        self._parting: Completion[None] | None = None
        self._poll_interval = PollInterval(settings.max_poll_interval_ms)
        self._now_ms = 0
        engine.components.append(self)
        engine.cluster.on_update.append(self._cluster_updated)
        engine.cluster.wanted_by.append(self._wanted)

    # The caller's side.

    def subscribe(self, topics: Sequence[str]) -> None:
        self._topics.choose(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """All topics whose whole name the pattern matches, also those that come later."""
        self._topics.match(pattern)
        self._wake_by(0)

    def _topics_changed(self) -> None:
        self._starts.subscribed(self._topics.names)
        self._fetching.prefetched.forget_topics(self._topics.names)
        self.membership.rejoin("other topics are wanted")
        self.membership.enter()
        self._wake_by(0)

    @property
    def is_settled(self) -> bool:
        """Nothing is under way: what is read is what was given."""
        return (
            self._topics.is_known
            and (self._topics.is_undecided or self.membership.phase is Phase.STABLE)
            and self.events.is_idle
            and self._owned == self._given == self._fetching.states.keys()
        )

    def has_all(self) -> bool:
        """Whether the group has nothing more for this member; that may have to be asked first."""
        if self._topics.is_undecided or self.membership.has_all():
            return True
        self._wake_by(0)
        return False

    @property
    def has_left(self) -> bool:
        """Whether it is no member, until the caller asks for more: it was away for too long."""
        return self.membership.phase is Phase.OUT

    def came_back(self, now_ms: int) -> None:
        """The caller asks for more."""
        self._progress.came_back()
        self.is_here(now_ms)
        self.committing.came_back()
        if self.error is not None:
            raise self.error.with_traceback(None)  # else it grows each time
        self._enter_again()

    def waits(self) -> None:
        """The caller waits for something, until it `is_here`."""
        self._poll_interval.waits()
        self._enter_again()

    def is_here(self, now_ms: int) -> None:
        """The caller gets something, or nothing: the time until it comes back begins."""
        self._poll_interval.is_here(now_ms)
        if self._progress.is_shown:  # else it has something of before this, and gets more
            self._commits.is_here()

    def event_done(self, event: Event, now_ms: int) -> None:
        """The caller has been told."""
        self._now_ms = now_ms
        self.is_here(now_ms)
        self.events.done(event)
        self._wake_by(0)

    def _enter_again(self) -> None:
        """Who was away for too long, and is back, is a member again."""
        is_out = self.membership.phase is Phase.OUT and not self._is_closing
        if is_out and self._topics.is_wanted and self.error is None:
            self.membership.enter(not_before_ms=self._begin_again_ms)
            self._wake_by(0)

    def _wanted(self) -> set[str]:
        """The topics that it works with."""
        return {*self._topics.names, *self.membership.watched, *(tp.topic for tp in self._owned)}

    # What the member has, for the membership.

    def topics(self) -> Sequence[str]:
        return self._topics.names

    def owned(self) -> Sequence[TopicPartition]:
        return sorted(self._owned - self._overdue)

    def prepare(self, now_ms: int, *, cooperative: bool) -> bool:
        """Commit; eager: give up all.  Whether that is done, or its time is over."""
        if self._topics.is_undecided and self.membership.generation < 0:
            return False
        if not self._is_committed_to_join and not self._commits.is_running:
            self._is_committed_to_join = True
            self._auto_commit(now_ms)
        if self._commits.is_running:
            return False
        if not cooperative and self._owned - self._overdue:
            if self._prepare_until_ms is None:
                self._prepare_until_ms = now_ms + self.settings.rebalance_timeout_ms // 2
            self._give_up(self._owned)
            if self._owned and now_ms < self._prepare_until_ms:
                return False
            self._overdue = set(self._owned)
        self._prepare_until_ms = None
        return True

    def take_over(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        given = set(partitions)
        self._given = given
        self._prepare_until_ms = None
        self._is_committed_to_join = False
        self._lose(self._overdue - given)
        self._overdue.clear()
        self._keep(self._leaving & given)
        self._give_up(self._owned - given)
        self.committing.is_given()
        added = given - self._owned
        self._owned |= added
        self._starts.hear(self._topics.names)
        self._starts.look_up(given - self._leaving, now_ms)
        self._fetching.notify()

    def settled(self) -> None:
        self._fetching.notify()

    def lost(self, now_ms: int) -> None:
        self._given = set()
        self._prepare_until_ms = None
        self._is_committed_to_join = False
        self._lose(set(self._owned))

    def kept_out(self, error: SegbrokerError) -> None:
        self._fetching.fail(error)

    def failed(self, error: SegbrokerError) -> None:
        if isinstance(error, FencedInstanceId):
            self.error = error
        self._fetching.fail(error)

    # What is given.

    def _reads(self, wanted: list[TopicPartition]) -> None:
        """It is known where the group stands in these."""
        self._begin_backoff.reset()
        self._hold(self._leaving.intersection(wanted), True)
        if self._on_assigned is not None:
            self._hold(wanted, True)
            self.events.tell(
                Event(
                    News.ASSIGNED,
                    self._on_assigned,
                    wanted,
                    # What is being given up by now stays held, to its end.
                    lambda: self._hold((self._owned - self._leaving) & set(wanted), False),
                )
            )
        self._fetching.notify()

    def _cannot_begin(self, error: SegbrokerError) -> None:
        """It is left to the others; for good by who may not: each time that it joined they would
        rebalance.  Else the next call asks again, behind the goodbye and a back-off."""
        goodbye_ms = self._now_ms + self._engine.settings.retry_backoff_ms
        self._begin_again_ms = goodbye_ms + self._begin_backoff.next_delay_ms()
        self._engine.call(self._say_later(self.membership.end(str(error))), self._now_ms)
        self.lost(self._now_ms)
        if isinstance(error, NOT_ALLOWED):
            self.error = error
        self._fetching.fail(error)

    def _say_later(self, goodbye: Goodbye) -> Call[None]:
        """Not on the connection of what has just failed, which may be its end."""
        yield Pause(self._engine.settings.retry_backoff_ms)
        yield from goodbye(CONTROL)

    def _cluster_updated(self, asked: Collection[str]) -> None:
        if self.membership.is_given:
            self._starts.hear(self._topics.names)
        self._starts.look_up_returned(self._owned - self._leaving - self._fetching.states.keys())

    # What goes.

    def _give_up(self, partitions: set[TopicPartition]) -> None:
        going = partitions - self._leaving
        if not going:
            return
        self._leaving |= going
        self._hold(going, True)
        # Of these the caller has nothing, and has not heard that they came.
        unread = going & self._starts.asked if self._on_assigned is not None else set()
        for tp in unread:
            self._starts.forget(tp)
        self._going_for_good |= unread
        self._given_up(unread)
        going -= unread
        if not going:
            return
        until_ms = None
        if self._on_revoked is not None and self.membership.is_cooperative:
            until_ms = self._now_ms + self.settings.rebalance_timeout_ms // 2
        event = Event(
            News.REVOKED,
            self._on_revoked,
            going,
            lambda: self._revoked(event),
            going,
            until_ms,
        )
        self.events.tell(event)

    def _revoked(self, event: Event) -> None:
        self._given_up(event.partitions)
        self._heard(event)

    def _heard(self, event: Event) -> None:
        """The caller has heard that these go: that is not taken back, nor told again."""
        if event.listener is not None:
            self._going_for_good |= self._last_commits.keys() & set(event.partitions)

    def _give_up_unheard(self, now_ms: int) -> None:
        """The others wait for what the caller has nothing of in hand, and it does not come."""
        if late := self.events.too_late(now_ms):
            self.committing.goes_unheard(late)
            self._commits.loses(late - self._commits.gone_past(late).keys())
            # Not told where they are ours again before they are gone, see `_keep`.
            unsaid = late & self._unsaid()
            if told := late - unsaid:
                event = Event(
                    News.LOST, self._on_lost, told, lambda: self._heard(event), waits_for=told
                )
                self.events.tell(event)
            self.events.withdraw(late)
            self._going_for_good |= unsaid
            self._given_up(late)

    def _unsaid(self) -> set[TopicPartition]:
        """What is the member's own, and the caller has not heard so: nor does it hear the end."""
        if self._on_assigned is None:
            return set()
        return self.events.to_be_told(News.ASSIGNED) | self._starts.asked

    def _given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """The caller is done with them: say where it was, and let them go."""
        going = self._leaving.intersection(partitions)
        if not going:
            return
        commit = self._commits.by_member(self._commits.gone_past(going))
        call = self._engine.call(commit, self._now_ms, timeout_ms=self._commits.timeout_ms)
        self._last_commits.update(dict.fromkeys(going, call))
        # However it went: a heartbeat hears it too when all is lost.
        call.on_done(lambda: self._let_go(call))

    def _let_go(self, commit: Completion[None]) -> None:
        # What was lost or kept meanwhile has nothing to do with it, also where it goes once more.
        going = {tp for tp, last in self._last_commits.items() if last is commit}
        self._drop(going)
        again = going & self._given if self.membership.is_given else set()
        if again:
            # Given once more while it was being given up.
            self._owned |= again
            self._starts.look_up(again, self._now_ms)
        if going and self.membership.is_cooperative:
            self.membership.rejoin("gave up partitions")
        self._fetching.notify()
        self._wake_by(0)

    def _keep(self, partitions: set[TopicPartition]) -> None:
        """They are ours again before they were gone."""
        kept = partitions & self._leaving
        if not kept:
            return
        # Of what the caller is being told, or was, or will not be: that goes, and comes again.
        kept -= self.events.being_told() | self._going_for_good
        self._leaving -= kept
        for tp in kept:
            self._last_commits.pop(tp, None)
        self._hold(kept, False)
        self.events.withdraw_given_up(kept)

    def _lose(self, partitions: set[TopicPartition]) -> None:
        # Of what waits to be told as lost that says it all: what came behind it is not heard of.
        # Nor is it of what the caller is told to be going, or was.
        told = self._to_hear_of(partitions) - self.events.to_be_told(News.LOST)
        self.committing.goes_unheard(partitions)
        self._commits.loses(partitions)
        self.events.withdraw(partitions)
        self._drop(partitions)
        if told:
            self.events.tell(Event(News.LOST, self._on_lost, told))

    def _to_hear_of(self, partitions: set[TopicPartition]) -> set[TopicPartition]:
        """That these go; not where the caller has heard all of it, or hears it at this moment and
        may hang in that, nor where it has not heard that they came."""
        return partitions - self._unsaid() - self.events.being_told_gone() - self._going_for_good

    def _drop(self, partitions: set[TopicPartition]) -> None:
        self._leaving -= partitions
        self._going_for_good -= partitions
        self._owned -= partitions
        self._overdue -= partitions
        self.committing.drops(partitions)
        for tp in partitions:
            self._progress.sought(tp)
            self._commits.forget(tp)
            self._starts.forget(tp)
            self._last_commits.pop(tp, None)
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

    # Commits, and the end.

    def commit(self, offsets: Offsets | None) -> Call[None]:
        """See Commits.asked_for."""
        return self._commits.asked_for(offsets)

    def _auto_commit(self, now_ms: int) -> None:
        self._commits.by_itself(self._owned - self._leaving - self._overdue, now_ms)

    @property
    def last_tellers(self) -> Collection[int]:
        """Who is in a callback of the end."""
        return self.tellers if self._is_closing else ()

    def closing(self, now_ms: int) -> list[Event]:
        """The end: nothing more is handed out; what the caller is told of it, if anything.  It has
        as long for that as for any callback.

        Once: a callback may close the consumer, and what it is told of at that moment it has heard.
        """
        if self._is_closing:
            return []
        self._is_closing = True
        self.is_here(now_ms)
        self.events.take_back()
        lost = self.events.to_be_told(News.LOST)
        revoked = self._to_hear_of(self._owned) - lost
        told = [
            event
            for event in (
                Event(News.LOST, self._on_lost, lost),
                Event(News.REVOKED, self._on_revoked, revoked),
            )
            if event.partitions and event.listener is not None
        ]
        self.events.last(told)
        self._hold(self._owned, True)
        return told

    def told(self) -> Call[None]:
        """Wait until nobody is in a callback any more."""
        while self.tellers:
            yield Pause(CALLBACK_LOOK_MS)

    def goodbye(self, now_ms: int, *, patient: bool) -> Call[None]:
        """At the end: commit what the caller has gone past, and leave.

        Patient: again until it is done.  Else one try, for who may wait a moment only.  Whoever
        closes while another thread or task says it waits for that.
        """
        self._now_ms = now_ms
        if self._parting is not None:
            yield Until(self._parting)
            return
        self._parting = Completion()
        try:
            yield from self._part(patient)
        finally:
            self._parting.resolve(None)

    def _part(self, patient: bool) -> Call[None]:
        offsets = self._commits.gone_past(self._owned - self._overdue)
        member = self.membership.metadata
        goodbye = self.membership.end("closed")
        if patient:
            # Where it fails the next owner reads it again.
            commit = self._commits.by_member(offsets, member)
            last = self._engine.call(commit, self._now_ms, timeout_ms=LAST_COMMIT_MS)
            yield Until(last)
            # Behind a commit that is not answered it would wait, on their connection.
            lane = GROUP if isinstance(last.error, TimedOut) else CONTROL
            with suppress(SegbrokerError):  # a session ends by itself
                yield from goodbye(lane)
        else:
            # Both are sent at once, in this order.
            topic_ids, coordinator = self._commits.topics_of(offsets), self.membership.coordinator
            calls = (commit_offsets(coordinator, member, offsets, topic_ids), goodbye(CONTROL))
            for done in [self._engine.call(call, self._now_ms) for call in calls]:
                yield Until(done)

    # The engine's side.

    def step(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._starts.step(now_ms)
        self._topics.step(now_ms)
        self.events.settle()
        self._give_up_unheard(now_ms)
        if self._commits.is_due(now_ms):
            self._auto_commit(now_ms)
        self._poll_interval.begin(now_ms)
        late_ms = self._late_ms
        if late_ms is not None and now_ms >= late_ms:
            goodbye = self.membership.end("max_poll_interval_ms passed")
            self._engine.call(goodbye(CONTROL), now_ms)
            self.lost(now_ms)

    @property
    def _late_ms(self) -> int | None:
        """When the caller is away for too long; None: never, or it is here, or no member."""
        return None if self.membership.phase is Phase.OUT else self._poll_interval.late_ms

    def next_wake_ms(self) -> int | None:
        wakes = [
            self._commits.next_wake_ms(self._now_ms),
            self._topics.next_wake_ms(),
            self._starts.next_wake_ms,
            self._prepare_until_ms,
            self.events.next_wake_ms(),
            self._late_ms,
        ]
        return min((wake for wake in wakes if wake is not None), default=None)

    def close(self, error: SegbrokerError) -> None:
        self.events.clear()

"""Committing for a member of a group: where the caller is, in the member's generation.

    by itself    every commit_interval_ms, and once before the member joins again: then the group
                 still takes commits, and a partition may be somebody else's by the next one
    asked for    what the caller names, or all that it was handed; through a rebalance, also one
                 that was over before the broker had the commit

One at a time, in the order in which they were asked for: a commit that is sent again after a lost
connection, or overtaken, would undo one that was made meanwhile.  One that was refused during a
rebalance, or for now, lets others go first, the last one too, and then leaves out what those have
committed, and offsets of topics that were made again meanwhile.  What is committed already is not
committed again.  A commit that comes too late is refused by the broker, or here, and nobody is
hurt: the successor begins where the last one that counted stands.  Here, if its partition went and
came back meanwhile, or since the caller was last here; and if it is for all that the caller was
handed, and some of that was lost since (0400).

By KIP-848 the epoch of a member may have risen without its knowing: a commit that is refused for
that (StaleMemberEpoch) is made again until the member has heard of it, or that it is none.

A commit says by their ids which topics it is for, where the broker takes that: an offset means
nothing in a topic that has got the name since, and a member there would pass over its records.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from uuid import UUID

from segbroker.protocol.fields import ZERO_UUID

from .asking import is_for_now
from .completion import Completion
from .engine import Call, Engine, Pause, Refresh, Until
from .errors import (
    BrokerError,
    IllegalGeneration,
    RebalanceInProgress,
    SegbrokerError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    as_told,
)
from .fetching import Fetching
from .group_offsets import CommittedOffset, GroupMetadata, commit_offsets
from .membership import Membership
from .progress import Progress
from .records import TopicPartition
from .refusals import of_committing
from .settings import GroupSettings

# A commit by itself may take this long, and this part of the time that a rebalance has: it goes
# before each join, and what is given up goes behind it, with it or without.
COMMIT_TIMEOUT_MS = 5_000
COMMIT_PART = 4

Offsets = Mapping[TopicPartition, CommittedOffset]
# Of the topics that offsets are of; zero where that is not known.
TopicIds = Mapping[TopicPartition, UUID]
# So often a topic that is not there by its id is looked at, until that is believed.
LOOKS_MAX = 4


class Commits:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        settings: GroupSettings,
        membership: Membership,
        fetching: Fetching,
        progress: Progress,
        *,
        owned: Set[TopicPartition],
        member: Callable[[], GroupMetadata],
        wake_by: Callable[[int], object],
    ) -> None:
        """`owned`: what the member may commit, now and later; `member`: as whom, also while it says
        goodbye."""
        self.is_running = False
        self._engine = engine
        self._settings = settings
        self._membership = membership
        self._fetching = fetching
        self._progress = progress
        self._owned = owned
        self._member = member
        self._wake_by = wake_by
        # The first is under way; each is done when it is over.
        self._queue: deque[Completion[None]] = deque()
        # (round, offset): another round of the log makes it void, a topic that is another has none.
        self._committed: dict[TopicPartition, tuple[int, int]] = {}
        # How many were asked for, and of each partition which of them was made last.
        self._asked_count = 0
        # Those that are not over: for them it matters what was made, and what went, meanwhile.
        self._pending_count = 0
        self._made: dict[TopicPartition, int] = {}
        # Of each partition that was somebody else's which number that has among them, the latest
        # last; and which the caller had when it was last here.
        self._gone: dict[TopicPartition, int] = {}
        self._here = 0
        # What went since without a commit of what the caller was handed of it.
        self._lost: TopicPartition | None = None
        self._due_ms = 0
        # Why the last one by itself has failed, to be tried again; None: the broker took one since.
        self._failed: SegbrokerError | None = None
        self._refusals = of_committing(settings.group_id, engine.network.absences.say)

    def stands_at(self, tp: TopicPartition, offset: int | None) -> None:
        """The group was found to stand there, where it is about to be read; None: nowhere."""
        self._committed[tp] = 0, -1 if offset is None else offset

    def forget(self, tp: TopicPartition) -> None:
        """It is somebody else's."""
        self._committed.pop(tp, None)
        gone = self._gone
        if gone and not self._pending_count and next(reversed(gone.values())) <= self._here:
            gone.clear()  # the caller was here since the last of them went
        gone.pop(tp, None)
        gone[tp] = self._number()

    def is_here(self) -> None:
        """The caller asks for more, or gets it: it goes on with what the member has now.  Also said
        without the lock."""
        self._here = self._asked_count
        self._lost = None

    def loses(self, partitions: Iterable[TopicPartition]) -> None:
        """These go and nothing is committed of them any more.  Said while they are still read."""
        in_hand = {tp for tp in partitions if self._progress.is_busy_with(tp)}
        if undone := in_hand | self.uncommitted(partitions).keys():
            self._lost = min(undone)

    def gone_past(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Where the caller stands in these, where that is not committed; nothing by hand only."""
        if not self._settings.auto_commit or self._membership.generation < 0:
            return {}
        return self.uncommitted(partitions)

    def uncommitted(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Where the caller stands in these, where that is not committed; nothing of a topic that is
        gone: its successor would be begun there."""
        found = {}
        for tp in partitions:
            state = self._fetching.states.get(tp)
            if state is None or state.topics_ahead_count:
                continue
            offset = self._progress.gone_past(state)
            if offset is None or self._committed.get(tp) == (state.round, offset):
                continue
            found[tp] = CommittedOffset(offset, state.position_epoch)
        return found

    @property
    def timeout_ms(self) -> int:
        """Of one by itself."""
        return min(COMMIT_TIMEOUT_MS, self._settings.rebalance_timeout_ms // COMMIT_PART)

    def by_member(self, offsets: Offsets, last_as: GroupMetadata | None = None) -> Call[None]:
        """Behind those that were asked for before, in the generation that is present then; again
        while it is refused for now.  last_as: at the end, who the member was until then."""
        topic_ids = self.topics_of(offsets)
        backoff = self._engine.backoff()
        with self._one_more() as number:
            while True:
                try:
                    yield from self._try(offsets, number, number, topic_ids, last_as)
                except StaleMemberEpoch as exc:
                    if last_as is not None:
                        raise
                    yield self._until_told(exc)
                except BrokerError as exc:
                    if not is_for_now(exc):
                        raise
                    yield Pause(backoff.next_delay_ms(), exc)
                else:
                    return

    def _until_told(self, why: StaleMemberEpoch) -> Pause:
        """The member is at a later epoch by now; it is about to hear of it, or that it is none."""
        return Pause(self._engine.settings.retry_backoff_ms, why)

    def topics_of(self, offsets: Iterable[TopicPartition]) -> TopicIds:
        """Which topics these are in, as they are read: who asks means them, and not those that come
        later under their names."""
        states = self._fetching.states
        return {tp: states[tp].topic_id for tp in offsets if tp in states}

    def _is_another(self, tp: TopicPartition, topic_ids: TopicIds) -> bool:
        """Whether the topic is another one by now, as far as is known: of a partition that came
        back a moment ago it may not be."""
        state, meant = self._fetching.states.get(tp), topic_ids.get(tp, ZERO_UUID)
        if state is None or ZERO_UUID in (meant, state.topic_id):
            return False
        return state.topic_id != meant

    def _is_gone(self, tp: TopicPartition) -> bool:
        """Whether the caller is in a topic of before, as far as it has heard."""
        state = self._fetching.states.get(tp)
        if state is None:
            return False
        return bool(state.topics_ahead_count) or self._progress.is_at_gone(state)

    def _number(self) -> int:
        self._asked_count += 1
        return self._asked_count

    @contextmanager
    def _one_more(self) -> Iterator[int]:
        """The number of one that is asked for, until it is over."""
        self._pending_count += 1
        try:
            yield self._number()
        finally:
            self._pending_count -= 1
            if not self._pending_count:
                self._made.clear()

    def _try(
        self,
        offsets: Offsets,
        number: int,
        since: int,
        topic_ids: TopicIds,
        last_as: GroupMetadata | None = None,
        *,
        is_of_all: bool = False,
    ) -> Call[None]:
        done = Completion[None]()
        self._queue.append(done)
        try:
            while (first := self._queue[0]) is not done:
                yield Until(first)
            made = self._made
            left: Offsets = {
                tp: stands
                for tp, stands in offsets.items()
                if made.get(tp, 0) < number and not self._is_another(tp, topic_ids)
            }
            if last_as is None:
                left = self._own(left, since, is_of_all=is_of_all)
            coordinator = self._membership.coordinator
            yield from commit_offsets(coordinator, last_as or self._member(), left, topic_ids)
            made.update(dict.fromkeys(left, number))
            self._note(left)
        except UnknownTopicId:
            self._engine.cluster.invalidate()
            raise
        finally:
            self._queue.remove(done)
            done.resolve(None)

    def _own(self, offsets: Offsets, since: int, *, is_of_all: bool) -> Offsets:
        """Those that are the member's, and were all the while since then: of others somebody else
        may have gone further.

        is_of_all: what went in order is left out, as where it had gone before; it had a last commit
        of its own.  Raises IllegalGeneration for it else, and for what was lost.
        """
        owned, gone = self._owned, self._gone
        others = {tp for tp in offsets if tp not in owned or gone.get(tp, 0) > since}
        if not is_of_all:
            _refuse(others)
        elif others:
            self._refuse_lost()
        return {tp: stands for tp, stands in offsets.items() if tp not in others}

    def _refuse_lost(self) -> None:
        _refuse(() if self._lost is None else (self._lost,))

    def _note(self, offsets: Offsets) -> None:
        if offsets:
            self._failed = None
        for tp, stands in offsets.items():
            state = self._fetching.states.get(tp)
            if state is not None and not state.topics_ahead_count:
                self._committed[tp] = state.round, stands.offset

    def asked_for(self, offsets: Offsets | None) -> Call[None]:
        """These; without any where the caller is, all that it was handed included.

        Goes on through a rebalance, and leaves out what is of a topic that was made again since.
        Raises UnknownMemberId or IllegalGeneration when what is to be committed is not this
        member's any more, UnknownTopicOrPartition when a topic is gone.
        """
        since = self._here
        with self._one_more() as number:
            yield from self._asked_for(offsets, number, since)

    def _asked_for(self, offsets: Offsets | None, number: int, since: int) -> Call[None]:
        states = self._fetching.states
        is_of_all = offsets is None
        if offsets is None:
            self._refuse_lost()
            self._progress.acknowledge(
                [s for s in states.values() if s.position is not None and not s.topics_ahead_count]
            )
            offsets = self.uncommitted(self._owned)
        else:
            # Of a topic that came since the caller has seen nothing: these are of the one before.
            offsets = {tp: stands for tp, stands in offsets.items() if not self._is_gone(tp)}
            for tp, stands in offsets.items():
                if tp in states:
                    self._progress.acknowledge_below(states[tp], stands.offset)
        topic_ids = self.topics_of(offsets)
        backoff = self._engine.backoff()
        while offsets := self._own(offsets, since, is_of_all=is_of_all):
            generation = self._membership.generation
            try:
                yield from self._try(offsets, number, since, topic_ids, is_of_all=is_of_all)
            except IllegalGeneration:
                # It was on its way while the member went on to the next generation, in which these
                # may be its own as well.
                if self._membership.generation in (generation, -1):
                    raise
            except StaleMemberEpoch as exc:
                yield self._until_told(exc)
            except RebalanceInProgress:
                yield Pause(self._engine.settings.retry_backoff_ms)
            except UnknownTopicId as exc:
                left = yield from self._without_others(offsets, topic_ids)
                if len(left) == len(offsets):
                    raise UnknownTopicOrPartition(str(exc)) from exc
                offsets = left
            except BrokerError as exc:
                if not is_for_now(exc):
                    raise
                yield Pause(backoff.next_delay_ms(), exc)
            else:
                return

    def _without_others(self, offsets: Offsets, topic_ids: TopicIds) -> Call[Offsets]:
        """The broker does not have some of their topics any more: those that are others by now are
        left out; all of them, where none is."""
        topics = sorted({tp.topic for tp in offsets})
        for _ in range(LOOKS_MAX):
            yield Refresh(topics)
            left = {
                tp: stands for tp, stands in offsets.items() if not self._is_another(tp, topic_ids)
            }
            if len(left) < len(offsets):
                return left
            if any(map(self._engine.cluster.is_gone, topics)):
                break
            yield Pause(self._engine.settings.retry_backoff_ms)
        return offsets

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to commit by itself."""
        return not self.is_running and now_ms >= self._due_ms

    def by_itself(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Commit what the caller has gone past in these; none may be running."""
        self._due_ms = now_ms + self._settings.commit_interval_ms
        offsets = self.gone_past(partitions)
        if self._failed is None:
            self._refusals.done(now_ms)
        elif offsets:
            self._refusals.refused(self._failed, now_ms)
        if offsets:
            self.is_running = True
            call = self._engine.call(self.by_member(offsets), now_ms, timeout_ms=self.timeout_ms)
            call.on_done(lambda: self._done(call))

    def _done(self, call: Completion[None]) -> None:
        self.is_running = False
        self._wake_by(0)
        error = call.error
        if error is None:
            return
        if isinstance(error, SegbrokerError) and error.retryable:
            self._failed = error
            return
        if isinstance(error, RebalanceInProgress | IllegalGeneration | UnknownMemberId):
            return  # the membership hears of it too
        self._fetching.fail(as_told(error))

    def next_wake_ms(self, now_ms: int) -> int | None:
        is_wanted = self._settings.auto_commit and not self.is_running and self._owned
        return max(self._due_ms, now_ms + 1) if is_wanted else None


def _refuse(partitions: Collection[TopicPartition]) -> None:
    """Raise IllegalGeneration if there are any."""
    if partitions:
        topic, partition = min(partitions)
        raise IllegalGeneration(
            f"not committed: {topic}-{partition} is not this member's (any more); whoever has it"
            " begins where the group stands"
        )

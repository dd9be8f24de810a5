"""What both share consumers share: the membership, the records, and what was said of them.

    group gives partitions --> lanes fetch, when somebody waits --> waiting, in order --> the caller
                                  ^                                     |
                                  +-- accept, release, reject, renew ---+

`waiting[0]` is what the caller has, or gets next: it goes when the caller comes back for more.
What `shown` says was really given: Ctrl-C comes at any call, and what it took away is given once
more.  Without `explicit` what was shown and nothing was said of is accepted then: not before,
because the work at it may yet fail.

Nobody is given a record whose lock has ended meanwhile: it is somebody else's by then.

Threads: everything here runs under the shell's lock; `shown` is set by the thread whose turn it is.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice, takewhile
from math import inf
from random import Random
from typing import Any

from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_share_groups import ShareFetchResponsePartition

from .acknowledging import LAPSED, Acquired, Failures, Kind, ShareRecord
from .acquired_records import open_answer
from .clock import now_ms
from .completion import Completion
from .engine import Ask, Call, Engine, Pause, Until
from .errors import (
    BusyError,
    FailedAcknowledgement,
    GapError,
    InvalidRecordState,
    PeerError,
    SegbrokerError,
    TimedOut,
)
from .group_topics import GroupTopics
from .heartbeating import Given, Stage
from .network import FETCH
from .records import Gap, TopicPartition, topic_names
from .settings import OnGap
from .share_lane import Lane, Told
from .share_lanes import ShareLanes
from .share_membership import ShareMembership
from .share_session import Key
from .share_settings import ShareOptions, share_settings
from .silence import Silence
from .spoken import Reply

# A question that was wanted a moment ago is asked all the same: a poll that does not wait gets
# what it brings the next time.
ASK_MS = 100
# What a lock is worth that a broker gives for less.
LOCK_MIN_MS = 100
ERRORS_COUNT_MAX = 100
# Between two looks whether the last question was answered.
FREE_MS = 2

FailureListener = Callable[[list[FailedAcknowledgement]], Any]
"""Called with what does not hold; in an async consumer it may be an async function."""


class ShareReading:
    """See the module.  A component of the engine."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        topics: Collection[str],
        *,
        group: str,
        explicit: bool,
        on_gap: OnGap,
        on_failed: FailureListener | None,
        wake_by: Callable[[int], object],
        options: ShareOptions,
    ) -> None:
        client, self.settings = share_settings(bootstrap, group, on_gap, options, explicit=explicit)
        if on_failed is not None and not callable(on_failed):
            raise TypeError(f"{on_failed!r} cannot be called with a list of what failed")
        self.engine = Engine(client, Random())
        self.on_failed = on_failed
        self.shown: Sequence[ShareRecord | Gap] = ()
        self.lost_counts: dict[TopicPartition, int] = {}
        self._waiting: deque[ShareRecord | Gap] = deque()
        # What went wrong, and with what topic; None: with none.
        self._errors: deque[tuple[SegbrokerError, str | None]] = deque()
        # What does not hold of what was said.
        self.failures = Failures()
        # Of what was shown that of which something was said.
        self._spoken_of: set[tuple[Key, int]] = set()
        # Of which it is just being said.
        self._accepting: tuple[Key, int] | None = None
        self._given: Given = ()
        self._settled: Completion[None] | None = None
        self._wake_by = wake_by
        self._wanted_until_ms: float | None = None
        self._seen_ms = 0
        self._flushes = 0
        self._silence = Silence()
        self._changed: Completion[None] | None = None
        self._is_closed = False
        # The end waits for questions that are open.
        self._is_patient = True
        self._topics = GroupTopics(self.engine, changed=self._topics_changed, missing=self.fail)
        self.membership = ShareMembership(
            self.engine,
            self.settings.group_id,
            topics=lambda: self._topics.names,
            given=self._take_over,
            failed=self.fail,
        )
        self.lanes = ShareLanes(self.engine, self.settings, self.membership.member_id, self)
        self.engine.components.append(self)
        self.engine.cluster.on_update.append(self._cluster_updated)
        self.engine.cluster.wanted_by.append(
            lambda: {*self._topics.names, *(tp.topic for tp in self.lanes.given.values())}
        )
        if topics:
            self.subscribe(topics)

    # The caller's side.

    def subscribe(self, topics: Collection[str]) -> None:
        """Have the group share these topics with this member, instead of those before."""
        names = topic_names(topics)
        if not names:
            raise ValueError("no topics: a member of a share group needs one")
        self._topics.choose(names)

    def _topics_changed(self) -> None:
        # What went wrong with others does not count any more.
        kept = (None, *self._topics.names)
        self._errors = deque(entry for entry in self._errors if entry[1] in kept)
        self.membership.enter()
        self._wake_by(0)

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self.lanes.given.values())

    def check_chosen(self) -> None:
        """Raises TypeError where nobody has said what to read: waiting would be for ever."""
        if not self._topics.names:
            raise TypeError("nothing to read: give topics to the consumer, or subscribe")

    def came_back(self, at_ms: int) -> None:
        """The caller asks for more: what it was shown is done with."""
        self._seen_ms = at_ms
        if not self.settings.explicit:
            self._accept_shown(at_ms)
        for item in self.shown:
            if self._waiting and self._waiting[0] is item:
                self._waiting.popleft()
        self.shown = ()
        self._accepting = None
        self._spoken_of.clear()
        if self.membership.stage is Stage.OUT and self._topics.names and not self._is_closed:
            self.membership.enter()
            self._wake_by(0)

    def _accept_shown(self, at_ms: int) -> None:
        """Of what was shown that of which nothing was said."""
        for item in self.shown:
            if not isinstance(item, ShareRecord) or (place := _place(item)) in self._spoken_of:
                continue
            if place == self._accepting and not self.lanes.holds(*place, at_ms):
                continue  # Ctrl-C came when that was done, and before it was noted
            self._accepting = place
            self._mark(item, Kind.ACCEPT, at_ms, self.failures)

    def say(self, records: Sequence[ShareRecord], kind: Kind) -> None:
        """What became of records.  Raises AcknowledgeFailed for those that are not locked for this
        member, TypeError for what is no record of a share group."""
        for record in records:
            if not isinstance(record, ShareRecord):
                raise TypeError(
                    f"a {type(record).__name__} is no ShareRecord; several are given one by one"
                )
        self._seen_ms = at_ms = now_ms()
        failures = Failures()
        for record in records:
            self._mark(record, kind, at_ms, failures)
        self._wake_by(at_ms + self.settings.acknowledge_interval_ms)
        failures.raise_all()

    def _mark(self, record: ShareRecord, kind: Kind, at_ms: int, failures: Failures) -> None:
        if not self.lanes.mark(*_place(record), kind, at_ms):
            error = InvalidRecordState(LAPSED)
            where = record.topic, record.partition, (record.offset,)
            failures.add([FailedAcknowledgement(*where, kind.word, error)])
        if kind is not Kind.RENEW and not self.settings.explicit:
            self._spoken_of.add(_place(record))

    def take(self) -> ShareRecord | Gap | None:
        """What comes next; it stays so until the caller has come back.  Raises what went wrong."""
        if self.on_failed is None:
            self.failures.raise_all()
        if self._errors:
            raise self._errors.popleft()[0]
        at_ms = now_ms()
        while self._waiting and not self._is_ours(self._waiting[0], at_ms):
            self._waiting.popleft()  # it comes again, perhaps to somebody else
        if not self._waiting:
            self._check_held()
            return None
        self._seen_ms = at_ms
        item = self._waiting[0]
        if isinstance(item, Gap) and self.settings.on_gap == "raise":
            self._waiting.popleft()
            raise GapError(item)
        return item

    def take_many(self, count: int) -> tuple[ShareRecord | Gap, ...]:
        """What comes next, up to so many."""
        if self.take() is None:
            return ()
        at_ms = now_ms()
        items = takewhile(lambda item: self._is_ours(item, at_ms), islice(self._waiting, count))
        if self.settings.on_gap == "raise":
            # Raised by the next call, which has none.
            items = takewhile(lambda item: not isinstance(item, Gap), items)
        return tuple(items)

    def _is_ours(self, item: ShareRecord | Gap, at_ms: int) -> bool:
        """Whether it may be handed out: a record only while it is locked for this member.

        Nothing else of the client may have run since the lock ended.
        """
        return isinstance(item, Gap) or self.lanes.holds(*_place(item), at_ms)

    def _check_held(self) -> None:
        held = self.lanes.held_count
        if held >= self.settings.held_count:
            raise BusyError(
                f"{held} records were handed out and not acknowledged, held_count="
                f"{self.settings.held_count}: accept, release or reject some"
            )

    def to_tell_last(self) -> list[FailedAcknowledgement]:
        """What does not hold at the end, when no lock is wanted for longer."""
        return [each for each in self.failures.to_tell() if each.kind != Kind.RENEW.word]

    def want(self, until_ms: float | None) -> None:
        """Somebody waits for records, so long; None: until there are some."""
        self._wanted_until_ms = inf if until_ms is None else max(until_ms, now_ms() + ASK_MS)
        self._wake_by(0)

    def want_no_more(self) -> None:
        """The wait is over; until then the caller was here."""
        self._seen_ms = now_ms()
        self._wanted_until_ms = None

    def changed(self) -> Completion[None]:
        """Done when there is something new: records, errors, the end."""
        if self._changed is None:
            self._changed = Completion()
            if self._is_closed:
                self._changed.resolve(None)
        return self._changed

    def commit(self) -> Call[None]:
        """Have everything taken that was said; what was shown counts as said, unless explicit."""
        if not self.settings.explicit:
            self._accept_shown(now_ms())
        self._flushes += 1
        self._wake_by(0)
        try:
            while not self.lanes.is_settled:
                yield Until(self._settling())
        finally:
            self._flushes -= 1

    def _settling(self) -> Completion[None]:
        if self._settled is None:
            self._settled = Completion()
        return self._settled

    def goodbye(self, *, patient: bool) -> Call[None]:
        """Say what was said, give the rest back, and leave the group."""
        self._is_closed = True
        self._wanted_until_ms = None
        self._is_patient = patient
        at_ms = now_ms()
        ends = [self.engine.call(self._end(lane), at_ms) for lane in self.lanes.lanes.values()]
        for each in (*ends, self.engine.call(self.membership.goodbye(), at_ms)):
            yield Until(each)

    def _end(self, lane: Lane) -> Call[None]:
        """The end at one broker: of another that is silent it does not hear."""
        while self._is_patient and lane.is_asked:
            yield Pause(FREE_MS)
        last = self.lanes.close_session(lane)
        if last is None:
            return
        reply: Reply = TimedOut("it was said at the end, and not answered in time")
        try:
            reply = yield Ask(last.request, to=lane.node_id, lane=FETCH)
        except SegbrokerError as exc:
            reply = exc
        finally:  # also when the time is over
            last.take(reply, now_ms())

    def hurry(self) -> None:
        """Whoever said goodbye patiently has no more time."""
        self._is_patient = False

    # The lanes' side.

    def wait_ms(self, at_ms: int) -> int | None:
        until_ms = self._wanted_until_ms
        if until_ms is None or at_ms > until_ms or self._waiting or self._is_closed:
            return None
        longest_ms = min(self.settings.fetch_wait_ms, self.engine.settings.request_timeout_ms // 2)
        return int(min(longest_ms, until_ms - at_ms))

    @property
    def is_hurried(self) -> bool:
        return self._flushes > 0

    def may_renew(self, at_ms: int) -> bool:
        hold_ms = self.settings.max_hold_ms
        if hold_ms is None:
            return True
        until_ms = self._wanted_until_ms
        seen_ms = self._seen_ms if until_ms is None else max(self._seen_ms, min(at_ms, until_ms))
        return at_ms < seen_ms + hold_ms

    def take_in(
        self, acquired: Acquired, row: ShareFetchResponsePartition, lock_ms: int, at_ms: int
    ) -> None:
        try:
            opened = open_answer(acquired.tp, acquired.topic_id, row)
        except PeerError as exc:
            self.fail(exc)
            return
        acquired.take_in(opened.counts, max(LOCK_MIN_MS, lock_ms), at_ms)
        acquired.mark_all(opened.said, at_ms)
        if opened.error is not None:
            self.fail(opened.error)
        for item in opened.items:
            if isinstance(item, Gap):
                lost = self.lost_counts
                lost[acquired.tp] = lost.get(acquired.tp, 0) + item.lost_count
                if self.settings.on_gap == "skip":
                    continue
            self._waiting.append(item)
        self.notify()

    def answered(self) -> None:
        self._silence.over()

    def told(self, failed: Told) -> None:
        if failed:
            self.failures.add(failed)
            self.notify()

    def fail(self, error: SegbrokerError, topic: str | None = None) -> None:
        if len(self._errors) < ERRORS_COUNT_MAX:
            self._errors.append((error, topic))
        self.notify()

    # The engine's side.

    def step(self, at_ms: int) -> None:
        self.lanes.step(at_ms)
        if self._settled is not None and self.lanes.is_settled:
            settled, self._settled = self._settled, None
            settled.resolve(None)
        self._notice_silence(at_ms)

    def _notice_silence(self, at_ms: int) -> None:
        """Records are waited for and nobody has answered for long: the caller must hear of it.

        Where nobody serves any of the partitions it hears that instead (share_lanes.py).
        """
        is_unserved = self.engine.cluster.is_unserved
        if self.wait_ms(at_ms) is None or all(is_unserved(*tp) for tp in self.lanes.given.values()):
            self._silence.over()
            return
        self._silence.wanted(at_ms)
        if self._silence.is_too_long(at_ms, self.engine.settings.api_timeout_ms):
            self.fail(self.engine.network.unreachable())

    def next_wake_ms(self) -> int | None:
        silent_ms = self._silence.due_ms(self.engine.settings.api_timeout_ms)
        wakes = (self.lanes.next_wake_ms(), silent_ms)
        return min((wake for wake in wakes if wake is not None), default=None)

    def close(self, error: SegbrokerError) -> None:
        self._is_closed = True
        self._waiting.clear()
        self.lanes.close(error)
        if not self._errors:
            self.fail(error)
        self.notify()

    def notify(self) -> None:
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.resolve(None)

    # What the group gives.

    def _cluster_updated(self, asked: Collection[str]) -> None:
        self._name_given()

    def _take_over(self, given: Given) -> None:
        if self._given and not given:
            self.engine.cluster.invalidate()  # are its topics gone?
        self._given = given
        self._name_given()

    def _name_given(self) -> None:
        topics = self.engine.cluster.topics
        names = {
            view.topic_id: name
            for name in self._topics.names
            if (view := topics.get(name)) is not None and view.topic_id != ZERO_UUID
        }
        self.lanes.given = {
            (topic_id, partition): TopicPartition(names[topic_id], partition)
            for topic_id, partition in self._given
            if topic_id in names
        }
        if len(self.lanes.given) < len(self._given):
            self.engine.cluster.invalidate()
        self._wake_by(0)


def _place(record: ShareRecord) -> tuple[Key, int]:
    """Where it is: not by the topic's name, which another one may have by now."""
    return (record.topic_id, record.partition), record.offset

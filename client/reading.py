"""What both consumers share: settings, the prefetched batches, and the position of the caller.

consumer.py and async_consumer.py add only how to wait.  The caller takes whole batches (`batches`)
or records.  All records of a batch are made at once and handed out by a list iterator, so that a
record costs no call into this package.

fetching.py reads ahead, `progress` is the caller's position, and with `group` a group decides which
partitions are read (group_reading.py).

    came_back ──▶ fetching takes a batch ──▶ hand_out ──▶ take_records ──▶ the caller
        ^                                                                       │
        └────────────────────── the next record, batch or poll ─────────────────┘

`came_back` counts what was handed out before as gone past; only that is committed.  Between taking
a batch and handing it out its partition may be given up or moved by a seek: then it is dropped, as
its `generation` is another one.  What an exception takes away before the caller has it is handed
out again (`take_back`).

What sends requests returns a `Call` (engine.py), which the shell runs in its own way; all else
returns at once.  Threads: the shell holds one lock around each call.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Never

from .assigned import Fetched
from .clock import now_ms
from .consumed import ConsumedBatch
from .engine import Call, Engine
from .errors import SegbrokerError
from .fetching import Fetching, WakeBy
from .group_events import Event, Listener
from .group_offsets import CommittedOffset, GroupMetadata, as_offsets, fetch_offsets
from .group_reading import GroupReading
from .lookups import END_TIME, START_TIME, look_up, topics_known
from .progress import Progress
from .records import (
    ByPartition,
    OffsetAndTimestamp,
    Record,
    TopicPartition,
    as_partition,
    as_partitions,
    topic_names,
)
from .settings import ConsumerOptions, OnGap, consumer_settings
from .starting import Start, check_start, to_ms

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # What a consumer hands out besides records and batches: nothing, unless on_gap="yield".
    Notice = TypeVar("Notice", default=Never)
else:
    from typing import TypeVar

    Notice = TypeVar("Notice")


class Reading:
    """See the module."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        topics: Collection[str],
        *,
        pattern: str | re.Pattern[str] | None = None,
        group: str | None,
        start: Start,
        stop_at_end: bool,
        on_gap: OnGap,
        on_assigned: Listener | None,
        on_revoked: Listener | None,
        on_lost: Listener | None,
        wake_by: WakeBy,
        options: ConsumerOptions,
        random: Random | None = None,
    ) -> None:
        client, settings, of_group = consumer_settings(bootstrap, on_gap, group, options)
        self.start = check_start(start)
        self.engine = Engine(client, random or Random())
        self.fetching = Fetching(self.engine, settings, wake_by=wake_by, stop_at_end=stop_at_end)
        self.progress = Progress()
        self.is_chosen = False
        # Where the group stands if the last transaction was committed, which is not known, see
        # transforming.
        self.in_doubt: dict[TopicPartition, CommittedOffset] = {}
        self._group: GroupReading | None = None
        if of_group is not None:
            self._group = GroupReading(
                self.engine,
                of_group,
                self.fetching,
                self.progress,
                start=self.start,
                wake_by=wake_by,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
            )
        elif on_assigned or on_revoked or on_lost or pattern is not None:
            raise TypeError("pattern, on_assigned, on_revoked and on_lost need group=")
        for listener in (on_assigned, on_revoked, on_lost):
            if listener is not None and not callable(listener):
                raise TypeError(f"{listener!r} cannot be called with a list of partitions")
        if pattern is not None and topics:
            raise TypeError("topics or a pattern of them, not both")
        if pattern is not None:
            self.group.subscribe_pattern(re.compile(pattern))
            self.is_chosen = True
        elif topics:
            self.subscribe(topics, None)

    @property
    def group(self) -> GroupReading:
        if self._group is None:
            raise TypeError("this consumer is in no group: set group=")
        return self._group

    @property
    def is_member(self) -> bool:
        """Whether it reads as a member of a group."""
        return self._group is not None

    # Which partitions.

    def subscribe(self, topics: Collection[str], start: Start | None) -> None:
        topics = topic_names(topics)
        if self._group is not None:
            if start is not None:
                raise TypeError("a group's members begin where it stands: start= is for all")
            self._group.subscribe(topics)
        else:
            self.fetching.subscribe(topics, self.start if start is None else check_start(start))
            self.progress.keep(self.fetching.states)
        self.is_chosen = True

    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        start: Start | None,
    ) -> None:
        if self._group is not None:
            raise TypeError("a group's members are given their partitions: subscribe")
        self.fetching.assign(
            as_partitions(partitions),
            self.start if start is None else check_start(start),
        )
        self.progress.keep(self.fetching.states)
        self.is_chosen = True

    def seek(self, topic: str, partition: int, start: Start) -> None:
        tp = TopicPartition(topic, partition)
        check_start(start)
        if not self.fetching.subscription.is_early(tp):
            self.fetching.state(tp)
            self.progress.sought(tp)
        self.in_doubt.pop(tp, None)
        self.fetching.seek(tp, start)

    def go_on(self, tp: TopicPartition, stands: CommittedOffset) -> None:
        """Go on where the group stands."""
        self.progress.sought(tp)
        self.fetching.seek(tp, stands.offset, read_in_epoch=stands.leader_epoch)

    def pause(self, partitions: Iterable[tuple[str, int]] | None) -> None:
        """Also of what is being handed out: the record in hand is the last until `resume`."""
        self.fetching.pause(None if partitions is None else as_partitions(partitions))
        self.progress.interrupt()

    def resume(self, partitions: Iterable[tuple[str, int]] | None) -> None:
        self.fetching.resume(None if partitions is None else as_partitions(partitions))

    def partitions_or_all(
        self, partitions: Iterable[tuple[str, int]] | None
    ) -> list[TopicPartition]:
        if partitions is None:
            return list(self.fetching.states)
        return as_partitions(partitions)

    # Batches and records.

    def came_back(self) -> None:
        """The caller asks for more.  Raises what ended its membership."""
        if self._group is None:
            self.progress.came_back()
        else:
            self._group.came_back(now_ms())

    def take_back(self) -> None:
        """Have what the caller was not shown handed out again.  Undisturbed: a part of a seek would
        pass over what was prefetched."""
        for tp, offset in self.progress.unshown.items():
            self.go_back(tp, offset)

    def go_back(self, tp: TopicPartition, offset: int) -> None:
        """Have what the caller was handed from `offset` on handed out again."""
        self.progress.sought(tp)
        self.fetching.go_back(tp, offset)

    def waits(self) -> None:
        """The caller waits: it is no member that does not come back, for as long as that lasts."""
        if self._group is not None:
            self._group.waits()

    def is_here(self) -> None:
        """The caller waits no more, or for what it gets: said before that, as Ctrl-C may come at
        any call."""
        if self._group is not None:
            self._group.is_here(now_ms())

    def event_done(self, event: Event) -> None:
        """The caller has been told."""
        self.group.event_done(event, now_ms())

    def closing(self) -> list[Event]:
        """The end of a member: what the caller is still to be told."""
        return self.group.closing(now_ms())

    def goodbye(self, *, patient: bool) -> Call[None]:
        """What a member says at the end; who is none says nothing."""
        if self._group is not None:
            yield from self._group.goodbye(now_ms(), patient=patient)

    @property
    def last_tellers(self) -> Collection[int]:
        """Who is in a callback of the end, by thread or task.  Nothing more comes, and whoever
        waited there for a record would wait for itself."""
        return () if self._group is None else self._group.last_tellers

    def check_chosen(self) -> None:
        """Raises TypeError where nobody has said what to read: waiting would be for ever."""
        if not self.is_chosen:
            raise TypeError("nothing to read: give topics to the consumer, or subscribe or assign")

    @property
    def has_events(self) -> bool:
        """Whether there is something that the caller has to be told before it gets more."""
        return self._group is not None and self._group.events.is_waiting

    def take_records(self, *, in_loop: bool = True) -> Iterator[Record] | None:
        """The rest of a batch that is being handed out, if there is one."""
        self.is_here()
        return self.progress.records(self._may_go_on, in_loop=in_loop)

    def take_rest(self) -> ConsumedBatch | None:
        """The same as a batch."""
        self.is_here()
        return self.progress.rest_batch(self._may_go_on)

    @property
    def has_rest(self) -> bool:
        """Whether there is one: what was paused may go on by now."""
        return any(map(self._may_go_on, self.progress.rests()))

    def _may_go_on(self, tp: TopicPartition) -> bool:
        # None: the topic was made anew without this partition, and what is left of it can only go.
        # Whoever gives a partition up ends what was begun of it (Progress.sought).
        state = self.fetching.states.get(tp)
        return state is None or not (state.paused or state.held)

    def hand_out(self, fetched: Fetched, batch: ConsumedBatch) -> None:
        """Have `take_records` give the records of what was taken, unless it went meanwhile."""
        if self._is_next(fetched):
            self.progress.begin(fetched.state, batch, fetched.next_offset)
            fetched.state.opening = None

    def hand_out_batch(self, fetched: Fetched) -> bool:
        """Whether what was taken may be handed out as a whole: it may have gone meanwhile."""
        if not self._is_next(fetched):
            return False
        self.is_here()
        self.progress.takes(fetched.state, fetched.from_offset)
        fetched.state.opening = None
        return True

    def _is_next(self, fetched: Fetched) -> bool:
        if fetched.generation != fetched.state.generation:
            return False
        if self.progress.has_rest(fetched.state.tp):
            # Of a batch before it, that might not go on when this one was waited for.
            self.fetching.rewind(fetched)
            return False
        return True

    @property
    def is_ended(self) -> bool:
        """A bounded reading has come to its end."""
        if any(self.progress.rests()):
            return False  # paused
        if self._group is None:
            nothing = self.fetching.stop_at_end and not self.fetching.states
            return self.fetching.is_ended or (nothing and not self.fetching.subscription.topics)
        if not self.fetching.stop_at_end or not self._group.is_settled:
            return False
        return (not self.fetching.states or self.fetching.is_ended) and self._group.has_all()

    # As a member of a group.

    def commit(self, offsets: ByPartition[int | CommittedOffset] | Record | None) -> Call[None]:
        """Commit; the offsets of a Record are those behind it."""
        if isinstance(offsets, Record):
            offsets = {TopicPartition(offsets.topic, offsets.partition): offsets.offset + 1}
        if offsets is None:
            return self.group.commit(None)
        return self.group.commit(as_offsets(offsets))

    def committed(
        self, partitions: Iterable[tuple[str, int]] | None
    ) -> Call[dict[TopicPartition, CommittedOffset]]:
        group = self.group
        return fetch_offsets(
            group.membership.coordinator,
            group.settings.group_id,
            self.partitions_or_all(partitions),
            require_stable=True,
        )

    @property
    def group_metadata(self) -> GroupMetadata:
        return self.group.committing.of_all

    def lag(self) -> dict[TopicPartition, int]:
        lags = {}
        for tp, state in self.fetching.states.items():
            position = self.progress.position(state)
            if position is not None and state.end_offset >= 0 and not state.topics_ahead_count:
                lags[tp] = max(0, state.end_offset - position)
        return lags

    # Positions.

    def subscribed_known(self) -> Call[None]:
        """Have the partitions of what was subscribed to: all of them are meant where none are
        named, also a moment after `subscribe`.  A group says itself what is read."""
        subscription = self.fetching.subscription
        if subscription.topics:
            yield from topics_known(self.engine, subscription.topics)
            subscription.take_in_partitions()

    def position(self, tp: TopicPartition) -> int | None:
        return self.progress.position(self.fetching.state(tp))

    def why_no_position(self, tp: TopicPartition) -> SegbrokerError:
        """The error of having waited for it in vain."""
        state = self.fetching.states.get(tp)
        if state is not None and state.unserved is not None:
            return state.unserved
        return self.engine.network.unreachable()

    def look_up_offsets(
        self, partitions: Iterable[tuple[str, int]] | None, time: int
    ) -> Call[dict[TopicPartition, int]]:
        if partitions is None:
            yield from self.subscribed_known()
        wanted = dict.fromkeys(self.partitions_or_all(partitions), time)
        found = yield from look_up(
            self.engine, wanted, isolation_level=self.fetching.settings.isolation_level
        )
        return {tp: found[tp].offset for tp in wanted}

    def end_offsets(
        self, partitions: Iterable[tuple[str, int]] | None
    ) -> Call[dict[TopicPartition, int]]:
        return self.look_up_offsets(partitions, END_TIME)

    def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]] | None
    ) -> Call[dict[TopicPartition, int]]:
        return self.look_up_offsets(partitions, START_TIME)

    def offsets_for_times(
        self, times: ByPartition[int | datetime]
    ) -> Call[dict[TopicPartition, OffsetAndTimestamp | None]]:
        wanted = {
            as_partition(tp): to_ms(time) if isinstance(time, datetime) else time
            for tp, time in times.items()
        }
        for tp, time_ms in wanted.items():
            if not isinstance(time_ms, int):
                raise TypeError(
                    f"time {time_ms!r} is neither an int of milliseconds nor a datetime"
                )
            if time_ms < 0:
                raise ValueError(f"time {time_ms} ms for {tp.topic}-{tp.partition} is before 1970")
        found = yield from look_up(
            self.engine, wanted, isolation_level=self.fetching.settings.isolation_level
        )
        return {
            tp: OffsetAndTimestamp(found[tp].offset, found[tp].timestamp_ms)
            if found[tp].offset >= 0
            else None
            for tp in wanted
        }

    def partitions_for(self, topic: str) -> Call[int]:
        was_wanted = topic in self.engine.cluster.topics
        (view,) = yield from topics_known(self.engine, [topic])
        if not was_wanted and not self._is_read(topic):
            self.engine.cluster.forget([topic])
        return view.partition_count

    def _is_read(self, topic: str) -> bool:
        """Whether it is read, or to be: the caller may have said so a moment ago."""
        if self._group is not None and topic in self._group.topics():
            return True
        fetching = self.fetching
        is_subscribed = topic in fetching.subscription.topics
        return is_subscribed or any(tp.topic == topic for tp in fetching.states)


def check_poll(max_records: int, timeout_ms: float) -> None:
    """TypeError or ValueError for what a poll cannot mean."""
    if not isinstance(max_records, int):
        raise TypeError(f"max_records={max_records!r} is not an int; the time is timeout_ms=")
    if max_records < 1:
        raise ValueError(f"max_records={max_records} is not a number >= 1")
    if not isinstance(timeout_ms, int | float):
        raise TypeError(f"timeout_ms={timeout_ms!r} is not a number of milliseconds")
    if not timeout_ms <= math.inf:  # the time until then would never be over
        raise ValueError("timeout_ms=nan is not a number of milliseconds")

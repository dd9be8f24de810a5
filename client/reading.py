"""What both consumers share: settings, the prefetched batches, and where the caller stands.

A shell adds how to wait.  The caller takes whole batches (`batches`) or records; of records a whole
batch is made at once and handed out by a list iterator, so that a record costs no call of ours.

Position: of a partition whose batch is being handed out record by record, the position is the
next record's offset; it is not counted along, but read off the list iterator (how many are left).
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from operator import length_hint
from random import Random
from typing import TYPE_CHECKING, Any, Never

from .assigned import Fetched
from .consumed import ConsumedBatch
from .engine import Call, Engine
from .errors import ClosedError
from .fetching import Fetching, WakeBy
from .lookups import END_TIME, START_TIME, look_up, topics_known
from .records import Gap, OffsetAndTimestamp, Record, TopicPartition
from .settings import ConsumerOptions, OnGap, consumer_settings
from .starting import Start, check_start, to_ms

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # What a consumer hands out besides records and batches: nothing, unless on_gap="yield".
    Notice = TypeVar("Notice", default=Never)
else:
    from typing import TypeVar

    Notice = TypeVar("Notice")

# What is next for the caller: a batch with records, or a gap.
Next = tuple[Fetched, ConsumedBatch] | Gap


class Handing:
    """Records of one batch, being handed out."""

    __slots__ = ("_all", "next_offset", "records", "tp")

    def __init__(self, batch: ConsumedBatch, next_offset: int) -> None:
        self.tp = TopicPartition(batch.topic, batch.partition)
        self._all = batch.records()
        self.records = iter(self._all)
        self.next_offset = next_offset

    @property
    def position(self) -> int:
        """The offset of the next record; behind the batch when none is left."""
        left = length_hint(self.records)
        return self._all[-left].offset if left else self.next_offset

    def end(self) -> None:
        """Hand out no more of it: whoever holds the iterator finds it exhausted."""
        deque(self.records, maxlen=0)


class Reading:
    """See the module."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        topics: Collection[str],
        *,
        start: Start,
        stop_at_end: bool,
        on_gap: OnGap,
        wake_by: WakeBy,
        options: ConsumerOptions,
    ) -> None:
        random = Random()
        client, settings = consumer_settings(bootstrap, on_gap, options)
        self.start = check_start(start)
        self.engine = Engine(client, random)
        self.fetching = Fetching(
            self.engine, settings, random, wake_by=wake_by, stop_at_end=stop_at_end
        )
        self.handing: Handing | None = None
        if topics:
            self.subscribe(topics, None)

    # Which partitions.

    def subscribe(self, topics: Collection[str], start: Start | None) -> None:
        if isinstance(topics, str):
            raise TypeError(f"topics={topics!r} is a str, not a collection of them")
        self.forget_records()
        self.fetching.subscribe(topics, self.start if start is None else check_start(start))

    def assign(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], start: Start | None
    ) -> None:
        self.forget_records()
        self.fetching.assign(
            [TopicPartition(*tp) for tp in partitions],
            self.start if start is None else check_start(start),
        )

    def seek(self, topic: str, partition: int, start: Start) -> None:
        tp = TopicPartition(topic, partition)
        check_start(start)
        if self.handing is not None and self.handing.tp == tp:
            self.forget_records()
        self.fetching.seek(tp, start)

    def partitions_or_all(
        self, partitions: Iterable[tuple[str, int]] | None
    ) -> list[TopicPartition]:
        if partitions is None:
            return list(self.fetching.states)
        return [TopicPartition(*tp) for tp in partitions]

    # Batches and records.

    def take_records(self) -> Iterator[Record] | None:
        """The rest of the batch that is being handed out, if there is one."""
        handing = self.handing
        if handing is None or not length_hint(handing.records):
            return None
        return None if self.fetching.state(handing.tp).paused else handing.records

    def hand_out(self, got: Next) -> Iterator[Any]:
        """What there is next as items: the records of a batch, or the one gap."""
        if isinstance(got, Gap):
            return iter((got,))
        fetched, batch = got
        self.handing = Handing(batch, fetched.next_offset)
        return self.handing.records

    def forget_records(self) -> None:
        if self.handing is not None:
            self.handing.end()
            self.handing = None

    # Positions.

    def position(self, tp: TopicPartition) -> int | None:
        handing = self.handing
        if handing is not None and handing.tp == tp and length_hint(handing.records):
            return handing.position
        return self.fetching.state(tp).position

    def look_up_offsets(
        self, partitions: Iterable[tuple[str, int]] | None, time: int
    ) -> Call[dict[TopicPartition, int]]:
        wanted = dict.fromkeys(self.partitions_or_all(partitions), time)
        found = yield from look_up(
            self.engine, wanted, isolation_level=self.fetching.isolation_level
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
        self, times: dict[tuple[str, int], int | datetime]
    ) -> Call[dict[TopicPartition, OffsetAndTimestamp | None]]:
        wanted = {
            TopicPartition(*tp): to_ms(time) if isinstance(time, datetime) else time
            for tp, time in times.items()
        }
        for tp, time_ms in wanted.items():
            if time_ms < 0:
                raise ValueError(f"time {time_ms} ms for {tp.topic}-{tp.partition} is before 1970")
        found = yield from look_up(
            self.engine, wanted, isolation_level=self.fetching.isolation_level
        )
        return {
            tp: OffsetAndTimestamp(found[tp].offset, found[tp].timestamp_ms)
            if found[tp].offset >= 0
            else None
            for tp in wanted
        }

    def partitions_for(self, topic: str) -> Call[int]:
        was_wanted = topic in self.engine.cluster.topics
        yield from topics_known(self.engine, [topic])
        count = self.engine.cluster.topics[topic].partition_count
        if not was_wanted:
            self.engine.cluster.forget([topic])
        return count

    def check_open(self) -> None:
        if self.engine.closed:
            raise ClosedError("the consumer is closed")

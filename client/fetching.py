"""The consumer's I/O side: which partitions are read, what is fetched ahead, what is handed out.

    partition:  where? --lookup--> fetch_offset --fetch--> batches ready --take--> position
                                        ^                                            |
                                        +------------- seek ------------------------+

`fetch_offset` is what is asked of the broker next, `position` what the caller gets next; between
them lies what was prefetched, at most `prefetch_bytes` over all partitions and about
`fetch_partition_bytes` per partition: one batch of work ahead, not the log.

One fetch is in flight per broker, on a lane of its own, because replies come in order and a fetch
may wait.  While a partition is left out because its buffer is full, the others' fetch waits only
briefly at the broker, so that the full one is not starved when it drains.

Of what a fetch brings: a batch may begin before the offset asked for (its first records are cut
off where it is handed out), the last one may be cut off (ignored), control batches and gaps move
the position and hold no records, and with read_committed batches of aborted transactions are
skipped.

Out of range: the default is an error with the bounds; `on_reset` can move to the start or the end.
The caller may seek and go on.

A seek, pause or new assignment changes `generation`: replies to what was asked before are dropped.

Threads: the I/O thread steps, the caller takes and seeks, the shell holds one lock around each.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from segbroker.protocol.record_batch import (
    BatchHeader,
    InvalidBatch,
    decode_batch,
    iter_batches,
    read_header,
)
from segbroker.protocol.schema import records_view

from .backoff import Backoff
from .completion import Completion
from .connection import Reply
from .consumed import ConsumedBatch
from .engine import Call, Engine
from .errors import (
    CorruptBatch,
    OffsetOutOfRange,
    SegbrokerError,
    UnknownTopicOrPartition,
    broker_error,
)
from .lookups import END_TIME, START_TIME, FoundOffset, look_up, topics_known
from .network import FETCH, Node
from .records import TopicPartition
from .settings import ConsumerSettings

WakeBy = Callable[[int], object]

Start = str | int | datetime
"""Where to begin: "start", "end", an offset, -n for "n before the end", or a time."""

# How long a fetch may wait at the broker while another partition is left out of it.
SHORT_WAIT_MS = 20
PARTITIONS_COUNT_MAX = 100_000
LEADER_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)


class PartitionState:
    """One assigned partition."""

    __slots__ = (
        "backoff_until_ms",
        "buffered_bytes",
        "failures",
        "fetch_offset",
        "generation",
        "high_watermark",
        "in_flight",
        "log_start_offset",
        "paused",
        "position",
        "resolving",
        "start",
        "stop_offset",
        "tp",
        "unknown_count",
    )

    def __init__(self, tp: TopicPartition, start: Start) -> None:
        self.tp = tp
        self.start = start
        self.position: int | None = None
        self.fetch_offset = -1
        self.stop_offset: int | None = None
        self.high_watermark = -1
        self.log_start_offset = -1
        self.buffered_bytes = 0
        self.generation = 0
        self.in_flight = False
        self.resolving = False
        self.paused = False
        self.failures = 0
        self.unknown_count = 0
        self.backoff_until_ms = 0

    @property
    def at_stop(self) -> bool:
        """Everything of a bounded reading has been fetched."""
        return self.stop_offset is not None and self.fetch_offset >= self.stop_offset


@dataclass(slots=True)
class Fetched:
    """A batch that waits for the caller; `data` None: only the position moves."""

    state: PartitionState
    generation: int
    from_offset: int
    next_offset: int
    size: int
    data: bytes | None


class Fetching:
    """See the module.  A component of the engine."""

    def __init__(
        self,
        engine: Engine,
        settings: ConsumerSettings,
        random: Random,
        *,
        wake_by: WakeBy,
        stop_at_end: bool = False,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.stop_at_end = stop_at_end
        self.states: dict[TopicPartition, PartitionState] = {}
        self.subscribed: dict[str, Start] = {}
        self.ready: deque[Fetched] = deque()
        # What went wrong, with the partition whose position it is about.
        self.errors: deque[tuple[PartitionState | None, SegbrokerError]] = deque()
        self.buffered_bytes = 0
        self.is_closed = False
        self._claimed: dict[int, int] = {}
        self._changed: Completion[None] | None = None
        self._random = random
        self._wake_by = wake_by
        # Since when something is wanted and nobody has answered.
        self._silent_since_ms: int | None = None
        self._now_ms = 0
        self._turn = 0
        engine.components.append(self)
        engine.cluster.on_update.append(self._cluster_updated)

    @property
    def isolation_level(self) -> int:
        return 1 if self.settings.isolation == "read_committed" else 0

    # The caller's side.

    def assign(self, partitions: Iterable[TopicPartition], start: Start) -> None:
        """Read exactly these partitions, from `start`."""
        wanted = list(dict.fromkeys(partitions))
        self.subscribed = {}
        self._drop(tp for tp in list(self.states) if tp not in set(wanted))
        self.engine.cluster.want({tp.topic for tp in wanted})
        self._add(wanted, start)

    def subscribe(self, topics: Collection[str], start: Start) -> None:
        """Read all partitions of these topics from `start`; those that appear later, whole."""
        self.subscribed = {topic: self.subscribed.get(topic, start) for topic in topics}
        self._drop(tp for tp in list(self.states) if tp.topic not in self.subscribed)
        self.engine.cluster.want(topics)
        self._take_in_partitions()

    def seek(self, tp: TopicPartition, start: Start) -> None:
        """Go on at `start`; what was prefetched is dropped."""
        state = self.state(tp)
        self._discard(state)
        state.start = start
        state.position = None
        state.fetch_offset = -1
        state.failures = 0
        state.backoff_until_ms = 0
        if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
            state.position = state.fetch_offset = start
        self._wake_by(0)

    def rewind(self, fetched: Fetched) -> None:
        """A batch that was taken could not be read: hand it out again next time."""
        self.seek(fetched.state.tp, fetched.from_offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out and fetch nothing of these until `resume`; what was prefetched is kept."""
        for tp in partitions:
            self.state(tp).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.state(tp).paused = False
        self._notify()
        self._wake_by(0)

    def state(self, tp: TopicPartition) -> PartitionState:
        state = self.states.get(tp)
        if state is None:
            raise ValueError(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        return state

    def raise_error(self) -> None:
        """Raise what went wrong since, once; nothing if nothing did."""
        if self.errors:
            raise self.errors.popleft()[1]

    def take(self) -> Fetched | None:
        """The next batch that has records, or None; moves the position behind it.

        Raises what went wrong since, once.
        """
        self.raise_error()
        held: list[Fetched] = []
        try:
            while self.ready:
                fetched = self.ready.popleft()
                state = fetched.state
                if fetched.generation != state.generation:
                    continue
                if state.paused:
                    held.append(fetched)
                    continue
                limit = self.settings.fetch_partition_bytes
                was_full = state.buffered_bytes >= limit or self._is_full
                state.buffered_bytes -= fetched.size
                self.buffered_bytes -= fetched.size
                if was_full and state.buffered_bytes < limit and not self._is_full:
                    self._wake_by(0)
                state.position = fetched.next_offset
                if fetched.data is not None:
                    return fetched
            return None
        finally:
            self.ready.extendleft(reversed(held))

    def open(self, fetched: Fetched) -> ConsumedBatch:
        """Decode what was taken.  Raises CorruptBatch; the position then is before the batch."""
        assert fetched.data is not None
        topic, partition_number = fetched.state.tp
        try:
            batch = decode_batch(fetched.data)
        except InvalidBatch as exc:
            raise CorruptBatch(
                f"{topic}-{partition_number}, batch at offset {fetched.from_offset}: {exc}"
            ) from exc
        return ConsumedBatch(
            topic,
            partition_number,
            batch,
            from_offset=fetched.from_offset,
            to_offset=fetched.state.stop_offset,
        )

    @property
    def is_ended(self) -> bool:
        """A bounded reading has come to its end: everything was handed out."""
        return (
            self.stop_at_end
            and bool(self.states)
            and not self.ready
            and not self.errors
            and all(state.at_stop and not state.resolving for state in self.states.values())
            and not self._undiscovered()
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
        if self.subscribed:
            self._take_in_partitions()
        if not self.states:
            return
        self._resolve_starts(now_ms)
        self._fetch(now_ms)
        self._notice_silence(now_ms)

    def next_wake_ms(self) -> int | None:
        wakes = [
            state.backoff_until_ms
            for state in self.states.values()
            if state.backoff_until_ms > self._now_ms
        ]
        if self._silent_since_ms is not None:
            wakes.append(self._silent_since_ms + self.engine.settings.api_timeout_ms)
        return min(wakes, default=None)

    def close(self, error: SegbrokerError) -> None:
        self.is_closed = True
        if not self.errors:
            self.errors.append((None, error))
        self._notify()

    @property
    def _is_full(self) -> bool:
        return self.buffered_bytes >= self.settings.prefetch_bytes

    def _notify(self) -> None:
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.resolve(None)

    def _fail(self, error: SegbrokerError, state: PartitionState | None = None) -> None:
        self.errors.append((state, error))
        self._notify()

    # Assignment.

    def _add(self, partitions: Iterable[TopicPartition], start: Start) -> None:
        for tp in partitions:
            if tp in self.states:
                continue
            if len(self.states) >= PARTITIONS_COUNT_MAX:
                raise ValueError(f"a consumer reads at most {PARTITIONS_COUNT_MAX} partitions")
            self.states[tp] = PartitionState(tp, check_start(start))
        self._notify()
        self._wake_by(0)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._discard(self.states.pop(tp))

    def _discard(self, state: PartitionState) -> None:
        """Forget what was prefetched; a reply on its way is not wanted any more."""
        state.generation += 1
        # An error about a position that was left must not meet the caller at the next one.
        self.errors = deque(entry for entry in self.errors if entry[0] is not state)
        self.buffered_bytes -= state.buffered_bytes
        state.buffered_bytes = 0
        state.in_flight = False
        state.resolving = False
        self.ready = deque(f for f in self.ready if f.state is not state)

    def _undiscovered(self) -> bool:
        return any(
            not self.engine.cluster.topics[topic].partition_count for topic in self.subscribed
        )

    def _take_in_partitions(self) -> None:
        for topic, start in self.subscribed.items():
            view = self.engine.cluster.topics.get(topic)
            if view is None or not view.partition_count:
                continue
            new = [
                tp
                for tp in (TopicPartition(topic, p) for p in range(view.partition_count))
                if tp not in self.states
            ]
            if new:
                # Records of a partition that appeared later were all written since: read them all.
                is_first = view.partition_count == len(new)
                self._add(new, start if is_first else "start")

    def _cluster_updated(self, now_ms: int) -> None:
        for topic in {tp.topic for tp in self.states} | self.subscribed.keys():
            view = self.engine.cluster.topics.get(topic)
            if view is not None and view.is_settled and not view.partition_count:
                assert view.error is not None, "settled without partitions is an error"
                self._fail(view.error)
        self._wake_by(0)

    # Where to begin.

    def _resolve_starts(self, now_ms: int) -> None:
        for kind in (False, True):
            # By time and by offset in separate calls: one wrong time must not hold up the rest.
            wanted = [
                state
                for state in self.states.values()
                if not state.resolving
                and not state.paused
                and (state.position is None or (self.stop_at_end and state.stop_offset is None))
                and now_ms >= state.backoff_until_ms
                and isinstance(state.start, datetime) is kind
            ]
            if wanted:
                generations = {state: state.generation for state in wanted}
                for state in wanted:
                    state.resolving = True
                call = self.engine.call(self._find_starts(wanted, generations), now_ms)
                call.on_done(partial(self._starts_found, call, generations))

    def _find_starts(
        self, wanted: list[PartitionState], generations: dict[PartitionState, int]
    ) -> Call[None]:
        times: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for state in wanted:
            time = start_time(state.start)
            if state.position is None and time is not None:
                times[state.tp] = time
            if (self.stop_at_end and state.stop_offset is None) or needs_end(state.start):
                ends[state.tp] = END_TIME
        # The end first: a reading bounded by it must not miss what lies between the two lookups.
        yield from topics_known(self.engine, {state.tp.topic for state in wanted})
        found_ends = yield from self._look_up(ends)
        found = yield from self._look_up(times)
        starts: dict[TopicPartition, int] = {
            state.tp: START_TIME for state in wanted if is_from_end(state.start)
        }
        found_starts = yield from self._look_up(starts)
        for state in wanted:
            if state.generation != generations[state]:
                continue
            if self.stop_at_end and state.stop_offset is None:
                state.stop_offset = found_ends[state.tp].offset
            if state.position is None:
                end = found_ends[state.tp].offset if state.tp in found_ends else 0
                offset = _offset_of(state, found, end)
                if state.tp in found_starts:
                    offset = max(offset, found_starts[state.tp].offset)
                state.position = state.fetch_offset = offset

    def _look_up(self, times: dict[TopicPartition, int]) -> Call[dict[TopicPartition, FoundOffset]]:
        if not times:
            return {}
        return (yield from look_up(self.engine, times, isolation_level=self.isolation_level))

    def _starts_found(self, call: Completion[None], generations: dict[PartitionState, int]) -> None:
        for state, generation in generations.items():
            if state.generation == generation:
                state.resolving = False
                if call.error is not None:
                    self._hold(state, self._now_ms)
        if call.error is not None:
            error = call.error
            self._fail(error if isinstance(error, SegbrokerError) else _as_bug(error))
        self._notify()
        self._wake_by(0)

    # Fetching.

    def _fetch(self, now_ms: int) -> None:
        by_leader: dict[int, list[PartitionState]] = {}
        left_out: set[int] = set()
        limit = self.settings.fetch_partition_bytes
        is_wanted = False
        for state in self.states.values():
            if state.paused or state.fetch_offset < 0 or state.at_stop:
                continue
            if self.stop_at_end and state.stop_offset is None:
                continue
            is_wanted = is_wanted or (state.buffered_bytes < limit and not self._is_full)
            leader = self.engine.cluster.leader(*state.tp)
            if leader is None:
                self.engine.cluster.invalidate()
                continue
            if now_ms < state.backoff_until_ms or state.buffered_bytes >= limit:
                left_out.add(leader)
            else:
                by_leader.setdefault(leader, []).append(state)
        if not is_wanted:
            self._silent_since_ms = None
        elif self._silent_since_ms is None:
            self._silent_since_ms = now_ms
        for leader, states in by_leader.items():
            if leader in self._claimed:
                continue
            node = self.engine.cluster.node(leader, FETCH)
            assert node is not None, "a leader is a broker of the view"
            room = self.settings.prefetch_bytes - self.buffered_bytes - sum(self._claimed.values())
            if room <= 0:
                return
            if not self.engine.network.want(node, now_ms):
                if node.connection is None and now_ms < node.retry_at_ms:
                    self._wait_for(node, states)
                continue
            self._send_fetch(node, leader, states, room, leader in left_out, now_ms)

    def _wait_for(self, node: Node, states: list[PartitionState]) -> None:
        """The broker is away: come back when its back-off is over; it may also have moved."""
        for state in states:
            state.backoff_until_ms = max(state.backoff_until_ms, node.retry_at_ms)
        self.engine.cluster.invalidate()

    def _send_fetch(
        self,
        node: Node,
        leader: int,
        states: list[PartitionState],
        room: int,
        hurry: bool,
        now_ms: int,
    ) -> None:
        settings = self.settings
        claim = min(settings.fetch_bytes, room)
        self._turn += 1
        turn = self._turn % len(states)
        topics: dict[str, list[FetchRequestPartition]] = {}
        asked: dict[TopicPartition, tuple[PartitionState, int, int]] = {}
        for state in states[turn:] + states[:turn]:
            state.in_flight = True
            asked[state.tp] = (state, state.generation, state.fetch_offset)
            topics.setdefault(state.tp.topic, []).append(
                FetchRequestPartition(
                    partition=state.tp.partition,
                    current_leader_epoch=self.engine.cluster.leader_epoch(*state.tp),
                    fetch_offset=state.fetch_offset,
                    partition_max_bytes=settings.fetch_partition_bytes,
                )
            )
        wait_ms = min(settings.fetch_wait_ms, SHORT_WAIT_MS) if hurry else settings.fetch_wait_ms
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=claim,
            isolation_level=self.isolation_level,
            topics=[
                FetchRequestTopic(topic=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        self._claimed[leader] = claim

        def on_reply(reply: Reply, at_ms: int) -> None:
            self._claimed.pop(leader, None)
            self._now_ms = at_ms
            self._fetched(asked, reply, at_ms)

        self.engine.network.request(
            node,
            request,
            on_reply,
            now_ms=now_ms,
            deadline_ms=now_ms + self.engine.settings.request_timeout_ms + wait_ms,
        )

    def _fetched(
        self,
        asked: dict[TopicPartition, tuple[PartitionState, int, int]],
        reply: Reply,
        now_ms: int,
    ) -> None:
        for state, generation, _ in asked.values():
            if state.generation == generation:
                state.in_flight = False
        if isinstance(reply, SegbrokerError):
            self.engine.cluster.invalidate()
            for state, _, _ in asked.values():
                self._hold(state, now_ms)
            if not reply.retryable:
                self._fail(reply)
            return
        assert isinstance(reply, FetchResponse)
        self._silent_since_ms = None
        if reply.error_code != ErrorCode.NONE:
            self._fail(broker_error(reply.error_code, "fetch"))
            for state, _, _ in asked.values():
                self._hold(state, now_ms)
            return
        for topic in reply.responses:
            for row in topic.partitions:
                entry = asked.get(TopicPartition(topic.topic, row.partition_index))
                if entry is None:
                    continue
                state, generation, offset = entry
                if state.generation == generation and state.fetch_offset == offset:
                    self._fetched_partition(state, row, now_ms)

    def _fetched_partition(
        self, state: PartitionState, row: FetchResponsePartition, now_ms: int
    ) -> None:
        code = ErrorCode.of(row.error_code)
        if row.error_code == ErrorCode.NONE:
            state.failures = state.unknown_count = 0
            state.high_watermark = row.high_watermark
            state.log_start_offset = row.log_start_offset
            self._take_in(state, row, now_ms)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, now_ms)
        elif code in LEADER_CODES:
            self.engine.cluster.invalidate()
            self._hold(state, now_ms)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                state.unknown_count += 1
                if state.unknown_count == 5:
                    tp = state.tp
                    self._fail(UnknownTopicOrPartition(f"{tp.topic}-{tp.partition} is gone"), state)
        else:
            error = broker_error(row.error_code, f"fetch of {state.tp.topic}-{state.tp.partition}")
            self._hold(state, now_ms)
            if not error.retryable:
                self._fail(error, state)

    def _take_in(self, state: PartitionState, row: FetchResponsePartition, now_ms: int) -> None:
        aborted = sorted(
            (entry.first_offset, entry.producer_id) for entry in row.aborted_transactions or ()
        )
        aborted_producers: set[int] = set()
        records = records_view(row.records)
        before = state.fetch_offset
        try:
            for view in iter_batches(records):
                header = read_header(view)
                if header.next_offset <= state.fetch_offset:
                    continue
                while aborted and aborted[0][0] <= header.last_offset:
                    aborted_producers.add(aborted.pop(0)[1])
                is_skipped = header.is_control or not header.records_count
                if header.is_transactional and header.producer_id in aborted_producers:
                    # The marker that ends an aborted transaction is a control batch of it.
                    if header.is_control:
                        aborted_producers.discard(header.producer_id)
                    is_skipped = True
                self._make_ready(state, header, None if is_skipped else bytes(view))
                if state.at_stop:
                    break
        except InvalidBatch as exc:
            self._hold(state, now_ms)
            tp = state.tp
            error = CorruptBatch(f"{tp.topic}-{tp.partition} at {state.fetch_offset}: {exc}")
            error.__cause__ = exc
            self._fail(error, state)
            return
        if len(records) and state.fetch_offset == before:
            # Not one whole batch: a broker that cuts even the first one.  More bytes may help.
            self._hold(state, now_ms)
            tp = state.tp
            self._fail(
                CorruptBatch(
                    f"{tp.topic}-{tp.partition} at {before}: {len(records)} bytes and no whole"
                    f" batch; fetch_partition_bytes={self.settings.fetch_partition_bytes}"
                )
            )
        if state.fetch_offset != before:
            self._notify()

    def _make_ready(self, state: PartitionState, header: BatchHeader, data: bytes | None) -> None:
        size = 0 if data is None else len(data)
        self.ready.append(
            Fetched(
                state,
                state.generation,
                max(state.fetch_offset, header.base_offset),
                header.next_offset,
                size,
                data,
            )
        )
        state.fetch_offset = header.next_offset
        state.buffered_bytes += size
        self.buffered_bytes += size

    def _out_of_range(self, state: PartitionState, now_ms: int) -> None:
        policy = self.settings.on_reset
        if policy != "error":
            generation = state.generation
            self.seek(state.tp, policy)
            assert state.generation != generation
            return
        generation = state.generation
        state.resolving = True
        call = self.engine.call(self._explain(state), now_ms)

        def explained() -> None:
            if state.generation != generation:
                return
            state.resolving = False
            # Nothing more is fetched until the caller has chosen where to go on.
            state.backoff_until_ms = self._now_ms + self.engine.settings.api_timeout_ms
            error = call.error
            self._fail(error if isinstance(error, SegbrokerError) else _as_bug(error), state)

        call.on_done(explained)

    def _explain(self, state: PartitionState) -> Call[None]:
        tp = state.tp
        start = yield from self._look_up({tp: START_TIME})
        end = yield from self._look_up({tp: END_TIME})
        raise OffsetOutOfRange(
            f"{tp.topic}-{tp.partition}: offset {state.fetch_offset} is outside"
            f" [{start[tp].offset}, {end[tp].offset}]; seek, or say on_reset='start'"
        )

    def _hold(self, state: PartitionState, now_ms: int) -> None:
        state.failures += 1
        settings = self.engine.settings
        backoff = Backoff(
            self._random,
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            attempts=state.failures - 1,
        )
        state.backoff_until_ms = now_ms + backoff.next_delay_ms()

    def _notice_silence(self, now_ms: int) -> None:
        """No broker has answered a fetch for long: the caller must hear of it."""
        if self._silent_since_ms is None:
            return
        if now_ms >= self._silent_since_ms + self.engine.settings.api_timeout_ms:
            self._silent_since_ms = now_ms
            self._fail(self.engine.network.unreachable())


def check_start(start: Start) -> Start:
    """A start position that can be used; ValueError or TypeError otherwise."""
    if isinstance(start, str):
        if start not in ("start", "end"):
            raise ValueError(f"start={start!r} is not 'start', 'end', an offset or a time")
    elif isinstance(start, bool) or not isinstance(start, int | datetime):
        raise TypeError(f"start={start!r} is not 'start', 'end', an offset or a time")
    elif isinstance(start, datetime) and start.tzinfo is None:
        raise ValueError(f"start={start!r} has no time zone")
    return start


def start_time(start: Start) -> int | None:
    """What ListOffsets has to be asked for a start; None when it need not be asked."""
    match start:
        case "start":
            return START_TIME
        case datetime():
            return to_ms(start)
    return None


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970."""
    return int(moment.timestamp() * 1000)


def needs_end(start: Start) -> bool:
    """ "end" and -n are counted from the end; a time later than every record is the end."""
    return start == "end" or isinstance(start, datetime) or is_from_end(start)


def is_from_end(start: Start) -> bool:
    return isinstance(start, int) and start < 0


def _offset_of(state: PartitionState, found: dict[TopicPartition, FoundOffset], end: int) -> int:
    match state.start:
        case "end":
            return end
        case int() as offset:
            return offset if offset >= 0 else end + offset
    offset = found[state.tp].offset
    return end if offset < 0 else offset


def _as_bug(error: BaseException | None) -> SegbrokerError:
    wrapped = SegbrokerError(f"bug in the client: {error!r}")
    wrapped.__cause__ = error
    return wrapped

"""What a fetch brings, partition by partition: batches, gaps, and what went wrong.

    reply --> no error   whole batches and gaps behind each other --> prefetched; the rest of a
                         batch that was cut off is not looked at
          --> the log is another than before (log_changes): cut off, out of range
          --> the leader is elsewhere, or away: held back for a while, the view is asked for anew
          --> its leader refuses it, as it is damaged: it is not served
          --> anything else: told to the caller, and held back

What a fetch asked is remembered with it: of a partition that was sought, dropped or assigned anew
meanwhile the answer is not taken.
"""

from collections.abc import Callable, Collection, Mapping

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import FetchResponse, FetchResponsePartition
from segbroker.protocol.record_batch import InvalidBatch

from .assigned import PartitionState
from .cluster import LEADER_CODES, Cluster
from .errors import (
    CorruptBatch,
    PeerError,
    PolicyViolation,
    SegbrokerError,
    UnknownTopicOrPartition,
    broker_error,
)
from .holding import Fail, Holding
from .log_changes import LogChanges
from .prefetched import GO_ON, Prefetched
from .records import Gap, TopicPartition
from .reply_walk import walk
from .settings import ConsumerSettings
from .spoken import Reply

# What a fetch asked of a partition: the state, its generation and round, and the offset.
Asked = tuple[PartitionState, int, int, int]


def _is_current(asked: Asked) -> bool:
    """Whether what was asked of a partition is still what is wanted of it."""
    state = asked[0]
    return asked == (state, state.generation, state.round, state.fetch_offset)


class FetchReplies:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        prefetched: Prefetched,
        changes: LogChanges,
        holding: Holding,
        *,
        fail: Fail,
        notify: Callable[[], None],
        answered: Callable[[], None],
    ) -> None:
        """`answered`: a broker has said something."""
        self._cluster = cluster
        self._settings = settings
        self._prefetched = prefetched
        self._changes = changes
        self._fail = fail
        self._holding = holding
        self._notify = notify
        self._answered = answered

    def take(
        self,
        asked: Mapping[TopicPartition, Asked],
        spoken: Collection[TopicPartition],
        reply: Reply | None,
        now_ms: int,
    ) -> None:
        """What became of a fetch: `asked` is what it asked of each partition, `spoken` those that
        may have been asked something else by the one before.

        reply: None where it only said that what it asked has to be asked anew.
        """
        if isinstance(reply, SegbrokerError):
            self._cluster.invalidate()
            for state, *_ in asked.values():
                self._holding.hold(state, now_ms)
            if not reply.retryable:
                self._fail(reply)
            return
        self._answered()
        if reply is None:
            return
        assert isinstance(reply, FetchResponse)
        if reply.error_code != ErrorCode.NONE:
            error = broker_error(reply.error_code, "fetch")
            for state, *_ in asked.values():
                self._holding.hold(state, now_ms, error if error.retryable else None)
            if not error.retryable:
                self._fail(error)
            return
        left = dict.fromkeys(spoken if reply.session_id else asked)
        seen: set[TopicPartition] = set()
        for topic in reply.responses:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition_index)
                left.pop(tp, None)
                entry = None if tp in seen else asked.get(tp)
                seen.add(tp)
                if entry is not None and _is_current(entry):
                    self._take_partition(entry[0], row, now_ms)
        for tp in left:
            entry = asked[tp]
            state = entry[0]
            if not reply.session_id or state.high_watermark < 0:
                # To ask again at once is no use.
                self._holding.hold(
                    state, now_ms, PeerError(f"{_name(tp)}: a broker's fetch leaves it out")
                )
            elif _is_current(entry):
                # In a session: there is nothing new, and all is well with it.
                state.failures = state.unknown_count = 0
                state.unserved = None
                state.is_confirmed = True

    def _take_partition(
        self, state: PartitionState, row: FetchResponsePartition, now_ms: int
    ) -> None:
        code = ErrorCode.of(row.error_code)
        if row.error_code == ErrorCode.NONE:
            state.failures = state.unknown_count = 0
            state.unserved = None
            state.is_confirmed = True
            diverging = row.diverging_epoch
            if diverging is not None and 0 <= diverging.end_offset < state.fetch_offset:
                self._changes.diverged(state, diverging.end_offset, now_ms)
                return
            if diverging is not None:
                # All that was read is there, in epochs up to this one: no later one is known.
                state.epoch = diverging.epoch if diverging.epoch < state.epoch else -1
            state.high_watermark = state.end_offset = row.high_watermark
            if self._settings.isolation_level and row.last_stable_offset >= 0:
                state.end_offset = row.last_stable_offset
            self._take_in(state, row, now_ms)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._changes.out_of_range(state, now_ms)
        elif code in LEADER_CODES:
            self._cluster.invalidate()
            self._holding.hold(
                state, now_ms, broker_error(row.error_code, f"fetch of {_name(state.tp)}")
            )
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                state.unknown_count += 1
                if state.unknown_count == 5:
                    why = "its topic was deleted, or has fewer partitions now"
                    self._fail(UnknownTopicOrPartition(f"{_name(state.tp)} is gone: {why}"), state)
        else:
            error = broker_error(row.error_code, f"fetch of {_name(state.tp)}")
            if isinstance(error, PolicyViolation):
                self._cluster.invalidate()  # which says no leader, before long
                self._holding.not_served(state, now_ms, error)
                return
            self._holding.hold(state, now_ms, error if error.retryable else None)
            if not error.retryable:
                self._fail(error, state)

    def _take_in(self, state: PartitionState, row: FetchResponsePartition, now_ms: int) -> None:
        topic, partition = state.tp
        before = state.fetch_offset
        try:
            for header, data, reason in walk(row, before):
                if reason is None:
                    self._prefetched.add_batch(state, header, data)
                else:
                    gap = Gap(topic, partition, header.base_offset, header.next_offset, reason)
                    self._changes.lost_in_log(state, gap, header.next_offset, header.leader_epoch)
                if header.leader_epoch != state.epoch:
                    state.begin_epoch(header.leader_epoch, max(header.base_offset, before))
                if state.at_stop:
                    break
        except InvalidBatch as exc:
            self._holding.hold(state, now_ms)
            error = CorruptBatch(f"{topic}-{partition} at {state.fetch_offset}: {exc}{GO_ON}")
            error.__cause__ = exc
            self._fail(error, state)
            return
        if row.records and state.fetch_offset == before:
            # Not one whole batch: a broker that cuts even the first one.  More bytes may help.
            self._holding.hold(state, now_ms)
            self._fail(
                CorruptBatch(
                    f"{topic}-{partition} at {before}: the broker sends {len(row.records)} bytes of"
                    " a batch that has more; raise"
                    f" fetch_partition_bytes={self._settings.fetch_partition_bytes}"
                )
            )
        if state.fetch_offset != before:
            self._notify()


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"

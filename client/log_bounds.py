"""Questions about a partition's log, asked when an offset is not where it was.

    find_bounds       from where to where it reaches, and what below its start was lost
    find_epoch_end    where the records of a leader epoch end now (KIP-320)
    look_again        whether the topic is still the same one

segbroker answers the first with FLOORS: below its evict floor offsets were lost, between that and
the log start they were deleted on purpose.

        0 ... lost ... evict_floor ... deleted ... log_start ... records ... end

Apache Kafka knows no such floor: there everything below the log start counts as lost, for a reason
that nobody says.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)
from segbroker.protocol.vendor import VendorKey

from .engine import Ask, Call, Engine, Pause, Refresh
from .errors import SegbrokerError, UnsupportedByBroker, broker_error
from .lookups import END_TIME, START_TIME, look_up
from .records import Gap, LossReason, TopicPartition
from .spoken import VendorReply, VendorRequest


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Records are in [log_start, end); `reason` is why those below evict_floor are gone."""

    log_start: int
    end: int
    evict_floor: int
    reason: LossReason

    def lost_from(self, tp: TopicPartition, offset: int) -> Gap | None:
        """What was lost from `offset`, below the log start, on; None: deleted on purpose, all."""
        to_offset = min(self.evict_floor, self.log_start)
        return None if offset >= to_offset else Gap(*tp, offset, to_offset, self.reason)


def find_bounds(engine: Engine, tp: TopicPartition) -> Call[LogBounds]:
    """Raises what look_up raises."""
    # Another topic may have taken the name, or another broker the partition: look first.
    yield Refresh()
    leader = engine.cluster.leader(*tp)
    if leader is not None:
        body = {"partitions": [{"topic": tp.topic, "partition": tp.partition}]}
        try:
            reply = yield Ask(VendorRequest(VendorKey.FLOORS, body), to=leader)
        except SegbrokerError:
            pass  # not segbroker, or an older one, or away: the plain way has retries
        else:
            assert isinstance(reply, VendorReply)
            bounds = _floors(reply.body)
            if bounds is not None:
                return bounds
    # Not bounded by open transactions: whether an offset is in the log does not depend on them.
    start = yield from look_up(engine, {tp: START_TIME}, isolation_level=0)
    end = yield from look_up(engine, {tp: END_TIME}, isolation_level=0)
    return LogBounds(start[tp].offset, end[tp].offset, start[tp].offset, "unknown")


def _floors(body: Mapping[str, object]) -> LogBounds | None:
    """The answer for the one partition that was asked for; None for anything else."""
    rows = body.get("partitions")
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], dict):
        return None
    row = rows[0]
    numbers = [row.get(name) for name in ("log_start_offset", "high_watermark", "evict_floor")]
    if row.get("error") or not all(type(number) is int for number in numbers):
        return None
    log_start, end, evict_floor = cast("list[int]", numbers)
    reason = row.get("evict_reason")
    known = reason if reason in get_args(LossReason) else "unknown"
    return LogBounds(log_start, end, evict_floor, cast("LossReason", known))


def look_again() -> Call[None]:
    """Another topic may have taken the name: whoever reads of it learns that before this ends."""
    yield Refresh()


def find_epoch_end(
    engine: Engine, tp: TopicPartition, current_epoch: int, epoch: int
) -> Call[int | None]:
    """Where the records of leader `epoch` end in the log of the leader that has `current_epoch`,
    or a later one that the metadata tell meanwhile: whoever goes on with the old one is fenced.

    None when the broker cannot say.  Raises what is not worth another try.
    """
    backoff = engine.backoff()
    while True:
        leader = engine.cluster.leader(*tp)
        if leader is not None:
            current_epoch = max(current_epoch, engine.cluster.leader_epoch(*tp))
            try:
                reply = yield Ask(_epoch_request(tp, current_epoch, epoch), to=leader)
            except UnsupportedByBroker:
                return None
            except SegbrokerError as exc:
                if not exc.retryable:
                    raise
            else:
                assert isinstance(reply, OffsetForLeaderEpochResponse)
                row = reply.topics[0].partitions[0]
                if row.error_code == ErrorCode.NONE:
                    return row.end_offset if row.end_offset >= 0 else None
                error = broker_error(row.error_code, f"epoch {epoch} of {tp.topic}-{tp.partition}")
                if not error.retryable:
                    raise error
        yield Pause(backoff.next_delay_ms())
        yield Refresh()


def _epoch_request(
    tp: TopicPartition, current_epoch: int, epoch: int
) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderEpochRequestTopic(
                topic=tp.topic,
                partitions=[
                    OffsetForLeaderEpochRequestPartition(
                        partition=tp.partition,
                        current_leader_epoch=current_epoch,
                        leader_epoch=epoch,
                    )
                ],
            )
        ],
    )

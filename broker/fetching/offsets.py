"""Offsets by time and by leader epoch.

| timestamp asked | answer                                                                       |
|-----------------|------------------------------------------------------------------------------|
| -1              | log end as readers see it: the high watermark, or the last stable offset     |
| -2              | log start                                                                    |
| -3 (v7+)        | the record with the greatest timestamp, and that timestamp                   |
| -4 (v8+)        | the first that is on a local disk: the log start, there is no other tier     |
| -5 (v9+)        | the last in the cold tier: none                                              |
| -6 (v11+)       | the first that waits to go there: none                                       |
| >= 0            | the first record at or after it, and its timestamp; none: offset and time -1 |

An offset is told with the leader epoch that it is of; the log end with the present one.

-3 and times look into batches, so they run in a lane, of which half are for them, and addresses
take turns; the answer is exact to the record, not to the batch.  Any other negative number, and one
that the version does not have, is UNSUPPORTED_VERSION.  A partition that is named more than once
gets one row, INVALID_REQUEST: a request looks into each partition once.  Both are as in Kafka.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from segbroker.segments.partition.handler import DiskHandler

from ..call import Call
from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..failed_reads import is_of_the_disk
from ..loop.pace import Pace
from ..partitions.isolation import visible_end
from .fetch import check_epoch

END: Final = -1
START: Final = -2
GREATEST_TIMESTAMP: Final = -3
START_LOCAL: Final = -4
END_TIERED: Final = -5
START_PENDING: Final = -6

_SINCE: Final = {
    END: 1,
    START: 1,
    GREATEST_TIMESTAMP: 7,
    START_LOCAL: 8,
    END_TIERED: 9,
    START_PENDING: 11,
}
_NEVER: Final = 1 << 15

_Found = tuple[int, int] | None


async def list_offsets(core: Core, call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    """Answer one ListOffsets request."""
    await core.topics.open_all(
        (topic.name, one.partition_index)
        for topic in call.request.topics
        for one in topic.partitions
    )
    pace = Pace()
    counts: Counter[tuple[str, int]] = Counter()
    for topic in call.request.topics:
        for one in topic.partitions:
            counts[topic.name, one.partition_index] += 1
            await pace.step()
    response = ListOffsetsResponse(topics=[])
    for topic in call.request.topics:
        rows = ListOffsetsResponseTopic(name=topic.name, partitions=[])
        response.topics.append(rows)
        for one in topic.partitions:
            await pace.step()
            key = topic.name, one.partition_index
            if counts[key] == 1:
                rows.partitions.append(await _list_one(core, topic.name, one, call))
            elif counts[key]:
                counts[key] = 0  # it is told once
                rows.partitions.append(
                    ListOffsetsResponsePartition(
                        partition_index=one.partition_index, error_code=ErrorCode.INVALID_REQUEST
                    )
                )
    return response


async def _list_one(
    core: Core, name: str, asked: ListOffsetsRequestPartition, call: Call[ListOffsetsRequest]
) -> ListOffsetsResponsePartition:
    row = ListOffsetsResponsePartition(partition_index=asked.partition_index)
    version, isolation_level = call.version, call.request.isolation_level
    if asked.timestamp < 0 and version < _SINCE.get(asked.timestamp, _NEVER):
        row.error_code = ErrorCode.UNSUPPORTED_VERSION
        return row
    try:
        partition = core.topics.served_partition(name, asked.partition_index)
        if partition is None:
            row.error_code, _ = core.topics.why_unopened(name, asked.partition_index)
            return row
        handler = partition.handler
        if code := check_epoch(asked.current_leader_epoch, handler.leader_epoch):
            row.error_code = code
            return row
        match asked.timestamp:
            case timestamp if timestamp == END:
                row.offset = visible_end(handler, isolation_level)
                row.leader_epoch = handler.leader_epoch
            case timestamp if timestamp in (START, START_LOCAL):
                row.offset = handler.log_start_offset
                row.leader_epoch = handler.epoch_of(row.offset)
            case timestamp if timestamp in (END_TIERED, START_PENDING):
                pass
            case timestamp:
                found = await core.lanes.search(call.peer.address[0], _search(handler, timestamp))
                # A record that readers may not see yet was not found.
                if found is not None and found[0] < visible_end(handler, isolation_level):
                    row.offset, row.timestamp = found
                    row.leader_epoch = handler.epoch_of(row.offset)
    except STORAGE_FAILURES as exc:
        row.error_code, _ = wire_error(exc)
        if is_of_the_disk(exc):
            core.failed_reads.tell(name, asked.partition_index, exc, core.now_ms())
    return row


def _search(handler: DiskHandler, timestamp: int) -> Callable[[], _Found]:
    if timestamp == GREATEST_TIMESTAMP:
        return handler.greatest_timestamp
    return lambda: handler.offset_for_timestamp(timestamp)


async def offset_for_leader_epoch(
    core: Core, call: Call[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse:
    """Answer one OffsetForLeaderEpoch request."""
    await core.topics.open_all(
        (topic.topic, one.partition) for topic in call.request.topics for one in topic.partitions
    )
    pace = Pace()
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in call.request.topics:
        rows = OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=[])
        response.topics.append(rows)
        for one in topic.partitions:
            rows.partitions.append(_epoch_end(core, topic.topic, one))
            await pace.step()
    return response


def _epoch_end(
    core: Core, name: str, asked: OffsetForLeaderEpochRequestPartition
) -> OffsetForLeaderEpochResponsePartition:
    row = OffsetForLeaderEpochResponsePartition(partition=asked.partition)
    partition = core.topics.served_partition(name, asked.partition)
    if partition is None:
        row.error_code, _ = core.topics.why_unopened(name, asked.partition)
        return row
    handler = partition.handler
    row.error_code = check_epoch(asked.current_leader_epoch, handler.leader_epoch)
    if not row.error_code:
        row.leader_epoch, row.end_offset = handler.end_offset_for_epoch(asked.leader_epoch)
    return row

"""WriteTxnMarkers: an administrator ends what a producer has open in a partition.

Asked by Admin.abortTransaction and `kafka-transactions.sh abort`; in Kafka also by brokers among
each other.  What becomes of it is in transaction_upkeep.py.

| asked                                                  | code                              |
|--------------------------------------------------------|-----------------------------------|
| a partition that there is not                          | 3 UNKNOWN_TOPIC_OR_PARTITION      |
| a commit: whether all of it is there, nobody can say   | 42 INVALID_REQUEST                |
| an epoch below that of the producer in the partition,  | 47 INVALID_PRODUCER_EPOCH         |
| or the same, of an open transaction of version 2       |                                   |
| a coordinator's epoch below that of the last marker, 0 | 52 TRANSACTION_COORDINATOR_FENCED |
| of a transaction that is being committed               | 51 CONCURRENT_TRANSACTIONS        |
| not done after WAIT_SECONDS; it may still happen       | 7 REQUEST_TIMED_OUT               |
| nothing is open there: as after the abort              | 0                                 |

An abort by the coordinator raises the epoch, so asked again with the one before it is answered as
the first time, unless the producer has something open again.

What is named twice is answered once.
"""

from typing import Final

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_transactions import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)
from segbroker.segments.log.producers import Producer
from segbroker.segments.metadata.transactions import EPOCH_LAST, Ending

from ..call import Call
from ..core import Core
from ..loop.pace import Pace

WAIT_SECONDS: Final = 5.0
"""For all that one request asks."""
# The version of transactions whose end raises the epoch of the producer (KIP-890).
_RAISES_SINCE: Final = 2


async def write_txn_markers(
    core: Core, call: Call[WriteTxnMarkersRequest]
) -> WriteTxnMarkersResponse:
    """Abort transactions in partitions; answered when the markers are durable."""
    await core.topics.open_all(
        (topic.name, index)
        for marker in call.request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    )
    deadline = trio.current_time() + WAIT_SECONDS
    pace = Pace()
    codes: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker in call.request.markers:
        topics = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            rows = topics.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                await pace.step()
                if index not in rows:
                    rows[index] = await _aborted(core, marker, topic.name, index, deadline)
            await pace.step()
        await pace.step()
    response = WriteTxnMarkersResponse(markers=[])
    for producer_id, topics in codes.items():
        answered = WriteTxnMarkersResponseMarker(producer_id=producer_id, topics=[])
        response.markers.append(answered)
        for name, rows in topics.items():
            answered.topics.append(WriteTxnMarkersResponseTopic(name=name, partitions=[]))
            for index, code in rows.items():
                answered.topics[-1].partitions.append(
                    WriteTxnMarkersResponsePartition(partition_index=index, error_code=code)
                )
                await pace.step()
            await pace.step()
        await pace.step()
    return response


async def _aborted(
    core: Core, marker: WriteTxnMarkersRequestMarker, name: str, index: int, deadline: float
) -> ErrorCode:
    partition = core.topics.served_partition(name, index)
    if partition is None:
        return core.topics.why_unopened(name, index)[0]
    if marker.transaction_result:
        return ErrorCode.INVALID_REQUEST
    known = partition.handler.producer(marker.producer_id)
    is_open = marker.producer_id in partition.handler.transactions.open
    if marker.producer_epoch < _least_epoch(known, marker.transaction_version, is_open=is_open):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if known is not None and known.marked_ms >= 0 and marker.coordinator_epoch < 0:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    code = ErrorCode.REQUEST_TIMED_OUT
    with trio.CancelScope(deadline=deadline):
        ending = Ending(marker.producer_id, marker.producer_epoch)
        code = await core.transaction_upkeep.abort_in(partition, ending)
    return code


def _least_epoch(known: Producer | None, transaction_version: int, *, is_open: bool) -> int:
    if known is None:
        return 0
    if not is_open:
        return max(0, known.epoch - 1)
    return known.epoch + (transaction_version >= _RAISES_SINCE and known.epoch <= EPOCH_LAST)

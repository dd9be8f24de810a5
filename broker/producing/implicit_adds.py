"""Partitions that take part in a transaction by being written to (KIP-890, from Produce 12 on).

The producer sends no AddPartitionsToTxn.  So the coordinator first records, durably, that the
partition takes part; only then is the producer's first batch for it appended.  A crash therefore
never leaves a batch of a transaction that nobody knows.
"""

from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.messages_core import ProduceRequest
from segbroker.protocol.record_batch import HEADER_SIZE, read_header

from ..core import Core
from ..guards.authorized import check_write
from ..peers.peer import Peer
from ..refused import Refused

IMPLICIT_SINCE: Final = 12


def lacks_partitions(core: Core, header: RequestHeader, request: ProduceRequest) -> bool:
    """Whether a transactional request has partitions that do not take part yet."""
    if request.transactional_id is None or header.api_version < IMPLICIT_SINCE:
        return False
    known = core.transactions.table.get(request.transactional_id)
    return known is not None and not all(
        known.has(topic.name, partition.index)
        for topic in request.topic_data
        for partition in topic.partition_data
    )


async def add_partitions(core: Core, peer: Peer, request: ProduceRequest) -> ErrorCode:
    """Have the partitions of a request take part; where that is refused, so will be its batches.

    Returns why, of the partitions that did not take part before.
    """
    assert request.transactional_id is not None, "asked before"
    producer: tuple[int, int] | None = None
    partitions: dict[str, list[int]] = {}
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
                continue
            batch = read_header(records)
            producer = producer or (batch.producer_id, batch.producer_epoch)
            if core.topics.exists(topic.name, partition.index) and _is_allowed(
                core, peer, topic.name, request.transactional_id
            ):
                partitions.setdefault(topic.name, []).append(partition.index)
    if producer is None or not partitions:
        return ErrorCode.NONE
    return await core.transactions.add(request.transactional_id, *producer, partitions)


def _is_allowed(core: Core, peer: Peer, topic: str, transactional_id: str) -> bool:
    if core.authorizer is None:
        return True
    try:
        check_write(core.authorizer, peer, topic, transactional_id)
    except Refused:
        return False  # its row says so
    return True

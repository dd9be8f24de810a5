"""How many bytes the next offsets of a partition take, for maxBytesPerTrigger.

No request of Kafka's tells the size of a range of offsets.  A small fetch where the batch will
begin does, from the batch headers alone: the average there, which for a log of like records is
that of the range.  It costs one round trip per partition with a backlog and trigger, and is
as right for Apache Kafka as for segbroker.

Limits: the bytes are those on the wire, compressed as the producer sent them; a log whose records
change size within one micro-batch is estimated by those at its beginning.
"""

from collections.abc import Mapping

from segbroker.client.errors import broker_error
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from segbroker.protocol.record_batch import iter_batches, read_header
from segbroker.protocol.schema import records_view

from .cluster import Cluster
from .layouts import Layout
from .offsets import TopicPartition

PROBE_BYTES = 64 << 10


def offsets_within(
    cluster: Cluster,
    layout: Layout,
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    bytes_max: int,
    timeout_ms: int,
) -> int | None:
    """How many of the offsets between make about `bytes_max` bytes; None: all of them."""
    total_offsets, total_bytes = 0, 0.0
    for (topic, partition), to in end.items():
        size = to - begin[topic, partition]
        leader = layout[topic].leaders.get(partition) if topic in layout else None
        if size <= 0 or leader is None:
            continue
        link = cluster.link(leader)
        reply = link.ask(
            _probe(topic, partition, begin[topic, partition]), FetchResponse, timeout_ms
        )
        total_offsets += size
        total_bytes += size * _offset_bytes(reply)
    if total_bytes <= bytes_max:
        return None
    return max(1, int(total_offsets * bytes_max / total_bytes))


def _probe(topic: str, partition: int, offset: int) -> FetchRequest:
    asked = FetchRequestPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=PROBE_BYTES
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=PROBE_BYTES,
        isolation_level=0,
        topics=[FetchRequestTopic(topic=topic, partitions=[asked])],
    )


def _offset_bytes(reply: FetchResponse) -> float:
    """Bytes per offset; 0 where nothing can be fetched: the task will say why."""
    if reply.error_code != ErrorCode.NONE:
        return 0.0
    if not reply.responses:
        # So Apache Kafka answers a client that is over its quota: it is asked again.
        raise broker_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the size of records")
    row = reply.responses[0].partitions[0]
    size, first, last = 0, None, 0
    for view in iter_batches(records_view(row.records)):
        header = read_header(view)
        first = header.base_offset if first is None else first
        last = header.next_offset
        size += len(view)
    return 0.0 if first is None else size / (last - first)

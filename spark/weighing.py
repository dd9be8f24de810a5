"""How many bytes the next offsets of a partition take, for maxBytesPerTrigger.

No request of Kafka's tells the size of a range of offsets.  A small fetch where the batch will
begin does, from the batch headers alone: the average there, which for a log of like records is
that of the range.  It costs one round trip per partition with a backlog and trigger, and is
as right for Apache Kafka as for segbroker.

What has no records in front of the first that are there (a gap, what a cleaning took, the ends of
transactions) has no size, and counts towards no limit; further gaps are left out of the average.

Limits: the bytes are those on the wire, compressed as the producer sent them; a log whose records
change size within one micro-batch is estimated by those at its beginning.
"""

from collections.abc import Mapping
from typing import NamedTuple

from segbroker.client.errors import broker_error
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from segbroker.protocol.record_batch import gap_reason, iter_batches, read_header
from segbroker.protocol.schema import records_view

from .cluster import Cluster
from .layouts import Layout, leader_of
from .offsets import TopicPartition

PROBE_BYTES = 64 << 10
# Of one partition, in front of the first records that one of them has.
PROBES_COUNT_MAX = 16


class Weight(NamedTuple):
    """From `first` on an offset takes so many bytes; before it there is nothing."""

    first: int
    offset_bytes: float


def weigh(
    cluster: Cluster,
    layout: Layout,
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> dict[TopicPartition, Weight]:
    """Of each partition with a backlog, what is ahead of `begin`; in [begin, end]."""
    found: dict[TopicPartition, Weight] = {}
    for (topic, partition), to in end.items():
        at = begin[topic, partition]
        leader = leader_of(layout, topic, partition)
        if to <= at or leader is None:
            continue
        for _ in range(PROBES_COUNT_MAX):
            request = _probe(topic, partition, at)
            weight = _weight(cluster.link(leader).ask(request, FetchResponse), at, to)
            found[topic, partition] = weight
            if weight.offset_bytes or weight.first in (at, to):
                break
            at = weight.first  # there was room for no batch of records behind those without
    return found


def offsets_within(
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    weights: Mapping[TopicPartition, Weight],
    bytes_max: int,
) -> int | None:
    """How many of the offsets between make about `bytes_max` bytes; None: all of them."""
    sizes = {key: end[key] - begin[key] for key in weights}
    total_bytes = sum(size * weights[key].offset_bytes for key, size in sizes.items())
    if total_bytes <= bytes_max:
        return None
    return max(1, int(sum(sizes.values()) * bytes_max / total_bytes))


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


def _weight(reply: FetchResponse, begin: int, end: int) -> Weight:
    """What is in a reply; no bytes where there are no records, or nothing can be fetched: the task
    will say why.  Raises BrokerError for what passes, as where the leader has moved."""
    if reply.error_code == ErrorCode.NONE and not reply.responses:
        # So Apache Kafka answers a client that is over its quota: it is asked again.
        raise broker_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the size of records")
    code = reply.error_code or reply.responses[0].partitions[0].error_code
    if code != ErrorCode.NONE:
        error = broker_error(code, "the size of records")
        if error.retryable:
            raise error
        return Weight(begin, 0.0)
    first, last, size, missing = None, begin, 0, 0
    for view in iter_batches(records_view(reply.responses[0].partitions[0].records)):
        header = read_header(view)
        last = header.next_offset
        if first is None and (header.is_control or not header.records_count):
            continue
        first = header.base_offset if first is None else first
        if gap_reason(header) is not None:
            missing += last - header.base_offset
        else:
            size += len(view)
    if first is None:
        return Weight(min(max(begin, last), end), 0.0)
    return Weight(min(max(begin, first), end), size / (last - first - missing))

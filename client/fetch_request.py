"""A fetch as it travels: what is asked of each partition."""

from collections.abc import Callable, Iterable

from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
)

from .assigned import PartitionState
from .settings import ConsumerSettings


def fetch_request(
    states: Iterable[PartitionState],
    settings: ConsumerSettings,
    leader_epoch: Callable[[str, int], int],
    *,
    size_max: int,
    wait_ms: int,
    isolation_level: int,
) -> FetchRequest:
    """The request for these partitions, in this order: a broker fills its reply from the front.

    Args:
        leader_epoch: what the cluster view says of a topic and partition.
        size_max: bytes of the whole reply.
        wait_ms: how long the broker may wait for `fetch_min_bytes`.
    """
    topics: dict[str, list[FetchRequestPartition]] = {}
    for state in states:
        topics.setdefault(state.tp.topic, []).append(
            FetchRequestPartition(
                partition=state.tp.partition,
                current_leader_epoch=leader_epoch(*state.tp),
                fetch_offset=state.fetch_offset,
                last_fetched_epoch=state.epoch,
                partition_max_bytes=settings.fetch_partition_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=size_max,
        isolation_level=isolation_level,
        topics=[FetchRequestTopic(topic=name, partitions=rows) for name, rows in topics.items()],
    )

"""Compressing anew what a topic wants otherwise (compression.type), before it is appended.

    batch as the topic wants it, or the topic takes all     -> as it is
    acks, version, partition, authorization, room           -> the append says so, nothing is done
    else: opened and compressed in a lane                   -> the new batch is appended

Compressing 1 MiB takes from a few milliseconds to seconds, by codec and level, so it is done in a
lane; the connection waits for it and reads nothing further, which keeps its batches in order.

Bounds: half of the lanes compress at once, so what reads a disk has the others; a batch holds at
most OPENED_SIZE_MAX when it is opened, or max.message.bytes where it stays uncompressed.  What is
larger is refused as too large, which makes producers split it.  Each is appended before the next of
its request is opened: a request of 1 MiB holds thousands of batches that are a MiB each when they
are open, and how much may wait for the disk is bounded by the appends.

As in Kafka a batch of the right codec stays as it is, whatever its level.
"""

from contextlib import suppress
from typing import Final, TypeAlias

from segbroker.protocol.batch_layout import CODEC_BITS, HEADER_SIZE
from segbroker.protocol.compression import Codec
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.record_batch import InvalidBatch, read_header, recompress
from segbroker.segments.settings.topic_config import TopicConfig

from ..core import Core
from ..guards.authorized import may_write
from ..peers.peer import Peer
from ..refused import Refused
from .appending import ZSTD_SINCE, partition_to_append

OPENED_SIZE_MAX: Final = 16 << 20
"""Bytes of the records of a batch, opened."""

Anew: TypeAlias = dict[int, InvalidBatch | None]
"""By the ids of their rows: None for what is compressed as its topic wants it, or why it is not."""


def config_to_recompress(
    core: Core, peer: Peer, api_version: int, acks: int, name: str, index: int, records: object
) -> TopicConfig | None:
    """The settings of the topic, where it wants this batch otherwise and might take it; else
    None."""
    partition = core.topics.served_partition(name, index)
    if partition is None or (target := partition.handler.config.recompression) is None:
        return None
    if not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
        return None
    codec = read_header(records).attributes & CODEC_BITS
    is_refused = codec > max(Codec) or (codec == Codec.ZSTD and api_version < ZSTD_SINCE)
    if codec == target.codec or is_refused or not may_write(core, peer, name):
        return None
    with suppress(Refused):
        return partition_to_append(core, api_version, acks, name, index).handler.config
    return None


async def recompressed(core: Core, config: TopicConfig, records: memoryview) -> memoryview:
    """The batch as the topic wants it.  Raises InvalidBatch."""
    target = config.recompression
    assert target is not None, "asked for"
    opened_max = config.max_message_bytes if target.codec == Codec.NONE else OPENED_SIZE_MAX

    def work() -> bytearray:
        return recompress(records, target.codec, target.level, size_max=opened_max)

    return memoryview(await core.lanes.compute(work))


def _config_of(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    acks: int,
    topic: ProduceRequestTopic,
    asked: ProduceRequestPartition,
) -> TopicConfig | None:
    return config_to_recompress(
        core, peer, header.api_version, acks, topic.name, asked.index, asked.records
    )


def wants_recompression(
    core: Core, peer: Peer, header: RequestHeader, request: ProduceRequest
) -> bool:
    """Whether a topic of the request wants what was sent to it otherwise."""
    return any(
        _config_of(core, peer, header, request.acks, topic, asked) is not None
        for topic in request.topic_data
        for asked in topic.partition_data
    )


async def recompress_row(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    acks: int,
    topic: ProduceRequestTopic,
    asked: ProduceRequestPartition,
    anew: Anew,
) -> None:
    """Put the batch of a row into it as its topic wants it."""
    config = _config_of(core, peer, header, acks, topic, asked)
    if config is None:
        return
    assert isinstance(asked.records, memoryview), "looked at"
    try:
        asked.records = await recompressed(core, config, asked.records)
    except InvalidBatch as exc:
        anew[id(asked)] = exc
    else:
        anew[id(asked)] = None

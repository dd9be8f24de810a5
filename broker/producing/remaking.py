"""Batches that are made anew before they are appended: compressed otherwise, or stamped.

    batch as the topic wants it, or the topic takes all     -> as it is
    acks, version, partition, authorization, room           -> the append says so, nothing is done
    else: opened and compressed in a lane                   -> the new batch is appended
    compressed, and without its greatest timestamp          -> opened in a lane, and stamped

A topic says by compression.type what it wants.  A batch lacks its greatest timestamp if its header
says one below that of its first record: look-ups by time and retention go by the header, so without
it they would pass the records over (docs/decisions/0276).  One that cannot be opened stays as it
came.

Compressing 1 MiB takes from a few milliseconds to seconds, by codec and level, so it is done in a
lane; the connection waits for it and reads nothing further, which keeps its batches in order.

Bounds: half of the lanes compress at once, so what reads a disk has the others; a batch holds at
most OPENED_SIZE_MAX when it is opened, or max.message.bytes where it stays uncompressed.  What is
larger is refused as too large, which makes producers split it.

To go to a lane and back costs more than to open a small batch.  So those of a request that follow
one another are made anew with one visit, as many as VISIT_S and MADE_SIZE_MAX allow, one open at a
time; and are appended before the next ones are: a request of 1 MiB holds thousands of batches that
are a MiB each when they are open, and how much may wait for the disk is bounded by the appends.

As in Kafka a batch of the right codec stays as it is, whatever its level.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from segbroker.protocol.batch_layout import ATTRIBUTES_POSITION, CODEC_BITS, HEADER_SIZE
from segbroker.protocol.compression import Codec
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.record_batch import (
    InvalidBatch,
    read_header,
    recompress,
    stamp_greatest,
)
from segbroker.segments.settings.topic_config import TimestampType, TopicConfig

from ..core import Core
from ..guards.authorized import may_write
from ..peers.peer import Peer
from ..refused import Refused
from .appending import ZSTD_SINCE, partition_to_append

OPENED_SIZE_MAX: Final = 16 << 20
"""Bytes of the records of a batch, opened."""
VISIT_S: Final = 0.005
MADE_SIZE_MAX: Final = 256 << 10
"""After so long, or with so many bytes made anew, a visit of a lane ends with the batch that it has
open."""
TOGETHER_MAX: Final = 250
"""Batches that are taken along for one visit."""
_CODEC_POSITION: Final = ATTRIBUTES_POSITION + 1
"""The byte of a batch with the bits of its codec."""

Row: TypeAlias = tuple[ProduceRequestTopic, ProduceRequestPartition]
Anew: TypeAlias = dict[int, InvalidBatch | None]
"""By the ids of their rows: None for what was made anew, or why it could not be."""


class _Wanted(NamedTuple):
    """A batch that is made anew, and what its topic wants."""

    asked: ProduceRequestPartition
    config: TopicConfig


def config_to_remake(
    core: Core, peer: Peer, api_version: int, acks: int, name: str, index: int, records: object
) -> TopicConfig | None:
    """The settings of the topic, where this batch is made anew and might be taken; else None."""
    partition = core.topics.served_partition(name, index)
    if partition is None or not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
        return None
    config = partition.handler.config
    target = config.recompression
    if target is None and not records[_CODEC_POSITION] & CODEC_BITS:
        return None  # most
    header = read_header(records)
    codec = header.attributes & CODEC_BITS
    is_wanted = target is None or codec == target.codec
    if is_wanted and not (codec and header.lacks_max_timestamp and _keeps_stamps(config)):
        return None
    is_refused = codec > max(Codec) or (codec == Codec.ZSTD and api_version < ZSTD_SINCE)
    if is_refused or not may_write(core, peer, name):
        return None
    with suppress(Refused):
        return partition_to_append(core, api_version, acks, name, index).handler.config
    return None


def _keeps_stamps(config: TopicConfig) -> bool:
    """Whether records keep the timestamps of their producer."""
    return config.message_timestamp_type is TimestampType.CREATE_TIME


async def remade(core: Core, config: TopicConfig, records: memoryview) -> memoryview:
    """The batch as it is to be appended.  Raises InvalidBatch."""
    return memoryview(await core.lanes.compute(partial(_remake, config, records)))


def _remake(config: TopicConfig, records: memoryview) -> memoryview | bytearray:
    header = read_header(records)
    codec = header.attributes & CODEC_BITS
    if codec and header.lacks_max_timestamp and _keeps_stamps(config):
        with suppress(InvalidBatch):
            stamp_greatest(records, size_max=OPENED_SIZE_MAX)
    target = config.recompression
    if target is None or codec == target.codec:
        return records
    opened_max = config.max_message_bytes if target.codec == Codec.NONE else OPENED_SIZE_MAX
    return recompress(records, target.codec, target.level, size_max=opened_max)


def _config_of(
    core: Core, peer: Peer, header: RequestHeader, acks: int, row: Row
) -> TopicConfig | None:
    topic, asked = row
    return config_to_remake(
        core, peer, header.api_version, acks, topic.name, asked.index, asked.records
    )


def wants_remaking(core: Core, peer: Peer, header: RequestHeader, request: ProduceRequest) -> bool:
    """Whether something of the request is made anew."""
    return any(
        _config_of(core, peer, header, request.acks, (topic, asked)) is not None
        for topic in request.topic_data
        for asked in topic.partition_data
    )


async def remake_rows(
    core: Core,
    peer: Peer,
    header: RequestHeader,
    acks: int,
    rows: Sequence[Row],
    begin: int,
    anew: Anew,
) -> None:
    """Put the batch of this row into it as it is to be appended, and those of some behind it; what
    is in `anew` is so already.

    Of those whether they are made anew is looked at now, and not when it is their turn.
    """
    config_of = partial(_config_of, core, peer, header, acks)
    if id(rows[begin][1]) in anew or (config := config_of(rows[begin])) is None:
        return
    behind = [row for row in rows[begin + 1 : begin + TOGETHER_MAX] if id(row[1]) not in anew]
    wanted = [_Wanted(rows[begin][1], config)]
    wanted += [_Wanted(row[1], config) for row in behind if (config := config_of(row)) is not None]
    made = await core.lanes.compute(partial(_remake_some, wanted))
    for (asked, _), one in zip(wanted, made, strict=False):
        anew[id(asked)] = one if isinstance(one, InvalidBatch) else None
        if not isinstance(one, InvalidBatch):
            asked.records = one


def _remake_some(wanted: Sequence[_Wanted]) -> list[memoryview | InvalidBatch]:
    """What becomes of the first of these, for as long as a visit lasts; of one at least."""
    over, size = time.perf_counter() + VISIT_S, 0
    made: list[memoryview | InvalidBatch] = []
    for asked, config in wanted:
        assert isinstance(asked.records, memoryview), "looked at"
        try:
            one = memoryview(_remake(config, asked.records))
        except InvalidBatch as exc:
            made.append(exc)
        else:
            made.append(one)
            size += len(one) if one.obj is not asked.records.obj else 0
        if size >= MADE_SIZE_MAX or time.perf_counter() >= over:
            break
    return made

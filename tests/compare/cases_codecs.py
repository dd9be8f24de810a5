"""Compressed batches as one codec or another may frame them, and what their headers leave out."""

import gzip
import struct
import zlib
from typing import Any, Final

import cramjam
import xxhash

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.compression import Codec, compress
from segbroker.protocol.record_batch import HEADER_SIZE

from .cases import case
from .cases_produce import NOW_MS, batch, produce
from .forging import forged
from .stage import Stage

PLAIN: Final = batch(5)
RECORDS: Final = PLAIN[HEADER_SIZE:]
MIDDLE: Final = len(RECORDS) // 2
HALVES: Final = (RECORDS[:MIDDLE], RECORDS[MIDDLE:])
XERIAL: Final = b"\x82SNAPPY\0"
LZ4_SIZE, LZ4_SUM, LZ4_SUMS = 0x08, 0x04, 0x10


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def xerial(*blocks: bytes, version: int = 1) -> bytes:
    """Blocks of snappy as Java's stream frames them."""
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return XERIAL + struct.pack(">ii", version, version) + framed


def lz4(*parts: bytes, flags: int = 0, size: int = 0x40, stored: bool = False) -> bytes:
    """A frame with a block for each part.  flags: LZ4_SIZE, LZ4_SUM, LZ4_SUMS; size: the code of
    the largest block; stored: blocks are not compressed."""
    whole = b"".join(parts)
    head = bytes([0x60 | flags, size])
    if flags & LZ4_SIZE:
        head += struct.pack("<Q", len(whole))
    out = struct.pack("<I", 0x184D2204) + head
    out += bytes([xxhash.xxh32(head).intdigest() >> 8 & 0xFF])
    for part in parts:
        block = part if stored else bytes(cramjam.lz4.compress_block(part, store_size=False))
        out += struct.pack("<I", len(block) | (0x80000000 if stored else 0)) + block
        if flags & LZ4_SUMS:
            out += struct.pack("<I", xxhash.xxh32(block).intdigest())
    out += bytes(4)
    if flags & LZ4_SUM:
        out += struct.pack("<I", xxhash.xxh32(whole).intdigest())
    return out


def zstd(data: bytes) -> bytes:
    return compress(Codec.ZSTD, data)


SKIPPABLE: Final = struct.pack("<II", 0x184D2A50, 3) + b"abc"
GZIP: Final = gzip.compress(RECORDS, mtime=0)
FRAMED: Final[dict[str, tuple[Codec, bytes]]] = {
    "snappy, bare": (Codec.SNAPPY, snappy(RECORDS)),
    "snappy, one block": (Codec.SNAPPY, xerial(snappy(RECORDS))),
    "snappy, two blocks": (Codec.SNAPPY, xerial(*map(snappy, HALVES))),
    "snappy, version 0": (Codec.SNAPPY, xerial(snappy(RECORDS), version=0)),
    "snappy, version 9": (Codec.SNAPPY, xerial(snappy(RECORDS), version=9)),
    "snappy, a block that holds nothing": (
        Codec.SNAPPY,
        xerial(snappy(HALVES[0]), snappy(b""), snappy(HALVES[1])),
    ),
    "snappy, a block of no bytes": (Codec.SNAPPY, xerial(snappy(RECORDS), b"")),
    "snappy, two streams": (Codec.SNAPPY, xerial(snappy(HALVES[0])) + xerial(snappy(HALVES[1]))),
    "snappy and more": (Codec.SNAPPY, xerial(snappy(RECORDS)) + b"\0\0"),
    "snappy, nothing": (Codec.SNAPPY, b""),
    "gzip": (Codec.GZIP, GZIP),
    "gzip, two members": (Codec.GZIP, b"".join(gzip.compress(half) for half in HALVES)),
    "gzip, with a name": (Codec.GZIP, GZIP[:3] + b"\x08" + GZIP[4:10] + b"name\0" + GZIP[10:]),
    "gzip and zeros": (Codec.GZIP, GZIP + bytes(4)),
    "gzip and more": (Codec.GZIP, GZIP + b"more"),
    "gzip without its sum": (Codec.GZIP, GZIP[:-8]),
    "gzip of another sum": (Codec.GZIP, GZIP[:-8] + bytes(8)),
    "gzip, but zlib": (Codec.GZIP, zlib.compress(RECORDS)),
    "gzip, nothing": (Codec.GZIP, b""),
    "lz4": (Codec.LZ4, lz4(RECORDS)),
    "lz4, two blocks": (Codec.LZ4, lz4(*HALVES)),
    "lz4, with a sum": (Codec.LZ4, lz4(RECORDS, flags=LZ4_SUM)),
    "lz4 of another sum": (Codec.LZ4, lz4(RECORDS, flags=LZ4_SUM)[:-4] + b"sum!"),
    "lz4, with sums": (Codec.LZ4, lz4(*HALVES, flags=LZ4_SUM | LZ4_SUMS)),
    "lz4, with its size": (Codec.LZ4, lz4(RECORDS, flags=LZ4_SIZE)),
    "lz4, of 4 MiB": (Codec.LZ4, lz4(RECORDS, size=0x70)),
    "lz4, stored": (Codec.LZ4, lz4(RECORDS, stored=True)),
    "lz4 without its end": (Codec.LZ4, lz4(RECORDS)[:-4]),
    "lz4, two frames": (Codec.LZ4, lz4(HALVES[0]) + lz4(HALVES[1])),
    "lz4 and more": (Codec.LZ4, lz4(RECORDS) + b"\0\0"),
    "lz4, nothing": (Codec.LZ4, b""),
    "zstd": (Codec.ZSTD, zstd(RECORDS)),
    "zstd, two frames": (Codec.ZSTD, b"".join(map(zstd, HALVES))),
    "zstd behind what is skipped": (Codec.ZSTD, SKIPPABLE + zstd(RECORDS)),
    "zstd before what is skipped": (Codec.ZSTD, zstd(RECORDS) + SKIPPABLE),
    "zstd and more": (Codec.ZSTD, zstd(RECORDS) + bytes(8)),
    "zstd, nothing": (Codec.ZSTD, b""),
}


async def lies(stage: Stage, topic: str) -> Any:
    """What lies in partition 0."""
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fields = {"replica_id": -1, "max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1 << 20}
    topics = [{"topic": topic, "partitions": [row]}]
    answer = await stage.quietly(ApiKey.FETCH, 12, session_epoch=-1, topics=topics, **fields)
    return answer.responses[0].partitions[0]


@case(ApiKey.PRODUCE, since=7, ends=True)
async def framings_of_every_codec(stage: Stage) -> None:
    """To topics that want none: the broker opens them, and what it found is read."""
    for number, (label, (codec, data)) in enumerate(FRAMED.items()):
        topic = await stage.topic(f"-{number}", compression_type="uncompressed")
        records = forged(PLAIN[:HEADER_SIZE] + data, attributes=codec)
        await produce(stage, label, topic, records)
        found = bytes((await lies(stage, topic)).records or b"")
        stage.seen[f"{label}, read"] = {"": found == b"" or found[HEADER_SIZE:] == RECORDS}


@case(ApiKey.PRODUCE, since=7, ends=True)
async def batches_without_a_greatest_timestamp(stage: Stage) -> None:
    """As Sarama before 1.45.1 sends them."""
    for codec in Codec:
        topic = await stage.topic(f"-{codec.name.lower()}", retention_ms="-1")
        times = [NOW_MS, NOW_MS + 9, NOW_MS + 5]
        await produce(
            stage,
            codec.name,
            topic,
            forged(batch(codec=codec, timestamps_ms=times), max_timestamp=-1),
        )
        for at in (-3, NOW_MS, NOW_MS + 1, NOW_MS + 9, NOW_MS + 10):
            row = (await looked(stage, topic, at)).topics[0].partitions[0]
            found = {"offset": row.offset, "timestamp": row.timestamp}
            stage.seen[f"{codec.name} at {at}"] = dict(found)


async def looked(stage: Stage, topic: str, at: int) -> Any:
    row = {"partition_index": 0, "timestamp": at, "current_leader_epoch": -1}
    topics = [{"name": topic, "partitions": [row]}]
    return await stage.quietly(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)

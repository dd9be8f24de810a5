"""Produce: what is taken, what is refused and how."""

import time
from typing import Any

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import encode_batch

from .cases import case
from .forging import forged
from .stage import Stage

IDS_SINCE = 13
NOW_MS = 1_700_000_000_000


def batch(count: int = 3, **how: Any) -> bytes:
    """Records with a key each, at a fixed time."""
    mine: dict[str, Any] = {"keys": [b"k%d" % n for n in range(count)], "timestamps_ms": NOW_MS}
    return encode_batch([b"value %d" % n for n in range(count)], **(mine | how))


async def produce(stage: Stage, label: str, topic: str, records: bytes | None, **more: Any) -> Any:
    row = {"index": more.pop("partition", 0), "records": records}
    fields = {"acks": -1, "timeout_ms": 10_000} | more
    topics = [await named(stage, topic, row)]
    return await stage.ask(label, ApiKey.PRODUCE, topic_data=topics, **fields)


async def named(stage: Stage, topic: str, *rows: dict[str, Any]) -> dict[str, Any]:
    """A topic of a request: by its id in the versions that know it so."""
    which: dict[str, Any] = {"name": topic}
    if stage.version >= IDS_SINCE:
        which = {"topic_id": await stage.topic_id(topic)}
    return which | {"partition_data": list(rows)}


@case(ApiKey.PRODUCE, since=3)
async def batches_of_every_codec(stage: Stage) -> None:
    topic = await stage.topic()
    for codec in Codec:
        await produce(stage, codec.name, topic, batch(codec=codec))
    await produce(stage, "acks 1", topic, batch(), acks=1)


@case(ApiKey.PRODUCE, since=3)
async def places_that_do_not_exist(stage: Stage) -> None:
    topic = await stage.topic()
    await produce(stage, "unknown partition", topic, batch(), partition=7)
    await produce(stage, "negative partition", topic, batch(), partition=-1)
    await produce(stage, "unknown topic", f"{stage.name}-nowhere", batch())
    if stage.version < IDS_SINCE:
        await produce(stage, "bad name", "no/such name", batch())
        await produce(stage, "empty name", "", batch())


@case(ApiKey.PRODUCE, since=3)
async def wrong_acks(stage: Stage) -> None:
    topic = await stage.topic()
    for acks in (2, -2):
        await produce(stage, f"acks {acks}", topic, batch(), acks=acks)


@case(ApiKey.PRODUCE, since=3)
async def several_partitions_and_topics_at_once(stage: Stage) -> None:
    one, two = await stage.topic("-one", 2), await stage.topic("-two")
    await stage.ask(
        "mixed",
        ApiKey.PRODUCE,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            await named(
                stage,
                one,
                {"index": 0, "records": batch()},
                {"index": 1, "records": batch(1)},
                {"index": 9, "records": batch(1)},
            ),
            await named(stage, two, {"index": 0, "records": batch(2)}),
        ],
    )
    await stage.ask("nothing", ApiKey.PRODUCE, acks=-1, timeout_ms=1_000, topic_data=[])


@case(ApiKey.PRODUCE, since=3)
async def damaged_batches(stage: Stage) -> None:
    topic = await stage.topic()
    good = batch()
    await produce(stage, "wrong checksum", topic, good[:-1] + bytes([good[-1] ^ 1]))
    await produce(stage, "two batches", topic, good + good)
    await produce(stage, "cut short", topic, good[:-4])
    await produce(stage, "shorter than a header", topic, good[:30])
    await produce(stage, "count too high", topic, forged(good, records_count=4))
    await produce(stage, "last offset too high", topic, forged(good, last_offset_delta=9))
    await produce(stage, "no records", topic, forged(good[:61], records_count=0))
    await produce(stage, "control batch", topic, forged(good, attributes=1 << 5))
    await produce(stage, "magic 1", topic, forged(good, magic=1))
    await produce(stage, "magic 3", topic, forged(good, magic=3))
    await produce(stage, "unknown codec", topic, forged(good, attributes=7))
    await produce(stage, "broker's timestamp type", topic, forged(good, attributes=1 << 3))
    await produce(stage, "good after all", topic, good)


@case(ApiKey.PRODUCE, since=3)
async def batches_that_one_of_both_takes(stage: Stage) -> None:
    one = batch(1)
    # Of a record: length, attributes, timestamp delta, offset delta, length of the key.
    cases = {
        "base offset 99": forged(one, base_offset=99),
        "and a byte": one + b"\0",
        "and half a batch": one + one[:40],
        "offset delta 1": forged(one[:64] + b"\2" + one[65:]),
        "a key of -2 bytes": forged(encode_batch([b"v"], timestamps_ms=NOW_MS)[:65] + b"\3\2v\0"),
    }
    for number, (label, records) in enumerate(cases.items()):
        await produce(stage, label, await stage.topic(f"-{number}"), records)


@case(ApiKey.PRODUCE, since=3)
async def no_records_at_all(stage: Stage) -> None:
    topic = await stage.topic()
    await produce(stage, "empty", topic, b"")


@case(ApiKey.PRODUCE, since=3)
async def what_the_topic_wants(stage: Stage) -> None:
    small = await stage.topic("-small", max_message_bytes="1000")
    await produce(stage, "too large", small, batch(200))
    stamped = await stage.topic("-stamped", message_timestamp_type="LogAppendTime")
    await produce(stage, "stamped", stamped, batch())


@case(ApiKey.PRODUCE, since=3)
async def topics_that_want_a_codec(stage: Stage) -> None:
    for wanted in ("uncompressed", "gzip", "zstd"):
        topic = await stage.topic(f"-{wanted}", compression_type=wanted)
        for codec in Codec:
            await produce(stage, f"{wanted} by {codec.name}", topic, batch(codec=codec))
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            broken = forged(batch(1)[:61] + b"no compression", attributes=codec)
            await produce(stage, f"{wanted} by broken {codec.name}", topic, broken)
    small = await stage.topic("-small", compression_type="uncompressed", max_message_bytes="1000")
    alike = encode_batch([bytes(2_000)], timestamps_ms=NOW_MS, codec=Codec.GZIP)
    await produce(stage, "too large without compression", small, alike)


@case(ApiKey.PRODUCE, since=3)
async def idempotent_producers(stage: Stage) -> None:
    topic = await stage.topic()
    answer = await stage.quietly(
        ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=60_000
    )
    me = answer.producer_id

    # Of today: a producer whose last record is a day old is forgotten when a broker next looks.
    today = time.time_ns() // 1_000_000

    def numbered(sequence: int, epoch: int = 0, producer: int = me) -> bytes:
        return batch(
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            timestamps_ms=today,
        )

    await produce(stage, "first", topic, numbered(0))
    await produce(stage, "second", topic, numbered(3))
    await produce(stage, "first again", topic, numbered(0))
    await produce(stage, "second again", topic, numbered(3))
    await produce(stage, "a hole", topic, numbered(9))
    await produce(stage, "overlapping", topic, numbered(4))
    await produce(stage, "next epoch, not from 0", topic, numbered(6, 1))
    await produce(stage, "next epoch", topic, numbered(0, 1))
    await produce(stage, "old epoch", topic, numbered(6, 0))
    for n in range(1, 7):
        await produce(stage, f"onwards {n}", topic, numbered(3 * n, 1))
    await produce(stage, "older than five batches", topic, numbered(0, 1))
    await produce(stage, "unknown producer, from 5", topic, numbered(5, 0, me + 1_000))
    await produce(stage, "without a sequence", topic, numbered(-1, 1))
    await produce(stage, "negative epoch", topic, numbered(0, -1))

"""Sequences of producers where they end, wrap, begin anew, or outlive what they wrote."""

import time
from typing import Any

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_produce import batch, produce
from .cases_time import setting, start_set
from .cases_transactions import added, begun, completed
from .stage import Stage

LAST = (1 << 31) - 1


async def numbers(stage: Stage) -> int:
    answer = await stage.quietly(
        ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=60_000
    )
    found: int = answer.producer_id
    return found


class Producer:
    """An idempotent producer that says whatever sequence it is told to."""

    def __init__(self, stage: Stage, topic: str, me: int) -> None:
        self.stage, self.topic, self.me = stage, topic, me

    async def send(
        self, label: str, sequence: int, count: int = 3, epoch: int = 0, **more: Any
    ) -> Any:
        records = batch(
            count,
            producer_id=more.pop("me", self.me),
            producer_epoch=epoch,
            base_sequence=sequence,
            timestamps_ms=time.time_ns() // 1_000_000,
            transactional=more.pop("transactional", False),
        )
        return await produce(self.stage, label, self.topic, records, **more)


@case(ApiKey.PRODUCE, since=3)
async def sequences_that_wrap(stage: Stage) -> None:
    topic = await stage.topic(retention_ms="-1")
    mine = Producer(stage, topic, await numbers(stage))
    await mine.send("to the last", LAST - 5, 3)
    await mine.send("to the very last", LAST - 2, 3)
    await mine.send("and 0", 0)
    await mine.send("and 0 again", 0)
    await mine.send("the last again", LAST - 2, 3)
    other = Producer(stage, topic, await numbers(stage))
    await other.send("in the middle of a batch", LAST - 4, 3)
    await other.send("over the end", LAST - 1, 4)
    await other.send("over the end again", LAST - 1, 4)
    await other.send("behind it, a hole", 3, 1)
    await other.send("behind it", 2, 1)
    third = Producer(stage, topic, await numbers(stage))
    await third.send("one, the last", LAST, 1)
    await third.send("1 behind the last", 1, 1)
    await third.send("0 behind the last", 0, 1)


@case(ApiKey.PRODUCE, since=3)
async def epochs_at_their_borders(stage: Stage) -> None:
    topic = await stage.topic(retention_ms="-1")
    mine = Producer(stage, topic, await numbers(stage))
    await mine.send("begins at 7", 7)
    await mine.send("goes on", 10)
    await mine.send("epoch 32767, from 3", 3, epoch=32767)
    await mine.send("epoch 32767", 0, epoch=32767)
    await mine.send("epoch 5 then", 0, epoch=5)
    await mine.send("epoch 0 then", 13, epoch=0)
    await mine.send("a duplicate of epoch 0", 7, epoch=0)
    await mine.send("without an epoch", 0, epoch=-1)
    await mine.send("below -1", 0, epoch=-2)
    await mine.send("sequence below -1", -2, epoch=32767)
    await mine.send("producer -2", 0, me=-2)
    await mine.send("no producer, an epoch", 0, me=-1, epoch=3)
    await mine.send("no producer, a sequence", 5, me=-1, epoch=-1)
    await mine.send("the largest producer", 0, me=(1 << 63) - 1)


@case(ApiKey.PRODUCE, since=3)
async def parts_of_batches(stage: Stage) -> None:
    """A retry that is cut otherwise than the first time."""
    topic = await stage.topic(retention_ms="-1")
    mine = Producer(stage, topic, await numbers(stage))
    await mine.send("six", 0, 6)
    await mine.send("the first three", 0, 3)
    await mine.send("the last three", 3, 3)
    await mine.send("more than the six", 0, 9)
    await mine.send("from within, and more", 3, 6)
    for n in range(6):
        await mine.send(f"one, {n}", 6 + n, 1)
    await mine.send("the six again", 0, 6)
    await mine.send("the second one again", 7, 1)
    await mine.send("the first one again", 6, 1)
    await mine.send("next", 12, 1)


@case(ApiKey.PRODUCE, since=3)
async def duplicates_of_what_is_deleted(stage: Stage) -> None:
    topic = await stage.topic(retention_ms="-1")
    mine = Producer(stage, topic, await numbers(stage))
    for n in range(3):
        await mine.send(f"{n}", 3 * n)
    await start_set(stage, topic, 9)
    await mine.send("the last again", 6)
    await mine.send("the first again", 0)
    await mine.send("next", 9)
    await start_set(stage, topic, 12)
    await mine.send("the next again", 9)


@case(ApiKey.PRODUCE, since=3)
async def several_batches_of_a_producer_in_one_request(stage: Stage) -> None:
    topic = await stage.topic(partitions=2, retention_ms="-1")
    me = await numbers(stage)
    today = time.time_ns() // 1_000_000

    def numbered(sequence: int, count: int = 1) -> bytes:
        where = {"producer_id": me, "producer_epoch": 0, "base_sequence": sequence}
        return batch(count, timestamps_ms=today, **where)

    await produce(stage, "two batches", topic, numbered(0) + numbered(1))
    await produce(stage, "one of them", topic, numbered(0))
    await produce(stage, "and the other", topic, numbered(1))


@case(ApiKey.PRODUCE, since=3)
async def producers_of_topics_that_stamp_and_limit(stage: Stage) -> None:
    topic = await stage.topic(retention_ms="-1", message_timestamp_type="LogAppendTime")
    mine = Producer(stage, topic, await numbers(stage))
    await mine.send("stamped", 0)
    await mine.send("stamped again", 0)
    await setting(stage, topic, max_message_bytes="150")
    await mine.send("too large today, again", 0)
    await mine.send("too large", 3, 30)
    await mine.send("and small", 3, 1)
    await setting(stage, topic, cleanup_policy="compact")
    keyless = batch(
        1,
        keys=None,
        producer_id=mine.me,
        producer_epoch=0,
        base_sequence=4,
        timestamps_ms=time.time_ns() // 1_000_000,
    )
    await produce(stage, "without a key", topic, keyless)
    await mine.send("with a key", 4, 1)


@case(ApiKey.PRODUCE, since=3)
async def stamps_out_of_bounds(stage: Stage) -> None:
    topic = await stage.topic(
        retention_ms="-1",
        message_timestamp_before_max_ms="3600000",
        message_timestamp_after_max_ms="3600000",
    )
    today = time.time_ns() // 1_000_000
    hour = 3_600_000
    for label, stamps in (
        ("of today", today),
        ("too old", today - 2 * hour),
        ("to come", today + 2 * hour),
        ("just not", today - hour + 30_000),
        ("without", -1),
        ("one of three too old", [today, today - 2 * hour, today]),
        ("one of three to come", [today, today, today + 2 * hour]),
        ("one of three without", [today, -1, today]),
        ("below -1", -5),
    ):
        await produce(stage, label, topic, batch(3, timestamps_ms=stamps))
    await setting(stage, topic, message_timestamp_type="LogAppendTime")
    answer = await produce(stage, "too old, but stamped", topic, batch(3, timestamps_ms=5))
    assert answer is not None


@case(ApiKey.PRODUCE, since=3)
async def batches_of_transactions_out_of_place(stage: Stage) -> None:
    topic = await stage.topic(partitions=2, retention_ms="-1")
    me = await begun(stage)
    mine = Producer(stage, topic, me["producer_id"])
    tx: dict[str, Any] = {"transactional": True, "transactional_id": me["transactional_id"]}
    if stage.version < 12:
        await mine.send("not added", 0, **tx)
    await added(stage, me, topic)
    await mine.send("transactional, nobody's", 0, transactional=True)
    await mine.send("transactional, another's", 0, transactional=True, transactional_id="zz")
    await mine.send("good", 0, **tx)
    await mine.send("next epoch", 0, epoch=1, **tx)
    await mine.send("not transactional, in between", 3)
    await stage.quietly(ApiKey.END_TXN, 1, **me, committed=True)
    await completed(stage, me)
    if stage.version < 12:
        await mine.send("behind the end", 3, **tx)
    await mine.send("not transactional, behind the end", 3)

"""Offsets by time: every special timestamp, gaps, stamps that do not rise, none at all."""

import time
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.compression import Codec

from .cases import case
from .cases_produce import NOW_MS, batch
from .cases_transactions import added, begun, completed, sent
from .stage import Stage

SPECIAL: Final = (-1, -2, -3, -4, -5, -6, -7)
# Kafka answers a change of settings before its log goes by them.


async def look(stage: Stage, label: str, topic: str, at: int, **more: Any) -> Any:
    row: dict[str, Any] = {"partition_index": 0, "timestamp": at, "current_leader_epoch": -1}
    fields: dict[str, Any] = {"replica_id": -1}
    for name, value in more.items():
        (row if name in row else fields)[name] = value
    topics = [{"name": topic, "partitions": [row]}]
    return await stage.ask(label, ApiKey.LIST_OFFSETS, topics=topics, **fields)


async def every_special(stage: Stage, label: str, topic: str, **more: Any) -> None:
    for special in SPECIAL:
        await look(stage, f"{label}, {special}", topic, special, **more)


async def start_set(stage: Stage, topic: str, offset: int) -> None:
    rows = [{"partition_index": 0, "offset": offset}]
    named = [{"name": topic, "partitions": rows}]
    answer = await stage.quietly(ApiKey.DELETE_RECORDS, 1, topics=named, timeout_ms=10_000)
    assert answer.topics[0].partitions[0].error_code == 0, answer


@case(ApiKey.LIST_OFFSETS, since=1)
async def every_special_time(stage: Stage) -> None:
    topic = await stage.topic("-t", retention_ms="-1")
    await every_special(stage, "empty", topic)
    for n in range(4):
        await stage.produce(topic, batch(timestamps_ms=[NOW_MS + 10 * n + i for i in (0, 1, 2)]))
    await every_special(stage, "full", topic)
    for replica in (-2, -3, 0, 1, 5):
        await look(stage, f"as replica {replica}", topic, -1, replica_id=replica)
    if stage.version >= 2:
        await every_special(stage, "committed", topic, isolation_level=1)
        await look(stage, "isolation 7", topic, -1, isolation_level=7)
    if stage.version >= 4:
        for epoch in (-2, 0, 1):
            await look(stage, f"end, epoch {epoch}", topic, -1, current_leader_epoch=epoch)
            await look(stage, f"time, epoch {epoch}", topic, NOW_MS, current_leader_epoch=epoch)
    await start_set(stage, topic, 5)
    await every_special(stage, "cut", topic)
    for at in (0, NOW_MS + 11, NOW_MS + 12, NOW_MS + 32, NOW_MS + 33):
        await look(stage, f"cut, at {at}", topic, at)
    await start_set(stage, topic, 12)
    await every_special(stage, "emptied", topic)
    await look(stage, "emptied, at 0", topic, 0)


@case(ApiKey.LIST_OFFSETS, since=1)
async def every_special_time_beside_a_transaction(stage: Stage) -> None:
    topic = await stage.topic("-t", retention_ms="-1")
    await stage.produce(topic, batch(timestamps_ms=NOW_MS))
    me = await begun(stage)
    await added(stage, me, topic)
    await sent(stage, me, topic, 7)
    await stage.produce(topic, batch(timestamps_ms=NOW_MS + 50))
    for isolation in (0, 1) if stage.version >= 2 else ():
        name = f"open, isolation {isolation}"
        await every_special(stage, name, topic, isolation_level=isolation)
        for at in (0, NOW_MS, NOW_MS + 20, NOW_MS + 50):
            await look(stage, f"{name}, at {at}", topic, at, isolation_level=isolation)
    await stage.quietly(ApiKey.END_TXN, 1, **me, committed=False)
    await completed(stage, me)
    for isolation in (0, 1) if stage.version >= 2 else (0,):
        known = {"isolation_level": isolation} if stage.version >= 2 else {}
        name = f"aborted, isolation {isolation}"
        for at in (-1, -2, 0, NOW_MS, NOW_MS + 20, NOW_MS + 50):
            await look(stage, f"{name}, at {at}", topic, at, **known)


@case(ApiKey.LIST_OFFSETS, since=1)
async def stamps_that_do_not_rise(stage: Stage) -> None:
    topic = await stage.topic("-t", retention_ms="-1", segment_bytes="1048576")
    times = [[5, 9, 1], [3, 3, 3], [9, 9, 2], [-1, -1, -1], [20, 1, 20], [7, 8, 6]]
    for codec, row in zip((*Codec, Codec.NONE), times, strict=True):
        await stage.produce(topic, batch(codec=codec, timestamps_ms=row))
    for at in (0, 1, 2, 4, 6, 9, 10, 19, 20, 21, 1 << 62):
        await look(stage, f"at {at}", topic, at)
    await every_special(stage, "mixed", topic)
    none = await stage.topic("-none", retention_ms="-1")
    for _ in range(2):
        await stage.produce(none, batch(timestamps_ms=-1))
    await every_special(stage, "without stamps", none)
    for at in (0, 1):
        await look(stage, f"without stamps, at {at}", none, at)
    any_time = str((1 << 63) - 1)
    far = await stage.topic("-far", retention_ms="-1", message_timestamp_after_max_ms=any_time)
    await stage.produce(far, batch(timestamps_ms=(1 << 62) - 1))
    await stage.produce(far, batch(timestamps_ms=NOW_MS))
    await every_special(stage, "of the far future", far)
    for at in (0, NOW_MS, NOW_MS + 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1):
        await look(stage, f"of the far future, at {at}", far, at)


@case(ApiKey.LIST_OFFSETS, since=7)
async def stamps_of_both_kinds(stage: Stage) -> None:
    """Which record is found, not when it came: that is the brokers' own time."""
    topic = await stage.topic("-t", retention_ms="-1")
    today = time.time_ns() // 1_000_000
    await stage.produce(topic, batch(timestamps_ms=NOW_MS))
    await setting(stage, topic, message_timestamp_type="LogAppendTime")
    await stage.produce(topic, batch(timestamps_ms=NOW_MS + 5))
    await setting(stage, topic, message_timestamp_type="CreateTime")
    await stage.produce(topic, batch(timestamps_ms=NOW_MS + 9))

    for at in (-3, 0, NOW_MS, NOW_MS + 1, NOW_MS + 6, today - 60_000, today + 600_000):
        label = f"at {at if at < today - 10**9 else 'about now' if at < today else 'later'}"
        answer = await look_quietly(stage, topic, at)
        row = answer.topics[0].partitions[0]
        if row.timestamp >= today - 60_000:
            row.timestamp = 1  # the time of the broker
        stage.keep(label, answer)


async def look_quietly(stage: Stage, topic: str, at: int) -> Any:
    row = {"partition_index": 0, "timestamp": at, "current_leader_epoch": -1}
    topics = [{"name": topic, "partitions": [row]}]
    return await stage.quietly(ApiKey.LIST_OFFSETS, stage.version, replica_id=-1, topics=topics)


async def setting(stage: Stage, topic: str, **values: str) -> None:
    """Change settings of a topic and wait until they hold."""
    rows = [{"name": key.replace("_", "."), "value": it} for key, it in values.items()]
    asked = {"resource_type": 2, "resource_name": topic, "configs": rows}
    answer = await stage.quietly(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[asked])
    assert answer.responses[0].error_code == 0, answer
    await stage.caught_up()

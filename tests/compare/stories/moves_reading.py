"""What a partition has: read, asked for, deleted."""

from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey

from .moves import mostly, move, version
from .scene import PARTITIONS, TOPICS, Scene

IDS_SINCE: Final = 13  # Fetch and Produce
WITH_ISOLATION: Final = 2
GREATEST: Final = -3
"""The greatest time, in ListOffsets."""


def place(random: Random) -> dict[str, Any]:
    """A partition, mostly one that is there."""
    return {
        "topic": random.choice((0, 0, 0, 1, 1, 2, TOPICS - 1)),
        "partition": mostly(random, random.randrange(PARTITIONS), 5, unusual=0.03),
    }


def _draw_fetch(random: Random) -> dict[str, Any]:
    return place(random) | {
        "version": version(random, ApiKey.FETCH, 4),
        "offset": random.choice((0, 0, random.randrange(12))),
        "committed": random.random() < 0.6,
    }


@move("transactions", 5, _draw_fetch)
async def fetch(
    scene: Scene, topic: int, partition: int, version: int, offset: int, committed: bool
) -> None:
    """What can be read."""
    if (topic, partition) in scene.uneven:
        return
    which: dict[str, Any] = {"topic": scene.topic(topic)}
    if version >= IDS_SINCE:
        which = {"topic_id": scene.topic_id(topic)}
    row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    await scene.ask(
        ApiKey.FETCH,
        version,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[which | {"partitions": [row]}],
    )


def _draw_list(random: Random) -> dict[str, Any]:
    return place(random) | {
        "version": version(random, ApiKey.LIST_OFFSETS, 1),
        "time": random.choice((-1, -1, -2, -2, -3, -3, -4, -5, -6, -7, 0, 1, 5)),
        "committed": random.random() < 0.5,
    }


@move("transactions", 3, _draw_list)
async def list_offsets(
    scene: Scene, topic: int, partition: int, version: int, time: int, committed: bool
) -> None:
    """Where it begins and ends, and what was when: times from 0 on count from the beginning.

    Those below 0 are special: its end, its beginning, its greatest time, and from -4 on where what
    is kept elsewhere begins and ends.
    """
    if (topic, partition) in scene.uneven:
        return
    if time == GREATEST and (topic, partition) in scene.cut:
        return  # Kafka names a record that is deleted
    when = time if time < 0 else scene.begun_ms + time
    row = {"partition_index": partition, "timestamp": when, "current_leader_epoch": -1}
    await scene.ask(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=-1,
        isolation_level=int(committed and version >= WITH_ISOLATION),
        topics=[{"name": scene.topic(topic), "partitions": [row]}],
    )


def _draw_delete(random: Random) -> dict[str, Any]:
    return place(random) | {
        "version": version(random, ApiKey.DELETE_RECORDS),
        "offset": random.choice((-1, random.randrange(6), random.randrange(12))),
    }


@move("transactions", 2, _draw_delete)
async def delete_records(
    scene: Scene, topic: int, partition: int, version: int, offset: int
) -> None:
    """Its beginning moves."""
    if (topic, partition) in scene.uneven:
        return
    scene.cut.add((topic, partition))
    row = {"partition_index": partition, "offset": offset}
    await scene.ask(
        ApiKey.DELETE_RECORDS,
        version,
        timeout_ms=10_000,
        topics=[{"name": scene.topic(topic), "partitions": [row]}],
    )


def _draw_epoch(random: Random) -> dict[str, Any]:
    return place(random) | {
        "version": version(random, ApiKey.OFFSET_FOR_LEADER_EPOCH),
        "off": random.choice((0, 0, 1, 4)),
        "current_off": mostly(random, None, 0, 1, unusual=0.4),
    }


@move("transactions", 1, _draw_epoch)
async def epoch_end(
    scene: Scene, topic: int, partition: int, version: int, off: int, current_off: int | None
) -> None:
    """Where an epoch of its leader ends: the present one, or one that is still to come."""
    if (topic, partition) in scene.uneven:
        return
    epoch = scene.leader_epoch(topic)
    row = {
        "partition": partition,
        "leader_epoch": epoch + off,
        "current_leader_epoch": -1 if current_off is None else epoch + current_off,
    }
    await scene.ask(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-1,
        topics=[{"topic": scene.topic(topic), "partitions": [row]}],
    )

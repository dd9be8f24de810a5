"""Producers: what they write, and what they do in and around transactions."""

from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.record_batch import encode_batch

from .moves import mostly, move, version
from .moves_reading import IDS_SINCE, place
from .scene import GROUPS, PARTITIONS, PRODUCERS, Producer, Scene

BATCHES_SINCE: Final = 3  # Produce


def _whose(random: Random) -> int:
    return random.randrange(len(PRODUCERS))


def _epoch(random: Random) -> int:
    return int(mostly(random, 0, -1, 1))


def _draw_init(random: Random) -> dict[str, Any]:
    return {
        "who": _whose(random),
        "version": version(random, ApiKey.INIT_PRODUCER_ID),
        "as_own": mostly(random, False, True, unusual=0.3),
        "off": _epoch(random),
        "timeout_ms": mostly(random, 60_000, 0, 900_001, unusual=0.03),
    }


@move("transactions", 4, _draw_init)
async def init(
    scene: Scene, who: int, version: int, as_own: bool, off: int, timeout_ms: int
) -> None:
    """A producer begins, or goes on in its next epoch."""
    one = scene.producers[who]
    fields: dict[str, Any] = {}
    if as_own and one.id >= 0:
        fields = {"producer_id": one.id, "producer_epoch": one.epoch + off}
    answer = await scene.ask_in_time(
        ApiKey.INIT_PRODUCER_ID,
        version,
        transactional_id=scene.called(one.transactional_id),
        transaction_timeout_ms=timeout_ms,
        **fields,
    )
    if answer is not None and answer.error_code == 0:
        scene.ended(one)
        one.is_now(answer.producer_id, answer.producer_epoch)


def _me(scene: Scene, who: int, off: int) -> tuple[Producer, dict[str, Any]]:
    one = scene.producers[who]
    return one, {
        "transactional_id": scene.called(one.transactional_id or "nobody"),
        "producer_id": one.id,
        "producer_epoch": one.epoch + off,
    }


def _draw_add(random: Random) -> dict[str, Any]:
    return (
        {"who": _whose(random)}
        | place(random)
        | {"version": version(random, ApiKey.ADD_PARTITIONS_TO_TXN), "off": _epoch(random)}
    )


@move("transactions", 5, _draw_add)
async def add(scene: Scene, who: int, topic: int, partition: int, version: int, off: int) -> None:
    """A partition joins a transaction."""
    one, me = _me(scene, who, off)
    answer = await scene.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        **{f"v3_and_below_{name}": value for name, value in me.items()},
        v3_and_below_topics=[{"name": scene.topic(topic), "partitions": [partition]}],
    )
    rows = answer.results_by_topic_v3_and_below[0].results_by_partition
    if rows[0].partition_error_code == 0:
        scene.ending(one).joined.add((topic, partition))


def _draw_add_offsets(random: Random) -> dict[str, Any]:
    return {
        "who": _whose(random),
        "group": random.randrange(GROUPS),
        "version": version(random, ApiKey.ADD_OFFSETS_TO_TXN),
        "off": _epoch(random),
    }


@move("transactions", 2, _draw_add_offsets)
async def add_offsets(scene: Scene, who: int, group: int, version: int, off: int) -> None:
    """A group joins a transaction."""
    _, me = _me(scene, who, off)
    await scene.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, group_id=scene.group(group), **me)


def _draw_stage(random: Random) -> dict[str, Any]:
    return (
        {"who": _whose(random), "group": random.randrange(GROUPS)}
        | place(random)
        | {
            "offset": mostly(random, random.randrange(9), -1, unusual=0.05),
            "version": version(random, ApiKey.TXN_OFFSET_COMMIT),
            "off": _epoch(random),
            "member": mostly(random, None, "c0", "c2", "c4", "k0", "k1", "k5", unusual=0.3),
            "member_off": mostly(random, 0, -1, 1, unusual=0.2),
        }
    )


@move("transactions", 3, _draw_stage)
async def stage(
    scene: Scene,
    who: int,
    group: int,
    topic: int,
    partition: int,
    offset: int,
    version: int,
    off: int,
    member: str | None,
    member_off: int,
) -> None:
    """An offset that stands when the transaction is committed."""
    _, me = _me(scene, who, off)
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": "s"}
    fields: dict[str, Any] = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    if member is not None:
        # From 5 on what a group refuses has begun a transaction in Kafka, and here it has not.
        version = min(version, 4)
        known = scene.members[member]
        fields = {
            "generation_id": known.generation + member_off,
            "member_id": known.id,
            "group_instance_id": known.instance,
        }
        group = known.group
    await scene.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        group_id=scene.group(group),
        topics=[{"name": scene.topic(topic), "partitions": [row]}],
        **me,
        **fields,
    )


def _draw_produce(random: Random) -> dict[str, Any]:
    return (
        {"who": mostly(random, _whose(random), None, unusual=0.2)}
        | place(random)
        | {
            "count": random.randint(1, 3),
            "version": version(random, ApiKey.PRODUCE, BATCHES_SINCE),
            "off": _epoch(random),
            "sequence_off": mostly(random, 0, -1, -2, -3, 1, 4),
            "transactional": mostly(random, True, False),
            "acks": mostly(random, -1, 1, 7, unusual=0.1),
        }
    )


@move("transactions", 8, _draw_produce)
async def produce(
    scene: Scene,
    who: int | None,
    topic: int,
    partition: int,
    count: int,
    version: int,
    off: int,
    sequence_off: int,
    transactional: bool,
    acks: int,
) -> None:
    """Some records of a producer, or of one without an id."""
    if (topic, partition) in scene.uneven:
        return
    how: dict[str, Any] = {}
    fields: dict[str, Any] = {"transactional_id": None}
    one = None if who is None else scene.producers[who]
    sequence = 0
    if one is not None:
        transactional = transactional and one.transactional_id is not None and one.id >= 0
        sequence = max(0, one.next.get((topic, partition), 0) + sequence_off)
        how = {
            "producer_id": one.id,
            "producer_epoch": one.epoch + off if one.id >= 0 else -1,
            "base_sequence": sequence if one.id >= 0 else -1,
            "transactional": transactional,
        }
        if transactional:
            fields["transactional_id"] = scene.called(one.transactional_id)
    scene.now_ms += 1
    records = encode_batch(
        [b"value %d" % n for n in range(count)],
        keys=[b"k%d" % n for n in range(count)],
        timestamps_ms=scene.now_ms,
        **how,
    )
    which: dict[str, Any] = {"name": scene.topic(topic)}
    if version >= IDS_SINCE:
        which = {"topic_id": scene.topic_id(topic)}
    row = {"index": partition, "records": records}
    answer = await scene.ask(
        ApiKey.PRODUCE,
        version,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[which | {"partition_data": [row]}],
        **fields,
    )
    if answer is None or one is None:
        return
    at = topic, partition
    if fields["transactional_id"] is not None:
        scene.ending(one).joined.add(at)
    if answer.responses[0].partition_responses[0].error_code == 0:
        one.next[at] = max(one.next.get(at, 0), sequence + count)
        if fields["transactional_id"] is not None:
            scene.ending(one).written.add(at)


def _draw_end(random: Random) -> dict[str, Any]:
    return {
        "who": _whose(random),
        "committed": random.random() < 0.6,
        "version": version(random, ApiKey.END_TXN),
        "off": _epoch(random),
    }


@move("transactions", 5, _draw_end)
async def end(scene: Scene, who: int, committed: bool, version: int, off: int) -> None:
    """A transaction is committed or aborted."""
    one, me = _me(scene, who, off)
    answer = await scene.ask_in_time(ApiKey.END_TXN, version, committed=committed, **me)
    await scene.completed(me["transactional_id"])
    if answer is not None and answer.error_code == 0:
        scene.ended(one)
        if version >= 5:
            one.is_now(answer.producer_id, answer.producer_epoch)


def _draw_overdue(random: Random) -> dict[str, Any]:
    return {"who": random.randrange(3), "topic": 0, "partition": random.randrange(PARTITIONS)}


@move("transactions", 1, _draw_overdue)
async def overdue(scene: Scene, who: int, topic: int, partition: int) -> None:
    """A transaction is begun, and open for too long."""
    await init(scene, who, 4, as_own=False, off=0, timeout_ms=300)
    await add(scene, who, topic, partition, 3, 0)
    await produce(scene, who, topic, partition, 1, 11, 0, 0, transactional=True, acks=-1)
    name = scene.called(scene.producers[who].transactional_id)
    await scene.completed(name or "", behind=("Ongoing",))
    scene.ended(scene.producers[who])


def _draw_marker(random: Random) -> dict[str, Any]:
    return (
        {"who": _whose(random)}
        | place(random)
        | {
            "off": _epoch(random),
            "coordinator_epoch": mostly(random, 0, -1, 1, unusual=0.2),
        }
    )


@move("transactions", 1, _draw_marker)
async def marker(
    scene: Scene,
    who: int,
    topic: int,
    partition: int,
    off: int,
    coordinator_epoch: int,
) -> None:
    """An administrator aborts a transaction in one partition."""
    one, me = _me(scene, who, off)
    if me["producer_id"] < 0:
        return
    if (topic, partition) not in scene.ending(one).written:
        scene.uneven.add((topic, partition))
    scene.ending(one).written.discard((topic, partition))
    await scene.ask(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        markers=[
            {
                "producer_id": me["producer_id"],
                "producer_epoch": me["producer_epoch"],
                "transaction_result": False,  # a commit is refused here
                "coordinator_epoch": coordinator_epoch,
                "topics": [{"name": scene.topic(topic), "partition_indexes": [partition]}],
            }
        ],
    )


def _no_draw(random: Random) -> dict[str, Any]:
    return {}


@move("transactions", 2, _no_draw)
async def describe_transactions(scene: Scene) -> None:
    """What is open."""
    names = [scene.called(name) for name in ("x0", "x1", "nobody")]
    await scene.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)


def _draw_list(random: Random) -> dict[str, Any]:
    states = ["Ongoing", "CompleteAbort", "CompleteCommit", "Empty", "PrepareAbort", "Dead"]
    return {
        "version": version(random, ApiKey.LIST_TRANSACTIONS),
        "states": random.choice([[], [], random.sample(states, 2), ["Nonsense"]]),
        "who": mostly(random, None, 0, 2, unusual=0.3),
    }


@move("transactions", 1, _draw_list)
async def list_transactions(scene: Scene, version: int, states: list[str], who: int | None) -> None:
    """Which are known, of this story."""
    answer = await scene.quietly(
        ApiKey.LIST_TRANSACTIONS,
        version,
        state_filters=states,
        producer_id_filters=[] if who is None else [scene.producers[who].id],
    )
    answer.transaction_states = [
        row for row in answer.transaction_states if row.transactional_id.startswith(scene.title)
    ]
    scene.keep(ApiKey.LIST_TRANSACTIONS, version, answer)


@move("transactions", 2, place)
async def describe_producers(scene: Scene, topic: int, partition: int) -> None:
    """Who has written to a partition."""
    if (topic, partition) in scene.uneven:
        return
    named = [{"name": scene.topic(topic), "partition_indexes": [partition]}]
    await scene.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=named)

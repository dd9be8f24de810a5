"""What each request about topics and records needs: asked by every user of crowd.py.

A request names what is there and what is not, so that it shows what is told of either.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from segbroker.protocol.api_keys import ApiKey

from .cases import Ground, Play, case
from .cases_produce import batch
from .crowd import USERS
from .stage import Stage

Ask = Callable[[str], dict[str, Any]]
Prepare = Callable[[Stage], Awaitable[Ask]]
CONFIG_TOPIC, CONFIG_BROKER, CONFIG_LOGGER, CONFIG_METRICS, CONFIG_GROUP = 2, 4, 8, 16, 32


def asked_by_everybody(key: ApiKey, since: int = 0) -> Callable[[Prepare], Play]:
    """A case: prepare as a super user, then every user sends what the result says of its name."""

    def add(prepare: Prepare) -> Play:
        async def run(stage: Stage) -> None:
            asking = await prepare(stage)
            for user in USERS:
                await (await stage.of(user.name)).ask(user.name, key, **asking(user.name))

        run.__name__ = prepare.__name__
        return case(key, since, Ground.GUARDED, ends=True)(run)

    return add


async def for_each(stage: Stage) -> Callable[[str], str]:
    """A topic for every user; what it is called."""
    for user in USERS:
        await stage.topic(f"-{user.name}")
    return lambda name: f"{stage.name}-{name}"


async def known_by(stage: Stage, topic: str, since: int, field: str = "name") -> dict[str, Any]:
    """How a version names a topic: by its id from `since` on."""
    return {"topic_id": await stage.topic_id(topic)} if stage.version >= since else {field: topic}


def nowhere(stage: Stage) -> str:
    """A topic that is not there."""
    return f"{stage.name}-nowhere"


@asked_by_everybody(ApiKey.PRODUCE, since=3)
async def producing(stage: Stage) -> Ask:
    here = await known_by(stage, await stage.topic("-t"), 13)
    other: dict[str, Any] = {"name": nowhere(stage)}
    row = {"partition_data": [{"index": 0, "records": batch(1)}]}
    rows = [here | row] if stage.version >= 13 else [here | row, other | row]
    return lambda _: {"acks": -1, "timeout_ms": 10_000, "topic_data": rows}


@asked_by_everybody(ApiKey.PRODUCE, since=3)
async def producing_within_a_transaction(stage: Stage) -> Ask:
    here = await known_by(stage, await stage.topic("-t"), 13)
    made = batch(1, producer_id=4_000_000, producer_epoch=0, base_sequence=0, transactional=True)
    rows = [here | {"partition_data": [{"index": 0, "records": made}]}]
    asked = {"acks": -1, "timeout_ms": 10_000, "topic_data": rows}
    return lambda _: asked | {"transactional_id": stage.name}


@asked_by_everybody(ApiKey.FETCH)
async def fetching(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    await stage.produce(topic, batch(1))
    here = await known_by(stage, topic, 13, "topic")
    row = {"partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}
    rows = [here | row]
    if stage.version < 13:
        rows.append({"topic": nowhere(stage)} | row)
    fields = {"replica_id": -1, "max_wait_ms": 10, "max_bytes": 1 << 20, "session_epoch": -1}
    return lambda _: fields | {"topics": rows}


@asked_by_everybody(ApiKey.FETCH)
async def fetching_as_a_follower(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    here = await known_by(stage, topic, 13, "topic")
    rows = [here | {"partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}]
    replica = {"replica_id": 9, "replica_state": {"replica_id": 9, "replica_epoch": -1}}
    fields = {"max_wait_ms": 10, "max_bytes": 1 << 20, "session_epoch": -1}
    return lambda _: replica | fields | {"topics": rows}


@asked_by_everybody(ApiKey.LIST_OFFSETS)
async def listing_offsets(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    row = {"partitions": [{"partition_index": 0, "timestamp": -1}]}
    rows = [{"name": name} | row for name in (topic, nowhere(stage))]
    return lambda _: {"replica_id": -1, "topics": rows}


@asked_by_everybody(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def ends_of_epochs(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    row = {"partitions": [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]}
    rows = [{"topic": name} | row for name in (topic, nowhere(stage))]
    return lambda _: {"replica_id": -1, "topics": rows}


@asked_by_everybody(ApiKey.METADATA, since=4)
async def topics_shown(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    rows = [{"name": name} for name in (topic, nowhere(stage))]
    bits = {"include_cluster_authorized_operations": True}
    bits |= {"include_topic_authorized_operations": True}
    return lambda _: {"topics": rows, "allow_auto_topic_creation": False} | bits


@asked_by_everybody(ApiKey.METADATA, since=12)
async def topics_shown_by_their_ids(stage: Stage) -> Ask:
    rows = [{"name": None, "topic_id": await stage.topic_id(await stage.topic("-t"))}]
    return lambda _: {"topics": rows, "include_topic_authorized_operations": True}


@asked_by_everybody(ApiKey.METADATA)
async def all_topics_shown(stage: Stage) -> Ask:
    await stage.topic("-t")
    asked: list[dict[str, Any]] | None = [] if stage.version == 0 else None
    return lambda _: {"topics": asked, "include_topic_authorized_operations": True}


@asked_by_everybody(ApiKey.METADATA, since=4)
async def topics_made_by_asking(stage: Stage) -> Ask:
    def asking(user: str) -> dict[str, Any]:
        return {"topics": [{"name": f"{stage.name}-{user}"}], "allow_auto_topic_creation": True}

    return asking


@asked_by_everybody(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def topics_described(stage: Stage) -> Ask:
    rows = [{"name": name} for name in (await stage.topic("-t"), nowhere(stage))]
    return lambda _: {"topics": rows, "response_partition_limit": 100}


@asked_by_everybody(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def topics_of_a_later_page(stage: Stage) -> Ask:
    names = [await stage.topic(f"-{letter}", 2) for letter in "acd"]
    rows = [{"name": name} for name in (*names, f"{stage.name}-b", nowhere(stage))]
    cursor = {"topic_name": names[1], "partition_index": 1}
    return lambda _: {"topics": rows, "cursor": cursor, "response_partition_limit": 100}


@asked_by_everybody(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def all_topics_described(stage: Stage) -> Ask:
    await stage.topic("-t", 2)
    return lambda _: {"topics": [], "response_partition_limit": 2000}


@asked_by_everybody(ApiKey.CREATE_TOPICS)
async def topics_made(stage: Stage) -> Ask:
    there = await stage.topic("-t")

    def asking(user: str) -> dict[str, Any]:
        rows = [
            {"name": name, "num_partitions": 1, "replication_factor": 1}
            for name in (f"{stage.name}-{user}", there)
        ]
        return {"topics": rows, "timeout_ms": 20_000}

    return asking


@asked_by_everybody(ApiKey.CREATE_TOPICS)
async def topics_made_wrongly(stage: Stage) -> Ask:
    rows = [
        {"name": f"{stage.name}-a", "num_partitions": 0, "replication_factor": 1},
        {"name": f"{stage.name}-b", "num_partitions": 1, "replication_factor": 9},
        {"name": f"{stage.name}-c", "num_partitions": 1, "replication_factor": 1}
        | {"configs": [{"name": "no.such", "value": "1"}]},
        {"name": "bad/name", "num_partitions": 1, "replication_factor": 1},
    ]
    return lambda _: {"topics": rows, "timeout_ms": 20_000}


@asked_by_everybody(ApiKey.CREATE_TOPICS)
async def topics_made_twice(stage: Stage) -> Ask:
    row = {"name": f"{stage.name}-a", "num_partitions": 1, "replication_factor": 1}
    return lambda _: {"topics": [row, row], "timeout_ms": 20_000}


@asked_by_everybody(ApiKey.DELETE_TOPICS)
async def topics_deleted(stage: Stage) -> Ask:
    name = await for_each(stage)

    def asking(user: str) -> dict[str, Any]:
        names = [name(user), nowhere(stage)]
        if stage.version >= 6:
            return {"topics": [{"name": one} for one in names], "timeout_ms": 20_000}
        return {"topic_names": names, "timeout_ms": 20_000}

    return asking


@asked_by_everybody(ApiKey.DELETE_TOPICS, since=6)
async def topics_deleted_by_their_ids(stage: Stage) -> Ask:
    name = await for_each(stage)
    ids = {user.name: await stage.topic_id(name(user.name)) for user in USERS}
    return lambda user: {"topics": [{"name": None, "topic_id": ids[user]}], "timeout_ms": 20_000}


@asked_by_everybody(ApiKey.CREATE_PARTITIONS)
async def partitions_added(stage: Stage) -> Ask:
    name = await for_each(stage)

    def asking(user: str) -> dict[str, Any]:
        rows = [
            {"name": one, "count": 2, "assignments": None} for one in (name(user), nowhere(stage))
        ]
        return {"topics": rows, "timeout_ms": 20_000}

    return asking


@asked_by_everybody(ApiKey.DELETE_RECORDS)
async def records_deleted(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    row = {"partitions": [{"partition_index": 0, "offset": 0}]}
    rows = [{"name": name} | row for name in (topic, nowhere(stage))]
    return lambda _: {"topics": rows, "timeout_ms": 20_000}


@asked_by_everybody(ApiKey.DESCRIBE_PRODUCERS)
async def producers_described(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    rows = [{"name": name, "partition_indexes": [0]} for name in (topic, nowhere(stage))]
    return lambda _: {"topics": rows}


def _resources(stage: Stage) -> list[dict[str, Any]]:
    names = [(CONFIG_TOPIC, f"{stage.name}-t"), (CONFIG_TOPIC, nowhere(stage))]
    names += [(CONFIG_BROKER, "1"), (CONFIG_LOGGER, "1")]
    names += [(CONFIG_GROUP, stage.name)]
    return [{"resource_type": kind, "resource_name": name} for kind, name in names]


@asked_by_everybody(ApiKey.DESCRIBE_CONFIGS)
async def settings_described(stage: Stage) -> Ask:
    await stage.topic("-t")
    keys = ["retention.ms", "log.cleanup.policy", "consumer.session.timeout.ms"]
    rows = [one | {"configuration_keys": keys} for one in _resources(stage)]
    return lambda _: {"resources": rows}


@asked_by_everybody(ApiKey.ALTER_CONFIGS)
async def settings_replaced(stage: Stage) -> Ask:
    await stage.topic("-t")
    rows = [one | {"configs": []} for one in _resources(stage)]
    return lambda _: {"resources": rows, "validate_only": True}


@asked_by_everybody(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def settings_altered(stage: Stage) -> Ask:
    await stage.topic("-t")
    rows = [one | {"configs": []} for one in _resources(stage)]
    return lambda _: {"resources": rows, "validate_only": True}


@asked_by_everybody(ApiKey.LIST_CONFIG_RESOURCES)
async def places_of_settings(stage: Stage) -> Ask:
    return lambda _: {"resource_types": [CONFIG_BROKER]}

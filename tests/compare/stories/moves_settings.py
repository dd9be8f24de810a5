"""What an administrator sets for groups and for the broker, and asks the cluster to do."""

from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey

from .moves import mostly, move, version
from .scene import GROUPS, TOPICS, Scene

BROKER_RESOURCE, GROUP_RESOURCE = 4, 32
TYPES_SINCE: Final = 1  # UpdateFeatures
# Within the bounds that an Apache Kafka has unless it is told others, or outside of all that there
# can be: a setting of a group may be anything here that the broker's own may be.
OF_GROUPS: Final = {
    "share.auto.offset.reset": ("earliest", "latest", "nonsense", "by_duration:PT1H", ""),
    "share.isolation.level": ("read_committed", "read_uncommitted", "READ_COMMITTED"),
    "share.delivery.count.limit": ("2", "5", "1", "26"),
    "share.record.lock.duration.ms": ("30000", "15000", "1", "3600001"),
    "share.session.timeout.ms": ("45000", "60000", "86400001", "x"),
    "share.heartbeat.interval.ms": ("5000", "15000", "86400001"),
    "share.partition.max.record.locks": ("2000", "100", "99", "10001"),
    "share.renew.acknowledge.enable": ("true", "false", "maybe"),
    "consumer.session.timeout.ms": ("46000", "60000", "0", "86400001", " 50000 "),
    "consumer.heartbeat.interval.ms": ("5000", "15000", "0", "86400001"),
    "streams.session.timeout.ms": ("45000", "60000", "0"),
    "streams.num.standby.replicas": ("0", "1", "2", "11"),
    "no.such.setting": ("1",),
}
# Only tried: what is set for a broker holds for all stories.  Below -1 Kafka takes some for -1.
OF_BROKERS: Final = {
    "log.retention.ms": ("1000", "-1", "1.5", "x", ""),
    "log.retention.bytes": ("-1", "1000000", "1.5"),
    "log.cleanup.policy": ("compact", "compact,delete", "nonsense", "delete, compact"),
    "log.cleaner.threads": ("1", "0", "many"),
    "log.cleaner.min.cleanable.ratio": ("0.5", "1.5", "-0.1"),
    "log.message.timestamp.type": ("LogAppendTime", "createtime"),
    "message.max.bytes": ("1000000", "-1", "2147483648"),
    "compression.type": ("zstd", "producer", "lzo"),
    "unclean.leader.election.enable": ("maybe", "yes"),
    "num.io.threads": ("4", "0", "many"),
    "max.connections.per.ip": ("10", "-1", "0"),
    "background.threads": ("5", "0"),
    "broker.id": ("9",),
    "log.dirs": ("/nowhere",),
    "log.segment.bytes": ("1048576", "1"),
}
FEATURES: Final = ("group.version", "share.version", "streams.version", "transaction.version", "x")


def _setting(random: Random, known: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    name = random.choice(tuple(known))
    return {
        "setting": name,
        "value": mostly(random, random.choice(known[name]), None, unusual=0.05),
        "operation": mostly(random, 0, 1, 2, 3, unusual=0.3),
        "version": version(random, ApiKey.INCREMENTAL_ALTER_CONFIGS),
    }


def _draw_group_setting(random: Random) -> dict[str, Any]:
    return {
        "group": mostly(random, random.randrange(GROUPS + 1), None, unusual=0.05),
        "only_validate": mostly(random, False, True),
    } | _setting(random, OF_GROUPS)


@move("cluster", 4, _draw_group_setting)
async def set_for_group(
    scene: Scene,
    group: int | None,
    setting: str,
    value: str | None,
    operation: int,
    version: int,
    only_validate: bool,
) -> None:
    """A setting of a group: set, deleted."""
    row = {"name": setting, "config_operation": operation, "value": value}
    resource = {
        "resource_type": GROUP_RESOURCE,
        "resource_name": "" if group is None else scene.group(group),
        "configs": [row],
    }
    await scene.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        version,
        validate_only=only_validate,
        resources=[resource],
    )
    await scene.caught_up()


def _draw_replace(random: Random) -> dict[str, Any]:
    names = random.sample(tuple(OF_GROUPS), random.randrange(3))
    return {
        "group": random.randrange(GROUPS + 1),
        "settings": {name: random.choice(OF_GROUPS[name]) for name in names},
        "version": version(random, ApiKey.ALTER_CONFIGS),
    }


@move("cluster", 1, _draw_replace)
async def replace_for_group(
    scene: Scene, group: int, settings: dict[str, str], version: int
) -> None:
    """All settings of a group."""
    rows = [{"name": name, "value": value} for name, value in settings.items()]
    resource = {
        "resource_type": GROUP_RESOURCE,
        "resource_name": scene.group(group),
        "configs": rows,
    }
    await scene.ask(ApiKey.ALTER_CONFIGS, version, validate_only=False, resources=[resource])
    await scene.caught_up()


def _draw_describe(random: Random) -> dict[str, Any]:
    return {
        "group": random.randrange(GROUPS + 1),
        "version": version(random, ApiKey.DESCRIBE_CONFIGS),
        "synonyms": random.random() < 0.3,
    }


@move("cluster", 3, _draw_describe)
async def describe_group_settings(scene: Scene, group: int, version: int, synonyms: bool) -> None:
    """Settings of a group, of those that the steps change."""
    resource = {
        "resource_type": GROUP_RESOURCE,
        "resource_name": scene.group(group),
        "configuration_keys": list(OF_GROUPS),
    }
    await scene.ask(
        ApiKey.DESCRIBE_CONFIGS, version, include_synonyms=synonyms, resources=[resource]
    )


def _draw_broker_setting(random: Random) -> dict[str, Any]:
    return {"broker": mostly(random, "1", "", "77", "one")} | _setting(random, OF_BROKERS)


@move("cluster", 3, _draw_broker_setting)
async def set_for_broker(
    scene: Scene, broker: str, setting: str, value: str | None, operation: int, version: int
) -> None:
    """A setting of the broker, or of all, is tried."""
    row = {"name": setting, "config_operation": operation, "value": value}
    resource = {
        "resource_type": BROKER_RESOURCE,
        "resource_name": broker,
        "configs": [row],
    }
    await scene.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, version, validate_only=True, resources=[resource]
    )


def _draw_features(random: Random) -> dict[str, Any]:
    count = mostly(random, 1, 2, unusual=0.3)
    return {
        "rows": [
            # By a downgrade Kafka takes another level, and here there is none (decision 0196).
            (name, random.choice((1, 1, 2, 0, 3, -1)), mostly(random, 1, 9))
            for name in random.sample(FEATURES, count)
        ],
        "version": version(random, ApiKey.UPDATE_FEATURES),
    }


@move("cluster", 1, _draw_features)
async def update_features(scene: Scene, rows: list[tuple[str, int, int]], version: int) -> None:
    """Levels of features are tried; in version 0, which cannot try, one that there is."""
    updates: list[dict[str, Any]] = []
    for name, level, kind in rows:
        if version < TYPES_SINCE:
            updates.append({"feature": "group.version", "max_version_level": 1})
        else:
            updates.append({"feature": name, "max_version_level": level, "upgrade_type": kind})
    await scene.ask(
        ApiKey.UPDATE_FEATURES,
        version,
        timeout_ms=20_000,
        feature_updates=updates[: None if version >= TYPES_SINCE else 1],
        validate_only=True,
    )


def _topic(random: Random) -> int:
    return random.choice((0, 1, 2, TOPICS - 1))


def _draw_move(random: Random) -> dict[str, Any]:
    return {
        "topic": _topic(random),
        "partition": mostly(random, random.randrange(2), 5, -1),
        "replicas": random.choice(([1], [1], None, [2], [], [1, 1], [-1], [1, 2])),
        "version": version(random, ApiKey.ALTER_PARTITION_REASSIGNMENTS),
    }


@move("cluster", 2, _draw_move)
async def reassign(
    scene: Scene, topic: int, partition: int, replicas: list[int] | None, version: int
) -> None:
    """A partition is to lie on these brokers."""
    row = {"partition_index": partition, "replicas": replicas}
    await scene.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        timeout_ms=20_000,
        topics=[{"name": scene.topic(topic), "partitions": [row]}],
    )


@move("cluster", 1, lambda random: {"topic": _topic(random)})
async def list_moves(scene: Scene, topic: int) -> None:
    """Moves that are under way."""
    named = [{"name": scene.topic(topic), "partition_indexes": [0, 1, 5]}]
    await scene.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=20_000, topics=named)


def _draw_elect(random: Random) -> dict[str, Any]:
    return {
        "topic": _topic(random),
        "partitions": random.choice(([0], [0, 1], [5], [])),
        "kind": mostly(random, 0, 1, 7, unusual=0.4),
        "version": version(random, ApiKey.ELECT_LEADERS),
    }


@move("cluster", 2, _draw_elect)
async def elect(scene: Scene, topic: int, partitions: list[int], kind: int, version: int) -> None:
    """Who leads is to be chosen anew."""
    await scene.ask(
        ApiKey.ELECT_LEADERS,
        version,
        election_type=kind,
        timeout_ms=20_000,
        topic_partitions=[{"topic": scene.topic(topic), "partitions": partitions}],
    )

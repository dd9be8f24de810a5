"""What an administrator does with topics and their settings."""

from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey

from .moves import mostly, move, version
from .scene import PARTITIONS, TOPICS, Scene

TOPIC_RESOURCE: Final = 2
IDS_SINCE: Final = 6  # DeleteTopics
SETTINGS: Final = {
    "retention.ms": ("-1", "1000000000", "-2", "x", ""),
    "cleanup.policy": ("delete", "compact", "compact,delete", "", "nonsense", "delete,delete"),
    "max.message.bytes": ("1000", "-1", "2147483648"),
    "min.insync.replicas": ("1", "0", "2"),
    "compression.type": ("zstd", "producer", "lzo"),
    "message.timestamp.type": ("LogAppendTime", "CreateTime", "createtime"),
    "segment.ms": ("1", "0", "600000"),
    "unclean.leader.election.enable": ("true", "TRUE", "yes", " false "),
    "min.cleanable.dirty.ratio": ("0.5", "1.5", "1", "nan"),
    "no.such.setting": ("1",),
}
OTHER_DEFAULT: Final = ("max.message.bytes", "min.insync.replicas")
HARMLESS: Final = (
    *("min.cleanable.dirty.ratio", "retention.ms", "min.insync.replicas"),
    *("unclean.leader.election.enable", "segment.ms", "no.such.setting", "compression.type"),
)


def _topic(random: Random) -> int:
    return random.choice((0, 1, 2, 2, 3, 3))


def _setting(random: Random) -> tuple[str, str]:
    name = random.choice(HARMLESS if random.random() < 0.8 else tuple(SETTINGS))
    return name, random.choice(SETTINGS[name])


def _draw_create(random: Random) -> dict[str, Any]:
    return {
        "topic": _topic(random),
        "version": version(random, ApiKey.CREATE_TOPICS),
        "partitions": mostly(random, PARTITIONS, 1, 3, -1, 0, unusual=0.2),
        "replicas": mostly(random, 1, -1, 0, 2),
        "settings": dict([_setting(random)]) if random.random() < 0.3 else {},
        "only_validate": mostly(random, False, True),
    }


@move("topics", 5, _draw_create)
async def create(
    scene: Scene,
    topic: int,
    version: int,
    partitions: int,
    replicas: int,
    settings: dict[str, str],
    only_validate: bool,
) -> None:
    """A topic is made."""
    rows = [{"name": name, "value": value} for name, value in settings.items()]
    answer = await scene.ask(
        ApiKey.CREATE_TOPICS,
        version,
        timeout_ms=20_000,
        validate_only=only_validate,
        topics=[
            {
                "name": scene.topic(topic),
                "num_partitions": partitions,
                "replication_factor": replicas,
                "configs": rows,
            }
        ],
    )
    if answer is not None and not answer.topics[0].error_code and not only_validate:
        await scene.caught_up()
        await scene.learn_topic(topic)


def _draw_delete(random: Random) -> dict[str, Any]:
    return {
        "topic": _topic(random),
        "version": version(random, ApiKey.DELETE_TOPICS),
        "by_id": random.random() < 0.5,
    }


@move("topics", 3, _draw_delete)
async def delete(scene: Scene, topic: int, version: int, by_id: bool) -> None:
    """A topic is deleted."""
    fields: dict[str, Any] = {"topic_names": [scene.topic(topic)]}
    if version >= IDS_SINCE:
        row: dict[str, Any] = {"name": scene.topic(topic)}
        if by_id:
            row = {"name": None, "topic_id": scene.topic_id(topic)}
        fields = {"topics": [row]}
    answer = await scene.ask(ApiKey.DELETE_TOPICS, version, timeout_ms=20_000, **fields)
    await scene.caught_up()
    if answer is not None and not answer.responses[0].error_code:
        scene.is_gone(topic)


def _draw_partitions(random: Random) -> dict[str, Any]:
    return {
        "topic": _topic(random),
        "version": version(random, ApiKey.CREATE_PARTITIONS),
        "count": random.choice((0, 1, 2, 3, 3, 4)),
        "only_validate": mostly(random, False, True),
    }


@move("topics", 2, _draw_partitions)
async def grow(scene: Scene, topic: int, version: int, count: int, only_validate: bool) -> None:
    """A topic gets more partitions."""
    row = {"name": scene.topic(topic), "count": count, "assignments": None}
    await scene.ask(
        ApiKey.CREATE_PARTITIONS,
        version,
        topics=[row],
        timeout_ms=20_000,
        validate_only=only_validate,
    )
    await scene.caught_up()


def _draw_alter(random: Random) -> dict[str, Any]:
    name, value = _setting(random)
    return {
        "topic": _topic(random),
        "name": name,
        "value": mostly(random, value, None, unusual=0.05),
        "operation": mostly(random, 0, 1, 2, 3, unusual=0.4),
        "version": version(random, ApiKey.INCREMENTAL_ALTER_CONFIGS),
        "only_validate": mostly(random, False, True),
    }


@move("topics", 4, _draw_alter)
async def alter(
    scene: Scene,
    topic: int,
    name: str,
    value: str | None,
    operation: int,
    version: int,
    only_validate: bool,
) -> None:
    """A setting of a topic: set, deleted, added to, taken from."""
    row = {"name": name, "config_operation": operation, "value": value}
    await scene.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        version,
        validate_only=only_validate,
        resources=[
            {"resource_type": TOPIC_RESOURCE, "resource_name": scene.topic(topic), "configs": [row]}
        ],
    )
    await scene.caught_up()


def _draw_replace(random: Random) -> dict[str, Any]:
    return {
        "topic": _topic(random),
        "settings": dict(_setting(random) for _ in range(random.randrange(3))),
        "version": version(random, ApiKey.ALTER_CONFIGS),
        "only_validate": mostly(random, False, True),
    }


@move("topics", 2, _draw_replace)
async def replace(
    scene: Scene, topic: int, settings: dict[str, str], version: int, only_validate: bool
) -> None:
    """All settings of a topic."""
    rows = [{"name": name, "value": value} for name, value in settings.items()]
    await scene.ask(
        ApiKey.ALTER_CONFIGS,
        version,
        validate_only=only_validate,
        resources=[
            {"resource_type": TOPIC_RESOURCE, "resource_name": scene.topic(topic), "configs": rows}
        ],
    )
    await scene.caught_up()


def _draw_settings(random: Random) -> dict[str, Any]:
    return {
        "topic": _topic(random),
        "version": version(random, ApiKey.DESCRIBE_CONFIGS),
        "synonyms": random.random() < 0.3,
    }


@move("topics", 2, _draw_settings)
async def describe_settings(scene: Scene, topic: int, version: int, synonyms: bool) -> None:
    """Settings of a topic, of those that the steps change and both have the same default of."""
    keys = [name for name in SETTINGS if name not in OTHER_DEFAULT]
    await scene.ask(
        ApiKey.DESCRIBE_CONFIGS,
        version,
        include_synonyms=synonyms,
        resources=[
            {
                "resource_type": TOPIC_RESOURCE,
                "resource_name": scene.topic(topic),
                "configuration_keys": keys,
            }
        ],
    )


def _draw_metadata(random: Random) -> dict[str, Any]:
    return {"version": version(random, ApiKey.METADATA, 4)}


@move("topics", 2, _draw_metadata)
async def metadata(scene: Scene, version: int) -> None:
    """Which topics there are, of this story."""
    names = [{"name": scene.topic(number)} for number in range(TOPICS)]
    await scene.ask(ApiKey.METADATA, version, topics=names, allow_auto_topic_creation=False)


def _draw_pages(random: Random) -> dict[str, Any]:
    return {
        "topics": random.choice(([0, 1, 2, 3], [1, 0], [2], [3, 3])),
        "most": mostly(random, 2000, 1, 2, 3, 0, -1, unusual=0.6),
        "begin": mostly(random, None, *((n, at) for n in (0, 1, 3) for at in (0, 1, 5, -1))),
    }


@move("topics", 2, _draw_pages)
async def describe_partitions(
    scene: Scene, topics: list[int], most: int, begin: tuple[int, int] | None
) -> None:
    """Topics in pages of partitions: the first page, or the one behind a cursor."""
    cursor = None
    if begin is not None:
        cursor = {"topic_name": scene.topic(begin[0]), "partition_index": begin[1]}
    await scene.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": scene.topic(number)} for number in topics],
        response_partition_limit=most,
        cursor=cursor,
    )

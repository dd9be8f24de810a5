"""Settings at the borders: lists, wrong kinds, limits of every number, several at once."""

from typing import Any

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_admin import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    config,
    wanted,
)
from .stage import Stage

LONG_MAX, INT_MAX = str((1 << 63) - 1), str((1 << 31) - 1)


@case(ApiKey.CREATE_TOPICS, since=5)
async def limits_of_settings(stage: Stage) -> None:
    """Each number at its limits and one beyond."""
    limits: dict[str, tuple[str, ...]] = {
        "retention.ms": ("-1", "-2", "0", LONG_MAX, "9223372036854775808", "1e3", ""),
        "retention.bytes": ("-1", "0", LONG_MAX),
        "segment.bytes": ("1048576", INT_MAX, "2147483648"),
        "segment.ms": ("0", "1", LONG_MAX),
        "segment.jitter.ms": ("-1", "0", "5"),
        "segment.index.bytes": ("3", INT_MAX),
        "max.message.bytes": ("-1", INT_MAX),
        "index.interval.bytes": ("-1", "8192"),
        "min.cleanable.dirty.ratio": ("-0.1", "0.0", "1.0", "1.1", "x"),
        "min.compaction.lag.ms": ("-1", "0", LONG_MAX),
        "max.compaction.lag.ms": ("0", "1", LONG_MAX),
        "delete.retention.ms": ("-1", "0"),
        "file.delete.delay.ms": ("-1", "0"),
        "flush.messages": ("0", "1"),
        "flush.ms": ("-1", "0"),
        "min.insync.replicas": ("0", "1", "2"),
        "message.timestamp.before.max.ms": ("-1", "0", LONG_MAX),
        "message.timestamp.after.max.ms": ("-1", "0", LONG_MAX),
        "message.timestamp.type": ("createtime", "CreateTime", "LogAppendTime", ""),
        "compression.type": ("", "none", "uncompressed", "producer", "ZSTD", "zstd", "brotli"),
        "compression.gzip.level": ("-2", "-1", "0", "1", "9", "10"),
        "compression.lz4.level": ("0", "1", "17", "18"),
        "compression.zstd.level": ("-131073", "-131072", "22", "23"),
        "cleanup.policy": ("compact", "compact,delete", "Delete", ",", "none"),
        "preallocate": ("true", "yes", "", "false"),
        "unclean.leader.election.enable": ("true", "0"),
        "message.downconversion.enable": ("true",),
        "leader.replication.throttled.replicas": ("*", "", "0:1", "0:1,1:1", "0", "a:b", "none"),
        "follower.replication.throttled.replicas": ("*", "x"),
        "local.retention.ms": ("-3", "-2", "-1", "5"),
        "local.retention.bytes": ("-3", "-2", "-1", "5"),
        "remote.storage.enable": ("false", "maybe"),
        "remote.log.copy.disable": ("true", "false"),
        "remote.log.delete.on.disable": ("true", "false"),
        "message.format.version": ("3.0",),
        "message.timestamp.difference.max.ms": ("5",),
        "errors.deadletterqueue.group.enable": ("true", "x"),
    }
    rows: dict[str, list[dict[str, str | None]]] = {
        f"{key}={value!r}": [{"name": key, "value": value}]
        for key, values in limits.items()
        for value in values
    }
    rows["two of them"] = config(min_compaction_lag_ms="50", max_compaction_lag_ms="5")
    rows["local above all"] = config(local_retention_ms="50", retention_ms="5")
    rows["local bytes above all"] = config(local_retention_bytes="50", retention_bytes="5")
    rows["a key twice"] = [
        {"name": "retention.ms", "value": "5"},
        {"name": "retention.ms", "value": "6"},
    ]
    rows["an empty key"] = [{"name": "", "value": "5"}]
    for number, (label, settings) in enumerate(rows.items()):
        made = wanted(f"{stage.name}-{number}", configs=settings)
        answer = await stage.quietly(
            ApiKey.CREATE_TOPICS,
            stage.version,
            topics=[made],
            timeout_ms=20_000,
            validate_only=True,
        )
        for row in answer.topics:
            told = {key["name"] for key in settings}
            row.configs = [one for one in row.configs or () if one.name in told]
        stage.keep(label, answer)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def lists_and_wrong_kinds(stage: Stage) -> None:
    topic = await stage.topic("-t")

    async def ask(label: str, *rows: tuple[str, int, str | None], **more: Any) -> None:
        fields = {"validate_only": more.pop("validate_only", False)}
        resource: dict[str, Any] = {"resource_type": TOPIC, "resource_name": topic} | more
        resource["configs"] = [
            {"name": key, "config_operation": how, "value": value} for key, how, value in rows
        ]
        fields["resources"] = [resource]
        await stage.ask(label, ApiKey.INCREMENTAL_ALTER_CONFIGS, **fields)
        await stage.topic(f"-behind-{len(stage.seen)}")  # Kafka's broker hears of it in order
        told = {"resource_type": 2, "resource_name": topic, "configuration_keys": list(SHOWN)}
        answer = await stage.quietly(ApiKey.DESCRIBE_CONFIGS, 1, resources=[told])
        values = {row.name: row.value for row in answer.results[0].configs}
        stage.seen[f"{label}: then"] = dict(values)

    policy, throttled = "cleanup.policy", "leader.replication.throttled.replicas"
    steps: dict[str, tuple[tuple[str, int, str | None], ...]] = {
        "append to the default": ((policy, APPEND, "compact"),),
        "append two": ((policy, APPEND, "delete,compact"),),
        "subtract one": ((policy, SUBTRACT, "delete"),),
        "subtract what is not in it": ((policy, SUBTRACT, "delete"),),
        "subtract the last": ((policy, SUBTRACT, "compact"),),
        "append nothing": ((policy, APPEND, ""),),
        "append null": ((policy, APPEND, None),),
        "subtract null": ((policy, SUBTRACT, None),),
        "append what is wrong": ((policy, APPEND, "burn"),),
        "set with spaces": ((policy, SET, " compact , delete "),),
        "subtract with spaces": ((policy, SUBTRACT, " compact "),),
        "append with spaces": ((policy, APPEND, " compact "),),
        "delete with a value": ((policy, DELETE, "compact"),),
        "append with a comma behind": ((policy, APPEND, "compact,,"),),
        "subtract with a comma behind": ((policy, SUBTRACT, "delete,"),),
        "append nothing in front": ((policy, APPEND, ",delete"),),
        "append nothing between": ((policy, APPEND, "compact,,delete"),),
        "append commas": ((policy, APPEND, ",,"),),
        "append one twice": ((policy, APPEND, "delete,delete"),),
        "set one twice": ((policy, SET, "compact,compact"),),
        "subtract one of two": ((policy, SUBTRACT, "compact"),),
        "set one twice again": ((policy, SET, "delete,compact,delete"),),
        "subtract commas": ((policy, SUBTRACT, ",,"),),
        "subtract and a comma in front": ((policy, SUBTRACT, ",compact"),),
        "delete once more": ((policy, DELETE, None),),
        "append to another list": ((throttled, APPEND, "0:1"),),
        "and another": ((throttled, APPEND, "1:1,0:1"),),
        "subtract there": ((throttled, SUBTRACT, "0:1"),),
        "delete there": ((throttled, DELETE, None),),
        "append and subtract of one": ((policy, APPEND, "compact"), (policy, SUBTRACT, "delete")),
        "one good, one bad": (("retention.ms", SET, "77"), ("segment.bytes", SET, "x")),
        "two good": (("retention.ms", SET, "78"), ("max.message.bytes", SET, "900")),
        "set and delete": (("retention.ms", SET, "79"), ("max.message.bytes", DELETE, None)),
        "to the default": (("retention.ms", SET, "604800000"),),
        "without a key": (("", SET, "5"),),
        "lag above": (("min.compaction.lag.ms", SET, "50"), ("max.compaction.lag.ms", SET, "5")),
        "nothing": (),
    }
    for label, rows in steps.items():
        await ask(label, *rows)
    await ask("tried", ("retention.ms", SET, "1"), validate_only=True)
    await ask("tried badly", ("retention.ms", SET, "x"), validate_only=True)
    for label, resource in (
        ("metrics, set", {"resource_type": METRICS, "resource_name": "one"}),
        ("unknown, set", {"resource_type": 0, "resource_name": "one"}),
        ("topic without a name", {"resource_type": TOPIC, "resource_name": ""}),
        ("type -1", {"resource_type": -1, "resource_name": "one"}),
    ):
        await ask(label, ("interval.ms", SET, "5"), **resource)


SHOWN = (
    "cleanup.policy",
    "leader.replication.throttled.replicas",
    "retention.ms",
)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def several_resources_at_once(stage: Stage) -> None:
    topic = await stage.topic("-t")

    def row(kind: int, name: str, key: str, value: str) -> dict[str, Any]:
        configs = [{"name": key, "config_operation": SET, "value": value}]
        return {"resource_type": kind, "resource_name": name, "configs": configs}

    async def ask(label: str, *rows: dict[str, Any]) -> None:
        fields = {"resources": list(rows), "validate_only": False}
        await stage.ask(label, ApiKey.INCREMENTAL_ALTER_CONFIGS, **fields)

    good = row(TOPIC, topic, "retention.ms", "5")
    await ask("good and bad", good, row(TOPIC, f"{topic}-no", "retention.ms", "5"))
    await ask("a topic and a group", good, row(GROUP, stage.name, "share.session.timeout.ms", "1"))
    await ask("a resource twice", good, good)
    await ask(
        "two brokers",
        row(BROKER, "1", "num.io.threads", "8"),
        row(BROKER, "77", "num.io.threads", "8"),
    )
    await ask("nothing")


@case(ApiKey.DESCRIBE_CONFIGS, since=1)
async def all_settings_of_a_topic(stage: Stage) -> None:
    topic = await stage.topic("-t", retention_ms="77000")

    async def ask(label: str, **more: Any) -> None:
        row = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
        answer = await stage.quietly(
            ApiKey.DESCRIBE_CONFIGS, stage.version, resources=[row], **more
        )
        for one in answer.results:
            for setting in one.configs:
                setting.synonyms = [s for s in setting.synonyms if s.source == 1]
        stage.keep(label, answer)

    await ask("all")
    await ask("all, with synonyms", include_synonyms=True)
    if stage.version >= 3:
        await ask("all, with words", include_documentation=True)
    row = {"resource_type": TOPIC, "resource_name": topic}
    twice = [row | {"configuration_keys": ["retention.ms", "retention.ms", "no.such"]}]
    await stage.ask("a key twice", ApiKey.DESCRIBE_CONFIGS, resources=twice)
    await stage.ask("nothing", ApiKey.DESCRIBE_CONFIGS, resources=[])


@case(ApiKey.DESCRIBE_CONFIGS, since=1)
async def all_settings_of_a_group(stage: Stage) -> None:
    row = {"resource_type": GROUP, "resource_name": stage.name, "configuration_keys": None}
    await stage.ask("all", ApiKey.DESCRIBE_CONFIGS, resources=[row])
    await stage.ask("synonyms", ApiKey.DESCRIBE_CONFIGS, resources=[row], include_synonyms=True)


@case(ApiKey.CREATE_TOPICS, since=5)
async def answers_about_what_was_made(stage: Stage) -> None:
    """All settings are told, in the versions that tell them."""
    made = wanted(f"{stage.name}-a", num_partitions=-1, replication_factor=-1)
    await stage.ask("all defaults", ApiKey.CREATE_TOPICS, topics=[made], timeout_ms=20_000)
    made = wanted(f"{stage.name}-b", configs=config(cleanup_policy="compact,delete"))
    await stage.ask("a list", ApiKey.CREATE_TOPICS, topics=[made], timeout_ms=20_000)
    made = wanted(
        f"{stage.name}-c",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[{"partition_index": n, "broker_ids": [1]} for n in (2, 0, 1)],
    )
    await stage.ask("placed in disorder", ApiKey.CREATE_TOPICS, topics=[made], timeout_ms=20_000)
    made = wanted(
        f"{stage.name}-d",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[{"partition_index": 0, "broker_ids": [1]}] * 2,
    )
    await stage.ask("placed twice", ApiKey.CREATE_TOPICS, topics=[made], timeout_ms=20_000)


@case(ApiKey.DESCRIBE_CONFIGS, since=1)
async def every_setting_there_is(stage: Stage) -> None:
    """With its synonyms: what both know, their kinds and where their values come from."""
    topic = await stage.topic("-t")
    for label, kind, name in (
        ("every setting of the broker", BROKER, "1"),
        ("every setting of all brokers", BROKER, ""),
        ("every setting of a topic", TOPIC, topic),
        ("every setting of a group", GROUP, stage.name),
    ):
        row = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        more = {"include_synonyms": True, "include_documentation": True}
        await stage.ask(label, ApiKey.DESCRIBE_CONFIGS, resources=[row], **more)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def lists_of_the_broker(stage: Stage) -> None:
    async def ask(label: str, operation: int, key: str, value: str | None, name: str = "") -> None:
        configs = [{"name": key, "config_operation": operation, "value": value}]
        row = {"resource_type": BROKER, "resource_name": name, "configs": configs}
        fields: dict[str, Any] = {"resources": [row], "validate_only": True}
        await stage.ask(label, ApiKey.INCREMENTAL_ALTER_CONFIGS, **fields)

    policy = "log.cleanup.policy"
    for who in ("", "1"):
        await ask(f"append {who}", APPEND, policy, "compact", who)
        await ask(f"append what is there {who}", APPEND, policy, "delete", who)
        await ask(f"subtract {who}", SUBTRACT, policy, "delete", who)
        await ask(f"subtract what is not there {who}", SUBTRACT, policy, "compact", who)
        await ask(f"append nonsense {who}", APPEND, policy, "nonsense", who)
        await ask(f"append to no list {who}", APPEND, "log.retention.ms", "5", who)
        await ask(f"subtract from no list {who}", SUBTRACT, "log.retention.ms", "5", who)
        await ask(f"append null {who}", APPEND, policy, None, who)
        await ask(f"set empty {who}", SET, policy, "", who)
        await ask(f"delete {who}", DELETE, policy, None, who)
        await ask(f"an unknown key {who}", SET, "no.such", "1", who)
        await ask(f"a key of topics {who}", SET, "cleanup.policy", "delete", who)
    await ask("of a broker that is not there", SET, policy, "delete", "77")
    await ask("of a broker that is no number", SET, policy, "delete", "one")

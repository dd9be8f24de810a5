"""Topics, partitions, configurations, the cluster; and what a plain listener says to SASL."""

from typing import Any

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .stage import Stage

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
UP, DOWN, UNSAFE = 1, 2, 3


def wanted(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1} | more


def config(**values: str | None) -> list[dict[str, str | None]]:
    return [{"name": key.replace("_", "."), "value": text} for key, text in values.items()]


@case(ApiKey.CREATE_TOPICS, since=2)
async def topics_created(stage: Stage) -> None:
    name = stage.name

    async def ask(label: str, *topics: dict[str, Any], **more: Any) -> None:
        fields = {"topics": list(topics), "timeout_ms": 20_000} | more
        await stage.ask(label, ApiKey.CREATE_TOPICS, **fields)

    await ask("one", wanted(f"{name}-1", num_partitions=3))
    await ask("the same again", wanted(f"{name}-1"))
    await ask("only tried", wanted(f"{name}-2"), validate_only=True)
    await ask("tried and there", wanted(f"{name}-1"), validate_only=True)
    await ask("with a setting", wanted(f"{name}-3", configs=config(retention_ms="1000")))
    await ask(
        "placed",
        wanted(
            f"{name}-4",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[{"partition_index": n, "broker_ids": [1]} for n in (0, 1)],
        ),
    )
    await ask("two", wanted(f"{name}-5"), wanted(f"{name}-6"))
    await ask(
        "taken two of a kind",
        wanted(f"{name}.8"),
        wanted(f"{name}-8", configs=config(min_insync_replicas="2")),
    )
    await ask("alike", wanted(f"{name}_8"))
    await ask("tried and alike", wanted(f"{name}_8"), validate_only=True)
    await ask("none")
    if stage.version >= 4:
        await ask("defaults", wanted(f"{name}-7", num_partitions=-1, replication_factor=-1))


@case(ApiKey.CREATE_TOPICS, since=2)
async def topics_that_cannot_be_created(stage: Stage) -> None:
    name = stage.name

    def placed(*rows: tuple[int, list[int]]) -> list[dict[str, object]]:
        return [{"partition_index": number, "broker_ids": brokers} for number, brokers in rows]

    wrong: dict[str, dict[str, Any]] = {
        "no partitions": {"num_partitions": 0},
        "negative partitions": {"num_partitions": -5},
        "no replicas": {"replication_factor": 0},
        "three replicas": {"replication_factor": 3},
        "unknown setting": {"configs": config(no_such="1")},
        "bad setting": {"configs": config(retention_ms="soon")},
        "bad policy": {"configs": config(cleanup_policy="burn")},
        "setting without value": {"configs": config(retention_ms=None)},
        "negative setting": {"configs": config(segment_bytes="-4")},
        "no partitions and three replicas": {"num_partitions": 0, "replication_factor": 3},
        "no partitions and no replicas": {"num_partitions": 0, "replication_factor": 0},
        "no partitions and a bad setting": {
            "num_partitions": 0,
            "configs": config(retention_ms="soon"),
        },
        "placed and counted": {"assignments": placed((0, [1]))},
        "placed and counted, and a bad setting": {
            "assignments": placed((0, [1])),
            "configs": config(retention_ms="soon"),
        },
        "placed on nobody": {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": placed((0, [])),
        },
        "placed on a stranger": {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": placed((0, [77])),
        },
        "placed with a hole": {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": placed((0, [1]), (2, [1])),
        },
        "placed twice on one": {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": placed((0, [1, 1])),
        },
    }
    for label, fields in wrong.items():
        made = wanted(f"{name}-{label.replace(' ', '-')}", **fields)
        await stage.ask(label, ApiKey.CREATE_TOPICS, topics=[made], timeout_ms=20_000)
    for bad in ("", ".", "..", "a/b", "a b", "x" * 250, "größe"):
        made = wanted(bad)
        await stage.ask(f"named {bad[:9]!r}", ApiKey.CREATE_TOPICS, topics=[made], timeout_ms=9_000)
    await stage.topic("-there")
    for label in ("no partitions", "three replicas", "bad setting", "placed on a stranger"):
        made = wanted(f"{name}-there", **wrong[label])
        told = f"there, {label}"
        await stage.ask(told, ApiKey.CREATE_TOPICS, topics=[made], timeout_ms=20_000)
    twice = [wanted(f"{name}-twice"), wanted(f"{name}-twice")]
    await stage.ask("twice in one request", ApiKey.CREATE_TOPICS, topics=twice, timeout_ms=9_000)


@case(ApiKey.DELETE_TOPICS, since=1)
async def topics_deleted(stage: Stage) -> None:
    one, two = await stage.topic("-1"), await stage.topic("-2")
    nowhere = f"{stage.name}-nowhere"

    async def ask(label: str, *names: str) -> None:
        fields: dict[str, Any] = {"topic_names": list(names)}
        if stage.version >= 6:
            fields = {"topics": [{"name": name} for name in names]}
        await stage.ask(label, ApiKey.DELETE_TOPICS, timeout_ms=20_000, **fields)

    await ask("not there", nowhere)
    await ask("there and not there", one, nowhere)
    await ask("none")
    await ask("empty name", "")
    if stage.version >= 6:
        topic_id = await stage.topic_id(two)
        for label in ("by id", "by id again"):
            rows = [{"name": None, "topic_id": topic_id}]
            await stage.ask(label, ApiKey.DELETE_TOPICS, timeout_ms=20_000, topics=rows)
        topic_id = await stage.topic_id(await stage.topic("-3"))
        name = f"{stage.name}-3"
        unclear: dict[str, list[dict[str, Any]]] = {
            "name and id": [{"name": name, "topic_id": topic_id}],
            "neither": [{"name": None}],
            "name, then id": [{"name": name}, {"name": None, "topic_id": topic_id}],
        }
        for label, rows in unclear.items():
            await stage.ask(label, ApiKey.DELETE_TOPICS, timeout_ms=20_000, topics=rows)
    await ask("twice", *[await stage.topic("-4")] * 2)


@case(ApiKey.CREATE_PARTITIONS)
async def partitions_added(stage: Stage) -> None:
    topic = await stage.topic(partitions=2)

    async def ask(label: str, count: int, name: str = topic, **more: Any) -> None:
        row = {"name": name, "count": count, "assignments": None}
        for field in ("assignments",):
            if field in more:
                row[field] = more.pop(field)
        fields = {"timeout_ms": 20_000, "validate_only": False} | more
        await stage.ask(label, ApiKey.CREATE_PARTITIONS, topics=[row], **fields)

    await ask("as many", 2)
    await ask("fewer", 1)
    await ask("none", 0)
    await ask("tried", 4, validate_only=True)
    await ask("more", 3)
    await ask("placed", 4, assignments=[{"broker_ids": [1]}])
    await ask("placed on a stranger", 5, assignments=[{"broker_ids": [77]}])
    await ask("placed, too many", 5, assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}])
    await ask("placed twice on one", 5, assignments=[{"broker_ids": [1, 1]}])
    await ask("not there", 4, f"{stage.name}-nowhere")
    row = {"name": topic, "count": 9, "assignments": None}
    fields = {"timeout_ms": 20_000, "validate_only": False}
    await stage.ask("twice", ApiKey.CREATE_PARTITIONS, topics=[row, row], **fields)


KEYS = ["cleanup.policy", "retention.ms", "segment.bytes", "max.message.bytes"]
KEYS += ["message.timestamp.type", "compression.type", "min.insync.replicas", "retention.bytes"]


@case(ApiKey.DESCRIBE_CONFIGS, since=1)
async def settings_described(stage: Stage) -> None:
    topic = await stage.topic("-t", retention_ms="77000")

    async def ask(label: str, kind: int, name: str, keys: list[str] | None, **more: Any) -> Any:
        row = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        return await stage.ask(label, ApiKey.DESCRIBE_CONFIGS, resources=[row], **more)

    for key in KEYS:
        await ask(f"{key} of a topic", TOPIC, topic, [key])
    await ask("set, with synonyms", TOPIC, topic, ["retention.ms"], include_synonyms=True)
    large = await stage.topic("-l", max_message_bytes="2000000")
    key = "max.message.bytes"
    await ask(f"{key} set, with synonyms", TOPIC, large, [key], include_synonyms=True)
    await ask("an unknown key", TOPIC, topic, ["no.such"])
    await ask("no key", TOPIC, topic, [])
    await ask("a topic that is not there", TOPIC, f"{stage.name}-nowhere", KEYS)
    await ask("a bad name", TOPIC, "a/b", KEYS)
    await ask("a broker that is not there", BROKER, "77", KEYS)
    await ask("a broker that is no number", BROKER, "one", KEYS)
    await ask("a type that is not there", 99, "x", KEYS)
    await ask("a logger of a broker that is not there", LOGGER, "77", ["root"])
    await ask("a logger that is not there", LOGGER, "1", ["no.such"])
    await ask("the root logger", LOGGER, "1", ["root"])
    await ask("the root logger, with synonyms", LOGGER, "1", ["root"], include_synonyms=True)
    await ask("metrics of clients", METRICS, "nobodys", None)
    await ask("metrics of clients without a name", METRICS, "", None)
    await ask("a group's session", GROUP, "nobodys", ["consumer.session.timeout.ms"])
    await ask("a group without a name", GROUP, "", None)
    for key in ("num.partitions", "auto.create.topics.enable", "broker.id"):
        await ask(f"{key} of the broker", BROKER, "1", [key])


@case(ApiKey.ALTER_CONFIGS)
async def settings_replaced(stage: Stage) -> None:
    topic = await stage.topic("-t", retention_ms="77000")

    async def ask(label: str, name: str, kind: int = TOPIC, **values: str | None) -> None:
        row = {"resource_type": kind, "resource_name": name, "configs": config(**values)}
        await stage.ask(label, ApiKey.ALTER_CONFIGS, resources=[row], validate_only=False)

    await ask("good", topic, segment_bytes="2000000")
    await ask("bad value", topic, retention_ms="soon")
    await ask("unknown", topic, no_such="1")
    await ask("null", topic, retention_ms=None)
    await ask("not there", f"{stage.name}-nowhere", retention_ms="1")
    await ask("a type that is not there", topic, 99, retention_ms="1")
    await ask("of a broker, good", "1", BROKER, log_cleaner_threads="1")
    await ask("of a broker, bad value", "1", BROKER, log_cleaner_threads="many")
    await ask("of a broker, read at the start", "1", BROKER, log_dirs="/nowhere")
    await ask("of a broker, null", "1", BROKER, log_cleaner_threads=None)
    await ask("of a logger", "1", LOGGER, root="INFO")
    await ask("of a broker that is not there", "77", BROKER, log_cleaner_threads="1")
    await ask("of a broker, nothing", "1", BROKER)
    row = {"resource_type": TOPIC, "resource_name": topic, "configs": config(retention_ms="5")}
    await stage.ask("tried", ApiKey.ALTER_CONFIGS, resources=[row], validate_only=True)


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
async def settings_changed(stage: Stage) -> None:
    topic = await stage.topic("-t", cleanup_policy="delete")

    async def ask(label: str, operation: int, key: str, value: str | None, **more: Any) -> None:
        row = {"resource_type": more.get("kind", TOPIC), "resource_name": more.get("name", topic)}
        row["configs"] = [{"name": key, "config_operation": operation, "value": value}]
        fields = {"resources": [row], "validate_only": False}
        await stage.ask(label, ApiKey.INCREMENTAL_ALTER_CONFIGS, **fields)

    await ask("set", SET, "retention.ms", "5000")
    await ask("set to nothing", SET, "retention.ms", None)
    await ask("set badly", SET, "retention.ms", "soon")
    await ask("set what is not there", SET, "no.such", "1")
    await ask("delete", DELETE, "retention.ms", None)
    await ask("delete what is not set", DELETE, "segment.bytes", None)
    await ask("delete what is not there", DELETE, "no.such", None)
    await ask("append", APPEND, "cleanup.policy", "compact")
    await ask("append again", APPEND, "cleanup.policy", "compact")
    await ask("subtract", SUBTRACT, "cleanup.policy", "compact")
    await ask("subtract all", SUBTRACT, "cleanup.policy", "compact,delete")
    await ask("set to an empty list", SET, "cleanup.policy", "")
    await ask("append to what is no list", APPEND, "retention.ms", "5")
    await ask("an operation that is not there", 9, "retention.ms", "5")
    await ask("a topic that is not there", SET, "retention.ms", "5", name=f"{topic}-no")
    row: dict[str, Any] = {"resource_type": TOPIC, "resource_name": topic}
    for name in ("1", ""):
        whose = f"of broker {name!r}"
        broker = {"kind": BROKER, "name": name}
        await ask(f"{whose}, set", SET, "num.io.threads", "4", **broker)
        await ask(f"{whose}, set to nothing", SET, "num.io.threads", None, **broker)
        await ask(f"{whose}, set badly", SET, "num.io.threads", "many", **broker)
        await ask(f"{whose}, too small", SET, "num.io.threads", "0", **broker)
        await ask(f"{whose}, read at the start", SET, "broker.id", "9", **broker)
        await ask(f"{whose}, append", APPEND, "num.io.threads", "4", **broker)
        await ask(f"{whose}, delete", DELETE, "num.io.threads", None, **broker)
        await ask(f"{whose}, unset what is read at the start", DELETE, "broker.id", None, **broker)
    for name in ("77", "one"):
        await ask(f"of broker {name!r}", SET, "num.io.threads", "4", kind=BROKER, name=name)
    logger: dict[str, Any] = {"kind": LOGGER, "name": "1"}
    await ask("of a logger, set", SET, "root", "INFO", **logger)
    await ask("of a logger, set badly", SET, "root", "LOUD", **logger)
    await ask("of a logger, set to nothing", SET, "root", None, **logger)
    await ask("of a logger, append", APPEND, "root", "INFO", **logger)
    await ask("of a logger, unset", DELETE, "root", None, **logger)
    await ask("of a logger that is not there", SET, "no.such", "INFO", **logger)
    await ask("of a logger elsewhere", SET, "root", "INFO", kind=LOGGER, name="77")
    group: dict[str, Any] = {"kind": GROUP, "name": f"{topic}-g"}
    await ask("of a group, set", SET, "consumer.session.timeout.ms", "46000", **group)
    await ask("of a group, set badly", SET, "consumer.session.timeout.ms", "soon", **group)
    await ask("of a group, too small", SET, "consumer.session.timeout.ms", "1", **group)
    await ask("of a group, unknown", SET, "no.such", "1", **group)
    await ask("of no group", SET, "consumer.session.timeout.ms", "46000", kind=GROUP, name="")
    both = [{"name": "retention.ms", "config_operation": n, "value": "6"} for n in (0, 0)]
    fields = {"resources": [row | {"configs": both}], "validate_only": False}
    await stage.ask("one key twice", ApiKey.INCREMENTAL_ALTER_CONFIGS, **fields)


@case(ApiKey.DESCRIBE_CLUSTER)
async def the_cluster(stage: Stage) -> None:
    await stage.ask("plain", ApiKey.DESCRIBE_CLUSTER)
    await stage.ask(
        "operations", ApiKey.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True
    )
    if stage.version >= 1:
        await stage.ask("controllers", ApiKey.DESCRIBE_CLUSTER, endpoint_type=2)
        await stage.ask("endpoint 9", ApiKey.DESCRIBE_CLUSTER, endpoint_type=9)


@case(ApiKey.UPDATE_FEATURES)
async def levels_of_features(stage: Stage) -> None:
    there = {
        "group.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "transaction.version": 2,
    }

    async def ask(label: str, rows: list[tuple[str, int, int]], **more: Any) -> None:
        updates = [
            {"feature": name, "max_version_level": level}
            | ({"upgrade_type": kind} if stage.version else {"allow_downgrade": kind > UP})
            for name, level, kind in rows
        ]
        fields = {"feature_updates": updates, "timeout_ms": 20_000} | more
        await stage.ask(label, ApiKey.UPDATE_FEATURES, **fields)

    await ask("none", [])
    await ask("as it is", [(name, level, UP) for name, level in there.items()])
    await ask("too high", [("transaction.version", 3, UP)])
    await ask("of a release to come", [("metadata.version", 31, UP)])
    await ask("one of two too high", [("group.version", 1, UP), ("share.version", 9, UP)])
    await ask("below 0", [("group.version", -1, DOWN)])
    await ask("down by an upgrade", [("group.version", 0, UP)])
    await ask("not there", [("no.such", 1, UP)])
    await ask("not there, off", [("no.such", 0, DOWN)])
    await ask("without a name", [("", 1, UP)])
    if stage.version:
        await ask("as it is, by a downgrade", [("group.version", 1, DOWN)])
        await ask("up by a downgrade", [("group.version", 2, DOWN)])
        await ask("a type that there is not", [("group.version", 1, 9)])
        await ask("tried", [("transaction.version", 2, UP)], validate_only=True)
        await ask("tried, too high", [("transaction.version", 3, UP)], validate_only=True)
        await ask("tried, off", [("share.version", 0, UNSAFE)], validate_only=True)


@case(ApiKey.API_VERSIONS)
async def versions_asked_for(stage: Stage) -> None:
    answer = await stage.quietly(
        ApiKey.API_VERSIONS,
        stage.version,
        client_software_name="compare",
        client_software_version="1",
    )
    answer.api_keys = []  # what each serves is compared by running it
    stage.keep("good", answer)
    if stage.version >= 3:
        for name in ("", "no spaces please"):
            label = f"software {name!r}"
            answer = await stage.quietly(
                ApiKey.API_VERSIONS,
                stage.version,
                client_software_name=name,
                client_software_version="1",
            )
            answer.api_keys = []
            stage.keep(label, answer)


@case(ApiKey.LIST_CONFIG_RESOURCES)
async def resources_with_settings(stage: Stage) -> None:
    topic = await stage.topic("-t")
    if stage.version >= 1:
        for kinds in ([TOPIC], [BROKER], [99]):
            answer = await stage.quietly(
                ApiKey.LIST_CONFIG_RESOURCES, stage.version, resource_types=kinds
            )
            answer.config_resources = [
                one for one in answer.config_resources if one.resource_name in (topic, "1")
            ]
            stage.keep(f"of type {kinds[0]}", answer)
    else:
        await stage.ask("version 0", ApiKey.LIST_CONFIG_RESOURCES)


@case(ApiKey.SASL_HANDSHAKE)
async def sasl_on_a_plain_listener(stage: Stage) -> None:
    await stage.ask("handshake", ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")

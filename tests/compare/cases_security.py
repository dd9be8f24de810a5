"""Access rules without an authorizer, credentials, and moves between brokers when there is one."""

from typing import Any

import trio

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .stage import SETTLE_TIMEOUT_S, Stage

SCRAM_SHA_256, UNKNOWN_MECHANISM = 1, 9


@case(ApiKey.DESCRIBE_ACLS, since=1)
async def acls_where_there_is_no_authorizer(stage: Stage) -> None:
    asked = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
    await stage.ask("all", ApiKey.DESCRIBE_ACLS, **asked, permission_type=1)


@case(ApiKey.CREATE_ACLS, since=1)
async def a_rule_where_there_is_no_authorizer(stage: Stage) -> None:
    row = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "operation": 3}
    row |= {"principal": "User:a", "host": "*", "permission_type": 3}
    await stage.ask("one", ApiKey.CREATE_ACLS, creations=[row])


@case(ApiKey.DELETE_ACLS, since=1)
async def no_rule_where_there_is_no_authorizer(stage: Stage) -> None:
    row = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
    await stage.ask("all", ApiKey.DELETE_ACLS, filters=[row | {"permission_type": 1}])


@case(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
async def users_come_and_go(stage: Stage) -> None:
    async def ask(label: str, **fields: Any) -> None:
        await stage.ask(label, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, **fields)

    def wanted(**more: Any) -> dict[str, Any]:
        fields = {"name": stage.name, "mechanism": SCRAM_SHA_256, "iterations": 4096}
        return fields | {"salt": b"salt of sixteen.", "salted_password": b"p" * 32} | more

    await ask("gone before", deletions=[{"name": stage.name, "mechanism": SCRAM_SHA_256}])
    await ask("new", upsertions=[wanted()])
    await ask("few iterations", upsertions=[wanted(iterations=10)])
    await ask("many iterations", upsertions=[wanted(iterations=100_000)])
    await ask("unknown mechanism", upsertions=[wanted(mechanism=UNKNOWN_MECHANISM)])
    await ask("without a name", upsertions=[wanted(name="")])
    await ask("gone", deletions=[{"name": stage.name, "mechanism": SCRAM_SHA_256}])


@case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
async def users_described(stage: Stage) -> None:
    upsertion = {"name": stage.name, "mechanism": SCRAM_SHA_256, "iterations": 4096}
    upsertion |= {"salt": b"salt of sixteen.", "salted_password": b"p" * 32}
    await stage.quietly(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[upsertion])
    for label, names in (("one", [stage.name]), ("not there", ["no-such"]), ("empty", [""])):
        users = [{"name": name} for name in names]
        await stage.ask(label, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=users)
    twice = [{"name": stage.name}, {"name": stage.name}]
    await stage.ask("twice", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=twice)


@case(ApiKey.SASL_AUTHENTICATE)
async def a_login_where_nobody_logs_in(stage: Stage) -> None:
    await stage.ask("plain", ApiKey.SASL_AUTHENTICATE, auth_bytes=b"\0alice\0secret")


def quota(key: str, value: float, **entity: str | None) -> dict[str, Any]:
    """An entry of AlterClientQuotas; 0: the quota is removed.  `client` is client-id."""
    parts = [
        {"entity_type": {"client": "client-id"}.get(kind, kind), "entity_name": name}
        for kind, name in entity.items()
    ]
    return {"entity": parts, "ops": [{"key": key, "value": value, "remove": not value}]}


@case(ApiKey.ALTER_CLIENT_QUOTAS)
async def quotas_are_changed(stage: Stage) -> None:
    name = stage.name

    async def ask(label: str, *entries: dict[str, Any], validate_only: bool = False) -> None:
        asked = {"entries": list(entries), "validate_only": validate_only}
        await stage.ask(label, ApiKey.ALTER_CLIENT_QUOTAS, **asked)

    rate = "producer_byte_rate"
    await ask("a user", quota(rate, 1e6, user=name))
    await ask("a client", quota("consumer_byte_rate", 1e6, client=name))
    await ask("both", quota("request_percentage", 50.0, user=name, client=name))
    await ask("only tried", quota(rate, 1e6, user=name), validate_only=True)
    await ask("an address", quota("connection_creation_rate", 5.0, ip="127.0.0.9"))
    await ask("two", quota(rate, 2e6, user=name), quota(rate, -1.0, user=name, client="x"))
    await ask("an unknown key", quota("no_such_rate", 1.0, user=name))
    await ask("an unknown key that goes", quota("no_such_rate", 0, user=name))
    await ask("a key of users goes of an address", quota(rate, 0, ip="127.0.0.9"))
    await ask("an unknown kind", quota(rate, 1.0, planet=name))
    await ask("no kind", quota(rate, 1.0))
    await ask("an empty name", quota(rate, 1.0, user=""))
    await ask("an address beside a user", quota(rate, 1.0, user=name, ip="127.0.0.9"))
    await ask("a key of users for an address", quota(rate, 1.0, ip="127.0.0.9"))
    await ask("a key of addresses for a user", quota("connection_creation_rate", 1.0, user=name))
    await ask("no address", quota("connection_creation_rate", 1.0, ip="no address at all"))
    await ask("a part of a byte", quota(rate, 1.5, user=name))
    await ask("nearly a byte", quota(rate, 1.0000005, user=name), validate_only=True)
    await ask("too many bytes", quota(rate, 1e19, user=name))
    await ask("a part of a connection", quota("connection_creation_rate", 0.5, ip="127.0.0.9"))
    await ask("too many connections", quota("connection_creation_rate", 3e9, ip="127.0.0.9"))
    both = quota(rate, 5.0, user=name)
    await ask("a key twice", {**both, "ops": both["ops"] * 2})
    await ask("gone", quota(rate, 0, user=name))
    await ask("gone before", quota(rate, 0, user=name))
    await ask("nothing")
    await stage.quietly(
        ApiKey.ALTER_CLIENT_QUOTAS,
        0,
        entries=[
            quota("consumer_byte_rate", 0, client=name),
            quota("request_percentage", 0, user=name, client=name),
            quota("connection_creation_rate", 0, ip="127.0.0.9"),
        ],
    )


@case(ApiKey.CREATE_TOPICS, since=2)
async def topics_beyond_a_quota(stage: Stage) -> None:
    rate = "controller_mutation_rate"
    await stage.quietly(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=[quota(rate, 4.0, client="compare")])
    try:
        await trio.sleep(1)  # Kafka answers before its controller goes by it
        topics = [
            {"name": f"{stage.name}-{count}", "num_partitions": count, "replication_factor": 1}
            for count in (50, 1)
        ]
        await stage.ask("two", ApiKey.CREATE_TOPICS, topics=topics, timeout_ms=20_000)
    finally:
        await stage.quietly(
            ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=[quota(rate, 0, client="compare")]
        )


EXACTLY, THE_DEFAULT, ANY_NAME = 0, 1, 2


@case(ApiKey.DESCRIBE_CLIENT_QUOTAS)
async def quotas_are_described(stage: Stage) -> None:
    name = stage.name
    rate = "producer_byte_rate"
    entities: list[dict[str, str | None]] = [
        {"user": name},
        {"user": name, "client": name},
        {"client": name},
        {"user": None},
    ]
    stored = [quota(rate, 1000.0 * (1 + row), **entity) for row, entity in enumerate(entities)]
    await stage.quietly(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=stored)

    async def ask(label: str, *rows: tuple[str, int, str | None], strict: bool = False) -> None:
        components = [
            {"entity_type": kind, "match_type": how, "match": match} for kind, how, match in rows
        ]
        asked = {"components": components, "strict": strict}
        await stage.ask(label, ApiKey.DESCRIBE_CLIENT_QUOTAS, **asked)

    # Kafka answers a change before what answers questions has heard of it.
    with trio.fail_after(SETTLE_TIMEOUT_S):
        while True:
            exact = {"entity_type": "user", "match_type": EXACTLY, "match": name}
            found = await stage.quietly(
                ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, components=[exact], strict=False
            )
            if len(found.entries) == 2:
                break
            await trio.sleep(0.02)
    await ask("of a user", ("user", EXACTLY, name))
    await ask("of a user alone", ("user", EXACTLY, name), strict=True)
    await ask("of a client", ("client-id", EXACTLY, name))
    await ask("of both", ("user", EXACTLY, name), ("client-id", EXACTLY, name), strict=True)
    await ask("of any client of a user", ("user", EXACTLY, name), ("client-id", ANY_NAME, None))
    await ask("of the default", ("user", THE_DEFAULT, None), strict=True)
    await ask("of nobody", ("user", EXACTLY, "no-such"))
    await ask("of an unknown kind", ("planet", EXACTLY, "x"))
    await ask("of an unknown match", ("user", 9, "x"))
    await ask("of a kind twice", ("user", EXACTLY, name), ("user", EXACTLY, "x"))
    await ask("of a name that is null", ("user", EXACTLY, None))
    await ask("of an empty kind", ("", EXACTLY, "x"))
    gone = [quota(rate, 0, **entity) for entity in entities]
    await stage.quietly(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=gone)


@case(ApiKey.ELECT_LEADERS)
async def leaders_where_there_is_no_choice(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)

    async def ask(label: str, name: str, *partitions: int) -> None:
        rows = [{"topic": name, "partitions": list(partitions)}]
        await stage.ask(label, ApiKey.ELECT_LEADERS, topic_partitions=rows, timeout_ms=5_000)

    await ask("preferred", topic, 0, 1)
    await ask("of a partition that is not there", topic, 7)
    await ask("of a topic that is not there", f"{stage.name}-nowhere", 0)


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def moves_where_there_is_no_other_place(stage: Stage) -> None:
    topic = await stage.topic("-t")

    async def ask(label: str, name: str, replicas: list[int] | None, index: int = 0) -> None:
        rows = [{"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}]
        await stage.ask(label, ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=rows, timeout_ms=5_000)

    await ask("to where it is", topic, [1])
    await ask("give up", topic, None)
    await ask("to a stranger", topic, [77])
    await ask("to nobody", topic, [])
    await ask("of a partition that is not there", topic, [1], 7)
    await ask("of a topic that is not there", f"{stage.name}-nowhere", [1])


@case(ApiKey.ALTER_REPLICA_LOG_DIRS)
async def moves_between_directories(stage: Stage) -> None:
    topic = await stage.topic("-t")
    described = await stage.quietly(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    here = described.results[0].log_dir

    async def ask(label: str, path: str, name: str = topic, index: int = 0) -> None:
        rows = [{"path": path, "topics": [{"name": name, "partitions": [index]}]}]
        await stage.ask(label, ApiKey.ALTER_REPLICA_LOG_DIRS, dirs=rows)

    await ask("to where it is", here)
    await ask("to nowhere", "/no/such/directory")
    await ask("to a relative place", "here")
    await ask("of a partition that is not there", here, topic, 7)
    await ask("of a topic that is not there", here, f"{stage.name}-nowhere")
    await stage.ask("nothing", ApiKey.ALTER_REPLICA_LOG_DIRS, dirs=[])


@case(ApiKey.DESCRIBE_QUORUM)
async def the_quorum(stage: Stage) -> None:
    async def ask(label: str, *rows: tuple[str, int]) -> None:
        topics = [
            {"topic_name": name, "partitions": [{"partition_index": index}]} for name, index in rows
        ]
        await stage.ask(label, ApiKey.DESCRIBE_QUORUM, topics=topics)

    await ask("the metadata", ("__cluster_metadata", 0))
    await ask("another partition", ("__cluster_metadata", 1))
    await ask("another topic", ("no-such", 0))
    await ask("two", ("__cluster_metadata", 0), ("no-such", 0))
    await ask("nothing")


@case(ApiKey.LIST_PARTITION_REASSIGNMENTS)
async def moves_listed(stage: Stage) -> None:
    topic = await stage.topic("-t")
    for label, name, index in (
        ("none", topic, 0),
        ("a partition that is not there", topic, 7),
        ("a topic that is not there", f"{stage.name}-nowhere", 0),
    ):
        rows = [{"name": name, "partition_indexes": [index]}]
        await stage.ask(label, ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=rows, timeout_ms=5_000)


@case(ApiKey.ELECT_LEADERS)
async def leaders_of_every_partition(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)

    async def ask(label: str, *rows: tuple[str, list[int]], kind: int = 0) -> None:
        named = [{"topic": name, "partitions": partitions} for name, partitions in rows]
        fields: dict[str, Any] = {"topic_partitions": named, "timeout_ms": 5_000}
        if stage.version >= 1:
            fields["election_type"] = kind
        await stage.ask(label, ApiKey.ELECT_LEADERS, **fields)

    await ask("nothing")
    await ask("no partition", (topic, []))
    await ask("twice", (topic, [0, 0]))
    await ask("a topic twice", (topic, [0]), (topic, [1]))
    await ask("of an empty name", ("", [0]))
    await ask("a negative partition", (topic, [-1]))
    if stage.version >= 1:
        await ask("unclean", (topic, [0]), kind=1)
        await ask("a kind that there is not", (topic, [0]), kind=9)


@case(ApiKey.LIST_PARTITION_REASSIGNMENTS)
async def all_moves_listed(stage: Stage) -> None:
    topic = await stage.topic("-t")
    fields = {"timeout_ms": 5_000}
    await stage.ask("all", ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None, **fields)
    await stage.ask("nothing", ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=[], **fields)
    rows: list[dict[str, Any]] = [{"name": topic, "partition_indexes": []}]
    await stage.ask("no partition", ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=rows, **fields)
    rows = [{"name": topic, "partition_indexes": [0, 0, 5, -1]}]
    await stage.ask("some", ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=rows, **fields)


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def moves_asked_for_wrongly(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)

    async def ask(label: str, *rows: tuple[str, int, list[int] | None], **more: Any) -> None:
        named = [
            {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}
            for name, index, replicas in rows
        ]
        fields: dict[str, Any] = {"topics": named, "timeout_ms": 5_000} | more
        await stage.ask(label, ApiKey.ALTER_PARTITION_REASSIGNMENTS, **fields)

    await ask("nothing")
    await ask("twice on one", (topic, 0, [1, 1]))
    await ask("here and on a stranger", (topic, 0, [1, 77]))
    await ask("a negative broker", (topic, 0, [-1]))
    await ask("a negative partition", (topic, -1, [1]))
    await ask("an empty name", ("", 0, [1]))
    await ask("a topic twice", (topic, 0, [1]), (topic, 1, [1]))
    if stage.version >= 1:
        await ask("another number", (topic, 0, [1, 2]), allow_replication_factor_change=False)
        await ask("as many", (topic, 0, [1]), allow_replication_factor_change=False)

"""Access rules drawn at random: what they leave a user of requests that name much.

Each of the users of crowd.py has one right, or lacks one; rules of one story allow and deny each
other, by prefixes, wildcards, hosts and for everybody.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from segbroker.protocol.acls import OPERATIONS_OF, Operation, PatternType, Permission, ResourceType
from segbroker.protocol.api_keys import ApiKey

from .answers import flatten
from .cases import Ground, case
from .cases_acls import gone, made
from .cases_produce import batch
from .crowd import rule
from .stage import Stage

Asked = list[tuple[str, ApiKey, int, Mapping[str, Any]]]
ROUNDS: Final = 12
KINDS: Final = (
    *(ResourceType.TOPIC,) * 3,
    *(ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID),
)
HOSTS: Final = ("*", "*", "*", "127.0.0.1", "10.0.0.1")


def _names(stage: Stage, *ends: str) -> list[str]:
    return [f"{stage.name}-{end}" for end in ends]


def _drawn(random: Random, stage: Stage, topics: list[str]) -> dict[str, Any]:
    """A rule for alice or for everybody, about something of this story."""
    kind = random.choice(KINDS)
    operation = random.choice([*OPERATIONS_OF[kind], Operation.ALL])
    permission = Permission.DENY if random.random() < 0.3 else Permission.ALLOW
    who, host = random.choice(["alice", "alice", "alice", "*"]), random.choice(HOSTS)
    if kind is ResourceType.CLUSTER:
        return rule(who, operation, kind, "", permission, host=host)
    pools = {ResourceType.TOPIC: topics, ResourceType.GROUP: _names(stage, "ga", "gb")}
    name = random.choice(pools.get(kind, _names(stage, "xa", "xb")))
    pattern = PatternType.LITERAL
    if random.random() < 0.4:
        pattern = PatternType.PREFIXED
        name = name[: random.choice([len(stage.name) + 1, len(stage.name) + 2, len(name)])]
    elif random.random() < 0.2:
        name = "*"
    return rule(who, operation, kind, name, permission, pattern, host)


def _told(one: Mapping[str, Any]) -> str:
    sign = "-" if one["permission_type"] == Permission.DENY else "+"
    end = "..." if one["resource_pattern_type"] == PatternType.PREFIXED else ""
    what = f"{Operation(one['operation']).name} {ResourceType(one['resource_type']).name}"
    return f"{sign}{one['principal']}@{one['host']} {what} {one['resource_name']}{end}"


def _of_topics(topics: list[str]) -> Asked:
    def each(**more: Any) -> list[dict[str, Any]]:
        return [{"name": name} | more for name in topics]

    latest = {"partition_index": 0, "timestamp": -1}
    data = [{"index": 0, "records": batch(1)}]
    cursor = {"topic_name": topics[1], "partition_index": 1}
    settings = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}
        for name in topics
    ]
    return [
        ("offsets", ApiKey.LIST_OFFSETS, 7, {"topics": each(partitions=[latest])}),
        (
            "produce",
            ApiKey.PRODUCE,
            9,
            {"acks": -1, "timeout_ms": 9_000, "topic_data": each(partition_data=data)},
        ),
        (
            "records",
            ApiKey.DELETE_RECORDS,
            2,
            {
                "topics": each(partitions=[{"partition_index": 0, "offset": 0}]),
                "timeout_ms": 9_000,
            },
        ),
        ("producers", ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": each(partition_indexes=[0])}),
        ("settings", ApiKey.DESCRIBE_CONFIGS, 4, {"resources": settings}),
        (
            "partitions",
            ApiKey.CREATE_PARTITIONS,
            3,
            {"topics": each(count=3, assignments=None), "validate_only": True, "timeout_ms": 9_000},
        ),
        *(
            (
                f"page {limit} {at is not None}",
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                0,
                {"topics": each(), "response_partition_limit": limit, "cursor": at},
            )
            for limit in (1, 3, 100)
            for at in (None, cursor)
        ),
    ]


def _of_groups(stage: Stage, topics: list[str]) -> Asked:
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    rows = [{"name": name, "partitions": [row]} for name in topics]
    producer = {"producer_id": 9, "producer_epoch": 0}
    asked: Asked = []
    for group in _names(stage, "ga", "gb"):
        nobody = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        asked += [
            ("commit", ApiKey.OFFSET_COMMIT, 8, nobody | {"topics": rows}),
            ("stands", ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": group, "topics": None}]}),
        ]
        for name in _names(stage, "xa", "xb"):
            both = producer | {"transactional_id": name, "group_id": group}
            member = {"generation_id": -1, "member_id": "", "topics": rows}
            asked += [
                ("offsets of a transaction", ApiKey.ADD_OFFSETS_TO_TXN, 3, both),
                ("commit in it", ApiKey.TXN_OFFSET_COMMIT, 3, both | member),
            ]
    for name in _names(stage, "xa", "xb"):
        producing = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        asked += [
            ("begin", ApiKey.INIT_PRODUCER_ID, 4, producing | {"transactional_id": name}),
            ("end", ApiKey.END_TXN, 3, producer | {"transactional_id": name, "committed": True}),
        ]
    return asked


@case(ApiKey.METADATA, since=13, ground=Ground.GUARDED)
async def rules_drawn_at_random(stage: Stage) -> None:
    random = Random(1)
    topics = [await stage.topic(f"-{end}", 2) for end in ("aa", "ab", "b")]
    for topic in topics:
        await stage.topic_id(topic)
    alice = await stage.of("alice")
    for number in range(ROUNDS):
        drawn = [_drawn(random, stage, topics) for _ in range(random.choice([1, 2, 3, 5, 8]))]
        rules = list({_told(one): one for one in drawn}.values())
        await made(stage, *rules)
        told = f"{number}: " + "; ".join(map(_told, rules)).replace(stage.name, "~")
        asked = [*_of_topics(topics), *_of_groups(stage, topics)]
        for place, (label, key, version, fields) in enumerate(asked):
            answer = await alice.quietly(key, version, **fields)
            stage.seen[f"{told}: {label} {place}"] = flatten(
                answer, version, stage.name, stage.topics
            )
        await gone(stage, "alice", "*")

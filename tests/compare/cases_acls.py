"""Access rules over the wire: filters of every kind, wrong rules, patterns against each other."""

from typing import Any

from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.protocol.api_keys import ApiKey

from .cases import Ground, case
from .crowd import rule, settle_rules
from .stage import Stage

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
DENY = Permission.DENY


def seeking(**more: Any) -> dict[str, Any]:
    """A filter that finds everything but for what is said."""
    asked = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
    return asked | {"permission_type": 1} | more


async def made(stage: Stage, *rules: dict[str, Any]) -> None:
    """Rules of the users without others, in force."""
    answer = await stage.quietly(ApiKey.CREATE_ACLS, 2, creations=list(rules))
    assert not any(row.error_code for row in answer.results), answer
    for user in {one["principal"] for one in rules}:
        wanted = sum(one["principal"] == user for one in rules)
        await settle_rules(stage, wanted, principal_filter=user)


async def gone(stage: Stage, *users: str) -> None:
    """No rules of some users."""
    filters = [seeking(principal_filter=f"User:{user}") for user in users]
    await stage.quietly(ApiKey.DELETE_ACLS, 2, filters=filters)
    for user in users:
        await settle_rules(stage, 0, principal_filter=f"User:{user}")


def _some(name: str) -> list[dict[str, Any]]:
    return [
        rule("alice", READ, TOPIC, name),
        rule("alice", WRITE, TOPIC, name, DENY),
        rule("bob", READ, TOPIC, name, host="10.0.0.1"),
        rule("alice", READ, GROUP, name, pattern=PREFIXED),
        rule("alice", READ, TOPIC, name[:-3], pattern=PREFIXED),
        rule("bob", DESCRIBE, ResourceType.TRANSACTIONAL_ID, name),
        rule("bob", Operation.ALL, TOPIC, "*"),
        rule("bob", Operation.ALTER, ResourceType.CLUSTER),
    ]


def _filters(name: str) -> dict[str, dict[str, Any]]:
    mine = {"resource_name_filter": name}
    return {
        "by name": seeking(**mine),
        "by name, literal": seeking(**mine, pattern_type_filter=3),
        "by name, prefixed": seeking(**mine, pattern_type_filter=4),
        "by name, topics": seeking(**mine, resource_type_filter=2),
        "by name, groups": seeking(**mine, resource_type_filter=3),
        "by name, clusters": seeking(**mine, resource_type_filter=4),
        "by name, tokens": seeking(**mine, resource_type_filter=6),
        "by name, users": seeking(**mine, resource_type_filter=7),
        "by name, alice": seeking(**mine, principal_filter="User:alice"),
        "by name, nobody": seeking(**mine, principal_filter="User:nobody"),
        "by name, everybody": seeking(**mine, principal_filter="User:*"),
        "by name, no principal": seeking(**mine, principal_filter=""),
        "by name, not a principal": seeking(**mine, principal_filter="alice"),
        "by name, from somewhere": seeking(**mine, host_filter="10.0.0.1"),
        "by name, from anywhere": seeking(**mine, host_filter="*"),
        "by name, from no host": seeking(**mine, host_filter=""),
        "by name, reading": seeking(**mine, operation=3),
        "by name, all operations": seeking(**mine, operation=2),
        "by name, denied": seeking(**mine, permission_type=2),
        "by name, allowed": seeking(**mine, permission_type=3),
        "match, of alice": seeking(**mine, pattern_type_filter=2, principal_filter="User:alice"),
        "match, of bob": seeking(**mine, pattern_type_filter=2, principal_filter="User:bob"),
        "match a longer one": seeking(
            resource_name_filter=f"{name}-longer",
            pattern_type_filter=2,
            principal_filter="User:alice",
        ),
        "match without a name, of alice": seeking(
            pattern_type_filter=2, principal_filter="User:alice"
        ),
        "the wildcard, of bob": seeking(resource_name_filter="*", principal_filter="User:bob"),
        "match the wildcard, of bob": seeking(
            resource_name_filter="*", pattern_type_filter=2, principal_filter="User:bob"
        ),
        "an empty name": seeking(resource_name_filter=""),
        "of bob": seeking(principal_filter="User:bob"),
        "an unknown kind": seeking(resource_type_filter=0),
        "a kind that there is not": seeking(resource_type_filter=9),
        "a negative kind": seeking(resource_type_filter=-1),
        "an unknown pattern": seeking(pattern_type_filter=0),
        "a pattern that there is not": seeking(pattern_type_filter=9),
        "an unknown operation": seeking(operation=0),
        "an operation that there is not": seeking(operation=99),
        "an unknown permission": seeking(permission_type=0),
        "a permission that there is not": seeking(permission_type=9),
    }


@case(ApiKey.DESCRIBE_ACLS, ground=Ground.GUARDED)
async def rules_sought(stage: Stage) -> None:
    await made(stage, *_some(stage.name))
    for label, asked in _filters(stage.name).items():
        await stage.ask(label, ApiKey.DESCRIBE_ACLS, **asked)
    await gone(stage, "alice", "bob")


@case(ApiKey.DELETE_ACLS, ground=Ground.GUARDED)
async def rules_sought_to_be_deleted(stage: Stage) -> None:
    for label, asked in _filters(stage.name).items():
        if asked == seeking(resource_name_filter=""):
            continue
        await made(stage, *_some(stage.name))
        await stage.ask(label, ApiKey.DELETE_ACLS, filters=[asked])
        await gone(stage, "alice", "bob")
    await made(stage, *_some(stage.name))
    await stage.ask("nothing", ApiKey.DELETE_ACLS, filters=[])
    both = [seeking(principal_filter="User:bob"), seeking(resource_name_filter=stage.name)]
    await stage.ask("one rule, found twice", ApiKey.DELETE_ACLS, filters=both)
    wrong = [seeking(principal_filter="User:alice"), seeking(operation=0)]
    await stage.ask("a good one and a wrong one", ApiKey.DELETE_ACLS, filters=wrong)
    await stage.quietly(ApiKey.DELETE_ACLS, 2, filters=both)
    await gone(stage, "alice", "bob")


@case(ApiKey.CREATE_ACLS, ground=Ground.GUARDED)
async def wrong_rules(stage: Stage) -> None:
    good = rule("alice", READ, TOPIC, stage.name)

    async def ask(label: str, **more: Any) -> None:
        await stage.ask(label, ApiKey.CREATE_ACLS, creations=[good | more])

    await ask("good")
    await ask("again")
    for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
        for number in (-1, 0, 1, 2, 4, 6, 7, 16, 99):
            await ask(f"{field} {number}", **{field: number})
    for field in ("resource_name", "principal", "host"):
        await ask(f"no {field}", **{field: ""})
    await ask("no kind of principal", principal="alice")
    await ask("an empty kind of principal", principal=":alice")
    await ask("an empty user", principal="User:")
    await ask("another kind of principal", principal="Team:alice")
    await ask("a colon more", principal="User:alice:b")
    await ask("everybody", principal="User:*", host="10.9.9.9")
    await ask("a host by name", host="localhost")
    await ask("no host at all", host="not an address")
    await ask("a network", host="10.0.0.0/8")
    await ask("an address of version 6", host="0:0:0:0:0:0:0:1")
    await ask("a bad name of a topic", resource_name="a/b c")
    await ask("the wildcard, prefixed", resource_name="*", resource_pattern_type=4)
    await ask("a long name", resource_name=stage.name + "n" * 250)
    for operation in range(2, 16):
        for kind in (2, 3, 4, 5, 6, 7):
            name = "kafka-cluster" if kind == 4 else stage.name
            await ask(
                f"{operation} of {kind}",
                operation=operation,
                resource_type=kind,
                resource_name=name,
            )
    await ask("another cluster", resource_type=4, resource_name="other")
    await ask("any cluster", resource_type=4, resource_name="*")
    await ask(
        "a cluster, prefixed", resource_type=4, resource_name="kafka", resource_pattern_type=4
    )
    await ask(
        "the cluster, prefixed",
        resource_type=4,
        resource_name="kafka-cluster",
        resource_pattern_type=4,
    )
    await stage.ask("two", ApiKey.CREATE_ACLS, creations=[good, good | {"operation": 0}])
    await stage.ask("the same twice", ApiKey.CREATE_ACLS, creations=[good, good])
    await stage.ask("nothing", ApiKey.CREATE_ACLS, creations=[])
    filters = [seeking(resource_name_filter=stage.name), seeking(principal_filter="User:alice")]
    filters += [
        seeking(principal_filter=f"{one}") for one in ("Team:alice", "User:", "User:alice:b")
    ]
    filters += [seeking(host_filter="10.9.9.9")]
    await stage.quietly(ApiKey.DELETE_ACLS, 2, filters=filters)
    await gone(stage, "alice", "bob")


@case(ApiKey.METADATA, ground=Ground.GUARDED, since=8)
async def rules_against_each_other(stage: Stage) -> None:
    """What alice may do to a topic, as bits and as an answer."""
    topic = await stage.topic("-long-name")
    short = f"{stage.name}-long"
    here, there = "127.0.0.1", "10.0.0.1"
    alice = await stage.of("alice")
    scenes: dict[str, list[dict[str, Any]]] = {
        "literal": [rule("alice", READ, TOPIC, topic)],
        "a shorter literal": [rule("alice", READ, TOPIC, short)],
        "prefixed": [rule("alice", READ, TOPIC, short, pattern=PREFIXED)],
        "its name, prefixed": [rule("alice", READ, TOPIC, topic, pattern=PREFIXED)],
        "a longer prefix": [rule("alice", READ, TOPIC, f"{topic}-", pattern=PREFIXED)],
        "the wildcard": [rule("alice", READ, TOPIC, "*")],
        "the wildcard as a prefix": [rule("alice", READ, TOPIC, "*", pattern=PREFIXED)],
        "for a group of the name": [rule("alice", READ, GROUP, topic)],
        "from here": [rule("alice", READ, TOPIC, topic, host=here)],
        "from elsewhere": [rule("alice", READ, TOPIC, topic, host=there)],
        "from a name": [rule("alice", READ, TOPIC, topic, host="localhost")],
        "another user": [rule("bob", READ, TOPIC, topic)],
        "in other letters": [rule("Alice", READ, TOPIC, topic)],
        "another kind of user": [rule("alice", READ, TOPIC, topic) | {"principal": "Team:alice"}],
        "everybody": [rule("*", READ, TOPIC, topic)],
        "everybody but alice": [
            rule("*", Operation.ALL, TOPIC, topic),
            rule("alice", READ, TOPIC, topic, DENY),
        ],
        "alice, and nobody": [
            rule("alice", Operation.ALL, TOPIC, topic),
            rule("*", WRITE, TOPIC, topic, DENY),
        ],
        "denied by a prefix": [
            rule("alice", Operation.ALL, TOPIC, topic),
            rule("alice", READ, TOPIC, short, DENY, PREFIXED),
        ],
        "denied by the wildcard": [
            rule("alice", Operation.ALL, TOPIC, topic),
            rule("alice", READ, TOPIC, "*", DENY),
        ],
        "a shorter prefix denies, a longer allows": [
            rule("alice", READ, TOPIC, stage.name, DENY, PREFIXED),
            rule("alice", READ, TOPIC, short, pattern=PREFIXED),
        ],
        "denied elsewhere": [
            rule("alice", Operation.ALL, TOPIC, topic),
            rule("alice", READ, TOPIC, topic, DENY, host=there),
        ],
        "all denied": [
            rule("alice", READ, TOPIC, topic),
            rule("alice", Operation.ALL, TOPIC, topic, DENY),
        ],
        "describing denied": [
            rule("alice", READ, TOPIC, topic),
            rule("alice", DESCRIBE, TOPIC, topic, DENY),
        ],
        "reading denied, describing implied by writing": [
            rule("alice", WRITE, TOPIC, topic),
            rule("alice", READ, TOPIC, topic, DENY),
        ],
        "settings altered": [rule("alice", Operation.ALTER_CONFIGS, TOPIC, topic)],
        "settings altered, describing them denied": [
            rule("alice", Operation.ALTER_CONFIGS, TOPIC, topic),
            rule("alice", Operation.DESCRIBE_CONFIGS, TOPIC, topic, DENY),
            rule("alice", DESCRIBE, TOPIC, topic),
        ],
        "an operation of no topic": [rule("alice", Operation.CLUSTER_ACTION, TOPIC, topic)],
    }
    asked = {"include_topic_authorized_operations": True, "topics": [{"name": topic}]}
    for label, rules in scenes.items():
        await made(stage, *rules)
        await alice.ask(label, ApiKey.METADATA, **asked)
        filters = [seeking(principal_filter=who) for who in {one["principal"] for one in rules}]
        await stage.quietly(ApiKey.DELETE_ACLS, 2, filters=filters)
        for one in {one["principal"] for one in rules}:
            await settle_rules(stage, 0, principal_filter=one)

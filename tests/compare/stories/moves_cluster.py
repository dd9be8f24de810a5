"""What an administrator does with the whole broker: access rules, quotas, users."""

from random import Random
from typing import Any, Final

from segbroker.protocol.acls import CLUSTER_NAME, ResourceType
from segbroker.protocol.api_keys import ApiKey

from .moves import mostly, move, version
from .scene import Scene


def _rule(random: Random) -> dict[str, Any]:
    kind = random.choice((2, 2, 3, 4, 5))
    return {
        "kind": kind,
        "name": random.choice(("a", "ab", "abc", "*")),
        "pattern": random.choice((3, 3, 4)),
        "user": random.choice(("User:ann", "User:bob", "User:*", "ann")),
        "host": mostly(random, "*", "10.0.0.1", unusual=0.2),
        "operation": random.choice((2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 12)),
        "permission": random.choice((2, 3, 3)),
    }


def _named(scene: Scene, kind: int, name: str) -> str:
    if kind == ResourceType.CLUSTER:
        return CLUSTER_NAME
    return name if name == "*" else f"{scene.title}{name}"


def _principal(scene: Scene, user: str) -> str:
    kind, colon, name = user.rpartition(":")
    return user if name == "*" else f"{kind}{colon}{scene.title}{name}"


def _draw_allow(random: Random) -> dict[str, Any]:
    return _rule(random) | {"version": version(random, ApiKey.CREATE_ACLS, 1)}


@move("cluster", 4, _draw_allow)
async def allow(
    scene: Scene,
    kind: int,
    name: str,
    pattern: int,
    user: str,
    host: str,
    operation: int,
    permission: int,
    version: int,
) -> None:
    """An access rule is made."""
    if user == "User:*" and name == "*":
        return  # it would be in all stories
    await scene.ask(
        ApiKey.CREATE_ACLS,
        version,
        creations=[
            {
                "resource_type": kind,
                "resource_name": _named(scene, kind, name),
                "resource_pattern_type": pattern,
                "principal": _principal(scene, user),
                "host": host,
                "operation": operation,
                "permission_type": permission,
            }
        ],
    )
    await scene.caught_up()


def _draw_filter(key: ApiKey) -> Any:
    def draw(random: Random) -> dict[str, Any]:
        drawn = _rule(random) | {"version": version(random, key, 1)}
        return drawn | {
            "kind": mostly(random, drawn["kind"], 1, unusual=0.4),
            "pattern": random.choice((1, 1, 2, 3, 4)),
            "operation": mostly(random, 1, drawn["operation"], unusual=0.3),
            "permission": mostly(random, 1, drawn["permission"], unusual=0.3),
            "host": mostly(random, None, drawn["host"], unusual=0.3),
            "user": mostly(random, None, drawn["user"], unusual=0.5),
        }

    return draw


def _filter(scene: Scene, says: dict[str, Any]) -> dict[str, Any]:
    user = says["user"]
    return {
        "resource_type_filter": says["kind"],
        "resource_name_filter": _named(scene, says["kind"], says["name"]),
        "pattern_type_filter": says["pattern"],
        "principal_filter": None if user is None else _principal(scene, user),
        "host_filter": says["host"],
        "operation": says["operation"],
        "permission_type": says["permission"],
    }


@move("cluster", 3, _draw_filter(ApiKey.DELETE_ACLS))
async def disallow(scene: Scene, version: int, **says: Any) -> None:
    """Access rules are deleted, of the users of this story alone."""
    if says["user"] in (None, "User:*"):
        says["user"] = "User:ann"
    await scene.ask(ApiKey.DELETE_ACLS, version, filters=[_filter(scene, says)])
    await scene.caught_up()


@move("cluster", 3, _draw_filter(ApiKey.DESCRIBE_ACLS))
async def describe_rules(scene: Scene, version: int, **says: Any) -> None:
    """Access rules that a filter finds, of the users of this story alone."""
    answer = await scene.quietly(ApiKey.DESCRIBE_ACLS, version, **_filter(scene, says))
    for row in answer.resources:
        row.acls = [one for one in row.acls if scene.title in one.principal + row.resource_name]
    answer.resources = [row for row in answer.resources if row.acls]
    scene.keep(ApiKey.DESCRIBE_ACLS, version, answer)


QUOTAS: Final = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
    *("controller_mutation_rate", "connection_creation_rate", "nonsense"),
)


def _entity(random: Random) -> dict[str, Any]:
    return {
        "user": mostly(random, "ann", None, "bob", unusual=0.5),
        "client": mostly(random, None, "app", "tool", unusual=0.5),
    }


def _draw_limit(random: Random) -> dict[str, Any]:
    return _entity(random) | {
        "quota": random.choice(QUOTAS),
        "value": random.choice((1000.0, 5.5, 1e6, 0.0, -1.0)),
        "remove": random.random() < 0.3,
        "version": version(random, ApiKey.ALTER_CLIENT_QUOTAS),
        "only_validate": mostly(random, False, True),
    }


@move("cluster", 4, _draw_limit)
async def limit(
    scene: Scene,
    user: str | None,
    client: str | None,
    quota: str,
    value: float,
    remove: bool,
    version: int,
    only_validate: bool,
) -> None:
    """A quota is set or removed."""
    kinds = (("user", user), ("client-id", client))
    entity = [
        {"entity_type": kind, "entity_name": scene.called(name)}
        for kind, name in kinds
        if name is not None
    ]
    await scene.ask(
        ApiKey.ALTER_CLIENT_QUOTAS,
        version,
        validate_only=only_validate,
        entries=[{"entity": entity, "ops": [{"key": quota, "value": value, "remove": remove}]}],
    )
    await scene.caught_up()


def _draw_limits(random: Random) -> dict[str, Any]:
    return _entity(random) | {
        "strict": random.random() < 0.5,
        "version": version(random, ApiKey.DESCRIBE_CLIENT_QUOTAS),
    }


@move("cluster", 3, _draw_limits)
async def describe_limits(
    scene: Scene, user: str | None, client: str | None, strict: bool, version: int
) -> None:
    """Quotas that a filter finds, of this story alone."""
    kinds = (("user", user), ("client-id", client))
    components = [
        {"entity_type": kind, "match_type": 0, "match": scene.called(name)}
        for kind, name in kinds
        if name is not None
    ]
    answer = await scene.quietly(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=components, strict=strict
    )
    answer.entries = [
        row
        for row in answer.entries or ()
        if any((part.entity_name or "").startswith(scene.title) for part in row.entity)
    ]
    for row in answer.entries:
        row.values.sort(key=lambda one: one.key)
    scene.keep(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, answer)


def _draw_user(random: Random) -> dict[str, Any]:
    return {
        "user": random.choice(("ann", "bob", "")),
        "mechanism": mostly(random, random.choice((1, 2)), 0, 3),
        "iterations": mostly(random, 4096, 8192, 4095, 16385, unusual=0.4),
        "deletes": random.random() < 0.4,
    }


@move("cluster", 3, _draw_user)
async def user(scene: Scene, user: str, mechanism: int, iterations: int, deletes: bool) -> None:
    """What a user logs in with is set or deleted."""
    row: dict[str, Any] = {"name": scene.called(user) if user else "", "mechanism": mechanism}
    if deletes:
        fields: dict[str, Any] = {"deletions": [row]}
    else:
        secret = {"salt": b"salt of sixteen.", "salted_password": b"p" * (32 * mechanism)}
        fields = {"upsertions": [row | secret | {"iterations": iterations}]}
    await scene.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **fields)
    await scene.caught_up()


def _no_draw(random: Random) -> dict[str, Any]:
    return {}


@move("cluster", 2, _no_draw)
async def describe_users(scene: Scene) -> None:
    """What users log in with."""
    rows = [{"name": scene.called(name)} for name in ("ann", "bob")]
    answer = await scene.quietly(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=rows)
    for row in answer.results:
        row.credential_infos.sort(key=lambda one: one.mechanism)
    scene.keep(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, answer)

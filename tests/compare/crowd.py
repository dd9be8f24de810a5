"""The users of the guarded brokers: each may do one thing, or everything but one thing.

A request of every one of them shows what it needs: `only X` that it is enough, `all but X` that
nothing else is.  Their rules are about every name that begins as the names of cases do.
"""

from dataclasses import dataclass
from typing import Any, Final

import trio

from segbroker.protocol.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.scram import ScramMechanism, salted_password

from .logins import PASSWORD
from .stage import SETTLE_TIMEOUT_S, Stage

PREFIX: Final = "c"  # of the name of every case
_KINDS: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
_SALT: Final = b"salt of sixteen."
_ITERATIONS: Final = 4096


@dataclass(frozen=True)
class User:
    """Somebody, and the rules about them."""

    name: str
    rules: tuple[dict[str, Any], ...]


def rule(
    principal: str,
    operation: Operation,
    kind: ResourceType,
    name: str = "",
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> dict[str, Any]:
    """A row of CreateAcls; without a name it is about every case."""
    if not name:
        pattern = PatternType.LITERAL if kind is ResourceType.CLUSTER else PatternType.PREFIXED
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else PREFIX
    return {
        "resource_type": int(kind),
        "resource_name": name,
        "resource_pattern_type": int(pattern),
        "principal": f"User:{principal}",
        "host": host,
        "operation": int(operation),
        "permission_type": int(permission),
    }


def _users() -> tuple[User, ...]:
    def all_of(who: str) -> tuple[dict[str, Any], ...]:
        return tuple(rule(who, Operation.ALL, kind) for kind in _KINDS)

    made = [User("nothing", ()), User("all", all_of("all"))]
    of_cluster = "only-cluster-all"
    made.append(User(of_cluster, (rule(of_cluster, Operation.ALL, ResourceType.CLUSTER),)))
    for kind in _KINDS:
        for operation in OPERATIONS_OF[kind]:
            what = f"{kind.name}-{operation.name}".lower().replace("_", "-")
            one, rest = f"only-{what}", f"all-but-{what}"
            made.append(User(one, (rule(one, operation, kind),)))
            denied = rule(rest, operation, kind, permission=Permission.DENY)
            made.append(User(rest, (*all_of(rest), denied)))
    return tuple(made)


USERS: Final = _users()
# Users for whom cases make and delete rules of their own.
FREE: Final = ("alice", "bob")


async def settle_rules(admin: Stage, wanted: int, **about: Any) -> None:
    """Kafka answers a change of rules before its broker goes by it."""
    asked = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1} | about
    with trio.fail_after(SETTLE_TIMEOUT_S):
        while True:
            found = await admin.quietly(ApiKey.DESCRIBE_ACLS, 2, permission_type=1, **asked)
            assert found.error_code == 0, found
            if sum(len(resource.acls) for resource in found.resources) == wanted:
                return
            await trio.sleep(0.02)


async def move_in(admin: Stage, passwords: bool) -> None:
    """Make the rules, and where the broker stores users, the users."""
    if passwords:
        salted = salted_password(ScramMechanism.SHA_256, PASSWORD, _SALT, _ITERATIONS)
        made = {"mechanism": 1, "iterations": _ITERATIONS, "salt": _SALT, "salted_password": salted}
        names = [*(user.name for user in USERS), *FREE]
        answer = await admin.quietly(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[{"name": n} | made for n in names]
        )
        assert not any(row.error_code for row in answer.results), answer
    rules = [one for user in USERS for one in user.rules]
    answer = await admin.quietly(ApiKey.CREATE_ACLS, 2, creations=rules)
    assert not any(row.error_code for row in answer.results), answer
    await settle_rules(admin, len(rules))

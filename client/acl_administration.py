"""What an admin client asks about access rules, as calls (see engine).

    Acl("User:alice", "read", "topic", "flights", pattern="prefixed")

A rule in words: the numbers of the wire are known to this module alone.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.protocol.messages_security import (
    CreateAclsRequest,
    CreateAclsRequestCreation,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
    DeleteAclsResponseAcl,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseAcl,
    DescribeAclsResponseResource,
)

from .asking import change, look, refused
from .engine import Call, Engine
from .errors import check_code

Kind = TypeVar("Kind", bound=IntEnum)


class Acl(NamedTuple):
    """One access rule.

    principal: "User:alice", or "User:*" for everybody.
    operation: read, write, create, delete, alter, describe, cluster_action, describe_configs,
        alter_configs, idempotent_write, all.
    resource_type: topic, group, cluster (by the name kafka-cluster), transactional_id.
    pattern: literal (the name, or * for every one) or prefixed.
    permission: allow or deny; a deny wins.
    """

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    pattern: str = "literal"
    host: str = "*"
    permission: str = "allow"


class AclFilter(NamedTuple):
    """Which rules are meant; None and "any": whatever it is.

    pattern "match": every rule that concerns `resource_name`, by its name, `*` or a prefix of it.
    """

    principal: str | None = None
    operation: str = "any"
    resource_type: str = "any"
    resource_name: str | None = None
    pattern: str = "any"
    host: str | None = None
    permission: str = "any"


def list_acls(engine: Engine, which: AclFilter) -> Call[list[Acl]]:
    """The rules that match.  Raises SecurityDisabled, ClusterAuthorizationFailed."""
    request = DescribeAclsRequest(**_asked(which))
    reply = yield from look(engine, request, DescribeAclsResponse, refused("access rules"))
    return sorted(_acl(place, row) for place in reply.resources for row in place.acls)


def create_acls(engine: Engine, acls: Iterable[Acl]) -> Call[None]:
    """Add rules; those that stand already stay.  Raises the error of the first that is refused."""
    wanted = list(acls)
    request = CreateAclsRequest(
        creations=[
            CreateAclsRequestCreation(
                resource_type=number(ResourceType, acl.resource_type),
                resource_name=acl.resource_name,
                resource_pattern_type=number(PatternType, acl.pattern),
                principal=acl.principal,
                host=acl.host,
                operation=number(Operation, acl.operation),
                permission_type=number(Permission, acl.permission),
            )
            for acl in wanted
        ]
    )

    def check(reply: CreateAclsResponse) -> None:
        for acl, row in zip(wanted, reply.results, strict=True):
            about = f"rule for {acl.principal} on {acl.resource_type} {acl.resource_name!r}"
            check_code(row.error_code, about, row.error_message)

    yield from change(engine, request, CreateAclsResponse, check)


def delete_acls(engine: Engine, which: AclFilter) -> Call[list[Acl]]:
    """Take the rules away that match; they are returned."""
    request = DeleteAclsRequest(filters=[DeleteAclsRequestFilter(**_asked(which))])
    reply = yield from change(engine, request, DeleteAclsResponse, refused("access rules"))
    return sorted(_acl(row, row) for found in reply.filter_results for row in found.matching_acls)


def _asked(which: AclFilter) -> dict[str, Any]:
    """The fields of a question."""
    return {
        "resource_type_filter": number(ResourceType, which.resource_type),
        "resource_name_filter": which.resource_name,
        "pattern_type_filter": number(PatternType, which.pattern),
        "principal_filter": which.principal,
        "host_filter": which.host,
        "operation": number(Operation, which.operation),
        "permission_type": number(Permission, which.permission),
    }


def _acl(
    place: DescribeAclsResponseResource | DeleteAclsResponseAcl,
    row: DescribeAclsResponseAcl | DeleteAclsResponseAcl,
) -> Acl:
    return Acl(
        row.principal,
        word(Operation, row.operation),
        word(ResourceType, place.resource_type),
        place.resource_name,
        word(PatternType, place.pattern_type),
        row.host,
        word(Permission, row.permission_type),
    )


def number(kind: type[Kind], text: str) -> Kind:
    """The number of a word.  Raises ValueError, which names the words that there are."""
    try:
        return kind[text.upper()]
    except KeyError:
        words = ", ".join(one.name.lower() for one in kind if one)
        raise ValueError(f"{text!r} is none of {words}") from None


def word(kind: type[IntEnum], value: int) -> str:
    """The word of a number; of one that is not known here, the number."""
    try:
        return kind(value).name.lower()
    except ValueError:
        return str(value)

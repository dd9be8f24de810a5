"""Access rules over the wire: DescribeAcls, CreateAcls, DeleteAcls.

| request | answered |
|---|---|
| any, with `authorizer = none` | 54 SECURITY_DISABLED |
| a rule that says nothing: ANY, UNKNOWN, an empty name, no `Type:name` | 42 INVALID_REQUEST |
| CLUSTER by another name than kafka-cluster | 42 INVALID_REQUEST |
| a name longer than TEXT_SIZE_MAX, more than ACLS_MAX rules | 42, 44 POLICY_VIOLATION |
| creating a rule that stands already; deleting what is not there | success; no match |
| deleting what is not there, while the disk does not let a refused change be undone | 56 |
| deleting by a filter whose matches would make more than MATCHES_MAX | 44 POLICY_VIOLATION |

Created and deleted rules are durable, in force and in the log when the answer leaves, and also when
nobody is there any more to be answered.  The host of a rule is kept as sockets spell it: one that
denies ::0001 is about ::1.  A filter's MATCH finds every rule that concerns a name: literal, `*`,
and prefixes of it.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import Final

import structlog
import trio

from segbroker.protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_security import (
    CreateAclsRequest,
    CreateAclsRequestCreation,
    CreateAclsResponse,
    CreateAclsResponseResult,
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
    DeleteAclsResponseAcl,
    DeleteAclsResponseResult,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseAcl,
    DescribeAclsResponseResource,
)
from segbroker.segments.metadata.acls import ACLS_MAX, TEXT_SIZE_MAX, Acl, in_events

from ..access.acl_rules import Rules
from ..access.authorizer import Authorizer
from ..address import canonical_host
from ..call import Call
from ..core import Core
from ..loop.pace import Pace
from ..principal import parse_principal
from ..recording import Done, recorded
from ..refused import Refused, invalid_request
from ..settling import Settling

log = structlog.get_logger()

_OFF: Final = "there is no authorizer: start the broker with authorizer = acl"
_NOT_STORED: Final = "the change could not be stored"

MATCHES_MAX: Final = 2 * ACLS_MAX
"""Matches that an answer to DeleteAcls may have: a rule is in it once for each filter."""
_FILTER_ONLY: Final = frozenset({0, 1})  # UNKNOWN and ANY, of every kind of number


async def describe_acls(core: Core, call: Call[DescribeAclsRequest]) -> DescribeAclsResponse:
    """The rules that match a filter, by resource."""
    if core.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_OFF, resources=[]
        )
    request = call.request
    try:
        matches = matcher(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
    except Refused as exc:
        return DescribeAclsResponse(error_code=exc.code, error_message=exc.message, resources=[])
    resources: dict[tuple[int, str, int], DescribeAclsResponseResource] = {}
    pace = Pace()
    for acl in _candidates(
        core.authorizer.rules, request.resource_name_filter, request.pattern_type_filter
    ):
        await pace.step()
        if not matches(acl):
            continue
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        if key not in resources:
            resources[key] = DescribeAclsResponseResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                acls=[],
            )
        resources[key].acls.append(
            DescribeAclsResponseAcl(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


async def create_acls(core: Core, call: Call[CreateAclsRequest]) -> CreateAclsResponse:
    """Add rules; those of a request that are wrong are refused one by one."""
    if core.authorizer is not None:
        async with core.authorizer.changing:
            return CreateAclsResponse(results=await _create(core, core.authorizer, call))
    rows = []
    pace = Pace()
    for _ in call.request.creations:
        await pace.step()
        rows.append(
            CreateAclsResponseResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_OFF)
        )
    return CreateAclsResponse(results=rows)


async def _create(
    core: Core, authorizer: Authorizer, call: Call[CreateAclsRequest]
) -> list[CreateAclsResponseResult]:
    """For whoever holds `changing`: room for a rule is room when it is stored."""
    rows: list[CreateAclsResponseResult] = []
    wanted: dict[Acl, list[CreateAclsResponseResult]] = {}
    new: set[Acl] = set()
    free = ACLS_MAX - len(authorizer.rules.acls)
    pace = Pace()
    for asked in call.request.creations:
        await pace.step()
        row = CreateAclsResponseResult(error_message=None)
        rows.append(row)
        try:
            acl = _rule(asked)
            is_new = acl not in wanted and acl not in authorizer.rules.acls
            if is_new and free <= 0:
                raise Refused(ErrorCode.POLICY_VIOLATION, f"at most {ACLS_MAX} rules are kept")
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
        else:
            free -= is_new
            if is_new:
                new.add(acl)
            wanted.setdefault(acl, []).append(row)
    for some in in_events(wanted):
        made = [acl for acl in some if acl in new]
        tell = partial(_tell, "access_rule_created", made, call.peer.asker)
        if not await _recorded(core, partial(authorizer.create, some), tell):
            _not_stored(row for acl in some for row in wanted[acl])
    return rows


async def delete_acls(core: Core, call: Call[DeleteAclsRequest]) -> DeleteAclsResponse:
    """Take away the rules that match filters; a rule is reported by each filter that found it."""
    if core.authorizer is not None:
        async with core.authorizer.changing:
            return DeleteAclsResponse(filter_results=await _delete(core, core.authorizer, call))
    rows = []
    pace = Pace()
    for _ in call.request.filters:
        await pace.step()
        rows.append(
            DeleteAclsResponseResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=_OFF, matching_acls=[]
            )
        )
    return DeleteAclsResponse(filter_results=rows)


async def _delete(
    core: Core, authorizer: Authorizer, call: Call[DeleteAclsRequest]
) -> list[DeleteAclsResponseResult]:
    """For whoever holds `changing`: what is not found is not on its way either."""
    rows = []
    settling = Settling(core)
    found: dict[Acl, list[DeleteAclsResponseAcl]] = {}
    matches_count = 0
    pace = Pace()
    for asked in call.request.filters:
        await pace.step()
        row = DeleteAclsResponseResult(error_message=None, matching_acls=[])
        rows.append(row)
        try:
            candidates = _candidates(
                authorizer.rules, asked.resource_name_filter, asked.pattern_type_filter
            )
            matching = list(filter(_matcher_of(asked), candidates))
            if matches_count + len(matching) > MATCHES_MAX:
                raise Refused(
                    ErrorCode.POLICY_VIOLATION, f"at most {MATCHES_MAX} matches are answered"
                )
            if not matching:
                await settling.check()
        except Refused as exc:
            row.error_code, row.error_message = exc.code, exc.message
            continue
        matches_count += len(matching)
        for acl in matching:
            told = DeleteAclsResponseAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            row.matching_acls.append(told)
            found.setdefault(acl, []).append(told)
    for some in in_events(found):
        tell = partial(_tell, "access_rule_deleted", some, call.peer.asker)
        if not await _recorded(core, partial(authorizer.delete, some), tell):
            _not_stored(told for acl in some for told in found[acl])
    return rows


def _not_stored(
    rows: Iterable[CreateAclsResponseResult] | Iterable[DeleteAclsResponseAcl],
) -> None:
    for row in rows:
        row.error_code, row.error_message = ErrorCode.KAFKA_STORAGE_ERROR, _NOT_STORED


def _tell(event: str, acls: Iterable[Acl], asker: Mapping[str, str]) -> None:
    """A line for each.  In a lane: of thousands they take their time."""
    for acl in acls:
        log.info(
            event,
            permission=Permission(acl.permission).name.lower(),
            principal=acl.principal,
            host=acl.host,
            operation=Operation(acl.operation).name.lower(),
            resource_type=ResourceType(acl.resource_type).name.lower(),
            pattern=PatternType(acl.pattern_type).name.lower(),
            resource=acl.resource_name,
            **asker,
        )


async def _recorded(core: Core, begin: Callable[[Done], None], tell: Callable[[], None]) -> bool:
    """Have `begin` write an event and tell of it in the log; whether it was written.

    In one step: who asked for it may be gone meanwhile, and what is in force is in the log.
    """
    with trio.CancelScope(shield=True):
        if await recorded(begin) is not None:
            return False
        await core.lanes.run(tell)
    return True


def _rule(asked: CreateAclsRequestCreation) -> Acl:
    """The rule of a request. Raises Refused: it is none."""
    acl = Acl(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        canonical_host(asked.host),
        asked.operation,
        asked.permission_type,
    )
    _check_known(ResourceType, "resource type", acl.resource_type)
    _check_known(Operation, "operation", acl.operation)
    _check_known(Permission, "permission", acl.permission)
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise invalid_request(
            f"a rule is literal or prefixed, pattern type {acl.pattern_type} is neither"
        )
    if not acl.resource_name or not acl.host:
        raise invalid_request("the name of the resource and the host must not be empty")
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise invalid_request(
            f"the only CLUSTER resource is {CLUSTER_NAME!r}, not {acl.resource_name!r}"
        )
    try:
        parse_principal(acl.principal)
    except ValueError as exc:
        raise invalid_request(str(exc)) from exc
    for text in (acl.resource_name, acl.principal, acl.host):
        if len(text.encode()) > TEXT_SIZE_MAX:
            raise invalid_request(f"a name of {len(text.encode())} bytes, limit {TEXT_SIZE_MAX}")
    return acl


def _check_known(kind: type[IntEnum], what: str, number: int) -> None:
    if number in _FILTER_ONLY or number not in set(kind):
        raise invalid_request(f"{what} {number} says nothing")


def _candidates(rules: Rules, name: str | None, pattern_type: int) -> Iterable[Acl]:
    """Every rule that a filter may match: thousands of filters mostly name one rule each."""
    if name is None or pattern_type == PatternType.MATCH:
        return rules.acls
    return rules.named(name)


def _matcher_of(asked: DeleteAclsRequestFilter) -> Callable[[Acl], bool]:
    return matcher(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def matcher(
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> Callable[[Acl], bool]:
    """Whether a rule matches a filter; None and ANY: whatever it is. Raises Refused."""
    for kind, what, number in (
        (ResourceType, "resource type", resource_type),
        (PatternType, "pattern type", pattern_type),
        (Operation, "operation", operation),
        (Permission, "permission", permission),
    ):
        if not number or number not in set(kind):
            raise invalid_request(f"the filter's {what} {number} is unknown")

    # Also as an earlier version has kept it.
    hosts = None if host is None else (host, canonical_host(host))

    def matches(acl: Acl) -> bool:
        return (
            resource_type in (ResourceType.ANY, acl.resource_type)
            and _is_about(acl, name, pattern_type)
            and principal in (None, acl.principal)
            and (hosts is None or acl.host in hosts)
            and operation in (Operation.ANY, acl.operation)
            and permission in (Permission.ANY, acl.permission)
        )

    return matches


def _is_about(acl: Acl, name: str | None, pattern_type: int) -> bool:
    if pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
        return False
    if name is None:
        return True
    if pattern_type != PatternType.MATCH:
        return acl.resource_name == name
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)

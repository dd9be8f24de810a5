"""Quotas over the wire: DescribeClientQuotas, AlterClientQuotas.

| an entity, or a change                                        | answer             |
|---------------------------------------------------------------|--------------------|
| user, client-id or both; ip alone; each once, names or null    | fine               |
| any other kind, none, an empty or too long name                | 42 INVALID_REQUEST |
| a key that its kind has not; to remove it is fine              | 42 INVALID_REQUEST |
| an ip that is no address (a name is none)                      | 42 INVALID_REQUEST |
| a value of 0 or less, or no number                             | 42 INVALID_REQUEST |
| a fraction of a byte or of a connection, or too many of them   | 42 INVALID_REQUEST |
| an entity twice in a request, or a key twice in a change       | 42 INVALID_REQUEST |
| more than ENTITIES_MAX entities                                | 44 POLICY_VIOLATION |
| asked for: a kind that there is not                            | 35 UNSUPPORTED_VERSION |
| asked for: a match that does not go with its name, or its kind | 42 INVALID_REQUEST |

A change is durable and in force when it is answered; what an entity had and is not named stays.
The changes of a request are stored together, STORED_MAX by one sync: after a crash in between an
entity has all that it was to have, or what it had.  An address has one spelling; what an older
version stored under another can be removed under that.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntry,
    ClientQuotaEntity,
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntry,
    DescribeClientQuotasResponseValue,
)
from segbroker.segments.metadata.quotas import ENTITIES_MAX, NAME_SIZE_MAX, Entity, entity_of

from ..access.quota_rules import (
    ADDRESS,
    CLIENT,
    CONNECTIONS,
    CONSUME,
    KEYS_OF_ADDRESSES,
    KEYS_OF_CLIENTS,
    PRODUCE,
    USER,
)
from ..access.quotas import Changes, Quotas
from ..address import canonical_host, is_address
from ..call import Call
from ..core import Core
from ..error_map import STORAGE_FAILURES
from ..loop.pace import Pace
from ..refused import Refused, invalid_request

log = structlog.get_logger()

_EXACT, _DEFAULT, _SPECIFIED = range(3)
_KINDS: Final = frozenset({USER, CLIENT, ADDRESS})
# Of what Kafka gives no fraction, the most that there is of it: a long, an int.
_WHOLE: Final = {PRODUCE: 2.0**63, CONSUME: 2.0**63, CONNECTIONS: 2.0**31 - 1}
STORED_MAX: Final = 1_000
"""Entities that one sync is for."""
_FRACTION_MAX: Final = 1e-6  # a whole number that went through sums of floats


async def describe_client_quotas(
    core: Core, call: Call[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that match every component."""
    request = call.request
    try:
        _check_filter(request.components)
    except Refused as exc:
        return DescribeClientQuotasResponse(
            error_code=exc.code, error_message=exc.message, entries=None
        )
    entries = []
    pace = Pace()
    for entity, values in core.all_quotas.rows.items():
        await pace.step()
        if request.strict and len(entity) != len(request.components):
            continue
        if not all(_matches(dict(entity), one) for one in request.components):
            continue
        entries.append(
            DescribeClientQuotasResponseEntry(
                entity=[
                    ClientQuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                values=[
                    DescribeClientQuotasResponseValue(key=key, value=value)
                    for key, value in sorted(values.items())
                ],
            )
        )
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _check_filter(components: Sequence[DescribeClientQuotasRequestComponent]) -> None:
    """Raises Refused."""
    kinds = [component.entity_type for component in components]
    for component in components:
        kind, how = component.entity_type, component.match_type
        if not kind or kinds.count(kind) > 1:
            raise invalid_request(f"the kind of entity {kind!r} is empty, or named twice")
        if kind not in _KINDS:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"{kind!r} is no kind of entity here")
        if not _EXACT <= how <= _SPECIFIED or (how == _EXACT) != (component.match is not None):
            raise invalid_request(
                f"match {how} of {kind} does not go with the name {component.match!r}"
            )
    if ADDRESS in kinds and len(kinds) > 1:
        raise invalid_request("an ip is an entity of its own")


def _matches(
    entity: dict[str, str | None], component: DescribeClientQuotasRequestComponent
) -> bool:
    if component.entity_type not in entity:
        return False
    name = entity[component.entity_type]
    if component.match_type == _EXACT:
        wanted = component.match
        assert wanted is not None, "checked before"
        is_address = component.entity_type == ADDRESS
        return name == wanted or (is_address and name == canonical_host(wanted))
    return component.match_type == _SPECIFIED or name is None


async def alter_client_quotas(
    core: Core, call: Call[AlterClientQuotasRequest]
) -> AlterClientQuotasResponse:
    """Change the quotas of entities: each alone is right or wrong, and all are stored together."""
    rows = []
    pace = Pace()
    counts: Counter[tuple[tuple[str, str | None], ...]] = Counter()
    last: dict[tuple[tuple[str, str | None], ...], AlterClientQuotasRequestEntry] = {}
    for asked in call.request.entries:
        await pace.step()
        counts[_named(asked)] += 1
        last[_named(asked)] = asked
    async with core.all_quotas.changing:
        after = dict(core.all_quotas.rows)
        told: dict[Entity, list[AlterClientQuotasResponseEntry]] = {}
        for named, asked in last.items():
            await pace.step()
            row = AlterClientQuotasResponseEntry(
                error_message=None,
                entity=asked.entity,
            )
            rows.append(row)
            try:
                if counts[named] > 1:
                    raise invalid_request("an entity is changed once in a request")
                entity, values = _change(after, asked)
            except Refused as exc:
                row.error_code, row.error_message = exc.code, exc.message
                continue
            told.setdefault(entity, []).append(row)
            if values:
                after[entity] = values
            else:
                after.pop(entity, None)
        if not call.request.validate_only:
            await _store(core, after, told, call.peer.asker)
    return AlterClientQuotasResponse(entries=rows)


async def _store(
    core: Core,
    after: Mapping[Entity, Mapping[str, float]],
    told: Mapping[Entity, list[AlterClientQuotasResponseEntry]],
    asker: Mapping[str, str],
) -> None:
    """Have these entities have what they have afterwards, STORED_MAX by one sync."""
    entities = list(told)
    for begin in range(0, len(entities), STORED_MAX):
        some = entities[begin : begin + STORED_MAX]
        changes = {entity: after.get(entity, {}) for entity in some}
        before = core.all_quotas.rows
        changed = {one: has for one, has in changes.items() if has != before.get(one, {})}
        try:
            await core.lanes.run(_store_some, core.all_quotas, changes, changed, asker)
        except STORAGE_FAILURES as exc:
            for entity in some:
                for row in told[entity]:
                    row.error_code, row.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(exc)
        else:
            core.all_quotas.go_by(changes)
        core.quotas = core.all_quotas if core.all_quotas.is_active else None


def _store_some(
    quotas: Quotas, changes: Changes, changed: Changes, asker: Mapping[str, str]
) -> None:
    """Store these, and a line for each that changes something: in one step, for a lane, so that who
    asked for it may be gone meanwhile."""
    quotas.store(changes)
    for entity, values in changed.items():
        log.info("quota_changed", entity=dict(entity), values=dict(values), **asker)


def _named(asked: AlterClientQuotasRequestEntry) -> tuple[tuple[str, str | None], ...]:
    """What a change calls its entity."""
    return tuple((one.entity_type, one.entity_name) for one in asked.entity)


def _change(
    rows: Mapping[Entity, Mapping[str, float]], asked: AlterClientQuotasRequestEntry
) -> tuple[Entity, dict[str, float]]:
    """The entity, and what it has afterwards; `rows`: what there is before. Raises Refused."""
    parts = {one.entity_type: one.entity_name for one in asked.entity}
    if not parts or len(parts) < len(asked.entity) or not parts.keys() <= _KINDS:
        raise invalid_request(f"{sorted(parts)} is no entity: user, client-id, both, or ip")
    if ADDRESS in parts and len(parts) > 1:
        raise invalid_request("an ip is an entity of its own")
    for name in parts.values():
        if name is not None and not 0 < len(name.encode()) <= NAME_SIZE_MAX:
            raise invalid_request(
                f"a name of {len(name.encode())} bytes, allowed are 1 to {NAME_SIZE_MAX}"
            )
    is_known = entity_of(parts) in rows and all(op.remove for op in asked.ops)
    if (host := parts.get(ADDRESS)) is not None and not is_known:
        parts[ADDRESS] = _address(host)
    entity = entity_of(parts)
    known = KEYS_OF_ADDRESSES if ADDRESS in parts else KEYS_OF_CLIENTS
    values = dict(rows.get(entity, {}))
    if len({op.key for op in asked.ops}) < len(asked.ops):
        raise invalid_request("a quota is changed once in a request")
    for op in asked.ops:
        if op.remove:
            values.pop(op.key, None)
            continue
        if op.key not in known:
            whose, there_are = " and ".join(sorted(parts)), ", ".join(sorted(known))
            raise invalid_request(f"{op.key!r} is no quota of {whose}; there are: {there_are}")
        values[op.key] = _checked(op.key, op.value)
    if values and entity not in rows and len(rows) >= ENTITIES_MAX:
        raise Refused(ErrorCode.POLICY_VIOLATION, f"at most {ENTITIES_MAX} entities have quotas")
    return entity, values


def _checked(key: str, value: float) -> float:
    """A value that a quota may have.  Raises Refused."""
    if not math.isfinite(value) or value <= 0:
        raise invalid_request(f"{key} = {value} is not above 0")
    most = _WHOLE.get(key)
    if most is not None and value % 1 > _FRACTION_MAX:
        raise invalid_request(f"{key} = {value} is not a whole number")
    if most is not None and value > most:
        raise invalid_request(f"{key} = {value} is more than {most:.0f}")
    return value


def _address(text: str) -> str:
    """An address as connections are looked up by: 10.0.0.1 for ::ffff:10.0.0.1.  Raises Refused."""
    host = canonical_host(text)
    if not is_address(host):
        raise invalid_request(f"{text!r} is not an IP address")
    return host

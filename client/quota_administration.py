"""What an admin client asks about quotas, as calls (see engine).

    Quota({"user": "alice"}, {"producer_byte_rate": 1_000_000})

An entity is a user, a client id, both, or an address (`ip`); a name of None is the default for all
that have no quota of their own.
"""

from collections.abc import Mapping
from typing import NamedTuple

from segbroker.protocol.messages_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
    AlterClientQuotasResponse,
    ClientQuotaEntity,
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)

from .asking import change, look, refused
from .engine import Call, Engine

_EXACT, _DEFAULT = 0, 1


class Quota(NamedTuple):
    """What an entity may use: by user, client-id, ip; of producer_byte_rate, consumer_byte_rate,
    request_percentage, request_rate, connection_creation_rate (bytes, requests per second).
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


def list_quotas(engine: Engine, entity: Mapping[str, str | None]) -> Call[list[Quota]]:
    """The quotas of entities that have these parts; of all with none given."""
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequestComponent(
                entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
            )
            for kind, name in entity.items()
        ],
        strict=False,
    )
    reply = yield from look(engine, request, DescribeClientQuotasResponse, refused("quotas"))
    return [
        Quota(
            {one.entity_type: one.entity_name for one in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in reply.entries or ()
    ]


def alter_quotas(
    engine: Engine, entity: Mapping[str, str | None], changes: Mapping[str, float | None]
) -> Call[None]:
    """Set quotas of one entity; None takes one away.  Raises InvalidRequest."""
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntry(
                entity=[
                    ClientQuotaEntity(entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ],
                ops=[
                    AlterClientQuotasRequestOp(key=key, value=value or 0.0, remove=value is None)
                    for key, value in changes.items()
                ],
            )
        ],
        validate_only=False,
    )
    about = "quotas of " + ", ".join(f"{k} {n or '(default)'}" for k, n in entity.items())
    yield from change(engine, request, AlterClientQuotasResponse, refused(about))

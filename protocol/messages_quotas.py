"""Quotas of clients: what each user, client id or address may use.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0; what is served is in api_keys.py.

Invariant: every class here gives the same bytes as kafka-python's codec in every version (tested).
"""

from .fields import Bool, Float64, Int8, Int16, Int32, Str
from .schema import Message


class DescribeClientQuotasRequestComponent(Message):
    entity_type: Str
    match_type: Int8
    match: Str | None


class DescribeClientQuotasRequest(Message, key=48, versions=(0, 1), flexible=1):
    """The quotas of entities that match; `strict`: of those without further components."""

    components: list[DescribeClientQuotasRequestComponent]
    strict: Bool


class ClientQuotaEntity(Message):
    entity_type: Str
    entity_name: Str | None


class DescribeClientQuotasResponseValue(Message):
    key: Str
    value: Float64


class DescribeClientQuotasResponseEntry(Message):
    entity: list[ClientQuotaEntity]
    values: list[DescribeClientQuotasResponseValue]


class DescribeClientQuotasResponse(Message, key=48, versions=(0, 1), flexible=1):
    """The quotas by entity."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None
    entries: list[DescribeClientQuotasResponseEntry] | None


class AlterClientQuotasRequestOp(Message):
    key: Str
    value: Float64
    remove: Bool


class AlterClientQuotasRequestEntry(Message):
    entity: list[ClientQuotaEntity]
    ops: list[AlterClientQuotasRequestOp]


class AlterClientQuotasRequest(Message, key=49, versions=(0, 1), flexible=1):
    """Set or remove quotas of entities; a null name is the default of its kind."""

    entries: list[AlterClientQuotasRequestEntry]
    validate_only: Bool


class AlterClientQuotasResponseEntry(Message):
    error_code: Int16 = 0
    error_message: Str | None
    entity: list[ClientQuotaEntity]


class AlterClientQuotasResponse(Message, key=49, versions=(0, 1), flexible=1):
    """One row per entity."""

    throttle_time_ms: Int32 = 0
    entries: list[AlterClientQuotasResponseEntry]

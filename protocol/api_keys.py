"""Which api keys there are, and which versions are served.

Known is what a message class exists for: those ranges can be encoded and decoded.  SERVED is what
the broker answers, and what ApiVersions says.  A request of a version that is not served ends the
connection, but for ApiVersions, which is answered with error 35 in the layout of version 0.

Produce begins at 0 though versions 0 to 2 carry record formats that are refused (error 43 for each
partition): librdkafka before 2.11.1 switches gzip, snappy and lz4 off when the minimum is 3
(librdkafka issue 4956, KAFKA-18659).

Why the lower ends are not higher: librdkafka before 2.11.1 wants exact versions inside the ranges
(Produce 3 and 7, Fetch 4 and 10, FindCoordinator 0, ListOffsets 1, InitProducerId 0); 2.6.0 sends
Fetch 12 whatever is said; aiokafka up to 0.12 sends Metadata 0 before it asks for versions.

segbroker's own keys (vendor.py) are advertised only to clients whose software name begins with
"segbroker".

Invariants, checked on import: SERVED lies within what is known, every request has its response
with the same versions.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from . import (
    messages_admin,
    messages_consumer_groups,
    messages_core,
    messages_groups,
    messages_placement,
    messages_quotas,
    messages_security,
    messages_share_groups,
    messages_streams_groups,
    messages_transactions,
)
from .errors import ErrorCode, UnsupportedVersion
from .messages_core import (
    ApiVersionsResponse,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseKey,
    ApiVersionsResponseSupportedFeature,
)
from .schema import Message
from .vendor import VendorKey

__all__ = [
    "FEATURES",
    "SERVED",
    "SERVED_VENDOR",
    "ApiKey",
    "ApiVersionRange",
    "api_name",
    "api_versions_response",
    "is_flexible",
    "is_served",
    "is_vendor",
    "request_class",
    "response_class",
    "response_header_version",
]

VENDOR_KEY_FIRST: Final = 10000


class ApiKey(IntEnum):
    """The Kafka apis that messages exist for."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiVersionRange(NamedTuple):
    """Versions from `min` to `max`, both included."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max


SERVED: Final[dict[ApiKey, ApiVersionRange]] = {
    ApiKey.PRODUCE: ApiVersionRange(0, 13),
    ApiKey.FETCH: ApiVersionRange(4, 18),
    ApiKey.LIST_OFFSETS: ApiVersionRange(1, 11),
    ApiKey.METADATA: ApiVersionRange(0, 13),
    ApiKey.OFFSET_COMMIT: ApiVersionRange(2, 10),
    ApiKey.OFFSET_FETCH: ApiVersionRange(1, 10),
    ApiKey.FIND_COORDINATOR: ApiVersionRange(0, 6),
    ApiKey.JOIN_GROUP: ApiVersionRange(0, 9),
    ApiKey.HEARTBEAT: ApiVersionRange(0, 4),
    ApiKey.LEAVE_GROUP: ApiVersionRange(0, 5),
    ApiKey.SYNC_GROUP: ApiVersionRange(0, 5),
    ApiKey.DESCRIBE_GROUPS: ApiVersionRange(0, 6),
    ApiKey.LIST_GROUPS: ApiVersionRange(0, 5),
    ApiKey.SASL_HANDSHAKE: ApiVersionRange(0, 1),
    ApiKey.API_VERSIONS: ApiVersionRange(0, 4),
    ApiKey.CREATE_TOPICS: ApiVersionRange(2, 7),
    ApiKey.DELETE_TOPICS: ApiVersionRange(1, 6),
    ApiKey.DELETE_RECORDS: ApiVersionRange(0, 2),
    ApiKey.INIT_PRODUCER_ID: ApiVersionRange(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiVersionRange(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiVersionRange(0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiVersionRange(0, 4),
    ApiKey.END_TXN: ApiVersionRange(0, 5),
    ApiKey.WRITE_TXN_MARKERS: ApiVersionRange(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: ApiVersionRange(0, 5),
    ApiKey.DESCRIBE_ACLS: ApiVersionRange(1, 3),
    ApiKey.CREATE_ACLS: ApiVersionRange(1, 3),
    ApiKey.DELETE_ACLS: ApiVersionRange(1, 3),
    ApiKey.DESCRIBE_CONFIGS: ApiVersionRange(1, 4),
    ApiKey.ALTER_CONFIGS: ApiVersionRange(0, 2),
    ApiKey.SASL_AUTHENTICATE: ApiVersionRange(0, 2),
    ApiKey.CREATE_PARTITIONS: ApiVersionRange(0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiVersionRange(0, 1),
    ApiKey.DELETE_GROUPS: ApiVersionRange(0, 2),
    ApiKey.OFFSET_DELETE: ApiVersionRange(0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiVersionRange(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiVersionRange(0, 1),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiVersionRange(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: ApiVersionRange(1, 5),
    ApiKey.ELECT_LEADERS: ApiVersionRange(0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiVersionRange(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiVersionRange(0, 0),
    ApiKey.DESCRIBE_QUORUM: ApiVersionRange(0, 2),
    ApiKey.UPDATE_FEATURES: ApiVersionRange(0, 2),
    ApiKey.DESCRIBE_CLUSTER: ApiVersionRange(0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiVersionRange(0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiVersionRange(0, 1),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiVersionRange(1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiVersionRange(1, 1),
    ApiKey.LIST_CONFIG_RESOURCES: ApiVersionRange(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiVersionRange(0, 0),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiVersionRange(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiVersionRange(0, 0),
    ApiKey.DESCRIBE_PRODUCERS: ApiVersionRange(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiVersionRange(0, 0),
    ApiKey.LIST_TRANSACTIONS: ApiVersionRange(0, 2),
    ApiKey.SHARE_FETCH: ApiVersionRange(1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: ApiVersionRange(1, 2),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ApiVersionRange(0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: ApiVersionRange(0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 0),
}
"""What the broker answers, and what ApiVersions says to everybody."""

SERVED_VENDOR: Final[dict[VendorKey, ApiVersionRange]] = {
    VendorKey.SERVER_INFO: ApiVersionRange(0, 0),
    VendorKey.PARTITION_STATISTICS: ApiVersionRange(0, 0),
    VendorKey.FLOORS: ApiVersionRange(0, 0),
    VendorKey.GAPS: ApiVersionRange(0, 0),
    VendorKey.COMMIT_BATCH: ApiVersionRange(0, 0),
    VendorKey.QUERY_STATE: ApiVersionRange(0, 0),
    VendorKey.FORGET_TRANSACTIONS: ApiVersionRange(0, 0),
}
"""The same, to segbroker's own clients alone."""


def _classes(suffix: str) -> dict[int, type[Message]]:
    modules = (
        messages_core,
        messages_admin,
        messages_groups,
        messages_consumer_groups,
        messages_placement,
        messages_transactions,
        messages_security,
        messages_quotas,
        messages_share_groups,
        messages_streams_groups,
    )
    return {
        value.message_key: value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith(suffix) and isinstance(value, type) and issubclass(value, Message)
        if value.message_key >= 0
    }


_REQUESTS: Final = _classes("Request")
_RESPONSES: Final = _classes("Response")


def _check() -> None:
    assert _REQUESTS.keys() == _RESPONSES.keys() == set(ApiKey), "an api without both messages"
    for key, request in _REQUESTS.items():
        response = _RESPONSES[key]
        assert request.message_versions == response.message_versions, (
            f"{request.__name__} and its response differ"
        )
        assert request.flexible_from == response.flexible_from, (
            f"{request.__name__} and its response differ"
        )
    for api, (first, last) in SERVED.items():
        known_first, known_last = _REQUESTS[api].message_versions
        assert known_first <= first <= last <= known_last, f"{api.name} is served, but not known"


_check()


def is_vendor(key: int) -> bool:
    """Whether `key` is one of segbroker's own, with a msgpack body."""
    return key >= VENDOR_KEY_FIRST


def is_served(key: int, version: int) -> bool:
    """Whether the broker answers `version` of `key`; false for numbers that mean nothing."""
    versions = _SERVED_BY_NUMBER.get(key)
    return versions is not None and versions.min <= version <= versions.max


def api_name(key: int) -> str:
    """What Kafka calls an api: OffsetCommit; its number where there is none."""
    if key in SERVED_VENDOR:
        return "".join(word.capitalize() for word in VendorKey(key).name.split("_"))
    response = _RESPONSES.get(key)
    return f"api key {key}" if response is None else response.__name__.removesuffix("Response")


def why_unserved(key: int, version: int) -> str:
    """Of what `is_served` says no to: a sentence for a log."""
    versions = _SERVED_BY_NUMBER.get(key)
    why = "there is no such api here"
    if versions is not None:
        why = f"{api_name(key)} is, in versions {versions.min} to {versions.max}"
    return f"api key {key} version {version} is not served: {why}"


_SERVED_BY_NUMBER: Final[dict[int, ApiVersionRange]] = {
    int(key): versions for served in (SERVED, SERVED_VENDOR) for key, versions in served.items()
}


def request_class(key: int) -> type[Message]:
    """The request of `key`.  Raises UnsupportedVersion for a key without a message."""
    try:
        return _REQUESTS[key]
    except KeyError:
        raise UnsupportedVersion(f"api key {key} is not known") from None


def response_class(key: int) -> type[Message]:
    """The response of `key`.  Raises UnsupportedVersion for a key without a message."""
    try:
        return _RESPONSES[key]
    except KeyError:
        raise UnsupportedVersion(f"api key {key} is not known") from None


_FLEXIBLE: Final = frozenset(
    (key, version)
    for key, request in _REQUESTS.items()
    for version in range(request.flexible_from, request.message_versions[1] + 1)
)


def is_flexible(key: int, version: int) -> bool:
    """Whether `version` of `key` has compact lengths and tag sections.

    False for vendor keys, and for what is not known here: nobody can say.
    """
    return (key, version) in _FLEXIBLE


def response_header_version(key: int, version: int) -> int:
    """0: correlation id alone; 1: and a tag section.  ApiVersions always 0: read before known."""
    return 1 if key != ApiKey.API_VERSIONS and is_flexible(key, version) else 0


FEATURES: Final[dict[str, ApiVersionRange]] = {
    "group.version": ApiVersionRange(0, 1),
    "metadata.version": ApiVersionRange(30, 30),
    "share.version": ApiVersionRange(0, 1),
    "streams.version": ApiVersionRange(0, 1),
    "transaction.version": ApiVersionRange(2, 2),
}
"""Levels that a broker can have.  group.version 1: KIP-848's groups.  metadata.version 30: 4.3-IV0;
it is by this that programs tell which Kafka a cluster is like.  share.version 1: KIP-932's groups.
streams.version 1: KIP-1071's.  transaction.version 2: KIP-890, clients send no AddPartitionsToTxn
and go on with another epoch after each transaction."""
_HIGHEST: Final = {name: levels.max for name, levels in FEATURES.items()}
FEATURES_SINCE: Final = 3
LEVEL_0_SINCE: Final = 4
"""Who asks in ApiVersions 3 cannot read a feature whose least level is 0 (KAFKA-17011)."""


def _features(version: int, levels: Mapping[str, int]) -> dict[str, Any]:
    """Those fields of the answer in which features are; before version 3 there are none."""
    if version < FEATURES_SINCE:
        return {}
    return {
        "supported_features": [
            ApiVersionsResponseSupportedFeature(name=name, min_version=low, max_version=high)
            for name, (low, high) in FEATURES.items()
            if low or version >= LEVEL_0_SINCE
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            ApiVersionsResponseFinalizedFeature(
                name=name, max_version_level=level, min_version_level=level
            )
            for name, level in levels.items()
            if level
        ],
    }


def api_versions_response(
    version: int, *, vendor: bool, levels: Mapping[str, int] = _HIGHEST
) -> tuple[ApiVersionsResponse, int]:
    """The answer to ApiVersions `version`, and the version to encode it in.

    A version that is not served gets error 35 in version 0, with the list all the same: the
    client then asks again with one that is.  `vendor`: also segbroker's own keys (the client's
    software name begins with `segbroker`).  `levels`: those of FEATURES; one of level 0
    is not named, as in Kafka.
    """
    served = version in SERVED[ApiKey.API_VERSIONS]
    ranges: list[tuple[int, ApiVersionRange]] = [*SERVED.items()]
    if vendor:
        ranges += SERVED_VENDOR.items()
    response = ApiVersionsResponse(
        **(_features(version, levels) if served else {}),
        error_code=ErrorCode.NONE if served else ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersionsResponseKey(api_key=int(key), min_version=low, max_version=high)
            for key, (low, high) in sorted(ranges)
        ],
    )
    return response, version if served else 0

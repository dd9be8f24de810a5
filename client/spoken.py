"""What this client says to a broker: its requests, and which versions of each it speaks.

    Request     a Kafka message; one AtNewest, or ById; a VendorRequest, whose body is a map
    Reply       a Kafka message, a VendorReply, or the error for which there is none

A version is raised here and nowhere else, once what it adds is meant: of two sides' ranges the
highest common version is spoken.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey, ApiVersionRange, is_vendor
from segbroker.protocol.schema import Message
from segbroker.protocol.vendor import VendorKey

from .errors import SegbrokerError

# Of each api, what this client can speak and means.  From 10 on Metadata tells topic ids; what goes
# by them is spoken by who knows them, see BY_ID.
SPOKEN: Final[dict[ApiKey | VendorKey, ApiVersionRange]] = {
    ApiKey.PRODUCE: ApiVersionRange(3, 9),
    ApiKey.FETCH: ApiVersionRange(4, 12),
    ApiKey.LIST_OFFSETS: ApiVersionRange(1, 7),
    ApiKey.METADATA: ApiVersionRange(1, 12),
    ApiKey.SASL_HANDSHAKE: ApiVersionRange(1, 1),
    ApiKey.API_VERSIONS: ApiVersionRange(0, 4),
    ApiKey.CREATE_TOPICS: ApiVersionRange(2, 7),
    ApiKey.DELETE_TOPICS: ApiVersionRange(1, 5),
    ApiKey.DELETE_RECORDS: ApiVersionRange(0, 2),
    ApiKey.INIT_PRODUCER_ID: ApiVersionRange(0, 4),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiVersionRange(2, 4),
    ApiKey.DESCRIBE_CONFIGS: ApiVersionRange(1, 4),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiVersionRange(0, 1),
    ApiKey.DESCRIBE_ACLS: ApiVersionRange(1, 3),
    ApiKey.CREATE_ACLS: ApiVersionRange(1, 3),
    ApiKey.DELETE_ACLS: ApiVersionRange(1, 3),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiVersionRange(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiVersionRange(0, 1),
    ApiKey.SASL_AUTHENTICATE: ApiVersionRange(0, 2),
    ApiKey.CREATE_PARTITIONS: ApiVersionRange(0, 3),
    ApiKey.DESCRIBE_CLUSTER: ApiVersionRange(0, 1),
    ApiKey.FIND_COORDINATOR: ApiVersionRange(0, 4),
    ApiKey.OFFSET_COMMIT: ApiVersionRange(2, 9),
    ApiKey.OFFSET_FETCH: ApiVersionRange(2, 9),
    ApiKey.JOIN_GROUP: ApiVersionRange(2, 9),
    ApiKey.SYNC_GROUP: ApiVersionRange(0, 5),
    ApiKey.HEARTBEAT: ApiVersionRange(0, 4),
    ApiKey.LEAVE_GROUP: ApiVersionRange(0, 5),
    ApiKey.LIST_GROUPS: ApiVersionRange(0, 5),
    ApiKey.DESCRIBE_GROUPS: ApiVersionRange(0, 5),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiVersionRange(0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiVersionRange(0, 1),
    ApiKey.DELETE_GROUPS: ApiVersionRange(0, 2),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiVersionRange(1, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: ApiVersionRange(0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 0),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiVersionRange(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiVersionRange(0, 0),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiVersionRange(0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiVersionRange(0, 3),
    ApiKey.TXN_OFFSET_COMMIT: ApiVersionRange(0, 4),
    ApiKey.END_TXN: ApiVersionRange(0, 4),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiVersionRange(1, 1),
    ApiKey.SHARE_FETCH: ApiVersionRange(1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: ApiVersionRange(1, 2),
    VendorKey.SERVER_INFO: ApiVersionRange(0, 0),
    VendorKey.PARTITION_STATISTICS: ApiVersionRange(0, 0),
    VendorKey.FLOORS: ApiVersionRange(0, 0),
    VendorKey.COMMIT_BATCH: ApiVersionRange(0, 0),
    VendorKey.QUERY_STATE: ApiVersionRange(0, 0),
    VendorKey.FORGET_TRANSACTIONS: ApiVersionRange(0, 0),
}

# What a request AtNewest goes up to: these versions do more than the ones before, see transactions.
NEWEST: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.END_TXN: 5,
}

# What a request ById is spoken in: topics have no names there.
BY_ID: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 13,
    ApiKey.FETCH: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
}


@dataclass(frozen=True, slots=True)
class AtNewest:
    """A request whose newest versions mean something else, and that is meant."""

    message: Message

    @property
    def message_key(self) -> int:
        return self.message.message_key


@dataclass(frozen=True, slots=True)
class ById:
    """A request that has the ids of all its topics, and their names: these are for a broker that
    does not take it by id."""

    message: Message | AtNewest

    @property
    def message_key(self) -> int:
        return self.message.message_key


@dataclass(frozen=True, slots=True)
class VendorRequest:
    """A request of segbroker's own: its body is a map."""

    message_key: VendorKey
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VendorReply:
    body: Mapping[str, Any]


Request = Message | VendorRequest | AtNewest | ById
Reply = Message | VendorReply | SegbrokerError
OnReply = Callable[[Reply, int], None]
Buffer = bytes | bytearray | memoryview


def key_of(api_key: int) -> ApiKey | VendorKey:
    """The member of its enumeration."""
    return VendorKey(api_key) if is_vendor(api_key) else ApiKey(api_key)

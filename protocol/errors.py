"""The error table of the wire, and what this room raises.

One row per error code of the Kafka protocol (kafka-clients 4.3.1, -1 to 133): its number, its
meaning, and whether the same request may succeed later without any change.  Replies
carry the number as an int16; 0 is success.  The broker translates its own errors to these codes in
one place, the client translates codes to exception classes in one place; neither needs another
list of numbers.

Invariant: every code from -1 to LAST_CODE is here, each with a description, but for 99, which Kafka
never assigned; checked on import.

The exceptions of this room say whose fault it was: RemoteProtocolError the peer's (close the
connection), LocalProtocolError ours (a value that the wire cannot carry), UnsupportedVersion
nobody's (the two sides have no version of an api in common, or a version was not negotiated).
"""

from enum import IntEnum, unique

__all__ = [
    "ErrorCode",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "UnsupportedVersion",
]

LAST_CODE = 133


class ProtocolError(Exception):
    """The bytes on a connection and the protocol do not agree."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol does not allow."""


class TooManyItems(RemoteProtocolError):
    """A message has more items than the reader wants to make objects of."""


class NotKafka(RemoteProtocolError):
    """The peer speaks another protocol: `what` its first bytes look like."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this is not Kafka's protocol: it begins like {what}")
        self.what = what


class LocalProtocolError(ProtocolError):
    """We were asked to send something that the protocol cannot carry."""


class UnsupportedVersion(ProtocolError):
    """An api key or a version of it that is not served, or not known here."""


@unique
class ErrorCode(IntEnum):
    """A Kafka error code: an int with `retryable` and `description`."""

    retryable: bool
    description: str

    def __new__(cls, code: int, retryable: bool = False, description: str = "") -> "ErrorCode":
        member = int.__new__(cls, code)
        member._value_ = code
        member.retryable = retryable
        member.description = description
        return member

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """The row of `code`; UNKNOWN_SERVER_ERROR for a number newer than this table."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    # fmt: off
    UNKNOWN_SERVER_ERROR = -1, False, "The server met an error that has no code"
    NONE = 0, False, "Success"
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is below the log start or above the log end"
    CORRUPT_MESSAGE = 2, True, "A batch has a wrong checksum or length"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "There is no such topic or partition here"
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader yet"
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not serve the partition"
    REQUEST_TIMED_OUT = 7, True, "The request was not done within its time"
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available"
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available"
    MESSAGE_TOO_LARGE = 10, False, "A batch is larger than the topic's max.message.bytes"
    STALE_CONTROLLER_EPOCH = 11, False, "The controller moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of a committed offset is too long"
    NETWORK_EXCEPTION = 13, True, "The server disconnected before a reply came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading"
    COORDINATOR_NOT_AVAILABLE = 15, True, "There is no coordinator yet"
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name is not valid, or the topic is internal"
    RECORD_LIST_TOO_LARGE = 18, False, "The batches together are larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas in sync than required"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, to fewer replicas than required"
    INVALID_REQUIRED_ACKS = 21, False, "acks is neither 0, 1 nor -1"
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's present one"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The group's members have no protocol in common"
    INVALID_GROUP_ID = 24, False, "The group id is not valid"
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member"
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the allowed range"
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The committed offset is too large to store"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not allowed on this cluster"
    INVALID_TIMESTAMP = 32, False, "A timestamp or timestamp type that the topic refuses"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not offered"
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of authentication"
    UNSUPPORTED_VERSION = 35, False, "This version of the api is not served"
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists"
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor cannot be met"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid"
    INVALID_CONFIG = 40, False, "A configuration key or value is not valid"
    NOT_CONTROLLER = 41, True, "This broker is not the controller"
    INVALID_REQUEST = 42, False, "The request contradicts itself"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The record format is too old for this"
    POLICY_VIOLATION = 44, False, "A policy of the server refuses the parameters"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number is not the next"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was seen before"
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is older than the known one"
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state for this"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id is not this transactional id's"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is larger than allowed"
    CONCURRENT_TRANSACTIONS = 51, True, "The previous transaction is still being completed"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "A newer transaction coordinator took over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not allowed for this transactional id"
    SECURITY_DISABLED = 54, False, "No security feature is switched on"
    OPERATION_NOT_ATTEMPTED = 55, False, "Not tried, because another part of it failed"
    KAFKA_STORAGE_ERROR = 56, True, "The disk failed: the partition cannot be written or read"
    LOG_DIR_NOT_FOUND = 57, False, "There is no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "Wrong credentials"
    UNKNOWN_PRODUCER_ID = 59, False, "Nothing is known of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, False, "A partition reassignment is under way"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not switched on"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token is somebody else's"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "No token requests on this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not allowed for this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal type is not supported"
    NON_EMPTY_GROUP = 68, False, "The group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session is at another epoch"
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener that matches"
    TOPIC_DELETION_DISABLED = 73, False, "Topics may not be deleted here"
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch is older than the partition's"
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch is newer than the partition's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "This version cannot carry the compression codec"
    STALE_BROKER_EPOCH = 77, False, "The broker epoch has changed"
    OFFSET_NOT_AVAILABLE = 78, True, "The high watermark has not caught up yet"
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id of this reply"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full"
    FENCED_INSTANCE_ID = 82, False, "Another member took over this group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No eligible leader is available"
    ELECTION_NOT_NEEDED = 84, True, "The partition has its leader already"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No partition reassignment is under way"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed: its offsets stay"
    INVALID_RECORD = 87, False, "A record or batch breaks a rule of the topic"
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offsets of an open transaction are pending"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota was exceeded"
    PRODUCER_FENCED = 90, False, "A newer producer has this transactional id"
    RESOURCE_NOT_FOUND = 91, False, "There is no such resource"
    DUPLICATE_RESOURCE = 92, False, "The resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, False, "The voters of both sides differ"
    INVALID_UPDATE_VERSION = 95, False, "The update version is not valid"
    FEATURE_UPDATE_FAILED = 96, False, "Features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "There is no topic with this id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "The broker id is in use"
    BROKER_ID_NOT_REGISTERED = 102, False, "The broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, True, "The topic of this name has another id"
    INCONSISTENT_CLUSTER_ID = 104, False, "This is another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and ids"
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the set in sync"
    NEW_LEADER_ELECTED = 108, False, "The change made another broker the leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset lies in the cold tier only"
    FENCED_MEMBER_EPOCH = 110, False, "The member epoch is older: join again"
    UNRELEASED_INSTANCE_ID = 111, False, "The instance id is held by a live member"
    UNSUPPORTED_ASSIGNOR = 112, False, "The assignor is not offered"
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is older: take the new one, try again"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "The controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not known"
    TELEMETRY_TOO_LARGE = 118, False, "More telemetry than the server takes"
    INVALID_REGISTRATION = 119, False, "The controller refuses the registration"
    TRANSACTION_ABORTABLE = 120, False, "The transaction can only be aborted"
    INVALID_RECORD_STATE = 121, False, "The record's state does not allow the acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, True, "There is no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session is at another epoch"
    FENCED_STATE_EPOCH = 124, False, "The state epoch is older than the known one"
    INVALID_VOTER_KEY = 125, False, "The voter key does not match"
    DUPLICATE_VOTER = 126, False, "The voter is in the set already"
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression cannot be compiled"
    REBOOTSTRAP_REQUIRED = 129, False, "The client has to begin with its bootstrap servers again"
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology of the streams application is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The epoch of the topology is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "The epoch of the topology is older than the known one"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "There are as many share sessions as may be"
    # fmt: on


def _by_code() -> dict[int, ErrorCode]:
    table = {int(row): row for row in ErrorCode}
    assert table.keys() == set(range(-1, LAST_CODE + 1)) - {99}, "a code is missing or unknown"
    for row in ErrorCode:
        assert row.description, f"{row.name} does not say what it means"
    return table


_BY_CODE = _by_code()

"""What the client raises: one table from wire code to exception class.

    SegbrokerError
      ClosedError          you closed it (or never opened it)
      BusyError            two at once, or a *_nowait call that would have to wait
      BrokenError          the world: connection, time, a peer that talks nonsense
        ConnectionLost  BrokerUnreachable  TimedOut  PeerError  UnsupportedByBroker  CorruptBatch
        AuthenticationFailed  TlsFailed  TokenUnavailable
      BrokerError          the broker answered with an error code; one subclass per code
      NoTransaction        sent outside of a transaction; TransactionAborted: it was given up
      DeliveryFailed       records that the broker did not acknowledge, with the records
      GapError             records that the log has lost, before they were read or after

`retryable` says whether the same call may succeed later without anybody changing anything.  The
client itself retries those until the deadline of the call; what reaches the caller is final.

Invariant, checked on import: each BrokerError subclass has its own code and says in its docstring
what it means.  A code without a class of its own is raised as UnknownServerError with its name in
the message, or its number where it has none here, and is worth as many tries as its row in
ErrorCode says: no answer is lost because the broker is newer than this table.

The broker's half of this table is where its own errors become codes; both use
segbroker.protocol.errors.ErrorCode, so a number is written down once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from segbroker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from .records import Gap

OPENED_ONCE = "it was opened and closed before; a client can be opened only once: make another"
NOT_PICKLED = "a client cannot be pickled or copied: make one in each process that uses it"
WAS_CLOSED = "the client was closed"
OPEN_ALREADY = "it is open already: use a `with` block or open(), not both"
# How many undelivered records a DeliveryFailed names in its message; all are in `.undelivered`.
NAMED_MAX = 3


class SegbrokerError(Exception):
    """Everything that this client raises on purpose."""

    retryable: bool = False


class ClosedError(SegbrokerError):
    """Your doing: the client was closed, or is used outside its `with` block."""


class BusyError(SegbrokerError):
    """Two at once, or a `_nowait` call that would have had to wait."""

    retryable = True


class BrokenError(SegbrokerError):
    """The world's doing: the network, the clock, or a peer that does not follow the protocol."""


class _Unanswered(BrokenError):
    """`wants`: what the listener may want that ends connections so ("a login"); "": not known.
    `may_be_done`: the request was sent, or some of it."""

    def __init__(self, message: str = "", *, wants: str = "", may_be_done: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.wants = wants
        self.may_be_done = may_be_done

    def __str__(self) -> str:
        if not self.wants:
            return self.message
        return f"{self.message}; does this port want {self.wants} (security=)?"


class ConnectionLost(_Unanswered):
    """The connection ended before the reply came; the request may or may not have been done, unless
    `may_be_done` is false: then it was not sent."""

    retryable = True


class BrokerUnreachable(_Unanswered):
    """No broker could be reached until the deadline: nothing was sent."""

    retryable = True

    def __init__(self, message: str = "", *, wants: str = "") -> None:
        super().__init__(message, wants=wants, may_be_done=False)


class TimedOut(_Unanswered):
    """The deadline of the call passed, or of a request, or of connecting (`may_be_done` is false
    then: it was not sent).  Its cause is what went wrong last, if anything was answered."""

    retryable = True


class PeerError(BrokenError):
    """The other side sent something that the protocol does not allow."""


class NoBroker(PeerError):
    """What listens there speaks another protocol than Kafka's."""


class UnsupportedByBroker(BrokenError):
    """The broker has no version of a request that this client can speak."""


class AuthenticationFailed(BrokenError):
    """The broker refused the login, or could not prove that it knows the password."""


class TokenUnavailable(BrokenError):
    """The token for a login cannot be got now: its issuer is away, or its provider failed."""

    retryable = True


class TlsFailed(BrokenError):
    """TLS with the broker is not possible: its certificate is not trusted, ours is not, or it
    does not speak TLS on this port.
    """


class CorruptBatch(BrokenError):
    """A batch was read whose checksum or structure is wrong; nothing of it is handed out."""


class GapError(SegbrokerError):
    """Offsets were lost; `gap` has which and why.  The position is behind them: reading goes on."""

    def __init__(self, gap: "Gap") -> None:
        self.gap = gap
        why = LOSS_WORDS.get(gap.reason, gap.reason)
        if gap.from_offset < gap.to_offset:
            words = f"offsets [{gap.from_offset}, {gap.to_offset}) are lost: {why}"
        else:
            words = f"{why}; all below {gap.from_offset} was read, nothing is left to lose"
        super().__init__(f"{gap.topic}-{gap.partition}: {words}")

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process hands it over; without this its message would stand for the gap.
        return type(self), (self.gap,), self.__dict__


class TopicRecreated(GapError):
    """The topic was deleted and made anew: offsets of the old one mean nothing in the new one."""


# What a person reads for a Gap's reason.
LOSS_WORDS = {
    "lost_tail": "the log ended below them: after a crash, or because it was cut or an older one"
    " put back",
    "corruption": "they were damaged on disk",
    "cap": "they were evicted because the log was full",
    "ttl": "they expired by age",
    "recreated": "the topic was deleted and another one of this name was made",
    "unknown": "they are not in the log any more, and the broker does not say why",
}


class Undelivered(NamedTuple):
    """A record that was sent and not acknowledged."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    error: SegbrokerError


def say_undelivered(count: int, first: Sequence[Undelivered]) -> str:
    """What is said of `count` records, of which these, NAMED_MAX of them or all, are named."""
    named = "; ".join(
        f"{record.topic}-{record.partition} value of {len(record.value or b'')} bytes: "
        f"{record.error}"
        for record in first
    )
    records, more = "record was" if count == 1 else "records were", count - len(first)
    rest = f"; and {more} more" if more else ""
    return f"{count} {records} not delivered: {named}{rest}"


class DeliveryFailed(SegbrokerError):
    """Records were not acknowledged.  `undelivered` has each with its error, in the order sent.

    A BrokerError means that the broker does not have the record.  Any other error leaves that open:
    TimedOut, ConnectionLost, also where a BrokerError came to a later attempt; ClosedError.
    """

    def __init__(self, undelivered: Sequence[Undelivered]) -> None:
        self.undelivered = list(undelivered)
        count = len(self.undelivered)
        super().__init__(say_undelivered(count, self.undelivered[:NAMED_MAX]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.undelivered,), self.__dict__


class FailedAcknowledgement(NamedTuple):
    """Records of a partition whose acknowledgement does not hold."""

    topic: str
    partition: int
    offsets: tuple[int, ...]
    kind: str
    """"accept", "release", "reject" or "renew"."""
    error: SegbrokerError


class AcknowledgeFailed(SegbrokerError):
    """Acknowledgements of a share group's records failed; `failed` has which, and why.

    They are handed out again, to this member or another one.  After TimedOut, ConnectionLost and
    ClosedError nobody knows whether it holds; any other error means that it does not.
    """

    def __init__(self, failed: Sequence[FailedAcknowledgement]) -> None:
        self.failed = list(failed)
        count = sum(len(each.offsets) for each in self.failed)
        named = "; ".join(
            f"{each.kind} of {each.topic}-{each.partition}, {_offsets(each.offsets)}: {each.error}"
            for each in self.failed[:NAMED_MAX]
        )
        more = len(self.failed) - NAMED_MAX
        rest = f"; and {more} more" if more > 0 else ""
        what = "1 acknowledgement" if count == 1 else f"{count} acknowledgements"
        super().__init__(f"{what} failed: {named}{rest}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failed,), self.__dict__


def _offsets(offsets: Sequence[int]) -> str:
    if len(offsets) == 1:
        return f"offset {offsets[0]}"
    return f"{len(offsets)} offsets from {offsets[0]} to {offsets[-1]}"


class NoTransaction(SegbrokerError):
    """Your doing: sent outside of a transaction, or a transaction begun within one."""


class TransactionAborted(SegbrokerError):
    """Nothing of the transaction will be seen: it was given up, by you or by the broker."""


class BrokerError(SegbrokerError):
    """The broker answered with an error code."""

    code: ErrorCode

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.code.description)


# One class per code that a client can meet.  The docstring is what the broker means by it.
# fmt: off
class UnknownServerError(BrokerError):
    """The broker met an error that has no code, or one newer than this client."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
class OffsetOutOfRange(BrokerError):
    """The offset is below the log start or above the log end."""
    code = ErrorCode.OFFSET_OUT_OF_RANGE
class CorruptMessage(BrokerError):
    """The broker found a wrong checksum or length in a batch."""
    code = ErrorCode.CORRUPT_MESSAGE
class UnknownTopicOrPartition(BrokerError):
    """There is no such topic or partition on the broker."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
class LeaderNotAvailable(BrokerError):
    """The partition has no leader yet."""
    code = ErrorCode.LEADER_NOT_AVAILABLE
class NotLeaderOrFollower(BrokerError):
    """This broker does not serve the partition (any more)."""
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
class RequestTimedOut(BrokerError):
    """The broker could not do the request within its time."""
    code = ErrorCode.REQUEST_TIMED_OUT
class ReplicaNotAvailable(BrokerError):
    """The replica is not available."""
    code = ErrorCode.REPLICA_NOT_AVAILABLE
class MessageTooLarge(BrokerError):
    """The batch is larger than the topic's max.message.bytes."""
    code = ErrorCode.MESSAGE_TOO_LARGE
class CoordinatorLoadInProgress(BrokerError):
    """The coordinator is still loading its state."""
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
class CoordinatorNotAvailable(BrokerError):
    """There is no coordinator (yet)."""
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
class NotCoordinator(BrokerError):
    """This broker is not the coordinator."""
    code = ErrorCode.NOT_COORDINATOR
class UnknownMemberId(BrokerError):
    """The group does not know the member, or has members that stand in the way."""
    code = ErrorCode.UNKNOWN_MEMBER_ID


class NonEmptyGroup(BrokerError):
    """The group has members."""
    code = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFound(BrokerError):
    """There is no such group."""
    code = ErrorCode.GROUP_ID_NOT_FOUND


class OffsetMetadataTooLarge(BrokerError):
    """The metadata of a committed offset is too long."""
    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
class IllegalGeneration(BrokerError):
    """The group has another generation by now: what was assigned in the old one is lost."""
    code = ErrorCode.ILLEGAL_GENERATION
class InconsistentGroupProtocol(BrokerError):
    """The group's members and this one have no assignment strategy in common."""
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
class InvalidGroupId(BrokerError):
    """The group id is not valid."""
    code = ErrorCode.INVALID_GROUP_ID
class InvalidSessionTimeout(BrokerError):
    """The broker does not take this session_timeout_ms."""
    code = ErrorCode.INVALID_SESSION_TIMEOUT
class RebalanceInProgress(BrokerError):
    """The group is rebalancing."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
class MemberIdRequired(BrokerError):
    """The broker gives a member id to join with; the client does that itself."""
    code = ErrorCode.MEMBER_ID_REQUIRED
class GroupMaxSizeReached(BrokerError):
    """The group is full."""
    code = ErrorCode.GROUP_MAX_SIZE_REACHED
class FencedInstanceId(BrokerError):
    """Another member took over this instance_id."""
    code = ErrorCode.FENCED_INSTANCE_ID
class UnstableOffsetCommit(BrokerError):
    """Offsets of a transaction that is still open are pending."""
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT
class InvalidTxnState(BrokerError):
    """The transaction is not in a state for this."""
    code = ErrorCode.INVALID_TXN_STATE
class InvalidProducerIdMapping(BrokerError):
    """The transactional id has another producer id by now."""
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
class InvalidTransactionTimeout(BrokerError):
    """The broker does not take this transaction_timeout_ms."""
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
class ConcurrentTransactions(BrokerError):
    """The previous transaction is still being completed."""
    code = ErrorCode.CONCURRENT_TRANSACTIONS
class TransactionAbortable(BrokerError):
    """The transaction can only be aborted."""
    code = ErrorCode.TRANSACTION_ABORTABLE
class InvalidTopic(BrokerError):
    """The topic name is not valid."""
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
class RecordListTooLarge(BrokerError):
    """The batches together are larger than a segment."""
    code = ErrorCode.RECORD_LIST_TOO_LARGE
class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than the topic requires."""
    code = ErrorCode.NOT_ENOUGH_REPLICAS
class NotEnoughReplicasAfterAppend(BrokerError):
    """Written, but to fewer replicas than the topic requires."""
    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
class InvalidRequiredAcks(BrokerError):
    """acks is neither 0, 1 nor all."""
    code = ErrorCode.INVALID_REQUIRED_ACKS
class TopicAuthorizationFailed(BrokerError):
    """Not allowed on this topic."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
class GroupAuthorizationFailed(BrokerError):
    """Not allowed on this group."""
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
class ClusterAuthorizationFailed(BrokerError):
    """Not allowed on this cluster."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
class TransactionalIdAuthorizationFailed(BrokerError):
    """Not allowed for this transactional id."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
class SecurityDisabled(BrokerError):
    """The broker was started without an authorizer."""
    code = ErrorCode.SECURITY_DISABLED
class InvalidTimestamp(BrokerError):
    """A timestamp or timestamp type that the topic refuses."""
    code = ErrorCode.INVALID_TIMESTAMP
class UnsupportedVersionError(BrokerError):
    """The broker does not serve this version of the request."""
    code = ErrorCode.UNSUPPORTED_VERSION
class TopicAlreadyExists(BrokerError):
    """A topic of this name exists."""
    code = ErrorCode.TOPIC_ALREADY_EXISTS
class InvalidPartitions(BrokerError):
    """The number of partitions is not valid."""
    code = ErrorCode.INVALID_PARTITIONS
class InvalidReplicationFactor(BrokerError):
    """The replication factor cannot be met."""
    code = ErrorCode.INVALID_REPLICATION_FACTOR
class InvalidReplicaAssignment(BrokerError):
    """The replica assignment is not valid."""
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
class InvalidConfig(BrokerError):
    """A configuration key or value is not valid."""
    code = ErrorCode.INVALID_CONFIG
class NotController(BrokerError):
    """This broker is not the controller."""
    code = ErrorCode.NOT_CONTROLLER
class InvalidRequest(BrokerError):
    """The request contradicts itself."""
    code = ErrorCode.INVALID_REQUEST
class UnsupportedForMessageFormat(BrokerError):
    """The record format is not one that the broker takes."""
    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
class PolicyViolation(BrokerError):
    """A policy of the broker refuses the parameters."""
    code = ErrorCode.POLICY_VIOLATION
class OutOfOrderSequenceNumber(BrokerError):
    """The producer's sequence number is not the next one."""
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
class DuplicateSequenceNumber(BrokerError):
    """The batch was appended before."""
    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
class InvalidProducerEpoch(BrokerError):
    """The producer's epoch is older than the one the broker knows."""
    code = ErrorCode.INVALID_PRODUCER_EPOCH
class StorageFailed(BrokerError):
    """The broker's disk failed under the partition."""
    code = ErrorCode.KAFKA_STORAGE_ERROR
class UnknownProducerId(BrokerError):
    """The broker has forgotten the producer."""
    code = ErrorCode.UNKNOWN_PRODUCER_ID
class FencedLeaderEpoch(BrokerError):
    """The leader epoch is older than the broker's."""
    code = ErrorCode.FENCED_LEADER_EPOCH
class UnknownLeaderEpoch(BrokerError):
    """The leader epoch is newer than the broker's."""
    code = ErrorCode.UNKNOWN_LEADER_EPOCH
class UnsupportedCompressionType(BrokerError):
    """The topic or the request version does not take this codec."""
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
class OffsetNotAvailable(BrokerError):
    """The leader does not know its high watermark yet."""
    code = ErrorCode.OFFSET_NOT_AVAILABLE
class InvalidRecord(BrokerError):
    """The broker refused a record of the batch."""
    code = ErrorCode.INVALID_RECORD
class ThrottlingQuotaExceeded(BrokerError):
    """The quota of this kind of request is used up for now."""
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
class ProducerFenced(BrokerError):
    """A newer producer took over."""
    code = ErrorCode.PRODUCER_FENCED
class ResourceNotFound(BrokerError):
    """There is no such resource."""
    code = ErrorCode.RESOURCE_NOT_FOUND
class DuplicateResource(BrokerError):
    """The request names the same thing twice."""
    code = ErrorCode.DUPLICATE_RESOURCE
class UnknownTopicId(BrokerError):
    """There is no topic with this id."""
    code = ErrorCode.UNKNOWN_TOPIC_ID
class InconsistentTopicId(BrokerError):
    """The topic of this name has another id there."""
    code = ErrorCode.INCONSISTENT_TOPIC_ID
class FencedMemberEpoch(BrokerError):
    """The group has another epoch for this member: it joins again."""
    code = ErrorCode.FENCED_MEMBER_EPOCH
class UnreleasedInstanceId(BrokerError):
    """Another member has this instance_id, and has not left: until its session ends."""
    code = ErrorCode.UNRELEASED_INSTANCE_ID
class UnsupportedAssignor(BrokerError):
    """The group's broker has no assignor of this name."""
    code = ErrorCode.UNSUPPORTED_ASSIGNOR
class StaleMemberEpoch(BrokerError):
    """The member is at a later epoch by now: it says so again with that."""
    code = ErrorCode.STALE_MEMBER_EPOCH
class InvalidRecordState(BrokerError):
    """The record is not locked for this member (any more), or was acknowledged already."""
    code = ErrorCode.INVALID_RECORD_STATE
class ShareSessionNotFound(BrokerError):
    """The broker does not know the share session: what was locked in it is free again."""
    code = ErrorCode.SHARE_SESSION_NOT_FOUND
class InvalidShareSessionEpoch(BrokerError):
    """The share session is at another epoch."""
    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
class ShareSessionLimitReached(BrokerError):
    """The broker has as many share sessions as it may."""
    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED
# fmt: on


def _by_code() -> dict[int, type[BrokerError]]:
    table: dict[int, type[BrokerError]] = {}
    for cls in BrokerError.__subclasses__():
        assert cls.code not in table, f"{cls.__name__} reuses code {cls.code}"
        assert cls.__doc__, f"{cls.__name__} does not say what it means"
        cls.retryable = cls.code.retryable
        table[cls.code] = cls
    return table


BY_CODE = _by_code()


def broker_error(code: int, about: str, message: str | None = None) -> BrokerError:
    """The exception for a wire code.

    `about` says with which values it was met ("topic a, partition 3"); `message` is what the
    broker said besides the code, if anything.
    """
    cls = BY_CODE.get(code)
    if cls is None:
        known = ErrorCode.of(code)
        name = f"error code {code}" if known != code else known.name
        error = UnknownServerError(f"{about}: {name}: {message or known.description}")
        error.code, error.retryable = known, known.retryable
        return error
    return cls(f"{about}: {message or cls.code.description}")


def bug(error: BaseException) -> SegbrokerError:
    """A mistake in the client, as the caller is told it."""
    told = SegbrokerError(f"bug in the client: {error!r}; please report it with its traceback")
    told.__cause__ = error
    return told


def as_told(error: BaseException) -> SegbrokerError:
    """An error as the caller is told it: what is none of ours is a mistake in the client."""
    return error if isinstance(error, SegbrokerError) else bug(error)


def check_code(code: int, about: str, message: str | None = None) -> None:
    """Raise `broker_error` of a wire code, unless it is that of success."""
    if code:
        raise broker_error(code, about, message)

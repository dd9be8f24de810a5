"""The Kafka client: blocking, and async on trio and asyncio, over one sans-IO core.

    from segbroker.client import Producer, Consumer, ShareConsumer, Admin
    from segbroker.client import AsyncProducer, AsyncConsumer, AsyncShareConsumer, AsyncAdmin

It works against segbroker and against Apache Kafka.  A guide with examples: docs/client.md.

What is where, from the inside out; a module imports only what stands above it:

    records errors completion clock backoff              values
    other_names http_in_time token_sources security settings
    tokens
    spoken login connection absence network              every client's core: no sockets, no clock
    cluster engine asking reaching
    plain_lock pending_pure pending                      the producer's: records on their way
    producer_batch columns inbox batches
    accumulator
    batch_order identity                                 ... and the answers
    coordinator group_offsets                            who knows a group or a transactional id
    transaction_requests transactions outcomes unheard producing
    lookups starting early silence consumed arrow assigned  the consumer's: values
    subscription
    prefetched log_bounds log_changes reply_walk unserved    ... what was lost, and what is told
    holding start_lookup fetch_session fetch_replies
    fetch_lanes
    fetching progress
    sticky assignors                                     ... as a member of a group
    membership whole_share refusals classic_membership
    heartbeating consumer_membership
    group_topics group_events poll_interval
    group_commits group_starts committing_member
    group_reading
    reading                                              ... both
    share_settings acknowledging acquired_records        ... as a member of a share group
    share_session share_lane share_lanes share_membership
    share_reading
    handout_pure handout                                 records, without a coroutine for each
    lists                                                the admin's
    administration group_descriptions group_administration share_offsets many_groups
    partition_statistics cleaning
    acl_administration quota_administration user_administration broker_administration
    group_settings
    driver transport waiting core_lock forgotten thread_driver
    event_loop beside async_tokens own_tasks async_driver
    heap turns                                            sockets; who waits, whose turn it is
    producer consumer share_consumer admin                what a user sees
    async_producer async_consumer async_share_consumer async_admin
    transaction_size transforming

A client is loaded when it is first named, so a program that only produces does not pay for reading.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import (
    AcknowledgeFailed,
    AuthenticationFailed,
    BrokenError,
    BrokerError,
    BrokerUnreachable,
    BusyError,
    ClosedError,
    ConnectionLost,
    CorruptBatch,
    DeliveryFailed,
    FailedAcknowledgement,
    FencedInstanceId,
    GapError,
    IllegalGeneration,
    InvalidRecordState,
    MessageTooLarge,
    NonEmptyGroup,
    NoTransaction,
    OffsetOutOfRange,
    PeerError,
    ProducerFenced,
    SegbrokerError,
    TimedOut,
    TlsFailed,
    TokenUnavailable,
    TopicAlreadyExists,
    TopicRecreated,
    TransactionAborted,
    Undelivered,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from .records import Gap, OffsetAndTimestamp, Record, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from .acknowledging import ShareRecord
    from .acl_administration import Acl, AclFilter
    from .admin import Admin
    from .administration import ClusterDescription, ConfigEntry, TopicDescription
    from .async_admin import AsyncAdmin
    from .async_consumer import AsyncConsumer
    from .async_producer import AsyncDeliveries, AsyncDelivery, AsyncProducer
    from .async_share_consumer import AsyncShareConsumer
    from .broker_administration import BrokerSetting
    from .consumed import ConsumedBatch
    from .consumer import Consumer
    from .group_administration import GroupListing
    from .group_descriptions import GroupDescription, GroupMember
    from .group_offsets import CommittedOffset, GroupMetadata
    from .group_settings import GroupSetting
    from .producer import Deliveries, Producer
    from .producer import SyncDelivery as Delivery
    from .quota_administration import Quota
    from .security import Security
    from .share_consumer import ShareConsumer
    from .share_offsets import ShareOffset
    from .token_sources import BearerToken, ClientCredentials, TokenFile
    from .transactions import PreparedTransaction
    from .transforming import Outgoing, async_transform, transform
    from .user_administration import User

_LOADED_LATER = {
    "Acl": "acl_administration",
    "AclFilter": "acl_administration",
    "Admin": "admin",
    "AsyncAdmin": "async_admin",
    "AsyncConsumer": "async_consumer",
    "AsyncDeliveries": "async_producer",
    "AsyncDelivery": "async_producer",
    "AsyncProducer": "async_producer",
    "AsyncShareConsumer": "async_share_consumer",
    "BearerToken": "token_sources",
    "ClientCredentials": "token_sources",
    "CommittedOffset": "group_offsets",
    "GroupMetadata": "group_offsets",
    "GroupDescription": "group_descriptions",
    "GroupListing": "group_administration",
    "GroupSetting": "group_settings",
    "GroupMember": "group_descriptions",
    "ClusterDescription": "administration",
    "ConfigEntry": "administration",
    "ConsumedBatch": "consumed",
    "Consumer": "consumer",
    "Deliveries": "producer",
    "Delivery": "producer",
    "Outgoing": "transforming",
    "PreparedTransaction": "transactions",
    "Producer": "producer",
    "BrokerSetting": "broker_administration",
    "Quota": "quota_administration",
    "Security": "security",
    "ShareConsumer": "share_consumer",
    "ShareOffset": "share_offsets",
    "ShareRecord": "acknowledging",
    "TokenFile": "token_sources",
    "TopicDescription": "administration",
    "async_transform": "transforming",
    "transform": "transforming",
    "User": "user_administration",
}
# Called otherwise where it is made.
_OTHER_NAMES = {"Delivery": "SyncDelivery"}

__all__ = [
    "AcknowledgeFailed",
    "Acl",
    "AclFilter",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDeliveries",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncShareConsumer",
    "AuthenticationFailed",
    "BearerToken",
    "BrokenError",
    "BrokerError",
    "BrokerSetting",
    "BrokerUnreachable",
    "BusyError",
    "ClientCredentials",
    "ClosedError",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "ConnectionLost",
    "ConsumedBatch",
    "Consumer",
    "CorruptBatch",
    "Deliveries",
    "Delivery",
    "DeliveryFailed",
    "FailedAcknowledgement",
    "FencedInstanceId",
    "Gap",
    "GapError",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "GroupSetting",
    "IllegalGeneration",
    "InvalidRecordState",
    "MessageTooLarge",
    "NoTransaction",
    "NonEmptyGroup",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "Outgoing",
    "PeerError",
    "PreparedTransaction",
    "Producer",
    "ProducerFenced",
    "Quota",
    "Record",
    "RecordMetadata",
    "Security",
    "SegbrokerError",
    "ShareConsumer",
    "ShareOffset",
    "ShareRecord",
    "TimedOut",
    "TlsFailed",
    "TokenFile",
    "TokenUnavailable",
    "TopicAlreadyExists",
    "TopicDescription",
    "TopicPartition",
    "TopicRecreated",
    "TransactionAborted",
    "Undelivered",
    "UnknownMemberId",
    "UnknownTopicOrPartition",
    "User",
    "async_transform",
    "transform",
]


def __getattr__(name: str) -> object:
    module = _LOADED_LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f".{module}", __name__), _OTHER_NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

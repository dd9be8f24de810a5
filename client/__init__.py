"""The Kafka client: blocking, and async on trio and asyncio, over one sans-IO core.

    from segbroker.client import Producer, Consumer, Admin
    from segbroker.client import AsyncProducer, AsyncConsumer, AsyncAdmin

It works against segbroker and against Apache Kafka.  A guide with examples: docs/client.md.

What is where, from the inside out; a module imports only what stands above it:

    errors completion clock backoff records settings     values
    connection network cluster engine                    every client's core: no sockets, no clock
    pending inbox accumulator producing                  the producer's
    lookups consumed arrow fetching reading              the consumer's
    administration                                       the admin's
    transport thread_driver async_driver                 sockets; who waits
    producer consumer admin, async_...                   what a user sees
"""

from .admin import Admin
from .administration import ClusterDescription, ConfigEntry, TopicDescription
from .async_admin import AsyncAdmin
from .async_consumer import AsyncConsumer
from .async_producer import AsyncDeliveries, AsyncDelivery, AsyncProducer
from .consumed import ConsumedBatch
from .consumer import Consumer
from .errors import (
    BrokenError,
    BrokerError,
    BrokerUnreachable,
    BusyError,
    ClosedError,
    ConnectionLost,
    CorruptBatch,
    DeliveryFailed,
    OffsetOutOfRange,
    SegbrokerError,
    TimedOut,
    TopicAlreadyExists,
    Undelivered,
    UnknownTopicOrPartition,
)
from .producer import Deliveries, Producer
from .producer import SyncDelivery as Delivery
from .records import OffsetAndTimestamp, Record, RecordMetadata, TopicPartition

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDeliveries",
    "AsyncDelivery",
    "AsyncProducer",
    "BrokenError",
    "BrokerError",
    "BrokerUnreachable",
    "BusyError",
    "ClosedError",
    "ClusterDescription",
    "ConfigEntry",
    "ConnectionLost",
    "ConsumedBatch",
    "Consumer",
    "CorruptBatch",
    "Deliveries",
    "Delivery",
    "DeliveryFailed",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "Producer",
    "Record",
    "RecordMetadata",
    "SegbrokerError",
    "TimedOut",
    "TopicAlreadyExists",
    "TopicDescription",
    "TopicPartition",
    "Undelivered",
    "UnknownTopicOrPartition",
]

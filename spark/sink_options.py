"""The options of the sink, checked once, as one frozen value.

    where to      topic, else the column
    how surely    deliveryGuarantee: exactly-once, at-least-once
    who           transactionalId, batchId      (exactly-once; see sink)
    our own       TOPIC_ID: the one topic of that name that is meant; an import's
    how           the client options, and those of Kafka's producer in PRODUCER, with the prefix
                  `kafka.` or `segbroker.`

Invariant: SinkOptions can be pickled: it travels to the executors inside the writer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from segbroker.client.settings import CODECS, Compression

from .connecting import ClientOptions, check_client_option, parse_client
from .errors import OptionError
from .given import INT32_MAX, PREFIXES, Given, boolean, number, unknown
from .offsets import parse_id

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

BATCH_BYTES = 128 << 10
DELIVERY_TIMEOUT_MS = 120_000
TRANSACTION_TIMEOUT_MS = 600_000

SINK = ("topic", "deliveryGuarantee", "transactionalId", "batchId", "includeHeaders")
TOPIC_ID = "__topicId"
# What Spark itself hands on to a stream's sink.
FROM_SPARK = ("checkpointLocation", "path", "queryName")
PRODUCER = (
    "compression.type",
    "linger.ms",
    "batch.size",
    "delivery.timeout.ms",
    "transaction.timeout.ms",
    "acks",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """See the module.  Times in milliseconds, sizes in bytes."""

    client: ClientOptions
    topic: str | None = None
    topic_id: UUID | None = None
    exactly_once: bool = True
    transactional_id: str | None = None
    batch_id: int | None = None
    compression: Compression = "none"
    batch_bytes: int = BATCH_BYTES
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write, checked.  Raises OptionError with one sentence."""
    given = Given(options)
    known = {name.lower() for name in (*SINK, *FROM_SPARK)}
    for name in given.values:
        if name in known or name.startswith("__"):
            continue
        if not name.startswith(PREFIXES):
            raise unknown(name, SINK)
        check_client_option(name, PRODUCER)
    acks_name, acks = given.client("acks")
    if acks not in (None, "all", "-1"):
        raise OptionError(f"{acks_name}={acks!r}: what is written is always acknowledged, say all")
    topic, topic_id = given.own("topic")[1], given.own(TOPIC_ID)[1]
    if topic is not None and not topic.strip():
        raise OptionError(f"topic={topic!r} is empty")
    # Looked at and not kept: a batch goes when it is full, or at the end of the rows; headers are
    # written where there is the column, whatever this says, as by Kafka's sink.
    number(given.client("linger.ms"), least=0)
    boolean(given.own("includeHeaders"), default=False)
    found = SinkOptions(
        client=parse_client(given),
        topic=topic,
        topic_id=None if topic_id is None else parse_id(topic_id),
        exactly_once=_guarantee(given) == EXACTLY_ONCE,
        transactional_id=given.own("transactionalId")[1] or None,
        batch_id=number(given.own("batchId"), least=0),
        compression=_compression(given),
        batch_bytes=number(given.client("batch.size"), least=1, most=INT32_MAX) or BATCH_BYTES,
        delivery_timeout_ms=number(given.client("delivery.timeout.ms"), least=1, most=INT32_MAX)
        or DELIVERY_TIMEOUT_MS,
        transaction_timeout_ms=number(
            given.client("transaction.timeout.ms"), least=1, most=INT32_MAX
        )
        or TRANSACTION_TIMEOUT_MS,
    )
    if found.batch_id is not None:
        if streaming:
            raise OptionError("batchId is an option of a batch write; a stream numbers its own")
        if found.transactional_id is None:
            raise OptionError("batchId needs transactionalId: it numbers the writes of that name")
    return found


def _guarantee(given: Given) -> str:
    name, value = given.own("deliveryGuarantee")
    if value is None:
        return EXACTLY_ONCE
    if value.lower() not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise OptionError(f"{name}={value!r} is not {EXACTLY_ONCE!r} or {AT_LEAST_ONCE!r}")
    return value.lower()


def _compression(given: Given) -> Compression:
    name, value = given.client("compression.type")
    if value is None:
        return "none"
    if value not in CODECS:
        raise OptionError(f"{name}={value!r} is not one of {', '.join(CODECS)}")
    return cast("Compression", value)

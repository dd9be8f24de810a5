"""The requests around a transaction of the sink, asked over blocking links with a deadline.

    executor   producer_id(...)      an identity; with a transactional id its predecessor is
                                     fenced, and what that had open is aborted
               add_partitions(...)   before the first batch to a partition
    driver     commit_batch(...)     all transactions of a batch and "this was the query's last
                                     batch", as one decision of the broker; others are aborted
               abort(...)            give a prepared transaction up, as well as can be
               forget(...)           names under which nothing more is written
    both       last_batch(...)       what the query has committed

Those of a batch know segbroker's own requests COMMIT_BATCH, QUERY_STATE and FORGET_TRANSACTIONS.
Repeating any of these is harmless: a commit of a batch that is committed is answered as done.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from segbroker.client.errors import (
    BrokerError,
    UnsupportedByBroker,
    broker_error,
    check_code,
)
from segbroker.client.spoken import VendorRequest
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.limits import VENDOR_BODY_SIZE_MAX
from segbroker.protocol.messages_groups import FindCoordinatorRequest, FindCoordinatorResponse
from segbroker.protocol.messages_transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from segbroker.protocol.vendor import VendorKey, pack

from .cluster import Cluster
from .errors import SinkError, SourceUnavailable
from .link import Link
from .offsets import TopicPartition

log = logging.getLogger("segbroker.spark")

# What FindCoordinator calls a transactional id.
_TRANSACTION = 1
# How long what is given up waits for a broker to hear of it: the broker gives it up by itself, and
# a write that has failed has waited already.
GIVEN_UP_MS = 10_000
# What a broker says of a transaction that was ended by somebody else.
OVER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,  # the same, to a request by topic ids
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
WHY_OVER = (
    "its transaction is over: it was open for longer than kafka.transaction.timeout.ms, or another"
    " writer has its name"
)
# Names in one request to forget them.
FORGOTTEN_COUNT_MAX = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes: a producer id, and whose transactions they are; None: no transactions."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


def producer_id(
    cluster: Cluster, transactional_id: str | None, transaction_timeout_ms: int
) -> Identity:
    """A new identity, or the next epoch of the one that has the transactional id."""

    def ask(link: Link) -> Identity:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )
        reply = link.ask(request, InitProducerIdResponse)
        check_code(reply.error_code, f"transactional id {transactional_id!r}")
        return Identity(transactional_id, reply.producer_id, reply.producer_epoch)

    return _at_coordinator(cluster, transactional_id, "a producer id", ask)


def add_partitions(cluster: Cluster, identity: Identity, keys: Iterable[TopicPartition]) -> None:
    """These partitions take part from now on."""
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    assert identity.transactional_id is not None
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )

    def ask(link: Link) -> None:
        reply = link.ask(request, AddPartitionsToTxnResponse)
        for row in reply.results_by_topic_v3_and_below:
            for part in row.results_by_partition:
                about = f"topic {row.name!r} partition {part.partition_index}"
                check_code(part.partition_error_code, about)

    _at_coordinator(cluster, identity.transactional_id, "a transaction", ask)


def abort(cluster: Cluster, identity: Identity) -> None:
    """Abort what the identity has open.

    Raises SourceUnavailable where it cannot be, or not within GIVEN_UP_MS.
    """
    assert identity.transactional_id is not None
    request = EndTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=False,
    )

    def ask(link: Link) -> None:
        reply = link.ask(request, EndTxnResponse)
        check_code(reply.error_code, f"transactional id {identity.transactional_id!r}")

    name = identity.transactional_id
    _at_coordinator(cluster, name, "an abort", ask, is_given_up=True)


class Committed(Enum):
    """Who has committed a batch."""

    NOW = "this call, at its first try"
    PERHAPS_NOW = "an earlier try, whose answer was lost, or somebody before it"
    BEFORE = "somebody before this call: nothing of it was committed"


def commit_batch(
    cluster: Cluster, query: str, batch: int, identities: Iterable[Identity]
) -> Committed:
    """Commit all of these at once, as batch `batch` of the query, once.

    With the first time the broker aborts what other attempts of the query's tasks have open.
    Raises SinkError for a broker that cannot and for a transaction that is not open any more,
    SourceUnavailable when no broker answers in time.
    """
    body = _batch_body(query, batch, identities)
    tries: list[Link] = []
    try:
        reply = _ask_vendor(cluster, VendorKey.COMMIT_BATCH, query, body, tries)
    except SourceUnavailable as exc:
        if isinstance(exc.__cause__, BrokerError) and exc.__cause__.code in OVER:
            raise SinkError(f"{exc.__cause__}; {WHY_OVER}") from exc
        raise
    if not reply["repeated"]:
        return Committed.NOW
    return Committed.PERHAPS_NOW if len(tries) > 1 else Committed.BEFORE


def _batch_body(query: str, batch: int, identities: Iterable[Identity]) -> dict[str, Any]:
    """What COMMIT_BATCH says; of names that are too long in all the query once, in front of them.

    Only of those: a broker of before knows no prefix.
    """
    rows = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
        }
        for each in identities
    ]
    body = {"query": query, "batch": batch, "transactions": rows, "ends_others": True}
    if len(pack(body)) <= VENDOR_BODY_SIZE_MAX:
        return body
    prefix = f"{query}/"
    short = [
        {**row, "transactional_id": str(row["transactional_id"]).removeprefix(prefix)}
        for row in rows
    ]
    return {**body, "prefix": prefix, "transactions": short}


def forget(cluster: Cluster, query: str, names: list[str]) -> None:
    """Abort what is open under these names, and have them and the query forgotten.

    Best effort, for GIVEN_UP_MS: what is not done here the broker does when the time of each is
    over.
    """
    try:
        for begin in range(0, len(names), FORGOTTEN_COUNT_MAX):
            body = {
                "transactional_ids": names[begin : begin + FORGOTTEN_COUNT_MAX],
                "query": query,
            }
            key = VendorKey.FORGET_TRANSACTIONS
            _ask_vendor(cluster, key, query, body, is_given_up=True)
    except (SinkError, SourceUnavailable) as exc:
        log.info("transactions of query %s are left to their time-outs: %s", query, exc)


def last_batch(cluster: Cluster, query: str) -> int | None:
    """The last batch that the query has committed; None: none, or long ago."""
    reply = _ask_vendor(cluster, VendorKey.QUERY_STATE, query, {"query": query})
    found = reply["last_batch"]
    return None if found is None else int(found)


def _ask_vendor(
    cluster: Cluster,
    key: VendorKey,
    query: str,
    body: Mapping[str, Any],
    tries: list[Link] | None = None,
    *,
    is_given_up: bool = False,
) -> Mapping[str, Any]:
    """`tries`: to which the links go on which it was sent.  is_given_up: see `_at_coordinator`."""

    def ask(link: Link) -> Mapping[str, Any]:
        if tries is not None:
            tries.append(link)
        reply = link.ask_vendor(VendorRequest(key, body))
        if "error" in reply:
            error = reply["error"]
            raise broker_error(error["code"], f"query {query!r}: {error['detail']}")
        return reply

    try:
        what = "a batch of transactions"
        return _at_coordinator(cluster, query, what, ask, is_given_up=is_given_up)
    except SourceUnavailable as exc:
        if isinstance(exc.__cause__, UnsupportedByBroker):
            raise SinkError(
                "this broker cannot commit a batch of transactions at once (it is no segbroker, or"
                " an older one); deliveryGuarantee=at-least-once writes without"
            ) from exc
        raise


def _at_coordinator(
    cluster: Cluster,
    key: str | None,
    what: str,
    ask: Callable[[Link], T],
    *,
    is_given_up: bool = False,
) -> T:
    """What `ask` returns at the coordinator of the transactional id, or of None at any broker.

    is_given_up: no longer than GIVEN_UP_MS in all.
    """

    def attempt() -> T:
        link = cluster.at_any(lambda link: link)
        if key is not None:
            find = FindCoordinatorRequest(key=key, key_type=_TRANSACTION, coordinator_keys=[key])
            found = link.ask(find, FindCoordinatorResponse)
            row = found.coordinators[0] if found.coordinators else found
            check_code(row.error_code, f"coordinator of {key!r}")
            link = cluster.link((row.host, row.port))
        return ask(link)

    limit_ms = min(GIVEN_UP_MS, cluster.api_timeout_ms) if is_given_up else None
    return cluster.persist(what, attempt, limit_ms)

"""Guards of requests about producers and transactions: see authorized.py.

| api | needs | else |
|---|---|---|
| InitProducerId with a transactional id | WRITE of it | 53 |
| InitProducerId without | IDEMPOTENT_WRITE cluster, or WRITE of some topic | 31 |
| AddPartitionsToTxn | WRITE transactional id, WRITE every topic | 53; 29, the others 55 or 3 |
| AddOffsetsToTxn, TxnOffsetCommit | WRITE transactional id, READ group (and topic) | 53, 30, 29 |
| EndTxn | WRITE transactional id | 53 |
| WriteTxnMarkers | ALTER cluster, or CLUSTER_ACTION | 31 |
| DescribeTransactions, ListTransactions | DESCRIBE transactional id (and topics) | 53, left out |
"""

from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)
from segbroker.protocol.schema import Message

from ..access.authorizer import (
    ALTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Authorizer,
)
from ..call import Call
from ..core import Core
from .guarding import (
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    TOPIC_REFUSED,
    TRANSACTIONAL_ID_REFUSED,
    Amend,
    Guard,
    take_refused,
)


def _may_write(authorizer: Authorizer, call: Call[Any], transactional_id: str) -> bool:
    return authorizer.allows(call.peer, WRITE, TRANSACTIONAL_ID, transactional_id)


def _init_producer_id(
    core: Core, authorizer: Authorizer, call: Call[InitProducerIdRequest]
) -> Message | None:
    transactional_id = call.request.transactional_id
    if transactional_id is not None:
        code = TRANSACTIONAL_ID_REFUSED
        allowed = _may_write(authorizer, call, transactional_id)
    else:
        code = CLUSTER_REFUSED
        allowed = authorizer.allows_some_topic(call.peer, WRITE) or authorizer.allows_cluster(
            call.peer, IDEMPOTENT_WRITE
        )
    return None if allowed else InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _add_partitions_to_txn(
    core: Core, authorizer: Authorizer, call: Call[AddPartitionsToTxnRequest]
) -> Message | None:
    request = call.request
    topics = request.v3_and_below_topics
    if not _may_write(authorizer, call, request.v3_and_below_transactional_id):
        codes = dict.fromkeys((topic.name for topic in topics), TRANSACTIONAL_ID_REFUSED)
    else:
        codes = {
            topic.name: ErrorCode.OPERATION_NOT_ATTEMPTED
            if authorizer.allows(call.peer, WRITE, TOPIC, topic.name)
            else TOPIC_REFUSED
            for topic in topics
        }
        if TOPIC_REFUSED not in codes.values():
            return None

    def code_of(name: str, index: int) -> ErrorCode:
        is_named = codes[name] is not ErrorCode.OPERATION_NOT_ATTEMPTED
        if is_named or core.topics.exists(name, index):
            return codes[name]
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponseTopic(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponsePartition(
                        partition_index=index, partition_error_code=code_of(topic.name, index)
                    )
                    for index in dict.fromkeys(topic.partitions)
                ],
            )
            for topic in topics
        ]
    )


def _add_offsets_to_txn(
    core: Core, authorizer: Authorizer, call: Call[AddOffsetsToTxnRequest]
) -> Message | None:
    request = call.request
    if not _may_write(authorizer, call, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=TRANSACTIONAL_ID_REFUSED)
    if not authorizer.allows(call.peer, READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=GROUP_REFUSED)
    return None


def _txn_offset_commit(
    core: Core, authorizer: Authorizer, call: Call[TxnOffsetCommitRequest]
) -> Message | Amend | None:
    peer, request = call.peer, call.request
    refused = request.topics
    code = ErrorCode.NONE
    if not _may_write(authorizer, call, request.transactional_id):
        code = TRANSACTIONAL_ID_REFUSED
    elif not authorizer.allows(peer, READ, GROUP, request.group_id):
        code = GROUP_REFUSED
    else:
        refused = take_refused(
            request.topics, lambda one: authorizer.allows(peer, READ, TOPIC, one.name)
        )
    rows = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=one.partition_index, error_code=code or TOPIC_REFUSED
                )
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    if code:
        return TxnOffsetCommitResponse(topics=rows)

    def amend(response: TxnOffsetCommitResponse) -> None:
        response.topics += rows

    return amend if rows else None


def _end_txn(core: Core, authorizer: Authorizer, call: Call[EndTxnRequest]) -> Message | None:
    if _may_write(authorizer, call, call.request.transactional_id):
        return None
    return EndTxnResponse(error_code=TRANSACTIONAL_ID_REFUSED)


def _write_txn_markers(
    core: Core, authorizer: Authorizer, call: Call[WriteTxnMarkersRequest]
) -> Message | None:
    if authorizer.allows_by_cluster(call.peer, ALTER) or authorizer.allows_cluster(
        call.peer, CLUSTER_ACTION
    ):
        return None
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponseMarker(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersResponseTopic(
                        name=topic.name,
                        partitions=[
                            WriteTxnMarkersResponsePartition(
                                partition_index=index, error_code=CLUSTER_REFUSED
                            )
                            for index in dict.fromkeys(topic.partition_indexes)
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in call.request.markers
        ]
    )


def _describe_transactions(
    core: Core, authorizer: Authorizer, call: Call[DescribeTransactionsRequest]
) -> Amend | None:
    peer = call.peer
    refused = take_refused(
        call.request.transactional_ids,
        lambda name: authorizer.allows(peer, DESCRIBE, TRANSACTIONAL_ID, name),
    )

    def amend(response: DescribeTransactionsResponse) -> None:
        for row in response.transaction_states:
            take_refused(
                row.topics, lambda one: authorizer.would_allow(peer, DESCRIBE, TOPIC, one.topic)
            )
        response.transaction_states += [
            DescribeTransactionsResponseTransaction(
                error_code=TRANSACTIONAL_ID_REFUSED,
                transactional_id=name,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=-1,
                producer_epoch=-1,
                topics=[],
            )
            for name in refused
        ]

    return amend


def _list_transactions(
    core: Core, authorizer: Authorizer, call: Call[ListTransactionsRequest]
) -> Amend | None:
    peer = call.peer

    def amend(response: ListTransactionsResponse) -> None:
        take_refused(
            response.transaction_states,
            lambda row: authorizer.would_allow(
                peer, DESCRIBE, TRANSACTIONAL_ID, row.transactional_id
            ),
        )

    return amend


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
}

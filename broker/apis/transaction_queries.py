"""What is known of transactions, for operators: Describe- and ListTransactions, DescribeProducers.

Transactional ids are the coordinator's, producers those of the partitions: what DescribeProducers
shows with an open transaction and a start offset, and nobody lists, hangs: an administrator ends it
(marker_apis.py), or the next start of the broker (transaction_upkeep.py).  What is asked twice is
answered once.
"""

from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducer,
    DescribeProducersResponseTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopic,
    DescribeTransactionsResponseTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)
from segbroker.segments.metadata.transactions import State, Transaction

from ..call import Call
from ..core import Core
from ..groups.topic_regex import InvalidRegex
from ..loop.pace import Pace
from ..transactions.id_pattern import matching

_NAMES: Final = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}
# Kafka's own states that never arise here.
_OTHER_NAMES: Final = frozenset({"Dead", "PrepareEpochFence"})


def describe_transactions(
    core: Core, call: Call[DescribeTransactionsRequest]
) -> DescribeTransactionsResponse:
    """The state of transactional ids."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(core, name) for name in dict.fromkeys(call.request.transactional_ids)
        ]
    )


def _described(core: Core, name: str) -> DescribeTransactionsResponseTransaction:
    known = core.transactions.table.get(name)
    if known is None:
        return DescribeTransactionsResponseTransaction(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST,
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    return DescribeTransactionsResponseTransaction(
        transactional_id=name,
        transaction_state=_NAMES[known.state],
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[
            DescribeTransactionsResponseTopic(topic=topic, partitions=list(indexes))
            for topic, indexes in sorted(known.partitions.items())
        ],
    )


async def list_transactions(
    core: Core, call: Call[ListTransactionsRequest]
) -> ListTransactionsResponse:
    """Every transactional id that passes all filters that are set."""
    request, named = call.request, None
    if pattern := request.transactional_id_pattern:
        ids = [known.transactional_id for known in core.transactions.table.all()]
        try:
            named = await core.lanes.run(matching, pattern, ids)
        except InvalidRegex:
            return ListTransactionsResponse(
                error_code=ErrorCode.INVALID_REGULAR_EXPRESSION,
                unknown_state_filters=[],
                transaction_states=[],
            )
    names = frozenset(_NAMES.values())
    wanted = dict.fromkeys(request.state_filters)
    unknown = [state for state in wanted if state not in names and state not in _OTHER_NAMES]
    producers = frozenset(request.producer_id_filters)
    now_ms = core.now_ms()

    def is_meant(known: Transaction) -> bool:
        if wanted and _NAMES[known.state] not in wanted:
            return False
        if producers and known.producer_id not in producers:
            return False
        if named is not None and known.transactional_id not in named:
            return False
        if request.duration_filter < 0:
            return True
        is_open = known.started_ms >= 0
        return is_open and now_ms - known.started_ms > request.duration_filter

    response = ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=[])
    pace = Pace()
    for known in core.transactions.table.all():
        if is_meant(known):
            response.transaction_states.append(
                ListTransactionsResponseTransaction(
                    transactional_id=known.transactional_id,
                    producer_id=known.producer_id,
                    transaction_state=_NAMES[known.state],
                )
            )
        await pace.step()
    return response


async def describe_producers(
    core: Core, call: Call[DescribeProducersRequest]
) -> DescribeProducersResponse:
    """The producers that partitions know of."""
    await core.topics.open_all(
        (topic.name, index) for topic in call.request.topics for index in topic.partition_indexes
    )
    pace = Pace()
    told: set[tuple[str, int]] = set()
    response = DescribeProducersResponse(topics=[])
    for topic in call.request.topics:
        await pace.step()
        rows = DescribeProducersResponseTopic(name=topic.name, partitions=[])
        response.topics.append(rows)
        for index in topic.partition_indexes:
            if (topic.name, index) not in told:
                rows.partitions.append(await _producers_of(core, topic.name, index, pace))
            told.add((topic.name, index))
            await pace.step()
    return response


async def _producers_of(
    core: Core, name: str, index: int, pace: Pace
) -> DescribeProducersResponsePartition:
    row = DescribeProducersResponsePartition(partition_index=index, active_producers=[])
    partition = core.topics.served_partition(name, index)
    if partition is None:
        row.error_code, row.error_message = core.topics.why_unopened(name, index)
        return row
    handler = partition.handler
    for producer_id, known in handler.producers():
        row.active_producers.append(
            DescribeProducersResponseProducer(
                producer_id=producer_id,
                producer_epoch=known.epoch,
                last_sequence=known.batches[-1].last_sequence if known.batches else -1,
                last_timestamp=known.last_ms,
                # Nobody has coordinated a producer of which no transaction ended here.
                coordinator_epoch=0 if known.marked_ms >= 0 else -1,
                current_txn_start_offset=handler.transactions.open.get(producer_id, -1),
            )
        )
        await pace.step()
    return row

"""Transactions on the wire: what producers ask of the coordinator.

| api | answered |
|---|---|
| InitProducerId | when id and epoch are durable, and what was open before is aborted |
| AddPartitionsToTxn, AddOffsetsToTxn | when it is durable that they take part |
| TxnOffsetCommit | when the staged offsets are durable |
| EndTxn | when it is decided, durably, and every partition has its marker |

A fenced producer is told PRODUCER_FENCED from the version on in which its api knows the code, and
INVALID_PRODUCER_EPOCH before.  In the same way offsets of a group that takes no part are
TRANSACTION_ABORTABLE, and INVALID_TXN_STATE before.
"""

from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from segbroker.segments.metadata.committed import CommitRow

from ..call import Call
from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..loop.pace import Pace
from ..transactions import transactions
from .offset_store import Late, Looked, commit_row, without_growth
from .sign_of_life import committed_ms

# Of a producer that says no id, or no epoch.
_NONE: Final = -1
# From these versions on the api knows PRODUCER_FENCED.
_INIT_FENCED_SINCE: Final = 4
_FENCED_SINCE: Final = 2
# EndTxn and TxnOffsetCommit of version 2 of the protocol (KIP-890).
_NEXT_EPOCH_SINCE: Final = 5
_IMPLICIT_SINCE: Final = 5
# From this version on a TxnOffsetCommit knows a code for "this transaction can only be aborted".
_ABORTABLE_SINCE: Final = 4


async def init_producer_id(core: Core, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    """A producer id that was never given before; with a transactional id, the next epoch of it."""
    request = call.request
    if (request.producer_id == _NONE) is not (request.producer_epoch == _NONE):
        # Half of who it was: taken for a new instance it would fence the one that there is.
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=_NONE)
    if request.transactional_id is None:
        try:
            producer_id = await core.producer_ids.take()
        except STORAGE_FAILURES as exc:
            return InitProducerIdResponse(error_code=wire_error(exc)[0], producer_epoch=-1)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    if not request.transactional_id:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    given = await core.transactions.init(
        request.transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        {"client_id": call.header.client_id or "", "host": call.peer.address[0]},
    )
    return InitProducerIdResponse(
        error_code=_as_known(given.code, call.version, _INIT_FENCED_SINCE),
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
    )


async def add_partitions_to_txn(
    core: Core, call: Call[AddPartitionsToTxnRequest]
) -> AddPartitionsToTxnResponse:
    """These partitions take part; all of them, or none."""
    request = call.request
    asked: dict[str, dict[int, None]] = {}
    unknown: set[tuple[str, int]] = set()
    pace = Pace()
    for topic in request.v3_and_below_topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
        await pace.step()
    for name, indexes in asked.items():
        for index in indexes:
            if not core.topics.exists(name, index):
                unknown.add((name, index))
            await pace.step()
    code = ErrorCode.OPERATION_NOT_ATTEMPTED
    if not request.v3_and_below_transactional_id:
        code, unknown = ErrorCode.INVALID_REQUEST, set()
    elif not unknown:
        code = _as_known(
            await core.transactions.add(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                {name: list(indexes) for name, indexes in asked.items()},
            ),
            call.version,
            _FENCED_SINCE,
        )

    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[])
    for name, indexes in asked.items():
        await pace.step()
        row = AddPartitionsToTxnResponseTopic(name=name, results_by_partition=[])
        response.results_by_topic_v3_and_below.append(row)
        for index in indexes:
            is_unknown = (name, index) in unknown
            row.results_by_partition.append(
                AddPartitionsToTxnResponsePartition(
                    partition_index=index,
                    partition_error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if is_unknown
                    else code,
                )
            )
            await pace.step()
    return response


async def add_offsets_to_txn(
    core: Core, call: Call[AddOffsetsToTxnRequest]
) -> AddOffsetsToTxnResponse:
    """The offsets of this group take part."""
    request = call.request
    code = await core.transactions.add(
        request.transactional_id, request.producer_id, request.producer_epoch, {}, request.group_id
    )
    return AddOffsetsToTxnResponse(error_code=_as_known(code, call.version, _FENCED_SINCE))


async def txn_offset_commit(
    core: Core, call: Call[TxnOffsetCommitRequest]
) -> TxnOffsetCommitResponse:
    """Keep offsets until the transaction commits."""
    request = call.request
    looked: list[Looked] = []
    response = TxnOffsetCommitResponse(topics=[])
    rows_count = 0
    pace = Pace()
    for topic in request.topics:
        await pace.step()
        meta = core.topics.get(topic.name)
        answered = TxnOffsetCommitResponseTopic(name=topic.name, partitions=[])
        response.topics.append(answered)
        for one in topic.partitions:
            row_code, row = commit_row(meta, one)
            answer = TxnOffsetCommitResponsePartition(
                partition_index=one.partition_index, error_code=row_code
            )
            answered.partitions.append(answer)
            looked.append(Looked(answer, meta, row))
            rows_count += row is not None
            await pace.step()

    def accepted() -> list[CommitRow]:
        code, late = _check_member(core, call)
        rows = [row for one in looked if (row := one.accept(code, late)) is not None]
        if core.topics.manager.is_metadata_full:
            rows = without_growth(core, request.group_id, looked, rows)
        return rows

    staged = ErrorCode.INVALID_GROUP_ID
    if rows_count > transactions.PARTITIONS_MAX:
        staged = ErrorCode.INVALID_REQUEST  # before whatever is done with all of them in one go
    elif request.group_id:
        staged = await core.transactions.stage(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            accepted,
            implicit=call.version >= _IMPLICIT_SINCE,
        )
    if core.transactions.table.has_offsets(request.group_id):  # else: it was deleted meanwhile
        core.groups.has_staged(request.group_id)
    if staged is ErrorCode.PRODUCER_FENCED:
        staged = ErrorCode.INVALID_PRODUCER_EPOCH  # what a group coordinator says
    elif staged is ErrorCode.INVALID_TXN_STATE and call.version >= _ABORTABLE_SINCE:
        staged = ErrorCode.TRANSACTION_ABORTABLE  # costs the transaction, not the producer
    for answered in response.topics:
        for answer in answered.partitions:
            answer.error_code = answer.error_code or staged
            await pace.step()
    return response


def _check_member(core: Core, call: Call[TxnOffsetCommitRequest]) -> tuple[ErrorCode, Late | None]:
    """Whoever says which member it is has to be that; whoever does not is taken at its word."""
    request = call.request
    if not core.groups.share_groups.gives_way(request.group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND, None
    if not request.member_id and request.generation_id < 0 and request.group_instance_id is None:
        return ErrorCode.NONE, None
    consumer = core.groups.get_epochal(request.group_id)
    if consumer is not None:
        code = consumer.check_commit(
            request.member_id, request.generation_id, request.group_instance_id
        )
        if code is not ErrorCode.STALE_MEMBER_EPOCH:
            return code, None
        # The word of the classic protocol, which is all that this request knows.
        return ErrorCode.ILLEGAL_GENERATION, Late(
            consumer, request.member_id, request.generation_id
        )
    group = core.groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, None
    code = group.check_commit(
        committed_ms(core),
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        in_transaction=True,
    )
    core.groups.changed(group)
    return code, None


async def end_txn(core: Core, call: Call[EndTxnRequest]) -> EndTxnResponse:
    """Commit or abort."""
    request = call.request
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    given = await core.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        commit=request.committed,
        next_epoch=call.version >= _NEXT_EPOCH_SINCE,
    )
    return EndTxnResponse(
        error_code=_as_known(given.code, call.version, _FENCED_SINCE),
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
    )


def _as_known(code: ErrorCode, version: int, since: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code

"""Committed offsets on the wire: OffsetCommit and OffsetFetch.

A commit is answered when it is durable.  A member commits as what it is: its id, its generation,
its instance.  Whoever is no member (generation -1, no id) may commit while nobody is: tools, and
consumers that assign partitions themselves.

A commit of a KIP-848 member whose epoch has risen meanwhile stands for the partitions that are its
own as they were then (KIP-1251), and is refused for the others.

Offsets of a transaction are staged (transaction_apis.py) and stand when it commits; who asks for
stable ones is told 88 UNSTABLE_OFFSET_COMMIT until it has ended.

Versions 2 to 4 may say for how long an offset is kept (`retention_time_ms`): offset_expiry.py.

An offset belongs to the topic that was meant: a deleted and recreated topic has none.  From
version 10 on both name topics by id.
"""

from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from segbroker.protocol.messages_transactions import TxnOffsetCommitRequestPartition
from segbroker.protocol.schema import ZERO_UUID
from segbroker.segments.committed import CommitRow, CommittedOffset
from segbroker.segments.metadata import TopicMeta

from ..call import Call
from ..core import Core
from ..groups.consumer_group import ConsumerGroup
from ..groups.groups import monotonic_ms
from ..partitions import topic_ids
from .later_reply import LaterReply

METADATA_SIZE_MAX: Final = 4096
_AS_THE_BROKER_IS_SET: Final = -1  # retention_time_ms
_TIME_MS_MAX: Final = 2**63 - 1
_MEMBER_EPOCH_SINCE: Final = 9
_NOTHING: Final = CommittedOffset(-1, -1, "", -1)


class Late(NamedTuple):
    """A commit by a member whose epoch has risen since it was told: some of it may stand."""

    group: ConsumerGroup
    member_id: str
    epoch: int

    def may_commit(self, meta: TopicMeta | None, index: int) -> bool:
        """Whether this partition has been its own from then until now."""
        if meta is None:
            return False
        partition = (meta.topic_id.bytes, index)
        return self.group.may_commit_late(self.member_id, self.epoch, partition)


def offset_commit(core: Core, call: Call[OffsetCommitRequest], slot: LaterReply) -> None:
    """Store offsets; answered when they are durable."""
    request = call.request
    if call.version >= topic_ids.OFFSETS_SINCE:
        topic_ids.name_topics(core.topics, request.topics)
    unknown = topic_ids.unknown_code(call.version, topic_ids.OFFSETS_SINCE)
    group = core.groups.get(request.group_id)
    late: Late | None = None
    if group is not None:
        code = group.check_commit(
            monotonic_ms(),
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
        )
        core.groups.changed(group)
    elif (consumer := core.groups.get_consumer(request.group_id)) is not None:
        code = consumer.check_commit(
            request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
        )
        if (
            not code
            and call.version < _MEMBER_EPOCH_SINCE
            and consumer.knows_epochs(request.member_id)
        ):
            code = ErrorCode.UNSUPPORTED_VERSION
        if code is ErrorCode.STALE_MEMBER_EPOCH and call.version >= _MEMBER_EPOCH_SINCE:
            late = Late(consumer, request.member_id, request.generation_id_or_member_epoch)
    else:
        is_member = request.generation_id_or_member_epoch >= 0
        code = ErrorCode.UNKNOWN_MEMBER_ID if is_member else ErrorCode.NONE
    rows: list[CommitRow] = []
    response = OffsetCommitResponse(topics=[])
    for topic in request.topics:
        meta = core.topics.get(topic.name)
        answered = OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=[]
        )
        response.topics.append(answered)
        for one in topic.partitions:
            refused = code
            if late is not None and late.may_commit(meta, one.partition_index):
                refused = ErrorCode.NONE
            if refused or meta is None:
                row_code, row = refused or unknown, None
            else:
                row_code, row = commit_row(meta, one)
            if row is not None:
                rows.append(row)
            answered.partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=one.partition_index, error_code=row_code
                )
            )
    if not rows:
        slot.answer(response)
        return

    def stored(error: OSError | None) -> None:
        if error is not None:
            for answered in response.topics:
                for row in answered.partitions:
                    row.error_code = row.error_code or ErrorCode.COORDINATOR_NOT_AVAILABLE
        slot.answer(response)
        core.turn.end()

    now = core.now_ms()
    core.groups.commit(request.group_id, rows, now, stored, _expire_ms(request, now))


def _expire_ms(request: OffsetCommitRequest, now_ms: int) -> int | None:
    """Until when these offsets are kept; None: as the broker is set."""
    if request.retention_time_ms == _AS_THE_BROKER_IS_SET:
        return None
    return min(now_ms + request.retention_time_ms, _TIME_MS_MAX)


def commit_row(
    meta: TopicMeta | None, asked: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
) -> tuple[ErrorCode, CommitRow | None]:
    """One partition of a commit as it is stored, or why it is not."""
    if meta is None or not 0 <= asked.partition_index < meta.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    metadata = asked.committed_metadata or ""
    if len(metadata.encode()) > METADATA_SIZE_MAX:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE, None
    return ErrorCode.NONE, CommitRow(
        meta.name,
        meta.topic_id,
        asked.partition_index,
        asked.committed_offset,
        asked.committed_leader_epoch,
        metadata,
    )


async def offset_fetch(core: Core, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Where groups stand; -1 where they never committed."""
    request = call.request

    # Once per group: a transaction may have as many offsets as a request asks for.
    asked_groups = {request.group_id, *(group.group_id for group in request.groups)}
    pending = {
        name: core.transactions.table.pending(name) if request.require_stable else set()
        for name in asked_groups
    }

    def unstable(group_id: str, topic: str, partition: int) -> ErrorCode:
        if (topic, partition) in pending[group_id]:
            return ErrorCode.UNSTABLE_OFFSET_COMMIT
        return ErrorCode.NONE

    asked = [(topic.name, ZERO_UUID, topic.partition_indexes) for topic in request.topics or ()]
    single = _stand(core, request.group_id, None if request.topics is None else asked)
    groups = []
    for group in request.groups:
        if call.version >= topic_ids.OFFSETS_SINCE:
            topic_ids.name_topics(core.topics, group.topics or ())
        wanted = [
            (topic.name, topic.topic_id, topic.partition_indexes) for topic in group.topics or ()
        ]
        consumer = core.groups.get_consumer(group.group_id)
        if consumer is not None and (
            code := consumer.check_fetch(group.member_id, group.member_epoch)
        ):
            groups.append(
                OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
            )
            continue
        found = _stand(core, group.group_id, None if group.topics is None else wanted)
        groups.append(
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseGroupTopic(
                        name=name,
                        topic_id=topic_id,
                        partitions=[
                            OffsetFetchResponseGroupTopicPartition(
                                partition_index=index,
                                committed_offset=stands.offset,
                                committed_leader_epoch=stands.leader_epoch,
                                metadata=stands.metadata,
                                error_code=_code(call.version, name)
                                or unstable(group.group_id, name, index),
                            )
                            for index, stands in rows
                        ],
                    )
                    for name, topic_id, rows in found
                ],
            )
        )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=stands.offset,
                        committed_leader_epoch=stands.leader_epoch,
                        metadata=stands.metadata,
                        error_code=unstable(request.group_id, name, index),
                    )
                    for index, stands in rows
                ],
            )
            for name, _, rows in single
        ],
        groups=groups,
    )


def _code(version: int, name: str) -> ErrorCode:
    """What is wrong with a topic of OffsetFetch: an id that there is not, nothing else."""
    if version >= topic_ids.OFFSETS_SINCE and name == topic_ids.UNKNOWN:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.NONE


_Stand: TypeAlias = tuple[str, UUID, list[tuple[int, CommittedOffset]]]


def _stand(
    core: Core, group_id: str, asked: list[tuple[str, UUID, list[int]]] | None
) -> list[_Stand]:
    """By topic: partition and where the group stands; everything it has with `asked` None."""
    if asked is None:
        return _everything(core, group_id)
    answer: list[_Stand] = []
    for name, topic_id, indexes in asked:
        meta = core.topics.get(name)
        known = {} if meta is None else core.groups.offsets(group_id, name, meta.topic_id)
        answer.append((name, topic_id, [(index, known.get(index, _NOTHING)) for index in indexes]))
    return answer


def _everything(core: Core, group_id: str) -> list[_Stand]:
    answer: list[_Stand] = []
    for name in core.groups.topics(group_id):
        meta = core.topics.get(name)
        known = {} if meta is None else core.groups.offsets(group_id, name, meta.topic_id)
        if meta is not None and known:
            answer.append((name, meta.topic_id, sorted(known.items())))
    return answer

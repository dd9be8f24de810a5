"""Committed offsets on the wire: OffsetCommit and OffsetFetch.

A commit is answered when it is durable.  A member commits as what it is: its id, its generation,
its instance.  Whoever is no member (generation -1, no id) may commit while nobody is: tools, and
consumers that assign partitions themselves.

A commit of a KIP-848 or streams member whose epoch has risen meanwhile stands for the partitions
that are its own as they were then (KIP-1251), and is refused for the others.

Offsets of a transaction are staged (transaction_apis.py) and stand when it commits; who asks for
stable ones is told 88 UNSTABLE_OFFSET_COMMIT until it has ended.

Versions 2 to 4 may say for how long an offset is kept (`retention_time_ms`): offset_expiry.py.

An offset belongs to the topic that was meant: a deleted and recreated topic has none.  From
version 10 on both name topics by id.

Where the metadata of the broker is full (segments/metadata/metadata.py) what was never committed,
or says more than it did, is refused with POLICY_VIOLATION; groups go on from where they are.

Whoever asks for a partition twice is answered once; a group that a request asks about twice is
refused the second time (42).  Large requests let others have their turn between their rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from segbroker.protocol.messages_transactions import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponsePartition,
)
from segbroker.segments.metadata.committed import (
    NO_OFFSETS,
    NOWHERE,
    ROWS_MAX,
    CommitRow,
    CommittedOffset,
    grows,
)
from segbroker.segments.metadata.metadata import TopicMeta

from ..call import Call
from ..core import Core
from ..groups.consumer_group import ConsumerGroup
from ..groups.streams_group import StreamsGroup
from ..loop.pace import Pace
from ..partitions import topic_ids
from .later_reply import LaterReply
from .sign_of_life import committed_ms

METADATA_SIZE_MAX: Final = 4096
"""In units of UTF-16: Kafka counts the characters of a Java string."""
ROWS_AT_ONCE: Final = ROWS_MAX
"""Partitions of a large commit that are stored before others have their turn: one control event."""
_AS_THE_BROKER_IS_SET: Final = -1  # retention_time_ms
_TIME_MS_MAX: Final = 2**63 - 1
_MEMBER_EPOCH_SINCE: Final = 9
_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Late(NamedTuple):
    """A commit by a member whose epoch has risen since it was told: some of it may stand."""

    group: ConsumerGroup | StreamsGroup
    member_id: str
    epoch: int

    def may_commit(self, meta: TopicMeta | None, index: int) -> bool:
        """Whether this partition has been its own from then until now."""
        if meta is None:
            return False
        partition = (meta.topic_id.bytes, index)
        return self.group.may_commit_late(self.member_id, self.epoch, partition)


class Looked(NamedTuple):
    """One partition of a commit: its row of the answer, and what is stored if its sender may."""

    answer: OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition
    meta: TopicMeta | None
    row: CommitRow | None

    def accept(self, code: ErrorCode, late: Late | None) -> CommitRow | None:
        """What is to be stored; code: what is wrong with the sender.

        What is not there is said to be that, whoever the sender is, as by Kafka.
        """
        if self.answer.error_code in _NOT_THERE:
            return None
        if code and (late is None or not late.may_commit(self.meta, self.answer.partition_index)):
            self.answer.error_code = code
            return None
        return self.row


def offset_commit(core: Core, call: Call[OffsetCommitRequest], slot: LaterReply) -> None:
    """Store offsets; answered when they are durable."""
    response = OffsetCommitResponse(topics=[])
    looked = list(_looked_up(core, call, response))
    _store(core, call, looked, lambda: slot.answer(response))


async def offset_commit_paced(core: Core, call: Call[OffsetCommitRequest]) -> OffsetCommitResponse:
    """As `offset_commit`, for many partitions: others have their turn between them.

    It is stored as if it were several requests, ROWS_AT_ONCE partitions each, so whether the sender
    may commit is looked at again for each; and whether the topics are still those that were meant:
    an offset of one that was deleted would take the place of those of its successor.
    """
    response = OffsetCommitResponse(topics=[])
    looked: list[Looked] = []
    unknown = topic_ids.unknown_code(call.version, topic_ids.OFFSETS_SINCE)
    pace = Pace()
    for one in _looked_up(core, call, response):
        looked.append(one)
        await pace.step()
    for begin in range(0, len(looked), ROWS_AT_ONCE):
        stored = trio.Event()
        some = looked[begin : begin + ROWS_AT_ONCE]
        for one in some:
            if one.meta is not None and core.topics.by_id(one.meta.topic_id) is None:
                one.answer.error_code = unknown
        _store(core, call, some, stored.set)
        core.turn.end()
        await stored.wait()
        await pace.step()
    return response


def _looked_up(
    core: Core, call: Call[OffsetCommitRequest], response: OffsetCommitResponse
) -> Iterator[Looked]:
    """Partition by partition what is asked, whoever asks; `response` gets their rows."""
    is_by_id = call.version >= topic_ids.OFFSETS_SINCE
    unknown = topic_ids.unknown_code(call.version, topic_ids.OFFSETS_SINCE)
    for topic in call.request.topics:
        if is_by_id:
            topic.name = topic_ids.name_of(core.topics, topic.topic_id)
        meta = core.topics.get(topic.name)
        answered = OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=[]
        )
        response.topics.append(answered)
        for one in topic.partitions:
            code, row = (unknown, None) if meta is None else commit_row(meta, one)
            answer = OffsetCommitResponsePartition(
                partition_index=one.partition_index, error_code=code
            )
            answered.partitions.append(answer)
            yield Looked(answer, meta, row)


def _store(
    core: Core, call: Call[OffsetCommitRequest], looked: Sequence[Looked], then: Callable[[], None]
) -> None:
    """Whether the sender may commit, and then the storing: nothing happens to the group between.

    `then` is called when every row of the answer is as it stays.
    """
    request = call.request
    code, late = _check_sender(core, call)
    rows = [row for one in looked if (row := one.accept(code, late)) is not None]
    if core.topics.manager.is_metadata_full:
        rows = without_growth(core, request.group_id, looked, rows)
    if not rows:
        then()
        return

    def stored(error: OSError | None) -> None:
        if error is not None:
            for one in looked:
                code = one.answer.error_code or ErrorCode.COORDINATOR_NOT_AVAILABLE
                one.answer.error_code = code
        then()
        core.turn.end()

    now = core.now_ms()
    core.groups.commit(request.group_id, rows, now, stored, _expire_ms(request, now))


def _check_sender(core: Core, call: Call[OffsetCommitRequest]) -> tuple[ErrorCode, Late | None]:
    """What is wrong with whoever commits; and of what of it that does not hold."""
    request = call.request
    epoch = request.generation_id_or_member_epoch
    group = core.groups.get(request.group_id)
    if group is not None:
        code = group.check_commit(
            committed_ms(core), request.member_id, request.group_instance_id, epoch
        )
        core.groups.changed(group)
        return code, None
    consumer = core.groups.get_epochal(request.group_id)
    if consumer is None:
        if not core.groups.share_groups.gives_way(request.group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND, None
        return ErrorCode.UNKNOWN_MEMBER_ID if epoch >= 0 else ErrorCode.NONE, None
    code = consumer.check_commit(request.member_id, epoch, request.group_instance_id)
    if call.version < _MEMBER_EPOCH_SINCE:
        # Kafka looks at the version first.
        may_say = code in (ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH)
        if may_say and consumer.knows_epochs(request.member_id):
            code = ErrorCode.UNSUPPORTED_VERSION
    elif code is ErrorCode.STALE_MEMBER_EPOCH:
        return code, Late(consumer, request.member_id, epoch)
    return code, None


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
    if len(metadata.encode("utf-16-le", "surrogatepass")) > 2 * METADATA_SIZE_MAX:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE, None
    return ErrorCode.NONE, CommitRow(
        meta.name,
        meta.topic_id,
        asked.partition_index,
        asked.committed_offset,
        asked.committed_leader_epoch,
        metadata,
    )


def without_growth(
    core: Core, group_id: str, looked: Iterable[Looked], rows: Iterable[CommitRow]
) -> list[CommitRow]:
    """The rows that stand already: there is no room for more, and who made it up is told so."""
    kept = {id(row): row for row in rows if not grows(core.topics.manager.committed, group_id, row)}
    for one in looked:
        if not one.answer.error_code and id(one.row) not in kept:
            one.answer.error_code = ErrorCode.POLICY_VIOLATION
    return list(kept.values())


async def offset_fetch(core: Core, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Where groups stand; -1 where they never committed."""
    request = call.request
    pace = Pace()
    pending = _pending(core, request, request.group_id)
    asked = None
    if request.topics is not None:
        asked = [(topic.name, ZERO_UUID, topic.partition_indexes) for topic in request.topics]
    response = OffsetFetchResponse(topics=[], groups=[])
    for name, _, rows in await _stand(core, request.group_id, asked, pace):
        single = OffsetFetchResponseTopic(name=name, partitions=[])
        response.topics.append(single)
        await pace.step()
        for index, stood in rows:
            code, stands = _stable(pending, name, index, stood)
            single.partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=stands.offset,
                    committed_leader_epoch=stands.leader_epoch,
                    metadata=stands.metadata,
                    error_code=code,
                )
            )
            await pace.step()
    answered: set[str] = set()
    for group in request.groups:
        if group.group_id in answered:
            code = ErrorCode.INVALID_REQUEST
            row = OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
        else:
            row = await _group_stands(core, call, group, pace)
        answered.add(group.group_id)
        response.groups.append(row)
        await pace.step()
    return response


async def _group_stands(
    core: Core, call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup, pace: Pace
) -> OffsetFetchResponseGroup:
    """One of several groups, as from version 8 on."""
    answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=[])
    if call.version >= topic_ids.OFFSETS_SINCE:
        await topic_ids.name_topics_paced(core.topics, group.topics or ())
    consumer = core.groups.get_epochal(group.group_id)
    if consumer is not None and (code := consumer.check_fetch(group.member_id, group.member_epoch)):
        answer.error_code = code
        return answer
    pending = _pending(core, call.request, group.group_id)
    asked = None
    if group.topics is not None:
        asked = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in group.topics]
    for name, topic_id, rows in await _stand(core, group.group_id, asked, pace):
        unknown = _code(call.version, name)
        topic = OffsetFetchResponseGroupTopic(name=name, topic_id=topic_id, partitions=[])
        answer.topics.append(topic)
        await pace.step()
        for index, stood in rows:
            code, stands = _stable(pending, name, index, stood)
            topic.partitions.append(
                OffsetFetchResponseGroupTopicPartition(
                    partition_index=index,
                    committed_offset=stands.offset,
                    committed_leader_epoch=stands.leader_epoch,
                    metadata=stands.metadata,
                    error_code=unknown or code,
                )
            )
            await pace.step()
    return answer


def _pending(core: Core, request: OffsetFetchRequest, group_id: str) -> set[tuple[str, int]]:
    """What waits for the end of a transaction, for who asks what is stable.

    Once per group: a transaction may have as many offsets as a request asks for.
    """
    return core.transactions.table.pending(group_id) if request.require_stable else set()


def _stable(
    pending: set[tuple[str, int]], topic: str, partition: int, stands: CommittedOffset
) -> tuple[ErrorCode, CommittedOffset]:
    """A code, and what is said of an offset: nothing while it may be about to change."""
    if (topic, partition) in pending:
        return ErrorCode.UNSTABLE_OFFSET_COMMIT, NOWHERE
    return ErrorCode.NONE, stands


def _code(version: int, name: str) -> ErrorCode:
    """What is wrong with a topic of OffsetFetch: an id that there is not, nothing else."""
    if version >= topic_ids.OFFSETS_SINCE and name == topic_ids.UNKNOWN:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.NONE


_Stand: TypeAlias = tuple[str, UUID, list[tuple[int, CommittedOffset]]]


async def _stand(
    core: Core, group_id: str, asked: list[tuple[str, UUID, list[int]]] | None, pace: Pace
) -> list[_Stand]:
    """By topic: partition and where the group stands; everything it has with `asked` None.

    What is asked twice is answered once, or a request could ask for a partition with long metadata
    a million times.
    """
    if asked is None:
        return await _everything(core, group_id, pace)
    wanted: dict[tuple[str, UUID], dict[int, None]] = {}
    for name, topic_id, indexes in asked:
        wanted.setdefault((name, topic_id), {}).update(dict.fromkeys(indexes))
        await pace.step()
    answer: list[_Stand] = []
    for (named, topic_id), once in wanted.items():
        name, meta = named, core.topics.get(named)
        if topic_id != ZERO_UUID and (meta is None or meta.topic_id != topic_id):
            name, meta = topic_ids.UNKNOWN, None  # or it was deleted meanwhile
        known = NO_OFFSETS if meta is None else core.groups.offsets(group_id, name, meta.topic_id)
        rows = []
        for index in once:
            rows.append((index, known.at(index)))
            await pace.step()
        answer.append((name, topic_id, rows))
    return answer


async def _everything(core: Core, group_id: str, pace: Pace) -> list[_Stand]:
    answer: list[_Stand] = []
    for name in core.groups.topics(group_id):
        meta = core.topics.get(name)
        await pace.step()
        if meta is None:
            continue
        known = core.groups.offsets(group_id, name, meta.topic_id)
        rows = []
        for index in known.partitions():
            rows.append((index, known.at(index)))
            await pace.step()
        if rows:
            answer.append((name, meta.topic_id, rows))
    return answer

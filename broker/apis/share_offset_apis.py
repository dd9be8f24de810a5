"""Where share groups stand: DescribeShareGroupOffsets, AlterShareGroupOffsets and
DeleteShareGroupOffsets (KIP-932).

| api | answered |
|---|---|
| describe | from memory; with a lag (version 1) its partitions are opened first |
| alter, delete | when that is durable; of a group without members only |

A group stands at the first offset that it is not done with.  Its lag is what is readable from there
on, without the records above it that it is done with.  Where it stands nowhere, in a partition that
there is or not, the offset and the lag are -1: that is no error, as little as in OffsetFetch.

To be put somewhere a group need not exist: it does from then on.  Any offset will do that is not
negative; Kafka takes -1, too, for "as if it were new there".  Where the metadata of the broker is
full a group is put nowhere that it does not stand already (POLICY_VIOLATION).

What describe or delete names twice, be it a group, a topic or a partition, is answered once; a
group the second time with 42.  Where a group is put twice it stands where it was put last.  Many
rows are stored as if they were several requests, ROWS_MAX each, so whether the group has members is
looked at again for each.  Without `share` in group_protocols all three are answered 35
UNSUPPORTED_VERSION, and offered all the same, as by Kafka.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from segbroker.segments.metadata.metadata import TopicMeta
from segbroker.segments.metadata.share_groups import ROWS_MAX, SECTION, ShareRow, grows

from ..call import Call
from ..core import Core
from ..groups.group_lines import OFFSETS_ALTERED, OFFSETS_DELETED
from ..loop.pace import Pace
from ..recording import recorded
from ..refused import Refused
from ..settling import Settling

_LAG_SINCE: Final = 1
_NOWHERE: Final = -1
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NOT_ENABLED: Final = ErrorCode.UNSUPPORTED_VERSION


async def describe_share_group_offsets(
    core: Core, call: Call[DescribeShareGroupOffsetsRequest]
) -> DescribeShareGroupOffsetsResponse:
    """Where groups stand, and how far they are behind."""
    response = DescribeShareGroupOffsetsResponse(groups=[])
    answered: set[str] = set()
    pace = Pace()
    for group in call.request.groups:
        code = ErrorCode.NONE if core.config.takes_share_groups else _NOT_ENABLED
        if group.group_id in answered:
            code = ErrorCode.INVALID_REQUEST
        answered.add(group.group_id)
        row = DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=[], error_code=code
        )
        if code:
            row.error_message = code.description
        else:
            row.topics = await _stands(core, group, pace, with_lag=call.version >= _LAG_SINCE)
        response.groups.append(row)
        await pace.step()
    return response


async def _stands(
    core: Core, group: DescribeShareGroupOffsetsRequestGroup, pace: Pace, *, with_lag: bool
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """One group, where it is asked about; everywhere with `topics` None."""
    group_id = group.group_id
    wanted: dict[str, dict[int, None]] = {}
    if group.topics is None:
        for name, _, index in core.shares.places(group_id):
            wanted.setdefault(name, {})[index] = None
            await pace.step()
    for topic in group.topics or ():
        wanted.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
        await pace.step()
    if with_lag and core.shares.has(group_id):
        await core.topics.open_all(
            (name, index)
            for name, indexes in wanted.items()
            if (meta := core.topics.get(name)) is not None
            for index in indexes
            if core.shares.start_offset(group_id, meta.topic_id, index) is not None
        )
    answer: list[DescribeShareGroupOffsetsResponseTopic] = []
    for name, indexes in wanted.items():
        meta = core.topics.get(name)
        if meta is None and group.topics is None:
            continue  # deleted meanwhile
        row = DescribeShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=ZERO_UUID if meta is None else meta.topic_id, partitions=[]
        )
        answer.append(row)
        for index in sorted(indexes) if group.topics is None else indexes:
            row.partitions.append(_stand(core, group_id, meta, index, with_lag=with_lag))
            await pace.step()
    return answer


def _stand(
    core: Core, group_id: str, meta: TopicMeta | None, index: int, *, with_lag: bool
) -> DescribeShareGroupOffsetsResponsePartition:
    """Where a group stands in a partition."""
    row = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=_NOWHERE, leader_epoch=0
    )
    if meta is None or not 0 <= index < meta.partitions:
        return row
    start = core.shares.start_offset(group_id, meta.topic_id, index)
    if start is None:
        return row
    row.start_offset = start
    row.leader_epoch = core.topics.leader_epoch(meta, index)
    if with_lag and core.topics.served_partition(meta.name, index) is None:
        row.error_code, row.error_message = core.topics.why_unopened(meta.name, index)
    elif with_lag:
        row.lag = core.shares.lag(group_id, meta, index)
    return row


class _Put(NamedTuple):
    """A partition that a group is to be put into, and its row of the answer."""

    share: ShareRow
    answer: AlterShareGroupOffsetsResponsePartition

    def refuse(self, code: ErrorCode, message: str | None = None) -> None:
        """Say why it is not."""
        self.answer.error_code, self.answer.error_message = code, message or code.description


async def alter_share_group_offsets(
    core: Core, call: Call[AlterShareGroupOffsetsRequest]
) -> AlterShareGroupOffsetsResponse:
    """Have a group without members begin elsewhere."""
    group_id = call.request.group_id
    response = AlterShareGroupOffsetsResponse(responses=[])
    try:
        _check_changeable(core, group_id)
    except Refused as exc:
        response.error_code, response.error_message = exc.code, exc.message
        return response
    puts: list[_Put] = []
    pace = Pace()
    for topic in call.request.topics:
        meta = core.topics.get(topic.topic_name)
        answered = AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=ZERO_UUID if meta is None else meta.topic_id,
            partitions=[],
        )
        response.responses.append(answered)
        for row, put in _looked_up(meta, topic):
            answered.partitions.append(row)
            if put is not None:
                puts.append(put)
            await pace.step()
    for begin in range(0, len(puts), ROWS_MAX):
        await _put(core, call, puts[begin : begin + ROWS_MAX])
        await pace.step()
    return response


def _looked_up(
    meta: TopicMeta | None, topic: AlterShareGroupOffsetsRequestTopic
) -> Iterable[tuple[AlterShareGroupOffsetsResponsePartition, _Put | None]]:
    """Partition by partition its row of the answer, and what is to be stored."""
    for asked in topic.partitions:
        index, start = asked.partition_index, asked.start_offset
        row = AlterShareGroupOffsetsResponsePartition(partition_index=index)
        put = None
        if meta is None or not 0 <= index < meta.partitions:
            row.error_code, row.error_message = _UNKNOWN, _UNKNOWN.description
        elif start < 0:
            row.error_code = ErrorCode.INVALID_REQUEST
            row.error_message = f"a group begins at offset 0 or above, not at {start}"
        else:
            put = _Put(ShareRow(meta.name, meta.topic_id, index, start), row)
        yield row, put


async def _put(core: Core, call: Call[AlterShareGroupOffsetsRequest], puts: Sequence[_Put]) -> None:
    """Store some; their rows say what came of it."""
    manager, group_id = core.topics.manager, call.request.group_id
    if manager.is_metadata_full:
        known = manager.section(SECTION) or {}
        for put in puts:
            if grows(known, group_id, put.share):
                put.refuse(
                    ErrorCode.POLICY_VIOLATION, "the metadata of the broker has no room for more"
                )
    puts = [put for put in puts if not put.answer.error_code]
    if not puts:
        return
    try:
        _check_changeable(core, group_id)
        group = core.groups.obtain_share(group_id)
    except Refused as exc:  # somebody joined meanwhile
        for put in puts:
            put.refuse(exc.code, exc.message)
        return
    rows = [put.share for put in puts]
    # From the look at its members on to here nobody joins; no other group gets its name before it
    # is written down.
    group.moving += 1
    try:
        failure = await recorded(lambda done: core.shares.set_offsets(group_id, rows, done))
    finally:
        group.moving -= 1
        core.groups.share_groups.changed(group)
    if failure is None:
        topics = {row.topic for row in rows}
        core.groups.lines.offsets(OFFSETS_ALTERED, group_id, topics, call.peer.asker)
        return
    for put in puts:
        put.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"it is not durable: {failure}")


async def delete_share_group_offsets(
    core: Core, call: Call[DeleteShareGroupOffsetsRequest]
) -> DeleteShareGroupOffsetsResponse:
    """Have a group without members forget where it stands in topics: it is new to them then."""
    group_id = call.request.group_id
    response = DeleteShareGroupOffsetsResponse(responses=[])
    settling = Settling(core)
    try:
        _check_asked(core, group_id)
        if not core.groups.share_groups.has(group_id):
            await settling.check_group()
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
        _check_changeable(core, group_id)
    except Refused as exc:
        response.error_code, response.error_message = exc.code, exc.message
        return response
    stands = {(name, topic_id) for name, topic_id, _ in core.shares.places(group_id)}
    gone: list[DeleteShareGroupOffsetsResponseTopic] = []
    pace = Pace()
    for name in dict.fromkeys(topic.topic_name for topic in call.request.topics):
        meta = core.topics.get(name)
        row = DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=ZERO_UUID)
        response.responses.append(row)
        if meta is None:
            row.error_code, row.error_message = _UNKNOWN, _UNKNOWN.description
        elif (name, meta.topic_id) not in stands:
            row.error_code, row.error_message = await _has_none(settling)
        else:
            row.topic_id = meta.topic_id
            gone.append(row)
        await pace.step()
    for begin in range(0, len(gone), ROWS_MAX):
        await _forget(core, call, gone[begin : begin + ROWS_MAX])
        await pace.step()
    return response


async def _has_none(settling: Settling) -> tuple[ErrorCode, str]:
    """What is said of a topic in which a group has no offsets, nor behind a crash."""
    try:
        await settling.check_group()
    except Refused as exc:
        return exc.code, exc.message
    return _UNKNOWN, "the group has no offsets in this topic"


async def _forget(
    core: Core,
    call: Call[DeleteShareGroupOffsetsRequest],
    rows: Sequence[DeleteShareGroupOffsetsResponseTopic],
) -> None:
    """Forget some; the rows say what came of it."""
    group_id = call.request.group_id
    code, message = ErrorCode.NONE, ""
    try:
        _check_changeable(core, group_id)
    except Refused as exc:  # somebody joined meanwhile
        code, message = exc.code, exc.message
    else:
        names = [row.topic_name for row in rows]
        failure = await recorded(lambda done: core.shares.forget(group_id, names, done))
        if failure is not None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            message = f"it is not durable: {failure}"
        else:
            core.groups.lines.offsets(OFFSETS_DELETED, group_id, names, call.peer.asker)
    if code:
        for row in rows:
            row.error_code, row.error_message = code, message


def _check_changeable(core: Core, group_id: str) -> None:
    """Raise Refused unless this may be, or become, a share group without members."""
    _check_asked(core, group_id)
    group = core.groups.share_groups.get(group_id)
    if group is None:
        core.groups.check_shared(group_id)
    elif group.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"share group {group_id!r} has members")


def _check_asked(core: Core, group_id: str) -> None:
    """Raise Refused where no group is changed."""
    if not core.config.takes_share_groups:
        raise Refused(_NOT_ENABLED, _NOT_ENABLED.description)
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_GROUP_ID.description)

"""Where share groups stand, for an admin client, as calls (see engine).

A share group stands at the first record that it is not done with.  It is put elsewhere, or forgets
where it stands, while it has no members.
"""

from collections.abc import Iterable
from typing import NamedTuple

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)

from .asking import unsaid, until_it_lasts
from .coordinator import GROUP_KEY, Coordinator
from .engine import Call, Engine
from .errors import check_code
from .group_offsets import as_offsets, first_of
from .records import ByPartition, TopicPartition

NOT_SERVED = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.POLICY_VIOLATION)


class ShareOffset(NamedTuple):
    """Where a share group stands in a partition: the first record that it is not done with.

    lag: records that it is not done with; None: the broker does not say, or does not serve the
    partition.
    """

    offset: int
    lag: int | None = None
    leader_epoch: int = -1


def share_offsets(engine: Engine, group_id: str) -> Call[dict[TopicPartition, ShareOffset]]:
    """Where a share group stands, everywhere; empty for one that there is not."""
    return until_it_lasts(engine, lambda: _share_offsets(engine, group_id))


def _share_offsets(engine: Engine, group_id: str) -> Call[dict[TopicPartition, ShareOffset]]:
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
    )
    reply = yield from _coordinator(engine, group_id).ask(request)
    assert isinstance(reply, DescribeShareGroupOffsetsResponse)
    (group,) = reply.groups
    check_code(group.error_code, f"share group {group_id!r}", group.error_message)
    return share_stands(group)


def share_stands(
    group: DescribeShareGroupOffsetsResponseGroup,
) -> dict[TopicPartition, ShareOffset]:
    """Where a group stands by its row of an answer.  Raises BrokerError: it has a row with one."""
    group_id = group.group_id
    found = {}
    for topic in group.topics:
        for row in topic.partitions:
            about = f"share group {group_id!r} in {topic.topic_name}-{row.partition_index}"
            if row.error_code not in NOT_SERVED:  # where it stands is told all the same
                check_code(row.error_code, about, row.error_message)
            if row.start_offset >= 0:
                lag = row.lag if row.lag >= 0 else None
                place = TopicPartition(topic.topic_name, row.partition_index)
                found[place] = ShareOffset(row.start_offset, lag, row.leader_epoch)
    return found


def alter_share_offsets(engine: Engine, group_id: str, offsets: ByPartition[int]) -> Call[None]:
    """Put a share group without members somewhere: the first partition that was refused decides."""
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (name, partition), stands in as_offsets(offsets).items():
        topics.setdefault(name, []).append(
            AlterShareGroupOffsetsRequestPartition(
                partition_index=partition, start_offset=stands.offset
            )
        )
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=rows)
            for name, rows in topics.items()
        ],
    )
    # To do it again would do no harm but to who has joined meanwhile, and then it is refused.
    return until_it_lasts(engine, lambda: _alter_share_offsets(engine, group_id, request))


def _alter_share_offsets(
    engine: Engine, group_id: str, request: AlterShareGroupOffsetsRequest
) -> Call[None]:
    reply = yield from _coordinator(engine, group_id).ask(request)
    assert isinstance(reply, AlterShareGroupOffsetsResponse)
    check_code(reply.error_code, f"share group {group_id!r}", reply.error_message)
    wanted = {
        (topic.topic_name, row.partition_index)
        for topic in request.topics
        for row in topic.partitions
    }
    for topic in reply.responses:
        for row in topic.partitions:
            about = f"share group {group_id!r} in {topic.topic_name}-{row.partition_index}"
            check_code(row.error_code, about, row.error_message)
            wanted.discard((topic.topic_name, row.partition_index))
    if wanted:
        raise unsaid(f"share group {group_id!r} in {first_of(wanted)}")


def delete_share_offsets(engine: Engine, group_id: str, topics: Iterable[str]) -> Call[None]:
    """Have a share group without members forget these topics: the first that was refused decides.

    A connection that is lost behind the request is the caller's to know of.
    """
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
    )
    reply = yield from _coordinator(engine, group_id).ask(request, repeat=False)
    assert isinstance(reply, DeleteShareGroupOffsetsResponse)
    check_code(reply.error_code, f"share group {group_id!r}", reply.error_message)
    wanted = {topic.topic_name for topic in request.topics}
    for row in reply.responses:
        about = f"share group {group_id!r} in {row.topic_name}"
        check_code(row.error_code, about, row.error_message)
        wanted.discard(row.topic_name)
    if wanted:
        raise unsaid(f"share group {group_id!r} in {min(wanted)}")


def _coordinator(engine: Engine, group_id: str) -> Coordinator:
    return Coordinator(engine, group_id, GROUP_KEY)

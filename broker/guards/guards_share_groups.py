"""Guards of requests about share groups: see authorized.py.

| api | needs | else |
|---|---|---|
| ShareGroupHeartbeat | READ group, DESCRIBE of each topic named | 30, 29 |
| ShareGroupDescribe | DESCRIBE group, and of every topic | 30, 29 |
| DescribeShareGroupOffsets | DESCRIBE group, DESCRIBE topic | 30, 29 (left out of "all") |
| AlterShareGroupOffsets | READ group, READ topic | 30, 29 for the topic's partitions |
| DeleteShareGroupOffsets | DELETE group, READ topic | 30, 29 |
| ShareFetch, ShareAcknowledge | READ group | 30 |
| ... of each topic, while it is read or acknowledged | READ topic | 29 (share_fetching/) |

Without share groups (group_protocols) the handlers of all but the last two say so, to everybody.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_share_groups import (
    AlterShareGroupOffsetsRequest,
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
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponseGroup,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from segbroker.protocol.schema import Message

from ..access.authorizer import DELETE, DESCRIBE, GROUP, READ, TOPIC, Authorizer
from ..call import Call
from ..core import Core
from .guarding import (
    GROUP_REFUSED,
    TOPIC_REFUSED,
    Amend,
    Guard,
    describing,
    heartbeat_code,
    take_refused,
)


def _where_taken(guard: Guard) -> Guard:
    """A guard that lets everybody through where there are no share groups: the handler says so."""

    @wraps(guard)
    def looked_at(core: Core, authorizer: Authorizer, call: Call[Any]) -> Message | Amend | None:
        return guard(core, authorizer, call) if core.config.takes_share_groups else None

    return looked_at


def _heartbeat(
    core: Core, authorizer: Authorizer, call: Call[ShareGroupHeartbeatRequest]
) -> Message | None:
    names = call.request.subscribed_topic_names or ()
    code = heartbeat_code(authorizer, call.peer, call.request.group_id, names)
    if not code:
        return None
    return ShareGroupHeartbeatResponse(
        error_code=code, error_message=code.description, member_epoch=0, heartbeat_interval_ms=0
    )


def _describe(
    core: Core, authorizer: Authorizer, call: Call[ShareGroupDescribeRequest]
) -> Amend | None:
    return describing(authorizer, call, _topics_of, ShareGroupDescribeResponseGroup)


def _topics_of(group: ShareGroupDescribeResponseGroup) -> set[str]:
    return {
        one.topic_name for member in group.members for one in member.assignment.topic_partitions
    }


def _describe_offsets(
    core: Core, authorizer: Authorizer, call: Call[DescribeShareGroupOffsetsRequest]
) -> Amend:
    peer, request = call.peer, call.request
    groups = take_refused(
        request.groups, lambda one: authorizer.allows(peer, DESCRIBE, GROUP, one.group_id)
    )
    first: dict[str, DescribeShareGroupOffsetsRequestGroup] = {}  # asked again: told nothing
    for group in request.groups:
        first.setdefault(group.group_id, group)
    asked_all = {name for name, group in first.items() if group.topics is None}
    refused = {
        name: [
            DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=ZERO_UUID,
                partitions=[
                    DescribeShareGroupOffsetsResponsePartition(
                        partition_index=index,
                        start_offset=-1,
                        leader_epoch=0,
                        error_code=TOPIC_REFUSED,
                        error_message=TOPIC_REFUSED.description,
                    )
                    for index in dict.fromkeys(topic.partitions)
                ],
            )
            for topic in take_refused(
                group.topics or [],
                lambda one: authorizer.allows(peer, DESCRIBE, TOPIC, one.topic_name),
            )
        ]
        for name, group in first.items()
    }

    def amend(response: DescribeShareGroupOffsetsResponse) -> None:
        for row in response.groups:
            if row.group_id in asked_all:
                take_refused(
                    row.topics,
                    lambda one: authorizer.would_allow(peer, DESCRIBE, TOPIC, one.topic_name),
                )
            row.topics += refused.pop(row.group_id, [])  # once
        response.groups += [
            DescribeShareGroupOffsetsResponseGroup(
                group_id=one.group_id,
                topics=[],
                error_code=GROUP_REFUSED,
                error_message=GROUP_REFUSED.description,
            )
            for one in groups
        ]

    return amend


def _alter_offsets(
    core: Core, authorizer: Authorizer, call: Call[AlterShareGroupOffsetsRequest]
) -> Message | Amend | None:
    peer, request = call.peer, call.request
    if not authorizer.allows(peer, READ, GROUP, request.group_id):
        return AlterShareGroupOffsetsResponse(
            error_code=GROUP_REFUSED, error_message=GROUP_REFUSED.description, responses=[]
        )
    rows = [
        AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=ZERO_UUID,
            partitions=[
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=one.partition_index,
                    error_code=TOPIC_REFUSED,
                    error_message=TOPIC_REFUSED.description,
                )
                for one in topic.partitions
            ],
        )
        for topic in take_refused(request.topics, _may_read(authorizer, call))
    ]
    return _adding(rows) if rows else None


def _delete_offsets(
    core: Core, authorizer: Authorizer, call: Call[DeleteShareGroupOffsetsRequest]
) -> Message | Amend | None:
    peer, request = call.peer, call.request
    if not authorizer.allows(peer, DELETE, GROUP, request.group_id):
        return DeleteShareGroupOffsetsResponse(
            error_code=GROUP_REFUSED, error_message=GROUP_REFUSED.description, responses=[]
        )
    rows = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=ZERO_UUID,
            error_code=TOPIC_REFUSED,
            error_message=TOPIC_REFUSED.description,
        )
        for topic in take_refused(request.topics, _may_read(authorizer, call))
    ]
    return _adding(rows) if rows else None


def _may_read(authorizer: Authorizer, call: Call[Any]) -> Callable[[Any], bool]:
    return lambda topic: authorizer.allows(call.peer, READ, TOPIC, topic.topic_name)


def _adding(rows: list[Any]) -> Amend:
    """Puts rows into an answer that is one about its rows."""

    def amend(
        response: AlterShareGroupOffsetsResponse | DeleteShareGroupOffsetsResponse,
    ) -> None:
        if not response.error_code:
            response.responses += rows

    return amend


def _share_fetch(
    core: Core, authorizer: Authorizer, call: Call[ShareFetchRequest]
) -> Message | None:
    if authorizer.allows(call.peer, READ, GROUP, call.request.group_id or ""):
        return None
    return ShareFetchResponse(
        error_code=GROUP_REFUSED,
        error_message=GROUP_REFUSED.description,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def _share_acknowledge(
    core: Core, authorizer: Authorizer, call: Call[ShareAcknowledgeRequest]
) -> Message | None:
    if authorizer.allows(call.peer, READ, GROUP, call.request.group_id or ""):
        return None
    return ShareAcknowledgeResponse(
        error_code=GROUP_REFUSED,
        error_message=GROUP_REFUSED.description,
        responses=[],
        node_endpoints=[],
    )


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: _where_taken(_heartbeat),
    ApiKey.SHARE_GROUP_DESCRIBE: _where_taken(_describe),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _where_taken(_describe_offsets),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _where_taken(_alter_offsets),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _where_taken(_delete_offsets),
    ApiKey.SHARE_FETCH: _share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: _share_acknowledge,
}

"""Guards of requests about groups and their offsets: see authorized.py.

| api | needs | else |
|---|---|---|
| JoinGroup, SyncGroup, Heartbeat, LeaveGroup | READ group | 30 |
| ConsumerGroupHeartbeat | READ group, DESCRIBE of each topic named | 30, 29 |
| ... by expression | DESCRIBE of what it finds | left out (consumer_group.py) |
| OffsetCommit | READ group, READ topic | 30 for all, 29 for the topic's partitions |
| OffsetFetch | DESCRIBE group, DESCRIBE topic | 30, 29 (left out of "all") |
| OffsetDelete | DELETE group, READ topic | 30, 29 |
| DescribeGroups, ConsumerGroupDescribe | DESCRIBE group (and of every topic) | 30 (29) |
| ListGroups | DESCRIBE cluster, or of each group | left out |
| DeleteGroups | DELETE group | 30 |
| FindCoordinator of a group, of a transactional id | DESCRIBE of it | 30, 53 |
"""

from collections.abc import Callable
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    SyncGroupResponse,
)
from segbroker.protocol.schema import Message

from ..access.authorizer import (
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    Authorizer,
)
from ..call import Call
from ..core import Core
from ..partitions import topic_ids
from .guarding import (
    GROUP_REFUSED,
    NOT_ASKED,
    TOPIC_REFUSED,
    TRANSACTIONAL_ID_REFUSED,
    Amend,
    Guard,
    describing,
    heartbeat_code,
    take_refused,
)

_KEY_GROUP: Final = 0
_KEY_TRANSACTION: Final = 1
# The version of JoinGroup whose answer may name no protocol.
_NO_PROTOCOL_SINCE: Final = 7
# The version of OffsetFetch whose answer has a code of the whole group.
_GROUP_CODE_SINCE: Final = 2


def _member(refusal: Callable[[Any], Message]) -> Guard:
    """The guard of what a member says to its group."""

    def guard(core: Core, authorizer: Authorizer, call: Call[Any]) -> Message | None:
        allowed = authorizer.allows(call.peer, READ, GROUP, call.request.group_id)
        return None if allowed else refusal(call.request)

    return guard


def _join_group(
    core: Core, authorizer: Authorizer, call: Call[JoinGroupRequest]
) -> JoinGroupResponse | None:
    if authorizer.allows(call.peer, READ, GROUP, call.request.group_id):
        return None
    return JoinGroupResponse(
        error_code=GROUP_REFUSED,
        protocol_name=None if call.version >= _NO_PROTOCOL_SINCE else "",
        leader="",
        member_id="",
        members=[],
    )


def _consumer_group_heartbeat(
    core: Core, authorizer: Authorizer, call: Call[ConsumerGroupHeartbeatRequest]
) -> Message | None:
    request = call.request
    if not core.config.takes_consumer_groups:
        return None  # the handler says so, to everybody
    names = request.subscribed_topic_names or ()
    code = heartbeat_code(authorizer, call.peer, request.group_id, names)
    if not code:
        return None
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        error_message=code.description,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def _offset_commit(
    core: Core, authorizer: Authorizer, call: Call[OffsetCommitRequest]
) -> Message | Amend | None:
    peer, request = call.peer, call.request
    by_id = call.version >= topic_ids.OFFSETS_SINCE
    if by_id:
        topic_ids.name_topics(core.topics, request.topics)
    refused = request.topics
    code = GROUP_REFUSED
    if authorizer.allows(peer, READ, GROUP, request.group_id):
        code = TOPIC_REFUSED
        refused = take_refused(
            request.topics,
            lambda one: (
                (by_id and one.name == topic_ids.UNKNOWN)
                or authorizer.allows(peer, READ, TOPIC, one.name)
            ),
        )
        if not refused:
            return None
    rows = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    if code is GROUP_REFUSED:
        return OffsetCommitResponse(topics=rows)

    def amend(response: OffsetCommitResponse) -> None:
        response.topics += rows

    return amend


def _offset_fetch(
    core: Core, authorizer: Authorizer, call: Call[OffsetFetchRequest]
) -> Message | Amend | None:
    request = call.request
    if not request.groups:
        return _offset_fetch_single(authorizer, call)
    peer = call.peer
    rows = [
        OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=GROUP_REFUSED)
        for group in take_refused(
            request.groups, lambda one: authorizer.allows(peer, DESCRIBE, GROUP, one.group_id)
        )
    ]
    first: dict[str, OffsetFetchRequestGroup] = {}  # who asks about a group again is told nothing
    for group in request.groups:
        first.setdefault(group.group_id, group)
    asked_all = {name for name, group in first.items() if group.topics is None}
    by_id = call.version >= topic_ids.OFFSETS_SINCE
    if by_id:
        for group in first.values():
            topic_ids.name_topics(core.topics, group.topics or ())
    refused = {
        name: [
            OffsetFetchResponseGroupTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponseGroupTopicPartition(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=TOPIC_REFUSED,
                    )
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in take_refused(
                group.topics,
                lambda one: (
                    (by_id and one.name == topic_ids.UNKNOWN)
                    or authorizer.allows(peer, DESCRIBE, TOPIC, one.name)
                ),
            )
        ]
        for name, group in first.items()
        if group.topics is not None
    }

    def amend(response: OffsetFetchResponse) -> None:
        for group in response.groups:
            if group.group_id in asked_all:
                take_refused(
                    group.topics,
                    lambda row: authorizer.would_allow(peer, DESCRIBE, TOPIC, row.name),
                )
            group.topics += refused.pop(group.group_id, [])  # once
        response.groups += rows

    return amend


def _offset_fetch_single(
    authorizer: Authorizer, call: Call[OffsetFetchRequest]
) -> Message | Amend | None:
    """As versions up to 7 ask: one group."""
    peer, request = call.peer, call.request
    code = TOPIC_REFUSED
    refused = request.topics or []
    if not authorizer.allows(peer, DESCRIBE, GROUP, request.group_id):
        code = GROUP_REFUSED
    elif request.topics is not None:
        refused = take_refused(
            request.topics, lambda one: authorizer.allows(peer, DESCRIBE, TOPIC, one.name)
        )
    rows = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in dict.fromkeys(topic.partition_indexes)
            ],
        )
        for topic in refused
    ]
    if code is GROUP_REFUSED:
        by_partition = call.version < _GROUP_CODE_SINCE
        return OffsetFetchResponse(topics=rows if by_partition else [], error_code=code)
    asked_all = request.topics is None

    def amend(response: OffsetFetchResponse) -> None:
        if asked_all:
            take_refused(
                response.topics,
                lambda row: authorizer.would_allow(peer, DESCRIBE, TOPIC, row.name),
            )
        response.topics += rows

    return amend


def _offset_delete(
    core: Core, authorizer: Authorizer, call: Call[OffsetDeleteRequest]
) -> Message | Amend | None:
    peer, request = call.peer, call.request
    if not authorizer.allows(peer, DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=GROUP_REFUSED, topics=[])
    rows = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=one.partition_index, error_code=TOPIC_REFUSED
                )
                for one in topic.partitions
            ],
        )
        for topic in take_refused(
            request.topics, lambda one: authorizer.allows(peer, READ, TOPIC, one.name)
        )
    ]

    def amend(response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            response.topics += rows

    return amend if rows else None


def _describe_groups(
    core: Core, authorizer: Authorizer, call: Call[DescribeGroupsRequest]
) -> Amend | None:
    peer = call.peer
    refused = take_refused(
        call.request.groups, lambda name: authorizer.allows(peer, DESCRIBE, GROUP, name)
    )

    def amend(response: DescribeGroupsResponse) -> None:
        for row in response.groups:
            if row.authorized_operations != NOT_ASKED:
                row.authorized_operations = authorizer.operations(peer, GROUP, row.group_id)
        response.groups += [
            DescribeGroupsResponseGroup(
                group_id=name,
                error_code=GROUP_REFUSED,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
            for name in refused
        ]

    return amend


def _consumer_group_describe(
    core: Core, authorizer: Authorizer, call: Call[ConsumerGroupDescribeRequest]
) -> Amend | None:
    if not core.config.takes_consumer_groups:
        return None  # the handler says so, to everybody
    return describing(authorizer, call, _topics_of, ConsumerGroupDescribeResponseGroup)


def _topics_of(group: ConsumerGroupDescribeResponseGroup) -> set[str]:
    return {
        one.topic_name
        for member in group.members
        for some in (member.assignment, member.target_assignment)
        for one in some.topic_partitions
    }


def _list_groups(core: Core, authorizer: Authorizer, call: Call[ListGroupsRequest]) -> Amend | None:
    peer = call.peer

    def amend(response: ListGroupsResponse) -> None:
        take_refused(
            response.groups,
            lambda row: authorizer.would_allow(peer, DESCRIBE, GROUP, row.group_id),
        )

    return None if authorizer.allows_by_cluster(peer, DESCRIBE) else amend


def _delete_groups(
    core: Core, authorizer: Authorizer, call: Call[DeleteGroupsRequest]
) -> Amend | None:
    peer = call.peer
    refused = take_refused(
        call.request.groups_names, lambda name: authorizer.allows(peer, DELETE, GROUP, name)
    )

    def amend(response: DeleteGroupsResponse) -> None:
        response.results += [
            DeleteGroupsResponseGroup(group_id=name, error_code=GROUP_REFUSED) for name in refused
        ]

    return amend if refused else None


def _find_coordinator(
    core: Core, authorizer: Authorizer, call: Call[FindCoordinatorRequest]
) -> Message | Amend | None:
    peer, request = call.peer, call.request
    if request.key_type == _KEY_GROUP:
        kind, code = GROUP, GROUP_REFUSED
    elif request.key_type == _KEY_TRANSACTION:
        kind, code = TRANSACTIONAL_ID, TRANSACTIONAL_ID_REFUSED
    else:
        return None  # the handler serves no other kind to anybody
    nobody: dict[str, Any] = {
        "error_code": code,
        "error_message": code.description,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    if call.version < 4:
        if authorizer.allows(peer, DESCRIBE, kind, request.key):
            return None
        return FindCoordinatorResponse(**nobody)
    refused = take_refused(
        request.coordinator_keys, lambda name: authorizer.allows(peer, DESCRIBE, kind, name)
    )

    def amend(response: FindCoordinatorResponse) -> None:
        response.coordinators += [
            FindCoordinatorResponseCoordinator(key=name, **nobody) for name in refused
        ]

    return amend if refused else None


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: _member(
        lambda _: SyncGroupResponse(error_code=GROUP_REFUSED, assignment=b"")
    ),
    ApiKey.HEARTBEAT: _member(lambda _: HeartbeatResponse(error_code=GROUP_REFUSED)),
    ApiKey.LEAVE_GROUP: _member(lambda _: LeaveGroupResponse(error_code=GROUP_REFUSED)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
}

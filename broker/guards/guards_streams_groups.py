"""Guards of requests about streams groups: see authorized.py.

| api | needs | else |
|---|---|---|
| StreamsGroupHeartbeat | READ group, DESCRIBE of each topic of the topology | 30, 29 |
| ... to make internal topics | CREATE cluster or topic | told as a status (internal_topics.py) |
| StreamsGroupDescribe | DESCRIBE group, and of every topic | 30, 29 |

Without streams groups (group_protocols) the handlers say so, to everybody.
"""

from typing import Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeResponseGroup,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

from ..access.authorizer import DESCRIBE, GROUP, READ, TOPIC, Authorizer
from ..apis.streams_requests import topics_named
from ..call import Call
from ..core import Core
from .guarding import GROUP_REFUSED, NOT_ASKED, TOPIC_REFUSED, Amend, Guard, take_refused


def _heartbeat(
    core: Core, authorizer: Authorizer, call: Call[StreamsGroupHeartbeatRequest]
) -> StreamsGroupHeartbeatResponse | None:
    peer, request = call.peer, call.request
    if not core.config.takes_streams_groups:
        return None
    code = ErrorCode.NONE
    if not authorizer.allows(peer, READ, GROUP, request.group_id):
        code = GROUP_REFUSED
    elif request.topology is not None and not all(
        authorizer.allows(peer, DESCRIBE, TOPIC, name) for name in topics_named(request.topology)
    ):
        code = TOPIC_REFUSED
    if not code:
        return None
    return StreamsGroupHeartbeatResponse(error_code=code, error_message=code.description)


def _describe(
    core: Core, authorizer: Authorizer, call: Call[StreamsGroupDescribeRequest]
) -> Amend | None:
    peer = call.peer
    if not core.config.takes_streams_groups:
        return None
    refused = take_refused(
        call.request.group_ids, lambda name: authorizer.allows(peer, DESCRIBE, GROUP, name)
    )

    def amend(response: StreamsGroupDescribeResponse) -> None:
        for n, row in enumerate(response.groups):
            names = _topics_of(core, row.group_id)
            if not all(authorizer.allows(peer, DESCRIBE, TOPIC, name) for name in names):
                response.groups[n] = _not_described(row.group_id, TOPIC_REFUSED)
            elif row.authorized_operations != NOT_ASKED:
                row.authorized_operations = authorizer.operations(peer, GROUP, row.group_id)
        response.groups += [_not_described(name, GROUP_REFUSED) for name in refused]

    return amend


def _topics_of(core: Core, group_id: str) -> frozenset[str]:
    group = core.groups.get_streams(group_id) if core.groups.is_open else None
    return frozenset() if group is None or group.topology is None else group.topology.topics


def _not_described(name: str, code: ErrorCode) -> StreamsGroupDescribeResponseGroup:
    return StreamsGroupDescribeResponseGroup(
        error_code=code, error_message=code.description, group_id=name
    )


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.STREAMS_GROUP_HEARTBEAT: _heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: _describe,
}

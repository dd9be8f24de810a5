"""Guards of requests about streams groups: see authorized.py.

| api | needs | else |
|---|---|---|
| StreamsGroupHeartbeat | READ group, DESCRIBE of each topic of the topology | 30, 29 |
| ... to make internal topics | CREATE cluster or topic | told as a status (internal_topics.py) |
| StreamsGroupDescribe | DESCRIBE group, and of every topic | 30, 29 |

Without streams groups (group_protocols) the handlers say so, to everybody.
"""

from collections.abc import Iterable
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
from ..groups.streams_topology import TOPICS_MAX
from ..peers.peer import Peer
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
    elif request.topology is not None:
        names = topics_named(request.topology)
        # More are refused by the handler, whatever they are.
        if len(names) <= TOPICS_MAX and not _may_describe(authorizer, peer, names):
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
            # By the answer: the group may be another one by now, or none.
            if not _may_describe(authorizer, peer, _topics_of(row)):
                response.groups[n] = _not_described(row.group_id, TOPIC_REFUSED)
            elif row.authorized_operations != NOT_ASKED:
                row.authorized_operations = authorizer.operations(peer, GROUP, row.group_id)
        response.groups += [_not_described(name, GROUP_REFUSED) for name in refused]

    return amend


def _may_describe(authorizer: Authorizer, peer: Peer, topics: Iterable[str]) -> bool:
    return all(authorizer.allows(peer, DESCRIBE, TOPIC, name) for name in topics)


def _topics_of(group: StreamsGroupDescribeResponseGroup) -> Iterable[str]:
    """Those that are told of a group, each once."""
    names: dict[str, None] = {}
    topology = group.topology
    for one in () if topology is None else topology.subtopologies or ():
        names |= dict.fromkeys((*one.source_topics, *one.repartition_sink_topics))
        for topic in (*one.repartition_source_topics, *one.state_changelog_topics):
            names[topic.name] = None
    return names


def _not_described(name: str, code: ErrorCode) -> StreamsGroupDescribeResponseGroup:
    return StreamsGroupDescribeResponseGroup(
        error_code=code, error_message=code.description, group_id=name
    )


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.STREAMS_GROUP_HEARTBEAT: _heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: _describe,
}

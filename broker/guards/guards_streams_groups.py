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
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponseGroup,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

from ..access.authorizer import Authorizer
from ..apis.streams_requests import topics_named
from ..call import Call
from ..core import Core
from ..groups.streams_topology import TOPICS_MAX
from .guarding import Amend, Guard, describing, heartbeat_code


def _heartbeat(
    core: Core, authorizer: Authorizer, call: Call[StreamsGroupHeartbeatRequest]
) -> StreamsGroupHeartbeatResponse | None:
    request = call.request
    if not core.config.takes_streams_groups:
        return None
    names = () if request.topology is None else topics_named(request.topology)
    if len(names) > TOPICS_MAX:
        names = ()  # more are refused by the handler, whatever they are
    code = heartbeat_code(authorizer, call.peer, request.group_id, names)
    if not code:
        return None
    return StreamsGroupHeartbeatResponse(error_code=code, error_message=code.description)


def _describe(
    core: Core, authorizer: Authorizer, call: Call[StreamsGroupDescribeRequest]
) -> Amend | None:
    if not core.config.takes_streams_groups:
        return None
    return describing(authorizer, call, _topics_of, StreamsGroupDescribeResponseGroup)


def _topics_of(group: StreamsGroupDescribeResponseGroup) -> Iterable[str]:
    """Those that are told of a group, each once."""
    names: dict[str, None] = {}
    topology = group.topology
    for one in () if topology is None else topology.subtopologies or ():
        names |= dict.fromkeys((*one.source_topics, *one.repartition_sink_topics))
        for topic in (*one.repartition_source_topics, *one.state_changelog_topics):
            names[topic.name] = None
    return names


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.STREAMS_GROUP_HEARTBEAT: _heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: _describe,
}

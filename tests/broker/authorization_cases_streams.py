"""Requests about streams groups that need a rule."""

from collections.abc import Callable

from segbroker.protocol import messages_streams_groups as streams

from ..support.wire_streams import joining
from .authorization_case import DESCRIBE, G30, GROUP, READ, T29, TOPIC, Case

OF_STREAMS_GROUPS: dict[str, Callable[[], Case]] = {
    "streams group heartbeat": lambda: Case(
        joining(),
        streams.StreamsGroupHeartbeatResponse,
        0,
        G30,
        ((DESCRIBE, TOPIC, "t"), (READ, GROUP, "g")),
    ),
    "streams group heartbeat with a topic": lambda: Case(
        joining(),
        streams.StreamsGroupHeartbeatResponse,
        0,
        T29,
        ((READ, GROUP, "g"), (DESCRIBE, TOPIC, "t")),
    ),
    "describe streams groups": lambda: Case(
        streams.StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
        streams.StreamsGroupDescribeResponse,
        0,
        G30,
        ((DESCRIBE, GROUP, "g"),),
    ),
}

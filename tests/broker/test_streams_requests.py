"""StreamsGroupHeartbeat taken apart: what is too large is refused before it is looked at."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from segbroker.broker.apis.streams_requests import TAGS_MAX, TASKS_TOLD_MAX, beat_of
from segbroker.broker.call import Call
from segbroker.broker.groups.streams_topology import SIZE_MAX, SUBTOPOLOGIES_MAX, TOPICS_MAX
from segbroker.broker.refused import Refused
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestCopartitionGroup,
    StreamsGroupKeyValue,
    StreamsGroupTaskIds,
)

from ..support.wire_streams import beating, internal, joining, subtopology


def together(*places: int) -> StreamsGroupHeartbeatRequestCopartitionGroup:
    return StreamsGroupHeartbeatRequestCopartitionGroup(
        source_topics=list(places), source_topic_regex=[], repartition_source_topics=[]
    )


INVALID = ErrorCode.STREAMS_INVALID_TOPOLOGY
TOO_LARGE: dict[str, tuple[Callable[[], StreamsGroupHeartbeatRequest], ErrorCode, str]] = {
    "subtopologies": (
        lambda: joining("m", *[subtopology("0", "t")] * (SUBTOPOLOGIES_MAX + 1)),
        INVALID,
        "1001 subtopologies, limit 1000",
    ),
    "copartition groups": (
        lambda: joining("m", subtopology("0", "t", together=[together()] * (TOPICS_MAX + 1))),
        INVALID,
        "10001 copartition groups, limit 10000",
    ),
    "places of topics that go together": (
        lambda: joining("m", subtopology("0", "t", together=[together(*[0] * SIZE_MAX)])),
        INVALID,
        "a topology of more than 524290 bytes, limit 262144",
    ),
    "one name": (
        lambda: joining("m", subtopology("0", "t", writes=["t"] * SIZE_MAX)),
        INVALID,
        "a topology of more than 524290 bytes, limit 262144",
    ),
    "one changelog": (
        lambda: joining("m", subtopology("0", "t", keeps=[internal("log")] * SIZE_MAX)),
        INVALID,
        "a topology of more than 524290 bytes, limit 262144",
    ),
    "rows of tasks": (
        lambda: beating(
            "m",
            1,
            active_tasks=[StreamsGroupTaskIds(subtopology_id="", partitions=[])]
            * (TASKS_TOLD_MAX + 1),
            standby_tasks=[],
            warmup_tasks=[],
        ),
        ErrorCode.INVALID_REQUEST,
        "more than 20000 tasks",
    ),
    "tags": (
        lambda: joining(
            "m", client_tags=[StreamsGroupKeyValue(key="k" * 300, value="")] * (TAGS_MAX + 1)
        ),
        ErrorCode.INVALID_REQUEST,
        "more than 100 tags",
    ),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_what_is_too_large_is_counted_and_not_looked_at(what: str) -> None:
    request, code, told = TOO_LARGE[what]
    header = RequestHeader(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 1, "c", 0)
    with pytest.raises(Refused) as caught:
        beat_of(Call(Mock(address=("127.0.0.1", 1)), header, request()))
    assert (caught.value.code, caught.value.message) == (code, told)

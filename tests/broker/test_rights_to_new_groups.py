"""Rights to share and streams groups: what is told of where they stand, and of what they read."""

from typing import Any

import pytest

from segbroker.protocol import messages_streams_groups as streams_groups
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from ..support.wire_client import WireClient
from ..support.wire_streams import StreamsMember, counting, subtopology
from .authorization_case import CREATE, DELETE, DESCRIBE, GROUP, READ, T29, TOPIC
from .guarded import ALICE, BOB, allow, connect_from, guarded, rule
from .test_rights_of_producers import take_away
from .test_share_offset_apis import all_of, described, forget, put, some_of, stands

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


async def test_where_a_share_group_stands_is_told_of_topics_that_may_be_described() -> None:
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        topics = broker.core.topics
        for name in ("t", "u"):
            await topics.create(name, 1, topics.topic_config({}))
        await allow(broker, rule(READ, GROUP, "g"), rule(READ, TOPIC, "*"))
        assert (await put(alice, "g", {("t", 0): 3, ("u", 0): 4})).error_code == 0
        await allow(broker, rule(DESCRIBE, GROUP, "g", host=BOB))
        await allow(broker, rule(DESCRIBE, TOPIC, "t", host=BOB))
        async with connect_from(BOB, broker) as bob:
            of_t = (0, 3, -3)
            assert {name for name, _ in await stands(bob, all_of("g"))} == {"t"}
            found = await stands(bob, some_of("g", t=[0], u=[0]))
            assert {name: row[:2] for (name, _), row in found.items()} == {
                "t": of_t[:2],
                "u": (T29, -1),
            }
            first, second = (await described(bob, some_of("g", u=[0]), some_of("g", u=[0]))).groups
            assert [topic.topic_name for topic in first.topics] == ["u"]
            assert (second.error_code, second.topics) == (ErrorCode.INVALID_REQUEST, [])


async def test_beside_the_error_of_a_share_group_no_topic_is_told_of() -> None:
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        topics = broker.core.topics
        await topics.create("t", 1, topics.topic_config({}))
        await allow(broker, rule(DELETE, GROUP, "*"), rule(READ, GROUP, "*"))
        gone = await forget(alice, "nobody", "t")
        assert (gone.error_code, gone.responses) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        # A group that has members is moved nowhere.
        await allow(broker, rule(DESCRIBE, TOPIC, "t"))
        joining = ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        )
        assert (await alice.ask(joining, ShareGroupHeartbeatResponse, 1)).error_code == 0
        moved = await put(alice, "g", {("t", 0): 0})
        assert (moved.error_code, moved.responses) == (ErrorCode.NON_EMPTY_GROUP, [])


async def of_share_groups(client: WireClient) -> list[int]:
    joining = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    describing = ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    replies: list[Any] = [
        await client.ask(joining, ShareGroupHeartbeatResponse, 1),
        *(await client.ask(describing, ShareGroupDescribeResponse, 1)).groups,
        *(await described(client, all_of("g"))).groups,
        await put(client, "g", {("t", 0): 0}),
        await forget(client, "g", "t"),
    ]
    return [one.error_code for one in replies]


async def of_streams_groups(client: WireClient) -> list[int]:
    request = streams_groups.StreamsGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=True
    )
    replies: list[Any] = [
        await StreamsMember(client, "m").join(),
        *(await client.ask(request, streams_groups.StreamsGroupDescribeResponse, 0)).groups,
    ]
    return [one.error_code for one in replies]


@pytest.mark.parametrize(
    ("protocols", "codes_of"),
    [("classic,streams", of_share_groups), ("classic,share", of_streams_groups)],
)
async def test_that_there_is_no_such_protocol_is_told_to_everybody(
    protocols: str,
    codes_of: Any,  # noqa: ANN401 - one of the two above
) -> None:
    async with guarded(group_protocols=protocols) as broker, connect_from(BOB, broker) as bob:
        assert set(await codes_of(bob)) == {UNSUPPORTED}


async def test_a_streams_group_is_described_to_who_may_describe_all_that_it_reads_and_writes() -> (
    None
):
    request = streams_groups.StreamsGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=True
    )
    names = ("t", "again", "log", "elsewhere")
    async with guarded() as broker, connect_from(ALICE, broker) as alice:
        topics = broker.core.topics
        for name in ("t", "elsewhere"):
            await topics.create(name, 1, topics.topic_config({}))
        rights = {name: rule(DESCRIBE, TOPIC, name) for name in names}
        await allow(broker, rule(READ, GROUP, "g"), rule(CREATE, TOPIC, "*"), *rights.values())
        parts = [*counting(), subtopology("2", "t", writes=["elsewhere"])]
        joined = await StreamsMember(alice, "m").join(*parts)
        assert joined.error_code == 0, joined.error_message

        async def code() -> int:
            reply = await alice.ask(request, streams_groups.StreamsGroupDescribeResponse, 0)
            (row,) = reply.groups
            assert row.topology is None or not row.error_code
            return row.error_code

        assert await code() == 0
        for name, right in rights.items():
            await take_away(broker, right)
            assert await code() == T29, name
            await allow(broker, right)

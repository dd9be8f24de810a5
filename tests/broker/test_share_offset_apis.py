"""Where share groups stand on the wire: described, put elsewhere, forgotten; KIP-932."""

from collections.abc import Mapping
from uuid import UUID, uuid4

import pytest
import trio

from segbroker.broker.core import Core
from segbroker.broker.shares.share_session import Place
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_admin import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from segbroker.protocol.messages_groups import OffsetCommitResponse
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
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata import metadata
from segbroker.segments.metadata.share_groups import ROWS_MAX, STATES, ShareRow, Span, states_fields

from ..support.share_members import JOIN, LEAVE, say
from ..support.wire_client import WireClient, connect
from ..support.wire_groups import commit_of
from ..support.wire_shares import ACCEPT, Sharing
from ..support.wire_transactions import V2, Tx
from .conftest import Events, serving

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Rows = dict[tuple[str, int], tuple[int, int, int]]
"""(topic, partition) -> code, start offset, lag."""


def all_of(group: str) -> DescribeShareGroupOffsetsRequestGroup:
    return DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)


def some_of(group: str, **topics: list[int]) -> DescribeShareGroupOffsetsRequestGroup:
    return DescribeShareGroupOffsetsRequestGroup(
        group_id=group,
        topics=[
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )


async def described(
    client: WireClient, *groups: DescribeShareGroupOffsetsRequestGroup, version: int = 1
) -> DescribeShareGroupOffsetsResponse:
    request = DescribeShareGroupOffsetsRequest(groups=list(groups))
    return await client.ask(request, DescribeShareGroupOffsetsResponse, version)


async def stands(
    client: WireClient, group: DescribeShareGroupOffsetsRequestGroup, version: int = 1
) -> Rows:
    (row,) = (await described(client, group, version=version)).groups
    assert (row.error_code, row.group_id) == (0, group.group_id)
    return {
        (topic.topic_name, one.partition_index): (one.error_code, one.start_offset, one.lag)
        for topic in row.topics
        for one in topic.partitions
    }


async def put(
    client: WireClient, group: str, offsets: Mapping[tuple[str, int], int]
) -> AlterShareGroupOffsetsResponse:
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (name, index), start in offsets.items():
        topics.setdefault(name, []).append(
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
        )
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=rows)
            for name, rows in topics.items()
        ],
    )
    return await client.ask(request, AlterShareGroupOffsetsResponse, 0)


def codes(reply: AlterShareGroupOffsetsResponse) -> list[int]:
    return [one.error_code for topic in reply.responses for one in topic.partitions]


async def forget(client: WireClient, group: str, *names: str) -> DeleteShareGroupOffsetsResponse:
    request = DeleteShareGroupOffsetsRequest(
        group_id=group,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names],
    )
    return await client.ask(request, DeleteShareGroupOffsetsResponse, 0)


async def record(core: Core, group: str, row: ShareRow) -> None:
    """As if members had said what became of records."""
    durable = trio.Event()
    core.topics.manager.record_soon(
        lambda error: durable.set(), STATES, **states_fields(group, [row])
    )
    await durable.wait()


def id_of(core: Core, name: str) -> UUID:
    meta = core.topics.get(name)
    assert meta is not None
    return meta.topic_id


async def test_a_group_is_put_somewhere_and_described_there() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=3)
        for n in range(5):
            await client.produce("t", b"%d" % n)
        reply = await put(client, "g", {("t", 0): 2, ("t", 2): 0})
        assert (reply.error_code, reply.error_message) == (0, None)
        (topic,) = reply.responses
        assert (topic.topic_name, topic.topic_id) == ("t", id_of(broker.core, "t"))
        assert [(row.error_code, row.error_message) for row in topic.partitions] == [(0, None)] * 2

        here: Rows = {("t", 0): (0, 2, 3), ("t", 2): (0, 0, 0)}
        assert await stands(client, all_of("g")) == here
        asked = some_of("g", t=[2, 1, 0, 7, 2])
        nowhere = (0, -1, -1)
        assert await stands(client, asked) == {**here, ("t", 1): nowhere, ("t", 7): nowhere}
        assert await stands(client, all_of("g"), version=0) == {
            place: (code, start, -1) for place, (code, start, _) in here.items()
        }
        await put(client, "g", {("t", 0): 4})
        assert (await stands(client, all_of("g")))["t", 0] == (0, 4, 1)


async def test_where_a_group_stands_nowhere_is_no_error() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        assert await stands(client, all_of("g")) == {}
        assert await stands(client, some_of("g")) == {}
        request = some_of("g", t=[0], absent=[0])
        (group,) = (await described(client, request)).groups
        found = [(topic.topic_name, topic.topic_id) for topic in group.topics]
        assert found == [("t", id_of(broker.core, "t")), ("absent", ZERO_UUID)]
        rows = [row for topic in group.topics for row in topic.partitions]
        assert [(r.start_offset, r.leader_epoch, r.lag, r.error_code) for r in rows] == [
            (-1, 0, -1, 0),
            (-1, 0, -1, 0),
        ]


async def test_a_group_that_is_asked_about_twice_is_described_once() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await put(client, "g", {("t", 0): 0})
        reply = await described(client, all_of("g"), all_of("other"), all_of("g"))
        found = [(row.group_id, row.error_code, len(row.topics)) for row in reply.groups]
        assert found == [("g", 0, 1), ("other", 0, 0), ("g", ErrorCode.INVALID_REQUEST, 0)]


async def test_a_partition_that_a_group_is_put_into_twice_is_answered_twice() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"x")
        rows = [
            AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=start)
            for start in (7, 3)
        ]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=rows)
        request = AlterShareGroupOffsetsRequest(group_id="g", topics=[topic, topic])
        assert codes(await client.ask(request, AlterShareGroupOffsetsResponse, 0)) == [0, 0, 0, 0]
        assert await stands(client, all_of("g"), version=0) == {("t", 0): (0, 3, -1)}


async def test_the_lag_is_what_the_group_is_not_done_with_also_after_a_restart() -> None:
    storage = MemoryStorage()
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        await client.create("t")
        for n in range(10):
            await client.produce("t", b"%d" % n)
        done, open_again, given_up = Span(4, 5, 2, 1), Span(6, 6, 0, 1), Span(8, 8, 4, 5)
        row = ShareRow("t", id_of(broker.core, "t"), 0, 3, [done, open_again, given_up])
        await record(broker.core, "g", row)
        assert await stands(client, all_of("g")) == {("t", 0): (0, 3, 4)}
    async with serving(storage=storage) as broker, connect(broker.address) as client:
        assert await stands(client, all_of("g"), version=0) == {("t", 0): (0, 3, -1)}
        assert not broker.core.topics.served, "nothing is opened to say where a group stands"
        assert await stands(client, all_of("g")) == {("t", 0): (0, 3, 4)}
        await put(client, "g", {("t", 0): 3})
        assert await stands(client, all_of("g")) == {("t", 0): (0, 3, 7)}, "it begins anew"


async def test_a_marker_behind_the_last_record_is_no_lag_when_the_members_are_gone() -> None:
    async with (
        serving(housekeeping_interval_ms=10) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        await put(client, "g", {("t", 0): 0})
        tx = Tx(client, "x", V2)
        await tx.init()
        assert not await tx.send("t", b"a")
        one = Sharing(other, "g", id_of(broker.core, "t"))
        assert [given.offset for given in await one.fetch(0)] == [0]
        await one.say({0: [(0, 0, [ACCEPT])]})
        assert not await tx.end(commit=True)
        assert await one.fetch() == []
        assert await stands(client, all_of("g")) == {("t", 0): (0, 2, 0)}
        await other.stream.aclose()
        while broker.core.shares.find("g", Place(one.topic, 0)) is not None:
            await trio.lowlevel.checkpoint()
        assert await stands(client, all_of("g")) == {("t", 0): (0, 2, 0)}


async def test_what_a_group_cannot_be_put_to_is_said_partition_by_partition() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        places = {("t", 0): 5, ("t", 1): 0, ("t", -1): 0, ("absent", 0): 0}
        reply = await put(client, "g", places)
        assert reply.error_code == 0
        assert codes(reply) == [0, UNKNOWN, UNKNOWN, UNKNOWN]
        assert [topic.topic_id == ZERO_UUID for topic in reply.responses] == [False, True]
        for start in (-1, -(2**63)):
            assert codes(await put(client, "g", {("t", 0): start})) == [ErrorCode.INVALID_REQUEST]
        assert await stands(client, all_of("g")) == {("t", 0): (0, 5, 0)}


async def test_a_group_forgets_topics_and_is_new_to_them(events: Events) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await client.create("u")
        await client.create("never")
        await put(client, "g", {("t", 0): 0, ("t", 1): 0, ("u", 0): 0})
        reply = await forget(client, "g", "t", "never", "absent", "t")
        assert (reply.error_code, reply.error_message) == (0, None)
        assert [(row.topic_name, row.topic_id, row.error_code) for row in reply.responses] == [
            ("t", id_of(broker.core, "t"), 0),
            ("never", ZERO_UUID, UNKNOWN),
            ("absent", ZERO_UUID, UNKNOWN),
        ]
        assert await stands(client, all_of("g")) == {("u", 0): (0, 0, 0)}
        assert [row.error_code for row in (await forget(client, "g", "t")).responses] == [UNKNOWN]
        assert [row.error_code for row in (await forget(client, "g", "u")).responses] == [0]
        assert await stands(client, all_of("g")) == {}
    heard = [line for line in events if line["event"].startswith("group_offsets_")]
    assert [(line["event"], line["group"], line["topics"]) for line in heard] == [
        ("group_offsets_altered", "g", "t, u"),
        ("group_offsets_deleted", "g", "t"),
        ("group_offsets_deleted", "g", "u"),
    ]
    assert {(line["asked_by"], line["asked_from"]) for line in heard} == {
        ("User:ANONYMOUS", "127.0.0.1")
    }


async def test_a_group_with_members_stays_where_it_is() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await put(client, "g", {("t", 0): 0})
        member = str(uuid4())
        assert (await say(client, "g", member, JOIN, "t")).error_code == 0
        refused = ErrorCode.NON_EMPTY_GROUP
        moved = await put(client, "g", {("t", 0): 5})
        gone = await forget(client, "g", "t")
        assert (moved.error_code, moved.responses) == (refused, [])
        assert (gone.error_code, gone.responses) == (refused, [])
        assert await stands(client, all_of("g")) == {("t", 0): (0, 0, 0)}
        await say(client, "g", member, LEAVE)
        assert codes(await put(client, "g", {("t", 0): 5})) == [0]
        assert [row.error_code for row in (await forget(client, "g", "t")).responses] == [0]


async def test_a_name_is_that_of_one_kind_of_group() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = commit_of(0)
        request.group_id = "consumers"
        await client.ask(request, OffsetCommitResponse, 8)
        unknown = ErrorCode.GROUP_ID_NOT_FOUND
        assert (await put(client, "consumers", {("t", 0): 0})).error_code == unknown
        assert (await forget(client, "consumers", "t")).error_code == unknown
        assert (await forget(client, "nobody", "t")).error_code == unknown
        assert (await put(client, "", {("t", 0): 0})).error_code == ErrorCode.INVALID_GROUP_ID
        assert (await forget(client, "", "t")).error_code == ErrorCode.INVALID_GROUP_ID
        assert await stands(client, all_of("consumers")) == {}


async def test_where_there_are_to_be_no_share_groups_nothing_is_said_of_them() -> None:
    async with (
        serving(group_protocols="classic,consumer") as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        refused = ErrorCode.UNSUPPORTED_VERSION
        (row,) = (await described(client, all_of("g"))).groups
        assert row.error_code == refused
        assert (await put(client, "g", {("t", 0): 0})).error_code == refused
        assert (await forget(client, "g", "t")).error_code == refused


async def test_what_a_group_did_with_a_deleted_topic_is_not_of_the_next_one() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.create("u")
        await put(client, "g", {("t", 0): 5, ("u", 0): 1})
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
        await client.ask(request, DeleteTopicsResponse, 5)
        assert await stands(client, all_of("g")) == {("u", 0): (0, 1, 0)}
        await client.create("t")
        assert await stands(client, some_of("g", t=[0])) == {("t", 0): (0, -1, -1)}


async def test_more_partitions_than_an_event_has_room_for_are_put_and_described() -> None:
    count = ROWS_MAX * 2 + 1
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=count)
        places = {("t", index): index for index in range(count)}
        assert codes(await put(client, "g", places)) == [0] * count
        found = await stands(client, all_of("g"), version=0)
        assert found == {("t", index): (0, index, -1) for index in range(count)}


async def test_where_the_metadata_is_full_a_group_is_moved_and_put_nowhere_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = ErrorCode.POLICY_VIOLATION
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        assert codes(await put(client, "g", {("t", 0): 1})) == [0]
        # As the newest snapshot says: a broker saves one every minute.
        broker.core.topics.manager.keep_house_now(broker.core.now_ms() + 120_000)
        monkeypatch.setattr(metadata, "SNAPSHOT_SIZE_FULL", 1)
        assert codes(await put(client, "g", {("t", 0): 2, ("t", 1): 0})) == [0, refused]
        assert codes(await put(client, "other", {("t", 0): 0})) == [refused]
        assert await stands(client, all_of("g")) == {("t", 0): (0, 2, 0)}
        monkeypatch.undo()
        assert codes(await put(client, "other", {("t", 0): 0})) == [0]

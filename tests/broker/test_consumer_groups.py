"""KIP-848 groups on the wire: what is refused, offsets with epochs, both kinds of group."""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest
import trio

from segbroker.broker.apis import consumer_group_apis, member_rows
from segbroker.broker.apis.member_rows import by_topic
from segbroker.broker.groups.server_assignors import Partition
from segbroker.broker.loop.pace import Pace
from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    GroupTopicPartitions,
)
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from segbroker.segments.metadata.acls import Acl

from ..support.wire_client import WireClient, connect
from ..support.wire_consumers import (
    beat,
    commit,
    described,
    fetch_code,
    join_classic,
    joining,
    read_by,
)
from .conftest import serving


async def test_of_what_is_not_there_a_commit_is_told_so_whoever_makes_it() -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert await commit(client, "nobody", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await client.create("t")
        assert await commit(client, "nobody", 5) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_joins_reads_and_is_described() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        first = joining(instance_id="i", server_assignor="range", rebalance_timeout_ms=0)
        reply = await beat(client, first)
        topic_id = broker.core.topics.all["t"].topic_id
        assert (reply.error_code, reply.member_id) == (0, "m")
        assert reply.heartbeat_interval_ms == 5_000
        assert read_by(reply) == {topic_id: [0, 1]}
        row = await described(client)
        assert (row.group_state, row.assignor_name) == ("Stable", "range")
        assert row.group_epoch == row.assignment_epoch == reply.member_epoch
        (member,) = row.members
        assert (member.member_id, member.instance_id) == ("m", "i")
        assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
        assert member.subscribed_topic_names == ["t"]
        for some in (member.assignment, member.target_assignment):
            (one,) = some.topic_partitions
            assert (one.topic_name, one.partitions) == ("t", [0, 1])


async def test_who_describes_it_as_a_classic_group_is_told_that_it_is_there_but_none() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await beat(client, joining())
        request = DescribeGroupsRequest(groups=["g", "nobody"])
        rows = (await client.ask(request, DescribeGroupsResponse, 6)).groups
        assert [row.error_code for row in rows] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
        assert rows[0].error_message == "Group g is not a classic group."
        assert rows[1].error_message == "Group nobody not found."


async def test_in_version_0_the_broker_gives_the_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await beat(client, joining(""), version=0)
        assert reply.error_code == 0
        assert len(reply.member_id or "") == 36


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": "\t"}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 5}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_what_contradicts_itself_is_refused_with_a_sentence(
    changes: dict[str, object], code: ErrorCode
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        reply = await beat(client, joining(**changes))  # type: ignore[arg-type]
        assert (reply.error_code, reply.assignment) == (code, None)
        assert reply.error_message


async def test_an_assignor_that_there_is_not_is_the_first_thing_that_is_wrong() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for epoch in (0, 5, -1):
            reply = await beat(client, joining(member_epoch=epoch, server_assignor="sticky"))
            assert reply.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
            # The Java client hands this to whoever wrote the name; tests of Kafka look for it.
            words = "ServerAssignor sticky is not supported. Supported assignors: "
            assert (reply.error_message or "").startswith(words)


async def test_a_group_without_a_name_is_refused_in_kafkas_words() -> None:
    async with serving() as broker, connect(broker.address) as client:
        reply = await beat(client, joining(group_id=""))
        assert reply.error_message == "GroupId can't be empty."


async def test_a_group_that_is_not_there_is_not_said_to_be_of_another_protocol() -> None:
    # kafka-consumer-groups --describe prints this sentence, though it asks for classic ones too.
    async with serving() as broker, connect(broker.address) as client:
        row = await described(client, "nobody")
        assert row.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert row.error_message == "Group nobody not found."


async def test_an_expression_subscribes_to_topics_as_they_are_made() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t1")
        asked = joining(subscribed_topic_names=[], subscribed_topic_regex="t[0-9]+")
        first = await beat(client, asked)
        assert len(read_by(first)) == 1
        (member,) = (await described(client)).members
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([], "t[0-9]+")
        await client.create("t2")
        await client.create("other")
        reply = await beat(
            client,
            ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=first.member_epoch
            ),
        )
        names = {broker.core.topics.by_id(one) for one in read_by(reply)}
        assert {meta.name for meta in names if meta is not None} == {"t1", "t2"}


@pytest.mark.parametrize("name", ["m", "another"])
async def test_who_joins_is_subscribed_to_what_it_says_then_and_to_nothing_of_before(
    name: str,
) -> None:
    """The Java client names no expression where it has none: also a static member whose program
    read by an expression before it was away."""
    async with serving() as broker, connect(broker.address) as client:
        for topic in ("t", "by-name", "by-expression"):
            await client.create(topic)
        topics = broker.core.topics.all
        before = joining(
            instance_id="i",
            rack_id="r",
            server_assignor="range",
            subscribed_topic_names=["by-name"],
            subscribed_topic_regex="by-expr.*",
        )
        assert len(read_by(await beat(client, before))) == 2
        away = joining(instance_id="i", member_epoch=-2)
        assert (await beat(client, away)).error_code == 0
        told = await beat(client, joining(name, instance_id="i"))
        assert read_by(told) == {topics["t"].topic_id: [0]}
        row = await described(client)
        assert row.assignor_name == "uniform"
        (member,) = row.members
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
        assert member.rack_id is None
        away = joining(name, instance_id="i", member_epoch=-2)
        assert (await beat(client, away)).error_code == 0
        by_expression = joining(
            name, instance_id="i", subscribed_topic_names=None, subscribed_topic_regex="by-expr.*"
        )
        told = await beat(client, by_expression)
        assert read_by(told) == {topics["by-expression"].topic_id: [0]}


@pytest.mark.parametrize("subscription", ["names", "expression"])
async def test_offsets_of_a_topic_that_no_member_reads_any_more_go_after_their_time(
    monkeypatch: pytest.MonkeyPatch, subscription: str
) -> None:
    monkeypatch.setattr("segbroker.broker.groups.group_upkeep.LOOK_INTO_MS", 0)
    week_ms, now = 7 * 24 * 3600 * 1000, 1_700_000_000_000
    async with serving(now_ms=lambda: now) as broker, connect(broker.address) as client:
        await client.create("t")
        await client.create("u")
        told = await beat(client, joining())
        assert await commit(client, "m", told.member_epoch) == 0
        groups = broker.core.groups
        groups.keep_house(now + week_ms + 1)
        await client.create("behind-the-first-look")
        assert groups.topics("g") == ["t"]
        changes: dict[str, object] = {"subscribed_topic_names": ["u"]}
        if subscription == "expression":
            changes = {"subscribed_topic_names": [], "subscribed_topic_regex": "u+"}
        asked = joining()
        for name, value in {"member_epoch": told.member_epoch, **changes}.items():
            setattr(asked, name, value)
        await beat(client, asked)
        groups.keep_house(now + week_ms + 1)
        await client.create("behind-the-second-look")
        assert groups.topics("g") == []
        assert groups.members_count("g") == 1


async def deleted(client: WireClient, topic: str) -> int:
    """The code of forgetting where the group stands in partition 0."""
    row = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=[row])]
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    reply = await client.ask(request, OffsetDeleteResponse, 0)
    return reply.topics[0].partitions[0].error_code


@pytest.mark.parametrize(
    "subscription",
    [
        {"subscribed_topic_names": ["t1", "t2"]},
        {"subscribed_topic_names": [], "subscribed_topic_regex": "t[0-9]+"},
    ],
    ids=["names", "expression"],
)
async def test_offsets_of_a_topic_that_came_after_the_last_heartbeat_are_not_deleted(
    subscription: dict[str, Any],
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t1")
        told = await beat(client, joining(**subscription))
        for topic in ("t2", "other"):
            await client.create(topic)
        assert await deleted(client, "t2") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert await deleted(client, "other") == 0
        asked = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=told.member_epoch
        )
        found = read_by(await beat(client, asked))
        assert found.keys() == {broker.core.topics.all[name].topic_id for name in ("t1", "t2")}


async def test_a_group_is_described_as_it_is_at_one_moment_with_others_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", 6)
        for name in ("one", "two", "three"):
            await beat(client, joining(name))
        group = broker.core.groups.get_consumer("g")
        assert group is not None
        expected = {name: sorted(one.assigned) for name, one in group.members.items()}
        members = tuple(group.members.values())
        steps = -1  # the first is that of the group

        class Meanwhile(Pace):
            async def step(self) -> None:
                nonlocal steps
                steps += 1
                if steps:
                    for member in members:
                        member.assigned.clear()

        def noted(partitions: Iterable[Partition]) -> Iterator[tuple[UUID, list[int]]]:
            looked.append(steps)
            return by_topic(partitions)

        looked: list[int] = []
        monkeypatch.setattr(member_rows, "by_topic", noted)
        monkeypatch.setattr(consumer_group_apis, "Pace", Meanwhile)
        request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        reply = await client.ask(request, ConsumerGroupDescribeResponse, 1)
        found = {
            member.member_id: sorted(
                (row.topic_id.bytes, index)
                for row in member.assignment.topic_partitions
                for index in row.partitions
            )
            for member in reply.groups[0].members
        }
    assert len(set(looked)) == len(looked) == 6, "others had their turn before each"
    assert found == expected


async def test_an_expression_matches_only_what_the_member_may_describe() -> None:
    async with serving(authorizer="acl") as broker, connect(broker.address) as client:
        topics, authorizer = broker.core.topics, broker.core.authorizer
        assert authorizer is not None
        for name in ("t1", "t2"):
            await topics.create(name, 1, topics.topic_config({}))
        allowed = [
            (ResourceType.GROUP, "g", Operation.READ),
            (ResourceType.TOPIC, "t2", Operation.DESCRIBE),
        ]
        done = trio.Event()
        authorizer.create(
            [
                Acl(
                    int(kind),
                    name,
                    int(PatternType.LITERAL),
                    "User:ANONYMOUS",
                    "*",
                    int(operation),
                    int(Permission.ALLOW),
                )
                for kind, name, operation in allowed
            ],
            lambda error: done.set(),
        )
        await done.wait()
        asked = joining(subscribed_topic_names=[], subscribed_topic_regex="t.*")
        assert read_by(await beat(client, asked)) == {topics.all["t2"].topic_id: [0]}


async def test_offsets_are_committed_and_fetched_at_the_members_epoch_only() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        epoch = (await beat(client, joining())).member_epoch
        assert await commit(client, "m", epoch) == 0
        assert await commit(client, "m", epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(client, "m", epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
        assert await commit(client, "m", epoch - 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
        assert await commit(client, "x", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(client, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await fetch_code(client, "m", epoch) == 0
        assert await fetch_code(client, None, -1) == 0
        assert await fetch_code(client, "m", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert await fetch_code(client, "x", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        gone = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)
        assert (await beat(client, gone)).error_code == 0
        assert await commit(client, "m", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(client, "", -1) == 0, "a tool, now that nobody is there"


async def test_a_member_that_falls_silent_is_dropped_by_the_brokers_clock() -> None:
    async with (
        serving(
            group_consumer_session_timeout_ms=50,
            group_consumer_heartbeat_interval_ms=10,
        ) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await beat(client, joining())
        with trio.fail_after(60):
            while (await described(client)).members:
                pass
        assert (await described(client)).group_state == "Empty"


async def test_a_group_whose_members_cannot_turn_stays_and_one_without_becomes_the_other() -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        first = await beat(client, joining())
        refused = await join_classic(client)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await beat(
            client, ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)
        )
        classic = await join_classic(client)
        assert classic.error_code == 0
        assert classic.generation_id > first.member_epoch, "older generations stay fenced"
        assert (await beat(client, joining())).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        members = [LeaveGroupRequestMember(member_id=classic.member_id)]
        await client.ask(LeaveGroupRequest(group_id="g", members=members), LeaveGroupResponse, 3)
        back = await beat(client, joining())
        assert (back.error_code, back.member_epoch > classic.generation_id) == (0, True)


async def test_an_administrator_removes_members_by_id_and_by_instance() -> None:
    async def leave(member: str, instance: str | None) -> int:
        row = LeaveGroupRequestMember(member_id=member, group_instance_id=instance)
        request = LeaveGroupRequest(group_id="g", members=[row])
        reply = await client.ask(request, LeaveGroupResponse, 5)
        return reply.members[0].error_code

    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        epoch = (await beat(client, joining("a", instance_id="one"))).member_epoch
        await beat(client, joining("b"))
        assert await leave("", "two") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await leave("b", "one") == ErrorCode.FENCED_INSTANCE_ID
        assert await leave("", "one") == 0
        assert await leave("b", None) == 0
        assert await leave("b", None) == ErrorCode.UNKNOWN_MEMBER_ID
        alive = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=epoch)
        assert (await beat(client, alive)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        deleted = DeleteGroupsRequest(groups_names=["g"])
        assert (await client.ask(deleted, DeleteGroupsResponse, 2)).results[0].error_code == 0


async def test_tools_see_of_which_protocol_a_group_is() -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await beat(client, joining())
        listed = await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        assert [(r.group_id, r.group_type, r.group_state) for r in listed.groups] == [
            ("g", "consumer", "Stable")
        ]
        only = ListGroupsRequest(types_filter=["Classic"])
        assert (await client.ask(only, ListGroupsResponse, 5)).groups == []
        classic = DescribeGroupsRequest(groups=["g"])
        reply = await client.ask(classic, DescribeGroupsResponse, 6)
        (row,) = reply.groups
        assert (row.group_state, row.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
        unknown = await described(client, "nobody")
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        deleted = await client.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse, 2)
        assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP


async def test_a_full_group_and_too_many_groups_are_refused() -> None:
    async with (
        serving(groups_max=1, group_consumer_size_max=1) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        assert (await beat(client, joining())).error_code == 0
        for changes in ({"member_id": "n"}, {"group_id": "h"}):
            reply = await beat(client, joining(**changes))
            assert reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_what_a_member_says_that_it_reads_is_taken_by_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        topic_id = broker.core.topics.all["t"].topic_id
        first = await beat(client, joining("m"))
        await beat(client, joining("n"))
        held = [GroupTopicPartitions(topic_id=topic_id, partitions=[0, 1])]
        alive = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=first.member_epoch, topic_partitions=held
        )
        kept = read_by(await beat(client, alive))[topic_id]
        alive.topic_partitions = [GroupTopicPartitions(topic_id=topic_id, partitions=kept)]
        moved = await beat(client, alive)
        other = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="n", member_epoch=moved.member_epoch
        )
        (given,) = read_by(await beat(client, other))[topic_id]
        assert sorted([*kept, given]) == [0, 1]


async def test_the_feature_of_these_groups_is_told() -> None:
    async with serving() as broker, connect(broker.address) as client:
        reply = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 4)
        levels = {one.name: one.max_version_level for one in reply.finalized_features}
        assert levels["group.version"] == 1

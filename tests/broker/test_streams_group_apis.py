"""Streams groups on the wire: who is in them, their topics, and that a name is of one kind."""

import errno
from dataclasses import replace

import pytest
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.groups import epochal_group, streams_group
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupEndpoint,
    StreamsGroupHeartbeatRequestCopartitionGroup,
    StreamsGroupKeyValue,
    StreamsGroupTaskIds,
    StreamsGroupTopicInfo,
)

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.wire_client import WireClient
from ..support.wire_consumers import beat as consumer_beat
from ..support.wire_consumers import commit, fetch_code, join_classic
from ..support.wire_consumers import joining as consumer_joining
from ..support.wire_settings import GROUP, alter_all
from ..support.wire_shares import beat as share_beat
from ..support.wire_shares import delete, listed, sharing
from ..support.wire_streams import (
    StreamsMember,
    beat,
    beating,
    counting,
    described,
    internal,
    joining,
    owned,
    settled,
    statuses,
    subtopology,
)
from ..support.wire_transactions import until
from .conftest import Events
from .restarts import broker_on

AT_ONCE = {"group_streams_initial_rebalance_delay_ms": 0}
KEPT = {**AT_ONCE, "group_kept_empty_ms": 60_000}


async def until_there(broker: Broker, *topics: str) -> None:
    async def are_there() -> bool:
        return all(name in broker.core.topics.all for name in topics)

    await until(are_there)


async def until_described(client: WireClient, state: str, epoch: int = 0) -> None:
    """Wait until a group is in a state, with a target of this epoch or a later one."""

    async def is_so() -> bool:
        row = await described(client)
        return row.group_state == state and row.assignment_epoch >= epoch

    await until(is_so)


async def test_a_member_joins_does_tasks_and_is_described() -> None:
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        await client.create("t", partitions=2)
        where = StreamsGroupEndpoint(host="here", port=80)
        tags = [StreamsGroupKeyValue(key="zone", value="a")]
        request = joining(rack_id="r", user_endpoint=where, client_tags=tags, process_id="p")
        reply = await beat(client, request)
        assert (reply.error_code, reply.member_id, reply.member_epoch) == (0, "m", 2)
        assert (reply.heartbeat_interval_ms, reply.status) == (5_000, [])
        assert owned(reply.active_tasks) == {"0": [0, 1]}
        assert (reply.standby_tasks, reply.warmup_tasks) == ([], [])
        assert reply.partitions_by_user_endpoint is not None
        (row,) = reply.partitions_by_user_endpoint
        assert row.user_endpoint == where
        assert [(one.topic, one.partitions) for one in row.active_partitions] == [("t", [0, 1])]
        epoch = reply.endpoint_information_epoch
        again = await beat(client, beating("m", 2, endpoint_information_epoch=epoch))
        assert (again.error_code, again.active_tasks) == (0, None)
        assert again.partitions_by_user_endpoint is None
        group = await described(client)
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert (group.group_epoch, group.assignment_epoch) == (2, 2)
        (member,) = group.members
        assert (member.member_id, member.rack_id, member.process_id) == ("m", "r", "p")
        assert (member.member_epoch, member.client_host) == (2, "/127.0.0.1")
        assert (member.user_endpoint, member.client_tags) == (where, tags)
        assert owned(member.assignment.active_tasks) == {"0": [0, 1]}
        assert owned(member.target_assignment.active_tasks) == {"0": [0, 1]}
        gone = await beat(client, beating("m", -1))
        assert (gone.error_code, gone.member_epoch, gone.heartbeat_interval_ms) == (0, -1, 0)


async def test_what_who_joins_again_does_not_say_is_not_as_before() -> None:
    """Nobody is sent to an endpoint at which it does not answer any more."""
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        await client.create("t", partitions=2)
        where = StreamsGroupEndpoint(host="here", port=80)
        tags = [StreamsGroupKeyValue(key="zone", value="a")]
        await beat(client, joining(rack_id="r", user_endpoint=where, client_tags=tags))
        reply = await beat(client, joining("other"))
        assert reply.partitions_by_user_endpoint
        epoch = reply.endpoint_information_epoch
        assert (await beat(client, joining())).error_code == 0
        (member, _) = (await described(client)).members
        said = (member.member_id, member.rack_id, member.user_endpoint, member.client_tags)
        assert said == ("m", None, None, [])
        request = beating("other", reply.member_epoch, endpoint_information_epoch=epoch)
        assert (await beat(client, request)).partitions_by_user_endpoint == []


async def test_internal_topics_are_made_as_the_application_wants_them() -> None:
    async with broker_on(None, **AT_ONCE) as (broker, (client,)):
        await client.create("t", partitions=3)
        one = StreamsMember(client, "m")
        reply = await one.join(*counting())
        assert [(row.status_code, row.status_detail) for row in statuses(reply)] == [
            (3, "Internal topics are missing: again, log")
        ]
        assert one.active == {}
        await until_there(broker, "again", "log")
        topics = broker.core.topics.all
        assert (topics["again"].partitions, topics["log"].partitions) == (3, 3)
        assert topics["log"].config.overrides["cleanup.policy"] == "compact"
        reply = await one.beat()
        assert (reply.status, one.active) == ([], {"0": [0, 1, 2], "1": [0, 1, 2]})
        topology = (await described(client)).topology
        assert topology is not None
        assert topology.subtopologies is not None
        _, second = topology.subtopologies
        assert [one.partitions for one in second.repartition_source_topics] == [3]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (internal("log", cleanup_policy="nonsense"), "log ("),
        (
            internal("__cluster_metadata"),
            "__cluster_metadata (Creation of internal topic __cluster_metadata is prohibited.)",
        ),
    ],
)
async def test_what_became_of_internal_topics_that_cannot_be_made_is_told(
    wrong: StreamsGroupTopicInfo, why: str, events: Events
) -> None:
    async with broker_on(None, **AT_ONCE) as (broker, (client,)):
        await client.create("t")
        one = StreamsMember(client, "m")
        await one.join(subtopology("0", "t", keeps=[wrong]))

        async def is_told() -> bool:
            (status,) = statuses(await one.beat())
            assert status.status_code == 3
            return f"; Creation failed: {why}" in status.status_detail

        await until(is_told)
        for _ in range(3):
            assert await is_told()
            await wait_all_tasks_blocked(0.01)
        assert len(events.named("internal_topics_not_created")) == 1, "each heartbeat tries again"
        assert list(broker.core.topics.all) == ["t"]


async def test_internal_topics_have_no_more_partitions_together_than_a_request_may_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.broker.apis.internal_topics.PARTITIONS_ASKED_MAX", 4)
    async with broker_on(None, **AT_ONCE, partitions_max=4) as (broker, (client,)):
        await client.create("t", partitions=2)
        many = StreamsMember(client, "m")
        await many.join(subtopology("0", "t", keeps=[internal(f"log-{n}") for n in range(3)]))

        async def is_told() -> bool:
            (status,) = statuses(await many.beat())
            return "(Excessively large number of partitions per request.)" in status.status_detail

        await until(is_told)
        assert list(broker.core.topics.all) == ["t"]


async def test_source_topics_that_are_missing_or_do_not_go_together_are_told() -> None:
    async with broker_on(None, **AT_ONCE) as (broker, (client,)):
        together = [
            StreamsGroupHeartbeatRequestCopartitionGroup(
                source_topics=[0, 1], source_topic_regex=[], repartition_source_topics=[]
            )
        ]
        one = StreamsMember(client, "m")
        reply = await one.join(subtopology("0", "t", "u", together=together))
        assert [row.status_code for row in statuses(reply)] == [1]
        group = await described(client)
        assert group.group_state == "NotReady"
        assert group.topology is not None
        await client.create("t", partitions=2)
        await client.create("u", partitions=3)
        assert [row.status_code for row in statuses(await one.beat())] == [2]
        await broker.core.topics.grow_all({"t": 3})
        assert (await one.beat()).status == []
        assert one.active == {"0": [0, 1, 2]}


async def test_tasks_move_to_who_comes_and_copies_are_kept() -> None:
    async with broker_on(None, **AT_ONCE) as (broker, (client,)):
        await client.create("t", partitions=4)
        set_to = {"streams__num__standby__replicas": "1"}
        assert await alter_all(client, "g", set_to, kind=GROUP) == (0, None)
        one, two = StreamsMember(client, "one"), StreamsMember(client, "two")
        await one.join(*counting())
        await until_there(broker, "again", "log")
        await one.beat()
        await two.join(*counting())
        await settled(one, two)
        assert sum(map(len, one.active.values())) == sum(map(len, two.active.values())) == 4
        assert sorted([*one.standby["1"], *two.standby["1"]]) == [0, 1, 2, 3]
        assert two.standby.get("1") == one.active.get("1")
        assert await one.leave() == 0
        await settled(two)
        assert two.active == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}


async def test_tasks_stay_with_who_asked_twice_to_join_until_it_lets_go() -> None:
    """By a connection that was given up: the request was read when its member did its tasks."""
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        await client.create("t", partitions=4)
        one, two = StreamsMember(client, "one"), StreamsMember(client, "two")
        await one.join()
        assert one.active == {"0": [0, 1, 2, 3]}
        await two.join()
        await beat(client, joining("one"))
        await two.beat()
        assert two.active == {}, "the other one does all of it"
        await settled(one, two)
        assert sorted([*one.active["0"], *two.active["0"]]) == [0, 1, 2, 3]


async def test_threads_that_start_together_are_dealt_with_together() -> None:
    delay = {"group_streams_initial_rebalance_delay_ms": 10_000}
    async with broker_on(None, **delay) as (_, (client,)):
        await client.create("t", partitions=4)
        one, two = StreamsMember(client, "one"), StreamsMember(client, "two")
        for each in (one, two):
            reply = await each.join()
            assert [row.status_code for row in statuses(reply)] == [5]
            assert each.epoch == 1
        await passes(10)
        await until_described(client, "Reconciling", 3)
        await one.beat()
        await two.beat()
        assert len(one.active["0"]) == len(two.active["0"]) == 2
        assert (await described(client)).group_state == "Stable"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 256}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "static"}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"standby_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"warmup_tasks": None}, ErrorCode.INVALID_REQUEST),
        (
            {"warmup_tasks": [StreamsGroupTaskIds(subtopology_id="0", partitions=[0])]},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"task_offsets": []}, ErrorCode.INVALID_REQUEST),
        ({"task_end_offsets": []}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_request_that_contradicts_itself_is_refused(
    changes: dict[str, object], code: ErrorCode
) -> None:
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        reply = await beat(client, joining(**changes))  # type: ignore[arg-type]
        assert reply.error_code == code
        assert reply.error_message
        assert await listed(client) == []


async def test_topologies_that_no_topics_can_serve_are_refused() -> None:
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        beyond = StreamsGroupHeartbeatRequestCopartitionGroup(
            source_topics=[1], source_topic_regex=[], repartition_source_topics=[]
        )
        for wrong in (
            subtopology("0", "in valid"),
            subtopology("0", "__consumer_offsets"),
            subtopology("0", "t", together=[beyond]),
            subtopology("0", "t", reads=[internal("again")]),
            subtopology("0"),
        ):
            reply = await beat(client, joining("m", wrong))
            assert reply.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        pattern = subtopology("0", "t")
        pattern.source_topic_regex = ["t.*"]
        assert (await beat(client, joining("m", pattern))).error_code == ErrorCode.INVALID_REQUEST
        assert await listed(client) == []


async def test_who_is_no_member_or_at_another_epoch_joins_again() -> None:
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        for epoch in (2, -1):
            reply = await beat(client, beating("m", epoch))
            assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await beat(client, joining())
        reply = await beat(client, beating("m", 3))
        assert reply.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await beat(client, joining())).error_code == 0


async def test_a_member_that_is_not_heard_of_for_a_session_is_removed() -> None:
    short = {"group_streams_session_timeout_ms": 20, "group_streams_heartbeat_interval_ms": 10}
    async with broker_on(None, **KEPT, **short) as (_, (client,)):
        await client.create("t")
        await beat(client, joining())
        await until_described(client, "Empty")


async def test_offsets_are_committed_and_fetched_by_members_at_their_epoch() -> None:
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        await beat(client, joining())
        assert await commit(client, "m", 2) == 0
        assert await commit(client, "m", 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(client, "n", 2) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(client, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(client, "m", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
        assert await fetch_code(client, "m", 2) == 0
        assert await fetch_code(client, "m", 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert await fetch_code(client, None, -1) == 0
        row = OffsetDeleteRequestPartition(partition_index=0)
        topic = OffsetDeleteRequestTopic(name="t", partitions=[row])
        deletion = OffsetDeleteRequest(group_id="g", topics=[topic])
        answer = await client.ask(deletion, OffsetDeleteResponse, 0)
        found = answer.topics[0].partitions[0].error_code
        assert found == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await beat(client, beating("m", -1))
        assert await commit(client, "", -1) == 0
        answer = await client.ask(deletion, OffsetDeleteResponse, 0)
        assert answer.topics[0].partitions[0].error_code == 0


async def test_streams_groups_are_listed_described_and_deleted() -> None:
    async with broker_on(None, **KEPT) as (_, (client,)):
        await client.create("t")
        await beat(client, joining())
        await join_classic(client, "")  # in the group of this name: refused
        found = ("g", "streams", "Stable", "streams")
        assert await listed(client, types=("streams",)) == [found]
        assert await listed(client, types=("classic",)) == []
        assert await listed(client, states=("NotReady",)) == []
        request = DescribeGroupsRequest(groups=["g"])
        (row,) = (await client.ask(request, DescribeGroupsResponse, 6)).groups
        assert row.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert row.error_message == "Group g is not a classic group."
        assert await delete(client) == ErrorCode.NON_EMPTY_GROUP
        await beat(client, beating("m", -1))
        assert await listed(client) == [("g", "streams", "Empty", "streams")]
        assert await delete(client) == 0
        assert await listed(client) == []
        assert (await described(client)).error_message == "Group g not found."
        # A topology of its own comes with the next member: the old one went with the group.
        reply = await beat(client, joining("m", subtopology("other", "t")))
        assert reply.error_code == 0


async def test_a_large_group_that_everybody_left_is_dealt_out_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams_group, "SMALL_MAX", 0)
    monkeypatch.setattr(epochal_group, "REST_MS", 600_000)
    async with broker_on(None, **KEPT) as (_, (client,)):
        await client.create("t", partitions=2)
        assert owned((await beat(client, joining("m"))).active_tasks) == {"0": [0, 1]}
        assert (await beat(client, beating("m", -1))).error_code == 0
        reply = await beat(client, joining("n"))
        assert (owned(reply.active_tasks), statuses(reply)) == ({"0": [0, 1]}, [])


async def test_a_name_is_that_of_one_kind_of_group() -> None:
    async with broker_on(None, **KEPT) as (_, (client,)):
        await client.create("t")
        await beat(client, joining())
        joined = await join_classic(client)
        assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        refused = await consumer_beat(client, consumer_joining("c"))
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        shared = await share_beat(client, sharing())
        assert shared.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await beat(client, beating("m", -1))
        assert (await consumer_beat(client, consumer_joining("c"))).error_code == 0
        reply = await beat(client, joining())
        assert reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await described(client)).error_message == "Group g is not a streams group."


async def test_without_streams_the_apis_are_refused_and_the_feature_is_off() -> None:
    async with broker_on(None, group_protocols="classic,consumer") as (_, (client,)):
        reply = await beat(client, joining())
        assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await described(client)).error_code == ErrorCode.UNSUPPORTED_VERSION
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        versions = await client.ask(request, ApiVersionsResponse, 4)
        assert "streams.version" not in {one.name for one in versions.finalized_features}


async def test_a_group_has_settings_of_its_own() -> None:
    async with broker_on(None, **AT_ONCE) as (broker, (client,)):
        await client.create("t")
        values = {
            "streams__heartbeat__interval__ms": "1000",
            "streams__session__timeout__ms": "9000",
            "streams__initial__rebalance__delay__ms": "3000",
        }
        assert await alter_all(client, "g", values, kind=GROUP) == (0, None)
        reply = await beat(client, joining())
        assert reply.heartbeat_interval_ms == 1_000
        assert [row.status_code for row in statuses(reply)] == [5]
        group = broker.core.groups.get_streams("g")
        assert group is not None
        assert group.session_timeout_ms == 9_000
        code, _ = await alter_all(
            client, "g", {"streams__num__standby__replicas": "11"}, kind=GROUP
        )
        assert code == ErrorCode.INVALID_CONFIG


async def test_a_shutdown_reaches_every_member() -> None:
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        await client.create("t", partitions=2)
        one, two = StreamsMember(client, "one"), StreamsMember(client, "two")
        await one.join()
        await two.join()
        await one.beat(shutdown_application=True)
        (status,) = statuses(await two.beat())
        assert status.status_code == 4
        assert "one encountered a fatal error" in status.status_detail


async def test_the_groups_limit_holds() -> None:
    async with broker_on(None, **AT_ONCE, groups_max=1) as (_, (client,)):
        await client.create("t")
        assert (await beat(client, joining())).error_code == 0
        reply = await beat(client, joining(group_id="h"))
        assert reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    async with broker_on(None, **AT_ONCE, group_streams_size_max=1) as (_, (client,)):
        await client.create("t")
        assert (await beat(client, joining())).error_code == 0
        reply = await beat(client, joining("n"))
        assert reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_deleting_many_names_keeps_to_what_was_asked() -> None:
    async with broker_on(None, **KEPT) as (_, (client,)):
        await client.create("t")
        for name in ("g", "h"):
            await beat(client, joining(group_id=name))
            await beat(client, beating("m", -1, group_id=name))
        request = DeleteGroupsRequest(groups_names=["g", "no"])
        reply = await client.ask(request, DeleteGroupsResponse, 2)
        assert [one.error_code for one in reply.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert [name for name, *_ in await listed(client)] == ["h"]


@pytest.mark.parametrize("commits", [True, False])
async def test_a_group_that_left_memory_is_what_it_was(commits: bool) -> None:
    async with broker_on(None, groups_max=1, **KEPT) as (_, (client,)):
        await client.create("t")
        reply = await beat(client, joining("m"))
        if commits:
            assert await commit(client, "m", reply.member_epoch) == 0
        assert (await beat(client, beating("m", -1))).error_code == 0
        before = await described(client)
        other = await beat(client, joining("m", group_id="h"))
        assert other.error_code == 0, "there is room where nobody is in the first"
        rows = {row[0]: row[1:] for row in await listed(client)}
        assert rows["g"] == ("streams", "Empty", "streams")
        assert await described(client) == before
        assert (await beat(client, beating("m", 2))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_that_left_memory_has_its_topology_until_it_is_deleted() -> None:
    async with broker_on(None, groups_max=1, **KEPT) as (broker, (client,)):
        await client.create("t")
        assert (await beat(client, joining("m"))).error_code == 0
        assert (await beat(client, beating("m", -1))).error_code == 0
        assert (await beat(client, joining("m", group_id="h"))).error_code == 0
        groups = broker.core.groups
        groups.reconfigure(replace(groups.config, groups_max=2))
        another = joining("m", subtopology("0", "t", writes=["s"]))
        assert (await beat(client, another)).error_code == ErrorCode.INVALID_REQUEST
        assert await delete(client) == 0
        assert [row[0] for row in await listed(client)] == ["h"]
        assert (await beat(client, another)).member_epoch == 2


async def test_a_share_group_that_takes_the_name_of_one_that_left_memory_is_one() -> None:
    disk = GatedStorage()
    async with broker_on(disk, groups_max=1, **KEPT) as (broker, (client,)):
        await client.create("t")
        assert (await beat(client, joining("m"))).error_code == 0
        assert (await beat(client, beating("m", -1))).error_code == 0
        assert (await beat(client, joining("m", group_id="h"))).error_code == 0
        groups = broker.core.groups
        groups.reconfigure(replace(groups.config, groups_max=2))
        disk.sync_error = OSError(errno.ENOSPC, "full")  # what is written down of it stays
        assert (await share_beat(client, sharing())).error_code == 0
        rows = {row[0]: row[1:] for row in await listed(client)}
        assert rows["g"] == ("share", "Stable", "share")
        assert (await described(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        disk.sync_error = None


async def test_a_topology_that_nothing_can_serve_stands_until_its_group_is_deleted() -> None:
    async with broker_on(None, **AT_ONCE) as (_, (client,)):
        loop = subtopology("0", "t", reads=[internal("again")])  # which nobody writes to
        reply = await beat(client, joining("m", loop))
        assert [one.status_code for one in statuses(reply)] == [1], "t is missing"
        await client.create("t")
        invalid = ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert (await beat(client, beating("m", reply.member_epoch))).error_code == invalid
        assert (await beat(client, joining("m"))).error_code == ErrorCode.INVALID_REQUEST
        assert await delete(client) == ErrorCode.NON_EMPTY_GROUP
        assert (await beat(client, beating("m", -1))).error_code == 0
        assert (await beat(client, joining("m"))).error_code == ErrorCode.INVALID_REQUEST
        assert await delete(client) == 0
        assert owned((await beat(client, joining("m"))).active_tasks) == {"0": [0]}

"""Share groups on the wire: who is in them, what is refused, and that a name is of one kind."""

import pytest
import trio

from segbroker.broker.groups import group_places, member_room
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from segbroker.protocol.messages_share_groups import (
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseGroup,
    ShareRequestPartition,
    ShareRequestTopic,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.share_groups import STATES, ShareRow, states_fields

from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect
from ..support.wire_consumers import beat as consumer_beat
from ..support.wire_consumers import commit, described, join_classic, joining
from ..support.wire_settings import GROUP, alter_all
from ..support.wire_shares import ACCEPT, FINAL, Sharing, beat, delete, listed, sharing, topic_id
from ..support.wire_transactions import Tx
from .conftest import serving

KEPT_MS = 60_000


async def describe(client: WireClient, name: str = "g") -> ShareGroupDescribeResponseGroup:
    request = ShareGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    reply = await client.ask(request, ShareGroupDescribeResponse, 1)
    return reply.groups[0]


def work_on_records(broker: Broker, group: str = "g") -> None:
    """Something is kept of a group: where it stands in t."""
    topic_id = broker.core.topics.all["t"].topic_id
    row = ShareRow("t", topic_id, 0, 0)
    broker.core.topics.manager.record_now(STATES, **states_fields(group, [row]))


async def test_a_member_joins_reads_and_is_described() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        topic_id = broker.core.topics.all["t"].topic_id
        reply = await beat(client, sharing(rack_id="r"))
        assert (reply.error_code, reply.member_id) == (0, "m")
        assert (reply.member_epoch, reply.heartbeat_interval_ms) == (2, 5_000)
        assert reply.assignment is not None
        (one,) = reply.assignment.topic_partitions
        assert (one.topic_id, one.partitions) == (topic_id, [0, 1])
        again = await beat(client, sharing(epoch=2))
        assert (again.error_code, again.assignment) == (0, None)
        row = await describe(client)
        assert (row.error_code, row.group_state, row.assignor_name) == (0, "Stable", "simple")
        assert (row.group_epoch, row.assignment_epoch) == (2, 2)
        (member,) = row.members
        assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r", 2)
        assert (member.client_host, member.subscribed_topic_names) == ("/127.0.0.1", ["t"])
        (has,) = member.assignment.topic_partitions
        assert (has.topic_id, has.topic_name, has.partitions) == (topic_id, "t", [0, 1])
        gone = await beat(client, sharing(epoch=-1))
        assert (gone.error_code, gone.member_epoch, gone.heartbeat_interval_ms) == (0, -1, 0)


async def test_two_members_share_the_partition_of_a_topic() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for member in ("m", "n"):
            reply = await beat(client, sharing(member))
            assert reply.assignment is not None
            assert [one.partitions for one in reply.assignment.topic_partitions] == [[0]]


async def test_a_topic_that_comes_grows_and_goes_is_told_with_the_next_heartbeat() -> None:
    async with serving() as broker, connect(broker.address) as client:
        first = await beat(client, sharing())
        assert first.assignment is not None
        assert first.assignment.topic_partitions == []
        await client.create("t", partitions=1)
        reply = await beat(client, sharing(epoch=2))
        assert reply.assignment is not None
        assert [one.partitions for one in reply.assignment.topic_partitions] == [[0]]
        topics = broker.core.topics
        await topics.grow_all({"t": 2})
        reply = await beat(client, sharing(epoch=3))
        assert reply.assignment is not None
        assert [one.partitions for one in reply.assignment.topic_partitions] == [[0, 1]]
        await topics.delete_all(["t"])
        reply = await beat(client, sharing(epoch=4))
        assert reply.assignment is not None
        assert (reply.member_epoch, reply.assignment.topic_partitions) == (5, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"group_id": ""},
        {"group_id": " "},
        {"member_id": ""},
        {"member_id": " "},
        {"member_id": "m" * 37},
        {"rack_id": ""},
        {"member_epoch": -2},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ],
)
async def test_a_request_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = sharing()
        for name, value in changes.items():
            setattr(request, name, value)
        reply = await beat(client, request)
        assert reply.error_code == ErrorCode.INVALID_REQUEST
        assert reply.error_message
        assert await listed(client) == []


async def test_who_is_no_member_or_at_another_epoch_joins_again() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for epoch in (2, -1):
            reply = await beat(client, sharing(epoch=epoch))
            assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await beat(client, sharing())
        reply = await beat(client, sharing(epoch=3))
        assert reply.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await beat(client, sharing("n", epoch=2))).error_code == (
            ErrorCode.UNKNOWN_MEMBER_ID
        )
        assert (await beat(client, sharing())).error_code == 0


async def test_after_a_restart_members_join_again_and_what_the_group_did_is_known() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        work_on_records(broker)
        await beat(client, sharing())
        await beat(client, sharing(group_id="other"))
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        assert await listed(client) == [("g", "share", "Empty", "share")]
        row = await describe(client)
        assert (row.error_code, row.group_state, row.members) == (0, "Empty", [])
        reply = await beat(client, sharing(epoch=2))
        assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        reply = await beat(client, sharing())
        assert (reply.error_code, reply.member_epoch) == (0, 2)
        assert await listed(client) == [("g", "share", "Stable", "share")]


async def test_a_member_that_falls_silent_is_dropped_and_its_group_is_forgotten() -> None:
    async with (
        serving(
            group_share_session_timeout_ms=50,
            group_share_heartbeat_interval_ms=10,
            group_kept_empty_ms=0,
        ) as broker,
        connect(broker.address) as client,
    ):
        await beat(client, sharing())
        with trio.fail_after(60):
            while await listed(client):
                pass
        assert (await describe(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert len(broker.core.groups.share_groups) == 0


async def test_a_group_goes_by_its_own_session_and_interval() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await beat(client, sharing())
        values = {"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "700"}
        assert await alter_all(client, "g", values, kind=GROUP) == (0, None)
        assert (await beat(client, sharing(epoch=2))).heartbeat_interval_ms == 700
        group = broker.core.groups.share_groups.get("g")
        assert group is not None
        assert group.session_timeout_ms == 50_000


async def test_groups_are_listed_by_state_and_type() -> None:
    async with serving(group_kept_empty_ms=KEPT_MS) as broker, connect(broker.address) as client:
        await client.create("t")
        await beat(client, sharing(group_id="a"))
        await beat(client, sharing(group_id="b"))
        await beat(client, sharing(group_id="b", epoch=-1))
        await consumer_beat(client, joining(group_id="c"))
        a, b = ("a", "share", "Stable", "share"), ("b", "share", "Empty", "share")
        assert await listed(client, types=("Share",)) == [a, b]
        assert await listed(client, states=("empty",)) == [b]
        assert await listed(client, types=("consumer",), states=("Empty",)) == []
        assert await listed(client) == [a, b, ("c", "consumer", "Stable", "consumer")]


async def test_limits_refuse_those_who_come_and_keep_those_who_are_there() -> None:
    async with (
        serving(group_share_size_max=1, groups_max=2, group_kept_empty_ms=KEPT_MS) as broker,
        connect(broker.address) as client,
    ):
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await beat(client, sharing())).error_code == 0
        assert (await beat(client, sharing("n"))).error_code == full
        assert (await consumer_beat(client, joining(group_id="c"))).error_code == 0
        await beat(client, sharing(epoch=-1))
        assert (await beat(client, sharing(group_id="third"))).error_code == 0
        assert (await beat(client, sharing(group_id="fourth"))).error_code == full
        assert (await consumer_beat(client, joining(group_id="fourth"))).error_code == full
        assert (await beat(client, sharing(group_id="third", epoch=2))).error_code == 0


async def test_of_the_groups_that_nobody_is_in_as_many_leave_as_it_takes() -> None:
    """All of a hundred thousand at once would hold the loop."""
    async with (
        serving(groups_max=3, group_kept_empty_ms=KEPT_MS) as broker,
        connect(broker.address) as client,
    ):
        for name in "abc":
            assert (await beat(client, sharing(group_id=name))).error_code == 0
            await beat(client, sharing(group_id=name, epoch=-1))
        for name, there in (("d", "bcd"), ("e", "cde"), ("f", "def")):
            assert (await beat(client, sharing(group_id=name))).error_code == 0
            assert [one for one, *_ in await listed(client)] == [*there]
        assert (await beat(client, sharing(group_id="g"))).error_code == (
            ErrorCode.GROUP_MAX_SIZE_REACHED
        )


async def test_who_is_back_in_a_group_does_not_keep_another_one_from_giving_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_places, "LOOK_INTERVAL_MS", 0)
    async with (
        serving(groups_max=2, group_kept_empty_ms=KEPT_MS) as broker,
        connect(broker.address) as client,
    ):
        for name in "ab":
            assert (await beat(client, sharing(group_id=name))).error_code == 0
            await beat(client, sharing(group_id=name, epoch=-1))
        assert (await beat(client, sharing(group_id="c"))).error_code == 0  # in the place of a
        assert (await beat(client, sharing(group_id="b"))).error_code == 0
        await beat(client, sharing(group_id="c", epoch=-1))
        assert (await beat(client, sharing(group_id="d"))).error_code == 0
        assert [one for one, *_ in await listed(client)] == ["b", "d"]


async def test_a_share_group_is_no_other_group() -> None:
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        work_on_records(broker)
        for _ in range(2):  # without members, and with one
            reply = await consumer_beat(client, joining())
            assert reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert reply.error_message == "Group g is not a consumer group."
            joined = await join_classic(client)
            assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert await commit(client, "", -1) == ErrorCode.GROUP_ID_NOT_FOUND
            assert await commit(client, "m", 1) == ErrorCode.GROUP_ID_NOT_FOUND
            row = await described(client)
            assert row.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert row.error_message == "Group g is not a consumer group."
            reply_old = await client.ask(
                DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 6
            )
            (old,) = reply_old.groups
            assert (old.error_code, old.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
            assert old.error_message == "Group g is not a classic group."
            offsets = await client.ask(
                OffsetDeleteRequest(group_id="g", topics=[]), OffsetDeleteResponse, 0
            )
            assert offsets.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert (await beat(client, sharing())).error_code == 0


async def test_a_transaction_commits_nothing_for_a_share_group() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await beat(client, sharing())
        tx = Tx(client, "x")
        assert await tx.init() == 0
        assert await tx.stage("g", "t", 3) == ErrorCode.GROUP_ID_NOT_FOUND


async def test_who_acknowledges_in_a_group_of_consumers_is_told_of_its_session_as_in_kafka() -> (
    None
):
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await consumer_beat(client, joining())
        one = Sharing(client, "g", await topic_id(client, "t"))
        assert await one.fetch(0) == []
        assert one.code() == ErrorCode.GROUP_ID_NOT_FOUND
        for epoch, code in (
            (0, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
            (1, ErrorCode.SHARE_SESSION_NOT_FOUND),
            (FINAL, ErrorCode.SHARE_SESSION_NOT_FOUND),
        ):
            assert await one.say({0: [(0, 0, [ACCEPT])]}, epoch=epoch) == (code, {})


async def test_a_group_with_members_or_offsets_is_no_share_group() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        member = await consumer_beat(client, joining())
        reply = await beat(client, sharing())
        assert reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert reply.error_message == "Group g is not a share group."
        assert (await describe(client)).error_message == "Group g is not a share group."
        assert await commit(client, "m", member.member_epoch) == 0
        await consumer_beat(client, joining(member_epoch=-1))
        reply = await beat(client, sharing())
        assert reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await delete(client) == 0
        assert (await beat(client, sharing())).error_code == 0


async def test_nothing_is_fetched_for_a_group_of_another_kind() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topic = ShareRequestTopic(
            topic_id=broker.core.topics.all["t"].topic_id,
            partitions=[ShareRequestPartition(partition_index=0, acknowledgement_batches=[])],
        )
        request = ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_records=1,
            batch_size=1,
            topics=[topic],
            forgotten_topics_data=[],
        )
        await consumer_beat(client, joining())
        reply = await client.ask(request, ShareFetchResponse, 1)
        assert reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert not broker.core.shares.has("g")
        await consumer_beat(client, joining(member_epoch=-1))
        assert (await client.ask(request, ShareFetchResponse, 1)).error_code == 0


async def test_a_name_that_nobody_uses_any_more_may_be_of_another_kind() -> None:
    async with serving(group_kept_empty_ms=KEPT_MS) as broker, connect(broker.address) as client:
        await client.create("t")
        await consumer_beat(client, joining())
        await consumer_beat(client, joining(member_epoch=-1))
        assert (await beat(client, sharing())).error_code == 0
        assert await listed(client) == [("g", "share", "Stable", "share")]
        await beat(client, sharing(epoch=-1))
        assert (await consumer_beat(client, joining())).error_code == 0
        assert await listed(client) == [("g", "consumer", "Stable", "consumer")]


async def test_a_share_group_without_members_is_deleted_with_what_it_did() -> None:
    async with serving(group_kept_empty_ms=KEPT_MS) as broker, connect(broker.address) as client:
        await client.create("t")
        await beat(client, sharing())
        work_on_records(broker)
        assert await delete(client) == ErrorCode.NON_EMPTY_GROUP
        await beat(client, sharing(epoch=-1))
        assert await delete(client) == 0
        assert await listed(client) == []
        assert await delete(client) == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await describe(client)).error_message == "Group g not found."
        assert (await consumer_beat(client, joining())).error_code == 0


async def test_without_the_protocol_both_requests_are_refused() -> None:
    async with (
        serving(group_protocols="classic,consumer") as broker,
        connect(broker.address) as client,
    ):
        assert (await beat(client, sharing())).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await describe(client)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_group_without_a_name_is_none() -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert (await describe(client, "")).error_code == ErrorCode.INVALID_GROUP_ID


async def test_the_feature_of_share_groups_is_told() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        reply = await client.ask(request, ApiVersionsResponse, 4)
        levels = {one.name: one.max_version_level for one in reply.finalized_features}
        assert levels["share.version"] == 1


async def test_a_group_whose_first_member_is_refused_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_room, "ALL_MAX", 0)
    async with serving(group_kept_empty_ms=0) as broker, connect(broker.address) as client:
        refused = await beat(client, sharing(rack_id="x" * 2 * member_room.SMALL_MAX))
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await becomes(lambda: not any(broker.core.groups.share_groups.places()))

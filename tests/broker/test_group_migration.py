"""Groups that turn from one protocol to the other while members are in them, on the wire."""

from functools import partial

import pytest
import trio

from segbroker.protocol.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupHeartbeatRequest,
)
from segbroker.protocol.messages_groups import (
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

from ..support.patient_clock import passes
from ..support.waiting import DEADLINE_S
from ..support.wire_client import WireClient, connect
from ..support.wire_consumers import beat, described, fetch_code, joining, read_by
from .classic_member import ClassicMember
from .conftest import serving
from .obedient_members import Member, settled
from .restarts import broker_on

ALL = [("t", 0), ("t", 1)]


async def alone(client: WireClient, **changes: object) -> ClassicMember:
    """A classic member that has all there is."""
    one = ClassicMember(client, **changes)  # type: ignore[arg-type]  # fields by name
    await one.join()
    await one.sync({one.member_id: ALL})
    assert one.has == ALL
    return one


async def of_two_epochs(
    client: WireClient, other: WireClient
) -> tuple[ClassicMember, ClassicMember]:
    """Two classic members of a group that has just turned back; the first is an epoch behind."""
    await client.create("t", partitions=3)
    last = Member(client, "m")
    await last.join()
    one, three = ClassicMember(client), ClassicMember(other)
    for each in (one, three):
        await each.join()
        assert await each.sync() == 0
    assert one.generation < three.generation
    assert await last.leave() == 0
    assert await kind(client) == ("classic", "PreparingRebalance")
    return one, three


def read_of(member: ConsumerGroupDescribeResponseMember) -> list[int]:
    """The partitions that a description says are read."""
    return [index for one in member.assignment.topic_partitions for index in one.partitions]


def large(size: int) -> bytes:
    """A subscription of about so many bytes, which is none too many for a frame."""
    metadata = Subscription(("t",), user_data=bytes(size))
    return encode_subscription(metadata)


async def kind(client: WireClient) -> tuple[str, str]:
    """(type, state) of the group."""
    reply = await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)
    (row,) = reply.groups
    return row.group_type, row.group_state


def of_848(epoch: int, **changes: object) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    for name, value in changes.items():
        setattr(request, name, value)
    return request


async def test_an_eager_member_and_one_of_the_consumer_protocol_share_a_group_and_part() -> None:
    async with broker_on(None) as (broker, (client,)):
        await client.create("t", partitions=2)
        one = await alone(client)
        assert await one.beat() == 0
        before = one.generation

        two = await beat(client, joining())
        assert two.error_code == 0
        assert two.member_epoch > before, "epochs count the generations on"
        assert read_by(two) == {}, "the other has not let go of anything"
        assert await kind(client) == ("consumer", "Reconciling")
        assert await one.commit() == 0, "its generation holds until it has joined again"
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await one.sync() == ErrorCode.REBALANCE_IN_PROGRESS

        reply = await one.join()  # an eager member: it has let go of all
        assert (reply.error_code, reply.generation_id) == (0, two.member_epoch)
        assert (reply.leader, reply.members, reply.protocol_name) == ("", [], "range")
        assert await one.sync() == 0
        assert await one.beat() == 0
        assert len(one.has) == 1
        topic_id = broker.core.topics.all["t"].topic_id
        told = await beat(client, of_848(two.member_epoch, topic_partitions=[]))
        (theirs,) = read_by(told)[topic_id]
        assert {("t", theirs), *one.has} == set(ALL)
        row = await described(client)
        assert {(each.member_id, each.member_type) for each in row.members} == {
            (one.member_id, 0),
            ("m", 1),
        }
        assert await kind(client) == ("consumer", "Stable")
        assert await one.commit(before) == ErrorCode.ILLEGAL_GENERATION
        assert await one.commit() == 0

        gone = await beat(client, of_848(-1))
        assert gone.error_code == 0
        assert await kind(client) == ("classic", "PreparingRebalance")
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        reply = await one.join()
        assert (reply.error_code, reply.leader) == (0, one.member_id)
        assert reply.generation_id > two.member_epoch
        assert await one.sync({one.member_id: ALL}) == 0
        assert one.has == ALL
        assert await kind(client) == ("classic", "Stable")


async def test_what_a_cooperative_member_still_has_is_nobodys_until_it_has_let_go() -> None:
    async with broker_on(None, 2) as (_, (client, other)):
        await client.create("t", partitions=3)
        all_three = [("t", n) for n in range(3)]
        one = ClassicMember(client, protocol="cooperative-sticky")
        two = ClassicMember(other, protocol="cooperative-sticky")
        await one.join()
        await one.sync({one.member_id: all_three})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(two.join)
            while await one.beat() == 0:
                pass
            await one.join(*all_three)
        assert await one.sync({one.member_id: [("t", 0)], two.member_id: []}) == 0
        assert one.has == [("t", 0)], "and is about to let go of the others"

        three = Member(client, "m")
        await three.join()
        await two.join()
        assert await two.sync() == 0
        assert (three.reads, two.has) == ({}, []), "it may read them still"
        row = await described(client)
        assert {len(read_of(each)) for each in row.members} == {0, 3}
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        await one.join(*all_three)
        assert (await one.sync(), one.has) == (0, [("t", 0)])
        for _ in range(2):
            await three.beat()
            await two.join()
            assert await two.sync() == 0
        assert (three.reads, two.has) == ({}, []), "it says that it reads them still"
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        await one.join(*one.has)
        assert await one.sync() == 0
        await three.beat()
        while await two.beat() == ErrorCode.REBALANCE_IN_PROGRESS:
            await two.join(*two.has)
            await two.sync()
        theirs = [("t", n) for indexes in three.reads.values() for n in indexes]
        assert sorted(one.has + two.has + theirs) == all_three
        assert (len(one.has), len(two.has)) == (1, 1)


async def test_what_two_say_that_they_still_have_is_one_members_to_let_go_of() -> None:
    """Who was away says what it had before another was given that."""
    async with broker_on(None, 2) as (_, (client, other)):
        await client.create("t", partitions=2)
        one = ClassicMember(client, protocol="cooperative-sticky")
        two = ClassicMember(other, protocol="cooperative-sticky")
        await one.join()
        await one.sync({one.member_id: ALL})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(two.join, *ALL))
            while await one.beat() == 0:
                pass
            await one.join(*ALL)
        assert await one.sync({one.member_id: [], two.member_id: []}) == 0
        three = Member(client, "m")
        assert (await three.join()).error_code == 0
        for _ in range(3):
            for each in (one, two):
                await each.join()
                assert await each.sync() == 0
            await three.beat()
        theirs = [("t", n) for indexes in three.reads.values() for n in indexes]
        assert sorted(one.has + two.has + theirs) == ALL


async def test_a_cooperative_member_of_a_mixed_group_lets_go_of_some_and_keeps_the_rest() -> None:
    async with broker_on(None) as (_, (client,)):
        await client.create("t", partitions=2)
        one = await alone(client, protocol="cooperative-sticky")
        generation = one.generation
        two = Member(client, "m")
        await two.join()
        reply = await one.join(*ALL)
        assert reply.generation_id == generation, "it is at its epoch until it has let go"
        assert await one.sync() == 0
        assert len(one.has) == 1
        assert await one.commit() == 0
        await two.beat()
        assert two.reads == {}
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        kept = list(one.has)
        assert (await one.join(*kept)).generation_id == two.epoch
        assert (await one.sync(), one.has) == (0, kept)
        assert await one.beat() == 0
        await two.beat()
        assert [*two.reads.values()] == [[1 - kept[0][1]]]


async def test_who_waits_for_something_joins_again_when_all_of_it_is_free() -> None:
    async with broker_on(None) as (_, (client,)):
        await client.create("t", partitions=2)
        two = Member(client, "m")
        await two.join()
        one = ClassicMember(client)
        await one.join()
        assert (await one.sync(), one.has) == (0, [])
        assert await one.beat() == 0, "the other reads on"
        await two.beat()
        assert await one.beat() == 0, "it was told to let go, and has not said that it did"
        await two.beat()
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        await one.join()
        assert (await one.sync(), len(one.has)) == (0, 1)
        assert await one.beat() == 0


async def test_what_nobody_was_given_is_read_after_a_static_member_has_turned_its_group() -> None:
    async with broker_on(None) as (_, (client,)):
        await client.create("t", partitions=2)
        one = ClassicMember(client, instance_id="i")
        await one.join()
        assert await one.sync({one.member_id: [("t", 1)]}) == 0
        two = Member(client, "m", instance_id="i")
        await two.join()
        await two.beat()
        assert [*two.reads.values()] == [[0, 1]]


async def test_a_join_that_waits_is_told_to_begin_again_when_its_group_turns() -> None:
    async with broker_on(None, 2) as (_, (client, waits)):
        await client.create("t", partitions=2)
        one = await alone(client)
        two = ClassicMember(waits)
        codes = []

        async def join() -> None:
            codes.append((await two.join()).error_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join)
            while await one.beat() == 0:
                pass
            assert (await beat(client, joining())).error_code == 0
        assert codes == [ErrorCode.REBALANCE_IN_PROGRESS]
        assert (await two.join()).error_code == 0, "under the id that it had"
        assert await two.sync() == 0
        row = await described(client)
        assert {each.member_id for each in row.members} == {one.member_id, two.member_id, "m"}


@pytest.mark.parametrize(
    "policy",
    [
        *("disabled", "downgrade", "bidirectional", "words", "metadata", "assignment", "large"),
        *("size", "connect"),
    ],
)
async def test_a_classic_group_that_cannot_turn_stays_and_who_joins_is_refused(policy: str) -> None:
    policies = {"disabled", "downgrade"}
    keys: dict[str, str | int] = {}
    if policy in policies:
        keys["group_consumer_migration_policy"] = policy
    if policy == "size":
        keys["group_consumer_size_max"] = 1
    async with broker_on(None, 1, **keys) as (_, (client,)):
        await client.create("t", partitions=2)
        one = ClassicMember(client, protocol="stream" if policy == "words" else "range")
        one.protocol_type = "connect" if policy == "connect" else "consumer"
        if policy == "metadata":
            one.metadata = b"none"
        if policy == "large":  # with what it is given: neither alone is too much
            one.metadata = large((1 << 20) - 100)
        await one.join()
        words = {
            "words": b"\x00\x00\x00\x01w",
            "large": (3 << 19).to_bytes(4) + bytes(3 << 19),
        }.get(policy, b"\xff\xff\xff\xff")
        share = b"none" if policy == "assignment" else encode_assignment(ALL)[:-4] + words
        assert await one.sync_with({one.member_id: share}) == 0
        expected = ErrorCode.GROUP_ID_NOT_FOUND
        if policy == "bidirectional":
            expected = ErrorCode.UNSUPPORTED_ASSIGNOR
        if policy == "size":
            expected = ErrorCode.GROUP_MAX_SIZE_REACHED
        request = joining(server_assignor="none" if policy == "bidirectional" else None)
        assert (await beat(client, request)).error_code == expected
        assert await one.beat() == 0
        assert await kind(client) == ("classic", "Stable")


@pytest.mark.parametrize("why", ["one too many", "a partition of both"])
async def test_two_classic_members_stay_where_their_group_cannot_turn(why: str) -> None:
    keys = {"group_consumer_size_max": 1} if why == "one too many" else {}
    async with broker_on(None, 2, **keys) as (_, (client, other)):
        await client.create("t", partitions=2)
        one, two = await alone(client, instance_id="i"), ClassicMember(other)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(two.join)
            while await one.beat() == 0:
                pass
            await one.join()
        second = ALL if why == "a partition of both" else []
        assert await one.sync({one.member_id: ALL, two.member_id: second}) == 0
        for request in (joining(), joining(instance_id="i")):  # which would be no more than before
            assert (await beat(client, request)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await one.beat() == 0
        assert await kind(client) == ("classic", "Stable")


@pytest.mark.parametrize(("size_max", "turns"), [(1, False), (2, True)])
async def test_a_group_that_is_too_large_for_a_classic_one_does_not_turn_back(
    size_max: int, turns: bool
) -> None:
    async with broker_on(None, 1, group_size_max=size_max) as (_, (client,)):
        await client.create("t", partitions=2)
        last = Member(client, "m")
        await last.join()
        one, two = ClassicMember(client), ClassicMember(client)
        for each in (one, two):
            assert (await each.join()).error_code == 0
        assert await last.leave() == 0
        assert (await kind(client))[0] == ("classic" if turns else "consumer")


async def test_what_a_static_member_was_to_let_go_of_is_read_when_another_has_its_place() -> None:
    async with broker_on(None) as (_, (client,)):
        await client.create("t", partitions=2)
        one, two = Member(client, "m", instance_id="i"), Member(client, "two")
        await one.join()
        await two.join()
        assert (await one.beat()).error_code == 0, "it is told to let go, and still reads all"
        assert not two.reads
        back = ClassicMember(client, instance_id="i")
        assert (await back.join()).error_code == 0
        assert await back.sync() == 0
        await settled(two)
        (theirs,) = two.reads.values()
        assert sorted([index for _, index in back.has] + theirs) == [0, 1]


async def test_words_of_an_assignor_that_nobody_reads_keep_no_group_from_turning() -> None:
    async with broker_on(None) as (_, (client,)):
        await client.create("t", partitions=2)
        one = ClassicMember(client, protocol="cooperative-sticky")
        await one.join()
        share = encode_assignment(ALL)[:-4] + b"\x00\x00\x00\x01w"
        assert await one.sync_with({one.member_id: share}) == 0
        assert (await beat(client, joining())).error_code == 0
        row = await described(client)
        assert {each.member_id: read_of(each) for each in row.members} == {
            one.member_id: [0, 1],
            "m": [],
        }


async def test_what_a_classic_member_says_is_bounded_in_a_group_of_consumers() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await beat(client, joining())
        one = ClassicMember(client, metadata=large(1 << 20))
        assert (await one.join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert [each.member_id for each in (await described(client)).members] == ["m"]
        one.metadata = large((1 << 20) - 100)
        assert (await one.join()).error_code == 0


async def test_where_migration_is_disabled_no_classic_member_joins_one_of_the_other() -> None:
    """As in Kafka since 4.3; whoever joins is told nothing else first, an id neither."""
    async with (
        serving(group_consumer_migration_policy="disabled") as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", partitions=2)
        assert (await beat(client, joining(instance_id="i"))).error_code == 0
        for instance_id in (None, "i", "j"):
            reply = await ClassicMember(client, instance_id=instance_id).join_once()
            refused = (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
            assert (reply.error_code, reply.member_id) == refused
        assert [one.member_id for one in (await described(client)).members] == ["m"]


async def test_classic_members_join_and_without_downgrade_the_group_stays() -> None:
    async with (
        serving(group_consumer_migration_policy="upgrade") as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", partitions=2)
        two = Member(client, "m")
        await two.join()
        one = ClassicMember(client)
        assert (await one.join()).error_code == 0
        assert await one.sync() == 0
        assert await two.leave() == 0
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await one.join()).leader == ""
        assert (await one.sync(), one.has) == (0, ALL)
        assert await kind(client) == ("consumer", "Stable")
        assert await one.leave() == 0
        assert await kind(client) == ("consumer", "Empty")


async def test_a_static_member_takes_its_place_over_in_the_other_protocol() -> None:
    async with broker_on(None) as (broker, (client,)):
        await client.create("t", partitions=2)
        one = await alone(client, instance_id="i")
        reply = await beat(client, joining(instance_id="i"))
        topic_id = broker.core.topics.all["t"].topic_id
        assert (reply.error_code, read_by(reply)) == (0, {topic_id: [0, 1]})
        assert await one.beat() == ErrorCode.FENCED_INSTANCE_ID
        assert await one.sync() == ErrorCode.FENCED_INSTANCE_ID
        assert await one.commit() == ErrorCode.FENCED_INSTANCE_ID
        assert (await one.join()).error_code == ErrorCode.FENCED_INSTANCE_ID
        assert [each.member_id for each in (await described(client)).members] == ["m"]

        back = ClassicMember(client, instance_id="i")
        assert (await back.join()).error_code == 0
        gone = of_848(reply.member_epoch, instance_id="i")
        assert (await beat(client, gone)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await kind(client))[0] == "classic"
        assert await back.sync() == ErrorCode.REBALANCE_IN_PROGRESS
        await back.join()
        assert (await back.sync({back.member_id: ALL}), back.has) == (0, ALL)


async def test_what_a_static_member_reads_that_came_back_is_its_own_when_its_group_turns() -> None:
    async with broker_on(None) as (_, (client,)):
        await client.create("t", partitions=2)
        await alone(client, instance_id="i")
        back, two = ClassicMember(client, instance_id="i"), Member(client, "m")
        await back.join()
        assert (await back.sync(), back.has) == (0, ALL)
        await two.join()
        assert not two.reads


async def test_a_sync_that_waits_is_told_to_begin_again_when_its_group_turns() -> None:
    async with broker_on(None, 2) as (_, (client, waits)):
        await client.create("t", partitions=2)
        one = await alone(client)
        two = ClassicMember(waits)
        codes = []

        async def join_and_sync() -> None:
            await two.join()
            codes.append(await two.sync())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join_and_sync)
            while await one.beat() == 0:
                pass
            assert (await one.join()).leader == one.member_id
            assert codes == [], "its leader has not shared out yet"
            assert (await beat(client, joining())).error_code == 0
        assert codes == [ErrorCode.REBALANCE_IN_PROGRESS]
        share = {one.member_id: [("t", 0)], two.member_id: [("t", 1)]}
        assert await one.sync(share) == ErrorCode.REBALANCE_IN_PROGRESS
        for each in (one, two):
            assert (await each.join()).error_code == 0
            assert await each.sync() == 0


async def test_of_two_that_use_the_consumer_protocol_none_takes_the_place_of_the_other() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await beat(client, joining(instance_id="i"))
        reply = await beat(client, joining("other", instance_id="i"))
        assert reply.error_code == ErrorCode.UNRELEASED_INSTANCE_ID


async def test_a_classic_member_is_dropped_when_it_is_silent_or_does_not_do_what_it_is_to_do() -> (
    None
):
    async with (
        serving(group_min_session_timeout_ms=1) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", partitions=2)
        two = Member(client, "m")
        await two.join()

        async def is_dropped(one: ClassicMember) -> None:
            with trio.fail_after(60):
                while len((await described(client)).members) > 1:
                    pass
            assert await one.beat() == ErrorCode.UNKNOWN_MEMBER_ID
            assert await one.commit() == ErrorCode.UNKNOWN_MEMBER_ID

        silent = ClassicMember(client, session_ms=30)
        await silent.join()
        await silent.sync()
        await is_dropped(silent)
        asks_nothing = ClassicMember(client, session_ms=600_000, rebalance_ms=30)
        await asks_nothing.join()
        await is_dropped(asks_nothing)
        stays = ClassicMember(client, session_ms=600_000, rebalance_ms=10_000)
        await stays.join()
        assert await stays.sync() == 0
        await two.beat()
        await two.beat()
        assert await stays.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        await passes(10)
        await is_dropped(stays)


async def test_ids_are_given_first_and_others_are_none() -> None:
    async with (
        serving(group_consumer_size_max=2) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", partitions=2)
        await beat(client, joining())
        one = ClassicMember(client)
        first = await one.join_once()
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert len((await described(client)).members) == 1
        one.member_id = "another"
        assert (await one.join()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        for code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED):
            assert (await ClassicMember(client).join_once()).error_code == code
        one.member_id = first.member_id
        assert (await one.join()).error_code == 0
        assert await one.leave() == 0
        assert (await one.join()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        old = ClassicMember(client)
        assert (await old.join(version=3)).error_code == 0, "which knows no ids first"


async def test_an_id_that_was_given_is_good_for_its_time_when_its_group_turns_back() -> None:
    """Its group waits for who was given it; who does not come is not waited for as for a member."""
    async with broker_on(None, 2, group_min_session_timeout_ms=1) as (_, (client, other)):
        await client.create("t", partitions=2)
        last = Member(client, "m")
        await last.join()
        one, comes = (
            ClassicMember(each, session_ms=1_000_000, rebalance_ms=1_000_000)
            for each in (client, other)
        )
        await one.join()
        assert await one.sync() == 0
        never = ClassicMember(other, session_ms=1_000)
        for each in (comes, never):
            reply = await each.join_once()
            assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
            each.member_id = reply.member_id
        assert await last.leave() == 0
        assert await kind(client) == ("classic", "PreparingRebalance")
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.join)
                assert (await comes.join_once()).error_code == 0


async def test_classic_members_need_a_protocol_that_all_of_them_know() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await beat(client, joining())
        one = ClassicMember(client)
        await one.join()
        for changes in ({"protocol": "sticky"}, {"protocol_type": "x"}, {"metadata": b"none"}):
            other = ClassicMember(client, **changes)
            code = (await other.join()).error_code
            assert code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, changes
        one.protocol = "sticky"
        assert await one.sync() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await one.join()).error_code == 0, "it is alone among them"


async def test_an_expelled_member_of_the_consumer_protocol_turns_the_group_back() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await beat(client, joining())
        one = ClassicMember(client)
        await one.join()
        request = LeaveGroupRequest(group_id="g", members=[LeaveGroupRequestMember(member_id="m")])
        reply = await client.ask(request, LeaveGroupResponse, 3)
        assert [row.error_code for row in reply.members] == [0]
        assert await kind(client) == ("classic", "PreparingRebalance")
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_silent_member_of_the_consumer_protocol_turns_the_group_back() -> None:
    async with (
        serving(
            group_consumer_session_timeout_ms=500, group_consumer_heartbeat_interval_ms=100
        ) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", partitions=2)
        await beat(client, joining())
        one = ClassicMember(client)
        await one.join()
        await one.sync()
        with trio.fail_after(60):
            while (await kind(client))[0] == "consumer":
                pass
        await one.join()
        assert (await one.sync({one.member_id: ALL}), one.has) == (0, ALL)


async def test_after_a_group_has_turned_back_each_commits_at_its_epoch_until_it_joins() -> None:
    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        one, three = await of_two_epochs(client, other)
        for each in (one, three):
            assert await each.commit() == 0
            assert await each.commit(each.generation - 1) == ErrorCode.ILLEGAL_GENERATION
            assert await each.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        before = three.generation
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.join)
            nursery.start_soon(three.join)
        assert one.generation == three.generation > before
        for each in (one, three):
            assert await each.commit(before) == ErrorCode.ILLEGAL_GENERATION


async def test_a_group_that_turns_back_and_again_keeps_each_member_at_its_epoch() -> None:
    async with serving() as broker, connect(broker.address) as client:
        one, three = await of_two_epochs(client, client)
        assert (await beat(client, joining("another"))).error_code == 0
        assert await kind(client) == ("consumer", "Reconciling")
        for each in (one, three):
            assert await each.commit() == 0
            assert await each.beat() == ErrorCode.REBALANCE_IN_PROGRESS


async def test_what_a_member_was_to_let_go_of_is_nobodys_when_its_group_turns_back_and_again() -> (
    None
):
    async with broker_on(None) as (_, (client,)):
        await client.create("t", partitions=2)
        one = await alone(client, protocol="cooperative-sticky")
        last, generation = Member(client, "m"), one.generation
        await last.join()
        one.generation = -1  # a request that came late: it says nothing of what it has
        assert (await one.join()).generation_id == generation
        assert await one.sync() == 0
        assert len(one.has) == 1
        assert await last.leave() == 0
        assert (await kind(client))[0] == "classic"
        again = Member(client, "again")
        await again.join()
        assert not again.reads, "it may be reading both"
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        await one.join(*one.has)
        assert await one.sync() == 0
        await again.beat()
        assert sorted(one.has + [("t", n) for n in next(iter(again.reads.values()))]) == ALL


async def test_a_group_turns_back_whose_topic_is_gone() -> None:
    async with broker_on(None) as (_, (client,)):
        for topic in ("t", "gone"):
            await client.create(topic)
        last = Member(client, "m")
        await last.join()
        one = ClassicMember(client, topics=("t", "gone"))
        await one.join()
        assert await one.sync() == 0
        assert one.has == [("gone", 0)]
        request = DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1_000)
        await client.ask(request, DeleteTopicsResponse, 1)
        assert await last.leave() == 0
        assert await kind(client) == ("classic", "PreparingRebalance")
        assert (await one.join()).error_code == 0
        assert (await one.sync({one.member_id: [("t", 0)]}), one.has) == (0, [("t", 0)])


async def test_offsets_are_fetched_at_the_epoch_of_a_classic_member_too() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await beat(client, joining())
        one = ClassicMember(client)
        await one.join()
        assert await fetch_code(client, one.member_id, one.generation) == 0
        late = await fetch_code(client, one.member_id, one.generation - 1)
        assert late == ErrorCode.ILLEGAL_GENERATION
        assert await fetch_code(client, None, -1) == 0


async def test_a_heartbeat_of_the_consumer_protocol_is_none_of_a_classic_member() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await beat(client, joining())
        one = ClassicMember(client)
        await one.join()
        request = of_848(one.generation, member_id=one.member_id)
        assert (await beat(client, request)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await beat(client, joining(one.member_id))).error_code == 0, "it changes over"
        assert await one.beat() == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_new_partition_is_read_by_classic_members_of_a_consumer_group() -> None:
    async with (
        serving(group_consumer_migration_policy="upgrade") as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", partitions=2)
        two = Member(client, "m")
        await two.join()
        one = ClassicMember(client)
        await one.join()
        await two.leave()
        await one.join()
        assert (await one.sync(), one.has) == (0, ALL)
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsRequestTopic(name="t", count=3, assignments=None)],
            timeout_ms=60_000,
            validate_only=False,
        )
        assert (await client.ask(grow, CreatePartitionsResponse, 3)).results[0].error_code == 0
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        await one.join()
        assert (await one.sync(), one.has) == (0, [*ALL, ("t", 2)])

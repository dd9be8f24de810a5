"""Members of KIP-848 groups over the end of their broker: kills, power cuts, failing disks."""

import errno
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.core import wall_ms
from segbroker.broker.groups import kept_sizes
from segbroker.broker.groups.member_epochs import LEAVE_FOR_A_WHILE
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
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
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.generations import GENERATION, Generation, KeptMember

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.wire_client import WireClient
from ..support.wire_consumers import beat, commit, described, joining
from ..support.wire_groups import WireMember
from ..support.wire_transactions import until
from .conftest import FORGETFUL, Events
from .obedient_members import Member, joined, settled
from .restarts import broker_on, cut_off, killed


def written_of(broker: Broker) -> Mapping[str, Any]:
    """What is durable of these groups, by group."""
    return broker.core.topics.manager.section("consumer_groups") or {}


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_members_go_on_at_their_epoch_and_nothing_is_revoked(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t", partitions=4)
        one, two = Member(clients[0], "one", rack_id="r"), Member(clients[1], "two")
        await joined(one, two)
        assert await commit(clients[0], "one", one.epoch) == 0
        late = [await commit(each.client, each.name, each.epoch - 1) for each in (one, two)]
        assert ErrorCode.STALE_MEMBER_EPOCH in late
        before = await described(clients[0])
        image = ended(disk)
    async with broker_on(image, 2) as (broker, clients):
        one.client, two.client = clients
        assert await described(clients[0]) == before
        written = written_of(broker)
        for member in (one, two):
            epoch, reads = member.epoch, dict(member.reads)
            assert (await member.beat()).assignment is not None, "the last answer may be lost"
            assert (await member.beat()).assignment is None
            assert (await member.beat(full=True)).error_code == 0
            assert (member.epoch, member.reads) == (epoch, reads)
            assert await commit(member.client, member.name, epoch) == 0
        assert late == [await commit(x.client, x.name, x.epoch - 1) for x in (one, two)]
        assert written_of(broker) == written, "nothing was to be written down"
        assert await described(clients[0]) == before


async def test_members_go_on_after_a_stop_and_who_left_is_unknown() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t", partitions=2)
        one, two = Member(client, "one"), Member(client, "two")
        await joined(one, two)
        assert await two.leave() == 0
    for _ in range(2):
        async with broker_on(disk) as (_, (client,)):
            one.client = two.client = client
            assert (await one.beat()).error_code == 0
            assert (await two.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert list(one.reads.values()) == [[0, 1]]


async def test_offsets_of_members_that_were_not_heard_of_yet_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.broker.groups.group_upkeep.LOOK_INTO_MS", 0)
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        one = Member(client, "one")
        await one.join()
        await client.create("t")  # after that: nothing of it is given to anybody yet
        assert await commit(client, "one", one.epoch) == 0
        image = disk.after_kill()
    short = {"offsets_retention_minutes": 1, "group_max_session_timeout_ms": 1}
    async with broker_on(image, **short) as (broker, (client,)):
        await trio.sleep(0.01)  # longer than the longest session of a classic group
        broker.core.groups.keep_house(wall_ms() + 61_000)
        await client.create("behind")  # durable, and with it what was written down before
        assert broker.core.groups.topics("g") == ["t"]


async def test_offsets_of_what_members_read_cannot_be_deleted_before_they_are_heard_of() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t")
        one = Member(client, "one")
        await one.join()
        assert await commit(client, "one", one.epoch) == 0
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        row = OffsetDeleteRequestPartition(partition_index=0)
        topics = [OffsetDeleteRequestTopic(name="t", partitions=[row])]
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        reply = await client.ask(request, OffsetDeleteResponse, 0)
        (answered,) = reply.topics[0].partitions
        assert answered.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
async def test_a_group_without_members_takes_no_place_of_one_that_has_some(
    is_restarted: bool,
) -> None:
    disk = MemoryStorage()
    async with AsyncExitStack() as stack:
        one_group = partial(broker_on, disk, groups_max=1)
        if is_restarted:
            async with one_group() as (_, (client,)):
                epoch = await _in_and_out(client)
        _, clients = await stack.enter_async_context(one_group())
        client = clients[0]
        if not is_restarted:
            epoch = await _in_and_out(client)
        other = WireMember(client, group="other")
        assert (await other.join()).error_code == 0
        await other.deal()
        back = Member(client, "back")
        assert (await back.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await other.leave() == 0

        async def is_in() -> bool:
            return not (await back.join()).error_code

        await until(is_in)
        assert back.epoch > epoch + 1, "it counts on"


async def _in_and_out(client: WireClient) -> int:
    """A member joins, commits, and leaves; the epoch that it had."""
    await client.create("t")
    one = Member(client, "one")
    await one.join()
    assert await commit(client, "one", one.epoch) == 0
    assert await one.leave() == 0
    return one.epoch


async def test_who_was_told_to_let_go_is_waited_for_after_a_restart_too() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t", partitions=2)
        one, two = Member(client, "one"), Member(client, "two")
        await one.join()
        had = dict(one.reads)
        await two.join()
        await one.beat()
        (kept,) = one.reads.values()
        assert len(kept) == 1
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        one.client = two.client = client
        await two.beat()
        assert not two.reads, "one may still read it"
        one.reads, now = had, one.reads
        await one.beat()
        await two.beat()
        assert not two.reads, "one says that it does"
        one.reads = now
        await settled(one, two)
        assert sorted([*one.reads.values(), *two.reads.values()]) == [[0], [1]]


async def test_who_does_not_come_back_is_missed_for_a_session_and_then_read_for() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t", partitions=2)
        one, two = Member(client, "one"), Member(client, "two")
        await joined(one, two)
        image = disk.after_kill()
    async with broker_on(image, group_consumer_session_timeout_ms=20_000) as (_, (client,)):
        one.client = client
        await passes(12)
        assert (await one.beat()).error_code == 0
        await passes(12)

        async def reads_everything() -> bool:
            assert (await one.beat()).error_code == 0
            return list(one.reads.values()) == [[0, 1]]

        await until(reads_everything)


async def test_a_static_member_keeps_its_place_also_while_it_is_away() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t", partitions=4)
        one = Member(client, "one", instance_id="i")
        two = Member(client, "two")
        await joined(one, two)
        had, epoch = dict(one.reads), two.epoch
        assert await one.leave(-2) == 0
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        back, two.client = Member(client, "back", instance_id="i"), client
        await back.join()
        assert back.reads == had
        await two.beat()
        assert two.epoch == epoch, "nobody else notices"
        image = image.after_kill()
    async with broker_on(image) as (_, (client,)):
        back.client = one.client = client
        assert (await back.beat()).error_code == 0
        assert (await one.beat()).error_code == ErrorCode.FENCED_INSTANCE_ID
        assert await commit(client, "one", one.epoch) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_expression_is_matched_anew_and_takes_nothing_away() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t1")
        await client.create("other")
        one = Member(client, "one", subscribed_topic_names=[], subscribed_topic_regex="t.*")
        await one.join()
        epoch = one.epoch
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        one.client = client
        await one.beat()
        assert (one.epoch, len(one.reads)) == (epoch, 1)
        await client.create("t2")
        await one.beat()
        assert len(one.reads) == 2
        image = image.after_kill()
    async with broker_on(image, authorizer="acl", super_users="User:ANONYMOUS") as (_, (client,)):
        one.client = client
        await one.beat()
        assert not one.reads, "there are rules now, and nobody knows whose expression it is"
        await one.beat(full=True)
        assert len(one.reads) == 2


async def test_a_viewer_with_rules_matches_after_a_restart_what_it_did_before() -> None:
    disk = MemoryStorage()
    rules: dict[str, Any] = {"authorizer": "acl", "super_users": "User:ANONYMOUS"}
    async with broker_on(disk, **rules) as (_, (client,)):
        await client.create("t1")
        one = Member(client, "one", subscribed_topic_names=[], subscribed_topic_regex="t.*")
        await one.join()
        epoch = one.epoch
    async with broker_on(disk, **rules) as (_, (client,)):
        one.client = client
        await one.beat()
        assert (one.epoch, len(one.reads)) == (epoch, 1)


async def test_nobody_is_told_before_it_is_durable() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t", partitions=2)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await one.join()
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(two.join)
            await wait_all_tasks_blocked(0.05)  # until it is durable
            assert two.epoch == 0
            image = disk.after_power_cut()
            image._boot = disk._boot
            disk.syncs.set()
        assert two.epoch > 0
    async with broker_on(image, 2) as (_, clients):
        one.client, two.client = clients
        assert (await two.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await one.beat()).error_code == 0
        assert list(one.reads.values()) == [[0, 1]]


async def test_who_is_expelled_while_it_waits_is_not_told_that_it_has_anything() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 3) as (_, clients):
        await clients[0].create("t")
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        leaving = LeaveGroupRequest(
            group_id="g", members=[LeaveGroupRequestMember(member_id="one")]
        )
        disk.syncs.clear()
        replies = []

        async def join(member: Member) -> None:
            replies.append((member.name, (await member.join()).error_code))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join, one)
            await until_described(clients[2], {"one"})
            await clients[1].send(leaving, 5)
            await until_described(clients[2], set())
            disk.syncs.set()
        assert replies == [("one", ErrorCode.UNKNOWN_MEMBER_ID)]
        _, left = await clients[1].receive(LeaveGroupResponse, 5)
        assert [row.error_code for row in left.members] == [0]
        await two.join()
        assert list(two.reads.values()) == [[0]]


async def until_described(client: WireClient, members: set[str]) -> None:
    """Wait until these are in the group."""

    async def are_in() -> bool:
        return {one.member_id for one in (await described(client)).members} == members

    await until(are_in)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_what_cannot_be_written_is_not_told_and_the_others_go_on(
    number: int, events: Events
) -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2, housekeeping_interval_ms=20) as (_, clients):
        await clients[0].create("t", partitions=2)
        one, two = Member(clients[0], "one"), Member(clients[1], "two")
        await one.join()
        disk.sync_error = OSError(number, "no sync")
        assert (await two.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert events.named("consumer_group_not_recorded")
        reply = await one.beat()
        assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is to let go of one"
        disk.sync_error = None

        async def is_in() -> bool:
            return not (await two.join()).error_code and not (await one.beat(full=True)).error_code

        await until(is_in)
        await settled(one, two)
        image = disk.after_kill()
    async with broker_on(image, 2) as (_, clients):
        one.client, two.client = clients
        for member in (one, two):
            assert (await member.beat()).error_code == 0
        assert sorted([*one.reads.values(), *two.reads.values()]) == [[0], [1]]


async def test_who_could_not_be_answered_goes_on_from_the_epoch_that_it_was_told_last() -> None:
    """While the disk fails the group goes on: each heartbeat moves the member, and is not told."""
    disk = GatedStorage()
    async with broker_on(disk, 2, housekeeping_interval_ms=20) as (_, clients):
        for name in ("t", "u"):
            await clients[0].create(name)
        one = Member(clients[0], "one")
        await one.join()
        await one.beat(full=True)
        disk.sync_error = OSError(errno.EIO, "no sync")
        for number in range(3):
            other = joining(f"other-{number}", subscribed_topic_names=["u"])
            assert (await beat(clients[1], other)).error_code
            reply = await one.beat(full=True)
            assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.sync_error = None
        told = one.epoch

        async def is_told() -> bool:
            code = (await one.beat(full=True)).error_code
            assert code in (0, ErrorCode.COORDINATOR_NOT_AVAILABLE), "it has its place"
            return code == 0

        await until(is_told)
        assert one.epoch == told + 3
        assert list(one.reads.values()) == [[0]]
        assert await commit(clients[0], "one", one.epoch) == 0
        assert await commit(clients[0], "one", told) == 0, "it read this then, and since"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_who_asks_again_to_leave_is_told_that_it_is_no_member_when_that_is_durable(
    number: int,
) -> None:
    """Its instance would be held by it for a session after a kill, though it was told otherwise."""
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, clients):
        one, two = (Member(clients[n], f"m{n}", instance_id=f"i{n}") for n in range(2))
        for each in (one, two):
            await each.join()
        disk.sync_error = OSError(number, "no sync")
        for _ in range(2):
            assert await two.leave() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.sync_error = None
        codes: list[int] = []

        async def is_answered() -> bool:
            codes.append(await two.leave())
            return codes[-1] != ErrorCode.COORDINATOR_NOT_AVAILABLE

        await until(is_answered)
        assert codes[-1] == ErrorCode.UNKNOWN_MEMBER_ID
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        assert (await Member(client, "new", instance_id="i1").join()).error_code == 0


async def test_members_of_a_machine_that_was_started_anew_are_not_waited_for() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t")
        one = Member(client, "one")
        await one.join()
        image = disk.after_power_cut()
    async with broker_on(image) as (_, (client,)):

        async def is_empty() -> bool:
            return (await described(client)).group_state in ("Empty", "")

        await until(is_empty)
        two = Member(client, "two")
        await two.join()
        assert two.epoch > one.epoch
        assert list(two.reads.values()) == [[0]]


async def test_a_static_member_comes_back_at_once_after_a_new_start_of_its_machine() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t", partitions=2)
        one = Member(clients[0], "one", instance_id="i")
        two = Member(clients[1], "two", instance_id="j")
        await one.join()
        had = dict(one.reads)
        await two.join()
        await one.beat()
        assert one.reads != had, "it is in the middle of letting go of one"
        image = disk.after_power_cut()
    async with broker_on(image, 2) as (broker, _):  # nobody has come yet

        async def are_away() -> bool:
            rows = written_of(broker)["g"]["has"].values()
            return {epoch for epoch, *_ in rows} == {LEAVE_FOR_A_WHILE}

        await until(are_away)
        image = cut_off(image)
    async with broker_on(image, 2) as (_, clients):
        back = Member(clients[0], "back", instance_id="i")
        again = Member(clients[1], "again", instance_id="j")
        for member in (back, again):
            assert (await member.join()).error_code == 0
        await settled(back, again)
        assert sorted([*back.reads.values(), *again.reads.values()]) == [[0], [1]]
        one.client = clients[0]
        assert (await one.beat()).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_an_empty_group_counts_on_until_it_is_deleted() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t")
        one = Member(client, "one")
        await one.join()
        assert await one.leave() == 0
    async with broker_on(disk) as (_, (client,)):
        two = Member(client, "two")
        await two.join()
        assert two.epoch > one.epoch
        await two.leave()
        deletion = DeleteGroupsRequest(groups_names=["g"])
        reply = await client.ask(deletion, DeleteGroupsResponse, 1)
        assert reply.results[0].error_code == 0
    async with broker_on(disk) as (broker, (client,)):
        assert not written_of(broker)
        three = Member(client, "three")
        await three.join()
        assert three.epoch == one.epoch


async def test_an_empty_group_is_of_its_protocol_after_a_restart_too() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t")
        one = Member(client, "one")
        await one.join()
        assert await commit(client, "one", one.epoch) == 0
        await one.leave()
        before = await described(client)
    async with broker_on(disk, housekeeping_interval_ms=10) as (_, (client,)):
        assert await described(client) == before
        listed = await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        rows = [(row.group_id, row.group_type, row.group_state) for row in listed.groups]
        assert rows == [("g", "consumer", "Empty")]
        classic = WireMember(client)
        await classic.join()
        assert classic.generation > before.group_epoch
        await classic.deal()
    async with broker_on(disk) as (broker, (client,)):
        assert not written_of(broker)
        listed = await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        assert [row.group_type for row in listed.groups] == ["classic"]


async def test_a_group_without_members_and_offsets_is_not_written_down_for_ever() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t")
        one = Member(client, "one")
        await one.join()
        await one.leave()
    async with broker_on(disk, **FORGETFUL) as (broker, _):

        async def is_forgotten() -> bool:
            return not written_of(broker)

        await until(is_forgotten)


async def test_a_group_that_is_too_large_is_kept_again_when_it_is_smaller(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    monkeypatch.setattr(kept_sizes, "ALL_SIZES_MAX", 4_000)
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (broker, clients):
        await clients[0].create("t", partitions=2)
        one = Member(clients[0], "one")
        two = Member(
            clients[1], "two", subscribed_topic_names=["t", *(f"n{n}" for n in range(900))]
        )
        await joined(one, two)
        (warning,) = events.named("consumer_group_without_members")
        assert warning["members"] == 2
        assert not written_of(broker)["g"]["says"]
        image = disk.after_kill()
        await two.leave()
        await settled(one)
        assert list(written_of(broker)["g"]["says"]) == ["one"]
    async with broker_on(image) as (_, (client,)):
        one.client = client
        assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await one.join()
        assert one.epoch > 1


async def test_groups_that_are_deleted_leave_their_room_to_others(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    monkeypatch.setattr(kept_sizes, "ALL_SIZES_MAX", 4_000)
    long = [f"name-{n}" for n in range(300)]
    async with broker_on(MemoryStorage()) as (broker, (client,)):
        for n in range(15):  # also what is left of one that is empty
            group = f"g{n}"
            asked = joining(group_id=group, subscribed_topic_names=long)
            assert (await beat(client, asked)).error_code == 0
            assert written_of(broker)[group]["says"]
            gone = joining(group_id=group, member_epoch=-1)
            assert (await beat(client, gone)).error_code == 0
            request = DeleteGroupsRequest(groups_names=[group])
            reply = await client.ask(request, DeleteGroupsResponse, 1)
            assert [row.error_code for row in reply.results] == [0]
            assert not written_of(broker)
        assert not events.named("consumer_group_without_members")


async def test_the_epochs_of_a_group_that_is_too_large_do_not_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_sizes, "ALL_SIZES_MAX", 4_000)
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t", partitions=2)
        one = Member(clients[0], "one")
        long = [f"n{n}" for n in range(900)]
        two = Member(clients[1], "two", subscribed_topic_names=["t", *long])
        await joined(one, two)
        for _ in range(3):
            assert await one.leave() == 0
            await one.join()
        await settled(one, two)
        assert await commit(clients[0], "one", one.epoch) == 0
        before, image = one.epoch, disk.after_kill()
    async with broker_on(image, 2) as (_, clients):
        one.client, two.client = clients
        assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await joined(one, two)
        assert one.epoch > before
        # What it read before it was thrown out another may have worked at since.
        assert await commit(clients[0], "one", before) == ErrorCode.STALE_MEMBER_EPOCH


async def test_a_group_that_has_just_room_is_written_down_whole(events: Events) -> None:
    """Where files of the write-ahead log are small, so are its events: what was counted too small
    could never be written, and nobody in the group would be answered."""
    async with broker_on(MemoryStorage()) as (broker, (client,)):
        await client.create("t", partitions=100)
        members: list[Member] = []
        while not events.named("consumer_group_without_members"):
            members.append(Member(client, f"{len(members):020000}"))
            assert (await members[-1].join()).error_code == 0
            await settled(*members[-3:])
        while not written_of(broker)["g"]["says"]:
            assert await members.pop().leave() == 0
            await settled(*members[:3])
        assert written_of(broker)["g"]["says"].keys() == {one.name for one in members}


async def test_a_group_that_changes_its_protocol_is_written_down_once() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, housekeeping_interval_ms=3_600_000) as (broker, (client,)):
        await client.create("t")
        one = Member(client, "one")
        await one.join()
        await commit(client, "one", one.epoch)
        await one.leave()
        manager = broker.core.topics.manager
        # As a version of before these events would have written it.
        member = KeptMember("old", None, "c", "10.0.0.9", 60_000, 60_000, {"range": b""}, b"")
        kept = Generation(9, "consumer", "range", "old", (member,))
        manager.record_now(GENERATION, group="g", **kept.fields())
        assert not written_of(broker)
    async with broker_on(disk) as (broker, (client,)):
        refused = await beat(client, joining())
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_of_which_an_event_was_lost_begins_anew(events: Events) -> None:
    disk = MemoryStorage()
    rows = {name: [None, None, "", "10.0.0.9", 1, ["t"], "", "", None] for name in ("one", "two")}
    has = {name: [3, 2, "stable", [[b"t" * 16, [0]]], [], None] for name in rows}
    with DiskManager("/data", storage=disk, flushers=0) as manager:
        event = {"epoch": 3, "assignment_epoch": 3, "assignor": "uniform", "whole": True}
        manager.record_now("consumer_group", group="g", says=rows, has=has, **event)
    late = {"housekeeping_interval_ms": 3_600_000}
    async with broker_on(disk, **late) as (broker, (client,)):
        assert events.named("consumer_group_not_restored")
        broker.core.groups.keep_house(None)

        async def is_written() -> bool:
            return not written_of(broker)["g"]["says"]

        await until(is_written)
        one, new = Member(client, "one"), Member(client, "new")
        one.epoch = 3
        assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await client.create("t")
        await new.join()
        assert new.epoch > 3
        assert list(written_of(broker)["g"]["says"]) == ["new"], "not with rows of before"
        events.clear()
    async with broker_on(disk) as (_, (new.client,)):
        assert not events.named("consumer_group_not_restored")
        assert (await new.beat()).error_code == 0

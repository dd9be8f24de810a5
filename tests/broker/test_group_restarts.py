"""Members of classic groups over the end of their broker: kills, power cuts, failing disks."""

import errno
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.chores import tell_sums
from segbroker.broker.core import wall_ms
from segbroker.broker.groups import kept_sizes
from segbroker.broker.limited_lines import OF_ONE_MAX
from segbroker.broker.server import Broker
from segbroker.protocol.consumer_protocol import Subscription, encode_subscription
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from segbroker.segments.disk.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.wire_consumers import beat, joining
from ..support.wire_groups import GROUP, WireMember, described
from ..support.wire_transactions import V2, Tx, until
from .classic_member import ClassicMember
from .conftest import FORGETFUL, Events
from .restarts import broker_on, cut_off, killed


class BootlessStorage(MemoryStorage):
    """On a machine that is no Linux."""

    def boot_id(self, path: str) -> str:
        return ""


def written_of(broker: Broker) -> Mapping[str, Any]:
    """What is durable of generations, by group."""
    return broker.core.topics.manager.section("generations") or {}


async def both_in(one: WireMember, two: WireMember) -> None:
    """`one` joins and leads, `two` joins, and both have what is theirs."""
    await one.join()
    await one.deal()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(two.join)
        await until(one.is_to_join)
        await one.join()
    await both_sync(one, two)


async def both_sync(one: WireMember, two: WireMember) -> None:
    """Whoever of them leads gives each its own id."""
    leader, other = (one, two) if one.leader == one.member_id else (two, one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.sync)
        await leader.sync(**{m.member_id: m.member_id.encode() for m in (one, two)})


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_members_go_on_after_their_broker_died(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t")
        one, two = WireMember(clients[0]), WireMember(clients[1])
        await both_in(one, two)
        before = await described(clients[0])
        assert await one.commit("t", 3) == 0
        image = ended(disk)
    async with broker_on(image, 2) as (_, clients):
        one.client, two.client = clients
        assert await described(clients[0]) == before
        for member in (one, two):
            assert await member.beat() == 0
            assert (await member.sync()).assignment == member.member_id.encode()
            assert await member.commit("t", 5) == 0
            assert await member.commit("t", 5, generation=1) == ErrorCode.ILLEGAL_GENERATION
        listed = await clients[0].ask(ListGroupsRequest(), ListGroupsResponse, 4)
        assert [(row.group_id, row.group_state) for row in listed.groups] == [(GROUP, "Stable")]


async def test_members_go_on_after_their_broker_was_stopped_and_started() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t")
        one = WireMember(client)
        await one.join()
        await one.deal()
    for _ in range(2):
        async with broker_on(disk) as (_, (client,)):
            one.client = client
            assert await one.beat() == 0
            assert await one.commit("t", 1) == 0


async def test_housekeeping_while_a_broker_ends_forgets_nobody() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (broker, (client,)):
        one = WireMember(client)
        await one.join()
        await one.deal()
        broker.drain()
        await wait_all_tasks_blocked()
        broker.core.groups.keep_house(None)
    async with broker_on(disk) as (_, (client,)):
        one.client = client
        assert await one.beat() == 0


async def test_who_left_is_unknown_after_a_restart_and_who_stayed_goes_on() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t")
        one, two = WireMember(clients[0]), WireMember(clients[1])
        await both_in(one, two)
        assert await two.leave() == 0
        await one.join()
        await one.deal()
        image = disk.after_kill()
    async with broker_on(image, 2) as (_, clients):
        one.client, two.client = clients
        assert await two.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await two.commit("t", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await one.beat() == 0


async def test_who_does_not_come_back_is_missed_for_its_session_and_the_others_rebalance() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        one, two = WireMember(clients[0]), WireMember(clients[1], session_timeout_ms=10_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(both_in, one, two)
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        one.client = client
        assert await one.beat() == 0
        await passes(10)
        await until(one.is_to_join)
        before = one.generation
        await one.join()
        assert one.generation == before + 1
        await one.deal()
        assert [m.member_id for m in (await described(client)).members] == [one.member_id]


async def test_a_static_member_that_took_its_place_keeps_it_and_the_old_one_is_fenced() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t")
        old = WireMember(clients[0], "i1")
        await old.join()
        await old.deal()
        new = WireMember(clients[1], "i1")
        await new.join()
        assert new.generation == old.generation
        image = disk.after_power_cut()
    async with broker_on(image, 2) as (_, clients):
        old.client, new.client = clients
        assert await new.beat() == 0
        assert (await new.sync()).assignment == old.member_id.encode()
        assert await old.beat() == ErrorCode.FENCED_INSTANCE_ID
        assert await old.commit("t", 1) == ErrorCode.FENCED_INSTANCE_ID


async def test_a_place_that_changed_hands_in_a_rebalance_belongs_to_who_was_told() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t")
        old = WireMember(clients[0], "i1")
        await old.join()
        await old.deal()
        # With another subscription: a rebalance, which ends before its leader has dealt out.
        other = encode_subscription(Subscription(("other",)))
        new = WireMember(clients[1], "i1", metadata=other)
        await new.join()
        assert new.generation == old.generation + 1
        image = disk.after_power_cut()
    async with broker_on(image, 2) as (_, clients):
        old.client, new.client = clients
        assert (await new.sync()).error_code == ErrorCode.ILLEGAL_GENERATION
        assert await old.beat() == ErrorCode.FENCED_INSTANCE_ID
        assert await old.commit("t", 1) == ErrorCode.FENCED_INSTANCE_ID
        await new.join()
        assert (await new.deal()).assignment == new.member_id.encode()


async def test_a_leader_that_came_back_in_a_rebalance_leads_behind_a_power_cut() -> None:
    """Else nobody would: the generation of before goes on, and its leader looks after topics."""
    disk = MemoryStorage()
    async with broker_on(disk, 4) as (broker, clients):
        one, two = WireMember(clients[0], "i1"), WireMember(clients[1], "i2")
        await both_in(one, two)
        leader = one if one.leader == one.member_id else two
        again = WireMember(clients[2], leader.instance)

        async def is_written() -> bool:
            return bool(written_of(broker)["g"]["leader"] != leader.member_id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(WireMember(clients[3]).join)
            await until(one.is_to_join)
            nursery.start_soon(again.join)
            await until(is_written)
            image = disk.after_power_cut()
            nursery.cancel_scope.cancel()
    async with broker_on(image) as (_, (client,)):
        again.client = client
        reply = await again.join()
        assert reply.generation_id == leader.generation
        assert reply.leader == reply.member_id


async def test_an_offset_in_a_transaction_is_taken_of_the_present_generation_alone() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t")
        one, two = WireMember(clients[0]), WireMember(clients[1])
        await both_in(one, two)
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        one.client = client
        tx = Tx(client, "tx", V2)
        await tx.init()
        assert await one.stage(tx, "t", 7, generation=1) == ErrorCode.ILLEGAL_GENERATION
        assert await one.stage(tx, "t", 7) == 0
        assert await tx.end(commit=True) == 0


async def test_nobody_is_told_before_the_generation_is_durable() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, clients):
        one = WireMember(clients[0])
        await one.join()
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            answers = []

            async def sync() -> None:
                answers.append(await one.deal())

            nursery.start_soon(sync)
            await wait_all_tasks_blocked(0.05)  # until the generation is durable
            assert (await described(clients[1])).group_state == "CompletingRebalance"
            assert not answers
            image = disk.after_power_cut()
            disk.syncs.set()
        assert answers[0].assignment == one.member_id.encode()
        assert (await described(clients[1])).group_state == "Stable"
    async with broker_on(image) as (_, (client,)):
        one.client = client
        assert await one.beat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_generation_that_cannot_be_written_is_refused_and_the_group_recovers(
    number: int, events: Events
) -> None:
    disk = GatedStorage()
    async with broker_on(disk, housekeeping_interval_ms=20) as (broker, (client,)):
        tell_sums(broker.core, trio.current_time())  # a window begins
        one = WireMember(client)
        await one.join()
        disk.sync_error = OSError(number, "no sync")
        for _ in range(OF_ONE_MAX + 5):
            assert (await one.join()).error_code == 0
            assert (await one.deal()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert len(events.named("generation_not_recorded")) == OF_ONE_MAX, "a member asks again"
        disk.sync_error = None

        async def is_in() -> bool:
            assert (await one.join()).error_code == 0
            return not (await one.deal()).error_code

        await until(is_in)
        assert await one.beat() == 0
        image = disk.after_kill()
    (omitted,) = events.named("change_lines_omitted")
    assert omitted["generation_not_recorded_count"] >= 5
    async with broker_on(image) as (_, (client,)):
        one.client = client
        assert await one.beat() == 0


async def test_a_static_member_is_not_told_of_a_place_that_cannot_be_written() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2, housekeeping_interval_ms=20) as (_, clients):
        old = WireMember(clients[0], "i1")
        await old.join()
        await old.deal()
        new = WireMember(clients[1], "i1")
        disk.sync_error = OSError(errno.EIO, "no sync")
        assert (await new.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.sync_error = None

        async def is_in() -> bool:
            return not (await new.join()).error_code

        await until(is_in)
        assert (await new.sync()).assignment == old.member_id.encode()


async def test_members_that_ran_on_a_machine_that_was_started_anew_are_not_waited_for() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, clients):
        one, two = WireMember(clients[0]), WireMember(clients[1])
        await both_in(one, two)
        image = disk.after_power_cut()
    async with broker_on(image) as (_, (client,)):

        async def is_empty() -> bool:
            return (await described(client)).group_state == "Empty"

        await until(is_empty)
        three = WireMember(client)
        await three.join()
        assert three.generation == two.generation + 2  # that it was empty counts


async def test_members_on_a_machine_that_does_not_say_when_it_was_started_go_on() -> None:
    disk = BootlessStorage()
    async with broker_on(disk) as (_, (client,)):
        one = WireMember(client)
        await one.join()
        await one.deal()
    async with broker_on(disk) as (broker, (client,)):
        assert broker.core.topics.manager.is_new_boot
        one.client = client
        assert await one.beat() == 0


async def test_generations_of_an_empty_group_count_on_until_it_is_deleted() -> None:
    disk = MemoryStorage()
    one = await _in_and_out(disk)
    async with broker_on(disk) as (_, (client,)):
        assert (await described(client)).group_state == "Dead"  # no member, and no offsets
        one = WireMember(client)
        await one.join()
        assert one.generation == 3
        await one.deal()
        await one.leave()
        deletion = DeleteGroupsRequest(groups_names=[GROUP])
        reply = await client.ask(deletion, DeleteGroupsResponse, 1)
        assert reply.results[0].error_code == 0
    async with broker_on(disk) as (_, (client,)):
        one = WireMember(client)
        await one.join()
        assert one.generation == 1


@pytest.mark.parametrize("kind", ["generation", "consumer_group"])
async def test_a_deletion_is_answered_when_the_next_group_of_that_name_begins_anew(
    kind: str,
) -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, clients):
        await clients[0].create("t")
        one = WireMember(clients[0])
        if kind == "generation":
            await one.join()
            await one.deal()
            await one.leave()
        else:
            await beat(clients[0], joining("a"))
            await beat(clients[0], joining("a", member_epoch=-1))
        disk.held = kind.encode()  # what is written of it next is that nothing is
        async with trio.open_nursery() as nursery:
            codes = []

            async def delete() -> None:
                asked = DeleteGroupsRequest(groups_names=[GROUP])
                reply = await clients[1].ask(asked, DeleteGroupsResponse, 2)
                codes.append(reply.results[0].error_code)

            nursery.start_soon(delete)
            with trio.fail_after(60):
                while disk.syncs.is_set():  # noqa: ASYNC110 - a thread of the disk's closes it
                    await trio.sleep(0.01)
            await wait_all_tasks_blocked(0.05)
            assert not codes
            disk.held = None
            disk.syncs.set()
        assert codes == [0]
        one.member_id = ""
        await one.join()
        assert one.generation == 1


async def _in_and_out(disk: MemoryStorage) -> WireMember:
    async with broker_on(disk) as (_, (client,)):
        one = WireMember(client)
        await one.join()
        await one.deal()
        assert await one.leave() == 0
    return one


async def test_a_group_without_members_and_offsets_is_not_written_down_for_ever() -> None:
    disk = MemoryStorage()
    await _in_and_out(disk)
    async with broker_on(disk) as (broker, _):
        assert written_of(broker).keys() == {"g"}
    async with broker_on(disk, **FORGETFUL) as (broker, _):

        async def is_forgotten() -> bool:
            return not written_of(broker)

        await until(is_forgotten)


async def test_a_group_that_nobody_is_in_for_a_while_counts_on() -> None:
    """Workers of Kafka Connect tell by its generations what they heard last from what is old."""
    disk = MemoryStorage()
    async with broker_on(disk) as (broker, (client,)):
        first = WireMember(client)
        await first.join()
        await first.deal()
        assert await first.leave() == 0
        broker.core.groups.keep_house(wall_ms())
        second = WireMember(client)
        await second.join()
        assert (await second.deal()).error_code == 0
        assert second.generation > first.generation
        assert await second.leave() == 0
    async with broker_on(disk) as (broker, (client,)):
        broker.core.groups.keep_house(wall_ms())
        third = WireMember(client)
        await third.join()
        assert (await third.deal()).error_code == 0
        assert third.generation > second.generation
        assert await third.leave() == 0
        broker.core.groups.keep_house(wall_ms())
        assert written_of(broker)
    async with broker_on(disk, **FORGETFUL) as (broker, (client,)):

        async def is_forgotten() -> bool:
            return not written_of(broker)

        await until(is_forgotten)
        fourth = WireMember(client)
        await fourth.join()
        assert fourth.generation == 1


async def test_a_group_of_which_an_id_was_given_is_there_until_that_is_used() -> None:
    often = {"housekeeping_interval_ms": 10, "group_kept_empty_ms": 1}
    async with broker_on(None, **often) as (broker, (client,)):
        one = ClassicMember(client)
        one.member_id = (await one.join_once()).member_id
        groups = broker.core.groups
        assert groups.exists("g")
        groups.keep_house(None)
        assert (await one.join_once()).error_code == 0


async def test_that_a_group_is_empty_is_written_down_again_where_it_failed() -> None:
    disk = GatedStorage()
    async with broker_on(disk, housekeeping_interval_ms=20) as (broker, (client,)):
        one = WireMember(client)
        await client.create("t")
        await one.join()
        await one.deal()
        await one.commit("t", 1)
        disk.sync_error = OSError(errno.EIO, "no sync")
        assert await one.leave() == 0
        disk.sync_error = None

        async def is_empty() -> bool:
            return not written_of(broker)[GROUP]["members"]

        await until(is_empty)


async def test_members_of_a_generation_that_is_too_large_are_unknown_after_a_restart(
    events: Events,
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        one = WireMember(client, metadata=bytes(1 << 20))  # as much as a file of this WAL
        await one.join()
        assert (await one.deal()).error_code == 0
        assert await one.beat() == 0
        (warning,) = events.named("generation_without_members")
        assert warning["members"] == 1
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        one.client = client
        assert await one.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        one.member_id = ""
        await one.join()
        assert one.generation == 2


async def test_all_generations_together_have_a_limit(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    monkeypatch.setattr(kept_sizes, "ALL_SIZES_MAX", 10_000)
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        one = WireMember(client, metadata=bytes(6_000))
        await one.join()
        await one.deal()
        assert not events.named("generation_without_members")
        await one.join()
        await one.deal()  # the next takes the place of the one before
        assert not events.named("generation_without_members")
    async with broker_on(disk) as (_, (client,)):
        one.client = client
        assert await one.beat() == 0
        two = WireMember(client, group="other", metadata=bytes(6_000))
        await two.join()
        await two.deal()
        (warning,) = events.named("generation_without_members")
        assert warning["group"] == "other"


async def test_groups_beyond_the_limit_of_a_start_are_forgotten(events: Events) -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        members = [WireMember(client), WireMember(client, group="other")]
        for member in members:
            await member.join()
            await member.deal()
    async with broker_on(disk, groups_max=1, **FORGETFUL) as (broker, (client,)):
        (line,) = events.named("groups_not_restored")
        assert "join again" in line["effect"]
        codes = []
        for member in members:
            member.client = client
            codes.append(await member.beat())
        assert sorted(codes) == [0, ErrorCode.UNKNOWN_MEMBER_ID]

        async def is_one_left() -> bool:
            return len(written_of(broker)) == 1

        await until(is_one_left)


async def test_what_was_classic_and_is_forgotten_makes_no_room_beside_what_is_of_its_name_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That nobody is in the classic group any more is not durable when it has gone over."""
    disk = GatedStorage()
    long = "n" * 1_000
    async with broker_on(disk, 2) as (broker, (client, other)):
        classic = WireMember(client)
        await classic.join()
        await classic.deal()
        monkeypatch.setattr(kept_sizes, "ALL_SIZES_MAX", 2_000)
        disk.syncs.clear()
        assert await classic.leave() == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat, other, joining(subscribed_topic_names=[long]))
            await wait_all_tasks_blocked(0.05)  # until its place waits for the disk
            broker.core.groups.keep_house(None)
            disk.syncs.set()
        second = WireMember(client, group="second", metadata=long.encode())
        await second.join()
        await second.deal()
        assert not written_of(broker)["second"]["members"]

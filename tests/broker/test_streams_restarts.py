"""Members of streams groups over the end of their broker: kills, power cuts, failing disks."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.core import wall_ms
from segbroker.broker.groups import kept_sizes
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_streams_groups import StreamsGroupEndpoint
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.control import decode_event
from segbroker.segments.metadata.streams_groups import SECTION, STREAMS_GROUP, groups_in

from ..support.gated_storage import GatedStorage
from ..support.patient_clock import passes
from ..support.wire_consumers import beat as consumer_beat
from ..support.wire_consumers import commit
from ..support.wire_consumers import joining as consumer_joining
from ..support.wire_shares import delete, listed
from ..support.wire_streams import (
    StreamsMember,
    beat,
    beating,
    counting,
    described,
    joining,
    owned,
    rows_of,
    settled,
    subtopology,
)
from ..support.wire_transactions import until
from .conftest import Events
from .restarts import broker_on, cut_off, killed

GOLDEN: Final = Path(__file__).parents[1] / "golden"
AT_ONCE = {"group_streams_initial_rebalance_delay_ms": 0, "group_kept_empty_ms": 60_000}


async def topics_made(broker: Broker, *names: str) -> None:
    async def are_there() -> bool:
        return all(name in broker.core.topics.all for name in names)

    await until(are_there)


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_members_go_on_at_their_epoch_with_their_tasks(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    disk = MemoryStorage()
    standbys = {"group_streams_num_standby_replicas": 1}
    async with broker_on(disk, 2, **AT_ONCE, **standbys) as (broker, clients):
        await clients[0].create("t", partitions=4)
        one, two = StreamsMember(clients[0], "one"), StreamsMember(clients[1], "two")
        await one.join(*counting())
        await topics_made(broker, "again", "log")
        await two.join(*counting())
        await settled(one, two)
        before = await described(clients[0])
        image = ended(disk)
    async with broker_on(image, 2, **AT_ONCE, **standbys) as (broker, clients):
        one.client, two.client = clients
        assert await described(clients[0]) == before
        for member in (one, two):
            epoch, active, standby = member.epoch, member.active, member.standby
            assert (await member.beat()).active_tasks is None
            assert (
                await member.beat(active_tasks=None, standby_tasks=None, warmup_tasks=None)
            ).active_tasks is None
            assert (member.epoch, member.active, member.standby) == (epoch, active, standby)
            assert await commit(member.client, member.name, epoch) == 0
            assert (await member.beat()).status == []
        assert await described(clients[0]) == before


async def test_who_has_which_partitions_is_told_anew_after_a_restart() -> None:
    """Whatever number that has: it counts from the start on."""
    disk = MemoryStorage()

    def at(port: int) -> StreamsGroupEndpoint:
        return StreamsGroupEndpoint(host="here", port=port)

    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        reply = await beat(client, joining("one", user_endpoint=at(1)))
        epoch, knows = reply.member_epoch, reply.endpoint_information_epoch
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE) as (_, (client,)):
        reply = await beat(client, joining("two", user_endpoint=at(2)))
        assert reply.endpoint_information_epoch == knows, "of something else"
        again = beating("one", epoch, endpoint_information_epoch=knows)
        reply = await beat(client, again)
        assert reply.endpoint_information_epoch == knows
        assert reply.partitions_by_user_endpoint is not None
        told = [row.user_endpoint for row in reply.partitions_by_user_endpoint]
        assert told == [at(1), at(2)]
        again.member_epoch = reply.member_epoch
        assert (await beat(client, again)).partitions_by_user_endpoint is None


async def test_who_was_told_to_let_go_is_waited_for_after_a_restart_too() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t", partitions=2)
        one, two = StreamsMember(client, "one"), StreamsMember(client, "two")
        await one.join()
        had = dict(one.active)
        await two.join()
        await one.beat()
        assert len(one.active["0"]) == 1
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE) as (_, (client,)):
        one.client = two.client = client
        await two.beat()
        assert not two.active, "one may still do it"
        one.active, now = had, one.active
        await one.beat()
        await two.beat()
        assert not two.active, "one says that it does"
        one.active = now
        await settled(one, two)
        assert sorted([one.active["0"], two.active["0"]]) == [[0], [1]]


async def test_topics_that_were_made_before_a_restart_are_found_after_it() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **AT_ONCE) as (broker, (client,)):
        await client.create("t", partitions=2)
        one = StreamsMember(client, "one")
        await one.join(*counting())
        await topics_made(broker, "again", "log")
        assert not one.active
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE) as (broker, (client,)):
        one.client = client
        await one.beat()
        assert one.active == {"0": [0, 1], "1": [0, 1]}
        await broker.core.topics.delete_all(["t"])
        image = image.after_kill()
    async with broker_on(image, **AT_ONCE) as (_, (client,)):
        one.client = client
        await one.beat()
        assert not one.active


async def test_another_number_of_standbys_holds_after_a_start_with_it() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **AT_ONCE) as (broker, (client,)):
        await client.create("t", partitions=2)
        one, two = StreamsMember(client, "one"), StreamsMember(client, "two")
        await one.join(*counting())
        await topics_made(broker, "again", "log")
        await two.join(*counting())
        await settled(one, two)
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE, group_streams_num_standby_replicas=1) as (_, (client,)):
        one.client = two.client = client
        await settled(one, two)
        assert (one.standby, two.standby) == ({"1": two.active["1"]}, {"1": one.active["1"]})


async def test_a_group_that_was_left_keeps_its_topology_and_counts_on() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        one = StreamsMember(client, "one")
        await one.join()
        assert await one.leave() == 0
        epoch = (await described(client)).group_epoch
    for _ in range(2):
        async with broker_on(disk, **AT_ONCE) as (_, (client,)):
            one.client = client
            assert await listed(client) == [("g", "streams", "Empty", "streams")]
            row = await described(client)
            assert (row.group_epoch, row.members) == (epoch, [])
            reply = await one.beat()
            assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            other = await beat(client, joining("m", subtopology("1", "t")))
            assert other.error_code == ErrorCode.INVALID_REQUEST
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        one.client = client
        await one.join()
        assert one.epoch > epoch
        assert await one.leave() == 0
        assert await delete(client) == 0
    async with broker_on(disk, **AT_ONCE) as (broker, (client,)):
        assert await listed(client) == []
        assert not broker.core.topics.manager.section(SECTION)


async def test_who_does_not_come_back_is_missed_for_a_session() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t", partitions=2)
        one, two = StreamsMember(client, "one"), StreamsMember(client, "two")
        await one.join()
        await two.join()
        await settled(one, two)
        image = disk.after_kill()
    session = {"group_streams_session_timeout_ms": 20_000}
    async with broker_on(image, **AT_ONCE, **session) as (_, (client,)):
        one.client = client
        await passes(12)
        assert (await one.beat()).error_code == 0
        await passes(12)

        async def does_everything() -> bool:
            assert (await one.beat()).error_code == 0
            return one.active == {"0": [0, 1]}

        await until(does_everything)


async def test_nobody_is_told_before_it_is_durable() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2, **AT_ONCE) as (_, clients):
        await clients[0].create("t", partitions=2)
        one, two = StreamsMember(clients[0], "one"), StreamsMember(clients[1], "two")
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
    async with broker_on(image, 2, **AT_ONCE) as (_, clients):
        one.client, two.client = clients
        assert (await two.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await one.beat()).error_code == 0
        assert one.active == {"0": [0, 1]}


async def test_a_member_that_cannot_be_written_down_asks_again(events: Events) -> None:
    disk = GatedStorage()
    async with broker_on(disk, **AT_ONCE) as (broker, (client,)):
        await client.create("t")
        disk.refused = b"streams_group"
        one = StreamsMember(client, "one")
        assert (await one.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert events.named("streams_group_not_recorded")
        disk.refused = None

        async def is_in() -> bool:
            return not (await one.join()).error_code

        await until(is_in)
        assert one.active == {"0": [0]}
        (kept,) = (row for _, row in groups_in(broker.core.topics.manager.section(SECTION)))
        assert set(kept.members) == {"one"}
        assert kept.topology is not None


async def test_a_group_that_is_too_large_is_kept_without_its_members(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryStorage()
    monkeypatch.setattr(kept_sizes, "GROUP_SIZE_MAX", 800)
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t", partitions=4)
        members = [StreamsMember(client, f"member-{n}", "p" * 100) for n in range(6)]
        for one in members:
            await one.join()
        (warning, *_) = events.named("streams_group_without_members")
        assert warning["group"] == "g"
        before = (await described(client)).group_epoch
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE) as (_, (client,)):
        row = await described(client)
        assert (row.error_code, row.members) == (0, [])
        assert row.group_epoch == before
        assert row.topology is not None
        members[0].client = client
        reply = await members[0].beat()
        assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_that_a_start_has_no_room_for_counts_on() -> None:
    disk, names = MemoryStorage(), ("g", "h")
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        for name in names:
            request = joining("m", subtopology("0", "t"), group_id=name)
            assert (await beat(client, request)).error_code == 0
        before = [await described(client, name) for name in names]
        image = disk.after_kill()
    often = AT_ONCE | {"groups_max": 1, "housekeeping_interval_ms": 20}
    async with broker_on(image, **often) as (broker, (client,)):

        async def is_seen_to() -> bool:
            kept = groups_in(broker.core.topics.manager.section(SECTION))
            return [len(one.members) for _, one in kept] in ([0, 1], [1, 0])

        await until(is_seen_to)
        for name, was in zip(names, before, strict=True):
            row = await described(client, name)
            assert (row.group_epoch, row.topology) == (was.group_epoch, was.topology)


async def test_topologies_of_groups_that_were_left_have_a_limit_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryStorage()
    monkeypatch.setattr(kept_sizes, "ALL_SIZES_MAX", 2_000)
    wide = subtopology("0", "t", writes=["s" * 200])
    async with broker_on(disk, **AT_ONCE) as (broker, (client,)):
        await client.create("t")
        for n in range(8):
            request = joining("m", wide, group_id=f"g{n}")
            assert (await beat(client, request)).error_code == 0
            assert (await beat(client, beating("m", -1, group_id=f"g{n}"))).error_code == 0
        found = dict(groups_in(broker.core.topics.manager.section(SECTION)))
        kept = [found[f"g{n}"].topology is not None for n in range(8)]
        assert kept == sorted(kept, reverse=True), "those that came first"
        assert kept[0]
        assert not kept[-1]
        monkeypatch.undo()
        reply = await beat(client, joining("m", wide, group_id="g6"))
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE) as (broker, (client,)):
        again = await beat(client, beating("m", reply.member_epoch, group_id="g6"))
        assert again.error_code == 0, "it is written down whole as soon as there is room"
        assert (await described(client, "g7")).group_epoch == found["g7"].epoch
        reply = await beat(client, joining("m", wide, group_id="g7"))
        assert reply.member_epoch > found["g7"].epoch
        (last,) = (
            row
            for name, row in groups_in(broker.core.topics.manager.section(SECTION))
            if name == "g7"
        )
        assert last.topology is not None


@pytest.mark.parametrize("size_max", [100, 500])
async def test_no_name_of_a_member_stands_for_the_topology(
    size_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryStorage()
    wide = subtopology("0", "t", writes=["s" * 200, "r" * 200])
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        assert (await beat(client, joining("\0topology", wide))).error_code == 0
        monkeypatch.setattr(kept_sizes, "ALL_SIZES_MAX", size_max)
        assert (await beat(client, beating("\0topology", -1))).error_code == 0
        assert (await described(client)).group_state == "Empty"
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE) as (_, (client,)):
        row = await described(client)
        assert (row.group_state, row.members) == ("Empty", [])
        assert row.topology is None, "there was no room for it"


async def test_a_group_whose_events_were_lost_begins_without_its_members(events: Events) -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **AT_ONCE) as (broker, (client,)):
        await client.create("t")
        one = StreamsMember(client, "one")
        await one.join()
        manager = broker.core.topics.manager
        (kept,) = (row for _, row in groups_in(manager.section(SECTION)))
        fields = {
            "group": "g",
            "epoch": 9,
            "assignment_epoch": 9,
            "topology": None,
            "whole": False,
            "members": {"two": kept.members["one"].row()},
        }
        manager.record_now(STREAMS_GROUP, **fields)
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE) as (_, (client,)):
        (warning,) = events.named("streams_group_not_restored")
        assert warning["error"] == "events were lost"
        one.client = client
        assert (await one.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await one.join()
        assert one.epoch > 9
        assert one.active == {"0": [0]}
        epoch, image = one.epoch, image.after_kill()
    async with broker_on(image, **AT_ONCE) as (_, (client,)):
        one.client = client
        assert (await one.beat()).error_code == 0
        assert (one.epoch, one.active) == (epoch, {"0": [0]})
        assert [row.member_id for row in (await described(client)).members] == ["one"]


async def test_a_group_as_the_first_version_wrote_it_goes_on() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **AT_ONCE) as (broker, (client,)):
        for topic in ("lines", "more-lines", "by-word", "counts-changelog"):
            await client.create(topic, partitions=4)
        golden = bytes.fromhex((GOLDEN / "streams-group-1.hex").read_text())
        broker.core.topics.manager.record_now(STREAMS_GROUP, **decode_event(golden).fields)
        image = disk.after_kill()
    copies = {"group_streams_num_standby_replicas": 1}
    async with broker_on(image, 2, **AT_ONCE, **copies) as (broker, (first, second)):
        group = broker.core.groups.get_streams("count")
        assert group is not None
        assert (group.epoch, group.state) == (3, "Reconciling")
        where = group.members["one"].said.endpoint
        assert where == ("one.example", 8080)
        has = rows_of({"0": [0, 1], "1": [0, 1]})
        beating_one = beating("one", 2, group_id="count", active_tasks=has)
        beating_one.standby_tasks = beating_one.warmup_tasks = []
        reply = await beat(first, beating_one)  # it has let go, and has another address
        assert (reply.error_code, reply.member_epoch) == (0, 4)
        assert owned(reply.standby_tasks) == {"1": [2, 3]}
        reply = await beat(second, beating("two", 3, group_id="count"))
        assert owned(reply.active_tasks) == {"0": [2, 3], "1": [2, 3]}


async def test_a_group_with_members_goes_on_before_groups_without() -> None:
    disk = MemoryStorage()
    limit = {**AT_ONCE, "groups_max": 2}
    async with broker_on(disk, **limit) as (_, (client,)):
        await client.create("t")
        for name in ("a", "b"):
            assert (
                await consumer_beat(client, consumer_joining("c", group_id=name))
            ).error_code == 0
            gone = await consumer_beat(
                client, consumer_joining("c", group_id=name, member_epoch=-1)
            )
            assert gone.error_code == 0
        one = StreamsMember(client, "one")
        assert (await one.join()).error_code == 0
        image = disk.after_kill()
    async with broker_on(image, **limit) as (_, (client,)):
        one.client = client
        assert (await one.beat()).error_code == 0
        assert one.active == {"0": [0]}


async def test_a_group_that_became_one_of_consumers_is_that_after_a_restart() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        one = StreamsMember(client, "one")
        await one.join()
        assert await one.leave() == 0
        joined = await consumer_beat(client, consumer_joining("c"))
        assert joined.error_code == 0
        assert joined.member_epoch > one.epoch, "it counts on"
        image = disk.after_kill()
    async with broker_on(image, **AT_ONCE) as (broker, (client,)):
        assert not broker.core.topics.manager.section(SECTION)
        assert [row[3] for row in await listed(client)] == ["consumer"]


async def test_offsets_of_a_running_application_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segbroker.broker.groups.group_upkeep.LOOK_INTO_MS", 0)
    short = {"offsets_retention_minutes": 1, "group_max_session_timeout_ms": 1}
    async with broker_on(None, **AT_ONCE, **short) as (broker, (client,)):
        await client.create("t")
        one = StreamsMember(client, "one")
        await one.join()
        assert await commit(client, "one", one.epoch) == 0
        broker.core.groups.keep_house(wall_ms() + 61_000)
        await client.create("behind")  # durable, and with it what was written down before
        assert broker.core.groups.topics("g") == ["t"]


async def test_on_a_full_disk_who_changes_nothing_lives_on() -> None:
    disk = GatedStorage()
    async with broker_on(disk, **AT_ONCE) as (_, (client,)):
        await client.create("t")
        one = StreamsMember(client, "one")
        await one.join()
        disk.sync_error = OSError(errno.ENOSPC, "full")
        assert (await one.beat()).error_code == 0
        disk.sync_error = None


async def test_who_asks_again_to_leave_is_told_that_it_is_no_member_when_that_is_durable() -> None:
    """Its tasks would wait for it for a session after a kill, though it was told otherwise."""
    disk = GatedStorage()
    async with broker_on(disk, 2, **AT_ONCE) as (_, clients):
        await clients[0].create("t")
        one, two = (StreamsMember(clients[n], f"m{n}") for n in range(2))
        for each in (one, two):
            await each.join()
        disk.sync_error = OSError(errno.EIO, "no sync")
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
    async with broker_on(image, **AT_ONCE) as (_, (client,)):
        assert [member.member_id for member in (await described(client)).members] == ["m0"]


async def test_offsets_of_an_application_that_ended_expire_over_restarts() -> None:
    disk = MemoryStorage()
    short = {**AT_ONCE, "offsets_retention_minutes": 1, "group_max_session_timeout_ms": 1}
    async with broker_on(disk, **short) as (_, (client,)):
        await client.create("t")
        one = StreamsMember(client, "one")
        await one.join()
        assert await commit(client, "one", one.epoch) == 0
        assert await one.leave() == 0
    async with broker_on(disk, **short) as (broker, (client,)):
        broker.core.groups.keep_house(wall_ms() + 30_000)
        await client.create("behind")
        assert broker.core.groups.topics("g") == ["t"]
        await trio.sleep(0.01)  # longer than the longest session of a classic group
        broker.core.groups.keep_house(wall_ms() + 120_000)
        await client.create("behind-that")
        assert broker.core.groups.topics("g") == []
        assert await listed(client) == []

"""Groups of both protocols over the end of their broker: kills, power cuts, failing disks."""

import errno
from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.disk.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient
from ..support.wire_consumers import beat, commit, described, joining
from ..support.wire_transactions import until
from .classic_member import ClassicMember
from .conftest import Events
from .obedient_members import Member
from .restarts import broker_on, cut_off, killed
from .test_consumer_restarts import written_of
from .test_group_migration import ALL, alone, kind, large, of_two_epochs, read_of
from .test_group_restarts import written_of as generations_of


async def mixed(client: WireClient) -> tuple[ClassicMember, Member]:
    """One of each protocol, with a partition each."""
    await client.create("t", partitions=2)
    one = await alone(client)
    two = Member(client, "m")
    await two.join()
    await one.join()
    await one.sync()
    await two.beat()
    assert (len(one.has), len(two.reads)) == (1, 1)
    return one, two


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_members_of_both_protocols_go_on_after_their_broker_died(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        one, two = await mixed(client)
        before = await described(client)
        image = ended(disk)
    async with broker_on(image) as (broker, (client,)):
        one.client = two.client = client
        assert await described(client) == before
        written = written_of(broker)
        had = list(one.has)
        assert await one.beat() == 0
        assert (await one.sync(), one.has) == (0, had)
        assert await one.commit() == 0
        assert await one.commit(one.generation - 1) == ErrorCode.ILLEGAL_GENERATION
        assert (await two.beat()).error_code == 0
        assert await commit(client, "m", two.epoch) == 0
        assert written_of(broker) == written, "nothing was to be written down"
        assert await described(client) == before
        other = ClassicMember(client, protocol="sticky")
        assert (await other.join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await two.leave() == 0
        assert await kind(client) == ("classic", "PreparingRebalance")


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_who_comes_out_of_a_group_of_both_shares_out_anew_after_the_broker_died(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        one, two = await mixed(client)
        assert await two.leave() == 0
        await client.create("behind")  # durable, and with it what was written down before
        image = ended(disk)
    async with broker_on(image) as (_, (client,)):
        one.client = two.client = client
        assert await kind(client) == ("classic", "PreparingRebalance")
        assert await one.commit() == 0
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        before = one.generation
        assert (await one.join()).leader == one.member_id
        assert one.generation > before
        assert (await one.sync({one.member_id: ALL}), one.has) == (0, ALL)
        assert (await two.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("ended", [killed, cut_off])
async def test_who_had_not_heard_of_the_last_epoch_commits_after_the_broker_died_too(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, (client, other)):
        one, three = await of_two_epochs(client, other)
        image = ended(disk)
    for _ in range(2):  # and after it died once more
        async with broker_on(image, 2) as (_, (client, other)):
            one.client, three.client = client, other
            for each in (one, three):
                assert await each.commit() == 0
                assert await each.commit(each.generation - 1) == ErrorCode.ILLEGAL_GENERATION
                assert await each.beat() == ErrorCode.REBALANCE_IN_PROGRESS
            image = ended(image)
    async with broker_on(image, 2) as (_, (client, other)):
        one.client, three.client = client, other
        before = three.generation
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.join)
            nursery.start_soon(three.join)
        assert one.generation == three.generation > before
        for each in (one, three):
            assert await each.commit(before) == ErrorCode.ILLEGAL_GENERATION
            assert await each.commit(before - 1) == ErrorCode.ILLEGAL_GENERATION


async def test_a_group_that_turned_back_before_the_broker_died_turns_again_with_its_epochs() -> (
    None
):
    disk = MemoryStorage()
    async with broker_on(disk, 2) as (_, (client, other)):
        one, three = await of_two_epochs(client, other)
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        one.client = three.client = client
        assert (await beat(client, joining("another"))).error_code == 0
        assert await kind(client) == ("consumer", "Reconciling")
        for each in (one, three):
            assert await each.commit() == 0
            assert await each.beat() == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_group_that_is_too_large_for_one_event_turns_without_being_written_down(
    events: Events,
) -> None:
    """What all of its members say counts, also of whom the turn changes nothing."""
    async with broker_on(MemoryStorage(), 2) as (broker, (client, other)):
        await client.create("t")
        said = large(600_000)  # an event has 1 MiB here
        one, two = (ClassicMember(each, metadata=said) for each in (client, other))
        await one.join()
        assert await one.sync({one.member_id: [("t", 0)]}) == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(two.join)
            while await one.beat() == 0:
                pass
            await one.join()
        assert await one.sync({one.member_id: [("t", 0)], two.member_id: []}) == 0
        assert (await beat(client, joining())).error_code == 0
        (warning,) = events.named("consumer_group_without_members")
        assert warning["members"] == 3
        assert not written_of(broker)["g"]["says"]


async def test_a_group_turns_back_at_the_start_where_its_broker_did_not_come_to_it() -> None:
    disk = MemoryStorage()
    async with broker_on(disk, group_consumer_migration_policy="upgrade") as (_, (client,)):
        one, two = await mixed(client)
        assert await two.leave() == 0
        image = disk.after_kill()
    async with broker_on(image) as (broker, (client,)):
        one.client = client
        assert await kind(client) == ("classic", "PreparingRebalance")
        await client.create("behind")
        assert "g" in generations_of(broker)
        assert "g" not in written_of(broker)
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_group_turns_when_that_is_durable_and_nobody_is_told_before() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, (client, other)):
        await client.create("t", partitions=2)
        one = await alone(client)
        two = Member(other, "m")
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(two.join)
            await wait_all_tasks_blocked(0.05)  # until it is durable
            assert two.epoch == 0
            image = disk.after_power_cut()
            image._boot = disk._boot
            disk.syncs.set()
        assert two.epoch > 0
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    async with broker_on(image) as (_, (client,)):
        one.client = two.client = client
        assert await kind(client) == ("classic", "Stable")
        assert await one.beat() == 0
        assert (await one.sync(), one.has) == (0, ALL)
        assert (await two.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_shares_that_are_not_durable_when_a_group_turns_are_nobodys() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 4) as (_, (client, waits, third, looks)):
        await client.create("t", partitions=2)
        one = await alone(client, protocol="cooperative-sticky")
        two = ClassicMember(waits, protocol="cooperative-sticky")
        codes = []

        async def sync() -> None:
            codes.append(await one.sync({one.member_id: [("t", 0)], two.member_id: []}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(two.join)
            while await one.beat() == 0:
                pass
            await one.join(*ALL)
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync)
            await wait_all_tasks_blocked(0.05)
            nursery.start_soon(Member(third, "m").join)
            await wait_all_tasks_blocked(0.05)
            disk.syncs.set()
        assert codes == [ErrorCode.REBALANCE_IN_PROGRESS]
        row = await described(looks)
        shares = {each.member_id: read_of(each) for each in row.members}
        assert shares == {one.member_id: [0, 1], two.member_id: [], "m": []}


async def test_a_classic_member_is_told_when_it_is_durable_that_it_has_joined() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, (client, other)):
        await client.create("t", partitions=2)
        two = Member(client, "m")
        await two.join()
        one = ClassicMember(other)
        first = await one.join_once()
        one.member_id = first.member_id
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.join)
            await wait_all_tasks_blocked(0.05)  # until it is durable
            assert one.generation == -1
            image = disk.after_power_cut()
            image._boot = disk._boot
            disk.syncs.set()
        assert one.generation > 0
    async with broker_on(image) as (_, (client,)):
        one.client = two.client = client
        assert await one.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await two.beat()).error_code == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_a_turn_that_cannot_be_written_is_told_to_who_joins_and_made_good(
    number: int, events: Events
) -> None:
    disk = GatedStorage()
    async with broker_on(disk, housekeeping_interval_ms=20) as (_, (client,)):
        await client.create("t", partitions=2)
        one = await alone(client)
        disk.sync_error = OSError(number, "no sync")
        refused = await beat(client, joining())
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert events.named("consumer_group_not_recorded")
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await one.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.sync_error = None
        two = Member(client, "m")

        async def is_in() -> bool:
            return not (await two.join()).error_code and not (await one.join()).error_code

        await until(is_in)
        assert await one.sync() == 0
        await two.beat()
        assert (len(one.has), len(two.reads)) == (1, 1)
        before = await described(client)
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        assert await described(client) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_a_turn_back_that_cannot_be_written_is_made_good_by_the_next_generation(
    number: int, events: Events
) -> None:
    disk = GatedStorage()
    async with broker_on(disk, housekeeping_interval_ms=20) as (_, (client,)):
        one, two = await mixed(client)
        disk.sync_error = OSError(number, "no sync")
        assert await two.leave() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        disk.sync_error = None

        async def is_shared_out() -> bool:
            reply = await one.join()
            return not reply.error_code and not await one.sync({one.member_id: ALL})

        await until(is_shared_out)
        image = disk.after_kill()
    async with broker_on(image) as (_, (client,)):
        one.client = client
        assert await kind(client) == ("classic", "Stable")
        assert await one.beat() == 0
        assert (await one.sync(), one.has) == (0, ALL)


async def test_a_group_that_turned_back_on_a_disk_that_fails_counts_on() -> None:
    """Housekeeping writes down what it is now, when that can be done: also before its members have
    shared out anew."""
    disk = GatedStorage()
    often = {"housekeeping_interval_ms": 20}
    async with broker_on(disk, **often) as (broker, (client,)):
        one, two = await mixed(client)
        before = (await described(client)).group_epoch
        disk.sync_error = OSError(errno.EIO, "no sync")
        assert await two.leave() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.sync_error = None

        async def is_mended() -> bool:
            return "g" not in written_of(broker)

        await until(is_mended)
        image = disk.after_kill()
    async with broker_on(image, **often) as (_, (client,)):
        one.client = client
        assert await kind(client) == ("classic", "PreparingRebalance")
        await one.join()
        assert one.generation > before


async def test_a_classic_group_that_has_not_shared_out_yet_counts_on_from_the_epochs_before() -> (
    None
):
    """That nobody is in the other one any more could not be written."""
    disk = GatedStorage()
    often = {"housekeeping_interval_ms": 20}
    async with broker_on(disk, **often) as (broker, (client,)):
        await client.create("t")
        two, one = Member(client, "m"), ClassicMember(client)
        for _ in range(2):
            await two.join()
            assert await two.leave() == 0
        await two.join()
        disk.sync_error = OSError(errno.EIO, "no sync")
        assert await two.leave() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await one.join()
        assert one.generation > two.epoch
        disk.sync_error = None

        async def is_mended() -> bool:
            return "g" not in written_of(broker)

        await until(is_mended)
        image = disk.after_kill()
    async with broker_on(image, **often) as (_, (client,)):
        back = ClassicMember(client)
        await back.join()
        assert back.generation >= one.generation > two.epoch


async def test_who_waits_while_its_group_turns_back_is_told_when_that_is_durable() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 3) as (broker, (client, other, third)):
        one, two = await mixed(client)
        two.client = third
        three = ClassicMember(other)
        three.member_id = (await three.join_once()).member_id
        disk.syncs.clear()
        codes = []

        async def join() -> None:
            codes.append((await three.join()).error_code)

        async def leave() -> None:
            codes.append(await two.leave())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join)  # its event is under way
            await wait_all_tasks_blocked(0.05)
            nursery.start_soon(leave)  # waits for the next, which will not be written
            await wait_all_tasks_blocked(0.05)
            assert codes == []
            assert (await kind(client))[0] == "classic"
            disk.syncs.set()
        assert codes == [0, 0]
        image = disk.after_power_cut()
        image._boot = disk._boot
        assert await three.sync() == ErrorCode.REBALANCE_IN_PROGRESS
        await client.create("behind")  # durable, and with it what was written down before
        assert "g" not in written_of(broker), "nothing of the other group comes behind"
    async with broker_on(image) as (_, (client,)):
        one.client = three.client = two.client = client
        assert (await two.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert await one.beat() in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
        )
        assert await three.beat() == ErrorCode.REBALANCE_IN_PROGRESS


async def test_classic_members_of_a_machine_that_was_started_anew_are_not_waited_for() -> None:
    disk = MemoryStorage()
    async with broker_on(disk) as (_, (client,)):
        await client.create("t", partitions=2)
        one = await alone(client, instance_id="i")
        two = Member(client, "m")
        await two.join()
        await one.join()
        await one.sync()
        image = disk.after_power_cut()
    async with broker_on(image) as (_, (client,)):
        with trio.fail_after(60):
            while len((await described(client)).members) > 1 and (await kind(client))[0] != (
                "classic"
            ):
                pass
        back = ClassicMember(client, instance_id="i")
        assert (await back.join()).error_code == 0
        await back.join()
        assert (await back.sync({back.member_id: ALL}), back.has) == (0, ALL)

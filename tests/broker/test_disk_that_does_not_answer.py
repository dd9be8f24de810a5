"""Groups while a sync of the metadata does not end: who waits, who does not, and how it goes on."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import connect
from ..support.wire_consumers import beat, commit, described, joining
from ..support.wire_groups import WireMember
from .conftest import serving
from .obedient_members import Member, settled


async def test_only_what_changes_waits_and_all_of_it_goes_on_when_the_disk_answers() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as a,
        connect(broker.address) as b,
        connect(broker.address) as c,
        connect(broker.address) as d,
        connect(broker.address) as e,
        connect(broker.address) as other,
    ):
        await other.create("t", partitions=4)
        one, two = Member(a, "one"), Member(b, "two")
        await one.join()
        await settled(one)
        leader = WireMember(d, group="classic")
        await leader.join()
        await leader.deal()
        joins, syncs = WireMember(e, group="another"), WireMember(c, group="third")
        await syncs.join()
        disk.syncs.clear()
        codes: dict[str, int] = {}

        async def notes(name: str, call: Callable[[], Awaitable[int]]) -> None:
            codes[name] = await call()

        async def joins_group() -> int:
            return (await two.join()).error_code

        async def brings() -> int:
            return (await syncs.deal()).error_code

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(notes, "brings the assignments", brings)
                nursery.start_soon(notes, "commits", partial(leader.commit, "t", 3))
                await wait_all_tasks_blocked()
                # Whoever changes nothing on the disk is answered.
                assert (await one.beat()).error_code == 0
                assert (await joins.join()).error_code == 0
                assert (await described(other)).group_state == "Stable"
                assert (await other.ask(MetadataRequest(topics=[]), MetadataResponse, 1)).brokers
                nursery.start_soon(notes, "joins a consumer group", joins_group)
                await wait_all_tasks_blocked()
                assert (await described(other)).group_state == "Reconciling"
                assert not codes
                disk.syncs.set()
        assert codes == {
            "joins a consumer group": 0,
            "brings the assignments": 0,
            "commits": 0,
        }
        await settled(one, two)
        assert {len(m.reads[next(iter(m.reads))]) for m in (one, two)} == {2}


async def test_who_gave_up_meanwhile_holds_nothing_and_joins_again() -> None:
    """A client that has waited for long enough closes its connection, and asks by another one."""
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as other:
        await other.create("t", partitions=4)
        disk.syncs.clear()
        has_group = partial(broker.core.groups.exists, "g")
        for _ in range(20):
            async with connect(broker.address) as client:
                await client.send(joining("m"), 1)
                await becomes(has_group)
                await wait_all_tasks_blocked()
        async with connect(broker.address) as client:
            answered: list[int] = []

            async def again() -> None:
                reply = await beat(client, joining("m"))
                answered.append(reply.error_code)
                answered.append(await commit(client, "m", reply.member_epoch))

            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(again)
                    await wait_all_tasks_blocked()
                    assert not answered
                    disk.syncs.set()
            assert answered == [ErrorCode.NONE, ErrorCode.NONE]
            await becomes(lambda: len(broker._connections) == 2)

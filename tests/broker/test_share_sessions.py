"""Sessions of many partitions: what is new is begun together, what has nothing is left alone, and
what is to be heard of a partition is heard though its session did not look at it again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from segbroker.broker.server import Broker
from segbroker.broker.share_fetching import acknowledging
from segbroker.broker.shares import share_session, taking_back
from segbroker.protocol.acls import Operation, Permission, ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import VendorKey

from ..support.wire_client import WireClient, connect
from ..support.wire_shares import ACCEPT, FINAL, VERSION, Given, Sharing, set_on_group, topic_id
from ..support.wire_transactions import V2, Tx
from .conftest import Events, serving
from .guarded import ALICE, allow, connect_from, filled, guarded, rule

GROUP = "g"
MANY = 300
WAIT_MS = 30_000


@asynccontextmanager
async def begun(partitions: int, **settings: str) -> AsyncIterator[tuple[Broker, Sharing]]:
    """A broker with a topic, and a member of a group that begins at its beginning."""
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions)
        await set_on_group(client, GROUP, share_auto_offset_reset="earliest", **settings)
        yield broker, Sharing(client, GROUP, await topic_id(client, "t"))


async def until_sessions(broker: Broker, count: int) -> None:
    while len(broker.core.shares.sessions) > count:
        await trio.lowlevel.checkpoint()


async def fill(client: WireClient, partitions: int) -> None:
    for partition in range(partitions):
        await client.produce("t", b"a", partition=partition)


async def test_a_group_begins_in_many_partitions_with_a_few_events(events: Events) -> None:
    async with begun(MANY) as (broker, one):
        assert await one.fetch(*range(MANY)) == []
        told = events.named("share_partition_begun")
        assert sum(1 + line["others"] for line in told) == MANY
        assert len(told) <= 3, "each of them is synced"
        starts = [broker.core.shares.start_offset(GROUP, one.topic, n) for n in range(MANY)]
        assert starts == [0] * MANY


async def test_each_record_of_many_partitions_is_handed_out_once_and_taken_back_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member goes and comes again at once, before all it had was taken back."""
    monkeypatch.setattr(taking_back, "TAKEN_TOGETHER", 1)
    async with begun(MANY) as (broker, one):
        await fill(one.client, MANY)
        given = await one.fetch(*range(MANY), max_records=MANY)
        while len(given) < MANY:
            more = await one.fetch(max_records=MANY)
            assert more, "there are some left"
            given += more
        assert sorted(one.partition for one in given) == list(range(MANY))
        assert {one.deliveries for one in given} == {1}
        assert await one.fetch() == []
        await fill(one.client, MANY)
        async with connect(broker.address) as other:
            again = Sharing(other, GROUP, one.topic, one.member)
            await one.client.stream.aclose()
            given = await again.fetch(*range(MANY), max_records=MANY, wait_ms=WAIT_MS)
            while len(given) < 2 * MANY:
                given += await again.fetch(max_records=MANY, wait_ms=WAIT_MS)
            assert sorted((one.partition, one.offset, one.deliveries) for one in given) == [
                (n, offset, deliveries)
                for n in range(MANY)
                for offset, deliveries in ((0, 2), (1, 1))
            ]
            said = {n: [(0, 1, [ACCEPT])] for n in range(MANY)}
            assert await again.say(said) == (ErrorCode.NONE, dict.fromkeys(said, ErrorCode.NONE))
            assert await again.fetch() == []


@pytest.mark.parametrize("fetches", [False, True])
async def test_what_a_member_said_before_it_was_gone_holds_in_all_of_many_partitions(
    *, fetches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledging, "TAKEN_TOGETHER", 1)
    async with begun(MANY) as (broker, one):
        await fill(one.client, MANY)
        given = await one.fetch(*range(MANY), max_records=MANY)
        while len(given) < MANY:
            given += await one.fetch(max_records=MANY)
        said = {n: [(0, 0, [ACCEPT])] for n in range(MANY)}
        if fetches:
            await one.begin(said=said)
        else:
            await one.client.send(one.saying(said), VERSION)
        await one.client.stream.aclose()
        await until_sessions(broker, 0)
        async with connect(broker.address) as other:
            assert await Sharing(other, GROUP, one.topic).fetch(*range(MANY)) == []


async def test_who_comes_again_before_the_last_session_is_taken_back_hears_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had no records; nothing is left of that session, but the next one is in its partitions."""
    monkeypatch.setattr(taking_back, "TAKEN_TOGETHER", 1)
    async with begun(MANY) as (broker, one):
        assert await one.fetch(*range(MANY)) == []
        async with connect(broker.address) as other, connect(broker.address) as third:
            again = Sharing(other, GROUP, one.topic, one.member)
            await one.client.stream.aclose()
            await until_sessions(broker, 0)
            given: list[Given] = []

            async def wait() -> None:
                given.extend(await again.fetch(*range(MANY), wait_ms=WAIT_MS))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked(0.01)
                await third.produce("t", b"new", partition=0)
            assert [one.value for one in given] == [b"new"]
        with trio.fail_after(WAIT_MS / 1000):
            await trio.testing.wait_all_tasks_blocked(0.01)  # all was taken back


@pytest.mark.parametrize("how", ["closed", "disconnected"])
async def test_a_record_whose_last_delivery_ends_with_its_session_is_archived(how: str) -> None:
    """Or a record at which every consumer dies would come for ever (decision 0238)."""
    async with begun(1, share_delivery_count_limit="2") as (broker, one):
        await one.client.produce("t", b"poison")
        for deliveries in (1, 2):
            async with connect(broker.address) as client:
                member = Sharing(client, GROUP, one.topic)
                given = await member.fetch(0, wait_ms=WAIT_MS)
                assert [(g.value, g.deliveries) for g in given] == [(b"poison", deliveries)]
                if how == "closed":
                    await member.fetch(epoch=FINAL)
            await until_sessions(broker, 0)
        with trio.fail_after(WAIT_MS / 1000):
            while broker.core.shares.start_offset(GROUP, one.topic, 0) != 1:  # written down beside
                await trio.lowlevel.checkpoint()
        await one.client.produce("t", b"next")
        assert [g.value for g in await one.fetch(0, wait_ms=WAIT_MS)] == [b"next"]


async def test_a_session_that_ends_after_a_pause_of_the_broker_ends_no_locks_of_others(
    mock_clock: MockClock,
) -> None:
    """What they have said waits in a socket: no lock ends before it is read."""
    async with begun(1, share_record_lock_duration_ms="1000") as (broker, one):
        await fill(one.client, 1)
        assert len(await one.fetch(0)) == 1
        async with connect(broker.address) as client:
            assert await Sharing(client, GROUP, one.topic).fetch(0) == []
            mock_clock.jump(8)
        await until_sessions(broker, 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        said = {0: [(0, 0, [ACCEPT])]}
        assert await one.say(said) == (ErrorCode.NONE, {0: ErrorCode.NONE})


async def test_who_had_records_is_looked_at_behind_the_others() -> None:
    async with begun(3) as (_, one):
        for _ in range(2):
            await fill(one.client, 3)
        found = [await one.fetch(*range(3), max_records=1)]
        found += [await one.fetch(max_records=1) for _ in range(5)]
        assert [(given.partition, given.offset) for some in found for given in some] == [
            (partition, offset) for offset in range(2) for partition in range(3)
        ]


async def test_more_may_be_read_since_the_group_was_altered() -> None:
    async with begun(2, share_isolation_level="read_committed") as (_, one):
        tx = Tx(one.client, "x", V2)
        await tx.init()
        assert not await tx.send("t", b"open")
        assert await one.fetch(0, 1) == []
        await set_on_group(one.client, GROUP, share_isolation_level="read_uncommitted")
        assert [given.value for given in await one.fetch()] == [b"open"]


async def test_more_locks_than_before_are_used() -> None:
    async with begun(1, share_partition_max_record_locks="100") as (_, one):
        for _ in range(4):
            await one.client.produce("t", *(b"a",) * 50)
        assert len(await one.fetch(0)) == 100
        assert await one.fetch() == []
        await set_on_group(one.client, GROUP, share_partition_max_record_locks="200")
        assert len(await one.fetch()) == 100


async def test_who_may_not_read_a_topic_any_more_is_told_though_nothing_comes() -> None:
    async with guarded() as broker:
        await filled(broker)
        await allow(broker, rule(Operation.READ, ResourceType.GROUP, GROUP))
        may = rule(Operation.READ, ResourceType.TOPIC, "t")
        await allow(broker, may)
        async with connect_from(ALICE, broker) as alice:
            meta = broker.core.topics.get("t")
            assert meta is not None
            one = Sharing(alice, GROUP, meta.topic_id)
            assert await one.fetch(0) == []
            assert await one.fetch() == []
            await allow(broker, may._replace(permission=int(Permission.DENY)))
            assert await one.fetch() == []
            assert one.rows[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_fetches_are_counted_while_they_wait_and_not_for_a_session_that_has_none() -> None:
    async with begun(1) as (broker, one), connect(broker.address) as client:

        async def waiting() -> int:
            reply: Any = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {"topics": ["t"]})
            (row,) = reply["topics"]["t"]["partitions"]
            return int(row["fetches_waiting"])

        assert await one.fetch(0) == []
        assert await waiting() == 0
        other = Sharing(client, GROUP, one.topic)
        assert await other.fetch(0) == []
        await one.begin(wait_ms=WAIT_MS)
        async with connect(broker.address) as third:
            await Sharing(third, GROUP, one.topic).begin(0, wait_ms=WAIT_MS)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert await waiting() == 2


async def test_a_session_that_takes_the_place_of_another_has_its_partitions_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_session, "PARTITIONS_MAX", 3)
    async with begun(2) as (broker, one), connect(broker.address) as client:
        assert await one.fetch(0, 1) == []
        one.epoch = 0
        assert await one.fetch(0, 1) == []
        assert one.code() == ErrorCode.NONE, "two of three, not four"
        other = Sharing(client, GROUP, one.topic)
        assert await other.fetch(0, 1) == []
        assert other.code() == ErrorCode.SHARE_SESSION_LIMIT_REACHED


@pytest.mark.parametrize("sizes", [(100, 5_000), (5_000,), (600, 600)])
async def test_who_wants_more_than_there_is_room_for_is_answered_with_what_fits(
    sizes: tuple[int, ...],
) -> None:
    async with begun(2) as (_, one):
        for partition, size in enumerate(sizes):
            await one.client.produce("t", b"a" * size, partition=partition)
        given = await one.fetch(0, 1, min_bytes=1_000, max_bytes=900, wait_ms=WAIT_MS)
        assert [(each.partition, each.offset) for each in given] == [(0, 0)]

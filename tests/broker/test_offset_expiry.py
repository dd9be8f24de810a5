"""When committed offsets go: each by its own time where nobody was in the group, or said so."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest
import trio

from segbroker.broker.groups import group_upkeep, offset_expiry
from segbroker.broker.groups.group_upkeep import OFFSETS_MAX
from segbroker.broker.groups.groups import Groups
from segbroker.broker.groups.offset_expiry import Expiry
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsResponse
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from segbroker.segments.disk.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.waiting import DEADLINE_S
from ..support.wire_client import WireClient, connect
from ..support.wire_consumers import commit as commit_as
from ..support.wire_groups import WireMember
from ..support.wire_transactions import V2, Tx
from .group_names import group_names
from .obedient_members import Member
from .test_committed_offsets import DAY_MS, SUBSCRIBED_TO_T, WEEK_MS, alone, expects_nobody, stands

NOW: Final = 1_700_000_000_000
LOOKED_AT: Final = 40


async def keeping(
    client: WireClient, topic: str, offset: int, retention_ms: int = -1, **who: str | int
) -> int:
    """Commit with a time of its own, as the versions did that had one; the code."""
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="m"
    )
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    for name, value in who.items():
        setattr(request, name, value)
    reply = await client.ask(request, OffsetCommitResponse, 4)
    return reply.topics[0].partitions[0].error_code


async def looked(groups: Groups, client: WireClient, now_ms: int) -> dict[str, int]:
    """Where the group stands, by topic, behind a look at its offsets."""
    groups.keep_house(now_ms)
    await client.create(f"behind-{now_ms}")
    return {topic: offset for (topic, _), offset in (await stands(client, None)).items()}


@asynccontextmanager
async def on_its_way(
    groups: Groups, disk: GatedStorage, topic: str, commit: Callable[[], Awaitable[int]]
) -> AsyncIterator[None]:
    """While a commit to this topic waits for the disk; behind it, it is done."""
    disk.syncs.clear()
    answered: list[int] = []

    async def committed() -> None:
        answered.append(await commit())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(committed)
        with trio.fail_after(DEADLINE_S):
            while topic not in groups.committing("g"):
                await trio.lowlevel.checkpoint()
        yield
        disk.syncs.set()
    assert answered == [0]


async def test_offsets_of_a_group_that_nobody_was_ever_in_go_each_by_its_own_commit() -> None:
    now, disk = NOW, MemoryStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        for topic in ("a", "b"):
            await client.create(topic)
        assert await keeping(client, "a", 1) == 0
        now += 3 * DAY_MS
        assert await keeping(client, "b", 2) == 0
        image = disk.after_kill()
    async with alone(image, lambda: now) as broker, connect(broker.address) as client:
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, NOW + WEEK_MS - 1) == {"a": 1, "b": 2}
        assert await looked(groups, client, NOW + WEEK_MS + 1) == {"b": 2}
        assert await looked(groups, client, now + WEEK_MS - 1) == {"b": 2}
        assert await looked(groups, client, now + WEEK_MS + 1) == {}
        assert not groups.exists("g")


async def test_so_they_do_where_its_offsets_were_deleted_before() -> None:
    """By which it is a group for a while, though nobody was ever in it."""
    now = NOW
    async with alone(MemoryStorage(), lambda: now) as broker, connect(broker.address) as client:
        for topic in ("a", "b"):
            await client.create(topic)
        assert await keeping(client, "a", 1) == 0
        rows = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name="a", partitions=rows)]
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        reply = await client.ask(request, OffsetDeleteResponse, 0)
        assert reply.topics[0].partitions[0].error_code == 0
        assert await keeping(client, "a", 2) == 0
        now += 3 * DAY_MS
        assert await keeping(client, "b", 3) == 0
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, NOW + WEEK_MS - 1) == {"a": 2, "b": 3}
        assert await looked(groups, client, NOW + WEEK_MS + 1) == {"b": 3}


@pytest.mark.parametrize(
    ("kind", "is_bare"),
    [("classic", False), ("classic", True), ("consumer", False)],
    ids=["classic", "members the start has no room for", "consumer"],
)
async def test_offsets_of_a_group_that_had_members_stay_for_its_newest(
    kind: str, is_bare: bool
) -> None:
    """Also where its end was not written down: it had just committed, or its broker was killed."""
    now, disk = NOW, MemoryStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        for topic in ("a", "t"):
            await client.create(topic)
        assert await keeping(client, "a", 1) == 0
        now += 3 * DAY_MS
        if kind == "classic":
            classic = WireMember(client)
            await classic.join()
            await classic.deal()
            assert await classic.commit("t", 3) == 0
            assert is_bare or await classic.leave() == 0
        else:
            member = Member(client, "m")
            await member.join()
            assert await commit_as(client, "m", member.epoch) == 0
            assert await member.leave() == 0
        other = WireMember(client, group="a")
        await other.join()
        await other.deal()
        image = disk.after_kill()
    limits = {"groups_max": 1} if is_bare else {}
    async with alone(image, lambda: now, **limits) as broker, connect(broker.address) as client:
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, now) == {"a": 1, "t": 3}
        image = image.after_power_cut()
    async with alone(image, lambda: now) as broker, connect(broker.address) as client:
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, now + WEEK_MS - 1) == {"a": 1, "t": 3}
        assert await looked(groups, client, now + WEEK_MS + 60_001) == {}


async def test_an_offset_with_a_time_of_its_own_goes_when_that_is_over_after_a_restart_too() -> (
    None
):
    disk = MemoryStorage()
    async with alone(disk, lambda: NOW) as broker, connect(broker.address) as client:
        for topic in ("short", "long", "never", "plain"):
            await client.create(topic)
        assert await keeping(client, "short", 1, DAY_MS) == 0
        assert await keeping(client, "long", 2, 2 * WEEK_MS) == 0
        assert await keeping(client, "never", 3, 2**63 - 1) == 0
        assert await keeping(client, "plain", 4) == 0
        image = disk.after_power_cut()
    everything = {"short": 1, "long": 2, "never": 3, "plain": 4}
    async with alone(image, lambda: NOW) as broker, connect(broker.address) as client:
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, NOW + DAY_MS - 1) == everything
        assert await looked(groups, client, NOW + DAY_MS) == {"long": 2, "never": 3, "plain": 4}
        # Stopped in order: what is known now comes out of the snapshot.
    async with alone(image, lambda: NOW) as broker, connect(broker.address) as client:
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, NOW + WEEK_MS + 1) == {"long": 2, "never": 3}
        assert await looked(groups, client, NOW + 2 * WEEK_MS) == {"never": 3}
        assert await looked(groups, client, NOW + 999 * WEEK_MS) == {"never": 3}


async def test_the_next_commit_says_anew_how_long_an_offset_is_kept() -> None:
    disk = MemoryStorage()
    async with alone(disk, lambda: NOW) as broker, connect(broker.address) as client:
        await client.create("t")
        assert await keeping(client, "t", 1, DAY_MS) == 0
        assert await keeping(client, "t", 2) == 0
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, NOW + WEEK_MS - 1) == {"t": 2}
        assert await keeping(client, "t", 3, DAY_MS) == 0
        assert await looked(groups, client, NOW + DAY_MS) == {}


@pytest.mark.parametrize("kind", ["classic", "consumer"])
async def test_in_a_group_with_members_such_an_offset_goes_where_nobody_reads_the_topic(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("segbroker.broker.groups.group_upkeep.LOOK_INTO_MS", 0)
    async with alone(MemoryStorage(), lambda: NOW) as broker, connect(broker.address) as client:
        for topic in ("t", "left"):
            await client.create(topic)
        who: dict[str, str | int]
        if kind == "classic":
            classic = WireMember(client, metadata=SUBSCRIBED_TO_T)
            await classic.join()
            await classic.deal()
            who = {
                "member_id": classic.member_id,
                "generation_id_or_member_epoch": classic.generation,
            }
        else:
            await keeping(client, "t", 7, DAY_MS)
            await keeping(client, "left", 8, DAY_MS)
            await Member(client, "m").join()
            who = {}
        if who:
            assert await keeping(client, "t", 7, DAY_MS, **who) == 0
            assert await keeping(client, "left", 8, DAY_MS, **who) == 0
        groups = broker.core.groups
        assert await looked(groups, client, NOW + DAY_MS - 1) == {"t": 7, "left": 8}
        assert await looked(groups, client, NOW + DAY_MS) == {"t": 7}
        assert groups.members_count("g") == 1


async def deleted(client: WireClient, topic: str) -> None:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000)
    await client.ask(request, DeleteTopicsResponse, 1)


@pytest.mark.parametrize(
    "says",
    [
        {"subscribed_topic_names": ["t", "d"]},
        {"subscribed_topic_names": None, "subscribed_topic_regex": "t|d"},
        None,
    ],
    ids=["by name", "by an expression", "nobody"],
)
async def test_offsets_of_a_deleted_topic_go_though_a_subscription_says_its_name(
    monkeypatch: pytest.MonkeyPatch, says: dict[str, object] | None
) -> None:
    """Or topics that come and go leave rows behind for as long as their reader lives."""
    monkeypatch.setattr("segbroker.broker.groups.group_upkeep.LOOK_INTO_MS", 0)
    async with alone(MemoryStorage(), lambda: NOW) as broker, connect(broker.address) as client:
        for topic in ("t", "d"):
            await client.create(topic)
            assert await keeping(client, topic, 1) == 0
        groups = broker.core.groups
        await expects_nobody(groups)
        if says is not None:
            await Member(client, "m", **says).join()
        await deleted(client, "d")
        assert groups.topics("g") == ["d", "t"]
        groups.keep_house(NOW)
        await client.create("behind")
        assert groups.topics("g") == ["t"]
        assert await stands(client, None) == {("t", 0): 1}


async def test_a_group_whose_only_topic_is_deleted_is_not_as_old_as_what_it_had_there() -> None:
    """Its next generation counts on, as that of any group that nobody is in for a moment."""
    async with alone(MemoryStorage(), lambda: NOW) as broker, connect(broker.address) as client:
        await client.create("t")
        one = WireMember(client)
        await one.join()
        await one.deal()
        assert await one.commit("t", 1) == 0
        assert await one.leave() == 0
        await deleted(client, "t")
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, NOW) == {}
        assert groups.exists("g")
        back = WireMember(client)
        await back.join()
        assert back.generation > one.generation


async def test_a_group_whose_topic_was_made_anew_stands_where_it_has_committed_since() -> None:
    async with alone(MemoryStorage(), lambda: NOW) as broker, connect(broker.address) as client:
        await client.create("t")
        assert await keeping(client, "t", 1) == 0
        groups = broker.core.groups
        await expects_nobody(groups)
        await deleted(client, "t")
        await client.create("t")
        assert await looked(groups, client, NOW) == {}
        assert not groups.topics("g")
        assert await keeping(client, "t", 2) == 0
        assert await looked(groups, client, NOW + 1) == {"t": 2}


async def test_a_commit_on_its_way_to_the_disk_is_not_forgotten_for_the_one_before() -> None:
    now, disk = NOW, GatedStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        groups = broker.core.groups
        for topic in ("t", "left"):
            await client.create(topic)
            assert await keeping(client, topic, 1) == 0
        await expects_nobody(groups)
        now += WEEK_MS + 1
        async with on_its_way(groups, disk, "t", partial(keeping, client, "t", 2)):
            groups.keep_house(now)
        assert await looked(groups, client, now) == {"t": 2}, "the other one has had its time"
        assert not groups.committing("g")


async def test_the_first_commit_to_a_topic_is_not_forgotten_with_all_of_an_old_group() -> None:
    now, disk = NOW, GatedStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        groups = broker.core.groups
        for topic in ("t", "left"):
            await client.create(topic)
        assert await keeping(client, "left", 1) == 0
        await expects_nobody(groups)
        now += WEEK_MS + 1
        async with on_its_way(groups, disk, "t", partial(keeping, client, "t", 2)):
            groups.keep_house(now)
        assert await looked(groups, client, now) == {"t": 2}


async def test_a_commit_of_a_member_on_its_way_is_not_forgotten_for_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To a topic that nobody is subscribed to: who reads it assigns it by itself."""
    monkeypatch.setattr("segbroker.broker.groups.group_upkeep.LOOK_INTO_MS", 0)
    now, disk = NOW, GatedStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        groups = broker.core.groups
        for topic in ("t", "left"):
            await client.create(topic)
        member = WireMember(client, metadata=SUBSCRIBED_TO_T)
        await member.join()
        await member.deal()
        assert await member.commit("left", 1) == 0
        now += WEEK_MS + 1
        async with on_its_way(groups, disk, "left", partial(member.commit, "left", 2)):
            groups.keep_house(now)
        assert await looked(groups, client, now) == {"left": 2}


async def test_what_a_transaction_has_committed_is_not_forgotten_on_its_way_to_the_disk() -> None:
    disk = GatedStorage()
    async with alone(disk, lambda: NOW) as broker, connect(broker.address) as client:
        for topic in ("old", "t"):
            await client.create(topic)
        assert await keeping(client, "old", 1, DAY_MS) == 0
        tx = Tx(client, "tx", V2)
        assert await tx.init() == 0
        assert await tx.stage("g", "t", 5) == 0
        groups = broker.core.groups
        await expects_nobody(groups)
        disk.syncs.clear()

        async def end() -> None:
            assert await tx.end(commit=True) == 0

        entry = broker.core.transactions.table.entries["tx"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            with trio.fail_after(DEADLINE_S):
                while not entry.is_locked:
                    await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()  # it is on its way
            groups.keep_house(NOW + DAY_MS)
            disk.syncs.set()
        assert await looked(groups, client, NOW + DAY_MS) == {"t": 5}


async def test_an_offset_that_a_transaction_is_about_to_replace_stays_until_it_has_ended() -> None:
    async with alone(MemoryStorage(), lambda: NOW) as broker, connect(broker.address) as client:
        for topic in ("t", "other"):
            await client.create(topic)
            assert await keeping(client, topic, 1, DAY_MS) == 0
        tx = Tx(client, "tx", V2)
        assert await tx.init() == 0
        assert await WireMember(client).stage(tx, "t", 5) == 0
        groups = broker.core.groups
        await expects_nobody(groups)
        assert await looked(groups, client, NOW + DAY_MS) == {"t": 1}
        assert await tx.end(commit=False) == 0
        assert await looked(groups, client, NOW + DAY_MS + 1) == {}


async def test_a_look_at_the_offsets_of_many_groups_goes_over_some_thousands_at_a_time() -> None:
    count, each = 30, 200
    async with alone(MemoryStorage(), lambda: NOW) as broker, connect(broker.address) as client:
        await client.create("t", each)
        rows = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=1, committed_metadata=""
            )
            for index in range(each)
        ]
        for number in range(count):
            request = OffsetCommitRequest(
                group_id=f"g{number}",
                member_id="",
                topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
            )
            await client.ask(request, OffsetCommitResponse, 4)
        groups = broker.core.groups
        await expects_nobody(groups)
        left = count
        for _ in range(-(-count * each // OFFSETS_MAX)):
            groups.keep_house(NOW + WEEK_MS + 1)
            await client.create(f"behind-{left}")
            gone, left = left - len(group_names(groups)), len(group_names(groups))
            assert 0 < gone <= OFFSETS_MAX // each
        assert not left


@asynccontextmanager
async def of_thousands(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Groups, WireClient]]:
    """A group that nobody is in, with 2.5 times as many offsets as one look goes over."""
    monkeypatch.setattr(offset_expiry, "AT_ONCE", LOOKED_AT)
    monkeypatch.setattr(group_upkeep, "OFFSETS_MAX", LOOKED_AT)
    count = LOOKED_AT * 5 // 2
    async with alone(MemoryStorage(), lambda: NOW) as broker, connect(broker.address) as client:
        await client.create("t", count)
        rows = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=1, committed_metadata=""
            )
            for index in range(count)
        ]
        topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
        request = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
        await client.ask(request, OffsetCommitResponse, 4)
        await expects_nobody(broker.core.groups)
        yield broker.core.groups, client


async def test_one_group_of_thousands_of_offsets_is_looked_at_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand held the loop for 0.15 s, again and again."""
    looks = 0
    is_over = Expiry.is_over

    def counted(*args: Any) -> bool:  # noqa: ANN401
        nonlocal looks
        looks += 1
        return is_over(*args)

    monkeypatch.setattr(Expiry, "is_over", counted)
    async with of_thousands(monkeypatch) as (groups, client):
        for number in (1, 2, 3):
            assert groups.exists("g")
            before = looks
            groups.keep_house(NOW + WEEK_MS + 1)
            assert 0 < looks - before <= LOOKED_AT
            await client.create(f"behind-{number}")
        assert not groups.exists("g")
        assert looks == LOOKED_AT * 5 // 2


@pytest.mark.parametrize("joins", [False, True])
async def test_what_comes_while_a_group_is_looked_at_stays(
    monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    async with of_thousands(monkeypatch) as (groups, client):
        groups.keep_house(NOW + WEEK_MS + 1)
        if joins:
            await WireMember(client).join()
        else:
            assert await keeping(client, "t", 2) == 0
        for number in (1, 2):
            groups.keep_house(NOW + WEEK_MS + 1)
            await client.create(f"behind-{number}")
        assert groups.exists("g")
        stood = await stands(client, None)
        assert len(stood) == LOOKED_AT * 5 // 2
        assert stood["t", 0] == (1 if joins else 2)


async def test_who_commits_again_and_again_keeps_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look finds the group another one than when it began."""
    async with of_thousands(monkeypatch) as (groups, client):
        assert await keeping(client, "t", 2, 8 * WEEK_MS) == 0
        for number in range(20):
            assert await keeping(client, "t", 3 + number, 8 * WEEK_MS) == 0
            groups.keep_house(NOW + WEEK_MS + 1)
        assert await stands(client, None) == {("t", 0): 22}

"""Committed offsets over the wire: durable, bound to the topic that was meant, refused in words."""

import errno
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.apis import offset_store
from segbroker.broker.apis.offset_store import METADATA_SIZE_MAX
from segbroker.broker.groups import group_offsets
from segbroker.broker.groups.consumer_members import Beat
from segbroker.broker.groups.groups import Groups
from segbroker.broker.loop.loop_clock import monotonic_ms
from segbroker.broker.loop.pace import Pace
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsResponse
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from segbroker.segments.directory.age_clock import JUMP_MS
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.committed import Content, Offsets, offsets_of

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect
from ..support.wire_consumers import commit as commit_as
from ..support.wire_groups import WireMember
from ..support.wire_transactions import until
from .conftest import Events, serving
from .obedient_members import Member


async def commit(
    client: WireClient, topic: str, offset: int, *, partition: int = 0, metadata: str = ""
) -> int:
    """Commit as nobody's member; the error code."""
    row = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    reply = await client.ask(request, OffsetCommitResponse, 7)
    return reply.topics[0].partitions[0].error_code


async def stands(client: WireClient, topic: str | None) -> dict[tuple[str, int], int]:
    """Where the group stands in partition 0 of a topic, or everywhere."""
    asked = topic and [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=asked or None)
    reply = await client.ask(request, OffsetFetchResponse, 5)
    return {
        (row.name, one.partition_index): one.committed_offset
        for row in reply.topics
        for one in row.partitions
    }


async def test_a_commit_that_was_answered_survives_a_power_cut() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        assert await stands(client, "t") == {("t", 0): -1}
        assert await commit(client, "t", 7) == 0
        assert await commit(client, "t", 8) == 0
        image = disk.after_power_cut()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, "t") == {("t", 0): 8}
        assert await stands(client, None) == {("t", 0): 8}


async def test_a_commit_that_was_refused_is_gone_for_good_once_its_group_is_not_there() -> None:
    """It may be on the disk: a group that was deleted to begin anew would go on from it."""
    disk = GatedStorage()
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    offsets = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=rows)]
    )

    async def deleted(client: WireClient) -> set[int]:
        group = DeleteGroupsRequest(groups_names=["g"])
        of_group = await client.ask(group, DeleteGroupsResponse, 2)
        of_offsets = await client.ask(offsets, OffsetDeleteResponse, 0)
        return {of_group.results[0].error_code, of_offsets.error_code}

    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        disk.sync_error = OSError(errno.EIO, "planted")
        assert await commit(client, "t", 7) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await deleted(client) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        disk.sync_error = None
        assert await deleted(client) == {ErrorCode.GROUP_ID_NOT_FOUND}
        image = disk.after_kill()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, None) == {}


async def test_a_commit_of_many_partitions_with_long_metadata_can_be_read_back() -> None:
    """Were it one event, it would be larger than a start takes, and nothing would be opened."""
    disk = MemoryStorage()
    topic, partitions = "t" * 200, 300
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        assert partitions * METADATA_SIZE_MAX > broker.core.topics.manager.event_size_max
        await client.create(topic, partitions)
        rows = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=7,
                committed_metadata="m" * METADATA_SIZE_MAX,
            )
            for partition in range(partitions)
        ]
        request = OffsetCommitRequest(
            group_id="g",
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        reply = await client.ask(request, OffsetCommitResponse, 7)
        assert {row.error_code for row in reply.topics[0].partitions} == {0}
        image = disk.after_kill()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, topic) == {(topic, 0): 7}


async def test_offsets_of_a_topic_with_a_long_name_are_deleted_however_many_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were it one event, it would be larger than a start takes, and nothing would go."""
    topic, partitions = "t" * 200, 300
    async with serving() as broker, connect(broker.address) as client:
        await client.create(topic, partitions)
        monkeypatch.setattr("segbroker.segments.metadata.metadata_log.EVENT_SIZE_MAX", 20_000)
        assert partitions * len(topic) > broker.core.topics.manager.event_size_max
        for partition in range(partitions):
            assert await commit(client, topic, 7, partition=partition) == 0
        rows = [OffsetDeleteRequestPartition(partition_index=one) for one in range(partitions)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=rows)]
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        reply = await client.ask(request, OffsetDeleteResponse, 0)
        assert {row.error_code for row in reply.topics[0].partitions} == {0}
        assert await stands(client, None) == {}


@pytest.mark.parametrize("was_joined", [False, True])
async def test_a_group_whose_last_offset_was_deleted_is_there_to_be_deleted(
    was_joined: bool, events: Events
) -> None:
    """As in Kafka: scripts that clean up delete the offsets of a topic, and then the group.  Who
    did is in the log."""
    async with (
        serving(group_kept_empty_ms=60_000) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        if was_joined:
            member = WireMember(client, "g")
            assert (await member.join()).error_code == 0
            await member.leave()
            group = broker.core.groups.get("g")
            assert group is not None
            group.empty_since_ms = 1  # long ago
        assert await commit(client, "t", 7) == 0
        rows = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=rows)]
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        for _ in ("once", "again"):
            reply = await client.ask(request, OffsetDeleteResponse, 0)
            assert reply.error_code == 0
            assert [one.error_code for one in reply.topics[0].partitions] == [0]
            broker.core.groups.keep_house(None)
        described = await client.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 5)
        assert [(one.error_code, one.group_state) for one in described.groups] == [(0, "Empty")]
        delete = DeleteGroupsRequest(groups_names=["g"])
        for code in (0, ErrorCode.GROUP_ID_NOT_FOUND):
            deleted = await client.ask(delete, DeleteGroupsResponse, 2)
            assert deleted.results[0].error_code == code
    asked = {"asked_by": "User:ANONYMOUS", "asked_from": "127.0.0.1", "level": "info"}
    told = {"event": "group_offsets_deleted", "group": "g", "topics": "t", **asked}
    assert events.named("group_offsets_deleted") == [told]  # once
    assert events.named("group_deleted") == [{"event": "group_deleted", "group": "g", **asked}]


@pytest.mark.parametrize(
    ("group", "code"), [("", ErrorCode.INVALID_GROUP_ID), ("x", ErrorCode.GROUP_ID_NOT_FOUND)]
)
async def test_offsets_of_no_group_are_not_deleted(group: str, code: ErrorCode) -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = OffsetDeleteRequest(group_id=group, topics=[])
        assert (await client.ask(request, OffsetDeleteResponse, 0)).error_code == code


async def test_a_recreated_topic_has_no_committed_offsets() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for name, offset in (("t", 7), ("u", 8)):
            await client.create(name)
            await commit(client, name, offset)
        await client.ask(
            DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), DeleteTopicsResponse, 4
        )
        assert await stands(client, "t") == {("t", 0): -1}
        assert await stands(client, None) == {("u", 0): 8}
        await client.create("t")
        assert await stands(client, "t") == {("t", 0): -1}
        assert await stands(client, None) == {("u", 0): 8}
        await commit(client, "t", 3)
        assert await stands(client, "t") == {("t", 0): 3}


async def test_a_large_commit_of_a_topic_that_is_recreated_meanwhile_takes_no_offset_of_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    ]
    topics = [OffsetCommitRequestTopic(name=name, partitions=rows) for name in ("t", "u")]
    nowhere = [OffsetCommitRequestTopic(name=f"{n:05}", partitions=rows) for n in range(4_000)]
    large = OffsetCommitRequest(group_id="g", member_id="", topics=topics + nowhere)
    is_looked_up, goes_on = trio.Event(), trio.Event()

    class Meanwhile(Pace):
        async def step(self) -> None:
            is_looked_up.set()
            await goes_on.wait()

    async with (
        serving() as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
        trio.open_nursery() as nursery,
    ):
        await client.create("t")
        await client.create("u")
        monkeypatch.setattr(offset_store, "Pace", Meanwhile)
        answers: list[OffsetCommitResponse] = []
        is_answered = trio.Event()

        async def commit_large() -> None:
            answers.append(await other.ask(large, OffsetCommitResponse, 7))
            is_answered.set()

        nursery.start_soon(commit_large)
        await is_looked_up.wait()
        monkeypatch.setattr(offset_store, "Pace", Pace)
        await client.ask(
            DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), DeleteTopicsResponse, 4
        )
        await client.create("t")
        assert await commit(client, "t", 3) == 0
        goes_on.set()
        await is_answered.wait()
        assert await stands(client, "t") == {("t", 0): 3}
        assert await stands(client, "u") == {("u", 0): 7}
        codes = {row.name: row.partitions[0].error_code for row in answers[0].topics[:2]}
        assert codes == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "u": ErrorCode.NONE}


async def test_what_cannot_be_committed_is_refused_by_name() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        assert await commit(client, "nope", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(client, "t", 1, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        long = await commit(client, "t", 1, metadata="m" * 4097)
        assert long == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await stands(client, "t") == {("t", 0): -1}
        deleting = DeleteGroupsRequest(groups_names=["g"])
        reply = await client.ask(deleting, DeleteGroupsResponse, 2)
        assert reply.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND, "no group was made"


async def test_what_is_not_there_is_said_also_to_who_may_not_commit() -> None:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=1, committed_metadata=None
        )
        for partition in (0, 9)
    ]
    topics = [OffsetCommitRequestTopic(name=name, partitions=rows) for name in ("t", "nope")]
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=3, member_id="nobody", topics=topics
    )
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await client.ask(request, OffsetCommitResponse, 7)
        codes = [[row.error_code for row in topic.partitions] for topic in reply.topics]
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [[ErrorCode.UNKNOWN_MEMBER_ID, gone], [gone, gone]]


async def test_metadata_is_measured_in_characters_of_java_not_in_bytes() -> None:
    # U+00DF is two bytes and one unit of UTF-16; U+1F600 four bytes and two units.
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        assert await commit(client, "t", 1, metadata="\N{LATIN SMALL LETTER SHARP S}" * 4096) == 0
        assert await commit(client, "t", 2, metadata="\N{GRINNING FACE}" * 2048) == 0
        for long in ("\N{LATIN SMALL LETTER SHARP S}" * 4097, "\N{GRINNING FACE}" * 2049):
            code = await commit(client, "t", 3, metadata=long)
            assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await stands(client, "t") == {("t", 0): 2}


async def test_a_deleted_group_is_gone_after_a_power_cut_too() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await commit(client, "t", 7)
        reply = await client.ask(
            DeleteGroupsRequest(groups_names=["g", "nope"]), DeleteGroupsResponse, 1
        )
        assert [row.error_code for row in reply.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        image = disk.after_power_cut()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, None) == {}


async def test_who_joins_while_the_group_is_deleted_is_a_member_of_it() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await commit(client, "t", 7)
        groups = broker.core.groups
        deletion = DeleteGroupsRequest(groups_names=["g"])
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask, deletion, DeleteGroupsResponse, 1)
            await wait_all_tasks_blocked(0.05)  # until the deletion is durable
            joins = Beat("m", 0, rebalance_timeout_ms=1_000, names=frozenset())
            group = groups.obtain_consumer("g")
            group.heartbeat(monotonic_ms(), joins, {})
            groups.install(group)
            disk.syncs.set()
        assert await stands(client, None) == {}
        assert groups.members_count("g") == 1


async def test_a_group_that_is_deleted_while_its_last_offset_is_does_not_come_back() -> None:
    """Both wait for the same sync, so either may hear of it first."""
    disk = GatedStorage()
    deletion = DeleteGroupsRequest(groups_names=["g"])
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=rows)]
    forgetting = OffsetDeleteRequest(group_id="g", topics=topics)
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
    ):
        await client.create("t")
        for _ in range(10):
            assert await commit(client, "t", 7) == 0
            disk.syncs.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.ask, deletion, DeleteGroupsResponse, 1)
                nursery.start_soon(other.ask, forgetting, OffsetDeleteResponse, 0)
                await wait_all_tasks_blocked(0.05)  # until both are durable
                disk.syncs.set()
            again = await client.ask(deletion, DeleteGroupsResponse, 1)
            assert again.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_of_a_group_without_members_expire() -> None:
    now = 1_700_000_000_000
    async with (
        serving(
            now_ms=lambda: now,
            offsets_retention_minutes=1,
            group_min_session_timeout_ms=1,
            group_max_session_timeout_ms=1,
        ) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await commit(client, "t", 7)
        groups = broker.core.groups
        await trio.sleep(0.01)  # longer than the longest session
        groups.keep_house(now + 59_000)
        assert await stands(client, None) == {("t", 0): 7}
        groups.keep_house(now + 61_000)
        while groups.exists("g"):
            await stands(client, None)


DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS


def alone(
    disk: MemoryStorage, now_ms: Callable[[], int], **keys: int
) -> AbstractAsyncContextManager[Broker]:
    """A broker whose house is kept by the test alone, on a disk."""
    return serving(
        storage=disk,
        now_ms=now_ms,
        housekeeping_interval_ms=3_600_000,
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=1,
        express=True,
        clock=None,
        **keys,
    )


async def expects_nobody(groups: Groups) -> None:
    """Whoever was a member before the start has had its time to join again."""
    groups.reconfigure(replace(groups.config, group_max_session_timeout_ms=1))
    await trio.sleep(0.01)  # longer than the longest session


async def forgotten(groups: Groups, client: WireClient, now_ms: int) -> None:
    """Return when the group's offsets are gone."""
    with trio.fail_after(60):
        while groups.exists("g"):
            groups.keep_house(now_ms)
            await stands(client, None)


async def go_after_a_week(groups: Groups, client: WireClient, now_ms: int) -> None:
    """After a start the offset is there for a week from `now_ms` on, and no longer."""
    await expects_nobody(groups)
    assert not groups.members_count("g")
    groups.keep_house(now_ms + WEEK_MS - 60_000)
    await client.create("further")
    assert await stands(client, "t") == {("t", 0): 3}
    await forgotten(groups, client, now_ms + WEEK_MS + 60_000)


async def _with_an_offset(client: WireClient, kind: str) -> WireMember | Member:
    """A member that has committed 3 to t."""
    await client.create("t")
    if kind == "consumer":
        member = Member(client, "m")
        await member.join()
        assert await commit_as(client, "m", member.epoch) == 0
        return member
    classic = WireMember(client)
    await classic.join()
    await classic.deal()
    assert await classic.commit("t", 3) == 0
    return classic


@pytest.mark.parametrize("is_lost", [False, True], ids=["left", "not heard of"])
@pytest.mark.parametrize("kind", ["classic", "consumer"])
@pytest.mark.parametrize("ended", [MemoryStorage.after_kill, MemoryStorage.after_power_cut, None])
async def test_a_group_that_had_nothing_to_commit_keeps_its_offsets_for_as_long_after_its_end(
    ended: Callable[[MemoryStorage], MemoryStorage] | None, kind: str, is_lost: bool
) -> None:
    """Without a round of housekeeping between its end and the broker's."""
    now = 1_700_000_000_000
    image = disk = MemoryStorage()
    async with (
        alone(disk, lambda: now) as broker,
        connect(broker.address) as client,
    ):
        member = await _with_an_offset(client, kind)
        now += 3 * WEEK_MS  # nothing came, so there was nothing to commit
        groups = broker.core.groups
        group = groups.get("g") or groups.get_consumer("g")
        assert group is not None
        if is_lost:
            group.tick(monotonic_ms() + DAY_MS)
            groups.changed(group)
        else:
            assert await member.leave() == 0
        if ended is not None:
            await client.create("behind")  # durable, and with it what was written down before
            image = ended(disk)
    async with (
        alone(image, lambda: now) as broker,
        connect(broker.address) as client,
    ):
        groups = broker.core.groups
        await go_after_a_week(groups, client, now)
        written = broker.core.topics.manager.section

        def is_known() -> bool:
            return groups.exists("g") or any(
                (written(name) or {}) for name in ("emptied", "generations", "consumer_groups")
            )

        while is_known():
            groups.keep_house(now + WEEK_MS + 60_000)
            await stands(client, None)


async def test_offsets_of_an_old_group_stay_until_who_was_in_it_had_time_to_join_again() -> None:
    now, disk = 1_700_000_000_000, MemoryStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        member = await _with_an_offset(client, "classic")
        assert await member.leave() == 0
        await client.create("before")  # durable, and with it what was written down before
        image = disk.after_kill()
    now += 3 * WEEK_MS
    async with alone(image, lambda: now) as broker, connect(broker.address) as client:
        broker.core.groups.keep_house(now)
        await client.create("behind")
        assert await stands(client, "t") == {("t", 0): 3}
        await expects_nobody(broker.core.groups)
        await forgotten(broker.core.groups, client, now)


def ends(broker: Broker) -> dict[str, int]:
    """When groups lost their last members, as far as that is written down."""
    return dict(broker.core.topics.manager.section("emptied") or {})


@pytest.mark.parametrize(("passed_ms", "is_written"), [(60_000, False), (60_001, True)])
@pytest.mark.parametrize("kind", ["classic", "consumer"])
async def test_the_end_of_a_group_is_written_down_where_its_last_commit_is_a_minute_older(
    kind: str, passed_ms: int, *, is_written: bool
) -> None:
    """Most commit when they go: of these nothing is."""
    now = 1_700_000_000_000
    async with alone(MemoryStorage(), lambda: now) as broker, connect(broker.address) as client:
        member = await _with_an_offset(client, kind)
        now += passed_ms
        assert await member.leave() == 0
        await client.create("behind")
        assert ends(broker) == ({"g": now} if is_written else {})


@pytest.mark.parametrize("kind", ["classic", "consumer"])
async def test_the_end_of_a_group_that_could_not_be_written_down_is_later(
    kind: str, events: Events
) -> None:
    now, disk = 1_700_000_000_000, GatedStorage()
    async with (
        serving(
            storage=disk,
            now_ms=lambda: now,
            housekeeping_interval_ms=20,
            group_initial_rebalance_delay_ms=0,
        ) as broker,
        connect(broker.address) as client,
    ):
        member = await _with_an_offset(client, kind)
        now += 3 * WEEK_MS
        disk.sync_error = OSError(errno.EIO, "no sync")
        await member.leave()

        async def is_told() -> bool:
            return bool(events.named("group_end_not_recorded"))

        await until(is_told)
        assert not ends(broker)
        disk.sync_error = None
        section = {"classic": "generations", "consumer": "consumer_groups"}[kind]

        async def is_written() -> bool:
            nonlocal now
            now += 100  # a WAL that failed twice pauses, by this clock
            rows = broker.core.topics.manager.section(section) or {}
            return "g" in ends(broker) and not (rows["g"].get("members") or rows["g"].get("says"))

        await until(is_written)
        image = disk.after_kill()
    async with alone(image, lambda: now) as broker, connect(broker.address) as client:
        await go_after_a_week(broker.core.groups, client, now)


async def test_the_end_of_a_group_without_offsets_is_not_written_down() -> None:
    async with (
        alone(MemoryStorage(), lambda: 1_700_000_000_000) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        member = Member(client, "m")
        await member.join()
        assert await member.leave() == 0
        await client.create("behind")
        assert not ends(broker)


async def test_the_end_of_a_group_is_not_written_down_by_a_clock_that_jumped_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its offsets would be kept until that time has come."""
    now, asked_count = 1_700_000_000_000, 0

    def clock() -> int:
        nonlocal asked_count
        asked_count += 1
        return now

    async def rounds_passed() -> bool:
        return asked_count >= 20

    monkeypatch.setattr("segbroker.broker.chores.wall_ms", clock)  # nobody sets it on purpose
    async with (
        serving(
            now_ms=clock, housekeeping_interval_ms=10, group_initial_rebalance_delay_ms=0
        ) as broker,
        connect(broker.address) as client,
    ):
        member = await _with_an_offset(client, "classic")
        asked_count = 0
        await until(rounds_passed)
        now += 2 * JUMP_MS
        asked_count = 0
        await until(rounds_passed)
        assert not broker.core.topics.manager.believes_clock
        assert await member.leave() == 0
        await client.create("behind")
        assert not ends(broker)
        now -= 2 * JUMP_MS - 300_000

        async def is_written() -> bool:
            return "g" in ends(broker)

        await until(is_written)


@pytest.mark.parametrize("is_member", [False, True], ids=["nobody was in it", "emptied"])
async def test_a_start_does_not_make_the_end_of_a_group_any_later(is_member: bool) -> None:
    now, disk = 1_700_000_000_000, MemoryStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        if is_member:
            member = await _with_an_offset(client, "classic")
            now += 3 * WEEK_MS
            assert await member.leave() == 0
        else:
            await client.create("t")
            await commit(client, "t", 3)
        await client.create("before")  # durable, and with it what was written down before
        image = disk.after_power_cut()
    now += WEEK_MS - 60_000
    async with alone(image, lambda: now) as broker, connect(broker.address) as client:
        await expects_nobody(broker.core.groups)
        broker.core.groups.keep_house(now)
        await client.create("behind")
        assert await stands(client, "t") == {("t", 0): 3}
        image = image.after_power_cut()
    now += 120_000
    async with alone(image, lambda: now) as broker, connect(broker.address) as client:
        await expects_nobody(broker.core.groups)
        await forgotten(broker.core.groups, client, now)


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "behind the longest session"])
async def test_offsets_of_members_that_a_start_does_not_bring_back_count_from_that_start(
    *, is_late: bool
) -> None:
    now, disk = 1_700_000_000_000, MemoryStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        await _with_an_offset(client, "classic")
        other = WireMember(client, group="a")
        await other.join()
        await other.deal()
        image = disk.after_kill()
    now += 3 * WEEK_MS
    async with alone(image, lambda: now, groups_max=1) as broker, connect(broker.address) as client:
        if is_late:  # its disk had failed until then
            await expects_nobody(broker.core.groups)
        broker.core.groups.keep_house(now)
        await go_after_a_week(broker.core.groups, client, now)


async def test_offsets_of_more_members_than_are_written_down_count_from_when_they_were_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.broker.groups.group_upkeep.LOOK_INTO_MS", 0)
    monkeypatch.setattr("segbroker.broker.groups.kept_sizes.ALL_SIZES_MAX", 100)
    now, disk = 1_700_000_000_000, MemoryStorage()
    async with alone(disk, lambda: now) as broker, connect(broker.address) as client:
        await _with_an_offset(client, "classic")
        now += 3 * WEEK_MS
        broker.core.groups.keep_house(now)
        await client.create("behind")
        image = disk.after_power_cut()
    async with alone(image, lambda: now) as broker, connect(broker.address) as client:
        await go_after_a_week(broker.core.groups, client, now)


SUBSCRIBED_TO_T = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff" + b"\0\0\0\0"


@pytest.mark.parametrize(
    ("says", "kind", "is_deal_done", "is_left"),
    [
        (SUBSCRIBED_TO_T, "consumer", True, {("t", 0): 7}),
        (SUBSCRIBED_TO_T, "consumer", False, {("t", 0): 7, ("left", 0): 8}),
        (b"no subscription", "consumer", True, {("t", 0): 7, ("left", 0): 8}),
        (SUBSCRIBED_TO_T, "connect", True, {("t", 0): 7, ("left", 0): 8}),
    ],
    ids=["stable", "in a rebalance", "in other words", "of another kind"],
)
async def test_a_group_with_members_keeps_no_offsets_of_topics_that_it_left_long_ago(
    monkeypatch: pytest.MonkeyPatch,
    says: bytes,
    kind: str,
    is_deal_done: bool,
    is_left: dict[tuple[str, int], int],
) -> None:
    monkeypatch.setattr("segbroker.broker.groups.group_upkeep.LOOK_INTO_MS", 0)
    day_ms, now = 24 * 3600 * 1000, 1_700_000_000_000
    async with (
        serving(now_ms=lambda: now, group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        for topic in ("t", "left"):
            await client.create(topic)
        member = WireMember(client, metadata=says, kind=kind)
        await member.join()
        await member.deal()
        assert await member.commit("t", 7) == 0
        assert await member.commit("left", 8) == 0
        if not is_deal_done:
            await member.join()
        groups = broker.core.groups
        both = {("t", 0): 7, ("left", 0): 8}
        groups.keep_house(now + 7 * day_ms - 1)
        await client.create("after-the-first-look")
        assert await stands(client, None) == both
        groups.keep_house(now + 7 * day_ms + 1)
        await client.create("after-the-second-look")
        assert await stands(client, None) == is_left


async def test_all_offsets_of_a_group_are_looked_up_with_other_requests_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = [0]

    class Counting(Pace):
        async def step(self) -> None:
            looked.append(0)
            await super().step()

    def counted(content: Content, *of: Any) -> Offsets:  # noqa: ANN401
        looked[-1] += 1
        return offsets_of(content, *of)

    async with serving() as broker, connect(broker.address) as client:
        for n in range(20):
            await client.create(f"t{n}")
            assert await commit(client, f"t{n}", 1) == 0
        monkeypatch.setattr(offset_store, "Pace", Counting)
        monkeypatch.setattr(group_offsets, "offsets_of", counted)
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        reply = await client.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, 8)
        assert len(reply.groups[0].topics) == 20
    assert sum(looked) == 20
    assert max(looked) == 1, "of a topic, which may have thousands of partitions"

"""Share groups that are put elsewhere while somebody fetches who is no member any more, in more
partitions than an event has room for, and where the metadata of the broker is full."""

from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.shares import share_events
from segbroker.broker.shares.reply_budget import REPLIES_BYTES_MAX
from segbroker.broker.shares.shares import LOCKS_WHERE_FULL
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import OffsetCommitResponse
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata import metadata
from segbroker.segments.metadata.metadata_log import MetadataLog

from ..support.gated_storage import GatedStorage
from ..support.wire_client import Closed, WireClient, connect
from ..support.wire_groups import commit_of
from ..support.wire_shares import ACCEPT, Given, Sharing, set_on_group, topic_id
from .conftest import serving
from .group_names import group_names
from .restarts import broker_on
from .test_share_offset_apis import all_of, codes, forget, put, stands

GROUP = "g"
COUNT = 10
WAIT_MS = 20_000


async def begun(client: WireClient) -> Sharing:
    """Somebody without heartbeats, in a group that begins at the beginning of ten records."""
    await client.create("t", retention_ms="-1")
    for n in range(COUNT):
        await client.produce("t", b"%d" % n)
    await set_on_group(client, GROUP, share_auto_offset_reset="earliest")
    return Sharing(client, GROUP, await topic_id(client, "t"))


async def fetched_meanwhile(
    disk: GatedStorage, member: Sharing, move: Callable[[], Awaitable[object]], *asked: int
) -> list[Given]:
    """What a member is given that asks while its group is moved, which is not durable yet."""
    disk.syncs.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(move)
        await wait_all_tasks_blocked(0.05)
        await member.begin(*asked, wait_ms=WAIT_MS)
        await wait_all_tasks_blocked(0.05)
        disk.syncs.set()
    return await member.end()


def offsets(given: list[Given]) -> list[int]:
    return [one.offset for one in given]


async def test_who_fetches_while_its_group_is_moved_is_given_nothing_of_before() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, (client, other)):
        member = await begun(client)
        assert offsets(await member.fetch(0, max_records=4)) == [0, 1, 2, 3]
        assert (await member.say({0: [(0, 3, [ACCEPT])]}))[1] == {0: 0}

        async def move() -> None:
            assert codes(await put(other, GROUP, {("t", 0): 8})) == [0]

        assert offsets(await fetched_meanwhile(disk, member, move)) == [8, 9]
        assert (await member.say({0: [(8, 8, [ACCEPT])]}))[1] == {0: 0}
        assert await stands(other, all_of(GROUP)) == {("t", 0): (0, 9, 1)}
    async with broker_on(disk) as (_, (client,)):
        assert await stands(client, all_of(GROUP)) == {("t", 0): (0, 9, 1)}


async def test_who_fetches_while_its_group_forgets_begins_anew() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, (client, other)):
        member = await begun(client)
        await member.fetch(0, max_records=4)
        await member.say({0: [(0, 3, [ACCEPT])]})

        async def move() -> None:
            (row,) = (await forget(other, GROUP, "t")).responses
            assert row.error_code == 0

        assert offsets(await fetched_meanwhile(disk, member, move)) == list(range(COUNT))
        assert await stands(other, all_of(GROUP)) == {("t", 0): (0, 0, COUNT)}


@pytest.mark.parametrize("what", [put, forget])
async def test_a_group_that_there_was_no_memory_to_move_is_served_where_it_was(
    what: Callable[..., Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs_out(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    async with broker_on(GatedStorage(), 2) as (_, (client, other)):
        member = await begun(client)
        assert len(await member.fetch(0, max_records=4)) == 4
        assert (await member.say({0: [(0, 3, [ACCEPT])]}))[1] == {0: 0}
        monkeypatch.setattr(share_events, "pieces", runs_out)
        with pytest.raises(Closed):
            await what(other, GROUP, {("t", 0): 8} if what is put else "t")
        with trio.fail_after(60):
            assert offsets(await member.fetch(0)) == [4, 5, 6, 7, 8, 9]


async def test_a_group_that_begins_while_it_is_put_somewhere_begins_there() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (_, (client, other)):
        member = await begun(client)
        disk.syncs.clear()
        await member.begin(0, wait_ms=WAIT_MS)
        await wait_all_tasks_blocked(0.05)  # until its beginning is durable
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, other, GROUP, {("t", 0): 7})
            await wait_all_tasks_blocked(0.05)
            disk.syncs.set()
        assert offsets(await member.end()) == [7, 8, 9]
        assert await stands(other, all_of(GROUP)) == {("t", 0): (0, 7, 3)}


async def test_no_other_group_gets_the_name_of_one_that_is_put_somewhere() -> None:
    disk = GatedStorage()
    async with broker_on(disk, 2) as (broker, (client, other)):
        await client.create("t")
        committing = commit_of(0)
        committing.group_id = GROUP
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, client, GROUP, {("t", 0): 7})
            await wait_all_tasks_blocked(0.05)
            await other.send(committing, 8)
            await wait_all_tasks_blocked(0.05)
            disk.syncs.set()
        _, reply = await other.receive(OffsetCommitResponse, 8)
        assert reply.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await stands(client, all_of(GROUP)) == {("t", 0): (0, 7, 0)}
        assert GROUP not in broker.core.topics.manager.committed


async def test_no_other_group_gets_the_name_of_one_that_begins() -> None:
    """Nobody has joined it: a name for which there is nothing yet."""
    disk = GatedStorage()
    async with broker_on(disk, 2) as (broker, (client, other)):
        member = await begun(client)
        committing = commit_of(0)
        committing.group_id = GROUP
        disk.syncs.clear()
        await member.begin(0, wait_ms=WAIT_MS)
        await wait_all_tasks_blocked(0.05)
        await other.send(committing, 8)
        await wait_all_tasks_blocked(0.05)
        disk.syncs.set()
        _, reply = await other.receive(OffsetCommitResponse, 8)
        assert reply.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert len(await member.end()) == COUNT
        assert GROUP not in broker.core.topics.manager.committed


async def test_a_group_that_is_put_nowhere_is_none() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes(await put(client, GROUP, {("t", 9): 0})) == [unknown]
        assert group_names(broker.core.groups) == set()


async def test_more_than_an_event_has_room_for_is_moved_acknowledged_and_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thirty topics whose names alone do not fit one event, and as many partitions of one."""
    size_max = 2_000
    names = [str(n).ljust(200, "x") for n in range(30)]
    async with serving() as broker, connect(broker.address) as client:
        for name in names:
            await client.create(name)
        await client.create("t", partitions=len(names))
        for partition in range(len(names)):
            await client.produce("t", b"a", b"b", b"c", partition=partition)
        monkeypatch.setattr(MetadataLog, "event_size_max", property(lambda log: size_max))
        manager: DiskManager = broker.core.topics.manager
        assert manager.event_size_max == size_max
        places = {(name, 0): 0 for name in names} | {("t", n): 0 for n in range(len(names))}
        assert codes(await put(client, GROUP, places)) == [0] * len(places)

        member = Sharing(client, GROUP, await topic_id(client, "t"))
        given = await member.fetch(*range(len(names)), max_bytes=1 << 20)
        assert len(given) == 3 * len(names)
        said = {partition: [(0, 0, [ACCEPT]), (2, 2, [ACCEPT])] for partition in range(len(names))}
        assert (await member.say(said))[1] == dict.fromkeys(said, 0)
        found = await stands(client, all_of(GROUP))
        assert {found["t", n] for n in range(len(names))} == {(0, 1, 1)}

        gone = (await forget(client, GROUP, *names)).responses
        assert [row.error_code for row in gone] == [0] * len(names)
        assert {topic for topic, _ in await stands(client, all_of(GROUP))} == {"t"}


async def test_a_group_that_is_put_behind_the_end_waits_for_that_record() -> None:
    async with serving() as broker, connect(broker.address) as client:
        member = await begun(client)
        assert codes(await put(client, GROUP, {("t", 0): COUNT + 2})) == [0]
        assert await stands(client, all_of(GROUP)) == {("t", 0): (0, COUNT + 2, 0)}
        assert await member.fetch(0) == []
        for n in range(4):
            await client.produce("t", b"%d" % n)
        assert offsets(await member.fetch(wait_ms=WAIT_MS)) == [COUNT + 2, COUNT + 3]
        assert await stands(client, all_of(GROUP)) == {("t", 0): (0, COUNT + 2, 2)}


async def test_a_group_that_is_put_in_front_of_the_start_begins_at_the_start() -> None:
    async with serving() as broker, connect(broker.address) as client:
        member = await begun(client)
        partition = broker.core.topics.served_partition("t", 0)
        assert partition is not None
        partition.handler.delete_records_before(6)
        assert codes(await put(client, GROUP, {("t", 0): 2})) == [0]
        assert await stands(client, all_of(GROUP)) == {("t", 0): (0, 2, 4)}, "what is deleted"
        assert offsets(await member.fetch(0)) == [6, 7, 8, 9]
        assert await stands(client, all_of(GROUP)) == {("t", 0): (0, 6, 4)}


async def test_where_the_metadata_is_full_groups_go_on_with_few_records_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        member = await begun(client)
        for n in range(40):
            await client.produce("t", b"%d" % n)
        assert offsets(await member.fetch(0, max_records=1)) == [0]
        # As the newest snapshot says: a broker saves one every minute.
        broker.core.topics.manager.keep_house_now(broker.core.now_ms() + 120_000)
        monkeypatch.setattr(metadata, "SNAPSHOT_SIZE_FULL", 1)
        assert offsets(await member.fetch()) == list(range(1, LOCKS_WHERE_FULL))
        assert await member.fetch() == []
        said = {0: [(0, LOCKS_WHERE_FULL - 1, [ACCEPT])]}
        more = range(LOCKS_WHERE_FULL, 2 * LOCKS_WHERE_FULL)
        assert offsets(await member.fetch(said=said, wait_ms=WAIT_MS)) == list(more)

        other = Sharing(client, "other", member.topic)
        assert await other.fetch(0) == []
        assert other.rows[0].error_code == ErrorCode.POLICY_VIOLATION
        monkeypatch.undo()
        assert offsets(await member.fetch()) == list(range(more.stop, COUNT + 40))


async def test_where_too_much_is_on_its_way_who_asks_waits_until_some_was_sent() -> None:
    async with serving() as broker, connect(broker.address) as client:
        member = await begun(client)
        host, replies = client.stream.socket.getsockname()[0], broker.core.shares.reply_budget
        replies.add(host, REPLIES_BYTES_MAX // 2)
        assert await member.fetch(0) == []
        await member.begin(wait_ms=600_000)
        await wait_all_tasks_blocked(0.05)
        replies.left(host, REPLIES_BYTES_MAX // 2)
        with trio.fail_after(60):  # not when its own time is over
            assert offsets(await member.end()) == list(range(COUNT))

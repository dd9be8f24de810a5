"""What thousands wait for at once is told, and done, some at a time: others have their turn."""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.apis import later_reply
from segbroker.broker.fetching.fetch_plan import PlannedRead
from segbroker.broker.fetching.fetch_reply import FetchReply
from segbroker.broker.groups import all_names, group_upkeep
from segbroker.broker.loop import pace
from segbroker.broker.loop.callbacks import Callbacks
from segbroker.broker.loop.pool import Lease
from segbroker.broker.loop.turn import WOKEN_AT_ONCE
from segbroker.broker.partitions.partition import Partition
from segbroker.broker.share_fetching.share_fetch import _ShareFetching
from segbroker.broker.transactions.ledger import Ledger
from segbroker.broker.transactions.transaction_table import Entry
from segbroker.broker.transactions.transaction_upkeep import ABORTS_AT_ONCE
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from segbroker.protocol.messages_share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.name_map import NameMap
from segbroker.segments.metadata.transactions import Transaction
from segbroker.segments.wal.frames import Frame, FrameType
from segbroker.segments.wal.group import TOLD_AT_ONCE, Group, Request

from ..support.steps import calls_of_a_step
from ..support.waiting import becomes
from ..support.wire_client import batch, connect
from ..support.wire_consumers import beat, described, joining, read_by
from ..support.wire_shares import ACCEPT, RELEASE, Sharing, set_on_group, topic_id
from ..support.wire_transactions import NOW_MS, V1, Tx
from .conftest import NOT_BY_ITSELF_MS, Events, serving
from .group_names import group_names

LATE = ABORTS_AT_ONCE * 5 // 2


async def test_of_transactions_that_are_late_some_are_aborted_at_a_time(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """After a start the time of ten thousand may be over at the same moment."""
    abort = Ledger.abort
    running = most = 0

    async def counted(self: Ledger, entry: Entry, meant: Transaction) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await abort(self, entry, meant)
        running -= 1

    monkeypatch.setattr(Ledger, "abort", counted)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for number in range(LATE):
            tx = Tx(client, f"x-{number}", V1)
            assert await tx.init() == 0
            assert await tx.add("t", 0) == [0]
        table = broker.core.transactions.table
        assert len(table.open) == LATE
        for entry in table.open.values():
            entry.deadline_ms = 0
        broker.core.transaction_upkeep.keep_house(NOW_MS)
        await becomes(lambda: not table.open)
    assert most == ABORTS_AT_ONCE
    named = [event["transactional_id"] for event in events.named("transaction_timed_out")]
    assert len(set(named)) == len(named) == LATE


async def test_transactional_ids_are_taken_up_at_a_start_with_others_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Probes ask on the health page meanwhile."""
    ids = 300
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        for number in range(ids):
            tx = Tx(client, f"x-{number}", V1)
            assert await tx.init() == 0
            assert await tx.add("t", 0) == [0]
    monkeypatch.setattr(pace, "STEP_S", -1.0)

    async def start() -> None:
        async with serving(storage=disk) as broker:
            assert len(broker.core.transactions.table.entries) == ids

    assert await calls_of_a_step(start) < 10 * ids


async def test_groups_are_taken_up_at_a_start_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be thousands, and thousands of partitions in each."""
    groups, partitions = 40, 100
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions)
        for number in range(groups):
            await beat(client, joining(group_id=f"g-{number}"))
    monkeypatch.setattr(pace, "STEP_S", -1.0)

    async def start() -> None:
        async with serving(storage=disk) as broker:
            assert len(group_names(broker.core.groups)) == groups

    calls = await calls_of_a_step(start)
    assert calls < groups * partitions


class _Names(trio.abc.Instrument):
    """How many names of groups are looked at in one step of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.most = 0
        real = NameMap.__iter__

        def counted(names: NameMap[object]) -> Iterator[str]:
            for name in real(names):
                self.count += 1
                yield name

        monkeypatch.setattr(NameMap, "__iter__", counted)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most = max(self.most, self.count)


async def test_groups_are_listed_and_looked_after_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be a hundred thousand: their names in one set, or in order, are a tenth of a
    second."""
    count, some = 500, 10
    monkeypatch.setattr(pace, "STEP_S", -1.0)
    monkeypatch.setattr(all_names, "SORTED_AT_ONCE", some)
    monkeypatch.setattr(group_upkeep, "VISITS_MAX", some)
    async with (
        serving(housekeeping_interval_ms=NOT_BY_ITSELF_MS) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        rows = [
            OffsetCommitRequestPartition(
                partition_index=0, committed_offset=0, committed_metadata=""
            )
        ]
        topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
        for number in range(count):
            request = OffsetCommitRequest(group_id=f"g{number:03}", member_id="", topics=topics)
            await client.send(request, 8)
        for _ in range(count):
            await client.receive(OffsetCommitResponse, 8)
        names = _Names(monkeypatch)
        trio.lowlevel.add_instrument(names)
        listed = await client.ask(ListGroupsRequest(), ListGroupsResponse, 4)
        trio.lowlevel.remove_instrument(names)
        assert [one.group_id for one in listed.groups] == [f"g{n:03}" for n in range(count)]
        assert names.most <= 200  # what it is reckoned to take is summed so
        names.count = 0
        broker.core.groups.keep_house(NOW_MS)
        assert 0 < names.count <= some + 1


async def test_a_produce_of_hundreds_of_partitions_gives_way_after_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For each a file may have to be opened, or made."""
    partitions = 500
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=partitions)
        await broker.core.topics.open_all(("t", index) for index in range(partitions))
        monkeypatch.setattr(pace, "STEP_S", -1.0)
        rows = [
            ProduceRequestPartition(index=index, records=batch(b"v")) for index in range(partitions)
        ]
        topics = [ProduceRequestTopic(name="t", partition_data=rows)]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)

        async def produce() -> None:
            reply = await client.ask(request, ProduceResponse, 9)
            (answered,) = reply.responses
            assert {row.error_code for row in answered.partition_responses} == {ErrorCode.NONE}

        assert await calls_of_a_step(produce) < 10 * partitions


async def test_of_those_who_wait_for_records_each_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be ten thousand, or a hundred who ask for a thousand partitions each and are told
    of all of them."""
    partitions, readers = 200, 20
    rows = [
        FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000)
        for index in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        max_bytes=1_000_000,
        topics=[FetchRequestTopic(topic="t", partitions=rows)],
    )
    async with serving() as broker, connect(broker.address) as client, AsyncExitStack() as stack:
        await client.create("t", partitions=partitions)
        reading = [await stack.enter_async_context(connect(broker.address)) for _ in range(readers)]
        for one in reading:
            await one.send(request, 11)
        await becomes(lambda: len(broker.core.deadlines) == readers)
        monkeypatch.setattr(pace, "STEP_S", -1.0)

        async def produce() -> None:
            await client.produce("t", b"v")
            for one in reading:
                _, reply = await one.receive(FetchResponse, 11)
                assert [row.high_watermark for row in reply.responses[0].partitions][:2] == [1, 0]

        one_reply = 20 * partitions
        assert await calls_of_a_step(produce) < 2 * one_reply


async def test_who_had_no_turn_looks_for_records_before_those_who_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records may come more often than all can look whether these are enough."""
    monkeypatch.setattr(pace, "STEP_S", -1.0)
    looked: list[str] = []

    class Reader:
        waiting = 1

        def __init__(self, name: str) -> None:
            self.name = name

        def wake(self, partition: Partition) -> int:
            looked.append(self.name)
            return 0

        def complete(self) -> None:
            pass

    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        partition = await broker.core.topics.open("t", 0)
        assert partition is not None
        partition.fetches.update(dict.fromkeys(map(Reader, "abc")))
        for _ in range(3):
            partition.wake()
            assert not partition.look_on(pace.Pace())
        assert looked == ["a", "b", "c"]
        partition.fetches.clear()


class _Reads(trio.abc.Instrument):
    """The most partitions that are read for replies in one step of a task."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.most = self.count = 0
        read_nowait = FetchReply._read_nowait

        def counted(reply: FetchReply, read: PlannedRead, lease: Lease) -> bool:
            self.count += 1
            self.most = max(self.most, self.count)
            return read_nowait(reply, read, lease)

        patched.setattr(FetchReply, "_read_nowait", counted)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count = 0


async def test_of_a_reply_as_many_partitions_are_read_as_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each there may be a mebibyte, in fifteen thousand batches that are gone through."""
    partitions = 30
    rows = [
        FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000)
        for index in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1_000_000,
        topics=[FetchRequestTopic(topic="t", partitions=rows)],
    )
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=partitions)
        for partition in range(partitions):
            await client.produce("t", b"v", partition=partition)
        monkeypatch.setattr(pace, "STEP_S", -1.0)
        reads = _Reads(monkeypatch)
        trio.lowlevel.add_instrument(reads)
        reply = await client.ask(request, FetchResponse, 11)
        trio.lowlevel.remove_instrument(reads)
        assert all(row.records for row in reply.responses[0].partitions)
        assert len(reply.responses[0].partitions) == partitions
    assert reads.most == 1


class _Woken(trio.abc.Instrument):
    """The most fetches of share groups that are told to look in one pass of the loop."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.most = self.count = 0
        look_again = _ShareFetching.look_again

        def counted(fetching: _ShareFetching) -> None:
            self.count += 1
            self.most = max(self.most, self.count)
            look_again(fetching)

        patched.setattr(_ShareFetching, "look_again", counted)

    def before_io_wait(self, timeout: float) -> None:
        self.count = 0


async def test_of_share_groups_that_wait_for_a_record_some_look_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To wake a task costs nothing, but all that were woken run in the next pass of the loop:
    a quarter of a second of a thousand groups."""
    async with serving() as broker, AsyncExitStack() as stack:
        first = await stack.enter_async_context(connect(broker.address))
        await first.create("t")
        topic = await topic_id(first, "t")
        waiting = [
            Sharing(await stack.enter_async_context(connect(broker.address)), f"g-{n}", topic)
            for n in range(100)
        ]
        for one in waiting:
            await one.begin(0, wait_ms=30_000)
        partition = await broker.core.topics.open("t", 0)
        assert partition is not None
        await becomes(lambda: partition.fetches_waiting == len(waiting))
        await wait_all_tasks_blocked()
        woken = _Woken(monkeypatch)
        trio.lowlevel.add_instrument(woken)
        await first.produce("t", b"v")
        for one in waiting:
            assert [given.value for given in await one.end()] == [b"v"]
        trio.lowlevel.remove_instrument(woken)
    assert woken.most <= WOKEN_AT_ONCE


async def test_what_a_member_says_of_each_record_is_taken_as_far_as_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred partitions may hold two hundred thousand records that are its own."""
    partitions, records = 20, 100
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions)
        await set_on_group(client, "g", share_auto_offset_reset="earliest")
        for partition in range(partitions):
            await client.produce("t", *[b"v"] * records, partition=partition)
        one = Sharing(client, "g", await topic_id(client, "t"))
        count = partitions * records
        assert len(await one.fetch(*range(partitions), max_records=count)) == count
        monkeypatch.setattr(pace, "STEP_S", -1.0)
        types = [RELEASE, ACCEPT] * (records // 2)
        said = {partition: [(0, records - 1, types)] for partition in range(partitions)}

        async def acknowledge() -> None:
            assert await one.say(said) == (ErrorCode.NONE, dict.fromkeys(said, ErrorCode.NONE))

        assert await calls_of_a_step(acknowledge) < 5 * count
        assert len(await one.fetch(max_records=count)) == count // 2


async def test_a_member_of_many_topics_is_told_and_described_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be fifty thousand that an expression matches: each has a row."""
    names = [f"t{number}" for number in range(200)]
    consumer = joining(subscribed_topic_names=names)
    sharing = ShareGroupHeartbeatRequest(
        group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=names
    )
    async with serving() as broker, connect(broker.address) as client:
        for name in names:
            await client.create(name)
        consumer.member_epoch = (await beat(client, consumer)).member_epoch
        joined = await client.ask(sharing, ShareGroupHeartbeatResponse, 1)
        sharing.member_epoch = joined.member_epoch
        monkeypatch.setattr(pace, "STEP_S", -1.0)
        monkeypatch.setattr(later_reply, "LONG_BYTES", 1_000)

        async def tell() -> None:
            assert len(read_by(await beat(client, consumer))) == len(names)
            again = await client.ask(sharing, ShareGroupHeartbeatResponse, 1)
            assert again.assignment == joined.assignment

        async def describe() -> None:
            (member,) = (await described(client)).members
            assert len(member.assignment.topic_partitions) == len(names)
            asked = ShareGroupDescribeRequest(group_ids=["s"], include_authorized_operations=False)
            group = (await client.ask(asked, ShareGroupDescribeResponse, 1)).groups[0]
            assert len(group.members[0].assignment.topic_partitions) == len(names)

        for act in (tell, describe):
            await act()  # encoders are made when they are used first
            assert await calls_of_a_step(act) < 4 * len(names)


async def test_what_a_broker_says_of_itself_gives_way_after_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`broker status` asks, monitoring does each minute; there may be a hundred thousand open."""
    partitions = 1_000
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=partitions)
        await broker.core.topics.open_all(("t", index) for index in range(partitions))
        monkeypatch.setattr(pace, "STEP_S", -1.0)

        async def ask() -> None:
            info: dict[str, Any] = await client.ask_vendor(VendorKey.SERVER_INFO, {})
            assert info["partitions"] == info["partitions_open"] == partitions
            assert info["storage"]["segments_count"] == partitions

        assert await calls_of_a_step(ask) < partitions


def test_what_a_sync_has_made_durable_is_told_some_hundreds_at_a_time() -> None:
    """Each of ten thousand commits makes a state anew when it is told."""
    told: list[int] = []
    jobs: list[Callable[[], None]] = []
    group, count = Group(), TOLD_AT_ONCE * 5 // 2
    for number in range(count):
        frame = Frame(FrameType.CONTROL, payload=b"")
        group.add_request(Request([frame], lambda _, number=number: told.append(number)))  # type: ignore[misc]
    group.settle(None, jobs.append)
    for job in jobs:
        before = len(told)
        job()
        assert len(told) - before <= TOLD_AT_ONCE
    assert told == [*range(count)]


async def test_jobs_from_threads_leave_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: now))
    order: list[str] = []
    calls = Callbacks()

    def job(number: int) -> None:
        nonlocal now
        now += pace.STEP_S
        order.append(f"job {number}")

    async def other() -> None:
        while "job 2" not in order:
            order.append("other")
            await trio.lowlevel.checkpoint()

    for number in range(3):
        calls(partial(job, number))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
    assert [one for one in order if one != "other"] == ["job 0", "job 1", "job 2"]
    # Who is first in a pass is drawn.
    assert order.index("job 2") - order.index("job 0") > 2

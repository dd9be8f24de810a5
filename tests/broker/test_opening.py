"""Requests that name many partitions which are not open yet."""

from collections.abc import Iterable

import pytest
import trio
import trio.testing

from segbroker.broker import chores
from segbroker.broker.partitions.topics import OPENING_AT_ONCE
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    ProduceResponse,
)
from segbroker.protocol.messages_placement import (
    ElectLeadersRequest,
    ElectLeadersRequestTopic,
    ElectLeadersResponse,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, remove_tree, write_all
from segbroker.segments.errors import StorageError
from segbroker.segments.partition.handler import DiskHandler

from ..segments.tools import flip
from ..support.gated_storage import GatedStorage
from ..support.wire_client import batch, connect, produce_request, values
from .conftest import Events, serving

COUNT = 3 * OPENING_AT_ONCE
DAMAGED = 5
NOT_OPENED = "partition_not_opened"


async def test_one_that_cannot_be_opened_is_told_and_the_others_are_served(events: Events) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=COUNT, on_corruption="refuse")
        for index in range(COUNT):
            await client.produce("t", b"%d" % index, partition=index)
    flip(disk, f"/data/topics/t/partition_{DAMAGED}/t_partition_{DAMAGED}_segment_0.log", 64)
    refused = [
        ErrorCode.POLICY_VIOLATION if index == DAMAGED else ErrorCode.NONE for index in range(COUNT)
    ]
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        ends = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequestTopic(
                    name="t",
                    partitions=[
                        ListOffsetsRequestPartition(partition_index=index, timestamp=-1)
                        for index in range(COUNT)
                    ],
                )
            ],
        )
        reply = await client.ask(ends, ListOffsetsResponse, 7)
        rows = reply.topics[0].partitions
        assert [row.partition_index for row in rows] == list(range(COUNT))
        assert [row.error_code for row in rows] == refused
        assert [row.offset for row in rows] == [-1 if code else 1 for code in refused]
        assert [event["partition"] for event in events.named("partition_not_opened")] == [DAMAGED]
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        everything = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                FetchRequestTopic(
                    topic="t",
                    partitions=[
                        FetchRequestPartition(
                            partition=index, fetch_offset=0, partition_max_bytes=1 << 20
                        )
                        for index in range(COUNT)
                    ],
                )
            ],
        )
        fetched = await client.ask(everything, FetchResponse, 12)
        found = {row.partition_index: row for row in fetched.responses[0].partitions}
        assert [found[index].error_code for index in range(COUNT)] == refused
        for index in set(range(COUNT)) - {DAMAGED}:
            assert values(found[index]) == [b"%d" % index]
        assert len(broker.core.topics.served) == COUNT - 1


async def test_who_waits_for_an_opening_that_fails_fails_with_it(events: Events) -> None:
    # Else each of them tries it again, one after the other, and the last waits for all.
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", on_corruption="refuse")
        await client.produce("t", b"v")
    flip(disk, "/data/topics/t/partition_0/t_partition_0_segment_0.log", 64)
    async with serving(storage=disk) as broker, trio.open_nursery() as nursery:
        codes: list[int] = []

        async def ask() -> None:
            async with connect(broker.address) as client:
                codes.append((await client.fetch("t", 0)).error_code)

        disk.reads.clear()
        for _ in range(10):
            nursery.start_soon(ask)
        with trio.fail_after(60):
            while broker.core.counters.requests < 10:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            disk.reads.set()
            while len(codes) < 10:
                await trio.lowlevel.checkpoint()
        assert codes == [ErrorCode.POLICY_VIOLATION] * 10
        assert len(events.named("partition_not_opened")) == 1


async def test_a_partition_without_its_directory_fails_as_a_disk_does_until_it_is_back(
    events: Events,
) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await client.produce("t", b"first", partition=1)
    folder, away = "/data/topics/t/partition_1", "/data/topics/t/away"
    disk.rename(folder, away)
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        sent = await client.produce("t", b"second", partition=1)
        fetched = await client.fetch("t", 0, partition=1)
        for row in (sent, fetched):
            # Retried by Kafka's clients, and their applications do not hear of damaged records.
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert ErrorCode(row.error_code).retryable
        assert sent.error_message == f"{folder}: the partition's directory is missing"
        assert (await client.produce("t", b"other", partition=0)).error_code == ErrorCode.NONE
        disk.rename(away, folder)
        assert (await client.produce("t", b"second", partition=1)).base_offset == 1
        assert values(await client.fetch("t", 0, partition=1)) == [b"first", b"second"]
        # Told once, however often it is asked for, and when it is there again.
        assert [event["partition"] for event in events.named("partition_not_opened")] == [1]
        assert [event["partition"] for event in events.named("partition_opened_again")] == [1]


async def test_what_cannot_be_opened_is_told_though_nobody_asks_for_it(events: Events) -> None:
    """The files of an earlier topic of the name, as an archive unpacked over the directory puts
    them there: behind an orderly stop no start opens them."""
    disk = MemoryStorage()
    for value in (b"of the earlier topic", b"of this one"):
        async with serving(storage=disk) as broker, connect(broker.address) as client:
            if broker.core.topics.get("t") is not None:
                await broker.core.topics.delete_all(["t"])
            await client.create("t")
            await client.produce("t", value)
        if value != b"of this one":
            earlier = disk.after_kill()
    folder = "/data/topics/t/partition_0"
    remove_tree(disk, folder)
    disk.mkdir(folder)
    for name in earlier.listdir(folder):
        file = disk.open(f"{folder}/{name}", create=True)
        write_all(file, bytes(read_file(earlier, f"{folder}/{name}")), 0)
    async with serving(storage=disk) as broker:
        assert not broker.core.topics.unopened
        with trio.fail_after(60):
            while not broker.core.topics.unopened:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert list(broker.core.topics.unopened) == [("t", 0)]
        (told,) = events.named(NOT_OPENED)
        assert "an earlier topic of this name" in told["error"]


async def test_a_partition_that_fails_in_another_way_is_told_again(events: Events) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", on_corruption="refuse")
        await client.produce("t", b"first")
    flip(disk, "/data/topics/t/partition_0/t_partition_0_segment_0.log", 64)
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        for _ in range(2):
            await client.fetch("t", 0)
        disk.rename("/data/topics/t/partition_0", "/data/topics/t/away")
        for _ in range(2):
            await client.fetch("t", 0)
        told = events.named("partition_not_opened")
        assert ["damaged" in event["error"] for event in told] == [True, False]


@pytest.mark.parametrize("damaged", [{DAMAGED}, set(range(COUNT))])
async def test_partitions_of_requests_that_wait_behind_each_other_are_opened_together(
    damaged: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "REOPEN_LOOK_S", 3_600.0)  # that of the chore is not counted
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=COUNT, on_corruption="refuse")
        for n in damaged:
            await client.produce("t", b"first", partition=n)
    for n in damaged:
        flip(disk, f"/data/topics/t/partition_{n}/t_partition_{n}_segment_0.log", 64)
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        partitions = broker.core.topics.manager.partitions
        get_handlers = partitions.get_handlers
        asked: list[int] = []

        def counting(places: Iterable[tuple[str, int]]) -> list[DiskHandler | StorageError]:
            some = list(places)
            asked.append(len(some))
            return get_handlers(some)

        partitions.get_handlers = counting  # type: ignore[method-assign]  # it counts
        requests = [produce_request("t", batch(b"v"), partition=n) for n in range(COUNT)]
        frames = [client.encode(request, 9)[1] for request in requests]
        await client.send_bytes(b"".join(frames))
        replies = [(await client.receive(ProduceResponse, 9))[1] for _ in frames]
        rows = [reply.responses[0].partition_responses[0] for reply in replies]
        assert [row.index for row in rows] == list(range(COUNT))
        refused = ErrorCode.POLICY_VIOLATION
        assert [row.error_code for row in rows] == [
            refused if n in damaged else ErrorCode.NONE for n in range(COUNT)
        ]
        served = COUNT - len(damaged)
        assert [row.base_offset for row in rows if not row.error_code] == [0] * served
        # What cannot be opened is tried again for its own request, and for no other.
        assert sum(asked) <= COUNT + len(damaged)
        assert len(asked) < COUNT + len(damaged)


async def test_a_partition_that_is_not_served_has_no_leader_until_it_is(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "REOPEN_LOOK_S", 0.001)
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=3)
        await client.create("gone")
        await client.produce("t", b"first", partition=1)
    folder, away = "/data/topics/t/partition_1", "/data/topics/t/away"
    disk.rename(folder, away)
    disk.rename("/data/topics/gone", "/data/away")
    async with serving(storage=disk) as broker, connect(broker.address) as client:

        async def leaders() -> dict[str, list[tuple[int, int, list[int]]]]:
            reply = await client.ask(MetadataRequest(topics=None), MetadataResponse, 12)
            assert all(one.replica_nodes == [1] for row in reply.topics for one in row.partitions)
            return {
                str(topic.name): [
                    (one.error_code, one.leader_id, one.offline_replicas)
                    for one in topic.partitions
                ]
                for topic in reply.topics
            }

        # The start has seen it: nobody has to ask for the partition first.
        lost: tuple[int, int, list[int]] = (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])
        served: tuple[int, int, list[int]] = (ErrorCode.NONE, 1, [])
        assert await leaders() == {"t": [served, lost, served], "gone": [lost]}
        asked = DescribeTopicPartitionsRequest(topics=[], cursor=None)
        pages = await client.ask(asked, DescribeTopicPartitionsResponse, 0)
        assert {
            topic.name: [(one.leader_id, one.offline_replicas) for one in topic.partitions]
            for topic in pages.topics
        } == {"t": [(1, []), (-1, [1]), (1, [])], "gone": [(-1, [1])]}
        elected = ElectLeadersRequest(
            election_type=0,
            topic_partitions=[ElectLeadersRequestTopic(topic="t", partitions=[0, 1])],
            timeout_ms=1_000,
        )
        reply = await client.ask(elected, ElectLeadersResponse, 2)
        assert [row.error_code for row in reply.replica_election_results[0].partition_result] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ]
        disk.rename(away, folder)
        with trio.fail_after(60):
            while (await leaders())["t"] != [served] * 3:
                pass
        assert values(await client.fetch("t", 0, partition=1)) == [b"first"]
        assert [event["topic"] for event in events.named("partition_opened_again")] == ["t"]
        told = [(event["topic"], event["partition"]) for event in events.named(NOT_OPENED)]
        assert told == [("gone", 0), ("t", 1)], "once, however often it was tried"


async def test_of_what_is_refused_for_damage_the_same_is_told() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=2, on_corruption="refuse")
        await client.produce("t", b"first")
    flip(disk, "/data/topics/t/partition_0/t_partition_0_segment_0.log", 64)
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        assert (await client.fetch("t", 0)).error_code == ErrorCode.POLICY_VIOLATION
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        reply = await client.ask(asked, MetadataResponse, 12)
        assert [one.leader_id for one in reply.topics[0].partitions] == [-1, 1]

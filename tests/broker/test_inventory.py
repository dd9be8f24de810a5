"""What there is and where it lies: pages of topics, sizes, configurable things, elections."""

from pathlib import Path

import pytest

from segbroker.broker.apis import inventory
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from segbroker.protocol.messages_placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersRequestTopic,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Space
from segbroker.testing.embedded import EmbeddedBroker

from ..support.wire_client import WireClient, batch, connect
from .conftest import ROOT, serving

Page = list[tuple[str | None, list[int]]]


async def page(
    client: WireClient, *names: str, limit: int = 2000, after: tuple[str, int] | None = None
) -> tuple[Page, tuple[str, int] | None]:
    """Topics with their partitions, and where the next page begins."""
    cursor = after and DescribeTopicPartitionsCursor(topic_name=after[0], partition_index=after[1])
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    reply = await client.ask(request, DescribeTopicPartitionsResponse, 0)
    rows = [(t.name, [p.partition_index for p in t.partitions]) for t in reply.topics]
    following = reply.next_cursor
    return rows, None if following is None else (following.topic_name, following.partition_index)


async def test_topics_come_in_pages_of_partitions() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("b", partitions=3)
        await client.create("a", partitions=2)
        await client.create("c")
        assert await page(client) == ([("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])], None)
        assert await page(client, limit=3) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
        assert await page(client, limit=2, after=("b", 1)) == ([("b", [1, 2])], ("c", 0))
        assert await page(client, limit=2, after=("c", 0)) == ([("c", [0])], None)
        assert await page(client, "c", "a") == ([("a", [0, 1]), ("c", [0])], None)


async def test_a_page_has_a_partition_and_not_more_than_the_broker_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or who asks for the next one would ask for ever."""
    monkeypatch.setattr(inventory, "PARTITIONS_MAX", 2)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", partitions=3)
        for limit, partitions in ((-1, [0]), (0, [0]), (1, [0]), (2_000, [0, 1])):
            found = await page(client, limit=limit)
            assert found == ([("a", partitions)], ("a", len(partitions)))


async def test_a_page_begins_at_no_partition_below_the_first() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a", partitions=2)
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in ("b", "a", "a")],
            cursor=DescribeTopicPartitionsCursor(topic_name="a", partition_index=-1),
        )
        reply = await client.ask(request, DescribeTopicPartitionsResponse, 0)
        wrong = ErrorCode.INVALID_REQUEST
        assert [(row.name, row.error_code) for row in reply.topics] == [
            ("b", wrong),
            ("a", wrong),
            ("a", wrong),
        ]
        assert reply.next_cursor is None
        assert await page(client, after=("a", -5)) == ([], None)


async def test_a_page_of_a_list_begins_at_a_topic_of_it() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for name in ("a", "b", "c"):
            await client.create(name)
        assert await page(client, after=("aa", 0)) == ([("b", [0]), ("c", [0])], None)
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in ("c", "a")],
            cursor=DescribeTopicPartitionsCursor(topic_name="b", partition_index=0),
        )
        reply = await client.ask(request, DescribeTopicPartitionsResponse, 0)
        wrong = ErrorCode.INVALID_REQUEST
        assert [(row.name, row.error_code) for row in reply.topics] == [("c", wrong), ("a", wrong)]
        assert reply.next_cursor is None


async def test_every_partition_of_a_described_topic_is_led_here_and_an_unknown_topic_is_a_row() -> (
    None
):
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = DescribeTopicPartitionsRequest(
            topics=[
                DescribeTopicPartitionsRequestTopic(name=name) for name in ("t", "unknown", "ä/b")
            ]
        )
        reply = await client.ask(request, DescribeTopicPartitionsResponse, 0)
        known, unknown, impossible = reply.topics
        (row,) = known.partitions
        assert (row.leader_id, row.replica_nodes, row.isr_nodes) == (1, [1], [1])
        # Java streams these two: null would end it.
        assert (row.eligible_leader_replicas, row.last_known_elr) == ([], [])
        assert known.topic_id == broker.core.topics.all["t"].topic_id
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert impossible.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def _sizes(client: WireClient, version: int) -> dict[tuple[str, int], int]:
    """Of every partition there is."""
    every = DescribeLogDirsRequest(topics=None)
    (directory,) = (await client.ask(every, DescribeLogDirsResponse, version)).results
    assert directory.log_dir == ROOT
    return {
        (topic.name, row.partition_index): row.partition_size
        for topic in directory.topics
        for row in topic.partitions
    }


async def test_sizes_are_the_same_after_a_restart_and_nothing_is_opened_for_them() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=2, segment_records="2")
        for _ in range(5):
            await client.produce("t", b"v")
        before = await _sizes(client, 4)
        assert before == {("t", 0): 5 * len(batch(b"v")), ("t", 1): 0}
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        assert await _sizes(client, 4) == before
        assert not broker.core.topics.served


class Volume(MemoryStorage):
    """Of a size, or with an error where that is asked for."""

    room: Space | OSError

    def space(self, path: str) -> Space | None:
        if path == f"{ROOT}/wal":  # which a start asks about
            return None
        assert path == ROOT
        if isinstance(self.room, OSError):
            raise self.room
        return self.room


@pytest.mark.parametrize(
    ("room", "told"),
    [(Space(1 << 40, 1 << 30), (1 << 40, 1 << 30)), (OSError(5, "broken"), (-1, -1))],
    ids=str,
)
async def test_the_space_of_the_volume_is_told_where_it_is_known(
    room: Space | OSError, told: tuple[int, int]
) -> None:
    disk = Volume()
    disk.room = room
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        every = DescribeLogDirsRequest(topics=None)
        for version, expected in ((3, (-1, -1)), (4, told), (5, told)):
            (found,) = (await client.ask(every, DescribeLogDirsResponse, version)).results
            assert (found.total_bytes, found.usable_bytes) == expected


@pytest.mark.parametrize("version", range(1, 6))
async def test_sizes_are_those_of_the_batches_written(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await client.create("u")
        await client.produce("t", b"v", partition=1)
        sizes = await _sizes(client, version)
        assert sizes == {("t", 0): 0, ("t", 1): len(batch(b"v")), ("u", 0): 0}
        assert list(broker.core.topics.served) == [("t", 1)], "looking opens nothing"
        some = DescribeLogDirsRequest(
            topics=[
                DescribeLogDirsRequestTopic(topic="t", partitions=[1, 9]),
                DescribeLogDirsRequestTopic(topic="unknown", partitions=[0]),
            ]
        )
        reply = await client.ask(some, DescribeLogDirsResponse, version)
        (topic,) = reply.results[0].topics
        assert [row.partition_index for row in topic.partitions] == [1]


@pytest.mark.parametrize(
    ("types", "code", "found"),
    [
        ([], 0, [(2, "t"), (4, "1"), (8, "1")]),
        ([2], 0, [(2, "t")]),
        ([4], 0, [(4, "1")]),
        ([16, 32], 0, []),
        ([99], ErrorCode.UNSUPPORTED_VERSION, []),
    ],
)
async def test_what_has_a_configuration_is_listed_by_type(
    types: list[int], code: int, found: list[tuple[int, str]]
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = ListConfigResourcesRequest(resource_types=types)
        reply = await client.ask(request, ListConfigResourcesResponse, 1)
        rows = [(row.resource_type, row.resource_name) for row in reply.config_resources]
        assert (reply.error_code, rows) == (code, found)


async def test_before_it_had_types_the_list_is_of_client_metrics_and_empty() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await client.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse, 0)
        assert (reply.error_code, reply.config_resources) == (0, [])


@pytest.mark.parametrize("version", range(3))
async def test_nobody_is_elected_where_the_only_broker_leads(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequestTopic(topic="t", partitions=[0, 5])]
        )
        reply = await client.ask(request, ElectLeadersResponse, version)
        (topic,) = reply.replica_election_results
        assert [row.error_code for row in topic.partition_result] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_a_partition_moves_to_where_it_is_and_nowhere_else() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        moves: list[tuple[int, list[int] | None]] = [(0, [1]), (0, [2]), (0, None), (8, [1])]
        request = AlterPartitionReassignmentsRequest(
            topics=[
                AlterPartitionReassignmentsRequestTopic(
                    name="t",
                    partitions=[
                        AlterPartitionReassignmentsRequestPartition(
                            partition_index=index, replicas=replicas
                        )
                        for index, replicas in moves
                    ],
                )
            ]
        )
        reply = await client.ask(request, AlterPartitionReassignmentsResponse, 1)
        assert [row.error_code for row in reply.responses[0].partitions] == [
            0,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        listed = ListPartitionReassignmentsRequest(topics=None)
        moving = await client.ask(listed, ListPartitionReassignmentsResponse, 0)
        assert (moving.error_code, moving.topics) == (0, [])


_HERE = str(Path("here").absolute())


async def test_the_directory_is_told_from_the_root_on() -> None:
    with EmbeddedBroker(data="here") as broker:
        host, _, port = broker.address.rpartition(":")
        async with connect((host, int(port))) as client:
            every = DescribeLogDirsRequest(topics=None)
            (told,) = (await client.ask(every, DescribeLogDirsResponse, 4)).results
        assert told.log_dir == _HERE


@pytest.mark.parametrize("version", [1, 2])
async def test_a_replica_moves_to_the_directory_where_it_is_and_nowhere_else(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        here = await client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequestDir(
                    path=path, topics=[AlterReplicaLogDirsRequestTopic(name=name, partitions=[0])]
                )
                for path, name in (
                    (here.results[0].log_dir, "t"),
                    (here.results[0].log_dir, "nowhere"),
                    ("/elsewhere", "t"),
                    (here.results[0].log_dir, "x" * 249),
                )
            ]
        )
        reply = await client.ask(request, AlterReplicaLogDirsResponse, version)
        found = {
            row.topic_name: [one.error_code for one in row.partitions] for row in reply.results
        }
        assert found == {
            "t": [0, ErrorCode.LOG_DIR_NOT_FOUND],
            "nowhere": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            "x" * 249: [ErrorCode.INVALID_TOPIC_EXCEPTION],
        }


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum_is_this_broker_and_its_log_grows_with_what_is_changed(
    version: int,
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        ends = []
        for name in ("t", "u"):
            reply = await client.ask(
                quorum_of("__cluster_metadata"), DescribeQuorumResponse, version
            )
            assert reply.error_code == 0
            (row,) = reply.topics[0].partitions
            (voter,) = row.current_voters
            assert (row.leader_id, voter.replica_id, row.observers) == (1, 1, [])
            assert row.high_watermark == voter.log_end_offset > 0
            ends.append(row.high_watermark)
            if version == 2:
                (node,) = reply.nodes
                assert (node.listeners[0].host, node.listeners[0].port) == broker.address
            await client.create(name)
        assert ends[0] < ends[1]
        other = await client.ask(quorum_of("t"), DescribeQuorumResponse, version)
        (row,) = other.topics[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def quorum_of(topic: str) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopic(
                topic_name=topic, partitions=[DescribeQuorumRequestPartition(partition_index=0)]
            )
        ]
    )


@pytest.mark.parametrize(
    ("timestamp", "version", "answer"),
    [
        (-3, 6, (ErrorCode.UNSUPPORTED_VERSION, -1, -1)),
        (-4, 7, (ErrorCode.UNSUPPORTED_VERSION, -1, -1)),
        (-4, 8, (0, 2, 0)),
        (-5, 8, (ErrorCode.UNSUPPORTED_VERSION, -1, -1)),
        (-5, 9, (0, -1, -1)),
        (-6, 10, (ErrorCode.UNSUPPORTED_VERSION, -1, -1)),
        (-6, 11, (0, -1, -1)),
    ],
)
async def test_there_is_one_tier(
    timestamp: int, version: int, answer: tuple[int, int, int]
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"a", b"b")
        await client.produce("t", b"c")
        handler = broker.core.topics.served["t", 0].handler
        handler.delete_records_before(2)
        asked = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequestTopic(name="t", partitions=[asked])]
        )
        reply = await client.ask(request, ListOffsetsResponse, version)
        row = reply.topics[0].partitions[0]
        assert (row.error_code, row.offset, row.leader_epoch) == answer


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (1, 0),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_the_cluster_has_brokers_and_no_controllers_to_talk_to(kind: int, code: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=kind
        )
        reply = await client.ask(request, DescribeClusterResponse, 2)
        assert reply.error_code == code
        nodes = [(node.broker_id, node.is_fenced) for node in reply.brokers]
        assert nodes == ([] if code else [(1, False)])


async def test_there_is_no_coordinator_of_share_groups() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"])
        reply = await client.ask(request, FindCoordinatorResponse, 6)
        assert reply.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_an_unknown_group_is_dead_and_from_version_6_on_an_error(
    version: int, code: int
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        reply = await client.ask(
            DescribeGroupsRequest(groups=["nobody"]), DescribeGroupsResponse, version
        )
        (row,) = reply.groups
        assert (row.group_state, row.error_code) == ("Dead", code)
        assert row.error_message == ("Group nobody not found." if code else None)

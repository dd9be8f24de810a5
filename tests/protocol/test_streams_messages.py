"""The messages of streams groups, as kafka-clients 4.3.1 writes the same values out."""

import pytest

from segbroker.protocol.messages_streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeResponseAssignment,
    StreamsGroupDescribeResponseGroup,
    StreamsGroupDescribeResponseMember,
    StreamsGroupDescribeResponseSubtopology,
    StreamsGroupDescribeResponseTopology,
    StreamsGroupEndpoint,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestCopartitionGroup,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopology,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponseEndpointToPartitions,
    StreamsGroupHeartbeatResponseStatus,
    StreamsGroupHeartbeatResponseTopicPartition,
    StreamsGroupKeyValue,
    StreamsGroupTaskIds,
    StreamsGroupTaskOffset,
    StreamsGroupTopicInfo,
)
from segbroker.protocol.schema import Message


def info(
    name: str, partitions: int, replicas: int, *pairs: tuple[str, str]
) -> StreamsGroupTopicInfo:
    return StreamsGroupTopicInfo(
        name=name,
        partitions=partitions,
        replication_factor=replicas,
        topic_configs=[StreamsGroupKeyValue(key=key, value=value) for key, value in pairs],
    )


def tasks(*numbers: int) -> list[StreamsGroupTaskIds]:
    return [StreamsGroupTaskIds(subtopology_id="0", partitions=list(numbers))]


REQUEST = StreamsGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=1,
    endpoint_information_epoch=2,
    instance_id="i",
    rack_id="r",
    rebalance_timeout_ms=3,
    topology=StreamsGroupHeartbeatRequestTopology(
        epoch=4,
        subtopologies=[
            StreamsGroupHeartbeatRequestSubtopology(
                subtopology_id="0",
                source_topics=["t"],
                source_topic_regex=["x"],
                state_changelog_topics=[info("c", 5, 6, ("k", "v"))],
                repartition_sink_topics=["s"],
                repartition_source_topics=[info("p", 0, 0)],
                copartition_groups=[
                    StreamsGroupHeartbeatRequestCopartitionGroup(
                        source_topics=[7], source_topic_regex=[8], repartition_source_topics=[9]
                    )
                ],
            )
        ],
    ),
    active_tasks=tasks(10),
    standby_tasks=[],
    process_id="q",
    user_endpoint=StreamsGroupEndpoint(host="h", port=65_535),
    client_tags=[StreamsGroupKeyValue(key="z", value="a")],
    task_offsets=[StreamsGroupTaskOffset(subtopology_id="0", partition=11, offset=12)],
    shutdown_application=True,
)
RESPONSE = StreamsGroupHeartbeatResponse(
    throttle_time_ms=1,
    error_code=2,
    error_message="e",
    member_id="m",
    member_epoch=3,
    heartbeat_interval_ms=4,
    acceptable_recovery_lag=5,
    task_offset_interval_ms=6,
    status=[StreamsGroupHeartbeatResponseStatus(status_code=3, status_detail="d")],
    active_tasks=tasks(7),
    standby_tasks=[],
    endpoint_information_epoch=8,
    partitions_by_user_endpoint=[
        StreamsGroupHeartbeatResponseEndpointToPartitions(
            user_endpoint=StreamsGroupEndpoint(host="h", port=9),
            active_partitions=[
                StreamsGroupHeartbeatResponseTopicPartition(topic="t", partitions=[10])
            ],
            standby_partitions=[],
        )
    ],
)
DESCRIBED = StreamsGroupDescribeResponse(
    throttle_time_ms=1,
    groups=[
        StreamsGroupDescribeResponseGroup(
            group_id="g",
            group_state="Stable",
            group_epoch=2,
            assignment_epoch=3,
            topology=StreamsGroupDescribeResponseTopology(
                epoch=4,
                subtopologies=[
                    StreamsGroupDescribeResponseSubtopology(
                        subtopology_id="0",
                        source_topics=["t"],
                        repartition_sink_topics=["s"],
                        state_changelog_topics=[info("c", 5, 1)],
                        repartition_source_topics=[],
                    )
                ],
            ),
            members=[
                StreamsGroupDescribeResponseMember(
                    member_id="m",
                    member_epoch=6,
                    rack_id="r",
                    client_id="c",
                    client_host="/h",
                    topology_epoch=7,
                    process_id="q",
                    client_tags=[],
                    task_offsets=[],
                    task_end_offsets=[],
                    assignment=StreamsGroupDescribeResponseAssignment(
                        active_tasks=tasks(8), standby_tasks=[], warmup_tasks=[]
                    ),
                    target_assignment=StreamsGroupDescribeResponseAssignment(
                        active_tasks=[], standby_tasks=[], warmup_tasks=[]
                    ),
                    is_classic=True,
                )
            ],
            authorized_operations=9,
        )
    ],
)
ASKED = StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
WRITTEN: tuple[tuple[Message, str], ...] = (
    (
        REQUEST,
        "0267026d00000001000000020269027200000003010000000402023002027402027802026300000005000602026b"
        "02760000020273020270000000000000010002020007020008020009000000020230020000000a00010002710102"
        "68ffff0002027a0261000202300000000b000000000000000c00000100",
    ),
    (
        RESPONSE,
        "0000000100020265026d0000000300000004000000050000000602030264000202300200000007000100000000"
        "08020268000900020274020000000a00010000",
    ),
    (
        DESCRIBED,
        "0000000102000000026707537461626c6500000002000000030100000004020230020274020273020263000000"
        "050001010001000002026d000000060002720263032f68000000070271ff0101010202300200000008000101"
        "00010101000100000000090000",
    ),
    (ASKED, "0202670100"),
)


@pytest.mark.parametrize(
    ("message", "written"), WRITTEN, ids=[type(message).__name__ for message, _ in WRITTEN]
)
def test_bytes_and_values_are_those_of_the_java_client(message: Message, written: str) -> None:
    expected = bytes.fromhex(written)
    assert b"".join(message.encode(0)) == expected
    assert type(message).decode(expected, 0) == (message, len(expected))

"""Where partitions and metadata lie, in a cluster of one: on this broker, and nothing moves.

| request                      | answer per partition                                       |
|------------------------------|------------------------------------------------------------|
| ElectLeaders                 | 84 ELECTION_NOT_NEEDED: the only broker leads already; of  |
|                              | a partition that is not served 80, or 83 of an unclean one;|
|                              | another type of election: 42 INVALID_REQUEST               |
| AlterPartitionReassignments  | done when it is assigned to this broker, as it is; another |
|                              | broker: 39 INVALID_REPLICA_ASSIGNMENT; null, to give a     |
|                              | move up: 85 NO_REASSIGNMENT_IN_PROGRESS                    |
| ListPartitionReassignments   | none is under way                                          |
| AlterReplicaLogDirs          | done when it is to lie in the one directory, as it does;   |
|                              | another directory: 57 LOG_DIR_NOT_FOUND; 17                |
|                              | INVALID_TOPIC_EXCEPTION for names that Kafka cannot move   |
| DescribeQuorum               | one voter, this broker, of `__cluster_metadata`-0; the     |
|                              | offsets count control events; 3 for any other partition    |

An unknown partition is 3 UNKNOWN_TOPIC_OR_PARTITION where something is to be done.  Served because
tools ask: Kafka's own describe a topic with the moves under way, and rebalance leaders by habit.
"""

import os
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponseListener,
    DescribeQuorumResponseNode,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseReplica,
    DescribeQuorumResponseTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from ..call import Call
from ..core import Core
from ..loop.pace import Pace

METADATA_TOPIC: Final = "__cluster_metadata"
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


async def elect_leaders(core: Core, call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    """Nobody is elected; of all partitions (null) none is named, as none needs it."""
    rows = []
    pace = Pace()
    once: dict[str, dict[int, None]] = {}
    kind = call.request.election_type
    refused = ErrorCode.NONE if kind in (_PREFERRED, _UNCLEAN) else ErrorCode.INVALID_REQUEST
    not_available = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if kind == _PREFERRED:
        not_available = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    for topic in call.request.topic_partitions or ():
        await pace.step()
        once.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    for name, indexes in once.items():
        await pace.step()
        answered = ElectLeadersResponseTopic(topic=name, partition_result=[])
        rows.append(answered)
        for index in indexes:
            code, message = ErrorCode.ELECTION_NOT_NEEDED, "the only broker leads it already"
            if refused:
                code, message = refused, f"there is no type of election {kind}"
            elif not core.topics.exists(name, index):
                code, message = _unknown(name, index)
            elif core.topics.is_unserved(name, index):
                code, message = not_available, f"{name}-{index} is not served"
            answered.partition_result.append(
                ElectLeadersResponsePartition(
                    partition_id=index, error_code=code, error_message=message
                )
            )
            await pace.step()
    return ElectLeadersResponse(error_code=refused, replica_election_results=rows)


async def alter_partition_reassignments(
    core: Core, call: Call[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    """To where it lies: done.  Elsewhere: there is no elsewhere."""
    rows = []
    pace = Pace()
    for topic in call.request.topics:
        await pace.step()
        answered = AlterPartitionReassignmentsResponseTopic(name=topic.name, partitions=[])
        rows.append(answered)
        for asked in topic.partitions:
            code, message = _reassign(core, topic.name, asked.partition_index, asked.replicas)
            answered.partitions.append(
                AlterPartitionReassignmentsResponsePartition(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
            )
            await pace.step()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=call.request.allow_replication_factor_change,
        responses=rows,
    )


def _reassign(
    core: Core, name: str, index: int, replicas: list[int] | None
) -> tuple[ErrorCode, str | None]:
    node = core.config.broker_id
    if not core.topics.exists(name, index):
        return _unknown(name, index)
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{index} is not being moved"
    if replicas != [node]:
        message = f"assigned to brokers {replicas}, there is only {node}"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return ErrorCode.NONE, None


def _unknown(name: str, index: int) -> tuple[ErrorCode, str]:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{index}"


def list_partition_reassignments(
    core: Core, call: Call[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    """None."""
    return ListPartitionReassignmentsResponse(topics=[])


def log_dir(core: Core) -> str:
    """The data directory as Kafka's tools are told it: from the root on."""
    return os.path.abspath(core.topics.manager.root)


MOVABLE_SIZE_MAX: Final = 255 - len(".-future") - 32
"""Kafka (KAFKA-4893) cannot name the directory of a move of a longer `<topic>-<partition>`."""


async def alter_replica_log_dirs(
    core: Core, call: Call[AlterReplicaLogDirsRequest]
) -> AlterReplicaLogDirsResponse:
    """To the directory in which it lies: done.  There is no other."""
    found: dict[str, AlterReplicaLogDirsResponseTopic] = {}
    here = log_dir(core)
    pace = Pace()
    for directory in call.request.dirs:
        for topic in directory.topics:
            await pace.step()
            answered = found.setdefault(
                topic.name, AlterReplicaLogDirsResponseTopic(topic_name=topic.name, partitions=[])
            )
            for index in topic.partitions:
                code = ErrorCode.NONE
                if len(f"{topic.name}-{index}") > MOVABLE_SIZE_MAX:
                    code = ErrorCode.INVALID_TOPIC_EXCEPTION
                elif directory.path != here:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif not core.topics.exists(topic.name, index):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answered.partitions.append(
                    AlterReplicaLogDirsResponsePartition(partition_index=index, error_code=code)
                )
                await pace.step()
    return AlterReplicaLogDirsResponse(results=list(found.values()))


async def describe_quorum(core: Core, call: Call[DescribeQuorumRequest]) -> DescribeQuorumResponse:
    """The one voter; as in Kafka either exactly the metadata is asked about, or all is unknown."""
    asked = [
        (topic.topic_name, one.partition_index)
        for topic in call.request.topics
        for one in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return await _no_quorum(call.request)
    manager, node = core.topics.manager, core.config.broker_id
    end_offset = manager.control_events_end
    host, port = core.advertised(call.peer)
    listener = call.peer.listener.spec.name
    now_ms = core.now_ms()
    voter = DescribeQuorumResponseReplica(
        replica_id=node,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    row = DescribeQuorumResponsePartition(
        partition_index=0,
        leader_id=node,
        leader_epoch=manager.boot_number,
        high_watermark=end_offset,
        current_voters=[voter],
        observers=[],
    )
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponseTopic(topic_name=METADATA_TOPIC, partitions=[row])],
        nodes=[
            DescribeQuorumResponseNode(
                node_id=node,
                listeners=[DescribeQuorumResponseListener(name=listener, host=host, port=port)],
            )
        ],
    )


async def _no_quorum(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    rows = []
    pace = Pace()
    for topic in request.topics:
        await pace.step()
        answered = DescribeQuorumResponseTopic(topic_name=topic.topic_name, partitions=[])
        rows.append(answered)
        for asked in topic.partitions:
            code, message = _unknown(topic.topic_name, asked.partition_index)
            answered.partitions.append(
                DescribeQuorumResponsePartition(
                    partition_index=asked.partition_index,
                    error_code=code,
                    error_message=f"{message}: the metadata is {METADATA_TOPIC}-0",
                    current_voters=[],
                    observers=[],
                )
            )
            await pace.step()
    return DescribeQuorumResponse(topics=rows)

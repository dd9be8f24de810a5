"""Where partitions lie, in a cluster of one: on this broker, led by it, and nothing moves.

| request                      | answer per partition                                       |
|------------------------------|------------------------------------------------------------|
| ElectLeaders                 | 84 ELECTION_NOT_NEEDED: the only broker leads already      |
| AlterPartitionReassignments  | done when it is assigned to this broker, as it is; another |
|                              | broker: 39 INVALID_REPLICA_ASSIGNMENT; null, to give a     |
|                              | move up: 85 NO_REASSIGNMENT_IN_PROGRESS                    |
| ListPartitionReassignments   | none is under way                                          |

An unknown partition is 3 UNKNOWN_TOPIC_OR_PARTITION in the first two.  Served because tools ask:
Kafka's own describe a topic with the moves under way, and rebalance leaders by habit.
"""

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from .call import Call
from .core import Core
from .pace import Pace


async def elect_leaders(core: Core, call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    """Nobody is elected; of all partitions (null) none is named, as none needs it."""
    rows = []
    pace = Pace()
    for topic in call.request.topic_partitions or ():
        answered = ElectLeadersResponseTopic(topic=topic.topic, partition_result=[])
        rows.append(answered)
        for index in topic.partitions:
            code, message = ErrorCode.ELECTION_NOT_NEEDED, "the only broker leads it already"
            if not core.topics.exists(topic.topic, index):
                code, message = _unknown(topic.topic, index)
            answered.partition_result.append(
                ElectLeadersResponsePartition(
                    partition_id=index, error_code=code, error_message=message
                )
            )
            await pace.step()
    return ElectLeadersResponse(replica_election_results=rows)


async def alter_partition_reassignments(
    core: Core, call: Call[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    """To where it lies: done.  Elsewhere: there is no elsewhere."""
    rows = []
    pace = Pace()
    for topic in call.request.topics:
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

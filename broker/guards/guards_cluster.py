"""Guards of requests about the cluster and its security: see authorized.py.

| api | needs | else |
|---|---|---|
| DescribeCluster | nothing; its operations DESCRIBE cluster | no bits |
| DescribeAcls, DescribeUserScramCredentials, DescribeLogDirs | DESCRIBE cluster | 31 |
| CreateAcls, DeleteAcls, AlterUserScramCredentials | ALTER cluster | 31 |
| ElectLeaders, AlterPartitionReassignments, AlterReplicaLogDirs | ALTER cluster | 31 |
| UpdateFeatures | ALTER cluster | 31 |
| ListPartitionReassignments, DescribeQuorum | DESCRIBE cluster | 31 |
| DescribeClientQuotas, ListConfigResources | DESCRIBE_CONFIGS cluster | 31 |
| AlterClientQuotas | ALTER_CONFIGS cluster | 31 |
"""

from collections.abc import Callable
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.messages_admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsResponse,
    ListConfigResourcesResponse,
)
from segbroker.protocol.messages_placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
    ListPartitionReassignmentsResponse,
    UpdateFeaturesResponse,
)
from segbroker.protocol.messages_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntry,
    DescribeClientQuotasResponse,
)
from segbroker.protocol.messages_security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseUser,
    CreateAclsRequest,
    CreateAclsResponse,
    CreateAclsResponseResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseResult,
    DescribeAclsResponse,
    DescribeUserScramCredentialsResponse,
)
from segbroker.protocol.schema import Message

from ..access.authorizer import (
    ALTER,
    ALTER_CONFIGS,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    Authorizer,
)
from ..call import Call
from ..core import Core
from .guarding import CLUSTER_REFUSED, NOT_ASKED, Amend, Guard

_WHY: Final = CLUSTER_REFUSED.description


def _describe_cluster(
    core: Core, authorizer: Authorizer, call: Call[DescribeClusterRequest]
) -> Amend:
    peer = call.peer

    def amend(response: DescribeClusterResponse) -> None:
        if response.cluster_authorized_operations != NOT_ASKED:
            response.cluster_authorized_operations = authorizer.cluster_operations(peer)

    return amend


def _needs(operation: int, refusal: Callable[[Any], Message]) -> Guard:
    """The guard of an api that is one operation on the cluster."""

    def guard(core: Core, authorizer: Authorizer, call: Call[Any]) -> Message | None:
        return None if authorizer.allows_cluster(call.peer, operation) else refusal(call.request)

    return guard


def _acls_not_created(request: CreateAclsRequest) -> Message:
    return CreateAclsResponse(
        results=[
            CreateAclsResponseResult(error_code=CLUSTER_REFUSED, error_message=_WHY)
            for _ in request.creations
        ]
    )


def _acls_not_deleted(request: DeleteAclsRequest) -> Message:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponseResult(
                error_code=CLUSTER_REFUSED, error_message=_WHY, matching_acls=[]
            )
            for _ in request.filters
        ]
    )


def _credentials_not_altered(request: AlterUserScramCredentialsRequest) -> Message:
    names = dict.fromkeys(
        [one.name for one in request.deletions] + [one.name for one in request.upsertions]
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponseUser(
                user=name, error_code=CLUSTER_REFUSED, error_message=_WHY
            )
            for name in names
        ]
    )


def _quotas_not_altered(request: AlterClientQuotasRequest) -> Message:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntry(
                error_code=CLUSTER_REFUSED,
                error_message=_WHY,
                entity=entry.entity,
            )
            for entry in request.entries
        ]
    )


def _leaders_not_elected(request: ElectLeadersRequest) -> ElectLeadersResponse:
    once: dict[str, dict[int, None]] = {}  # a row is ten times as long as a number
    for topic in request.topic_partitions or ():
        once.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    return ElectLeadersResponse(
        error_code=CLUSTER_REFUSED,
        replica_election_results=[
            ElectLeadersResponseTopic(
                topic=name,
                partition_result=[
                    ElectLeadersResponsePartition(
                        partition_id=index, error_code=CLUSTER_REFUSED, error_message=_WHY
                    )
                    for index in indexes
                ],
            )
            for name, indexes in once.items()
        ],
    )


def _replicas_not_moved(
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=CLUSTER_REFUSED,
        error_message=_WHY,
        responses=[
            AlterPartitionReassignmentsResponseTopic(
                name=topic.name,
                partitions=[
                    AlterPartitionReassignmentsResponsePartition(
                        partition_index=one.partition_index,
                        error_code=CLUSTER_REFUSED,
                        error_message=_WHY,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _log_dirs_not_altered(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseTopic(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsResponsePartition(
                        partition_index=index, error_code=CLUSTER_REFUSED
                    )
                    for index in dict.fromkeys(topic.partitions)
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_LOG_DIRS: _needs(
        DESCRIBE, lambda _: DescribeLogDirsResponse(error_code=CLUSTER_REFUSED, results=[])
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _needs(
        DESCRIBE_CONFIGS,
        lambda _: ListConfigResourcesResponse(error_code=CLUSTER_REFUSED, config_resources=[]),
    ),
    ApiKey.ELECT_LEADERS: _needs(ALTER, _leaders_not_elected),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _needs(ALTER, _replicas_not_moved),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _needs(ALTER, _log_dirs_not_altered),
    ApiKey.UPDATE_FEATURES: _needs(
        ALTER,
        lambda _: UpdateFeaturesResponse(error_code=CLUSTER_REFUSED, error_message=_WHY),
    ),
    ApiKey.DESCRIBE_QUORUM: _needs(
        DESCRIBE,
        lambda _: DescribeQuorumResponse(error_code=CLUSTER_REFUSED, error_message=_WHY, topics=[]),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _needs(
        DESCRIBE,
        lambda _: ListPartitionReassignmentsResponse(
            error_code=CLUSTER_REFUSED, error_message=_WHY, topics=[]
        ),
    ),
    ApiKey.DESCRIBE_ACLS: _needs(
        DESCRIBE,
        lambda _: DescribeAclsResponse(
            error_code=CLUSTER_REFUSED, error_message=_WHY, resources=[]
        ),
    ),
    ApiKey.CREATE_ACLS: _needs(ALTER, _acls_not_created),
    ApiKey.DELETE_ACLS: _needs(ALTER, _acls_not_deleted),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _needs(
        DESCRIBE,
        lambda _: DescribeUserScramCredentialsResponse(
            error_code=CLUSTER_REFUSED, error_message=_WHY, results=[]
        ),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _needs(ALTER, _credentials_not_altered),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _needs(
        DESCRIBE_CONFIGS,
        lambda _: DescribeClientQuotasResponse(
            error_code=CLUSTER_REFUSED, error_message=_WHY, entries=None
        ),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _needs(ALTER_CONFIGS, _quotas_not_altered),
}

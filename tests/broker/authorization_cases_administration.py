"""Requests that administer, and need a rule: topics, settings, rules, quotas, users, placement."""

from collections.abc import Callable

from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_placement as placement
from segbroker.protocol import messages_quotas as quotas
from segbroker.protocol import messages_security as security
from segbroker.protocol.acls import Operation, ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID

from .authorization_case import (
    ALTER,
    C31,
    CREATE,
    DELETE,
    DESCRIBE,
    G30,
    GROUP,
    OF_CLUSTER,
    T29,
    TOPIC,
    Case,
    resource,
)


def _of_settings(
    what: str, kind: int, name: str, of: tuple[ResourceType, str], code: ErrorCode
) -> dict[str, Callable[[], Case]]:
    """Of what is no topic: by each of the three requests."""
    return {
        f"describe configs of {what}": lambda: Case(
            admin.DescribeConfigsRequest(
                resources=[
                    admin.DescribeConfigsRequestResource(
                        **resource(kind, name), configuration_keys=None
                    )
                ]
            ),
            admin.DescribeConfigsResponse,
            3,
            code,
            ((Operation.DESCRIBE_CONFIGS, *of),),
        ),
        f"alter configs of {what}": lambda: Case(
            admin.AlterConfigsRequest(
                resources=[admin.AlterConfigsRequestResource(**resource(kind, name), configs=[])],
                validate_only=True,
            ),
            admin.AlterConfigsResponse,
            1,
            code,
            ((Operation.ALTER_CONFIGS, *of),),
        ),
        f"incremental alter configs of {what}": lambda: Case(
            admin.IncrementalAlterConfigsRequest(
                resources=[
                    admin.IncrementalAlterConfigsRequestResource(**resource(kind, name), configs=[])
                ],
                validate_only=True,
            ),
            admin.IncrementalAlterConfigsResponse,
            1,
            code,
            ((Operation.ALTER_CONFIGS, *of),),
        ),
    }


OF_ADMINISTRATION: dict[str, Callable[[], Case]] = {
    "create topics": lambda: Case(
        admin.CreateTopicsRequest(
            topics=[
                admin.CreateTopicsRequestTopic(
                    name="new",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
            ]
        ),
        admin.CreateTopicsResponse,
        4,
        T29,
        ((CREATE, TOPIC, "new"),),
    ),
    "create topics anywhere": lambda: Case(
        admin.CreateTopicsRequest(
            topics=[
                admin.CreateTopicsRequestTopic(
                    name="new",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
            ]
        ),
        admin.CreateTopicsResponse,
        4,
        T29,
        ((CREATE, *OF_CLUSTER),),
    ),
    "delete topics": lambda: Case(
        admin.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000),
        admin.DeleteTopicsResponse,
        5,
        T29,
        ((DELETE, TOPIC, "t"),),
    ),
    "delete topics, a row of each": lambda: Case(
        admin.DeleteTopicsRequest(
            topics=[admin.DeleteTopicsRequestTopic(name="t", topic_id=ZERO_UUID)],
            timeout_ms=1000,
        ),
        admin.DeleteTopicsResponse,
        6,
        T29,
        ((DELETE, TOPIC, "t"),),
    ),
    "create partitions": lambda: Case(
        admin.CreatePartitionsRequest(
            topics=[admin.CreatePartitionsRequestTopic(name="t", count=2, assignments=None)],
            timeout_ms=1000,
            validate_only=False,
        ),
        admin.CreatePartitionsResponse,
        1,
        T29,
        ((ALTER, TOPIC, "t"),),
    ),
    "delete records": lambda: Case(
        admin.DeleteRecordsRequest(
            topics=[
                admin.DeleteRecordsRequestTopic(
                    name="t",
                    partitions=[admin.DeleteRecordsRequestPartition(partition_index=0, offset=0)],
                )
            ],
            timeout_ms=1000,
        ),
        admin.DeleteRecordsResponse,
        1,
        T29,
        ((DELETE, TOPIC, "t"),),
    ),
    "describe configs of a topic": lambda: Case(
        admin.DescribeConfigsRequest(
            resources=[
                admin.DescribeConfigsRequestResource(**resource(2, "t"), configuration_keys=None)
            ]
        ),
        admin.DescribeConfigsResponse,
        3,
        T29,
        ((Operation.DESCRIBE_CONFIGS, TOPIC, "t"),),
    ),
    "alter configs": lambda: Case(
        admin.AlterConfigsRequest(
            resources=[admin.AlterConfigsRequestResource(**resource(2, "t"), configs=[])],
            validate_only=True,
        ),
        admin.AlterConfigsResponse,
        1,
        T29,
        ((Operation.ALTER_CONFIGS, TOPIC, "t"),),
    ),
    "incremental alter configs": lambda: Case(
        admin.IncrementalAlterConfigsRequest(
            resources=[
                admin.IncrementalAlterConfigsRequestResource(**resource(2, "t"), configs=[])
            ],
            validate_only=True,
        ),
        admin.IncrementalAlterConfigsResponse,
        1,
        T29,
        ((Operation.ALTER_CONFIGS, TOPIC, "t"),),
    ),
    **_of_settings("the broker", 4, "1", OF_CLUSTER, C31),
    **_of_settings("a logger", 8, "1", OF_CLUSTER, C31),
    **_of_settings("a group", 32, "g", (GROUP, "g"), G30),
    "describe acls": lambda: Case(
        security.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        security.DescribeAclsResponse,
        2,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "create acls": lambda: Case(
        security.CreateAclsRequest(
            creations=[
                security.CreateAclsRequestCreation(
                    resource_type=2,
                    resource_name="x",
                    resource_pattern_type=3,
                    principal="User:x",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        security.CreateAclsResponse,
        2,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "delete acls": lambda: Case(
        security.DeleteAclsRequest(
            filters=[
                security.DeleteAclsRequestFilter(
                    resource_type_filter=2,
                    resource_name_filter="x",
                    pattern_type_filter=3,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        security.DeleteAclsResponse,
        2,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "describe client quotas": lambda: Case(
        quotas.DescribeClientQuotasRequest(components=[], strict=False),
        quotas.DescribeClientQuotasResponse,
        1,
        C31,
        ((Operation.DESCRIBE_CONFIGS, *OF_CLUSTER),),
    ),
    "alter client quotas": lambda: Case(
        quotas.AlterClientQuotasRequest(
            entries=[
                quotas.AlterClientQuotasRequestEntry(
                    entity=[quotas.ClientQuotaEntity(entity_type="user", entity_name="x")],
                    ops=[],
                )
            ],
            validate_only=True,
        ),
        quotas.AlterClientQuotasResponse,
        1,
        C31,
        ((Operation.ALTER_CONFIGS, *OF_CLUSTER),),
    ),
    "describe user credentials": lambda: Case(
        security.DescribeUserScramCredentialsRequest(users=None),
        security.DescribeUserScramCredentialsResponse,
        0,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "alter user credentials": lambda: Case(
        security.AlterUserScramCredentialsRequest(
            deletions=[
                security.AlterUserScramCredentialsRequestDeletion(name="nobody", mechanism=1)
            ],
            upsertions=[],
        ),
        security.AlterUserScramCredentialsResponse,
        0,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "describe log dirs": lambda: Case(
        admin.DescribeLogDirsRequest(topics=None),
        admin.DescribeLogDirsResponse,
        4,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "list config resources": lambda: Case(
        admin.ListConfigResourcesRequest(),
        admin.ListConfigResourcesResponse,
        1,
        C31,
        ((Operation.DESCRIBE_CONFIGS, *OF_CLUSTER),),
    ),
    "elect leaders": lambda: Case(
        placement.ElectLeadersRequest(topic_partitions=None),
        placement.ElectLeadersResponse,
        2,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "alter partition reassignments": lambda: Case(
        placement.AlterPartitionReassignmentsRequest(topics=[]),
        placement.AlterPartitionReassignmentsResponse,
        0,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "update features": lambda: Case(
        placement.UpdateFeaturesRequest(feature_updates=[]),
        placement.UpdateFeaturesResponse,
        1,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "alter replica log dirs": lambda: Case(
        placement.AlterReplicaLogDirsRequest(
            dirs=[
                placement.AlterReplicaLogDirsRequestDir(
                    path="/",
                    topics=[placement.AlterReplicaLogDirsRequestTopic(name="t", partitions=[0])],
                )
            ]
        ),
        placement.AlterReplicaLogDirsResponse,
        2,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "describe quorum": lambda: Case(
        placement.DescribeQuorumRequest(topics=[]),
        placement.DescribeQuorumResponse,
        2,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "list partition reassignments": lambda: Case(
        placement.ListPartitionReassignmentsRequest(),
        placement.ListPartitionReassignmentsResponse,
        0,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "describe topic partitions": lambda: Case(
        admin.DescribeTopicPartitionsRequest(
            topics=[admin.DescribeTopicPartitionsRequestTopic(name="t")]
        ),
        admin.DescribeTopicPartitionsResponse,
        0,
        T29,
        ((DESCRIBE, TOPIC, "t"),),
    ),
}

"""What each request about the cluster needs: asked by every user of crowd.py."""

from segbroker.protocol.acls import Operation, ResourceType
from segbroker.protocol.api_keys import ApiKey

from .cases_rules import Ask, asked_by_everybody, nowhere
from .cases_security import quota
from .crowd import rule
from .stage import Stage


@asked_by_everybody(ApiKey.DESCRIBE_CLUSTER)
async def the_cluster_described(stage: Stage) -> Ask:
    return lambda _: {"include_cluster_authorized_operations": True, "endpoint_type": 1}


@asked_by_everybody(ApiKey.DESCRIBE_ACLS)
async def rules_described(stage: Stage) -> Ask:
    asked = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1}
    return lambda _: asked | {"permission_type": 1, "resource_name_filter": nowhere(stage)}


@asked_by_everybody(ApiKey.CREATE_ACLS)
async def rules_made(stage: Stage) -> Ask:
    good = rule("nobody", Operation.READ, ResourceType.TOPIC, nowhere(stage))
    return lambda _: {"creations": [good, good]}


@asked_by_everybody(ApiKey.DELETE_ACLS)
async def rules_deleted(stage: Stage) -> Ask:
    asked = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1}
    asked |= {"permission_type": 1}
    return lambda _: {"filters": [asked | {"resource_name_filter": nowhere(stage)}]}


@asked_by_everybody(ApiKey.DESCRIBE_LOG_DIRS)
async def directories_described(stage: Stage) -> Ask:
    return lambda _: {"topics": [{"topic": nowhere(stage), "partitions": [0]}]}


@asked_by_everybody(ApiKey.ALTER_REPLICA_LOG_DIRS)
async def directories_altered(stage: Stage) -> Ask:
    rows = [{"path": "/no/such", "topics": [{"name": nowhere(stage), "partitions": [0, 1]}]}]
    return lambda _: {"dirs": rows}


@asked_by_everybody(ApiKey.ELECT_LEADERS)
async def leaders_elected(stage: Stage) -> Ask:
    rows = [{"topic": await stage.topic("-t"), "partitions": [0]}]
    rows += [{"topic": nowhere(stage), "partitions": [0]}]
    return lambda _: {"topic_partitions": rows, "timeout_ms": 5_000}


@asked_by_everybody(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
async def moves_asked_for(stage: Stage) -> Ask:
    parts = {"partitions": [{"partition_index": 0, "replicas": None}]}
    rows = [{"name": name} | parts for name in (await stage.topic("-t"), nowhere(stage))]
    return lambda _: {"topics": rows, "timeout_ms": 5_000}


@asked_by_everybody(ApiKey.LIST_PARTITION_REASSIGNMENTS)
async def moves_shown(stage: Stage) -> Ask:
    return lambda _: {"topics": None, "timeout_ms": 5_000}


@asked_by_everybody(ApiKey.DESCRIBE_QUORUM)
async def the_quorum_described(stage: Stage) -> Ask:
    rows = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    return lambda _: {"topics": rows}


@asked_by_everybody(ApiKey.UPDATE_FEATURES)
async def levels_altered(stage: Stage) -> Ask:
    rows = [{"feature": "no.such", "max_version_level": 1, "upgrade_type": 1}]
    return lambda _: {"timeout_ms": 5_000, "feature_updates": rows, "validate_only": True}


@asked_by_everybody(ApiKey.DESCRIBE_CLIENT_QUOTAS)
async def quotas_shown(stage: Stage) -> Ask:
    rows = [{"entity_type": "user", "match_type": 0, "match": stage.name}]
    return lambda _: {"components": rows, "strict": False}


@asked_by_everybody(ApiKey.ALTER_CLIENT_QUOTAS)
async def quotas_set(stage: Stage) -> Ask:
    rows = [quota("producer_byte_rate", 1e6, user=stage.name), quota("x", 1.0, user=stage.name)]
    return lambda _: {"entries": rows, "validate_only": True}


@asked_by_everybody(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
async def users_shown(stage: Stage) -> Ask:
    return lambda _: {"users": [{"name": nowhere(stage)}]}


@asked_by_everybody(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
async def users_altered(stage: Stage) -> Ask:
    return lambda _: {"deletions": [{"name": nowhere(stage), "mechanism": 1}]}

"""Requests that leave a name empty, by somebody who may do nothing and by somebody who may do
everything of names that begin as those of cases do: a rule about that is none about an empty one.

Whether a name is looked at before it is asked who may do something to it, each request has its own
way.
"""

from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey

from .cases import Ground, Play, case
from .cases_produce import batch
from .stage import Stage

USERS: Final = ("nothing", "all")
_PRODUCER: Final = {"transactional_id": "", "producer_id": 4_000_000, "producer_epoch": 0}
_MEMBER: Final = {"generation_id": 1, "member_id": "stranger"}
_SERVED_SINCE: Final = {ApiKey.PRODUCE: 3}
_GROUP: Final = {"group_id": ""}
_PROTOCOL: Final = {"protocol_type": "consumer", "protocol_name": "range"}
_ROW: Final = {"partition_index": 0}


def _topics(**row: Any) -> dict[str, Any]:
    return {"topics": [{"name": ""} | row]}


def _asked(version: int) -> dict[ApiKey, dict[str, Any]]:
    data = [{"index": 0, "records": batch(1)}]
    committed = [_ROW | {"committed_offset": 1, "committed_metadata": ""}]
    configs = [{"name": "retention.ms", "value": "1000"}]
    changed = [configs[0] | {"config_operation": 0}]
    resource = {"resource_type": 2, "resource_name": ""}
    wait = {"timeout_ms": 9_000}
    return {
        ApiKey.PRODUCE: {"acks": -1, "topic_data": [{"name": "", "partition_data": data}]} | wait,
        ApiKey.FETCH: {
            "replica_id": -1,
            "session_epoch": -1,
            "topics": [{"topic": "", "partitions": [{"partition": 0, "partition_max_bytes": 9}]}],
        },
        ApiKey.LIST_OFFSETS: {"replica_id": -1} | _topics(partitions=[_ROW | {"timestamp": -1}]),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            "replica_id": -1,
            "topics": [{"topic": "", "partitions": [{"partition": 0, "leader_epoch": 0}]}],
        },
        ApiKey.METADATA: {"allow_auto_topic_creation": True} | _topics(),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"response_partition_limit": 9} | _topics(),
        ApiKey.CREATE_TOPICS: _topics(num_partitions=1, replication_factor=1) | wait,
        ApiKey.DELETE_TOPICS: wait | (_topics() if version >= 6 else {"topic_names": [""]}),
        ApiKey.CREATE_PARTITIONS: _topics(count=2, assignments=None) | wait,
        ApiKey.DELETE_RECORDS: _topics(partitions=[_ROW | {"offset": 0}]) | wait,
        ApiKey.DESCRIBE_PRODUCERS: _topics(partition_indexes=[0]),
        ApiKey.DESCRIBE_CONFIGS: {"resources": [resource | {"configuration_keys": None}]},
        ApiKey.ALTER_CONFIGS: {"resources": [resource | {"configs": configs}]},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": [resource | {"configs": changed}]},
        ApiKey.OFFSET_COMMIT: _GROUP | _topics(partitions=committed),
        ApiKey.OFFSET_FETCH: {"groups": [_GROUP | _topics(partition_indexes=[0])]}
        if version >= 8
        else _GROUP | _topics(partition_indexes=[0]),
        ApiKey.OFFSET_DELETE: _GROUP | _topics(partitions=[_ROW]),
        ApiKey.HEARTBEAT: _GROUP | _MEMBER,
        ApiKey.SYNC_GROUP: _GROUP | _MEMBER | _PROTOCOL,
        ApiKey.LEAVE_GROUP: _GROUP | {"member_id": "stranger", "members": [{"member_id": "m"}]},
        ApiKey.DESCRIBE_GROUPS: {"groups": [""]},
        ApiKey.DELETE_GROUPS: {"groups_names": [""]},
        ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [""]},
        ApiKey.SHARE_GROUP_DESCRIBE: {"group_ids": [""]},
        ApiKey.STREAMS_GROUP_DESCRIBE: {"group_ids": [""]},
        ApiKey.INIT_PRODUCER_ID: {"transactional_id": "", "transaction_timeout_ms": 60_000},
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            f"v3_and_below_{name}": value for name, value in _PRODUCER.items()
        }
        | {"v3_and_below_topics": [{"name": "", "partitions": [0]}]},
        ApiKey.ADD_OFFSETS_TO_TXN: _PRODUCER | _GROUP,
        ApiKey.TXN_OFFSET_COMMIT: _PRODUCER | _GROUP | _topics(partitions=committed),
        ApiKey.END_TXN: _PRODUCER | {"committed": True},
        ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": [""]},
    }


def _without_a_name(key: ApiKey) -> Play:
    async def without_a_name(stage: Stage) -> None:
        for user in USERS:
            await (await stage.of(user)).ask(user, key, **_asked(stage.version)[key])

    without_a_name.__name__ = f"{key.name.lower()}_without_a_name"
    return without_a_name


for _key in _asked(0):
    case(_key, _SERVED_SINCE.get(_key, 0), ground=Ground.GUARDED)(_without_a_name(_key))

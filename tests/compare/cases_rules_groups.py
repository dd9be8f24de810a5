"""What each request about groups of every kind needs: asked by every user of crowd.py."""

from typing import Any, Final
from uuid import UUID

from segbroker.protocol.api_keys import ApiKey

from . import cases_shares, cases_streams
from .cases_groups import PROTOCOLS, stood
from .cases_kinds import consuming
from .cases_produce import batch
from .cases_rules import Ask, asked_by_everybody, known_by, nowhere
from .crowd import USERS
from .stage import Stage

MEMBER: Final = "FFFFFFFFFFFFFFFFFFFFFQ"
LEFT: Final = -1


def _two(stage: Stage, topic: str, field: str = "name", **row: Any) -> list[dict[str, Any]]:
    """A topic that is there and one that is not."""
    return [{field: name} | row for name in (topic, nowhere(stage))]


async def _standing(stage: Stage) -> str:
    """A topic that the group of the case stands in, without members."""
    topic = await stage.topic("-t")
    await stood(stage, topic, stage.name)
    return topic


@asked_by_everybody(ApiKey.FIND_COORDINATOR)
async def coordinators_of_groups(stage: Stage) -> Ask:
    if stage.version >= 4:
        return lambda _: {"key_type": 0, "coordinator_keys": [stage.name, ""]}
    return lambda _: {"key": stage.name}


@asked_by_everybody(ApiKey.FIND_COORDINATOR, since=1)
async def coordinators_of_transactions(stage: Stage) -> Ask:
    if stage.version >= 4:
        return lambda _: {"key_type": 1, "coordinator_keys": [stage.name, ""]}
    return lambda _: {"key_type": 1, "key": stage.name}


@asked_by_everybody(ApiKey.FIND_COORDINATOR, since=6)
async def coordinators_of_shares(stage: Stage) -> Ask:
    keys = [f"{stage.name}:{UUID(int=77)}:0", "nonsense"]
    return lambda _: {"key_type": 2, "coordinator_keys": keys}


@asked_by_everybody(ApiKey.JOIN_GROUP)
async def members_joining(stage: Stage) -> Ask:
    fields: dict[str, Any] = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    fields |= {"protocol_type": "consumer", "member_id": "stranger", "protocols": PROTOCOLS}
    return lambda _: fields | {"group_id": stage.name}


@asked_by_everybody(ApiKey.SYNC_GROUP)
async def members_in_step(stage: Stage) -> Ask:
    fields = {"generation_id": 1, "member_id": "stranger"}
    fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    return lambda _: fields | {"group_id": stage.name}


@asked_by_everybody(ApiKey.HEARTBEAT)
async def members_alive(stage: Stage) -> Ask:
    return lambda _: {"group_id": stage.name, "generation_id": 1, "member_id": "stranger"}


@asked_by_everybody(ApiKey.LEAVE_GROUP)
async def members_leaving(stage: Stage) -> Ask:
    if stage.version >= 3:
        return lambda _: {"group_id": stage.name, "members": [{"member_id": "stranger"}]}
    return lambda _: {"group_id": stage.name, "member_id": "stranger"}


@asked_by_everybody(ApiKey.OFFSET_COMMIT)
async def offsets_committed(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    rows: list[dict[str, Any]] = [await known_by(stage, topic, 10) | {"partitions": [row]}]
    if stage.version < 10:
        rows.append({"name": nowhere(stage), "partitions": [row]})
    fields: dict[str, Any] = {"group_id": stage.name, "generation_id_or_member_epoch": -1}
    return lambda _: fields | {"member_id": "", "topics": rows}


@asked_by_everybody(ApiKey.OFFSET_FETCH)
async def offsets_fetched(stage: Stage) -> Ask:
    topic = await _standing(stage)
    rows: list[dict[str, Any]] = [await known_by(stage, topic, 10) | {"partition_indexes": [0]}]
    if stage.version < 10:
        rows.append({"name": nowhere(stage), "partition_indexes": [0]})
    if stage.version >= 8:
        one = {"group_id": stage.name, "topics": rows, "member_epoch": -1}
        return lambda _: {"groups": [one]}
    return lambda _: {"group_id": stage.name, "topics": rows}


@asked_by_everybody(ApiKey.OFFSET_FETCH, since=2)
async def all_offsets_fetched(stage: Stage) -> Ask:
    await _standing(stage)
    if stage.version >= 8:
        one = {"group_id": stage.name, "topics": None, "member_epoch": -1}
        return lambda _: {"groups": [one]}
    return lambda _: {"group_id": stage.name, "topics": None}


@asked_by_everybody(ApiKey.OFFSET_DELETE)
async def offsets_deleted(stage: Stage) -> Ask:
    topic = await _standing(stage)
    await stood(stage, await stage.topic("-u"), stage.name)  # so that the group stays
    rows = _two(stage, topic, partitions=[{"partition_index": 0}])
    return lambda _: {"group_id": stage.name, "topics": rows}


@asked_by_everybody(ApiKey.DESCRIBE_GROUPS)
async def groups_described(stage: Stage) -> Ask:
    await _standing(stage)
    names = [stage.name, f"{stage.name}-none"]
    return lambda _: {"groups": names, "include_authorized_operations": True}


@asked_by_everybody(ApiKey.LIST_GROUPS)
async def groups_listed(stage: Stage) -> Ask:
    await _standing(stage)
    return lambda _: {}


@asked_by_everybody(ApiKey.DELETE_GROUPS)
async def groups_deleted(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    for user in USERS:
        await stood(stage, topic, f"{stage.name}-{user.name}")
    none = f"{stage.name}-none"
    return lambda user: {"groups_names": [f"{stage.name}-{user}", none]}


@asked_by_everybody(ApiKey.CONSUMER_GROUP_HEARTBEAT)
async def consumers_beating(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    fields: dict[str, Any] = {"member_id": MEMBER, "member_epoch": 0, "topic_partitions": []}
    fields |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic, nowhere(stage)]}
    return lambda user: fields | {"group_id": f"{stage.name}-{user}"}


@asked_by_everybody(ApiKey.CONSUMER_GROUP_HEARTBEAT, since=1)
async def consumers_by_expression(stage: Stage) -> Ask:
    await stage.topic("-t")
    fields: dict[str, Any] = {"member_id": MEMBER, "member_epoch": 0, "topic_partitions": []}
    fields |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_regex": f"{stage.name}.*"}
    return lambda user: fields | {"group_id": f"{stage.name}-{user}"}


@asked_by_everybody(ApiKey.CONSUMER_GROUP_DESCRIBE)
async def consumers_described(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    await consuming(stage, topic, stage.name)
    names = [stage.name, f"{stage.name}-none"]
    return lambda _: {"group_ids": names, "include_authorized_operations": True}


@asked_by_everybody(ApiKey.SHARE_GROUP_HEARTBEAT)
async def sharers_beating(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    fields: dict[str, Any] = {"member_id": MEMBER, "member_epoch": 0}
    fields |= {"subscribed_topic_names": [topic, nowhere(stage)]}
    return lambda user: fields | {"group_id": f"{stage.name}-{user}"}


@asked_by_everybody(ApiKey.SHARE_GROUP_DESCRIBE)
async def sharers_described(stage: Stage) -> Ask:
    await cases_shares.joined(stage, await stage.topic("-t"))
    names = [stage.name, f"{stage.name}-none"]
    return lambda _: {"group_ids": names, "include_authorized_operations": True}


@asked_by_everybody(ApiKey.SHARE_FETCH)
async def sharers_fetching(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    await cases_shares.joined(stage, topic)
    await cases_shares.looked_up(stage, topic)
    rows = [{"topic_id": await stage.topic_id(topic), "partitions": [{"partition_index": 0}]}]
    fields: dict[str, Any] = {"group_id": stage.name, "share_session_epoch": 0, "topics": rows}
    fields |= {"max_wait_ms": 10, "max_bytes": 1 << 20, "max_records": 9, "batch_size": 9}
    made = (f"FFFFFFFFFFFFFFFFFFFF{n:02d}" for n in range(len(USERS)))
    members = dict(zip((user.name for user in USERS), made, strict=True))
    return lambda user: fields | {"member_id": members[user]}


@asked_by_everybody(ApiKey.SHARE_ACKNOWLEDGE)
async def sharers_acknowledging(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    acked = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    part = {"partition_index": 0, "acknowledgement_batches": acked}
    rows = [{"topic_id": await stage.topic_id(topic), "partitions": [part]}]
    fields = {"group_id": stage.name, "member_id": MEMBER, "share_session_epoch": 3}
    return lambda _: fields | {"topics": rows}


@asked_by_everybody(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
async def places_of_sharers(stage: Stage) -> Ask:
    topic = await _shared(stage)
    rows = [{"topic_name": name, "partitions": [0]} for name in (topic, nowhere(stage))]
    return lambda _: {"groups": [{"group_id": stage.name, "topics": rows}]}


@asked_by_everybody(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
async def all_places_of_sharers(stage: Stage) -> Ask:
    await _shared(stage)
    return lambda _: {"groups": [{"group_id": stage.name, "topics": None}]}


async def _shared(stage: Stage) -> str:
    """A topic of a share group without members that begins at its first record."""
    topic = await stage.topic("-t")
    await stage.produce(topic, batch())
    await cases_shares.joined(stage, topic)
    reader = cases_shares.Reader(stage, await stage.topic_id(topic))
    await reader.took()
    await reader.took(
        acks=[cases_shares.done(0, 0, cases_shares.ACCEPT)], max_wait_ms=cases_shares.NOT_MS
    )
    await cases_shares.left(stage)
    return topic


@asked_by_everybody(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
async def places_of_sharers_altered(stage: Stage) -> Ask:
    topic = await _shared(stage)
    part = {"partition_index": 0, "start_offset": 1}
    rows = [{"topic_name": name, "partitions": [part]} for name in (topic, nowhere(stage))]
    return lambda _: {"group_id": stage.name, "topics": rows}


@asked_by_everybody(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
async def places_of_sharers_deleted(stage: Stage) -> Ask:
    topic = await _shared(stage)
    rows = [{"topic_name": name} for name in (topic, nowhere(stage))]
    return lambda _: {"group_id": stage.name, "topics": rows}


@asked_by_everybody(ApiKey.STREAMS_GROUP_HEARTBEAT)
async def streams_beating(stage: Stage) -> Ask:
    topic = await stage.topic("-t")

    def asking(user: str) -> dict[str, Any]:
        made = cases_streams.counting(f"{stage.name}-{user}", topic)
        return cases_streams.beat(stage, *made, group_id=f"{stage.name}-{user}")

    return asking


@asked_by_everybody(ApiKey.STREAMS_GROUP_DESCRIBE)
async def streams_described(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    await cases_streams.stable(stage, cases_streams.reading(topic))
    names = [stage.name, f"{stage.name}-none"]
    return lambda _: {"group_ids": names, "include_authorized_operations": True}

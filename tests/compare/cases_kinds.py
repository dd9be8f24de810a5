"""Every request about groups to a group of every kind: what a share group says to a SyncGroup."""

from collections.abc import Awaitable, Callable
from typing import Any

from segbroker.protocol.api_keys import ApiKey

from . import cases_shares, cases_streams
from .cases import case
from .cases_groups import PROTOCOLS, stood, synced
from .cases_transactions import begun
from .stage import Stage

CONSUMER = "DDDDDDDDDDDDDDDDDDDDDQ"


async def consuming(stage: Stage, topic: str, group: str) -> None:
    """A consumer group of the newer protocol with one member."""
    answer = await stage.quietly(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        group_id=group,
        member_id=CONSUMER,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    assert answer.error_code == 0, answer


async def made(stage: Stage, topic: str) -> dict[str, str]:
    """A group of every kind, with a member and without one; its name."""
    groups = {
        kind: f"{stage.name}-{kind.replace(' ', '-')}"
        for kind in (
            *("classic", "classic, empty", "offsets", "consumer", "consumer, empty"),
            *("share", "share, empty", "streams", "streams, empty", "none"),
        )
    }
    for kind in ("classic", "classic, empty"):
        member = await synced(stage, group_id=groups[kind])
        await stood(stage, topic, groups[kind], member)
    left = {"group_id": groups["classic, empty"], "member_id": member.member_id}
    await stage.quietly(ApiKey.LEAVE_GROUP, 1, **left)
    await stood(stage, topic, groups["offsets"])
    for kind in ("consumer", "consumer, empty"):
        await consuming(stage, topic, groups[kind])
    left = {"group_id": groups["consumer, empty"], "member_id": CONSUMER, "member_epoch": -1}
    await stage.quietly(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, **left)
    for kind in ("share", "share, empty"):
        await cases_shares.joined(stage, topic, group=groups[kind])
    await cases_shares.left(stage, groups["share, empty"])
    for kind in ("streams", "streams, empty"):
        await cases_streams.stable(stage, cases_streams.reading(topic), group_id=groups[kind])
    await cases_streams.left(stage, groups["streams, empty"])
    return groups


def every_kind(
    key: ApiKey, since: int = 0
) -> Callable[[Callable[[Stage, str, str], dict[str, Any]]], Callable[[Stage], Awaitable[None]]]:
    """A case that asks all kinds; the function says what is asked of one group."""

    def add(
        asked: Callable[[Stage, str, str], dict[str, Any]],
    ) -> Callable[[Stage], Awaitable[None]]:
        async def run(stage: Stage) -> None:
            topic = await stage.topic("-t", 2)
            await stage.topic_id(topic)
            for kind, group in (await made(stage, topic)).items():
                await stage.ask(kind, key, **asked(stage, topic, group))

        run.__name__ = asked.__name__
        return case(key, since)(run)

    return add


@every_kind(ApiKey.JOIN_GROUP)
def kinds_joined(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    fields = {"group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 1_000}
    fields |= {"protocol_type": "consumer", "protocols": PROTOCOLS}
    return fields | {"member_id": "somebody"}


@every_kind(ApiKey.SYNC_GROUP)
def kinds_synced(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"group_id": group, "generation_id": 1, "member_id": "x", "assignments": []}


@every_kind(ApiKey.HEARTBEAT)
def kinds_beaten(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"group_id": group, "generation_id": 1, "member_id": "x"}


@every_kind(ApiKey.LEAVE_GROUP)
def kinds_left(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    if stage.version >= 3:
        return {"group_id": group, "members": [{"member_id": "x"}]}
    return {"group_id": group, "member_id": "x"}


@every_kind(ApiKey.OFFSET_COMMIT, since=2)
def kinds_committed(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    fields = {"group_id": group, "member_id": "", "generation_id_or_member_epoch": -1}
    which: dict[str, Any] = {"name": topic}
    if stage.version >= 10:
        (known,) = (topic_id for topic_id, name in stage.topics.items() if name == topic)
        which = {"topic_id": known}
    return fields | {"topics": [which | {"partitions": [row]}]}


@every_kind(ApiKey.OFFSET_FETCH, since=2)
def kinds_fetched(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"group_id": group, "topics": None}
    if stage.version >= 8:
        return {"groups": [asked | {"member_epoch": -1}]}
    return asked


@every_kind(ApiKey.OFFSET_DELETE)
def kinds_whose_offsets_go(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}


@every_kind(ApiKey.DESCRIBE_GROUPS)
def kinds_described_as_classic(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"groups": [group]}


@every_kind(ApiKey.CONSUMER_GROUP_DESCRIBE)
def kinds_described_as_consumers(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"group_ids": [group]}


@every_kind(ApiKey.SHARE_GROUP_DESCRIBE)
def kinds_described_as_shares(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"group_ids": [group]}


@every_kind(ApiKey.STREAMS_GROUP_DESCRIBE)
def kinds_described_as_streams(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"group_ids": [group]}


@every_kind(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def kinds_consumed(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    fields = {"group_id": group, "member_id": "x", "member_epoch": 3}
    return fields | {"rebalance_timeout_ms": -1}


@every_kind(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def kinds_joined_as_consumers(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    fields = {"group_id": group, "member_id": "EEEEEEEEEEEEEEEEEEEEEQ", "member_epoch": 0}
    fields |= {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [f"{topic}-no"]}
    return fields | {"topic_partitions": []}


@every_kind(ApiKey.SHARE_GROUP_HEARTBEAT)
def kinds_shared(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    fields = {"group_id": group, "member_id": "EEEEEEEEEEEEEEEEEEEEEQ", "member_epoch": 0}
    return fields | {"subscribed_topic_names": [f"{topic}-no"]}


@every_kind(ApiKey.STREAMS_GROUP_HEARTBEAT)
def kinds_streamed(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    fields = cases_streams.beat(stage, cases_streams.reading(f"{topic}-no"), group_id=group)
    return fields | {"member_id": "EEEEEEEEEEEEEEEEEEEEEQ", "process_id": "p2"}


@every_kind(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
def kinds_whose_starts_are_described(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"groups": [{"group_id": group, "topics": None}]}


@every_kind(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
def kinds_whose_starts_are_altered(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    row = {"partition_index": 0, "start_offset": 0}
    return {"group_id": group, "topics": [{"topic_name": topic, "partitions": [row]}]}


@every_kind(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
def kinds_whose_starts_go(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"group_id": group, "topics": [{"topic_name": topic}]}


@every_kind(ApiKey.DELETE_GROUPS)
def kinds_deleted(stage: Stage, topic: str, group: str) -> dict[str, Any]:
    return {"groups_names": [group]}


@case(ApiKey.TXN_OFFSET_COMMIT)
async def kinds_committed_to_by_transactions(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    me = await begun(stage)
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    for kind, group in (await made(stage, topic)).items():
        await stage.quietly(ApiKey.ADD_OFFSETS_TO_TXN, 1, **me, group_id=group)
        named = [{"name": topic, "partitions": [row]}]
        fields = me | {"group_id": group, "generation_id": -1, "topics": named}
        await stage.ask(kind, ApiKey.TXN_OFFSET_COMMIT, **fields)


async def listed(stage: Stage, label: str, names: set[str], **more: Any) -> None:
    """Ask for all groups, and keep what is said of these."""
    answer = await stage.quietly(ApiKey.LIST_GROUPS, stage.version, **more)
    answer.groups = [group for group in answer.groups if group.group_id in names]
    stage.keep(label, answer)


@case(ApiKey.LIST_GROUPS)
async def kinds_listed(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    names = set((await made(stage, topic)).values())
    await listed(stage, "all", names)
    if stage.version >= 4:
        for states in (["Empty"], ["stable", "EMPTY"], ["Assigning"], ["NotReady"], ["Dead"], [""]):
            await listed(stage, f"in {states}", names, states_filter=states)
    if stage.version >= 5:
        for types in (["Classic"], ["consumer", "share"], ["STREAMS"], ["Unknown"], [""]):
            await listed(stage, f"of {types}", names, types_filter=types)
        both = {"types_filter": ["share"], "states_filter": ["Empty"]}
        await listed(stage, "both", names, **both)

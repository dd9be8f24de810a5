"""Members of groups by the classic protocol, and what a group is asked for."""

from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
)

from ..answers import Fields
from .moves import mostly, move, version
from .scene import GROUPS, PARTITIONS, Scene

CLASSIC: Final = ("c0", "c1", "c2", "c3", "c4", "c5")
NOBODY: Final = "nobody"
SESSION_MS: Final = 120_000
PLACES_SINCE: Final = {
    ApiKey.JOIN_GROUP: 5,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
    ApiKey.OFFSET_COMMIT: 7,
}
MEMBERS_SINCE: Final = 3  # LeaveGroup
GROUPS_SINCE, IDS_SINCE = 8, 10  # OffsetFetch; of OffsetCommit and OffsetFetch


def _who(random: Random) -> str:
    return random.choice(CLASSIC)


def _off(random: Random) -> int:
    return int(mostly(random, 0, -1, 1, unusual=0.2))


def _draw_join(random: Random) -> dict[str, Any]:
    return {
        "who": _who(random),
        "version": version(random, ApiKey.JOIN_GROUP),
        "identity": mostly(random, "own", "none", NOBODY, unusual=0.2),
        "topics": random.choice(([0], [0], [0, 1], [1], [2])),
        "offers": random.choice((["range"], ["range"], ["range", "roundrobin"], ["roundrobin"])),
        "kind": mostly(random, "consumer", "connect", "", unusual=0.05),
    }


@move("groups", 6, _draw_join)
async def join(
    scene: Scene,
    who: str,
    version: int,
    identity: str,
    topics: list[int],
    offers: list[str],
    kind: str,
) -> None:
    """A member joins, or joins again."""
    one = scene.members[who]
    is_static = version >= PLACES_SINCE[ApiKey.JOIN_GROUP]

    def then(answer: Any) -> Fields:
        if answer.member_id and answer.error_code in (0, 79):
            scene.names.met(answer.member_id, who)
            one.id = answer.member_id
        if answer.error_code:
            return {}
        same = answer.generation_id == one.generation
        one.generation, one.protocol = answer.generation_id, answer.protocol_name
        one.others = [row.member_id for row in answer.members]
        if one.group in scene.newer_groups:
            return {"generation_id": "as before" if same else "another"}
        return {}

    if one.instance is not None:
        # Who takes a place with other words begins a rebalance here (decision 0260).
        topics, offers = [0], ["range"]
    names = tuple(scene.topic(number) for number in topics)
    wants = encode_subscription(Subscription(names, generation=one.generation))
    scene.start(
        ApiKey.JOIN_GROUP,
        version,
        who,
        then,
        group_id=scene.group(one.group),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id={"own": one.id, "none": "", NOBODY: NOBODY}[identity],
        group_instance_id=one.instance if is_static else None,
        protocol_type=kind,
        protocols=[{"name": name, "metadata": wants} for name in offers],
    )


def _draw_sync(random: Random) -> dict[str, Any]:
    return {
        "who": _who(random),
        "version": version(random, ApiKey.SYNC_GROUP),
        "off": _off(random),
        "leads": mostly(random, None, True, False, unusual=0.05),
    }


@move("groups", 6, _draw_sync)
async def sync(scene: Scene, who: str, version: int, off: int, leads: bool | None) -> None:
    """A member asks for its part; the leader deals it out.

    leads: whether it does, None if it was told so.
    """
    one = scene.members[who]
    deals = bool(one.others) if leads is None else leads
    whom = one.others or [one.id]
    part = encode_assignment([(scene.topic(0), 0)])
    is_static = version >= PLACES_SINCE[ApiKey.SYNC_GROUP]
    scene.start(
        ApiKey.SYNC_GROUP,
        version,
        who,
        # Which partitions are whose goes by ids that are drawn at random.
        lambda answer: {"assignment": "*"} if one.group in scene.newer_groups else {},
        group_id=scene.group(one.group),
        generation_id=one.generation + off,
        member_id=one.id,
        group_instance_id=one.instance if is_static else None,
        protocol_type="consumer",
        protocol_name=one.protocol or "range",
        assignments=[{"member_id": other, "assignment": part} for other in whom] if deals else [],
    )


def _draw_beat(random: Random) -> dict[str, Any]:
    return {
        "who": _who(random),
        "version": version(random, ApiKey.HEARTBEAT),
        "off": _off(random),
    }


@move("groups", 4, _draw_beat)
async def beat(scene: Scene, who: str, version: int, off: int) -> None:
    """A member is alive."""
    one = scene.members[who]
    is_static = version >= PLACES_SINCE[ApiKey.HEARTBEAT]
    await scene.ask(
        ApiKey.HEARTBEAT,
        version,
        group_id=scene.group(one.group),
        generation_id=one.generation + off,
        member_id=one.id,
        group_instance_id=one.instance if is_static else None,
    )


def _draw_leave(random: Random) -> dict[str, Any]:
    return {
        "who": _who(random),
        "version": version(random, ApiKey.LEAVE_GROUP),
        "by_place": random.random() < 0.4,
    }


@move("groups", 3, _draw_leave)
async def leave(scene: Scene, who: str, version: int, by_place: bool) -> None:
    """A member goes; a static one may be sent away by the name of its place."""
    one = scene.members[who]
    fields: dict[str, Any] = {"member_id": one.id}
    if version >= MEMBERS_SINCE:
        row: dict[str, Any] = {"member_id": one.id}
        if one.instance is not None and by_place:
            row = {"member_id": "", "group_instance_id": one.instance}
        fields = {"members": [row]}
    answer = await scene.ask(ApiKey.LEAVE_GROUP, version, group_id=scene.group(one.group), **fields)
    if answer is not None and answer.error_code == 0:
        one.others = []


def _draw_commit(random: Random) -> dict[str, Any]:
    return {
        "who": mostly(random, None, *CLASSIC, "k0", "k1", "k2", "k3", "k5", unusual=0.7),
        "group": random.randrange(GROUPS),
        "topic": random.choice((0, 0, 1, 2, 3)),
        "partition": random.randrange(PARTITIONS),
        "offset": mostly(random, random.randrange(9), -1, unusual=0.05),
        "version": version(random, ApiKey.OFFSET_COMMIT),
        "off": _off(random),
    }


@move("groups", 5, _draw_commit)
async def commit(
    scene: Scene,
    who: str | None,
    group: int,
    topic: int,
    partition: int,
    offset: int,
    version: int,
    off: int,
) -> None:
    """An offset stands, said by a member or by nobody."""
    fields: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
    if who is not None:
        one = scene.members[who]
        group = one.group
        is_static = version >= PLACES_SINCE[ApiKey.OFFSET_COMMIT]
        fields = {
            "member_id": one.id,
            "generation_id_or_member_epoch": one.generation + off,
            "group_instance_id": one.instance if is_static else None,
        }
    which: dict[str, Any] = {"name": scene.topic(topic)}
    if version >= IDS_SINCE:
        which = {"topic_id": scene.topic_id(topic)}
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": "m"}
    await scene.ask(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=scene.group(group),
        topics=[which | {"partitions": [row]}],
        **fields,
    )


def _draw_offsets(random: Random) -> dict[str, Any]:
    return {
        "group": random.randrange(GROUPS),
        "topics": random.choice((None, None, [0], [0, 1], [3])),
        "stable": random.random() < 0.3,
        "version": version(random, ApiKey.OFFSET_FETCH),
        "who": mostly(random, None, "c0", "k0", "k1", "k5", unusual=0.25),
        "off": _off(random),
    }


@move("groups", 4, _draw_offsets)
async def offsets(
    scene: Scene,
    group: int,
    topics: list[int] | None,
    stable: bool,
    version: int,
    who: str | None,
    off: int,
) -> None:
    """Where a group stands."""
    rows = None
    if topics is not None or version < 2:
        rows = []
        for number in topics or [0]:
            which: dict[str, Any] = {"name": scene.topic(number)}
            if version >= IDS_SINCE:
                which = {"topic_id": scene.topic_id(number)}
            rows.append(which | {"partition_indexes": list(range(PARTITIONS))})
    asked: dict[str, Any] = {"group_id": scene.group(group), "topics": rows}
    if version >= GROUPS_SINCE:
        if who is not None:
            one = scene.members[who]
            asked["group_id"] = scene.group(one.group)
            asked |= {"member_id": one.id, "member_epoch": one.generation + off}
        asked = {"groups": [asked]}
    await scene.ask(ApiKey.OFFSET_FETCH, version, require_stable=stable, **asked)


def _draw_forget(random: Random) -> dict[str, Any]:
    return {
        "group": random.randrange(GROUPS),
        "topic": random.choice((0, 0, 1, 3)),
        "partition": random.randrange(PARTITIONS),
    }


@move("groups", 2, _draw_forget)
async def forget(scene: Scene, group: int, topic: int, partition: int) -> None:
    """An offset is deleted."""
    row = {"name": scene.topic(topic), "partitions": [{"partition_index": partition}]}
    await scene.ask(ApiKey.OFFSET_DELETE, 0, group_id=scene.group(group), topics=[row])


def _draw_group(key: ApiKey) -> Any:
    def draw(random: Random) -> dict[str, Any]:
        return {"group": random.randrange(GROUPS), "version": version(random, key)}

    return draw


@move("groups", 2, _draw_group(ApiKey.DELETE_GROUPS))
async def delete_group(scene: Scene, group: int, version: int) -> None:
    """A group is deleted."""
    await scene.ask(ApiKey.DELETE_GROUPS, version, groups_names=[scene.group(group)])


@move("groups", 3, _draw_group(ApiKey.DESCRIBE_GROUPS))
async def describe_group(scene: Scene, group: int, version: int) -> None:
    """A group as the classic protocol sees it."""
    await scene.ask(ApiKey.DESCRIBE_GROUPS, version, groups=[scene.group(group)])


@move("groups", 2, _draw_group(ApiKey.CONSUMER_GROUP_DESCRIBE))
async def describe_consumers(scene: Scene, group: int, version: int) -> None:
    """A group as KIP-848 sees it."""
    await scene.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=[scene.group(group)])


def _draw_list(random: Random) -> dict[str, Any]:
    states = ("Stable", "empty", "PreparingRebalance", "COMPLETINGREBALANCE", "Dead", "Assigning")
    kinds = ("classic", "Consumer", "share", "streams", "nonsense")
    return {
        "version": version(random, ApiKey.LIST_GROUPS),
        "states": random.choice(([], [], random.sample(states, 2))),
        "kinds": random.choice(([], [], random.sample(kinds, 2))),
    }


@move("groups", 2, _draw_list)
async def list_groups(scene: Scene, version: int, states: list[str], kinds: list[str]) -> None:
    """Which groups there are, of this story."""
    answer = await scene.quietly(
        ApiKey.LIST_GROUPS,
        version,
        states_filter=states if version >= 4 else [],
        types_filter=kinds if version >= 5 else [],
    )
    answer.groups = [row for row in answer.groups if row.group_id.startswith(scene.title)]
    scene.keep(ApiKey.LIST_GROUPS, version, answer)

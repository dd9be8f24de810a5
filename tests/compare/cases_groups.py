"""Groups and offsets, with members that speak the classic protocol."""

from typing import Any

import trio

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.consumer_protocol import Subscription, encode_subscription

from .cases import case
from .stage import Stage

PROTOCOLS = [{"name": "range", "metadata": b"\0\1"}, {"name": "other", "metadata": b"x"}]
MEMBER_ID_REQUIRED = 79
# The version of OffsetCommit that knows topics by their ids.
IDS_SINCE = 10


async def commit(stage: Stage, label: str, topic: str, offset: int, **more: Any) -> Any:
    row: dict[str, Any] = {"partition_index": 0, "committed_offset": offset}
    row |= {"committed_metadata": "noted"}
    fields: dict[str, Any] = {"group_id": stage.name, "member_id": ""}
    fields["generation_id_or_member_epoch"] = -1
    for name, value in more.items():
        (row if name.startswith(("committed", "partition")) else fields)[name] = value
    which: dict[str, Any] = {"name": topic}
    if stage.version >= IDS_SINCE:
        which = {"topic_id": await stage.topic_id(topic)}
    named = [which | {"partitions": [row]}]
    return await stage.ask(label, ApiKey.OFFSET_COMMIT, topics=named, **fields)


async def stood(stage: Stage, topic: str, group: str, member: Any = None) -> None:
    """Have a group stand in a topic, by a commit of its member or of nobody's."""
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    answer = await stage.quietly(
        ApiKey.OFFSET_COMMIT,
        5,
        group_id=group,
        member_id="" if member is None else member.member_id,
        generation_id_or_member_epoch=-1 if member is None else member.generation_id,
        topics=[{"name": topic, "partitions": [row]}],
    )
    assert answer.topics[0].partitions[0].error_code == 0, answer


@case(ApiKey.OFFSET_COMMIT, since=2)
async def commits_without_members(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    await commit(stage, "plain", topic, 5)
    await commit(stage, "back", topic, 2, committed_metadata=None)
    await commit(stage, "negative", topic, -1)
    await commit(stage, "with a generation", topic, 5, generation_id_or_member_epoch=3)
    await commit(stage, "with a member", topic, 5, member_id="somebody")
    await commit(stage, "of a partition that is not there", topic, 5, partition_index=7)
    await commit(stage, "of a topic that is not there", f"{stage.name}-nowhere", 5)
    await commit(stage, "of an empty group id", topic, 5, group_id="")
    await commit(stage, "with much metadata", topic, 5, committed_metadata="m" * 4096)
    await commit(stage, "with too much metadata", topic, 5, committed_metadata="m" * 4097)


@case(ApiKey.OFFSET_FETCH, since=1)
async def what_was_committed(stage: Stage) -> None:
    topic = await stage.topic("-t", 3)
    row = {"partition_index": 1, "committed_offset": 7, "committed_leader_epoch": 0}
    await stage.quietly(
        ApiKey.OFFSET_COMMIT,
        6,
        group_id=stage.name,
        member_id="",
        generation_id_or_member_epoch=-1,
        topics=[{"name": topic, "partitions": [row | {"committed_metadata": "noted"}]}],
    )

    async def ask(label: str, group: str, asked: object, **more: object) -> None:
        if stage.version >= 8:
            one = {"group_id": group, "topics": asked, "member_epoch": -1}
            await stage.ask(label, ApiKey.OFFSET_FETCH, groups=[one], **more)
        else:
            await stage.ask(label, ApiKey.OFFSET_FETCH, group_id=group, topics=asked, **more)

    some = [{"name": topic, "partition_indexes": [0, 1, 9]}]
    await ask("some", stage.name, some)
    await ask("a topic that is not there", stage.name, [{"name": "x-y", "partition_indexes": [0]}])
    await ask("a group that is not there", f"{stage.name}-no", some)
    await ask("an empty group id", "", some)
    await ask("nothing", stage.name, [])
    if stage.version >= 2:
        await ask("all", stage.name, None)
        await ask("all of a group that is not there", f"{stage.name}-no", None)
    if stage.version >= 7:
        await ask("stable ones", stage.name, some, require_stable=True)


@case(ApiKey.FIND_COORDINATOR)
async def coordinators(stage: Stage) -> None:
    async def ask(label: str, key: str, key_type: int) -> None:
        if stage.version >= 4:
            await stage.ask(
                label, ApiKey.FIND_COORDINATOR, coordinator_keys=[key], key_type=key_type
            )
        else:
            await stage.ask(label, ApiKey.FIND_COORDINATOR, key=key, key_type=key_type)

    await ask("of a group", "g", 0)
    await ask("of an empty name", "", 0)
    if stage.version >= 1:
        await ask("of a transactional id", "t", 1)
        await ask("of something else", "t", 9)
    if stage.version >= 4:
        await stage.ask("of none", ApiKey.FIND_COORDINATOR, coordinator_keys=[], key_type=0)
        await stage.ask("of two", ApiKey.FIND_COORDINATOR, coordinator_keys=["a", "b"], key_type=0)


def joining(stage: Stage, **more: Any) -> dict[str, Any]:
    fields = {"group_id": stage.name, "session_timeout_ms": 30_000, "member_id": ""}
    fields |= {"rebalance_timeout_ms": 30_000}
    return fields | {"protocol_type": "consumer", "protocols": PROTOCOLS} | more


async def joined(stage: Stage, **more: Any) -> Any:
    """The only member of a group, in generation 1, without a word to compare."""
    fields = joining(stage, **more)
    answer = await stage.quietly(ApiKey.JOIN_GROUP, 5, **fields)
    if answer.error_code == MEMBER_ID_REQUIRED:
        fields["member_id"] = answer.member_id
        answer = await stage.quietly(ApiKey.JOIN_GROUP, 5, **fields)
    assert answer.error_code == 0, answer
    return answer


async def synced(stage: Stage, **more: Any) -> Any:
    """The same with its assignment: the group is stable."""
    member = await joined(stage, **more)
    answer = await stage.quietly(
        ApiKey.SYNC_GROUP,
        3,
        group_id=more.get("group_id", stage.name),
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=more.get("group_instance_id"),
        assignments=[{"member_id": member.member_id, "assignment": b"yours"}],
    )
    assert answer.error_code == 0, answer
    return member


@case(ApiKey.JOIN_GROUP)
async def joins(stage: Stage) -> None:
    first = await stage.ask("first", ApiKey.JOIN_GROUP, **joining(stage))
    if first.error_code == MEMBER_ID_REQUIRED:
        await stage.ask(
            "with the given id", ApiKey.JOIN_GROUP, **joining(stage, member_id=first.member_id)
        )
    wrong: dict[str, dict[str, Any]] = {
        "unknown member": {"member_id": "somebody"},
        "session too short": {"session_timeout_ms": 10},
        "session too long": {"session_timeout_ms": 1_800_001},
        "empty group id": {"group_id": ""},
        "other type": {"protocol_type": "connect"},
        "empty type": {"protocol_type": ""},
        "no protocols": {"protocols": []},
        "nothing in common": {"protocols": [{"name": "mine", "metadata": b""}]},
    }
    for label, fields in wrong.items():
        await stage.ask(label, ApiKey.JOIN_GROUP, **joining(stage, **fields))
    fresh = {"group_id": f"{stage.name}-2"}
    await stage.ask(
        "unknown member of a new group",
        ApiKey.JOIN_GROUP,
        **joining(stage, member_id="somebody", **fresh),
    )
    await stage.ask(
        "no protocols in a new group", ApiKey.JOIN_GROUP, **joining(stage, protocols=[], **fresh)
    )


@case(ApiKey.JOIN_GROUP, since=5)
async def static_members(stage: Stage) -> None:
    place = {"group_instance_id": "place-1"}
    one = await stage.ask("first", ApiKey.JOIN_GROUP, **joining(stage, **place))
    await stage.ask("takes over", ApiKey.JOIN_GROUP, **joining(stage, **place))
    await stage.ask(
        "the old one", ApiKey.JOIN_GROUP, **joining(stage, member_id=one.member_id, **place)
    )


def wants(*topics: str, owned: int = 0, generation: int = -1) -> bytes:
    pairs = tuple((topics[0], index) for index in range(owned))
    return encode_subscription(Subscription(topics, pairs, generation))


def offers(**metadata: bytes) -> list[dict[str, Any]]:
    return [{"name": name, "metadata": one} for name, one in metadata.items()]


@case(ApiKey.JOIN_GROUP, since=9)
async def static_members_that_begin_anew(stage: Stage) -> None:
    """Who takes its place in a group that reads on: whether that is a rebalance."""
    had, has = wants("t", owned=3, generation=1), wants("t")
    before_and_after = {
        "the same": (offers(range=had), offers(range=had)),
        "has nothing any more": (offers(range=had), offers(range=has)),
        "another order": (offers(range=has, other=has), offers(other=has, range=has)),
        "no words of a consumer": (offers(range=b"x"), offers(range=b"y")),
    }
    for label, (before, after) in before_and_after.items():
        place = {"group_id": f"{stage.name}-{label[0]}", "group_instance_id": "place"}
        await synced(stage, protocols=before, **place)
        await stage.ask(label, ApiKey.JOIN_GROUP, **joining(stage, protocols=after, **place))
    named = {"group_id": f"{stage.name}-named"}
    dynamic = await synced(stage, **named)
    place = {"member_id": dynamic.member_id, "group_instance_id": "place"} | named
    await stage.ask("a place that it has not", ApiKey.JOIN_GROUP, **joining(stage, **place))


@case(ApiKey.SYNC_GROUP)
async def syncs(stage: Stage) -> None:
    member = await joined(stage)

    async def ask(label: str, **more: Any) -> None:
        fields: dict[str, Any] = {"group_id": stage.name, "member_id": member.member_id}
        fields |= {"generation_id": member.generation_id}
        if stage.version >= 5:
            fields |= {"protocol_type": "consumer", "protocol_name": "range"}
        mine = [{"member_id": member.member_id, "assignment": b"yours"}]
        await stage.ask(label, ApiKey.SYNC_GROUP, **(fields | {"assignments": mine} | more))

    await ask("unknown member", member_id="somebody")
    await ask("wrong generation", generation_id=9)
    await ask("unknown group", group_id=f"{stage.name}-no")
    await ask("empty group id", group_id="")
    if stage.version >= 5:
        await ask("other protocol", protocol_name="other")
        await ask("other type", protocol_type="connect")
        await ask("no protocol", protocol_name=None, protocol_type=None)
    await ask("as leader")
    await ask("again, without an assignment", assignments=[])


@case(ApiKey.HEARTBEAT)
async def heartbeats(stage: Stage) -> None:
    member = await synced(stage)

    async def ask(label: str, **more: Any) -> None:
        fields: dict[str, Any] = {"group_id": stage.name, "member_id": member.member_id}
        fields |= {"generation_id": member.generation_id}
        await stage.ask(label, ApiKey.HEARTBEAT, **(fields | more))

    await ask("alive")
    await ask("wrong generation", generation_id=9)
    await ask("unknown member", member_id="somebody")
    await ask("unknown group", group_id=f"{stage.name}-no")
    await ask("empty group id", group_id="")
    if stage.version >= 3:
        await ask("with a place it has not", group_instance_id="place-9")


@case(ApiKey.HEARTBEAT)
async def heartbeat_between_join_and_sync(stage: Stage) -> None:
    member = await joined(stage)
    await stage.ask(
        "not synced",
        ApiKey.HEARTBEAT,
        group_id=stage.name,
        member_id=member.member_id,
        generation_id=member.generation_id,
    )


@case(ApiKey.HEARTBEAT, since=3)
async def a_static_member_that_is_away_from_a_round(stage: Stage) -> None:
    """Its session says how long it may be, or the time of a rebalance."""
    soon = {"rebalance_timeout_ms": 500}
    for label, deals_out in (("dealt out", True), ("not dealt out", False)):
        named = {"group_id": f"{stage.name}-{label[0]}"}
        away = await synced(stage, group_instance_id="away", **named, **soon)
        await (synced if deals_out else joined)(stage, group_instance_id="here", **named, **soon)
        await trio.sleep(2)
        await stage.ask(
            label,
            ApiKey.HEARTBEAT,
            generation_id=away.generation_id,
            member_id=away.member_id,
            group_instance_id="away",
            **named,
        )


@case(ApiKey.LEAVE_GROUP)
async def leaves(stage: Stage) -> None:
    member = await synced(stage)

    async def ask(label: str, member_id: str, group: str = stage.name, **more: Any) -> None:
        fields: dict[str, Any] = {"group_id": group, "member_id": member_id}
        if stage.version >= 3:
            fields = {"group_id": group, "members": [{"member_id": member_id} | more]}
        await stage.ask(label, ApiKey.LEAVE_GROUP, **fields)

    await ask("unknown member", "somebody")
    await ask("unknown group", member.member_id, f"{stage.name}-no")
    await ask("empty group id", member.member_id, "")
    if stage.version >= 3:
        await ask("unknown place", "", group_instance_id="place-9")
        await stage.ask("nobody", ApiKey.LEAVE_GROUP, group_id=stage.name, members=[])
        two = [{"member_id": "somebody"}, {"member_id": member.member_id}]
        await stage.ask("two", ApiKey.LEAVE_GROUP, group_id=stage.name, members=two)
    else:
        await ask("the member", member.member_id)
    await ask("the member again", member.member_id)


@case(ApiKey.OFFSET_COMMIT, since=2)
async def commits_of_members(stage: Stage) -> None:
    topic = await stage.topic("-t")
    member = await synced(stage)
    mine = {"member_id": member.member_id}
    at = "generation_id_or_member_epoch"
    await commit(stage, "its own", topic, 5, **mine, **{at: member.generation_id})
    await commit(stage, "wrong generation", topic, 5, **mine, **{at: 9})
    await commit(stage, "older generation", topic, 5, **mine, **{at: 0})
    await commit(stage, "unknown member", topic, 5, member_id="x", **{at: member.generation_id})
    await commit(stage, "without a member", topic, 5)


@case(ApiKey.OFFSET_COMMIT, since=2)
async def commits_to_a_group_that_is_not_there(stage: Stage) -> None:
    topic = await stage.topic("-t")
    at = "generation_id_or_member_epoch"
    for label, member in (("a member", "somebody"), ("no member", "")):
        await commit(stage, f"{label}, a generation", topic, 5, member_id=member, **{at: 3})
        group = {"group_id": f"{stage.name}-{len(member)}"}
        await commit(stage, f"{label}, no generation", topic, 5, member_id=member, **group)


@case(ApiKey.DESCRIBE_GROUPS)
async def groups_described(stage: Stage) -> None:
    topic = await stage.topic("-t")
    member = await joined(stage)
    extra = {"include_authorized_operations": True} if stage.version >= 3 else {}
    names = [stage.name]
    await stage.ask("between join and sync", ApiKey.DESCRIBE_GROUPS, groups=names)
    await stage.quietly(
        ApiKey.SYNC_GROUP,
        3,
        group_id=stage.name,
        generation_id=member.generation_id,
        member_id=member.member_id,
        assignments=[{"member_id": member.member_id, "assignment": b"yours"}],
    )
    await stage.ask("stable", ApiKey.DESCRIBE_GROUPS, groups=names, **extra)
    left = {"group_id": stage.name, "member_id": member.member_id}
    await stage.quietly(ApiKey.LEAVE_GROUP, 1, **left)
    await stage.ask("left by its member", ApiKey.DESCRIBE_GROUPS, groups=names)
    await stage.ask("not there", ApiKey.DESCRIBE_GROUPS, groups=[f"{stage.name}-no"])
    await stage.ask("empty id", ApiKey.DESCRIBE_GROUPS, groups=[""])
    await stood(stage, topic, f"{stage.name}-only-offsets")
    await stage.ask("only offsets", ApiKey.DESCRIBE_GROUPS, groups=[f"{stage.name}-only-offsets"])


@case(ApiKey.LIST_GROUPS)
async def groups_listed(stage: Stage) -> None:
    topic = await stage.topic("-t")

    async def list_all(label: str, name: str) -> None:
        answer = await stage.quietly(ApiKey.LIST_GROUPS, stage.version)
        answer.groups = [group for group in answer.groups if group.group_id == name]
        stage.keep(label, answer)

    await stood(stage, topic, f"{stage.name}-only-offsets")
    await list_all("only offsets", f"{stage.name}-only-offsets")
    member = await synced(stage)
    await list_all("ours among all", stage.name)
    if stage.version >= 4:
        for states in (["Stable"], ["stable"], ["Dead"], ["Nonsense"]):
            answer = await stage.quietly(ApiKey.LIST_GROUPS, stage.version, states_filter=states)
            answer.groups = [group for group in answer.groups if group.group_id == stage.name]
            stage.keep(f"by state {states[0]}", answer)
    if stage.version >= 5:
        for types in (["classic"], ["Consumer"], ["nonsense"]):
            answer = await stage.quietly(ApiKey.LIST_GROUPS, stage.version, types_filter=types)
            answer.groups = [group for group in answer.groups if group.group_id == stage.name]
            stage.keep(f"by type {types[0]}", answer)
    await stood(stage, topic, stage.name, member)
    left = {"group_id": stage.name, "member_id": member.member_id}
    await stage.quietly(ApiKey.LEAVE_GROUP, 1, **left)
    await list_all("left by its member", stage.name)


@case(ApiKey.DELETE_GROUPS)
async def groups_deleted(stage: Stage) -> None:
    member = await synced(stage)
    names = [stage.name, f"{stage.name}-no"]
    await stage.ask("with a member", ApiKey.DELETE_GROUPS, groups_names=names)
    left = {"group_id": stage.name, "member_id": member.member_id}
    await stage.quietly(ApiKey.LEAVE_GROUP, 1, **left)
    await stage.ask("empty", ApiKey.DELETE_GROUPS, groups_names=names)
    await stage.ask("again", ApiKey.DELETE_GROUPS, groups_names=[stage.name])


@case(ApiKey.OFFSET_DELETE)
async def offsets_deleted(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    other = await stage.topic("-other")
    await stood(stage, topic, stage.name)

    async def ask(label: str, group: str, name: str, *partitions: int) -> None:
        rows = [{"partition_index": n} for n in partitions]
        named = [{"name": name, "partitions": rows}]
        await stage.ask(label, ApiKey.OFFSET_DELETE, group_id=group, topics=named)

    await ask("some", stage.name, topic, 0, 1)
    await ask("again", stage.name, topic, 0)
    await ask("a partition that is not there", stage.name, topic, 7)
    await ask("a topic that is not there", stage.name, f"{stage.name}-nowhere", 0)
    await ask("a group that is not there", f"{stage.name}-no", topic, 0)
    says = encode_subscription(Subscription((topic,)))
    for label, metadata, kind in (
        ("read by a member", says, "consumer"),
        ("read by who knows what", b"", "consumer"),
        ("of a group of another kind", says, "connect"),
    ):
        group = f"{stage.name}-{label.replace(' ', '-')}"
        more = {"protocol_type": kind, "protocols": [{"name": "range", "metadata": metadata}]}
        member = await synced(stage, group_id=group, **more)
        await stood(stage, topic, group, member)
        await ask(label, group, topic, 0)
        await ask(f"{label}, another topic", group, other, 0)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
async def members_of_the_newer_protocol(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    mine = "AAAAAAAAAAAAAAAAAAAAAQ"

    async def ask(label: str, **more: Any) -> Any:
        fields: dict[str, Any] = {"group_id": stage.name, "member_id": mine, "member_epoch": 0}
        fields |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic]}
        fields |= {"topic_partitions": []}
        return await stage.ask(label, ApiKey.CONSUMER_GROUP_HEARTBEAT, **(fields | more))

    quiet: dict[str, Any] = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None}
    quiet |= {"topic_partitions": None}
    await ask("empty group id", group_id="")
    await ask("blank group id", group_id=" ")
    await ask("blank instance", instance_id=" ")
    await ask("blank rack", rack_id="\t")
    if stage.version >= 1:
        await ask("blank member id", member_id=" ")
    await ask("blank member id later", member_id=" ", member_epoch=1)
    await ask("no subscription", subscribed_topic_names=None)
    await ask("no rebalance timeout", rebalance_timeout_ms=-1)
    await ask("unknown assignor", server_assignor="nobody")
    await ask("unknown member", member_id="somebody", member_epoch=4)
    joined = await ask("joins")
    await ask("beats", member_epoch=joined.member_epoch, **quiet)
    await ask("epoch of the future", member_epoch=9, **quiet)
    await ask("leaves", member_epoch=-1, **quiet)
    await ask("leaves again", member_epoch=-1, **quiet)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
async def a_static_member_that_comes_back_by_names(stage: Stage) -> None:
    if stage.version < 1:
        return  # it knows no expressions
    topic = await stage.topic("-t", 1)

    async def ask(label: str, **more: Any) -> Any:
        fields: dict[str, Any] = {"group_id": stage.name, "member_id": "m", "member_epoch": 0}
        fields |= {"rebalance_timeout_ms": 30_000, "instance_id": "i", "topic_partitions": []}
        return await stage.ask(label, ApiKey.CONSUMER_GROUP_HEARTBEAT, **(fields | more))

    await ask("by an expression", subscribed_topic_regex="none.*", rack_id="r")
    await ask("is away", member_epoch=-2)
    await ask("by names", subscribed_topic_names=[topic])
    label = "of who came back by names"
    await stage.ask(label, ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=[stage.name])


@case(ApiKey.CONSUMER_GROUP_DESCRIBE)
async def groups_of_the_newer_protocol_that_are_not_there(stage: Stage) -> None:
    await stage.ask("not there", ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=[f"{stage.name}-no"])
    await stage.ask("empty id", ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=[""])
    await synced(stage)
    await stage.ask("a classic one", ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=[stage.name])

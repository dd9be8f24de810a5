"""Streams groups (KIP-1071): members, topologies, the topics that they come to."""

from typing import Any, Final

import trio

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_groups import PROTOCOLS, joining, synced
from .cases_shares import settings
from .stage import SETTLE_TIMEOUT_S, Stage

MEMBER: Final = "CCCCCCCCCCCCCCCCCCCCCA"
OTHER: Final = "CCCCCCCCCCCCCCCCCCCCCB"
NO_TASKS: Final[dict[str, Any]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def internal(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    """A topic of the application's own."""
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": 0,
        "topic_configs": pairs,
    }


def reading(*sources: str, name: str = "0", **more: Any) -> dict[str, Any]:
    """A subtopology."""
    return {"subtopology_id": name, "source_topics": list(sources)} | more


def counting(name: str, source: str) -> list[dict[str, Any]]:
    """Words are written to a repartition topic, and counted from there with a state."""
    repartition, changelog = f"{name}-repartition", f"{name}-changelog"
    return [
        reading(source, repartition_sink_topics=[repartition]),
        reading(
            name="1",
            repartition_source_topics=[internal(repartition, cleanup_policy="delete")],
            state_changelog_topics=[internal(changelog, cleanup_policy="compact")],
        ),
    ]


def beat(stage: Stage, *subtopologies: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a member says that joins."""
    fields: dict[str, Any] = {"group_id": stage.name, "member_id": MEMBER, "member_epoch": 0}
    fields |= NO_TASKS | {"rebalance_timeout_ms": 30_000, "process_id": "process"}
    return fields | {"topology": {"epoch": 0, "subtopologies": list(subtopologies)}} | more


async def at_once(stage: Stage, group: str = "") -> None:
    """No member of the group waits for others."""
    await settings(stage, group or stage.name, streams_initial_rebalance_delay_ms="0")


async def stable(stage: Stage, *subtopologies: dict[str, Any], **more: Any) -> Any:
    """Join, and go on until the group is stable; the last answer with tasks."""
    fields = beat(stage, *subtopologies, **more)
    await at_once(stage, fields["group_id"])
    answer = await stage.quietly(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, **fields)
    told = answer
    with trio.fail_after(SETTLE_TIMEOUT_S):
        while True:
            assert answer.error_code == 0, answer
            told = answer if answer.active_tasks is not None else told
            described = await stage.quietly(
                ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=[fields["group_id"]]
            )
            if described.groups[0].group_state == "Stable":
                return told
            await trio.sleep(0.05)
            lives = {"group_id": fields["group_id"], "member_id": fields["member_id"]}
            lives |= {"member_epoch": answer.member_epoch}
            for kind in ("active_tasks", "standby_tasks", "warmup_tasks"):
                rows = getattr(told, kind) or []
                lives[kind] = [
                    {"subtopology_id": row.subtopology_id, "partitions": row.partitions}
                    for row in rows
                ]
            answer = await stage.quietly(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, **lives)


async def left(stage: Stage, group: str = "") -> None:
    """The member is gone."""
    answer = await stage.quietly(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        0,
        group_id=group or stage.name,
        member_id=MEMBER,
        member_epoch=-1,
    )
    assert answer.error_code == 0, answer


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
async def heartbeats_of_streams_groups_that_contradict_themselves(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await at_once(stage)

    async def ask(label: str, *subtopologies: dict[str, Any], **more: Any) -> None:
        fields = beat(stage, *(subtopologies or (reading(topic),)), **more)
        await stage.ask(label, ApiKey.STREAMS_GROUP_HEARTBEAT, **fields)

    await ask("no member", member_id="")
    await ask("a blank member", member_id=" ")
    await ask("no group", group_id="")
    await ask("an empty rack", rack_id="")
    await ask("an empty instance", instance_id="")
    await ask("a static member", instance_id="static")
    await ask("no rebalance timeout", rebalance_timeout_ms=-1)
    await ask("joins with tasks", active_tasks=[{"subtopology_id": "0", "partitions": [0]}])
    await ask("joins without lists", active_tasks=None, standby_tasks=None, warmup_tasks=None)
    await ask("one list", standby_tasks=None)
    await ask("no topology", topology=None)
    await ask("epoch -3", member_epoch=-3, topology=None)
    await ask("comes back", member_epoch=-2, topology=None)
    await ask("a topology later", member_epoch=1)
    await ask("offsets", task_offsets=[])
    await ask("end offsets", task_end_offsets=[])
    await ask("warms up", warmup_tasks=[{"subtopology_id": "0", "partitions": [0]}])
    await ask("an expression", reading(topic, source_topic_regex=["a.*"]))
    changelog = [internal("log", 3)]
    await ask("a changelog with partitions", reading(topic, state_changelog_topics=changelog))
    await ask("a bad name", reading("in valid"))
    await ask("a topic of Kafka", reading("__consumer_offsets"))
    await ask("unknown member of no group", member_epoch=3, topology=None)
    await ask("leaves what is not there", member_epoch=-1, topology=None)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
async def members_of_streams_groups(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    await at_once(stage)

    async def ask(label: str, **more: Any) -> Any:
        fields = {"group_id": stage.name, "member_id": MEMBER} | more
        return await stage.ask(label, ApiKey.STREAMS_GROUP_HEARTBEAT, **fields)

    joins = beat(stage, reading(topic))
    joined = await stage.ask("joins", ApiKey.STREAMS_GROUP_HEARTBEAT, **joins)
    epoch = joined.member_epoch
    mine = {"active_tasks": [{"subtopology_id": "0", "partitions": [0, 1]}]}
    mine |= {"standby_tasks": [], "warmup_tasks": []}
    await ask("beats", member_epoch=epoch, **mine)
    await ask("beats again", member_epoch=epoch)
    await ask("older epoch", member_epoch=epoch - 1)
    await ask("older epoch with its tasks", member_epoch=epoch - 1, **mine)
    await ask("newer epoch", member_epoch=epoch + 1)
    await ask("unknown member", member_epoch=epoch, member_id=OTHER)
    none: dict[str, Any] = {"standby_tasks": [], "warmup_tasks": []}
    await ask(
        "a task that is not there",
        member_epoch=epoch,
        active_tasks=[{"subtopology_id": "0", "partitions": [2]}],
        **none,
    )
    await ask(
        "a subtopology that is not there",
        member_epoch=epoch,
        active_tasks=[{"subtopology_id": "1", "partitions": [0]}],
        **none,
    )
    again = beat(stage, reading(topic))
    await stage.ask("joins again", ApiKey.STREAMS_GROUP_HEARTBEAT, **again)
    other = beat(stage, reading(topic, name="x"), member_id=OTHER)
    await stage.ask("another topology", ApiKey.STREAMS_GROUP_HEARTBEAT, **other)
    newer = beat(stage, reading(topic), member_id=OTHER)
    newer["topology"]["epoch"] = 1
    await stage.ask("a newer topology", ApiKey.STREAMS_GROUP_HEARTBEAT, **newer)
    await ask("leaves", member_epoch=-1)
    await ask("leaves again", member_epoch=-1)
    await stage.ask("another one later", ApiKey.STREAMS_GROUP_HEARTBEAT, **other)
    await stage.ask("a newer one later", ApiKey.STREAMS_GROUP_HEARTBEAT, **newer)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
async def topics_that_are_missing_or_do_not_fit(stage: Stage) -> None:
    two, three = await stage.topic("-2", 2), await stage.topic("-3", 3)
    count = 0

    async def ask(label: str, *subtopologies: dict[str, Any], **more: Any) -> Any:
        nonlocal count
        count += 1
        group = f"{stage.name}-{count}"
        await at_once(stage, group)
        fields = beat(stage, *subtopologies, group_id=group, **more)
        return await stage.ask(label, ApiKey.STREAMS_GROUP_HEARTBEAT, **fields)

    missing = [f"{stage.name}-no{n}" for n in range(5)]
    await ask("no source", reading(two, missing[0]))
    await ask("no sources", reading(*missing))
    await ask("internal", *counting(stage.name, two))
    both = [{"source_topics": [0, 1]}]
    await ask("two sizes", reading(two, three, copartition_groups=both))
    await ask("out of range", reading(two, copartition_groups=[{"source_topics": [3]}]))
    fixed = f"{stage.name}-fixed"
    mixed = [{"source_topics": [0], "repartition_source_topics": [0]}]
    await ask(
        "a fixed one of another size",
        reading(three, name="0", repartition_sink_topics=[fixed]),
        reading(
            two,
            name="1",
            repartition_source_topics=[internal(fixed, 5)],
            copartition_groups=mixed,
        ),
    )
    await ask(
        "there with another size",
        reading(two, state_changelog_topics=[internal(three)]),
    )
    loop = f"{stage.name}-loop"
    await ask(
        "a loop",
        reading(
            name="1",
            repartition_sink_topics=[loop],
            repartition_source_topics=[internal(loop)],
        ),
    )
    await ask("never written", reading(two, repartition_source_topics=[internal(loop)]))
    await ask("no sources at all", reading())
    await ask("no subtopologies")
    await ask("twice", reading(two), reading(three))


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
async def a_topology_that_turns_out_to_be_served_by_no_topics(stage: Stage) -> None:
    await at_once(stage)
    never_written = reading(f"{stage.name}-t", repartition_source_topics=[internal("again")])
    answer = await stage.ask(
        "before its source topic", ApiKey.STREAMS_GROUP_HEARTBEAT, **beat(stage, never_written)
    )
    topic = await stage.topic("-t")
    lives = {"group_id": stage.name, "member_id": MEMBER, "member_epoch": answer.member_epoch}
    await stage.ask("with it", ApiKey.STREAMS_GROUP_HEARTBEAT, **lives)
    another = beat(stage, reading(topic))
    await stage.ask("another topology", ApiKey.STREAMS_GROUP_HEARTBEAT, **another)
    await left(stage)
    await stage.ask("when nobody is left", ApiKey.STREAMS_GROUP_HEARTBEAT, **another)
    await stage.quietly(ApiKey.DELETE_GROUPS, 2, groups_names=[stage.name])
    await stage.ask("when it was deleted", ApiKey.STREAMS_GROUP_HEARTBEAT, **another)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
async def a_second_passes_between_two_targets_of_a_large_group(stage: Stage) -> None:
    topic = await stage.topic("-t", 600)
    await at_once(stage)
    first = beat(stage, reading(topic))
    await stage.quietly(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, **first)
    second = beat(stage, reading(topic), member_id=OTHER, process_id="other")
    await stage.ask("at once", ApiKey.STREAMS_GROUP_HEARTBEAT, **second)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
async def an_application_is_shut_down(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    told = await stable(stage, reading(topic))
    fields = {"group_id": stage.name, "member_id": MEMBER, "member_epoch": told.member_epoch}
    await stage.ask("asks", ApiKey.STREAMS_GROUP_HEARTBEAT, **fields, shutdown_application=True)
    await stage.ask("hears", ApiKey.STREAMS_GROUP_HEARTBEAT, **fields)
    await left(stage)
    told = await stable(stage, reading(topic))
    fields["member_epoch"] = told.member_epoch
    await stage.ask("after", ApiKey.STREAMS_GROUP_HEARTBEAT, **fields)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
async def streams_groups_of_another_type(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await synced(stage)
    of_consumers = beat(stage, reading(topic))
    await stage.ask("a classic one", ApiKey.STREAMS_GROUP_HEARTBEAT, **of_consumers)
    await stage.ask("a beat", ApiKey.STREAMS_GROUP_HEARTBEAT, **of_consumers | {"member_epoch": 3})


@case(ApiKey.JOIN_GROUP)
async def a_streams_group_is_joined_as_a_classic_one(stage: Stage) -> None:
    await stable(stage, reading(await stage.topic("-t")))
    await stage.ask("first", ApiKey.JOIN_GROUP, **joining(stage, protocols=PROTOCOLS))


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
async def a_streams_group_is_joined_as_one_of_consumers(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await stable(stage, reading(topic))
    fields = {"group_id": stage.name, "member_id": MEMBER, "member_epoch": 0}
    fields |= {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
    fields |= {"subscribed_topic_names": [topic]}
    await stage.ask("joins", ApiKey.CONSUMER_GROUP_HEARTBEAT, **fields)


@case(ApiKey.SHARE_GROUP_HEARTBEAT)
async def a_streams_group_is_joined_as_a_share_group(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await stable(stage, reading(topic))
    fields = {"group_id": stage.name, "member_id": MEMBER, "member_epoch": 0}
    fields |= {"subscribed_topic_names": [topic]}
    await stage.ask("shares", ApiKey.SHARE_GROUP_HEARTBEAT, **fields)


@case(ApiKey.STREAMS_GROUP_DESCRIBE)
async def streams_groups_described(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)

    async def ask(label: str, *groups: str, **more: Any) -> None:
        await stage.ask(label, ApiKey.STREAMS_GROUP_DESCRIBE, group_ids=groups, **more)

    await ask("not there", f"{stage.name}-no")
    await ask("empty id", "")
    await ask("none")
    tags = [{"key": "zone", "value": "a"}]
    where = {"host": "localhost", "port": 8080}
    more: dict[str, Any] = {"client_tags": tags, "user_endpoint": where, "rack_id": "r"}
    await stable(stage, *counting(stage.name, topic), **more)
    await ask("with a member", stage.name)
    await ask("with rights", stage.name, include_authorized_operations=True)
    await left(stage)
    await ask("empty", stage.name)
    missing = f"{stage.name}-missing"
    await at_once(stage, missing)
    fields = beat(stage, reading(f"{topic}-no"), group_id=missing)
    await stage.quietly(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, **fields)
    await ask("not ready", missing)
    await synced(stage, group_id=f"{stage.name}-classic")
    await ask("a classic one", f"{stage.name}-classic")


@case(ApiKey.LIST_GROUPS, since=5)
async def streams_groups_listed(stage: Stage) -> None:
    topic = await stage.topic("-t")
    await stable(stage, reading(topic))
    found = {"types_filter": ["streams"]}

    async def ask(label: str, **more: Any) -> None:
        answer = await stage.quietly(ApiKey.LIST_GROUPS, stage.version, **more)
        answer.groups = [row for row in answer.groups if row.group_id == stage.name]
        stage.keep(label, answer)

    await ask("stable", **found)
    await ask("by state", **found, states_filter=["Stable"])
    await ask("by another", **found, states_filter=["NotReady"])
    await left(stage)
    await ask("empty", **found)


@case(ApiKey.DESCRIBE_GROUPS, since=6)
async def a_streams_group_described_as_a_classic_one(stage: Stage) -> None:
    await stable(stage, reading(await stage.topic("-t")))
    await stage.ask("described", ApiKey.DESCRIBE_GROUPS, groups=[stage.name])


@case(ApiKey.DELETE_GROUPS)
async def a_streams_group_deleted(stage: Stage) -> None:
    await stable(stage, reading(await stage.topic("-t")))
    await stage.ask("with a member", ApiKey.DELETE_GROUPS, groups_names=[stage.name])
    await left(stage)
    await stage.ask("without", ApiKey.DELETE_GROUPS, groups_names=[stage.name])


@case(ApiKey.OFFSET_COMMIT, since=8)
async def commits_in_a_streams_group(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    told = await stable(stage, reading(topic))
    topic_id = await stage.topic_id(topic)

    async def ask(label: str, epoch: int, member: str = MEMBER) -> None:
        named = {"name": topic, "topic_id": topic_id} if stage.version > 9 else {"name": topic}
        rows = [{"partition_index": n, "committed_offset": 1} for n in range(2)]
        await stage.ask(
            label,
            ApiKey.OFFSET_COMMIT,
            group_id=stage.name,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            retention_time_ms=-1,
            topics=[named | {"partitions": rows}],
        )

    await ask("at its epoch", told.member_epoch)
    await ask("at an older one", told.member_epoch - 1)
    await ask("at a newer one", told.member_epoch + 1)
    await ask("another member", told.member_epoch, OTHER)
    await ask("a tool", -1, "")
    await left(stage)
    await ask("a tool later", -1, "")


@case(ApiKey.OFFSET_FETCH, since=9)
async def offsets_of_a_streams_group(stage: Stage) -> None:
    topic = await stage.topic("-t")
    told = await stable(stage, reading(topic))
    topic_id = await stage.topic_id(topic)

    async def ask(label: str, epoch: int, member: str | None = MEMBER) -> None:
        named = {"topic_id": topic_id} if stage.version > 9 else {"name": topic}
        asked: dict[str, Any] = {"group_id": stage.name, "member_id": member}
        asked["member_epoch"] = epoch
        asked |= {"topics": [named | {"partition_indexes": [0]}]}
        await stage.ask(label, ApiKey.OFFSET_FETCH, groups=[asked])

    await ask("at its epoch", told.member_epoch)
    await ask("at another", told.member_epoch + 1)
    await ask("another member", told.member_epoch, OTHER)
    await ask("a tool", -1, None)

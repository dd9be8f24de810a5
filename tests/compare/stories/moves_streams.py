"""Members of streams groups (KIP-1071)."""

from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey

from ..cases_streams import NO_TASKS, reading
from .moves import mostly, move
from .scene import GROUPS, Scene

STREAMS_GROUP: Final = GROUPS + 1
"""The group that members of streams alone are in; another one of them comes to one of consumers."""
WORKERS: Final = ("w0", "w0", "w1", "w2")
REBALANCE_MS: Final = 120_000
KINDS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
TOPOLOGIES: Final[dict[str, tuple[list[int], ...]]] = {
    "one": ([0],),
    "two": ([0], [1]),
    "both": ([0, 1],),
    "missing": ([0, 3],),
}
"""Topics that the subtopologies of each read."""


def _draw(random: Random) -> dict[str, Any]:
    return {
        "who": random.choice(WORKERS),
        "epoch": mostly(random, "own", "join", "leave", "behind", "ahead", "away", unusual=0.4),
        "topology": mostly(random, "one", *TOPOLOGIES, unusual=0.3),
        "topology_epoch": mostly(random, 0, 1),
        "owned": mostly(random, "all", None, "nothing", "others", unusual=0.3),
        "shuts_down": mostly(random, False, True, unusual=0.03),
        "process": mostly(random, "p0", "p1", unusual=0.3),
    }


@move("streams", 8, _draw)
async def streams_heartbeat(
    scene: Scene,
    who: str,
    epoch: str,
    topology: str,
    topology_epoch: int,
    owned: str | None,
    shuts_down: bool,
    process: str,
) -> None:
    """A member joins, is alive, leaves; who has no epoch joins."""
    one = scene.workers[who]
    if epoch == "own" and one.epoch <= 0:
        epoch = "join"
    own = max(one.epoch, 0)
    number = {
        "own": own,
        "join": 0,
        "leave": -1,
        "away": -2,
        "behind": own - 1 if own > 1 else own + 7,
        "ahead": own + 1,
    }[epoch]
    fields: dict[str, Any] = {}
    if epoch == "join":
        told = [
            reading(*map(scene.topic, topics), name=str(name))
            for name, topics in enumerate(TOPOLOGIES[topology])
        ]
        fields = NO_TASKS | {"rebalance_timeout_ms": REBALANCE_MS, "process_id": process}
        fields["topology"] = {"epoch": topology_epoch, "subtopologies": told}
    elif number >= 0 and owned is not None:
        fields = {"all": one.tasks, "nothing": NO_TASKS, "others": _other()}[owned]
    answer = await scene.ask(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        0,
        group_id=scene.group(one.group),
        member_id=one.id,
        member_epoch=number,
        shutdown_application=shuts_down,
        **fields,
    )
    if answer is None or answer.error_code:
        return
    scene.newer_groups.add(one.group)
    label = next(reversed(scene.seen))
    if answer.member_epoch > 0:
        same = answer.member_epoch == one.epoch
        scene.seen[label]["member_epoch"] = "as before" if same else "another"
    for path in [path for path in scene.seen[label] if path.startswith(KINDS)]:
        if path not in KINDS or path == "warmup_tasks":
            del scene.seen[label][path]  # who has which is a matter of taste
    one.epoch = answer.member_epoch
    if answer.active_tasks is not None:
        one.tasks = {
            kind: [
                {"subtopology_id": row.subtopology_id, "partitions": list(row.partitions)}
                for row in getattr(answer, kind) or ()
            ]
            for kind in KINDS
        }
    if answer.member_epoch <= 0:
        one.tasks = dict(NO_TASKS)


def _other() -> dict[str, Any]:
    return NO_TASKS | {"active_tasks": [{"subtopology_id": "7", "partitions": [0]}]}


def _no_draw(random: Random) -> dict[str, Any]:
    return {"group": mostly(random, STREAMS_GROUP, *range(GROUPS))}


@move("streams", 3, _no_draw)
async def describe_workers(scene: Scene, group: int) -> None:
    """A group as KIP-1071 sees it."""
    names = [scene.group(group)]
    answer = await scene.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=names)
    label = next(reversed(scene.seen))
    if answer is not None:
        for path in [
            path
            for path in scene.seen[label]
            if "assignment." in path or path.endswith(("epoch", "process_id"))
        ]:
            del scene.seen[label][path]


@move("streams", 1, _no_draw)
async def delete_workers(scene: Scene, group: int) -> None:
    """A group is deleted."""
    await scene.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[scene.group(group)])


def _draw_commit(random: Random) -> dict[str, Any]:
    return {
        "who": mostly(random, random.choice(WORKERS), None, unusual=0.3),
        "partition": random.randrange(2),
        "offset": random.randrange(9),
        "off": mostly(random, 0, -1, 1, unusual=0.3),
    }


@move("streams", 3, _draw_commit)
async def streams_commit(
    scene: Scene, who: str | None, partition: int, offset: int, off: int
) -> None:
    """An offset stands, said by a member or by nobody."""
    fields: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
    group = STREAMS_GROUP
    if who is not None:
        one = scene.workers[who]
        group = one.group
        fields = {"member_id": one.id, "generation_id_or_member_epoch": one.epoch + off}
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": "m"}
    await scene.ask(
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=scene.group(group),
        topics=[{"name": scene.topic(0), "partitions": [row]}],
        **fields,
    )


@move("streams", 1, _no_draw)
async def streams_offsets(scene: Scene, group: int) -> None:
    """Where a group stands."""
    asked = {"group_id": scene.group(group), "topics": None}
    await scene.ask(ApiKey.OFFSET_FETCH, 9, require_stable=False, groups=[asked])

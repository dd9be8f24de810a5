"""Members of groups by the protocol of KIP-848."""

from random import Random
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey

from .moves import mostly, move, version
from .scene import Scene

CONSUMERS: Final = ("k0", "k1", "k2", "k3", "k4", "k5")
SESSION_MS: Final = 120_000


def _draw(random: Random) -> dict[str, Any]:
    return {
        "who": random.choice(CONSUMERS),
        "version": version(random, ApiKey.CONSUMER_GROUP_HEARTBEAT),
        "epoch": mostly(random, "own", "join", "leave", "away", "behind", "ahead", unusual=0.4),
        "topics": random.choice((None, None, [0], [0, 1], [1], [3])),
        "assignor": mostly(random, None, "uniform", "nonsense", unusual=0.1),
        "owned": mostly(random, "all", None, "nothing", unusual=0.3),
    }


@move("groups", 9, _draw)
async def heartbeat(
    scene: Scene,
    who: str,
    version: int,
    epoch: str,
    topics: list[int] | None,
    assignor: str | None,
    owned: str | None,
) -> None:
    """A member joins, is alive, leaves; who has no epoch joins."""
    one = scene.members[who]
    if epoch == "own" and one.generation <= 0:
        epoch = "join"
    if epoch == "join" and topics is None:
        topics = [0]
    own = max(one.generation, 0)
    number = {
        "own": own,
        "join": 0,
        "leave": -1,
        "away": -2,
        "behind": own - 1 if own > 1 else own + 7,
        "ahead": own + 1,
    }[epoch]
    has: list[dict[str, Any]] | None = None
    if number >= 0 and owned is not None:
        has = one.owned if owned == "all" and number else []
    answer = await scene.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        version,
        group_id=scene.group(one.group),
        member_id=one.id,
        member_epoch=number,
        instance_id=one.instance,
        rebalance_timeout_ms=SESSION_MS if epoch == "join" else -1,
        subscribed_topic_names=None if topics is None else [scene.topic(n) for n in topics],
        server_assignor=assignor if number == 0 else None,
        topic_partitions=has,
    )
    if answer is None or answer.error_code:
        return
    scene.newer_groups.add(one.group)
    label = next(reversed(scene.seen))
    told = answer.assignment
    if number == 0 and one.generation > 0:
        # Its first request may have come late: that it reads nothing it says at its epoch, too.
        answer = await scene.quietly(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            version,
            group_id=scene.group(one.group),
            member_id=one.id,
            member_epoch=answer.member_epoch,
            instance_id=one.instance,
            topic_partitions=[],
        )
        told = answer.assignment or told
    if answer.member_epoch > 0:
        same = answer.member_epoch == one.generation
        scene.seen[label]["member_epoch"] = "as before" if same else "another"
    one.generation = answer.member_epoch
    if told is not None:
        one.owned = [
            {"topic_id": row.topic_id, "partitions": list(row.partitions)}
            for row in told.topic_partitions
        ]
    if answer.member_epoch <= 0:
        one.owned = []

"""Members of share groups (KIP-932): what they acquire, and what becomes of it."""

from random import Random
from typing import Any, Final

import trio

from segbroker.protocol.api_keys import ApiKey

from .moves import mostly, move, version
from .moves_reading import place
from .scene import GROUPS, Scene, Sharer

SHARE_GROUP: Final = GROUPS
"""The group that share members alone are in; another one of them comes to a group of consumers."""
SHARERS: Final = ("s0", "s0", "s1", "s2")
# How long a fetch waits, and how often it is asked again: a Kafka that looks a partition up for the
# first time hands out nothing yet.
WAIT_MS: Final = 200
TRIES: Final = 3
PATIENCE_S: Final = 5.0
END: Final = -1


def _draw_heartbeat(random: Random) -> dict[str, Any]:
    return {
        "who": random.choice(SHARERS),
        "epoch": mostly(random, "own", "join", "leave", "behind", "ahead", unusual=0.4),
        "topics": random.choice((None, None, [0], [0, 1], [1], [3])),
    }


@move("shares", 6, _draw_heartbeat)
async def share_heartbeat(scene: Scene, who: str, epoch: str, topics: list[int] | None) -> None:
    """A member joins, is alive, leaves; who has no epoch joins."""
    one = scene.sharers[who]
    if epoch == "own" and one.epoch <= 0:
        epoch = "join"
    if epoch == "join" and topics is None:
        topics = [0]
    own = max(one.epoch, 0)
    number = {"own": own, "join": 0, "leave": END, "behind": own + 7, "ahead": own + 1}[epoch]
    answer = await scene.ask(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        group_id=scene.group(one.group),
        member_id=one.id,
        member_epoch=number,
        subscribed_topic_names=None if topics is None else [scene.topic(n) for n in topics],
    )
    if answer is None or answer.error_code:
        return
    one.epoch = answer.member_epoch
    label = next(reversed(scene.seen))
    for path in [path for path in scene.seen[label] if path.startswith("assignment")]:
        del scene.seen[label][path]  # how soon it is told what, each broker has in its own way
    if answer.member_epoch > 0 and topics is not None:
        one.topics = {scene.topic(number) for number in topics}
        await _found(scene, one)


async def _found(scene: Scene, one: Sharer) -> None:
    """Kafka has looked up the topics of a member that are there, and has told it of its part."""
    wanted = one.topics & {name.removesuffix(" again") for name in scene.names.topics.values()}
    with trio.move_on_after(PATIENCE_S):
        while True:
            answer = await scene.quietly(
                ApiKey.SHARE_GROUP_HEARTBEAT,
                1,
                group_id=scene.group(one.group),
                member_id=one.id,
                member_epoch=one.epoch,
                subscribed_topic_names=None,
            )
            if answer.error_code:
                return
            one.epoch = answer.member_epoch
            described = await scene.quietly(
                ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[scene.group(one.group)]
            )
            rows = described.groups[0].members
            dealt = {part.topic_name for row in rows for part in row.assignment.topic_partitions}
            if wanted <= dealt:
                scene.shared |= {(one.group, name) for name in wanted}
                return
            await trio.sleep(0.05)


def _draw_fetch(random: Random) -> dict[str, Any]:
    return (
        {"who": random.choice(SHARERS)}
        | place(random)
        | {
            "version": version(random, ApiKey.SHARE_FETCH),
            "session": mostly(random, "own", "new", "end", "ahead", unusual=0.2),
            "most": random.choice((1, 2, 500, 500)),
        }
    )


@move("shares", 7, _draw_fetch)
async def share_fetch(
    scene: Scene, who: str, topic: int, partition: int, version: int, session: str, most: int
) -> None:
    """Somebody acquires records of a partition.

    Of a topic that no member was ever given Kafka answers -1: its own code fails.  Of a partition
    with the marker of a transaction it hands out the marker, too.
    """
    one = scene.sharers[who]
    is_known = (one.group, scene.topic(topic)) in scene.shared
    if (topic, partition) in scene.marked or not is_known:
        return
    if one.is_lost:
        session = "new"
    fields: dict[str, Any] = {"max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 1 << 20}
    fields |= {"max_records": most, "batch_size": most, "share_acquire_mode": 0}
    rows = [{"partition_index": partition, "acknowledgement_batches": []}]
    fields["topics"] = [{"topic_id": scene.topic_id(topic), "partitions": rows}]
    if session == "end":
        fields["topics"] = []
    answer = None
    for _ in range(TRIES):
        answer = await scene.quietly(
            ApiKey.SHARE_FETCH,
            version,
            group_id=scene.group(one.group),
            member_id=one.id,
            share_session_epoch=_session(one, session),
            forgotten_topics_data=[],
            **fields,
        )
        if answer.error_code:
            break
        one.goes_on(session)
        if session != "end":
            one.reads.add(scene.topic(topic))
        if session == "end" or any(
            row.acquired_records or row.error_code
            for part in answer.responses
            for row in part.partitions
        ):
            break
        session = "own"
    assert answer is not None, "asked at least once"
    for part in answer.responses:
        part.partitions = [row for row in part.partitions if _says_something(row)]
        for row in part.partitions:
            took = one.took.setdefault((topic, row.partition_index), [])
            row.acquired_records = _merged(row.acquired_records)
            for some in row.acquired_records:
                took += range(some.first_offset, some.last_offset + 1)
    answer.responses = [part for part in answer.responses if part.partitions]
    scene.keep(ApiKey.SHARE_FETCH, version, answer)


def _session(one: Sharer, session: str) -> int:
    return {"own": one.session, "new": 0, "end": END, "ahead": one.session + 3}[session]


def _says_something(row: Any) -> bool:
    return bool(row.error_code or row.acknowledge_error_code or row.acquired_records)


def _merged(rows: list[Any]) -> list[Any]:
    """Neighbours that were delivered as often are one row, whatever batch they are of."""
    merged: list[Any] = []
    for row in rows:
        last = merged[-1] if merged else None
        if last is not None and (last.last_offset + 1, last.delivery_count) == (
            row.first_offset,
            row.delivery_count,
        ):
            last.last_offset = row.last_offset
        else:
            merged.append(row)
    return merged


def _draw_done(random: Random) -> dict[str, Any]:
    return (
        {"who": random.choice(SHARERS)}
        | place(random)
        | {
            "version": version(random, ApiKey.SHARE_ACKNOWLEDGE),
            "session": mostly(random, "own", "new", "end", "ahead", unusual=0.1),
            "which": mostly(random, random.choice(("all", "first")), "beyond", "backwards"),
            "kind": random.choice((1, 1, 2, 2, 3, mostly(random, 1, 0, 4, 9, unusual=0.3))),
        }
    )


@move("shares", 6, _draw_done)
async def share_done(
    scene: Scene,
    who: str,
    topic: int,
    partition: int,
    version: int,
    session: str,
    which: str,
    kind: int,
) -> None:
    """A member says what became of records that it has: accepted, released, rejected.

    Of a topic that there is not Kafka answers -1, as in a fetch.
    """
    one = scene.sharers[who]
    if one.is_lost or (one.group, scene.topic(topic)) not in scene.shared:
        return
    took = sorted(one.took.get((topic, partition), [0]))
    first = last = took[0]
    if which == "all":
        last = first + sum(number == first + n for n, number in enumerate(took)) - 1
    if which == "beyond":
        first = last = took[-1] + 5
    if which == "backwards":
        last = first - 1
    batch = {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
    rows = [{"partition_index": partition, "acknowledgement_batches": [batch]}]
    answer = await scene.ask(
        ApiKey.SHARE_ACKNOWLEDGE,
        version,
        group_id=scene.group(one.group),
        member_id=one.id,
        share_session_epoch=_session(one, session),
        topics=[{"topic_id": scene.topic_id(topic), "partitions": rows}],
    )
    if answer is None or answer.error_code:
        return
    one.goes_on(session)
    if not answer.responses[0].partitions[0].error_code:
        one.took[topic, partition] = [n for n in took if not first <= n <= last]
        if not one.took[topic, partition]:
            del one.took[topic, partition]


def _no_draw(random: Random) -> dict[str, Any]:
    return {"group": mostly(random, SHARE_GROUP, *range(GROUPS))}


@move("shares", 2, _no_draw)
async def describe_sharers(scene: Scene, group: int) -> None:
    """A group as KIP-932 sees it."""
    names = [scene.group(group)]
    answer = await scene.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=names)
    label = next(reversed(scene.seen))
    if answer is not None:
        for path in [path for path in scene.seen[label] if ".assignment." in path]:
            del scene.seen[label][path]


def _draw_stands(random: Random) -> dict[str, Any]:
    return {
        "group": mostly(random, SHARE_GROUP, *range(GROUPS)),
        "topics": random.choice((None, [0], [0, 1], [3])),
        "version": version(random, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
    }


@move("shares", 3, _draw_stands)
async def share_offsets(scene: Scene, group: int, topics: list[int] | None, version: int) -> None:
    """Where a share group stands."""
    rows = None
    if topics is not None:
        rows = [{"topic_name": scene.topic(number), "partitions": [0, 1]} for number in topics]
    await scene.ask(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        version,
        groups=[{"group_id": scene.group(group), "topics": rows}],
    )


def _draw_move(random: Random) -> dict[str, Any]:
    drawn = {"group": mostly(random, SHARE_GROUP, *range(GROUPS))} | place(random)
    return drawn | {"offset": random.randrange(6)}


@move("shares", 1, _draw_move)
async def share_elsewhere(
    scene: Scene, group: int, topic: int, partition: int, offset: int
) -> None:
    """An administrator has a share group go on from elsewhere."""
    row = {"partition_index": partition, "start_offset": offset}
    await scene.ask(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        group_id=scene.group(group),
        topics=[{"topic_name": scene.topic(topic), "partitions": [row]}],
    )


def _draw_forget(random: Random) -> dict[str, Any]:
    return {
        "group": mostly(random, SHARE_GROUP, *range(GROUPS)),
        "topic": random.choice((0, 0, 1, 3)),
    }


@move("shares", 1, _draw_forget)
async def share_forget(scene: Scene, group: int, topic: int) -> None:
    """An administrator has a share group forget where it stands in a topic."""
    await scene.ask(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        group_id=scene.group(group),
        topics=[{"topic_name": scene.topic(topic)}],
    )


@move("shares", 1, _no_draw)
async def delete_sharers(scene: Scene, group: int) -> None:
    """A group is deleted."""
    await scene.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[scene.group(group)])

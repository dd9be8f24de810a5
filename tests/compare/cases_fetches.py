"""Fetches at the borders: truncation, numbers below zero, sessions whose topics change."""

from typing import Any
from uuid import UUID

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_produce import batch
from .cases_read import fetch, filled
from .cases_time import setting, start_set
from .cases_transactions import added, begun, completed, sent
from .stage import Stage

NOWHERE = UUID(int=4242)


@case(ApiKey.FETCH)
async def numbers_below_zero(stage: Stage) -> None:
    topic = await filled(stage)
    await fetch(stage, "min bytes", topic, 0, min_bytes=-1)
    await fetch(stage, "min bytes, at the end", topic, 9, min_bytes=-1)
    await fetch(stage, "wait", topic, 0, max_wait_ms=-1)
    await fetch(stage, "wait, at the end", topic, 9, max_wait_ms=-1)
    await fetch(stage, "no min bytes, at the end", topic, 9, min_bytes=0, max_wait_ms=5_000)
    await fetch(stage, "partition -1", topic, 0, partition=-1)
    await fetch(stage, "the largest offset", topic, (1 << 63) - 1)


@case(ApiKey.FETCH, since=9)
async def epochs_a_fetch_says(stage: Stage) -> None:
    topic = await filled(stage)
    await fetch(stage, "current -2", topic, 0, current_leader_epoch=-2)
    await fetch(stage, "current 1, beyond the end", topic, 99, current_leader_epoch=1)
    if stage.version >= 12:
        for epoch in (-2, -1, 0, 1, 7):
            for offset in (0, 4, 9, 10, 99):
                label = f"last {epoch} at {offset}"
                await fetch(stage, label, topic, offset, last_fetched_epoch=epoch)
        await start_set(stage, topic, 5)
        for offset in (0, 5):
            await fetch(stage, f"cut, last 0 at {offset}", topic, offset, last_fetched_epoch=0)


@case(ApiKey.FETCH, since=4)
async def limits_and_order(stage: Stage) -> None:
    """Which partition gets bytes when not all can."""
    topic = await stage.topic("-p", 4, retention_ms="-1")
    for n in range(4):
        await stage.produce(topic, batch(40 + n), n)

    async def ask(label: str, *order: int, max_bytes: int, each: int = 1 << 20) -> None:
        rows = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": each} for n in order]
        named: dict[str, Any] = {"topic": topic}
        if stage.version >= 13:
            named = {"topic_id": await stage.topic_id(topic)}
        fields: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 10, "min_bytes": 1}
        fields |= {"session_epoch": -1}
        fields |= {"max_bytes": max_bytes, "topics": [named | {"partitions": rows}]}
        await stage.ask(label, ApiKey.FETCH, **fields)

    size = len(batch(40))
    await ask("one byte", 0, 1, 2, 3, max_bytes=1)
    await ask("one byte, from behind", 3, 2, 1, 0, max_bytes=1)
    await ask("one and a half", 0, 1, 2, 3, max_bytes=size * 3 // 2)
    await ask("two and a half", 2, 0, 1, 3, max_bytes=size * 5 // 2)
    await ask("each one byte", 0, 1, 2, 3, max_bytes=1 << 20, each=1)
    await ask("each no byte", 0, 1, 2, 3, max_bytes=1 << 20, each=0)


@case(ApiKey.FETCH, since=4)
async def small_limits_behind_larger_batches(stage: Stage) -> None:
    """max.message.bytes below what is stored; batches of several sizes; a limit in the middle."""
    topic = await stage.topic(retention_ms="-1")
    for count in (1, 400, 1, 1, 400):
        await stage.produce(topic, batch(count))
    await setting(stage, topic, max_message_bytes="200")
    for offset in (0, 1, 5, 401, 402, 403, 500, 803):
        for limit in (1, 80, 160, 1_000):
            label = f"{limit} bytes at {offset}"
            await fetch(stage, label, topic, offset, max_bytes=limit, partition_max_bytes=limit)


@case(ApiKey.FETCH, since=4)
async def aborted_ranges(stage: Stage) -> None:
    topic = await stage.topic(retention_ms="-1", segment_ms=str((1 << 63) - 1))
    for n, committed in enumerate((False, True, False)):
        me = await begun(stage, f"-{n}")
        await added(stage, me, topic)
        await sent(stage, me, topic, 7)
        await stage.produce(topic, batch(1))
        await stage.quietly(ApiKey.END_TXN, 1, **me, committed=committed)
        await completed(stage, me)
    me = await begun(stage, "-open")
    await added(stage, me, topic)
    await sent(stage, me, topic, 7)

    async def ask(label: str, offset: int, **more: Any) -> None:
        answer = await stage_fetch(stage, topic, offset, **more)
        for row in (row for one in answer.responses for row in one.partitions):
            row.records = None  # the producers' ids are in the batches
        stage.keep(label, answer)

    for isolation in (0, 1):
        for offset in (0, 2, 3, 4, 5, 9, 10, 12, 14, 15, 17, 18):
            name = f"isolation {isolation} at {offset}"
            await ask(name, offset, isolation_level=isolation)


async def stage_fetch(stage: Stage, topic: str, offset: int, **more: Any) -> Any:
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    fields: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 10, "min_bytes": 1}
    fields |= {"max_bytes": 1 << 20, "session_epoch": -1}
    for name, value in more.items():
        (row if name in row else fields)[name] = value
    named: dict[str, Any] = {"topic": topic, "partitions": [row]}
    if stage.version >= 13:
        named = {"topic_id": await stage.topic_id(topic), "partitions": [row]}
    return await stage.quietly(ApiKey.FETCH, stage.version, topics=[named], **fields)


class Session:
    """A fetch session with enough partitions that both brokers keep it."""

    def __init__(self, stage: Stage, many: str) -> None:
        self.stage, self.many = stage, many
        self.number = self.epoch = 0

    def named(self, name: str | UUID) -> dict[str, Any]:
        if self.stage.version < 13:
            return {"topic": name}
        return {"topic_id": name if isinstance(name, UUID) else self.ids(name)[-1]}

    def ids(self, name: str) -> list[UUID]:
        """All that a topic of this name has had."""
        return [topic_id for topic_id, one in self.stage.topics.items() if one == name]

    async def ask(
        self,
        label: str,
        at: list[tuple[Any, int, int]],
        *gone: tuple[Any, int],
        more: dict[str, Any] | None = None,
        row_more: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Any:
        row = {"partition_max_bytes": 1 << 20} | (row_more or {})
        topics = [
            self.named(name) | {"partitions": [row | {"partition": n, "fetch_offset": offset}]}
            for name, n, offset in at
        ]
        if self.epoch == 0:
            rows = [row | {"partition": n, "fetch_offset": 0} for n in range(60)]
            topics.append(self.named(self.many) | {"partitions": rows})
        known: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 10, "min_bytes": 1}
        known |= {"max_bytes": 1 << 20}
        known |= {"session_id": self.number, "session_epoch": self.epoch, "topics": topics}
        known |= {
            "forgotten_topics_data": [self.named(name) | {"partitions": [n]} for name, n in gone]
        }
        answer = await self.stage.ask(label, ApiKey.FETCH, **(known | fields))
        if answer is not None and answer.error_code == 0:
            if self.epoch == 0:
                self.number = answer.session_id
            self.epoch += 1
        return answer


async def session(stage: Stage) -> Session:
    many = await stage.topic("-many", partitions=60)
    await stage.topic_id(many)
    return Session(stage, many)


@case(ApiKey.FETCH, since=7)
async def sessions_whose_topics_are_made_again(stage: Stage) -> None:
    mine = await session(stage)
    topic = await stage.topic("-t")
    await stage.produce(topic, batch())
    await stage.topic_id(topic)
    await mine.ask("begins", [(topic, 0, 0)])
    await stage.quietly(ApiKey.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=20_000)
    await stage.caught_up()
    await mine.ask("deleted", [])
    await mine.ask("deleted, again", [])
    await stage.topic("-t")
    await stage.produce(topic, batch(1))
    await stage.caught_up()
    await mine.ask("made again", [])
    await mine.ask("made again, again", [])
    if stage.version >= 13:
        (old,) = mine.ids(topic)
        await stage.topic_id(topic)
        new = mine.ids(topic)[-1]
        await mine.ask("the new one beside the old", [(new, 0, 0)])
        await mine.ask("and then", [])
        await mine.ask("the old one forgotten", [], (old, 0))
        await mine.ask("and at last", [])
    else:
        await mine.ask("its offset", [(topic, 0, 0)])
        await mine.ask("and then", [])


@case(ApiKey.FETCH, since=7)
async def sessions_at_their_borders(stage: Stage) -> None:
    mine = await session(stage)
    topic, other = await stage.topic("-t", 2), await stage.topic("-o", 2)
    for name in (topic, other):
        await stage.topic_id(name)
        await stage.produce(name, batch())
    await mine.ask("begins", [(topic, 0, 0)])
    await mine.ask("forgotten and asked at once", [(topic, 0, 1)], (topic, 0))
    await mine.ask("what is left", [])
    await mine.ask("forgotten that was not there", [], (other, 1))
    await mine.ask("a partition that is not there", [(topic, 9, 0)])
    await mine.ask("and again", [])
    await mine.ask("and forgotten", [], (topic, 9))
    await mine.ask("twice in one", [(other, 0, 0), (other, 0, 2)])
    await mine.ask("what is left of two", [])
    await mine.ask("committed", [], isolation_level=1)
    await mine.ask("of an epoch to come", [(other, 0, 0)], row_more={"current_leader_epoch": 5})
    await mine.ask("and still", [])
    await mine.ask("its epoch again", [(other, 0, 0)], row_more={"current_leader_epoch": 0})
    await mine.ask("no byte of a partition", [(other, 0, 0)], row_more={"partition_max_bytes": 0})
    await mine.ask("and more bytes", [(other, 0, 0)])
    await mine.ask("no bytes at all", [], max_bytes=0)
    await start_set(stage, other, 2)
    await mine.ask("the start moved", [])
    await mine.ask("and was told", [])
    await mine.ask("below the start", [(other, 0, 0)])
    await mine.ask("still below", [])
    await mine.ask("at the end", [(other, 0, 3)])
    await mine.ask("quiet", [])
    if stage.version >= 13:
        await mine.ask("an unknown id", [(NOWHERE, 0, 0)])
        await mine.ask("still unknown", [])
        await mine.ask("the unknown forgotten", [], (NOWHERE, 0))
        await mine.ask("quiet again", [])
    if stage.version >= 12:
        await mine.ask("diverging", [(other, 0, 2)], row_more={"last_fetched_epoch": 3})
        await mine.ask("still diverging", [])
    await mine.ask("another session", [], session_id=mine.number + 1)
    await mine.ask("session 0 with its epoch", [], session_id=0)


@case(ApiKey.FETCH, since=13)
async def ids_nobody_knows(stage: Stage) -> None:
    topic = await filled(stage)
    known = await stage.topic_id(topic)
    stage.topics[NOWHERE] = "nowhere"
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}

    async def ask(label: str, *ids: UUID, epoch: int = -1, **more: Any) -> None:
        topics = [{"topic_id": one, "partitions": [row]} for one in ids]
        fields = {"max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": epoch}
        await stage.ask(label, ApiKey.FETCH, topics=topics, **(fields | more))

    await ask("unknown", NOWHERE)
    await ask("zero", UUID(int=0))
    await ask("known and unknown", known, NOWHERE)
    await ask("unknown and known", NOWHERE, known, min_bytes=1 << 19, max_wait_ms=1_000)
    await ask("unknown in a new session", NOWHERE, known, epoch=0)


@case(ApiKey.FETCH, since=11)
async def racks(stage: Stage) -> None:
    topic = await filled(stage)
    for rack in ("", "a", "x" * 300):
        await fetch(stage, f"rack {rack[:3]!r}", topic, 0, rack_id=rack)

"""What is forgotten with time: producers, transactional ids, offsets, groups, records by key.

The brokers keep producers and transactional ids for half a minute and offsets for a minute, and
look every second; in the middle of a case more than that goes by (playing.py).
"""

import time
from collections.abc import AsyncGenerator
from typing import Any, Final

import trio

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.record_batch import decode_batch, encode_batch, iter_batches, read_header
from segbroker.protocol.schema import records_view

from .cases import Ground, broken
from .cases_groups import stood, synced
from .cases_kinds import listed, made
from .cases_produce import batch
from .cases_sequences import LAST, Producer, numbers
from .cases_time import look, start_set
from .cases_transactions import begun, completed, sent
from .stage import Stage

Two = AsyncGenerator[None, None]
Kept = tuple[int, bytes | None, bytes | None]


@broken(ApiKey.PRODUCE, Ground.BRIEF)
async def producers_that_were_silent(stage: Stage) -> Two:
    topic = await stage.topic(retention_ms="-1")
    producers = [Producer(stage, topic, await numbers(stage)) for _ in range(5)]
    for n, mine in enumerate(producers):
        for sequence in (0, 3):
            await mine.send(f"{n}, before {sequence}", sequence, epoch=2)
    wraps = Producer(stage, topic, await numbers(stage))
    await wraps.send("to the last", LAST - 2)
    yield
    again, goes_on, hole, older, anew = producers
    await again.send("the last again", 3, epoch=2)
    await again.send("the last again, again", 3, epoch=2)
    await goes_on.send("the next", 6, epoch=2)
    await hole.send("a hole", 60, epoch=2)
    await hole.send("behind the hole", 63, epoch=2)
    await older.send("an older epoch", 6, epoch=1)
    await anew.send("from 0", 0, epoch=2)
    await anew.send("from 0, a hole", 9, epoch=2)
    await wraps.send("0 behind the last", 0)


@broken(ApiKey.END_TXN, Ground.BRIEF)
async def ends_of_forgotten_transactions(stage: Stage) -> Two:
    topic = await stage.topic("-t", retention_ms="-1")
    idle, ended, opened = [await begun(stage, name) for name in ("-i", "-e", "-o")]
    await sent(stage, ended, topic, 12)
    await stage.quietly(ApiKey.END_TXN, 5, **ended, committed=True)
    await completed(stage, ended)
    await sent(stage, opened, topic, 12)  # for a minute
    yield
    for name, me in (("idle", idle), ("ended", ended)):
        for committed in (True, False):
            label = f"{name}, {'commit' if committed else 'abort'}"
            await stage.ask(label, ApiKey.END_TXN, **me, committed=committed)


@broken(ApiKey.INIT_PRODUCER_ID, Ground.BRIEF)
async def forgotten_ids_begin_again(stage: Stage) -> Two:
    plain, known, other = [await begun(stage, name) for name in ("-p", "-k", "-o")]
    yield

    async def ask(label: str, me: dict[str, Any], **more: Any) -> Any:
        asked = me | {"transaction_timeout_ms": 60_000} | more
        return await stage.ask(label, ApiKey.INIT_PRODUCER_ID, **asked)

    await ask("without a producer", plain, producer_id=-1, producer_epoch=-1)
    await ask("as the one that it was", known)
    await ask("as another one", other, producer_epoch=5)


@broken(ApiKey.ADD_PARTITIONS_TO_TXN, Ground.BRIEF)
async def partitions_join_what_is_forgotten(stage: Stage) -> Two:
    topic = await stage.topic("-t")
    me = await begun(stage)
    yield
    fields = {f"v3_and_below_{name}": value for name, value in me.items()}
    rows = [{"name": topic, "partitions": [0]}]
    await stage.ask("one", ApiKey.ADD_PARTITIONS_TO_TXN, **fields, v3_and_below_topics=rows)


@broken(ApiKey.ADD_OFFSETS_TO_TXN, Ground.BRIEF)
async def groups_join_what_is_forgotten(stage: Stage) -> Two:
    me = await begun(stage)
    yield
    await stage.ask("one", ApiKey.ADD_OFFSETS_TO_TXN, **me, group_id=f"{stage.name}-g")


@broken(ApiKey.DESCRIBE_TRANSACTIONS, Ground.BRIEF)
async def forgotten_transactions(stage: Stage) -> Two:
    topic = await stage.topic("-t", retention_ms="-1")
    idle, ended, timed_out = (
        await begun(stage, "-i"),
        await begun(stage, "-e"),
        await begun(stage, "-t", 2_000),
    )
    await sent(stage, ended, topic, 12)
    await stage.quietly(ApiKey.END_TXN, 5, **ended, committed=True)
    await completed(stage, ended)
    await sent(stage, timed_out, topic, 12)
    yield
    for me in (idle, ended, timed_out):
        names = [me["transactional_id"]]
        label = names[0][-1]
        await stage.ask(label, ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)


@broken(ApiKey.DESCRIBE_PRODUCERS, Ground.BRIEF)
async def forgotten_producers(stage: Stage) -> Two:
    topic = await stage.topic("-t", retention_ms="-1")
    ids = {"producer_id": await numbers(stage), "producer_epoch": 3, "base_sequence": 0}
    await stage.produce(topic, batch(timestamps_ms=time.time_ns() // 1_000_000, **ids))
    yield
    rows = [{"name": topic, "partition_indexes": [0]}]
    await stage.ask("none", ApiKey.DESCRIBE_PRODUCERS, topics=rows)


async def _groups(stage: Stage, topic: str) -> tuple[str, str]:
    """Groups that stand in a topic: one nobody was ever in, one that its member has left."""
    offsets, left = f"{stage.name}-offsets", f"{stage.name}-left"
    await stood(stage, topic, offsets)
    member = await synced(stage, group_id=left)
    await stood(stage, topic, left, member)
    gone = {"group_id": left, "member_id": member.member_id}
    await stage.quietly(ApiKey.LEAVE_GROUP, 1, **gone)
    return offsets, left


@broken(ApiKey.OFFSET_FETCH, Ground.BRIEF)
async def forgotten_offsets(stage: Stage) -> Two:
    topic = await stage.topic("-t")
    names = await _groups(stage, topic)
    brief = f"{stage.name}-brief"
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    fields: dict[str, Any] = {"group_id": brief, "generation_id_or_member_epoch": -1}
    fields |= {"member_id": "", "retention_time_ms": 3_600_000}
    rows = [{"name": topic, "partitions": [row]}]
    await stage.quietly(ApiKey.OFFSET_COMMIT, 4, **fields, topics=rows)
    yield
    await stage.topic_id(topic)
    for name in (*names, brief):
        one = {"group_id": name, "topics": None, "member_epoch": -1}
        label = name.rpartition("-")[2]
        await stage.ask(label, ApiKey.OFFSET_FETCH, groups=[one])


@broken(ApiKey.DESCRIBE_GROUPS, Ground.BRIEF)
async def forgotten_groups(stage: Stage) -> Two:
    names = await _groups(stage, await stage.topic("-t"))
    yield
    for name in names:
        await stage.ask(name.rpartition("-")[2], ApiKey.DESCRIBE_GROUPS, groups=[name])


@broken(ApiKey.LIST_GROUPS, Ground.BRIEF)
async def forgotten_kinds(stage: Stage) -> Two:
    """Who has not said a word since is no member any more."""
    names = set((await made(stage, await stage.topic("-t", 2))).values())
    yield
    await listed(stage, "left", names)


def _keyed(*rows: tuple[bytes, bytes | None], at: int | None = None, **more: Any) -> bytes:
    now = time.time_ns() // 1_000_000 if at is None else at
    values = [value for _, value in rows]
    return encode_batch(values, keys=[key for key, _ in rows], timestamps_ms=now, **more)


_COMPACTED: Final = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "segment_ms": "1",
    "delete_retention_ms": "0",
}


async def _rolled(stage: Stage, topic: str, first: int = 0) -> None:
    """Two more batches, each in a segment of its own: what was before is not the active one."""
    for n in (first, first + 1):
        await stage.produce(topic, _keyed((b"last %d" % n, b""), at=_later(10 + n)))


def _later(n: int) -> int:
    """Kafka rolls a segment by the time of its first record and of the one that comes: that has
    to be later."""
    return time.time_ns() // 1_000_000 + 1_000 * (n + 1)


async def _cleaned(stage: Stage, topic: str) -> None:
    """Wait until the cleaner was there: the first record, which another one replaces, is gone."""
    while any(offset == 0 for offset, *_ in (await _records(stage, topic))[0]):
        await trio.sleep(0.2)


async def _read(stage: Stage, topic: str) -> None:
    """What a consumer sees from the start to the end: how it lies in batches is not compared."""
    found, end = await _records(stage, topic)
    stage.seen[f"all of {topic[-2:]}"] = {"records": found, "end": end}


async def _records(stage: Stage, topic: str) -> tuple[list[Kept], int]:
    """What is there, and the offset behind it."""
    offset, found, fields = 0, [], {"replica_id": -1, "max_wait_ms": 10, "session_epoch": -1}
    row = {"partition": 0, "partition_max_bytes": 1 << 20}
    while True:
        rows = [{"topic": topic, "partitions": [row | {"fetch_offset": offset}]}]
        answer = await stage.quietly(
            ApiKey.FETCH, 11, **fields, max_bytes=1 << 20, isolation_level=1, topics=rows
        )
        (part,) = answer.responses[0].partitions
        assert part.error_code == 0, part
        for raw in iter_batches(records_view(part.records)):
            header = read_header(raw)
            records = [] if header.is_control else decode_batch(raw).records()
            found += [(one.offset, one.key, one.value) for one in records if one.offset >= offset]
            offset = header.base_offset + header.last_offset_delta + 1
        if offset >= part.high_watermark:
            return found, offset


@broken(ApiKey.LIST_OFFSETS, Ground.BRIEF)
async def ends_of_logs_of_which_some_is_gone(stage: Stage) -> Two:
    old = await stage.topic("-r", retention_ms="1000", segment_ms="1")
    for n in range(3):
        await stage.produce(old, _keyed((b"k", b"%d" % n), at=1_700_000_000_000 + n * 1000))
    small = await stage.topic("-c", 1, **_COMPACTED)
    for n in range(3):
        await stage.produce(small, _keyed((b"k", b"%d" % n), at=_later(n)))
    await _rolled(stage, small)
    cut = await stage.topic("-d", 1, **_COMPACTED)
    for n in range(3):
        await stage.produce(cut, _keyed((b"k%d" % n, b"%d" % n), at=_later(n)))
    yield
    for name in (small, cut):
        for at in (-1, -2, -4):
            await look(stage, f"{name[-1]} {at}", name, at)
    for at in (-1, -2, -4):
        await look(stage, f"{old[-1]} {at}", old, at)


@broken(ApiKey.FETCH, Ground.BRIEF)
async def records_left_by_the_cleaner(stage: Stage) -> Two:
    topic = await stage.topic("-a", 1, **_COMPACTED)
    for n in range(4):
        await stage.produce(topic, _keyed((b"k%d" % (n % 2), b"%d" % n), at=_later(n)))
    await _rolled(stage, topic)
    yield
    await _read(stage, topic)


@broken(ApiKey.FETCH, Ground.BRIEF)
async def tombstones_left_by_the_cleaner(stage: Stage) -> Two:
    kept = await stage.topic("-k", 1, **(_COMPACTED | {"delete_retention_ms": "86400000"}))
    gone = await stage.topic("-g", 1, **_COMPACTED)
    for topic in (kept, gone):
        for n, value in enumerate((b"a", None, b"b")):
            key = b"other" if value == b"b" else b"k"
            await stage.produce(topic, _keyed((key, value), at=_later(n)))
        await _rolled(stage, topic)
    await _cleaned(stage, gone)
    await _rolled(stage, gone, 2)  # the first cleaning reaches a tombstone, another one removes it
    yield
    await _read(stage, kept)
    await _read(stage, gone)


@broken(ApiKey.FETCH, Ground.BRIEF)
async def records_too_young_for_the_cleaner(stage: Stage) -> Two:
    topic = await stage.topic("-y", 1, **(_COMPACTED | {"min_compaction_lag_ms": "86400000"}))
    for n in range(3):
        await stage.produce(topic, _keyed((b"k", b"%d" % n), at=_later(n)))
    await _rolled(stage, topic)
    yield
    await _read(stage, topic)


@broken(ApiKey.FETCH, Ground.BRIEF)
async def parts_of_batches_left_by_the_cleaner(stage: Stage) -> Two:
    topic = await stage.topic("-p", 1, **_COMPACTED)
    mine = {"producer_id": await numbers(stage), "producer_epoch": 0}
    first = ((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    await stage.produce(topic, _keyed(*first, at=_later(0), base_sequence=0, **mine))
    second = ((b"a", b"2"), (b"c", b"2"))
    await stage.produce(topic, _keyed(*second, at=_later(1), base_sequence=3, **mine))
    await _rolled(stage, topic)
    yield
    await _read(stage, topic)


@broken(ApiKey.FETCH, Ground.BRIEF)
async def transactions_left_by_the_cleaner(stage: Stage) -> Two:
    topic = await stage.topic("-x", 1, **_COMPACTED)
    for name, committed in (("-1", True), ("-2", False), ("-3", True)):
        me = await begun(stage, name)
        await sent(stage, me, topic, 12)
        await stage.quietly(ApiKey.END_TXN, 5, **me, committed=committed)
        await completed(stage, me)
    await _rolled(stage, topic)
    yield
    await _read(stage, topic)


@broken(ApiKey.PRODUCE, Ground.BRIEF)
async def sequences_behind_retention(stage: Stage) -> Two:
    """All segments but the active one are gone; the producer wrote lately all the same."""
    topic = await stage.topic("-r", retention_ms="1000", segment_ms="1")
    mine = await numbers(stage)
    for n in range(3):
        at = 1_700_000_000_000 + n * 1000
        ids = {"producer_id": mine, "producer_epoch": 0, "base_sequence": n}
        await stage.produce(topic, _keyed((b"k", b"v"), at=at, **ids))
    await start_set(stage, topic, 3)
    yield
    sender = Producer(stage, topic, mine)
    await sender.send("deleted, the next", 3, 1)
    await sender.send("deleted, a hole", 9, 1)

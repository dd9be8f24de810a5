"""What a broker knows after it was started again: producers, transactions, groups, settings."""

import time
from collections.abc import AsyncGenerator
from typing import Any, Final

import trio

from segbroker.protocol.api_keys import ApiKey

from .cases import Ground, broken
from .cases_groups import joining, stood, synced
from .cases_kinds import CONSUMER, consuming
from .cases_produce import batch
from .cases_read import fetch
from .cases_security import quota
from .cases_sequences import LAST, Producer, numbers
from .cases_time import look, setting, start_set
from .cases_transactions import added, completed, sent
from .cases_transactions import begun as begun_for_a_minute
from .stage import SETTLE_TIMEOUT_S, Stage

BUSY: Final = (14, 15, 16, 51)
Two = AsyncGenerator[None, None]


# A marker is of today, records of cases are of 2023: Kafka would begin a segment between them.
KEPT: Final = {"retention_ms": "-1", "segment_ms": f"{1 << 62}"}


async def begun(stage: Stage, name: str = "") -> dict[str, Any]:
    """A transactional producer that is not out of time before the brokers run again."""
    return await begun_for_a_minute(stage, name, timeout_ms=900_000)


async def patiently(stage: Stage, label: str, key: ApiKey, **values: Any) -> Any:
    """Ask until the answer is no longer that the broker is busy for a moment."""
    with trio.fail_after(SETTLE_TIMEOUT_S):
        while True:
            answer = await stage.quietly(key, stage.version, **values)
            if answer.error_code not in BUSY:
                stage.keep(label, answer)
                return answer
            await trio.sleep(0.1)


@broken(ApiKey.PRODUCE, Ground.RESTARTED)
async def sequences_over_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("", 1, **KEPT)
    mine = Producer(stage, topic, await numbers(stage))
    for n in range(7):
        await mine.send(f"before {n}", 3 * n)
    newer = Producer(stage, topic, await numbers(stage))
    await newer.send("epoch 0", 0)
    await newer.send("epoch 1", 0, epoch=1)
    wraps = Producer(stage, topic, await numbers(stage))
    await wraps.send("to the last", LAST - 2, 3)
    stranger = await numbers(stage)
    yield
    await stage.settled(topic)
    await mine.send("the last again", 18)
    await mine.send("the fifth last again", 6)
    await mine.send("the sixth last again", 3)
    await mine.send("the first again", 0)
    await mine.send("a part of the last", 18, 2)
    await mine.send("a hole", 24)
    await mine.send("the next", 21)
    await mine.send("the next again", 21)
    await newer.send("of the epoch before", 3, epoch=0)
    await newer.send("a hole in the new epoch", 6, epoch=1)
    await newer.send("the next of the new epoch", 3, epoch=1)
    await newer.send("a newer epoch, not from 0", 6, epoch=2)
    await newer.send("a newer epoch", 0, epoch=2)
    await wraps.send("the wrapped again", LAST - 2, 3)
    await wraps.send("1 behind the last", 1)
    await wraps.send("0 behind the last", 0)
    await Producer(stage, topic, stranger).send("a stranger, not from 0", 5)
    other = Producer(stage, topic, await numbers(stage))
    await other.send("a new one, from 0", 0)


@broken(ApiKey.PRODUCE, Ground.RESTARTED)
async def sequences_whose_records_are_gone(stage: Stage) -> Two:
    topic = await stage.topic("", 1, **KEPT)
    mine = Producer(stage, topic, await numbers(stage))
    for n in range(3):
        await mine.send(f"before {n}", 3 * n)
    await start_set(stage, topic, 9)
    partly = await stage.topic("-partly", 1, **KEPT)
    other = Producer(stage, partly, await numbers(stage))
    for n in range(3):
        await other.send(f"partly {n}", 3 * n)
    await start_set(stage, partly, 4)
    yield
    for name in (topic, partly):
        await stage.settled(name)
    await mine.send("deleted, the last again", 6)
    await mine.send("deleted, a hole", 12)
    await mine.send("deleted, the next", 9)
    await other.send("partly, the first again", 0)
    await other.send("partly, the last again", 6)
    await other.send("partly, the next", 9)


@broken(ApiKey.PRODUCE, Ground.RESTARTED)
async def open_transactions_go_on(stage: Stage) -> Two:
    topic = await stage.topic("-t", 1, **KEPT)
    me = await begun(stage)
    await sent(stage, me, topic, 12)
    ids: dict[str, Any] = {"me": me["producer_id"], "epoch": me["producer_epoch"]}
    mine = Producer(stage, topic, me["producer_id"])
    within: dict[str, Any] = {"transactional": True, "transactional_id": stage.name}
    yield
    await stage.settled(topic)
    await mine.send("the first again", 0, **ids, **within)
    await mine.send("a hole", 9, **ids, **within)
    await mine.send("the next", 3, **ids, **within)
    await mine.send("not transactional", 6, **ids)


@broken(ApiKey.END_TXN, Ground.RESTARTED)
async def ends_of_what_was_open(stage: Stage) -> Two:
    topic = await stage.topic("-t", 1, **KEPT)
    commits, aborts, ended = [await begun(stage, name) for name in ("-c", "-a", "-e")]
    for me in (commits, aborts, ended):
        await sent(stage, me, topic, 12)
    await stage.quietly(ApiKey.END_TXN, 5, **ended, committed=True)
    await completed(stage, ended)
    nothing = await begun(stage, "-n")
    yield
    await stage.settled(topic)

    async def ask(label: str, me: dict[str, Any], committed: bool, **more: Any) -> None:
        await patiently(stage, label, ApiKey.END_TXN, **(me | {"committed": committed} | more))

    await ask("an older epoch", commits, True, producer_epoch=-1)
    await ask("another producer", commits, True, producer_id=commits["producer_id"] + 900)
    await ask("commit", commits, True)
    await ask("abort", aborts, False)
    for me in (commits, aborts):
        await completed(stage, me)
    await ask("commit twice", commits, True)
    await ask("abort what is committed", commits, False)
    await ask("the end before, again", ended, True)
    await ask("another end", ended, False)
    await ask("commit of nothing", nothing, True)


@broken(ApiKey.FETCH, Ground.RESTARTED)
async def records_of_transactions_after_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("-t", 1, **KEPT)
    first, second, third = [await begun(stage, name) for name in ("-1", "-2", "-3")]
    await sent(stage, first, topic, 12)
    await stage.quietly(ApiKey.END_TXN, 5, **first, committed=False)
    await completed(stage, first)
    await sent(stage, second, topic, 12)
    await stage.quietly(ApiKey.END_TXN, 5, **second, committed=True)
    await completed(stage, second)
    await sent(stage, third, topic, 12)
    await stage.produce(topic, batch())
    yield
    await stage.settled(topic)
    for isolation in (0, 1):
        for offset in (0, 4, 8, 11):
            label = f"isolation {isolation} at {offset}"
            await fetch(stage, label, topic, offset, isolation_level=isolation)
    await stage.quietly(ApiKey.END_TXN, 5, **third, committed=False)
    await completed(stage, third)
    await fetch(stage, "the open one aborted", topic, 0, isolation_level=1)
    await start_set(stage, topic, 5)
    await fetch(stage, "cut", topic, 5, isolation_level=1)


@broken(ApiKey.LIST_OFFSETS, Ground.RESTARTED)
async def ends_of_logs_after_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("-t", 1, **KEPT)
    for _ in range(3):
        await stage.produce(topic, batch())
    await start_set(stage, topic, 4)
    emptied = await stage.topic("-e", 1, **KEPT)
    await stage.produce(emptied, batch())
    await start_set(stage, emptied, 3)
    held = await stage.topic("-h", 1, **KEPT)
    await stage.produce(held, batch())
    await sent(stage, await begun(stage), held, 12)
    yield
    for name in (topic, emptied, held):
        await stage.settled(name)
        for at in (-1, -2, -3, -4, -5):
            for isolation in (0, 1):
                label = f"{name[-1]} {at}, isolation {isolation}"
                await look(stage, label, name, at, isolation_level=isolation)


@broken(ApiKey.INIT_PRODUCER_ID, Ground.RESTARTED)
async def producers_begin_again(stage: Stage) -> Two:
    topic = await stage.topic("-t", 1, **KEPT)
    idle, busy, told = [await begun(stage, name) for name in ("-i", "-b", "-t")]
    await sent(stage, busy, topic, 12)
    yield

    async def ask(label: str, me: dict[str, Any], epoch: int | None = None) -> Any:
        asked: dict[str, Any] = {"transactional_id": me["transactional_id"], "producer_id": -1}
        asked |= {"transaction_timeout_ms": 60_000, "producer_epoch": -1}
        if epoch is not None:
            asked |= {"producer_id": me["producer_id"], "producer_epoch": epoch}
        return await patiently(stage, label, ApiKey.INIT_PRODUCER_ID, **asked)

    await ask("idle", idle)
    await ask("in the middle of a transaction", busy)
    await ask("with its epoch", told, told["producer_epoch"])
    await ask("with its epoch again", told, told["producer_epoch"])
    await ask("with an epoch to come", told, 9)
    await ask("nobody's", {"transactional_id": None})


@broken(ApiKey.DESCRIBE_TRANSACTIONS, Ground.RESTARTED)
async def transactions_described_after_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("-t", 1, **KEPT)
    _, opened, ended = [await begun(stage, name) for name in ("-i", "-o", "-e")]
    await added(stage, opened, topic)
    await sent(stage, ended, topic, 12)
    await stage.quietly(ApiKey.END_TXN, 5, **ended, committed=True)
    await completed(stage, ended)
    yield
    for name in ("-i", "-o", "-e", "-none"):
        names = [f"{stage.name}{name}"]
        await stage.ask(name, ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)


@broken(ApiKey.DESCRIBE_PRODUCERS, Ground.RESTARTED)
async def producers_described_after_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("-t", 1, **KEPT)
    ids = {"producer_id": await numbers(stage), "producer_epoch": 3, "base_sequence": 0}
    await stage.produce(topic, batch(timestamps_ms=time.time_ns() // 1_000_000, **ids))
    held = await stage.topic("-h", 1, **KEPT)
    await sent(stage, await begun(stage), held, 12)
    yield
    for name in (topic, held):
        await stage.settled(name)
        rows = [{"name": name, "partition_indexes": [0]}]
        await stage.ask(name[-1], ApiKey.DESCRIBE_PRODUCERS, topics=rows)


@broken(ApiKey.OFFSET_FETCH, Ground.RESTARTED)
async def offsets_after_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("-t", 3)
    for partition, epoch in ((0, -1), (1, 0), (2, 9)):
        row: dict[str, Any] = {"partition_index": partition, "committed_offset": 7}
        row |= {"committed_leader_epoch": epoch, "committed_metadata": f"of {epoch}"}
        await stage.quietly(
            ApiKey.OFFSET_COMMIT,
            6,
            group_id=stage.name,
            member_id="",
            generation_id_or_member_epoch=-1,
            topics=[{"name": topic, "partitions": [row]}],
        )
    pending = {"group_id": f"{stage.name}-p"}
    await stood(stage, topic, pending["group_id"])
    me = await begun(stage)
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    fields: dict[str, Any] = me | pending | {"generation_id": -1}
    await stage.quietly(
        ApiKey.TXN_OFFSET_COMMIT, 5, **fields, topics=[{"name": topic, "partitions": [row]}]
    )
    deleted = f"{stage.name}-d"
    await stood(stage, topic, deleted)
    await stage.quietly(ApiKey.DELETE_GROUPS, 1, groups_names=[deleted])
    yield
    await stage.topic_id(topic)

    async def ask(label: str, group: str, *, stable: bool = False) -> None:
        one = {"group_id": group, "topics": None, "member_epoch": -1}
        await stage.ask(label, ApiKey.OFFSET_FETCH, groups=[one], require_stable=stable)

    await ask("of every epoch", stage.name)
    await ask("pending", pending["group_id"])
    await ask("pending, only stable", pending["group_id"], stable=True)
    await ask("deleted", deleted)
    await stage.quietly(ApiKey.END_TXN, 5, **me, committed=True)
    await completed(stage, me)
    await ask("committed", pending["group_id"], stable=True)


LONG: Final = {"session_timeout_ms": 300_000}


@broken(ApiKey.HEARTBEAT, Ground.RESTARTED)
async def members_after_a_restart(stage: Stage) -> Two:
    plain = await synced(stage, **LONG)
    static = {"group_id": f"{stage.name}-s", "group_instance_id": "place"}
    placed = await synced(stage, **static, **LONG)
    yield

    async def ask(label: str, member: Any, **more: Any) -> None:
        fields: dict[str, Any] = {"group_id": stage.name, "member_id": member.member_id}
        fields |= {"generation_id": member.generation_id}
        await patiently(stage, label, ApiKey.HEARTBEAT, **(fields | more))

    await ask("alive", plain)
    await ask("another generation", plain, generation_id=plain.generation_id + 1)
    await ask("nobody", plain, member_id="nobody")
    await ask("static", placed, **static)
    await ask("static, another member", placed, **(static | {"member_id": "nobody"}))
    await ask("static, another place", placed, **(static | {"group_instance_id": "x"}))


@broken(ApiKey.JOIN_GROUP, Ground.RESTARTED)
async def a_static_member_joins_again(stage: Stage) -> Two:
    place = {"group_instance_id": "place"}
    await synced(stage, **place, **LONG)
    yield
    await patiently(stage, "again", ApiKey.JOIN_GROUP, **joining(stage, **place, **LONG))


@broken(ApiKey.DESCRIBE_GROUPS, Ground.RESTARTED)
async def groups_described_after_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("-t")
    await synced(stage, group_id=f"{stage.name}-m", **LONG)
    await stood(stage, topic, f"{stage.name}-o")
    left = await synced(stage, group_id=f"{stage.name}-l", **LONG)
    await stood(stage, topic, f"{stage.name}-l", left)
    gone = {"group_id": f"{stage.name}-l", "member_id": left.member_id}
    await stage.quietly(ApiKey.LEAVE_GROUP, 1, **gone)
    yield
    for name in ("-m", "-o", "-l", "-none"):
        await stage.ask(name, ApiKey.DESCRIBE_GROUPS, groups=[f"{stage.name}{name}"])


@broken(ApiKey.DESCRIBE_CONFIGS, Ground.RESTARTED)
async def settings_after_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("-t", retention_ms="5000", cleanup_policy="compact,delete")
    await setting(stage, topic, segment_ms="777777")
    yield
    keys = ["retention.ms", "cleanup.policy", "segment.ms"]
    row = {"resource_type": 2, "resource_name": topic, "configuration_keys": keys}
    await stage.ask("a topic", ApiKey.DESCRIBE_CONFIGS, resources=[row], include_synonyms=True)


@broken(ApiKey.DESCRIBE_CLIENT_QUOTAS, Ground.RESTARTED)
async def quotas_after_a_restart(stage: Stage) -> Two:
    made = [quota("producer_byte_rate", 1234.0, user=stage.name)]
    made += [quota("consumer_byte_rate", 5678.0, user=stage.name, client="x")]
    await stage.quietly(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=made)
    yield
    rows = [{"entity_type": "user", "match_type": 0, "match": stage.name}]
    await stage.ask("both", ApiKey.DESCRIBE_CLIENT_QUOTAS, components=rows, strict=False)


@broken(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Ground.RESTARTED)
async def users_after_a_restart(stage: Stage) -> Two:
    made = {"name": stage.name, "mechanism": 2, "iterations": 5000, "salt": b"s" * 16}
    made |= {"salted_password": b"p" * 64}
    await stage.quietly(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[made])
    yield
    users = [{"name": stage.name}]
    await stage.ask("one", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=users)


@broken(ApiKey.CONSUMER_GROUP_HEARTBEAT, Ground.RESTARTED)
async def consumers_after_a_restart(stage: Stage) -> Two:
    topic = await stage.topic("-t")
    await consuming(stage, topic, stage.name)
    yield
    fields: dict[str, Any] = {"group_id": stage.name, "member_id": CONSUMER}
    fields |= {"topic_partitions": None, "rebalance_timeout_ms": -1}
    beat = ApiKey.CONSUMER_GROUP_HEARTBEAT
    await stage.ask("an epoch to come", beat, **fields, member_epoch=9)
    await stage.ask("nobody", beat, **(fields | {"member_id": "nobody"}), member_epoch=1)

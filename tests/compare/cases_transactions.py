"""Producer ids and transactions."""

from typing import Any

import trio

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_groups import stood
from .cases_produce import NOW_MS, batch
from .stage import Stage

CONCURRENT_TRANSACTIONS = 51


@case(ApiKey.INIT_PRODUCER_ID)
async def producer_ids(stage: Stage) -> None:
    async def ask(label: str, transactional_id: str | None, **more: Any) -> Any:
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000} | more
        return await stage.ask(label, ApiKey.INIT_PRODUCER_ID, **fields)

    await ask("idempotent", None)
    first = await ask("transactional", stage.name)
    await ask("transactional again", stage.name)
    await ask("an empty id", "")
    await ask("no time at all", stage.name, transaction_timeout_ms=0)
    await ask("too much time", stage.name, transaction_timeout_ms=900_001)
    if stage.version >= 3:
        await ask("as an old one", stage.name, producer_id=first.producer_id, producer_epoch=0)
        await ask("as a stranger", stage.name, producer_id=first.producer_id + 9, producer_epoch=0)
        await ask("an epoch without an id", stage.name, producer_id=-1, producer_epoch=0)
        await ask(
            "an id without an epoch", stage.name, producer_id=first.producer_id, producer_epoch=-1
        )


async def begun(stage: Stage, name: str = "", timeout_ms: int = 60_000) -> dict[str, Any]:
    """A transactional producer: its three fields."""
    answer = await stage.quietly(
        ApiKey.INIT_PRODUCER_ID,
        1,
        transactional_id=f"{stage.name}{name}",
        transaction_timeout_ms=timeout_ms,
    )
    assert answer.error_code == 0, answer
    return {
        "transactional_id": f"{stage.name}{name}",
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


async def added(stage: Stage, me: dict[str, Any], topic: str) -> None:
    fields = {f"v3_and_below_{name}": value for name, value in me.items()}
    known = {"v3_and_below_topics": [{"name": topic, "partitions": [0]}]}
    answer = await stage.quietly(ApiKey.ADD_PARTITIONS_TO_TXN, 1, **fields, **known)
    rows = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert rows[0].partition_error_code == 0, answer


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
async def partitions_join_a_transaction(stage: Stage) -> None:
    topic = await stage.topic("-t", 2)
    me = await begun(stage)

    async def ask(label: str, name: str, *partitions: int, **more: Any) -> None:
        fields = {f"v3_and_below_{key}": value for key, value in (me | more).items()}
        named = [{"name": name, "partitions": list(partitions)}]
        await stage.ask(label, ApiKey.ADD_PARTITIONS_TO_TXN, v3_and_below_topics=named, **fields)

    await ask("two", topic, 0, 1)
    await ask("again", topic, 0)
    await ask("of a partition that is not there", topic, 0, 9)
    await ask("of a topic that is not there", f"{stage.name}-nowhere", 0)
    await ask("older epoch", topic, 0, producer_epoch=-1)
    await ask("newer epoch", topic, 0, producer_epoch=5)
    await ask("other producer", topic, 0, producer_id=me["producer_id"] + 9)
    await ask("unknown id", topic, 0, transactional_id=f"{stage.name}-no")
    await ask("empty id", topic, 0, transactional_id="")


@case(ApiKey.ADD_OFFSETS_TO_TXN)
async def offsets_join_a_transaction(stage: Stage) -> None:
    me = await begun(stage)

    async def ask(label: str, **more: Any) -> None:
        fields = me | {"group_id": f"{stage.name}-g"} | more
        await stage.ask(label, ApiKey.ADD_OFFSETS_TO_TXN, **fields)

    await ask("good")
    await ask("again")
    await ask("older epoch", producer_epoch=-1)
    await ask("newer epoch", producer_epoch=5)
    await ask("other producer", producer_id=me["producer_id"] + 9)
    await ask("unknown id", transactional_id=f"{stage.name}-no")
    await ask("empty group", group_id="")


@case(ApiKey.TXN_OFFSET_COMMIT)
async def offsets_of_a_transaction(stage: Stage) -> None:
    topic = await stage.topic("-t")
    me = await begun(stage)
    group = {"group_id": f"{stage.name}-g"}
    await stage.quietly(ApiKey.ADD_OFFSETS_TO_TXN, 1, **me, **group)

    async def ask(label: str, name: str = topic, offset: int = 5, **more: Any) -> None:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        named = [{"name": name, "partitions": [row]}]
        fields = me | group | {"generation_id": -1, "topics": named} | more
        await stage.ask(label, ApiKey.TXN_OFFSET_COMMIT, **fields)

    await ask("good")
    await ask("of a topic that is not there", f"{stage.name}-nowhere")
    await ask("older epoch", producer_epoch=-1)
    await ask("empty group", group_id="")
    if stage.version < 5:  # a group takes part by this from then on
        await stage.quietly(ApiKey.END_TXN, 1, **me, committed=False)
        await completed(stage, me)
        await ask("nothing is open")
        await added(stage, me, topic)
        await ask("of a group that takes no part")
        await stage.quietly(ApiKey.ADD_OFFSETS_TO_TXN, 1, **me, **group)
        await ask("the next transaction")
    if stage.version >= 3:
        await ask("a generation that is not there", generation_id=4)
        stranger: dict[str, Any] = {"member_id": "x", "generation_id": 1}
        await ask("a member that is not there", **stranger)
        await ask("neither is there", f"{stage.name}-nowhere", **stranger)


async def sent(stage: Stage, me: dict[str, Any], topic: str, version: int) -> None:
    """A batch of what is open; from version 12 on the partition takes part by this."""
    numbers = {"producer_id": me["producer_id"], "producer_epoch": me["producer_epoch"]}
    records = batch(transactional=True, base_sequence=0, **numbers)
    answer = await stage.quietly(
        ApiKey.PRODUCE,
        version,
        transactional_id=me["transactional_id"],
        acks=-1,
        timeout_ms=10_000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    )
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


async def completed(stage: Stage, me: dict[str, Any]) -> None:
    """Kafka answers an end before its markers are written."""
    names = [me["transactional_id"]]
    with trio.fail_after(20):
        while True:
            answer = await stage.quietly(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)
            if answer.transaction_states[0].transaction_state.startswith("Complete"):
                return
            await trio.sleep(0.05)


@case(ApiKey.END_TXN)
async def ends_of_transactions(stage: Stage) -> None:
    topic = await stage.topic("-t")

    async def ask(label: str, me: dict[str, Any], committed: bool, **more: Any) -> Any:
        fields = me | {"committed": committed} | more
        return await stage.ask(label, ApiKey.END_TXN, **fields)

    me = await begun(stage)
    if stage.version < 5:
        await ask("commit of nothing", me, True)
        await ask("abort of nothing", me, False)
        await added(stage, me, topic)
        await sent(stage, me, topic, 7)
        await ask("commit", me, True)
        await completed(stage, me)
        await ask("commit again", me, True)
        await ask("abort after the commit", me, False)
    else:
        await ask("commit of nothing", me, True)
        await sent(stage, me, topic, 12)
        await ask("commit", me, True)
        await completed(stage, me)
        await ask("commit again", me, True)
        await ask("abort after the commit", me, False)
        me["producer_epoch"] += 1
        await ask("commit of nothing, next epoch", me, True)
        await ask("abort of nothing, next epoch", me, False)
        await completed(stage, me)
        await ask("abort of nothing again", me, False)
        me["producer_epoch"] += 1
    await ask("older epoch", me, True, producer_epoch=-1)
    await ask("newer epoch", me, True, producer_epoch=9)
    await ask("other producer", me, True, producer_id=me["producer_id"] + 9)
    await ask("unknown id", me, True, transactional_id=f"{stage.name}-no")
    await ask("empty id", me, True, transactional_id="")


async def aborted_by_time(stage: Stage) -> dict[str, Any]:
    """A producer whose transaction was open for too long; Kafka looks every ten seconds."""
    topic, me = await stage.topic("-t"), await begun(stage, timeout_ms=500)
    await added(stage, me, topic)
    await sent(stage, me, topic, 12)
    await completed(stage, me)
    return me


@case(ApiKey.END_TXN, since=4)
async def an_end_behind_an_abort_by_time(stage: Stage) -> None:
    me = await aborted_by_time(stage)
    await stage.ask("commit of what the broker aborted", ApiKey.END_TXN, **me, committed=True)
    await stage.ask("abort", ApiKey.END_TXN, **me, committed=False)
    await stage.ask("abort again", ApiKey.END_TXN, **me, committed=False)


@case(ApiKey.INIT_PRODUCER_ID, since=4)
async def an_epoch_behind_an_abort_by_time(stage: Stage) -> None:
    me = await aborted_by_time(stage)
    for label in ("its own", "its own again"):
        await stage.ask(label, ApiKey.INIT_PRODUCER_ID, **me, transaction_timeout_ms=60_000)
    await begun(stage)
    await stage.ask("taken over", ApiKey.INIT_PRODUCER_ID, **me, transaction_timeout_ms=60_000)


@case(ApiKey.DESCRIBE_TRANSACTIONS)
async def transactions_described(stage: Stage) -> None:
    topic = await stage.topic("-t")
    me = await begun(stage)
    names = [me["transactional_id"]]
    await stage.ask("nothing begun", ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)
    await added(stage, me, topic)
    await stage.ask("under way", ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)
    for label, name in (("not there", f"{stage.name}-no"), ("empty", "")):
        await stage.ask(label, ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[name])


@case(ApiKey.DESCRIBE_TRANSACTIONS)
async def transactions_of_who_goes_on_anew(stage: Stage) -> None:
    """A producer asks for its next epoch: with nothing open, with something, a second time."""
    topic = await stage.topic("-t")
    me = await begun(stage)
    names = [me["transactional_id"]]

    async def goes_on(label: str, timeout_ms: int) -> None:
        fields = me | {"transaction_timeout_ms": timeout_ms}
        with trio.fail_after(20):
            while True:
                answer = await stage.quietly(ApiKey.INIT_PRODUCER_ID, 5, **fields)
                if answer.error_code != CONCURRENT_TRANSACTIONS:
                    break
                await trio.sleep(0.05)
        assert answer.error_code == 0, answer
        await stage.ask(label, ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)
        stage.seen[f"{label}, epoch"] = {"epoch": answer.producer_epoch}

    await goes_on("nothing open", 50_000)
    await goes_on("nothing open, again", 49_000)
    me["producer_epoch"] += 1
    await added(stage, me, topic)
    await sent(stage, me, topic, 7)
    await goes_on("something open", 48_000)
    await goes_on("something open, again", 47_000)


@case(ApiKey.LIST_TRANSACTIONS)
async def transactions_listed(stage: Stage) -> None:
    topic = await stage.topic("-t")
    me = await begun(stage)
    await added(stage, me, topic)

    async def ask(label: str, states: list[str], producers: list[int], **more: Any) -> None:
        answer = await stage.quietly(
            ApiKey.LIST_TRANSACTIONS,
            stage.version,
            state_filters=states,
            producer_id_filters=producers,
            **more,
        )
        answer.transaction_states = [
            one for one in answer.transaction_states if one.transactional_id == stage.name
        ]
        stage.keep(label, answer)

    await ask("all", [], [])
    await ask("under way", ["Ongoing"], [])
    await ask("committed", ["CompleteCommit"], [])
    await ask("a state that is not there", ["Nonsense"], [])
    await ask("its producer", [], [me["producer_id"]])
    await ask("another producer", [], [me["producer_id"] + 9])
    if stage.version >= 2:
        for pattern in (
            "",
            stage.name,
            f"{stage.name[:4]}.*",
            "c.*",
            "[^c].*",
            stage.name[:4],
            "(",
        ):
            label = pattern.replace(stage.name, "~")
            await ask(f"matching {label!r}", [], [], transactional_id_pattern=pattern)


@case(ApiKey.DESCRIBE_PRODUCERS)
async def producers_described(stage: Stage) -> None:
    topic = await stage.topic("-t")
    me = await begun(stage)

    async def ask(label: str, name: str, *partitions: int) -> None:
        named = [{"name": name, "partition_indexes": list(partitions)}]
        await stage.ask(label, ApiKey.DESCRIBE_PRODUCERS, topics=named)

    await ask("nobody", topic, 0)
    await added(stage, me, topic)
    await sent(stage, me, topic, 7)
    await ask("one with a transaction", topic, 0)
    await stage.quietly(ApiKey.END_TXN, 1, **me, committed=True)
    await completed(stage, me)
    await ask("one without", topic, 0)
    await ask("not there", topic, 9)
    await ask("a topic that is not there", f"{stage.name}-nowhere", 0)


@case(ApiKey.LIST_OFFSETS, since=1)
async def offsets_by_time_of_a_log_that_ends_with_a_marker(stage: Stage) -> None:
    topic, me = await stage.topic("-t"), await begun(stage)
    await added(stage, me, topic)
    await sent(stage, me, topic, 7)

    async def ask(label: str, time: int) -> None:
        row = {"partition_index": 0, "timestamp": time, "current_leader_epoch": -1}
        known = {"isolation_level": 1} if stage.version >= 2 else {}
        asked = [{"name": topic, "partitions": [row]}]
        await stage.ask(label, ApiKey.LIST_OFFSETS, replica_id=-1, topics=asked, **known)

    for time in (-1, NOW_MS, NOW_MS + 1_000_000):
        await ask(f"at {time}, open", time)
    await stage.quietly(ApiKey.END_TXN, 1, **me, committed=True)
    await completed(stage, me)
    for time in (-1, NOW_MS):
        await ask(f"at {time}", time)
    await ask("between the records and a marker", NOW_MS + 1_000_000)
    if stage.version >= 7:
        await ask("greatest, with a marker behind", -3)


async def staged(stage: Stage, me: dict[str, Any], group: str, topic: str, offset: int) -> None:
    """An offset of a group that stands when this transaction commits."""
    where = {"group_id": group}
    added = await stage.quietly(ApiKey.ADD_OFFSETS_TO_TXN, 1, **me, **where)
    assert added.error_code == 0, added
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "s"}
    named = [{"name": topic, "partitions": [row]}]
    answer = await stage.quietly(
        ApiKey.TXN_OFFSET_COMMIT, 2, **me, **where, generation_id=-1, topics=named
    )
    assert answer.topics[0].partitions[0].error_code == 0, answer


@case(ApiKey.OFFSET_FETCH, since=1)
async def offsets_of_transactions_beside_others(stage: Stage) -> None:
    topic = await stage.topic("-t")

    async def ask(label: str, group: str, **more: object) -> None:
        rows: list[dict[str, Any]] = [{"name": topic, "partition_indexes": [0]}]
        if stage.version >= topic_ids_since:
            rows = [{"topic_id": await stage.topic_id(topic), "partition_indexes": [0]}]
        asked: dict[str, Any] = {"group_id": group, "topics": rows}
        if stage.version >= groups_since:
            asked = {"groups": [asked | {"member_epoch": -1}]}
        await stage.ask(label, ApiKey.OFFSET_FETCH, **asked, **more)

    groups_since, topic_ids_since, stable_since = 8, 10, 7
    for label, plain_first in (("in front of", True), ("behind", False)):
        group = f"{stage.name}-{label.replace(' ', '-')}"
        me = await begun(stage, label)
        if plain_first:
            await stood(stage, topic, group)
        await staged(stage, me, group, topic, 5)
        if not plain_first:
            await stood(stage, topic, group)
        await ask(f"{label} what is staged, open", group)
        if stage.version >= stable_since:
            await ask(f"{label} what is staged, open, stable", group, require_stable=True)
        await stage.quietly(ApiKey.END_TXN, 1, **me, committed=True)
        await completed(stage, me)
        await ask(f"{label} what was staged", group)
    first, second = await begun(stage, "first"), await begun(stage, "second")
    group = f"{stage.name}-two"
    await staged(stage, first, group, topic, 3)
    await staged(stage, second, group, topic, 4)
    for me in (second, first):
        await stage.quietly(ApiKey.END_TXN, 1, **me, committed=True)
        await completed(stage, me)
    await ask("of two transactions", group)


@case(ApiKey.LIST_GROUPS)
async def groups_with_staged_offsets_listed(stage: Stage) -> None:
    topic, me = await stage.topic("-t"), await begun(stage)

    async def list_all(label: str) -> None:
        answer = await stage.quietly(ApiKey.LIST_GROUPS, stage.version)
        answer.groups = [group for group in answer.groups if group.group_id == stage.name]
        stage.keep(label, answer)

    await staged(stage, me, stage.name, topic, 5)
    await list_all("an open transaction has all of its offsets")
    await stage.quietly(ApiKey.END_TXN, 1, **me, committed=True)
    await completed(stage, me)
    await list_all("they stand")


@case(ApiKey.DESCRIBE_GROUPS)
async def groups_with_staged_offsets_described(stage: Stage) -> None:
    topic, me = await stage.topic("-t"), await begun(stage)
    await staged(stage, me, stage.name, topic, 5)
    await stage.ask("an open transaction has all", ApiKey.DESCRIBE_GROUPS, groups=[stage.name])
    await stage.quietly(ApiKey.END_TXN, 1, **me, committed=True)
    await completed(stage, me)
    await stage.ask("they stand", ApiKey.DESCRIBE_GROUPS, groups=[stage.name])


@case(ApiKey.WRITE_TXN_MARKERS)
async def transactions_that_an_administrator_ends(stage: Stage) -> None:
    topic, me = await stage.topic("-t"), await begun(stage)
    await added(stage, me, topic)
    await sent(stage, me, topic, 7)

    async def ask(label: str, *partitions: int, name: str = topic, **more: Any) -> None:
        known = {"producer_id": me["producer_id"], "producer_epoch": me["producer_epoch"]}
        topics = [{"name": name, "partition_indexes": list(partitions)}]
        marker = known | {"transaction_result": False, "coordinator_epoch": 0, "topics": topics}
        await stage.ask(label, ApiKey.WRITE_TXN_MARKERS, markers=[marker | more])

    await stage.ask("nothing", ApiKey.WRITE_TXN_MARKERS, markers=[])
    await ask("not there", 9)
    await ask("a topic that is not there", 0, name=f"{stage.name}-nowhere")
    await ask("older epoch", 0, producer_epoch=-1)
    await ask("good", 0)
    await ask("again", 0)
    await ask("older coordinator", 0, coordinator_epoch=-1)

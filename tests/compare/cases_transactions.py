"""Producer ids and transactions."""

from typing import Any

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_produce import batch
from .stage import Stage


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


async def begun(stage: Stage, name: str = "") -> dict[str, Any]:
    """A transactional producer: its three fields."""
    answer = await stage.quietly(
        ApiKey.INIT_PRODUCER_ID,
        1,
        transactional_id=f"{stage.name}{name}",
        transaction_timeout_ms=60_000,
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
    if stage.version >= 3:
        await ask("a generation that is not there", generation_id=4)
        await ask("a member that is not there", member_id="x", generation_id=1)


@case(ApiKey.END_TXN)
async def ends_of_transactions(stage: Stage) -> None:
    topic = await stage.topic("-t")

    async def ask(label: str, me: dict[str, Any], committed: bool, **more: Any) -> Any:
        fields = me | {"committed": committed} | more
        return await stage.ask(label, ApiKey.END_TXN, **fields)

    me = await begun(stage)
    if stage.version < 5:  # from 5 on a commit may raise the epoch
        await ask("commit of nothing", me, True)
        await added(stage, me, topic)
        numbers = {"producer_id": me["producer_id"], "producer_epoch": me["producer_epoch"]}
        await stage.quietly(
            ApiKey.PRODUCE,
            7,
            transactional_id=me["transactional_id"],
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                {
                    "name": topic,
                    "partition_data": [
                        {
                            "index": 0,
                            "records": batch(transactional=True, base_sequence=0, **numbers),
                        }
                    ],
                }
            ],
        )
        await ask("commit", me, True)
        await ask("commit again", me, True)
        await ask("abort after the commit", me, False)
    await ask("older epoch", me, True, producer_epoch=-1)
    await ask("newer epoch", me, True, producer_epoch=9)
    await ask("other producer", me, True, producer_id=me["producer_id"] + 9)
    await ask("unknown id", me, True, transactional_id=f"{stage.name}-no")
    await ask("empty id", me, True, transactional_id="")


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


@case(ApiKey.LIST_TRANSACTIONS)
async def transactions_listed(stage: Stage) -> None:
    topic = await stage.topic("-t")
    me = await begun(stage)
    await added(stage, me, topic)

    async def ask(label: str, states: list[str], producers: list[int]) -> None:
        answer = await stage.quietly(
            ApiKey.LIST_TRANSACTIONS,
            stage.version,
            state_filters=states,
            producer_id_filters=producers,
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

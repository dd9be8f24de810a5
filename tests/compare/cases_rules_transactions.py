"""What each request about producers and transactions needs: asked by every user of crowd.py."""

from typing import Any

from segbroker.protocol.api_keys import ApiKey

from .cases_rules import Ask, asked_by_everybody, nowhere
from .cases_transactions import added, begun
from .stage import Stage


@asked_by_everybody(ApiKey.INIT_PRODUCER_ID)
async def idempotent_producers(stage: Stage) -> Ask:
    return lambda _: {"transactional_id": None, "transaction_timeout_ms": 60_000}


@asked_by_everybody(ApiKey.INIT_PRODUCER_ID)
async def transactional_producers(stage: Stage) -> Ask:
    def asking(user: str) -> dict[str, Any]:
        return {"transactional_id": f"{stage.name}-{user}", "transaction_timeout_ms": 60_000}

    return asking


@asked_by_everybody(ApiKey.ADD_PARTITIONS_TO_TXN)
async def partitions_joining(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    me = await begun(stage)
    fields = {f"v3_and_below_{name}": value for name, value in me.items()}
    rows = [{"name": topic, "partitions": [0]}]
    return lambda _: fields | {"v3_and_below_topics": rows}


@asked_by_everybody(ApiKey.ADD_PARTITIONS_TO_TXN)
async def partitions_joining_of_nowhere(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    me = await begun(stage)
    fields = {f"v3_and_below_{name}": value for name, value in me.items()}
    rows = [{"name": name, "partitions": [0]} for name in (topic, nowhere(stage))]
    return lambda _: fields | {"v3_and_below_topics": rows}


@asked_by_everybody(ApiKey.ADD_PARTITIONS_TO_TXN)
async def partitions_joining_beside_one_that_is_refused(stage: Stage) -> Ask:
    """A topic of which no rule is, but for who may do everything."""
    topic = await stage.topic("-t")
    me = await begun(stage)
    fields = {f"v3_and_below_{name}": value for name, value in me.items()}
    names = (topic, nowhere(stage), f"x-{stage.name}")
    rows = [{"name": name, "partitions": [0, 1]} for name in names]
    return lambda _: fields | {"v3_and_below_topics": rows}


@asked_by_everybody(ApiKey.ADD_OFFSETS_TO_TXN)
async def groups_joining(stage: Stage) -> Ask:
    me = await begun(stage)
    return lambda _: me | {"group_id": f"{stage.name}-g"}


@asked_by_everybody(ApiKey.TXN_OFFSET_COMMIT)
async def offsets_in_transactions(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    me = await begun(stage)
    group = {"group_id": f"{stage.name}-g"}
    await stage.quietly(ApiKey.ADD_OFFSETS_TO_TXN, 1, **me, **group)
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
    rows = [{"name": name, "partitions": [row]} for name in (topic, nowhere(stage))]
    return lambda _: me | group | {"generation_id": -1, "topics": rows}


@asked_by_everybody(ApiKey.END_TXN)
async def transactions_ending(stage: Stage) -> Ask:
    me = await begun(stage)
    return lambda _: me | {"committed": True, "producer_epoch": me["producer_epoch"] + 7}


@asked_by_everybody(ApiKey.WRITE_TXN_MARKERS)
async def markers_written(stage: Stage) -> Ask:
    rows = [
        {"name": name, "partition_indexes": [0]}
        for name in (await stage.topic("-t"), nowhere(stage))
    ]
    marker = {"producer_id": 4_100_000, "producer_epoch": 0, "transaction_result": False}
    return lambda _: {"markers": [marker | {"topics": rows, "coordinator_epoch": 0}]}


@asked_by_everybody(ApiKey.DESCRIBE_TRANSACTIONS)
async def transactions_described(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    await added(stage, await begun(stage), topic)
    return lambda _: {"transactional_ids": [stage.name, f"{stage.name}-none"]}


@asked_by_everybody(ApiKey.LIST_TRANSACTIONS)
async def transactions_listed(stage: Stage) -> Ask:
    topic = await stage.topic("-t")
    await added(stage, await begun(stage), topic)
    return lambda _: {"state_filters": ["Ongoing"], "duration_filter": -1}

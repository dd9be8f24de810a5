"""Who may not do a thing, and names it twice in one request: asked by every user of crowd.py.

What is named twice is wrong for whoever asks, or refused once, or refused twice; each request has
its own way.  Not asked are AlterConfigs and IncrementalAlterConfigs: Kafka 4.3.1 left who names
twice what it may not change without an answer.
"""

from segbroker.protocol.api_keys import ApiKey

from .cases_rules import Ask, asked_by_everybody
from .stage import Stage


async def _here_and_missing(stage: Stage) -> list[str]:
    """A topic that is there twice, and one that is not."""
    return [await stage.topic("-twice"), f"{stage.name}-missing"] * 2


@asked_by_everybody(ApiKey.CREATE_PARTITIONS)
async def partitions_added_twice(stage: Stage) -> Ask:
    names = await _here_and_missing(stage)
    rows = [{"name": name, "count": 2, "assignments": None} for name in names]
    return lambda _: {"topics": rows, "timeout_ms": 20_000, "validate_only": True}


@asked_by_everybody(ApiKey.DELETE_TOPICS)
async def topics_deleted_twice(stage: Stage) -> Ask:
    names = await _here_and_missing(stage)
    if stage.version < 6:
        return lambda _: {"topic_names": names, "timeout_ms": 20_000}
    return lambda _: {"topics": [{"name": name} for name in names], "timeout_ms": 20_000}


@asked_by_everybody(ApiKey.DELETE_RECORDS)
async def records_deleted_twice(stage: Stage) -> Ask:
    row = {"partitions": [{"partition_index": 0, "offset": 0}]}
    rows = [{"name": name} | row for name in await _here_and_missing(stage)]
    return lambda _: {"topics": rows, "timeout_ms": 20_000}


@asked_by_everybody(ApiKey.DESCRIBE_GROUPS)
async def groups_described_twice(stage: Stage) -> Ask:
    return lambda _: {"groups": [f"{stage.name}-twice"] * 2, "include_authorized_operations": True}


@asked_by_everybody(ApiKey.DELETE_GROUPS)
async def groups_deleted_twice(stage: Stage) -> Ask:
    return lambda _: {"groups_names": [f"{stage.name}-twice"] * 2}


@asked_by_everybody(ApiKey.CONSUMER_GROUP_DESCRIBE)
async def consumers_described_twice(stage: Stage) -> Ask:
    return lambda _: {"group_ids": [f"{stage.name}-twice"] * 2}

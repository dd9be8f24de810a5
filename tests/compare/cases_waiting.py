"""When a fetch that waits is answered, and with what: by what happens to its partition."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import trio

from segbroker.protocol.api_keys import ApiKey

from .cases import case
from .cases_produce import batch
from .cases_time import start_set
from .cases_transactions import added, begun, sent
from .stage import Stage

WAIT_MS: Final = 5_000
# What is answered within half of the wait was not answered by its end.
SOON_S: Final = WAIT_MS / 2_000
BEGUN_S: Final = 0.5
Act = Callable[[], Awaitable[Any]]


async def nothing() -> None:
    """Nothing happens."""


async def waits(stage: Stage, label: str, topic: str, act: Act, **more: Any) -> None:
    """Fetch on a connection of its own, do something meanwhile, and keep what was answered."""
    partitions = more.pop("partitions", (0,))
    row = {"fetch_offset": 3, "partition_max_bytes": 1 << 20}
    fields = {"replica_id": -1, "max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 1 << 20}
    fields |= {"session_epoch": -1, "isolation_level": 0}
    for name, value in more.items():
        (row if name in row else fields)[name] = value
    rows = [row | {"partition": n} for n in partitions]
    named: dict[str, Any] = {"topic": topic}
    if stage.version >= 13:
        named = {"topic_id": await stage.topic_id(topic)}
    asked = fields | {"topics": [named | {"partitions": rows}]}
    found: dict[str, object] = {}

    async def fetch(other: Stage) -> None:
        began = trio.current_time()
        answer = await other.quietly(ApiKey.FETCH, stage.version, **asked)
        found["soon"] = trio.current_time() - began < SOON_S
        for one in (one for topic in answer.responses for one in topic.partitions):
            found[f"partitions[{one.partition_index}].error_code"] = one.error_code
            found[f"partitions[{one.partition_index}].records"] = bool(one.records)

    async with stage.another() as other, trio.open_nursery() as nursery:
        nursery.start_soon(fetch, other)
        await trio.sleep(BEGUN_S)
        await act()
    stage.seen[label] = found


@case(ApiKey.FETCH, since=12, ends=True)
async def fetches_that_wait(stage: Stage) -> None:
    async def filled(suffix: str) -> str:
        topic = await stage.topic(suffix, 2, retention_ms="-1")
        await stage.produce(topic, batch())
        return topic

    one = await filled("-one")
    await waits(stage, "nothing happens", one, nothing)
    await waits(stage, "produced", one, lambda: stage.produce(one, batch()))
    end, too_few = {"fetch_offset": 6}, {"fetch_offset": 6, "min_bytes": 10_000}
    await waits(stage, "produced elsewhere", one, lambda: stage.produce(one, batch(), 1), **end)
    await waits(stage, "too few bytes", one, lambda: stage.produce(one, batch()), **too_few)
    much = {"fetch_offset": 0, "min_bytes": 10_000}
    await waits(stage, "no byte of it", one, nothing, partition_max_bytes=0, **much)
    await waits(stage, "beyond the end", one, nothing, **(much | {"fetch_offset": 99}))
    await waits(stage, "one that is not there", one, nothing, partitions=(0, 7), **much)

    two = await filled("-two")
    gone = {"topic_names": [two], "timeout_ms": 20_000}
    await waits(stage, "deleted", two, lambda: stage.quietly(ApiKey.DELETE_TOPICS, 5, **gone))

    three = await filled("-three")
    await waits(stage, "emptied", three, lambda: start_set(stage, three, 3))
    await stage.produce(three, batch())
    from_there = much | {"fetch_offset": 3}
    await waits(stage, "cut behind it", three, lambda: start_set(stage, three, 6), **from_there)

    four = await filled("-four")
    for suffix, committed, offset in (("-c", True, 3), ("-a", False, 5)):
        me = await begun(stage, suffix)
        await added(stage, me, four)
        settled = {"fetch_offset": offset, "isolation_level": 1}
        writes = partial(sent, stage, me, four, 7)
        await waits(stage, f"a transaction begins {suffix}", four, writes, **settled)
        ends = partial(stage.quietly, ApiKey.END_TXN, 1, **me, committed=committed)
        await waits(stage, f"and ends {suffix}", four, ends, **settled)

"""Topics and partitions: offsets, sizes, bytes produced and fetched.

The first `metrics_rows_max` topics by name have rows, and of their open partitions as many.  Which
those are changes only when topics come or go, so a row does not vanish and come back.

Nothing is opened for a page.  Of a partition that is not open the size of its files is looked at in
a lane, of at most LOOKED_AT_MAX of them for one page, and kept: those that are not known yet first,
then those that were looked at longest ago.  A topic has no size until all of it is known.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final, TypeAlias
from uuid import UUID

from ..core import Core
from ..loop.pace import Pace
from .numbers import Numbers

LOOKED_AT_MAX: Final = 1_000
LOOKED_AT_TOGETHER: Final = 100
"""Partitions that a lane looks at before it is asked again."""

_Key: TypeAlias = tuple[str, int]


class ClosedSizes:
    """Bytes of the logs of partitions that are not open."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        # Of which topic it is, and bytes; who was looked at longest ago comes first.
        self._sizes: dict[_Key, tuple[UUID, int]] = {}

    async def look(self, core: Core, pace: Pace, closed: Mapping[_Key, UUID]) -> dict[_Key, int]:
        """Those of `closed` that are known; the others are forgotten.

        closed: with the id of the topic, for another of its name has other logs.
        """
        kept: dict[_Key, tuple[UUID, int]] = {}
        for key, known in self._sizes.items():
            if closed.get(key) == known[0]:
                kept[key] = known
            await pace.step()
        unknown = [key for key in closed if key not in kept]
        turn = unknown[:LOOKED_AT_MAX] or list(islice(kept, LOOKED_AT_MAX))
        for begin in range(0, len(turn), LOOKED_AT_TOGETHER):
            some = turn[begin : begin + LOOKED_AT_TOGETHER]
            sizes = await core.lanes.run(core.topics.manager.partitions.sizes, some)
            for key, found in zip(some, sizes, strict=True):
                kept.pop(key, None)
                if found is not None:
                    kept[key] = closed[key], found
        self._sizes = kept
        return {key: size for key, (_, size) in kept.items()}


async def add_topics(numbers: Numbers, core: Core, pace: Pace, closed_sizes: ClosedSizes) -> None:
    """The rows, and how many there are none of."""
    rows_max = core.config.metrics_rows_max
    told, names_count, left_out = await core.lanes.run(_overview, core, rows_max)
    rows_left = rows_max
    sizes: dict[str, int] = {}
    closed: dict[_Key, UUID] = {}
    for name in told:
        meta = core.topics.get(name)
        if meta is None:
            continue  # deleted meanwhile
        produced = fetched = size = 0
        for index in range(meta.partitions):
            await pace.step()
            partition = core.topics.served_partition(name, index)
            if partition is None:
                left_out += 1
                closed[name, index] = meta.topic_id
                continue
            handler = partition.handler
            produced += partition.produced_bytes
            fetched += partition.fetched_bytes
            size_bytes = handler.size_bytes
            size += size_bytes
            if not rows_left:
                left_out += 1
            else:
                rows_left -= 1
                place = name, str(index)
                start, end = handler.log_start_offset, handler.log_end_offset
                numbers.add("segbroker_partition_log_start_offset", start, *place)
                numbers.add("segbroker_partition_log_end_offset", end, *place)
                numbers.add("segbroker_partition_size_bytes", size_bytes, *place)
        sizes[name] = size
        numbers.add("segbroker_topic_partitions", meta.partitions, name)
        numbers.add("segbroker_topic_produced_bytes_total", produced, name)
        numbers.add("segbroker_topic_fetched_bytes_total", fetched, name)
    known = await closed_sizes.look(core, pace, closed)
    for name, index in closed:
        await pace.step()
        if (name, index) in known and name in sizes:
            sizes[name] += known[name, index]
        else:
            sizes.pop(name, None)
    for name, size in sizes.items():
        numbers.add("segbroker_topic_size_bytes", size, name)
    numbers.add("segbroker_rows_left_out", names_count - len(told), "topics")
    numbers.add("segbroker_rows_left_out", left_out, "partitions")


def _overview(core: Core, rows_max: int) -> tuple[list[str], int, int]:
    """The topics that have rows; how many there are; the partitions of the others."""
    topics = core.topics.all
    names = sorted(topics)
    others = sum(topics[name].partitions for name in names[rows_max:])
    return names[:rows_max], len(names), others

"""Groups of all types: members, state, and how far each is behind.

The first `metrics_rows_max` groups by name have rows, and of their partitions as many.  A name is
repeated in each of its rows, and clients choose it: one of more than NAME_SIZE_MAX has none, or a
thousand of 32 KiB would make a page of 128 MB.  The lag is
what is readable behind the committed offset; that of a share group is what it is not done with.  In
a partition that is not open nobody knows where the log ends, and none is opened for a page: it has
no row and is counted as left out.
"""

from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest
from typing import Final
from uuid import UUID

from segbroker.segments.metadata.committed import all_of

from ..apis.group_admin import listed
from ..core import Core
from ..groups.all_names import each_once
from ..loop.pace import Pace
from ..refused import Refused
from .ages import Ages, Place
from .numbers import Numbers

NAME_SIZE_MAX: Final = 255
"""Characters of the name of a group that has rows; the names of topics are no longer."""


async def add_groups(numbers: Numbers, core: Core, pace: Pace, ages: Ages) -> None:
    """The rows, and how many there are none of; nothing when the broker ends meanwhile."""
    rows_max = core.config.metrics_rows_max
    places_of = [*core.groups.places(), *core.groups.share_groups.places()]
    told, count = await core.lanes.run(_told, rows_max, places_of)
    places: list[tuple[Place, int]] = []
    left_out = 0
    try:
        for name in told:
            await pace.step()
            if not _add_group(numbers, core, name):
                continue  # gone meanwhile
            for topic, topic_id, index, offset in _stands(core, name):
                await pace.step()
                found = None
                if len(places) < rows_max:
                    found = _behind(core, name, topic, topic_id, index, offset)
                if found is None:
                    left_out += 1
                else:
                    places.append(found)
    except Refused:  # of groups nothing can be said any more
        return
    left_out_ages = await _add_lags(numbers, core, pace, ages, places)
    numbers.add("segbroker_groups", count)
    numbers.add("segbroker_rows_left_out", count - len(told), "groups")
    numbers.add("segbroker_rows_left_out", left_out, "group_partitions")
    numbers.add("segbroker_rows_left_out", left_out_ages, "group_ages")


def _told(rows_max: int, places: Sequence[Collection[str]]) -> tuple[list[str], int]:
    """The groups that have rows, and how many there are.  For a lane."""
    count = 0

    def short() -> Iterator[str]:
        nonlocal count
        for name in each_once(places):
            if name is None:
                continue
            count += 1
            if len(name) <= NAME_SIZE_MAX:
                yield name

    return nsmallest(rows_max, short()), count


def _add_group(numbers: Numbers, core: Core, name: str) -> bool:
    """Members and state; False when there is no such group."""
    is_share = core.groups.share_groups.has(name)
    if not (is_share or core.groups.exists(name)):
        return False
    row = listed(core, name)
    members = core.groups.members_count(name)
    if is_share and (share := core.groups.share_groups.get(name)) is not None:
        members = len(share.members)
    numbers.add("segbroker_group_members", members, name)
    numbers.add("segbroker_group_state", 1, name, row.group_type, row.group_state)
    return True


def _stands(core: Core, name: str) -> Iterator[tuple[str, UUID, int, int]]:
    """Where a group stands: topic, its id, partition, offset."""
    for topic, topic_id, index, committed in all_of(core.topics.manager.committed, name):
        yield topic, topic_id, index, committed.offset
    for topic, topic_id, index in core.shares.places(name):
        start = core.shares.start_offset(name, topic_id, index)
        if start is not None:
            yield topic, topic_id, index, start


def _behind(
    core: Core, name: str, topic: str, topic_id: UUID, index: int, offset: int
) -> tuple[Place, int] | None:
    """The place, and how many records are behind it; None: nobody knows."""
    meta = core.topics.get(topic)
    partition = core.topics.served_partition(topic, index)
    if meta is None or meta.topic_id != topic_id or partition is None:
        return None
    handler = partition.handler
    place = Place(name, partition, topic_id, max(offset, handler.log_start_offset))
    if core.groups.share_groups.has(name):
        lag = core.shares.lag(name, meta, index)
        return None if lag < 0 else (place, lag)
    return place, max(0, handler.high_watermark - place.offset)


async def _add_lags(
    numbers: Numbers, core: Core, pace: Pace, ages: Ages, places: list[tuple[Place, int]]
) -> int:
    """Their rows; of how many of them the age is not known."""
    stamps = await ages.look(core, pace, [place for place, lag in places if lag])
    now_ms, unknown = core.now_ms(), 0
    for place, lag in places:
        group, topic, index = place.key
        numbers.add("segbroker_group_lag_records", lag, group, topic, str(index))
        stamp = stamps.get(place.key)
        if lag and stamp is None:
            unknown += 1
        else:
            seconds = max(0, now_ms - stamp) / 1000 if stamp is not None else 0
            numbers.add("segbroker_group_lag_seconds", seconds, group, topic, str(index))
        await pace.step()
    return unknown

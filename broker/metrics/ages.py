"""How old the record is that a group reads next: the lag of the group in seconds.

    committed offset -> the batch around it, read in a lane -> its newest timestamp -> kept

What was read is kept as long as the group stands there, so a group that does not move costs one
read.  A page reads at most READS_MAX batches and BYTES_MAX; what it does not come to is left to the
next page, which begins there, and counted.  In a batch the timestamps of the records are not looked
at one by one: with a producer that lingers they differ by that.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from segbroker.protocol.batch_layout import HEADER_SIZE
from segbroker.protocol.record_batch import InvalidBatch, read_header
from segbroker.segments.log.reading import ReadPlan

from ..core import Core
from ..error_map import STORAGE_FAILURES
from ..loop.pace import Pace
from ..partitions.partition import Partition

READS_MAX: Final = 200
BYTES_MAX: Final = 16 << 20
READ_TOGETHER: Final = 20
"""Batches that a lane reads before it is asked again."""
_UNKNOWN: Final = -1


class Place(NamedTuple):
    """A group in a partition; below the offset it has read everything that is there."""

    group: str
    partition: Partition
    topic_id: UUID
    offset: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Whose place it is."""
        return self.group, self.partition.topic, self.partition.index

    @property
    def stands(self) -> tuple[UUID, int]:
        """Where: in which topic of its name, and at which offset."""
        return self.topic_id, self.offset


class _Read(NamedTuple):
    place: Place
    plan: ReadPlan


class Ages:
    """Those of one broker."""

    __slots__ = ("_begin", "_known")

    def __init__(self) -> None:
        # By whose place: where it stood, and the timestamp (ms) of what is there.
        self._known: dict[tuple[str, str, int], tuple[tuple[UUID, int], int]] = {}
        # The place behind the last one that was read.
        self._begin = 0

    async def look(
        self, core: Core, pace: Pace, places: Sequence[Place]
    ) -> dict[tuple[str, str, int], int]:
        """The timestamps (ms) of what is read next at these places, as far as they are known;
        what is known of others is forgotten."""
        kept: dict[tuple[str, str, int], tuple[tuple[UUID, int], int]] = {}
        reads: list[_Read] = []
        size, begin = 0, min(self._begin, len(places))
        try:
            for number in chain(range(begin, len(places)), range(begin)):
                await pace.step()
                place = places[number]
                known = self._known.get(place.key)
                if known is not None and known[0] == place.stands:
                    kept[place.key] = known
                elif (
                    len(reads) < READS_MAX
                    and size < BYTES_MAX
                    and (plan := _plan(place)) is not None
                ):
                    reads.append(_Read(place, plan))
                    size += plan.size_max
                    self._begin = number + 1
            for begin in range(0, len(reads), READ_TOGETHER):
                some = reads[begin : begin + READ_TOGETHER]
                stamps = await core.lanes.run(_read, [one.plan for one in some])
                for one, stamp in zip(some, stamps, strict=True):
                    if stamp != _UNKNOWN:
                        kept[one.place.key] = one.place.stands, stamp
        finally:
            for one in reads:
                one.plan.release()
        self._known = kept
        return {key: stamp for key, (_, stamp) in kept.items()}


def _plan(place: Place) -> ReadPlan | None:
    """The one batch there; None where it cannot be read now."""
    try:
        return place.partition.handler.plan_read(place.offset, 1)
    except STORAGE_FAILURES:
        return None


def _read(plans: Sequence[ReadPlan]) -> list[int]:
    """The timestamp of each.  Blocking."""
    return [_stamp(plan) for plan in plans]


def _stamp(plan: ReadPlan) -> int:
    buffer = memoryview(bytearray(plan.size_max))
    try:
        count = plan.read(buffer)
        if count < HEADER_SIZE:
            return _UNKNOWN
        return int(read_header(buffer[:count]).max_timestamp)
    except (InvalidBatch, *STORAGE_FAILURES):
        return _UNKNOWN

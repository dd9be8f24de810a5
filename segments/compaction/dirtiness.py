"""How much of a compacted log is dirty, and whether that is enough to clean it: decisions, no I/O.

    sealed | sealed | sealed | sealed | sealed | rotating | active
    cleaned ........|^ dirty, cleanable ......|^ not cleanable
                     the clean point            limit: the last stable offset, and
                                                min.compaction.lag.ms

Only whole sealed segments are cleaned.  A segment is too young as long as its newest record is, and
so is everything behind it.

| cleaned when | |
|---|---|
| dirty bytes / bytes up to the limit > min.cleanable.dirty.ratio | as in Kafka |
| the first batch of a dirty segment is older than max.compaction.lag.ms | whatever the ratio is |

Ages are measured by the timestamps of the records against `age_ms` (age_clock.py); None: the clock
is not to be trusted, so nothing is old enough.

Cost: a look at the sizes of the dirty segments; where max.compaction.lag.ms is set and the ratio is
not enough, the headers of their first batches, which the caller reads.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..log.columns import SealedSegments
from ..settings.topic_config import TopicConfig


class Dirt(NamedTuple):
    """What could be cleaned: offsets [begin, end), in so many bytes, behind so many clean ones."""

    begin: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    numbers: Sequence[int]
    """The dirty segments."""

    @property
    def ratio(self) -> float:
        """The share of the bytes that is dirty; 0 where there is nothing to clean."""
        whole = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / whole if whole else 0.0


def dirt_of(
    sealed: SealedSegments,
    clean_offset: int,
    limit: int | None = None,
    too_young_ms: int | None = None,
) -> Dirt:
    """What of these segments could be cleaned.

    clean_offset: below it everything was.  limit: no offset from here on; None for no such limit.
    too_young_ms: segments with a timestamp from here on are not, nor those behind them.
    """
    first = sealed.count_below(clean_offset)
    end = len(sealed) if limit is None else sealed.count_below(limit)
    if too_young_ms is not None:
        stamps = sealed.max_timestamps
        end = next((place for place in range(first, end) if stamps[place] >= too_young_ms), end)
    begin_offset = max(clean_offset, sealed.first_base_offset)
    if end <= first:
        return Dirt(begin_offset, begin_offset, sum(sealed.sizes[:first]), 0, ())
    dirty = sum(sealed.sizes[first:end])
    clean = sum(sealed.sizes[:first])
    return Dirt(begin_offset, sealed.end_of(end - 1), clean, dirty, sealed.numbers[first:end])


def wants_cleaning(
    dirt: Dirt,
    config: TopicConfig,
    age_ms: int | None,
    first_stamps: Callable[[Sequence[int]], Iterable[int]],
) -> bool:
    """Whether there is so much, or it has waited so long.

    first_stamps: the times (ms) of the first batches of segments.  What has none does not count.
    """
    if not dirt.dirty_bytes:
        return False
    if dirt.ratio > config.min_cleanable_dirty_ratio:
        return True
    until_ms = -1 if age_ms is None else age_ms - config.max_compaction_lag_ms
    return until_ms > 0 and any(0 < stamp < until_ms for stamp in first_stamps(dirt.numbers))

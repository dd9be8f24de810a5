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
| the first dirty segment waits longer than max.compaction.lag.ms | whatever the ratio is |

Ages are measured by the timestamps of the records against `age_ms` (age_clock.py); None: the clock
is not to be trusted, so nothing is old enough.

Cost: a look at the sizes of the dirty segments.
"""

from typing import NamedTuple

from .columns import SealedSegments
from .topic_config import TopicConfig


class Dirt(NamedTuple):
    """What could be cleaned: offsets [begin, end), in so many bytes, behind so many clean ones."""

    begin: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    oldest_ms: int
    """Newest timestamp of the first dirty segment that has one; -1: none has."""

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
        return Dirt(begin_offset, begin_offset, sum(sealed.sizes[:first]), 0, -1)
    oldest = next((stamp for stamp in sealed.max_timestamps[first:end] if stamp >= 0), -1)
    dirty = sum(sealed.sizes[first:end])
    clean = sum(sealed.sizes[:first])
    return Dirt(begin_offset, sealed.end_of(end - 1), clean, dirty, oldest)


def wants_cleaning(dirt: Dirt, config: TopicConfig, age_ms: int | None) -> bool:
    """Whether there is so much, or it has waited so long."""
    if not dirt.dirty_bytes:
        return False
    if dirt.ratio > config.min_cleanable_dirty_ratio:
        return True
    return age_ms is not None and 0 <= dirt.oldest_ms <= age_ms - config.max_compaction_lag_ms

"""Partitions that nobody serves, of a reading that goes on with the others.

    read --nobody serves it--> missing --TOLD_AFTER_MS later--> told: a line in the log
      ^                          |                                |
      +--------- served ---------+------- served: a line ---------+

One that fails must not end a program that reads ten, so its caller is told by an error only where
nothing else is left to read, since so long that no restart explains it.  The lines go where those
of brokers that are away go, see absence.

Limits: an entry for each partition that is read; a line names NAMES_MAX of them.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .absence import AWAY_MS, Notice
from .errors import SegbrokerError
from .records import TopicPartition

# A restart, or a disk that was slow: not worth a word.
TOLD_AFTER_MS = AWAY_MS
NAMES_MAX = 5


@dataclass(slots=True)
class _Missing:
    since_ms: int
    why: SegbrokerError
    is_told: bool = False


class Unserved:
    """See the module.  Times are those of the core."""

    def __init__(self, say: Callable[[Notice], None]) -> None:
        self._say = say
        self._missing: dict[TopicPartition, _Missing] = {}
        # When the last that is missing became so.
        self._latest_ms = 0

    def __bool__(self) -> bool:
        return bool(self._missing)

    def missing(self, tp: TopicPartition, why: SegbrokerError, now_ms: int) -> None:
        """Nobody serves it, for this reason."""
        one = self._missing.get(tp)
        if one is None:
            self._missing[tp] = _Missing(now_ms, why)
            self._latest_ms = now_ms
        else:
            one.why = why

    def is_all_of(self, read_count: int, now_ms: int, patience_ms: int) -> bool:
        """Whether none of so many partitions is served, for so long; or for good, as no leader
        would be asked again."""
        if len(self._missing) < read_count:
            return False
        return now_ms >= self._latest_ms + patience_ms or not any(
            one.why.retryable for one in self._missing.values()
        )

    def look(
        self,
        read: Iterable[TopicPartition],
        is_served: Callable[[TopicPartition], bool],
        now_ms: int,
    ) -> None:
        """Say what there is to say of the partitions that are read; forget the others."""
        dropped = self._missing.keys() - read
        for tp in dropped:
            del self._missing[tp]
        back = [tp for tp in self._missing if is_served(tp)]
        ended = {tp: self._missing.pop(tp) for tp in back}
        if dropped or ended:
            self._latest_ms = max((one.since_ms for one in self._missing.values()), default=0)
        told = [tp for tp, one in ended.items() if one.is_told]
        if told:
            away_s = (now_ms - min(ended[tp].since_ms for tp in told)) / 1000
            text = f"{_names(told)} can be read again after {away_s:,.0f} s"
            self._say(Notice(logging.WARNING, text))
        new = [
            tp
            for tp, one in self._missing.items()
            if not one.is_told and now_ms >= one.since_ms + TOLD_AFTER_MS
        ]
        if new:
            for tp in new:
                self._missing[tp].is_told = True
            text = f"{_names(new)} cannot be read, still trying: "
            self._say(Notice(logging.WARNING, f"{text}{self._missing[new[0]].why}"))


def _names(partitions: Sequence[TopicPartition]) -> str:
    names = ", ".join(f"{topic}-{partition}" for topic, partition in partitions[:NAMES_MAX])
    more = len(partitions) - NAMES_MAX
    return f"{names} and {more:,} more" if more > 0 else names

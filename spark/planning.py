"""The driver's decisions: where a query starts, how far it may read now, and which tasks do it.

    start()                    startingTimestamp / startingOffsets -> offsets
    end()                      endingTimestamp / endingOffsets -> offsets     (batch)
    latest()                   the ends of all logs now                       (stream)
    advance(start, target, n)  target, or a fair share of n offsets on the way there
    tasks(start, end)          the ranges between, checked against the logs as they are now

A partition that is not in `start` is new to the query and read from its beginning, offset 0; what
had left the log before it was seen is data loss like any other.  A topic whose id is not that in
`start` was deleted and made again: what its old offsets meant is lost, and with
failOnDataLoss=false the new one is read from its beginning.

Invariant: nothing is remembered between calls but connections and `ends_seen`: after a restart
`tasks` gives the same ranges for the same two offsets, as long as the logs have them.
"""

from collections.abc import Mapping
from dataclasses import replace

from .cluster import END_TIME, START_TIME, Cluster, Layout
from .errors import OptionError, SourceError
from .fetching import Task
from .loss import Lost, clip, report
from .offsets import OffsetRange, Offsets, TopicPartition, fair_share, split_ranges
from .options import (
    EARLIEST_MARK,
    LATEST_MARK,
    Assign,
    AtTime,
    Exact,
    Extreme,
    Position,
    SourceOptions,
)

RECREATED = "the topic was deleted and made again"
GONE = "the topic or partition does not exist or is not selected any more"

_TIME_OF_MARK = {LATEST_MARK: END_TIME, EARLIEST_MARK: START_TIME}
_TIME_OF_EXTREME = {Extreme.LATEST: END_TIME, Extreme.EARLIEST: START_TIME}


class Planner:
    """See the module.  All calls may raise SourceUnavailable."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options)
        self.ends_seen: Offsets | None = None

    def close(self) -> None:
        self._cluster.close()

    # Offsets.

    def start(self) -> Offsets:
        """Where a new query begins.  Raises OptionError; SourceError for a topic that is not."""
        return self._resolve(self._options.start, "starting")

    def end(self) -> Offsets:
        """Where a batch query ends.  Raises as `start` does."""
        return self._resolve(self._options.end, "ending")

    def latest(self) -> Offsets:
        """The ends of all logs of the selection."""
        layout = self._cluster.layout(self._options.selection)
        at = self._cluster.offsets(layout, dict.fromkeys(_partitions(layout), END_TIME))
        self.ends_seen = _with_ids(layout, at)
        return self.ends_seen

    def advance(self, start: Offsets, target: Offsets, limit: int | None) -> Offsets:
        """The end of the next batch.  Raises DataLoss when something of `start` is gone."""
        lost = [
            Lost(topic, partition, offset, None, _why_gone(topic, start, target))
            for (topic, partition), offset in sorted(start.at.items())
            if (topic, partition) not in target.at or _is_recreated(topic, start, target)
        ]
        kept = {
            key: offset
            for key, offset in start.at.items()
            if key in target.at and not _is_recreated(key[0], start, target)
        }
        lost += [
            Lost(*key, target.at[key], offset, f"the log now ends at {target.at[key]}")
            for key, offset in sorted(kept.items())
            if target.at[key] < offset
        ]
        report(lost, fail=self._options.fail_on_data_loss)
        if limit is None:
            return target
        fresh = target.at.keys() - kept.keys()
        if fresh:
            layout = self._cluster.layout(self._options.selection)
            known = fresh & _partitions(layout).keys()
            kept |= self._cluster.offsets(layout, dict.fromkeys(known, START_TIME))
        begin = {key: kept.get(key, 0) for key in target.at}
        return replace(target, at=fair_share(begin, target.at, limit))

    # Tasks.

    def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        """What executors read for [start, end).  Raises DataLoss for what the logs lack."""
        layout = self._cluster.layout(self._options.selection)
        now = _with_ids(layout, {})
        asked = [
            OffsetRange(*key, 0 if _is_recreated(key[0], start, end) else start.at.get(key, 0), to)
            for key, to in sorted(end.at.items())
        ]
        asked = [each for each in asked if each.size > 0]
        readable = [each for each in asked if (each.topic, each.partition) in _partitions(layout)]
        bounds = self._bounds(layout, readable)
        ranges: list[OffsetRange] = []
        lost: list[Lost] = []
        for each in asked:
            key = (each.topic, each.partition)
            if key not in bounds or _is_recreated(each.topic, end, now):
                why = RECREATED if key in bounds else GONE
                lost.append(Lost(*key, each.start, each.end, why))
                continue
            left, gone = clip(each, *bounds[key])
            ranges.append(left)
            lost += gone
        report(lost, fail=self._options.fail_on_data_loss)
        return [
            Task(each, layout[each.topic].leaders[each.partition])
            for each in split_ranges(ranges, self._options.min_partitions)
        ]

    def batch_tasks(self) -> list[Task]:
        """The tasks of a batch query.  Raises OptionError when it would end before it starts."""
        start, end = self.start(), self.end()
        for key, begin in start.at.items():
            if end.at[key] < begin:
                raise OptionError(
                    f"topic {key[0]!r} partition {key[1]}: the query would start at offset {begin}"
                    f" and end before it, at {end.at[key]}"
                )
        return self.tasks(start, end)

    # Inside.

    def _bounds(
        self, layout: Layout, ranges: list[OffsetRange]
    ) -> dict[TopicPartition, tuple[int, int]]:
        keys = [(each.topic, each.partition) for each in ranges]
        starts = self._cluster.offsets(layout, dict.fromkeys(keys, START_TIME))
        ends = self._cluster.offsets(layout, dict.fromkeys(keys, END_TIME))
        return {key: (starts[key], ends[key]) for key in keys}

    def _existing(self) -> Layout:
        """The layout, after a check that it has all that the options name."""
        selection = self._options.selection
        layout = self._cluster.layout(selection)
        for topic in self._cluster.named(selection) or ():
            if topic not in layout:
                raise SourceError(f"topic {topic!r} does not exist")
            if isinstance(selection, Assign):
                missing = sorted(set(selection.partitions[topic]) - layout[topic].leaders.keys())
                if missing:
                    raise SourceError(f"topic {topic!r} has no partition {missing[0]}")
        return layout

    def _resolve(self, position: Position, name: str) -> Offsets:
        layout = self._existing()
        keys = _partitions(layout)
        match position:
            case Extreme():
                times = dict.fromkeys(keys, _TIME_OF_EXTREME[position])
                at = self._cluster.offsets(layout, times)
            case AtTime(timestamp_ms, no_match_is_latest):
                at = self._cluster.offsets(layout, dict.fromkeys(keys, timestamp_ms))
                late = [key for key in sorted(at) if at[key] < 0]
                if late and not no_match_is_latest:
                    topic, partition = late[0]
                    raise SourceError(
                        f"{name}Timestamp={timestamp_ms}: topic {topic!r} partition {partition}"
                        " has no record at or after it; startingOffsetsByTimestampStrategy=latest"
                        " would start at its end"
                    )
                at |= self._cluster.offsets(layout, dict.fromkeys(late, END_TIME))
            case Exact(offsets):
                at = _exact(f"{name}Offsets", offsets, keys)
                marked = {k: _TIME_OF_MARK[v] for k, v in at.items() if v in _TIME_OF_MARK}
                at |= self._cluster.offsets(layout, marked)
        return _with_ids(layout, at)


def _exact(
    name: str, offsets: Mapping[str, Mapping[int, int]], keys: Mapping[TopicPartition, None]
) -> dict[TopicPartition, int]:
    """The offsets by partition, after a check that they name exactly the selected partitions."""
    at = {(topic, n): offset for topic, row in offsets.items() for n, offset in row.items()}
    for problem, found in (
        ("does not name", keys.keys() - at.keys()),
        ("names, without its being selected,", at.keys() - keys.keys()),
    ):
        if found:
            topic, partition = min(found)
            raise OptionError(
                f"{name} {problem} partition {partition} of topic {topic!r};"
                " it must name every partition that is read, and no other"
            )
    return at


def _partitions(layout: Layout) -> dict[TopicPartition, None]:
    return {(name, n): None for name, topic in layout.items() for n in topic.leaders}


def _with_ids(layout: Layout, at: Mapping[TopicPartition, int]) -> Offsets:
    ids = {name: topic.topic_id for name, topic in layout.items() if topic.topic_id is not None}
    return Offsets(at, ids)


def _is_recreated(topic: str, before: Offsets, after: Offsets) -> bool:
    """Whether both know the topic's id and the ids differ."""
    old, new = before.ids.get(topic), after.ids.get(topic)
    return old is not None and new is not None and old != new


def _why_gone(topic: str, start: Offsets, target: Offsets) -> str:
    return RECREATED if _is_recreated(topic, start, target) else GONE

"""The driver's decisions: where a query starts, how far it may read now, and which tasks do it.

    start()                    startingTimestamp / startingOffsets -> offsets
    end()                      endingTimestamp / endingOffsets -> offsets     (batch)
    latest()                   the ends of all logs now                       (stream)
    advance(start, target, limits)  target, or a fair share of the way there
    tasks(start, end)          the ranges between, checked against the logs as they are now

A partition that is not in `start` is new to the query and read from its beginning, offset 0; what
had left the log before it was seen is data loss like any other.  A topic whose id is not that in
`start` was deleted and made again: what its old offsets meant is lost, and with
failOnDataLoss=false the new one is read from its beginning.

Invariant: nothing is remembered between calls but connections, `ends_seen` and what loss was told:
after a restart `tasks` gives the same ranges for the same two offsets, as long as the logs have
them.
"""

from collections.abc import Mapping
from dataclasses import replace

from .cluster import END_TIME, START_TIME, Cluster
from .errors import OptionError, SourceError, TopicMissing
from .fetching import Task
from .layouts import Layout
from .loss import CUT, GONE, RECREATED, WHY, Lost, clip, report
from .offsets import OffsetRange, Offsets, TopicPartition, fair_share, split_ranges
from .options import Assign, SourceOptions, TriggerLimits
from .positions import (
    EARLIEST_MARK,
    LATEST_MARK,
    AtTime,
    AtTimes,
    Exact,
    Extreme,
    Position,
)
from .weighing import Weight, offsets_within, weigh

_TIME_OF_MARK = {LATEST_MARK: END_TIME, EARLIEST_MARK: START_TIME}
_TIME_OF_EXTREME = {Extreme.LATEST: END_TIME, Extreme.EARLIEST: START_TIME}


class Planner:
    """See the module.  All calls may raise SourceUnavailable."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.client, read_committed=options.read_committed)
        self.ends_seen: Offsets | None = None
        self._told: set[Lost] = set()

    def close(self) -> None:
        self._cluster.close()

    # Offsets.

    def start(self) -> Offsets:
        """Where a new query begins.  Raises OptionError; TopicMissing."""
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

    def advance(self, start: Offsets, target: Offsets, limits: TriggerLimits | None) -> Offsets:
        """The end of the next batch.  Raises DataLoss when something of `start` is gone."""
        target = self._with_held_up(start, target)
        lost = _lost_between(start, target)
        # Once: a query that waits for more records asks many times a second.
        report(
            (each for each in lost if each not in self._told), fail=self._options.fail_on_data_loss
        )
        self._told = set(lost)
        if limits is None or (limits.offsets_max is None and limits.bytes_max is None):
            return target
        layout = self._cluster.layout(self._options.selection)
        kept = _kept(start, target)
        begin = {key: kept.get(key, 0) for key in target.at}
        # What had left the log before it was read counts towards no limit, and has no size.
        behind = [key for key, end in target.at.items() if end > begin[key]]
        starts = dict.fromkeys(behind, START_TIME)
        for key, log_start in self._cluster.offsets(layout, starts).items():
            begin[key] = max(begin[key], log_start)
        counts = [limits.offsets_max]
        if limits.bytes_max is not None:
            weights = self._weigh(layout, begin, target)
            begin |= {key: weight.first for key, weight in weights.items()}
            counts.append(offsets_within(begin, target.at, weights, limits.bytes_max))
        limit = min((count for count in counts if count is not None), default=None)
        return target if limit is None else replace(target, at=fair_share(begin, target.at, limit))

    def backlog(self, start: Offsets, target: Offsets) -> int:
        """Offsets between the two, of partitions that were known and of those that are new."""
        kept = _kept(start, target)
        return sum(max(0, end - kept.get(key, 0)) for key, end in target.at.items())

    # Tasks.

    def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        """What executors read for [start, end).  Raises DataLoss for what the logs lack."""
        layout = self._cluster.layout(self._options.selection)
        now = _with_ids(layout, {})
        kept = _kept(start, end)
        asked = [OffsetRange(*key, kept.get(key, 0), to) for key, to in sorted(end.at.items())]
        asked = [each for each in asked if each.size > 0]
        here = _partitions(layout)
        readable = [key for each in asked if (key := (each.topic, each.partition)) in here]
        bounds = self._cluster.bounds(layout, readable)
        ranges: list[OffsetRange] = []
        lost: list[Lost] = []
        for each in asked:
            key = (each.topic, each.partition)
            if key not in bounds or _is_recreated(each.topic, end, now):
                word = RECREATED if key in bounds else GONE
                lost.append(Lost(*key, each.start, each.end, WHY[word], word))
                continue
            left, gone = clip(each, bounds[key])
            ranges.append(left)
            lost += gone
        report(lost, fail=self._options.fail_on_data_loss)
        lost += _lost_between(start, end)  # passed over when the batch was made
        options = self._options
        tasks = [
            Task(
                each,
                layout[each.topic].leaders[each.partition],
                topic_id=layout[each.topic].topic_id,
            )
            for each in split_ranges(
                ranges, options.min_partitions, options.max_records_per_partition
            )
        ]
        if lost and options.include_gaps:
            nothing = OffsetRange(lost[0].topic, lost[0].partition, 0, 0)
            tasks.append(Task(nothing, options.client.bootstrap[0], tuple(lost)))
        return tasks

    def batch_tasks(self) -> list[Task]:
        """The tasks of a batch query.  Raises OptionError when it would end before it starts."""
        start, end = self.start(), self.end()
        if self._options.end is Extreme.LATEST:
            end = self._with_held_up(start, end)
        for key, begin in start.at.items():
            if key not in end.at:
                raise SourceError(
                    f"topic {key[0]!r} partition {key[1]} was deleted while the query was planned"
                )
            if end.at[key] < begin:
                raise OptionError(
                    f"topic {key[0]!r} partition {key[1]}: the query would start at offset {begin}"
                    f" and end before it, at {end.at[key]}"
                )
        return self.tasks(start, end)

    # Inside.

    def _weigh(
        self, layout: Layout, begin: Mapping[TopicPartition, int], target: Offsets
    ) -> dict[TopicPartition, Weight]:
        return self._cluster.follow(
            "the size of records",
            layout,
            target.at,
            lambda now: weigh(self._cluster, now, begin, target.at),
        )

    def _with_held_up(self, start: Offsets, target: Offsets) -> Offsets:
        """The target, with what is held up by open transactions in front of the start.

        So it is where a query read what was not committed until now: that is no cut log.
        """
        ahead = {k: v for k, v in _kept(start, target).items() if target.at[k] < v}
        if not ahead:
            return target
        bounds = self._cluster.bounds(self._cluster.layout(self._options.selection), ahead)
        held_up = {key: ahead[key] for key, log in bounds.items() if log.end >= ahead[key]}
        return replace(target, at={**target.at, **held_up})

    def _existing(self) -> Layout:
        """The layout, after a check that it has all that the options name."""
        selection = self._options.selection
        layout = self._cluster.layout(selection)
        for topic in self._cluster.named(selection) or ():
            if topic not in layout:
                raise TopicMissing(f"topic {topic!r} does not exist")
            if isinstance(selection, Assign):
                missing = sorted(set(selection.partitions[topic]) - layout[topic].leaders.keys())
                if missing:
                    raise TopicMissing(f"topic {topic!r} has no partition {missing[0]}")
        return layout

    def _resolve(self, position: Position, name: str) -> Offsets:
        layout = self._existing()
        keys = _partitions(layout)
        match position:
            case Extreme():
                times = dict.fromkeys(keys, _TIME_OF_EXTREME[position])
                at = self._cluster.offsets(layout, times)
            case AtTime(timestamp_ms, no_match_is_latest):
                times = dict.fromkeys(keys, timestamp_ms)
                at = self._at_times(layout, times, f"{name}Timestamp", no_match_is_latest)
            case AtTimes(timestamps_ms, no_match_is_latest):
                option = f"{name}OffsetsByTimestamp"
                times = _exact(option, timestamps_ms, keys)
                at = self._at_times(layout, times, option, no_match_is_latest)
            case Exact(offsets):
                at = _exact(f"{name}Offsets", offsets, keys)
                marked = {k: _TIME_OF_MARK[v] for k, v in at.items() if v in _TIME_OF_MARK}
                at |= self._cluster.offsets(layout, marked)
        # Of a partition that was deleted meanwhile there is only the mark that asks for an offset.
        return _with_ids(layout, {key: offset for key, offset in at.items() if offset >= 0})

    def _at_times(
        self,
        layout: Layout,
        times: Mapping[TopicPartition, int],
        option: str,
        no_match_is_latest: bool,
    ) -> dict[TopicPartition, int]:
        at = self._cluster.offsets(layout, times)
        late = [key for key in sorted(at) if at[key] < 0]
        if late and not no_match_is_latest:
            topic, partition = late[0]
            raise SourceError(
                f"{option}={times[late[0]]}: topic {topic!r} partition {partition}"
                " has no record at or after it; startingOffsetsByTimestampStrategy=latest"
                " would start at its end"
            )
        return at | self._cluster.offsets(layout, dict.fromkeys(late, END_TIME))


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


def _lost_between(start: Offsets, target: Offsets) -> list[Lost]:
    """What of `start` is behind the target: partitions that are gone, then logs that were cut."""
    lost: list[Lost] = []
    cut: list[Lost] = []
    for (topic, partition), offset in sorted(start.at.items()):
        end = target.at.get((topic, partition))
        is_recreated = _is_recreated(topic, start, target)
        if end is None or is_recreated:
            word = RECREATED if is_recreated else GONE
            lost.append(Lost(topic, partition, offset, None, WHY[word], word))
        elif end < offset:
            cut.append(Lost(topic, partition, end, offset, f"the log now ends at {end}", CUT))
    return lost + cut


def _kept(start: Offsets, target: Offsets) -> dict[TopicPartition, int]:
    """What of `start` means the same in `target`: its partitions, of topics not made again."""
    return {
        key: offset
        for key, offset in start.at.items()
        if key in target.at and not _is_recreated(key[0], start, target)
    }

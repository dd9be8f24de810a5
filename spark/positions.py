"""Where a query starts and ends: an end of the log, an offset per partition, or a time.

    Extreme     earliest, latest
    Exact       {"topic": {"0": 23, "1": -2}}     -2 earliest, -1 latest
    AtTime      one time for every partition      ms since 1970
    AtTimes     a time per partition

Of several the most exact time wins: startingTimestamp, startingOffsetsByTimestamp, startingOffsets;
the same for the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from .errors import OptionError
from .given import INT64_MAX, Given, json_object, number

# Offsets in JSON that stand for an end of the log, as in Kafka.
LATEST_MARK = -1
EARLIEST_MARK = -2


class Extreme(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Exact:
    """An offset per partition; LATEST_MARK and EARLIEST_MARK stand for the log's ends."""

    offsets: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after this time, in ms since 1970."""

    timestamp_ms: int
    no_match_is_latest: bool


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each partition."""

    timestamps_ms: Mapping[str, Mapping[int, int]]
    no_match_is_latest: bool


Position = Extreme | Exact | AtTime | AtTimes

_WHY_NOT_LATEST = "a batch query from the end would be empty"
_WHY_NOT_EARLIEST = "a query that ends at the start would be empty"


def parse_start(given: Given, *, streaming: bool) -> Position:
    strategy_name, strategy = given.own("startingOffsetsByTimestampStrategy")
    if strategy is not None and strategy.lower() not in ("error", "latest"):
        raise OptionError(f"{strategy_name}={strategy!r} is not 'error' or 'latest'")
    no_match_is_latest = strategy is not None and strategy.lower() == "latest"
    at_time = _time(given, "starting", no_match_is_latest=no_match_is_latest)
    if at_time is not None:
        return at_time
    name, value = given.own("startingOffsets")
    if value is None:
        return Extreme.LATEST if streaming else Extreme.EARLIEST
    position = _position(name, value)
    if not streaming:
        if position is Extreme.LATEST:
            raise OptionError(f"{name}={value!r}: {_WHY_NOT_LATEST}")
        _refuse_mark(name, position, LATEST_MARK, _WHY_NOT_LATEST)
    return position


def parse_end(given: Given) -> Position:
    at_time = _time(given, "ending", no_match_is_latest=True)
    if at_time is not None:
        return at_time
    name, value = given.own("endingOffsets")
    if value is None:
        return Extreme.LATEST
    position = _position(name, value)
    if position is Extreme.EARLIEST:
        raise OptionError(f"{name}={value!r}: {_WHY_NOT_EARLIEST}")
    _refuse_mark(name, position, EARLIEST_MARK, _WHY_NOT_EARLIEST)
    return position


def _time(given: Given, which: str, *, no_match_is_latest: bool) -> AtTime | AtTimes | None:
    timestamp_ms = number(given.own(f"{which}Timestamp"), least=0)
    if timestamp_ms is not None:
        return AtTime(timestamp_ms, no_match_is_latest)
    name, value = given.own(f"{which}OffsetsByTimestamp")
    if value is None:
        return None
    found = _by_partition(
        name, value, 'JSON like {"topic": {"0": 1700000000000}}', 0, "a time in ms since 1970"
    )
    return AtTimes(found, no_match_is_latest)


def _refuse_mark(name: str, position: Position, mark: int, why: str) -> None:
    if isinstance(position, Exact):
        for topic, offsets in position.offsets.items():
            for partition, offset in offsets.items():
                if offset == mark:
                    raise OptionError(f"{name}: {mark} for {topic}/{partition}: {why}")


def _position(name: str, value: str) -> Position:
    for extreme in Extreme:
        if value.strip().lower() == extreme.value:
            return extreme
    example = "'earliest', 'latest' or JSON like {\"topic\": {\"0\": 23}}"
    what = "an offset (>= 0), -1 (latest) or -2 (earliest)"
    return Exact(_by_partition(name, value, example, EARLIEST_MARK, what))


def _by_partition(
    name: str, value: str, example: str, least: int, what: str
) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for topic, row in json_object(name, value, example).items():
        if topic.startswith("$"):  # an offset copied from a checkpoint carries the topic ids
            continue
        if not isinstance(row, dict):
            raise OptionError(f"{name}={value!r} is not {example}")
        found[topic] = {}
        for partition, one in row.items():
            if not partition.isascii() or not partition.isdigit():
                raise OptionError(
                    f"{name}: {partition!r} of topic {topic!r} is no partition number"
                )
            if type(one) is not int or not least <= one <= INT64_MAX:
                raise OptionError(f"{name}: {one!r} for {topic}/{partition} is not {what}")
            found[topic][int(partition)] = one
    return found

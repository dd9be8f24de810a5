"""The options of the source: Kafka's names, checked once, as one frozen value.

    which      exactly one of subscribe, subscribePattern, assign
    from       startingTimestamp, else startingOffsets       (a new query only; a checkpoint wins)
    to         endingTimestamp, else endingOffsets           (batch only)
    how much   maxOffsetsPerTrigger (stream only), minPartitions
    what       includeHeaders
    how        failOnDataLoss, and the client options of CLIENT below with the prefix `kafka.` or
               `segbroker.`

Spark hands options over as strings, their names in any case.  A wrong one is refused with its name,
its value and what it may be; an unknown name is refused too, because a misspelt option that is
silently ignored reads the wrong data.  What Kafka's source has and this one has not (yet) is in
NOT_YET and refused; what makes no difference here is in NO_EFFECT and logged.

Invariant: SourceOptions can be pickled: it travels to the executors inside the reader.
"""

import json
import logging
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Literal

from segbroker.client.settings import Address, parse_bootstrap

from .errors import OptionError

log = logging.getLogger("segbroker.spark")

PARTITION_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 63) - 1

CLIENT_ID = "segbroker-spark"
REQUEST_TIMEOUT_MS = 30_000
API_TIMEOUT_MS = 60_000
POLL_TIMEOUT_MS = 120_000
# The reply to one fetch, and at most one more that is ahead of it, is in a worker's memory.
FETCH_BYTES = 3 << 20
FETCH_BYTES_MAX = 32 << 20

# Offsets in JSON that stand for an end of the log, as in Kafka.
LATEST_MARK = -1
EARLIEST_MARK = -2


@dataclass(frozen=True, slots=True)
class Subscribe:
    """These topics, all partitions."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Every topic whose whole name matches, whenever it appears."""

    pattern: str

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions."""

    partitions: Mapping[str, tuple[int, ...]]


Selection = Subscribe | SubscribePattern | Assign


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


Position = Extreme | Exact | AtTime


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """See the module.  Times in milliseconds, sizes in bytes; None: no limit."""

    bootstrap: tuple[Address, ...]
    selection: Selection
    start: Position
    end: Position = Extreme.LATEST
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    client_id: str = CLIENT_ID
    read_committed: bool = False
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    api_timeout_ms: int = API_TIMEOUT_MS
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    fetch_bytes: int = FETCH_BYTES


# Every option by its lower-case name, as users write it.
SOURCE = {
    name.lower(): name
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestampStrategy",
        "maxOffsetsPerTrigger",
        "minPartitions",
        "includeHeaders",
        "failOnDataLoss",
        "kafkaConsumer.pollTimeoutMs",
    )
}
STREAM_ONLY = ("maxOffsetsPerTrigger",)
BATCH_ONLY = ("endingOffsets", "endingTimestamp")
NOT_YET = {
    name.lower(): name
    for name in (
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "maxBytesPerTrigger",
        "maxRecordsPerPartition",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "commitOffsetsToGroup",
    )
}
NO_EFFECT = {
    name.lower(): name
    for name in (
        "groupIdPrefix",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
    )
}

PREFIXES = ("kafka.", "segbroker.")
CLIENT = (
    "bootstrap.servers",
    "client.id",
    "isolation.level",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "max.partition.fetch.bytes",
    "security.protocol",
)
# As Kafka's source refuses them, and what to say instead.
CLIENT_REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the source commits nothing; offsets live in the checkpoint",
    "key.deserializer": "keys are binary; cast them in the query",
    "value.deserializer": "values are binary; cast them in the query",
    "key.serializer": "keys are binary; cast them in the query",
    "value.serializer": "values are binary; cast them in the query",
    "interceptor.classes": "interceptors would break what a checkpoint promises",
}


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column `headers`."""
    return _boolean(_Given(options), "includeHeaders", default=False)


def parse_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a query, checked.  Raises OptionError with one sentence."""
    given = _Given(options)
    _refuse_foreign(given, streaming=streaming)
    fetch_bytes = _number(given.client("max.partition.fetch.bytes"), least=1)
    return SourceOptions(
        bootstrap=_bootstrap(given),
        selection=_selection(given),
        start=_start(given, streaming=streaming),
        end=_end(given),
        max_offsets_per_trigger=_number(given.own("maxOffsetsPerTrigger"), least=1),
        min_partitions=_number(given.own("minPartitions"), least=1),
        include_headers=_boolean(given, "includeHeaders", default=False),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        client_id=given.client("client.id")[1] or CLIENT_ID,
        read_committed=_isolation(given),
        request_timeout_ms=_number(given.client("request.timeout.ms"), least=1)
        or REQUEST_TIMEOUT_MS,
        api_timeout_ms=_number(given.client("default.api.timeout.ms"), least=1) or API_TIMEOUT_MS,
        poll_timeout_ms=_number(given.own("kafkaConsumer.pollTimeoutMs"), least=1)
        or POLL_TIMEOUT_MS,
        fetch_bytes=min(fetch_bytes or FETCH_BYTES, FETCH_BYTES_MAX),
    )


# A name as the user wrote it, and its value; None where it was not given.
NamedValue = tuple[str, str | None]


class _Given:
    """The options as given, found whatever the case of their names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.values = {name.lower(): value for name, value in options.items()}

    def own(self, name: str) -> NamedValue:
        return name, self.values.get(name.lower())

    def client(self, name: str) -> NamedValue:
        """A client option under either prefix; both only if they agree."""
        found = {
            prefix + name: self.values[prefix + name]
            for prefix in PREFIXES
            if prefix + name in self.values
        }
        if len(set(found.values())) > 1:
            both = " and ".join(f"{key}={value!r}" for key, value in found.items())
            raise OptionError(f"{both} are two names of one option with two values; give one")
        for key, value in found.items():
            return key, value
        return PREFIXES[0] + name, None


def _refuse_foreign(given: _Given, *, streaming: bool) -> None:
    for name in given.values:
        if name in SOURCE or name.startswith("__"):
            continue
        if name in NO_EFFECT or name == "kafka.group.id":
            log.warning("the option %s has no effect on this source", NO_EFFECT.get(name, name))
        elif name in NOT_YET:
            raise OptionError(f"{NOT_YET[name]} is not supported by this source yet")
        elif name.startswith(PREFIXES):
            _refuse_client(name)
        else:
            near = get_close_matches(name, SOURCE, n=1)
            hint = f"; did you mean {SOURCE[near[0]]}?" if near else ""
            raise OptionError(f"there is no option {name!r}{hint}")
    for only, is_wrong, kind in (
        (STREAM_ONLY, not streaming, "a stream"),
        (BATCH_ONLY, streaming, "a batch"),
    ):
        for name in only:
            if is_wrong and given.own(name)[1] is not None:
                other = "a batch" if kind == "a stream" else "a stream"
                raise OptionError(f"{name} is an option of {kind} query, and this is {other} query")


def _refuse_client(name: str) -> None:
    bare = name.partition(".")[2]
    if bare in CLIENT_REFUSED:
        raise OptionError(f"{name} cannot be set: {CLIENT_REFUSED[bare]}")
    if bare.startswith(("ssl.", "sasl.")):
        raise OptionError(f"{name}: TLS and SASL are not supported by this source yet")
    if bare not in CLIENT:
        log.warning("the option %s has no effect on this source", name)


def _bootstrap(given: _Given) -> tuple[Address, ...]:
    name, value = given.client("bootstrap.servers")
    if value is None:
        raise OptionError(f"{name} is missing: HOST:PORT of a broker, or several with commas")
    protocol_name, protocol = given.client("security.protocol")
    if protocol not in (None, "PLAINTEXT"):
        raise OptionError(f"{protocol_name}={protocol!r} is not supported yet, only PLAINTEXT")
    try:
        return parse_bootstrap(value)
    except ValueError as exc:
        raise OptionError(f"{name}={value!r}: {exc}") from exc


def _selection(given: _Given) -> Selection:
    names = ("subscribe", "subscribePattern", "assign")
    chosen = [(name, value) for name in names if (value := given.own(name)[1]) is not None]
    if len(chosen) != 1:
        what = " and ".join(name for name, _ in chosen) or "none"
        raise OptionError(f"give exactly one of {', '.join(names)}; {what} given")
    ((name, value),) = chosen
    if name == "assign":
        return Assign(_assignment(value))
    if name == "subscribePattern":
        return SubscribePattern(_pattern(value))
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise OptionError(f"subscribe={value!r} names no topic")
    return Subscribe(topics)


def _pattern(value: str) -> str:
    """The regular expression, where Python reads it as Java would.

    Raises OptionError for what Python has not: character classes by property, quoting, set
    operations, look-behind of variable width.
    """
    try:
        with warnings.catch_warnings():
            # `[a[b]]` and `&&` are set operations in Java, plain characters here.
            warnings.simplefilter("error", FutureWarning)
            re.compile(value)
    except (re.error, FutureWarning) as exc:
        raise OptionError(f"subscribePattern={value!r} is not a usable expression: {exc}") from exc
    return value


def _json(name: str, value: str, example: str) -> dict[str, object]:
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"{name}={value!r} is not {example}")
    return parsed


def _assignment(value: str) -> dict[str, tuple[int, ...]]:
    example = 'JSON like {"topic": [0, 1]}'
    found: dict[str, tuple[int, ...]] = {}
    for topic, numbers in _json("assign", value, example).items():
        if not isinstance(numbers, list) or not numbers:
            raise OptionError(f"assign={value!r} is not {example}")
        for number in numbers:
            if type(number) is not int or not 0 <= number <= PARTITION_MAX:
                raise OptionError(
                    f"assign: {number!r} of topic {topic!r} is not a partition number"
                )
        found[topic] = tuple(sorted(set(numbers)))
    if not found:
        raise OptionError(f"assign={value!r} names no partition")
    return found


def _start(given: _Given, *, streaming: bool) -> Position:
    strategy_name, strategy = given.own("startingOffsetsByTimestampStrategy")
    if strategy not in (None, "error", "latest"):
        raise OptionError(f"{strategy_name}={strategy!r} is not 'error' or 'latest'")
    timestamp_ms = _number(given.own("startingTimestamp"), least=0)
    if timestamp_ms is not None:
        return AtTime(timestamp_ms, no_match_is_latest=strategy == "latest")
    name, value = given.own("startingOffsets")
    if value is None:
        return Extreme.LATEST if streaming else Extreme.EARLIEST
    position = _position(name, value)
    if not streaming:
        if position is Extreme.LATEST:
            raise OptionError(f"{name}={value!r}: a batch query from the end would be empty")
        _refuse_mark(name, position, LATEST_MARK, "a batch query from the end would be empty")
    return position


def _end(given: _Given) -> Position:
    timestamp_ms = _number(given.own("endingTimestamp"), least=0)
    if timestamp_ms is not None:
        return AtTime(timestamp_ms, no_match_is_latest=True)
    name, value = given.own("endingOffsets")
    if value is None:
        return Extreme.LATEST
    position = _position(name, value)
    if position is Extreme.EARLIEST:
        raise OptionError(f"{name}={value!r}: a query that ends at the start would be empty")
    _refuse_mark(name, position, EARLIEST_MARK, "a query that ends at the start would be empty")
    return position


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
    found: dict[str, dict[int, int]] = {}
    for topic, offsets in _json(name, value, example).items():
        if topic.startswith("$"):  # an offset copied from a checkpoint carries the topic ids
            continue
        if not isinstance(offsets, dict):
            raise OptionError(f"{name}={value!r} is not {example}")
        found[topic] = {}
        for partition, offset in offsets.items():
            if not partition.isascii() or not partition.isdigit():
                raise OptionError(
                    f"{name}: {partition!r} of topic {topic!r} is no partition number"
                )
            if type(offset) is not int or not EARLIEST_MARK <= offset <= OFFSET_MAX:
                raise OptionError(
                    f"{name}: {offset!r} for {topic}/{partition} is not an offset"
                    " (>= 0), -1 (latest) or -2 (earliest)"
                )
            found[topic][int(partition)] = offset
    return Exact(found)


def _isolation(given: _Given) -> bool:
    name, value = given.client("isolation.level")
    if value not in (None, "read_committed", "read_uncommitted"):
        raise OptionError(f"{name}={value!r} is not 'read_committed' or 'read_uncommitted'")
    return value == "read_committed"


def _boolean(given: _Given, name: str, *, default: bool) -> bool:
    value = given.own(name)[1]
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name}={value!r} is not 'true' or 'false'")
    return value.strip().lower() == "true"


def _number(given: NamedValue, *, least: Literal[0, 1]) -> int | None:
    name, value = given
    if value is None:
        return None
    text = value.strip()
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= OFFSET_MAX:
        raise OptionError(f"{name}={value!r} is not a whole number >= {least}")
    return int(text)

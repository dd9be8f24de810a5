"""The options of the source: Kafka's names, checked once, as one frozen value.

    which      exactly one of subscribe, subscribePattern, assign
    from, to   see positions              (a new query only; a checkpoint wins)
    how much   maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger with maxTriggerDelay
               (stream only); minPartitions, maxRecordsPerPartition
    what       includeHeaders, includeGaps
    how        failOnDataLoss, readSegmentsFrom, commitOffsetsToGroup, and the client options
               (connecting) with the prefix `kafka.` or `segbroker.`

Options that are unknown or malformed are refused (given); what makes no difference here is logged.

Invariant: SourceOptions can be pickled: it travels to the executors inside the reader.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from .connecting import ClientOptions, check_client_option, parse_client
from .errors import OptionError
from .given import PREFIXES, Given, boolean, duration_ms, json_object, number, unknown
from .positions import Extreme, Position, parse_end, parse_start

PARTITION_MAX = (1 << 31) - 1

POLL_TIMEOUT_MS = 120_000
TRIGGER_DELAY_MS = 15 * 60_000
# The reply to one fetch, and at most one more that is ahead of it, is in a worker's memory.
FETCH_BYTES = 3 << 20
FETCH_BYTES_MAX = 32 << 20


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


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much one micro-batch takes; None: no limit."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    delay_ms: int = TRIGGER_DELAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """See the module.  Times in milliseconds, sizes in bytes; None: no limit."""

    client: ClientOptions
    selection: Selection
    start: Position
    end: Position = Extreme.LATEST
    trigger: TriggerLimits = TriggerLimits()
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    include_gaps: bool = False
    fail_on_data_loss: bool = True
    read_committed: bool = False
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    fetch_bytes: int = FETCH_BYTES
    commit_group: str | None = None
    segments_folder: str | None = None
    # Whether the jar reads what is planned here: see segbroker.spark.jvm.
    in_jvm: bool = False


SOURCE = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "includeGaps",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "commitOffsetsToGroup",
    "readSegmentsFrom",
    "reader",
)
STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitOffsetsToGroup",
)
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
# Client options beside those that every connection has.
CLIENT = ("isolation.level", "fetch.max.bytes", "max.partition.fetch.bytes", "group.id")


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column `headers`."""
    return boolean(Given(options).own("includeHeaders"), default=False)


def wants_gaps(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column `_gap`."""
    return boolean(Given(options).own("includeGaps"), default=False)


def parse_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a query, checked.  Raises OptionError with one sentence."""
    given = Given(options)
    _refuse_foreign(given, streaming=streaming)
    label = given.client("group.id")[1] or given.own("groupIdPrefix")[1]
    return SourceOptions(
        client=parse_client(given, label),
        selection=_selection(given),
        start=parse_start(given, streaming=streaming),
        end=parse_end(given),
        trigger=_trigger(given),
        min_partitions=number(given.own("minPartitions"), least=1),
        max_records_per_partition=number(given.own("maxRecordsPerPartition"), least=1),
        include_headers=wants_headers(options),
        include_gaps=wants_gaps(options),
        fail_on_data_loss=boolean(given.own("failOnDataLoss"), default=True),
        read_committed=_isolation(given),
        poll_timeout_ms=number(given.own("kafkaConsumer.pollTimeoutMs"), least=1)
        or POLL_TIMEOUT_MS,
        fetch_bytes=_fetch_bytes(given),
        commit_group=_named(given, "commitOffsetsToGroup"),
        segments_folder=_named(given, "readSegmentsFrom"),
    )


def _refuse_foreign(given: Given, *, streaming: bool) -> None:
    known = {name.lower() for name in SOURCE}
    for name in given.values:
        if name in known or name.startswith("__"):
            continue
        if not name.startswith(PREFIXES):
            raise unknown(name, SOURCE)
        check_client_option(name, CLIENT)
    this, other = ("a stream", "a batch") if streaming else ("a batch", "a stream")
    for name in BATCH_ONLY if streaming else STREAM_ONLY:
        if given.own(name)[1] is not None:
            raise OptionError(f"{name} is an option of {other} query, and this is {this} query")


def _selection(given: Given) -> Selection:
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


def _assignment(value: str) -> dict[str, tuple[int, ...]]:
    example = 'JSON like {"topic": [0, 1]}'
    found: dict[str, tuple[int, ...]] = {}
    for topic, numbers in json_object("assign", value, example).items():
        if not isinstance(numbers, list) or not numbers:
            raise OptionError(f"assign={value!r} is not {example}")
        for one in numbers:
            if type(one) is not int or not 0 <= one <= PARTITION_MAX:
                raise OptionError(f"assign: {one!r} of topic {topic!r} is not a partition number")
        found[topic] = tuple(sorted(set(numbers)))
    if not found:
        raise OptionError(f"assign={value!r} names no partition")
    return found


def _trigger(given: Given) -> TriggerLimits:
    found = TriggerLimits(
        offsets_max=number(given.own("maxOffsetsPerTrigger"), least=1),
        bytes_max=number(given.own("maxBytesPerTrigger"), least=1),
        offsets_min=number(given.own("minOffsetsPerTrigger"), least=1),
        delay_ms=duration_ms(given.own("maxTriggerDelay"), default_ms=TRIGGER_DELAY_MS),
    )
    least, most = found.offsets_min, found.offsets_max
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}:"
            " every batch would wait for maxTriggerDelay"
        )
    return found


def _isolation(given: Given) -> bool:
    name, value = given.client("isolation.level")
    if value not in (None, "read_committed", "read_uncommitted"):
        raise OptionError(f"{name}={value!r} is not 'read_committed' or 'read_uncommitted'")
    return value == "read_committed"


def _fetch_bytes(given: Given) -> int:
    names = ("max.partition.fetch.bytes", "fetch.max.bytes")
    limits = [number(given.client(name), least=1) for name in names]
    wanted = [limit for limit in limits if limit is not None] or [FETCH_BYTES]
    return min(*wanted, FETCH_BYTES_MAX)


def _named(given: Given, name: str) -> str | None:
    value = given.own(name)[1]
    if value is not None and not value.strip():
        raise OptionError(f"{name}={value!r} is empty")
    return value

"""What can be configured per topic, in Kafka's names where Kafka has one.

`KEYS` is the list of what has an effect: name, default, meaning, and how text becomes a value;
inert_settings.py has what is taken without one.  A key whose effect does not exist yet says so in
its meaning; a value that would make a user rely on something that does not exist is refused
instead.

Below what is set on a topic lies what is chosen for all of them (topic_defaults.py), as far as it
goes with that: a default never makes a topic impossible.

Invariants: `max.message.bytes` never exceeds `segment.bytes`, for a batch lies in one segment: of
the two, whichever was not set follows the other.  An `ephemeral` topic has a limit in bytes,
EPHEMERAL_RETENTION_BYTES per partition unless another is set: it lies in the memory of the broker.
For the same reason it is not compacted without being deleted from.  `min.compaction.lag.ms` never
exceeds `max.compaction.lag.ms`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from segbroker.protocol.compression import Codec

from ..errors import InvalidConfig
from .inert_settings import INERT, documentation
from .setting_values import INT32_MAX, INT64_MAX, one_of, share, whole

EPHEMERAL_RETENTION_BYTES: Final = 64 << 20
GZIP_LEVEL: Final = -1
LZ4_LEVEL: Final = 9
ZSTD_LEVEL: Final = 3
"""Kafka's default levels: those that a codec has by itself."""
SYNC_TICK_MS: Final = 1_000
"""Between two syncs of a partition of class disk."""
PARSED_MAX: Final = 1_024
"""Sets of settings that are remembered parsed."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Durability(Enum):
    """What an acknowledgement means."""

    EPHEMERAL = "ephemeral"
    """In memory only: gone with the process."""
    MEMORY = "memory"
    """Written, never synced by time.  A power cut may take any of it."""
    DISK = "disk"
    """Written to the operating system; synced on a tick.  A power cut may take the last tick."""
    FSYNC = "fsync"
    """Synced: survives a power cut."""


class TimestampType(Enum):
    """Whose clock a record's timestamp comes from."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class OnCorruption(Enum):
    """What becomes of a partition whose stored bytes are damaged."""

    GAP = "gap"
    """What is whole is served, a gap stands for the rest, writing goes on."""
    READONLY = "readonly"
    """The same, without writing."""
    REFUSE = "refuse"
    """Nothing is served, nothing is repaired."""


class FullPolicy(Enum):
    """What becomes of an append that would pass retention.bytes or retention.records."""

    DROP_OLD = "drop-old"
    """The oldest segments make room."""
    REJECT = "reject"
    """It is refused before it has an offset."""


class Recompression(NamedTuple):
    """As what batches are stored that come otherwise."""

    codec: Codec
    level: int | None
    """None: the usual one."""


class _Key(NamedTuple):
    name: str
    field: str
    kind: str
    default: str
    parse: Callable[[str, str], object]
    documentation: str


class Setting(NamedTuple):
    """One key as an administrator sees it."""

    name: str
    value: str
    is_default: bool
    """It is not set on the topic."""
    is_inherited: bool
    """It is not set on the topic, and chosen for all of them."""
    kind: str
    """Kafka's word for the type: string, int, long, list."""
    default: str
    documentation: str


_SEGMENT_BYTES: Final = "1048576"
_CODECS: Final = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def _codec(key: str, text: str) -> str:
    if text not in _CODECS:
        raise InvalidConfig(key, text, f"is none of {', '.join(_CODECS)}")
    return text


def _gzip_level(key: str, text: str) -> int:
    return GZIP_LEVEL if text == str(GZIP_LEVEL) else whole(1, 9)(key, text)


def _policies(key: str, text: str) -> str:
    policies = [policy.strip() for policy in text.split(",")] if text.strip() else []
    if not set(policies) <= {"compact", "delete"}:
        raise InvalidConfig(key, text, "is none of delete, compact, or both with a comma")
    return ",".join(dict.fromkeys(policies))


KEYS: Final[tuple[_Key, ...]] = (
    _Key(
        "segment.bytes", "segment_bytes", "int", _SEGMENT_BYTES, whole(512, INT32_MAX),
        "Maximum size of a segment file; a batch that would exceed it begins the next one. If not"
        " set: at least max.message.bytes.",
    ),
    _Key(
        "segment.ms", "segment_ms", "long", "604800000", whole(1, INT64_MAX),
        "A segment whose first batch is older than this (ms) is sealed, also if nobody writes.",
    ),
    _Key(
        "segment.records", "segment_records", "int", str(INT32_MAX), whole(1, INT32_MAX),
        "Maximum number of records in a segment, unless one batch alone has more.",
    ),
    _Key(
        "segment.index.bytes", "segment_index_bytes", "int", "10485760", whole(96, INT32_MAX),
        "A segment whose index would exceed this size is sealed.",
    ),
    _Key(
        "index.interval.bytes", "index_interval_bytes", "int", "16384", whole(4096, 1 << 24),
        "Bytes of log per index block: the unit that is located, read and verified as a whole.",
    ),
    _Key(
        "max.message.bytes", "max_message_bytes", "int", "", whole(61, INT32_MAX),
        "Largest batch, after compression. If not set: segment.bytes. Never more than a "
        "segment.bytes that is set. A request that is larger than the broker's frame_bytes_max "
        "closes its connection first.",
    ),
    _Key(
        "message.timestamp.type", "message_timestamp_type", "string", "CreateTime",
        one_of(TimestampType),
        "CreateTime keeps the producer's timestamps; LogAppendTime writes the time of arrival.",
    ),
    _Key(
        "message.timestamp.before.max.ms", "message_timestamp_before_max_ms", "long",
        str(INT64_MAX), whole(0, INT64_MAX),
        "With CreateTime: a batch with a record that is older than the broker's clock by more "
        "than this (ms) is refused (INVALID_TIMESTAMP). Every batch is decoded to check it.",
    ),
    _Key(
        "message.timestamp.after.max.ms", "message_timestamp_after_max_ms", "long",
        str(INT64_MAX), whole(0, INT64_MAX),
        "With CreateTime: a batch with a record that is newer than the broker's clock by more "
        "than this (ms) is refused (INVALID_TIMESTAMP).",
    ),
    _Key(
        "durability", "durability", "string", "fsync", one_of(Durability),
        "fsync: acknowledged after the sync; a power cut loses nothing. disk: acknowledged after "
        "the write, synced every second; a power cut may lose what came after the last sync. "
        "memory: acknowledged after the write, synced only when a segment is full; a power cut "
        "may lose any of it. ephemeral: in memory only, gone with the process. No class gives an "
        "acknowledged offset to another record.",
    ),
    _Key(
        "retention.ms", "retention_ms", "long", "604800000", whole(-1, INT64_MAX),
        "Segments whose newest record is older than this (ms, by the records' timestamps) are "
        "deleted. -1: records are kept for ever.",
    ),
    _Key(
        "retention.bytes", "retention_bytes", "long", "-1", whole(-1, INT64_MAX),
        "How many bytes of a partition are kept; -1: all. The oldest segment is deleted when the "
        "others still hold at least this much.",
    ),
    _Key(
        "retention.records", "retention_records", "long", "-1", whole(-1, INT64_MAX),
        "How many records of a partition are kept; -1: all. Applied like retention.bytes.",
    ),
    _Key(
        "retention.full.policy", "retention_full_policy", "string", "drop-old",
        one_of(FullPolicy),
        "What happens at retention.bytes or retention.records. drop-old: the oldest segments are "
        "deleted. reject: nothing is deleted to make room; a batch that would exceed the limit is"
        " refused (POLICY_VIOLATION).",
    ),
    _Key(
        "cleanup.policy", "cleanup_policy", "list", "delete",
        _policies,
        "delete: old segments are deleted, by retention.ms, retention.bytes and "
        "retention.records. compact: the cleaner keeps only the last record of each key, in full "
        "segments, from time to time; every record needs a key. compact,delete: both. Empty: "
        "nothing is deleted.",
    ),
    _Key(
        "min.cleanable.dirty.ratio", "min_cleanable_dirty_ratio", "double", "0.5", share,
        "A compacted partition is cleaned when more than this share of its full segments (bytes) "
        "is not cleaned yet.",
    ),
    _Key(
        "min.compaction.lag.ms", "min_compaction_lag_ms", "long", "0", whole(0, INT64_MAX),
        "A record of a compacted topic is kept for at least this long (ms, by the records' "
        "timestamps).",
    ),
    _Key(
        "max.compaction.lag.ms", "max_compaction_lag_ms", "long", str(INT64_MAX),
        whole(1, INT64_MAX),
        "A compacted partition is cleaned when a segment has waited longer than this (ms), "
        "whatever min.cleanable.dirty.ratio says; the active segment is sealed for it.",
    ),
    _Key(
        "delete.retention.ms", "delete_retention_ms", "long", "86400000", whole(0, INT64_MAX),
        "How long a tombstone (a record without a value), or the marker of a transaction, stays "
        "in a compacted topic after a cleaning first reached it (ms). A reader may be this far "
        "behind and still see it.",
    ),
    _Key(
        "on.corruption", "on_corruption", "string", "gap", one_of(OnCorruption),
        "What happens when stored bytes are damaged. gap: they are kept aside, consumers get a "
        "gap, everything else is served, and writing goes on. readonly: the same, but nothing is "
        "written until an operator has looked. refuse: the partition is not served until then.",
    ),
    _Key(
        "compression.type", "compression_type", "string", "producer",
        _codec,
        "How batches are stored. producer: as their producer compressed them. uncompressed, or a "
        "codec: batches that come in another form are compressed again before they are appended.",
    ),
    _Key(
        "compression.gzip.level", "compression_gzip_level", "int", str(GZIP_LEVEL), _gzip_level,
        "Level for batches that the broker compresses by gzip: 1 to 9, or -1 for its usual one.",
    ),
    _Key(
        "compression.lz4.level", "compression_lz4_level", "int", str(LZ4_LEVEL), whole(1, 17),
        "Level for batches that the broker compresses by lz4: 1 to 17. 9 stands for the usual, "
        "fast one.",
    ),
    _Key(
        "compression.zstd.level", "compression_zstd_level", "int", str(ZSTD_LEVEL),
        whole(-131_072, 22),
        "Level for batches that the broker compresses by zstd: -131072 to 22. From about 10 on it "
        "takes a tenth of a second and more for 1 MiB.",
    ),
)  # fmt: skip

_BY_NAME: Final = {key.name: key for key in KEYS}


class TopicConfig:
    """The settings of one topic; immutable.

    `overrides` is what was set on it, `inherited` what lies below, as text.
    """

    __slots__ = (
        "bounds_timestamps",
        "cleanup_policy",
        "compacts",
        "compression_gzip_level",
        "compression_lz4_level",
        "compression_type",
        "compression_zstd_level",
        "delete_retention_ms",
        "deletes",
        "durability",
        "index_interval_bytes",
        "inherited",
        "max_compaction_lag_ms",
        "max_message_bytes",
        "message_timestamp_after_max_ms",
        "message_timestamp_before_max_ms",
        "message_timestamp_type",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "on_corruption",
        "overrides",
        "recompression",
        "retention_bytes",
        "retention_full_policy",
        "retention_ms",
        "retention_records",
        "roll_ms",
        "segment_bytes",
        "segment_index_bytes",
        "segment_ms",
        "segment_records",
        "stamps_append_time",
    )

    bounds_timestamps: bool
    """Whether a batch may be refused for its timestamps."""
    cleanup_policy: str
    compacts: bool
    """Whether of the records with one key the last stays."""
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    deletes: bool
    """Whether segments go by age, bytes and records."""
    durability: Durability
    index_interval_bytes: int
    inherited: dict[str, str]
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: TimestampType
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    on_corruption: OnCorruption
    overrides: dict[str, str]
    recompression: Recompression | None
    """None: batches are stored as they come."""
    retention_bytes: int
    retention_full_policy: FullPolicy
    retention_ms: int
    retention_records: int
    roll_ms: int
    """Age at which a segment is full: segment.ms, or less in a compacted topic."""
    segment_bytes: int
    segment_index_bytes: int
    segment_ms: int
    segment_records: int
    stamps_append_time: bool
    """Whether records get the time of their arrival."""

    def __init__(
        self,
        overrides: Mapping[str, str] | None = None,
        inherited: Mapping[str, str] | None = None,
    ) -> None:
        """Raises InvalidConfig, which names key and value: also of `inherited`, if they do not go
        together; `parse` leaves out which do not."""
        chosen = dict(overrides or {})
        for name, value in chosen.items():
            if name in INERT:
                INERT[name].check(name, value)
            elif name not in _BY_NAME:
                raise InvalidConfig(name, value, "there is no such topic setting")
        put = object.__setattr__
        put(self, "overrides", chosen)
        put(self, "inherited", dict(inherited or {}))
        for key in KEYS:
            text = chosen[key.name] if key.name in chosen else self._default(key)
            put(self, key.field, key.parse(key.name, text))
        if self.max_message_bytes > self.segment_bytes:
            raise InvalidConfig(
                "max.message.bytes",
                self.max_message_bytes,
                f"exceeds segment.bytes={self.segment_bytes}; a batch lies in one segment:"
                " leave that out, or set it to as much",
            )
        least_ms = min(self.message_timestamp_after_max_ms, self.message_timestamp_before_max_ms)
        stamps = self.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        put(self, "stamps_append_time", stamps)
        put(self, "bounds_timestamps", not stamps and least_ms < INT64_MAX)
        put(self, "recompression", self._recompression())
        _check_flushes(self.durability, chosen)
        policies = self.cleanup_policy.split(",")
        put(self, "compacts", "compact" in policies)
        put(self, "deletes", "delete" in policies)
        lag_ms = self.max_compaction_lag_ms if self.compacts else INT64_MAX
        put(self, "roll_ms", min(self.segment_ms, lag_ms))
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                "min.compaction.lag.ms",
                self.min_compaction_lag_ms,
                f"exceeds max.compaction.lag.ms={self.max_compaction_lag_ms}",
            )
        if self.durability is Durability.EPHEMERAL and not self.deletes:
            raise InvalidConfig(
                "cleanup.policy",
                self.cleanup_policy,
                "an ephemeral topic lies in memory and needs a limit: compact,delete has one",
            )
        if self.durability is Durability.EPHEMERAL and self.retention_bytes < 0:
            raise InvalidConfig(
                "retention.bytes",
                self.retention_bytes,
                "an ephemeral topic lies in memory: set a limit",
            )

    def _recompression(self) -> Recompression | None:
        codec = _CODECS[self.compression_type]
        if codec is None:
            return None
        level, usual = {
            Codec.GZIP: (self.compression_gzip_level, GZIP_LEVEL),
            Codec.LZ4: (self.compression_lz4_level, LZ4_LEVEL),
            Codec.ZSTD: (self.compression_zstd_level, ZSTD_LEVEL),
        }.get(codec, (0, 0))
        return Recompression(codec, None if level == usual else level)

    def _default(self, key: _Key) -> str:
        """The default of a key, given the keys before it."""
        if key.name in self.inherited:
            return self.inherited[key.name]
        if key.name == "segment.bytes" and (text := self._said("max.message.bytes")):
            return str(max(int(key.default), whole(61, INT32_MAX)("max.message.bytes", text)))
        if key.name == "max.message.bytes":
            # A segment.bytes that nobody has said goes by the max.message.bytes itself.
            return str(self.segment_bytes) if self._said("segment.bytes") else _SEGMENT_BYTES
        if key.name == "retention.bytes" and self.durability is Durability.EPHEMERAL:
            return str(EPHEMERAL_RETENTION_BYTES)
        return key.default

    def _said(self, name: str) -> str | None:
        return self.overrides.get(name, self.inherited.get(name))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a TopicConfig does not change; make another")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TopicConfig)
            and self.overrides == other.overrides
            and self.inherited == other.inherited
        )

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.overrides.items())))

    def __repr__(self) -> str:
        return f"TopicConfig({self.overrides!r})"

    @classmethod
    def parse(
        cls, overrides: Mapping[str, str], defaults: Mapping[str, str] = _NONE
    ) -> "TopicConfig":
        """The configuration with these settings over the defaults.  Raises InvalidConfig.

        defaults: what is chosen for all topics.  What of it does not go with `overrides` is left
        out, in the order of KEYS: a default that was changed since makes no topic impossible.
        Many topics have the same few settings: they share one object.
        """
        return _parsed(tuple(overrides.items()), tuple(defaults.items()))

    def describe(self) -> list[Setting]:
        """Every key with its value in force; after them Kafka's that are without effect here."""
        settings = []
        for key in KEYS:
            value = getattr(self, key.field)
            text = str(value.value) if isinstance(value, Enum) else str(value)
            default = self._default(key)
            is_default = key.name not in self.overrides
            is_inherited = is_default and key.name in self.inherited
            settings.append(
                Setting(
                    key.name, text, is_default, is_inherited, key.kind, default, key.documentation
                )
            )
        for name, inert in INERT.items():
            value = self.overrides.get(name, inert.default)
            if inert.kind == "boolean":
                value = value.strip().lower()
            is_default = name not in self.overrides
            about = documentation(name)
            settings.append(
                Setting(name, value, is_default, False, inert.kind, inert.default, about)
            )
        return settings


def _check_flushes(durability: Durability, chosen: Mapping[str, str]) -> None:
    """Kafka's flush.messages and flush.ms ask for what class fsync does anyway, and no other does.

    Class disk is synced every SYNC_TICK_MS.
    """
    if durability is Durability.FSYNC:
        return
    least = {"flush.messages": INT64_MAX, "flush.ms": INT64_MAX}
    if durability is Durability.DISK:
        least["flush.ms"] = SYNC_TICK_MS
    for name, bound in least.items():
        if int(chosen.get(name, INT64_MAX)) < bound:
            raise InvalidConfig(
                name,
                chosen[name],
                f"class {durability.value} is not synced so often: durability=fsync",
            )


@lru_cache(maxsize=PARSED_MAX)
def _parsed(
    overrides: tuple[tuple[str, str], ...], defaults: tuple[tuple[str, str], ...]
) -> TopicConfig:
    chosen, below = dict(overrides), dict(defaults)
    if not below:
        return TopicConfig(chosen)
    try:
        return TopicConfig(chosen, below)
    except InvalidConfig:
        parsed = TopicConfig(chosen)  # in conflict: as many as go with it
    for key in KEYS:
        if key.name in below:
            with suppress(InvalidConfig):
                parsed = TopicConfig(chosen, {**parsed.inherited, key.name: below[key.name]})
    return parsed


def check_class_change(before: Durability, after: Durability) -> None:
    """Refuse to move a topic's records between memory and disk.  Raises InvalidConfig."""
    if before is not after and Durability.EPHEMERAL in (before, after):
        raise InvalidConfig(
            "durability", after.value, f"the topic is {before.value}; make another topic for that"
        )

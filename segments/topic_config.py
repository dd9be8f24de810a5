"""The settings of a topic: one table, Kafka's names where Kafka has them.

Parsed once from text; a wrong value is refused with the key and the value before anything is
made.  A setting that is accepted but has no effect yet says so in its own words, which
DescribeConfigs and docs/configuration.md show; one whose absence could cost a user data
(compaction, the classes below `disk`) is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .errors import InvalidConfig

MIB = 1024 * 1024
SEGMENT_BYTES_MIN = 1024
SEGMENT_BYTES_MAX = 1024 * MIB
INT64_MAX = 2**63 - 1


class Durability(Enum):
    """What an acknowledgement of a topic means."""

    FSYNC = "fsync"
    DISK = "disk"
    MEMORY = "memory"
    EPHEMERAL = "ephemeral"


SERVED_DURABILITIES = frozenset({Durability.FSYNC, Durability.DISK})


class TimestampType(Enum):
    """Whose clock a record's timestamp is."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("is not a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"outside [{low}, {high}]")
        return value

    return parse


def _durability(text: str) -> Durability:
    try:
        value = Durability(text)
    except ValueError:
        names = ", ".join(d.value for d in Durability)
        raise ValueError(f"is none of {names}") from None
    if value not in SERVED_DURABILITIES:
        raise ValueError("this class is not served yet; fsync and disk are")
    return value


def _timestamp_type(text: str) -> TimestampType:
    try:
        return TimestampType(text)
    except ValueError:
        raise ValueError("is neither CreateTime nor LogAppendTime") from None


def _only(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"only {' or '.join(allowed)} can be served")
        return text

    return parse


@dataclass(frozen=True)
class Setting:
    """One row of the table; `kind` is Kafka's word for the type."""

    key: str
    attribute: str
    kind: str
    default: Any
    parse: Callable[[str], Any]
    documentation: str


_NOT_YET = " Kept and shown; nothing is deleted by it yet."

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "durability",
        "durability",
        "string",
        Durability.FSYNC,
        _durability,
        "What an acknowledgement means: fsync (synced), disk (written; synced every second).",
    ),
    Setting(
        "segment.bytes",
        "segment_bytes",
        "int",
        MIB,
        _integer(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
        "A segment file is closed before the write that would make it larger than this.",
    ),
    Setting(
        "segment.ms",
        "segment_ms",
        "long",
        7 * 24 * 3600 * 1000,
        _integer(1, INT64_MAX),
        "An active segment is closed when its first record is older than this, idle or not.",
    ),
    Setting(
        "segment.records",
        "segment_records",
        "long",
        2**31 - 1,
        _integer(1, 2**31 - 1),
        "A segment is closed before the batch that would give it more records than this.",
    ),
    Setting(
        "segment.index.bytes",
        "segment_index_bytes",
        "int",
        10 * MIB,
        _integer(128, SEGMENT_BYTES_MAX),
        "A segment is closed when its index would grow past this.",
    ),
    Setting(
        "max.message.bytes",
        "max_message_bytes",
        "int",
        None,
        _integer(0, SEGMENT_BYTES_MAX),
        "The largest batch that is accepted; at most segment.bytes, which is the default.",
    ),
    Setting(
        "message.timestamp.type",
        "timestamp_type",
        "string",
        TimestampType.CREATE_TIME,
        _timestamp_type,
        "CreateTime keeps the producer's timestamps; LogAppendTime replaces them by the broker's.",
    ),
    Setting(
        "retention.ms",
        "retention_ms",
        "long",
        -1,
        _integer(-1, INT64_MAX),
        "How long a record is kept; -1 for ever." + _NOT_YET,
    ),
    Setting(
        "retention.bytes",
        "retention_bytes",
        "long",
        -1,
        _integer(-1, INT64_MAX),
        "How many bytes of a partition are kept; -1 without limit." + _NOT_YET,
    ),
    Setting(
        "cleanup.policy",
        "cleanup_policy",
        "list",
        "delete",
        _only("delete"),
        "What retention does: delete drops whole old segments. Compaction is not served yet.",
    ),
    Setting(
        "compression.type",
        "compression_type",
        "string",
        "producer",
        _only("producer"),
        "Batches are stored as the producer compressed them.",
    ),
    Setting(
        "min.insync.replicas",
        "min_insync_replicas",
        "int",
        1,
        _integer(1, 1),
        "There is one copy, and its durability is the durability setting.",
    ),
)

BY_KEY: dict[str, Setting] = {setting.key: setting for setting in SETTINGS}


@dataclass(frozen=True)
class ConfigEntry:
    """One setting as it stands, for DescribeConfigs and `topic describe`."""

    name: str
    value: str
    is_default: bool
    kind: str
    documentation: str
    default: str


@dataclass(frozen=True)
class TopicConfig:
    """The settings of one topic; sizes in bytes, times in ms."""

    durability: Durability = Durability.FSYNC
    segment_bytes: int = MIB
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_records: int = 2**31 - 1
    segment_index_bytes: int = 10 * MIB
    max_message_bytes: int = MIB
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    retention_ms: int = -1
    retention_bytes: int = -1
    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    min_insync_replicas: int = 1
    overrides: Mapping[str, str] = field(default_factory=dict)
    """What was asked for, as text; the rest are defaults."""

    @classmethod
    def parse(cls, overrides: Mapping[str, str]) -> "TopicConfig":
        """Read settings from text.

        Raises:
            InvalidConfig: unknown key, malformed value, or two that contradict each other.
        """
        values: dict[str, Any] = {}
        for key, text in overrides.items():
            setting = BY_KEY.get(key)
            if setting is None:
                raise InvalidConfig(key, text, "there is no such topic setting")
            try:
                values[setting.attribute] = setting.parse(text)
            except ValueError as error:
                raise InvalidConfig(key, text, str(error)) from None
        segment_bytes = values.get("segment_bytes", MIB)
        largest = values.setdefault("max_message_bytes", segment_bytes)
        if largest > segment_bytes:
            raise InvalidConfig(
                "max.message.bytes", largest, f"larger than segment.bytes={segment_bytes}"
            )
        return cls(**values, overrides=dict(overrides))

    def describe(self) -> list[ConfigEntry]:
        """Every setting with its value, whether it is the default, and its words."""
        return [
            ConfigEntry(
                setting.key,
                _text(getattr(self, setting.attribute)),
                setting.key not in self.overrides,
                setting.kind,
                setting.documentation,
                _text(self.segment_bytes if setting.default is None else setting.default),
            )
            for setting in SETTINGS
        ]


def _text(value: object) -> str:
    return str(value.value) if isinstance(value, Enum) else str(value)

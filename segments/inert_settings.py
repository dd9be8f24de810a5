"""Kafka's topic settings that change nothing here, and are taken all the same.

Programs and scripts that create topics for a Kafka cluster set them by habit; refusing the topic
for that would help nobody.  Each is about something that there is not: a second replica,
compaction, files that Kafka would make differently.  What was set is checked as Kafka checks it,
kept, and shown by DescribeConfigs; it has no other effect.

Not here, and refused: settings by which somebody would rely on what does not exist
(cleanup.policy=compact, min.insync.replicas above 1, flush.messages: durability says that).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from .errors import InvalidConfig

_INT64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF

Check = Callable[[str, str], None]


class Inert(NamedTuple):
    """One of them."""

    kind: str
    default: str
    check: Check


def _whole(low: int, high: int = _INT64_MAX) -> Check:
    def check(name: str, text: str) -> None:
        try:
            value = int(text)
        except ValueError:
            raise InvalidConfig(name, text, "is not a whole number") from None
        if not low <= value <= high:
            raise InvalidConfig(name, text, f"is outside [{low}, {high}]")

    return check


def _share(name: str, text: str) -> None:
    try:
        value = float(text)
    except ValueError:
        raise InvalidConfig(name, text, "is not a number") from None
    if not 0 <= value <= 1:
        raise InvalidConfig(name, text, "is outside [0, 1]")


def _truth(name: str, text: str) -> None:
    if text.lower() not in ("true", "false"):
        raise InvalidConfig(name, text, "is neither true nor false")


INERT: Final[dict[str, Inert]] = {
    "delete.retention.ms": Inert("long", "86400000", _whole(0)),
    "file.delete.delay.ms": Inert("long", "60000", _whole(0)),
    "max.compaction.lag.ms": Inert("long", str(_INT64_MAX), _whole(1)),
    "min.cleanable.dirty.ratio": Inert("string", "0.5", _share),
    "min.compaction.lag.ms": Inert("long", "0", _whole(0)),
    "min.insync.replicas": Inert("int", "1", _whole(1, 1)),
    "preallocate": Inert("boolean", "false", _truth),
    "segment.jitter.ms": Inert("long", "0", _whole(0)),
    "unclean.leader.election.enable": Inert("boolean", "false", _truth),
}
DOCUMENTATION: Final = "Kafka's; kept and shown, without effect here."

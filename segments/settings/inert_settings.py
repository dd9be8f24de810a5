"""Kafka's topic settings that change nothing here, and are taken all the same.

Programs and scripts that create topics for a Kafka cluster set them by habit; refusing the topic
for that would help nobody.  Each says why it has nothing to do: it is about a second replica, a
second tier, files that Kafka would make differently, or asks for what is done anyway.  What was set
is checked as Kafka checks it, kept, and shown by DescribeConfigs with its reason.

Not here, and refused: settings by which somebody would rely on what does not exist
(remote.storage.enable=true; flush.messages and flush.ms of a class that does not sync so often:
topic_config.py).  min.insync.replicas above 1 is none: Kafka, too, asks for no more replicas than a
partition has.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ..errors import InvalidConfig
from .setting_values import INT64_MAX, whole

Check = Callable[[str, str], object]


class Inert(NamedTuple):
    """One of them."""

    kind: str
    default: str
    check: Check
    reason: str
    """Why it has no effect."""


def _replicas(name: str, text: str) -> None:
    """partition:broker, with commas between, or * for all."""
    for one in filter(None, text.split(",")):
        partition, colon, broker = one.strip().partition(":")
        if one.strip() != "*" and not (colon and partition.isdecimal() and broker.isdecimal()):
            raise InvalidConfig(name, text, "is neither * nor partition:broker,...")


def _false(name: str, text: str) -> None:
    _truth(name, text)
    if text.strip().lower() != "false":
        raise InvalidConfig(name, text, "there is one tier")


def _truth(name: str, text: str) -> None:
    if text.strip().lower() not in ("true", "false"):
        raise InvalidConfig(name, text, "is neither true nor false")


_SYNCED: Final = (
    "class fsync syncs every batch before it is acknowledged; the other classes refuse values that"
    " ask for more syncs than they make"
)
_REPLICAS: Final = "there is one replica"
_TIERS: Final = "there is one tier"

INERT: Final[dict[str, Inert]] = {
    "file.delete.delay.ms": Inert(
        "long", "60000", whole(0), "files are deleted when their last reader has closed them"
    ),
    "flush.messages": Inert("long", str(INT64_MAX), whole(1), _SYNCED),
    "flush.ms": Inert("long", str(INT64_MAX), whole(0), _SYNCED),
    "follower.replication.throttled.replicas": Inert("list", "", _replicas, _REPLICAS),
    "leader.replication.throttled.replicas": Inert("list", "", _replicas, _REPLICAS),
    "local.retention.bytes": Inert("long", "-2", whole(-2), _TIERS),
    "local.retention.ms": Inert("long", "-2", whole(-2), _TIERS),
    "min.insync.replicas": Inert("int", "1", whole(1, 2**31 - 1), _REPLICAS),
    "preallocate": Inert(
        "boolean", "false", _truth, "the next segment is made ahead of need in any case"
    ),
    "remote.log.copy.disable": Inert("boolean", "false", _truth, _TIERS),
    "remote.log.delete.on.disable": Inert("boolean", "false", _truth, _TIERS),
    "remote.storage.enable": Inert("boolean", "false", _false, _TIERS),
    "segment.jitter.ms": Inert(
        "long", "0", whole(0), "segments that are due are sealed a few at a time"
    ),
    "unclean.leader.election.enable": Inert("boolean", "false", _truth, _REPLICAS),
}


def documentation(name: str) -> str:
    """What DescribeConfigs says of one of them."""
    return f"Kafka's; kept and shown, without effect: {INERT[name].reason}."

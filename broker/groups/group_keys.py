"""The settings that a group may have of its own: what each is like, and what holds without it.

| Kafka's name | where it is not set |
|---|---|
| consumer.session.timeout.ms | group_consumer_session_timeout_ms |
| consumer.heartbeat.interval.ms | group_consumer_heartbeat_interval_ms |
| share.session.timeout.ms | group_share_session_timeout_ms |
| share.heartbeat.interval.ms | group_share_heartbeat_interval_ms |
| share.record.lock.duration.ms | group_share_record_lock_duration_ms |
| share.delivery.count.limit | group_share_delivery_count_limit |
| share.partition.max.record.locks | group_share_partition_max_record_locks |
| share.auto.offset.reset | latest |
| share.isolation.level | read_uncommitted |
| share.renew.acknowledge.enable | true |
| streams.session.timeout.ms | group_streams_session_timeout_ms |
| streams.heartbeat.interval.ms | group_streams_heartbeat_interval_ms |
| streams.num.standby.replicas | group_streams_num_standby_replicas |
| streams.initial.rebalance.delay.ms | group_streams_initial_rebalance_delay_ms |

| *.assignment.interval.ms, of consumer, share and streams | without effect, see kafka_settings.py |

A number has the bounds of the broker's setting that stands below it.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from ..configuration.config import InvalidConfig, keys
from ..configuration.kafka_settings import DOCUMENTATION, KAFKA_SETTINGS
from .share_reset import parse_reset

Kind: TypeAlias = Literal["int", "string", "boolean"]

SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
SHARE_SESSION: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT: Final = "share.heartbeat.interval.ms"
SHARE_RECORD_LOCK: Final = "share.record.lock.duration.ms"
SHARE_DELIVERIES: Final = "share.delivery.count.limit"
SHARE_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION: Final = "share.isolation.level"
SHARE_RENEW: Final = "share.renew.acknowledge.enable"
STREAMS_SESSION: Final = "streams.session.timeout.ms"
STREAMS_HEARTBEAT: Final = "streams.heartbeat.interval.ms"
STREAMS_STANDBYS: Final = "streams.num.standby.replicas"
STREAMS_INITIAL_DELAY: Final = "streams.initial.rebalance.delay.ms"

SESSIONS: Final = {
    HEARTBEAT: SESSION,
    SHARE_HEARTBEAT: SHARE_SESSION,
    STREAMS_HEARTBEAT: STREAMS_SESSION,
}
"""The session that an interval has to be below, by the interval."""

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


class GroupKey(NamedTuple):
    """A setting of groups."""

    kind: Kind
    # The broker's setting that holds for groups without this one; "": `default` does.
    of_broker: str
    default: str
    documentation: str
    check: Callable[[str, str], str]
    """(name, text) -> the text as it is kept.  Raises InvalidConfig."""


def _number(of_broker: str) -> GroupKey:
    spec = next(one for one in keys() if one.name == of_broker)
    least, most = spec.metadata["least"], spec.metadata["most"]

    def check(name: str, text: str) -> str:
        text = text.strip()
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not is_number or not least <= int(text) <= most:
            raise InvalidConfig(f"{name} = {text[:100]!r} is no number between {least} and {most}")
        return text

    return GroupKey("int", of_broker, "", spec.metadata["doc"], check)


def _without_effect(of_broker: str) -> GroupKey:
    """One that Kafka has, and nothing goes by here."""
    check_broker = KAFKA_SETTINGS[of_broker].check

    def check(name: str, text: str) -> str:
        check_broker(name, text)
        return text

    return GroupKey("int", of_broker, "", DOCUMENTATION, check)


def _check_reset(name: str, text: str) -> str:
    try:
        parse_reset(text)
    except ValueError as exc:
        raise InvalidConfig(f"{name} = {text[:100]!r} is {exc}") from None
    return text


def _check_isolation(name: str, text: str) -> str:
    if text not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise InvalidConfig(
            f"{name} = {text[:100]!r} is none of {READ_COMMITTED}, {READ_UNCOMMITTED}"
        )
    return text


def _check_switch(name: str, text: str) -> str:
    if (found := text.strip().lower()) not in ("true", "false"):
        raise InvalidConfig(f"{name} = {text[:100]!r} is neither true nor false")
    return found


GROUP_KEYS: Final[Mapping[str, GroupKey]] = {
    SESSION: _number("group_consumer_session_timeout_ms"),
    HEARTBEAT: _number("group_consumer_heartbeat_interval_ms"),
    SHARE_SESSION: _number("group_share_session_timeout_ms"),
    SHARE_HEARTBEAT: _number("group_share_heartbeat_interval_ms"),
    SHARE_RECORD_LOCK: _number("group_share_record_lock_duration_ms"),
    SHARE_DELIVERIES: _number("group_share_delivery_count_limit"),
    SHARE_RECORD_LOCKS: _number("group_share_partition_max_record_locks"),
    SHARE_RESET: GroupKey(
        "string",
        "",
        "latest",
        "Where a share group begins in a partition that it has nothing of: earliest, latest, or "
        "by_duration:PnDTnHnMn.nS for so long ago.",
        _check_reset,
    ),
    SHARE_ISOLATION: GroupKey(
        "string",
        "",
        READ_UNCOMMITTED,
        "Whether a share group gets records of transactions only when they are committed "
        "(read_committed), or of all transactions, also aborted ones (read_uncommitted).",
        _check_isolation,
    ),
    SHARE_RENEW: GroupKey(
        "boolean",
        "",
        "true",
        "Whether members of a share group may renew their hold of a record.",
        _check_switch,
    ),
    **{
        f"{kind}.assignment.interval.ms": _without_effect(f"group.{kind}.assignment.interval.ms")
        for kind in ("consumer", "share", "streams")
    },
    STREAMS_SESSION: _number("group_streams_session_timeout_ms"),
    STREAMS_HEARTBEAT: _number("group_streams_heartbeat_interval_ms"),
    STREAMS_STANDBYS: _number("group_streams_num_standby_replicas"),
    STREAMS_INITIAL_DELAY: _number("group_streams_initial_rebalance_delay_ms"),
}

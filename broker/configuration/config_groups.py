"""Times and limits of groups, transactions and producers.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass
from typing import Final

from ..address import InvalidConfig
from .config_key import DAY_MS, key

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
_KNOWN: Final = (CLASSIC, CONSUMER, SHARE, STREAMS)


def parse_protocols(text: str) -> frozenset[str]:
    """The names in `group_protocols`.

    Raises:
        InvalidConfig: one that is not spoken here, or classic is missing.
    """
    names = frozenset(name.strip() for name in text.split(","))
    if unknown := sorted(names - set(_KNOWN)):
        raise InvalidConfig(
            f"group_protocols = {text!r}: {unknown[0]!r} is none of {', '.join(_KNOWN)}"
        )
    if CLASSIC not in names:
        raise InvalidConfig(f"group_protocols = {text!r}: {CLASSIC} cannot be left out")
    return names


@dataclass(frozen=True)
class GroupKeys:
    """See the module."""

    group_initial_rebalance_delay_ms: int = key(
        50,
        "How long the first member of an empty group waits for others to join in the same "
        "rebalance. Each further member prolongs the wait by as much, up to the rebalance timeout.",
        most=DAY_MS,
        kafka="group.initial.rebalance.delay.ms",
        dynamic=True,
    )
    group_min_session_timeout_ms: int = key(
        6_000,
        "Shortest session timeout that a member may ask for.",
        most=DAY_MS,
        kafka="group.min.session.timeout.ms",
        dynamic=True,
    )
    group_max_session_timeout_ms: int = key(
        1_800_000,
        "Longest session timeout that a member may ask for; a rebalance waits no longer than this"
        " for a member.",
        least=1,
        kafka="group.max.session.timeout.ms",
        dynamic=True,
    )
    group_size_max: int = key(
        10_000,
        "Maximum number of members of a group.",
        least=1,
        kafka="group.max.size",
        dynamic=True,
    )
    group_consumer_session_timeout_ms: int = key(
        45_000,
        "A member of the consumer protocol (KIP-848) that sends no heartbeat for this long is "
        "removed.",
        least=1,
        most=DAY_MS,
        kafka="group.consumer.session.timeout.ms",
        dynamic=True,
    )
    group_consumer_heartbeat_interval_ms: int = key(
        5_000,
        "How often the broker tells such a member to send a heartbeat; a new "
        "assignment reaches it no earlier.",
        least=1,
        most=DAY_MS,
        kafka="group.consumer.heartbeat.interval.ms",
        dynamic=True,
    )
    group_consumer_size_max: int = key(
        10_000,
        "Maximum number of members of a group of the consumer protocol.",
        least=1,
        kafka="group.consumer.max.size",
        dynamic=True,
    )
    group_consumer_migration_policy: str = key(
        "bidirectional",
        "Whether a classic group with members changes to the consumer protocol when a member that"
        " speaks it joins (upgrade), and back when the last such member has left (downgrade). Where"
        " it is disabled no classic member may join a group of the consumer protocol either.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        kafka="group.consumer.migration.policy",
    )
    group_share_session_timeout_ms: int = key(
        45_000,
        "A member of a share group (KIP-932) that sends no heartbeat for this long is removed.",
        least=1,
        most=DAY_MS,
        kafka="group.share.session.timeout.ms",
        dynamic=True,
    )
    group_share_heartbeat_interval_ms: int = key(
        5_000,
        "How often the broker tells such a member to send a heartbeat; a new "
        "assignment reaches it no earlier.",
        least=1,
        most=DAY_MS,
        kafka="group.share.heartbeat.interval.ms",
        dynamic=True,
    )
    group_share_size_max: int = key(
        200,
        "Maximum number of members of a share group.",
        least=1,
        most=1_000,
        kafka="group.share.max.size",
        dynamic=True,
    )
    group_share_record_lock_duration_ms: int = key(
        30_000,
        "How long a member of a share group holds a record that it was given; then the record is "
        "available to others.",
        least=1_000,
        most=3_600_000,
        kafka="group.share.record.lock.duration.ms",
        dynamic=True,
    )
    group_share_delivery_count_limit: int = key(
        5,
        "How often a record is delivered to a share group at most; then it is archived.",
        least=2,
        most=25,
        kafka="group.share.delivery.count.limit",
        dynamic=True,
    )
    group_share_partition_max_record_locks: int = key(
        2_000,
        "Maximum number of offsets, in a partition, between a share group's first unfinished "
        "record and the last one handed out.",
        least=100,
        most=10_000,
        kafka="group.share.partition.max.record.locks",
        dynamic=True,
    )
    group_share_max_share_sessions: int = key(
        2_000,
        "Maximum number of share sessions, all members together; a further one is refused.",
        least=1,
        kafka="group.share.max.share.sessions",
        dynamic=True,
    )
    group_streams_session_timeout_ms: int = key(
        45_000,
        "A member of a streams group (KIP-1071) that sends no heartbeat for this long is removed.",
        least=1,
        most=DAY_MS,
        kafka="group.streams.session.timeout.ms",
        dynamic=True,
    )
    group_streams_heartbeat_interval_ms: int = key(
        5_000,
        "How often the broker tells such a member to send a heartbeat; other "
        "tasks reach it no earlier.",
        least=1,
        most=DAY_MS,
        kafka="group.streams.heartbeat.interval.ms",
        dynamic=True,
    )
    group_streams_size_max: int = key(
        1_000,
        "Maximum number of members of a streams group: threads of an application.",
        least=1,
        most=10_000,
        kafka="group.streams.max.size",
        dynamic=True,
    )
    group_streams_num_standby_replicas: int = key(
        0,
        "How many other instances of an application keep a copy of the state of each task.",
        most=10,
        kafka="group.streams.num.standby.replicas",
        dynamic=True,
    )
    group_streams_initial_rebalance_delay_ms: int = key(
        3_000,
        "How long the first member of an empty streams group waits for others, until tasks are "
        "assigned.",
        most=DAY_MS,
        kafka="group.streams.initial.rebalance.delay.ms",
        dynamic=True,
    )
    group_protocols: str = key(
        "classic,consumer,share,streams",
        "Protocols that members of groups may speak, separated by commas. Without consumer, "
        "requests of KIP-848 are answered UNSUPPORTED_VERSION; without share, those of KIP-932; "
        "without streams, those of KIP-1071. classic cannot be left out.",
        kafka="group.coordinator.rebalance.protocols",
    )
    groups_max: int = key(100_000, "Maximum number of groups with members.", least=1, dynamic=True)
    group_kept_empty_ms: int = key(
        600_000,
        "A group without members and offsets is forgotten this long after its last member has "
        "left, its last offset was deleted by a request, a transaction has staged one, or after "
        "the start. Until then the numbers of its generations go on: by them workers of Kafka "
        "Connect know new assignments after all of them were restarted.",
        most=DAY_MS,
        dynamic=True,
    )
    offsets_retention_minutes: int = key(
        10_080,
        "Offsets of a group without members are forgotten this long after its last commit and its"
        " last member; those of a group that never had a member, and of topics that a group with "
        "members no longer reads, this long after their own commit. A commit may ask for another "
        "time (retention_time_ms).",
        least=1,
        kafka="offsets.retention.minutes",
        dynamic=True,
    )
    transaction_max_timeout_ms: int = key(
        900_000,
        "Longest transaction timeout that a producer may ask for; a longer one is refused.",
        least=1,
        kafka="transaction.max.timeout.ms",
        dynamic=True,
    )
    transactional_id_expiration_ms: int = key(
        7 * DAY_MS,
        "A transactional id that is not used for this long is forgotten.",
        least=1,
        most=365 * DAY_MS,
        kafka="transactional.id.expiration.ms",
        dynamic=True,
    )
    transactional_ids_max: int = key(
        100_000,
        "Maximum number of transactional ids; a further one is refused.",
        least=1,
        dynamic=True,
    )
    producer_id_expiration_ms: int = key(
        DAY_MS,
        "A partition forgets an idempotent producer this long after its last batch.",
        least=1,
        most=365 * DAY_MS,
        kafka="producer.id.expiration.ms",
        dynamic=True,
    )


def check_groups(config: GroupKeys) -> None:
    """Raises InvalidConfig: two of them do not go together."""
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise InvalidConfig(
            f"group_min_session_timeout_ms={config.group_min_session_timeout_ms} is above "
            f"group_max_session_timeout_ms={config.group_max_session_timeout_ms}"
        )
    for kind in (CONSUMER, SHARE, STREAMS):
        heartbeat, session = (
            f"group_{kind}_heartbeat_interval_ms",
            f"group_{kind}_session_timeout_ms",
        )
        heartbeat_ms, session_ms = getattr(config, heartbeat), getattr(config, session)
        if heartbeat_ms >= session_ms:
            raise InvalidConfig(f"{heartbeat}={heartbeat_ms} is not below {session}={session_ms}")
    parse_protocols(config.group_protocols)

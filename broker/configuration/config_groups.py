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


def parse_protocols(text: str) -> frozenset[str]:
    """The names in `group_protocols`.

    Raises:
        InvalidConfig: one that is not spoken here, or classic is missing.
    """
    names = frozenset(name.strip() for name in text.split(","))
    if unknown := sorted(names - {CLASSIC, CONSUMER, SHARE}):
        raise InvalidConfig(
            f"group_protocols = {text!r}: {unknown[0]!r} is none of {CLASSIC}, {CONSUMER}, {SHARE}"
        )
    if CLASSIC not in names:
        raise InvalidConfig(f"group_protocols = {text!r}: {CLASSIC} cannot be left out")
    return names


@dataclass(frozen=True)
class GroupKeys:
    """See the module."""

    group_initial_rebalance_delay_ms: int = key(
        50,
        "How long the first member of an empty group waits for others to join in the same round.",
        most=DAY_MS,
        kafka="group.initial.rebalance.delay.ms",
        dynamic=True,
    )
    group_min_session_timeout_ms: int = key(
        6_000,
        "Shortest session a member may ask for.",
        most=DAY_MS,
        kafka="group.min.session.timeout.ms",
        dynamic=True,
    )
    group_max_session_timeout_ms: int = key(
        1_800_000,
        "Longest session a member may ask for; a rebalance waits no longer for anybody.",
        least=1,
        kafka="group.max.session.timeout.ms",
        dynamic=True,
    )
    group_size_max: int = key(
        10_000, "Most members of one group.", least=1, kafka="group.max.size", dynamic=True
    )
    group_consumer_session_timeout_ms: int = key(
        45_000,
        "A member of the consumer protocol (KIP-848) that was not heard of for this long is gone.",
        least=1,
        most=DAY_MS,
        kafka="group.consumer.session.timeout.ms",
        dynamic=True,
    )
    group_consumer_heartbeat_interval_ms: int = key(
        5_000,
        "How often such a member is told to be heard of; it learns no earlier of a new assignment.",
        least=1,
        most=DAY_MS,
        kafka="group.consumer.heartbeat.interval.ms",
        dynamic=True,
    )
    group_consumer_size_max: int = key(
        10_000,
        "Most members of one group of the consumer protocol.",
        least=1,
        kafka="group.consumer.max.size",
        dynamic=True,
    )
    group_consumer_migration_policy: str = key(
        "bidirectional",
        "Whether a group with members turns to the consumer protocol when a member of that joins "
        "(upgrade), and back when the last one of that is gone (downgrade).",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        kafka="group.consumer.migration.policy",
    )
    group_share_session_timeout_ms: int = key(
        45_000,
        "A member of a share group (KIP-932) that was not heard of for this long is gone.",
        least=1,
        most=DAY_MS,
        kafka="group.share.session.timeout.ms",
        dynamic=True,
    )
    group_share_heartbeat_interval_ms: int = key(
        5_000,
        "How often such a member is told to be heard of; it learns no earlier of a new assignment.",
        least=1,
        most=DAY_MS,
        kafka="group.share.heartbeat.interval.ms",
        dynamic=True,
    )
    group_share_size_max: int = key(
        200,
        "Most members of one share group.",
        least=1,
        most=1_000,
        kafka="group.share.max.size",
        dynamic=True,
    )
    group_share_record_lock_duration_ms: int = key(
        30_000,
        "How long a member of a share group holds a record that it was given: then others get it.",
        least=1_000,
        most=3_600_000,
        kafka="group.share.record.lock.duration.ms",
        dynamic=True,
    )
    group_share_delivery_count_limit: int = key(
        5,
        "How often a share group is given a record at most; then it is as if it were rejected.",
        least=2,
        most=25,
        kafka="group.share.delivery.count.limit",
        dynamic=True,
    )
    group_share_partition_max_record_locks: int = key(
        2_000,
        "Most records of a partition that a share group works on at once.",
        least=100,
        most=10_000,
        kafka="group.share.partition.max.record.locks",
        dynamic=True,
    )
    group_share_max_share_sessions: int = key(
        2_000,
        "Most share sessions of all members together; a further one is refused.",
        least=1,
        kafka="group.share.max.share.sessions",
        dynamic=True,
    )
    group_protocols: str = key(
        "classic,consumer,share",
        "Protocols that members of groups may speak, with commas between. Without consumer, "
        "requests of KIP-848 are answered UNSUPPORTED_VERSION, without share those of KIP-932; "
        "classic cannot be left out.",
        kafka="group.coordinator.rebalance.protocols",
    )
    groups_max: int = key(100_000, "Most groups with members at once.", least=1, dynamic=True)
    group_kept_empty_ms: int = key(
        600_000,
        "A group without members and offsets is forgotten this long after it lost its last member, "
        "or after the start. Until then its next generation counts on, by which workers of Kafka "
        "Connect tell new from old after all of them were away.",
        most=DAY_MS,
        dynamic=True,
    )
    offsets_retention_minutes: int = key(
        10_080,
        "Offsets of a group without members are forgotten this long after its last commit and its "
        "last member; in a group that never had any, and of topics that a group with members left, "
        "this long after their own commit. A commit may ask for another time (retention_time_ms).",
        least=1,
        kafka="offsets.retention.minutes",
        dynamic=True,
    )
    transaction_max_timeout_ms: int = key(
        900_000,
        "Longest time that a transaction may ask to be open; a longer one is refused.",
        least=1,
        kafka="transaction.max.timeout.ms",
        dynamic=True,
    )
    transactional_id_expiration_ms: int = key(
        7 * DAY_MS,
        "A transactional id that nothing happened to for this long is forgotten.",
        least=1,
        most=365 * DAY_MS,
        kafka="transactional.id.expiration.ms",
        dynamic=True,
    )
    transactional_ids_max: int = key(
        100_000, "Most transactional ids at once; a further one is refused.", least=1, dynamic=True
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
    for kind in (CONSUMER, SHARE):
        heartbeat, session = (
            f"group_{kind}_heartbeat_interval_ms",
            f"group_{kind}_session_timeout_ms",
        )
        heartbeat_ms, session_ms = getattr(config, heartbeat), getattr(config, session)
        if heartbeat_ms >= session_ms:
            raise InvalidConfig(f"{heartbeat}={heartbeat_ms} is not below {session}={session_ms}")
    parse_protocols(config.group_protocols)

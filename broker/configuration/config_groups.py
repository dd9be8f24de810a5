"""Times and limits of groups, transactions and producers.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass
from typing import Final

from ..address import InvalidConfig
from .config_key import DAY_MS, key

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


def parse_protocols(text: str) -> frozenset[str]:
    """The names in `group_protocols`.

    Raises:
        InvalidConfig: one that is not spoken here, or classic is missing.
    """
    names = frozenset(name.strip() for name in text.split(","))
    if unknown := sorted(names - {CLASSIC, CONSUMER}):
        raise InvalidConfig(
            f"group_protocols = {text!r}: {unknown[0]!r} is none of {CLASSIC}, {CONSUMER}"
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
    group_protocols: str = key(
        "classic,consumer",
        "Protocols that members of groups may speak, with commas between. Without consumer, "
        "requests of KIP-848 are answered UNSUPPORTED_VERSION; classic cannot be left out.",
        kafka="group.coordinator.rebalance.protocols",
    )
    groups_max: int = key(100_000, "Most groups with members at once.", least=1, dynamic=True)
    group_kept_empty_ms: int = key(
        600_000,
        "A group without members and offsets is forgotten this long after it lost its last member, "
        "or after the start. Until then its next generation counts on, by which workers of Kafka "
        "Connect tell new from old after all of them were away.",
        most=DAY_MS,
        kafka="offsets.retention.check.interval.ms",
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

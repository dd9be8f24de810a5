"""How a group with members turns from one protocol to the other.

| from | when | to |
|---|---|---|
| classic | a member of KIP-848's protocol joins | a KIP-848 group at the epoch of the generation |
| KIP-848 | all of its members are classic ones | a classic group in a rebalance |

What a classic member may be reading then is what it was told last, and what it said when it joined
that it still had: nobody else is given that before it has joined again.  It does so because its
next heartbeat is answered REBALANCE_IN_PROGRESS; a join or sync that waits is answered the same.

Where a group cannot turn it stays what it is, and who joins is refused with 69 GROUP_ID_NOT_FOUND.
Kafka's rules: its members are consumers whose subscriptions can be read, and its assignor has
put nothing into the assignments for itself, as Kafka Streams does: that would be lost.  Of the
assignors that every client brings nobody reads such words, though librdkafka writes some.

Invariant: of what members may be reading no partition is with two.
"""

from collections.abc import Callable, Mapping
from typing import Final

from segbroker.protocol.consumer_protocol import (
    assigned_partitions,
    assignment_user_data,
    encode_assignment,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.consumer_groups import Classic, Has, KeptGroup, Says
from segbroker.segments.metadata.generations import Generation, KeptMember

from ..configuration.config import BrokerConfig
from ..refused import Refused
from .classic_members import (
    PROTOCOL_TYPE,
    assignment_version,
    metadata_size,
    partitions_of,
    subscription_of,
)
from .consumer_group import ConsumerGroup
from .consumer_members import MaySee, Reconciled
from .consumer_target import Topic
from .group import Group
from .group_members import Member
from .kept_sizes import GROUP_SIZE_MAX
from .server_assignors import Partition

_WORDLESS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors of clients whose assignments say nothing beside the partitions to anybody."""


def check_upgrade(group: Group, config: BrokerConfig) -> None:
    """Whether a classic group with members may turn at all.  Raises Refused."""
    if config.group_consumer_migration_policy not in ("upgrade", "bidirectional"):
        raise _cannot_turn(group, "to upgrade it is disabled")
    if len(group.members) > config.group_consumer_size_max:
        raise _cannot_turn(group, f"it has {len(group.members)} members")


def check_mixing(config: BrokerConfig) -> None:
    """Whether a classic member may join a KIP-848 group with members at all.  Raises Refused."""
    if config.group_consumer_migration_policy == "disabled":
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "migration is disabled")


def may_downgrade(group: ConsumerGroup, config: BrokerConfig) -> bool:
    """Whether a KIP-848 group is to turn back."""
    if config.group_consumer_migration_policy not in ("downgrade", "bidirectional"):
        return False
    return group.has_classic_alone and len(group.members) <= config.group_size_max


def upgrade(
    now_ms: int,
    group: Group,
    made: ConsumerGroup,
    topics: Mapping[str, Topic],
    may_see: Callable[[str], MaySee],
) -> None:
    """Have `made` go on with the members of a classic group.  Raises Refused: it cannot."""
    made.restore(now_ms, _as_consumer(group, topics, made.target.assignor), frozenset(), may_see)
    made.has_turned = True
    made.unkept.update(made.members)


def downgrade(
    now_ms: int, group: ConsumerGroup, made: Group, topics: Mapping[str, Topic]
) -> Generation:
    """Have `made` go on with the members of a KIP-848 group; what is to be written down of it."""
    kept = _as_classic(group, topics)
    made.restore(now_ms, kept, frozenset())
    for member_id, ends_ms in group.given.items():
        made.give(member_id, ends_ms)
    return kept


def _as_consumer(group: Group, topics: Mapping[str, Topic], assignor: str) -> KeptGroup:
    size = sum(metadata_size(one.protocols) + len(one.held) for one in group.members.values())
    if size > GROUP_SIZE_MAX:
        raise _cannot_turn(group, f"what its members say and have is {size} bytes")
    members: dict[str, tuple[Says, Has]] = {}
    has = {name: _told(group, one, topics) for name, one in group.members.items()}
    taken = {partition for mine in has.values() for partition in mine}
    if len(taken) != sum(map(len, has.values())):
        raise _cannot_turn(group, "two of its members have one partition")
    for member_id, member in group.members.items():
        names, claimed, _ = _subscription(group, member, topics)
        assigned = tuple(sorted(has[member_id]))
        revoking = tuple(sorted(claimed - taken))
        taken.update(revoking)
        state = Reconciled.REVOKING if revoking else Reconciled.STABLE
        says = Says(
            member.instance_id,
            None,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            names,
            "",
            "",
            None,
            Classic(member.session_timeout_ms, member.protocols),
        )
        epoch = group.earlier.get(member_id, group.generation)
        members[member_id] = says, Has(epoch, epoch, state.value, assigned, revoking, assigned)
    return KeptGroup(group.generation, group.generation, assignor, members)


def _told(group: Group, member: Member, topics: Mapping[str, Topic]) -> frozenset[Partition]:
    """What a member was told last that it has."""
    if not member.held:
        return frozenset()
    mine = assigned_partitions(member.held)
    if mine is None:
        raise _cannot_turn(group, "the assignments are not those of consumers")
    if group.protocol not in _WORDLESS and assignment_user_data(member.held):
        # Kafka's sentence: clients hand it on.
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to consumer group because an "
            "unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade.",
        )
    return partitions_of(mine, topics)


def _subscription(
    group: Group, member: Member, topics: Mapping[str, Topic]
) -> tuple[frozenset[str], frozenset[Partition], int | None]:
    """What a member subscribes to, what it had when it joined, and of which generation."""
    subscribed = subscription_of(member.protocols, topics)
    if subscribed is None or group.protocol_type != PROTOCOL_TYPE:
        raise _cannot_turn(group, "the subscriptions are not those of consumers")
    return subscribed


def _cannot_turn(group: Group, why: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"{group.group_id!r} is a classic group, and {why}"
    )


def _as_classic(group: ConsumerGroup, topics: Mapping[str, Topic]) -> Generation:
    """A KIP-848 group of classic members as the generation that they share out anew.

    Nobody leads it, so that it is never taken for one that is shared out: not after a restart
    either.  It is that of the target, which is the latest epoch that anybody was told; who was not
    stays at its own until the rebalance ends, over a restart too: it may commit what it has read.
    """
    number = group.assignment_epoch
    names = {topic.topic_id.bytes: name for name, topic in topics.items()}
    members = []
    for member in group.members.values():
        assert member.classic is not None, "there are others"
        reads = member.assigned | member.revoking
        mine = [(names[topic_id], index) for topic_id, index in reads if topic_id in names]
        members.append(
            KeptMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
                encode_assignment(mine, assignment_version(member.classic)),
            )
        )
    earlier = {one.member_id: one.epoch for one in group.members.values() if one.epoch != number}
    return Generation(number, PROTOCOL_TYPE, "", "", tuple(members), earlier)

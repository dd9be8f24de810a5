"""Classic members of a KIP-848 group: what JoinGroup, SyncGroup and Heartbeat are to it.

A group has members of both protocols while its clients move from one to the other.  Its broker
assigns; a classic member hears of that in its own words:

    Heartbeat    alive; REBALANCE_IN_PROGRESS when there is a step to take, which is a JoinGroup
    JoinGroup    what it subscribes to and still has: answered by its epoch, as the generation,
                 without waiting for others; nobody leads
    SyncGroup    its partitions

| a member has a step to take when | and joins again with |
|---|---|
| its group is at a later epoch | what it still has; an eager one has given up all |
| it was told to let go of partitions | those that are left |
| what it waits for is free, all of it | what it has |

Who was told so and does not join, or has joined and does not sync, for its rebalance time is
dropped; so is who was not heard of for the session that it asked for.

A JoinGroup that came late is not taken for a member that has let go: `still_has` of a member.

Limits: the metadata of a JoinGroup are METADATA_MAX bytes at most, as they are read in one go.
`size_max` ids are given to be joined with; they are forgotten with the broker, and joined
with in vain then.
Source: Kafka's GroupMetadataManager; KIP-848, "Upgrade and Downgrade".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from segbroker.protocol.consumer_protocol import decode_subscription, encode_assignment
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.consumer_groups import Classic

from ..refused import Refused
from .consumer_group import ConsumerGroup
from .consumer_members import Beat, ConsumerMember, Reconciled
from .consumer_target import Topic
from .group_members import Joined, Joining, Synced
from .member_epochs import JOIN
from .server_assignors import Partition

PROTOCOL_TYPE: Final = "consumer"

ASSIGNMENT_VERSION_MAX: Final = 3
"""Kafka's latest; a client of later ones reads it, too."""

METADATA_MAX: Final = 1 << 20
"""Bytes of all that a member says; a group with more could hardly be written down."""


def join(
    group: ConsumerGroup,
    now_ms: int,
    joining: Joining,
    new_member_id: Callable[[str], str],
    topics: Mapping[str, Topic],
) -> Joined:
    """A member joins, or joins again.  Raises Refused."""
    _check_protocols(group, joining)
    _check_size(joining)
    member_id = joining.member_id
    if member_id:
        joining = _identified(group, joining)
    else:
        member_id = new_member_id(joining.instance_id or joining.client_id)
        if joining.wants_id_first and joining.instance_id is None:
            if max(len(group.given), len(group.members)) >= group.size_max:
                raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "too many members")
            group.give(member_id, now_ms + joining.session_timeout_ms)
            return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    beat = _beat(joining, topics)._replace(member_id=member_id)
    told = group.heartbeat(now_ms, beat, topics)
    group.given.pop(told.member_id, None)
    member = group.members[told.member_id]
    member.has_synced = member.has_to_join = False
    _acts_until(group, member, now_ms + member.rebalance_timeout_ms)
    return Joined(
        ErrorCode.NONE, told.member_id, told.epoch, PROTOCOL_TYPE, next(iter(joining.protocols))
    )


def _check_protocols(group: ConsumerGroup, joining: Joining) -> None:
    """Classic members have a protocol that all of them know: what they need to be on their own."""
    names = set(joining.protocols)
    for member in group.members.values():
        if member.classic is not None and not _is_same(member, joining):
            names &= member.classic.protocols.keys()
    if joining.protocol_type != PROTOCOL_TYPE or not names:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"no protocol of {sorted(joining.protocols)} is one of all classic members",
        )


def _check_size(joining: Joining) -> None:
    size = metadata_size(joining.protocols)
    if size > METADATA_MAX:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the metadata of its protocols are {size} bytes; {METADATA_MAX} are allowed",
        )


def metadata_size(protocols: Mapping[str, bytes]) -> int:
    """Bytes of all that a member says."""
    return sum(map(len, protocols.values()))


def _is_same(member: ConsumerMember, joining: Joining) -> bool:
    """Whether a member is the one that joins."""
    if joining.instance_id is not None and member.instance_id == joining.instance_id:
        return True
    return member.member_id == joining.member_id


def _identified(group: ConsumerGroup, joining: Joining) -> Joining:
    """A member that names its id, with the instance that it is.  Raises Refused."""
    member_id, instance_id = joining.member_id, joining.instance_id
    holder = member_id if instance_id is None else group.static.get(instance_id, "")
    if holder not in ("", member_id):
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id!r} is member {holder!r} now")
    member = group.members.get(member_id)
    is_here = member is not None and instance_id in (None, member.instance_id)
    if not is_here and member_id not in group.given:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member")
    # Its id says who it is; a static member may leave out which instance it is.
    return joining if member is None else joining._replace(instance_id=member.instance_id)


def _beat(joining: Joining, topics: Mapping[str, Topic]) -> Beat:
    """A JoinGroup as the heartbeat that it is to the group."""
    subscribed = subscription_of(joining.protocols, topics)
    if subscribed is None:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the metadata are no subscription")
    names, owned, generation = subscribed
    return Beat(
        joining.member_id,
        JOIN,
        joining.instance_id,
        None,
        joining.client_id,
        joining.client_host,
        joining.rebalance_timeout_ms,
        names,
        "",
        None,
        owned,
        classic=Classic(joining.session_timeout_ms, joining.protocols),
        generation=generation,
        reason=joining.reason,
    )


def subscription_of(
    protocols: Mapping[str, bytes], topics: Mapping[str, Topic]
) -> tuple[frozenset[str], frozenset[Partition], int | None] | None:
    """The names that a member subscribes to, what it has, and of which generation it says so.

    Of any of its protocols it says the same.  A generation of None: its version has none.
    None: these are not the words of a consumer.
    """
    found = [decode_subscription(metadata) for metadata in protocols.values()]
    said = [one for one in found if one is not None]
    if not said or len(said) != len(found):
        return None
    owned = [partitions_of(one.owned, topics) for one in said]
    generation = said[0].generation if said[0].version >= 2 else None
    return frozenset(said[0].topics), frozenset().union(*owned), generation


def partitions_of(
    rows: Iterable[tuple[str, int]], topics: Mapping[str, Topic]
) -> frozenset[Partition]:
    """Partitions by the names of their topics; those that there are not are left out."""
    return frozenset(
        (topics[name].topic_id.bytes, index)
        for name, index in rows
        if name in topics and 0 <= index < topics[name].partitions
    )


def sync(
    group: ConsumerGroup,
    now_ms: int,
    member_id: str,
    instance_id: str | None,
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    name_of: Callable[[bytes], str | None],
) -> Synced:
    """A member that has joined asks for its partitions.

    name_of: the name of a topic, by its id; None: there is none.
    """
    member = _member(group, member_id, instance_id, generation)
    if isinstance(member, ErrorCode):
        return Synced(member)
    assert member.classic is not None, "checked"
    speaks = next(iter(member.classic.protocols))
    if protocol_type not in (None, PROTOCOL_TYPE) or protocol not in (None, speaks):
        return Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # Who lets go of partitions has joined for it, and does so by what it is told now.
    if member.epoch < group.epoch and member.reconciled is not Reconciled.REVOKING:
        _must_join(group, now_ms, member)
        return Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    member.acts_until_ms = None
    member.has_synced = True
    group.heard_of(now_ms, member)
    named = [(name_of(topic_id), index) for topic_id, index in member.assigned]
    mine = [(name, index) for name, index in named if name is not None]
    version = assignment_version(member.classic)
    return Synced(ErrorCode.NONE, PROTOCOL_TYPE, speaks, encode_assignment(mine, version))


def assignment_version(classic: Classic) -> int:
    """In which version a member is told its partitions: that in which it says what it wants."""
    said = decode_subscription(next(iter(classic.protocols.values())))
    return 0 if said is None else max(0, min(said.version, ASSIGNMENT_VERSION_MAX))


def heartbeat(
    group: ConsumerGroup,
    now_ms: int,
    member_id: str,
    instance_id: str | None,
    generation: int,
    topics: Mapping[str, Topic],
    *,
    said_ms: int | None = None,
) -> ErrorCode:
    """A member is alive; whether it has a step to take.

    said_ms: when it said so, if not now: its session goes by that, its step by now.
    """
    member = _member(group, member_id, instance_id, generation)
    if isinstance(member, ErrorCode):
        return member
    group.heard_of(now_ms if said_ms is None else said_ms, member)
    if member.has_synced and member.reconciled is Reconciled.REVOKING:
        member.knows_to_let_go = True
    group.look(topics)
    if not _has_step(group, member):
        return ErrorCode.NONE
    _must_join(group, now_ms, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _has_step(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.epoch:  # so is who was told to let go of something
        return True
    if member.reconciled is Reconciled.STABLE:
        return False
    lacks = set(group.target.of(member.member_id)) - member.assigned
    return all(partition not in group.owners for partition in lacks)


def _must_join(group: ConsumerGroup, now_ms: int, member: ConsumerMember) -> None:
    if member.acts_until_ms is None:
        member.has_to_join = True
        _acts_until(group, member, now_ms + member.rebalance_timeout_ms)


def _acts_until(group: ConsumerGroup, member: ConsumerMember, until_ms: int) -> None:
    member.acts_until_ms = until_ms
    group.due_at(until_ms)


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember | ErrorCode:
    """The classic member that asks, or what is wrong with it."""
    if instance_id is not None and group.static.get(instance_id, member_id) != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    # Its id says who it is; a static member may leave out which instance it is.
    if (
        member is None
        or member.classic is None
        or (instance_id or None) not in (None, member.instance_id)
    ):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION

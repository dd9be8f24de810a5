"""How much members of groups say, in bytes: what of it may be large (member_room.py counts it).

The texts of each member, the names of each different subscription, the assignments of a classic
group, a topology; and the name of the group.  Numbers, and what a limit keeps short, are left out.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from .consumer_group import ConsumerGroup
from .consumer_members import Beat, ConsumerMember
from .group import Group
from .group_members import Joining, Member
from .offset_expiry import AnyGroup
from .share_group import ShareGroup, ShareMember
from .streams_group import StreamsGroup
from .streams_members import Says, StreamsBeat
from .streams_topology import Topology

NAME_SIZE: Final = 96
"""Bytes that a name in a set takes beside its characters."""

Key: TypeAlias = str | int
"""Whose it is, in a group: the id of a member, the hash of the names of a subscription."""
WHOLE: Final = -1
"""What a group has once: its assignments, or its topology.  No hash is that."""
NAME: Final = 1 << 64
"""Its name.  Nor is any hash that."""


def names_size(names: Iterable[str]) -> int:
    """What the names of a subscription take, in bytes."""
    return sum(len(name) + NAME_SIZE for name in names)


def classic_size(one: Joining | Member) -> int:
    """What a classic member says, in bytes; its id is given to it, and begins with less."""
    return _protocols_size(one.protocols) + _texts_size(one.client_id, one.instance_id)


def _protocols_size(protocols: Mapping[str, bytes]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols.items())


def _texts_size(*texts: str | None) -> int:
    return sum(len(text) for text in texts if text is not None)


def consumer_size(one: Beat | ConsumerMember) -> int:
    """What a member of a KIP-848 group says beside names, in bytes; a heartbeat may say less than
    that."""
    size = _texts_size(one.member_id, one.client_id, one.instance_id, one.rack_id, one.regex)
    return size if one.classic is None else size + _protocols_size(one.classic.protocols)


def share_size(one: ShareMember) -> int:
    """The same of a share group."""
    return _texts_size(one.member_id, one.client_id, one.rack_id)


def streams_size(said: StreamsBeat | Says) -> int:
    """The same of a streams group; its other texts are short."""
    pairs = said.tags or ()
    return _texts_size(said.client_id) + sum(_texts_size(key, value) for key, value in pairs)


def topology_size(topology: Topology) -> int:
    """What a topology takes, in bytes."""
    size = names_size(topology.topics)
    for one in topology.subtopologies:
        size += names_size([one.subtopology_id])
        for topic in (*one.repartitions, *one.changelogs):
            size += sum(names_size(pair) for pair in topic.configs)
    return size


def sizes_in(
    group: AnyGroup | ShareGroup,
) -> dict[Key, Callable[[], int]]:
    """What there is of a group that may be large, and what tells its size: that takes longer."""
    found: dict[Key, Callable[[], int]] = {NAME: partial(len, group.group_id)}
    if isinstance(group, Group):
        for classic in group.members.values():
            found[classic.member_id] = partial(classic_size, classic)
        if group.members:
            found[WHOLE] = partial(_assignments_size, group)
    elif isinstance(group, ConsumerGroup):
        for member in group.members.values():
            found[member.member_id] = partial(consumer_size, member)
            found[hash(member.names)] = partial(names_size, member.names)
    elif isinstance(group, StreamsGroup):
        for worker in group.members.values():
            found[worker.member_id] = partial(streams_size, worker.said)
        if group.topology is not None:
            found[WHOLE] = partial(topology_size, group.topology)
    else:
        for sharer in group.members.values():
            found[sharer.member_id] = partial(share_size, sharer)
            found[hash(sharer.names)] = partial(names_size, sharer.names)
    return found


def _assignments_size(group: Group) -> int:
    return sum(len(one.assignment) for one in group.members.values())

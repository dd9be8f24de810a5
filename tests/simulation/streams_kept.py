"""What is written down of streams groups is what they are: a start that finds it goes on with them.

Looked at from within, at moments in which nothing of a group is under way or has failed.
"""

from segbroker.broker.core import Core
from segbroker.broker.groups.kept_streams import kept_member

from .world import World


def check_kept(world: World, core: Core, names: list[str]) -> None:
    """Complain about members that would come back as others.  names: of the groups."""
    groups = core.groups
    for name in names if groups.is_open else ():
        group, writing = groups.get_streams(name), groups._streams._writings.get(name)
        if group is None or group.unkept or writing is None:
            continue
        if writing.is_under_way or writing.has_failed or writing.is_over:
            continue
        kept = groups._streams.find(name)
        members = {} if kept is None else dict(kept.members)
        if members != {one: kept_member(group, one) for one in group.members}:
            world.lapse(f"members of {name} are not those that are written down: {members}")
        if kept is not None and not kept.is_sound:
            world.lapse(f"what is written down of {name} contradicts itself")

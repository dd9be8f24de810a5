"""Answers to members that wait until what they tell is durable.

| what has become of the change | the member is answered |
|---|---|
| it is durable | what is to be told |
| durable, but the member was dropped meanwhile | 25 UNKNOWN_MEMBER_ID: it joins again |
| not durable | 15 COORDINATOR_NOT_AVAILABLE: it asks again |

For the heartbeats of consumer and streams groups, and for classic members of a consumer group, each
in words of its own.  How long that takes, and how many may wait, says groups/kept_members.py.
"""

from collections.abc import Callable
from typing import TypeAlias

from segbroker.protocol.errors import ErrorCode

from ..core import Core
from ..groups.consumer_group import ConsumerGroup
from ..groups.consumer_members import Beat
from ..groups.member_epochs import JOIN
from ..groups.streams_group import StreamsGroup
from ..groups.streams_members import StreamsBeat
from ..refused import Refused

Refuse: TypeAlias = Callable[[ErrorCode, str], None]


def when_kept(
    core: Core,
    group: ConsumerGroup | StreamsGroup,
    member_id: str,
    tell: Callable[[], None],
    refuse: Refuse,
) -> None:
    """A group was changed by a member: `tell` it when what is known of it is durable, if nothing
    has become of it meanwhile."""
    member = group.members.get(member_id)

    def kept(error: OSError | None) -> None:
        if error is not None:
            _not_durable(error, refuse)
        elif group.members.get(member_id) is not member:
            # Dropped meanwhile: another may be told in the same turn that it has what this one had.
            refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member any more")
        else:
            tell()

    core.groups.when_kept(group, member_id, kept)
    core.groups.changed(group)


def refuse_when_kept(
    core: Core,
    group: ConsumerGroup | StreamsGroup,
    beat: Beat | StreamsBeat,
    refused: Refused,
    refuse: Refuse,
) -> None:
    """A heartbeat is refused.  Who leaves may have left before, and asks again: when that is
    durable."""

    def kept(error: OSError | None) -> None:
        if error is not None:
            _not_durable(error, refuse)
        else:
            refuse(refused.code, refused.message)

    if beat.epoch < JOIN:
        core.groups.when_kept(group, beat.member_id, kept)
    else:
        kept(None)


def _not_durable(error: OSError, refuse: Refuse) -> None:
    refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"what was to be told is not durable: {error}")

"""Requests of classic members whose group is one of KIP-848's protocol.

What they are told is durable first, as for the others in such a group (kept_answers.py).
"""

from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import HeartbeatRequest, SyncGroupRequest

from ..core import Core
from ..groups import classic_members
from ..groups.consumer_group import ConsumerGroup
from ..groups.group_members import (
    Joined,
    Joining,
    OnJoined,
    OnSynced,
    Synced,
    new_member_id,
)
from ..groups.group_turning import check_mixing
from ..groups.member_sizes import consumer_size
from ..loop.loop_clock import monotonic_ms
from ..refused import Refused
from .kept_answers import when_kept


def join(core: Core, group: ConsumerGroup, joining: Joining, before: str, done: OnJoined) -> None:
    """JoinGroup: answered when the group knows it for good.  before: the id by which it was known,
    if it was."""
    try:
        check_mixing(core.groups.config)
        joined = classic_members.join(
            group, monotonic_ms(), joining, new_member_id, core.topics.all
        )
    except Refused as exc:
        done(Joined(exc.code, ""))  # as Kafka, which names a member only with an id to join with
        return

    if (member := group.members.get(joined.member_id)) is not None:
        core.groups.room.put(group.group_id, before, 0)
        core.groups.room.put(group.group_id, joined.member_id, consumer_size(member))

    def refuse(code: ErrorCode, _: str) -> None:
        done(Joined(code, joining.member_id))

    when_kept(core, group, joined.member_id, lambda: done(joined), refuse)


def sync(core: Core, group: ConsumerGroup, request: SyncGroupRequest, done: OnSynced) -> None:
    """SyncGroup: its partitions."""

    def name_of(topic_id: bytes) -> str | None:
        meta = core.topics.by_id(UUID(bytes=topic_id))
        return None if meta is None else meta.name

    synced = classic_members.sync(
        group,
        monotonic_ms(),
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        name_of,
    )

    member = group.members.get(request.member_id)
    has = None if member is None or synced.code else frozenset(member.assigned)

    def tell() -> None:
        if has is not None:
            group.was_told(monotonic_ms(), request.member_id, has)
            core.groups.look_by_then(group)
        done(synced)

    def refuse(code: ErrorCode, _: str) -> None:
        done(Synced(code))

    when_kept(core, group, request.member_id, tell, refuse)


def heartbeat(
    core: Core, group: ConsumerGroup, request: HeartbeatRequest, said_ms: int
) -> ErrorCode:
    """Heartbeat: whether it has a step to take.  said_ms: sign_of_life.py."""
    code = classic_members.heartbeat(
        group,
        monotonic_ms(),
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        core.topics.all,
        said_ms=said_ms,
    )
    core.groups.changed(group)
    return code

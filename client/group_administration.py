"""What an admin client asks about groups of all kinds, as calls (see engine)."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
)
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from segbroker.protocol.messages_share_groups import (
    ShareGroupDescribeRequest,
)
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupDescribeRequest,
)
from segbroker.protocol.schema import Message

from .asking import look, refused, until_it_lasts
from .coordinator import GROUP_KEY, Coordinator
from .engine import Call, Engine
from .errors import UnsupportedByBroker, check_code
from .group_descriptions import (
    DEAD,
    GroupDescription,
    of_classic,
    of_consumers,
    of_sharers,
    of_streams,
)
from .group_offsets import OUTSIDE, CommittedOffset, as_offsets, commit_offsets, fetch_offsets
from .records import ByPartition, TopicPartition

NO_SUCH_GROUP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Nor is there one where the broker is told to have none."""


Describing: TypeAlias = (
    ConsumerGroupDescribeRequest | ShareGroupDescribeRequest | StreamsGroupDescribeRequest
)
Described: TypeAlias = GroupDescription | None
SHOWN: Final[dict[type[Describing], Callable[[Any], GroupDescription]]] = {
    ConsumerGroupDescribeRequest: of_consumers,
    ShareGroupDescribeRequest: of_sharers,
    StreamsGroupDescribeRequest: of_streams,
}
"""By what groups of each newer type are asked about, and how an answer is shown."""


class GroupListing(NamedTuple):
    """A group, as a list has it.  `state` is empty where the broker does not say, `protocol_type`
    where nobody was ever in it."""

    group_id: str
    state: str
    protocol_type: str
    group_type: str = ""


def list_groups(engine: Engine) -> Call[list[GroupListing]]:
    """All groups of all brokers, by name."""
    check = refused("list of groups")
    known = yield from look(engine, MetadataRequest(topics=[]), MetadataResponse)
    found = []
    for broker in known.brokers:
        to = broker.node_id
        reply = yield from look(engine, ListGroupsRequest(), ListGroupsResponse, check, to=to)
        found += [
            GroupListing(row.group_id, row.group_state, row.protocol_type, row.group_type.lower())
            for row in reply.groups
        ]
    return sorted(found)


def describe_group(engine: Engine, group_id: str) -> Call[GroupDescription]:
    """State and members of one group, whichever protocol its members speak."""
    return until_it_lasts(engine, lambda: _describe_group(engine, group_id))


def _describe_group(engine: Engine, group_id: str) -> Call[GroupDescription]:
    described = yield from _maybe_describe(engine, group_id, ConsumerGroupDescribeRequest)
    if described is None:
        described = yield from _describe_classic(engine, group_id)
    for kind in (ShareGroupDescribeRequest, StreamsGroupDescribeRequest):
        if described.state == DEAD:
            described = (yield from _maybe_describe(engine, group_id, kind)) or described
    return described


def _maybe_describe(engine: Engine, group_id: str, kind: type[Describing]) -> Call[Described]:
    """A group of the type that is asked about; None: it is none."""
    request = kind(group_ids=[group_id], include_authorized_operations=False)
    try:
        reply = yield from _ask(engine, group_id, request)
    except UnsupportedByBroker:
        return None  # an older broker
    (row,) = reply.groups
    if row.error_code in NO_SUCH_GROUP:
        return None
    check_code(row.error_code, f"group {group_id!r}", row.error_message)
    return SHOWN[kind](row)


def _describe_classic(engine: Engine, group_id: str) -> Call[GroupDescription]:
    """A classic group; state Dead: it is none."""
    reply = yield from _ask(engine, group_id, DescribeGroupsRequest(groups=[group_id]))
    assert isinstance(reply, DescribeGroupsResponse)
    (row,) = reply.groups
    check_code(row.error_code, f"group {group_id!r}")
    return of_classic(row)


def committed(engine: Engine, group_id: str) -> Call[dict[TopicPartition, CommittedOffset]]:
    """Where a group stands, everywhere; empty for one that never committed."""
    coordinator = Coordinator(engine, group_id, GROUP_KEY)
    return fetch_offsets(coordinator, group_id, None, require_stable=False)


def commit(
    engine: Engine, group_id: str, offsets: ByPartition[int | CommittedOffset]
) -> Call[None]:
    """Put a group without members somewhere; all partitions or an error.

    Raises UnknownMemberId while it has members.
    """
    coordinator = Coordinator(engine, group_id, GROUP_KEY)
    stands = as_offsets(offsets)
    outside = OUTSIDE._replace(group_id=group_id)
    return until_it_lasts(engine, lambda: commit_offsets(coordinator, outside, stands))


def delete_group(engine: Engine, group_id: str) -> Call[None]:
    """Delete a group without members and its offsets.  Raises NonEmptyGroup, GroupIdNotFound."""
    request = DeleteGroupsRequest(groups_names=[group_id])
    reply = yield from _ask(engine, group_id, request, repeat=False)
    assert isinstance(reply, DeleteGroupsResponse)
    check_code(reply.results[0].error_code, f"group {group_id!r}")


def _ask(engine: Engine, group_id: str, request: Message, *, repeat: bool = True) -> Call[Any]:
    """Ask the group's coordinator; not `repeat`: what changes something, see asking."""
    return Coordinator(engine, group_id, GROUP_KEY).ask(request, repeat=repeat)

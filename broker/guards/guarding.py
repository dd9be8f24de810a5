"""What guards are made of; authorized.py says when they are asked, and what becomes of an answer.

A guard is asked before the handler, and returns one of three:

    None       the handler goes on, with what is left of the request
    Amend      the same; called with the handler's answer, into which it puts what was refused
    Message    the whole answer: the handler is not called

A guard changes the request in place: `take_refused` takes out what its sender may not name.  By the
time of an Amend rules and groups may be others than they were, so where an answer shows more than
was asked for by name (`describing`: the topics of a group) that is asked about again.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.schema import Message

from ..access.authorizer import DESCRIBE, GROUP, READ, TOPIC, Authorizer
from ..apis.metadata import NOT_ASKED
from ..call import Call
from ..core import Core
from ..peers.peer import Peer

__all__ = [
    "CLUSTER_REFUSED",
    "GROUP_REFUSED",
    "NOT_ASKED",
    "TOPIC_REFUSED",
    "TRANSACTIONAL_ID_REFUSED",
    "Amend",
    "Guard",
    "describing",
    "heartbeat_code",
    "take_refused",
]

Amend: TypeAlias = Callable[[Any], None]
"""Puts what was refused into the answer of the handler."""
Guard: TypeAlias = Callable[[Core, Authorizer, Call[Any]], Message | Amend | None]

TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

Item = TypeVar("Item")


def take_refused(items: list[Item], is_allowed: Callable[[Item], bool]) -> list[Item]:
    """Take out of `items` what is not allowed; that is returned. Each is asked about once."""
    refused = [item for item in items if not is_allowed(item)]
    if refused:
        gone = set(map(id, refused))
        items[:] = [item for item in items if id(item) not in gone]
    return refused


def _may_describe(authorizer: Authorizer, peer: Peer, topics: Iterable[str]) -> bool:
    """Whether a client may describe every one of these topics."""
    return all(authorizer.allows(peer, DESCRIBE, TOPIC, name) for name in topics)


def heartbeat_code(
    authorizer: Authorizer, peer: Peer, group_id: str, topics: Iterable[str]
) -> ErrorCode:
    """What a member's heartbeat that names these topics is refused with, or NONE."""
    if not authorizer.allows(peer, READ, GROUP, group_id):
        return GROUP_REFUSED
    return ErrorCode.NONE if _may_describe(authorizer, peer, topics) else TOPIC_REFUSED


def describing(
    authorizer: Authorizer,
    call: Call[Any],
    topics_of: Callable[[Any], Iterable[str]],
    row: Callable[..., Message],
) -> Amend:
    """The guard of a request that describes groups: DESCRIBE on each, and on all of its topics.

    topics_of: the topics in the answer about a group; the group may be another one by then.
    row: makes that about one group.
    """
    peer = call.peer

    def not_described(name: str, code: ErrorCode) -> Message:
        return row(error_code=code, error_message=code.description, group_id=name)

    refused = take_refused(
        call.request.group_ids, lambda name: authorizer.allows(peer, DESCRIBE, GROUP, name)
    )

    def amend(response: Any) -> None:  # noqa: ANN401
        for n, told in enumerate(response.groups):
            if not _may_describe(authorizer, peer, topics_of(told)):
                response.groups[n] = not_described(told.group_id, TOPIC_REFUSED)
            elif told.authorized_operations != NOT_ASKED:
                told.authorized_operations = authorizer.operations(peer, GROUP, told.group_id)
        response.groups += [not_described(name, GROUP_REFUSED) for name in refused]

    return amend

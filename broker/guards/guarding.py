"""What guards are made of: see authorized.py."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.schema import Message

from ..access.authorizer import Authorizer
from ..apis.metadata import NOT_ASKED
from ..call import Call
from ..core import Core

__all__ = [
    "CLUSTER_REFUSED",
    "GROUP_REFUSED",
    "NOT_ASKED",
    "TOPIC_REFUSED",
    "TRANSACTIONAL_ID_REFUSED",
    "Amend",
    "Guard",
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

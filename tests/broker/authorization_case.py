"""What a case of a rule is, and the words that the lists of cases are written in."""

from typing import Any, NamedTuple

from segbroker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.schema import Message

Needs = tuple[Operation, ResourceType, str]

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, ALL = Operation.ALTER, Operation.DESCRIBE, Operation.ALL
CLUSTER_ACTION = Operation.CLUSTER_ACTION
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN = ResourceType.TRANSACTIONAL_ID
OF_CLUSTER: tuple[ResourceType, str] = (CLUSTER, CLUSTER_NAME)


class Case(NamedTuple):
    """A request, the code of who may not, and what is needed for it."""

    request: Message
    expected: type[Message]
    version: int
    code: ErrorCode
    needs: tuple[Needs, ...]


def codes(message: Message) -> set[int]:
    """Every error code in an answer, however deep."""
    found: set[int] = set()
    for field in type(message).fields():
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                found |= codes(one)
    return found


def resource(kind: int, name: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name}


T29, G30, C31, X53 = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

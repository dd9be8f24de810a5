"""The numbers of access control: operations, kinds of resources, patterns, permissions.

    READ, WRITE, DELETE, ALTER  allow  DESCRIBE          as in Kafka; only what is allowed implies,
    ALTER_CONFIGS               allows DESCRIBE_CONFIGS  a denial is of its own operation alone

A literal pattern named `*` is every resource of its kind.  UNKNOWN, ANY and MATCH stand in filters,
never in a rule.  Why not with the messages: broker, client and command line all speak of them.
"""

from enum import IntEnum
from typing import Final

WILDCARD: Final = "*"
"""Of a resource: every one. Of a host: every address."""
EVERYONE: Final = "User:*"
"""The principal of a rule that is about everybody."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a CLUSTER resource."""


class Operation(IntEnum):
    """What is done."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What it is done to."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a rule is meant; MATCH, in a filter: every rule that concerns the name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What a rule says."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY: Final[dict[Operation, tuple[Operation, ...]]] = {
    Operation.DESCRIBE: (
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Who may do one of the right may do the left."""

OPERATIONS_OF: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
"""The operations that there are on a kind of resource: the bits of authorized_operations."""

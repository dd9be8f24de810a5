"""A broker with access rules, and clients of several addresses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from segbroker.broker.server import Broker
from segbroker.protocol.acls import Operation, PatternType, Permission, ResourceType
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.acls import Acl

from ..support.wire_client import WireClient
from .conftest import serving

ALICE, BOB = "127.0.0.1", "127.0.0.2"


def rule(
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    host: str = ALICE,
    principal: str = "User:ANONYMOUS",
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(int(kind), name, int(pattern), principal, host, int(operation), int(permission))


async def allow(broker: Broker, *rules: Acl) -> None:
    """Add rules as a super user would."""
    assert broker.core.authorizer is not None
    done = trio.Event()
    broker.core.authorizer.create(rules, lambda error: done.set())
    await done.wait()


@asynccontextmanager
async def connect_from(host: str, broker: Broker) -> AsyncIterator[WireClient]:
    stream = await trio.open_tcp_stream(*broker.address, local_address=host)
    async with stream:
        yield WireClient(stream)


@asynccontextmanager
async def guarded(
    storage: MemoryStorage | None = None, **keys: str | int | bool
) -> AsyncIterator[Broker]:
    async with serving(storage=storage, authorizer="acl", **keys) as broker:  # type: ignore[arg-type]
        yield broker


async def filled(broker: Broker) -> None:
    """A topic t with a record, made by the broker itself."""
    topics = broker.core.topics
    await topics.create("t", 1, topics.topic_config({}))

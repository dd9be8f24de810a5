"""Brokers on a disk that others were on before: whoever was killed, or lost its power."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from segbroker.broker.core import wall_ms
from segbroker.broker.server import Broker
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Storage

from ..support.wire_client import WireClient, connect
from .conftest import serving


@asynccontextmanager
async def broker_on(
    storage: Storage | None, connections: int = 1, **changes: int | str
) -> AsyncIterator[tuple[Broker, list[WireClient]]]:
    """A broker that does not wait for further members, and connections to it.

    storage: None is an empty disk.
    """
    async with AsyncExitStack() as stack:
        keys: dict[str, str | int | bool] = {
            "group_initial_rebalance_delay_ms": 0,
            "group_min_session_timeout_ms": 1,
            **changes,
        }
        serve = serving(
            storage=storage,
            now_ms=wall_ms,
            express=True,
            clock=None,
            descriptors_max=None,
            **keys,
        )
        broker = await stack.enter_async_context(serve)
        yield (
            broker,
            [await stack.enter_async_context(connect(broker.address)) for _ in range(connections)],
        )


def killed(disk: MemoryStorage) -> MemoryStorage:
    return disk.after_kill()


def cut_off(disk: MemoryStorage) -> MemoryStorage:
    """With nothing but what was synced, on a machine that says that it was not started anew."""
    image = disk.after_power_cut()
    image._boot = disk._boot
    return image

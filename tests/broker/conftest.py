"""A broker in the test's own loop, on a free port, with its log in memory."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import structlog
import trio
from structlog.typing import EventDict

from segbroker.broker.configuration.config import merge
from segbroker.broker.core import wall_ms
from segbroker.broker.server import Broker, call_soon_here
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Storage
from segbroker.segments.wal.journal import WalConfig

ROOT = "/data"

# Above every deadline of a test, and above pytest's: what a test waits for is done by what it is
# about, never by the broker's own limit, unless the test sets that limit.
PATIENT: Final = dict.fromkeys(
    ("drain_timeout_ms", "handshake_timeout_ms", "request_wait_ms", "send_timeout_ms"), 600_000
)

NOT_BY_ITSELF_MS: Final = 3_600_000
"""As the interval of housekeeping, which a second after the start syncs what is of class `disk`,
and has what is read-only written again: where that would be in the way of the test."""

FORGETFUL: Final = {"group_kept_empty_ms": 0, "housekeeping_interval_ms": 10}
"""For who waits until a group that nobody is in, and without offsets, is forgotten."""


def manager(
    storage: Storage | None = None, clock: Callable[[], float] | None = None
) -> DiskManager:
    """A manager on a disk in memory, for a broker in this loop.

    clock: times its syncs; after three that were quick the loop syncs for who is alone.
    """
    return DiskManager(
        ROOT,
        storage=storage or MemoryStorage(),
        wal=WalConfig(file_bytes=1 << 20, shard_bytes=4 << 20, quick_after=3),
        clock=clock,
        call_soon=call_soon_here(),
        now_ms=1_700_000_000_000,
    )


@asynccontextmanager
async def serving(
    *,
    storage: Storage | None = None,
    now_ms: Callable[[], int] = wall_ms,
    express: bool = True,
    clock: Callable[[], float] | None = None,
    descriptors_max: int | None = None,
    **keys: str | int | bool,
) -> AsyncIterator[Broker]:
    """A running broker; drained at the end, so that every test also tests that."""
    settings = {"listen": "127.0.0.1:0", **PATIENT, **keys}
    config = merge(settings)
    broker = Broker(
        config,
        manager=manager(storage, clock),
        now_ms=now_ms,
        express=express,
        descriptors_max=descriptors_max,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        yield broker
        broker.drain()


class Events(list[EventDict]):
    """The log events since the test began, in order."""

    def named(self, name: str) -> list[EventDict]:
        """Those of one name."""
        return [entry for entry in self if entry["event"] == name]

    def __call__(self, logger: object, method: str, event: EventDict) -> EventDict:
        """As a structlog processor: remember and pass on."""
        self.append(dict(event, level=method))
        return event


@pytest.fixture(autouse=True)
def events() -> Iterator[Events]:
    """The log of the test; what it printed is shown when the test fails."""
    heard = Events()
    structlog.configure(
        processors=[
            heard,
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        logger_factory=structlog.PrintLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    yield heard
    structlog.reset_defaults()

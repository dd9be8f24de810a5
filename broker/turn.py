"""A turn of the loop: what one receive, one sync or one tick completed is sent at its end, once.

    receive -> 40 appends to 3 partitions -> end of turn: wake the 3 partitions' fetches,
                                             then flush each connection that became ready

So forty pipelined produces leave with one write, and a waiting consumer gets the forty batches in
one reply instead of the first in the one and 39 in the next.

Whoever completes slots outside a receive (a sync, a timer, a lane) ends the turn itself.

At the limit: a turn flushes FAN_OUT_MAX connections at once; a larger fan-out goes on in `run`, a
piece per pass of the loop, so that ten thousand readers of one partition do not stall the rest.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

import structlog
import trio

log = structlog.get_logger()

FAN_OUT_MAX: Final = 256


class Wakeable(Protocol):
    """A partition, as a turn sees it."""

    def wake(self) -> None:
        """Look again at who waits for records; completed slots mark their connection."""


class Turn:
    """What has to be looked at before the loop goes on."""

    __slots__ = ("_flushes", "_more", "_wakes")

    def __init__(self) -> None:
        self._wakes: dict[Wakeable, None] = {}
        self._flushes: dict[Callable[[], None], None] = {}
        self._more = trio.Event()

    def wake(self, partition: Wakeable) -> None:
        """The high watermark of `partition` moved and somebody waits for it."""
        self._wakes[partition] = None

    def flush(self, flush: Callable[[], None]) -> None:
        """A slot of a connection became ready; `flush` is called once at the end of the turn."""
        self._flushes[flush] = None

    def end(self) -> None:
        """Wake and flush what this turn touched. Never raises."""
        while self._wakes:
            partition, _ = self._wakes.popitem()
            try:
                partition.wake()
            except Exception:
                log.exception("wake_failed")
        if self._flushes:
            self._flush_some()
            if self._flushes:
                self._more.set()

    async def run(self) -> None:
        """Go on with fan-outs that were too large for one turn, for ever."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while self._flushes:
                self._flush_some()
                await trio.lowlevel.checkpoint()

    def _flush_some(self) -> None:
        some = list(islice(self._flushes, FAN_OUT_MAX))
        for flush in some:
            del self._flushes[flush]
        for flush in some:
            flush()

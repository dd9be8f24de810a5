"""A turn of the loop: what one receive, one sync or one tick completed is sent at its end, once.

    receive -> 40 appends to 3 partitions -> end of turn: ask for one sync of each of the 3,
                                             wake their fetches,
                                             then flush each connection that became ready

So forty pipelined produces ride one sync and leave with one write, and a waiting consumer gets the
forty batches in one reply instead of the first in the one and 39 in the next.

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


class Turned(Protocol):
    """A partition, as a turn sees it."""

    def sync(self) -> None:
        """Ask for what was appended to be synced."""

    def wake(self) -> None:
        """Look again at who waits for records; completed slots mark their connection."""


class Turn:
    """What has to be looked at before the loop goes on."""

    __slots__ = ("_ending", "_flushes", "_more", "_syncs", "_wakes")

    def __init__(self) -> None:
        self._syncs: dict[Turned, None] = {}
        self._wakes: dict[Turned, None] = {}
        self._ending = False
        self._flushes: dict[Callable[[], None], None] = {}
        self._more = trio.Event()

    def sync(self, partition: Turned) -> None:
        """Something was appended to `partition` that waits to be durable."""
        self._syncs[partition] = None

    def wake(self, partition: Turned) -> None:
        """The high watermark of `partition` moved and somebody waits for it."""
        self._wakes[partition] = None

    def flush(self, flush: Callable[[], None]) -> None:
        """A slot of a connection became ready; `flush` is called once at the end of the turn."""
        self._flushes[flush] = None

    def end(self) -> None:
        """Sync, wake and flush what this turn touched. Never raises.

        What one of these completes in turn is seen by the call that is under way.
        """
        if self._ending:
            return
        self._ending = True
        while self._syncs or self._wakes:
            # Syncs first: the disk works while readers are woken.
            try:
                while self._syncs:
                    self._syncs.popitem()[0].sync()
                while self._wakes:
                    self._wakes.popitem()[0].wake()
            except Exception:  # the others are looked at all the same
                log.exception("turn_failed")
        if self._flushes:
            self._flush_some()
            if self._flushes:
                self._more.set()
        self._ending = False

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

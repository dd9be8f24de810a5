"""A turn of the loop: what one receive, one sync or one tick completed is sent at its end, once.

    receive -> 40 appends to 3 partitions -> end of turn: wake their fetches,
                                             then flush each connection that became ready
    all that were ready have had their turn -> end of pass: ask for one sync of each partition

So forty pipelined produces share one sync, and their replies leave with one write.  A waiting
consumer gets the forty batches in one reply, not one batch in the first reply and 39 in the next.
Requests that a hundred connections sent at the same time share one sync as well: a pass of the loop
ends when no task is left to run, just before it looks at the sockets again.  So a lone connection
waits for nothing (docs/decisions/0140).

A lone append on a quick disk is synced by the loop itself: handing it to a thread and being woken
by that costs as much as the sync (docs/decisions/0142).

Code that completes slots outside of a receive (after a sync, a timer, a lane) ends the turn itself.

At the limit: who is woken, and what is flushed, has the loop for as long as other pieces of work
(pace.py).  A larger fan-out goes on in `run`, a piece per pass of the loop, so that ten thousand
readers of one partition, or a hundred with a thousand partitions in each answer, do not stall the
rest.  Where a task looks for whoever waits (share groups), it is not its waking that takes time: so
WOKEN_AT_ONCE of them are woken in a pass.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import structlog
import trio

from segbroker.segments.partition.failing import CallSoon

from .pace import Pace

log = structlog.get_logger()

WOKEN_AT_ONCE: Final = 16
"""Tasks that are woken in one pass of the loop: all of them run in the next one, some 5 ms."""


class Turned(Protocol):
    """A partition, as a turn sees it."""

    @property
    def is_lone(self) -> bool:
        """Whether one append waits to be durable."""
        ...

    def sync(self) -> None:
        """Ask for what was appended to be synced."""

    def sync_here(self, call_soon: CallSoon | None) -> bool:
        """Sync it now, if that will be quick; whether it was done."""
        ...

    def wake(self) -> bool:
        """All who wait for records are to look again: by `look_on`.  Whether none was to before."""
        ...

    def look_on(self, pace: Pace) -> bool:
        """Have them look, as long as there is time, one at least; completed slots mark their
        connection.  Whether all have looked."""
        ...


class Turn:
    """What has to be looked at before the loop goes on."""

    __slots__ = ("_ending", "_flushes", "_more", "_syncs", "_wakes", "_waking", "_woken")

    def __init__(self) -> None:
        self._syncs: dict[Turned, None] = {}
        self._wakes: dict[Turned, None] = {}
        # Those where not everybody has looked.
        self._waking: deque[Turned] = deque()
        self._woken = 0
        self._ending = False
        self._flushes: dict[Callable[[], None], None] = {}
        self._more = trio.Event()

    def sync(self, partition: Turned) -> None:
        """Something was appended to `partition` that waits to be durable: asked at `end_pass`."""
        self._syncs[partition] = None

    def wake(self, partition: Turned) -> None:
        """The high watermark of `partition` moved and somebody waits for it."""
        self._wakes[partition] = None

    def woke(self, tasks: int) -> bool:
        """So many tasks are woken that will look for records; whether there is room for others in
        this pass of the loop."""
        self._woken += tasks
        return self._woken < WOKEN_AT_ONCE

    def flush(self, flush: Callable[[], None]) -> None:
        """A slot of a connection became ready; `flush` is called once at the end of the turn."""
        self._flushes[flush] = None

    def end(self) -> None:
        """Wake and flush what this turn touched, as far as there is time. Never raises.

        What one of these completes in turn is seen by the call that is under way, or by `run`.
        """
        if self._ending:
            return
        self._ending = True
        try:
            while self._wakes:
                partition = next(reversed(self._wakes))
                self._waking.append(partition)  # first: whoever is to look has a place here
                if not partition.wake():
                    self._waking.pop()
                del self._wakes[partition]
            if self._waking:
                self._look_on()
            if self._flushes:
                self._flush_some()
        except Exception:  # for want of memory: `run` goes on with what is left
            log.exception("turn_failed")
        finally:
            self._ending = False
        if self._has_more:
            self._more.set()

    def end_pass(self, call_soon: CallSoon | None = None, *, lone: bool = True) -> None:
        """Ask for the syncs of all turns since the last call. Never raises.

        Args:
            call_soon: how the outcome of a sync that is done here is told; None: at once.
            lone: False: several are waiting, whatever it looks like; none is done here.
        """
        self._woken = 0
        if lone and len(self._syncs) == 1:
            (partition,) = self._syncs
            try:
                if partition.is_lone and partition.sync_here(call_soon):
                    self._syncs.pop(partition, None)
            except Exception:  # asked for below
                log.exception("sync_not_done")
        while self._syncs:
            try:
                while self._syncs:
                    self._syncs.popitem()[0].sync()
            except Exception:  # the others are synced all the same
                log.exception("sync_not_asked")

    async def run(self) -> None:
        """Go on with fan-outs that were too large for one turn, for ever."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while self._has_more:
                self.end()
                await trio.lowlevel.checkpoint()

    @property
    def _has_more(self) -> bool:
        return bool(self._wakes or self._waking or self._flushes)

    def _look_on(self) -> None:
        """Never raises: `end` would never end a turn again."""
        pace = Pace()
        while self._waking and self._woken < WOKEN_AT_ONCE:
            try:
                if not self._waking[0].look_on(pace):
                    self._waking.rotate(-1)  # the others have their turn, too
                    return
                self._waking.popleft()
            except Exception:  # a bug: the others are looked at all the same
                log.exception("turn_failed")
            if pace.is_over:
                return

    def _flush_some(self) -> None:
        """Never raises, as `_look_on`."""
        pace = Pace()
        for flush in tuple(self._flushes):
            del self._flushes[flush]
            try:
                flush()
            except Exception:  # a bug: the other connections are flushed all the same
                log.exception("flush_failed")
            if pace.is_over:
                return


class _PassEnd(trio.abc.Instrument):
    def __init__(self, turn: Turn, call_soon: CallSoon) -> None:
        self._turn = turn
        self._call_soon = call_soon

    def before_io_wait(self, timeout: float) -> None:
        # How long it waits is settled: what has something to run wakes the loop.
        self._turn.end_pass(self._call_soon)


async def end_passes(turn: Turn, call_soon: CallSoon) -> None:
    """End each pass of this loop, for ever."""
    pass_end = _PassEnd(turn, call_soon)
    trio.lowlevel.add_instrument(pass_end)
    try:
        await trio.sleep_forever()
    finally:
        trio.lowlevel.remove_instrument(pass_end)

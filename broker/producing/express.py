"""The express way: plain Produce requests of many connections, read, appended and synced together.

    parked connections -> one epoll -> | receive from all, scan (intake.py)              |
                                       | a run per partition: one append, one WAL frame  | a pass
                                       | one sync for all, the replies of a run together |
    anything else a connection brings -> given to its task, which goes the general way

A connection that produces parks here instead of waiting in the loop.  While it sends plain requests
its task does not run at all, so a request costs only its share of a pass.  A request that is not
plain, or anything unusual (a partition that is not open, a full connection, a reply that its peer
does not take, quotas) makes the connection leave; it takes along the bytes that were not processed
yet, and its task goes on with them.  So only one place decides what is legal, and the answers are
the same both ways (tested).

| limit | at it |
|---|---|
| ARENA_BYTES, rows, CONNECTIONS_MAX of a pass | the others come with the next pass |
| PASS_S of a pass (and one call) | the same; the longest unread connection is then first |
| RUNS_MAX partitions of an append | these are appended, the others after them |
| TURN_S of passes without a break | the loop's other tasks run, also those woken by sockets |
| ingest budget | no further connection is read, as everywhere; those of the call are finished |
| slots_max of a connection | it leaves |
| half a request of more than CARRY_MAX bytes | it leaves |
| `frame_bytes_max` below PLAIN_FRAME_BYTES_MAX | no connection parks: the general path checks it |

To sleep and be woken costs more than the event that is waited for.  Three things avoid it:

- No connection is ready, and clients wait for a sync: the loop blocks until the sync is done, for
  SYNC_S at most.  If that was too short, it does not block again for PAUSE_S.  So a slow disk
  delays everybody else by half a millisecond at a time, and for a twentieth of the time at most.
- A connection that was alone in this pass and in the one before has its request appended, synced
  and answered at once, without a place in any queue (lone.py).
- After sending replies the loop polls the sockets for up to HOLD_S more, as long as that pays off.

Invariants: a connection is parked here or its task runs, never both; received bytes are either
answered here or given to the task, in order.
"""

import select
import time
from collections.abc import Iterable
from typing import Final

import structlog
import trio

from ..address import join_address
from ..core import Core
from ..loop.callbacks import Callbacks
from .intake import CONNECTIONS_MAX, Intake
from .seat import Seat

log = structlog.get_logger()

TURN_S: Final = 0.0005
HOLD_S: Final = 0.00008
SYNC_S: Final = 0.0005
PAUSE_S: Final = 0.01
HOLDS_MAX: Final = 8
HOLD_REST: Final = 64
"""Turns without a look after HOLDS_MAX in vain; then it is tried once."""


class Express:
    """All connections that are parked, and the passes over them."""

    def __init__(self, core: Core, call_soon: object) -> None:
        """call_soon: that of the DiskManager; one that can be waited for is."""
        self.passes = 0
        self._core = core
        self._callbacks = call_soon if isinstance(call_soon, Callbacks) else None
        self._not_before = 0.0
        self._epoll = select.epoll()
        self._seats: dict[int, Seat] = {}
        self._intake = Intake(core, self._seats, self._leave)
        self._left = False
        self._last = -1
        """Who was ready in the last pass, if that was one alone."""
        self._holds = HOLDS_MAX
        self._ready: list[tuple[int, int]] = []
        """Who was ready at the last look, if that was not in a pass."""

    @property
    def requests(self) -> int:
        """How many were taken up here."""
        return self._intake.requests

    async def park(self, seat: Seat) -> bytes:
        """Wait until the connection brings what is not for here: those bytes, if any were read.

        Raises OSError: the connection is broken.
        """
        client_id = seat.peer.client_id
        seat.client = None if client_id is None else client_id.encode()
        try:
            self._epoll.register(seat.fd, select.EPOLLIN)
        except OSError as exc:  # the system has no room for another one
            peer, effect = join_address(*seat.peer.address), "it goes the general way, slower"
            log.warning("express_refused", peer=peer, error=str(exc), effect=effect)
            seat.credit = 0
            return b""
        seat.task = trio.lowlevel.current_task()
        seat.received_in = self.passes  # its task may have read until now
        self._seats[seat.fd] = seat

        def abort(_: object) -> trio.lowlevel.Abort:
            self._remove(seat)
            return trio.lowlevel.Abort.SUCCEEDED

        seat.error = None
        await trio.lowlevel.wait_task_rescheduled(abort)
        if seat.error is not None:
            raise seat.error
        brought, seat.carry = seat.carry, b""
        return brought

    def _remove(self, seat: Seat) -> None:
        del self._seats[seat.fd]
        if not self._epoll.closed:
            self._epoll.unregister(seat.fd)

    def _leave(self, seat: Seat, error: OSError | None = None) -> None:
        """Let its task go on, with what is carried; unless it does already: a reply that was sent
        in this pass has found the connection broken."""
        if self._seats.get(seat.fd) is not seat:
            return
        self._remove(seat)
        self._left = True
        seat.error = error
        assert seat.task is not None, "it was parked"
        trio.lowlevel.reschedule(seat.task)

    async def run(self) -> None:
        """Pass after pass, for ever."""
        with self._epoll:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                await self._run_turn()

    async def _run_turn(self) -> None:
        """Passes until nobody is ready and nobody is expected."""
        clock, ingest = time.perf_counter, self._core.ingest
        over = clock() + TURN_S
        while True:
            if ingest.full:
                await ingest.wait_room()
            if not (self._pass() or self._wait_synced() or self._hold(over)):
                return
            if self._left or clock() >= over:
                self._left = False
                await trio.lowlevel.checkpoint()  # the loop looks at its sockets
                await trio.lowlevel.checkpoint()  # and whoever came there has run
                over = clock() + TURN_S

    def _wait_synced(self) -> bool:
        """Nobody is ready: wait a moment for the sync that others wait for; whether it is done."""
        waiting = self._intake.waiting
        if self._callbacks is None or not waiting:
            return False
        clock = time.perf_counter
        now = clock()
        if now < self._not_before:
            return False
        until = now + SYNC_S
        while any(partition.appends_waiting for partition in waiting):
            if now >= until or not self._callbacks.wait(until - now):
                self._not_before = clock() + PAUSE_S  # the disk is slow, the loop has other work
                return False
            now = clock()
        waiting.clear()
        return True

    def _hold(self, until: float) -> bool:
        """Look for more for a moment, if that paid lately; whether there is."""
        if self._holds <= 0:
            self._holds -= 1
            if self._holds > -HOLD_REST:
                return False
            self._holds = 1
        clock, poll = time.perf_counter, self._epoll.poll
        now = clock()
        until = min(until, now + HOLD_S)
        seat = self._seats.get(self._last)
        if (
            seat is not None
            and self._intake.is_owed_nothing(seat)
            and self._hold_alone(seat, int((until - now) * 1e9))
        ):
            self._holds = HOLDS_MAX
            return True
        while clock() < until:
            if ready := poll(0, CONNECTIONS_MAX):
                self._ready = ready
                self._holds = HOLDS_MAX
                return True
        self._holds -= 1
        return False

    def _hold_alone(self, seat: Seat, nanoseconds: int) -> bool:
        """The next pass, if that is of the one who was alone in the last one; whether it was."""
        try:
            if not self._intake.hold(seat, self._epoll, self.passes + 1, nanoseconds):
                return False
        except Exception:  # as in `_pass`
            self._failed((seat,))
        self.passes += 1
        self._end_pass(lone=True)
        return True

    def _pass(self) -> bool:
        """Serve whoever is ready; whether any request was taken up. Never raises."""
        ready, self._ready = self._ready or self._epoll.poll(0, CONNECTIONS_MAX), []
        if not ready:
            return False
        self.passes += 1
        intake, served = self._intake, 0
        only = ready[0][0] if len(ready) == 1 else -1
        is_alone = only >= 0 and only == self._last
        self._last = only
        seats = self._seats
        met = [seat for fd, _ in ready if (seat := seats.get(fd)) is not None]
        try:
            served = intake.take_up(met, self.passes, is_alone=is_alone)
        except Exception:  # a bug: those whose requests were lost in it are closed
            self._failed(met)
        self._end_pass(lone=is_alone)
        return served > 0

    def _failed(self, met: Iterable[Seat]) -> None:
        """In an exception handler: give up what these have brought."""
        log.exception("express_failed")
        self._intake.give_up()
        for seat in met:  # also who has left meanwhile: nobody would answer its run
            if not seat.peer.outbox.broken:
                self._core.counters.connections_failed += 1
                seat.peer.outbox.break_off()

    def _end_pass(self, *, lone: bool) -> None:
        intake, turn = self._intake, self._core.turn
        turn.end()
        # A sync that is done here leaves nothing to wait for.
        turn.end_pass(lone=lone)
        begun = intake.begun
        while begun:
            try:
                while begun:
                    begun.pop().begin_wait()
            except Exception:  # it waits for its sync alone; the others have their timeouts
                log.exception("express_failed")

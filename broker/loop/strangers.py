"""Who has not logged in yet takes turns with other strangers, not with the clients.

    step of a TLS handshake                      in a thread, one after the other
    a receive before the login, and the request
    that it brings; each further request         on the loop: IN_PASS_LEAST in a pass of it, and
                                                 further ones for CLIENTS_SHARE of what the clients
                                                 took of each pass lately

Anybody may open a thousand connections, and what all of them bring at the same time is done in one
pass of the loop where nothing stands in front of it: a third of a second of handshakes or of
requests before a login, for which every client waits.  So strangers have a share of the loop, and
the rest waits in a line, in which addresses take turns.  A share, not a number: a fleet that comes
back to a broker whose passes are long has its logins in time, too.

    line --called--> the next pass: there is time left ----> its turn
      ^                             there is none -------+
      +--------- it is the next one in the line ---------+

Of an address those go first that have begun, or else a thousand that come at the same time would be
through at the same time, as late as the last one: when all have given up, and come again.

The last one of those that were called for a pass calls others for the next one.  While somebody is
called the steps of tasks are looked at (`_Watch`), so it is known what a turn has taken when it is
over, whatever its caller did with it.

Limits: nobody is in a line but who is a connection in the middle of a handshake or a login
(connections/handshakes.py), once.  The time there is not the client's (`handshake_timeout_ms`).
"""

import time
from collections.abc import Callable
from typing import Final

import trio

from .address_line import AddressLine
from .address_threads import AddressThreads

HANDSHAKES_AT_ONCE: Final = 1
"""A second one would have the processor that clients need where there are two."""
IN_PASS_LEAST: Final = 16
"""Some milliseconds at most."""
CALLED_MAX: Final = 512
"""Whoever is called and has to wait once more costs the loop a little, too."""
CLIENTS_SHARE: Final = 0.25
SHARE_MAX_S: Final = 0.05
"""However long passes are: in one of them the machine may have stood still."""
LATELY: Final = 1 / 8
"""What a pass counts among those before it."""


class Strangers:
    """The lines of one broker."""

    __slots__ = ("_called", "_clock", "_count", "_handshakes", "_line", "_on_way", "_watch")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """clock: in seconds."""
        self._clock = clock
        self._handshakes = AddressThreads(HANDSHAKES_AT_ONCE)
        self._line: AddressLine[trio.Event] = AddressLine()
        self._watch = _Watch(clock)
        self._count = IN_PASS_LEAST  # so many are called the next time
        self._called = 0  # so many were
        self._on_way = 0  # and so many of them have not come yet

    async def shake_hands(
        self, host: str, step: Callable[[], None], *, has_begun: bool = False
    ) -> None:
        """`step()` of a connection from an address, in a thread; its exceptions come out here.
        has_begun: it is not the first one.

        A step that has begun is ended, even when its caller is cancelled.
        """
        await self._handshakes.run(host, step, first=has_begun)

    async def turn(self, host: str, *, has_begun: bool = False) -> None:
        """Until it is the turn of an address: what its caller does then, until it waits for
        something, is done in the share of the strangers.  has_begun: it has had a turn, or made a
        step of a handshake."""
        called = trio.Event()
        put = self._line.put_first if has_begun else self._line.put
        put(host, called)
        if not self._on_way:
            self._watch.start()
            self._call()
        while True:
            try:
                await called.wait()
            except trio.Cancelled:
                if called.is_set():
                    self._came()
                else:
                    self._line.leave(host, called)
                raise
            if self._watch.begin():
                self._came()
                return
            called = trio.Event()
            self._line.put_back(host, called)
            self._came()

    def _call(self) -> None:
        """For the next pass."""
        self._called = 0
        while self._line and self._called < self._count:
            self._line.take().set()
            self._called += 1
        self._on_way = self._called

    def _came(self) -> None:
        """One of those that were called; the last one calls others."""
        self._on_way -= 1
        if self._on_way:
            return
        watch = self._watch
        if watch.served < self._called:
            self._count = max(IN_PASS_LEAST, watch.served)
        elif self._called == self._count and not watch.is_over:
            self._count = min(CALLED_MAX, self._count + self._count // 4)
        if self._line:
            self._call()
        else:
            watch.stop()


class _Watch(trio.abc.Instrument):
    """What strangers and clients take of each pass, while strangers are there."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._clients_s = 0.0  # of a pass, lately
        self._pass_at: float | None = None  # when this one began; None: it was not seen
        self._turn_at: float | None = None  # when the turn began that is not over
        # In this pass:
        self._strangers_s = 0.0
        self.served = 0

    def start(self) -> None:
        self._pass_at = self._turn_at = None
        self._begin_pass()
        trio.lowlevel.add_instrument(self)

    def stop(self) -> None:
        trio.lowlevel.remove_instrument(self)

    def _begin_pass(self) -> None:
        self._strangers_s = 0.0
        self.served = 0

    @property
    def is_over(self) -> bool:
        """Whether strangers have had their share of this pass."""
        share_s = min(SHARE_MAX_S, CLIENTS_SHARE * self._clients_s)
        return self.served >= IN_PASS_LEAST and self._strangers_s >= share_s

    def begin(self) -> bool:
        """Begin a turn, which ends with the step of its task; False: there is no time left."""
        if self.is_over:
            return False
        self.served += 1
        self._turn_at = self._clock()
        return True

    def after_io_wait(self, timeout: float) -> None:
        self._pass_at = self._clock()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._turn_at is not None:
            self._strangers_s += self._clock() - self._turn_at
            self._turn_at = None

    def before_io_wait(self, timeout: float) -> None:
        if self._pass_at is not None:
            clients_s = self._clock() - self._pass_at - self._strangers_s
            self._clients_s += (clients_s - self._clients_s) * LATELY
        self._begin_pass()

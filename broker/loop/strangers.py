"""Who has not logged in yet takes turns with other strangers, not with the clients.

    step of a TLS handshake                      in threads, one after the other
    a receive before the login, and the request
    that it brings; each further request         on the loop

Anybody may open a thousand connections, and what all of them bring at the same time is done in one
pass of the loop where nothing stands in front of it: a third of a second of handshakes or of
requests before a login, for which every client waits.  So clients wait for IN_PASS_MAX of them in
a pass, and the rest waits in a line, in which addresses take turns.

Limits: nobody is in a line but who is a connection in the middle of a handshake or a login
(connections/handshakes.py), once.  Whoever waits for longer than `handshake_timeout_ms` is closed.
"""

import threading
from collections.abc import Callable
from typing import Final

import trio

from .address_turns import AddressTurns

IN_PASS_MAX: Final = 16
"""Some milliseconds; and who comes back by the hundred to a busy loop has its login in time."""


class Strangers:
    """The lines of one broker."""

    __slots__ = ("_handshakes", "_in_pass", "_one", "_threads")

    def __init__(self) -> None:
        self._handshakes = AddressTurns(IN_PASS_MAX)
        # Each waits in a thread of its own, so that the next one begins without the loop; one
        # computes: more would have the processor that clients need.
        self._threads = trio.CapacityLimiter(IN_PASS_MAX)
        self._one = threading.Lock()
        self._in_pass = AddressTurns(IN_PASS_MAX)

    async def shake_hands(self, host: str, step: Callable[[], None]) -> None:
        """`step()` of a connection from an address, in a thread; its exceptions come out here.

        A step that has begun is ended, even when its caller is cancelled.
        """
        async with self._handshakes.turn(host):
            await trio.to_thread.run_sync(self._alone, step, limiter=self._threads)

    def _alone(self, step: Callable[[], None]) -> None:
        with self._one:
            step()

    async def turn(self, host: str) -> None:
        """Until it is the turn of an address.

        What its caller does without waiting is done in a pass with as much of IN_PASS_MAX others:
        who is next is woken now, and runs in the next pass.
        """
        async with self._in_pass.turn(host):
            pass

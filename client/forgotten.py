"""A client that nobody refers to any more ends by itself: a consumer gives its place up.

In a notebook the cell is run once more, and what `consumer` was before is gone without `close()`.
Its I/O thread would go on with the heartbeats, and the group would keep giving partitions to a
member that nobody reads from.

    collected --> the I/O thread is asked, says goodbye if it can within a moment, warns, and ends

Where the interpreter ends in the same moment, as behind the one function of a program, its end
waits for that.

An async client is asked in the same way, and its own tasks do that: a producer delivers what it was
given.  Where its event loop ends meanwhile it ends without.

Who collects it may hold any lock, so nothing is done there but to ask: what a program does with a
warning may well be to send it to Kafka.  A blocking producer is not treated like this: what it was
given is still delivered, and `close` at the end of the interpreter says what was not.
"""

import atexit
from collections.abc import Callable
from threading import Thread
from typing import Protocol
from weakref import finalize, ref

from .engine import Call


class Closable(Protocol):
    def close(self) -> None: ...


class _Driver(Protocol):
    """Of threads, or of an event loop."""

    def end_by_itself(
        self, said: str, last: Callable[[], Call[None]] | None, timeout_ms: int
    ) -> None: ...


class Forgotten:
    """What happens to an open client that is not closed."""

    def __init__(self) -> None:
        self._collected: finalize[..., object] | None = None
        self._at_exit: _AtExit | None = None

    def opened(
        self,
        client: object,
        driver: _Driver,
        goodbye: Callable[[], Call[None]] | None,
        timeout_ms: int,
    ) -> None:
        """From now on; `goodbye` is what the driver says at last.  Neither may refer to it."""
        said = f"{client!r} was not closed"
        self._collected = finalize(client, driver.end_by_itself, said, goodbye, timeout_ms)
        self._collected.atexit = False

    def close_at_exit(self, client: Closable, thread: Thread, timeout_ms: int) -> None:
        """At a regular end of the interpreter it is closed, or has said goodbye by itself.

        thread: the driver's.
        """
        self._at_exit = _AtExit(client, thread, timeout_ms)
        atexit.register(self._at_exit)

    def closed(self) -> None:
        """It was closed: nothing is to be done any more."""
        if self._collected is not None:
            self._collected.detach()
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)


class _AtExit:
    """Refers to nothing that is large: of who was forgotten it stays until then."""

    def __init__(self, client: Closable, thread: Thread, timeout_ms: int) -> None:
        self._client = ref(client)
        self._thread = thread
        self._timeout_ms = timeout_ms

    def __call__(self) -> None:
        client = self._client()
        if client is not None:
            client.close()
        else:
            self._thread.join(self._timeout_ms / 1000)

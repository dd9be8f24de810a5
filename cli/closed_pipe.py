"""Notices that the reader of our output went away, also while there is nothing to write.

`segbroker consume topic | head -1` prints one line; the next write would fail with EPIPE, but when
no record comes there is no next write, and the pipeline would hang; so it is with a group that is
watched, up to its next look.  A thread waits for the other
end of the pipe to close and then raises in the main thread, wherever that waits; behind the block
it is BrokenPipeError.  Within it is no OSError: many a place takes one for its own socket's, or for
that of somebody who looks at standard error, and goes on.

The thread only polls; it ends with the `with` block.  A file or a terminal is not watched.
"""

import os
import select
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STDOUT: Final = 1


class _ReaderGone(Exception):
    """Nobody reads our output any more."""


@contextmanager
def ended_by_reader() -> Iterator[None]:
    """Ends the block when nobody reads our output any more; raises BrokenPipeError then."""
    mode = os.fstat(_STDOUT).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return
    try:
        with _watched():
            yield
    except _ReaderGone:
        raise BrokenPipeError from None


@contextmanager
def _watched() -> Iterator[None]:
    main = threading.main_thread().ident
    assert main is not None, "the main thread runs"
    # SIGPIPE itself stays ignored: sockets would raise it too.
    before = signal.signal(signal.SIGUSR1, _raise)
    over, end = os.pipe()
    watcher = threading.Thread(target=_watch, args=(over, main), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.close(end)
        watcher.join()
        os.close(over)
        signal.signal(signal.SIGUSR1, before)


def _watch(over: int, main: int) -> None:
    poller = select.poll()
    poller.register(_STDOUT, 0)  # errors are always reported
    poller.register(over, 0)  # so is the hang-up
    if _STDOUT in dict(poller.poll()):
        signal.pthread_kill(main, signal.SIGUSR1)


def _raise(number: int, frame: object) -> None:
    raise _ReaderGone

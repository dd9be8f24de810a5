"""Where the lines of the log go: to a stream that may refuse them or not read them, then nowhere.

A reader that has gone (`2>&1 | tee`), a full disk below `2> broker.log`: the write raises, in the
middle of whatever was to be told.  A reader that has stopped (`2>&1 | less`, Ctrl-S): the write
would wait, and with it everybody whom the broker serves.  A log that cannot be written is no reason
to end a broker, to hold it up, to leave a change half done, or to call the disk of the data full.

    written          the line; the first one after a refusal says how many there were, `lines_lost`
    refused          dropped and counted
    not taken        waited for, PATIENCE_MS at most; from then on refused until there is room

A disk that becomes full may have a part of a line, and so may a reader that stops, of one longer
than PIECE_SIZE: the next begins a line.  What a stream without a descriptor holds of a line that it
could not flush is its own.
"""

import os
import select
from typing import Final, TextIO

from structlog.typing import EventDict

LINES_LOST: Final = "lines_lost"
PATIENCE_MS: Final = 100
PIECE_SIZE: Final = select.PIPE_BUF
"""Bytes that a pipe which is ready takes without waiting."""


class LogSink:
    """A stream for a WriteLogger of structlog, which calls it under a lock."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor = _descriptor(stream)
        self._is_stuck = False
        self._is_cut = False
        """Whether the last line came out in part."""
        self._lost = 0
        """Lines that were refused since the last one that was not."""

    def write(self, line: str) -> None:
        """Write and flush, or drop it.  Never raises OSError or MemoryError, nor
        waits for long."""
        try:
            if self._descriptor is None:
                self._stream.write(line)
                self._stream.flush()
            else:
                self._hand_over(self._descriptor, line)
        except (OSError, MemoryError):
            self.lose()
        else:
            self._lost = 0

    def lose(self) -> None:
        """A line came to nothing."""
        self._lost += 1

    def _hand_over(self, descriptor: int, line: str) -> None:
        """Raises OSError: nobody reads, or not now; there is no room."""
        room = select.poll()
        room.register(descriptor, select.POLLOUT)
        text = "\n" * self._is_cut + line
        rest = memoryview(text.encode(self._stream.encoding or "utf-8", "backslashreplace"))
        while rest:
            if not room.poll(0 if self._is_stuck else PATIENCE_MS):
                self._is_stuck = True
                raise BlockingIOError
            rest = rest[os.write(descriptor, rest[:PIECE_SIZE]) :]
            self._is_stuck, self._is_cut = False, bool(rest)

    def flush(self) -> None:
        """Each line was, when it was written."""

    def tell_lost(self, logger: object, method: str, event: EventDict) -> EventDict:
        """A processor: says how many lines were refused before this one."""
        if self._lost:
            event[LINES_LOST] = self._lost
        return event


def _descriptor(stream: TextIO) -> int | None:
    """That of the stream; None: it has none."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None

"""Where the lines of the log go: to a stream that may refuse them, and then nowhere.

A reader that has gone (`2>&1 | tee`), a full disk below `2> broker.log`: the write raises, in the
middle of whatever was to be told.  A log that cannot be written is no reason to end a broker, to
leave a change half done, or to call the disk of the data full.

    written          the line; the first one after a refusal says how many there were, `lines_lost`
    refused          dropped and counted

What the stream holds of a line that it could not flush is its own: it may come out later, in part.
"""

from typing import Final, TextIO

from structlog.typing import EventDict

LINES_LOST: Final = "lines_lost"


class LogSink:
    """A stream for a WriteLogger of structlog, which calls it under a lock."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = 0
        """Lines that were refused since the last one that was not."""

    def write(self, line: str) -> None:
        """Write and flush, or drop it.  Never raises OSError."""
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError:
            self._lost += 1
        else:
            self._lost = 0

    def flush(self) -> None:
        """Each line was, when it was written."""

    def tell_lost(self, logger: object, method: str, event: EventDict) -> EventDict:
        """A processor: says how many lines were refused before this one."""
        if self._lost:
            event[LINES_LOST] = self._lost
        return event

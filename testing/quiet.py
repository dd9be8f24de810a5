"""What embedded brokers log in a program that has not configured structlog: from a level on.

structlog shows everything when nobody has told it what to show, and a test run is full of lines
about connections.  Who has configured it gets what that says, and this does nothing.  Lines of the
program's own pass in either case: a line is ours when segbroker's code has made it.

The filter is put into the list of processors that structlog has by default, as structlog's own
capture_logs does it.  To configure structlog would look as if the program had done that: a program
that begins behind its broker would leave it so, or be warned.
"""

import logging
import sys
from collections import Counter
from types import FrameType
from typing import Final

import structlog
from structlog.typing import EventDict

_LEVELS: Final = logging.getLevelNamesMapping()
_shown: Counter[int] = Counter()  # the levels of the brokers that run


def show_from(level: str) -> None:
    """A broker starts, of which lines from this level on (debug, info, ...) are to be seen."""
    _shown[_LEVELS[level.upper()]] += 1
    processors = structlog.get_config()["processors"]
    if not structlog.is_configured() and _drop_below not in processors:
        processors.insert(0, _drop_below)


def show_no_more(level: str) -> None:
    """It has ended."""
    _shown[_LEVELS[level.upper()]] -= 1
    processors = structlog.get_config()["processors"]
    if not +_shown and _drop_below in processors and not structlog.is_configured():
        processors.remove(_drop_below)


def _drop_below(logger: object, method: str, event: EventDict) -> EventDict:
    """Of several brokers the one that is to say most decides."""
    least = min(+_shown, default=logging.WARNING)
    if _LEVELS.get(method.upper(), logging.ERROR) < least and _is_ours(sys._getframe(1)):
        raise structlog.DropEvent
    return event


def _is_ours(frame: FrameType | None) -> bool:
    while frame is not None:
        room = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if room != "structlog":
            return room == "segbroker"
        frame = frame.f_back
    return False

"""Where reading begins: what a caller may say, and what of it has to be looked up.

"start"           the log start           looked up
"end", -n         the end, n before it    looked up; never below the log start
a datetime        the first record at or after it; the end when there is none
an offset         itself                  nothing to look up
"""

from datetime import datetime

from .lookups import START_TIME, FoundOffset

Start = str | int | datetime
"""Where to begin: "start", "end", an offset, -n for "n before the end", or a time."""

OFFSET_MAX = (1 << 63) - 1


def check_start(start: Start) -> Start:
    """A start position that can be used; ValueError or TypeError otherwise."""
    if isinstance(start, str):
        if start not in ("start", "end"):
            raise ValueError(f"start={start!r} is not 'start', 'end', an offset or a time")
    elif isinstance(start, bool) or not isinstance(start, int | datetime):
        raise TypeError(f"start={start!r} is not 'start', 'end', an offset or a time")
    elif isinstance(start, int) and start > OFFSET_MAX:
        raise ValueError(f"start={start} is above {OFFSET_MAX}, the greatest offset that there is")
    elif isinstance(start, datetime) and start.tzinfo is None:
        raise ValueError(f"start={start!r} has no time zone")
    return start


def start_time(start: Start) -> int | None:
    """What ListOffsets has to be asked for a start; None when it need not be asked."""
    match start:
        case "start":
            return START_TIME
        case datetime():
            return to_ms(start)
    return None


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970; 0 for a time before: negative ones mean the end or the start."""
    return max(0, int(moment.timestamp() * 1000))


def needs_end(start: Start) -> bool:
    """ "end" and -n are counted from the end; a time later than every record is the end."""
    return start == "end" or isinstance(start, datetime) or is_from_end(start)


def is_from_end(start: Start) -> bool:
    return isinstance(start, int) and start < 0


def is_offset(start: Start) -> bool:
    """Whether the caller named the very offset."""
    return isinstance(start, int) and start >= 0


def offset_of(
    start: Start, found: FoundOffset | None, end: int, log_start: FoundOffset | None
) -> int:
    """The offset meant, from what the lookups found: by time, of the end, of the log start."""
    match start:
        case "end":
            offset = end
        case int():
            offset = start if start >= 0 else end + start
        case _:
            assert found is not None, "a start that is looked up was found"
            offset = end if found.offset < 0 else found.offset
    return offset if log_start is None else max(offset, log_start.offset)

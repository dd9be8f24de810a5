"""Numbers as a person reads them: counts, times, sizes."""

from datetime import UTC, datetime
from typing import Final

_TIMES: Final = (
    ("day", 86_400_000),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1_000),
)
_SIZES: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def plural(count: int, noun: str) -> str:
    """1 record, 2,000 records."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(ms: int) -> str:
    """A time in the largest unit that it is a whole number of: 90 minutes, 7 days, 1 ms."""
    for unit, size in _TIMES:
        if ms and ms % size == 0:
            return plural(ms // size, unit)
    return f"{ms:,} ms"


def age(ms: int) -> str:
    """About how long: 3 days, 2 hours, 0 seconds."""
    for unit, size in _TIMES:
        if ms >= size:
            return plural(ms // size, unit)
    return "0 seconds"


def size(count: int) -> str:
    """Bytes in the largest unit that they are a whole number of."""
    for unit, one in _SIZES:
        if count and count % one == 0:
            return f"{count // one:,} {unit}"
    return plural(count, "byte")


def about(count: int) -> str:
    """Bytes to a tenth of the largest unit: 1.5 GiB, 17 bytes."""
    for unit, one in _SIZES:
        if count >= one:
            return f"{count / one:,.1f} {unit}"
    return plural(count, "byte")


def moment(ms: int) -> str:
    """A time since 1970, to the second; "never" for one before it."""
    if ms < 0:
        return "never"
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

"""The two clocks of the shells.  The core gets their readings as numbers."""

from time import monotonic_ns, time_ns


def now_ms() -> int:
    """For deadlines: milliseconds that only go forward."""
    return monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """For records: milliseconds since 1970."""
    return time_ns() // 1_000_000

"""The clock of the loop, in whole ms: what sessions, rebalances, locks and transactions run on."""

from typing import Final

import trio

NEVER_MS: Final = 1 << 62
"""A time of this clock that does not come."""


def monotonic_ms() -> int:
    """Trio's clock, in ms."""
    return int(trio.current_time() * 1000)

"""The clock that sessions and rebalances of groups run on."""

import trio


def monotonic_ms() -> int:
    """Trio's clock, in ms."""
    return int(trio.current_time() * 1000)

"""Memory that tracemalloc has seen and that is still reached."""

import gc
import tracemalloc

from ..support.waiting import becomes


def traced_bytes() -> int:
    """What is reached and was traced, of all threads."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def comes_below(limit_bytes: int) -> None:
    """Wait until no more than that is kept.

    Others have some for a moment: a checkpoint what it writes, a lane what it has just handed over.

    Raises TooSlowError.
    """
    await becomes(lambda: traced_bytes() < limit_bytes)

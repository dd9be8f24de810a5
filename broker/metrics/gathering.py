"""Gathering the numbers of one page: on the loop, in slices, with what blocks in lanes.

Each look at a partition, a group, a place is a step of one Pace, so the loop goes on after 5 ms at
most, however many there are.  The numbers of a page are therefore not of one moment; each by itself
is right, and what only grows never goes back between two pages.
"""

import time
from collections.abc import Callable

from ..core import Core
from ..loop.pace import Pace
from .ages import Ages
from .numbers import Numbers
from .of_groups import add_groups
from .of_storage import add_directory, add_transactions, add_upkeep, add_wal
from .of_topics import ClosedSizes, add_topics
from .of_traffic import add_broker, add_listeners, add_traffic, add_waiting


class Gathering:
    """What is kept between two pages."""

    __slots__ = ("_ages", "_closed_sizes", "_core", "_live_sent_bytes")

    def __init__(self, core: Core, live_sent_bytes: Callable[[], int]) -> None:
        """live_sent_bytes: what the connections that are open have sent."""
        self._core = core
        self._live_sent_bytes = live_sent_bytes
        self._ages = Ages()
        self._closed_sizes = ClosedSizes()

    async def numbers(self, *, is_ready: bool) -> Numbers:
        """All of them, as they are now."""
        began = time.perf_counter()
        core, numbers, pace = self._core, Numbers(), Pace()
        add_broker(numbers, core, is_ready=is_ready)
        add_listeners(numbers, core)
        add_traffic(numbers, core, self._live_sent_bytes)
        add_waiting(numbers, core)
        add_wal(numbers, core)
        add_upkeep(numbers, core)
        await add_directory(numbers, core, pace)
        await add_topics(numbers, core, pace, self._closed_sizes)
        await add_groups(numbers, core, pace, self._ages)
        await add_transactions(numbers, core, pace)
        numbers.add("segbroker_page_gather_seconds", time.perf_counter() - began)
        return numbers

"""What is written down of groups, of each protocol that their members speak.

A start looks at all of it to know how many bytes it takes.  Thousands of groups with thousands of
partitions each are seconds of work: it is for a lane.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

from segbroker.segments.directory.manager import DiskManager

from ..failed_changes import FailedChanges
from .kept_consumers import KeptConsumers
from .kept_generations import KeptGenerations
from .kept_sizes import KeptSizes
from .kept_streams import KeptStreams


class KeptGroups(NamedTuple):
    """Those of one data directory."""

    generations: KeptGenerations
    consumers: KeptConsumers
    streams: KeptStreams

    @classmethod
    def of(cls, manager: DiskManager, end_turn: Callable[[], None], failed: FailedChanges) -> Self:
        """As a start finds them.  end_turn: send what was answered outside of a request.  failed:
        tells what could not be written."""
        sizes = KeptSizes(manager.event_size_max)
        return cls(
            KeptGenerations(manager, sizes, failed),
            KeptConsumers(manager, sizes, end_turn, failed),
            KeptStreams(manager, sizes, end_turn, failed),
        )

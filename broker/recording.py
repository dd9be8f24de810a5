"""The outcome of a control event, which `record_soon` reports by a callback: awaited."""

from collections.abc import Callable
from typing import TypeAlias

import trio

Done: TypeAlias = Callable[[OSError | None], None]


async def recorded(begin: Callable[[Done], None]) -> OSError | None:
    """Have `begin` write an event and wait for it; None when it is durable.

    Not to be cancelled: what is in memory has to be what is on the disk.
    """
    finished = trio.Event()
    failure: list[OSError] = []

    def done(error: OSError | None) -> None:
        if error is not None:
            failure.append(error)
        finished.set()

    with trio.CancelScope(shield=True):
        begin(done)
        await finished.wait()
    return failure[0] if failure else None


def ignored(_: OSError | None) -> None:
    """For what is told otherwise, or to nobody."""

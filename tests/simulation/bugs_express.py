"""Planted bugs of the express way; see bugs.py."""

from collections.abc import Callable
from typing import Any

from segbroker.broker.partitions.partition import Partition
from segbroker.broker.producing.express import Express
from segbroker.broker.producing.produce_run import Run

from .bugs import CALM, POWER, Bug, replaced
from .plan import Pipeline, Topic

EXPRESS = {"express": True}
CUTS_OF_POWER = {
    "faults": tuple((0.05 * n, "power_cut") for n in range(1, 9)),
    "sync_s": (0.01, 0.2),
}
# Who is alone has no runs.
PIPED = Topic("piped", 1, "fsync", 1 << 16)
TOGETHER = {"pipelines": tuple(Pipeline(f"pipe-{n}", PIPED, 100, 0.0) for n in range(4))}


def _settled_at_once(append: Callable[..., Any]) -> Callable[..., Any]:
    def appended(self: Run, now_ms: int) -> None:
        append(self, now_ms)
        if not self.done:
            self._finish()

    return appended


def _leaves_empty_handed(leave: Callable[..., Any]) -> Callable[..., Any]:
    def left(self: Express, seat: Any, *error: Any) -> None:  # noqa: ANN401
        seat.carry = b""
        leave(self, seat, *error)

    return left


def _takes_for_synced(self: Partition, acknowledge: Callable[[], None]) -> None:
    acknowledge()
    self.handler._advance(self.handler.log_end_offset)


BUGS = (
    Bug(
        "a run is acknowledged when it is appended",
        replaced(Run, "append", _settled_at_once),
        POWER | EXPRESS | CUTS_OF_POWER | TOGETHER,
        topics=(PIPED,),
        seeds_max=20,
    ),
    Bug(
        "who is alone is answered without a sync",
        replaced(Partition, "sync_alone", lambda _: _takes_for_synced),
        POWER | EXPRESS | CUTS_OF_POWER,
        seed=3,
    ),
    Bug(
        "who leaves the express way forgets what it carries",
        replaced(Express, "_leave", _leaves_empty_handed),
        CALM | EXPRESS,
    ),
)

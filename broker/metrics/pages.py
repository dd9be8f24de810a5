"""The pages: which path has which, and what they say while the broker starts or ends.

| page | answers |
|---|---|
| /metrics | 200, the numbers; 503 while the broker starts |
| /health/live | 200, always: the event loop runs |
| /health/ready | 200, or 503 and the sentences why not (../readiness.py) |

A page of numbers is made once for all who ask for it at the same time: who comes while one is being
made waits for that one and gets the same text.  So there is never more than one being made, whoever
asks how often; the last one who waited lets go of it.

Why /health/live says nothing of the disk: whoever asks it restarts the broker, which mends no disk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from ..core import Core
from ..readiness import why_not_ready
from .exposition import preferred, render
from .gathering import Gathering
from .numbers import Numbers

TEXT: Final = "text/plain; charset=utf-8"
METRICS: Final = "/metrics"
LIVE: Final = "/health/live"
READY: Final = "/health/ready"
_PATHS: Final = (METRICS, LIVE, READY)
STARTING: Final = "the broker is starting"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: status, content type, what it says."""

    status: int
    content_type: str
    body: bytes


def sentence(status: int, text: str) -> Page:
    """A page of one line, or several."""
    return Page(status, TEXT, f"{text}\n".encode())


class Pages:
    """Those of one broker, from before it starts to its end."""

    def __init__(self) -> None:
        self._core: Core | None = None
        self._gathering: Gathering | None = None
        self._making = trio.Lock()
        self._looking = trio.Lock()
        self._made_count = 0
        self._numbers: Numbers | None = None
        # By content type; of `_numbers`.
        self._texts: dict[str, bytes] = {}

    def started(self, core: Core, live_sent_bytes: Callable[[], int]) -> None:
        """The broker serves.  live_sent_bytes: what connections that are open have sent."""
        self._core = core
        self._gathering = Gathering(core, live_sent_bytes)

    @property
    def waiting(self) -> int:
        """How many wait for a page that is being made for somebody else."""
        return self._making.statistics().tasks_waiting

    async def why_not_ready(self) -> list[str]:
        """A sentence for each reason; none: it is ready."""
        if self._core is None:
            return [STARTING]
        async with self._looking:  # on a volume that hangs only one lane waits, whoever asks
            return await why_not_ready(self._core)

    async def get(self, path: str, accept: str) -> Page:
        """The page of a path.

        accept: which content types are asked for, as in the header of that name.
        """
        if path == LIVE:
            return sentence(200, "the event loop runs")
        if path == READY:
            why = await self.why_not_ready()
            return sentence(503, "\n".join(why)) if why else sentence(200, "ready")
        if path == METRICS:
            return await self._metrics(preferred(accept))
        return sentence(404, f"there is no such page; there are {', '.join(_PATHS)}")

    async def _metrics(self, form: str) -> Page:
        core, gathering = self._core, self._gathering
        if core is None or gathering is None:
            return sentence(503, STARTING)
        if (stuck := core.lanes.why_stuck) is not None:
            return sentence(503, stuck)
        made_before = self._made_count
        async with self._making:
            if self._made_count == made_before:
                self._texts = {}
                is_ready = not await self.why_not_ready()
                self._numbers = await gathering.numbers(is_ready=is_ready)
                self._made_count += 1
            assert self._numbers is not None, "made now, or by who was before us"
            if form not in self._texts:
                self._texts[form] = await core.lanes.run(render, self._numbers, form)
            page = Page(200, form, self._texts[form])
            if not self.waiting:  # who comes now gets another one
                self._numbers, self._texts = None, {}
            return page

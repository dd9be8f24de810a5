"""Before somebody is told that there is nothing to take away: a change that was refused may be on
the disk, and come true at a crash."""

import trio

from segbroker.protocol.errors import ErrorCode

from .core import Core
from .error_map import STORAGE_FAILURES, wire_error
from .refused import Refused


class Settling:
    """For one request.  A disk that fails is asked once, however much of it is not there: it may
    take its time for that, and a thread meanwhile."""

    __slots__ = ("_asking", "_core", "_why")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._asking = trio.Lock()
        self._why: Exception | None = None

    async def check(self) -> None:
        """Leave no earlier change in doubt.  Raises Refused: the disk does not take that."""
        manager = self._core.topics.manager
        async with self._asking:
            if self._why is None and not manager.is_settled:
                try:
                    await self._core.lanes.run(manager.settle)
                except STORAGE_FAILURES as exc:
                    self._why = exc
        if self._why is not None:
            raise Refused(*wire_error(self._why)) from self._why

    async def check_group(self) -> None:
        """As `check`, in the words of a coordinator: its clients ask again."""
        try:
            await self.check()
        except Refused as exc:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, exc.message) from exc

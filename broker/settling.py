"""Before somebody is told that there is nothing to take away: a change that was refused may be on
the disk, and come true at a crash."""

from .core import Core
from .error_map import STORAGE_FAILURES, wire_error
from .refused import Refused


async def check_settled(core: Core) -> None:
    """Leave no earlier change in doubt.  Raises Refused: the disk does not take that."""
    manager = core.topics.manager
    if not manager.is_settled:
        try:
            await core.lanes.run(manager.settle)
        except STORAGE_FAILURES as exc:
            raise Refused(*wire_error(exc)) from exc

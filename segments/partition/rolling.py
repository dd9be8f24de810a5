"""What other threads do for a partition that rolls: make the next segments, seal the full ones.

    append rolls -> too few ready?      -> the maker: files under their final names, synced
                 -> SEAL_GROUP are full -> a house keeper: seal them together, then retention

If a segment could not be made ahead, that is no failure: the roll makes it itself, and reports it.
If one could not be sealed, or names could not be synced, that is a failure: its owner is told, and
writes nothing more.  For want of a descriptor nothing was begun: it is done on the tick.
"""

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from ..background import AskedOnce, Housekeeper
from ..disk.relieving import NoDescriptor
from ..errors import PartitionReadOnly, as_os_error
from ..log.log_storage import NamesNotSynced
from ..log.partition_log import PartitionLog
from ..log.sealing import seal

log = structlog.get_logger()

SEAL_GROUP: Final = 8
"""Full segments that are sealed together; fewer on the tick."""


class Rolled(Protocol):
    """The partition, as its rolling sees it."""

    read_only: PartitionReadOnly | None

    @property
    def is_poisoned(self) -> bool:
        """Whether a write or a sync has failed; else what is full is sealed, whoever may not write
        meanwhile: it holds descriptors that others wait for."""
        ...

    def segments_sealed(self, recovery_point: int) -> None:
        """Below `recovery_point` everything is synced.  In the house keeper's thread."""
        ...

    def sealing_put_off(self) -> None:
        """There was no descriptor; nothing is in doubt.  In the house keeper's thread."""
        ...

    def fail(self, cause: OSError) -> None:
        """Segments could not be sealed, or the names in its directory not synced.  In the thread
        of the house keeper, or of the maker."""
        ...


class Rolling:
    """The requests of one partition.  `log` gives the log that is open now."""

    __slots__ = ("_given_up", "_housekeeper", "_log", "_maker", "_making", "_owner", "_sealing")

    def __init__(
        self,
        owner: Rolled,
        log: Callable[[], PartitionLog],
        maker: Housekeeper,
        housekeeper: Housekeeper,
    ) -> None:
        self._owner = owner
        self._log = log
        self._maker = maker
        self._housekeeper = housekeeper
        self._making = AskedOnce()
        self._sealing = AskedOnce()
        self._given_up = -1
        """The number of the segment behind which none could be made ahead: that was tried once, for
        it would be tried again, and told, at each append."""

    def rolled(self, opened: PartitionLog) -> None:
        """Have the next segments made and a group of full ones sealed, off this thread."""
        if opened.wants_ready and opened.active.number != self._given_up:
            self._making.ask(self._maker, self._make_ready)
        if len(opened.rotating) >= (_group_of(opened) if self._housekeeper.is_threaded else 1):
            self.seal_soon()

    def seal_soon(self) -> None:
        """Have what is rotating sealed, off this thread."""
        self._sealing.ask(self._housekeeper, self._seal)

    def _make_ready(self) -> None:
        self._making.begun()
        opened = self._log()
        if self._owner.read_only is not None or opened.is_closed:
            return
        number = opened.active.number
        try:
            opened.ready.make(number)
            if len(opened.ready):
                opened.open_logs.add(opened)  # it may have parked meanwhile
        except NoDescriptor:
            pass  # told once a minute for all of them
        except NamesNotSynced as exc:
            if opened is self._log():  # else it was opened again meanwhile, with names of its own
                self._owner.fail(exc)
        except OSError as exc:
            self._given_up = number
            log.warning("segment_not_prepared", path=opened.paths.folder, error=str(exc))

    def _seal(self) -> None:
        self._sealing.begun()
        opened = self._log()
        if self._owner.is_poisoned or opened.is_closed:
            return
        try:
            seal(opened)
        except NoDescriptor:
            self._owner.sealing_put_off()
        except Exception as exc:  # also MemoryError: what it left half done would be done again
            if opened is self._log():  # else it was opened again meanwhile, through recovery
                self._owner.fail(as_os_error(exc, "a sealing was left half done"))
        else:
            self._owner.segments_sealed(opened.recovery_point)


def _group_of(opened: PartitionLog) -> int:
    """Full segments that are sealed together; fewer where they weigh against a small cap, or hold
    one of few descriptors each."""
    config = opened.config
    if opened.open_logs.has_many_full:
        return 1
    if config.retention_bytes < 0:
        return SEAL_GROUP
    return min(SEAL_GROUP, max(1, config.retention_bytes // (8 * config.segment_bytes)))

"""What is the same of both drivers, that of threads and that of event loops, and of all clients:
what a client says of itself, how long its end may take, and that it belongs to its process.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from .engine import Call, Engine
from .errors import NOT_PICKLED
from .settings import said_of

REGULAR: Final = (GeneratorExit, SystemExit)
"""What leaves a block as its end does: a generator that is left half way, and sys.exit(), of which
nobody sees a note."""

GOODBYE_MS: Final = 5_000
"""What a client that is closed gives its broker: to leave a group behind a last commit, or to abort
a transaction."""
GRACE_MS: Final = 1_000
"""... what is left of a producer's records when a block ends with an exception."""
HURRIED_MS: Final = 30
"""... all of it after Ctrl-C, or a cancellation."""

FORKED: Final = "it was opened before this process was forked: open one in each process"


def is_hurried(exc: BaseException | None) -> bool:
    """Whether a block that is left by it waits for no broker: by Ctrl-C, or a cancellation."""
    return exc is not None and not isinstance(exc, (Exception, *REGULAR))


class Driver(ABC):
    """See the module."""

    def __init__(self) -> None:
        # Since it was opened, and behind its end, too.
        self._engine: Engine | None = None

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it runs."""

    @property
    def state(self) -> str:
        """As repr() of a client says it."""
        if self.is_open:
            return "open"
        return "not open" if self._engine is None else "closed"

    def __reduce__(self) -> str:
        raise TypeError(NOT_PICKLED)


class Client:
    """What every client has: a core, and what runs it."""

    _driver: Driver
    _engine: Engine
    # What it says where nobody refers to it any more, see forgotten.py, and how long that may take.
    _last: Callable[[], Call[None]] | None = None
    _last_ms = GOODBYE_MS

    def __repr__(self) -> str:
        return said_of(self, self._engine.settings, self._driver.state)

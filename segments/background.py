"""The storage engine's own threads: flushers, and one that keeps house.

    append -> request(handler) -> queue -> flusher: sync -> call_soon(high watermark moves)

Group commit without a timer: a partition is in the queue or being flushed at most once; what is
appended during its flush rides the next one, which begins when this one ends.  Alone, a write
waits for nothing but its own sync; under load the groups grow by themselves.

| flush state | request() | a flusher takes it | the flush ends |
|---|---|---|---|
| IDLE | QUEUED | - | - |
| QUEUED | - | FLUSHING | - |
| FLUSHING | AGAIN | - | IDLE |
| AGAIN | - | - | QUEUED |

The house is kept by two threads with one queue each: one makes the next segments ahead and does
nothing that takes longer than a directory sync, the other seals full ones and unlinks deleted
topics.  With `flushers=0` there are no threads at all and everything happens in the caller: for
tests and tools.

Invariant: a handler's `flush_state` changes under the lock here; no lock is held during a sync.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias

import structlog

from .errors import as_os_error

log = structlog.get_logger()

Task: TypeAlias = Callable[[], None]

_AGAIN_S: Final = 0.01
"""Until a thread tries again what it had no memory for."""
_HELD: Final = threading.Lock()
"""For ever: who wants it in vain has waited, without memory for that."""
_HELD.acquire()


def pause() -> None:
    """A moment, for a thread that goes on after what must not be repeated as fast as it fails."""
    _HELD.acquire(timeout=_AGAIN_S)


def error_to_tell(exc: Exception, what: str) -> OSError:
    """As `as_os_error`, where somebody waits for ever unless he is told: waits for the memory."""
    while True:
        try:
            return as_os_error(exc, what)
        except MemoryError:
            pause()


class FlushState(Enum):
    """Where a partition stands with the flushers."""

    IDLE = 0
    QUEUED = 1
    FLUSHING = 2
    AGAIN = 3


class Flushable(Protocol):
    """What the flushers flush.  `flush` reports its own failures and does not raise."""

    flush_state: FlushState

    def flush(self) -> None: ...


class Flushers:
    """A few threads that sync."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Flushable | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        try:
            for number in range(count):
                name = f"flusher-{number}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:  # the system gives no other: a start that fails leaves none
            self.close()
            raise

    def request(self, handler: Flushable) -> None:
        """Have `handler` flushed soon; at once, in this thread, when there are no flushers."""
        if not self._threads:
            handler.flush()
            return
        with self._lock:
            match handler.flush_state:
                case FlushState.IDLE:
                    self._queue.put(handler)  # first: where there is no memory, it is asked again
                    handler.flush_state = FlushState.QUEUED
                case FlushState.FLUSHING:
                    handler.flush_state = FlushState.AGAIN
                    return
                case _:
                    return

    def close(self) -> None:
        """Flush what is queued, then end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        # What asked again while the last ones ended.
        while not self._queue.empty():
            handler = self._queue.get()
            if handler is not None:
                handler.flush()
                handler.flush_state = FlushState.IDLE
        self._threads = []

    def _run(self) -> None:
        while True:
            try:
                if (handler := self._queue.get()) is None:
                    return
                self._flush(handler)
            except Exception:
                with suppress(MemoryError):  # a line is lost, not the thread
                    log.exception("flush_crashed")
                pause()

    def _flush(self, handler: Flushable) -> None:
        with self._lock:
            handler.flush_state = FlushState.FLUSHING
        try:
            handler.flush()
        finally:
            with self._lock:
                again = handler.flush_state is FlushState.AGAIN
                handler.flush_state = FlushState.IDLE
            while again:
                try:
                    self.request(handler)
                    again = False
                except MemoryError:  # nobody else asks for it
                    pause()


class Housekeeper:
    """One thread for what must not happen on the loop and nobody waits for."""

    def __init__(self, *, threaded: bool, name: str = "housekeeper") -> None:
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    @property
    def is_threaded(self) -> bool:
        """Whether tasks are done by another thread."""
        return self._thread is not None

    def submit(self, task: Task) -> None:
        """Have `task` done soon; at once, in this thread, when there is no other."""
        if self._thread is None:
            task()
        else:
            self._queue.put(task)

    def wait_idle(self) -> None:
        """Wait until everything that was submitted is done, and what that submitted."""
        more: SimpleQueue[bool] = SimpleQueue()

        def look() -> None:
            more.put(not self._queue.empty())  # by the thread: else it may have taken the last one

        while self._thread is not None:
            self._queue.put(look)
            if not more.get():
                return

    def close(self) -> None:
        """Do what is queued, then end the thread."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            try:
                if (task := self._queue.get()) is None:
                    return
                task()
            except Exception:
                with suppress(MemoryError):  # a line is lost, not the thread
                    log.exception("housekeeping_crashed")
                pause()


class AskedOnce:
    """A task that is in the queue of a house keeper at most once, however often it is asked for.

    It says `begun` first: what comes up from there on asks for it again.
    """

    __slots__ = ("is_asked",)

    def __init__(self) -> None:
        self.is_asked = False

    def ask(self, housekeeper: Housekeeper, task: Task) -> None:
        """Have `task` done soon, unless it was asked for and has not begun."""
        if not self.is_asked:
            self.is_asked = True
            try:
                housekeeper.submit(task)
            except BaseException:  # for want of memory: nobody does it, and it is asked for again
                self.is_asked = False
                raise

    def begun(self) -> None:
        """From now on it may be asked for again."""
        self.is_asked = False

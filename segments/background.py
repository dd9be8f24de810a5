"""What happens behind the append: syncs and file housekeeping, in threads or at once.

| | flushers (N threads) | housekeeper (1 thread) |
|---|---|---|
| does | fdatasync for logs that asked | the next segment file, seals, snapshots, unlinks |
| order | one job per log at a time; what arrives meanwhile rides the next | as submitted |

A log asks with `sync_soon(log.sync_now)`; asking again while its job runs makes exactly one more run.
So a lone writer's sync starts at once, and a crowd shares one: group commit without a timer.

Results go to the loop through `call_soon`.  `InlineBackground` does everything before it
returns, in the caller's thread: the library without a broker, and deterministic tests.

Limits: the queues hold at most one entry per log (sync) and what rolls produce (housekeeping);
`close` finishes what is queued.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

Job = Callable[[], None]


class Background(Protocol):
    """Where a log sends what should not hold its caller."""

    def sync_soon(self, job: Job) -> None:
        """Run `job` soon; one run at a time per job, one more if asked meanwhile."""
        ...

    def housekeep_soon(self, job: Job) -> None: ...

    def call_soon(self, job: Job) -> None:
        """Run `job` on the loop (or here, when there is none)."""
        ...

    def close(self) -> None: ...


class InlineBackground:
    """Everything at once, in the caller's thread."""

    def __init__(self) -> None:
        self._queue: deque[Job] = deque()
        self._running = False

    def _run(self, job: Job) -> None:
        # Jobs may ask for more jobs: a queue keeps the stack flat and the order as asked.
        self._queue.append(job)
        if self._running:
            return
        self._running = True
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            self._running = False
            self._queue.clear()

    def sync_soon(self, job: Job) -> None:
        self._run(job)

    def housekeep_soon(self, job: Job) -> None:
        self._run(job)

    def call_soon(self, job: Job) -> None:
        job()

    def close(self) -> None:
        pass


class ThreadedBackground:
    """Flusher threads and one housekeeper.

    Args:
        call_soon: runs a callable on the loop; must be callable from any thread.
        flushers: number of threads that sync.
        on_crash: told of an exception that no job should raise (a bug); the thread goes on.
    """

    def __init__(
        self,
        call_soon: Callable[[Job], object],
        *,
        flushers: int = 2,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self._call_soon = call_soon
        self._on_crash = on_crash
        self._lock = threading.Lock()
        self._queued: set[Job] = set()
        self._running: set[Job] = set()
        self._again: set[Job] = set()
        self._syncs: SimpleQueue[Job | None] = SimpleQueue()
        self._chores: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._flush, name=f"segbroker-flusher-{n}", daemon=True)
            for n in range(flushers)
        ]
        self._housekeeper = threading.Thread(
            target=self._housekeep, name="segbroker-housekeeper", daemon=True
        )
        for thread in (*self._threads, self._housekeeper):
            thread.start()

    def sync_soon(self, job: Job) -> None:
        with self._lock:
            if job in self._queued:
                return
            if job in self._running:
                self._again.add(job)
                return
            self._queued.add(job)
        self._syncs.put(job)

    def housekeep_soon(self, job: Job) -> None:
        self._chores.put(job)

    def call_soon(self, job: Job) -> None:
        self._call_soon(job)

    def close(self) -> None:
        """Finish what is queued and end the threads."""
        for _ in self._threads:
            self._syncs.put(None)
        for thread in self._threads:
            thread.join()
        self._chores.put(None)
        self._housekeeper.join()

    def _flush(self) -> None:
        while (job := self._syncs.get()) is not None:
            with self._lock:
                self._queued.discard(job)
                self._running.add(job)
            self._guard(job)
            with self._lock:
                self._running.discard(job)
                again = job in self._again
                self._again.discard(job)
                if again:
                    self._queued.add(job)
            if again:
                self._syncs.put(job)

    def _housekeep(self) -> None:
        while (job := self._chores.get()) is not None:
            self._guard(job)

    def _guard(self, job: Job) -> None:
        try:
            job()
        except Exception as error:  # a bug in one job must not end the syncs of all
            self._on_crash(error)

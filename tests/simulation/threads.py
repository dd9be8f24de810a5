"""Threads that a schedule moves: greenlets, of which one runs at a time, in virtual time.

    Thread.start --> a trio task drives the greenlet:  step | wait what it waits for | step ...
    in the greenlet:  pause(s)    virtual time passes, everybody else goes on
                      Lock, Condition, Event, SimpleQueue    park until woken

The code of segments/ runs unchanged: patches.py puts this module in place of `threading` and
`queue`.  A thread can be interrupted where it waits, takes or gives back a lock, or asks the disk.

The loop (whatever is no Thread) cannot park: when it meets a lock that is taken it stands still, as
the real one would, and the other threads go on, in order of time, until the lock is free.  How
long that was is counted; standing still for long is a violation (no lock is held over a sync).

`Threads.kill` ends all threads at once, wherever they are: each gets Killed, no lock is real any
more, and the disk takes nothing from them.
"""

import math
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final

import trio
from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from .world import World

LOOP_STALL_MAX_S: Final = 0.1


class Killed(BaseException):
    """The process of this thread is dead.  No Exception, so that nobody handles it."""


class Deadlock(BaseException):
    """The loop waits for a lock and no thread can go on."""


class _Wait:
    """What a thread waits for: a time, to be woken, or either."""

    __slots__ = ("at", "event")

    def __init__(self, at: float | None, event: trio.Event | None) -> None:
        self.at = at
        self.event = event


class Threads:
    """The threads of one process."""

    def __init__(self, world: World, preempts: float) -> None:
        """preempts: how often a thread is interrupted where it could be, 0 to 1."""
        self.world = world
        self.random = world.stream("threads")
        self.preempts = preempts
        self.nursery: trio.Nursery | None = None
        self.alive = True
        self.all: dict[Thread, None] = {}
        self.count = 0
        self.hub = getcurrent()

    def current(self) -> "Thread | None":
        """The thread that runs; None: the loop."""
        found = getcurrent()
        return found.thread if isinstance(found, _Greenlet) else None

    def pause(self, seconds: float) -> None:
        """Let virtual time pass in this thread; nothing on the loop."""
        me = self.current()
        if me is None:
            return
        if not self.alive:
            raise Killed
        me.wait(_Wait(self.world.now() + seconds, None))

    def preempt(self) -> None:
        """Let others go first, now and then."""
        me = self.current()
        if me is not None and self.alive and self.random.random() < self.preempts:
            me.wait(_Wait(self.world.now() + self.random.choice((0, 0, 0.0001, 0.001)), None))

    def stand_still(
        self, what: str, until: Callable[[], bool], seconds_max: float = math.inf
    ) -> None:
        """The loop waits for other threads: they go on in order of time."""
        began = self.world.now()
        others = self.stacks()
        while not until():
            ready = [
                thread
                for thread in self.all
                if (ready_at := thread.ready_at()) is not None and ready_at <= began + seconds_max
            ]
            if not ready:
                if seconds_max < math.inf:
                    self.world.clock.jump(max(0.0, began + seconds_max - self.world.now()))
                    break
                self.alive = False
                raise Deadlock(f"the loop waits for {what}, and so does everybody")
            first = min(ready, key=lambda thread: (thread.ready_at(), thread.number))
            at = first.ready_at()
            assert at is not None, "only ready threads were looked at"
            if at > self.world.now():
                self.world.clock.jump(at - self.world.now())
            first.step()
        stalled = self.world.now() - began
        if stalled > 0:
            self.world.trace("loop_stalled", what, f"{stalled:.4f}")
        if stalled > LOOP_STALL_MAX_S:
            here = "".join(traceback.format_stack(limit=7)[:-2])
            self.world.violation(
                f"the loop stood still for {stalled:.3f} s: {what}\n{here}meanwhile\n{others}"
            )

    def stacks(self) -> str:
        """Where every thread is: for a run that is stuck."""
        told = []
        for thread in self.all:
            frame = None if thread._greenlet is None else thread._greenlet.gr_frame
            stack = traceback.format_stack(frame, limit=-6) if frame is not None else ["not begun"]
            told.append(f"{thread.name}:\n{''.join(stack)}")
        return "\n".join(told)

    def kill(self) -> None:
        """End every thread where it is."""
        self.alive = False
        for thread in list(self.all):
            thread.end()


class _Greenlet(greenlet):  # type: ignore[misc]
    thread: "Thread"


class Thread:
    """As threading.Thread; it belongs to the process that lives when it is made."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._owner = current_threads()
        self._owner.count += 1
        self.number = self._owner.count
        self.name = name or f"thread-{self.number}"
        self.daemon = daemon
        self.ident = self.number
        self._target = target
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        self._greenlet: _Greenlet | None = None
        self._waits: _Wait = _Wait(0, None)
        self.done = trio.Event()
        self._scope = trio.CancelScope(shield=True)
        self._joining: list[Thread] = []

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def start(self) -> None:
        """Begin, a little later."""
        owner = self._owner
        owner.all[self] = None
        delay = owner.random.choice((0, 0, 0.00005, 0.0005))
        self._waits = _Wait(owner.world.now() + delay, None)
        self._greenlet = _Greenlet(self._main, owner.hub)
        self._greenlet.thread = self
        assert owner.nursery is not None, "the process has not started"
        owner.nursery.start_soon(self._drive, name=self.name)

    def is_alive(self) -> bool:
        return self in self._owner.all

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        me = self._owner.current()
        if me is None:
            self._owner.stand_still(f"the end of {self.name}", lambda: not self.is_alive())
            return
        while self.is_alive() and self._owner.alive:
            self._joining.append(me)
            me.park(timeout)
            if timeout is not None:
                return

    # What the scheduler does

    def _main(self) -> None:
        try:
            self.run()
        except Killed:
            pass
        except BaseException as exc:
            self._owner.world.violation(f"thread {self.name} died of {exc!r}")
        finally:
            self._owner.all.pop(self, None)
            self.done.set()
            for other in self._joining:
                other.wake()

    async def _drive(self) -> None:
        with self._scope:  # shielded: who cancels a task does not stop a thread
            await self._go_on()

    async def _go_on(self) -> None:
        while self.is_alive():
            waits = self._waits
            if waits.event is None:
                assert waits.at is not None
                await trio.sleep_until(waits.at)
            elif waits.at is None:
                await waits.event.wait()
            else:
                with trio.move_on_at(waits.at):
                    await waits.event.wait()
            if self._waits is waits and self.is_alive():
                self.step()

    def step(self) -> None:
        """Run until it waits again."""
        assert self._greenlet is not None
        self._waits = _Wait(None, trio.Event())  # replaced before control comes back
        self._greenlet.switch()

    def end(self) -> None:
        """Raise Killed where it waits."""
        assert self._greenlet is not None
        if self._greenlet.dead or not self._greenlet:
            self._owner.all.pop(self, None)
        else:
            self._greenlet.throw(Killed)
        self.done.set()
        self._scope.cancel()

    def ready_at(self) -> float | None:
        """When it could go on; None: somebody has to wake it."""
        if self._waits.event is not None and self._waits.event.is_set():
            return self._owner.world.now()
        return self._waits.at

    # What the thread itself does

    def wait(self, what: _Wait) -> None:
        """Give way until `what`."""
        self._waits = what
        self._owner.hub.switch()
        if not self._owner.alive:
            raise Killed

    def park(self, timeout: float | None = None) -> None:
        """Wait to be woken."""
        at = None if timeout is None or timeout < 0 else self._owner.world.now() + timeout
        self.wait(_Wait(at, trio.Event()))

    def wake(self) -> None:
        """Let it go on, if it is parked; it looks itself whether it may."""
        if self._waits.event is not None:
            self._waits.event.set()


_current: list[Threads] = []


def current_threads() -> Threads:
    """Those of the process that lives now."""
    return _current[-1]


def use(threads: Threads) -> None:
    """What is made from now on belongs to these."""
    _current[:] = [threads]


class Lock:
    """As threading.Lock."""

    def __init__(self) -> None:
        self._threads = current_threads()
        self._taken = False
        self._waiting: deque[Thread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        threads = self._threads
        me = threads.current()
        if me is None:
            if not self._taken or not threads.alive:
                self._taken = True
                return True
            if not blocking:
                return False
            threads.stand_still("a lock", lambda: not self._taken)
            self._taken = True
            return True
        threads.preempt()
        while self._taken and threads.alive:
            if not blocking:
                return False
            self._waiting.append(me)
            me.park(timeout)
            if timeout >= 0 and self._taken:
                return False
        self._taken = True
        return True

    def release(self) -> None:
        self._taken = False
        waiting, self._waiting = self._waiting, deque()
        for thread in waiting:
            thread.wake()
        self._threads.preempt()

    def locked(self) -> bool:
        return self._taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class RLock(Lock):
    """As threading.RLock."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._threads.current() or self._threads
        if self._depth and self._owner is me:
            self._depth += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()


class Condition:
    """As threading.Condition, over a Lock of this module."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._threads = current_threads()
        self._lock = lock or Lock()
        self.acquire = self._lock.acquire
        self.release = self._lock.release
        self._waiting: dict[Thread, None] = {}

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        me = self._threads.current()
        assert me is not None, "the loop waits for no condition"
        self._waiting[me] = None
        self._lock.release()  # where it may be interrupted, and told before it parks
        try:
            if me in self._waiting:
                me.park(timeout)
        finally:
            self._lock.acquire()
        if me in self._waiting:
            del self._waiting[me]
            return False
        return True

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = None if timeout is None else self._threads.world.now() + timeout
        while not predicate():
            left = None if until is None else until - self._threads.world.now()
            if left is not None and left <= 0:
                return predicate()
            self.wait(left)
        return True

    def notify(self, n: int = 1) -> None:
        for thread in list(self._waiting)[:n]:
            del self._waiting[thread]
            thread.wake()

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """As threading.Event."""

    def __init__(self) -> None:
        self._threads = current_threads()
        self._set = False
        self._waiting: list[Thread] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            thread.wake()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        me = self._threads.current()
        if me is None:
            self._threads.stand_still("an event", lambda: self._set)
            return True
        until = None if timeout is None else self._threads.world.now() + timeout
        while not self._set:
            left = None if until is None else until - self._threads.world.now()
            if left is not None and left <= 0:
                break
            self._waiting.append(me)
            me.park(left)
        return self._set


class SimpleQueue:
    """As queue.SimpleQueue, and as much of queue.Queue as is used."""

    def __init__(self, maxsize: int = 0) -> None:
        self._threads = current_threads()
        self._items: deque[Any] = deque()
        self._waiting: list[Thread] = []

    def __class_getitem__(cls, item: object) -> type["SimpleQueue"]:
        return cls

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            thread.wake()
        self._threads.preempt()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401
        me = self._threads.current()
        until = None if timeout is None else self._threads.world.now() + timeout
        while not self._items:
            left = None if until is None else until - self._threads.world.now()
            if not block or (left is not None and left <= 0):
                from queue import Empty

                raise Empty
            if me is None:
                assert left is not None, "the loop waits for no queue without end"
                self._threads.stand_still("a queue", lambda: bool(self._items), left)
                continue
            self._waiting.append(me)
            me.park(left)
        return self._items.popleft()

    def get_nowait(self) -> Any:  # noqa: ANN401
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Pool:
    """As concurrent.futures.ThreadPoolExecutor, for `map` in a `with`."""

    def __init__(self, max_workers: int = 1) -> None:
        self._workers = max_workers

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def map(self, function: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        """The results in order, when all are there; the first failure is raised."""
        todo = deque(enumerate(items))
        results: dict[int, Any] = {}
        failures: list[BaseException] = []

        def work() -> None:
            while todo:
                index, item = todo.popleft()
                try:
                    results[index] = function(item)
                except Exception as exc:
                    failures.append(exc)

        workers = [Thread(target=work, name="pool") for _ in range(min(self._workers, len(todo)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]
        return [results[index] for index in sorted(results)]


class _Module:
    """What stands where `import threading` stood."""

    Thread = Thread
    Lock = Lock
    RLock = RLock
    Condition = Condition
    Event = Event

    def current_thread(self) -> Any:  # noqa: ANN401
        return current_threads().current() or threading.current_thread()

    def get_ident(self) -> int:
        me = current_threads().current()
        return 0 if me is None else me.ident

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(threading, name)


threading_module = _Module()


async def run_in_thread(
    function: Callable[..., Any],
    *args: object,
    limiter: trio.CapacityLimiter | None = None,
    **_: object,
) -> Any:  # noqa: ANN401
    """As trio.to_thread.run_sync: uncancellable once it has begun."""
    threads = current_threads()
    await trio.lowlevel.checkpoint_if_cancelled()
    if limiter is None:
        return await _run_in_thread(threads, function, args)
    async with limiter:
        return await _run_in_thread(threads, function, args)


async def _run_in_thread(threads: Threads, function: Callable[..., Any], args: Any) -> Any:  # noqa: ANN401
    if not threads.alive:
        raise Killed
    result: list[Any] = []
    failure: list[BaseException] = []

    def job() -> None:
        try:
            result.append(function(*args))
        except Killed:
            raise
        except BaseException as exc:
            failure.append(exc)

    thread = Thread(target=job, name=f"lane {getattr(function, '__name__', function)}")
    with trio.CancelScope(shield=True):
        thread.start()
        await thread.done.wait()
    if failure:
        raise failure[0]
    if not result:
        raise Killed
    return result[0]


class Workers:
    """As broker/loop/workers.py, with a thread for each job."""

    def __init__(self, count: int, name: str) -> None:
        pass

    async def run(self, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        return await _run_in_thread(current_threads(), function, args)

    def close(self) -> None:
        pass

"""A Completion: something that will be known later, waited for by either shell.

    pending --resolve(value)--> done, value
            --fail(error)-----> done, error

The core sets it, a shell waits for it.  The core knows no events: a shell that wants to wait
leaves a waker, any callable without arguments, and the core calls it when it is done.  The
blocking shell leaves one that releases a lock, the async shell `anyio.Event.set`.

Setter and waiter may be different threads.  No lock is needed: the waiter leaves its waker first
and then looks, the setter sets `done` first and then takes the wakers; whichever order the two
threads interleave in, a waker is called at least once.  So wakers must not mind a second call.  Who
gives up waiting takes its waker back: of an idle consumer one Completion is waited for again and
again, for days.

Invariant: a Completion is set once; `done` never goes back.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

Waker = Callable[[], object]


class Waitable(Protocol):
    """What a shell can wait for: a Completion, or a batch under way."""

    done: bool

    def on_done(self, waker: Waker) -> None: ...

    def forget(self, waker: Waker) -> None: ...


class Completion(Generic[T]):
    __slots__ = ("_value", "_wakers", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None
        self._value: T | None = None
        self._wakers: list[Waker] = []

    def resolve(self, value: T) -> None:
        assert not self.done, "a completion is set once"
        self._value = value
        self._finish()

    def fail(self, error: BaseException) -> None:
        assert not self.done, "a completion is set once"
        self.error = error
        self._finish()

    def _finish(self) -> None:
        self.done = True
        wakers, self._wakers = self._wakers, []
        for wake in tuple(wakers):  # of which somebody may just take one back
            wake()

    def on_done(self, waker: Waker) -> None:
        """Call `waker` when done; at once when it is already."""
        self._wakers.append(waker)
        if self.done:
            waker()

    def forget(self, waker: Waker) -> None:
        """Nobody waits by this one any more; when it is just being done it may be called yet."""
        with suppress(ValueError):
            self._wakers.remove(waker)

    def result(self) -> T:
        """The value, or the error raised.  Only when done."""
        assert self.done, "result() of a completion that is still pending"
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]  # resolve() was given a T


def after_all(pending: Collection[Waitable], then: Callable[[], object]) -> None:
    """Call `then` when the last of those that are not done yet is; at once where there is none.

    Only by the thread that sets them.
    """
    left = len(pending)

    def one_less() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    for one in pending:
        one.on_done(one_less)
    if not pending:
        then()

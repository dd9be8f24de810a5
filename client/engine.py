"""The core that every client has: network, cluster view, and calls that take several requests.

    shell (sockets, time)                   core (no sockets, no clock)
      step(now) ----------------------------> timers, retries, requests that became due
      take_opening(), outgoing, take_closed() <--- what to connect, send, close
      next_wake_ms() <------------------------ when to come back if nothing happens
      connected / received / lost -----------> replies go to whoever asked

There are two shells, thread_driver.py (blocking) and async_driver.py (trio, asyncio); they decide
nothing.  The work of producers and consumers is done by components of the engine, each with its own
`step` and `next_wake_ms` (producing.py, fetching.py, the memberships, share_reading.py and others).

A *call* is something a user waits for (create a topic, look up offsets).  It is written once, as a
generator that yields what it needs and gets the answers sent in; the engine runs it, and the shell
only waits for its Completion:

    def create(...) -> Call[TopicDescription]:
        reply = yield Ask(CreateTopicsRequest(...), to=CONTROLLER)
        ...

    yield Ask(...)       the reply; raises SegbrokerError in the generator when there is none
    yield AskAll([...])  all replies, in order; a failed one is its error
    yield Pause(ms)      nothing but time
    yield Refresh()      a new cluster view
    yield Onward()       nothing; a piece is done, and the next one has a deadline of its own

Invariants: every call has a deadline; when it passes the generator is closed where it stands, and
the Completion fails with TimedOut, naming the last thing that went wrong.  What is asked in pieces
says Onward between two of them, as often as there are pieces, whoever answers.  One thread owns an
engine: it is not thread-safe.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

from segbroker.protocol.schema import Message

from .backoff import Backoff
from .cluster import Cluster
from .completion import Completion
from .errors import (
    WAS_CLOSED,
    BrokerUnreachable,
    ClosedError,
    PeerError,
    SegbrokerError,
    TimedOut,
)
from .network import CONTROL, Network, Node
from .settings import ClientSettings
from .spoken import Reply, Request, VendorReply

T = TypeVar("T")

ANY = "any"
CONTROLLER = "controller"

# Calls that one client may have under way at a time.
CALLS_COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to `to`: a broker id, the controller, or any broker.  Answered with the reply.

    On a `lane` of that broker; it may take `timeout_ms` instead of request_timeout_ms.
    """

    message: Request
    to: int | str = ANY
    lane: str = CONTROL
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AskAll:
    """Several requests at once.  Answered with a list of replies or errors, in order."""

    asks: Sequence[Ask]


@dataclass(frozen=True, slots=True)
class Pause:
    """`why`: what was answered, for the case that the deadline comes first."""

    delay_ms: int
    why: SegbrokerError | None = None


@dataclass(frozen=True, slots=True)
class Refresh:
    """A new cluster view: of these topics, or of all."""

    topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Until:
    """Done when the completion is; answered with its value."""

    completion: Completion[Any]


@dataclass(frozen=True, slots=True)
class Onward:
    """A piece is done: the time of the call begins anew with the next."""


Need = Ask | AskAll | Pause | Refresh | Until | Onward
Call = Generator[Need, Any, T]
OnTimeout = Callable[[], SegbrokerError | int]


class Component(Protocol):
    def step(self, now_ms: int) -> None: ...
    def next_wake_ms(self) -> int | None: ...
    def close(self, error: SegbrokerError) -> None: ...


@dataclass(slots=True, eq=False)
class _Running:
    """One call under way."""

    generator: Call[Any]
    timeout_ms: int
    deadline_ms: int
    on_timeout: OnTimeout | None
    completion: Completion[Any] = field(default_factory=Completion)
    resume_ms: int | None = None
    # What it was answered with, and when, while it was still asking.
    answered: tuple[object, int] | None = None
    is_advancing: bool = False
    last_error: SegbrokerError | None = None
    over: bool = False

    def went_wrong(self, error: SegbrokerError, now_ms: int) -> None:
        """What is to be said of it if its time passes first.  What is given up only as that passes
        says less than what was answered before."""
        if self.last_error is None or now_ms < self.deadline_ms:
            self.last_error = error


class Engine:
    """See the module."""

    def __init__(
        self, settings: ClientSettings, random: Random, *, create_topics: bool = False
    ) -> None:
        self.settings = settings
        self.random = random
        self.network = Network(settings, random)
        self.cluster = Cluster(settings, self.network, random, create_topics=create_topics)
        self.components: list[Component] = []
        self.closed = False
        self._running: dict[_Running, None] = {}

    # The shell's side.

    def step(self, now_ms: int) -> None:
        """Do everything that is due now."""
        self.network.step(now_ms)
        for running in list(self._running):
            if now_ms >= running.deadline_ms:
                self._time_out(running)
            elif running.resume_ms is not None and now_ms >= running.resume_ms:
                running.resume_ms = None
                self._advance(running, None, now_ms)
        for component in self.components:
            component.step(now_ms)
        self.cluster.step(now_ms)

    def next_wake_ms(self) -> int | None:
        """When `step` wants to be called again, if nothing else happens; None: never."""
        wakes = [self.network.next_wake_ms(), self.cluster.next_wake_ms()]
        wakes += [component.next_wake_ms() for component in self.components]
        for running in self._running:
            wakes.append(running.deadline_ms)
            wakes.append(running.resume_ms)
        return min((wake for wake in wakes if wake is not None), default=None)

    def close(self, now_ms: int, error: SegbrokerError | None = None) -> None:
        """End everything under way; nothing can be started afterwards.

        `error` is what waiting callers get; ClosedError when the close was wanted.
        """
        if self.closed:
            return
        self.closed = True
        error = error or ClosedError(WAS_CLOSED)
        for component in self.components:
            component.close(error)
        for running in list(self._running):
            self._finish(running, error)
        self.network.close(now_ms)

    # Calls.

    def backoff(self, longest_ms: int = 1_000, *, attempts: int = 0) -> Backoff:
        """Of what is asked again and again, or has failed so often by now."""
        return Backoff(self.random, self.settings.retry_backoff_ms, longest_ms, attempts)

    def call(
        self,
        generator: Call[T],
        now_ms: int,
        *,
        timeout_ms: int | None = None,
        on_timeout: OnTimeout | None = None,
    ) -> Completion[T]:
        """Run a call; its Completion is done at the latest after `timeout_ms`, of each piece.

        `on_timeout` makes the error of a call that was not done by then (default: TimedOut), or
        says how many milliseconds more it gets.
        """
        timeout_ms = self.settings.api_timeout_ms if timeout_ms is None else timeout_ms
        running = _Running(generator, timeout_ms, now_ms + timeout_ms, on_timeout)
        if self.closed:
            generator.close()
            running.completion.fail(ClosedError(WAS_CLOSED))
        elif len(self._running) >= CALLS_COUNT_MAX:
            generator.close()
            running.completion.fail(
                BrokerUnreachable(f"not begun: {CALLS_COUNT_MAX} calls wait for answers already")
            )
        else:
            self._running[running] = None
            try:
                self._advance(running, None, now_ms)
            except BaseException as exc:
                # Ctrl-C, in a caller's thread: who knows whether anything would wake it again.
                self._finish(running, exc)
                raise
        return running.completion

    def _advance(self, running: _Running, answer: object, now_ms: int) -> None:
        """Give it the answer, and what it is answered with at once: in a loop, as a call may go on
        through thousands of refusals without a wait."""
        running.answered = answer, now_ms
        if running.is_advancing:
            return
        running.is_advancing = True
        try:
            while running.answered is not None and not running.over:
                (answer, now_ms), running.answered = running.answered, None
                self._advance_once(running, answer, now_ms)
        finally:
            running.is_advancing = False

    def _advance_once(self, running: _Running, answer: object, now_ms: int) -> None:
        try:
            if isinstance(answer, SegbrokerError):
                running.went_wrong(answer, now_ms)
                need = running.generator.throw(answer)
            else:
                need = running.generator.send(answer)
        except StopIteration as stop:
            self._finish(running, None, stop.value)
        except SegbrokerError as exc:
            self._finish(running, exc)
        except Exception as exc:
            # A bug in a call is the caller's to see, not the loop's to die of.
            self._finish(running, _senseless(answer, exc) or exc)
        else:
            self._provide(running, need, now_ms)

    def _provide(self, running: _Running, need: Need, now_ms: int) -> None:
        resume = partial(self._advance, running)
        match need:
            case Ask():
                self._ask(need, running, resume, now_ms)
            case AskAll(asks):
                self._ask_all(asks, running, now_ms)
            case Pause(delay_ms, why):
                running.resume_ms = now_ms + delay_ms
                running.last_error = why or running.last_error
            case Refresh(topics):
                self._when_done(self.cluster.refreshed(topics), running, now_ms)
            case Until(completion):
                self._when_done(completion, running, now_ms)
            case Onward():
                running.deadline_ms, running.last_error = now_ms + running.timeout_ms, None
                self._advance(running, None, now_ms)

    def _when_done(self, completion: Completion[Any], running: _Running, now_ms: int) -> None:
        def wake() -> None:
            running.resume_ms = now_ms  # resumed by the next step: not from within the setter
            if isinstance(completion.error, SegbrokerError):
                running.last_error = completion.error

        completion.on_done(wake)

    def _ask(
        self, ask: Ask, running: _Running, resume: Callable[[Reply, int], None], now_ms: int
    ) -> None:
        node = self._target(ask, now_ms)
        if node is None:
            self.cluster.invalidate()
            resume(BrokerUnreachable(f"broker {ask.to} is not in the cluster's metadata"), now_ms)
            return
        self.network.request(
            node,
            ask.message,
            resume,
            now_ms=now_ms,
            deadline_ms=running.deadline_ms,
            timeout_ms=ask.timeout_ms,
        )

    def _ask_all(self, asks: Sequence[Ask], running: _Running, now_ms: int) -> None:
        replies: list[Reply | None] = [None] * len(asks)
        left = len(asks)

        def resume_one(index: int, reply: Reply, at_ms: int) -> None:
            nonlocal left
            replies[index] = reply
            left -= 1
            if isinstance(reply, SegbrokerError):
                running.went_wrong(reply, at_ms)
            if left == 0:
                self._advance(running, replies, at_ms)

        if not asks:
            self._advance(running, [], now_ms)
        for index, ask in enumerate(asks):
            self._ask(ask, running, partial(resume_one, index), now_ms)

    def _target(self, ask: Ask, now_ms: int) -> Node | None:
        to = ask.to
        if to == ANY:
            return self.network.any_node(now_ms)
        if to == CONTROLLER:
            controller = self.cluster.node(self.cluster.controller_id)
            return controller or self.network.any_node(now_ms)
        assert isinstance(to, int), to
        return self.cluster.node(to, ask.lane)

    def _time_out(self, running: _Running) -> None:
        error: SegbrokerError
        if running.on_timeout is not None:
            verdict = running.on_timeout()
            if isinstance(verdict, int):
                running.deadline_ms += verdict
                return
            error = verdict
        else:
            why = f"; last: {running.last_error}" if running.last_error else ""
            error = TimedOut(f"not done within {running.timeout_ms} ms{why}")
            error.__cause__ = running.last_error
        self._finish(running, error)

    def _finish(self, running: _Running, error: BaseException | None, value: object = None) -> None:
        running.over = True
        self._running.pop(running, None)
        running.generator.close()
        if running.completion.done:
            return
        if error is not None:
            running.completion.fail(error)
        else:
            running.completion.resolve(value)


def _senseless(answer: object, exc: Exception) -> PeerError | None:
    """The error of an answer that was well formed and in which something was missing, or too much;
    None: it was not about an answer.
    """
    answers = answer if isinstance(answer, list) else [answer]
    names = {type(each).__name__ for each in answers if isinstance(each, Message | VendorReply)}
    if not names or not isinstance(exc, LookupError | ValueError | AssertionError):
        return None
    error = PeerError(f"a broker's {' and '.join(sorted(names))} makes no sense: {exc!r}")
    error.__cause__ = exc
    return error

"""What a group gives and takes, told to the caller: in its thread, between two records, in order.

    tell --> events, in order --next--> the caller runs the callback --done--> what comes after it
                 |
                 +-- no callback: done at once, or when the caller has nothing of it in hand

Telling interrupts the handing out, so that the caller comes after the record that it has in hand.

Ctrl-C may come at any call: what the caller was to be told when it came is told when it is back,
or closes, unless its callback had begun.

What was lost is told also to who leaves before it came to hear of it; what goes before its
assignment was told, is not told of at all.

Threads: everything here runs under the shell's lock; between `next` and `done` the caller runs the
callback without it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from .progress import Progress
from .records import TopicPartition

Listener = Callable[[list[TopicPartition]], Any]
"""Called with partitions; in an async consumer it may be an async function."""


class News(Enum):
    """What became of partitions."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Event:
    """Something that the caller has to be told: with which callback, and what comes after it."""

    __slots__ = ("after", "is_told", "listener", "news", "partitions", "until_ms", "waits_for")

    def __init__(
        self,
        news: News,
        listener: Listener | None,
        partitions: Iterable[TopicPartition],
        after: Callable[[], object] = lambda: None,
        waits_for: Iterable[TopicPartition] = (),
        until_ms: int | None = None,
    ) -> None:
        self.news = news
        self.listener = listener
        # Its callback has begun.
        self.is_told = False
        self.partitions = sorted(partitions)
        self.after = after
        # Without a listener: the caller may not have any of these in hand.
        self.waits_for = set(waits_for)
        # With one: how long the caller is waited for with partitions that it has not in hand.
        self.until_ms = until_ms


class Events:
    """See the module."""

    def __init__(self, progress: Progress, notify: Callable[[], object]) -> None:
        """`notify` wakes a caller that waits for records."""
        self._progress = progress
        self._notify = notify
        self._waiting: deque[Event] = deque()
        self._running: Event | None = None
        self._is_over = False

    @property
    def is_waiting(self) -> bool:
        return not self._is_over and (bool(self._waiting) or self._running is not None)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and self._running is None

    def tell(self, event: Event) -> None:
        self._waiting.append(event)
        self._progress.interrupt()
        self.settle()
        self._notify()

    def settle(self) -> None:
        """What needs no callback does not wait for the caller."""
        for event in list(self._waiting):
            if event.listener is not None:
                continue
            if not any(self._progress.is_busy_with(tp) for tp in event.waits_for):
                self._waiting.remove(event)
                event.after()

    def too_late(self, now_ms: int) -> set[TopicPartition]:
        """Partitions of events that were not told in time and that the caller has not in hand.
        They do not wait for it any more."""
        late: set[TopicPartition] = set()
        interrupted = self._interrupted
        for event in self._untold():
            if event.until_ms is None or now_ms < event.until_ms:
                continue
            event.until_ms = None
            free = {tp for tp in event.partitions if not self._progress.is_busy_with(tp)}
            if interrupted is None:
                free -= self.being_told()
            rest = [tp for tp in event.partitions if tp not in free]
            if event.is_told:
                continue  # its callback has begun meanwhile, in the caller's thread
            event.partitions = rest  # that thread comes in at a call: there is none between these
            if not rest and event is interrupted:
                self._call_off(event)
            elif not rest:
                self._waiting.remove(event)
            late |= free
        return late

    def next_wake_ms(self) -> int | None:
        times = (event.until_ms for event in self._untold())
        return min((time for time in times if time is not None), default=None)

    @property
    def _interrupted(self) -> Event | None:
        """What is about to be told, or was when Ctrl-C came."""
        event = self._running
        return None if event is None or event.listener is None or event.is_told else event

    def _untold(self) -> list[Event]:
        interrupted = self._interrupted
        return [*self._waiting] if interrupted is None else [interrupted, *self._waiting]

    def _call_off(self, event: Event) -> None:
        """Whoever was about to tell it, does not."""
        event.is_told = True
        self._running = None

    def next(self) -> Event | None:
        """What the caller has to be told next; it says `done` when that is done."""
        if self._is_over:
            return None
        if self._running is None and self._waiting:
            self._running = self._waiting[0]
            del self._waiting[0]  # no call, at which Ctrl-C may come
        return self._running

    def done(self, event: Event) -> None:
        if self._running is not event:
            return  # its callback closed the consumer: nothing comes after it
        self._running = None
        event.after()

    def take_back(self) -> None:
        """What was to be told when Ctrl-C came waits again."""
        event = self._interrupted
        if event is not None:
            self._call_off(event)
            self._waiting.appendleft(event)

    def last(self, events: Sequence[Event]) -> None:
        """The caller is told these, and nothing any more."""
        self._is_over = True
        self._waiting.clear()
        if events:
            self._running = events[-1]

    def clear(self) -> None:
        self._waiting.clear()

    def being_told(self) -> set[TopicPartition]:
        """What the caller is told about at this moment."""
        return set(self._running.partitions) if self._running is not None else set()

    def being_told_gone(self) -> set[TopicPartition]:
        """The same, where it is that they go, or are gone."""
        if self._running is None or self._running.news is News.ASSIGNED:
            return set()
        return self.being_told()

    def to_be_told(self, news: News) -> set[TopicPartition]:
        """What the caller has still to hear this of."""
        return {tp for event in self._waiting if event.news is news for tp in event.partitions}

    def withdraw(self, partitions: set[TopicPartition]) -> None:
        """These are lost: that they came, or were to be given up, is not to be told any more."""
        self._withdraw(partitions, lambda event: event.news is not News.LOST)

    def withdraw_given_up(self, partitions: set[TopicPartition]) -> None:
        """These stay: that they go, or are gone already, is not to be told any more."""
        self._withdraw(partitions, lambda event: bool(event.waits_for & partitions))

    def _withdraw(self, partitions: set[TopicPartition], is_void: Callable[[Event], bool]) -> None:
        for event in list(self._waiting):
            if not is_void(event):
                continue
            event.partitions = [tp for tp in event.partitions if tp not in partitions]
            event.waits_for -= partitions
            if not event.partitions:
                self._waiting.remove(event)

"""What a shard of the WAL writes and syncs together, and who is told of it.

    sources (partitions)  their frames and a mark --+
    requests              frames, and `done` -------+--> one write, one sync --> settle
    riders                frames, nobody waits -----+    one call into the loop for TOLD_AT_ONCE of
                                                         them: others have their turn between two;
                                                         whoever waits in a thread is told at once

A group has one outcome for all of it: durable, or the error.  An exception in what one waiter does
with the outcome does not keep it from the others.

shard.py decides when a group is taken and what happens after a failure.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

import structlog

from ..disk.storage import PAGE
from .frames import Frame, FrameType

log = structlog.get_logger()

TOLD_AT_ONCE: Final = 256
"""Some ms of the loop: of thousands of commits each makes a state anew."""

Done: TypeAlias = Callable[[OSError | None], None]
CallSoon: TypeAlias = Callable[[Callable[[], None]], object]
Acknowledge: TypeAlias = Callable[[], None]
"""Sends what somebody waits for.  Must not raise, and must not wait."""


class Source(Protocol):
    """A partition, as the WAL sees it: `wal_key` is its topic id and number, `wal_queued` belongs
    to the shard."""

    wal_key: tuple[bytes, int]
    wal_queued: bool

    def take_frames(self) -> tuple[list[Frame], int]:
        """What it has appended since the last call, and a mark for `wal_synced`.  In the writer."""
        ...

    def wal_synced(self, mark: int) -> None:
        """Everything up to the mark is durable.  Through call_soon."""
        ...

    def wal_gave_up(self) -> None:
        """What was taken will not be written: nothing behind it may be, either.  In the writer."""
        ...

    def wal_failed(self, cause: OSError) -> None:
        """What was taken is not durable and never will be.  Through call_soon."""
        ...

    def wal_checkpoint(self) -> bool:
        """Make durable in its own files everything written so far; False: that failed."""
        ...


class Request(NamedTuple):
    """Frames that are not a partition's appends; `done` runs through call_soon."""

    frames: list[Frame]
    done: Done | None

    @property
    def has_events(self) -> bool:
        """Whether it asks for control events."""
        return any(frame.type is FrameType.CONTROL for frame in self.frames)


Item: TypeAlias = Source | Request
Ack: TypeAlias = tuple[Source, int]


class BlockingRequest(Request):
    """A request whose caller waits in its own thread: `done` runs in the writer's."""


class Group:
    """What is written and synced together."""

    __slots__ = ("acknowledge", "acks", "frames", "has_control", "requests", "size")

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.acks: list[Ack] = []
        self.requests: list[Request] = []
        self.acknowledge: Acknowledge | None = None
        """Called as soon as all is durable, before anything else that follows from it."""
        self.has_control = False
        self.size = 0

    def add_request(self, request: Request) -> None:
        self.requests.append(request)
        self.has_control = self.has_control or request.has_events
        for frame in request.frames:
            self.frames.append(frame)
            self.size += frame.size

    def refuse_events(self, error: OSError, call_soon: CallSoon) -> None:
        """Tell those who asked for control events that there are none; the others stay."""
        refused = Group()
        refused.requests = [request for request in self.requests if request.has_events]
        self.requests = [request for request in self.requests if not request.has_events]
        self.frames = [frame for frame in self.frames if frame.type is not FrameType.CONTROL]
        self.has_control = False
        refused.settle(error, call_soon)

    def settle(self, error: OSError | None, call_soon: CallSoon) -> None:
        """Tell everybody: who waits in a thread at once, the others by calls in the loop."""
        later: list[Done] = []
        if error is not None:
            for source, _ in self.acks:
                source.wal_gave_up()
        for request in self.requests:
            if isinstance(request, BlockingRequest):
                assert request.done is not None
                request.done(error)
            elif request.done is not None:
                later.append(request.done)
        acks = self.acks
        if len(acks) + len(later) > TOLD_AT_ONCE:
            for start in range(0, len(acks), TOLD_AT_ONCE):
                call_soon(partial(_report, acks[start : start + TOLD_AT_ONCE], [], error))
            for start in range(0, len(later), TOLD_AT_ONCE):
                call_soon(partial(_report, [], later[start : start + TOLD_AT_ONCE], error))
        elif acks or later:
            call_soon(lambda: _report(acks, later, error))


def crosses_a_page(frames: Iterable[Frame], position: int, limit: int) -> bool:
    """Whether the control events of a group lie in more than one page of a file where these frames
    are written from `position` on, as many as fit below `limit`."""
    first = -1
    for frame in frames:
        end = position + frame.size
        if end > limit:
            break
        if frame.type is FrameType.CONTROL:
            first = first if first >= 0 else position // PAGE
            if (end - 1) // PAGE > first:
                return True
        position = end
    return False


def _report(acks: list[Ack], requests: list[Done], error: OSError | None) -> None:
    """The outcome of a group, in the loop."""
    for source, mark in acks:
        try:
            if error is None:
                source.wal_synced(mark)
            else:
                source.wal_failed(error)
        except Exception:
            _report_failed()
    for done in requests:
        try:
            done(error)
        except Exception:
            _report_failed()


def _report_failed() -> None:
    with suppress(MemoryError):  # the others are told all the same
        log.exception("wal_report_failed")

"""The steps of one client, what came of each, and what is wrong with that.

Clock      of the clients: it may go ahead
stage      brokers, switchboard, names: what all stories share
Story      one of them: its client goes through a door of its own
"""

import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from segbroker.client import (
    DeliveryFailed,
    ProducerFenced,
    Record,
    SegbrokerError,
    clock,
    settings,
    share_settings,
)
from segbroker.client.errors import AcknowledgeFailed
from segbroker.protocol.errors import ErrorCode
from segbroker.testing.embedded import EmbeddedBroker

from .deeds import Fault
from .kits import Kit
from .switchboard import Door, Switchboard

LIMIT_MS: Final = 4_000
"""Of a call, and of a record, where faults last: what is soon over may have longer."""
BUSY: Final = ("did not reply in time", "could not be reached in time", "no answer")
"""What an error says on a machine that is slower than a client is patient."""
FENCING: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
SLACK_S: Final = 20
"""What a busy machine may take besides."""


class Clock:
    """Of the clients, instead of waiting: a limit is over when it is to be, and on no machine
    before."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self._ahead_ns

    def leap(self, ms: int) -> None:
        """So much time passes."""
        self._ahead_ns += ms * 1_000_000


@dataclass
class Stage:
    """See the module.

    What a broker waits for has a share of the limit: a patient stage drops no member, and gives no
    record to the next, because the machine stood still.
    """

    broker: EmbeddedBroker
    board: Switchboard
    limit_ms: int
    clock: Clock
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def session_ms(self) -> int:
        return self.limit_ms * 3 // 4

    @property
    def lock_ms(self) -> int:
        """Of a shared record."""
        return self.limit_ms // 4

    @property
    def polls(self) -> range:
        """Of 200 ms each, as long as what has to come may take."""
        return range(self.limit_ms * 3 // 200)


@contextmanager
def stage(limit_ms: int = LIMIT_MS) -> Iterator[Stage]:
    """All of it; clients are patient for so long, and try again soon."""
    guarded: dict[str, Any] = {"authorizer": "acl", "super_users": "User:ANONYMOUS"}
    settled: dict[str, Any] = {
        **guarded,
        "group_initial_rebalance_delay_ms": 0,
        "group_consumer_heartbeat_interval_ms": 50,
        "group_share_heartbeat_interval_ms": 500,
        "group_min_session_timeout_ms": 100,
    }
    with (
        EmbeddedBroker(**settled, log_level="error") as broker,
        EmbeddedBroker(auto_create_topics=False, log_level="error", **guarded) as stranger,
        Switchboard(_address(broker), _address(stranger)) as board,
        _impatient(limit_ms, but=broker.address),
        patch.object(clock, "monotonic_ns", (passing := Clock()).monotonic_ns),
    ):
        yield Stage(broker, board, limit_ms, passing)


def _address(broker: EmbeddedBroker) -> tuple[str, int]:
    host, _, port = broker.address.rpartition(":")
    return host, int(port)


@contextmanager
def _impatient(limit_ms: int, but: str) -> Iterator[None]:
    """Producers, too, have these settings: their constructors do not take all of them.  Who looks
    at what is there, past all doors, has patience.
    """
    split = settings.split_options

    def split_options(bootstrap: Any, options: Any) -> Any:  # noqa: ANN401
        if bootstrap == but:
            return split(bootstrap, options)
        mine = {
            "api_timeout_ms": limit_ms,
            "connect_timeout_ms": limit_ms,
            "request_timeout_ms": limit_ms // 2,
            "retry_backoff_ms": 5,
            "reconnect_backoff_ms": 5,
        }
        return split(bootstrap, {**mine, **options})

    with (
        patch.object(settings, "split_options", split_options),
        patch.object(share_settings, "split_options", split_options),
    ):
        yield


class Failed:
    """What a step came to that has raised."""

    def __init__(self, error: SegbrokerError) -> None:
        self.error = error


@dataclass
class Story:
    """Attributes:
    name: of this story alone: topics, groups and ids begin with it.
    outcomes: of each step in front of the healing, in a word or two.
    problems: what is wrong.
    is_idempotent: what it does may be done twice: what passes is tried again.
    """

    stage: Stage
    kit: Kit
    fault: Fault
    name: str
    door: Door
    outcomes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    is_healed: bool = False
    is_idempotent: bool = True
    _opened: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.door.address

    def heal(self) -> None:
        self.door.heal()
        self.is_healed = True

    def check(self, is_right: object, problem: str) -> None:
        if not is_right:
            self.problems.append(problem)

    async def step(self, name: str, work: Callable[[], Awaitable[Any]], calls: int = 1) -> Any:  # noqa: ANN401
        """The result of so many calls, or Failed."""
        begun_s = time.monotonic()
        outcome = "ok"
        got: Any
        try:
            got = await work()
        except SegbrokerError as exc:
            got = Failed(exc)
            outcome = kind_of(exc)
            self.told.append(f"{name}: {type(exc).__name__}: {exc}")
            self._judge(name, exc)
        except Exception as exc:
            got = Failed(SegbrokerError(repr(exc)))
            outcome = type(exc).__name__
            trace = "".join(traceback.format_exception(exc, limit=-4))
            self.problems.append(f"{name} raised no error of ours: {trace}")
        else:
            self.told.append(f"{name}: {got!r:.200}")
        took_s = time.monotonic() - begun_s
        if took_s > calls * self.stage.limit_ms / 1000 + SLACK_S:
            self.problems.append(f"{name} took {took_s:.1f} s")
        if not self.is_healed:
            self.outcomes.append(f"{name}: {outcome}")
        return got

    def _judge(self, name: str, exc: SegbrokerError) -> None:
        text = str(exc)
        if "bug in the client" in text:
            trace = "".join(traceback.format_exception(exc, limit=-4))
            self.problems.append(f"{name}: {trace}")
        if not text:
            self.problems.append(f"{name}: {type(exc).__name__} says nothing")
        if self.is_healed:
            return
        codes = [deed.code for deed in self.fault.codes]
        is_late = any(words in text for words in BUSY)  # that is why, then
        if is_late or not self.door.happened or len(codes) < len(self.fault.deeds):
            pass
        elif not any(says(exc, code) for code in codes):
            names = " or ".join(code.name for code in codes)
            self.problems.append(f"{name} does not say why ({names}): {exc!r}")
        if self.is_idempotent and self.fault.passes and not is_late:
            self.problems.append(f"{name} could have been tried again: {exc!r}")

    async def again(self, name: str, work: Callable[[], Awaitable[Any]], calls: int = 1) -> Any:  # noqa: ANN401
        """As `step`, of what has to work."""
        got = await self.step(name, work, calls)
        if isinstance(got, Failed):
            self.problems.append(f"{name}, when all is well: {got.error!r}")
        return got

    async def open(self, name: str, client: Any) -> bool:  # noqa: ANN401
        """Whether it is open."""
        self._opened.append(client)
        return not isinstance(await self.step(name, lambda: self.kit.open(client)), Failed)

    async def close(self, name: str, client: Any) -> Any:  # noqa: ANN401
        got = await self.step(name, lambda: self.kit.close(client), calls=4)
        self._opened.remove(client)
        return got

    async def end(self) -> None:
        """Close what the story has left open."""
        self.heal()
        for client in reversed(list(self._opened)):
            await self.close("close at the end", client)

    # What is there.

    def records(self, topic: str) -> list[Record]:
        return self.stage.broker.records(topic)

    def values(self, topic: str) -> Counter[bytes | None]:
        return Counter(record.value for record in self.records(topic))


def kind_of(exc: SegbrokerError) -> str:
    """An error in a word, with those in it."""
    inner: list[SegbrokerError] = []
    if isinstance(exc, DeliveryFailed):
        inner = [each.error for each in exc.undelivered]
    elif isinstance(exc, AcknowledgeFailed):
        inner = [each.error for each in exc.failed]
    names = sorted({type(each).__name__ for each in inner})
    return type(exc).__name__ + (f" of {', '.join(names)}" if names else "")


def says(exc: BaseException, code: ErrorCode) -> bool:
    """Whether an error says that the broker has answered with this code."""
    seen: list[BaseException] = [exc]
    while seen:
        one = seen.pop()
        if getattr(one, "code", None) == code:
            return True
        if isinstance(one, ProducerFenced) and code in FENCING:
            return True
        text = str(one)
        if code.description in text or code.name in text or f"error code {int(code)}" in text:
            return True
        if isinstance(one, DeliveryFailed):
            seen += [each.error for each in one.undelivered]
        if isinstance(one, AcknowledgeFailed):
            seen += [each.error for each in one.failed]
        if one.__cause__ is not None:
            seen.append(one.__cause__)
    return False

"""A signal whose handler raises comes behind a step of the client's core, never within one."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from types import CodeType, FrameType
from typing import Any

import pytest
import trio

from segbroker.client import AsyncProducer, Producer, core_lock
from segbroker.client.accumulator import Accumulator
from segbroker.client.connection import Connection
from segbroker.client.core_lock import CoreLock
from segbroker.client.producer_batch import PartitionQueue, ProducerBatch
from segbroker.client.producing import Producing
from segbroker.client.thread_driver import ThreadDriver
from segbroker.protocol.record_batch import HEADER_SIZE

from ..support.daemon import Daemon
from ..support.waiting import DEADLINE_S

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1]


def leave(number: int, frame: FrameType | None) -> None:
    sys.exit(number)


@pytest.fixture(params=NUMBERS, ids=lambda number: number.name)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that ends whatever the main thread does."""
    before = signal.signal(request.param, leave)
    yield request.param
    assert signal.signal(request.param, before) is leave


class Signalled:
    """A method at whose begin a signal comes, once."""

    def __init__(self, patch: pytest.MonkeyPatch, of: type, name: str, skip: int = 0) -> None:
        self.has_come = False
        left = skip
        original: Callable[..., Any] = getattr(of, name)

        def signalled(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            nonlocal left
            if not self.has_come and threading.current_thread() is threading.main_thread():
                left -= 1
                if left < 0:
                    self.has_come = True
                    signal.raise_signal(signal.SIGINT)
            return original(*args, **options)

        patch.setattr(of, name, signalled)


def test_a_handler_runs_when_the_lock_is_free_again(number: signal.Signals) -> None:
    lock, done = CoreLock(), False
    for _ in range(2):
        with pytest.raises(SystemExit) as caught:  # noqa: PT012
            with lock:
                signal.raise_signal(number)
                done = True
            pytest.fail("it did not come")
        assert caught.value.code == number
        assert done
        assert signal.getsignal(number) is leave
    with lock, lock.undisturbed:
        pass


def test_each_handler_runs_whatever_the_first_one_raises(number: signal.Signals) -> None:
    """As it is without the lock: an end of the process is not lost behind Ctrl-C."""
    handled: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: handled.append(number))
    try:
        with pytest.raises(SystemExit), CoreLock():  # noqa: PT012
            signal.raise_signal(number)
            for _ in range(2_000):  # one by one where the main thread waits for the lock
                signal.raise_signal(signal.SIGUSR2)
        assert handled == [signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_signal_that_comes_behind_the_lock_keeps_none_from_being_handled(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: handled.append(number))
    set_handler = core_lock._set_handler

    def put_on(of: int, handler: Any) -> Any:  # noqa: ANN401
        was = set_handler(of, handler)
        if handler is leave:
            signal.raise_signal(number)
        return was

    monkeypatch.setattr(core_lock, "_set_handler", put_on)
    try:
        with pytest.raises(SystemExit), CoreLock():
            signal.raise_signal(signal.SIGUSR2)
        assert handled == [signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_handler_may_raise_anything_while_others_are_put_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(number: int, frame: FrameType | None) -> None:
        raise ValueError("of the program")

    kept = {of: signal.signal(of, fail) for of in NUMBERS}
    set_handler = core_lock._set_handler

    def put_off(of: int, handler: Any) -> Any:  # noqa: ANN401
        if of == signal.SIGALRM and handler is not fail:
            signal.raise_signal(of)
        return set_handler(of, handler)

    monkeypatch.setattr(core_lock, "_set_handler", put_off)
    try:
        with pytest.raises(ValueError, match="of the program"), CoreLock():
            pytest.fail("it has come before")
        assert [signal.getsignal(of) for of in NUMBERS] == [fail] * len(NUMBERS)
    finally:
        for of, handler in kept.items():
            signal.signal(of, handler)


ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("when", ["putting off", "putting on"])
@pytest.mark.parametrize("comes_at", ENDING, ids=lambda number: number.name)
@pytest.mark.parametrize("to", [signal.SIG_IGN, leave], ids=["ignored", "another handler"])
def test_what_a_handler_makes_of_handlers_holds(
    when: str,
    comes_at: signal.Signals,
    to: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a program that begins to end: what is signalled next is not to disturb that."""
    kept = {of: signal.getsignal(of) for of in ENDING}

    def end(number: int, frame: FrameType | None) -> None:
        for of in ENDING:
            signal.signal(of, to)

    for of in ENDING:
        signal.signal(of, end)
    set_handler = core_lock._set_handler
    has_come = False

    def put(of: int, handler: Any) -> Any:  # noqa: ANN401
        nonlocal has_come
        if of == comes_at and (handler is end) is (when == "putting on") and not has_come:
            has_come = True
            was = set_handler(of, handler) if when == "putting on" else None
            signal.raise_signal(of)
            if was is not None:
                return was
        return set_handler(of, handler)

    monkeypatch.setattr(core_lock, "_set_handler", put)
    try:
        with CoreLock():
            pass
        assert has_come
        assert [signal.getsignal(of) for of in ENDING] == [to] * len(ENDING)
    finally:
        for of, handler in kept.items():
            signal.signal(of, handler)


class Over(Exception):
    """The time of something is."""


def test_an_alarm_that_comes_while_handlers_are_put_on_leaves_none_off(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python runs handlers also in front of each change: the one that is to be put on then is not,
    and Ctrl-C would be noted for ever."""

    set_handler = core_lock._set_handler
    left = 2

    def put(of: int, handler: Any) -> Any:  # noqa: ANN401
        nonlocal left
        if handler is leave and left:
            left -= 1
            raise Over
        return set_handler(of, handler)

    monkeypatch.setattr(core_lock, "_set_handler", put)
    lock = CoreLock()
    with pytest.raises(Over), lock:
        pass
    # Two came, and it is off still: it is handled all the same, at once, and is on again.
    with pytest.raises(SystemExit):
        signal.raise_signal(number)
    assert signal.getsignal(number) is leave
    left = 2
    with pytest.raises(Over), lock:
        pass
    with pytest.raises(SystemExit), lock:
        signal.raise_signal(number)
    assert signal.getsignal(number) is leave


def test_alarms_at_any_time_leave_the_other_handlers_as_they_were() -> None:
    def end(number: int, frame: FrameType | None) -> None:
        raise Over

    interrupt = signal.getsignal(signal.SIGINT)  # another test may have begun a Spark session
    alarm = signal.signal(signal.SIGALRM, end)
    term = signal.signal(signal.SIGTERM, leave)
    try:
        for n in range(300):
            lock = CoreLock()
            with pytest.raises(Over):  # noqa: PT012
                signal.setitimer(signal.ITIMER_REAL, (500 + n * 997 % 1_000) * 1e-6)
                while True:
                    with lock:
                        pass
            with lock:  # what two alarms at once could leave is put on here
                pass
            assert signal.getsignal(signal.SIGINT) is interrupt
            assert signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, term)
        signal.signal(signal.SIGALRM, alarm)


def test_an_alarm_at_any_time_leaves_the_lock_alone_free() -> None:
    """Also behind the call of `__enter__`, where Python 3.14 runs handlers, too."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Over

    alarm = signal.signal(signal.SIGALRM, end)
    try:
        plain = CoreLock().plain
        for n in range(300):
            with pytest.raises(Over):  # noqa: PT012
                signal.setitimer(signal.ITIMER_REAL, (100 + n * 997 % 400) * 1e-6)
                while True:
                    with plain:
                        assert plain.is_mine
            assert not plain.is_mine
    finally:
        signal.signal(signal.SIGALRM, alarm)


def test_what_belongs_together_is_disturbed_at_its_end(number: signal.Signals) -> None:
    lock, steps = CoreLock(), []
    with pytest.raises(SystemExit), lock.undisturbed:  # noqa: PT012
        with lock:
            signal.raise_signal(number)
            steps.append("locked")
        with lock.undisturbed:
            steps.append("behind it")
    assert steps == ["locked", "behind it"]


def test_an_error_within_the_lock_gives_it_back(number: signal.Signals) -> None:
    lock = CoreLock()
    with pytest.raises(ValueError, match="within"), lock:
        raise ValueError("within")
    with pytest.raises(SystemExit) as caught, lock:  # noqa: PT012
        signal.raise_signal(number)
        raise ValueError("within")
    assert isinstance(caught.value.__context__, ValueError)
    with lock:
        pass


def test_another_thread_leaves_the_handlers_alone(number: signal.Signals) -> None:
    lock, seen = CoreLock(), []

    def use() -> None:
        with lock:
            seen.append(signal.getsignal(number))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [leave]


def test_a_child_has_the_handlers_of_its_parent(number: signal.Signals) -> None:
    lock = CoreLock()
    with lock:
        child = os.fork()
        if not child:
            lock.forked()
            is_right = signal.getsignal(number) is leave
            with lock:  # nobody has it
                os._exit(0 if is_right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_what_has_come_to_the_parent_is_not_handled_by_its_child(number: signal.Signals) -> None:
    lock = CoreLock()
    statuses = []
    with pytest.raises(SystemExit), lock:  # noqa: PT012
        signal.raise_signal(number)
        child = os.fork()
        if not child:
            try:
                lock.forked()
                os._exit(0)
            finally:
                os._exit(1)
        statuses.append(os.waitpid(child, 0)[1])
    assert [os.waitstatus_to_exitcode(status) for status in statuses] == [0]


def test_a_child_has_them_in_whatever_instant_another_thread_forks(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = CoreLock()
    children: list[int] = []
    set_handler = core_lock._set_handler

    def put_off(of: int, handler: Any) -> Any:  # noqa: ANN401
        was = set_handler(of, handler)
        if of == number and not children:
            children.append(os.fork())
            if not children[0]:
                lock.forked()
                os._exit(0 if signal.getsignal(number) is leave else 1)
        return was

    monkeypatch.setattr(core_lock, "_set_handler", put_off)
    with lock:
        pass
    _, status = os.waitpid(children[0], 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("of", "name", "skip"),
    [
        pytest.param(Accumulator, "_split", 0, id="between pending and batches"),
        pytest.param(Accumulator, "_split", 1, id="the same, later"),
        pytest.param(Accumulator, "_place", 0, id="placing"),
    ],
)
def test_what_was_sent_before_it_is_delivered(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, of: type, name: str, skip: int
) -> None:
    deliveries = []
    with Producer(daemon.address, linger_ms=60_000) as producer:
        signalled = Signalled(monkeypatch, of, name, skip)
        with suppress(KeyboardInterrupt):
            for n in range(20_000):
                deliveries.append(producer.send(topic, bytes(400), key=b"%d" % n))  # noqa: PERF401
        assert signalled.has_come
        assert len(deliveries) < 20_000
        producer.flush(DEADLINE_S)
        assert all(delivery.done for delivery in deliveries)
        assert deliveries[-1].result().topic == topic


@pytest.mark.parametrize("name", ["_seal_if_full", "_room", "_open"])
def test_a_record_that_is_placed_alone_is_there_or_not(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    deliveries = []
    with Producer(daemon.address, linger_ms=60_000, batch_bytes=2_000) as producer:
        signalled = Signalled(monkeypatch, Accumulator, name)
        with suppress(KeyboardInterrupt):
            while True:
                delivery = producer.send(topic, bytes(100), partition=0, headers={"h": b"v"})
                deliveries.append(delivery)
        assert signalled.has_come
        deliveries.append(producer.send(topic, b"last", partition=0))
        producer.flush(DEADLINE_S)
        assert [delivery.result().offset for delivery in deliveries] == list(range(len(deliveries)))


def interrupted_at(line: int, function: Callable[[], object], code: CodeType) -> bool:
    """Call it, with KeyboardInterrupt at its so-manieth line; whether it has as many."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
        nonlocal left
        if frame.f_code is code:
            left -= event == "line"
            if not left:
                raise KeyboardInterrupt
            return trace
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_batch_has_as_many_of_each_column_wherever_a_record_is_interrupted() -> None:
    for line in count(1):
        batch = ProducerBatch(PartitionQueue("t", 0, lambda _: None), 0, 0)
        batch.add(b"v", None, None, None, 10)
        add = partial(batch.add, b"w", b"k", (("h", b"v"),), 7, 10)
        if not interrupted_at(line, add, ProducerBatch.add.__code__):
            break
        columns = (batch.keys, batch.headers, batch.timestamps)
        assert {len(one) for one in columns if one is not None} <= {len(batch.values)}
        assert batch.size == HEADER_SIZE + 10 * len(batch.values)
    assert line > 10


@pytest.mark.parametrize("count", [20_000, 3], ids=["sending", "flushing"])
def test_what_was_sent_before_it_is_delivered_by_an_async_producer(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """On trio, which raises it in the task; on asyncio the task is cancelled where it waits."""

    async def main() -> None:
        deliveries = []
        async with AsyncProducer(daemon.address, linger_ms=60_000) as producer:
            await (await producer.send(topic, b"first", key=b"k"))
            signalled = Signalled(monkeypatch, Accumulator, "_split", 1)
            with suppress(KeyboardInterrupt):
                for n in range(count):
                    deliveries.append(await producer.send(topic, bytes(400), key=b"%d" % n))  # noqa: PERF401
                await producer.flush()
            assert signalled.has_come
            await producer.flush()
        assert all(delivery.done for delivery in deliveries)

    trio.run(main)


@pytest.mark.parametrize(
    ("of", "name"),
    [
        pytest.param(Producing, "_send_request", id="making a request"),
        pytest.param(Connection, "_send", id="queueing a request"),
        pytest.param(ThreadDriver, "_send", id="sending it"),
        pytest.param(ThreadDriver, "_send_all", id="within sending it"),
    ],
)
def test_a_producer_without_linger_goes_on_behind_it(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, of: type, name: str
) -> None:
    with Producer(daemon.address, linger_ms=0) as producer:
        producer.send(topic, b"first").result()
        signalled = Signalled(monkeypatch, of, name)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            while True:  # until it is sent from here: the client's own thread may be first
                producer.send(topic, b"next").result()
        assert signalled.has_come
        # At its deadline the connection would be given up, and all of it begun anew.
        assert producer.send(topic, b"last").result(20).topic == topic

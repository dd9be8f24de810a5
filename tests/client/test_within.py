"""A signal's handler, or a finalizer, that comes within the client's work waits for nobody there.

The thread that it runs in has the lock of the core: what waited for that would wait for itself.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from segbroker.client import Admin, BusyError, Consumer, Producer, ShareConsumer
from segbroker.client.accumulator import Accumulator
from segbroker.client.fetching import Fetching
from segbroker.client.thread_driver import ThreadDriver

from ..support.daemon import Daemon
from ..support.waiting import DEADLINE_S, until

NEVER: Any = {"linger_ms": 60_000}


class Within:
    """Does something at the begin of a method, once, in the thread that is to."""

    def __init__(
        self, patch: pytest.MonkeyPatch, of: type, name: str, do: Callable[[], object]
    ) -> None:
        self.raised: BaseException | None = None
        self.is_done = threading.Event()
        self.is_wanted = True
        """Whose turn it is."""
        self.thread: threading.Thread | None = None
        original: Callable[..., Any] = getattr(of, name)

        def within(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            if self.is_wanted and threading.current_thread() is self.thread:
                self.is_wanted = False
                try:
                    do()
                except BaseException as exc:
                    self.raised = exc
                self.is_done.set()
            return original(*args, **options)

        patch.setattr(of, name, within)


@contextmanager
def handled(do: Callable[[], object]) -> Iterator[None]:
    """What SIGUSR1 does."""

    def handle(number: int, frame: FrameType | None) -> None:
        do()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


USES: dict[str, Callable[[Producer, str], object]] = {
    "flush": lambda producer, topic: producer.flush(),
    "a call": lambda producer, topic: producer.partitions_for(topic),
    "close": lambda producer, topic: producer.close(),
    "a record with a header": lambda producer, topic: producer.send(topic, b"", headers={"a": b""}),
    "many records": lambda producer, topic: producer.send_many(topic, [b""]),
    "a record to wait for": lambda producer, topic: producer.send(topic, b"waited for").result(),
}


@pytest.mark.parametrize("use", USES)
def test_a_handler_that_uses_what_it_has_interrupted_is_told(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """And what was interrupted is as if that had raised anything else."""
    producer = Producer(daemon.address, **NEVER).open()
    producer.send(topic, b"first", partition=0)
    within = Within(
        monkeypatch, Accumulator, "_seal_if_full", lambda: signal.raise_signal(signal.SIGUSR1)
    )
    within.thread = threading.main_thread()
    with handled(lambda: USES[use](producer, topic)):
        delivery = producer.send(topic, b"next", partition=0)
    assert isinstance(within.raised, BusyError)
    assert "within the client's own work" in str(within.raised)
    producer.flush(DEADLINE_S)
    assert delivery.result().offset == 1
    producer.close()


def io_thread(producer: Producer) -> threading.Thread:
    thread = producer._driver._thread
    assert thread is not None
    return thread


@pytest.mark.parametrize("linger_ms", [0, 5], ids=["at once", "lingering"])
@pytest.mark.parametrize("name", ["seal_due", "next_linger_ms"])
def test_what_a_finalizer_sends_is_sent(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, linger_ms: int, name: str
) -> None:
    """As from a log that warns of what nobody closed: the collector runs it at any allocation."""
    with Producer(daemon.address, linger_ms=linger_ms) as producer:
        producer.partitions_for(topic)
        producer.send(topic, b"first").result(DEADLINE_S)
        within = Within(monkeypatch, Accumulator, name, lambda: producer.send(topic, b"said"))
        within.thread = io_thread(producer)
        producer._driver.wake_by(0)
        assert within.is_done.wait(DEADLINE_S)
        assert within.raised is None
        # By itself: nothing else is sent, and nobody waits for it.
        with Consumer(daemon.address, topic) as consumer:
            values = {record.value for record in (next(iter(consumer)), next(iter(consumer)))}
        assert values == {b"first", b"said"}


@pytest.mark.parametrize("use", USES)
def test_a_finalizer_that_would_wait_for_its_own_thread_is_told(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    with Producer(daemon.address, **NEVER) as producer:
        producer.send(topic, b"first").result(DEADLINE_S)
        within = Within(monkeypatch, Accumulator, "seal_due", lambda: USES[use](producer, topic))
        within.thread = io_thread(producer)
        producer._driver.wake_by(0)
        assert within.is_done.wait(DEADLINE_S)
        assert isinstance(within.raised, BusyError)
        producer.send(topic, b"last").result(DEADLINE_S)


def test_a_finalizer_that_closes_the_client_whose_thread_runs_it_is_told_and_nothing_is_lost(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread cannot wait for its own end; at the end of the program it is closed all the same,
    and until then it goes on."""
    with Admin(daemon.address) as admin:
        admin.alter_group_config(f"{topic}-shared", {"share.auto.offset.reset": "earliest"})
    producer = Producer(daemon.address, **NEVER).open()
    consumer = Consumer(daemon.address, topic, group=topic).open()
    sharer = ShareConsumer(daemon.address, topic, group=f"{topic}-shared").open()
    delivery = producer.send(topic, b"waits")
    until(lambda: bool(consumer.assignment and sharer.assignment))
    for client in (producer, consumer, sharer):
        within = Within(monkeypatch, ThreadDriver, "_look", client.close)
        within.thread = client._driver._thread
        client._driver.wake_by(0)
        assert within.is_done.wait(DEADLINE_S)
        assert isinstance(within.raised, BusyError)
        assert ", open>" in repr(client)
    assert delivery.result(DEADLINE_S).offset == 0
    for member in (consumer, sharer):
        assert [record.value for record in member.poll(1, 60_000)] == [b"waits"]
    for client in (producer, consumer, sharer):
        client.close()


def test_a_handler_of_the_log_does_not_wait_for_what_it_sends(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the thread that would deliver it."""
    with Producer(daemon.address, **NEVER) as producer:
        producer.send(topic, b"first").result(DEADLINE_S)
        within = Within(
            monkeypatch, ThreadDriver, "_turn", lambda: producer.send(topic, b"said").result()
        )
        within.thread = io_thread(producer)
        producer._driver.wake_by(0)
        assert within.is_done.wait(DEADLINE_S)
        assert isinstance(within.raised, BusyError)
        producer.send(topic, b"last").result(DEADLINE_S)


@pytest.mark.parametrize("use", ["commit", "close", "lag", "pause"])
def test_a_handler_that_uses_the_consumer_it_has_interrupted_is_told(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    with Producer(daemon.address) as producer:
        producer.send_many(topic, [b"a", b"b"], partition=0)
    with Consumer(daemon.address, topic, group=topic) as consumer:
        within = Within(
            monkeypatch, Fetching, "changed", lambda: signal.raise_signal(signal.SIGUSR1)
        )
        within.thread = threading.main_thread()
        with handled(getattr(consumer, use)):
            assert next(iter(consumer)).value == b"a"
        assert isinstance(within.raised, BusyError)
        assert next(iter(consumer)).value == b"b"


def test_a_call_that_would_wait_for_itself_is_not_begun(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(daemon.address) as admin:
        admin.list_topics()
        within = Within(monkeypatch, ThreadDriver, "_turn", lambda: admin.create_topic(topic))
        within.thread = admin._driver._thread
        admin._driver.wake_by(0)
        assert within.is_done.wait(DEADLINE_S)
        assert isinstance(within.raised, BusyError)
        admin.create_topic(topic)

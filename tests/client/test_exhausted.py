"""What the system has none of for a while, descriptors or threads, is no end of a client; nor is
what the program's log raises.
"""

import errno
import logging
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import anyio.to_thread
import pytest

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncProducer,
    BrokerUnreachable,
    Producer,
    absence,
    network,
    transport,
)
from segbroker.client.connection import Connection
from segbroker.client.thread_driver import ThreadDriver
from segbroker.client.tokens import Tokens
from segbroker.client.transport import Transport

from ..support.daemon import Daemon
from ..support.waiting import DEADLINE_S
from .conftest import Run

MANY = 1_000_000  # tries to connect: more than there are in the time of a test


class Few:
    """There are none of something, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def take(self, error: Exception) -> None:
        if self.left:
            self.left -= 1
            raise error


def make_sockets(patch: pytest.MonkeyPatch, make: Callable[[int, int], socket.socket]) -> None:
    """For the client, and nobody else in this process."""
    patch.setattr(transport, "socket", SimpleNamespace(**{**vars(socket), "socket": make}))


def few_sockets(patch: pytest.MonkeyPatch, few: Few) -> None:
    def make(family: int, kind: int) -> socket.socket:
        few.take(OSError(errno.EMFILE, "Too many open files"))
        return socket.socket(family, kind)

    make_sockets(patch, make)


def few_threads(patch: pytest.MonkeyPatch, few: Few, name: str = "segbroker-resolve") -> None:
    start = threading.Thread.start

    def maybe(thread: threading.Thread) -> None:
        if thread.name.startswith((name, "AnyIO", "Trio thread")):
            few.take(RuntimeError("can't start new thread"))
        start(thread)

    patch.setattr(threading.Thread, "start", maybe)


def by_name(daemon: Daemon) -> str:
    return daemon.address.replace("127.0.0.1", "localhost")


def cut(transports: Iterable[Transport]) -> None:
    """End the connections from this side, so that they are made again."""
    for one in list(transports):
        assert one.socket is not None
        one.socket.shutdown(socket.SHUT_RDWR)


def test_a_producer_goes_on_when_there_are_descriptors_again(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(daemon.address) as producer:
        producer.partitions_for(topic)
        few = Few(3)
        few_sockets(monkeypatch, few)
        cut(producer._driver._transports.values())
        assert producer.send(topic, b"value").result(DEADLINE_S).topic == topic
        assert few.left == 0


def test_an_async_producer_goes_on_at_once_when_there_are_descriptors_again(
    daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """It does not wait for a connection that nobody makes, until that one's time is over."""
    monkeypatch.setattr(network, "SETUP_TIMEOUT_MS", 600_000)

    async def main() -> None:
        async with AsyncProducer(daemon.address, delivery_timeout_ms=20_000) as producer:
            await producer.partitions_for(topic)
            few = Few(3)
            few_sockets(monkeypatch, few)
            cut(producer._driver._transports.values())
            await (await producer.send(topic, b"value"))
            assert few.left == 0

    run(main)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAFNOSUPPORT], ids=errno.errorcode.get)
def test_another_address_is_tried_where_there_is_no_socket_for_one(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system without IPv6 finds addresses of it all the same."""

    def make(family: int, kind: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(number, "none")
        return socket.socket(family, kind)

    make_sockets(monkeypatch, make)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        found = [(socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port))]
        connection = Connection("localhost", port, client_id="c", deadline_ms=0)
        one = Transport(connection, found)  # type: ignore[arg-type]
        one.connect_next()
        assert one.socket is not None
        assert one.socket.family == socket.AF_INET
        one.close()


def test_a_client_asks_for_an_address_again_when_there_are_threads_again(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = Few(3)
    few_threads(monkeypatch, few)
    with Admin(by_name(daemon)) as admin:
        admin.list_topics()
    assert few.left == 0


def test_an_async_client_asks_for_an_address_again_when_there_are_threads_again(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    async def main() -> None:
        few_threads(monkeypatch, Few(3))
        async with AsyncAdmin(by_name(daemon)) as admin:
            await admin.list_topics()

    run(main)


def test_who_could_not_be_opened_for_want_of_a_thread_is_opened_later(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_threads(monkeypatch, Few(1), "segbroker-io")
    admin = Admin(daemon.address)
    with pytest.raises(BrokerUnreachable, match="no room for a client: can't start new thread"):
        admin.open()
    admin.close()
    with admin:
        admin.list_topics()


@pytest.mark.parametrize("left", [0, 1, 2])
def test_who_could_not_be_opened_for_want_of_descriptors_is_opened_later(
    daemon: Daemon, left: int
) -> None:
    """left: how many there are; a pair of sockets and the selector take three."""
    admin = Admin(daemon.address)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as taken:
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        highest = max(map(int, os.listdir("/proc/self/fd")))
        # Room for `left`, also where all below is in use (the highest is that of the listing).
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 4, hard))
        held: list[int] = []
        with suppress(OSError):
            while True:
                held.append(os.dup(0))
        for number in held[:left]:
            os.close(number)
        for number in held[left:]:
            taken.callback(os.close, number)
        with pytest.raises(BrokerUnreachable, match="no room for a client: Too many open files"):
            admin.open()
        open_again = 0
        with suppress(OSError):
            while True:
                taken.callback(os.close, os.dup(0))
                open_again += 1
        assert open_again == left
    with admin:
        admin.list_topics()


def test_a_token_is_asked_for_again_when_there_are_threads_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few_threads(monkeypatch, Few(1), "segbroker-token")
    got = threading.Event()

    def provide() -> str:
        got.set()
        return "token"

    driver, tokens = ThreadDriver(), Tokens(provide)
    for times in range(2):
        assert not tokens.may_renew()
        assert tokens.take_wanted()
        driver._renew_token(tokens)
        assert got.wait(DEADLINE_S if times else 0) == bool(times)


def test_an_address_is_asked_for_though_all_threads_of_the_program_are_busy(
    daemon: Daemon, run: Run
) -> None:
    """As handlers of a web framework are that wait for what this very client sends."""

    async def main() -> None:
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = 1
        await limiter.acquire()
        async with AsyncAdmin(by_name(daemon)) as admin:
            await admin.list_topics()

    run(main)


class Raising(logging.Handler):
    """What a program may have made of its log: the client's lines are no exception."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self.of_the_broker = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._address in record.getMessage():
            self.of_the_broker.set()
        raise ValueError("of the program")


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> Iterator[Raising]:
    monkeypatch.setattr(absence, "AWAY_MS", 0)
    handler, log = Raising(daemon.address), logging.getLogger("segbroker.client")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def test_what_a_handler_of_the_log_raises_is_shown_and_is_not_the_end(
    daemon: Daemon,
    topic: str,
    raising: Raising,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Producer(daemon.address) as producer:
        producer.partitions_for(topic)
        few = Few(MANY)
        few_sockets(monkeypatch, few)
        cut(producer._driver._transports.values())
        sent = producer.send(topic, b"value")
        assert raising.of_the_broker.wait(DEADLINE_S)
        few.left = 0
        assert sent.result(DEADLINE_S).topic == topic
    assert "ValueError: of the program" in capsys.readouterr().err


def test_nor_is_it_that_of_an_async_client(
    daemon: Daemon, topic: str, raising: Raising, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            await producer.partitions_for(topic)
            few = Few(MANY)
            few_sockets(monkeypatch, few)
            cut(producer._driver._transports.values())
            sent = await producer.send(topic, b"value")
            assert await anyio.to_thread.run_sync(raising.of_the_broker.wait, DEADLINE_S)
            few.left = 0
            assert (await sent).topic == topic

    run(main)

"""A broker that is away: one line when it is, one when it is back, none for a blip."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import anyio
import anyio.to_thread
import pytest

from segbroker.client import AsyncConsumer, Consumer, Producer
from segbroker.client.connection import Connection
from segbroker.client.errors import ConnectionLost
from segbroker.client.network import CONTROL, FETCH, Network, Node
from segbroker.client.settings import ClientSettings
from segbroker.protocol.messages_core import MetadataRequest

from ..support.daemon import Daemon, running
from ..support.waiting import until

WHERE = ("10.0.0.1", 9092)
LOGGER = "segbroker.client"


class Net:
    """A network whose connections the test makes and breaks, in a time that it moves."""

    def __init__(self) -> None:
        self.network = Network(ClientSettings(bootstrap=(WHERE,)), Random(1))
        self.now_ms = 1_000
        self.accepts = False

    def node(self, broker_id: int = 1, lane: str = CONTROL) -> Node:
        return self.network.node((broker_id, lane), WHERE)

    def run(self, for_ms: int, *nodes: Node) -> list[str]:
        """Want these nodes all the time; what was told meanwhile."""
        end_ms = self.now_ms + for_ms
        told = []
        while self.now_ms < end_ms:
            for node in nodes:
                self.network.want(node, self.now_ms)
                self._answer(node)
            told += [notice.text for notice in self.network.absences.take()]
            self.now_ms += 10
        return told

    def _answer(self, node: Node) -> None:
        for connection in self.network.take_opening():
            if self.accepts:
                stand(connection, self.now_ms)
            else:
                connection.lost(ConnectionLost("10.0.0.1:9092: refused"), self.now_ms)
        self.network.collect(node, self.now_ms)

    def cut(self, node: Node) -> None:
        assert node.connection is not None
        node.connection.lost(ConnectionLost("10.0.0.1:9092: reset"), self.now_ms)
        self.network.collect(node, self.now_ms)


def stand(connection: Connection, now_ms: int) -> None:
    connection.connected()
    connection.in_flight.clear()  # ApiVersions is answered
    connection._become_ready(now_ms)


def test_who_is_away_is_told_once_and_once_more_when_it_is_back() -> None:
    net = Net()
    node = net.node()
    assert net.run(2_900, node) == []
    assert net.run(60_000, node) == [
        "broker 1 cannot be reached, still trying: 10.0.0.1:9092: refused"
    ]
    net.accepts = True
    assert net.run(60_000, node) == ["broker 1 can be reached again after 64 s: 10.0.0.1:9092"]


def test_blips_are_not_told_however_many() -> None:
    net = Net()
    node = net.node()
    for _ in range(20):
        net.accepts = False
        assert net.run(1_900, node) == []
        net.accepts = True  # the longest back-off is a second
        assert net.run(1_100, node) == []
        assert node.is_ready
        net.cut(node)


def test_a_connection_that_nothing_wanted_any_more_is_no_absence() -> None:
    net = Net()
    node = net.node()
    net.accepts = True
    net.run(100, node)
    net.cut(node)
    assert net.run(3_600_000) == []
    net.accepts = False
    assert net.run(1_000, node) == []


def test_two_lanes_to_one_broker_are_one_absence() -> None:
    net = Net()
    told = net.run(10_000, net.node(), net.node(lane=FETCH))
    net.accepts = True
    told += net.run(10_000, net.node(), net.node(lane=FETCH))
    assert len(told) == 2


def test_an_address_of_the_bootstrap_list_is_nobodys_absence() -> None:
    net = Net()
    assert net.run(60_000, net.node(-1)) == []


def test_the_end_of_a_client_is_no_absence() -> None:
    net = Net()
    net.network.request(
        net.node(),
        MetadataRequest(topics=[]),
        lambda reply, at_ms: None,
        now_ms=net.now_ms,
        deadline_ms=net.now_ms + 60_000,
    )
    net.network.close(net.now_ms + 10_000)
    assert net.network.absences.take() == []


def told(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.name == LOGGER]


def send(daemon: Daemon, value: bytes) -> None:
    with Producer(daemon.address) as producer:
        producer.send("orders", value)


def test_a_consumer_says_that_its_broker_is_away_and_that_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path / "data") as daemon:
        send(daemon, b"1")
        with Consumer(daemon.address, "orders") as consumer:
            records = iter(consumer)
            assert next(records).value == b"1"
            daemon.stop()
            until(lambda: len(told(caplog)) == 1)
            assert daemon.address in told(caplog)[0]
            assert "still trying" in told(caplog)[0]
            daemon.again()
            send(daemon, b"2")
            assert next(records).value == b"2"
            until(lambda: len(told(caplog)) == 2)
            assert "can be reached again" in told(caplog)[1]


def test_an_async_consumer_says_it_too(
    run: Callable[..., object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def read(daemon: Daemon) -> None:
        async with AsyncConsumer(daemon.address, "orders") as consumer:
            records = aiter(consumer)
            assert (await anext(records)).value == b"1"
            await anyio.to_thread.run_sync(daemon.stop)
            await anyio.to_thread.run_sync(until, lambda: len(told(caplog)) == 1)
            await anyio.to_thread.run_sync(daemon.again)
            await anyio.to_thread.run_sync(send, daemon, b"2")
            assert (await anext(records)).value == b"2"

    with running(tmp_path / "data") as daemon:
        send(daemon, b"1")
        run(read, daemon)
    assert ["cannot" in line for line in told(caplog)] == [True, False]

"""The embedded broker, driven by our own client through its real socket."""

import socket
import threading
from collections.abc import Iterator

import pytest
import structlog

from segbroker.broker.configuration.config import InvalidConfig
from segbroker.client import Admin, Producer, TopicAlreadyExists
from segbroker.testing.embedded import EmbeddedBroker


def test_records_go_in_and_come_out_in_order(segbroker: EmbeddedBroker) -> None:
    topic = segbroker.create_topic("orders")
    segbroker.send(topic, [b"%d" % n for n in range(1000)])
    assert [record.value for record in segbroker.records(topic)] == [b"%d" % n for n in range(1000)]


def test_the_partitions_and_settings_of_a_topic_are_those_asked_for(
    segbroker: EmbeddedBroker,
) -> None:
    segbroker.create_topic("wide", partitions=7, config={"retention.ms": "1000"})
    with Admin(segbroker.address) as admin:
        assert len(admin.describe_topic("wide").partitions) == 7
    with pytest.raises(TopicAlreadyExists):
        segbroker.create_topic("wide")


def test_one_value_instead_of_several_is_said_to_be_one(segbroker: EmbeddedBroker) -> None:
    with pytest.raises(TypeError, match="values are a bytes: one value"):
        segbroker.send("orders", b"two apples")  # type: ignore[arg-type]  # the mistake
    assert repr(segbroker) == f"<EmbeddedBroker {segbroker.address}>"
    assert repr(EmbeddedBroker()) == "<EmbeddedBroker not started>"


def test_two_brokers_know_nothing_of_each_other() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        one.create_topic("only-here")
        with Admin(other.address) as admin:
            assert "only-here" not in admin.list_topics()


def test_a_stopped_broker_frees_its_port_and_its_thread() -> None:
    broker = EmbeddedBroker().start()
    host, _, port = broker.address.rpartition(":")
    broker.stop()
    broker.stop()
    assert "segbroker" not in {thread.name for thread in threading.enumerate()}
    with socket.socket() as sock:
        assert sock.connect_ex((host, int(port))) != 0


def test_a_broker_is_started_once() -> None:
    broker = EmbeddedBroker()
    with broker, pytest.raises(RuntimeError, match="is started once: make another one"):
        broker.start()
    with pytest.raises(RuntimeError, match="is started once: make another one"):
        broker.start()


def test_a_client_that_was_left_open_does_not_hold_up_the_end() -> None:
    broker = EmbeddedBroker().start()
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.settimeout(10)
        broker.stop()
        with pytest.raises(ConnectionResetError):  # it was answered nothing
            sock.recv(1)


def test_an_address_in_use_is_the_callers_error() -> None:
    with EmbeddedBroker() as first, pytest.raises(OSError, match="in use"):
        EmbeddedBroker(listen=first.address).start()


def test_an_unknown_or_impossible_setting_is_refused_before_anything_starts() -> None:
    with pytest.raises(InvalidConfig, match="partitions = 0"):
        EmbeddedBroker(partitions=0)
    with pytest.raises(TypeError, match="no_such_setting"):
        EmbeddedBroker(no_such_setting=1)


def test_stamped_records_carry_the_brokers_clock(segbroker: EmbeddedBroker) -> None:
    topic = segbroker.create_topic("log", config={"message.timestamp.type": "LogAppendTime"})
    segbroker.clock.freeze(1_700_000_000_000)
    with Producer(segbroker.address) as producer:
        producer.send(topic, b"sent with another time", timestamp_ms=5)
    (record,) = segbroker.records(topic)
    assert record.timestamp_ms == 1_700_000_000_000


def test_a_segment_rolls_when_its_age_has_passed_and_the_house_was_kept(
    segbroker: EmbeddedBroker,
) -> None:
    topic = segbroker.create_topic("aging", config={"segment.ms": "60000"})
    segbroker.send(topic, [b"old"], partition=0)
    assert segbroker.segments_count(topic) == 1
    segbroker.housekeep()
    assert segbroker.segments_count(topic) == 1
    segbroker.clock.advance(3_600_000)
    segbroker.housekeep()
    segbroker.send(topic, [b"new"], partition=0)
    assert segbroker.segments_count(topic) == 2
    assert [record.value for record in segbroker.records(topic)] == [b"old", b"new"]


@pytest.fixture
def unconfigured() -> Iterator[None]:
    """structlog as in a program that says nothing of it."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


@pytest.mark.usefixtures("unconfigured")
def test_where_nobody_has_configured_the_log_it_has_what_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def used(broker: EmbeddedBroker) -> str:
        with broker:
            broker.create_topic("t")
            structlog.get_logger().info("the program's own line")
        return capsys.readouterr().out

    (line,) = used(EmbeddedBroker()).splitlines()
    assert "the program's own line" in line
    loud = used(EmbeddedBroker(log_level="debug"))
    assert all(event in loud for event in ("connection_closed", "topic_created", "own line"))
    assert "topic_created" not in used(EmbeddedBroker())
    told = used(EmbeddedBroker(log_level="info"))
    assert "topic_created" in told
    assert "connection_closed" not in told
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
    assert "event='connection_closed'" in used(EmbeddedBroker())


@pytest.mark.usefixtures("unconfigured")
def test_a_program_configures_its_log_beside_a_broker_as_without_one() -> None:
    """Programs look whether somebody has, and then leave it; structlog itself warns of it."""
    before = list(structlog.get_config()["processors"])
    renderer = structlog.processors.KeyValueRenderer()
    with EmbeddedBroker(), EmbeddedBroker(log_level="debug"):
        assert not structlog.is_configured()
        structlog.configure_once(processors=[renderer])
        assert structlog.get_config()["processors"] == [renderer]
    assert structlog.get_config()["processors"] == [renderer]
    structlog.reset_defaults()
    with EmbeddedBroker():
        pass
    assert structlog.get_config()["processors"] == before
    assert not structlog.is_configured()

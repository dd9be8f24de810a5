"""The metrics page of a real daemon: other people's clients, Prometheus' own checks."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer

from segbroker.broker.metrics.families import FAMILIES
from segbroker.client import Admin, Producer, TopicPartition

from ..support.certificates import Authority
from ..support.daemon import Daemon, launch, running
from ..support.scrape import FOREIGN, Scraped, get, scrape
from ..support.tools import require
from ..support.waiting import until

DOCS = Path(__file__).parents[2] / "docs"


def page_of(daemon: Daemon) -> str:
    """HOST:PORT of its page, as its log tells it."""
    (event,) = daemon.events("metrics_listening")
    address: str = event["address"]
    return address


@pytest.fixture
def measured(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "data", "--metrics-listen", "127.0.0.1:0") as daemon:
        yield daemon


def test_a_client_of_librdkafka_is_on_the_page_with_what_it_did(measured: Daemon) -> None:
    page = page_of(measured)
    with Admin(measured.address) as admin:
        admin.create_topic("t", partitions=2)
    producer = ConfluentProducer({"bootstrap.servers": measured.address})
    for number in range(10):
        producer.produce("t", b"v%d" % number, partition=number % 2)
    assert producer.flush(60) == 0
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": measured.address,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    seen = 0
    while seen < 10:
        seen += (message := consumer.poll(60)) is not None and message.error() is None
    before = scrape(page)
    assert before.value("segbroker_group_members", group="readers") == 1
    state = before.of("segbroker_group_state", "state", group="readers", type="classic")
    assert state == {"Stable": 1}
    assert not before.of("segbroker_group_lag_records", "partition", group="readers")
    consumer.commit(asynchronous=False)
    assert before.value("segbroker_requests_total", api="JoinGroup") >= 1
    ends = before.of("segbroker_partition_log_end_offset", "partition", topic="t")
    assert ends == {"0": 5, "1": 5}
    after = scrape(page)
    lag = after.of("segbroker_group_lag_records", "partition", group="readers")
    assert lag == {"0": 0, "1": 0}
    produced = after.value("segbroker_topic_produced_bytes_total", topic="t")
    assert produced == after.value("segbroker_topic_size_bytes", topic="t")
    assert produced == after.value("segbroker_topic_fetched_bytes_total", topic="t")
    consumer.close()
    until(lambda: scrape(page).value("segbroker_group_members", group="readers") == 0)


def test_the_lag_of_every_kind_of_group_and_open_transactions_are_those_of_the_commands(
    measured: Daemon,
) -> None:
    page = page_of(measured)
    with Producer(measured.address) as producer:
        for _ in range(5):
            producer.send("t", b"v", partition=0)
        producer.flush()
    with Admin(measured.address) as admin:
        admin.commit("behind", {TopicPartition("t", 0): 2})
        admin.alter_share_offsets("shared", {TopicPartition("t", 0): 1})
        lag = scrape(page).of("segbroker_group_lag_records", "group", topic="t")
        (shared,) = admin.share_offsets("shared").values()
        assert lag == {"behind": 3, "shared": shared.lag}
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": measured.address,
            "group.id": "behind",
            "group.protocol": "consumer",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    assert consumer.poll(60) is not None
    told = scrape(page)
    consumer.close()
    assert told.value("segbroker_group_members", group="behind") == 1
    assert told.of("segbroker_group_state", "type", group="behind") == {"consumer": 1}
    transactional = ConfluentProducer(
        {"bootstrap.servers": measured.address, "transactional.id": "tx"}
    )
    transactional.init_transactions(60)
    transactional.begin_transaction()
    transactional.produce("t", b"v", partition=0)
    assert transactional.flush(60) == 0
    told = scrape(page)
    assert told.value("segbroker_transactions_open") == 1
    assert 0 < told.value("segbroker_transactions_oldest_open_seconds") < 60
    transactional.commit_transaction(60)
    told = scrape(page)
    assert told.value("segbroker_transactions_open") == 0
    assert told.value("segbroker_transactional_ids") == 1


def test_the_daemon_tells_where_its_page_is_behind_the_ready_line(tmp_path: Path) -> None:
    process = launch(tmp_path / "data", "--metrics-listen", "127.0.0.1:0")
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("segbroker listening on 127.0.0.1:")
        line = process.stdout.readline()
        found = re.fullmatch(r"segbroker metrics on http://(127\.0\.0\.1:\d+)/metrics\n", line)
        assert found, line
        assert get(found[1], "/health/ready")[0] == 200
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def test_the_expiry_of_a_certificate_is_on_the_page(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).server()
    flags = (
        "--listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "--ssl-certificate", str(certificate), "--metrics-listen", "127.0.0.1:0",
    )  # fmt: skip
    with running(tmp_path / "data", *flags) as daemon:
        told = scrape(page_of(daemon))
        expiry = told.of("segbroker_certificate_expiry_timestamp_seconds", "listener")
        assert set(expiry) == {"SSL"}
        assert expiry["SSL"] > told.value("segbroker_start_time_seconds")
        assert set(told.of("segbroker_connections", "listener")) == {"PLAINTEXT", "SSL"}


def test_every_family_of_the_table_is_on_the_page_and_no_other(measured: Daemon) -> None:
    told = scrape(page_of(measured))
    assert (
        set(told.families)
        == {
            name.removesuffix("_info") if one.kind == "info" else name
            for name, one in FAMILIES.items()
        }
        | FOREIGN
        or set(told.families) == FAMILIES.keys() | FOREIGN
    )


def test_promtool_finds_nothing_wrong_with_the_page_nor_with_the_rules(
    measured: Daemon, tmp_path: Path
) -> None:
    promtool = require("promtool", "prometheus")
    with Producer(measured.address) as producer:
        producer.send("t", b"v", partition=0)
    with Admin(measured.address) as admin:
        admin.commit('odd "group"\\\n of ü', {TopicPartition("t", 0): 0})
    text = get(page_of(measured), "/metrics")[2]
    assert Scraped(text).value(
        "segbroker_group_lag_records", group='odd "group"\\\n of ü', topic="t", partition="0"
    )
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text.encode(), capture_output=True, timeout=60
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    rules = subprocess.run(
        [promtool, "check", "rules", str(DOCS / "prometheus-alerts.yml")],
        capture_output=True,
        timeout=60,
    )
    assert rules.returncode == 0, rules.stdout + rules.stderr
    assert b"rules found" in rules.stdout

"""TLS and logins with other people's clients, against a real daemon.

| client | ways |
|---|---|
| librdkafka, kafka-python, aiokafka, kcat, Java | SSL; SASL_PLAINTEXT, SASL_SSL by each mechanism |
| Java | its own certificate, users by AlterUserScramCredentials, sessions that are renewed |
| all but kcat | a wrong password, a broker that is not trusted |
"""

import asyncio
import gc
import ssl
import subprocess
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ..support.certificates import Authority
from ..support.daemon import Daemon, start
from ..support.java import START_S, program
from ..support.tools import require
from ..support.waiting import until
from .aiokafka_logins import by_aiokafka

LISTENERS = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [("SSL", "")] + [(p, m) for p in ("SASL_PLAINTEXT", "SASL_SSL") for m in MECHANISMS]
PASSWORD = "wonderland"

each_way = pytest.mark.parametrize(("protocol", "mechanism"), WAYS)


@dataclass
class Guarded:
    """A daemon that wants TLS, a login, or both."""

    daemon: Daemon
    addresses: dict[str, str]
    authority: Authority
    other: Authority
    folder: Path

    def librdkafka(
        self, protocol: str, mechanism: str = "", password: str = PASSWORD
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "bootstrap.servers": self.addresses[protocol],
            "security.protocol": protocol.lower(),
        }
        if "SSL" in protocol:
            found["ssl.ca.location"] = str(self.authority.file)
        if mechanism:
            login = {"sasl.username": "alice", "sasl.password": password}
            found |= {"sasl.mechanisms": mechanism, **login}
        return found

    def python(
        self, protocol: str, mechanism: str = "", password: str = PASSWORD
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "bootstrap_servers": self.addresses[protocol],
            "security_protocol": protocol,
        }
        if "SSL" in protocol:
            context = ssl.create_default_context(cafile=str(self.authority.file))
            found["ssl_context"] = context
        if mechanism:
            login = {"sasl_plain_username": "alice", "sasl_plain_password": password}
            found |= {"sasl_mechanism": mechanism, **login}
        return found

    def java(self, protocol: str, mechanism: str = "", password: str = PASSWORD) -> dict[str, str]:
        found = {
            "bootstrap.servers": self.addresses[protocol],
            "security.protocol": protocol,
        }
        if "SSL" in protocol:
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.location"] = str(self.authority.file)
        if mechanism:
            module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
            found["sasl.mechanism"] = mechanism
            found["sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module}LoginModule required "
                f'username="alice" password="{password}";'
            )
        return found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority, other = Authority(folder), Authority(folder, "other")
    config = folder / "segbroker.toml"
    listeners = ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS)
    settings = {
        "listeners": listeners,
        "ssl_certificate": str(authority.server()),
        "ssl_ca": str(authority.file),
        "ssl_client_auth": "requested",
        "initial_user": "alice",
        "initial_password": PASSWORD,
    }
    lines = [f'{key} = "{value}"' for key, value in settings.items()]
    lines += ["connections_max_reauth_ms = 4000", "ssl_reload_interval_ms = 50"]
    lines += ['log_level = "debug"']
    config.write_text("\n".join(lines))
    daemon = start(folder / "data", "--config", str(config))
    assert daemon.process.stdout is not None
    addresses = {LISTENERS[0]: daemon.address}
    for name in LISTENERS[1:]:
        addresses[name] = daemon.process.stdout.readline().split()[-1]
    try:
        yield Guarded(daemon, addresses, authority, other, folder)
    finally:
        daemon.stop()


def most_logins(guarded: Guarded, software: str) -> int:
    """How often a session was begun or renewed, on the connection where that was most often.

    A renewal that comes late on a busy machine costs the connection; the next one renews again.
    Java says its name when it has logged in: it is known by its renewals.
    """
    events = guarded.daemon.events("authenticated")
    peers = {event["peer"] for event in events if event["software"].startswith(software)}
    logins = Counter(event["peer"] for event in events if event["peer"] in peers)
    return max(logins.values(), default=0)


def swap(settings: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    assert key in settings
    return settings | {key: value}


# librdkafka


@each_way
def test_librdkafka_sends_and_reads(guarded: Guarded, protocol: str, mechanism: str) -> None:
    settings = guarded.librdkafka(protocol, mechanism)
    topic = f"librdkafka-{protocol}-{mechanism}"
    values = [bytes([n]) * 100_000 for n in range(5)]
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer(settings | {"group.id": topic})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        got: list[Any] = []
        while len(got) < len(values):
            found = consumer.consume(5, timeout=60)
            assert found
            got += [message.value() for message in found]
        assert got == values
    finally:
        consumer.close()


def error_of_librdkafka(settings: dict[str, Any], code: int) -> str:
    """Its words about an error of this code.

    It tries again and again; the first try may be told as a connection that was lost, or as a name
    that was not looked up in time.
    """
    seen: list[KafkaError] = []
    producer = Producer(settings | {"error_cb": seen.append, "log_level": 0})
    for _ in range(600):
        for error in seen:
            if error.code() == code:
                return str(error.str())
        producer.poll(0.1)
    raise AssertionError(f"it was told {seen}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_is_told_of_a_wrong_password(guarded: Guarded, mechanism: str) -> None:
    guessed = guarded.librdkafka("SASL_SSL", mechanism, "guessed")
    text = error_of_librdkafka(guessed, KafkaError._AUTHENTICATION)
    assert "invalid credentials" in text


def test_librdkafka_does_not_trust_a_stranger(guarded: Guarded) -> None:
    settings = swap(guarded.librdkafka("SSL"), "ssl.ca.location", str(guarded.other.file))
    assert error_of_librdkafka(settings, KafkaError._SSL)


def test_a_producer_of_librdkafka_lives_through_a_new_certificate_and_renews_its_sessions(
    guarded: Guarded,
) -> None:
    producer = Producer(guarded.librdkafka("SASL_SSL", "SCRAM-SHA-512"))
    failed: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    def send(number: int) -> None:
        producer.produce("renewed", b"%d" % number, partition=0, on_delivery=on_delivery)
        assert producer.flush(60) == 0
        producer.poll(0.1)

    for n in range(60):  # longer than a session
        send(n)
        if n == 20:
            guarded.authority.server()  # and has it reloaded

    def is_renewed() -> bool:
        send(60)
        return most_logins(guarded, "confluent-kafka-python") >= 2

    until(is_renewed)
    assert not failed
    until(lambda: bool(guarded.daemon.events("certificate_reloaded")))


# kafka-python, aiokafka


@each_way
def test_kafka_python_sends_and_reads(guarded: Guarded, protocol: str, mechanism: str) -> None:
    settings = guarded.python(protocol, mechanism)
    topic = f"kafka-python-{protocol}-{mechanism}"
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"v" * 100_000, partition=0).get(60)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=60_000)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert len(next(consumer).value) == 100_000
    consumer.close()


def collect_connections() -> None:
    """A connection that was being made on a busy machine is left to whoever collects garbage."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_kafka_python_is_told_of_a_wrong_password(guarded: Guarded) -> None:
    settings = guarded.python("SASL_SSL", "SCRAM-SHA-256", "guessed")
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**settings, bootstrap_timeout_ms=3_000)
    collect_connections()


@each_way
def test_aiokafka_sends_and_reads(guarded: Guarded, protocol: str, mechanism: str) -> None:
    settings = guarded.python(protocol, mechanism)
    topic = f"aiokafka-{protocol}-{mechanism}"
    assert asyncio.run(by_aiokafka(settings, topic, b"v" * 100_000)) == b"v" * 100_000


@pytest.mark.parametrize("what", ["password", "authority"])
def test_aiokafka_is_refused_and_refuses(guarded: Guarded, what: str) -> None:
    if what == "password":
        settings = guarded.python("SASL_SSL", "SCRAM-SHA-512", "guessed")
    else:
        context = ssl.create_default_context(cafile=str(guarded.other.file))
        settings = swap(guarded.python("SSL"), "ssl_context", context)
    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(by_aiokafka(settings, "refused", b"v"))
    collect_connections()


# kcat


@each_way
def test_kcat_sends_and_reads(guarded: Guarded, protocol: str, mechanism: str) -> None:
    settings = guarded.librdkafka(protocol, mechanism)
    settings.pop("bootstrap.servers")
    words = [require("kcat"), "-b", guarded.addresses[protocol]]
    for key, value in settings.items():
        words += ["-X", f"{key}={value}"]
    topic = f"kcat-{protocol}-{mechanism}"
    subprocess.run([*words, "-P", "-t", topic, "-p", "0"], input=b"hello\n", check=True, timeout=60)
    read = [*words, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"]
    assert subprocess.run(read, capture_output=True, check=True, timeout=60).stdout == b"hello\n"


# Java


@pytest.fixture(scope="module")
def said_by_java(guarded: Guarded, release_cache: Path) -> dict[str, str]:
    """What each task ended with, all in one JVM."""
    client = guarded.authority.client("java", pkcs8=True)
    certificate = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(client)}
    rows: list[tuple[str, str, dict[str, str]]] = [
        (f"{protocol}-{mechanism}", "records", guarded.java(protocol, mechanism))
        for protocol, mechanism in WAYS
    ]
    stranger = swap(guarded.java("SSL"), "ssl.truststore.location", str(guarded.other.file))
    rows += [
        ("certificate", "records", guarded.java("SSL") | certificate),
        ("password", "records", guarded.java("SASL_SSL", "SCRAM-SHA-512", "guessed")),
        ("plain-password", "records", guarded.java("SASL_PLAINTEXT", "PLAIN", "guessed")),
        ("authority", "records", stranger),
        ("users", "users", guarded.java("SASL_SSL", "SCRAM-SHA-256")),
        ("renew", "renew", guarded.java("SASL_SSL", "SCRAM-SHA-256")),
    ]
    plan = guarded.folder / "java.tsv"
    plan.write_text(
        "".join(
            "\t".join([name, task, *(f"{key}={value}" for key, value in settings.items())]) + "\n"
            for name, task, settings in rows
        )
    )
    run = subprocess.run(
        [*program("KafkaClientsLogins", release_cache), str(plan)],
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert run.returncode == 0, run.stderr
    return dict(line.split("\t", 1) for line in run.stdout.splitlines())


JAVA_DOES: Sequence[str] = (
    *(f"{protocol}-{mechanism}" for protocol, mechanism in WAYS),
    "certificate",
    "users",
    "renew",
)


@pytest.mark.parametrize("task", JAVA_DOES)
def test_java_does(said_by_java: dict[str, str], task: str) -> None:
    assert said_by_java[task] == "ok"


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("password", "SaslAuthenticationException"),
        ("plain-password", "SaslAuthenticationException"),
        ("authority", "SslAuthenticationException"),
    ],
)
def test_java_is_refused_and_refuses(said_by_java: dict[str, str], task: str, error: str) -> None:
    assert said_by_java[task].startswith(error)


def test_java_renews_its_sessions_on_their_connections(
    guarded: Guarded, said_by_java: dict[str, str]
) -> None:
    assert said_by_java["renew"] == "ok"
    assert most_logins(guarded, "apache-kafka-java") >= 2

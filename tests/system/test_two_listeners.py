"""An inner listener without, an outer one with TLS and logins, and other people's clients on both.

| what is done | who looks |
|---|---|
| records in by one listener, out by the other | kcat, Java |
| the outer certificate is replaced | librdkafka stays connected, openssl is shown the new one |
| a mechanism is switched off | librdkafka stays connected, a newcomer is told |
| a client comes by the wrong protocol | the log says what it spoke |
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from segbroker.client import Admin

from ..support.certificates import Authority
from ..support.daemon import Daemon, start
from ..support.java import START_S, program
from ..support.tools import require
from ..support.waiting import until
from .test_logins import error_of_librdkafka

PASSWORD = "wonderland"
MECHANISMS = "listener.name.outside.sasl.enabled.mechanisms"


@dataclass
class TwoListeners:
    """A daemon whose plain certificate is nowhere: only the outer listener has one."""

    daemon: Daemon
    inside: str
    outside: str
    authority: Authority

    def librdkafka(self, mechanism: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.outside,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.file),
            "sasl.mechanisms": mechanism,
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }

    def java(self, mechanism: str, module: str) -> list[str]:
        return [
            f"bootstrap.servers={self.outside}",
            "security.protocol=SASL_SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.authority.file}",
            f"sasl.mechanism={mechanism}",
            f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required "
            f'username="alice" password="{PASSWORD}";',
        ]

    def events(self, name: str) -> list[dict[str, Any]]:
        return self.daemon.events(name)

    def offer(self, mechanisms: str) -> None:
        """Have the outer listener offer these alone."""
        with Admin(self.inside) as admin:
            admin.alter_broker_config({MECHANISMS: mechanisms}, broker_id=1)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoListeners]:
    authority = Authority(tmp_path)
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
        "ssl_certificate": "nowhere.pem",
        "listener_name_outside_ssl_certificate": str(authority.server()),
        "listener_name_outside_sasl_mechanisms": "SCRAM-SHA-512,PLAIN",
        "ssl_reload_interval_ms": "50 ms",
        "initial_user": "alice",
        "initial_password": PASSWORD,
    }
    config = tmp_path / "segbroker.toml"
    config.write_text("".join(f'{key} = "{value}"\n' for key, value in settings.items()))
    daemon = start(tmp_path / "data", "--config", str(config))
    assert daemon.process.stdout is not None
    outside = daemon.process.stdout.readline().split()[-1]
    try:
        yield TwoListeners(daemon, daemon.address, outside, authority)
    finally:
        assert daemon.stop() == 0


def certificate_of(two: TwoListeners) -> bytes:
    """What openssl is shown, and believes."""
    words = ["openssl", "s_client", "-connect", two.outside, "-CAfile", str(two.authority.file)]
    run = subprocess.run(
        [*words, "-verify_return_error"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    assert b"Verify return code: 0 (ok)" in run.stdout, run.stderr
    return run.stdout.partition(b"-----BEGIN")[2].partition(b"-----END")[0]


def test_what_goes_in_outside_comes_out_inside(two: TwoListeners) -> None:
    kcat = require("kcat")
    words = [kcat]
    for key, value in two.librdkafka("SCRAM-SHA-512").items():
        words += ["-X", f"{key}={value}"]
    subprocess.run([*words, "-P", "-t", "t", "-p", "0"], input=b"hello\n", check=True, timeout=60)
    read = [kcat, "-b", two.inside, "-C", "-t", "t", "-p", "0", "-o", "beginning", "-e", "-q"]
    assert subprocess.run(read, capture_output=True, check=True, timeout=60).stdout == b"hello\n"


def test_java_is_let_in_by_what_the_outer_listener_offers_alone(
    two: TwoListeners, tmp_path: Path, release_cache: Path
) -> None:
    plan = tmp_path / "java.tsv"
    rows = [
        ("offered", "records", *two.java("SCRAM-SHA-512", "scram.Scram")),
        ("not", "records", *two.java("SCRAM-SHA-256", "scram.Scram")),
    ]
    plan.write_text("".join("\t".join(row) + "\n" for row in rows))
    run = subprocess.run(
        [*program("KafkaClientsLogins", release_cache), str(plan)],
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert run.returncode == 0, run.stderr
    said = dict(line.split("\t", 1) for line in run.stdout.splitlines())
    assert said["offered"] == "ok"
    assert said["not"].startswith("UnsupportedSaslMechanismException")


def test_a_producer_lives_through_a_new_certificate_and_the_end_of_its_mechanism(
    two: TwoListeners,
) -> None:
    told: list[object] = []
    producer = Producer(two.librdkafka("PLAIN"))

    def send() -> None:
        producer.produce("t", b"v", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(30) == 0

    send()
    before = certificate_of(two)
    two.authority.server()
    until(lambda: bool(two.events("certificate_reloaded")))
    assert two.events("certificate_reloaded")[0]["listeners"] == ["OUTSIDE"]
    assert certificate_of(two) != before
    send()
    two.offer("SCRAM-SHA-512")
    send()
    assert told == [None, None, None]
    said = error_of_librdkafka(two.librdkafka("PLAIN"), KafkaError._AUTHENTICATION)
    assert "SCRAM-SHA-512" in said, "what is offered is told"
    until(lambda: bool(two.events("authentication_failed")))
    assert two.events("authentication_failed")[0]["mechanism"] == "PLAIN"


def test_who_speaks_the_wrong_protocol_is_named_in_the_log(two: TwoListeners) -> None:
    def is_named(event: str, *words: str) -> bool:
        """It has two seconds, and may not have come to it within them."""
        command = [require("kcat"), *words, "-L", "-m", "2"]
        assert subprocess.run(command, capture_output=True, timeout=60).returncode != 0
        return bool(two.events(event))

    until(lambda: is_named("tls_handshake_failed", "-b", two.outside))
    line = two.events("tls_handshake_failed")[0]
    assert "does not speak TLS" in line["error"]
    assert line["listener"] == "OUTSIDE"
    tls = ("-b", two.inside, "-X", "security.protocol=ssl")
    until(lambda: is_named("malformed_request", *tls))
    line = two.events("malformed_request")[0]
    assert "begins like a TLS handshake" in line["error"]
    assert line["listener"] == "INSIDE"

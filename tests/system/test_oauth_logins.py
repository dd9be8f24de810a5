"""Logins by a token with other people's clients, against a real daemon and a small issuer.

| client       | gets its token by                                                             |
|--------------|-------------------------------------------------------------------------------|
| librdkafka   | a callback (oauth_cb); the client-credentials grant (method=oidc)             |
| kafka-python | a token provider                                                              |
| aiokafka     | a token provider                                                              |
| Java         | the client-credentials grant; a file                                          |

Keys are read by HTTPS.  Each sends and reads, and is refused with a bad token; those that renew
their sessions (librdkafka, Java) outlive tokens of five seconds.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka.net.sasl.oauth import AbstractTokenProvider

from ..support.certificates import Authority
from ..support.daemon import Daemon, start
from ..support.issuer import AUDIENCE, ISSUER, Issuer
from ..support.waiting import until, within_one_of
from . import java_logins
from .aiokafka_logins import by_aiokafka
from .java_logins import Login

LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")
BRIEF_RUNS_S = 12
"""More than two of the tokens that last five seconds."""


@dataclass
class Guarded:
    """A daemon that takes tokens, and who issues them."""

    daemon: Daemon
    addresses: dict[str, str]
    authority: Authority
    issuer: Issuer
    url: str
    # The same in clear: Java takes authorities for a token endpoint from the JVM's own store.
    plain_url: str
    folder: Path

    def librdkafka(self, protocol: str = "SASL_SSL") -> dict[str, Any]:
        return {
            "bootstrap.servers": self.addresses[protocol],
            "security.protocol": protocol,
            "sasl.mechanisms": "OAUTHBEARER",
            "ssl.ca.location": str(self.authority.file),
        }

    def oidc(self, client: str = "alice", secret: str = "wonderland") -> dict[str, Any]:
        return self.librdkafka() | {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": client,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.scope": "read write",
            "sasl.oauthbearer.token.endpoint.url": f"{self.url}/token",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
            "https.ca.location": str(self.authority.file),
        }

    def refusals(self, error: str) -> int:
        found = self.daemon.events("authentication_failed")
        return sum(error in str(event["error"]) for event in found)

    def renewals(self, software: str) -> int:
        """How often the session of one connection was begun or renewed, at most.

        Java's says only later who it is.
        """
        logins = self.daemon.events("authenticated")
        peers = [event["peer"] for event in logins]
        named = {event["peer"] for event in logins if event["software"].startswith(software)}
        return max((peers.count(peer) for peer in named), default=0)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("oauth")
    authority, issuer = Authority(folder), Issuer()
    certificate = authority.server()
    with issuer.serving(certificate) as url, issuer.serving() as plain_url:
        settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
            "ssl_certificate": str(certificate),
            "sasl_mechanisms": "OAUTHBEARER",
            "sasl_oauthbearer_jwks_endpoint_url": f"{url}/jwks",
            "sasl_oauthbearer_jwks_endpoint_ca": str(authority.file),
            "sasl_oauthbearer_expected_issuer": ISSUER,
            "sasl_oauthbearer_expected_audience": AUDIENCE,
            "authorizer": "acl",
            "super_users": "User:alice;User:brief",
            "log_level": "debug",
        }
        config = folder / "segbroker.toml"
        config.write_text("".join(f'{key} = "{value}"\n' for key, value in settings.items()))
        daemon = start(folder / "data", "--config", str(config))
        assert daemon.process.stdout is not None
        addresses = {LISTENERS[0]: daemon.address}
        addresses[LISTENERS[1]] = daemon.process.stdout.readline().split()[-1]
        try:
            yield Guarded(daemon, addresses, authority, issuer, url, plain_url, folder)
        finally:
            daemon.stop()
        assert not [token for token in ("eyJ", "wonderland") if token in daemon.log.read_text()]


# librdkafka


def send_and_read(settings: dict[str, Any], topic: str) -> None:
    producer = Producer(settings)
    producer.produce(topic, b"v" * 100_000, partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer(settings | {"group.id": topic})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        (record,) = consumer.consume(1, timeout=60)
        assert record.value() == b"v" * 100_000
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", LISTENERS)
def test_librdkafka_gets_in_by_its_callback(guarded: Guarded, protocol: str) -> None:
    def token(_: str) -> tuple[str, float]:
        return guarded.issuer.token(), time.time() + 3_600

    settings = guarded.librdkafka(protocol) | {"oauth_cb": token}
    send_and_read(settings, f"librdkafka-{protocol}")


def test_librdkafka_gets_in_by_the_grant(guarded: Guarded) -> None:
    send_and_read(guarded.oidc(), "librdkafka-oidc")
    assert {"client": "alice", "scope": "read write"}.items() <= guarded.issuer.grants[-1].items()


def test_librdkafka_is_told_why_its_token_is_refused(guarded: Guarded) -> None:
    def token(_: str) -> tuple[str, float]:
        return guarded.issuer.token(aud="another-service"), time.time() + 3_600

    seen: list[KafkaError] = []
    settings = guarded.librdkafka() | {
        "oauth_cb": token,
        "error_cb": seen.append,
        "log_level": 0,
    }
    producer = Producer(settings)

    def is_told() -> bool:
        producer.poll(0.1)
        return any(
            error.code() == KafkaError._AUTHENTICATION
            and 'somebody else (aud "another-service")' in str(error)
            for error in seen
        )

    until(is_told)
    assert guarded.refusals('it is for somebody else (aud "another-service")')


def test_a_producer_of_librdkafka_outlives_its_tokens(guarded: Guarded) -> None:
    producer = Producer(guarded.oidc("brief", "hurry"))
    failed: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    ends_at = time.monotonic() + BRIEF_RUNS_S
    while time.monotonic() < ends_at or guarded.renewals("confluent-kafka-python") < 2:
        assert time.monotonic() < ends_at + 60
        producer.produce("renewed", b"v", partition=0, on_delivery=on_delivery)
        assert producer.flush(60) == 0
        producer.poll(0.1)
    assert not failed


def test_access_rules_are_about_the_user_of_the_token(guarded: Guarded) -> None:
    def token(_: str) -> tuple[str, float]:
        return guarded.issuer.token(sub="bob"), time.time() + 3_600

    consumer = Consumer(guarded.librdkafka() | {"oauth_cb": token, "group.id": "bobs"})
    try:
        consumer.assign([TopicPartition("librdkafka-oidc", 0, 0)])
        (record,) = consumer.consume(1, timeout=60)
        error = record.error()
        assert error is not None
        assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()
    assert any(event["principal"] == "User:bob" for event in guarded.daemon.events("access_denied"))


# kafka-python, aiokafka


class OfKafkaPython(AbstractTokenProvider):  # type: ignore[misc]
    """A token of the issuer."""

    def __init__(self, issuer: Issuer, **claims: object) -> None:
        super().__init__()
        self._token = issuer.token(**claims)  # type: ignore[arg-type]

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class OfAiokafka(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    """A token of the issuer."""

    def __init__(self, issuer: Issuer, **claims: object) -> None:
        self._token = issuer.token(**claims)  # type: ignore[arg-type]

    async def token(self) -> str:
        return self._token


def python(guarded: Guarded, provider: object) -> dict[str, Any]:
    return {
        "bootstrap_servers": guarded.addresses["SASL_PLAINTEXT"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def test_kafka_python_gets_in(guarded: Guarded) -> None:
    settings = python(guarded, OfKafkaPython(guarded.issuer))
    producer = kafka.KafkaProducer(**settings)
    producer.send("kafka-python", b"v", partition=0).get(60)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=60_000)
    consumer.assign([kafka.TopicPartition("kafka-python", 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"v"
    consumer.close()


def test_kafka_python_is_refused_with_an_expired_token(guarded: Guarded) -> None:
    settings = python(guarded, OfKafkaPython(guarded.issuer, exp=int(time.time()) - 600))

    def is_refused(within_ms: int) -> None:
        with pytest.raises(kafka.errors.KafkaError):
            kafka.KafkaAdminClient(**settings, bootstrap_timeout_ms=within_ms)
        until(lambda: guarded.refusals("it has expired") > 0, deadline_s=10)

    within_one_of((3_000, 30_000), is_refused)


def test_aiokafka_gets_in(guarded: Guarded) -> None:
    settings = python(guarded, OfAiokafka(guarded.issuer))
    assert asyncio.run(by_aiokafka(settings, "aiokafka", b"v")) == b"v"


def test_aiokafka_is_refused_with_a_token_of_another_issuer(guarded: Guarded) -> None:
    """It takes a refusal for a login and goes on; the log tells of it all the same."""
    settings = python(guarded, OfAiokafka(guarded.issuer, iss="https://other.example.org"))
    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(by_aiokafka(settings, "refused", b"v"))
    until(lambda: guarded.refusals('it is of another issuer (iss "https://other.example.org")') > 0)


# Java


def java(guarded: Guarded, client: str, secret: str, **more: str) -> dict[str, str]:
    options = ' scope="read write" extension_logicalCluster="lkc-1"'
    address, tokens = guarded.addresses["SASL_SSL"], f"{guarded.plain_url}/token"
    return java_logins.settings(address, tokens, client, secret, options) | {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(guarded.authority.file),
        **more,
    }


@pytest.fixture(scope="module")
def said_by_java(guarded: Guarded, release_cache: Path) -> dict[str, str]:
    """What each task ended with."""
    token = guarded.folder / "token"
    token.write_text(guarded.issuer.token())
    foreign = guarded.folder / "foreign"
    foreign.write_text(guarded.issuer.token(aud="another-service"))
    url = "sasl.oauthbearer.token.endpoint.url"
    allowed = [f"{guarded.plain_url}/token", token.as_uri(), foreign.as_uri()]
    alice = partial(java, guarded, "alice", "wonderland")
    logins = [
        Login("grant", "records", alice()),
        Login("file", "records", alice(**{url: token.as_uri()})),
        Login("foreign", "records", alice(**{url: foreign.as_uri()})),
        Login("renew", "renew", java(guarded, "brief", "hurry")),
    ]
    return java_logins.said(logins, allowed, guarded.folder, release_cache)


@pytest.mark.matrix
@pytest.mark.parametrize("task", ["grant", "file", "renew"])
def test_java_does(said_by_java: dict[str, str], task: str) -> None:
    assert said_by_java[task] == "ok"


@pytest.mark.matrix
def test_java_is_told_why_its_token_is_refused(said_by_java: dict[str, str]) -> None:
    assert said_by_java["foreign"].startswith("SaslAuthenticationException")
    assert 'it is for somebody else (aud "another-service")' in said_by_java["foreign"]


@pytest.mark.matrix
def test_java_renews_its_sessions_on_their_connections(
    guarded: Guarded, said_by_java: dict[str, str]
) -> None:
    assert said_by_java["renew"] == "ok"
    assert guarded.renewals("apache-kafka-java") >= 2

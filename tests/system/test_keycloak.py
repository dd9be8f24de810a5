"""Logins by tokens of an identity provider that people use: Keycloak.

Other tests of tokens have an issuer of their own (tests/support/issuer.py); here a provider decides
what is in a token, which keys it publishes, and when it changes them.  Its keys and tokens are
fetched in clear, by way of this machine alone.

| client                      | gets its tokens by                                            |
|-----------------------------|---------------------------------------------------------------|
| ours, our command line      | the client-credentials grant                                  |
| librdkafka                  | the client-credentials grant (method=oidc)                    |
| Java                        | the client-credentials grant                                  |
"""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer as Confluent
from confluent_kafka import Producer as ConfluentProducer

from segbroker.client import AuthenticationFailed, ClientCredentials, Consumer, Producer, Security

from ..support.daemon import Daemon, start
from ..support.java import java
from ..support.ports import keep_port
from ..support.program import Program, eventually
from . import java_logins
from .java_logins import Login
from .maven_archive import unpacked

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

VERSION: Final = "26.0.7"
ARTIFACT: Final = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
LIFE_S: Final = 10
"""How long a token lasts."""
SECRET: Final = "looking-glass"
LOGIN: Final = {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin"}


class Keycloak:
    """A server with a realm of two clients: `orders`, whose tokens are for the broker, and
    `stranger`, whose are not."""

    def __init__(self, home: Path, log: Path) -> None:
        self._url = f"http://127.0.0.1:{(port := keep_port())}"
        self.realm = f"{self._url}/realms/logs"
        self.tokens = f"{self.realm}/protocol/openid-connect/token"
        self.keys = f"{self.realm}/protocol/openid-connect/certs"
        command = [str(home / "bin" / "kc.sh"), "start-dev", "--db=dev-mem"]
        command += ["--http-host=127.0.0.1", f"--http-port={port}"]
        self.program = Program(
            ["bash", *command],
            log,
            what="Keycloak",
            environment=LOGIN | {"JAVA_HOME": str(Path(java()).resolve().parent.parent)},
        )

    def answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self._url}/realms/master", timeout=60).close()
        except OSError:
            return False
        return True

    def fill(self) -> None:
        realm = {"realm": "logs", "enabled": True, "accessTokenLifespan": LIFE_S}
        self._post("", realm)
        audience = {
            "name": "audience",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-audience-mapper",
            "config": {"included.custom.audience": "segbroker", "access.token.claim": "true"},
        }
        for client, mappers in (("orders", [audience]), ("stranger", [])):
            said = {
                "clientId": client,
                "secret": SECRET,
                "serviceAccountsEnabled": True,
                "protocolMappers": mappers,
            }
            self._post("/logs/clients", said)

    def change_keys(self) -> None:
        """Sign with a new key from now on."""
        found = json.loads(self._ask("/logs"))
        key = {
            "name": "newer",
            "providerId": "rsa-generated",
            "providerType": "org.keycloak.keys.KeyProvider",
            "parentId": found["id"],
            "config": {"priority": ["1000"], "algorithm": ["PS256"], "keySize": ["2048"]},
        }
        self._post("/logs/components", key)
        self._post("/logs", found | {"defaultSignatureAlgorithm": "PS256"}, method="PUT")

    def _post(self, path: str, body: dict[str, object], method: str = "POST") -> None:
        self._ask(path, json.dumps(body).encode(), method)

    def _ask(self, path: str, body: bytes | None = None, method: str = "GET") -> bytes:
        login = {"grant_type": "password", "client_id": "admin-cli"}
        login |= {"username": "admin", "password": "admin"}
        url = f"{self._url}/realms/master/protocol/openid-connect/token"
        with urllib.request.urlopen(url, urlencode(login).encode(), timeout=60) as reply:
            token = json.load(reply)["access_token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        address = f"{self._url}/admin/realms{path}"
        request = urllib.request.Request(address, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            said: bytes = reply.read()
            return said


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory, release_cache: Path) -> Iterator[Keycloak]:
    (home,) = unpacked(ARTIFACT, release_cache).glob("keycloak-*")
    server = Keycloak(home, tmp_path_factory.mktemp("keycloak") / "log")
    with server.program:
        eventually(server.answers, server.program)
        server.fill()
        yield server


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, keycloak: Keycloak) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("broker")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl_mechanisms": "OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": keycloak.keys,
        "sasl_oauthbearer_expected_issuer": keycloak.realm,
        "sasl_oauthbearer_expected_audience": "segbroker",
        "sasl_oauthbearer_sub_claim_name": "preferred_username",
        "sasl_oauthbearer_clock_skew_seconds": "0",
        "authorizer": "acl",
        "super_users": "User:service-account-orders",
        "log_level": "debug",
    }
    config = folder / "segbroker.toml"
    config.write_text("".join(f'{key} = "{value}"\n' for key, value in settings.items()))
    broker = start(folder / "data", "--config", str(config))
    try:
        yield broker
    finally:
        broker.stop()


def ours(keycloak: Keycloak, client: str = "orders", secret: str = SECRET) -> Security:
    provider = ClientCredentials(keycloak.tokens, client, secret)
    return Security(mechanism="OAUTHBEARER", token_provider=provider)


def librdkafka(daemon: Daemon, keycloak: Keycloak) -> dict[str, Any]:
    return {
        "bootstrap.servers": daemon.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "orders",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": keycloak.tokens,
    }


def test_producers_outlive_their_tokens_and_the_keys_that_signed_them(
    daemon: Daemon, keycloak: Keycloak
) -> None:
    """Keycloak begins to sign with another key and algorithm while both are connected."""
    settings = librdkafka(daemon, keycloak)
    confluent = ConfluentProducer(settings)
    failed: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    sent, changed, ends_at = 0, False, time.monotonic() + 3 * LIFE_S
    with Producer(daemon.address, security=ours(keycloak)) as producer:
        while time.monotonic() < ends_at or len(daemon.events("signing_keys_read")) < 2:
            assert time.monotonic() < ends_at + 60, daemon.log.read_text()[-2_000:]
            producer.send("lasting", b"ours").result()
            confluent.produce("lasting", b"theirs", on_delivery=on_delivery)
            assert confluent.flush(60) == 0
            sent += 2
            if not changed and time.monotonic() > ends_at - 2 * LIFE_S:
                keycloak.change_keys()
                changed = True
    assert not failed
    logins = daemon.events("authenticated")
    assert {event["principal"] for event in logins} == {"User:service-account-orders"}

    with Consumer(
        daemon.address, "lasting", security=ours(keycloak), start="start", stop_at_end=True
    ) as consumer:
        assert sum(1 for _ in consumer) == sent
    reader = Confluent(settings | {"group.id": "lasting", "auto.offset.reset": "earliest"})
    try:
        reader.subscribe(["lasting"])
        read = 0
        while read < sent:
            records = reader.consume(sent, timeout=60)
            assert records, f"{read} of {sent} read"
            assert not [record.error() for record in records if record.error()]
            read += len(records)
    finally:
        reader.close()


def test_java_renews_its_sessions(
    daemon: Daemon, keycloak: Keycloak, tmp_path: Path, release_cache: Path
) -> None:
    settings = java_logins.settings(daemon.address, keycloak.tokens, "orders", SECRET)
    logins = [Login("records", "records", settings), Login("renew", "renew", settings)]
    said = java_logins.said(logins, [keycloak.tokens], tmp_path, release_cache)
    assert said == {"records": "ok", "renew": "ok"}


def test_a_token_for_another_service_is_refused_with_its_reason(
    daemon: Daemon, keycloak: Keycloak
) -> None:
    stranger = ours(keycloak, "stranger")
    with (
        pytest.raises(AuthenticationFailed, match="for somebody else"),
        Consumer(daemon.address, "lasting", security=stranger, stop_at_end=True) as consumer,
    ):
        list(consumer)


def test_a_wrong_secret_is_told_in_the_words_of_the_provider(
    daemon: Daemon, keycloak: Keycloak
) -> None:
    command = [sys.executable, "-m", "segbroker.cli", "topic", "list", "-b", daemon.address]
    for name, value in {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": keycloak.tokens,
        "sasl.oauthbearer.client.id": "orders",
        "sasl.oauthbearer.client.secret": "wrong",
    }.items():
        command += ["-X", f"{name}={value}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 6
    assert "answered 401 (unauthorized_client" in run.stderr

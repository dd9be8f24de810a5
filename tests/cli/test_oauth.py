"""Logins by a token on the command line: -X, contexts, a file, and access rules by its user."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode

from ..support.daemon import Daemon, start
from ..support.issuer import AUDIENCE, ISSUER, Issuer
from .test_security import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "config")


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def issued(issuer: Issuer) -> Iterator[str]:
    """The URL of its token endpoint."""
    with issuer.serving() as url:
        yield f"{url}/token"


@pytest.fixture(scope="module")
def daemon(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("oauth")
    made = start(
        folder / "data",
        *("--listeners", "SASL_PLAINTEXT://127.0.0.1:0"),
        *("--sasl-mechanisms", "OAUTHBEARER"),
        *("--sasl-oauthbearer-jwks-endpoint-url", issuer.write(folder / "keys")),
        *("--sasl-oauthbearer-expected-issuer", ISSUER),
        *("--sasl-oauthbearer-expected-audience", AUDIENCE),
        *("--authorizer", "acl"),
        *("--super-users", "User:alice"),
    )
    try:
        yield made
    finally:
        made.stop()


def words(url: str, *more: str) -> list[str]:
    found = [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=OAUTHBEARER",
        f"sasl.oauthbearer.token.endpoint.url={url}",
        *more,
    ]
    return [word for text in found for word in ("-X", text)]


def test_the_grant_by_a_context_whose_secret_is_elsewhere(
    daemon: Daemon, shell: Shell, issued: str
) -> None:
    asked = words(
        issued,
        "sasl.oauthbearer.client.credentials.client.id=alice",
        "sasl.oauthbearer.client.credentials.client.secret=env:PW",
    )
    shell("context", "add", "cloud", "-b", daemon.address, *asked)
    assert "alice" in shell("context", "list")
    assert "wonderland" not in shell.stored.read_text()
    shell("topic", "create", "flights")
    assert "flights" in shell("topic", "list")


def test_a_token_in_a_file_and_what_its_user_may_do(
    daemon: Daemon, shell: Shell, issuer: Issuer, tmp_path: Path
) -> None:
    bob, alice = tmp_path / "bob", tmp_path / "alice"
    bob.write_text(issuer.token(sub="bob"))
    alice.write_text(issuer.token())
    of_alice, of_bob = ((*words(one.as_uri()), "-b", daemon.address) for one in (alice, bob))
    shell("topic", "create", "orders", *of_alice)
    told = shell("consume", "orders", "-e", *of_bob, code=ExitCode.REFUSED)
    assert "access_denied" in told
    rule = ("--principal", "User:bob", "--operation", "read", "--topic", "orders")
    shell("acl", "add", *rule, *of_alice)
    shell("consume", "orders", "-e", *of_bob)


def test_the_secrets_of_a_jaas_text_may_be_elsewhere_too(
    daemon: Daemon, shell: Shell, issued: str, tmp_path: Path
) -> None:
    jaas = tmp_path / "jaas"
    jaas.write_text('OAuthBearerLoginModule required clientId="alice" clientSecret="wonderland";')
    shell("topic", "list", "-b", daemon.address, *words(issued, f"sasl.jaas.config=file:{jaas}"))


def test_what_goes_wrong_is_told_without_secrets(
    daemon: Daemon, shell: Shell, issued: str, tmp_path: Path
) -> None:
    login = ("sasl.oauthbearer.client.id=alice", "sasl.oauthbearer.client.secret=guessed")
    told = shell(
        "topic", "list", "-b", daemon.address, *words(issued, *login), code=ExitCode.REFUSED
    )
    assert "invalid_client" in told
    assert "guessed" not in told
    missing = (tmp_path / "no").as_uri()
    told = shell("topic", "list", "-b", daemon.address, *words(missing), code=ExitCode.UNREACHABLE)
    assert "No such file" in told
    (tmp_path / "token").write_text("a.b.c")
    garbage = words((tmp_path / "token").as_uri())
    told = shell("topic", "list", "-b", daemon.address, *garbage, code=ExitCode.REFUSED)
    assert "it is no JWT" in told
    told = shell("topic", "list", *words(issued), code=ExitCode.USAGE)
    assert "sasl.oauthbearer.client.id" in told


def test_a_broker_that_has_no_keys_is_not_one_that_wants_a_login(
    shell: Shell, issuer: Issuer, tmp_path: Path
) -> None:
    """It ends the connection in the login, as it has no answer: that is in its log."""
    (tmp_path / "token").write_text(issuer.token())
    daemon = start(
        tmp_path / "data",
        *("--listeners", "SASL_PLAINTEXT://127.0.0.1:0"),
        *("--sasl-mechanisms", "OAUTHBEARER"),
        *("--sasl-oauthbearer-jwks-endpoint-url", "http://127.0.0.1:1/jwks"),
        *("--sasl-oauthbearer-expected-issuer", ISSUER),
        *("--sasl-oauthbearer-expected-audience", AUDIENCE),
    )
    try:
        asked = words((tmp_path / "token").as_uri())
        told = shell("topic", "list", "-b", daemon.address, *asked, code=ExitCode.UNREACHABLE)
    finally:
        daemon.stop()
    assert "in the login, without an answer to it" in told
    assert "its log says why (authentication_failed)" in told
    assert "if it wants" not in told

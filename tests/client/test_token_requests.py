"""How a client asks for a token: an issuer that is slow on purpose, one beside a proxy, functions
of every kind."""

import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from segbroker.client import (
    Admin,
    AsyncProducer,
    AuthenticationFailed,
    BearerToken,
    ClientCredentials,
    Security,
    TokenUnavailable,
)
from segbroker.client.async_tokens import get_token
from segbroker.client.tokens import Tokens

from ..support.certificates import Authority
from ..support.dripping import (
    IN_A_CHUNK_SIZE,
    IN_A_HEADER,
    IN_AN_ERROR,
    IN_THE_BODY,
    dripping,
)
from ..support.issuer import Issuer
from ..support.waiting import until, within_one_of

REFUSED_SLOWLY = IN_AN_ERROR.replace(b"503 Away", b"401 No")


def outcome(ask: Callable[[], BearerToken]) -> BearerToken | Exception:
    """What it gives or raises; a failure if it does neither."""
    found: list[BearerToken | Exception] = []

    def run() -> None:
        try:
            found.append(ask())
        except Exception as exc:
            found.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert found, "it waits for ever"
    return found[0]


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("begin", [IN_A_HEADER, IN_A_CHUNK_SIZE, IN_THE_BODY])
def test_an_issuer_that_drips_is_not_waited_for(tmp_path: Path, begin: bytes, tls: bool) -> None:
    authority = Authority(tmp_path)
    with dripping(begin, authority.server() if tls else None) as server:
        asked = ClientCredentials(
            server.url, "alice", "wonderland", ca_file=str(authority.file), timeout_ms=300
        )
        error = outcome(asked)
    assert isinstance(error, TokenUnavailable)
    assert str(error) == f"the token endpoint {server.address}: no answer within 0.3 s"


def test_a_refusal_whose_words_do_not_come_is_one() -> None:
    with dripping(REFUSED_SLOWLY) as server:

        def is_one(within_ms: int) -> None:
            ask = ClientCredentials(server.url, "alice", "wonderland", timeout_ms=within_ms)
            error = outcome(ask)
            assert isinstance(error, AuthenticationFailed)
            assert str(error).endswith("answered 401, for client 'alice'")

        within_one_of((300, 5_000), is_one)
        server.is_over.set()  # it hangs up in the middle
        is_one(20_000)


def test_a_client_has_tokens_again_when_its_issuer_drips_no_more() -> None:
    """The first asking held the lock: everybody else was told that the provider does not return."""
    with dripping(IN_A_HEADER) as server:
        tokens = Tokens(ClientCredentials(server.url, "alice", "wonderland", timeout_ms=300))

        def get() -> BearerToken:
            tokens.get()
            assert tokens.current is not None
            return tokens.current

        assert isinstance(outcome(get), TokenUnavailable)
        server.body = b'{"access_token": "t", "expires_in": 60}'
        until(lambda: isinstance(outcome(get), BearerToken))
    assert tokens.current is not None
    assert tokens.current.value == "t"


def test_an_issuer_on_this_machine_is_not_asked_by_way_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with Issuer().serving() as url:
        for address in (url, url.replace("127.0.0.1", "localhost")):
            assert ClientCredentials(f"{address}/token", "alice", "wonderland")().value


@pytest.mark.parametrize("encoded", [False, True])
def test_id_and_secret_are_percent_encoded_for_issuers_that_want_it(encoded: bool) -> None:
    issuer, name, secret = Issuer(), "app:é 1", "s&e%c+r/e:t="
    if not encoded:
        name = "app é 1"
    sent = ("app%3A%C3%A9+1", "s%26e%25c%2Br%2Fe%3At%3D") if encoded else (name, secret)
    issuer.clients = {sent[0]: sent[1]}
    with issuer.serving() as url:
        properties = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"{url}/token",
            "sasl.oauthbearer.client.id": name,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.header.urlencode": str(encoded).lower(),
        }
        made = Security.from_properties(properties)
        assert made is not None
        assert isinstance(made.token_provider, ClientCredentials)
        assert made.token_provider().value
        properties["sasl.oauthbearer.header.urlencode"] = "yes"
        with pytest.raises(ValueError, match="neither true nor false"):
            Security.from_properties(properties)


# Functions


async def token_for(audience: str) -> str:
    await anyio.lowlevel.checkpoint()
    return f"token-for-{audience}"


class Getter:
    async def __call__(self) -> str:
        return await token_for("x")


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize(
    "provider",
    [functools.partial(token_for, "x"), lambda: token_for("x"), Getter()],
    ids=["partial", "lambda", "object"],
)
def test_what_gives_an_awaitable_is_awaited_however_it_is_written(
    loop: str,
    provider: Any,  # noqa: ANN401 - of three kinds
) -> None:
    security = Security(mechanism="OAUTHBEARER", token_provider=provider)

    async def scenario(within_ms: int) -> str:
        producer = AsyncProducer("127.0.0.1:1", security=security, connect_timeout_ms=within_ms)
        with pytest.raises(Exception, match="could be reached"):
            async with producer:
                pass
        return "ok"

    def check(within_ms: int) -> None:
        assert anyio.run(scenario, within_ms, backend=loop) == "ok"

    within_one_of((300, 5_000), check)


def test_a_blocking_client_says_that_it_does_not_await() -> None:
    security = Security(mechanism="OAUTHBEARER", token_provider=lambda: token_for("x"))

    def is_said(within_ms: int) -> None:
        with (
            pytest.raises(TokenUnavailable, match="async token_provider is for the async clients"),
            Admin("127.0.0.1:1", security=security, connect_timeout_ms=within_ms),
        ):
            pass

    within_one_of((300, 5_000), is_said)
    partial = functools.partial(token_for, "x")
    with (
        pytest.raises(TypeError, match="async"),
        Admin("127.0.0.1:1", security=Security(mechanism="OAUTHBEARER", token_provider=partial)),
    ):
        pass


def test_a_call_that_does_not_return_is_given_up_one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without a time-out, in a network that lost it: the next one may be answered."""
    monkeypatch.setattr("segbroker.client.tokens.WAIT_S", 0.01)
    now, gate, calls = [1_000.0], threading.Event(), [0]

    def token() -> BearerToken:
        calls[0] += 1
        if calls[0] == 1:
            gate.wait(60)
            return BearerToken("late", now[0] + 60)
        return BearerToken("second", now[0] + 60)

    tokens, first = Tokens(token, lambda: now[0], lambda: now[0]), []

    def get() -> None:
        try:
            tokens.get()
        except TokenUnavailable as exc:
            first.append(str(exc))

    hung = threading.Thread(target=get)
    hung.start()
    while not calls[0]:
        hung.join(0.01)
    for later in (0, 299, 1):
        now[0] += later
        with pytest.raises(TokenUnavailable, match="does not return"):
            tokens.get()
        assert calls == [1]
    tokens.get()
    gate.set()
    hung.join()
    assert tokens.current is not None
    assert tokens.current.value == "second"
    assert first == ["the token provider does not return"]
    now[0] += 50
    tokens.get()
    assert calls == [3]


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_an_async_call_that_does_not_return_is_ended_one_day(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segbroker.client.async_tokens.HUNG_S", 0.1)
    calls = [0]

    async def token() -> str:
        calls[0] += 1
        if calls[0] == 1:
            await anyio.sleep_forever()
        return "second"

    async def scenario() -> None:
        tokens, lock = Tokens(token), anyio.Lock()
        with pytest.raises(TokenUnavailable, match="does not return"):
            await get_token(tokens, lock)
        await get_token(tokens, lock)
        assert tokens.current is not None

    async def in_time() -> None:
        with anyio.fail_after(60):
            await scenario()

    anyio.run(in_time, backend=loop)


PROGRAM = """
import sys, threading, anyio
from segbroker.client import AsyncProducer, Security, TokenUnavailable

def token():
    threading.Event().wait()

async def main():
    security = Security(mechanism="OAUTHBEARER", token_provider=token)
    try:
        within_ms = int(sys.argv[2])
        async with AsyncProducer("127.0.0.1:1", security=security, connect_timeout_ms=within_ms):
            pass
    except TokenUnavailable:
        print("told")

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_a_program_ends_though_its_function_does_not_return(loop: str) -> None:
    def ends(within_ms: int) -> None:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, loop, str(within_ms)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert ended.stdout == "told\n"

    within_one_of((300, 5_000), ends)

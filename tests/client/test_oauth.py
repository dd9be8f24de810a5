"""Logins by a token of our clients: where it comes from, renewed sessions, what goes wrong."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from segbroker.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AuthenticationFailed,
    BearerToken,
    ClientCredentials,
    Consumer,
    Producer,
    Security,
    TokenFile,
    TokenUnavailable,
)
from segbroker.client.token_sources import TokenProvider, expiry_of
from segbroker.client.tokens import Tokens
from segbroker.testing.embedded import EmbeddedBroker

from ..support.certificates import Authority
from ..support.issuer import AUDIENCE, ISSUER, Issuer
from ..support.waiting import within_one_of


class Guarded:
    """A broker that takes tokens, and who issues them."""

    def __init__(self, folder: Path, issuer: Issuer, url: str) -> None:
        self.issuer, self.url, self.folder = issuer, url, folder
        self.broker = EmbeddedBroker(
            listeners="SASL_PLAINTEXT://127.0.0.1:0",
            sasl_mechanisms="OAUTHBEARER",
            sasl_oauthbearer_jwks_endpoint_url=issuer.write(folder / "keys"),
            sasl_oauthbearer_expected_issuer=ISSUER,
            sasl_oauthbearer_expected_audience=AUDIENCE,
            authentication_failure_delay_ms=10,
        )

    @property
    def address(self) -> str:
        return self.broker.addresses["SASL_PLAINTEXT"]

    def grant(self, client: str = "alice", secret: str = "wonderland") -> ClientCredentials:
        return ClientCredentials(f"{self.url}/token", client, secret)


def by(provider: TokenProvider, **extensions: str) -> Security:
    return Security(mechanism="OAUTHBEARER", token_provider=provider, sasl_extensions=extensions)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    issuer = Issuer()
    with issuer.serving() as url:
        made = Guarded(tmp_path_factory.mktemp("oauth"), issuer, url)
        with made.broker:
            yield made


def send_and_read(address: str, topic: str, security: Security | None) -> None:
    with Producer(address, security=security) as producer:
        producer.send(topic, b"v").result(60)
    with Consumer(address, topic, start="start", stop_at_end=True, security=security) as consumer:
        assert [record.value for record in consumer] == [b"v"]


# Where it comes from


def test_a_function_gives_the_token_once_for_all_connections(guarded: Guarded) -> None:
    asked: list[None] = []

    def token() -> str:
        asked.append(None)
        return guarded.issuer.token()

    with Producer(guarded.address, security=by(token, logicalCluster="lkc-1")) as producer:
        for n in range(3):
            producer.send(f"function-{n}", b"v").result(60)
    assert len(asked) == 1


def test_the_grant_gives_it(guarded: Guarded) -> None:
    before = len(guarded.issuer.grants)
    security = by(ClientCredentials(f"{guarded.url}/token", "alice", "wonderland", scope="a b"))
    send_and_read(guarded.address, "grant", security)
    grants = guarded.issuer.grants[before:]
    assert grants == [{"grant_type": "client_credentials", "scope": "a b", "client": "alice"}] * 2


def test_a_file_gives_it(guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(guarded.issuer.token() + "\n")
    send_and_read(guarded.address, "file", by(TokenFile(str(tmp_path / "token"))))


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_clients_of_an_event_loop_have_either_kind_of_function(
    guarded: Guarded, loop: str, kind: str
) -> None:
    async def awaited() -> str:
        await anyio.lowlevel.checkpoint()
        return guarded.issuer.token()

    def blocking() -> str:
        assert threading.current_thread() is not threading.main_thread()
        return guarded.issuer.token()

    security = by(awaited if kind == "async" else blocking)
    topic = f"loop-{loop}-{kind}"

    async def scenario() -> list[bytes | None]:
        async with AsyncProducer(guarded.address, security=security) as producer:
            await producer.send(topic, b"v")
        async with AsyncConsumer(
            guarded.address, topic, start="start", stop_at_end=True, security=security
        ) as consumer:
            return [record.value async for record in consumer]

    assert anyio.run(scenario, backend=loop) == [b"v"]


def test_a_blocking_client_refuses_an_async_function(guarded: Guarded) -> None:
    async def token() -> str:
        return ""

    with pytest.raises(TypeError, match="async"), Admin(guarded.address, security=by(token)):
        pass


# Sessions


@pytest.mark.parametrize("loop", [None, "trio", "asyncio"])
def test_a_session_is_renewed_with_a_new_token_while_records_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str | None
) -> None:
    """Early in the life of long tokens: a machine that stalls for seconds ends no session."""
    monkeypatch.setattr("segbroker.client.connection.RENEW_PERCENT", 10)
    monkeypatch.setattr("segbroker.client.tokens.FRESH_PERCENT", 8)
    made = Guarded(tmp_path, Issuer(), "")
    given: list[str] = []

    def token() -> str:
        given.append(made.issuer.token(exp=int(time.time()) + 21, jti=str(len(given))))
        return given[-1]

    with capture_logs() as events, made.broker:
        ends_at = time.monotonic() + 60

        def goes_on() -> bool:
            logins = [event["peer"] for event in events if event["event"] == "authenticated"]
            is_renewed = any(logins.count(peer) > 2 for peer in logins)
            return not is_renewed and time.monotonic() < ends_at

        async def scenario() -> None:
            async with AsyncProducer(made.address, security=by(token), linger_ms=0) as producer:
                while goes_on():
                    await (await producer.send("t", b"v"))
                    await anyio.sleep(0.01)

        if loop is None:
            with Producer(made.address, security=by(token), linger_ms=0) as producer:
                while goes_on():
                    producer.send("t", b"v").result(60)
                    time.sleep(0.01)
        else:
            anyio.run(scenario, backend=loop)
        assert time.monotonic() < ends_at, "no connection has renewed its session twice"
    assert len(given) >= 3
    assert not [event for event in events if event["event"] == "session_expired"]


# What goes wrong


def test_a_client_is_told_why_its_token_is_refused(guarded: Guarded) -> None:
    def token() -> str:
        return guarded.issuer.token(aud="another-service")

    with (
        pytest.raises(
            AuthenticationFailed, match=r'it is for somebody else .aud "another-service"'
        ),
        Admin(guarded.address, security=by(token)),
    ):
        pass


def test_an_issuer_that_refuses_is_the_end_at_once(guarded: Guarded) -> None:
    """Else it would be said when connect_timeout_ms is over, behind the end of any test."""
    security = by(guarded.grant(secret="guessed"))
    with (
        pytest.raises(AuthenticationFailed, match=r"401 \(invalid_client: no such cl") as caught,
        Admin(guarded.address, security=security, connect_timeout_ms=600_000),
    ):
        pass
    assert "guessed" not in str(caught.value) + repr(caught.value.__cause__)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((503, b""), "answered 503"),
        ((200, b"<html>"), "6 bytes that are no JSON"),
        ((200, b"{}"), "no access_token"),
        ((200, b'{"access_token": "a b"}'), "characters"),
        ((302, b"http://127.0.0.1:1/"), "answered 302"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_issuer_that_is_away_is_asked_again_and_told_of(
    guarded: Guarded, answer: tuple[int, bytes], told: str
) -> None:
    def is_told(within_ms: int) -> None:
        issuer = Issuer()
        issuer.answer = lambda _: answer
        with (
            issuer.serving() as url,
            pytest.raises(TokenUnavailable, match=told),
            Admin(
                guarded.address,
                security=by(ClientCredentials(f"{url}/token", "alice", "wonderland")),
                connect_timeout_ms=within_ms,
            ),
        ):
            pass
        assert len(issuer.asked) > 1

    within_one_of((1_000, 10_000, 60_000), is_told)


def test_what_a_function_raises_is_told_without_its_words(guarded: Guarded) -> None:
    def token() -> str:
        raise KeyError("secret")

    def is_told(within_ms: int) -> None:
        with (
            pytest.raises(TokenUnavailable, match="the token provider raised KeyError") as caught,
            Admin(guarded.address, security=by(token), connect_timeout_ms=within_ms),
        ):
            pass
        assert "secret" not in str(caught.value)

    within_one_of((500, 10_000), is_told)


@pytest.mark.parametrize("loop", [None, "trio", "asyncio"])
def test_a_function_that_does_not_return_is_not_waited_for(
    guarded: Guarded, loop: str | None
) -> None:
    gate = threading.Event()

    def token() -> str:
        gate.wait(60)
        return ""

    async def scenario(within_ms: int) -> None:
        async with AsyncProducer(guarded.address, security=by(token), connect_timeout_ms=within_ms):
            pass

    def blocking(within_ms: int) -> None:
        with Producer(guarded.address, security=by(token), connect_timeout_ms=within_ms):
            pass

    def is_given_up(within_ms: int) -> None:
        with pytest.raises(TokenUnavailable):
            blocking(within_ms) if loop is None else anyio.run(scenario, within_ms, backend=loop)

    try:
        within_one_of((300, 5_000), is_given_up)
    finally:
        gate.set()


def test_the_token_endpoint_is_trusted_by_its_own_authorities(
    guarded: Guarded, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with guarded.issuer.serving(authority.server()) as url:
        asked = ClientCredentials(
            f"{url}/token", "alice", "wonderland", ca_file=str(authority.file)
        )
        assert expiry_of(asked().value) is not None
        stranger = ClientCredentials(f"{url}/token", "alice", "wonderland", ca_file=str(other.file))
        with pytest.raises(TokenUnavailable, match="certificate"):
            stranger()


# Kept and renewed


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def kept(
    lifetime_s: float | None, clock: Clock, steady: Clock | None = None
) -> tuple[Tokens, list[str | Exception]]:
    """Tokens whose provider gives what stands in the list, else t1, t2 ..."""
    script: list[str | Exception] = []
    count = iter(range(1, 100))

    def token() -> BearerToken:
        item = script.pop(0) if script else f"t{next(count)}"
        if isinstance(item, Exception):
            raise item
        return BearerToken(item, None if lifetime_s is None else clock.now + lifetime_s)

    return Tokens(token, clock, steady or clock), script


def value_of(tokens: Tokens) -> str | None:
    return None if tokens.current is None else tokens.current.value


def test_a_token_is_kept_until_it_has_had_most_of_its_life() -> None:
    clock = Clock()
    tokens, _ = kept(100, clock)
    for now, value in ((1_000, "t1"), (1_069, "t1"), (1_071, "t2")):
        clock.now = now
        tokens.get()
        assert value_of(tokens) == value


def test_a_token_of_unknown_life_is_got_anew_for_connections_that_come_later() -> None:
    clock = Clock()
    tokens, _ = kept(None, clock)
    for now, value in ((1_000, "t1"), (1_004, "t1"), (1_006, "t2")):
        clock.now = now
        tokens.get()
        assert value_of(tokens) == value


def test_a_token_that_was_refused_is_not_tried_again() -> None:
    tokens, _ = kept(100, Clock())
    tokens.get()
    tokens.reject("another")
    assert value_of(tokens) == "t1"
    tokens.reject("t1")
    assert value_of(tokens) is None
    tokens.get()
    assert value_of(tokens) == "t2"


def test_while_none_can_be_got_the_last_is_used_until_it_expires() -> None:
    clock = Clock()
    tokens, script = kept(100, clock)
    tokens.get()
    clock.now = 1_080
    script.append(OSError("away"))
    tokens.get()
    assert value_of(tokens) == "t1"
    clock.now = 1_100
    script.append(OSError("away"))
    with pytest.raises(TokenUnavailable):
        tokens.get()
    assert value_of(tokens) is None


def test_a_renewal_waits_for_a_new_token_that_is_wanted_once_at_a_time() -> None:
    clock = Clock()
    tokens, script = kept(100, clock)
    tokens.get()
    assert tokens.may_renew()
    clock.now = 1_080
    assert not tokens.may_renew()
    assert tokens.take_wanted()
    assert not tokens.may_renew()
    assert not tokens.take_wanted()  # it is being got
    script.append(OSError("away"))
    tokens.get()
    assert not tokens.may_renew()
    assert not tokens.take_wanted()  # not at once again
    clock.now = 1_082
    assert not tokens.may_renew()
    assert tokens.take_wanted()
    tokens.get()
    assert tokens.may_renew()
    assert value_of(tokens) == "t2"


@pytest.mark.parametrize(("jump_s", "waits_s"), [(-3_600, 71), (3_600, 0), (71, 0)])
def test_a_token_is_renewed_in_time_whatever_the_clock_does(jump_s: float, waits_s: float) -> None:
    """It is set back an hour, or ahead; or it goes on while the machine sleeps, and the other one
    stands still."""
    clock, steady = Clock(), Clock()
    tokens, _ = kept(100, clock, steady)
    tokens.get()
    clock.now += jump_s
    steady.now += waits_s
    assert not tokens.may_renew()
    assert tokens.take_wanted()
    tokens.get()
    assert value_of(tokens) == "t2"
    assert tokens.may_renew()


def test_a_clock_that_is_set_back_puts_no_next_attempt_off() -> None:
    clock, steady = Clock(), Clock()
    tokens, script = kept(100, clock, steady)
    tokens.get()
    steady.now += 80
    script.append(OSError("away"))
    tokens.get()
    clock.now -= 3_600
    steady.now += 2
    assert not tokens.may_renew()
    assert tokens.take_wanted()


def test_a_token_that_has_expired_is_not_used_where_the_clock_was_set_back() -> None:
    clock, steady = Clock(), Clock()
    tokens, script = kept(100, clock, steady)
    tokens.get()
    clock.now -= 3_600
    steady.now += 100
    script.append(OSError("away"))
    with pytest.raises(TokenUnavailable):
        tokens.get()


def test_a_provider_that_keeps_its_tokens_is_not_asked_all_the_time() -> None:
    clock = Clock()
    asked: list[float] = []

    def token() -> BearerToken:
        asked.append(clock.now)
        return BearerToken("t1", 1_100) if clock.now < 1_095 else BearerToken("t2", 1_195)

    tokens = Tokens(token, clock, clock)
    tokens.get()
    while not tokens.may_renew() or clock.now < 1_070:
        if tokens.take_wanted():
            tokens.get()
        clock.now += 0.25
    assert value_of(tokens) == "t2"
    assert clock.now < 1_097
    assert len(asked) < 20


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "a.e30.c", "a.W10.c", "a.eyJleHAiOiJ4In0.c"])
def test_what_says_no_expiry_has_none(text: str) -> None:
    assert expiry_of(text) is None


def test_what_the_issuer_says_of_its_life_is_true_also_where_our_clock_is_not() -> None:
    """The JWT expires at 1,300 by the issuer's clock; ours is ten minutes behind, or ahead."""
    value = "a.eyJleHAiOiAxMzAwfQ.c"
    assert expiry_of(value) == 1_300
    for now in (700.0, 1_900.0):
        clock = Clock()
        clock.now = now
        tokens = Tokens(lambda: BearerToken(value, now + 100), clock, clock)  # noqa: B023 - called here
        tokens.get()
        clock.now = now + 69
        assert tokens.is_fresh
        clock.now = now + 71
        assert not tokens.is_fresh


def test_a_token_that_has_expired_already_is_none() -> None:
    tokens = Tokens(lambda: BearerToken("t", 5.0), Clock())
    with pytest.raises(TokenUnavailable, match="expired"):
        tokens.get()


# Settings


GRANT = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://a/token",
}


@pytest.mark.parametrize(
    "names",
    [
        {"sasl.oauthbearer.client.id": "c", "sasl.oauthbearer.client.secret": "s"},
        {
            "sasl.oauthbearer.client.credentials.client.id": "c",
            "sasl.oauthbearer.client.credentials.client.secret": "s",
            "sasl.oauthbearer.method": "oidc",
        },
        {
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer."
            'OAuthBearerLoginModule required clientId="c" clientSecret="s";',
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
            "secured.OAuthBearerLoginCallbackHandler",
        },
    ],
    ids=["librdkafka", "Java 4", "Java"],
)
def test_the_grant_goes_by_the_names_of_other_clients(names: dict[str, str]) -> None:
    security = Security.from_properties(GRANT | names)
    assert security is not None
    assert security.token_provider == ClientCredentials("https://a/token", "c", "s")
    assert "'s'" not in repr(security)


def test_the_other_names_of_other_clients() -> None:
    security = Security.from_properties(
        GRANT
        | {
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.client.secret": "s",
            "sasl.oauthbearer.scope": "x y",
            "sasl.oauthbearer.extensions": "a=1, b=2",
            "https.ca.location": "ca.pem",
        }
    )
    assert security is not None
    asked = ClientCredentials("https://a/token", "c", "s", scope="x y", ca_file="ca.pem")
    assert security.token_provider == asked
    assert security.sasl_extensions == {"a": "1", "b": "2"}
    jaas = 'OAuthBearerLoginModule required clientId="c" clientSecret="s" extension_a="1";'
    by_jaas = Security.from_properties(GRANT | {"sasl.jaas.config": jaas})
    assert by_jaas is not None
    assert by_jaas.sasl_extensions == {"a": "1"}
    of_file = GRANT | {"sasl.oauthbearer.token.endpoint.url": "file:///run/my%20token"}
    by_file = Security.from_properties(of_file)
    assert by_file is not None
    assert by_file.token_provider == TokenFile("/run/my token")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "needs sasl.oauthbearer.client.id"),
        ({"sasl.oauthbearer.token.endpoint.url": ""}, "token.endpoint.url"),
        ({"sasl.oauthbearer.token.endpoint.url": "file://a/b"}, "file:///path"),
        ({"sasl.oauthbearer.method": "default"}, "oidc"),
        ({"sasl.username": "u"}, "needs sasl"),
        ({"sasl.mechanism": "PLAIN"}, "is for sasl.mechanism=OAUTHBEARER"),
        ({"sasl.oauthbearer.extensions": "a"}, "NAME=VALUE"),
    ],
    ids=str,
)
def test_properties_that_do_not_go_together_are_refused(changed: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Security.from_properties(GRANT | changed)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Security(mechanism="OAUTHBEARER"),
        lambda: Security(mechanism="OAUTHBEARER", token_provider="t"),  # type: ignore[arg-type]
        lambda: Security(mechanism="OAUTHBEARER", token_provider=str, user="a", password="b"),
        lambda: Security(mechanism="PLAIN", user="a", password="b", token_provider=str),
        lambda: Security(
            mechanism="OAUTHBEARER", token_provider=str, sasl_extensions={"auth": "x"}
        ),
        lambda: Security(
            mechanism="OAUTHBEARER", token_provider=str, sasl_extensions={"a": "x\x01y"}
        ),
        lambda: ClientCredentials("ftp://a/b", "c", "s"),
        lambda: ClientCredentials("https://u:p@a/b", "c", "s"),
        lambda: ClientCredentials("https://a/b", "", "s"),
        lambda: ClientCredentials("https://a/b", "c:d", "s"),
        lambda: ClientCredentials("https://a/b", "c", "s", timeout_ms=0),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        make()

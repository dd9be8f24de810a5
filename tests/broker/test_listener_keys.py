"""What one listener has of its own: said, checked, in force, and told to clients."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from segbroker.broker.configuration.config import BrokerConfig, InvalidConfig, keys, merge
from segbroker.broker.peers.tls import CertificateUnusable
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.disk.memory import MemoryStorage

from ..support.certificates import Authority
from ..support.wire_client import connect
from ..support.wire_settings import DEFAULT, DYNAMIC_BROKER, STATIC, alter_all, describe
from .conftest import Events, serving
from .logins import choose, guarded, is_served, log_in
from .test_tls import certificate_of

TWO: Final[dict[str, Any]] = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener_security_protocol_map": "INSIDE:SSL,OUTSIDE:SSL",
    "ssl_reload_interval_ms": 0,
}
LOGINS: Final[dict[str, Any]] = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener_security_protocol_map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
}
ONE_PLAIN = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"


@asynccontextmanager
async def two_certificates(tmp_path: Path, **keys: str | int) -> AsyncIterator[tuple[Broker, Path]]:
    """INSIDE shows one authority's certificate, OUTSIDE another's; the folder of the other."""
    outside = tmp_path / "outside"
    outside.mkdir()
    settings = {
        **TWO,
        "ssl_certificate": str(Authority(tmp_path).server()),
        "listener_name_outside_ssl_certificate": str(Authority(outside).server()),
    }
    async with serving(**settings | keys) as broker:
        yield broker, outside


async def shown(broker: Broker, listener: int, authority: Path) -> bytes | None:
    """The certificate that a client is shown who trusts an authority alone."""
    context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    return await certificate_of(broker, context, broker.listeners[listener].bound)


# How it is said


def test_each_source_can_say_what_one_listener_has() -> None:
    told = {"listeners": ONE_PLAIN, "listener_name_sasl_plaintext_sasl_mechanisms": "PLAIN"}
    by_flag = merge(told)
    by_file = merge(toml_text="".join(f'{key} = "{value}"\n' for key, value in told.items()))
    by_variable = merge(environment={f"SEGBROKER_{k.upper()}": v for k, v in told.items()})
    for config in (by_flag, by_file, by_variable):
        inside, outside = config.listener_specs
        assert config.mechanisms_of(outside) == ("PLAIN",)
        assert len(config.mechanisms_of(inside)) == 3, "the plain setting is that of all others"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl_kee": "k.pem"}, ["listener_name_outside_ssl_kee", "ssl_certificate, ssl_key, "]),
        ({"ssl_keystore_location": "k"}, ["it is listener_name_outside_ssl_certificate here"]),
        ({"lanes": "3"}, ["listener_name_outside_lanes", "of its own ssl_certificate"]),
        ({"sasl_mechanisms": "PLAIN"}, ["listener_name_outside_sasl_mechanisms", "without logins"]),
        ({"ssl_client_auth": "yes"}, ["listener_name_outside_ssl_client_auth = 'yes'", "none of"]),
        ({"ssl_client_auth": "required"}, ["listener OUTSIDE (SSL)", "needs ssl_ca"]),
        ({"ssl_certificate": ""}, ["listener OUTSIDE (SSL) needs ssl_certificate"]),
    ],
)
def test_a_mistake_is_told_with_listener_and_setting(
    settings: dict[str, str], words: list[str]
) -> None:
    own = {f"listener_name_outside_{key}": value for key, value in settings.items()}
    with pytest.raises(InvalidConfig) as caught:
        merge({**TWO, "ssl_certificate": "all.pem", **own})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listener_name_outsid_ssl_ca": "c"}, "no such listener, there is PLAINTEXT, SASL_PLAI"),
        ({"listener_name_plaintext_ssl_ca": "c"}, "listener PLAINTEXT is PLAINTEXT, which is with"),
        ({"listener_name_plaintext_sasl_mechanisms": "PLAIN"}, "which is without logins"),
        ({"listener_name_sasl_plaintext_sasl_mechanisms": "LDAP"}, "mechanisms: 'LDAP' is none of"),
        ({"listener_name_sasl_plaintext_sasl_mechanisms": ""}, "sasl_mechanisms is empty"),
        ({"listeners": "A-B://h:9092,A_B://h:9092"}, "'A-B' on h:9092 and 'A_B' on h:9092 need"),
        ({"listeners": "A-B://127.0.0.1:0,A_B://127.0.0.1:0"}, "'A-B' and 'A_B' would be the same"),
    ],
)
def test_what_no_listener_has_is_refused(settings: dict[str, str], words: str) -> None:
    protocols = "A-B:PLAINTEXT,A_B:PLAINTEXT"
    with pytest.raises(InvalidConfig, match=words):
        merge({"listeners": ONE_PLAIN, "listener_security_protocol_map": protocols, **settings})


def test_kafkas_way_of_saying_it_is_answered_with_ours() -> None:
    with pytest.raises(InvalidConfig, match="listener_name_<name>_<key> here"):
        merge(toml_text='listener.name.outside.ssl.keystore.location = "k"')


def test_no_key_ends_like_another_so_that_a_name_says_one_thing() -> None:
    own = [key.name for key in keys() if key.metadata["listener"]]
    assert not [(one, other) for one in own for other in own if one.endswith(f"_{other}")]


# Who is a stranger is judged by listener


def test_a_listener_without_a_login_is_allowed_by_its_name_alone() -> None:
    told = {
        "listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://0.0.0.0:9093",
        "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "listener_name_inside_allow_anonymous_network": "true",
    }
    with pytest.raises(InvalidConfig, match=r"on 0\.0\.0\.0:9093 \(OUTSIDE\)") as caught:
        merge(told)
    assert "listener_name_outside_allow_anonymous_network = true" in str(caught.value)
    merge({**told, "listener_name_outside_allow_anonymous_network": True})
    with pytest.raises(InvalidConfig, match="INSIDE"):
        merge(
            {
                **told,
                "allow_anonymous_network": True,
                "listener_name_inside_allow_anonymous_network": False,
            }
        )


def test_a_listener_whose_clients_show_a_certificate_is_no_stranger_the_other_one_is() -> None:
    told = {
        **TWO,
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://0.0.0.0:0",
        "ssl_certificate": "c.pem",
        "ssl_ca": "ca.pem",
    }
    with pytest.raises(InvalidConfig, match="OUTSIDE"):
        merge({**told, "listener_name_inside_ssl_client_auth": "required"})
    config = merge({**told, "listener_name_outside_ssl_client_auth": "required"})
    inside, outside = config.listener_specs
    assert config.tls_of(inside).client_auth == "none"
    assert config.tls_of(outside).client_auth == "required"


# Certificates


async def test_each_listener_shows_its_own_certificate_and_reads_it_again(
    tmp_path: Path, events: Events
) -> None:
    async with two_certificates(tmp_path) as (broker, outside):
        before = await shown(broker, 1, outside)
        inside = await shown(broker, 0, tmp_path)
        assert before != inside
        Authority(outside).server()  # another authority in the same files
        await broker.reload_certificate()
        assert await shown(broker, 1, outside) != before
        assert await shown(broker, 0, tmp_path) == inside
    told = [one["listeners"] for one in events.named("certificate_reloaded")]
    assert told == [["INSIDE"], ["OUTSIDE"]]


async def test_files_of_a_single_listener_that_change_are_noticed(
    tmp_path: Path, events: Events
) -> None:
    async with two_certificates(tmp_path, ssl_reload_interval_ms=20) as (_, outside):
        Authority(outside).server()
        with trio.fail_after(60):
            while not events.named("certificate_reloaded"):  # noqa: ASYNC110
                await trio.sleep(0.02)
    assert {one["listeners"][0] for one in events.named("certificate_reloaded")} == {"OUTSIDE"}


async def test_a_broken_file_of_one_listener_keeps_the_other_ones_certificate_going(
    tmp_path: Path, events: Events
) -> None:
    async with two_certificates(tmp_path) as (broker, outside):
        before = await shown(broker, 1, outside)
        (outside / "server.pem").write_text("half")
        await broker.reload_certificate()
        assert await shown(broker, 1, outside) == before
        (line,) = events.named("certificate_not_reloaded")
    assert line["listeners"] == ["OUTSIDE"]
    assert "ssl_certificate of listener OUTSIDE" in line["error"]
    assert [one["listeners"] for one in events.named("certificate_reloaded")] == [["INSIDE"]]


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("ssl_certificate", None, r"ssl_certificate of listener OUTSIDE .*: No such file"),
        ("ssl_ca", None, r"ssl_ca of listener OUTSIDE cannot be used \(.*f\.pem\): No such file"),
        ("ssl_ca", "a note", r"ssl_ca of listener OUTSIDE .*: "),
    ],
)
async def test_a_file_of_one_listener_that_cannot_be_used_ends_the_start(
    tmp_path: Path, key: str, text: str | None, said: str
) -> None:
    path = tmp_path / "f.pem"
    if text is not None:
        path.write_text(text)
    settings = {
        **TWO,
        "ssl_certificate": str(Authority(tmp_path).server()),
        f"listener_name_outside_{key}": str(path),
    }
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(**settings):
            pass
    with pytest.raises(CertificateUnusable, match=said):
        raise caught.value.exceptions[0]


async def test_listeners_of_one_certificate_share_it(tmp_path: Path) -> None:
    path = str(Authority(tmp_path).server())
    async with serving(**TWO, ssl_certificate=path) as broker:
        inside, outside = broker.listeners
        assert inside.certificate is outside.certificate


# Mechanisms


async def test_each_listener_offers_its_own_mechanisms() -> None:
    own = {"listener_name_outside_sasl_mechanisms": "SCRAM-SHA-512"}
    async with guarded(**LOGINS | own) as broker:
        inside, outside = (listener.bound for listener in broker.listeners)
        async with connect(inside) as client:
            assert (await log_in(client, "PLAIN")).error_code == 0
        async with connect(outside) as client:
            reply = await choose(client, "PLAIN")
            assert reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert reply.mechanisms == ["SCRAM-SHA-512"]
            assert not await is_served(client)
        async with connect(outside) as client:
            assert (await log_in(client, "SCRAM-SHA-512")).error_code == 0


async def test_a_mechanism_is_switched_off_on_one_listener_while_the_broker_runs() -> None:
    disk = MemoryStorage()
    kafka = "listener.name.outside.sasl.enabled.mechanisms"
    async with guarded(disk, **LOGINS) as broker:
        inside, outside = (listener.bound for listener in broker.listeners)
        async with connect(outside) as early, connect(inside) as admin:
            assert (await log_in(early, "PLAIN")).error_code == 0
            assert (await log_in(admin, "PLAIN")).error_code == 0
            assert await alter_all(admin, "1", {kafka: "SCRAM-SHA-256,SCRAM-SHA-512"}) == (0, None)
            assert await is_served(early), "who is logged in stays so"
            async with connect(outside) as late:
                reply = await choose(late, "PLAIN")
                assert reply.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
            async with connect(inside) as late:
                assert (await log_in(late, "PLAIN")).error_code == 0
            for value in ("", "LDAP"):
                code, why = await alter_all(admin, "1", {kafka: value})
                assert code == ErrorCode.INVALID_REQUEST
                assert why is not None
                assert "listener_name_outside_sasl_mechanisms" in why
    async with guarded(disk, **LOGINS) as broker, connect(broker.listeners[1].bound) as client:
        assert (await choose(client, "PLAIN")).error_code == 33, "it outlives a restart"


@pytest.mark.parametrize(
    "later",
    [
        {"listeners": "INSIDE://127.0.0.1:0"},
        {"listener_security_protocol_map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT"},
    ],
)
async def test_what_was_set_on_a_listener_that_is_no_more_is_left_out_with_a_line(
    events: Events, later: dict[str, str]
) -> None:
    disk, key = MemoryStorage(), "listener_name_outside_sasl_mechanisms"
    async with guarded(disk, **LOGINS) as broker, connect(broker.address) as client:
        await log_in(client)
        assert await alter_all(client, "1", {key: "PLAIN"}) == (0, None)
    async with guarded(disk, **LOGINS | later) as broker, connect(broker.address) as client:
        (line,) = events.named("setting_ignored")
        assert (line["key"], line["value"]) == (key, "PLAIN")
        await log_in(client)
        assert await alter_all(client, "1", {"slots_max": "9"}) == (0, None)
        assert await alter_all(client, "1", {key: None}) == (0, None)
    async with guarded(disk, **LOGINS | later):
        assert len(events.named("setting_ignored")) == 2, "once more by the change above"


# What clients are told


async def test_what_a_listener_has_of_its_own_is_described_with_all_that_is_said_of_it() -> None:
    own = {"listener_name_outside_sasl_mechanisms": "PLAIN"}
    mechanisms = "SCRAM-SHA-256,PLAIN"
    async with (
        guarded(**LOGINS | own, sasl_mechanisms=mechanisms) as broker,
        connect(broker.address) as client,
    ):
        await log_in(client)
        rows = await describe(client, "1")
        of_listeners = [name for name in rows if name.startswith("listener")]
        assert of_listeners == [
            "listeners",
            "listener_security_protocol_map",
            "listener.security.protocol.map",
            "listener_name_outside_sasl_mechanisms",
            "listener.name.outside.sasl.enabled.mechanisms",
        ], "what nobody has set is not told"
        row = rows["listener.name.outside.sasl.enabled.mechanisms"]
        assert (row.value, row.config_source, row.read_only) == ("PLAIN", STATIC, False)
        plain = [
            (mechanisms, STATIC),
            ("SCRAM-SHA-512,SCRAM-SHA-256,PLAIN", DEFAULT),
        ]
        key = "listener_name_outside_sasl_mechanisms"
        for name in (key, row.name):
            assert [(one.name, one.value, one.source) for one in rows[name].synonyms] == [
                (key, "PLAIN", STATIC),
                *(("sasl_mechanisms", value, source) for value, source in plain),
            ]
        await alter_all(client, "1", {key: "SCRAM-SHA-512"})
        row = (await describe(client, "1"))[key]
        assert (row.value, row.config_source) == ("SCRAM-SHA-512", DYNAMIC_BROKER)
        assert [one.source for one in row.synonyms] == [DYNAMIC_BROKER, STATIC, STATIC, DEFAULT]
        await alter_all(client, "1", {key: None})
        assert (await describe(client, "1"))[key].value == "PLAIN"


async def test_files_and_passwords_of_a_listener_are_not_set_by_a_client(tmp_path: Path) -> None:
    path = str(Authority(tmp_path).server())
    settings: dict[str, Any] = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener_name_ssl_ssl_certificate": path,
        "listener_name_ssl_ssl_key_password": "secret",
    }
    async with serving(**settings) as broker, connect(broker.listeners[1].bound) as client:
        kafka = "listener.name.ssl.ssl.keystore.location"
        code, why = await alter_all(client, "1", {kafka: "/etc/shadow"})
        assert (code, why) == (
            ErrorCode.INVALID_REQUEST,
            "listener_name_ssl_ssl_certificate is read at the start: change it in the broker's "
            "configuration, and restart the broker",
        )
        rows = await describe(client, "1")
        assert (rows[kafka].value, rows[kafka].read_only) == (path, True)
        secret = rows["listener.name.ssl.ssl.key.password"]
        assert (secret.value, secret.is_sensitive) == (None, True)
        assert all(one.value is None for one in secret.synonyms)
        code, why = await alter_all(client, "1", {"listener.name.ssl.lanes": "3"})
        assert code == ErrorCode.INVALID_REQUEST
        assert why is not None
        assert "a listener may have of its own" in why


def test_a_password_of_one_listener_is_not_shown() -> None:
    own = {"listener_name_outside_ssl_key_password": "s3cret"}
    config = merge({**TWO, "ssl_certificate": "c.pem", **own})
    assert "s3cret" not in repr(config)
    assert "s3cret" not in repr(config.tls_of(config.listener_specs[1]))
    assert BrokerConfig() == merge()

"""A listener that strangers reach is refused, unless it is asked for in words."""

import socket

import pytest

from segbroker.broker.address import canonical_host, plain_host
from segbroker.broker.configuration.config import BrokerConfig, InvalidConfig, merge
from segbroker.broker.configuration.connection_overrides import parse_overrides
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse

from ..support.wire_client import connect
from .conftest import serving


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:9092", "[::]:9092", "192.168.1.5:9092", "broker.example.org:9092"]
)
def test_a_listener_without_authentication_stays_on_loopback(listen: str) -> None:
    with pytest.raises(InvalidConfig, match="allow_anonymous_network = true") as refused:
        BrokerConfig(listen=listen)
    assert "SASL_SSL://" in str(refused.value)
    assert BrokerConfig(listen=listen, allow_anonymous_network=True).listen == listen
    environment = {"SEGBROKER_LISTEN": listen, "SEGBROKER_ALLOW_ANONYMOUS_NETWORK": "true"}
    assert merge(environment=environment).listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.1.2.3:0", "[::1]:0", "localhost:0"])
def test_loopback_needs_no_word(listen: str) -> None:
    assert BrokerConfig(listen=listen).listen == listen


def test_who_logs_in_or_shows_a_certificate_may_come_from_anywhere() -> None:
    BrokerConfig(listeners="SASL_PLAINTEXT://0.0.0.0:9092")
    BrokerConfig(listeners="SASL_SSL://0.0.0.0:9093", ssl_certificate="broker.pem")
    tls = {"listeners": "SSL://0.0.0.0:9093", "ssl_certificate": "b.pem", "ssl_ca": "ca.pem"}
    BrokerConfig(**tls, ssl_client_auth="required")  # type: ignore[arg-type]
    for client_auth in ("none", "requested"):
        with pytest.raises(InvalidConfig, match="SSL listener"):
            BrokerConfig(**tls, ssl_client_auth=client_auth)  # type: ignore[arg-type]


def test_one_open_listener_among_several_is_enough_to_refuse() -> None:
    with pytest.raises(InvalidConfig, match=r"PLAINTEXT listener on 10\.0\.0\.1:9093"):
        BrokerConfig(listeners="SASL_PLAINTEXT://0.0.0.0:9092,PLAINTEXT://10.0.0.1:9093")


@pytest.mark.parametrize(
    ("told", "plain"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("::ffff:1:2", "::ffff:1:2"),
    ],
)
def test_an_address_has_one_spelling(told: str, plain: str) -> None:
    assert plain_host(told) == plain


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("::0001", "::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),  # a socket does not name the zone beside it
    ],
)
def test_a_rule_or_a_limit_is_about_an_address_however_it_is_written(
    written: str, kept: str
) -> None:
    assert canonical_host(written) == kept
    assert parse_overrides(f"[{written}]:7") == {kept: 7}


@pytest.mark.parametrize("name", ["*", "gateway"])
def test_a_rule_may_be_about_a_name_a_limit_may_not(name: str) -> None:
    assert canonical_host(name) == name
    with pytest.raises(InvalidConfig, match="no address"):
        parse_overrides(f"{name}:7")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_who_comes_by_ipv4_to_an_ipv6_listener_has_an_ipv4_address() -> None:
    async with (
        serving(listen="[::]:0", allow_anonymous_network=True) as broker,
        connect(("127.0.0.1", broker.address[1])) as client,
    ):
        await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        (connection,) = broker._connections
        assert connection.peer.address[0] == "127.0.0.1"
        # What it is told in Metadata: the address that it reached.
        assert connection.peer.local_address[0] == "127.0.0.1"

"""TLS and logins of our client, against a broker that asks for them."""

import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    AuthenticationFailed,
    BrokerUnreachable,
    Consumer,
    Producer,
    Security,
    ShareConsumer,
    TlsFailed,
)
from segbroker.testing.embedded import EmbeddedBroker

from ..support.certificates import Authority
from ..support.cutting_proxy import CuttingProxy
from ..support.waiting import within_one_of

LISTENERS = "PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Guarded:
    """A broker with a listener of each kind, and the user alice."""

    def __init__(self, folder: Path, **keys: str | int | bool) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        settings: dict[str, str | int | bool] = {
            "listeners": ",".join(f"{one}://127.0.0.1:0" for one in LISTENERS.split(",")),
            "ssl_certificate": str(self.authority.server()),
            "ssl_ca": str(self.authority.file),
            "ssl_client_auth": "requested",
            "initial_user": "alice",
            "initial_password": "wonderland",
            "authentication_failure_delay_ms": 10,
        }
        self.broker = EmbeddedBroker(**settings | keys)

    def security(self, protocol: str, mechanism: str = "", **changes: str) -> Security | None:
        properties = {"security.protocol": protocol}
        if "SSL" in protocol:
            properties["ssl.ca.location"] = str(self.authority.file)
        if mechanism:
            properties["sasl.mechanism"] = mechanism
            properties["sasl.username"] = "alice"
            properties["sasl.password"] = "wonderland"
        return Security.from_properties(properties | changes)

    def address(self, protocol: str) -> str:
        return self.broker.addresses[protocol]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("certificates"))
    with made.broker:
        yield made


WAYS = [("SSL", "")] + [
    (protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS
]


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_records_go_there_and_back(guarded: Guarded, protocol: str, mechanism: str) -> None:
    security = guarded.security(protocol, mechanism)
    address = guarded.address(protocol)
    topic = f"there-{protocol}-{mechanism}"
    values = [b"%d" % n * 50_000 for n in range(8)]
    with Admin(address, security=security) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(address, security=security) as producer:
        producer.send_many(topic, values).result(60)
    with Consumer(address, topic, start="start", stop_at_end=True, security=security) as consumer:
        assert [record.value for record in consumer] == values


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize(("protocol", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-512")])
def test_records_go_there_and_back_on_an_event_loop(
    guarded: Guarded, protocol: str, mechanism: str, loop: str
) -> None:
    security = guarded.security(protocol, mechanism)
    address = guarded.address(protocol)
    topic = f"async-{protocol}-{loop}"
    values = [b"%d" % n * 50_000 for n in range(8)]

    async def scenario() -> list[bytes | None]:
        async with AsyncAdmin(address, security=security) as admin:
            await admin.create_topic(topic, partitions=1)
        async with AsyncProducer(address, security=security) as producer:
            for value in values:
                await producer.send(topic, value)
        async with AsyncConsumer(
            address, topic, start="start", stop_at_end=True, security=security
        ) as consumer:
            return [record.value async for record in consumer]

    assert anyio.run(scenario, backend=loop) == values


@pytest.mark.parametrize("loop", [None, "trio", "asyncio"])
def test_share_groups_work_by_tls_and_a_login(guarded: Guarded, loop: str | None) -> None:
    security = guarded.security("SASL_SSL", "SCRAM-SHA-512")
    address = guarded.address("SASL_SSL")
    topic = f"shared-{loop}"
    values = [b"%d" % n * 50_000 for n in range(4)]
    with Admin(address, security=security) as admin:
        admin.create_topic(topic, partitions=1)
        admin.alter_share_offsets(topic, {(topic, 0): 0})
        with Producer(address, security=security) as producer:
            producer.send_many(topic, values).result(60)

        async def scenario() -> list[bytes | None]:
            async with AsyncShareConsumer(
                address, topic, group=topic, security=security
            ) as consumer:
                items = aiter(consumer)
                found = [(await anext(items)).value for _ in values]
                await consumer.commit()
                return found

        if loop is None:
            with ShareConsumer(address, topic, group=topic, security=security) as consumer:
                assert [record.value for record in islice(consumer, len(values))] == values
                consumer.commit()
        else:
            assert anyio.run(scenario, backend=loop) == values
        (stands,) = admin.share_offsets(topic).values()
        assert stands.offset == len(values)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_wrong_password_is_said_at_once_and_not_shown(
    guarded: Guarded, protocol: str, mechanism: str
) -> None:
    """Else it would be said when connect_timeout_ms is over, behind the end of any test."""
    security = guarded.security(protocol, mechanism, **{"sasl.password": "guessed"})
    with (
        pytest.raises(AuthenticationFailed, match="invalid credentials") as caught,
        Admin(guarded.address(protocol), security=security, connect_timeout_ms=600_000),
    ):
        pass
    assert "guessed" not in str(caught.value) + repr(security)


def test_a_wrong_password_is_said_on_an_event_loop_too(guarded: Guarded) -> None:
    security = guarded.security("SASL_SSL", "PLAIN", **{"sasl.password": "guessed"})

    async def scenario() -> None:
        with pytest.raises(AuthenticationFailed):
            async with AsyncAdmin(guarded.address("SASL_SSL"), security=security):
                pass

    anyio.run(scenario, backend="trio")


def test_a_broker_of_another_authority_is_not_trusted(guarded: Guarded, tmp_path: Path) -> None:
    security = Security(tls=True, ca_file=str(Authority(tmp_path, "other").file))
    with pytest.raises(TlsFailed, match="not trusted"), Admin(guarded.address("SSL"),
                                                              security=security):  # fmt: skip
        pass


def test_the_authorities_of_the_system_do_not_know_ours(guarded: Guarded) -> None:
    with (
        pytest.raises(TlsFailed, match="not trusted"),
        Admin(guarded.address("SSL"), security=Security(tls=True)),
    ):
        pass


def test_a_certificate_for_another_host_is_refused_unless_that_is_wanted(tmp_path: Path) -> None:
    made = Guarded(tmp_path)
    made.authority.server("server", "elsewhere.example.org")
    with made.broker as broker:
        address = broker.addresses["SSL"]
        ca = str(made.authority.file)
        with (
            pytest.raises(TlsFailed, match=r"not trusted.*127\.0\.0\.1"),
            Admin(address, security=Security(tls=True, ca_file=ca)),
        ):
            pass
        with Admin(address, security=Security(tls=True, ca_file=ca, verify_host=False)) as admin:
            assert admin.list_topics() == []
        with Admin(address, security=Security(tls=True, verify=False)) as admin:
            assert admin.list_topics() == []


def test_tls_to_a_port_without_it_is_said(guarded: Guarded) -> None:
    address, security = guarded.address("PLAINTEXT"), guarded.security("SSL")

    def is_said(within_ms: int) -> None:
        with (
            pytest.raises(BrokerUnreachable, match="is TLS spoken on this port"),
            Admin(address, security=security, connect_timeout_ms=within_ms),
        ):
            pass

    within_one_of((500, 10_000), is_said)


def test_a_login_where_none_is_asked_for_is_said(guarded: Guarded) -> None:
    security = guarded.security("SASL_PLAINTEXT", "PLAIN")
    with (
        pytest.raises(AuthenticationFailed, match="no login at all on this port"),
        Admin(guarded.address("PLAINTEXT"), security=security),
    ):
        pass


@pytest.mark.parametrize(
    ("protocol", "wants"),
    [("SSL", "TLS or a login"), ("SASL_SSL", "TLS or a login"), ("SASL_PLAINTEXT", "a login")],
)
def test_no_protection_where_it_is_asked_for_ends_in_no_broker(
    guarded: Guarded, protocol: str, wants: str
) -> None:
    def ends(within_ms: int) -> None:
        with (
            pytest.raises(BrokerUnreachable, match=f"does this port want {wants} "),
            Admin(guarded.address(protocol), connect_timeout_ms=within_ms),
        ):
            pass

    within_one_of((1_000, 10_000), ends)


def test_a_login_without_tls_where_it_is_asked_for_ends_in_no_broker(guarded: Guarded) -> None:
    security = guarded.security("SASL_PLAINTEXT", "PLAIN")

    def ends(within_ms: int) -> None:
        with (
            pytest.raises(BrokerUnreachable, match="does this port want TLS "),
            Admin(guarded.address("SASL_SSL"), connect_timeout_ms=within_ms, security=security),
        ):
            pass

    within_one_of((1_000, 10_000), ends)


def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are(tmp_path: Path) -> None:
    made = Guarded(tmp_path, sasl_mechanisms="SCRAM-SHA-512")
    with (
        made.broker as broker,
        pytest.raises(AuthenticationFailed, match="not offer PLAIN; it offers SCRAM-SHA-512"),
        Admin(broker.addresses["SASL_SSL"], security=made.security("SASL_SSL", "PLAIN")),
    ):
        pass


def test_a_certificate_of_ours_is_shown(guarded: Guarded) -> None:
    client = guarded.authority.client("me")
    security = guarded.security("SSL", **{"ssl.keystore.location": str(client)})
    with Admin(guarded.address("SSL"), security=security) as admin:
        assert isinstance(admin.list_topics(), list)


def test_a_certificate_that_the_broker_refuses_is_said(guarded: Guarded, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "other").client("me")
    late = guarded.authority.server("late", until=datetime.now(UTC) - timedelta(days=1))
    for shown, said in (
        (stranger, "does not trust who signed the client's certificate .*ALERT_UNKNOWN_CA"),
        (late, "the client's certificate has expired .*ALERT_CERTIFICATE_EXPIRED"),
    ):
        security = guarded.security("SSL", **{"ssl.keystore.location": str(shown)})
        with (
            pytest.raises(TlsFailed, match=said),
            Admin(guarded.address("SSL"), security=security),
        ):
            pass


def test_a_certificate_that_the_broker_misses_is_said(tmp_path: Path) -> None:
    made = Guarded(tmp_path, ssl_client_auth="required")
    with (
        made.broker as broker,
        pytest.raises(TlsFailed, match="the broker wants a certificate of the client"),
        Admin(broker.addresses["SSL"], security=made.security("SSL")),
    ):
        pass


def test_files_that_are_not_there_are_named(guarded: Guarded) -> None:
    security = Security(tls=True, ca_file="/nonexistent/ca.pem")
    with (
        pytest.raises(TlsFailed, match=r"/nonexistent/ca\.pem"),
        Admin("localhost", security=security),
    ):
        pass


def test_a_session_is_renewed_while_records_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early in a long session: a machine that stalls for seconds ends none."""
    monkeypatch.setattr("segbroker.client.connection.RENEW_PERCENT", 1)
    made = Guarded(tmp_path, connections_max_reauth_ms=20_000)
    with capture_logs() as events, made.broker as broker:
        security = made.security("SASL_SSL", "SCRAM-SHA-256")
        address = broker.addresses["SASL_SSL"]
        sent = 0
        with Producer(address, security=security, linger_ms=0) as producer:
            until = time.monotonic() + 60
            while (
                sum(event["event"] == "authenticated" for event in events) <= 3
                and time.monotonic() < until
            ):
                producer.send("t", b"%d" % sent, partition=0).result(60)
                sent += 1
                time.sleep(0.01)
    assert sent > 3
    names = [event["event"] for event in events]
    assert names.count("authenticated") > 3
    assert "session_expired" not in names


def test_a_client_comes_back_when_its_connections_were_cut(guarded: Guarded) -> None:
    host, _, port = guarded.address("SASL_SSL").rpartition(":")
    with CuttingProxy((host, int(port))) as proxy:
        security = guarded.security("SASL_SSL", "SCRAM-SHA-512")
        # Metadata leads past the proxy: only the first connection is cut.
        with Admin(proxy.address, security=security) as admin:
            admin.list_topics()
            proxy.cut_all()
            assert isinstance(admin.list_topics(), list)


# Values


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, None),
        ({"security.protocol": "plaintext"}, None),
        ({"security.protocol": "SSL"}, Security(tls=True)),
        (
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
                'required username="a\\"b" password="p w;";',
                "ssl.truststore.location": "ca.pem",
                "ssl.truststore.type": "PEM",
                "ssl.endpoint.identification.algorithm": "",
            },
            Security(
                tls=True, ca_file="ca.pem", verify_host=False, mechanism="SCRAM-SHA-256",
                user='a"b', password="p w;",
            ),
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "a",
                "sasl.password": "b",
            },
            Security(mechanism="PLAIN", user="a", password="b"),
        ),
    ],
)  # fmt: skip
def test_kafkas_properties_mean_what_they_mean_there(
    properties: dict[str, str], expected: Security | None
) -> None:
    assert Security.from_properties(properties) == expected


@pytest.mark.parametrize(
    ("properties", "about"),
    [
        ({"security.protocl": "SSL"}, "unknown property 'security.protocl'"),
        ({"security.protocol": "TLS"}, "'TLS' is not one of"),
        ({"sasl.username": "a"}, "without security.protocol"),
        (
            {"security.protocol": "SASL_SSL", "sasl.username": "a"},
            "needs sasl.username and sasl.pass",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT"},
            "'SASL_PLAINTEXT' needs sasl.username and sasl.pass",
        ),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not one of"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "a.jks"}, "only PEM"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "only PEM"),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": "nonsense"}, "required username"),
    ],
)
def test_properties_that_cannot_be_are_refused_with_their_names(
    properties: dict[str, str], about: str
) -> None:
    with pytest.raises(ValueError, match=about):
        Security.from_properties(properties)


def test_a_password_is_never_shown() -> None:
    one = Security(
        tls=True, cert_file="c", key_password="hush", mechanism="PLAIN", user="a", password="hush"
    )
    assert "hush" not in repr(one)
    with pytest.raises(ValueError, match="not one of") as caught:
        Security(mechanism="XX", user="a", password="hush")
    assert "hush" not in str(caught.value)


def test_old_tls_is_not_spoken(tmp_path: Path) -> None:
    context = Security(tls=True, ca_file=str(Authority(tmp_path).file)).context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2

"""Reading and writing through TLS and a login, by Kafka's option names."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from pyspark.sql.types import StringType, StructType

from segbroker.client import Admin
from segbroker.spark.connecting import parse_client
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import SourceUnavailable
from segbroker.spark.given import Given
from segbroker.spark.jvm import ASK
from segbroker.testing.embedded import EmbeddedBroker

from ...support.certificates import Authority
from ..jar import JarReader

Options = dict[str, str]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(Authority(tmp_path_factory.mktemp("others")).file)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    """Of a broker that takes nobody but alice, with TLS; it has the topic `guarded`."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    broker = EmbeddedBroker(
        listeners="PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        ssl_certificate=str(authority.server()),
        initial_user="alice",
        initial_password="wonderland",
        authentication_failure_delay_ms=10,
    )
    with broker:
        plain, guarded = broker.addresses["PLAINTEXT"], broker.addresses["SASL_SSL"]
        with Admin(plain) as admin:
            admin.create_topic("guarded", partitions=1)
        yield {
            "kafka.bootstrap.servers": guarded,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "wonderland",
            "kafka.ssl.ca.location": str(authority.file),
            "kafka.default.api.timeout.ms": "5000",
        }


def test_rows_go_and_come_through_tls_and_a_login(
    options: Options, reader: JarReader | None
) -> None:
    schema = StructType().add("value", StringType())
    writer = SegbrokerDataSource({**options, "topic": "guarded"}).writer(schema, overwrite=False)
    table = pyarrow.RecordBatch.from_pydict({"value": ["through the looking-glass"]})
    writer.commit([writer.write(iter([table]))])
    for mechanism in MECHANISMS:
        given = {**options, "subscribe": "guarded", "kafka.sasl.mechanism": mechanism}
        given |= {} if reader is None else {ASK: "1"}
        planner = SegbrokerDataSource(given).reader(StructType())
        (task,) = planner.partitions()
        if reader is None:
            (rows,) = planner.read(task)
            assert rows["value"].to_pylist()[-1] == b"through the looking-glass"
        else:
            assert reader.rows([task])[-1].value == b"through the looking-glass"


def test_a_connection_with_tls_is_kept_for_the_next_task(
    options: Options, reader: JarReader | None
) -> None:
    given = {**options, "subscribe": "guarded"} | ({} if reader is None else {ASK: "1"})
    planner = SegbrokerDataSource(given).reader(StructType())
    schema = StructType().add("value", StringType())
    writer = SegbrokerDataSource({**options, "topic": "guarded"}).writer(schema, overwrite=False)
    table = pyarrow.RecordBatch.from_pydict({"value": ["a row"]})
    writer.commit([writer.write(iter([table]))])
    (task,) = planner.partitions()
    client = parse_client(Given(options))
    with Admin(client.bootstrap_text, security=client.security) as admin:
        opened = []
        for _ in range(3):
            assert list(planner.read(task)) if reader is None else reader.rows([task])
            opened.append(admin.broker_status()["counters"]["connections"])
    assert opened[0] == opened[-1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"password": "rabbit"}, "Authentication failed"), ({"ca_file": ""}, "(?i)certificat")],
)
def test_the_jar_is_told_at_once_that_it_is_not_let_in(
    options: Options, change: Options, sentence: str, jar_reader: JarReader, other_authority: str
) -> None:
    given = {**options, "subscribe": "guarded", ASK: "1"}
    (task,) = SegbrokerDataSource(given).reader(StructType()).partitions()
    said = json.loads(task.value)
    said["client"]["security"] |= {key: value or other_authority for key, value in change.items()}
    task.value = json.dumps(said)
    with pytest.raises(SourceUnavailable, match=sentence) as caught:
        jar_reader.rows([task])
    assert "rabbit" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kafka.sasl.password": "rabbit"}, "Authentication failed"),
        ({"kafka.ssl.ca.location": ""}, "(?i)certificate"),
    ],
)
def test_who_is_not_let_in_is_told_so_at_once(
    options: Options, change: Options, sentence: str
) -> None:
    merged = {**options, "subscribe": "guarded", **change}
    given = {name: value for name, value in merged.items() if value}
    reader = SegbrokerDataSource(given).reader(StructType())
    with pytest.raises(SourceUnavailable, match=sentence) as caught:
        reader.partitions()
    assert "rabbit" not in str(caught.value)


def test_a_port_without_tls_is_told_in_words(options: Options) -> None:
    with EmbeddedBroker() as plain:
        given = {**options, "kafka.bootstrap.servers": plain.address, "subscribe": "guarded"}
        planner = SegbrokerDataSource(given).reader(StructType())
        with pytest.raises(SourceUnavailable, match="is TLS spoken on this port"):
            planner.partitions()


def test_authorities_that_were_replaced_are_read_again(
    options: Options, reader: JarReader | None, other_authority: str, tmp_path: Path
) -> None:
    trusted = tmp_path / "authorities.pem"
    given = {**options, "subscribe": "guarded"} | ({} if reader is None else {ASK: "1"})
    (task,) = SegbrokerDataSource(given).reader(StructType()).partitions()
    given["kafka.ssl.ca.location"] = str(trusted)
    if reader is not None:
        said = json.loads(task.value)
        said["client"]["security"]["ca_file"] = str(trusted)
        task.value = json.dumps(said)

    def read() -> object:
        if reader is not None:
            return reader.rows([task])
        return SegbrokerDataSource(given).reader(StructType()).partitions()

    trusted.write_bytes(Path(other_authority).read_bytes())
    with pytest.raises(SourceUnavailable, match=r"(?i)certificat"):
        read()
    trusted.write_bytes(Path(options["kafka.ssl.ca.location"]).read_bytes())
    read()

"""Reading and writing through TLS and a login, by Kafka's option names."""

from collections.abc import Iterator

import pyarrow
import pytest
from pyspark.sql.types import StringType, StructType

from segbroker.client import Admin
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import SourceUnavailable
from segbroker.testing.embedded import EmbeddedBroker

from ..support.certificates import Authority

Options = dict[str, str]


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
            admin.create_topic("guarded")
        yield {
            "kafka.bootstrap.servers": guarded,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "wonderland",
            "kafka.ssl.ca.location": str(authority.file),
            "kafka.default.api.timeout.ms": "5000",
        }


def test_rows_go_and_come_through_tls_and_a_login(options: Options) -> None:
    schema = StructType().add("value", StringType())
    writer = SegbrokerDataSource({**options, "topic": "guarded"}).writer(schema, overwrite=False)
    table = pyarrow.RecordBatch.from_pydict({"value": ["through the looking-glass"]})
    writer.commit([writer.write(iter([table]))])
    reader = SegbrokerDataSource({**options, "subscribe": "guarded"}).reader(StructType())
    (task,) = reader.partitions()
    (rows,) = reader.read(task)
    assert rows["value"].to_pylist() == [b"through the looking-glass"]


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

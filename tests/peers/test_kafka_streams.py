"""Which of Kafka Streams' classes are played."""

import zipfile
from pathlib import Path

from . import kafka_streams


def test_only_classes_that_start_a_cluster_are_played(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tests.jar", "w") as jar:
        for name, content in (
            ("OneTest.class", b"...EmbeddedKafkaCluster..."),
            ("InnerTest$Part.class", b"...EmbeddedKafkaCluster..."),
            ("InnerTest.class", b"..."),
            ("NoBrokerTest.class", b"..."),
            ("AbstractTest.class", b"...EmbeddedKafkaCluster..."),
            ("utils/IntegrationTestUtils.class", b"...EmbeddedKafkaCluster..."),
        ):
            jar.writestr(kafka_streams.PACKAGE + name, content)
    assert kafka_streams.classes(tmp_path / "tests.jar") == ["InnerTest", "OneTest"]

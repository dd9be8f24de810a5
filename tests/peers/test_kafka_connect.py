"""Which classes of Kafka Connect and MirrorMaker are played."""

import zipfile
from pathlib import Path

from . import kafka_connect


def test_integration_tests_are_played_and_what_they_are_built_of_is_not(tmp_path: Path) -> None:
    one, other = kafka_connect.PACKAGES
    with zipfile.ZipFile(tmp_path / "tests.jar", "w") as jar:
        for name in (
            one + "OneTest.class",
            one + "OneTest$Inner.class",
            one + "StartAndStopLatchTest.class",
            one + "TaskHandle.class",
            other + "MirrorTest.class",
            other + "MirrorBaseTest.class",
            "org/apache/kafka/connect/runtime/WorkerTest.class",
        ):
            jar.writestr(name, b"")
    assert kafka_connect.classes([tmp_path / "tests.jar"]) == [
        "org.apache.kafka.connect.integration.OneTest",
        "org.apache.kafka.connect.mirror.integration.MirrorTest",
    ]

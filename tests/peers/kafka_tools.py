"""The programs of Apache Kafka, from Maven Central: its command-line tools, Streams and Connect.

Some tests of librdkafka run `$KAFKA_PATH/bin/kafka-topics.sh` and its brothers.  Applications are
run from the same jars in tests/system, of one release.
"""

import os
from pathlib import Path
from typing import Final

from .maven import Artifact, copy_jars, pom
from .places import cache, need, unfinished

VERSION: Final = "4.1.0"
# Of the programs of share groups, which were finished later.
SHARES: Final = "4.3.1"
TOOLS: Final = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-run-class.sh": "",  # the class is its first argument
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}

# kafka_2.13 has ConfigCommand, kafka-tools the others; connect-file are two connectors, the rest
# of Connect comes with the tools.
_SCRIPT: Final = """#!/bin/sh
exec java -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \\
    -cp "$CLASSPATH:$(dirname "$0")/../libs/*" {main} "$@"
"""


def artifacts(version: str) -> tuple[Artifact, ...]:
    """kafka_2.13 has ConfigCommand, kafka-tools the others; connect-file are two connectors, the
    rest of Connect comes with the tools."""
    names = ("kafka-tools", "kafka_2.13", "kafka-streams", "connect-file")
    return (
        *(Artifact("org.apache.kafka", name, version) for name in names),
        Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    )


def home(version: str = VERSION) -> Path:
    """The folder that KAFKA_PATH names.  Raises Missing without java, mvn or the registry."""
    place = cache() / f"kafka-programs-{version}"
    if not place.exists():
        need("java")
        with unfinished(place) as work:
            copy_jars(pom(artifacts(version)), work)
            (work / "bin").mkdir()
            for name, main in TOOLS.items():
                script = work / "bin" / name
                script.write_text(_SCRIPT.format(main=main))
                os.chmod(script, 0o755)
    return place

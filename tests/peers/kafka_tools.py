"""The programs of Apache Kafka, from Maven Central: its command-line tools, Streams and Connect.

Some tests of librdkafka run `$KAFKA_PATH/bin/kafka-topics.sh` and its brothers.  Applications are
run from the same jars in tests/system, of one release.
"""

import os
from pathlib import Path
from typing import Final

from .places import cache, need, run, unfinished

VERSION: Final = "4.1.0"
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
_POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
<version>1.7.36</version></dependency></dependencies></project>
"""

_SCRIPT: Final = """#!/bin/sh
exec java -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \\
    -cp "$CLASSPATH:$(dirname "$0")/../libs/*" {main} "$@"
"""


def home() -> Path:
    """The folder that KAFKA_PATH names.  Raises Missing without java, mvn or the registry."""
    place = cache() / f"kafka-programs-{VERSION}"
    if not place.exists():
        need("java", "mvn")
        cache().mkdir(parents=True, exist_ok=True)
        with unfinished(place) as work:
            (work / "pom.xml").write_text(_POM)
            copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
            run(copy, work)
            (work / "bin").mkdir()
            for name, main in TOOLS.items():
                script = work / "bin" / name
                script.write_text(_SCRIPT.format(main=main))
                os.chmod(script, 0o755)
    return place

"""Apache Kafka's own integration tests of its clients of today, out of the test jar of its core.

The classes here start their brokers as those of kafka.py do, and what is in the place of these
brokers is the same, but for what Kafka has named anew since (kafka_core_harness.patch).  They know
more than those of 4.0.1: rules about share groups and streams groups, for one.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from . import junit
from .daemon_door import door
from .kafka import HARNESS, TESTED, compiled, play_class
from .kafka_shares import VERSION
from .maven import Artifact
from .places import Missing, need
from .verdicts import Outcome

SUITE: Final = "kafka-core"
KAFKA: Final = "org.apache.kafka"
CLASSES: Final = (
    "kafka.api.AuthorizerIntegrationTest",
    "kafka.api.PlaintextAdminIntegrationTest",
    "kafka.api.PlaintextConsumerAssignorsTest",
    "kafka.api.TransactionsTest",
    "kafka.api.SslAdminIntegrationTest",
    "kafka.api.SaslClientsWithInvalidCredentialsTest",
    "kafka.api.SaslMultiMechanismConsumerTest",
    "kafka.server.ListOffsetsRequestTest",
    "kafka.server.CreateTopicsRequestTest",
    "kafka.server.AlterUserScramCredentialsRequestTest",
    "kafka.server.DescribeUserScramCredentialsRequestTest",
    "kafka.server.ProduceRequestTest",
    "kafka.server.EdgeCaseRequestTest",
)
ARTIFACTS: Final = (
    Artifact(KAFKA, "kafka_2.13", VERSION),
    *(Artifact(KAFKA, name, VERSION, is_tests=True) for name in ("kafka_2.13", *TESTED)),
    Artifact(KAFKA, "kafka-test-common-runtime", VERSION),
    Artifact("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
    # The versions that Kafka's own build has.
    Artifact("org.mockito", "mockito-core", "5.20.0"),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    Artifact("org.junit.platform", "junit-platform-console-standalone", "1.13.1"),
    Artifact("org.scala-lang", "scala-compiler", "2.13.18"),
)
CHANGES: Final = HARNESS.with_name("kafka_core_harness.patch")
# Clusters that a test is given by an annotation are those of kafka_shares.py, in this release.
OF_GIVEN_CLUSTERS: Final = ("AutoStart", "Cluster", "SegbrokerInstance", "Type.java")
SOURCES: Final = sorted(
    source for source in HARNESS.iterdir() if not source.name.startswith(OF_GIVEN_CLUSTERS)
)


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the classes whose names hold one of `words`.

    Args:
        folder: gets reports, output and the logs of the daemons.
        words: parts of names of classes; none for all.

    Returns:
        test -> how it ended.
    """
    chosen = [name for name in CLASSES if not words or any(word in name for word in words)]
    if not chosen:
        raise Missing("no class of that name")
    need("java", "javac", "mvn")
    path = compiled(SOURCES, junit.jars("kafka-core", ARTIFACTS), CHANGES)
    with door(folder) as daemons, ThreadPoolExecutor(2) as pool:
        done = list(
            pool.map(lambda name: play_class(folder / name, name, path, daemons, SUITE), chosen)
        )
    for test, fault in daemons.faults.items():
        print(f"  !    {test}: its daemon: {fault}")
    return {test: outcome for outcomes in done for test, outcome in outcomes.items()}

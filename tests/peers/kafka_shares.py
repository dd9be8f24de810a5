"""Apache Kafka's own integration tests of share groups, streams groups, requests of the other
groups, and clients of today, out of its test jars.

`ShareConsumerTest` has Java's share consumer do everything that it can; three classes more speak
the requests themselves.  They start a cluster inside of their process: a class of ours
(shares_harness/KafkaClusterTestKit.java), in the place of Kafka's, starts a daemon for each test
instead, and makes the topic at which 63 of them look last: these are not counted as passed
(kafka-shares.in_part).  A topic gets one replica (kafka_harness/NewTopic.java).  Nothing else is
changed.

Share groups and streams groups are finished since 4.2: these tests are newer than those of
kafka.py, and so are those of classes that are played there, too.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from . import junit
from .daemon_door import Door, door
from .kafka import methods
from .maven import Artifact
from .places import Missing
from .verdicts import Outcome, allow_list, part_list

VERSION: Final = "4.3.1"
KAFKA: Final = "org.apache.kafka"
CLASSES: Final = (
    "org.apache.kafka.clients.consumer.ShareConsumerTest",
    "kafka.server.ShareFetchAcknowledgeRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest",
    "kafka.server.ShareGroupDescribeRequestTest",
    "kafka.server.StreamsGroupHeartbeatRequestTest",
    "kafka.server.StreamsGroupDescribeRequestTest",
    "kafka.server.ConsumerGroupHeartbeatRequestTest",
    "kafka.server.ConsumerGroupDescribeRequestTest",
    "kafka.server.ConsumerProtocolMigrationTest",
    "kafka.server.OffsetFetchRequestTest",
    "kafka.server.OffsetDeleteRequestTest",
    "kafka.server.TxnOffsetCommitRequestTest",
    "kafka.server.JoinGroupRequestTest",
    "kafka.server.SyncGroupRequestTest",
    "kafka.server.HeartbeatRequestTest",
    "kafka.server.LeaveGroupRequestTest",
    "kafka.server.DescribeGroupsRequestTest",
    "kafka.server.ListGroupsRequestTest",
    "kafka.server.DeleteGroupsRequestTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerPollTest",
    "org.apache.kafka.clients.consumer.ConsumerBounceTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerSubscriptionTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerCommitTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerCallbackTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerAssignTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerFetchTest",
    "org.apache.kafka.clients.consumer.PlaintextConsumerCloseTest",
    "org.apache.kafka.clients.consumer.SaslPlainPlaintextConsumerTest",
    "org.apache.kafka.clients.consumer.ConsumerIntegrationTest",
    "org.apache.kafka.clients.consumer.ConsumerTopicCreationTest",
    "org.apache.kafka.clients.producer.ProducerFailureHandlingTest",
    "org.apache.kafka.clients.producer.ProducerIdExpirationTest",
    "org.apache.kafka.clients.producer.ProducerCompressionTest",
    "org.apache.kafka.clients.producer.ProducerIntegrationTest",
    "org.apache.kafka.clients.TransactionsExpirationTest",
    "org.apache.kafka.clients.TransactionsWithMaxInFlightOneTest",
    "org.apache.kafka.clients.admin.AdminFenceProducersTest",
    "org.apache.kafka.clients.admin.ConcurrentListOffsetsRequestTest",
    "org.apache.kafka.clients.admin.DescribeAuthorizedOperationsTest",
    "org.apache.kafka.clients.admin.DynamicGroupConfigIntegrationTest",
)
ARTIFACTS: Final = (
    Artifact(KAFKA, "kafka-clients-integration-tests", VERSION, is_tests=True),
    Artifact(KAFKA, "kafka-test-common-runtime", VERSION),
    Artifact(KAFKA, "kafka_2.13", VERSION),
    Artifact(KAFKA, "kafka_2.13", VERSION, is_tests=True),
    *(
        Artifact(KAFKA, name, VERSION, is_tests=True)
        for name in (
            "kafka-clients",
            "kafka-group-coordinator",
            "kafka-metadata",
            "kafka-server-common",
        )
    ),
    # The versions that Kafka's own build has.
    Artifact("org.junit.platform", "junit-platform-console-standalone", "1.13.1"),
    Artifact("org.mockito", "mockito-core", "5.20.0"),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
)
# Some of its tests wait for other brokers, a minute each: only those that are listed are played.
LISTED_ALONE: Final = ("ConsumerBounceTest",)
HERE: Final = Path(__file__).parent
SOURCES: Final = (
    *(HERE / "shares_harness").iterdir(),
    *(HERE / "java_harness").iterdir(),
    *(HERE / "kafka_harness" / name for name in ("NewTopic.java", "ReplicaLimit.java")),
)
IN_PART: Final = {test.partition(".")[0] for test in part_list("kafka-shares")}
CLASS_TIMEOUT_S: Final = 3_600


def play(folder: Path, words: list[str]) -> dict[str, Outcome]:
    """Run the suite, or the classes whose names hold one of `words`.

    Args:
        folder: gets a folder for each class, with its output, and the logs of the daemons.
        words: parts of names; none for all.

    Returns:
        test -> how it ended, by its class and method.
    """
    chosen = [name for name in CLASSES if not words or any(word in name for word in words)]
    if not chosen:
        raise Missing("no class of that name")
    path = junit.compiled(sorted(SOURCES), junit.jars("kafka-shares", ARTIFACTS))
    logs = folder / "daemons"
    logs.mkdir()
    with door(logs) as daemons, ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda name: play_class(folder, name, path, daemons), chosen))
    for test, fault in daemons.faults.items():
        print(f"  !    {test}: its daemon: {fault}")
    return {test: outcome for outcomes in done for test, outcome in outcomes.items()}


def play_class(folder: Path, name: str, path: str, daemons: Door) -> dict[str, Outcome]:
    """Run the tests of one class; those listed have to say how they ended."""
    short = name.rpartition(".")[2]
    machine = junit.Machine(
        path,
        # Kafka's extension that starts the cluster of a test is found by its name in the jars.
        settings={"junit.jupiter.extensions.autodetection.enabled": "true"},
        properties={
            "segbroker.door": str(daemons.port),
            "segbroker.test": short,
            "segbroker.share.state": str(short in IN_PART).lower(),
            "org.slf4j.simpleLogger.defaultLogLevel": "error",
        },
    )
    expected = [test for test in allow_list("kafka-shares") if test.startswith(f"{short}.")]
    selection = methods(name, expected) if short in LISTED_ALONE else [f"--select-class={name}"]
    return junit.play(machine, selection, expected, folder / short, CLASS_TIMEOUT_S)

"""Kafka Streams' own integration tests of a release that has the streams protocol (KIP-1071).

The classes here are those that run applications with `group.protocol=streams`, most of them beside
the classic protocol, each as a test of its own, and those of tools: for groups, and some others.
Since 4.0 they stand in modules of their own, and their cluster is the one of Kafka's other tests:
it is replaced as for share groups (shares_harness/KafkaClusterTestKit.java).  Nothing else is
changed.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from . import junit
from .daemon_door import Door, door
from .kafka import methods
from .kafka_shares import SOURCES, VERSION
from .maven import Artifact
from .places import Missing
from .verdicts import Outcome, allow_list

KAFKA: Final = "org.apache.kafka"
PACKAGE: Final = "org.apache.kafka.streams.integration."
TOOLS: Final = "org.apache.kafka.tools."
CLASSES: Final = (
    *(
        f"{PACKAGE}{name}"
        for name in (
            "EosIntegrationTest",
            "HandlingSourceTopicDeletionIntegrationTest",
            "IQv2EndpointToPartitionsIntegrationTest",
            "InternalTopicIntegrationTest",
            "JoinWithIncompleteMetadataIntegrationTest",
            "KStreamRepartitionIntegrationTest",
            "RebalanceProtocolMigrationIntegrationTest",
            "RestoreIntegrationTest",
            "SmokeTestDriverIntegrationTest",
            "StandbyTaskCreationIntegrationTest",
            "StreamsUncaughtExceptionHandlerIntegrationTest",
        )
    ),
    *(
        f"{TOOLS}{name}"
        for name in (
            "streams.ListStreamsGroupTest",
            "streams.DescribeStreamsGroupTest",
            "streams.DeleteStreamsGroupTest",
            "streams.DeleteStreamsGroupOffsetTest",
            "streams.ResetStreamsGroupOffsetTest",
            "GroupsCommandTest",
            "consumer.group.DeleteConsumerGroupsTest",
            "consumer.group.ListConsumerGroupTest",
            "consumer.group.ResetConsumerGroupOffsetTest",
            "consumer.group.DescribeConsumerGroupTest",
            "consumer.group.DeleteOffsetsConsumerGroupCommandIntegrationTest",
            "ConfigCommandIntegrationTest",
            "GetOffsetShellTest",
            "AclCommandTest",
            "LogDirsCommandTest",
            "UserScramCredentialsCommandTest",
            "DeleteRecordsCommandTest",
        )
    ),
)
ARTIFACTS: Final = (
    Artifact(KAFKA, "kafka-streams", VERSION),
    Artifact(KAFKA, "kafka-streams-test-utils", VERSION),
    Artifact(KAFKA, "kafka-tools", VERSION),
    Artifact(KAFKA, "kafka-test-common-runtime", VERSION),
    Artifact(KAFKA, "kafka_2.13", VERSION),
    *(
        Artifact(KAFKA, name, VERSION, is_tests=True)
        for name in (
            "kafka-streams-integration-tests",
            "kafka-streams",
            "kafka-clients",
            "kafka-server-common",
            "kafka-tools",
        )
    ),
    # The versions that Kafka's own build has.
    Artifact("org.junit.platform", "junit-platform-console-standalone", "1.13.1"),
    Artifact("org.mockito", "mockito-core", "5.20.0"),
    Artifact("org.mockito", "mockito-junit-jupiter", "5.20.0"),
    Artifact("org.hamcrest", "hamcrest", "3.0"),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
# A tool of theirs that is refused ends the whole machine: only those that are listed are played.
LISTED_ALONE: Final = ("ConfigCommandIntegrationTest",)
AT_ONCE: Final = 2
CLASS_TIMEOUT_S: Final = 1_800


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
    jars = junit.jars("kafka-streams-groups", ARTIFACTS)
    # What they need brings parts of an older JUnit along, beside the whole one.
    jars = [jar for jar in jars if "standalone" in jar.name or not jar.name.startswith("junit-")]
    path = junit.compiled(sorted(SOURCES), jars)
    logs = folder / "daemons"
    logs.mkdir()
    with door(logs) as daemons, ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(lambda name: _play(folder, name, path, daemons), chosen))
    for test, fault in daemons.faults.items():
        print(f"  !    {test}: its daemon: {fault}")
    return {test: outcome for outcomes in done for test, outcome in outcomes.items()}


def _play(folder: Path, name: str, path: str, daemons: Door) -> dict[str, Outcome]:
    short = name.rpartition(".")[2]
    # By Kafka's extension, which is found in the jars; the others start theirs themselves.
    is_given_cluster = not name.startswith((PACKAGE, f"{TOOLS}streams."))
    machine = junit.Machine(
        path,
        settings={"junit.jupiter.extensions.autodetection.enabled": str(is_given_cluster).lower()},
        properties={
            "segbroker.door": str(daemons.port),
            "segbroker.test": short,
        },
    )
    expected = [test for test in allow_list("kafka-streams-groups") if test.startswith(f"{short}.")]
    selected = methods(name, expected) if short in LISTED_ALONE else [f"--select-class={name}"]
    played = junit.play(machine, selected, expected, folder / short, CLASS_TIMEOUT_S)
    if not is_given_cluster:
        return played
    # Who is given no cluster talks to no broker.
    return {test: how for test, how in played.items() if test.endswith("]")}

"""Apache Kafka's own integration tests of its clients, `kafka.api` and its neighbours, and of its
tools, out of its test jars: unmodified, but what starts a broker is ours.

    KafkaServerTestHarness (theirs) ── createBroker ──▶ QuorumTestHarness (ours, first in the path)
                                                              │ a line of JSON over a socket
                                                              ▼
                                            daemon_door.py: `segbroker serve`, one for each test

Our few classes (kafka_harness/) are compiled with Scala's compiler, which Maven Central has too.
All brokers that a test configures stand for one daemon: killing one of three restarts it, killing
all of them ends it until one is started.  Topics are made with one replica where the test's
brokers could hold as many as it wants.  What the test sets as a default of all topics is set on
each topic.  Keys, certificates and users of the test's brokers become the daemon's.  Who looks
inside of a broker (its log manager, its metrics) finds null.

Each class runs in a virtual machine of its own, with a limit of time: two side by side.
"""

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_hexdigest

from . import junit
from .daemon_door import Door, door
from .junit import Machine
from .maven import Artifact
from .places import Missing, cache, need, run, unfinished
from .verdicts import Outcome, allow_list

VERSION: Final = "4.0.1"
HARNESS: Final = Path(__file__).parent / "kafka_harness"
CLASS_TIMEOUT_S: Final = 900
TEST_TIMEOUT_S: Final = 120

# The long ones first: two are played side by side.
CLASSES: Final = (
    "kafka.api.AuthorizerIntegrationTest",
    "kafka.api.SaslScramSslEndToEndAuthorizationTest",
    "kafka.api.SslEndToEndAuthorizationTest",
    "kafka.api.PlaintextEndToEndAuthorizationTest",
    "kafka.api.PlaintextConsumerPollTest",
    "kafka.api.PlaintextConsumerTest",
    "kafka.api.PlaintextProducerSendTest",
    "kafka.api.TransactionsTest",
    "kafka.api.PlaintextConsumerSubscriptionTest",
    "kafka.api.TransactionsExpirationTest",
    "kafka.api.ProducerIdExpirationTest",
    "kafka.api.PlaintextConsumerFetchTest",
    "kafka.api.PlaintextConsumerAssignorsTest",
    "kafka.api.ProducerFailureHandlingTest",
    "kafka.api.PlaintextConsumerCommitTest",
    "kafka.api.PlaintextConsumerAssignTest",
    "kafka.api.TransactionsWithMaxInFlightOneTest",
    "kafka.api.LogAppendTimeTest",
    "kafka.api.ConsumerTopicCreationTest",
    "kafka.api.AdminClientRebootstrapTest",
    "kafka.api.ConsumerBounceTest",
    "kafka.api.SaslClientsWithInvalidCredentialsTest",
    "kafka.api.PlaintextAdminIntegrationTest",
    "kafka.api.SslProducerSendTest",
    "kafka.api.SslConsumerTest",
    "kafka.api.SslAdminIntegrationTest",
    "kafka.api.SaslPlainPlaintextConsumerTest",
    "kafka.api.SaslMultiMechanismConsumerTest",
    "kafka.api.test.ProducerCompressionTest",
    "kafka.admin.DeleteTopicTest",
    "kafka.admin.UserScramCredentialsCommandTest",
    "kafka.server.AlterUserScramCredentialsRequestTest",
    "kafka.server.DescribeUserScramCredentialsRequestTest",
    "kafka.server.DynamicConfigChangeTest",
    "kafka.server.DelegationTokenRequestsOnPlainTextTest",
    "kafka.server.DelegationTokenRequestsWithDisableTokenFeatureTest",
    "kafka.server.AddPartitionsToTxnRequestServerTest",
    "kafka.admin.ConfigCommandIntegrationTest",
    "kafka.admin.DescribeAuthorizedOperationsTest",
    "kafka.admin.ListOffsetsIntegrationTest",
    "integration.kafka.api.PlaintextConsumerCallbackTest",
    "kafka.api.GroupCoordinatorIntegrationTest",
    "kafka.clients.consumer.ConsumerIntegrationTest",
    "kafka.coordinator.transaction.ProducerIntegrationTest",
    "kafka.admin.AdminFenceProducersTest",
    "kafka.server.ConsumerGroupHeartbeatRequestTest",
    "kafka.server.ConsumerGroupDescribeRequestTest",
    "kafka.server.ConsumerProtocolMigrationTest",
    "kafka.server.JoinGroupRequestTest",
    "kafka.server.SyncGroupRequestTest",
    "kafka.server.HeartbeatRequestTest",
    "kafka.server.LeaveGroupRequestTest",
    "kafka.server.OffsetCommitRequestTest",
    "kafka.server.OffsetFetchRequestTest",
    "kafka.server.OffsetDeleteRequestTest",
    "kafka.server.TxnOffsetCommitRequestTest",
    "kafka.server.DescribeGroupsRequestTest",
    "kafka.server.ListGroupsRequestTest",
    "kafka.server.DeleteGroupsRequestTest",
    "kafka.server.ClientQuotasRequestTest",
    "kafka.server.ApiVersionsRequestTest",
    "kafka.server.ProduceRequestTest",
    "kafka.server.FetchRequestTest",
    "kafka.server.FetchRequestMaxBytesTest",
    "kafka.server.ListOffsetsRequestTest",
    "kafka.server.LogOffsetTest",
    "kafka.server.OffsetsForLeaderEpochRequestTest",
    "kafka.server.MetadataRequestTest",
    "kafka.server.CreateTopicsRequestTest",
    "kafka.server.DeleteTopicsRequestTest",
    "kafka.server.DeleteRecordsRequestTest",
    "kafka.server.DescribeClusterRequestTest",
    "kafka.server.EdgeCaseRequestTest",
    "kafka.api.TransactionsBounceTest",
    "org.apache.kafka.tools.consumer.group.DescribeConsumerGroupTest",
    "org.apache.kafka.tools.consumer.group.ResetConsumerGroupOffsetTest",
    "org.apache.kafka.tools.consumer.group.DeleteConsumerGroupsTest",
    "org.apache.kafka.tools.consumer.group.ListConsumerGroupTest",
    "org.apache.kafka.tools.consumer.group.DeleteOffsetsConsumerGroupCommandIntegrationTest",
    "org.apache.kafka.tools.TopicCommandTest",
    "org.apache.kafka.tools.GetOffsetShellTest",
    "org.apache.kafka.tools.AclCommandTest",
    "org.apache.kafka.tools.ClusterToolTest",
    "org.apache.kafka.tools.BrokerApiVersionsCommandTest",
    "org.apache.kafka.tools.DeleteRecordsCommandTest",
    "org.apache.kafka.tools.LogDirsCommandTest",
)

# Only those of their tests that are listed are played: half of the others wait for other brokers,
# or for an internal topic that is not there, until their time is over, or that of their class.
LISTED_ALONE: Final = (
    "AuthorizerIntegrationTest",
    "PlaintextAdminIntegrationTest",
    "TopicCommandTest",
)
TOOLS: Final = "org.apache.kafka.tools."
PARAMETERS: Final = {
    "ClusterInstance": "org.apache.kafka.common.test.ClusterInstance",
    "String": "java.lang.String",
    "boolean": "boolean",
}

# Whose tests have classes that those of the broker use.
TESTED: Final = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-metadata",
    "kafka-raft",
    "kafka-server",
    "kafka-server-common",
    "kafka-storage",
)
# What a tool of Connect's needs, which none of these tests starts.
CONNECT: Final = ("connect-api", "connect-json", "connect-runtime", "connect-transforms")
ARTIFACTS: Final = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka_2.13", VERSION, is_tests=True),
    *(Artifact("org.apache.kafka", name, VERSION, is_tests=True) for name in TESTED),
    Artifact("org.apache.kafka", "kafka-tools", VERSION, without=CONNECT),
    Artifact("org.apache.kafka", "kafka-tools", VERSION, is_tests=True, without=CONNECT),
    Artifact("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
    Artifact("org.mockito", "mockito-core", "5.14.2"),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    Artifact("org.apache.logging.log4j", "log4j-core", "2.24.3"),
    Artifact("org.junit.platform", "junit-platform-console-standalone", "1.10.2"),
    Artifact("org.scala-lang", "scala-compiler", "2.13.15"),
)


def class_path() -> str:
    """Our classes, compiled, before theirs.  Raises Missing."""
    need("java", "javac", "mvn")
    return compiled(sorted(HARNESS.iterdir()), junit.jars("kafka-tests", ARTIFACTS))


def compiled(sources: Sequence[Path], jars: Iterable[Path], changes: Path | None = None) -> str:
    """The class path with the classes of these sources before the jars; compiled once and kept.

    Args:
        sources: in Java and in Scala.
        jars: Scala's compiler among them.
        changes: a patch for the sources.

    Raises:
        Missing: one of the compilers finds a mistake.
    """
    theirs = ":".join(map(str, jars))
    read = [*sources, changes] if changes else sources
    digest = xxh3_64_hexdigest(b"".join(map(Path.read_bytes, read)) + theirs.encode())
    place = cache() / f"kafka-harness-{digest}"
    if not place.exists():
        with unfinished(place) as work, tempfile.TemporaryDirectory() as copies:
            mine = [Path(shutil.copy(source, copies)) for source in sources]
            if changes:
                need("patch")
                run(["patch", "-p1", "-i", str(changes)], Path(copies))
            ours = ["-nowarn", "-d", str(work), "-cp", f"{work}:{theirs}"]
            java = [str(source) for source in mine if source.suffix == ".java"]
            scala = [str(source) for source in mine if source.suffix == ".scala"]
            # Each side names classes of the other: Scala's compiler reads both, and writes its own.
            compiler = ["java", "-Xss4m", "-cp", theirs, "scala.tools.nsc.Main"]
            run([*compiler, *ours, *scala, *java], work)
            run(["javac", *ours, *java], work)
    return f"{place}:{theirs}"


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
    path = class_path()
    with door(folder) as daemons, ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda name: play_class(folder / name, name, path, daemons), chosen))
    for test, fault in daemons.faults.items():
        print(f"  !    {test}: its daemon: {fault}")
    return {test: outcome for outcomes in done for test, outcome in outcomes.items()}


def play_class(
    folder: Path, name: str, path: str, daemons: Door, suite: str = "kafka"
) -> dict[str, Outcome]:
    """Run the tests of one class; those listed have to say how they ended."""
    short = name.rpartition(".")[2]
    own = f"{short}."
    machine = Machine(
        path,
        settings={"junit.jupiter.execution.timeout.testable.method.default": f"{TEST_TIMEOUT_S} s"},
        properties={
            "segbroker.door": str(daemons.port),
            "org.slf4j.simpleLogger.defaultLogLevel": "error",
        },
    )
    expected = [test for test in allow_list(suite) if test.startswith(own)]
    selection = methods(name, expected) if short in LISTED_ALONE else [f"--select-class={name}"]
    played = junit.play(machine, selection, expected, folder, CLASS_TIMEOUT_S)
    if not name.startswith(TOOLS):
        return played
    # Who is given no cluster talks to no broker.
    return {test: how for test, how in played.items() if test.endswith("]")}


def methods(name: str, tests: Iterable[str]) -> list[str]:
    """What JUnit's console is told to play some tests of a class.

    Args:
        name: of the class, whole.
        tests: `Class.method(types of its parameters)[repetition]`; all repetitions are played.
    """
    wanted = dict.fromkeys(test.partition(".")[2].partition("[")[0] for test in tests)
    found = []
    for test in wanted:
        method, _, types = test.rstrip(")").partition("(")
        whole = ",".join(PARAMETERS[one] for one in types.split(", ") if one)
        found.append(f"--select-method={name}#{method}({whole})")
    return found

"""The command-line tools of Apache Kafka: each does its work or says why not; none hangs.

They run one after another, on one broker with an authorizer, and what one leaves behind the next
finds.  Those of share groups are in test_share_tools.py.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from segbroker.client import Producer

from ..support.daemon import running
from ..support.java import java
from ..support.kafka_program import jars
from .kafka_tool_runs import TOOLS, Command, Outcome, check, run

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1_800)]

LINES: Final = 700
TOPICS: Final = TOOLS + "TopicCommand"
GROUPS: Final = TOOLS + "consumer.group.ConsumerGroupCommand"
CONSUMER: Final = TOOLS + "consumer.ConsoleConsumer"
OFFSETS: Final = TOOLS + "GetOffsetShell"
ACLS: Final = TOOLS + "AclCommand"
MOVES: Final = TOOLS + "reassign.ReassignPartitionsCommand"
FEATURES: Final = TOOLS + "FeatureCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"


RESET: Final = "--reset-offsets --group g --topic t --execute"
COMMANDS: Final = (
    Command(TOPICS, "--create --topic t --partitions 2", "Created topic t"),
    Command(TOPICS, "--create --topic t", "Topic 't' already exists.", 1),
    Command(TOPICS, "--create --topic u --replication-factor 3", "there is one broker", 1),
    Command(TOPICS, "--create --topic u --config remote.storage.enable=true", "one tier", 1),
    Command(TOPICS, "--create --topic kept --config cleanup.policy=compact", "Created topic"),
    Command(TOPICS, "--alter --topic kept --partitions 5"),
    Command(TOPICS, "--describe --topic t", "Leader: 1	Replicas: 1	Isr: 1"),
    Command(TOPICS, "--describe --at-min-isr-partitions", "Topic: t	Partition: 0"),
    Command(TOPICS, "--describe --topics-with-overrides", "cleanup.policy=compact"),
    Command(TOPICS, "--list", "kept"),
    Command(
        TOOLS + "ConsoleProducer",
        "--topic t --property parse.key=true --property key.separator=: --compression-codec zstd",
        reads="lines",
    ),
    Command(
        CONSUMER,
        f"--topic t --group g --from-beginning --max-messages {LINES}"
        " --property print.key=true --property print.offset=true --isolation-level read_committed",
        f"Processed a total of {LINES} messages",
    ),
    Command(
        CONSUMER,
        f"--include t|kept --group new --from-beginning --max-messages {LINES}"
        " --consumer-property group.protocol=consumer",
        f"Processed a total of {LINES} messages",
    ),
    Command(CONSUMER, "--topic __consumer_offsets --timeout-ms 60000", "[__consumer_offsets]"),
    Command(GROUPS, "--list --state", "Empty"),
    Command(GROUPS, "--describe --all-groups", "new "),
    Command(GROUPS, "--describe --group nobody", "Group nobody not found."),
    *(
        Command(GROUPS, f"{RESET} {how}", "NEW-OFFSET")
        for how in (
            *("--to-earliest", "--to-latest", "--to-current", "--shift-by -2", "--to-offset 5"),
            *("--to-datetime 2020-01-01T00:00:00.000", "--by-duration PT1H"),
            "--from-file {folder}/offsets.csv",
        )
    ),
    Command(GROUPS, "--delete-offsets --group g --topic t", "Successful"),
    Command(GROUPS, "--delete --group g --group new", "was successful"),
    Command(TOOLS + "GroupsCommand", "--list", "GROUP"),
    Command(OFFSETS, "--topic t --time earliest", "t:0:0"),
    Command(OFFSETS, "--topic t --time max-timestamp", "t:0:"),
    Command(OFFSETS, "--topic t --time 1600000000000", "t:1:0"),
    Command(
        TOOLS + "DeleteRecordsCommand",
        "--offset-json-file {folder}/delete.json",
        "partition: t-0	low_watermark: 3",
    ),
    Command(TOOLS + "LogDirsCommand", "--describe --topic-list t", '"partition":"t-0"'),
    Command(TOOLS + "TransactionsCommand", "list", "TransactionalId"),
    Command(TOOLS + "TransactionsCommand", "find-hanging --broker-id 1", "Duration(min)"),
    Command(TOOLS + "TransactionsCommand", "describe-producers --topic t --partition 0", "LastSeq"),
    Command(
        TOOLS + "ProducerPerformance",
        "--topic t --num-records 2000 --record-size 100 --throughput -1 --transactional-id perf"
        " --transaction-duration-ms 50 --producer-props bootstrap.servers={address}",
        "2000 records sent",
    ),
    Command(TOOLS + "ConsumerPerformance", "--topic t --messages 1000", "data.consumed.in.MB"),
    Command(TOOLS + "EndToEndLatency", "{address} e2e 20 all 100", "Avg latency"),
    Command(TOOLS + "VerifiableProducer", "--topic v --max-messages 20", "startup_complete"),
    Command(
        TOOLS + "VerifiableConsumer",
        "--topic v --group-id v --max-messages 20 --reset-policy earliest",
        "offsets_committed",
    ),
    Command(
        TOOLS + "ClientCompatibilityTest",
        "--topic compatible --num-cluster-nodes 1 --expect-record-too-large-exception false"
        " --offsets-for-times-supported true --cluster-id-supported true"
        " --create-topics-supported true --idempotent-producer-supported true"
        " --describe-acls-supported true --describe-configs-supported true",
        "SUCCESS.",
    ),
    Command(
        TOOLS + "LeaderElectionCommand", "--election-type preferred --topic t --partition 0", "t-0"
    ),
    Command(
        MOVES, "--execute --reassignment-json-file {folder}/moves.json", "Successfully started"
    ),
    Command(MOVES, "--verify --reassignment-json-file {folder}/moves.json", "t-0 is completed"),
    Command(MOVES, "--list", "No partition reassignments found"),
    Command(MOVES, "--execute --reassignment-json-file {folder}/away.json", "broker id 2", 1),
    Command(TOOLS + "MetadataQuorumCommand", "describe --status", "LeaderId:               1"),
    Command(TOOLS + "MetadataQuorumCommand", "describe --replication", "Leader"),
    Command(FEATURES, "describe", "metadata.version"),
    Command(FEATURES, "describe", "transaction.version"),
    Command(FEATURES, "upgrade --feature transaction.version=2", "was upgraded to 2"),
    Command(FEATURES, "upgrade --feature transaction.version=3", "has levels 2 to 2", 1),
    Command(FEATURES, "disable --feature share.version", "group_protocols says so", 1),
    Command(TOOLS + "ClusterTool", "cluster-id --bootstrap-server {address}", "Cluster ID: "),
    Command(TOOLS + "ClusterTool", "list-endpoints --bootstrap-server {address}", "unfenced"),
    Command(
        TOOLS + "ClusterTool", "unregister --id 7 --bootstrap-server {address}", "does not support"
    ),
    Command(TOOLS + "BrokerApiVersionsCommand", "", "Produce(0): 0 to 1"),
    Command(TOOLS + "ClientMetricsCommand", "--list"),
    Command(
        TOOLS + "ClientMetricsCommand",
        "--alter --name m --metrics org.apache.kafka.producer. --interval 1000",
        "takes no metrics of clients",
        1,
    ),
    Command(TOOLS + "streams.StreamsGroupCommand", "--list"),
    Command(
        TOOLS + "DelegationTokenCommand",
        "--describe --command-config {folder}/empty",
        "does not support DESCRIBE_DELEGATION_TOKEN",
        1,
    ),
    Command(ACLS, "--add --allow-principal User:bob --consumer --topic t --group * --force", "bob"),
    Command(
        ACLS,
        "--add --allow-principal User:bob --producer --topic p --resource-pattern-type prefixed"
        " --force",
        "PREFIXED",
    ),
    Command(ACLS, "--list --principal User:bob", "operation=READ"),
    Command(ACLS, "--remove --topic p --resource-pattern-type any --force"),
    Command(CONFIGS, "--describe --topic t --all", "min.insync.replicas=1"),
    Command(CONFIGS, "--alter --topic t --add-config retention.ms=1000000", "Completed"),
    Command(CONFIGS, "--alter --topic t --delete-config retention.ms", "Completed"),
    Command(CONFIGS, "--alter --topic t --add-config retention.ms=-5", "is outside", 1),
    Command(CONFIGS, "--alter --topic t --add-config no.such=1", "no such topic setting", 1),
    Command(CONFIGS, "--describe --broker 1 --all", "broker.id=1"),
    Command(CONFIGS, "--alter --broker 1 --add-config broker.id=4", "is read at the start", 1),
    Command(CONFIGS, "--describe --broker-logger 1", "root=INFO"),
    Command(CONFIGS, "--alter --client-defaults --add-config producer_byte_rate=1e9", "Completed"),
    Command(CONFIGS, "--alter --user al --add-config SCRAM-SHA-256=[password=pw]", "Completed"),
    Command(CONFIGS, "--describe --user al", "SCRAM-SHA-256=iterations="),
    Command(
        CONFIGS, "--alter --ip 10.0.0.1 --add-config connection_creation_rate=100", "Completed"
    ),
    Command(CONFIGS, "--alter --group g --add-config consumer.session.timeout.ms=50000", "Compl"),
    Command(TOPICS, "--delete --topic t|kept"),
    Command(TOPICS, "--delete --topic nosuch", "does not exist", 1),
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, release_cache: Path) -> list[Outcome]:
    folder: Path = tmp_path_factory.mktemp("tools")
    (folder / "lines").write_text("".join(f"k{n % 7}:v{n}\n" for n in range(LINES)))
    (folder / "offsets.csv").write_text("t,0,7\n")
    (folder / "empty").touch()
    delete = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 3}]}
    (folder / "delete.json").write_text(json.dumps(delete))
    for name, to in (("moves", 1), ("away", 2)):
        move = {"topic": "t", "partition": 0, "replicas": [to]}
        (folder / f"{name}.json").write_text(json.dumps({"version": 1, "partitions": [move]}))
    flags = ("--authorizer", "acl", "--super-users", "User:ANONYMOUS")
    with running(folder / "data", *flags) as broker:
        return run(COMMANDS, broker.address, folder, release_cache)


@pytest.mark.parametrize("n", range(len(COMMANDS)))
def test_a_tool_does_its_work_or_says_why_not(n: int, outcomes: list[Outcome]) -> None:
    check(COMMANDS[n], outcomes[n])


def test_the_segments_of_a_topic_are_read_by_dump_log_segments(
    tmp_path: Path, release_cache: Path
) -> None:
    with running(tmp_path / "data") as broker:
        with Producer(broker.address) as producer:
            for n in range(50):
                producer.send("dumped", b"value %d" % n, partition=0)
        (segment,) = (tmp_path / "data").glob("topics/dumped/partition_0/*segment_*.log")
        copy = tmp_path / "00000000000000000000.log"
        shutil.copy(segment, copy)
    command = [java(), "-cp", jars(release_cache), "kafka.tools.DumpLogSegments"]
    command += ["--print-data-log", "--files", str(copy)]
    read = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert read.returncode == 0, read.stderr
    assert read.stdout.count("isvalid: true") >= 1
    assert [f"payload: value {n}\n" in read.stdout for n in range(50)] == [True] * 50

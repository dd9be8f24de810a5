"""MirrorMaker 2, unmodified: the topics of an Apache Kafka move to segbroker, with their groups.

It is Kafka Connect with a source of its own: here exactly once, a transaction per batch with the
place in the other cluster.  Records keep their key, value, headers and time; topics their number of
partitions and their settings; groups that nobody is in get the offsets that theirs stand for.
"""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest

from bench.peers.apache_kafka import ApacheKafka
from bench.peers.programs import Missing, maven
from segbroker.client import Admin, Consumer, Producer, TopicPartition

from ..support.daemon import Daemon, running
from ..support.kafka_program import program
from ..support.program import Program, eventually
from ..support.releases import alone

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

VERSION: Final = "4.1.0"
TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 2
SETTINGS: Final = {"retention.ms": "-1", "delete.retention.ms": "1000"}
CONFIG: Final = """
clusters = theirs, ours
theirs.bootstrap.servers = {theirs}
ours.bootstrap.servers = {ours}
theirs->ours.enabled = true
theirs->ours.topics = orders
ours->theirs.enabled = false
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
ours.exactly.once.source.support = enabled
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
sync.topic.configs.interval.seconds = 1
offset.lag.max = 0
{factors}
"""
# Of everything that MirrorMaker makes, in clusters of one broker.
FACTORS: Final = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)
Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


class Clusters:
    """An Apache Kafka, a segbroker, and the MirrorMaker between them."""

    def __init__(self, theirs: str, ours: Daemon, jars: Path, folder: Path) -> None:
        self.theirs, self.ours = theirs, ours
        self._path = ":".join(map(str, sorted(jars.glob("*.jar"))))
        self._folder = folder
        factors = "\n".join(f"{factor} = 1" for factor in FACTORS)
        config = CONFIG.format(theirs=theirs, ours=ours.address, factors=factors)
        (folder / "mirror.properties").write_text(config)
        self._sent = 0

    def mirror(self) -> Program:
        """Start MirrorMaker."""
        arguments = [str(self._folder / "mirror.properties")]
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        return program(self._path, main, arguments, self._folder / "mirror.log")

    def send(self, count: int) -> None:
        """Write so many more records to their topic."""
        with Producer(self.theirs) as producer:
            for n in range(self._sent, self._sent + count):
                key, headers = b"k%d" % (n % 7), [("n", b"%d" % n)]
                producer.send(
                    TOPIC, b"v%d" % n, key=key, headers=headers, timestamp_ms=1_790_000_000_000 + n
                )
        self._sent += count

    def is_mirrored(self) -> bool:
        """Whether their records are ours: all of them, once, in order."""
        with Admin(self.ours.address) as admin:
            if TOPIC not in admin.list_topics():
                return False
        mine, theirs = rows(self.ours.address), rows(self.theirs)
        # More than they have will not become less.
        assert len(mine) <= len(theirs), (len(mine), len(theirs))
        return mine == theirs


def rows(address: str) -> list[Row]:
    """What is committed in the topic, by partition and offset; offsets count markers and differ."""
    with Consumer(address, TOPIC, start="start", stop_at_end=True) as consumer:
        found = [
            (one.partition, one.offset, (one.key, one.value, tuple(one.headers), one.timestamp_ms))
            for one in consumer
        ]
    return [(partition, *rest) for partition, _, rest in sorted(found, key=lambda row: row[:2])]


@pytest.fixture
def clusters(tmp_path: Path, release_cache: Path) -> Iterator[Clusters]:
    try:
        with alone(release_cache / "kafka-mirror"):
            jars = maven(
                f"kafka-mirror-{VERSION}",
                ("org.apache.kafka", "connect-mirror", VERSION),
                ("org.slf4j", "slf4j-simple", "1.7.36"),
            )
        (tmp_path / "kafka").mkdir()
        with (
            ApacheKafka.start(tmp_path / "kafka", durable=False) as theirs,
            running(tmp_path / "data") as ours,
        ):
            yield Clusters(theirs.address, ours, jars, tmp_path)
    except Missing as exc:
        pytest.skip(str(exc))


def test_a_kafka_moves_here_exactly_once_though_the_mirror_and_the_broker_are_killed(
    clusters: Clusters,
) -> None:
    with Admin(clusters.theirs) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, config=SETTINGS)
    clusters.send(500)
    with Consumer(clusters.theirs, TOPIC, group=GROUP, start="start", stop_at_end=True) as consumer:
        assert sum(1 for _ in consumer) == 500

    with clusters.mirror() as mirror:
        eventually(clusters.is_mirrored, mirror)
        clusters.send(500)
        mirror.kill()
    clusters.send(500)
    with clusters.mirror() as mirror:
        eventually(clusters.is_mirrored, mirror)
        clusters.ours.stop(SIGKILL)
        clusters.send(500)
        clusters.ours.again()
        # A worker of Connect whose broker was started anew is no member any more and starts all of
        # its connectors again; where one does not end in time, it takes a worker that is new.
        mirror.kill()
    with clusters.mirror() as mirror:
        eventually(clusters.is_mirrored, mirror)
        # Where the group stood before the kills a mirror may have no word of: what it learned of
        # the offsets of a batch is not part of the batch's transaction.
        with Consumer(clusters.theirs, TOPIC, group=GROUP, stop_at_end=True) as consumer:
            assert sum(1 for _ in consumer) == 1_500

        def is_like_theirs() -> bool:
            with Admin(clusters.ours.address) as admin:
                topic = admin.describe_topic(TOPIC)
                # Partition by partition: of the next one it may know where to put it a round later.
                committed = set(admin.committed(GROUP))
            settings = {name: topic.config[name].value for name in SETTINGS}
            return (settings, committed) == (
                SETTINGS,
                {TopicPartition(TOPIC, n) for n in range(len(topic.partitions))},
            ) and len(committed) == PARTITIONS

        eventually(is_like_theirs, mirror)
        # Offsets are translated to the last place that both are known of, never to one beyond.
        with Admin(clusters.ours.address) as admin:
            committed, ends = admin.committed(GROUP), admin.offsets(TOPIC, "end")
        assert all(0 < one.offset <= ends[tp].offset for tp, one in committed.items())
        assert mirror.terminate() in (0, 143)

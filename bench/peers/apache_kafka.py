"""Apache Kafka in one process (KRaft: broker and controller), as its defaults are."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from . import programs
from .base import free_port, process
from .kafka_wire import KafkaPeer

_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class ApacheKafka(KafkaPeer):
    name = "Apache Kafka"
    stored = "acknowledged after the write, not synced (its default)"
    synced = "flush.messages=1"

    @classmethod
    @contextmanager
    def start(
        cls,
        folder: Path,
        durable: bool,
        advertised: str = "",
        version: str = programs.KAFKA_VERSION,
        more: str = "",
    ) -> Iterator[Self]:
        """advertised: host:port that clients are told; more: further lines of its properties."""
        programs.kafka_jars(version)
        port, controller = free_port(), free_port()
        properties = folder / "server.properties"
        properties.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{advertised or f"127.0.0.1:{port}"}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder / "data"}
num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
{more}"""
        )
        form = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
        subprocess.run(
            ["java", "-XX:TieredStopAtLevel=1", *_classes(version), *form],
            check=True,
            capture_output=True,
        )
        with cls.again(folder, port, version) as kafka:
            yield kafka

    @classmethod
    @contextmanager
    def again(
        cls, folder: Path, port: int, version: str = programs.KAFKA_VERSION
    ) -> Iterator[Self]:
        """The same broker, on what an earlier `start` has left in `folder`."""
        command = ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", *_classes(version), "kafka.Kafka"]
        with process([*command, str(folder / "server.properties")], folder, port) as pid:
            yield cls(f"127.0.0.1:{port}", pid, version)

    def create_topic(self, durable: bool = False, partitions: int = 4) -> str:
        """Metadata names a leader a moment before the broker acts as one: wait for that too."""
        topic = super().create_topic(durable, partitions)
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "bench"})
        left = set(range(partitions))
        while left:
            partition = min(left)
            try:
                consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=1)
            except KafkaException:
                time.sleep(0.05)
            else:
                left.remove(partition)
        consumer.close()
        return topic

    def topic_config(self, durable: bool) -> dict[str, str]:
        return {"flush.messages": "1"} if durable else {}


def _classes(version: str) -> list[str]:
    jars = programs.kafka_jars(version)
    return ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]

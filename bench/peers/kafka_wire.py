"""Brokers that speak Kafka's protocol: librdkafka for throughput, else our codec and sockets."""

import time
from collections.abc import Sequence
from uuid import uuid4

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import decode_response, encode_request, parse_correlation_id
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from segbroker.protocol.record_batch import encode_batch, iter_batches, read_header
from segbroker.protocol.schema import records_view

from .. import librdkafka
from .base import Peer

_PRODUCE_VERSION, _FETCH_VERSION, _FETCH_KEY = 7, 4, 1
_ERROR_AT = slice(-30, -28)  # in a reply of version 7 with one partition


class KafkaWriter:
    """One produce request per call, of one batch for one partition."""

    def __init__(self, peer: "KafkaPeer", topic: str, partition: int) -> None:
        self.socket = peer.connect()
        self._topic, self._partition = topic, partition
        self._frames = FrameReader()

    def request(self, values: Sequence[bytes]) -> bytes:
        batch = encode_batch(values, timestamps_ms=int(time.time() * 1000))
        part = ProduceRequestPartition(index=self._partition, records=memoryview(batch))
        message = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[ProduceRequestTopic(name=self._topic, partition_data=[part])],
        )
        # The reply brings the correlation id back, so it carries the number of records.
        return b"".join(encode_request(message, _PRODUCE_VERSION, len(values), "bench"))

    def acked(self, data: bytes) -> int:
        self._frames.receive_data(data)
        count = 0
        while (frame := self._frames.next_frame()) is not None:
            error = bytes(frame[_ERROR_AT])
            assert error == b"\0\0", f"produce was answered with error {error.hex()}"
            count += parse_correlation_id(frame)
        return count


class KafkaReader:
    """One fetch in flight; counts by batch headers."""

    def __init__(self, peer: "KafkaPeer", topic: str) -> None:
        self.socket = peer.connect()
        self._topic = topic
        self._frames = FrameReader()
        self._next = dict.fromkeys(range(peer.partitions_of(topic)), 0)
        self._ask()

    def _ask(self) -> None:
        partitions = [
            FetchRequestPartition(partition=n, fetch_offset=offset, partition_max_bytes=1 << 20)
            for n, offset in self._next.items()
        ]
        topics = [FetchRequestTopic(topic=self._topic, partitions=partitions)]
        message = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=4 << 20, topics=topics)
        self.socket.sendall(b"".join(encode_request(message, _FETCH_VERSION, 0, "bench")))

    def received(self, data: bytes) -> int:
        self._frames.receive_data(data)
        count = 0
        while (frame := self._frames.next_frame()) is not None:
            _, reply = decode_response(frame, _FETCH_KEY, _FETCH_VERSION)
            assert isinstance(reply, FetchResponse)
            for partition in reply.responses[0].partitions:
                assert not partition.error_code, f"fetch: error {partition.error_code}"
                for batch in iter_batches(records_view(partition.records)):
                    header = read_header(batch)
                    count += header.records_count
                    self._next[partition.partition_index] = header.next_offset
            self._ask()
        return count


class KafkaPeer(Peer):
    def topic_config(self, durable: bool) -> dict[str, str]:
        """What makes a topic of this broker durable, or not."""
        raise NotImplementedError

    def create_topic(self, durable: bool = False, partitions: int = 4) -> str:
        name = f"bench-{uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": self.address})
        topic = NewTopic(name, partitions, 1, config=self.topic_config(durable))
        admin.create_topics([topic])[name].result(30)
        self.partitions_of(name)
        return name

    def partitions_of(self, topic: str) -> int:
        """Asked once for each topic; also waits until every partition has a leader."""
        known = self.__dict__.setdefault("_partitions", {})
        if topic not in known:
            known[topic] = self._ask_partitions(topic)
        return int(known[topic])

    def _ask_partitions(self, topic: str) -> int:
        admin = AdminClient({"bootstrap.servers": self.address})
        while True:
            found = admin.list_topics(topic, timeout=10).topics[topic]
            if found.partitions and all(p.leader >= 0 for p in found.partitions.values()):
                return len(found.partitions)
            time.sleep(0.05)

    def writer(self, topic: str, partition: int = 0) -> KafkaWriter:
        return KafkaWriter(self, topic, partition)

    def reader(self, topic: str, size: int) -> KafkaReader:
        return KafkaReader(self, topic)

    def produce(self, topic: str, count: int, size: int) -> float:
        return librdkafka.produce(self.address, topic, count, size)

    def consume(self, topic: str, count: int, size: int) -> float:
        return librdkafka.consume(self.address, topic, count)

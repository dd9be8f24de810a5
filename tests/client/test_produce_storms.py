"""A producer sends while the leaders of its partitions move, and brokers go away, refuse, or take
their time with questions and with answers: when it is calm again each record is in its log once, in
order, where its delivery says.

In simulated time, a seed is a run.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from segbroker.client.connection import Connection
from segbroker.client.errors import BrokerError, ConnectionLost, SegbrokerError
from segbroker.client.inbox import Delivery
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.frames import FrameReader

from .simulated import Broker, World
from .test_producing import Sender

STEPS = 150
CALM_MS = 60_000
# What happens at one moment: far more than is ever needed.
AT_ONCE_MAX = 1_000
REFUSALS = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
]


class SlowWorld(World):
    """Requests and answers take their time, each way in order; an end of the connection takes none,
    and what is on its way to a broker then may still come there."""

    def __init__(self, seed: int, brokers: int) -> None:
        super().__init__(create_topics=False, brokers=brokers, seed=seed, request_timeout_ms=5_000)
        self.late_ms = self.random.choice([0, 5, 500, 6_000])
        self._late: list[tuple[int, object, Callable[[], object]]] = []

    def _later(self, way: object, do: Callable[[], object]) -> None:
        due_ms = self.now_ms + self.random.randrange(self.late_ms + 1)
        before_ms = [due for due, other, _ in self._late if other == way]
        self._late.append((max([due_ms, *before_ms]), way, do))

    def _exchange(self, connection: Connection, broker: Broker, reader: FrameReader) -> bool:
        if not broker.is_up:
            connection.lost(ConnectionLost("10.0.0.1: reset"), self.now_ms)
            return True
        data = b"".join(connection.outgoing)
        if not data:
            return False
        connection.sent(len(data))
        self._later((connection, "to"), lambda: self._arrives(connection, broker, reader, data))
        return True

    def _arrives(
        self, connection: Connection, broker: Broker, reader: FrameReader, data: bytes
    ) -> None:
        if not broker.is_up:
            return
        reader.receive_data(data)
        while (frame := reader.next_frame()) is not None:
            reply = broker.answer(frame)
            assert reply is not None
            self._later((connection, "from"), partial(self._answers, connection, reply))

    def _answers(self, connection: Connection, reply: bytes) -> None:
        if connection in self._links:
            self.deliver(connection, reply)

    def pass_ms(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        at_once = 0
        while self.now_ms < end_ms:
            at_once += 1
            assert at_once < AT_ONCE_MAX, "it asks again and again"
            if self._happens() or self.turn():
                continue
            at_once = 0
            wakes = [due for due, _, _ in self._late]
            wake_ms = self.engine.next_wake_ms()
            if wake_ms is not None:
                wakes.append(wake_ms)
            self.now_ms = max(self.now_ms + 1, min([end_ms, *wakes]))

    def _happens(self) -> bool:
        due = [one for one in self._late if one[0] <= self.now_ms]
        self._late = [one for one in self._late if one[0] > self.now_ms]
        for _, _, do in due:
            do()
        return bool(due)

    def cut(self) -> None:
        if self._links:
            connection = self.random.choice(list(self._links))
            connection.lost(ConnectionLost("10.0.0.1: cut"), self.now_ms)


class Storm:
    """What may happen."""

    def __init__(self, seed: int, delivery_timeout_ms: int, **settings: Any) -> None:  # noqa: ANN401
        random = self.random = Random(seed)
        self.world = SlowWorld(seed, random.choice([1, 2, 3]))
        self.logs = self.world.cluster.create("a", random.choice([1, 4]))
        self.sender = Sender(
            self.world,
            batch_bytes=random.choice([150, 1_000]),
            linger_ms=random.choice([0, 20]),
            delivery_timeout_ms=delivery_timeout_ms,
            **settings,
        )
        self.world.pass_ms(20_000)
        self.sent: dict[int, list[Delivery]] = {index: [] for index in range(len(self.logs))}

    @property
    def brokers(self) -> list[Broker]:
        return list(self.world.cluster.brokers.values())

    def send(self) -> None:
        for _ in range(self.random.choice([1, 5, 30])):
            index = self.random.randrange(len(self.logs))
            value = b"%06d" % len(self.sent[index])
            got = self.sender.try_send("a", value, partition=index)
            if not isinstance(got, Delivery):
                return  # there is no room, or the topic is not known yet
            self.sent[index].append(got)

    def move(self) -> None:
        partition = self.random.choice(self.logs)
        partition.leader = self.random.choice(list(self.world.cluster.brokers))
        partition.leader_epoch += 1
        partition.epoch_starts.append((partition.leader_epoch, partition.log_end))

    def refuse(self) -> None:
        codes = [self.random.choice(REFUSALS) for _ in range(self.random.randrange(1, 4))]
        self.random.choice(self.brokers).produce_errors += codes

    def goes_or_comes(self) -> None:
        self.random.choice(self.brokers).is_up ^= True

    def heal(self) -> None:
        for broker in self.brokers:
            broker.is_up = True
            broker.produce_errors.clear()

    def runs(self) -> None:
        does: list[Callable[[], None]] = [
            *(self.send,) * 4,
            *(self.move, self.refuse, self.goes_or_comes, self.world.cut, self.heal, self.heal),
        ]
        for _ in range(STEPS):
            self.random.choice(does)()
            self.world.pass_ms(self.random.choice([0, 0, 5, 300, 2_000]))
        self.heal()
        self.world.late_ms = min(500, self.world.late_ms)
        done = self.sender.producing.flush()
        # Without idempotence one batch is in flight: each goes there and back before the next.
        queues = self.sender.producing.accumulator.active
        left = sum(len(queue.in_flight) + len(queue.sealed) + len(queue.begun) for queue in queues)
        ends_ms = self.world.now_ms + CALM_MS + 2 * self.world.late_ms * left
        while not done.done and self.world.now_ms < ends_ms:
            self.world.pass_ms(100)
        assert done.done


@pytest.mark.parametrize("seed", range(12))
def test_each_record_is_in_its_log_once_and_in_order(seed: int) -> None:
    storm = Storm(seed, 3_600_000)
    storm.runs()
    for index, deliveries in storm.sent.items():
        stored = storm.world.stored("a", index)
        assert stored == [b"%06d" % number for number in range(len(deliveries))]
        assert [each.metadata().offset for each in deliveries] == list(range(len(deliveries)))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_given_up_makes_nothing_else_come_twice_or_out_of_order(seed: int) -> None:
    storm = Storm(seed, 4_000)
    storm.runs()
    for index, deliveries in storm.sent.items():
        stored = storm.world.stored("a", index)
        assert stored == sorted(set(stored), key=str)
        for number, delivery in enumerate(deliveries):
            value = b"%06d" % number
            try:
                assert stored[delivery.metadata().offset] == value
            except BrokerError:
                assert value not in stored
            except SegbrokerError:
                pass  # it may be there


@pytest.mark.parametrize("seed", range(8))
def test_without_idempotence_nothing_is_missing_and_a_repetition_overtakes_nothing(
    seed: int,
) -> None:
    """A record may be there more than once: where nobody heard that it was."""
    storm = Storm(seed, 3_600_000, idempotent=False, acks=(1, -1)[seed % 2])
    storm.runs()
    for index, deliveries in storm.sent.items():
        stored = storm.world.stored("a", index)
        assert list(dict.fromkeys(stored)) == [b"%06d" % each for each in range(len(deliveries))]
        for number, delivery in enumerate(deliveries):
            assert stored[delivery.metadata().offset] == b"%06d" % number

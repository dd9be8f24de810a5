"""Partitions of several leaders are assigned, sought, paused, moved, refused and cut off, while
answers take their time: when it is calm again, each is read to its end, within seconds, and asked
for of its leader alone, unless it is paused.

Meanwhile what is handed out is what comes next in the log, of the topic of now or of one before.

In simulated time, a seed is a run.
"""

from collections.abc import Callable
from random import Random

import pytest

from segbroker.client import fetch_session
from segbroker.client.connection import Connection
from segbroker.client.consumed import ConsumedBatch
from segbroker.client.errors import SegbrokerError
from segbroker.client.fetch_lanes import SHORT_WAIT_MS
from segbroker.client.records import TopicPartition
from segbroker.client.starting import Start
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.messages_core import FetchRequest

from .simulated import NOBODY, Broker, Partition, World
from .test_fetching import Reader, store

STEPS = 200
CALM_MS = 60_000
STEADY_MS = 3_000
# What happens at one moment: far more than is ever needed.
AT_ONCE_MAX = 1_000


class LateWorld(World):
    """Answers take their time; what has happened meanwhile is not in them."""

    def __init__(self, seed: int, brokers: int) -> None:
        super().__init__(create_topics=False, brokers=brokers, seed=seed, request_timeout_ms=5_000)
        self.late_ms = self.random.choice([0, 5, 5, 500, 6_000])
        self._late: list[tuple[int, Connection, bytes]] = []

    def _exchange(self, connection: Connection, broker: Broker, reader: FrameReader) -> bool:
        begins_ms = self.now_ms
        moved = super()._exchange(connection, broker, reader)
        self.now_ms = begins_ms  # a fetch that waits holds nobody else up
        return moved

    def deliver(self, connection: Connection, data: bytes) -> None:
        due_ms = self.now_ms + self.random.randrange(self.late_ms + 1)
        before_ms = [due for due, other, _ in self._late if other is connection]
        self._late.append((max([due_ms, *before_ms]), connection, data))

    def pass_ms(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        at_once = 0
        while self.now_ms < end_ms:
            at_once += 1
            assert at_once < AT_ONCE_MAX, "it asks again and again"
            if self._hand_over() or self.turn():
                continue
            at_once = 0
            wakes = [due for due, _, _ in self._late]
            wake_ms = self.engine.next_wake_ms()
            if wake_ms is not None:
                wakes.append(wake_ms)
            self.now_ms = max(self.now_ms + 1, min([end_ms, *wakes]))

    def _hand_over(self) -> bool:
        due = [one for one in self._late if one[0] <= self.now_ms]
        self._late = [one for one in self._late if one[0] > self.now_ms]
        for _, connection, data in due:
            if connection in self._links:
                super().deliver(connection, data)
        return bool(due)


class Storm:
    """What may happen."""

    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)
        count = random.choice([2, 6, 20])
        self.world = LateWorld(seed, random.choice([1, 2, 3]))
        size = random.choice([1_000, 1 << 20])
        self.reader = Reader(
            self.world, on_reset="start", prefetch_bytes=size, fetch_partition_bytes=size // 5
        )
        self.fetching = self.reader.fetching
        self.world.cluster.create("a", count)
        # How often the topic was made; and of which one the last record was that was handed out.
        self.made_count = 0
        self.read_of: dict[TopicPartition, int] = {}
        self.deleted: set[TopicPartition] = set()
        self.all = [TopicPartition("a", index) for index in range(count)]
        self.fetching.assign(self.all, "start")

    @property
    def brokers(self) -> list[Broker]:
        return list(self.world.cluster.brokers.values())

    def partition(self, tp: TopicPartition) -> Partition:
        return self.world.cluster.topics[tp.topic][tp.partition]

    def some(self) -> list[TopicPartition]:
        return self.random.sample(self.all, self.random.choice([1, 1, len(self.all)]))

    def mine(self) -> list[TopicPartition]:
        return [tp for tp in self.some() if tp in self.fetching.states]

    def write(self) -> None:
        for tp in self.some():
            first = self.partition(tp).log_end
            offsets = range(first, first + self.random.randrange(1, 4))
            store(self.partition(tp), [self.value(tp, offset) for offset in offsets])

    def write_much(self) -> None:
        for tp in self.all:
            for _ in range(10):
                first = self.partition(tp).log_end
                store(self.partition(tp), [self.value(tp, first)])

    def value(self, tp: TopicPartition, offset: int) -> bytes:
        return b"%d %d %d" % (self.made_count, tp.partition, offset)

    def take(self) -> None:
        prefetched = self.fetching.prefetched
        while not prefetched.is_empty or prefetched.errors:
            positions = {state: state.position for state in prefetched.states()}
            try:
                fetched = prefetched.take()
            except SegbrokerError:
                continue  # it is said, and goes on
            if fetched is None:
                return
            state = fetched.state
            assert self.fetching.states[state.tp] is state
            assert not state.paused
            if state.tp not in self.deleted:
                assert fetched.from_offset == positions[state]
            self.check(state.tp, fetched.from_offset, self.fetching.open(fetched))

    def check(self, tp: TopicPartition, offset: int, batch: ConsumedBatch) -> None:
        for record in batch.records():
            assert record.value is not None
            made, partition, written = map(int, record.value.split())
            assert (partition, written) == (tp.partition, record.offset) == (tp.partition, offset)
            assert made >= self.read_of.get(tp, 0)
            self.read_of[tp] = made
            offset += 1

    def assign(self) -> None:
        self.fetching.assign(self.random.choice([self.all, self.some()]), "start")

    def come_back(self) -> None:
        tps = self.mine()
        self.fetching.drop(tps)
        for tp in tps:
            self.fetching.add(tp, "start")

    def seek(self) -> None:
        starts: list[Start] = [0, "start", "end"]
        for tp in self.mine():
            self.fetching.seek(tp, self.random.choice(starts))

    def pause(self) -> None:
        self.fetching.pause(self.mine())

    def resume(self) -> None:
        self.fetching.resume(self.mine())

    def move(self) -> None:
        numbers = [*self.world.cluster.brokers, NOBODY]
        for tp in self.some():
            partition = self.partition(tp)
            partition.leader = self.random.choice(numbers)
            partition.leader_epoch += 1
            partition.epoch_starts.append((partition.leader_epoch, partition.log_end))

    def make_again(self) -> None:
        self.made_count += 1
        self.world.cluster.create("a", len(self.all))

    def delete(self) -> None:
        for tp in self.some():
            self.deleted.add(tp)
            self.partition(tp).delete(self.partition(tp).log_end)

    def refuse(self) -> None:
        self.world.cluster.forbidden = set(self.some())
        for tp in self.some():
            self.partition(tp).is_damaged ^= True

    def end_sessions(self) -> None:
        broker = self.random.choice(self.brokers)
        broker.sessions.clear()
        broker.keeps_sessions ^= True

    def cut(self) -> None:
        self.random.choice(self.brokers).is_up ^= True

    def hide(self) -> None:
        self.world.cluster.unlisted = {self.random.choice(self.brokers).number}

    def heal(self) -> None:
        self.world.cluster.unlisted.clear()
        for broker in self.brokers:
            broker.is_up = True
        self.world.cluster.forbidden.clear()
        for tp in self.all:
            partition = self.partition(tp)
            partition.is_damaged = False
            if partition.leader == NOBODY:
                partition.leader = self.brokers[-1].number

    def calms(self) -> None:
        self.world.late_ms = min(500, self.world.late_ms)
        self.heal()
        self.write()
        self.fetching.assign(self.all, "start")
        self.fetching.resume(None)

    def left(self) -> list[TopicPartition]:
        return [
            tp
            for tp, state in self.fetching.states.items()
            if not state.paused and state.position != self.partition(tp).log_end
        ]

    def read_to_the_end(self) -> None:
        ends_ms = self.world.now_ms + CALM_MS
        while self.left() and self.world.now_ms < ends_ms:
            self.world.pass_ms(100)
            self.take()
        assert not self.left()

    def check_asked(self) -> None:
        """Each broker is asked for what it leads, at its end, for nothing else, now and then."""
        asks_before = {broker: len(_fetches(broker)) for broker in self.brokers}
        self.world.pass_ms(STEADY_MS)
        self.take()
        for broker in self.brokers:
            asks = _fetches(broker)[asks_before[broker] :]
            wanted = {
                tp: self.partition(tp).log_end
                for tp, state in self.fetching.states.items()
                if self.partition(tp).leader == broker.number and not state.paused
            }
            if wanted:
                assert _asked(broker, asks[-1]) == wanted
            assert len(asks) <= STEADY_MS / SHORT_WAIT_MS


def _fetches(broker: Broker) -> list[FetchRequest]:
    return [request for request in broker.requests if isinstance(request, FetchRequest)]


def _asked(broker: Broker, last: FetchRequest) -> dict[TopicPartition, int]:
    """What it is asked for, at which offsets: it remembers that where there is a session."""
    number = last.session_id or (broker.last_session_id if last.session_epoch == 0 else 0)
    if number in broker.sessions:
        rows = [(topic, row) for (topic, _), row in broker.sessions[number].rows.items()]
    else:
        rows = [(topic.topic, row) for topic in last.topics for row in topic.partitions]
    return {TopicPartition(topic, row.partition): row.fetch_offset for topic, row in rows}


@pytest.mark.parametrize("seed", range(24))
def test_when_it_is_calm_again_every_partition_is_read_to_its_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm = Storm(seed)
    monkeypatch.setattr(fetch_session, "PARTITIONS_MIN", storm.random.choice([1, 1, 1, 50]))
    world = storm.world
    does: list[Callable[[], None]] = [
        *(storm.write, storm.take) * 3,
        *(storm.assign, storm.come_back, storm.seek, storm.pause, storm.resume),
        *(storm.move, storm.make_again, storm.delete, storm.refuse),
        *(storm.end_sessions, storm.cut, storm.hide, storm.heal, storm.heal),
    ]
    for _ in range(STEPS):
        storm.random.choice(does)()
        world.pass_ms(storm.random.choice([0, 0, 5, 300, 2_000]))
    for _ in range(2):  # what was read to its end is asked for again, too
        storm.hide()
        world.engine.cluster.invalidate()
        world.pass_ms(1_000)
        storm.calms()
        storm.write_much()
        world.pass_ms(1_000)  # what is paused now has filled what there is room for
        storm.fetching.pause(storm.random.sample(storm.all, len(storm.all) // 2))
        storm.read_to_the_end()
        storm.calms()
        storm.read_to_the_end()
        assert not storm.fetching.prefetched.buffered_bytes
        storm.pause()
        storm.check_asked()
        storm.fetching.resume(None)
        storm.check_asked()

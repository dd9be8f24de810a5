"""Transactions in a life that a power cut ends, and what has to be there behind it.

    transaction n   one to three records into a topic of each class, and the offset n + 1 of a group
                    of its own; a third is aborted, some of these before anything was written

Behind a power cut, as soon as readers of committed records come to the end, which they do without
anybody's help behind the time-out:

    committed, and told so    all of it is seen, in every class
    aborted                   nothing of it is seen
    in doubt                  all or nothing
    the group                 stands behind the last that is seen
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition

from segbroker.client import Admin, Consumer, Gap, GroupMetadata, Producer

from .load import Worker

TOPICS: Final = {
    "traded-synced": {"durability": "fsync", "segment.bytes": "32768"},
    "traded-written": {"durability": "disk", "segment.bytes": "32768"},
    "traded-remembered": {"durability": "memory", "segment.bytes": "32768"},
}
PLACES: Final = [(topic, 0) for topic in TOPICS]
ABORTED_EACH: Final = 3
TIMEOUT_MS: Final = 15_000
STABLE_WITHIN_S: Final = TIMEOUT_MS / 1000 + 45
PAUSE_S: Final = 0.02
SIZE: Final = 100


@dataclass
class Trades:
    """Of one producer: how each transaction was to end, noted before it began, and how many have
    ended, as it was told."""

    number: int
    commits: list[bool] = field(default_factory=list)
    ended: int = 0

    @property
    def group(self) -> str:
        return f"traders-{self.number}"

    def as_of(self, ended: int) -> "Trades":
        """The same, of which only so many have ended."""
        return Trades(self.number, self.commits, ended)


class Trading(Worker):
    """A producer of transactions, until it is asked to finish.

    takes_over: whose transactional id it has; None: one of its own.  limit: of transactions.
    """

    def __init__(
        self,
        number: int,
        bootstrap: str,
        *,
        takes_over: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(f"trader {number} ({type(self).__name__})", bootstrap, SIZE)
        self.trades = Trades(number)
        self.transactional_id = f"trader-{number if takes_over is None else takes_over}"
        self._limit = limit

    def numbers(self) -> Iterator[tuple[int, bool]]:
        """Of each transaction its number, and whether to commit it; it has ended at the next."""
        while not self.finishing.is_set() and self.trades.ended != self._limit:
            number = len(self.trades.commits)
            self.trades.commits.append(number % ABORTED_EACH != ABORTED_EACH - 1)
            yield number, self.trades.commits[-1]
            self.trades.ended += 1
            time.sleep(PAUSE_S)

    def values(self, number: int) -> list[bytes]:
        """What transaction `number` writes into each place."""
        begin = b"%d %d " % (self.trades.number, number)
        return [begin + b"%d " % index + b"." * SIZE for index in range(_count(number))]


class _Aborted(Exception):
    """A transaction was to be aborted."""


class OurTrading(Trading):
    """... with our client."""

    def work(self) -> None:
        group = GroupMetadata(self.trades.group)
        with Producer(
            self.bootstrap,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_ms=1,
        ) as producer:
            for number, is_committed in self.numbers():
                try:
                    with producer.transaction():
                        for topic, partition in PLACES:
                            for value in self.values(number):
                                producer.send(topic, value, partition=partition)
                        producer.send_offsets({PLACES[0]: number + 1}, group)
                        if not is_committed:
                            if number % 2:
                                producer.flush()
                            raise _Aborted
                except _Aborted:
                    pass


class ConfluentTrading(Trading):
    """... with confluent-kafka."""

    def work(self) -> None:
        consumer = ConfluentConsumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.trades.group}
        )
        member = consumer.consumer_group_metadata()
        producer = ConfluentProducer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 1,
            }
        )
        producer.init_transactions(STABLE_WITHIN_S)
        for number, is_committed in self.numbers():
            producer.begin_transaction()
            for topic, partition in PLACES:
                for value in self.values(number):
                    producer.produce(topic, value, partition=partition)
            offsets = [TopicPartition(*PLACES[0], number + 1)]
            producer.send_offsets_to_transaction(offsets, member, STABLE_WITHIN_S)
            if is_committed:
                producer.commit_transaction(STABLE_WITHIN_S)
            else:
                if number % 2:
                    producer.flush(STABLE_WITHIN_S)
                producer.abort_transaction(STABLE_WITHIN_S)
        consumer.close()


def judge(bootstrap: str, trades: Sequence[Trades]) -> list[str]:
    """What is wrong of these transactions at a broker behind a power cut."""
    if unstable := _unstable(bootstrap):
        return [f"readers of committed records do not come to the end: {unstable}"]
    problems: list[str] = []
    seen = {place: Counter[tuple[int, int]]() for place in PLACES}
    newest: dict[tuple[tuple[str, int], int], tuple[int, int]] = {}
    with Consumer(
        bootstrap, isolation="read_committed", stop_at_end=True, on_gap="yield"
    ) as reader:
        reader.assign(PLACES, start="start")
        for record in reader:
            if isinstance(record, Gap):
                continue
            place = (record.topic, record.partition)
            who, number, index = map(int, (record.value or b"").split()[:3])
            seen[place][who, number] += 1
            if newest.get((place, who), (-1, 0)) >= (number, index):
                problems.append(f"{place}: {who}, {number}, {index} twice or out of order")
            newest[place, who] = (number, index)
    with Admin(bootstrap) as admin:
        for one in trades:
            committed = admin.committed(one.group)
            stands = max((int(found.offset) for found in committed.values()), default=0)
            problems += _judge_one(one, list(seen.values()), stands)
    return problems


def _judge_one(one: Trades, seen: list[Counter[tuple[int, int]]], stands: int) -> Iterator[str]:
    last = -1
    for number, is_committed in enumerate(one.commits.copy()):
        counts = [place[one.number, number] for place in seen]
        name = f"transaction {number} of trader {one.number} ({counts} seen)"
        if any(counts):
            last = number
        if any(counts) and not is_committed:
            yield f"{name} was aborted"
        elif any(counts) and set(counts) != {_count(number)}:
            yield f"{name} is torn, of {_count(number)} in each place"
        elif is_committed and number < one.ended and not any(counts):
            yield f"{name} was committed, and is gone"
    if stands != last + 1:
        yield f"{one.group} stands at {stands}, the last transaction that is seen is {last}"


def _unstable(bootstrap: str) -> str:
    """Where a transaction is open; waits for their time-outs."""
    deadline_s = time.monotonic() + STABLE_WITHIN_S
    with (
        Consumer(bootstrap, isolation="read_committed") as stable,
        Consumer(bootstrap, isolation="read_uncommitted") as every,
    ):
        while True:
            ends, all_ends = stable.end_offsets(*PLACES), every.end_offsets(*PLACES)
            if ends == all_ends:
                return ""
            if time.monotonic() > deadline_s:
                return f"at {ends}, of {all_ends}"
            time.sleep(PAUSE_S)


def _count(number: int) -> int:
    return 1 + number % 3

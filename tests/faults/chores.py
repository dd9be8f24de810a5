"""An administrator who works through every kill: topics made, filled, trimmed, grown, deleted.

    chore n    make topic n, write RECORDS_COUNT records one by one, delete those before TRIM_AT,
               add a partition; delete topic n - KEPT_COUNT

Each step is asked for until it is answered, so a kill in the middle costs nothing but time.  In the
end the last topics have to be what was answered, and the others gone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from segbroker.client import (
    Admin,
    Consumer,
    Producer,
    SegbrokerError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

from .history import Record
from .load import PATIENCE_S, Worker, value_of
from .persist import persist

RECORDS_COUNT: Final = 24
TRIM_AT: Final = 16
KEPT_COUNT: Final = 2
VALUE_BYTES: Final = 400
DURABILITIES: Final = ("fsync", "disk")
PRODUCER: Final = 90
GRACE_S: Final = 30


@dataclass
class Chore:
    """One topic, and what was answered about it."""

    name: str
    offsets: list[int] = field(default_factory=list)
    """Of its records, in order, as acknowledged."""


class Chores(Worker):
    """See the module."""

    def __init__(self, listen: str, *, patience_s: float = PATIENCE_S) -> None:
        super().__init__("chores", listen, VALUE_BYTES)
        self.kept: list[Chore] = []
        self.done = 0
        self._patience_s = patience_s

    def work(self) -> None:
        with Admin(self.bootstrap, connect_timeout_ms=int(1000 * self._patience_s)) as admin:
            while not self.finishing.is_set():
                self._one(admin, Chore(f"chore{self.done}"))
                self.done += 1

    def _one(self, admin: Admin, chore: Chore) -> None:
        settings = {"durability": DURABILITIES[self.done % 2], "segment.bytes": "4096"}
        make = partial(admin.create_topic, chore.name, partitions=1, config=settings)
        self._ask(make, TopicAlreadyExists)
        self._fill(chore)
        self._ask(lambda: admin.delete_records({(chore.name, 0): TRIM_AT}))
        self._ask(partial(_grow, admin, chore.name))
        self.kept.append(chore)
        if len(self.kept) > KEPT_COUNT:
            gone = self.kept.pop(0)
            self._ask(partial(admin.delete_topic, gone.name), UnknownTopicOrPartition)

    def _ask(self, what: Callable[[], object], done_by: type[SegbrokerError] | None = None) -> None:
        persist(what, done_by=done_by, timeout_s=self._patience_s)

    def _fill(self, chore: Chore) -> None:
        with Producer(
            self.bootstrap,
            linger_ms=0,
            delivery_timeout_ms=int(1000 * self._patience_s),
            connect_timeout_ms=int(1000 * self._patience_s),
        ) as producer:
            for number in range(RECORDS_COUNT):
                value = self._value(number)
                chore.offsets.append(producer.send(chore.name, value, partition=0).result().offset)

    def _value(self, number: int) -> bytes:
        return value_of(Record(PRODUCER, number), self.size)

    def finish_and_check(self) -> list[str]:
        """End after the present chore; everything that is not as it was answered to be."""
        self.finish(self._patience_s + GRACE_S)
        problems = list(self.problems)
        with Admin(self.bootstrap) as admin:
            there = {name for name in admin.list_topics() if name.startswith("chore")}
            wanted = {chore.name for chore in self.kept}
            if there != wanted:
                problems.append(f"topics {sorted(there)}, not {sorted(wanted)}")
            for chore in self.kept:
                count = len(admin.describe_topic(chore.name).partitions)
                if count != 2:
                    problems.append(f"{chore.name} has {count} partitions, not 2")
        for chore in self.kept:
            if chore.name in there:
                problems += self._wrong_in(chore)
        return problems

    def _wrong_in(self, chore: Chore) -> list[str]:
        if chore.offsets != list(range(RECORDS_COUNT)):
            return [f"{chore.name}: acknowledged at {chore.offsets}"]
        with Consumer(self.bootstrap, stop_at_end=True) as consumer:
            consumer.assign([(chore.name, 0)], start="start")
            found = [(record.offset, record.value) for record in consumer]
        expected = [(number, self._value(number)) for number in range(TRIM_AT, RECORDS_COUNT)]
        if found != expected:
            return [f"{chore.name}: {[offset for offset, _ in found]}, not [{TRIM_AT}, ...)"]
        return []


def _grow(admin: Admin, topic: str) -> None:
    if len(admin.describe_topic(topic).partitions) < 2:
        admin.create_partitions(topic, 2)

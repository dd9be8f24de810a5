"""One who changes what later changes replace: a compacted topic, a capped one, one of many lives.

    turn n      a record of key n modulo 10 into `compacted`, each seventh without a value
                a record into `capped`, of which so many are kept (retention.records)
                `again` is made, gets three records, or is deleted: the n-th of five steps

One thing at a time, each noted before it is asked for and when it is acknowledged.  So what there
may be behind a power cut is what some number of turns had left: not fewer than were acknowledged,
nor more than were asked for.  Nothing is lost of CAPPED but by its retention.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from segbroker.client import Admin, Consumer, Gap, Producer

from .load import Worker

COMPACTED: Final = "compacted"
CAPPED: Final = "capped"
AGAIN: Final = "again"
SETTINGS: Final = {
    COMPACTED: {
        "durability": "fsync",
        "segment.bytes": "1024",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    },
    CAPPED: {"durability": "fsync", "segment.bytes": "1024", "retention.records": "40"},
}
AGAIN_SETTINGS: Final = {"durability": "fsync"}
# The cleaner, and who deletes what is too much, are at it all the time.
FLAGS: Final = ("--cleaner-backoff-ms", "100", "--retention-interval-ms", "200")
KEYS: Final = 10
WITHOUT_VALUE_EACH: Final = 7
STEPS: Final = 5
KEPT: Final = 40


class Turned(NamedTuple):
    """How many things were done, of COMPACTED, CAPPED and AGAIN."""

    compacted: int = 0
    capped: int = 0
    again: int = 0


class Turning(Worker):
    """... until it is asked to finish."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("who takes turns", bootstrap, 0)
        self.done = self.asked = Turned()

    def work(self) -> None:
        with Producer(self.bootstrap, linger_ms=0) as producer, Admin(self.bootstrap) as admin:
            number = 0
            while not self.finishing.is_set():
                self._do(
                    self.done._replace(compacted=number + 1),
                    partial(_write_keyed, producer, number),
                )
                self._do(
                    self.done._replace(capped=number + 1),
                    partial(_write, producer, CAPPED, number),
                )
                self._do(
                    self.done._replace(again=number + 1),
                    partial(_step, producer, admin, number),
                )
                number += 1

    def _do(self, then: Turned, what: Callable[[], object]) -> None:
        self.asked = then
        what()
        self.done = then


def _write_keyed(producer: Producer, number: int) -> None:
    value = None if number % WITHOUT_VALUE_EACH == 0 else b"%d" % number
    producer.send(COMPACTED, value, key=b"%d" % (number % KEYS), partition=0).result()


def _write(producer: Producer, topic: str, number: int) -> None:
    producer.send(topic, b"%d" % number, partition=0).result()


def _step(producer: Producer, admin: Admin, number: int) -> None:
    step = number % STEPS
    if step == 0:
        admin.create_topic(AGAIN, partitions=1, config=AGAIN_SETTINGS)
    elif step == STEPS - 1:
        admin.delete_topic(AGAIN)
    else:
        _write(producer, AGAIN, number)


def judge(bootstrap: str, done: Turned, asked: Turned) -> list[str]:
    """What is there, and may not be after between so many turns."""
    with Admin(bootstrap) as admin:
        is_there = AGAIN in admin.list_topics()
    problems = []
    last = {key: value for _, key, value in _read(bootstrap, COMPACTED)}
    live = {key: value for key, value in last.items() if value}
    if live not in [_keyed(number) for number in _between(done.compacted, asked.compacted)]:
        problems.append(f"{COMPACTED}: {live} after {done.compacted}, {_keyed(done.compacted)}")
    problems += _judge_capped(_read(bootstrap, CAPPED), done.capped, asked.capped)
    rows = [value for _, _, value in _read(bootstrap, AGAIN)] if is_there else None
    if rows not in [_again(number) for number in _between(done.again, asked.again)]:
        problems.append(f"{AGAIN}: {rows} after {done.again} steps, {_again(done.again)}")
    return problems


def _judge_capped(rows: list[tuple[int, bytes, bytes]], done: int, asked: int) -> list[str]:
    offsets = [offset for offset, _, _ in rows]
    end = max(offsets, default=-1) + 1
    begin = min(offsets, default=0)
    problems = []
    if offsets != list(range(begin, end)) or not done <= end <= asked:
        problems.append(f"{CAPPED}: {json.dumps(offsets)} after {done}")
    if end - begin < min(KEPT, done):
        problems.append(f"{CAPPED}: only {end - begin} of {done} are kept")
    problems += [
        f"{CAPPED}: {value!r} at {offset}" for offset, _, value in rows if value != b"%d" % offset
    ]
    return problems


def _read(bootstrap: str, topic: str) -> list[tuple[int, bytes, bytes]]:
    """(offset, key, value) of each record behind the last gap."""
    rows: list[tuple[int, bytes, bytes]] = []
    with Consumer(bootstrap, stop_at_end=True, on_gap="yield") as consumer:
        consumer.assign([(topic, 0)], start="start")
        for record in consumer:
            if isinstance(record, Gap):
                rows.clear()  # was deleted meanwhile; what may be missing is counted
            else:
                rows.append((record.offset, record.key or b"", record.value or b""))
    return rows


def _between(done: int, asked: int) -> range:
    return range(done, asked + 1)


def _keyed(count: int) -> dict[bytes, bytes]:
    """What has a value after so many turns."""
    live: dict[bytes, bytes] = {}
    for number in range(count):
        key = b"%d" % (number % KEYS)
        live.pop(key, None)
        if number % WITHOUT_VALUE_EACH:
            live[key] = b"%d" % number
    return live


def _again(count: int) -> list[bytes] | None:
    """What is in the topic after so many steps; None: there is none."""
    step = count % STEPS
    if step == 0:
        return None
    return [b"%d" % number for number in range(count - step + 1, count)]

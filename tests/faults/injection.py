"""One life of a real daemon with a fault in one system call, and the verdict on it.

    kill_at     SIGKILL at the N-th call; started again without strace; the clients go on
    fail_at     EIO or ENOSPC at the N-th call; the daemon lives on, and is asked what still works

The work is the same each time and uses every kind of call that changes the disk: topics are made,
filled through rolls and seals (segments of 4 KiB), grown, trimmed and deleted, by our client and by
confluent-kafka; then the daemon is ended in order, which the kill may hit as well.

Of a kill everything must come out as if nothing had happened: all is acknowledged in the end, read
once and in order, and what was asked of the metadata is so.  Of a failed call: no acknowledgement
rests on it, no second sync on that descriptor, reads go on, refusals name the cause, a full disk
passes by itself.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Final

from segbroker.client import (
    Admin,
    Consumer,
    Producer,
    SegbrokerError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

from ..support import daemon as daemons
from ..support.daemon import Daemon
from . import traced
from .history import Anomaly, Partition, Record, Sends, check
from .load import ConfluentWriting, OurWriting, Writing, bounds_of, read_all, value_of
from .persist import persist

TOPICS: Final = {
    "synced": {"durability": "fsync", "segment.bytes": "4096"},
    "written": {"durability": "disk", "segment.bytes": "4096"},
}
PARTITIONS: Final[list[Partition]] = [(topic, 0) for topic in TOPICS]
TRIMMED: Final = "trimmed"
TRIMMED_COUNT: Final = 60
TRIMMED_AT: Final = 40
DOOMED: Final = "doomed"
RECORDS_COUNT: Final = 100
PATIENCE_S: Final = 30
SHORT_PATIENCE_S: Final = 2
READY_TIMEOUT_S: Final = 120
FAILURE_CALLS: Final = (*traced.WRITES, *traced.SYNCS, "close")
BATCH_BYTES: Final = 1_000


@dataclass
class Verdict:
    """What came of one fault."""

    fault: str
    fired: str = ""
    """The call that was hit; empty when there were not so many."""
    acked: int = 0
    sent: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not self.anomalies and not self.problems

    def __str__(self) -> str:
        at = self.fired or "not so many calls"
        return f"{self.fault}: {at}; {self.acked} of {self.sent} acked, {self.seconds:.1f} s"


class Life:
    """A daemon under strace that is started again, without, when the injected kill hits it."""

    def __init__(self, data: Path, inject: str, *, calls: tuple[str, ...] = traced.CHANGES) -> None:
        self.data = data
        self.listen = daemons.address_of(data)
        self.strace_log = data.with_name(data.name + ".strace")
        under = traced.under(self.strace_log, inject, calls=calls)
        self._traced = daemons.launch(data, under=under)
        self._plain: Daemon | None = None
        self._ending = threading.Lock()
        self._is_ending = False
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        return self._traced.pid

    def _watch(self) -> None:
        code = self._traced.wait()
        if self._traced.stdout is not None:
            self._traced.stdout.close()
        with self._ending:
            if code == -signal.SIGKILL and not self._is_ending:
                self._plain = daemons.start(self.data)

    @property
    def was_killed(self) -> bool:
        return self._traced.returncode == -signal.SIGKILL

    @property
    def has_ended(self) -> bool:
        return self._traced.poll() is not None

    def calls(self) -> list[traced.Call]:
        return traced.calls_in(self.strace_log, self.pid)

    def end(self) -> int:
        """SIGTERM; the exit code.  The kill may come now, and then nothing is started again."""
        with self._ending:
            self._is_ending = True
            plain = self._plain
        if plain is not None:
            return plain.stop()
        with suppress(ProcessLookupError):
            self._traced.terminate()
        try:
            code = self._traced.wait(READY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._traced.kill()
            self._traced.wait()
            raise
        self._watcher.join()
        return code


@dataclass
class Work:
    """What is asked of the daemon, and what was acknowledged."""

    listen: str
    patience_s: float
    trimmed: Sends = field(default_factory=lambda: Sends(9, [(TRIMMED, 0)]))
    writers: list[Writing] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    def all(self) -> None:
        """Everything, in an order that is always the same."""
        with Admin(self.listen, connect_timeout_ms=1000 * READY_TIMEOUT_S) as admin:
            for topic in (*TOPICS, TRIMMED, DOOMED):
                config = TOPICS.get(topic, TOPICS["synced"])
                self._ask(f"create {topic}", _create(admin, topic, config), TopicAlreadyExists)
            self.writers = [
                OurWriting(
                    1,
                    self.listen,
                    PARTITIONS,
                    limit=RECORDS_COUNT,
                    pause_s=0.01,
                    batch_bytes=BATCH_BYTES,
                    patience_s=self.patience_s,
                ),
                ConfluentWriting(
                    2,
                    self.listen,
                    PARTITIONS,
                    limit=RECORDS_COUNT,
                    pause_s=0.01,
                    batch_bytes=BATCH_BYTES,
                    patience_s=self.patience_s,
                ),
            ]
            for writer in self.writers:
                writer.start()
            self._fill_trimmed()
            if self.trimmed.acked_count == TRIMMED_COUNT:
                self._ask("trim", lambda: admin.delete_records({(TRIMMED, 0): TRIMMED_AT}))
            for writer in self.writers:
                writer.finish(self.patience_s + READY_TIMEOUT_S)
            self._ask("grow", _grow(admin, TRIMMED), None)
            self._ask("delete", lambda: admin.delete_topic(DOOMED), UnknownTopicOrPartition)

    def _ask(
        self, name: str, what: Callable[[], object], done_by: type[SegbrokerError] | None = None
    ) -> None:
        try:
            persist(what, done_by=done_by, timeout_s=self.patience_s)
            self.done.add(name)
        except SegbrokerError as exc:
            self.refused.append(f"{name}: {exc}")

    def _fill_trimmed(self) -> None:
        """Fill one topic a record at a time; stops at the first that is not acknowledged."""
        with (
            suppress(SegbrokerError),
            Producer(
                self.listen, linger_ms=0, delivery_timeout_ms=int(1000 * self.patience_s)
            ) as producer,
        ):
            for _ in range(TRIMMED_COUNT):
                record = self.trimmed.send((TRIMMED, 0))
                delivery = producer.send(TRIMMED, value_of(record, 100), partition=0)
                self.trimmed.ack(record.number, delivery.result().offset)

    def examine(self, verdict: Verdict) -> None:
        """Compare with what the daemon at `listen` says now."""
        with Admin(self.listen) as admin:
            topics = set(admin.list_topics())
            for topic in (*TOPICS, TRIMMED):
                if f"create {topic}" in self.done and topic not in topics:
                    verdict.problems.append(f"topic {topic} was created and is not there")
            if "delete" in self.done and DOOMED in topics:
                verdict.problems.append("a topic was deleted and is there again")
            if "grow" in self.done and len(admin.describe_topic(TRIMMED).partitions) != 2:
                verdict.problems.append("a partition was added and is not there")
        partitions = [p for p in PARTITIONS if p[0] in topics]
        final = read_all(self.listen, partitions)
        bounds = bounds_of(self.listen, partitions)
        sends = [writer.sends for writer in self.writers]
        verdict.anomalies += check(sends, [], final, bounds)
        if TRIMMED in topics:
            self._examine_trimmed(verdict)
        verdict.sent = sum(map(len, sends)) + len(self.trimmed)
        verdict.acked = sum(one.acked_count for one in (*sends, self.trimmed))

    def _examine_trimmed(self, verdict: Verdict) -> None:
        partition = (TRIMMED, 0)
        start, end = bounds_of(self.listen, [partition])[partition]
        if start not in (0, TRIMMED_AT) or (start == 0 and "trim" in self.done):
            verdict.problems.append(f"trimmed at {TRIMMED_AT}, and begins at {start}")
        with Consumer(self.listen, stop_at_end=True) as consumer:
            consumer.assign([partition], start="start")
            found = {record.offset: record.value for record in consumer}
        # What was refused may be there: it is seen as soon as the partition is written to again,
        # perhaps since the end was asked for.
        _, end_behind = bounds_of(self.listen, [partition])[partition]
        ends = range(end, end_behind + 1)
        if not any(sorted(found) == list(range(start, one)) for one in ends):
            verdict.problems.append(f"offsets {sorted(found)} of [{start}, {end} to {end_behind})")
        for number in range(len(self.trimmed)):
            offset = self.trimmed.offset_of(number)
            record = value_of(Record(9, number), 100)
            if offset >= start and found.get(offset) != record:
                verdict.problems.append(f"record {number}, acknowledged at {offset}: not there")


def _create(admin: Admin, topic: str, config: dict[str, str]) -> Callable[[], object]:
    return lambda: admin.create_topic(topic, partitions=1, config=config)


def _grow(admin: Admin, topic: str) -> Callable[[], object]:
    def grow() -> None:
        if len(admin.describe_topic(topic).partitions) < 2:
            admin.create_partitions(topic, 2)

    return grow


def kill_at(data: Path, call: str, number: int) -> Verdict:
    """SIGKILL on entering the `number`-th `call` of a thread; then everything must be as asked."""
    begun_s = time.monotonic()
    verdict = Verdict(f"SIGKILL at {call} {number}")
    life = Life(data, f"{call}:signal=KILL:when={number}")
    work = Work(life.listen, PATIENCE_S)
    try:
        work.all()
    finally:
        life.end()
    if life.was_killed:
        hit = [one for one in life.calls() if one.name == call]
        verdict.fired = _shown(hit[-1], data) if hit else call
    verdict.problems += work.refused
    _problems_of(work.writers, verdict)
    with daemons.running(data) as daemon:
        work.listen = daemon.address
        work.examine(verdict)
    if verdict.acked != verdict.sent:
        verdict.problems.append(f"{verdict.acked} of {verdict.sent} acknowledged")
    verdict.problems += _left_behind(data)
    verdict.seconds = time.monotonic() - begun_s
    return verdict


def fail_at(data: Path, call: str, error: int, number: int) -> Verdict:
    """`error` (EIO, ENOSPC) from the `number`-th `call` of a thread; the daemon has to live on."""
    begun_s = time.monotonic()
    name = {EIO: "EIO", ENOSPC: "ENOSPC"}[error]
    verdict = Verdict(f"{name} at {call} {number}")
    passes = error == ENOSPC
    life = Life(data, f"{call}:error={name}:when={number}", calls=FAILURE_CALLS)
    work = Work(life.listen, PATIENCE_S if passes else SHORT_PATIENCE_S)
    started = _wait_started(life)
    if started:
        work.all()
        work.examine(verdict)
        _probe(work, verdict, error, passes=passes)
    code = life.end()
    calls = life.calls()
    hit = [one for one in calls if one.injected]
    verdict.fired = "; ".join(_shown(one, data) for one in hit[:3])
    verdict.problems += traced.second_syncs(calls)
    if life.was_killed or code < 0:
        verdict.problems.append(f"the daemon died: exit code {code}")
    log = daemons.log_of(data).read_text()
    if hit and os.strerror(error) not in log:
        verdict.problems.append(f"the log does not say {os.strerror(error)!r}")
    if "Traceback" in log:
        verdict.problems.append("a traceback in the log: " + log[log.index("Traceback") :][:2_000])
    if not started and not hit:
        verdict.problems.append("it did not start, though nothing was injected")
    _problems_of(work.writers, verdict, failures_allowed=not passes)
    if passes:
        verdict.problems += work.refused
    with daemons.running(data) as daemon:
        work.listen = daemon.address
        work.examine(verdict)
        _probe(work, verdict, 0, passes=True)
    verdict.seconds = time.monotonic() - begun_s
    return verdict


def _wait_started(life: Life) -> bool:
    """Whether it takes connections; False when it ended instead."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not life.has_ended:
        with suppress(SegbrokerError), Admin(life.listen, connect_timeout_ms=300):
            return True
        if time.monotonic() > deadline_s:
            raise AssertionError("neither ready nor ended")
    return False


def _probe(work: Work, verdict: Verdict, error: int, *, passes: bool) -> None:
    """One more record to each partition: taken, or refused with the cause in the message.

    Who is refused is told at the end of the time; on a busy machine it may be too short.
    """
    for writer in work.writers:
        for partition in writer.sends.partitions:
            for patience_s in (PATIENCE_S,) if passes else (1, PATIENCE_S):
                refusal = _one_more(work.listen, writer.sends, partition, patience_s)
                if refusal is None or (not passes and os.strerror(error) in refusal):
                    break
            else:
                verdict.problems.append(f"a record more to {partition}: {refusal}")


def _one_more(listen: str, sends: Sends, partition: Partition, patience_s: int) -> str | None:
    """Why it was not taken; None: it was."""
    refusal = None
    with (
        suppress(SegbrokerError),
        Producer(listen, linger_ms=0, delivery_timeout_ms=1000 * patience_s) as producer,
    ):
        record = sends.send(partition)
        topic, number = partition
        try:
            receipt = producer.send(topic, value_of(record, 100), partition=number).result()
            sends.ack(record.number, receipt.offset)
        except SegbrokerError as exc:
            refusal = str(exc)
    return refusal


def _problems_of(
    writers: list[Writing], verdict: Verdict, *, failures_allowed: bool = False
) -> None:
    for writer in writers:
        verdict.problems += writer.problems
        if writer.failed and not failures_allowed:
            verdict.problems.append(f"{writer.name}: {writer.failed} failed: {writer.last_error}")


def _left_behind(data: Path) -> list[str]:
    """Folders of topics that are gone, temporary files: nothing a finished recovery leaves."""
    found = [str(path) for path in data.rglob("*") if path.name.startswith("~")]
    found += [str(path) for path in data.rglob("quarantine")]
    return [f"left behind: {path}" for path in found]


def _shown(call: traced.Call, data: Path) -> str:
    path = call.path.removeprefix(str(data))
    return f"{call.name} {path or call.rest[:80]}"

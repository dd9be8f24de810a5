"""Java's share consumers, told step by step what to do (tests/support/clients/ShareConsumers.java).

One virtual machine has any number of consumers, by name, and an admin.
"""

import queue
import subprocess
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..support.java import LEAVE_S, START_S, program

# Java's own limits are below it: who answers nothing for so long hangs.
ANSWER_S: Final = 120.0
# How long records that are due may take, on a machine with much else to do.
ARRIVE_S: Final = 60.0
POLL_MS: Final = 250


class Refused(Exception):
    """Java raised an exception instead.

    Attributes:
        name: its class, without the package.
    """

    def __init__(self, name: str, said: str) -> None:
        super().__init__(f"{name}: {said}")
        self.name = name


class Handed(NamedTuple):
    """A record as a consumer got it."""

    topic: str
    partition: int
    offset: int
    deliveries: int
    value: str


class JavaShares:
    """A virtual machine with share consumers in it."""

    def __init__(self, address: str, folder: Path, conf: Mapping[str, object] = {}) -> None:
        """Start it, and wait until it runs.

        Args:
            folder: outlives the run.
            conf: settings of all consumers and of the admin, by Kafka's names.
        """
        self._log = (folder / f"shares-{time.monotonic_ns()}.log").open("w+")
        settings = [f"{key}={value}" for key, value in conf.items()]
        self._process = subprocess.Popen(
            [*program("ShareConsumers", folder), address, *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._next(START_S) == "ready"

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self._lines.put(line.rstrip("\n"))

    def _next(self, limit_s: float) -> str:
        try:
            return self._lines.get(timeout=limit_s)
        except queue.Empty:
            self._log.seek(0)
            raise AssertionError(
                f"no word for {limit_s:.0f} s: {self._log.read()[-4_000:]}"
            ) from None

    def tell(self, *words: object) -> list[list[str]]:
        """Have a command done; the words of each line of the answer.  Raises Refused."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        found = []
        while (line := self._next(ANSWER_S)) != ".":
            row = line.split("\t")
            if row[0] == "!":
                raise Refused(row[1], row[2])
            found.append(row)
        return found

    def consumer(self, name: str, group: str, *topics: str, **conf: object) -> "JavaConsumer":
        """A consumer that has subscribed; `conf` by Kafka's names, with _ for a dot."""
        settings = [f"{key.replace('_', '.')}={value}" for key, value in conf.items()]
        self.tell("open", name, f"group.id={group}", *settings)
        consumer = JavaConsumer(self, name)
        self.tell("subscribe", name, *topics)
        return consumer

    def set(self, group: str, **conf: object) -> None:
        """Change settings of a group; names as of `consumer`."""
        self.tell("set", group, *(f"{key.replace('_', '.')}={it}" for key, it in conf.items()))

    def offsets(self, group: str) -> dict[tuple[str, int], tuple[int, int]]:
        """Where a group begins in each partition that it knows, and its lag; -1 for unknown."""
        rows = self.tell("offsets", group)
        return {
            (topic, int(partition)): (
                -1 if start == "None" else int(start),
                -1 if lag == "None" else int(lag),
            )
            for _, topic, partition, start, lag in rows
        }

    def lag(self, group: str, topic: str, partition: int = 0) -> int:
        """How many records the group is not done with.  (Where it begins, Kafka says late.)"""
        return self.offsets(group)[topic, partition][1]

    def state(self, group: str) -> str:
        """That of a share group, as describeShareGroups has it."""
        return self.tell("describe", group)[0][2]

    def members(self, group: str) -> dict[str, list[str]]:
        """What each member has to fetch from, by client id: `TOPIC-PARTITION`."""
        rows = self.tell("describe", group)[1:]
        return {row[1]: row[2].split(",") if len(row) > 2 and row[2] else [] for row in rows}

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()

    def __enter__(self) -> "JavaShares":
        return self

    def __exit__(self, *_: object) -> None:
        """End it: its consumers leave, unless it was killed."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(LEAVE_S)
        self._thread.join(LEAVE_S)
        self._log.close()


class JavaConsumer:
    """One of the consumers."""

    def __init__(self, java: JavaShares, name: str) -> None:
        self.name = name
        self._java = java

    def poll(self, wait_ms: int = POLL_MS) -> list[Handed]:
        """What one poll brings."""
        return [
            Handed(topic, int(partition), int(offset), int(deliveries), value)
            for _, topic, partition, offset, deliveries, value in self._java.tell(
                "poll", self.name, wait_ms
            )
        ]

    def until(self, count: int, within_s: float = ARRIVE_S) -> list[Handed]:
        """Poll until so many records came in all; with implicit acknowledgement each poll says
        that those of before are done."""
        found: list[Handed] = []
        ends = time.monotonic() + within_s
        while len(found) < count:
            assert time.monotonic() < ends, f"{len(found)} of {count} records: {found[-5:]}"
            found += self.poll()
        return found

    def nothing_for(self, polls: int = 4) -> None:
        """See that no record comes."""
        for _ in range(polls):
            assert self.poll() == []

    def acknowledge(self, record: Handed, how: str) -> None:
        """Say what became of a record: ACCEPT, RELEASE, REJECT, RENEW; sent with what is next."""
        self._java.tell(
            "acknowledge", self.name, record.topic, record.partition, record.offset, how
        )

    def commit(self) -> dict[tuple[str, int], str]:
        """Send what was acknowledged; partition -> class of the exception, or "None"."""
        return {(row[1], int(row[2])): row[3] for row in self._java.tell("commit", self.name)}

    def told(self) -> list[tuple[str, list[int]]]:
        """What its callback heard since: (class of the exception or "None", offsets)."""
        return _told(self._java.tell("told", self.name))

    def subscribe(self, *topics: str) -> None:
        self._java.tell("subscribe", self.name, *topics)

    def unsubscribe(self) -> None:
        self._java.tell("unsubscribe", self.name)

    @property
    def lock_ms(self) -> int:
        """For how long records are its own, as the broker said."""
        return int(self._java.tell("lock", self.name)[0][1])

    def close(self) -> list[tuple[str, list[int]]]:
        """Leave; what its callback heard."""
        return _told(self._java.tell("close", self.name))


def _told(rows: Collection[list[str]]) -> list[tuple[str, list[int]]]:
    return [(row[3], [int(one) for one in row[4].split(",")]) for row in rows]

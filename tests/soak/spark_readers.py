"""Both readers of Spark's rows over random logs: python -m tests.soak.spark_readers --seconds 120.

Each round draws a log (codecs, nulls, headers, transactions, gaps, sparse offsets, now and then
bytes of nonsense under a right checksum), how much of it each fetch gets, and a range.  The reader
in the jar must hand out the rows that the one in Python does, or fail where it fails; of a log with
nonsense and compressed batches either may look more closely.  A difference is printed with its
seed (exit code 1).
"""

import argparse
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from random import Random

from segbroker.protocol.messages_core import FetchRequest, FetchResponse
from segbroker.protocol.messages_core import FetchResponseAbortedTransaction as Aborted
from segbroker.protocol.record_batch import (
    Codec,
    GapReason,
    gap_batches,
    read_header,
)
from segbroker.spark import session
from segbroker.spark.errors import SourceError
from segbroker.spark.fetching import Task
from segbroker.spark.offsets import OffsetRange
from segbroker.spark.options import SourceOptions
from segbroker.spark.session import JAR
from tests.spark.batches import batch, end_marker, with_checksum
from tests.spark.jar import JarReader, Row, options_of, read_in_python
from tests.spark.scripted_broker import TOPIC, ScriptedBroker, fetched

from ..support.thinned import filter_batch

BATCHES_MAX = 12
RECORDS_MAX = 30
DAMAGED_PERCENT = 10


class Log:
    """A random log of one partition, and how a broker would answer fetches of it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._open: dict[int, int] = {}
        self.batches: list[bytes] = []
        self.ends: list[int] = []
        # First offset, offset of the marker, producer.
        self.aborted: list[tuple[int, int, int]] = []
        self.is_damaged = False
        self.end = 0
        for _ in range(random.randint(1, BATCHES_MAX)):
            self._add_one()
        for producer in list(self._open):
            self._end_transaction(producer)

    def answer(self, request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        first = bisect_right(self.ends, offset)
        count = Random(offset).randint(1, 4)
        found = self.batches[first : first + count]
        until = self.ends[min(first + count, len(self.ends)) - 1] if self.ends else 0
        aborted = [
            Aborted(producer_id=producer, first_offset=begin)
            for begin, marker, producer in self.aborted
            if begin < until and marker >= offset
        ]
        return fetched(*found, high_watermark=self.end, aborted=aborted)

    def _append(self, data: bytes, next_offset: int) -> None:
        self.batches.append(data)
        self.ends.append(next_offset)
        self.end = next_offset

    def _add_one(self) -> None:
        random = self._random
        kind = random.random()
        if kind < 0.1:
            size = random.randint(1, 20)
            (gap,) = gap_batches(self.end, self.end + size, random.choice(list(GapReason)), 0, 0)
            self._append(gap, self.end + size)
        elif kind < 0.3 and self._open:
            self._end_transaction(random.choice(list(self._open)))
        else:
            self._records()

    def _end_transaction(self, producer: int) -> None:
        begin = self._open.pop(producer)
        is_committed = self._random.random() < 0.5
        if not is_committed:
            self.aborted.append((begin, self.end, producer))
        self._append(end_marker(self.end, producer, committed=is_committed), self.end + 1)

    def _records(self) -> None:
        random = self._random
        count = random.randint(1, RECORDS_MAX)
        producer = random.choice((-1, -1, 5, 6))
        if producer >= 0:
            self._open.setdefault(producer, self.end)
        headers = [
            [(random.choice(("a", "ü" * 70)), self._bytes()) for _ in range(random.randint(0, 3))]
            for _ in range(count)
        ]
        data = batch(
            self.end,
            [self._bytes() for _ in range(count)],
            keys=[self._bytes() for _ in range(count)],
            headers=headers,
            timestamps_ms=[random.randrange(1 << 44) for _ in range(count)],
            codec=random.choice(list(Codec)),
            producer_id=producer,
        )
        if random.random() < 0.3:
            drop = {self.end + n for n in range(count) if random.random() < 0.5}
            data = filter_batch(data, drop, 0)
        if random.randrange(100) < DAMAGED_PERCENT and len(data) > 61:
            damaged = bytearray(data)
            for _ in range(random.randint(1, 3)):
                damaged[random.randrange(61, len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            data = with_checksum(damaged)
            self.is_damaged = True
        self._append(data, self.end + count)

    def _bytes(self) -> bytes | None:
        random = self._random
        size = random.choice((-1, 0, 1, 5, 63, 64, 200, 9000))
        return None if size < 0 else random.randbytes(min(size, 8)) * -(-size // 8)


def rows_or_none(
    read: Callable[[SourceOptions, Task], list[Row]], options: SourceOptions, task: Task
) -> list[Row] | None:
    try:
        return read(options, task)
    except SourceError:
        return None


def one(seed: int, jar: JarReader) -> tuple[int, str | None]:
    """How many rows the round had, and what is wrong with them."""
    random = Random(seed)
    log = Log(random)
    low, high = sorted(random.randrange(log.end + 1) for _ in range(2))
    more = {
        "failOnDataLoss": random.choice(("true", "false")),
        "kafka.isolation.level": random.choice(("read_committed", "read_uncommitted")),
        "kafkaConsumer.pollTimeoutMs": "20000",
    }
    with ScriptedBroker(log.answer, log_end=log.end).running() as broker:
        task = Task(OffsetRange(TOPIC, 0, low, high), broker.address)
        options = options_of(broker, **more)
        expected = rows_or_none(read_in_python, options, task)
        found = rows_or_none(jar.read, options, task)
    if found == expected or (log.is_damaged and None in (found, expected) and _is_packed(log)):
        return len(expected or ()), None
    pairs = zip(expected or (), found or (), strict=False)
    first = next((f"; {ours} / {its}" for ours, its in pairs if ours != its), "")
    return 0, f"[{low}, {high}) {more}: {_text(expected)} / {_text(found)}{first}"


def _is_packed(log: Log) -> bool:
    """Whether some batch is a compressed one."""
    return any(read_header(data).attributes & 7 for data in log.batches)


def _text(rows: list[Row] | None) -> str:
    return "an error" if rows is None else f"{len(rows)} rows"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.spark_readers", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int, help="repeat the round of one seed")
    options = parser.parse_args()
    if not JAR.is_file():
        print("readers of Spark: there is no jar, nothing to compare (make jar)")
        return 0
    spark = session({"spark.master": "local[1]", "spark.log.level": "OFF"})
    jar = JarReader(spark)
    if options.one is not None:
        print(one(options.one, jar))
        return 0
    deadline_s = time.monotonic() + options.seconds
    rounds, rows, wrong = 0, 0, 0
    while time.monotonic() < deadline_s:
        seed = options.seed * 1_000_000 + rounds
        count, trouble = one(seed, jar)
        rounds, rows = rounds + 1, rows + count
        if trouble is not None:
            wrong += 1
            print(f"DIFFERENT (--one {seed}): {trouble}", flush=True)
    spark.stop()
    print(
        f"readers of Spark: seed {options.seed}, {options.seconds} s, {rounds} random logs,"
        f" {rows} rows alike, {wrong} different"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""What clients did and saw, and which anomalies are in it; the names are Jepsen's where it has one.

    Sends    what one producer sent: the n-th record, its partition, the offset of its ack
    Reads    what one reader was handed: offsets, values, gaps, seeks, in that order
    check    both, and the log as it was read at the end -> anomalies

| anomaly | what it is | breaks |
|---|---|---|
| lost-write | acknowledged, or seen by a reader, and not in the log at the end | I1 |
| duplicate | one record at two offsets of the log | I1 |
| inconsistent-offsets | one offset, two values; a record not where an ack or a reader says | I4 |
| foreign | a value in the log, or handed to a reader, that nobody sent to that partition | I2 |
| reordered | two records of one producer and partition in the wrong order in the log | I5 |
| poll-skip | a reader passed over an offset, without a gap or a seek | I6 |
| nonmonotonic-poll | a reader was handed an offset not above the one before, without a seek | I6 |
| unaccounted-offset | an offset of [start, end) that is neither a record nor in a gap | I7 |
| gap | a gap where nothing may be lost: told by the log, or to a reader | I7 |

A record is (producer, number); numbers of a producer rise by one from 0 in the order of its sends.
Sends without an ack may be in the log or not.  A reader that stops early has skipped nothing.

Nothing here does I/O.  One object per thread; `check` when they are at rest.  Compact on purpose
(a few bytes per event): a long run has millions of them.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

Partition: TypeAlias = tuple[str, int]

NUMBER_BITS = 40
UNKNOWN = -1


class Kind(Enum):
    """What may be wrong with a history."""

    LOST_WRITE = "lost-write"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    FOREIGN = "foreign"
    REORDERED = "reordered"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    UNACCOUNTED_OFFSET = "unaccounted-offset"
    GAP = "gap"


class Anomaly(NamedTuple):
    """One finding; `what` names the reader or the producer, and both values."""

    kind: Kind
    partition: Partition
    offset: int
    what: str

    def __str__(self) -> str:
        topic, number = self.partition
        return f"{self.kind.value} at {topic}-{number} offset {self.offset}: {self.what}"


class Record(NamedTuple):
    """The `number`-th send of a producer."""

    producer: int
    number: int

    def pack(self) -> int:
        return (self.producer << NUMBER_BITS) | self.number

    @classmethod
    def unpack(cls, packed: int) -> "Record":
        return cls(packed >> NUMBER_BITS, packed & ((1 << NUMBER_BITS) - 1))


FOREIGN = Record(-1, 0)
"""Stands for a value that is none of ours."""


class Sends:
    """What one producer sent."""

    def __init__(self, producer: int, partitions: Sequence[Partition]) -> None:
        self.producer = producer
        self.partitions = list(partitions)
        self._partition_of = array("H")
        self._offset_of = array("q")

    def __len__(self) -> int:
        return len(self._offset_of)

    def send(self, partition: Partition) -> Record:
        """Note one more record, before it is handed to the client."""
        self._partition_of.append(self.partitions.index(partition))
        self._offset_of.append(UNKNOWN)
        return Record(self.producer, len(self) - 1)

    def ack(self, number: int, offset: int) -> None:
        """The broker acknowledged it, at this offset."""
        self._offset_of[number] = offset

    def partition_of(self, number: int) -> Partition:
        return self.partitions[self._partition_of[number]]

    def offset_of(self, number: int) -> int:
        return self._offset_of[number]

    @property
    def acked_count(self) -> int:
        return len(self) - self._offset_of.count(UNKNOWN)

    def acks(self) -> "array[int]":
        """The acknowledgements of now, for `as_of`; from any thread."""
        return self._offset_of[:]

    def as_of(self, acks: "array[int]") -> "Sends":
        """The same records, of which only these are acknowledged."""
        one = Sends(self.producer, self.partitions)
        one._partition_of = self._partition_of
        one._offset_of = acks + array("q", [UNKNOWN]) * (len(self) - len(acks))
        return one


class _Lane:
    """One reader on one partition: (offset, record), (start, -1 - end) of a gap, (offset, SEEK)."""

    __slots__ = ("offsets", "values")
    SEEK = -(1 << 62)

    def __init__(self) -> None:
        self.offsets = array("q")
        self.values = array("q")

    def add(self, offset: int, value: int) -> None:
        self.offsets.append(offset)
        self.values.append(value)


class Reads:
    """What one reader was handed; `name` is what anomalies call it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: dict[Partition, _Lane] = {}

    def _lane(self, partition: Partition) -> _Lane:
        lane = self.lanes.get(partition)
        if lane is None:
            lane = self.lanes[partition] = _Lane()
        return lane

    def poll(self, partition: Partition, offset: int, record: Record) -> None:
        """It was handed this record."""
        value = record.pack() if record != FOREIGN else _FOREIGN
        self._lane(partition).add(offset, value)

    def gap(self, partition: Partition, start: int, end: int) -> None:
        """It was told that [start, end) is lost or deleted."""
        self._lane(partition).add(start, -1 - end)

    def seek(self, partition: Partition, offset: int) -> None:
        """It asked to go on there."""
        self._lane(partition).add(offset, _Lane.SEEK)

    @property
    def records_count(self) -> int:
        return sum(sum(value >= 0 for value in lane.values) for lane in self.lanes.values())


_FOREIGN = _Lane.SEEK + 1


class Bounds(NamedTuple):
    """[start, end) of a partition, as the broker says at the end of the run."""

    start: int
    end: int


def check(
    sends: Iterable[Sends],
    readers: Iterable[Reads],
    final: Reads,
    bounds: dict[Partition, Bounds],
    *,
    gaps_allowed: bool = False,
) -> list[Anomaly]:
    """Every anomaly of a history.

    final: the whole log, read when all was over.  gaps_allowed: what a gap covers was lost with
    notice, and is no anomaly (after damage; never after a mere kill).
    """
    by_producer = {one.producer: one for one in sends}
    found: list[Anomaly] = []
    logs: dict[Partition, _Log] = {}
    for partition in sorted({*bounds, *final.lanes}):
        log = logs[partition] = _Log(partition, by_producer, found)
        log.fill(final.lanes.get(partition, _Lane()), gaps_allowed=gaps_allowed)
        if partition in bounds:
            log.account(bounds[partition])
    _check_acks(by_producer, logs, found)
    for reader in readers:
        for partition, lane in sorted(reader.lanes.items()):
            log = logs.get(partition) or _Log(partition, by_producer, found)
            _check_reader(reader.name, lane, log, gaps_allowed=gaps_allowed)
    return found


class _Log:
    """One partition as it was at the end."""

    def __init__(self, partition: Partition, sends: dict[int, Sends], found: list[Anomaly]) -> None:
        self.partition = partition
        self.at: dict[int, int] = {}
        self.place: dict[int, int] = {}
        self.gaps: list[tuple[int, int]] = []
        self._sends = sends
        self._found = found

    def report(self, kind: Kind, offset: int, what: str) -> None:
        self._found.append(Anomaly(kind, self.partition, offset, what))

    def is_ours(self, value: int) -> bool:
        """Whether somebody sent this to this partition."""
        if value == _FOREIGN:
            return False
        producer, number = Record.unpack(value)
        sends = self._sends.get(producer)
        if sends is None or number >= len(sends):
            return False
        return sends.partition_of(number) == self.partition

    def fill(self, lane: _Lane, *, gaps_allowed: bool) -> None:
        """The final reading: duplicates, foreign values, order per producer."""
        newest: dict[int, int] = {}
        highest = -1
        for offset, value in zip(lane.offsets, lane.values, strict=True):
            if value == _Lane.SEEK:
                continue
            if offset <= highest:
                self.report(
                    Kind.NONMONOTONIC_POLL, offset, f"the final reading was at {highest} before"
                )
            if value < 0 and value != _FOREIGN:
                self.gaps.append((offset, -1 - value))
                highest = max(highest, -2 - value)
                if not gaps_allowed:
                    self.report(Kind.GAP, offset, f"[{offset}, {-1 - value}) is lost")
                continue
            highest = max(highest, offset)
            self.at[offset] = value
            if not self.is_ours(value):
                self.report(Kind.FOREIGN, offset, f"{_name(value)} was not sent here")
                continue
            first = self.place.setdefault(value, offset)
            if first != offset:
                self.report(Kind.DUPLICATE, offset, f"{_name(value)} is at {first} too")
            producer, number = Record.unpack(value)
            if number < newest.get(producer, -1):
                self.report(
                    Kind.REORDERED,
                    offset,
                    f"{_name(value)} behind number {newest[producer]} of the same producer",
                )
            newest[producer] = max(number, newest.get(producer, -1))

    def account(self, bounds: Bounds) -> None:
        """Every offset of [start, end) is a record or in a gap."""
        covered = sorted([*((o, o + 1) for o in self.at), *self.gaps])
        expected = bounds.start
        for start, end in covered:
            if start > expected:
                self.report(
                    Kind.UNACCOUNTED_OFFSET, expected, f"[{expected}, {start}) is nothing at all"
                )
            expected = max(expected, end)
        if expected < bounds.end:
            self.report(
                Kind.UNACCOUNTED_OFFSET, expected, f"[{expected}, {bounds.end}) is nothing at all"
            )

    def in_gap(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.gaps)

    def miss(self, value: int, offset: int, who: str, *, gaps_allowed: bool) -> None:
        """Somebody knows `value` at `offset`: the log has to have it there."""
        place = self.place.get(value)
        if place == offset:
            return
        if place is not None:
            self.report(
                Kind.INCONSISTENT_OFFSETS, offset, f"{_name(value)}, {who}, lies at {place}"
            )
        elif not (gaps_allowed and self.in_gap(offset)):
            self.report(Kind.LOST_WRITE, offset, f"{_name(value)}, {who}, is not in the log")
        other = self.at.get(offset)
        if other is not None:
            self.report(
                Kind.INCONSISTENT_OFFSETS,
                offset,
                f"{_name(value)}, {who}, and {_name(other)} in the log",
            )


def _check_acks(sends: dict[int, Sends], logs: dict[Partition, _Log], found: list[Anomaly]) -> None:
    for producer, one in sorted(sends.items()):
        for number in range(len(one)):
            offset = one.offset_of(number)
            if offset == UNKNOWN:
                continue
            partition = one.partition_of(number)
            log = logs.get(partition)
            if log is None:
                log = logs[partition] = _Log(partition, sends, found)
            value = Record(producer, number).pack()
            log.miss(value, offset, "acknowledged there", gaps_allowed=bool(log.gaps))


def _check_reader(name: str, lane: _Lane, log: _Log, *, gaps_allowed: bool) -> None:
    """One reader on one partition: it rises, it skips nothing, it saw what is there."""
    before: int | None = None
    for offset, value in zip(lane.offsets, lane.values, strict=True):
        if value == _Lane.SEEK:
            before = offset - 1
            continue
        if before is not None and offset <= before:
            log.report(Kind.NONMONOTONIC_POLL, offset, f"{name} was at {before} before")
        elif before is not None:
            passed = [at for at in range(before + 1, offset) if not log.in_gap(at)]
            if passed:
                log.report(
                    Kind.POLL_SKIP, passed[0], f"{name} went from {before} to {offset} over it"
                )
        if value < 0 and value != _FOREIGN:
            if not gaps_allowed:
                log.report(
                    Kind.GAP, offset, f"{name} was told that [{offset}, {-1 - value}) is lost"
                )
            before = -2 - value
            continue
        before = offset
        if not log.is_ours(value):
            log.report(Kind.FOREIGN, offset, f"{name} was handed {_name(value)}")
        else:
            log.miss(value, offset, f"seen there by {name}", gaps_allowed=gaps_allowed)


def _name(value: int) -> str:
    if value == _FOREIGN:
        return "a value of nobody"
    producer, number = Record.unpack(value)
    return f"record {number} of producer {producer}"


def counts(anomalies: Iterable[Anomaly]) -> str:
    """`lost-write 3, gap 1`, or `none`."""
    number_of = Counter(anomaly.kind.value for anomaly in anomalies)
    return ", ".join(f"{name} {count}" for name, count in sorted(number_of.items())) or "none"

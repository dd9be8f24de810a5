"""What clients did and saw, and the anomalies in it, named as Jepsen names them.

The clients of a run write down what they did while faults go on; then every partition is read once
more from start to end (`final`), and `anomalies` says what does not fit together.

Beside tests/faults/history.py, which holds millions of sends in arrays: this one knows what each
class promises, batches, deletions and starts, and has a few hundred records.

| anomaly              | what was seen                                                     | rule |
|----------------------|-------------------------------------------------------------------|------|
| lost-write           | an acknowledged record is not there, no permitted gap says so     | I1   |
| dirty-read           | a record that a reader had got is not there, and no gap says so   | I1   |
| foreign-record       | a record that nobody sent to this partition                       | I2 I9|
| torn-batch           | a part of an unacknowledged batch                                 | I3   |
| inconsistent-offsets | one offset with two records, or a record at two offsets by acks   | I4   |
| duplicate            | a record twice, though its producer is idempotent and gave none up | I5  |
| reordered            | records of an idempotent producer not in the order of sending,    | I5   |
|                      | unless a gap is, or was, where they were: they were sent again    |      |
| nonmonotonic-poll    | a reader was given an offset at or below one it had               | I6   |
| poll-skip            | a reader passed over a record that is there                       | I6   |
| unaccounted-offsets  | the log has offsets that are neither record nor gap               | I7   |
| start-regressed      | the log starts lower than it did                                  | I8   |

Values are identities: a harness sends each value once per run.  A topic that is deleted and created
again while clients work is *churned*: its offsets begin anew, so only foreign records count there.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken promise."""

    name: str
    key: Key
    text: str

    def __str__(self) -> str:
        return f"{self.name} in {self.key[0]}-{self.key[1]}: {self.text}"


@dataclass(slots=True)
class Sent:
    """A record as its producer knows it."""

    producer: str
    number: int  # per producer and partition, in the order of sending
    batch: object  # records with the same one stand or fall together; None: not known
    idempotent: bool
    offset: int | None = None  # acknowledged at


@dataclass(slots=True)
class Final:
    """A partition as the last reader found it; `gaps` are (from, to, reason), half-open."""

    start: int
    end: int
    rows: list[tuple[int, bytes]]
    gaps: list[tuple[int, int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Promise:
    """What may be missing of a topic: reasons of gaps that are no violation."""

    permitted_gaps: set[str] = field(default_factory=set)
    churned: bool = False
    doubted: list[tuple[int, int, int]] = field(default_factory=list)
    """(partition, from, to) of files that somebody took away: a gap `corruption` may be there."""


class History:
    """See the module.  Not thread-safe."""

    def __init__(self) -> None:
        self.promises: dict[str, Promise] = defaultdict(Promise)
        self.sent_by_key: dict[Key, dict[bytes, Sent]] = defaultdict(dict)
        self.reads: dict[Key, dict[str, list[tuple[int, bytes]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.deleted_before: dict[Key, int] = defaultdict(int)
        self.finals: dict[Key, Final] = {}
        self.starts: dict[Key, int] = defaultdict(int)
        self.gaps: dict[Key, set[int]] = defaultdict(set)
        self._numbers: dict[tuple[str, Key], int] = defaultdict(int)

    # What happened

    def sent(
        self,
        producer: str,
        key: Key,
        value: bytes,
        *,
        idempotent: bool = True,
        batch: object = None,
    ) -> Sent:
        """A record is handed to a producer; what becomes of it is open."""
        assert value not in self.sent_by_key[key], f"{value!r} was sent before"
        number = self._numbers[producer, key]
        self._numbers[producer, key] = number + 1
        sent = self.sent_by_key[key][value] = Sent(producer, number, batch, idempotent)
        return sent

    def acked(self, key: Key, value: bytes, offset: int) -> None:
        """It was acknowledged at `offset` (-1: the broker no longer knew where)."""
        self.sent_by_key[key][value].offset = offset

    def read(self, reader: str, key: Key, offset: int, value: bytes) -> None:
        """A reader was given a record."""
        self.reads[key][reader].append((offset, value))

    def asked_delete(self, key: Key, before: int) -> None:
        """Somebody asked for the records before this offset to go; whether they did is open."""
        self.deleted_before[key] = max(self.deleted_before[key], before)

    def saw_start(self, key: Key, start: int) -> None:
        """The log began here at some time."""
        self.starts[key] = max(self.starts[key], start)

    def saw_gap(self, key: Key, begin: int) -> None:
        """A recovery found damage there, and put a gap in its place; it may be evicted since."""
        self.gaps[key].add(begin)

    def final(self, key: Key, final: Final) -> None:
        """What a fresh reader found in the end."""
        self.finals[key] = final

    # What is wrong with it

    def anomalies(self) -> Iterator[Anomaly]:
        """Everything that breaks a promise; needs the `final` of each partition used."""
        for key, final in self.finals.items():
            yield from self._foreign(key, final)
            if self.promises[key[0]].churned:
                continue
            yield from self._lost(key, final)
            yield from self._torn(key, final)
            yield from self._offsets(key, final)
            yield from self._order(key, final)
            yield from self._accounted(key, final)
            for reader, reads in self.reads[key].items():
                yield from self._polls(key, final, reader, reads)

    def _foreign(self, key: Key, final: Final) -> Iterator[Anomaly]:
        sent = self.sent_by_key[key]
        seen = [(offset, value, "in the end") for offset, value in final.rows]
        for reader, reads in self.reads[key].items():
            seen += [(offset, value, f"by {reader}") for offset, value in reads]
        for offset, found, where in seen:
            if found not in sent:
                yield Anomaly("foreign-record", key, f"{found[:60]!r} at {offset}, read {where}")

    def _is_excused(self, key: Key, offset: int, final: Final) -> bool:
        """Whether nothing promises that the record at `offset` is there."""
        if offset < final.start:
            # Without the manifest nobody knows why what is not in front of the first file is gone.
            return (
                offset < self.deleted_before[key]
                or bool(self.promises[key[0]].permitted_gaps & {"ttl", "cap"})
                or self._is_doubted(key, offset)
            )
        permitted = self.promises[key[0]].permitted_gaps
        told = {reason for a, b, reason in final.gaps if a <= offset < b}
        return bool(told & permitted) or ("corruption" in told and self._is_doubted(key, offset))

    def _is_doubted(self, key: Key, offset: int) -> bool:
        return any(
            partition == key[1] and begin <= offset < end
            for partition, begin, end in self.promises[key[0]].doubted
        )

    def _lost(self, key: Key, final: Final) -> Iterator[Anomaly]:
        there = {value: offset for offset, value in final.rows}
        for value, sent in self.sent_by_key[key].items():
            if sent.offset is None or value in there:
                continue
            if not self._is_excused(key, sent.offset, final):
                yield Anomaly(
                    "lost-write",
                    key,
                    f"{value[:60]!r} acknowledged at {sent.offset}, the log is "
                    f"[{final.start}, {final.end}) with gaps {final.gaps}",
                )
        for reader, reads in self.reads[key].items():
            for offset, got in reads:
                if got in there or self._is_excused(key, offset, final):
                    continue
                yield Anomaly("dirty-read", key, f"{got[:60]!r} at {offset}, read by {reader}")

    def _torn(self, key: Key, final: Final) -> Iterator[Anomaly]:
        there = {value for _, value in final.rows}
        batches: dict[object, list[bytes]] = defaultdict(list)
        for value, sent in self.sent_by_key[key].items():
            if sent.batch is not None and sent.offset is None:
                batches[sent.batch].append(value)
        for values in batches.values():
            found = [value in there for value in values]
            if any(found) and not all(found) and not self.deleted_before[key]:
                yield Anomaly("torn-batch", key, f"{values[:8]} are there as {found[:8]}")

    def _offsets(self, key: Key, final: Final) -> Iterator[Anomaly]:
        names: dict[int, bytes] = {}
        claims = [(offset, value, "in the log") for offset, value in final.rows]
        for value, sent in self.sent_by_key[key].items():
            if sent.offset is not None and sent.offset >= 0:
                claims.append((sent.offset, value, "by its ack"))
        for reader, reads in self.reads[key].items():
            claims += [(offset, value, f"read by {reader}") for offset, value in reads]
        for offset, value, where in claims:
            other = names.setdefault(offset, value)
            if other != value:
                yield Anomaly(
                    "inconsistent-offsets",
                    key,
                    f"offset {offset} is {other[:60]!r} and {value[:60]!r} ({where})",
                )

    def _order(self, key: Key, final: Final) -> Iterator[Anomaly]:
        last: dict[str, int] = {}
        # Before each gap: the highest number of each producer by then.
        before_gaps: list[dict[str, int]] = []
        evicted = {begin for begin in self.gaps[key] if begin < final.start}
        gaps = sorted(evicted.union(begin for begin, _, _ in final.gaps))
        seen: set[bytes] = set()
        for offset, value in final.rows:
            while len(before_gaps) < len(gaps) and gaps[len(before_gaps)] <= offset:
                before_gaps.append(dict(last))
            sent = self.sent_by_key[key].get(value)
            if sent is None or not sent.idempotent:
                continue
            if value in seen:
                yield Anomaly("duplicate", key, f"{value[:60]!r} again at {offset}")
                continue
            seen.add(value)
            before = last.get(sent.producer, -1)
            was_lost = any(then.get(sent.producer, -1) < sent.number for then in before_gaps)
            if sent.number < before and not was_lost:
                yield Anomaly(
                    "reordered",
                    key,
                    f"{value[:60]!r} at {offset} is number {sent.number} of {sent.producer}, "
                    f"behind number {before}",
                )
            last[sent.producer] = max(before, sent.number)

    def _accounted(self, key: Key, final: Final) -> Iterator[Anomaly]:
        expected = final.start
        spans = sorted([(o, o + 1) for o, _ in final.rows] + [(a, b) for a, b, _ in final.gaps])
        for start, end in spans:
            if start > expected and self.deleted_before[key] < start:
                yield Anomaly("unaccounted-offsets", key, f"[{expected}, {start})")
            expected = max(expected, end)
        if expected < final.end:
            yield Anomaly("unaccounted-offsets", key, f"[{expected}, {final.end}) at the end")
        if final.start < self.starts[key]:
            yield Anomaly("start-regressed", key, f"{final.start}, it was {self.starts[key]}")

    def _polls(
        self, key: Key, final: Final, reader: str, reads: list[tuple[int, bytes]]
    ) -> Iterator[Anomaly]:
        there = dict(final.rows)
        position: int | None = None
        for offset, _ in reads:
            if position is not None:
                if offset < position:
                    yield Anomaly(
                        "nonmonotonic-poll", key, f"{reader} got {offset} at position {position}"
                    )
                skipped = [passed for passed in range(position, offset) if passed in there]
                if skipped and self.deleted_before[key] <= skipped[-1]:
                    yield Anomaly(
                        "poll-skip",
                        key,
                        f"{reader} went from {position} to {offset}; {skipped[:5]} are there",
                    )
            position = offset + 1 if position is None else max(position, offset + 1)

"""The aborted ranges as a reader without a lock sees them while others change them, and as one asks
for them who goes through the batches."""

import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import SupportsIndex, overload

import pytest

from segbroker.protocol.markers import Outcome
from segbroker.protocol.record_batch import BatchHeader, check_batch, encode_batch
from segbroker.segments.log import transaction_index
from segbroker.segments.log.transaction_index import Aborted, TransactionIndex

RANGES = [Aborted(7, 10 * n, 10 * n + 5) for n in range(6)]


class Between:
    """`look` wherever another thread could: between the instructions of what is traced by this."""

    def __init__(self, look: Callable[[], object]) -> None:
        self.look = look

    def __call__(self, frame: FrameType, event: str, arg: object) -> "Between":
        frame.f_trace_opcodes = True
        if event == "opcode":
            sys.settrace(None)
            self.look()
            sys.settrace(self)
        return self


@pytest.mark.parametrize(
    "forget",
    [
        lambda index: index.forget_before(25),
        lambda index: index.forget_marked(25, {15}),
        lambda index: index.forget_at({5, 15}),
    ],
    ids=["the-log-begins-later", "cleaned", "a-marker-goes"],
)
def test_a_reader_is_told_every_range_that_stays_while_others_are_forgotten(
    forget: Callable[[TransactionIndex], object],
) -> None:
    index = TransactionIndex(aborted=RANGES)
    seen: list[list[Aborted]] = []
    traced_before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 wants it of one frame before it begins
    sys.settrace(Between(lambda: seen.append(index.ranges().between(30, 60))))
    try:
        forget(index)
    finally:
        sys.settrace(traced_before)
    assert len(seen) > 10
    assert all(found == RANGES[3:] for found in seen)
    assert len(index.aborted) < len(RANGES)


def header_at(offset: int, producer_id: int) -> BatchHeader:
    batch = encode_batch(
        [b"v"],
        timestamps_ms=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return check_batch(batch)._replace(base_offset=offset)


@pytest.mark.parametrize("seed", range(20))
def test_who_goes_through_the_batches_is_told_of_each_whether_it_was_aborted(seed: int) -> None:
    random = Random(seed)
    index = TransactionIndex()
    batches: list[tuple[int, int]] = []
    outcomes: dict[int, Outcome] = {}  # by the offset of a batch
    for offset in range(random.randrange(200)):
        producer_id = random.randrange(5)
        if producer_id in index.open and random.random() < 0.3:
            outcome = random.choice(list(Outcome))
            for at, whose in batches:
                if whose == producer_id:
                    outcomes.setdefault(at, outcome)
            index.ended(producer_id, outcome, offset)
        else:
            index.began(producer_id, offset)
            batches.append((offset, producer_id))
    begin = random.randrange(60)
    walk = index.ranges().walk()
    for offset, producer_id in batches:
        if offset >= begin:
            is_aborted = outcomes.get(offset) is Outcome.ABORT
            assert walk.has(header_at(offset, producer_id)) == is_aborted, f"{offset=} {begin=}"


class Counted(list[Aborted]):
    """How often one of its rows was looked at."""

    looks = 0

    @overload
    def __getitem__(self, at: SupportsIndex) -> Aborted: ...
    @overload
    def __getitem__(self, at: slice) -> list[Aborted]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Aborted | list[Aborted]:
        self.looks += 1
        return super().__getitem__(at)


def test_beside_a_long_range_each_is_looked_at_once_for_all_batches() -> None:
    """| 0: 1 | 1: 7 | 2 abort | 3: 7 | 4 abort | ... | abort of 1 |"""
    index = TransactionIndex()
    index.began(1, 0)
    for n in range(100):
        index.began(7, 1 + 2 * n)
        index.ended(7, Outcome.ABORT, 2 + 2 * n)
    index.ended(1, Outcome.ABORT, 201)
    ranges = index.ranges()
    rows = Counted(ranges.rows)
    walk = ranges._replace(rows=rows).walk()
    assert all(walk.has(header_at(1 + 2 * n, 7)) for n in range(100))
    assert rows.looks == 101


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_found_whatever_was_forgotten(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_index, "BLOCK", 4)
    random = Random(seed)
    index = TransactionIndex()
    for offset in range(300):
        producer_id = random.randrange(9)
        if producer_id not in index.open:
            index.began(producer_id, offset)
        elif random.random() < (0.02 if producer_id < 2 else 0.5):
            index.ended(producer_id, Outcome.ABORT, offset)
        if random.random() < 0.1:
            start = random.randrange(offset + 1)
            match random.randrange(3):
                case 0:
                    index.forget_before(start)
                case 1:
                    index.forget_at({start})
                case _:
                    index.forget_marked(start, range(0, start, 2))
            index = index.copy()
        begin, size = random.randrange(offset + 1), random.randrange(1, 60)
        meant = [
            row
            for row in index.aborted
            if row.last_offset >= begin and row.first_offset < begin + size
        ]
        found = index.ranges().between(begin, begin + size)
        assert found == sorted(meant, key=lambda row: row.first_offset)


def test_who_asks_for_ranges_beside_a_long_one_passes_over_most_others() -> None:
    """A transaction may be open while a million others are aborted."""
    short = [Aborted(7, 10 * n + 1, 10 * n + 5) for n in range(50 * transaction_index.BLOCK)]
    long = Aborted(1, 0, 10 * len(short))
    ranges = TransactionIndex(aborted=[*short, long]).ranges()
    rows = Counted(ranges.rows)
    assert ranges._replace(rows=rows).between(20, 40) == [long, *short[2:4]]
    assert rows.looks == 2, "the block in which it begins, and that of the long one"

"""What became of each record of one group in one partition, against a model offset by offset."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from segbroker.broker.loop.loop_clock import NEVER_MS
from segbroker.broker.refused import Refused
from segbroker.broker.shares.pieces import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Acquired,
    Batch,
    Change,
    Limits,
)
from segbroker.broker.shares.share_partition import SharePartition
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.share_groups import RecordState, ShareState, Span, overlaid

LIMITS = Limits(locks=30, deliveries=4, lock_ms=100)
MEMBERS = ("a", "b")
DONE = (ACKNOWLEDGED, ARCHIVED)


@dataclass
class Record:
    """One offset, as the model has it."""

    state: RecordState = AVAILABLE
    deliveries: int = 0
    member: str = ""
    until_ms: int = NEVER_MS
    becomes: RecordState | None = None


class SharePartitionMachine(RuleBasedStateMachine):
    """Batches with and without records, and holes between them; two members; a log start."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.part = SharePartition(ShareState(0))
        self.batches: list[Batch] = []
        self.log_end = 0
        self.log_start = 0
        self.model: dict[int, Record] = {}
        self.under_way: list[tuple[Change, list[int]]] = []
        self.kept = ShareState(0)

    # The log

    @rule(hole=st.integers(0, 2), size=st.integers(1, 6), has_records=st.booleans())
    def append(self, hole: int, size: int, has_records: bool) -> None:
        first = self.log_end + hole
        self.batches.append(Batch(first, first + size - 1, has_records or size > 3))
        self.log_end = first + size

    @rule(step=st.integers(1, 5))
    def retention(self, step: int) -> None:
        self.log_start = min(self.log_start + step, self.log_end)
        missing = [
            o
            for o in range(self.part.start, self.log_start)
            if o not in self.model or self.model[o].state in (AVAILABLE, ACQUIRED)
        ]
        assert self.part.begin_at(self.log_start) == len(missing)
        for offset in [o for o in self.model if o < self.log_start]:
            del self.model[offset]

    def has_records(self, offset: int) -> bool:
        return any(b.first <= offset <= b.last and b.has_records for b in self.batches)

    def fate(self, offset: int) -> Record:
        return self.model.setdefault(offset, Record())

    # Members

    @rule(
        member=st.sampled_from(MEMBERS),
        records_max=st.integers(1, 12),
        size=st.integers(1, 8),
        strict=st.booleans(),
        batch_size=st.integers(1, 10),
    )
    def acquire(
        self, member: str, records_max: int, size: int, strict: bool, batch_size: int
    ) -> None:
        offset = self.part.next_offset
        read = [b for b in self.batches if b.last >= offset][:size]
        before = self.part.end
        found = self.part.acquire(
            member,
            read,
            LIMITS,
            self.now_ms,
            offset=offset,
            records_max=records_max,
            batch_size=batch_size,
            is_strict=strict,
        )
        count = 0
        for one in found:
            assert one.first <= one.last
            for at in range(one.first, one.last + 1):
                record = self.fate(at)
                assert self.has_records(at), "nothing to hand out"
                assert record.state is AVAILABLE, f"{at} was {record.state}"
                assert at >= self.log_start
                record.state, record.member = ACQUIRED, member
                record.until_ms = self.now_ms + LIMITS.lock_ms
                record.deliveries += 1
                assert record.deliveries == one.deliveries <= LIMITS.deliveries
                count += 1
                if record.deliveries == LIMITS.deliveries:
                    assert found == [one], "the last time a record comes alone"
                    assert one.first == one.last
        assert not (strict and count > records_max)
        batches = [b for b in read if any(f.first <= b.last and b.first <= f.last for f in found)]
        if batches and not strict:
            assert count - records_max <= batches[-1].last - batches[-1].first
        for first, last, state, _, _ in self.part.pieces():
            for at in range(first, last + 1):
                if state is ARCHIVED and not self.has_records(at):
                    self.fate(at).state = ARCHIVED  # as far as was looked
        for at in range(offset, self.part.start):
            if not self.has_records(at):
                self.fate(at).state = ARCHIVED
        if self.part.end > before:
            assert before - self.part.start < LIMITS.locks or not found
        if read and not found and self.part.next_offset < self.part.end:
            assert self.part.next_offset > offset, "there was something to hand out"

    @rule(member=st.sampled_from(MEMBERS), data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        if self.part.end == self.part.start:
            return
        first = data.draw(st.integers(self.part.start, self.part.end - 1))
        last = data.draw(st.integers(first, self.part.end - 1))
        one = data.draw(st.booleans())
        count = 1 if one else last - first + 1
        kinds = st.sampled_from((GAP, ACCEPT, RELEASE, REJECT, RENEW))
        types = data.draw(st.lists(kinds, min_size=count, max_size=count))
        offsets = range(first, last + 1)
        is_own = all(
            self.fate(o).state is ACQUIRED
            and self.fate(o).member == member
            and self.fate(o).becomes is None
            for o in offsets
        )
        said = [Acknowledgement(first, last, types)]
        if not is_own:
            with pytest.raises(Refused) as refused:
                self.part.acknowledge(member, said, LIMITS, self.now_ms)
            assert refused.value.code == ErrorCode.INVALID_RECORD_STATE
            return
        change = self.part.acknowledge(member, said, LIMITS, self.now_ms)
        for place, offset in enumerate(offsets):
            record, kind = self.fate(offset), types[0 if one else place]
            if kind == RENEW:
                record.until_ms = self.now_ms + LIMITS.lock_ms
            elif kind == ACCEPT:
                record.becomes = ACKNOWLEDGED
            elif kind == RELEASE and record.deliveries < LIMITS.deliveries:
                record.becomes = AVAILABLE
            else:
                record.becomes = ARCHIVED
        self.under_way.append((change, [o for o in offsets if self.fate(o).becomes is not None]))

    @rule(fails=st.booleans(), data=st.data())
    def written(self, fails: bool, data: st.DataObject) -> None:
        if not self.under_way:
            return
        change, offsets = self.under_way.pop(0)
        spans, start = change.spans, change.start
        if fails:
            self.part.failed(change)
        else:
            self.part.done(change)
            self.keep(start, spans)
        for offset in offsets:
            if (record := self.model.get(offset)) is not None:
                if not fails:
                    assert record.becomes is not None
                    record.state, record.member = record.becomes, ""
                    record.until_ms = NEVER_MS
                record.becomes = None

    @rule(member=st.sampled_from(MEMBERS))
    def release(self, member: str) -> None:
        spans = self.part.release(member, LIMITS)
        self.taken_back(spans, lambda record: record.member == member)

    @rule(step=st.integers(0, 150))
    def tick(self, step: int) -> None:
        self.now_ms += step
        due = self.part.due_ms <= self.now_ms
        spans = self.part.expire(self.now_ms, LIMITS)
        assert bool(spans) == due
        self.taken_back(spans, lambda record: record.until_ms <= self.now_ms)

    def taken_back(self, spans: list[Span], meant) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        told = {o: s for s in spans for o in range(s.first, s.last + 1)}
        for offset, record in self.model.items():
            if record.state is ACQUIRED and record.becomes is None and meant(record):
                is_over = record.deliveries >= LIMITS.deliveries
                record.state = ARCHIVED if is_over else AVAILABLE
                record.member, record.until_ms = "", NEVER_MS
                assert told.pop(offset)[2:] == (record.state, record.deliveries)
        assert not told
        self.keep(self.part.start, spans)

    # What is written down

    def keep(self, start: int, spans: list[Span]) -> None:
        begin = max(self.kept.start, start)
        rows = overlaid(self.kept.spans, sorted(spans), begin)
        self.kept = ShareState(begin, tuple(Span(*row) for row in rows))

    @rule()
    def restart(self) -> None:
        """Nothing is lost of what was written down, nothing that is done with comes again."""
        self.under_way.clear()
        self.part = SharePartition(self.kept)
        self.part.begin_at(self.log_start)
        written = {
            o: (s.state, s.deliveries) for s in self.kept.spans for o in range(s.first, s.last + 1)
        }
        for offset, record in list(self.model.items()):
            state, deliveries = written.get(offset, (AVAILABLE, 0))
            if offset < self.part.start:
                assert record.state in DONE or record.becomes in DONE, f"{offset} is lost"
                del self.model[offset]
            elif offset >= self.part.end:
                assert record.state not in DONE or not self.has_records(offset), offset
                del self.model[offset]
            else:
                self.model[offset] = Record(RecordState(state), deliveries)

    @invariant()
    def pieces_are_as_the_model(self) -> None:
        pieces = self.part.pieces()
        if pieces:
            assert pieces[0][0] == self.part.start
            assert pieces[-1][1] == self.part.end - 1
            assert pieces[0][2] not in DONE or self.under_way
        else:
            assert self.part.start == self.part.end
        for one, after in pairwise(pieces):
            assert one[1] + 1 == after[0]
        for first, last, state, deliveries, member in pieces:
            assert first <= last
            for offset in range(first, last + 1):
                record = self.fate(offset)
                assert (record.state, record.deliveries, record.member) == (
                    state,
                    deliveries,
                    member,
                ), offset
        for offset, record in self.model.items():
            if self.log_start <= offset < self.part.start:
                assert record.state in DONE, f"{offset} is not done with"
        free = [o for o, r in self.model.items() if r.state is AVAILABLE and o >= self.part.start]
        least = min((o for o in free if o < self.part.end), default=self.part.end)
        assert self.part.next_offset == least


TestSharePartitionMachine = SharePartitionMachine.TestCase
TestSharePartitionMachine.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def usual(
    part: SharePartition, member: str, read: Sequence[Batch], *, offset: int, most: int
) -> list[Acquired]:
    """Records of these batches are handed out, as to a member that takes whole batches."""
    return part.acquire(
        member, read, LIMITS, 0, offset=offset, records_max=most, batch_size=most, is_strict=False
    )


def test_records_that_were_never_written_down_are_there_again_between_those_that_were() -> None:
    part = SharePartition(ShareState(5, (Span(7, 8, 2, 1), Span(9, 9, 0, 3))))
    assert part.pieces() == [
        (5, 6, AVAILABLE, 0, ""),
        (7, 8, ACKNOWLEDGED, 1, ""),
        (9, 9, AVAILABLE, 3, ""),
    ]
    assert (part.next_offset, part.end) == (5, 10)


def test_what_was_released_while_others_were_read_is_not_taken_for_a_hole() -> None:
    part = SharePartition(ShareState(0))
    read = [Batch(0, 4, True), Batch(5, 9, True)]
    most = 5
    usual(part, "a", read, offset=0, most=most)
    assert part.next_offset == 5  # ... and a read begins there
    part.release("a", LIMITS)
    usual(part, "b", read[1:], offset=5, most=most)
    assert part.pieces() == [(0, 4, AVAILABLE, 1, ""), (5, 9, ACQUIRED, 1, "b")]


def accepted(part: SharePartition, first: int, last: int) -> Change:
    """A member has done these, which is not durable yet."""
    return part.acknowledge("a", [Acknowledgement(first, last, [ACCEPT])], LIMITS, 0)


def test_what_others_have_on_their_way_is_not_done_with_until_it_is_durable() -> None:
    """Each is an event of its own, of which the first may fail and the second not."""
    part = SharePartition(ShareState(0))
    usual(part, "a", [Batch(0, 9, True)], offset=0, most=10)
    first, second = accepted(part, 0, 4), accepted(part, 5, 9)
    assert (first.start, second.start) == (5, 0)
    part.failed(first)
    part.done(second)
    assert part.start == 0
    assert part.pieces() == [(0, 4, ACQUIRED, 1, "a"), (5, 9, ACKNOWLEDGED, 1, "")]
    again = accepted(part, 0, 4)
    assert again.start == 10
    part.done(again)
    assert (part.start, part.pieces()) == (10, [])


def test_of_each_record_holds_its_own_type() -> None:
    part = SharePartition(ShareState(0))
    usual(part, "a", [Batch(0, 5, True)], offset=0, most=6)
    types = [REJECT, ACCEPT, ACCEPT, RELEASE, RENEW, RENEW]
    change = part.acknowledge("a", [Acknowledgement(0, 5, types)], LIMITS, 7)
    assert change.spans == [Span(0, 0, 4, 1), Span(1, 2, 2, 1), Span(3, 3, 0, 1)]
    part.done(change)
    assert part.pieces() == [(3, 3, AVAILABLE, 1, ""), (4, 5, ACQUIRED, 1, "a")]
    assert part.due_ms == 7 + LIMITS.lock_ms


def test_what_is_on_its_way_is_not_said_twice() -> None:
    part = SharePartition(ShareState(0))
    usual(part, "a", [Batch(0, 2, True)], offset=0, most=3)
    change = accepted(part, 1, 1)
    with pytest.raises(Refused) as refused:
        accepted(part, 0, 1)
    assert refused.value.code == ErrorCode.INVALID_RECORD_STATE
    assert "already" in refused.value.message
    part.failed(change)
    assert accepted(part, 0, 2).spans == [Span(0, 0, 2, 1), Span(1, 1, 2, 1), Span(2, 2, 2, 1)]


def test_of_what_is_anothers_or_nobodys_nothing_is_said() -> None:
    part = SharePartition(ShareState(0, (Span(1, 1, 2, 1),)))
    usual(part, "b", [Batch(0, 0, True)], offset=0, most=1)
    for offset, why in ((0, "another member's"), (1, "not acquired")):
        with pytest.raises(Refused) as refused:
            accepted(part, offset, offset)
        assert refused.value.code == ErrorCode.INVALID_RECORD_STATE
        assert why in refused.value.message


def test_who_says_what_is_its_own_and_what_is_not_has_said_nothing() -> None:
    part = SharePartition(ShareState(0))
    usual(part, "a", [Batch(0, 3, True)], offset=0, most=4)
    usual(part, "b", [Batch(4, 5, True)], offset=4, most=2)
    said = [
        Acknowledgement(0, 1, [ACCEPT]),
        Acknowledgement(2, 3, [RENEW]),
        Acknowledgement(3, 4, [ACCEPT]),
    ]
    due_ms = part.due_ms
    with pytest.raises(Refused) as refused:
        part.acknowledge("a", said, LIMITS, 50)
    assert refused.value.code == ErrorCode.INVALID_RECORD_STATE
    assert part.due_ms == due_ms, "nothing is renewed, nor on its way"
    assert accepted(part, 0, 3).start == 4


def test_what_stands_is_as_it_is_without_those_who_have_it() -> None:
    part = SharePartition(ShareState(0, (Span(0, 1, 0, 1), Span(2, 3, 4, 4), Span(4, 5, 0, 1))))
    usual(part, "a", [Batch(0, 7, True)], offset=0, most=2)
    assert part.pieces()[0] == (0, 1, ACQUIRED, 2, "a")
    assert part.standing([Span(0, 9, 0, 0)]) == [
        Span(0, 1, 0, 1),
        Span(2, 3, 4, 4),
        Span(4, 5, 0, 1),
    ]
    accepted(part, 0, 1)
    assert part.standing([Span(1, 4, 0, 0)]) == [Span(2, 3, 4, 4), Span(4, 4, 0, 1)]


def test_what_was_delivered_for_the_last_time_is_done_with_when_its_lock_ends() -> None:
    part = SharePartition(ShareState(0))
    usual(part, "a", [Batch(0, 4, True)], offset=0, most=5)
    once = LIMITS._replace(deliveries=1)
    assert part.expire(LIMITS.lock_ms, once) == [Span(0, 4, 4, 1)]
    assert (part.start, part.pieces()) == (5, [])


def test_few_records_come_apart_by_one_at_least() -> None:
    part = SharePartition(ShareState(0))
    limits = LIMITS._replace(deliveries=10)

    def count() -> int:
        (one,) = part.acquire(
            "a",
            [Batch(0, 2, True)],
            limits,
            0,
            offset=0,
            records_max=3,
            batch_size=3,
            is_strict=False,
        )
        part.release("a", limits)
        return one.last - one.first + 1

    assert [count() for _ in range(9)] == [3, 3, 3, 3, 3, 1, 1, 1, 1]


@pytest.mark.parametrize("is_strict", [False, True])
def test_records_come_apart_by_a_half_a_quarter_and_one_of_what_they_first_came_with(
    is_strict: bool,
) -> None:
    part = SharePartition(ShareState(0))
    limits = LIMITS._replace(locks=1_000, deliveries=10)
    read = [Batch(0, 0, True), *(Batch(n, n + 72, True) for n in range(1, 512, 73))]

    def taken() -> tuple[int, int]:
        """First and last offset of what is handed out; then it is released."""
        offset = part.next_offset
        (one,) = part.acquire(
            "a",
            [batch for batch in read if batch.last >= offset],
            limits,
            0,
            offset=offset,
            records_max=512,
            batch_size=512,
            is_strict=is_strict,
        )
        released = Acknowledgement(one.first, one.last, [RELEASE])
        part.done(part.acknowledge("a", [released], limits, 0))
        return one.first, one.last

    assert [taken() for _ in range(5)] == [(0, 511)] * 5
    assert [taken() for _ in range(5)] == [(0, 255), (0, 127), (0, 63), (0, 31), (0, 0)]
    assert [taken() for _ in range(31)] == [(n, n) for n in range(1, 32)]
    assert [taken() for _ in range(3)] == [(32, 63), (32, 32), (33, 33)]


def test_what_a_cleaning_took_away_is_left_to_whom_it_was_given() -> None:
    part = SharePartition(ShareState(0))
    most = 10
    usual(part, "a", [Batch(0, 9, True)], offset=0, most=most)
    part.done(part.acknowledge("a", [Acknowledgement(0, 0, [RELEASE])], LIMITS, 0))
    change = part.acknowledge("a", [Acknowledgement(1, 9, [ACCEPT])], LIMITS, 0)
    assert usual(part, "b", [Batch(5, 9, True)], offset=0, most=most) == []
    part.done(change)
    assert (part.pieces(), part.start) == ([], 10)


@pytest.mark.parametrize(
    ("released", "last", "stands_for_it"),
    [((), 9, None), ((3,), 9, 3), ((3, 5, 6), 9, 6), ((3,), 11, 11), ((), 11, 11)],
)
def test_of_a_gap_one_offset_is_handed_out_that_nobody_has_or_is_done_with(
    released: Sequence[int], last: int, stands_for_it: int | None
) -> None:
    part = SharePartition(ShareState(0))
    usual(part, "a", [Batch(0, 9, True)], offset=0, most=10)
    said = [Acknowledgement(offset, offset, [RELEASE]) for offset in released]
    part.done(part.acknowledge("a", said, LIMITS, 0))
    gap = Batch(2, last, has_records=False, is_gap=True)
    given = usual(part, "b", [gap], offset=part.next_offset, most=10)
    found = [offset for one in given for offset in range(one.first, one.last + 1)]
    assert found == ([] if stands_for_it is None else [stands_for_it])
    assert part.next_offset == last + 1, "the rest of it is archived"


def test_of_a_gap_no_offset_is_handed_out_for_one_behind_it_that_is_free() -> None:
    part = SharePartition(ShareState(0))
    usual(part, "a", [Batch(0, 9, True)], offset=0, most=10)
    said = [Acknowledgement(offset, offset, [RELEASE]) for offset in (3, 9)]
    part.done(part.acknowledge("a", said, LIMITS, 0))
    gap = Batch(2, 5, has_records=False, is_gap=True)
    assert usual(part, "b", [gap], offset=3, most=10) == [Acquired(3, 3, 2)]
    assert part.next_offset == 9


def test_where_there_is_no_room_for_more_what_was_released_is_handed_out() -> None:
    part = SharePartition(ShareState(0))
    usual(part, "a", [Batch(0, 29, True)], offset=0, most=30)
    assert part.end - part.start == LIMITS.locks
    assert not part.has_room(LIMITS)
    assert not part.is_idle
    part.done(part.acknowledge("a", [Acknowledgement(7, 8, [RELEASE])], LIMITS, 0))
    assert part.has_room(LIMITS)
    assert not part.is_idle
    part.release("a", LIMITS)
    assert part.is_idle


def test_who_takes_no_more_than_it_asks_for_is_given_no_more_apart_either() -> None:
    part = SharePartition(ShareState(0, (Span(0, 7, 0, 2),)))
    given = part.acquire(
        "a",
        [Batch(0, 7, True)],
        LIMITS,
        0,
        offset=0,
        records_max=1,
        batch_size=1,
        is_strict=True,
    )
    assert given == [Acquired(0, 0, 3)]


def test_who_was_delivered_often_does_not_come_behind_others() -> None:
    part = SharePartition(ShareState(0))
    read = [Batch(0, 4, True), Batch(5, 9, True)]
    most = 10
    for offset in (0, 5):
        given = usual(part, "a", read[offset // 5 :], offset=offset, most=most)
        assert [(one.first, one.last) for one in given] == [(offset, 9)]
        said = [Acknowledgement(5, 9, [RELEASE])]
        part.done(part.acknowledge("a", said, LIMITS, 0))
    part.release("a", LIMITS)
    assert part.pieces() == [(0, 4, AVAILABLE, 1, ""), (5, 9, AVAILABLE, LIMITS.apart, "")]
    given = usual(part, "b", read, offset=0, most=most)
    assert [(one.first, one.last) for one in given] == [(0, 4)]


def test_behind_what_was_read_nothing_is_handed_out() -> None:
    part = SharePartition(ShareState(0))
    read = [Batch(n, n + 4, True) for n in (0, 5, 10)]
    most = 15
    usual(part, "a", read, offset=0, most=most)
    said = [Acknowledgement(n, n + 4, [RELEASE]) for n in (0, 10)]
    part.done(part.acknowledge("a", said, LIMITS, 0))
    given = usual(part, "b", read[:2], offset=0, most=most)
    assert given == [Acquired(0, 4, 2)], "no more than was read"
    assert [piece[:2] for piece in part.pieces()] == [(0, 4), (5, 9), (10, 14)]

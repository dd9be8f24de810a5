"""The aborted ranges as a reader without a lock sees them while others change them."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

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
    sys.settrace(Between(lambda: seen.append(index.ranges().between(30, 60))))
    try:
        forget(index)
    finally:
        sys.settrace(traced_before)
    assert len(seen) > 10
    assert all(found == RANGES[3:] for found in seen)
    assert len(index.aborted) < len(RANGES)

"""When a caller has been away for too long (test_away has it with a broker)."""

import sys
from types import FrameType
from typing import Any

from segbroker.client.poll_interval import PollInterval

HOUR_MS = 3_600_000


def late_ms_seen(ends_at: int) -> tuple[int | None, int]:
    """What is read of a caller whose wait ends at this step of the reading, and how many it has."""
    interval = PollInterval(1_000)
    interval.begin(0)
    interval.waits()
    steps = 0

    def look(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
        nonlocal steps
        if frame.f_code.co_name != "late_ms":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == ends_at:
                interval.is_here(HOUR_MS)
        return look

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 wants it of one frame before it begins
    sys.settrace(look)
    try:
        late_ms = interval.late_ms
    finally:
        sys.settrace(before)
    return late_ms, steps


def test_who_has_waited_for_hours_is_not_late_at_whatever_moment_its_wait_ends() -> None:
    """The client's own thread looks whether the caller is late while that says, without the lock,
    that it waits no more: between any two steps of the interpreter."""
    late_ms, count = late_ms_seen(0)
    assert late_ms is None
    assert count > 3
    assert {late_ms_seen(step)[0] for step in range(1, count)} <= {None, HOUR_MS + 1_000}


def test_the_time_begins_with_the_first_step_and_anew_with_each_sign_of_the_caller() -> None:
    interval = PollInterval(1_000)
    assert interval.late_ms is None
    interval.begin(10)
    interval.begin(500)
    assert interval.late_ms == 1_010
    interval.waits()
    assert interval.late_ms is None
    interval.is_here(5_000)
    assert interval.late_ms == 6_000
    assert PollInterval(None).late_ms is None

"""A daemon killed at system calls, one after the other, is to its clients one daemon.

The long tier: `python -m tests.soak.call_chain --points 3000`.
"""

from pathlib import Path

import pytest

from ..support.extent import share
from . import traced
from .call_chain import CALLS, draw_points, run_chain

POINTS = share(9, 25)  # of every kind one, at least


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", share((1,), (1, 2, 3, 4)))
def test_kills_at_system_calls_leave_one_unbroken_history(seed: int, tmp_path: Path) -> None:
    traced.require_strace()
    points = draw_points(seed, POINTS)
    assert {point.call for point in points} == set(CALLS)
    outcome = run_chain(tmp_path / "data", points)
    assert outcome.anomalies == []
    assert outcome.problems == []
    assert outcome.acked == outcome.sent
    assert outcome.points + len(outcome.missed) == POINTS
    assert outcome.points > POINTS // 2, "most of the calls were made"

"""A broker that is killed under load loses nothing, repeats nothing, reorders nothing."""

from pathlib import Path

import pytest

from .kill_loop import run_round


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_kills_under_load_leave_a_history_without_anomalies(tmp_path: Path) -> None:
    outcome = run_round(tmp_path / "data", 1, kills=5)
    assert outcome.anomalies == []
    assert outcome.problems == []
    assert outcome.acked == outcome.sent > 1_000
    assert outcome.polled == 4 * outcome.sent
    assert outcome.kills + outcome.terminations == 5

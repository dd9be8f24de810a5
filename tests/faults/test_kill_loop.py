"""A broker that is killed under load loses nothing, repeats nothing, reorders nothing."""

import sys
from pathlib import Path

import pytest

from ..support.extent import share
from .history import Kind
from .kill_loop import run_round


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_under_load_leave_a_history_without_anomalies(tmp_path: Path) -> None:
    kills = share(7, 40)
    outcome = run_round(tmp_path / "data", 1, kills=kills, between_s=(0.0, 0.3), pause_s=0.1)
    assert outcome.anomalies == []
    assert outcome.problems == []
    assert outcome.acked == outcome.sent > 250
    assert outcome.polled == 4 * outcome.sent
    assert outcome.kills + outcome.terminations == kills


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_broker_that_acknowledges_what_it_has_not_written_is_caught(tmp_path: Path) -> None:
    # "hurries" writes seconds after the acknowledgement: only a kill shows it.
    planted = [sys.executable, str(Path(__file__).with_name("planted.py")), "hurries"]
    outcome = run_round(
        tmp_path / "data",
        1,
        kills=1,
        producers=2,
        consumers=0,
        under=planted,
        patience_s=60,
    )
    lost = [a for a in outcome.anomalies if a.kind is Kind.LOST_WRITE]
    assert {anomaly.partition[0] for anomaly in lost} == {"written"}

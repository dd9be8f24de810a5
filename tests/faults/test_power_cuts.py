"""Power cuts on file systems of the kernel; in full `python -m tests.soak.power_cuts`.

Needs root, FUSE and loop devices, and half a minute each: `make proof` runs them.
"""

import sys
from pathlib import Path

import pytest

from ..support.extent import WHOLE
from .cut_starts import cut_starts
from .devices import FILE_SYSTEMS, require
from .power_cuts import cut, live

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not WHOLE, reason="half a minute each: make proof"),
]
LIFE_S = 4.0
PLANTED_S = 9.0
CUTS = 6
STARTS = 2
WITHIN = 4


@pytest.fixture
def python(pytestconfig: pytest.Config) -> Path:
    return require(pytestconfig.cache.mkdir("devices"))


@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_what_was_acknowledged_outlives_a_power_cut(
    kind: str, tmp_path: Path, python: Path
) -> None:
    life = live(tmp_path / "life", kind, python, seconds=LIFE_S)
    outcome = cut(life, 1, CUTS)
    assert outcome.anomalies == []
    assert outcome.problems == []
    assert outcome.cuts == CUTS
    assert outcome.acked > 0


@pytest.mark.parametrize("kind", ["ext4", "ext4-writeback", "xfs", "btrfs"])
def test_a_power_cut_in_the_start_behind_one_costs_no_more(
    kind: str, tmp_path: Path, python: Path
) -> None:
    life = live(tmp_path / "life", kind, python, seconds=LIFE_S)
    outcome = cut_starts(life, 1, STARTS, python, within=WITHIN)
    assert outcome.anomalies == []
    assert outcome.problems == []
    assert outcome.within_starts == STARTS * WITHIN


def planted(bug: str) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("planted.py")), bug]


@pytest.mark.parametrize("bug", ["forgets", "commits"])
def test_a_broker_that_does_not_sync_is_caught(bug: str, tmp_path: Path, python: Path) -> None:
    life = live(tmp_path / "life", "ext4", python, seconds=PLANTED_S, under=planted(bug))
    assert not cut(life, 1, CUTS).is_clean


def test_a_broker_that_syncs_nothing_behind_a_power_cut_is_caught(
    tmp_path: Path, python: Path
) -> None:
    life = live(tmp_path / "life", "ext4", python, seconds=LIFE_S)
    outcome = cut_starts(life, 1, STARTS, python, within=WITHIN, planted=planted("forgets"))
    assert not outcome.is_clean

"""Power cuts on file systems of the kernel; in full `python -m tests.soak.power_cuts`.

Needs root, FUSE and loop devices, and half a minute each: `make proof` runs them.
"""

import sys
from pathlib import Path

import pytest

from ..support.extent import WHOLE
from .devices import FILE_SYSTEMS, require
from .power_cuts import cut, live

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not WHOLE, reason="half a minute each: make proof"),
]
LIFE_S = 4.0
CUTS = 6


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


def test_a_broker_that_syncs_nothing_is_caught(tmp_path: Path, python: Path) -> None:
    planted = [sys.executable, str(Path(__file__).with_name("planted.py")), "forgets"]
    life = live(tmp_path / "life", "ext4", python, seconds=LIFE_S, under=planted)
    assert not cut(life, 1, CUTS).is_clean

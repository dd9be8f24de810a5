"""What becomes of files under a running broker: no record is lost unsaid.

The long tier: `python -m tests.soak.running_damage`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from ..segments.planted.planting import Bug, applies
from .running_damage import Case
from .undone import UNDONE

SEEDS = range(1, 22)


def test_files_that_change_under_a_broker_cost_nothing_in_silence() -> None:
    cases = [Case(seed).run() for seed in SEEDS]
    assert [problem for case in cases for problem in case.problems] == []
    assert any(case.lost for case in cases)
    assert any(not case.lost and not case.refused for case in cases)


def test_a_case_comes_of_its_seed() -> None:
    assert Case(3).run().trace == Case(3).run().trace


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("a segment that was cut when it was sealed is whole", 500_162),
        ("a checkpoint lets the frames of a segment go that is away", 500_162),
    ],
)
def test_a_mend_that_is_undone_is_found(name: str, seed: int) -> None:
    command = [sys.executable, "-m", "tests.soak.running_damage", "--seed", str(seed)]
    run = subprocess.run(
        [*command, "--undone", name, "--count", "1"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("bug", UNDONE, ids=lambda bug: bug.name)
def test_a_mend_can_still_be_undone(bug: Bug) -> None:
    assert applies(bug), f"its text does not occur once in {bug.module}, or not so indented"

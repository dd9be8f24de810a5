"""Seeds keep every promise, and planted bugs are found: in a process with the same hashes, where a
seed is a run."""

import pytest

from ..simulation.hashes import done
from ..support.extent import share
from .bugs import BUGS, Bug

SOAK = "tests.soak.admin"


@pytest.mark.timeout(900)
def test_what_was_acknowledged_is_there_over_every_crash_and_is_in_force() -> None:
    run = done(SOAK, "--seeds", share("1", "40"), "--seconds", "800")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", share(BUGS[:1], BUGS), ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    run = done(SOAK, "--seed", str(bug.seed), "--seeds", "1", "--plant", bug.name)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "Difference" in run.stdout

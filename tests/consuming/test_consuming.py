"""Seeds keep every rule, and what is undone in the client is found: in a process with the same
hashes, where a seed is a run."""

import pytest

from ..simulation.hashes import done
from ..support.extent import WHOLE, share
from .bugs import BUGS, Bug

SOAK = "tests.soak.consuming"
# In this one a commit of all waits for the last commit of what was given up.
FIRST = 189


@pytest.mark.timeout(900)
def test_members_of_a_group_skip_nothing_and_commit_what_was_processed() -> None:
    seeds = share(("--seed", str(FIRST), "--seeds", "1"), ("--seeds", "200"))
    run = done(SOAK, *seeds, "--seconds", "800")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.timeout(300)
@pytest.mark.skipif(not WHOLE, reason="one and a half seconds of computing each: make proof")
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_rule_that_is_undone_is_found(bug: Bug) -> None:
    run = done(SOAK, "--seed", str(bug.seed), "--seeds", "1", "--plant", bug.name)
    assert run.returncode == 1, run.stdout + run.stderr

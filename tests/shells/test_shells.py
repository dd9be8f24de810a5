"""Each shell tells a program the same, share groups lose nothing, and what is undone is found."""

import pytest

from ..simulation.hashes import done
from ..support.extent import WHOLE, share
from .bugs import BUGS, SHARE_BUGS, Bug, ShareBug

SOAK = "tests.soak.shells"
PARTS = 6
PLANTED = pytest.mark.skipif(not WHOLE, reason="a broker each: make proof")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(share(1, PARTS)))
def test_each_shell_tells_a_program_the_same_and_share_groups_lose_nothing(part: int) -> None:
    seeds = share(("--step", "229", "--seeds", "4"), ("--step", str(PARTS), "--seeds", "180"))
    shares = "--shares", share("1", "20"), "--share-seed", str(4 + 20 * part)
    run = done(SOAK, "--seed", str(part), *seeds, *shares, "--seconds", "800")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.timeout(300)
@PLANTED
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_rule_that_is_undone_is_found(bug: Bug) -> None:
    run = done(SOAK, "--seed", str(bug.number), "--seeds", "1", "--plant", bug.name)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "differences" in run.stdout, run.stderr


@pytest.mark.timeout(300)
@PLANTED
@pytest.mark.parametrize("bug", SHARE_BUGS, ids=lambda bug: bug.name)
def test_a_rule_of_share_groups_that_is_undone_is_found(bug: ShareBug) -> None:
    seed = "--seeds", "0", "--shares", "1", "--share-seed", str(bug.seed)
    run = done(SOAK, *seed, "--plant", bug.name)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "differences" in run.stdout, run.stderr

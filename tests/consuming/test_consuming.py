"""Seeds keep every rule, and what is undone in the client is found: in a process with the same
hashes, where a seed is a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.extent import share
from .bugs import BUGS, Bug

ROOT = Path(__file__).parent.parent.parent
SAME_HASHES = os.environ | {"PYTHONHASHSEED": "0"}


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.soak.consuming", *arguments],
        cwd=ROOT,
        env=SAME_HASHES,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )


@pytest.mark.timeout(900)
def test_members_of_a_group_skip_nothing_and_commit_what_was_processed() -> None:
    done = soak("--seeds", share("2", "200"), "--seconds", "800")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", share(BUGS[:1], BUGS), ids=lambda bug: bug.name)
def test_a_rule_that_is_undone_is_found(bug: Bug) -> None:
    done = soak("--seed", str(bug.seed), "--seeds", "1", "--plant", bug.name)
    assert done.returncode == 1, done.stdout + done.stderr

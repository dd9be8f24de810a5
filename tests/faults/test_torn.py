"""Transactions over a kill of the real daemon: a sample of the calls of one life.

The long tier takes them all: `python -m tests.soak.transactions`.  In a process of its own, because
kafka-python forgets sockets whose connection was refused.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from ..support.extent import share
from . import traced

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("at", share(["pwrite64:90"], ["fdatasync:33", "pwrite64:90"]))
def test_no_transaction_is_torn_by_a_kill(at: str) -> None:
    traced.require_strace()
    run = subprocess.run(
        [sys.executable, "-m", "tests.soak.transactions", "--at", at],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 killed" in run.stdout, "there were not so many calls: take a smaller number"

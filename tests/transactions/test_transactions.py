"""Transactions at the coordinator are whole or nothing, over failures of the broker and its disk.

In a process with the same hashes, where a seed is a run.  The long tier:
`python -m tests.soak.broker_transactions`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..segments.planted.planting import Bug, applies
from ..support.extent import share
from .undone import UNDONE

ROOT = Path(__file__).parent.parent.parent
SAME_HASHES = os.environ | {"PYTHONHASHSEED": "0"}


@pytest.mark.timeout(900)
def test_a_transaction_is_whole_or_nothing_with_its_offsets_over_every_end_of_the_broker() -> None:
    command = [sys.executable, "-m", "tests.soak.broker_transactions"]
    done = subprocess.run(
        [*command, "--count", share("1", "100"), "--seconds", "800"],
        cwd=ROOT,
        env=SAME_HASHES,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("bug", UNDONE, ids=lambda bug: bug.name)
def test_a_rule_can_still_be_undone(bug: Bug) -> None:
    assert applies(bug), f"its text does not occur once in {bug.module}, or not so indented"

"""The real daemon, killed at, or lied to by, a system call: a sample of the calls of one life.

The long tier takes them all: `python -m tests.soak.daemon_faults`.
"""

from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from . import traced
from .injection import fail_at, kill_at

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Spread over a life: while topics are made, in the middle of the writing, at rolls, at the end.
KILLS = [
    ("pwrite64", 3),
    ("pwrite64", 50),
    ("fdatasync", 15),
    ("rename", 9),
    ("unlink", 1),  # how many there are depends on the speed of the machine
]
FAILURES = [("fdatasync", EIO, 9), ("pwrite64", EIO, 25), ("pwrite64", ENOSPC, 20)]


@pytest.fixture(autouse=True)
def _strace() -> None:
    traced.require_strace()


@pytest.mark.parametrize(("call", "number"), KILLS)
def test_a_daemon_killed_at_a_call_loses_nothing(call: str, number: int, tmp_path: Path) -> None:
    verdict = kill_at(tmp_path / "data", call, number)
    assert verdict.is_clean, (verdict.anomalies, verdict.problems)
    assert verdict.fired, "there were not so many calls: take a smaller number"


@pytest.mark.parametrize(
    ("call", "error", "number"), FAILURES, ids=["EIO-sync", "EIO-write", "ENOSPC-write"]
)
def test_a_call_that_fails_costs_no_acknowledged_record_and_no_reader(
    call: str, error: int, number: int, tmp_path: Path
) -> None:
    verdict = fail_at(tmp_path / "data", call, error, number)
    assert verdict.is_clean, (verdict.anomalies, verdict.problems)
    assert verdict.fired, "there were not so many calls: take a smaller number"

"""The real daemon, killed at, or lied to by, a system call: a sample of the calls of one life.

The long tier takes them all: `python -m tests.soak.daemon_faults`.
"""

from collections.abc import Callable
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from . import traced
from .injection import Verdict, fail_at, kill_at

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Spread over a life: while topics are made, in the middle of the writing, at rolls, at the end.
KILLS = [
    ("pwrite64", 3),
    ("pwrite64", 50),
    ("fdatasync", 15),
    ("rename", 2),
    ("unlink", 4),
]
FAILURES = [("fdatasync", EIO, 9), ("pwrite64", EIO, 25), ("pwrite64", ENOSPC, 20)]


@pytest.fixture(autouse=True)
def _strace() -> None:
    traced.require_strace()


def _first_that_fires(folder: Path, fault: Callable[[Path, int], Verdict], number: int) -> Verdict:
    """The verdict at `number`; at half of it, and so on, where no thread makes so many calls.

    A call is counted in its thread, and which thread of the pool gets which work is chance.
    """
    while True:
        verdict = fault(folder / f"at-{number}", number)
        assert verdict.is_clean, (verdict.anomalies, verdict.problems)
        if verdict.fired:
            return verdict
        assert number > 1, "not one such call"
        number //= 2


@pytest.mark.parametrize(("call", "number"), KILLS)
def test_a_daemon_killed_at_a_call_loses_nothing(call: str, number: int, tmp_path: Path) -> None:
    _first_that_fires(tmp_path, lambda data, at: kill_at(data, call, at), number)


@pytest.mark.parametrize(
    ("call", "error", "number"), FAILURES, ids=["EIO-sync", "EIO-write", "ENOSPC-write"]
)
def test_a_call_that_fails_costs_no_acknowledged_record_and_no_reader(
    call: str, error: int, number: int, tmp_path: Path
) -> None:
    _first_that_fires(tmp_path, lambda data, at: fail_at(data, call, error, at), number)

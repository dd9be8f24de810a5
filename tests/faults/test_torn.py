"""Transactions over a kill of the real daemon: a sample of the calls of one life.

The long tier takes them all: `python -m tests.soak.transactions`.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import traced
from .torn import UNKNOWN, torn_at

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    # kafka-python forgets sockets whose connection was refused (see the fixture).
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),
]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What is left of a client is collected here, not in somebody else's test."""
    yield
    gc.collect()


@pytest.mark.parametrize(("call", "number"), [("fdatasync", 33), ("pwrite64", 90)])
def test_no_transaction_is_torn_by_a_kill(call: str, number: int, tmp_path: Path) -> None:
    traced.require_strace()
    verdict = torn_at(tmp_path / "data", call, number)
    assert verdict.problems == []
    assert verdict.was_killed, "there were not so many calls: take a smaller number"
    assert UNKNOWN not in list(verdict.outcomes.values())[:3], "it was killed too early to say much"

"""The n-th call of a disk fails, in starts and behind them.

The long tier: `python -m tests.soak.failing_calls`.
"""

import pytest

from ..segments.planted.planting import Bug, applies
from ..support.extent import share
from .failing_calls import Case
from .undone_calls import UNDONE

SEEDS = range(1, share(21, 1_201))


@pytest.mark.timeout(1_200)
def test_a_call_that_fails_loses_nothing_that_is_promised() -> None:
    cases = [Case(seed).run() for seed in SEEDS]
    assert [problem for case in cases for problem in case.problems] == []
    assert {case.outcome for case in cases} >= {"a start", "a life"}


def test_a_case_comes_of_its_seed() -> None:
    assert Case(4).run().trace == Case(4).run().trace


@pytest.mark.parametrize("bug", UNDONE, ids=lambda bug: bug.name)
def test_a_rule_can_still_be_undone(bug: Bug) -> None:
    assert applies(bug), f"its text does not occur once in {bug.module}, or not so indented"

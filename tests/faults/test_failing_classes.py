"""A topic whose class of durability and settings change, on a disk that fails.

The long tier: `python -m tests.soak.failing_classes`.
"""

import pytest

from ..segments.planted.planting import Bug, applies
from .failing_classes import Case
from .undone_classes import UNDONE

SEEDS = range(1, 26)


def test_on_a_disk_that_fails_each_class_keeps_what_it_promises() -> None:
    cases = [Case(seed).run() for seed in SEEDS]
    assert [problem for case in cases for problem in case.problems] == []
    assert {case.outcome for case in cases} >= {"torn", "with a gap"}


def test_a_case_comes_of_its_seed() -> None:
    assert Case(3).run().trace == Case(3).run().trace


@pytest.mark.parametrize("bug", UNDONE, ids=lambda bug: bug.name)
def test_a_rule_can_still_be_undone(bug: Bug) -> None:
    assert applies(bug), f"its text does not occur once in {bug.module}, or not so indented"

"""What becomes of files under a running broker: no record is lost unsaid.

The long tier: `python -m tests.soak.running_damage`.
"""

from .running_damage import Case

SEEDS = range(1, 25)


def test_files_that_change_under_a_broker_cost_nothing_in_silence() -> None:
    cases = [Case(seed).run() for seed in SEEDS]
    assert [problem for case in cases for problem in case.problems] == []
    assert any(case.lost for case in cases)
    assert any(not case.lost and not case.refused for case in cases)


def test_a_case_comes_of_its_seed() -> None:
    assert Case(3).run().trace == Case(3).run().trace

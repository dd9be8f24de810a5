"""What docs/reliability.md counts is what there is, where counting needs no run."""

import re
from pathlib import Path

from .cli import test_verify
from .fuzz.targets import TARGETS
from .segments.crash.scenarios import SCENARIOS
from .simulation.planted import EVERY_BUG

PAGE = (Path(__file__).parent.parent / "docs" / "reliability.md").read_text()


def counted(pattern: str) -> set[int]:
    """The numbers that stand in a place, wherever it comes."""
    return {int(found) for found in re.findall(pattern, PAGE)}


def test_the_counts_are_those_of_the_code() -> None:
    assert counted(r"over (\d+) scenarios") == {len(SCENARIOS) // 10 * 10}
    assert counted(r"each of the (\d+) targets") == {len(TARGETS)}
    assert counted(r"all bugs: (\d+) one-line faults") == {len(EVERY_BUG)}
    kinds = len(test_verify.DAMAGE) + len(test_verify.LEFTOVERS)
    assert counted(r"injects (\d+) kinds") == {kinds}

"""The harnesses find what they are for: every durability bug of the catalogue is found.

Here a few of them, other ones each day; `python -m tests.segments.planted.run`, which `make soak`
runs, plants all of them.
"""

import datetime
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from ..soak.equivalent import EQUIVALENT
from ..soak.mutations import keys, mutants
from .planted.catalogue import BUGS
from .planted.planting import Bug, applies, called

SAMPLE = 4
SECONDS_MAX = 200
"""For one bug: some seconds on a quiet machine."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_still_a_change_of_the_source(bug: Bug) -> None:
    assert applies(bug), f"its text does not occur once in {bug.module}, or not so indented"
    assert bug.old != bug.new


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_test_that_finds_a_planted_bug_can_be_called(bug: Bug) -> None:
    if ":" in bug.found_by:
        found_by, parameters = called(bug)
        inspect.signature(found_by).bind(*parameters)


def test_there_are_fifty_planted_bugs() -> None:
    assert len(BUGS) >= 50


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_planted_bugs_are_found() -> None:
    first = datetime.date.today().toordinal() * SAMPLE
    names = [BUGS[(first + place) % len(BUGS)].name for place in range(SAMPLE)]
    command = [sys.executable, "-m", "tests.segments.planted.run", *names]
    command += ["--seconds-max", str(SECONDS_MAX)]
    run = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=850
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_what_is_known_to_make_no_difference_still_stands_in_the_source() -> None:
    assert set(EQUIVALENT) <= set(keys(mutants(1)))

"""Seeds keep every promise, and a seed is a run: the same trace in another process.

In processes of their own: the order of sets of strings is part of a trace, so the hashes must be
those that a later `python -m tests.simulation SEED` has.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from ..support.extent import share
from .bugs import Bug
from .hashes import ROOT, done
from .planted import EVERY_BUG

SEEDS = share(10, 60)


def simulate(*arguments: str) -> str:
    """What `python -m tests.simulation ...` prints; fails with it when a promise was broken."""
    run = done("tests.simulation", *arguments)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@cache
def every_seed() -> str:
    """What is said of each seed, all of them in one process."""
    return simulate(f"1-{SEEDS}", "--verbose")


def digest_of(said: str, seed: int) -> str:
    """Of the trace of a seed: `seed 5: trace 0123456789abcdef..., ...`"""
    match = re.search(rf"^seed {seed}: trace (\w+)", said, re.MULTILINE)
    assert match is not None, said
    return match[1]


@pytest.mark.timeout(900)
def test_no_seed_breaks_a_promise() -> None:
    assert "0 seeds with violations" in every_seed()


@pytest.mark.timeout(900)
def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    """There no other seed was run before it."""
    alone = simulate("5", "--trace")
    assert digest_of(alone, 5) == digest_of(every_seed(), 5)
    assert len(alone.splitlines()) > 500, "a trace says everything that happened"


@pytest.mark.timeout(900)
def test_another_seed_gives_another_trace() -> None:
    assert digest_of(every_seed(), 5) != digest_of(every_seed(), 6)


@pytest.fixture(scope="module")
def planted() -> Iterator[Callable[[str], str]]:
    """What `python -m tests.simulation.planted` says of a bug; one process for all of them."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.planted"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None

        def ask(name: str) -> str:
            print(name, file=asked, flush=True)
            return answers.readline()

        yield ask
        process.kill()  # it may still look for one when the test of it was given up


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", share(EVERY_BUG[::5], EVERY_BUG), ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, planted: Callable[[str], str]) -> None:
    assert planted(bug.name).startswith("found by seed")

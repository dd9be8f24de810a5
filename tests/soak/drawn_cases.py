"""Programs that run cases drawn from seeds, for as long as one likes.

`--undone`: mends of the broker are undone in turn, each in a process of its own, and the cases
until one finds it are counted.  So nothing of the broker may be imported before one is undone.
"""

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol

from ..segments.planted.planting import Bug, plant


class Case(Protocol):
    """One seed; the class of this name in the module of the cases."""

    problems: list[str]
    trace: list[str]

    def run(self) -> "Case":
        """All of it."""

    @property
    def outcome(self) -> str:
        """What came of it, in a word or two, for the counts."""


def main(
    program: str,
    says: str | None,
    cases: str,
    undone: Sequence[Bug],
    cases_max: int,
    *,
    has_threads: bool = False,
) -> int:
    """The program.  cases: the module with their class; cases_max: within so many each of `undone`
    is to be found; has_threads: their class takes `flushers`."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=says)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 60, help="at most so many")
    parser.add_argument("--trace", action="store_true", help="print what was done")
    parser.add_argument("--undone", nargs="?", const="", help="the name of one; else all of them")
    if has_threads:
        parser.add_argument("--flushers", type=int, default=0, help="threads that sync")
    options = parser.parse_args()
    if options.undone is None:
        given = {"flushers": options.flushers} if has_threads else {}
        seeds = range(options.seed, options.seed + options.count)
        return _run(cases, options.seconds, seeds, given, traces=options.trace)
    if options.undone:
        bug = next(bug for bug in undone if bug.name == options.undone)
        return _find(cases, bug, options.seed, min(options.count, cases_max))
    command = [sys.executable, "-m", program, "--seed", str(options.seed), "--undone"]
    return max(subprocess.call([*command, bug.name]) for bug in undone)


def _case(cases: str, seed: int, **given: int) -> Case:
    """Imported late: behind what is undone."""
    case: Case = import_module(cases).Case(seed, **given)
    return case.run()


def _run(cases: str, seconds: int, seeds: range, given: Mapping[str, int], *, traces: bool) -> int:
    begun_s = time.monotonic()
    outcomes: Counter[str] = Counter()
    findings = 0
    done = 0
    for number in seeds:
        if time.monotonic() >= begun_s + seconds:
            break
        case = _case(cases, number, **given)
        done += 1
        if traces:
            print("\n".join(case.trace))
        for problem in case.problems:
            print(f"seed {number}: {problem}", flush=True)
        findings += bool(case.problems)
        outcomes[case.outcome] += 1
    counted = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    print(
        f"seeds {seeds[0]} to {seeds[0] + done - 1}, {time.monotonic() - begun_s:.0f} s: "
        f"{counted}; {findings} with a finding"
    )
    return 1 if findings else 0


def _find(cases: str, bug: Bug, seed: int, count: int) -> int:
    """Undo a mend, and count the cases until one finds it."""
    plant(bug)
    for number in range(seed, seed + count):
        if problems := _case(cases, number).problems:
            said = problems[0].splitlines()[-1][:100]
            print(f"case {number - seed + 1:4} {bug.name}: {said}", flush=True)
            return 0
    print(f"MISSED    {bug.name}", flush=True)
    return 1

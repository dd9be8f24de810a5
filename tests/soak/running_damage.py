"""Files changed under a running broker: `python -m tests.soak.running_damage --seconds 600`.

The seed of each finding is printed and repeats it: `--seed S --count 1 --trace`.  `--undone`: the
mends that are listed in tests/faults/undone.py are undone in turn, and have to be found.
`--flushers 2`: with the threads of a broker, in whatever order: a seed says what is done alone.
"""

import argparse
import subprocess
import sys
import time
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING

from ..faults.undone import CASES_MAX, UNDONE
from ..segments.planted.planting import plant

if TYPE_CHECKING:
    from ..faults.running_damage import Case


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.running_damage", description=__doc__
    )
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 60, help="at most so many")
    parser.add_argument("--trace", action="store_true", help="print what was done")
    parser.add_argument("--undone", nargs="?", const="", help="the name of one; else all of them")
    parser.add_argument("--flushers", type=int, default=0, help="threads that sync; 0: no threads")
    options = parser.parse_args()
    if options.undone is None:
        seeds = range(options.seed, options.seed + options.count)
        return _run(options.seconds, seeds, options.flushers, traces=options.trace)
    names = [bug.name for bug in UNDONE]
    if options.undone:
        return _find(options.undone, options.seed, min(options.count, CASES_MAX))
    command = [sys.executable, "-m", "tests.soak.running_damage", "--seed", str(options.seed)]
    return max(subprocess.call([*command, "--undone", name]) for name in names)


def _case(seed: int, flushers: int = 0) -> "Case":
    """Imported late: behind what is undone."""
    module = import_module("tests.faults.running_damage")
    case: Case = module.Case(seed, flushers=flushers)
    return case.run()


def _run(seconds: int, seeds: range, flushers: int, *, traces: bool) -> int:
    begun_s = time.monotonic()
    outcomes: Counter[str] = Counter()
    findings = 0
    done = 0
    for number in seeds:
        if time.monotonic() >= begun_s + seconds:
            break
        case = _case(number, flushers)
        done += 1
        if traces:
            print("\n".join(case.trace))
        for problem in case.problems:
            print(f"seed {number}: {problem}", flush=True)
        findings += bool(case.problems)
        outcomes["refused" if case.refused else "with a loss" if case.lost else "whole"] += 1
    counted = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    print(
        f"seeds {seeds[0]} to {seeds[0] + done - 1}, {time.monotonic() - begun_s:.0f} s: "
        f"{counted}; {findings} with a finding"
    )
    return 1 if findings else 0


def _find(name: str, seed: int, count: int) -> int:
    """Undo a mend, and count the cases until one finds it."""
    plant(next(bug for bug in UNDONE if bug.name == name))
    for number in range(seed, seed + count):
        if problems := _case(number).problems:
            print(f"case {number - seed + 1:4} {name}: {problems[0].splitlines()[-1][:100]}")
            return 0
    print(f"MISSED    {name}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())

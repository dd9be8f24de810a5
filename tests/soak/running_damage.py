"""Files changed under a running broker: `python -m tests.soak.running_damage --seconds 600`.

The seed of each finding is printed and repeats it: `--seed S --count 1 --trace`.
"""

import argparse
import sys
import time
from collections import Counter

from ..faults.running_damage import Case


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.running_damage", description=__doc__
    )
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 60, help="at most so many")
    parser.add_argument("--trace", action="store_true", help="print what was done")
    options = parser.parse_args()
    begun_s = time.monotonic()
    outcomes: Counter[str] = Counter()
    findings = 0
    number = options.seed
    while time.monotonic() < begun_s + options.seconds and number < options.seed + options.count:
        case = Case(number).run()
        if options.trace:
            print("\n".join(case.trace))
        for problem in case.problems:
            print(f"seed {number}: {problem}", flush=True)
        findings += bool(case.problems)
        outcomes["refused" if case.refused else "with a loss" if case.lost else "whole"] += 1
        number += 1
    counted = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    print(
        f"seeds {options.seed} to {number - 1}, {time.monotonic() - begun_s:.0f} s: {counted}; "
        f"{findings} with a finding"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

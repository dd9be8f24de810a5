"""Every call of the clients, with answers as they should not be: `python -m tests.soak.answers`.

Cases as in `tests/client/answers`, one seed after another until the time is over, some at a time.
The seed of each finding is printed, and draws it again: `--seed S --count 1 --trace`.
"""

import argparse
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from ..client.answers.cases import Case
from ..client.answers.story import Stage, stage


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.answers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 60, help="at most so many")
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--story", default="", help="only those with this in their name")
    parser.add_argument("--trace", action="store_true", help="print what came of each step")
    options = parser.parse_args()
    ends_s = time.monotonic() + options.seconds
    outcomes: Counter[str] = Counter()
    numbers = iter(range(options.seed, options.seed + options.count))
    lock = threading.Lock()

    def work(made: Stage) -> None:
        while time.monotonic() < ends_s:
            with lock:
                seed = next(numbers, None)
            if seed is None:
                return
            case = Case.drawn(seed, options.story).run(made)
            if case.problems:  # a machine that is busy may have been too slow
                once, case = case, Case.drawn(seed, options.story).run(made)
                with lock:
                    if not case.problems:
                        print(f"seed {seed}, once: {' | '.join(once.problems)[:300]!r}")
            with lock:
                if options.trace:
                    print("\n".join(case.told))
                if case.problems:
                    print(f"seed {seed}, {case.plot.name}, {case.fault}:")
                    print("".join(f"    {problem}\n" for problem in case.problems), flush=True)
                    outcomes["with a finding"] += 1
                elif case.has_happened:
                    outcomes["right"] += 1
                else:
                    outcomes["without the fault"] += 1

    with stage() as made, ThreadPoolExecutor(options.at_once) as workers:
        done = [workers.submit(work, made) for _ in range(options.at_once)]
        for each in done:
            each.result()
    told = ", ".join(f"{number} {what}" for what, number in sorted(outcomes.items()))
    print(f"{sum(outcomes.values())} cases: {told}; the next seed is {next(numbers, 'none')}")
    return 1 if outcomes["with a finding"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Simulated seeds for as long as one likes: `python -m tests.soak.simulation --seconds 3600`.

A line per hundred seeds, the violations with the command that repeats each, and the sums.  Exit
code 1 when there was a violation.
"""

import argparse
import gc
import sys
import time
from collections import Counter
from itertools import count

from tests.simulation import hashes

hashes.ensure("tests.soak.simulation")

from tests.simulation.run import run_seed  # noqa: E402 - the hashes first

SEEDS_PER_LINE = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun_s = time.monotonic()
    sums: Counter[str] = Counter()
    for seed in count(options.seed):
        if time.monotonic() - begun_s > options.seconds:
            break
        outcome = run_seed(seed)
        sums["seeds"] += 1
        sums["seeds with violations"] += bool(outcome.violations)
        sums["events"] += outcome.events
        sums["acknowledged"] += outcome.acked
        sums["read"] += outcome.reads
        sums["virtual seconds"] += int(outcome.virtual_s)
        for name in ("kill", "power_cut", "drain", "cut", "EIO", "ENOSPC", "fdatasync", "request"):
            sums[name] += outcome.counts.get(name, 0)
        if outcome.violations:
            print(f"python -m tests.simulation {seed} --trace", flush=True)
            for text in outcome.violations:
                print(f"    {text}", flush=True)
        if sums["seeds"] % SEEDS_PER_LINE == 0:
            gc.collect()  # it is off while a seed runs: when it comes would not repeat
            print(_line(sums, time.monotonic() - begun_s), flush=True)
    print("all,", _line(sums, time.monotonic() - begun_s))
    return 1 if sums["seeds with violations"] else 0


def _line(sums: Counter[str], seconds: float) -> str:
    return f"{seconds:.0f} s: " + ", ".join(f"{count} {name}" for name, count in sums.items())


if __name__ == "__main__":
    sys.exit(main())

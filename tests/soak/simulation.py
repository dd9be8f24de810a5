"""Simulated seeds for as long as one likes: `python -m tests.soak.simulation --seconds 3600`.

Several processes share the seeds.  A line per hundred, the violations with the command that repeats
each, and the sums.  Exit code 1 when there was a violation.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation import hashes

hashes.ensure("tests.soak.simulation")

from tests.simulation.run import run_seed  # noqa: E402 - the hashes first

SEEDS_PER_LINE = 100
COUNTED = (
    *("kill", "power_cut", "drain", "cut", "EIO", "ENOSPC", "fdatasync", "request"),
    *("transaction", "saw", "given", "committed", "member_read"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=1 << 62, help="at most so many")
    options = parser.parse_args()
    begun_s = time.monotonic()
    sums: Counter[str] = Counter()
    with multiprocessing.Pool(options.workers, maxtasksperchild=SEEDS_PER_LINE) as pool:
        work = _seeds(options.seed, options.seeds, begun_s + options.seconds)
        for seed, violations, counts in pool.imap_unordered(_run, work):
            sums += counts
            if violations:
                print(f"python -m tests.simulation {seed} --trace", flush=True)
                for text in violations:
                    print(f"    {text}", flush=True)
            if counts and sums["seeds"] % SEEDS_PER_LINE == 0:
                print(_line(sums, time.monotonic() - begun_s), flush=True)
    print("all,", _line(sums, time.monotonic() - begun_s))
    return 1 if sums["seeds with violations"] else 0


def _seeds(first: int, most: int, deadline_s: float) -> Iterator[tuple[int, float]]:
    for seed in range(first, first + most):
        if time.monotonic() > deadline_s:
            return
        yield seed, deadline_s
        time.sleep(0.05)  # the pool reads ahead; there is no use in being far ahead


def _run(work: tuple[int, float]) -> tuple[int, list[str], Counter[str]]:
    """(seed, violations, counts); no counts when the time was over."""
    seed, deadline_s = work
    sums: Counter[str] = Counter()
    if time.monotonic() > deadline_s:
        return seed, [], sums
    outcome = run_seed(seed)
    gc.collect()  # it is off while a seed runs: when it comes would not repeat
    sums["seeds"] = 1
    sums["seeds with violations"] = int(bool(outcome.violations))
    sums["events"] = outcome.events
    sums["acknowledged"] = outcome.acked
    sums["read"] = outcome.reads
    sums["virtual seconds"] = int(outcome.virtual_s)
    for name in COUNTED:
        sums[name] = outcome.counts.get(name, 0)
    return seed, list(outcome.violations), sums


def _line(sums: Counter[str], seconds: float) -> str:
    return f"{seconds:.0f} s: " + ", ".join(f"{count} {name}" for name, count in sums.items())


if __name__ == "__main__":
    sys.exit(main())

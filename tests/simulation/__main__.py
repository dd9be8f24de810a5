"""Run seeds: `python -m tests.simulation 7 --trace`, or `python -m tests.simulation 1-200`.

Exit code 1 when a promise was broken.  The same seed gives the same trace, also in another process.
"""

import argparse
import sys
import time

from . import hashes

hashes.ensure("tests.simulation")

from .plan import draw  # noqa: E402 - the hashes first
from .run import run_seed  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", help="a seed, or first-last")
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    parser.add_argument("--plan", action="store_true", help="print what the seed does")
    parser.add_argument("--verbose", action="store_true", help="a line for each seed")
    parser.add_argument("--twice", action="store_true", help="run each twice and compare")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    began = time.perf_counter()
    bad = seeds = acked = events = 0
    for seed in range(int(first), int(last or first) + 1):
        if time.perf_counter() - began > options.seconds:
            break
        if options.plan:
            print(draw(seed))
        started = time.process_time()
        outcome = run_seed(seed, keep_trace=options.trace)
        took = time.process_time() - started
        seeds += 1
        acked += outcome.acked
        events += outcome.events
        if outcome.lines is not None:
            print(*outcome.lines, sep="\n")
        violations = list(outcome.violations)
        if options.twice and run_seed(seed).digest != outcome.digest:
            violations.append("another trace the second time")
        if violations:
            bad += 1
            print(f"seed {seed}: python -m tests.simulation {seed} --trace", flush=True)
            for text in violations:
                print(f"    {text}")
        if not last or options.verbose:
            print(
                f"seed {seed}: trace {outcome.digest}, {outcome.acked} acknowledged, "
                f"{outcome.reads} read, {outcome.virtual_s} s in {took:.2f} s",
                flush=True,
            )
    took = time.perf_counter() - began
    print(
        f"{seeds} seeds, {events} events, {acked} records acknowledged, "
        f"{bad} seeds with violations, {took:.1f} s"
    )
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())

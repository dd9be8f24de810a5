"""SIGKILL at one system call after another: `python -m tests.soak.call_chain --points 3000`.

Chains of POINTS_PER_CHAIN on one data directory each.  One line per chain as it ends, the sums at
the end; the data directory of a finding stays.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from ..faults.call_chain import ChainOutcome, draw_points, run_chain
from ..faults.history import counts
from .folders import put_away

POINTS_PER_CHAIN = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.call_chain", description=__doc__)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no chain after so long"
    )
    options = parser.parse_args()
    begun_s = time.monotonic()
    total = ChainOutcome()
    failed = done = 0
    while done < options.points and time.monotonic() - begun_s < options.seconds:
        folder = Path(tempfile.mkdtemp(prefix="call-chain-"))
        seed = options.seed + done // POINTS_PER_CHAIN
        points = draw_points(seed, min(POINTS_PER_CHAIN, options.points - done))
        outcome = run_chain(folder / "data", points)
        print(f"seed {seed}: {line(outcome)}", flush=True)
        put_away(folder, outcome.anomalies, outcome.problems, is_clean=outcome.is_clean)
        failed += not outcome.is_clean
        total.add(outcome)
        total.hit += outcome.hit
        total.missed += outcome.missed
        done += len(points)
    print(f"all, {time.monotonic() - begun_s:.0f} s: {line(total)}")
    for where, count in sorted(total.hit.items()):
        print(f"  {count:>5} {where}")
    return 1 if failed else 0


def line(outcome: ChainOutcome) -> str:
    return (
        f"{outcome.points} kills, {len(outcome.missed)} calls not met, {outcome.acked} of "
        f"{outcome.sent} acked, {outcome.polled} polled, anomalies: {counts(outcome.anomalies)}, "
        f"problems: {len(outcome.problems)}"
    )


if __name__ == "__main__":
    sys.exit(main())

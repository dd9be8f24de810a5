"""kill -9 under load, for as long as one likes: `python -m tests.soak.kill_loop --kills 1000`.

One line per round as it ends, and the sums.  The exit code says whether anything was found; the
data directory of a round with a finding stays.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from ..faults.history import counts
from ..faults.kill_loop import Outcome, run_round
from .folders import put_away

KILLS_PER_ROUND = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.kill_loop", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--producers", type=int, default=8)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no round after so long"
    )
    options = parser.parse_args()
    begun_s = time.monotonic()
    total = Outcome()
    failed = 0
    left = options.kills
    seed = options.seed
    while left > 0 and time.monotonic() - begun_s < options.seconds:
        folder = Path(tempfile.mkdtemp(prefix=f"kill-loop-{seed}-"))
        outcome = run_round(
            folder / "data",
            seed,
            kills=min(left, KILLS_PER_ROUND),
            producers=options.producers,
            consumers=options.consumers,
            between_s=(0.0, 0.4),
            pause_s=0.03,
        )
        print(f"seed {seed}: {line(outcome)}", flush=True)
        put_away(folder, outcome.anomalies, outcome.problems, is_clean=outcome.is_clean)
        failed += not outcome.is_clean
        total.add(outcome)
        left -= KILLS_PER_ROUND
        seed += 1
    print(f"all, {time.monotonic() - begun_s:.0f} s: {line(total)}")
    return 1 if failed else 0


def line(outcome: Outcome) -> str:
    return (
        f"{outcome.kills} kills, {outcome.kills_in_recovery} more while starting, "
        f"{outcome.terminations} terminations, {outcome.sent} sent, {outcome.acked} acked, "
        f"{outcome.polled} polled, slowest start {outcome.start_s_max:.2f} s, "
        f"anomalies: {counts(outcome.anomalies)}, problems: {len(outcome.problems)}"
    )


if __name__ == "__main__":
    sys.exit(main())

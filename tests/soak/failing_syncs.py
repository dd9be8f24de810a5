"""EIO from every sync of many scenarios: `python -m tests.soak.failing_syncs --scenarios 40`."""

import argparse
import sys
import time

from ..faults.failing_syncs import fail_at, syncs_of
from ..fuzz.soak import quiet


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.failing_syncs", description=__doc__)
    parser.add_argument("--scenarios", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    quiet()
    begun_s = time.monotonic()
    runs = acked = found = 0
    for seed in range(options.seed, options.seed + options.scenarios):
        for number in range(1, syncs_of(seed) + 1):
            site = fail_at(seed, number)
            runs += 1
            acked += sum(map(len, site.acked.values()))
            for problem in site.problems:
                found += 1
                print(f"scenario {seed}, sync {number}: {problem}", flush=True)
    print(
        f"{options.scenarios} scenarios, {runs} failed syncs, {acked} acknowledged, "
        f"{found} findings, {time.monotonic() - begun_s:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

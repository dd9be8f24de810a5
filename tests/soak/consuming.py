"""Programs of group consumers beside rebalances and faults: `python -m tests.soak.consuming`.

Seeds from `--seed` on, for `--seconds`, `--seeds` of them at most; with `--trace` one of them, told
as it goes.  What a seed does is in tests/consuming.  The first difference ends it, with the
command that repeats it; with `--all` it goes on to the next seed.
"""

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext

from tests.simulation import hashes

hashes.ensure("tests.soak.consuming")

from tests.consuming.bugs import BUGS  # noqa: E402 - the hashes first
from tests.consuming.plan import draw  # noqa: E402
from tests.consuming.run import run_seed  # noqa: E402

SEEDS_PER_LINE = 20
COUNTED = (
    "act",
    "handed",
    "committed",
    "assigned",
    "revoked",
    "lost",
    "stumbles",
    "fault",
    "change",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.consuming", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="one seed, and all of it")
    parser.add_argument("--all", action="store_true", help="go on behind a difference")
    parser.add_argument("--seeds", type=int, default=1 << 62, help="at most so many")
    parser.add_argument("--plant", choices=[bug.name for bug in BUGS], help="with this bug")
    options = parser.parse_args()
    plant = next((bug.plant for bug in BUGS if bug.name == options.plant), nullcontext)
    seeds_max = 1 if options.trace else options.seeds
    ends_s = time.monotonic() + options.seconds
    sums: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + seeds_max):
        if time.monotonic() > ends_s:
            break
        outcome = run_seed(seed, keep_trace=options.trace, planted=plant)
        if outcome.lines is not None:
            print(draw(seed), *outcome.lines, sep="\n")
        sums += {name: outcome.counts.get(name, 0) for name in COUNTED} | {"seeds": 1}
        if outcome.violations:
            sums["seeds with differences"] += 1
            print(f"python -m tests.soak.consuming --seed {seed} --trace", flush=True)
            for text in outcome.violations:
                print(f"    {text}", flush=True)
            if not options.all:
                return 1
        if sums["seeds"] % SEEDS_PER_LINE == 0:
            print(_line(sums), flush=True)
    print("all,", _line(sums))
    return 1 if sums["seeds with differences"] else 0


def _line(sums: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sums.items())


if __name__ == "__main__":
    sys.exit(main())

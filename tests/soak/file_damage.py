"""Damaged files, drawn by chance: `python -m tests.soak.file_damage --seconds 600`.

One to three damages to one data directory at a time, a new directory every WORLD_SIZE of them.  The
seed of each is printed with what it found, and repeats it: `--seed S --count 1`.
"""

import argparse
import sys
import time
from random import Random

from ..faults.damage import build
from ..faults.file_damage import Tally, damage_some
from ..fuzz.soak import quiet

WORLD_SIZE = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.file_damage", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 60, help="at most so many")
    options = parser.parse_args()
    quiet()
    deadline_s = time.monotonic() + options.seconds
    begun_s = time.monotonic()
    tally = Tally()
    known = 0
    number = options.seed
    world = build(number // WORLD_SIZE)
    while time.monotonic() < deadline_s and number < options.seed + options.count:
        if number % WORLD_SIZE == 0:
            world = build(number // WORLD_SIZE)
        damage_some(world, Random(number), tally)
        for finding in tally.findings[known:]:
            print(f"seed {number}: {finding}", flush=True)
        known = len(tally.findings)
        number += 1
    outcomes = ", ".join(f"{count} {what}" for what, count in sorted(tally.outcomes.items()))
    print(
        f"seeds {options.seed} to {number - 1}, {time.monotonic() - begun_s:.0f} s: "
        f"{tally.count} directories: {outcomes}; {known} findings"
    )
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())

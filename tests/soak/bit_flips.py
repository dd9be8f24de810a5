"""One bit flipped in every byte of every file: `python -m tests.soak.bit_flips --seed 1`.

Every byte once, the bit drawn by the seed, at rest; then as many as `--in-use` of each file under
an open broker.  One line per kind of file; what was found is printed whole.
"""

import argparse
import sys
import time
from random import Random

from ..faults.bit_flips import Tally, flip
from ..faults.damage import Ending, build
from ..fuzz.soak import quiet

ALL = 1 << 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.bit_flips", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--segment-bytes", type=int, default=16_384, help="of every full segment")
    parser.add_argument("--segments", type=int, default=1, help="full ones per partition")
    parser.add_argument(
        "--per-file", type=int, default=ALL, help="bytes of each file; default: all"
    )
    parser.add_argument("--in-use", type=int, default=500, help="bytes of each file in use")
    parser.add_argument(
        "--ending",
        choices=[ending.name.lower() for ending in Ending],
        default="closed",
        help="how the broker ended before the flip",
    )
    options = parser.parse_args()
    quiet()
    random = Random(options.seed)
    world = build(
        options.seed,
        segment_bytes=options.segment_bytes,
        segments=options.segments,
        topics=(("t", 1, "fsync"),),
        ending=Ending[options.ending.upper()],
    )
    size = sum(map(len, world.files.values()))
    print(f"seed {options.seed}, {len(world.files)} files, {size} bytes", flush=True)
    found = 0
    for name, per_file, in_use in (
        ("at rest", options.per_file, False),
        ("in use", options.in_use if options.ending == "closed" else 0, True),
    ):
        begun_s = time.monotonic()
        tallies = flip(world, random, per_file, in_use=in_use)
        for kind, tally in sorted(tallies.items()):
            found += report(f"{name}, {kind}", tally)
        flips = sum(tally.flips for tally in tallies.values())
        print(f"{name}: {flips} flips, {time.monotonic() - begun_s:.0f} s", flush=True)
    return 1 if found else 0


def report(name: str, tally: Tally) -> int:
    outcomes = ", ".join(f"{count} {what}" for what, count in sorted(tally.outcomes.items()))
    print(f"{name}: {tally.flips} flips: {outcomes}; {len(tally.findings)} findings", flush=True)
    for finding in tally.findings[:20]:
        print(f"  {finding}")
    return len(tally.findings)


if __name__ == "__main__":
    sys.exit(main())

"""One bit flipped in every byte of every file: `python -m tests.soak.bit_flips --seed 1`.

Every byte once, the bit drawn by the seed, at rest; then as many as `--in-use` of each file under
an open broker.  One line per kind of file; what was found is printed whole.  With `--ending all`
(the default) after a clean close, a kill and a power cut, one after another.
"""

import argparse
import multiprocessing
import os
import sys
import time
from random import Random

from ..faults.bit_flips import Tally, flip
from ..faults.damage import Ending, World, build
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
        choices=["all", *(ending.name.lower() for ending in Ending)],
        default="all",
        help="how the broker ended before the flip",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    endings = [one for one in Ending if options.ending in ("all", one.name.lower())]
    found = 0
    for ending in endings:
        found += run(options, ending)
    return 1 if found else 0


def run(options: argparse.Namespace, ending: Ending) -> int:
    """Every byte of a directory that ended so; the number of findings."""
    world = build(
        options.seed,
        segment_bytes=options.segment_bytes,
        segments=options.segments,
        topics=(("t", 1, "fsync"),),
        ending=ending,
    )
    size = sum(map(len, world.files.values()))
    print(
        f"{ending.name.lower()}: seed {options.seed}, {len(world.files)} files, {size} bytes",
        flush=True,
    )
    found = 0
    for name, per_file, in_use in (
        ("at rest", options.per_file, False),
        ("in use", options.in_use if ending is Ending.CLOSED else 0, True),
    ):
        if not per_file:
            continue
        begun_s = time.monotonic()
        work = [
            (world, options.seed, per_file, in_use, (place, options.processes))
            for place in range(options.processes)
        ]
        tallies: dict[str, Tally] = {}
        with multiprocessing.Pool(options.processes) as pool:
            for some in pool.imap_unordered(flip_part, work):
                for kind, tally in some.items():
                    tallies.setdefault(kind, Tally()).join(tally)
        for kind, tally in sorted(tallies.items()):
            found += report(f"{name}, {kind}", tally)
        flips = sum(tally.flips for tally in tallies.values())
        print(f"{name}: {flips} flips, {time.monotonic() - begun_s:.0f} s", flush=True)
    return found


Work = tuple[World, int, int, bool, tuple[int, int]]


def flip_part(work: Work) -> dict[str, Tally]:
    """The share of one process."""
    quiet()
    world, seed, per_file, in_use, part = work
    return flip(world, Random(seed), per_file, in_use=in_use, part=part)


def report(name: str, tally: Tally) -> int:
    outcomes = ", ".join(f"{count} {what}" for what, count in sorted(tally.outcomes.items()))
    print(f"{name}: {tally.flips} flips: {outcomes}; {len(tally.findings)} findings", flush=True)
    for finding in tally.findings[:20]:
        print(f"  {finding}")
    return len(tally.findings)


if __name__ == "__main__":
    sys.exit(main())

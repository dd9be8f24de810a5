"""Random life of groups, for as long as one likes: `python -m tests.soak.groups --seconds 3600`.

A line per seed; the first violation ends it, with its seed.  The same seed gives the same choices,
not the same interleaving: clients and daemon run on real clocks.
"""

import argparse
import sys
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.groups.play import play

ROUND_S = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.groups", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--members", type=int, default=6, help="raw members per group")
    parser.add_argument("--rdkafka", type=int, default=3, help="librdkafka members per group")
    options = parser.parse_args()
    ends_s = time.monotonic() + options.seconds
    for seed in count(options.seed):
        if time.monotonic() > ends_s:
            return 0
        with TemporaryDirectory() as folder:
            try:
                outcome = play(
                    Path(folder) / "data",
                    seed,
                    seconds=ROUND_S,
                    members=options.members,
                    kills=2,
                    rdkafka=options.rdkafka,
                )
            except Exception as exc:
                print(f"seed {seed}: {type(exc).__name__}: {exc}", flush=True)
                raise
        print(f"seed {seed}: {outcome}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Kills while transactions are written: `python -m tests.soak.transactions --seconds 600`.

One life per kill, at a call and a number drawn by the seed.  One line each, the sums at the end;
the data directory of a finding stays.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from ..faults.torn import torn_at
from .folders import put_away

# Calls of one life, as counted in one without a kill: of the thread that makes the most.
CALLS = {"fdatasync": 110, "pwrite64": 130}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.transactions", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at", metavar="CALL:NUMBER", help="one life with this kill")
    options = parser.parse_args()
    random = Random(options.seed)
    deadline_s = time.monotonic() + options.seconds
    outcomes: Counter[str] = Counter()
    lives = killed = found = 0
    while time.monotonic() < deadline_s and not (options.at and lives):
        folder = Path(tempfile.mkdtemp(prefix="transactions-"))
        call = random.choice(list(CALLS))
        number = random.randint(1, CALLS[call])
        if options.at:
            call, _, given = options.at.partition(":")
            number = int(given)
        verdict = torn_at(folder / "data", call, number)
        print(verdict, flush=True)
        lives += 1
        killed += verdict.was_killed
        outcomes.update(verdict.outcomes.values())
        put_away(folder, verdict.problems, is_clean=not verdict.problems)
        found += bool(verdict.problems)
    told = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    print(f"{lives} lives, {killed} killed, transactions: {told}; {found} with findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

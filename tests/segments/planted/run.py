"""python -m tests.segments.planted.run [--quick] [NAME ...]: plant bugs, one by one.

--quick: look at no more disks than the quick tier of the crash images does (crash/quick.py).
Exit code 1 when one is not found.  Nothing of segments/ or broker/ is imported here.
"""

import argparse
import sys

# What every child needs and no bug changes, imported once.
import structlog  # noqa: F401

import segbroker.protocol.record_batch
import segbroker.protocol.vendor  # noqa: F401

from ..crash.extent import QUICK
from .catalogue import BUGS
from .planting import Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="all of them by default")
    parser.add_argument(
        "--seconds-max", type=float, default=60.0, help="of processor time, for one bug"
    )
    parser.add_argument("--quick", action="store_true", help="as `make test` looks, not at all")
    options = parser.parse_args()
    chosen = [bug for bug in BUGS if not options.names or bug.name in options.names]
    found = 0
    for bug in chosen:
        outcome, said, seconds = run(bug, options.seconds_max, QUICK if options.quick else {})
        found += outcome is Outcome.FOUND
        first = said.splitlines()[0] if said else ""
        print(f"{outcome.name:7} {seconds:5.1f} s  {bug.name:45} {first[:160]}", flush=True)
    print(f"{found} of {len(chosen)} planted bugs were found")
    return 0 if found == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

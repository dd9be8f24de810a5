"""Planted bugs by their names: `python -m tests.simulation.planted`, a name a line on its input.

For each it says the seed that finds it, or that none does: by the hashes that a later
`python -m tests.simulation SEED` has, and with one start for all of them.
"""

import sys
from typing import Final

from . import hashes

if __name__ == "__main__":
    hashes.ensure("tests.simulation.planted")

from .bugs import BUGS
from .bugs_consumer_groups import BUGS as BUGS_OF_CONSUMER_GROUPS
from .bugs_express import BUGS as BUGS_OF_EXPRESS
from .bugs_groups import BUGS as BUGS_OF_GROUPS
from .bugs_shares import BUGS as BUGS_OF_SHARES
from .bugs_streams_groups import BUGS as BUGS_OF_STREAMS_GROUPS
from .run import run_seed

EVERY_BUG: Final = (
    *BUGS,
    *BUGS_OF_GROUPS,
    *BUGS_OF_CONSUMER_GROUPS,
    *BUGS_OF_STREAMS_GROUPS,
    *BUGS_OF_EXPRESS,
    *BUGS_OF_SHARES,
)


def main() -> None:
    by_name = {bug.name: bug for bug in EVERY_BUG}
    for line in sys.stdin:
        bug = by_name[line.rstrip("\n")]
        found = (
            seed
            for seed in sorted(range(1, bug.seeds_max + 1), key=lambda seed: seed != bug.seed)
            if run_seed(seed, plan=bug.plan(seed), until_one=True, planted=bug.plant).violations
        )
        print(f"found by seed {seed}" if (seed := next(found, 0)) else "not found", flush=True)


if __name__ == "__main__":
    main()

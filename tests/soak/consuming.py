"""Programs of group consumers beside rebalances and faults: `python -m tests.soak.consuming`.

Seeds from `--seed` on, for `--seconds`, `--seeds` of them at most; with `--trace` one of them, told
as it goes.  What a seed does is in tests/consuming.  The first difference ends it, with the
command that repeats it; with `--all` it goes on to the next seed.
"""

import sys

from tests.simulation import hashes

hashes.ensure("tests.soak.consuming")

from tests.consuming.bugs import BUGS  # noqa: E402 - the hashes first
from tests.consuming.plan import draw  # noqa: E402
from tests.consuming.run import run_seed  # noqa: E402
from tests.soak.seeds import main  # noqa: E402

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

if __name__ == "__main__":
    sys.exit(main("tests.soak.consuming", __doc__, BUGS, draw, run_seed, COUNTED))

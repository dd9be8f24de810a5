"""Changes of topics, settings, rules and ids over every crash: `python -m tests.soak.admin`.

Seeds from `--seed` on, for `--seconds`, `--seeds` of them at most; with `--trace` one of them, told
as it goes.  What a seed does is in tests/administration.  The first difference ends it, with the
command that repeats it; with `--all` it goes on to the next seed.
"""

import sys

from tests.simulation import hashes

hashes.ensure("tests.soak.admin")

from tests.administration.bugs import BUGS  # noqa: E402 - the hashes first
from tests.administration.plan import draw  # noqa: E402
from tests.administration.run import run_seed  # noqa: E402
from tests.soak.seeds import main  # noqa: E402

COUNTED = ("changed", "acked", "refused", "probe", "given", "judged", "kill", "power_cut", "EIO")

if __name__ == "__main__":
    sys.exit(main("tests.soak.admin", __doc__, BUGS, draw, run_seed, COUNTED))

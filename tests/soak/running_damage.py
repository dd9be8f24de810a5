"""Files changed under a running broker: `python -m tests.soak.running_damage --seconds 600`.

The seed of each finding is printed and repeats it: `--seed S --count 1 --trace`.  `--undone`: the
mends that are listed in tests/faults/undone.py are undone in turn, and have to be found.
`--flushers 2`: with the threads of a broker, in whatever order: a seed says what is done alone.
"""

import sys

from ..faults.undone import CASES_MAX, UNDONE
from .drawn_cases import main

if __name__ == "__main__":
    sys.exit(
        main(
            "tests.soak.running_damage",
            __doc__,
            "tests.faults.running_damage",
            UNDONE,
            CASES_MAX,
            has_threads=True,
        )
    )

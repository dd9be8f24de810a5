"""The n-th call of a disk fails, in starts and behind them: `python -m tests.soak.failing_calls`.

The seed of each finding is printed and repeats it: `--seed S --count 1 --trace`.  A seed stands for
a combination and a call; from the first on each of them comes once, some of all soon.  `--undone`:
the rules that are listed in tests/faults/undone_calls.py are undone in turn, and have to be found.
"""

import sys

from ..faults.undone_calls import CASES_MAX, UNDONE
from .drawn_cases import main

if __name__ == "__main__":
    sys.exit(
        main("tests.soak.failing_calls", __doc__, "tests.faults.failing_calls", UNDONE, CASES_MAX)
    )

"""Transactions on a disk that fails: `python -m tests.soak.failing_transactions --seconds 600`.

The seed of each finding is printed and repeats it: `--seed S --count 1 --trace`.  `--undone`: the
rules that are listed in tests/faults/undone_transactions.py are undone in turn, and have to be
found.
"""

import sys

from ..faults.undone_transactions import CASES_MAX, UNDONE
from .drawn_cases import main

if __name__ == "__main__":
    sys.exit(
        main(
            "tests.soak.failing_transactions",
            __doc__,
            "tests.faults.failing_transactions",
            UNDONE,
            CASES_MAX,
        )
    )

"""Classes that change on a disk that fails: `python -m tests.soak.failing_classes --seconds 600`.

The seed of each finding is printed and repeats it: `--seed S --count 1 --trace`.  `--undone`: the
rules that are listed in tests/faults/undone_classes.py are undone in turn, and have to be found.
"""

import sys

from ..faults.undone_classes import CASES_MAX, UNDONE
from .drawn_cases import main

if __name__ == "__main__":
    sys.exit(
        main(
            "tests.soak.failing_classes",
            __doc__,
            "tests.faults.failing_classes",
            UNDONE,
            CASES_MAX,
        )
    )

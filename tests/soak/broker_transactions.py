"""Transactions at the coordinator: `python -m tests.soak.broker_transactions --seconds 600`.

The seed of each finding is printed and repeats it: `--seed S --count 1 --trace`.  `--undone`: the
rules that are listed in tests/transactions/undone.py are undone in turn, and have to be found.
"""

import sys

from tests.simulation import hashes

hashes.ensure("tests.soak.broker_transactions")

from tests.soak.drawn_cases import main  # noqa: E402 - the hashes first
from tests.transactions.undone import CASES_MAX, UNDONE  # noqa: E402

if __name__ == "__main__":
    sys.exit(
        main(
            "tests.soak.broker_transactions",
            __doc__,
            "tests.transactions.run",
            UNDONE,
            CASES_MAX,
        )
    )

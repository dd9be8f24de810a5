"""How much `make test` looks at of what is enumerated or drawn; `make proof` looks at all of it.

Simulated seeds, examples of models, flipped bits and kills are each many times the same question.
Continuous integration asks a share of them, so that it ends while somebody waits; `make proof`
(TESTS_EXTENT=whole) runs the same tests in their whole extent, as `make soak` does first.  Both
are in docs/reliability.md.

By itself: who plants a bug imports nothing that has it.
"""

import os
from typing import Final, TypeVar

T = TypeVar("T")

WHOLE: Final = os.environ.get("TESTS_EXTENT") == "whole"


def share(some: T, whole: T) -> T:
    """What the tests take: `some` of it, or the `whole` when that is asked for."""
    return whole if WHOLE else some

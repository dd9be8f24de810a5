"""The quick tier of the crash images: which of them, by two files of tests; how many they are.

`python -m tests.segments.crash.quick` runs all of it and prints the counts that docs/reliability.md
tells, a line per scenario with `--each`.  A scenario that a planted bug is looked for in is looked
at more closely than one in which none is.
"""

import argparse
import time
from dataclasses import replace

from ..planted.catalogue import BUGS
from .explorer import Counts, Plan, silence
from .extent import QUICK, THIN_EVERY_FOR_NO_BUG
from .scenarios import SCENARIOS

PLAN = Plan(
    thin_every=QUICK["thin_every"],
    alike_every=QUICK["alike_every"],
    settle_every=QUICK["settle_every"],
    nested_every=QUICK["nested_every"],
    inner_every=QUICK["inner_every"],
    memories={},
)
THINNER = replace(PLAN, thin_every=THIN_EVERY_FOR_NO_BUG)
FIND_BUGS = frozenset(bug.found_by for bug in BUGS)
PARTS = 2
"""Half of the workers compute (tests/conftest.py).  What one file has examined, another examines as
well: so they are not more."""
SECONDS_MAX = 900
"""For one scenario: some seconds on a quiet machine."""


def names(part: int) -> list[str]:
    """The scenarios of one file: those that begin alike are beside each other."""
    size = -(-len(SCENARIOS) // PARTS)
    return list(SCENARIOS)[part * size : (part + 1) * size]


def look_at(name: str) -> Counts:
    """Run a scenario; raises Found."""
    with silence():
        counts = SCENARIOS[name](PLAN if name in FIND_BUGS else THINNER)
    assert counts.judged > 100, "a scenario that makes no images proves nothing"
    assert counts.recovered > counts.images // PLAN.alike_every, "every kind is recovered"
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.segments.crash.quick")
    parser.add_argument("--each", action="store_true", help="a line for each scenario")
    options = parser.parse_args()
    total = Counts()
    begun_s = time.process_time()
    for name in SCENARIOS:
        counts = look_at(name)
        total.add(counts)
        if options.each:
            print(f"{name:60} {counts.images:6} {counts.recovered:6} {counts.seconds:6.1f} s")
    print(
        f"{len(SCENARIOS)} scenarios, {total.operations} operations: {total.images} different disks"
        f" judged, {total.nested} of them from crashes inside recovery; {total.recovered} recovered"
        f" outright, {total.settled} again and written to; {total.covered} disks covered,"
        f" {total.judged} judgements; {time.process_time() - begun_s:.0f} s of processor time"
    )


if __name__ == "__main__":
    main()

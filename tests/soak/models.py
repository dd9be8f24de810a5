"""State machines against their models for as long as one likes: python -m tests.soak.models.

Rounds of EXAMPLES runs each of the crash machine (tests/segments/crash/machine.py), of the two
of tests/segments/test_model.py and of that of compaction, each round by a seed of its own; several
processes share them.  A violation is printed with the seed of its round, which `--one SEED` repeats
and makes short.
`--state FILE` remembers the rounds that are done: the next run with the same seed goes on behind
them, and the total that is printed is that of all runs.
"""

import argparse
import itertools
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.segments.crash.explorer import silence
from tests.segments.crash.machine import CrashMachine
from tests.segments.test_compaction_model import CompactedMachine
from tests.segments.test_model import LibraryMachine, PartitionMachine

from .progress import Progress

EXAMPLES = 50
MACHINES: dict[str, type[RuleBasedStateMachine]] = {
    "crashes": CrashMachine,
    "crashes again": CrashMachine,
    "partition": PartitionMachine,
    "library": LibraryMachine,
    "compacted": CompactedMachine,
}
"""The first is worth two."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.models", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--state", type=Path, help="go on from this file, and keep it")
    parser.add_argument("--one", type=int, help="one round again, to its shortest failure")
    options = parser.parse_args()
    if options.one is not None:
        _, _, _, found = attempt((options.one, tuple(Phase), float("inf")))
        print(found or "nothing found")
        return 1 if found else 0
    deadline_s = time.monotonic() + options.seconds
    progress = Progress(options.state, "models", options.seed)
    failures = 0
    with multiprocessing.Pool(options.workers) as pool:
        for number, ran, crashed, found in pool.imap_unordered(
            attempt, rounds(progress, options.seed, deadline_s)
        ):
            if found:
                failures += 1
                print(f"VIOLATION in round {number} (--one {number}): {found}", flush=True)
            elif ran:
                progress.finished(str(number), {"examples": ran, "crashes": crashed})
    totals = progress.totals
    print(
        f"models: seed {options.seed}, {options.seconds} s, {options.workers} workers, "
        f"{totals['examples']} examples, {totals['crashes']} crashes inside them"
        f"{'' if options.state is None else ' in all runs'}, {failures} violations"
    )
    return 1 if failures else 0


Work = tuple[int, tuple[Phase, ...], float]


def rounds(progress: Progress, first: int, deadline_s: float) -> Iterator[Work]:
    for number in progress.left(map(str, itertools.count(first * 1_000_000))):
        if time.monotonic() > deadline_s:
            return
        yield int(number), (Phase.generate,), deadline_s
        time.sleep(0.2)  # the pool reads ahead; there is no use in being far ahead


def attempt(work: Work) -> tuple[int, int, int, str]:
    """(round, examples, crashes inside them, what was found)."""
    number, phases, deadline_s = work
    if time.monotonic() > deadline_s:
        return number, 0, 0, ""
    machine = list(MACHINES.values())[number % len(MACHINES)]
    ran = crashes = 0

    class Counted(machine):  # type: ignore[valid-type, misc]  # a class chosen at run time
        def teardown(self) -> None:
            nonlocal ran, crashes
            super().teardown()
            ran += 1
            crashes += getattr(self, "crashes", 0)

    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=30,
        deadline=None,
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    with silence():
        try:
            run_state_machine_as_test(seed(number)(Counted), settings=chosen)
        except Exception as exc:
            return number, ran, crashes, "".join(traceback.format_exception(exc))[-2_000:]
    return number, ran, crashes, ""


if __name__ == "__main__":
    sys.exit(main())

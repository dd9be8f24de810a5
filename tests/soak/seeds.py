"""Seeds of a world from one on, for so long; what a seed does is in the folder of its name.

The first difference ends it, with the command that repeats it; with `--all` it goes on.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from ..simulation.run_world import Outcome

SEEDS_PER_LINE: Final = 20


class Bug(Protocol):
    """One that can be planted."""

    @property
    def name(self) -> str: ...

    @property
    def plant(self) -> Callable[[], AbstractContextManager[object]]: ...


def main(
    program: str,
    says: str | None,
    bugs: Sequence[Bug],
    draw: Callable[[int], object],
    run_seed: Callable[..., Outcome],
    counted: Sequence[str],
) -> int:
    """The program.  draw, run_seed: of the world; counted: what of its traces is summed up."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=says)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="one seed, and all of it")
    parser.add_argument("--all", action="store_true", help="go on behind a difference")
    parser.add_argument("--seeds", type=int, default=1 << 62, help="at most so many")
    parser.add_argument("--plant", choices=[bug.name for bug in bugs], help="with this bug")
    options = parser.parse_args()
    plant = next((bug.plant for bug in bugs if bug.name == options.plant), nullcontext)
    seeds_max = 1 if options.trace else options.seeds
    ends_s = time.monotonic() + options.seconds
    sums: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + seeds_max):
        if time.monotonic() > ends_s:
            break
        outcome = run_seed(seed, keep_trace=options.trace, planted=plant)
        if outcome.lines is not None:
            print(draw(seed), *outcome.lines, sep="\n")
        sums += {name: outcome.counts.get(name, 0) for name in counted} | {"seeds": 1}
        if outcome.violations:
            sums["seeds with differences"] += 1
            print(f"python -m {program} --seed {seed} --trace", flush=True)
            for text in outcome.violations:
                print(f"    {text}", flush=True)
            if not options.all:
                return 1
        if sums["seeds"] % SEEDS_PER_LINE == 0:
            print(_line(sums), flush=True)
    print("all,", _line(sums))
    return 1 if sums["seeds with differences"] else 0


def _line(sums: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sums.items())

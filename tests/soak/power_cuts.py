"""Power cuts on real file systems: `python -m tests.soak.power_cuts --seconds 600 --seed 1`.

Lives of some seconds on ext4, xfs and btrfs in turn, and some power cuts in each; and some within
the starts behind others.  Needs root.  A
line for each life, the sums at the end; the images of what was found stay.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from ..faults.cut_starts import cut_starts
from ..faults.devices import FILE_SYSTEMS, require
from ..faults.power_cuts import Outcome, cut, live
from .folders import put_away

PLANTED = Path(__file__).parents[1] / "faults" / "planted.py"
CUTS = 20
STARTS = 2
CUTS_WITHIN = 5
"""Of the start behind a power cut."""
LIFE_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.power_cuts", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file-system", choices=FILE_SYSTEMS, help="else each in turn")
    parser.add_argument("--cuts", type=int, default=CUTS, help="within each life")
    parser.add_argument("--starts", type=int, default=STARTS, help="of each life that are cut")
    parser.add_argument("--planted", default="", help="a bug of tests/faults/planted.py")
    options = parser.parse_args()
    cache = Path(tempfile.gettempdir(), "segbroker-power-cuts")
    cache.mkdir(exist_ok=True)
    python = require(cache)
    kinds = [options.file_system] if options.file_system else list(FILE_SYSTEMS)
    under = [sys.executable, str(PLANTED), options.planted] if options.planted else []
    begun_s = time.monotonic()
    total = Outcome()
    seed = options.seed
    while time.monotonic() < begun_s + options.seconds:
        kind = kinds[seed % len(kinds)]
        folder = Path(tempfile.mkdtemp(prefix=f"power-cuts-{seed}-"))
        life = live(folder / "life", kind, python, seconds=LIFE_S, under=under)
        outcome = cut(life, seed, options.cuts)
        if outcome.is_clean:
            starts = cut_starts(
                life, seed, options.starts, python, within=CUTS_WITHIN, planted=under
            )
            outcome.add(starts)
        print(f"seed {seed}, {kind}: {line(outcome)}", flush=True)
        put_away(folder, outcome.anomalies, outcome.problems, is_clean=outcome.is_clean)
        total.add(outcome)
        seed += 1
    print(f"all, {time.monotonic() - begun_s:.0f} s: {line(total)}")
    return 0 if total.is_clean else 1


def line(outcome: Outcome) -> str:
    return (
        f"{outcome.cuts} power cuts, {outcome.within_starts} of them within a start,"
        f" {outcome.with_gaps} with a gap, {outcome.writes_lost} writes of the device lost,"
        f" {outcome.acked} acknowledgements and {outcome.traded} transactions asked for, class disk"
        f" has lost {outcome.lost_s_max:.2f} s at most, anomalies: {len(outcome.anomalies)},"
        f" problems: {len(outcome.problems)}"
    )


if __name__ == "__main__":
    sys.exit(main())

"""Programs of consumers in each shell, what they are told compared: `python -m tests.soak.shells`.

First `--shares` programs of members of a share group, in each shell; then programs from the number
`--seed` on, each `--step`-th, `--seeds` of them at most: those with one act come first, then drawn
ones (tests/shells/programs.py).  All that for `--seconds`.  The first difference ends it; with
`--all` it goes on.  What comes of a program does not depend on the machine; where it does, that is
a fault of the program, or of the client.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from itertools import count, islice
from pathlib import Path
from typing import Final

from ..shells.bugs import BUGS, SHARE_BUGS
from ..shells.life import differences, place
from ..shells.programs import SINGLES, program
from ..shells.sharing import sharing
from ..shells.shells import SHELLS, TRIO

ALL_BUGS: Final = (*BUGS, *SHARE_BUGS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.shells", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1 << 62)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--shares", type=int, default=0, help="so many of share groups, first")
    parser.add_argument("--share-seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="go on behind a difference")
    parser.add_argument("--plant", choices=[bug.name for bug in ALL_BUGS], help="with this bug")
    options = parser.parse_args()
    plant = next((bug.plant for bug in ALL_BUGS if bug.name == options.plant), nullcontext)
    ends_s, sums = time.monotonic() + options.seconds, Counter[str]()

    def goes_on() -> bool:
        return time.monotonic() < ends_s and (options.all or not sums["differences"])

    def judge(how: str, texts: list[str]) -> None:
        sums["differences"] += len(texts)
        for text in texts:
            print(f"python -m tests.soak.shells {how}\n    {text}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="shells-") as folder,
        place(Path(folder)) as made,
        plant(),
    ):
        for seed in range(options.share_seed, options.share_seed + options.shares):
            for shell in (TRIO, *SHELLS) if goes_on() else ():
                sums["share programs"] += 1
                judge(f"--seeds 0 --shares 1 --share-seed {seed}", sharing(seed, shell, made))
        for number in islice(count(options.seed, options.step), options.seeds):
            if not goes_on():
                break
            sums["programs"] += 1
            judge(f"--seed {number} --seeds 1", differences(program(number), SHELLS, made))
    told = ", ".join(f"{sums[what]} {what}" for what in ("programs", "share programs"))
    print(f"{told}, {sums['differences']} differences ({SINGLES} programs have one act)")
    return 1 if sums["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())

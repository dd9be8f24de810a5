"""Faults in the system calls of a real daemon: `python -m tests.soak.daemon_faults --seconds 600`.

A first life without a fault counts the calls; then one life per fault: a call and a number drawn by
the seed, SIGKILL mostly, now and then EIO or ENOSPC.  One line each, the sums at the end; the data
directory of a finding stays.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from errno import EIO, ENOSPC
from pathlib import Path
from random import Random

from ..faults import traced
from ..faults.injection import PATIENCE_S, Life, Verdict, Work, fail_at, kill_at
from .folders import put_away

FAILURES_SHARE = 0.3
FAILURES = [("sync", EIO), ("sync", EIO), ("write", EIO), ("write", ENOSPC)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.daemon_faults", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = Random(options.seed)
    deadline_s = time.monotonic() + options.seconds
    calls = count_calls()
    print(f"seed {options.seed}, calls of one life: {calls}", flush=True)
    lives: Counter[str] = Counter()
    acked = found = 0
    while time.monotonic() < deadline_s:
        folder = Path(tempfile.mkdtemp(prefix="daemon-faults-"))
        verdict = one(random, calls, folder / "data")
        lives[verdict.fault.rpartition(" ")[0] if verdict.fired else "without a fault"] += 1
        acked += verdict.acked
        print(verdict, flush=True)
        put_away(folder, verdict.anomalies, verdict.problems, is_clean=verdict.is_clean)
        found += not verdict.is_clean
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(lives.items()))
    print(f"{lives.total()} lives ({kinds}), {acked} acked, {found} with findings")
    return 1 if found else 0


def count_calls() -> dict[str, int]:
    """How often each call happens in a life without a fault, by the thread that does most."""
    with tempfile.TemporaryDirectory(prefix="daemon-faults-") as folder:
        data = Path(folder, "data")
        life = Life(data, "")
        Work(life.listen, PATIENCE_S).all()
        life.end()
        return traced.counts_in(life.calls(), data)


def one(random: Random, calls: dict[str, int], data: Path) -> Verdict:
    if random.random() >= FAILURES_SHARE:
        call = random.choice([name for name in calls if name != "write"])
        return kill_at(data, call, random.randint(1, calls[call]))
    what, error = random.choice(FAILURES)
    names = ("fdatasync",) if what == "sync" else ("pwrite64", "pwritev", "writev")
    call = random.choice([name for name in names if name in calls])
    return fail_at(data, call, error, random.randint(1, calls[call]))


if __name__ == "__main__":
    sys.exit(main())

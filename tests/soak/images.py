"""Crash images for as long as one likes: python -m tests.soak.images --seconds 300 --seed 1.

The fixed scenarios come first and whole: every image, and a crash inside the recovery of one image
of `--nested-every`.  Then scripts of steps in a random order, drawn with the seed, without end.
`--workers` processes share the work; a violation is printed with the scenario and the seed that
repeat it (exit code 1).

`--state FILE` remembers the scripts that came to their end, and their counts: the next run with the
same seed goes on behind them, and the total that is printed is that of all runs; a script that was
begun is brought to its end then, some minutes after the time is up.  Runs with different seeds
differ in the random scripts and in the order of the fixed ones.  With
`--alike-every 16` a disk of which recovery takes nothing new is recovered in one case of 16 only
(crash/alike.py).
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.segments.crash.driver import Driver
from tests.segments.crash.explorer import Counts, Found, Plan, silence
from tests.segments.crash.scenarios import SCENARIOS

from .progress import Progress

RANDOM_STEPS = 14
COUNTED = ("operations", "images", "recovered", "nested", "judged", "settled")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.images", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nested-every", type=int, default=20)
    parser.add_argument("--alike-every", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--state", type=Path, help="go on from this file, and keep it")
    parser.add_argument("--one", help="run one scenario, or one random one by its seed, and end")
    options = parser.parse_args()
    plan = Plan(nested_every=options.nested_every, alike_every=options.alike_every)
    if options.one:
        with silence():
            print(run_one(options.one, plan))
        return 0
    deadline_s = time.monotonic() + options.seconds
    progress = Progress(options.state, "images", options.seed)
    total, scenarios_run, failures = Counts(), 0, 0
    whole = options.state is not None
    work = ((job, plan, deadline_s, whole) for job in progress.left(jobs(options.seed)))
    with multiprocessing.Pool(options.workers) as pool:
        for name, counts, found in pool.imap_unordered(attempt, until(work, deadline_s)):
            total.add(counts)
            scenarios_run += counts.judged > 0
            if found:
                failures += 1
                print(f"VIOLATION in {name} (--one {name}):\n{found}", flush=True)
            elif counts.judged and (whole or time.monotonic() < deadline_s):
                progress.finished(name, {key: getattr(counts, key) for key in COUNTED})
    print(
        f"crash images: seed {options.seed}, {options.seconds} s, {options.workers} workers, "
        f"{scenarios_run} scenarios, {told({key: getattr(total, key) for key in COUNTED})}, "
        f"{failures} violations"
    )
    if options.state is not None:
        print(f"all runs: {progress.jobs_count} scenarios whole, {told(progress.totals)}")
    return 1 if failures else 0


def told(counts: Mapping[str, int]) -> str:
    return (
        f"{counts['operations']} operations, {counts['images']} disks judged "
        f"({counts['recovered']} recovered, {counts['nested']} crashed inside recovery), "
        f"{counts['judged']} judgements, {counts['settled']} recovered again and written to"
    )


def jobs(seed: int) -> Iterator[str]:
    """The fixed ones in an order of the seed's, then random ones without end."""
    names = list(SCENARIOS)
    Random(seed).shuffle(names)
    yield from names
    number = seed * 1_000_000
    while True:
        yield str(number)
        number += 1


Work = tuple[str, Plan, float, bool]
"""(scenario, how far to go, when no more is begun, whether what was begun comes to its end)."""


def until(work: Iterator[Work], deadline_s: float) -> Iterator[Work]:
    for one in work:
        if time.monotonic() > deadline_s:
            return
        yield one
        # The pool reads ahead; there is no use in being far ahead.
        time.sleep(0.02)


def attempt(work: Work) -> tuple[str, Counts, str]:
    name, plan, deadline_s, whole = work
    if time.monotonic() > deadline_s:
        return name, Counts(), ""
    with silence():
        try:
            if not whole:
                plan = replace(plan, deadline_s=deadline_s)
            return name, run_one(name, plan), ""
        except Found as found:
            return name, Counts(judged=1), str(found)
        except AssertionError as error:
            return name, Counts(judged=1), f"{type(error).__name__}: {error}"


def run_one(name: str, plan: Plan) -> Counts:
    if name in SCENARIOS:
        return SCENARIOS[name](plan)
    return at_random(int(name), plan)


def at_random(seed: int, plan: Plan) -> Counts:
    """Steps in an order and with sizes of the seed's."""
    random = Random(seed)
    driver = Driver(plan, f"random {seed}")
    driver.open()
    classes = ["fsync", "disk"]
    topics = {"a": random.choice(classes), "b": random.choice(classes)}
    sequences = dict.fromkeys(topics, 0)
    segment = random.choice(["512", "2048", "4096"])
    for name, durability in topics.items():
        driver.create(name, 1, durability=durability, segment_bytes=segment)
    for _ in range(RANDOM_STEPS):
        name = random.choice(list(topics))
        match random.randrange(12):
            case 0 | 1 | 2 | 3:
                driver.append(name, 0, random.randint(1, 3), size=random.choice([16, 40, 200, 350]))
            case 4 | 5:
                count = random.randint(1, 2)
                driver.append(name, 0, count, producer=(ord(name), 0, sequences[name]))
                sequences[name] += count
            case 6:
                driver.tick(by_ms=random.choice([1_000, 1_000, 31_000]))
            case 7:
                handler = driver.handler(name)
                start, end = handler.log_start_offset, handler.high_watermark
                driver.delete_records(name, 0, random.randint(start, end))
            case 8:
                driver.kill()
                driver.open()
            case 9:
                driver.close()
                driver.open()
            case 10:
                driver.running.wal.checkpoint()
            case 11:
                driver.delete(name)
                driver.create(name, 1, durability=topics[name], segment_bytes=segment)
                sequences[name] = 0
    return driver.explorer.finish()


if __name__ == "__main__":
    sys.exit(main())

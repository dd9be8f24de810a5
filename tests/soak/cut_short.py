"""Async clients whose calls are cancelled at random: `python -m tests.soak.cut_short`.

Stories as in `tests/client/test_cut_short.py`, on trio and on asyncio by turns, one seed after
another until the time is over; the broker, too, is killed.  A failure names its seed; what is drawn
is the same again with it, what comes of it may depend on the machine.
"""

import argparse
import sys
import tempfile
import time
import traceback
from itertools import count
from pathlib import Path
from random import Random

import anyio

from ..client.cut_short import Faults, world
from ..client.test_cut_short import STORIES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.cut_short", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--story", help="only those with this in their name")
    options = parser.parse_args()
    stories = [story for story in STORIES if (options.story or "") in story.__name__]
    ends_s = time.monotonic() + options.seconds
    told, failed = 0, 0
    with tempfile.TemporaryDirectory(prefix="cut-short-") as folder, world(Path(folder)) as made:
        for seed in count(options.seed):
            for story in stories:
                for backend in ("trio", "asyncio"):
                    if time.monotonic() > ends_s:
                        print(f"{told} stories, {failed} failed; the next seed is {seed}")
                        return 1 if failed else 0
                    topic = f"t-{told}"
                    told += 1
                    made.in_order()
                    made.make_topic(topic)
                    faults = Faults(made, Random(seed), dies=seed % 2 == 1)
                    try:
                        anyio.run(story, made, topic, seed, faults, backend=backend)
                    except Exception:
                        failed += 1
                        print(f"seed {seed}, {story.__name__}, {backend}: {faults.told}")
                        traceback.print_exc(file=sys.stdout, limit=-8)
                    sys.stdout.flush()
    raise AssertionError("seeds have no end")


if __name__ == "__main__":
    sys.exit(main())

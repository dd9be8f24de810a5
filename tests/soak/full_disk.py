"""A disk full at every byte of a frame, in both classes: `python -m tests.soak.full_disk`.

Needs root: it mounts a tmpfs of a few MiB.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from ..faults.full_disk import FRAME_BYTES, small_disk, tear_at_each
from ..fuzz.soak import quiet


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.full_disk", description=__doc__)
    parser.add_argument("--step", type=int, default=1, help="every so many bytes")
    options = parser.parse_args()
    quiet()
    for durability in ("fsync", "disk"):
        begun_s = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix="full-disk-") as parent,
            small_disk(Path(parent, "disk")) as folder,
        ):
            count = tear_at_each(folder, durability, list(range(1, FRAME_BYTES, options.step)))
        took_s = time.monotonic() - begun_s
        print(f"{durability}: full at {count} bytes of a frame, {took_s:.0f} s, 0 findings")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A disk that is full at some byte of a frame: nothing acknowledged is lost, and it passes.

Every 30th byte; the long tier takes them all: `python -m tests.soak.full_disk`.
"""

from pathlib import Path

import pytest

from .full_disk import FRAME_BYTES, small_disk, tear_at_each


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_frame_torn_by_a_full_disk_is_refused_and_the_log_goes_on(
    durability: str, tmp_path: Path
) -> None:
    counts = [*range(1, FRAME_BYTES, 30), FRAME_BYTES - 1]
    with small_disk(tmp_path / "disk") as folder:
        assert tear_at_each(folder, durability, counts) == len(counts)

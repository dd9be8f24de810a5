"""Part 2 of the scenarios of test_crash_images.py: files of tests run beside each other."""

import pytest

from .crash.quick import SECONDS_MAX, look_at, names


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("name", names(1))
def test_nothing_acked_is_lost_on_any_disk_a_power_cut_may_leave(name: str) -> None:
    look_at(name)

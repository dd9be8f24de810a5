"""Files that are missing, cut, zeroed, stale, grown or another's: no record is lost in silence.

The long tier: `python -m tests.soak.file_damage`.
"""

from collections.abc import Iterator
from random import Random

import pytest
import structlog

from .damage import build, disk_with, examine, kinds_of
from .file_damage import DAMAGES, TRADING, Tally, damage_each, damage_some

LOGS = {"active", "sealed"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the storage engine says about each damage would be thousands of lines."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


def test_every_damage_to_every_file_is_answered() -> None:
    world = build(1)
    tally = damage_each(world, 1, lambda name, kind: name not in TRADING or kind not in LOGS)
    assert tally.findings == []
    assert tally.count > 200
    assert {"whole", "gap", "refused"} == set(tally.outcomes)


def test_the_log_file_of_another_partition_is_not_served() -> None:
    world = build(1)
    tally = damage_each(world, 1, lambda name, kind: name in TRADING and kind in LOGS)
    assert tally.findings == []


def test_damages_that_meet_are_answered() -> None:
    world = build(2)
    tally = Tally()
    for seed in range(300):
        damage_some(world, Random(seed), tally)
    assert tally.findings == []
    assert tally.count > 280


def test_an_undamaged_directory_is_whole() -> None:
    world = build(3)
    verdict = examine(world, disk_with(world.files))
    assert (verdict.outcome, verdict.gaps, verdict.violations) == ("whole", 0, [])
    assert {"active", "sealed", "index", "manifest", "producers", "snapshot"} <= {
        *kinds_of(world.files).values()
    }
    assert len(DAMAGES) == 9

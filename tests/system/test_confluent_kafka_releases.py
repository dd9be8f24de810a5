"""confluent-kafka: the newest release and older ones, for the table of clients.

test_confluent_kafka.py drives the newest in this process; here it does what the older ones do.

The steps are in tests/support/clients/confluent_kafka_steps.py: a program,
because an old release lives in an environment of its own.
"""

from importlib.metadata import version
from pathlib import Path

import pytest

from ..support.clients import confluent_kafka_steps as scenario
from ..support.clients.lots import CODECS
from ..support.releases import Release, interpreter
from ..support.scenario import Report, cases, each
from .conftest import Play
from .ours import check_that_our_client_reads

RELEASES = [
    Release(version("confluent-kafka")),
    # 2.6.0 sends Fetch 12 whatever the broker offers; below 2.11.1 an exact Produce, Fetch or
    # ListOffsets version must be among the offered ones for a feature to be used.
    Release("2.8.0", ("confluent-kafka==2.8.0",), (3, 13)),
    Release("2.6.0", ("confluent-kafka==2.6.0",), (3, 12)),
]


def report_of(release: Release, play_once: Play, cache: Path) -> Report:
    return play_once([str(interpreter(release, cache)), "-m", scenario.__name__])


@pytest.mark.parametrize(("release", "step"), cases(scenario.STEPS, RELEASES))
def test_confluent_kafka(release: Release, step: str, play_once: Play, release_cache: Path) -> None:
    report_of(release, play_once, release_cache).check(step)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("release", each(RELEASES))
def test_our_client_reads_what_confluent_kafka_wrote(
    release: Release, codec: str, play_once: Play, release_cache: Path, bootstrap: str
) -> None:
    report = report_of(release, play_once, release_cache)
    check_that_our_client_reads(bootstrap, f"{report.prefix}-theirs-{codec}")

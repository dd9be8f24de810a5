"""kafka-python, unmodified, newest and old releases, both ways round with our client.

The steps are in tests/support/clients/kafka_python_steps.py: a program,
because an old release lives in an environment of its own.
"""

from importlib.metadata import version
from pathlib import Path

import pytest

from ..support.clients import kafka_python_steps as scenario
from ..support.clients.lots import CODECS
from ..support.releases import Release, interpreter
from ..support.scenario import Report, cases, each
from .conftest import Play
from .ours import check_that_our_client_reads

RELEASES = [
    Release(version("kafka-python")),
    Release("2.3.0", ("kafka-python==2.3.0", "python-snappy", "lz4", "zstandard")),
    # Its vendored six does not import on 3.12.
    Release("2.0.2", ("kafka-python==2.0.2", "python-snappy", "lz4", "zstandard"), (3, 11)),
]


def report_of(release: Release, play_once: Play, cache: Path) -> Report:
    return play_once([str(interpreter(release, cache)), "-m", scenario.__name__])


@pytest.mark.parametrize(("release", "step"), cases(scenario.STEPS, RELEASES))
def test_kafka_python(release: Release, step: str, play_once: Play, release_cache: Path) -> None:
    report_of(release, play_once, release_cache).check(step)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("release", each(RELEASES))
def test_our_client_reads_what_kafka_python_wrote(
    release: Release, codec: str, play_once: Play, release_cache: Path, bootstrap: str
) -> None:
    report = report_of(release, play_once, release_cache)
    check_that_our_client_reads(bootstrap, f"{report.prefix}-theirs-{codec}")

"""aiokafka, unmodified, newest and old releases, both ways round with our client.

The steps are in tests/support/clients/aiokafka_steps.py: a program,
because an old release lives in an environment of its own.
"""

from importlib.metadata import version
from pathlib import Path

import pytest

from ..support.clients import aiokafka_steps as scenario
from ..support.clients.lots import CODECS
from ..support.releases import Release, interpreter
from ..support.scenario import Report, cases, each
from .conftest import Play
from .ours import check_that_our_client_reads

RELEASES = [
    Release(version("aiokafka")),
    # Neither has wheels for later Pythons.
    Release("0.12.0", ("aiokafka[snappy,lz4,zstd]==0.12.0",), (3, 13)),
    Release("0.10.0", ("aiokafka[snappy,lz4,zstd]==0.10.0",), (3, 12)),
]


def report_of(release: Release, play_once: Play, cache: Path) -> Report:
    return play_once([str(interpreter(release, cache)), "-m", scenario.__name__])


@pytest.mark.parametrize(("release", "step"), cases(scenario.STEPS, RELEASES))
def test_aiokafka(release: Release, step: str, play_once: Play, release_cache: Path) -> None:
    report_of(release, play_once, release_cache).check(step)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("release", each(RELEASES))
def test_our_client_reads_what_aiokafka_wrote(
    release: Release, codec: str, play_once: Play, release_cache: Path, bootstrap: str
) -> None:
    report = report_of(release, play_once, release_cache)
    check_that_our_client_reads(bootstrap, f"{report.prefix}-theirs-{codec}")

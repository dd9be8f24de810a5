"""The Java kafka-clients, unmodified, newest and old releases, both ways round with our client.

The steps are in tests/support/clients/KafkaClientsSteps.java.
"""

import re
from pathlib import Path

import pytest

from ..support.clients.lots import CODECS
from ..support.java import NEWEST, RELEASES, program
from ..support.scenario import ROOT, Report
from .conftest import Play
from .ours import check_that_our_client_reads

SOURCE = ROOT / "tests/support/clients/KafkaClientsSteps.java"
STEPS = re.findall(r'steps\.put\("(\w+)"', SOURCE.read_text())
each_release = pytest.mark.parametrize(
    "release",
    [NEWEST, *(pytest.param(r, marks=pytest.mark.matrix) for r in RELEASES if r != NEWEST)],
)


def report_of(release: str, play_once: Play, folder: Path, source: Path = SOURCE) -> Report:
    return play_once(program(source.stem, folder, release))


@each_release
@pytest.mark.parametrize("step", STEPS)
def test_java_client(release: str, step: str, play_once: Play, release_cache: Path) -> None:
    report_of(release, play_once, release_cache).check(step)


@each_release
@pytest.mark.parametrize("codec", CODECS)
def test_our_client_reads_what_java_wrote(
    release: str, codec: str, play_once: Play, release_cache: Path, bootstrap: str
) -> None:
    report = report_of(release, play_once, release_cache)
    check_that_our_client_reads(bootstrap, f"{report.prefix}-theirs-{codec}")
